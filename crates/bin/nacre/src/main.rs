//! `nacre`: the one binary. Picks the real implementations and starts daemons; decides nothing else.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool speaks to people")]

mod allocator;
mod args;
mod files;
mod machine;
mod mon;
mod osd;
mod sd_notify;
mod signals;
mod supervisor;
mod up;
mod user;

use args::{Cli, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    allocator::keep_free_pages();
    nacre_service::log::start();
    let command = Cli::parse().command;
    let user = command.user();
    if let Err(error) = user.map_or(Ok(()), |(user, dir)| user::become_user(user, dir)) {
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
