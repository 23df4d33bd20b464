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
//! | `spec` | what a side is, as it is written on the command line |
//! | `side` | a cluster that load is put on |
//! | `fio` | stock fio with its rbd engine |
//! | `own` | a client of our own |
//! | `usage` | what the servers' processes used |
//! | `stages` | what operations spent where on the OSDs |
//! | `latency`, `figures` | what one repetition gave |
//! | `results` | the file of a run |
//! | `session` | sides, ready for load, and the results so far |
//! | `finding` | what a comparison found about one figure |
//! | `judging` | by what two sides are judged |
//! | `run`, `compare` | the commands |
//! | `experiment` | comparisons that are ready-made |
//! | `bisect` | which of several binaries was the first to be slower |
//! | `history` | figures of many runs over time, and where they changed |
//! | `stats` | are two sides different: pure functions |
//! | `table`, `html` | for people |
//!
//! Layer: tool; uses base, io and daemon.

mod bisect;
mod builds;
mod cell;
mod compare;
mod driver;
mod experiment;
mod figures;
mod finding;
mod fio;
mod history;
mod host;
mod html;
mod judging;
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
mod spec;
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
    /// Carry out a comparison that is ready-made; without a name: list them.
    Experiment(experiment::Options),
    /// Find the first of several binaries, in order, that is slower than the first one.
    Bisect(bisect::Options),
    /// Show the figures of many runs over time, and where they changed.
    History(history::Options),
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
        Command::Experiment(options) => experiment::run(options),
        Command::Bisect(options) => bisect::run(options),
        Command::History(options) => history::run(options),
        Command::Report(options) => run::report(options),
    }
}
