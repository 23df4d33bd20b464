//! `nacre bench run`: cells on one side, some repetitions each.

use crate::load::Load;
use crate::results::{Output, Results};
use crate::session::Session;
use crate::spec::{Running, Setup, Spec};
use crate::{html, table};
use anyhow::{Context, Result, bail};
use clap::Args;
use nacre_env::outln;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const REPETITIONS_MAX: usize = 1000;

/// Options of `nacre bench run`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    load: Load,
    /// Configuration (ceph.conf) of a cluster that runs; without it a `nacre up --processes` is started for the bench.
    #[arg(long, requires = "keyring")]
    conf: Option<PathBuf>,
    /// Keyring of the user.
    #[arg(long, requires = "conf")]
    keyring: Option<PathBuf>,
    /// User, without `client.`.
    #[arg(long, default_value = "admin", requires = "conf")]
    user: String,
    /// Pool to make the image in; by default one of the bench's own, removed in the end.
    #[arg(long, requires = "conf")]
    pool: Option<String>,
    /// Processes of the OSDs, for what they use of the machine; by default those of run/osd.*.pid beside the
    /// configuration.
    #[arg(long, value_delimiter = ',', requires = "conf")]
    pids: Vec<u32>,
    /// Options of the `nacre up` that is started, each as one word, such as --up=--osds=1.
    #[arg(long = "up", allow_hyphen_values = true, conflicts_with = "conf")]
    up: Vec<String>,
    /// Repetitions of each cell.
    #[arg(long, default_value_t = 3)]
    repetitions: usize,
    /// What this side is called in the results.
    #[arg(long, default_value = "a")]
    label: String,
    #[command(flatten)]
    output: Output,
}

/// Options of `nacre bench report`.
#[derive(Debug, Args)]
pub struct ReportOptions {
    /// Files of results.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// File for a report with plots; without it a table is printed.
    #[arg(long)]
    html: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if !(1..=REPETITIONS_MAX).contains(&options.repetitions) {
        bail!("--repetitions is from 1 to {REPETITIONS_MAX}");
    }
    if options.label.is_empty()
        || !options.label.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    {
        bail!("--label is made of letters, digits, '-', '_' and '.'");
    }
    let spec = spec(options)?;
    let Output { dir, out, html } = &options.output;
    let sides = [(options.label.as_str(), &spec)];
    let mut session = Session::open(&options.load, &sides, dir.as_deref(), out.as_deref())?;
    for repetition in 0..options.repetitions {
        for cell in session.cells.clone() {
            session.measure(0, cell, repetition)?;
        }
    }
    show(&session.writer.results, html.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

fn spec(options: &Options) -> Result<Spec> {
    let (Some(conf), Some(keyring)) = (&options.conf, &options.keyring) else {
        let binary = std::env::current_exe().context("where is this binary?")?;
        return Ok(Spec::Nacre { binary, options: options.up.clone(), setup: Setup::default() });
    };
    Ok(Spec::Cluster(Running {
        conf: conf.clone(),
        keyring: keyring.clone(),
        user: options.user.clone(),
        pool: options.pool.clone(),
        pids: options.pids.clone(),
    }))
}

fn show(results: &Results, report: Option<&Path>) -> Result<()> {
    outln!("\n{}", table::of(results));
    match report {
        Some(path) => html::write(path, results, &[]),
        None => Ok(()),
    }
}

pub(crate) fn report(options: &ReportOptions) -> Result<ExitCode> {
    let mut all = Results::default();
    for file in &options.files {
        let results = Results::read(file)?;
        all.headers.extend(results.headers);
        all.rows.extend(results.rows);
    }
    show(&all, options.html.as_deref())?;
    Ok(ExitCode::SUCCESS)
}
