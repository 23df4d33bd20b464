//! `nacre doctor` and `nacre why-slow`: what is wrong with a machine and with a cluster, in plain words, the costliest first. See docs/doctor.md.
//!
//! | file | holds |
//! |---|---|
//! | `report` | findings, and what is unknown; as text and as JSON |
//! | `cluster` | what a cluster tells of itself, and the checks of it; the session over which it is asked |
//! | `why_slow` | where clients' time goes between two looks at the OSDs' counters |
//! | `host` | facts of one machine, and the checks of them; what can be fixed |
//!
//! Layer: tool; uses base, io and daemon.

mod cluster;
mod host;
mod report;
mod why_slow;

pub use cluster::session::{Answer, ClusterArgs, Session};
pub use why_slow::{WhySlowOptions, run as why_slow};

use anyhow::{Result, bail};
use clap::Args;
use nacre_env::outln;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Something was found that clients feel.
const FOUND: u8 = 3;
/// Longer than anybody waits for an answer; `nacre why-slow` watches for longer.
const SECONDS_MAX: u32 = 600;

/// Options of `nacre doctor`.
#[derive(Debug, Args)]
pub struct Options {
    /// Folder below which the machine's files lie (proc, sys, etc), as of a copy from another machine. What its symbolic links lead to
    /// outside is neither read nor set.
    #[arg(long, default_value = "/")]
    root: PathBuf,
    /// Print one JSON object instead of text for people.
    #[arg(long)]
    json: bool,
    /// Set what is safe to set and can be set back: governors and I/O schedulers, until the machine's next start.
    #[arg(long)]
    fix: bool,
    /// Seconds between two looks at the counters of a cluster's OSDs, which say what is so now; 0: what they have counted is not compared.
    #[arg(long, default_value_t = 5, requires = "conf")]
    seconds: u32,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Looks, and prints what was found. The code is that of the process: 0 when nothing is wrong that clients feel, 3 when something
/// is, 1 when the cluster that was asked for does not answer.
///
/// # Errors
/// When it cannot look at all.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.seconds > SECONDS_MAX {
        bail!("--seconds is at most {SECONDS_MAX}");
    }
    let window = Duration::from_secs(options.seconds.into());
    let host = host::Host::new(&options.root);
    let mut report = report::Report::default();
    host::check(&host, &mut report);
    if let Some(conf) = &options.cluster.conf {
        let facts = Session::open(&options.cluster, conf)
            .and_then(|mut session| cluster::Facts::ask(&mut session, window));
        match facts {
            Ok(facts) => cluster::check(&facts, &mut report),
            Err(error) => {
                report.unknown("cluster", format!("{error:#}"));
                report.is_cluster_lost = true;
            }
        }
    } else {
        report.unknown("cluster", "none was asked; -c CEPH.CONF names one");
    }
    report.sort();
    if options.fix {
        host::fix(&host, &mut report);
    }
    if options.json {
        outln!("{:#}", report.to_json());
    } else {
        outln!("{}", report.to_text());
    }
    Ok(match () {
        () if report.is_cluster_lost => ExitCode::FAILURE,
        () if report.is_costly() => ExitCode::from(FOUND),
        () => ExitCode::SUCCESS,
    })
}
