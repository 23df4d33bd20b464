//! `nacre why-slow`: where the time goes that clients wait for OSDs. See docs/doctor.md.

mod account;
mod samples;
mod settings;
mod text;
mod verdict;

#[cfg(test)]
mod tests;

use crate::cluster::pgs_in;
use crate::cluster::session::{Answer, ClusterArgs, Session};
use crate::host::Host;
use crate::host::clients::Clients;
use account::Account;
use anyhow::{Result, bail};
use clap::Args;
use nacre_env::outln;
use samples::Samples;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use verdict::{Beside, Verdict};

const SECONDS_MAX: u32 = 3600;
/// Moments of a window at which messages under way are looked at: each costs every OSD a list of them.
const MOMENTS: u32 = 20;

/// Options of `nacre why-slow`.
#[derive(Debug, Args)]
pub struct WhySlowOptions {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Seconds to watch.
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Print one JSON object instead of text for people.
    #[arg(long)]
    json: bool,
}

/// Watches, and prints where the time went. Changes nothing.
///
/// # Errors
/// When the cluster does not answer.
pub fn run(options: &WhySlowOptions) -> Result<ExitCode> {
    if !(1..=SECONDS_MAX).contains(&options.seconds) {
        bail!("--seconds is from 1 to {SECONDS_MAX}");
    }
    let mut session = Session::open(&options.cluster, &options.cluster.conf_or_default())?;
    let osds = session.osds();
    if osds.is_empty() {
        bail!("no OSD is up: `nacre doctor -c CEPH.CONF` says more");
    }
    let addrs = osd_addrs(&session.ask("osd dump", &[]));
    let settings = settings::in_the_way(&session.ask("config dump", &[]));
    let host = Host::new(Path::new("/"));
    let local = || Clients::find(&host, &addrs);
    let mut samples = Samples::default();
    let window_s = f64::from(options.seconds);
    let clients = local();
    let before = session.tell(&osds, "perf dump");
    let began_s = session.now_s();
    for moment in 1..=MOMENTS {
        let due_s = began_s + window_s * f64::from(moment) / f64::from(MOMENTS + 1);
        session.wait(Duration::try_from_secs_f64(due_s - session.now_s()).unwrap_or_default())?;
        samples.add(&session.tell(&osds, "dump_ops_in_flight"), window_s);
    }
    session.wait(Duration::try_from_secs_f64(began_s + window_s - session.now_s()).unwrap_or_default())?;
    let ended_s = session.now_s();
    let after = session.tell(&osds, "perf dump");
    let status = session.ask("status", &[]);
    let pgs = |words: &[&str]| status.as_ref().map_or(0, |status| pgs_in(status, words));
    let beside = Beside {
        recovering: pgs(&["recovering", "backfilling"]),
        scrubbing: pgs(&["scrubbing"]),
        processes: local().since(&clients, ended_s - began_s),
        settings,
    };
    let account = Account::new(&before, &after, ended_s - began_s, samples);
    let verdicts = verdict::verdicts(&account, &beside);
    if options.json {
        let mut shown = account.to_json();
        shown["verdicts"] = verdicts.iter().map(Verdict::to_json).collect();
        outln!("{shown:#}");
    } else {
        outln!("{}", text::text(&account));
        verdicts.iter().for_each(|verdict| outln!("{}", verdict.to_text()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Where OSDs listen for clients.
fn osd_addrs(dump: &Answer) -> BTreeSet<SocketAddr> {
    let osds = dump.as_ref().ok().and_then(|dump| dump["osds"].as_array());
    let addrs =
        osds.into_iter().flatten().filter_map(|osd| osd["public_addrs"]["addrvec"].as_array()).flatten();
    addrs.filter_map(|addr| addr["addr"].as_str()?.parse().ok()).collect()
}
