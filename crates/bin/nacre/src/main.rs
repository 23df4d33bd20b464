//! `nacre`: the one binary. Picks the real implementations and starts daemons; decides nothing else.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool speaks to people")]

mod allocator;
mod files;
mod mon;
mod osd;
mod process;
mod processes;
mod up;
mod user;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// A storage cluster that speaks the Ceph wire protocol.
#[derive(Debug, Parser)]
#[command(name = "nacre", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a whole cluster on this machine: one monitor and some OSDs, in this process or in several.
    Up(up::Options),
    /// Run the monitor of a cluster.
    Mon(mon::Options),
    /// Run OSDs of a cluster.
    Osd(osd::Options),
    /// Look at, check, repair and move what a stopped OSD keeps; measure a store.
    #[command(subcommand)]
    Store(nacre_store_tool::Command),
    /// Measure clusters, and say which of two is better.
    #[command(subcommand)]
    Bench(nacre_bench::Command),
}

impl Command {
    fn become_user(&self) -> anyhow::Result<()> {
        let (user, dir) = match self {
            Self::Up(options) => options.user(),
            Self::Mon(options) => options.user(),
            Self::Osd(options) => options.user(),
            Self::Store(_) | Self::Bench(_) => return Ok(()),
        };
        user::become_user(user, dir)
    }
}

fn main() -> ExitCode {
    allocator::keep_free_pages();
    nacre_service::log::start();
    let command = Cli::parse().command;
    if let Err(error) = command.become_user() {
        eprintln!("nacre: {error:#}");
        return ExitCode::FAILURE;
    }
    // The bench starts fio, which is to have its memory as it always has.
    if !matches!(command, Command::Bench(_)) {
        allocator::use_small_pages();
    }
    let done = |()| ExitCode::SUCCESS;
    let outcome = match command {
        Command::Up(options) => up::run(&options).map(done),
        Command::Mon(options) => mon::run(&options).map(done),
        Command::Osd(options) => osd::run(&options).map(done),
        Command::Store(command) => nacre_store_tool::run(&command),
        Command::Bench(command) => nacre_bench::run(&command),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("nacre: {error:#}");
        ExitCode::FAILURE
    })
}
