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

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "reports go to standard output")]

mod cluster;
mod host;
mod report;
mod why_slow;

pub use cluster::session::{Answer, ClusterArgs, Session};
pub use why_slow::{WhySlowOptions, run as why_slow};

use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Something was found that clients feel.
const FOUND: u8 = 3;

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
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Looks, and prints what was found. The code is that of the process: 0 when nothing is wrong that clients feel, 3 when something
/// is, 1 when the cluster that was asked for does not answer.
///
/// # Errors
/// When it cannot look at all.
pub fn run(options: &Options) -> Result<ExitCode> {
    let host = host::Host::new(&options.root);
    let mut report = report::Report::default();
    host::check(&host, &mut report);
    if let Some(conf) = &options.cluster.conf {
        match Session::open(&options.cluster, conf) {
            Ok(mut session) => cluster::check(&cluster::Facts::ask(&mut session), &mut report),
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
        println!("{:#}", report.to_json());
    } else {
        println!("{}", report.to_text());
    }
    Ok(match () {
        () if report.is_cluster_lost => ExitCode::FAILURE,
        () if report.is_costly() => ExitCode::from(FOUND),
        () => ExitCode::SUCCESS,
    })
}
