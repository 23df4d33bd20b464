//! `nacre`: the one binary. Picks the real implementations and starts daemons; decides nothing else.
#![allow(clippy::print_stdout, reason = "a command line tool speaks on standard output")]

mod files;
mod up;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// A storage cluster that speaks the Ceph wire protocol.
#[derive(Debug, Parser)]
#[command(name = "nacre", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a whole cluster in this process: one monitor and some OSDs on loopback.
    Up(up::Options),
}

fn main() -> Result<()> {
    nacre_service::log::start();
    match Cli::parse().command {
        Command::Up(options) => up::run(&options),
    }
}
