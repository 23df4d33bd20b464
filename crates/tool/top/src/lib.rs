//! `nacre top`: how a cluster is, in a terminal and every second; the same facts as the web page's, from the command `nacre overview`.
//!
//! | file | holds |
//! |---|---|
//! | `facts` | what the cluster said, safe to be shown |
//! | `tables` | the facts as lines and tables, whoever shows them |
//! | `plain` | those as text, for `--once` |
//! | `screen` | those in a terminal, and what keys do |
//! | `watch` | asking every second, on a thread of its own |
//!
//! Layer: tool; uses base and the session of nacre-doctor.

mod facts;
mod plain;
mod screen;
mod tables;
#[cfg(test)]
mod tests;
mod watch;

use anyhow::{Context, Result, bail};
use clap::Args;
use facts::Facts;
use nacre_doctor::{ClusterArgs, Session};
use nacre_env::{out, outln};
use screen::{After, App};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{IsTerminal, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use watch::Watch;

/// Keys and news are looked at so often.
const POLL: Duration = Duration::from_millis(100);

/// Options of `nacre top`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Print the facts once, as text, and end.
    #[arg(long)]
    once: bool,
    /// Print the facts once, as one JSON object, and end.
    #[arg(long)]
    json: bool,
}

/// Shows how the cluster is until `q` is pressed, or once. Changes nothing.
///
/// # Errors
/// When the cluster does not answer at the beginning, is none of ours, or there is no terminal.
pub fn run(options: &Options) -> Result<ExitCode> {
    if !options.once && !options.json && !stdout().is_terminal() {
        bail!("standard output is no terminal: --once or --json print the facts");
    }
    let mut session = Session::open(&options.cluster, &options.cluster.conf_or_default())?;
    let first = watch::overview(&mut session).map_err(anyhow::Error::msg)?;
    if options.json {
        outln!("{first:#}");
    } else if options.once {
        out!("{}", plain::text(&Facts::new(first)));
    } else {
        interactive(Watch::start(session)?, Facts::new(first))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The terminal is given back as it was, also by a panic (`try_init` sees to that) and when a signal ends us.
fn interactive(watch: Watch, first: Facts) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot wait for signals")?;
    }
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
    let shown = show(&mut terminal, &watch, App::new(first), &stop);
    ratatui::try_restore().context("cannot give the terminal back; `reset` does")?;
    shown
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    watch: &Watch,
    mut app: App,
    stop: &AtomicBool,
) -> Result<()> {
    let mut is_new = true;
    while !stop.load(Ordering::Acquire) {
        for news in watch.news() {
            app.take_in(news);
            is_new = true;
        }
        if is_new {
            terminal.draw(|frame| app.draw(frame))?;
        }
        is_new = false;
        if ratatui::crossterm::event::poll(POLL)? {
            match app.event(&ratatui::crossterm::event::read()?) {
                After::End => break,
                After::Draw => is_new = true,
                After::Nothing => (),
            }
        }
    }
    Ok(())
}
