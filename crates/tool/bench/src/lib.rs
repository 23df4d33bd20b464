//! `nacre bench`: how fast a cluster is, what that costs, and whether another one is better. See docs/bench.md.
//!
//! | file | holds |
//! |---|---|
//! | `cell` | one kind of load, by name |
//! | `pace` | how its operations follow each other |
//! | `shape` | how many images, objects and connections it has |
//! | `place` | the images or objects that its operations go to |
//! | `driver` | the program that puts the load on |
//! | `load` | what is measured and how long |
//! | `builds` | refuses what was built without optimisation |
//! | `side` | a cluster that load is put on |
//! | `fio` | stock fio with its rbd engine |
//! | `own` | a client of our own |
//! | `usage` | what the servers' processes used |
//! | `stages` | what operations spent where on the OSDs |
//! | `latency`, `figures` | what one repetition gave |
//! | `results` | the file of a run |
//! | `session` | sides, ready for load, and the results so far |
//! | `finding` | what a comparison found about one figure |
//! | `run`, `compare` | the commands |
//! | `stats` | are two sides different: pure functions |
//! | `table`, `html` | for people |
//!
//! Layer: tool; uses base, io and daemon.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "results go to standard output, progress beside it"
)]

mod builds;
mod cell;
mod compare;
mod driver;
mod figures;
mod finding;
mod fio;
mod host;
mod html;
mod latency;
mod load;
mod own;
mod pace;
mod place;
mod results;
mod run;
mod session;
mod shape;
mod side;
mod stages;
mod stats;
mod table;
mod usage;

use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;

/// Commands of `nacre bench`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure cells of load on a cluster.
    Run(run::Options),
    /// Say whether side B is better than side A, worse, the same, or whether this cannot be told.
    Compare(compare::Options),
    /// Show results again, as a table or with plots.
    Report(run::ReportOptions),
}

/// Carries out a command.
///
/// # Errors
/// When the command cannot be carried out; the text says what to do.
pub fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Run(options) => run::run(options),
        Command::Compare(options) => compare::run(options),
        Command::Report(options) => run::report(options),
    }
}
