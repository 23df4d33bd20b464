//! `nacre bench experiment`: comparisons that are ready-made, on clusters that they start themselves.

mod catalogue;

use crate::cell::parse_cells;
use crate::compare::alternate;
use crate::finding::{Finding, findings, show};
use crate::judging::Judging;
use crate::load::Load;
use crate::results::{Output, Results};
use crate::session::{Scratch, Session};
use crate::spec::Spec;
use crate::stats::Verdict;
use crate::{html, table};
use anyhow::{Context, Result, bail};
use catalogue::{EXPERIMENTS, Experiment, Variant};
use clap::Args;
use nacre_env::{out, outln};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What the start of two clusters and the filling of their images takes, beside the load: as seen on two processors.
const PREPARING_S: usize = 30;

/// Options of `nacre bench experiment`.
#[derive(Debug, Args)]
pub struct Options {
    /// Which; without it all are listed, with what each asks and how long it takes.
    name: Option<String>,
    /// The program that is tried; by default this one.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Options of the `nacre up` of all clusters, each as one word, such as --up=--osd-size=8G.
    #[arg(long = "up", allow_hyphen_values = true)]
    up: Vec<String>,
    /// For log-device: a folder on the device that is to hold the logs.
    #[arg(long)]
    log_dir: Option<PathBuf>,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    judging: Judging,
    #[command(flatten)]
    output: Output,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let Some(name) = &options.name else {
        out!("{}", list(options)?);
        return Ok(ExitCode::SUCCESS);
    };
    let known = EXPERIMENTS.iter().find(|experiment| experiment.name == name);
    let experiment = known.with_context(|| {
        let names: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
        format!("no experiment is called '{name}'; there are {}", names.join(", "))
    })?;
    let (pairs, load) = (experiment.plan.pairs, load_of(experiment, &options.load));
    let log = log_folder(options, pairs)?;
    let (mut all, mut found) = (Results::default(), Vec::new());
    if !options.judging.json {
        outln!("{}", experiment.asks);
    }
    for pair in pairs {
        let (results, findings) = compare(options, &load, pair, log.as_ref())?;
        if options.judging.json {
            findings.iter().for_each(|finding| outln!("{}", finding.to_json()));
        } else {
            tell(pair, &results, &findings, options)?;
        }
        all.headers.extend(results.headers);
        all.rows.extend(results.rows);
        found.extend(findings);
        // After each pair: one that breaks off leaves what was found before it.
        if let Some(path) = &options.output.html {
            html::write(path, &all, &found)?;
        }
    }
    if !options.judging.json {
        outln!("Mind that {}.", experiment.mind);
    }
    Ok(options.judging.exit_code(&found))
}

/// The load, with the experiment's own cells unless others are asked for.
fn load_of(experiment: &Experiment, load: &Load) -> Load {
    let mut load = load.clone();
    if load.cells.is_empty() {
        load.cells = experiment.plan.cells.iter().map(|cell| (*cell).to_owned()).collect();
    }
    load
}

fn compare(
    options: &Options,
    load: &Load,
    (a, b): &(Variant, Variant),
    log: Option<&Scratch>,
) -> Result<(Results, Vec<Finding>)> {
    let (judging, output) = (&options.judging, &options.output);
    let (settings, rounds) = (judging.settings()?, judging.rounds()?);
    let (spec_a, spec_b) = (spec(options, a, log)?, spec(options, b, log)?);
    let sides = [(a.label, &spec_a), (b.label, &spec_b)];
    let mut session = Session::open(load, &sides, output.dir.as_deref(), output.out.as_deref())?;
    for round in 0..rounds {
        alternate(&mut session, round)?;
    }
    let results = session.writer.results.clone();
    let found = findings(&results, (a.label, b.label), &judging.metrics(), &settings);
    Ok((results, found))
}

fn spec(options: &Options, variant: &Variant, log: Option<&Scratch>) -> Result<Spec> {
    let own = std::env::current_exe().context("where is this binary?");
    let binary = options.binary.clone().map_or(own, Ok)?;
    let log = log.filter(|_| variant.has_log_device);
    let log = log.map(|folder| format!("--wal-dir={}", folder.path().display()));
    let up = options.up.iter().map(String::as_str);
    Spec::nacre(&binary, variant.words.iter().copied().chain(log.as_deref()).chain(up))
}

/// Where logs of their own go; refused where that is the device of everything else.
fn log_folder(options: &Options, pairs: &[(Variant, Variant)]) -> Result<Option<Scratch>> {
    let is_wanted = pairs.iter().any(|(a, b)| a.has_log_device || b.has_log_device);
    match (&options.log_dir, is_wanted) {
        (None, false) => Ok(None),
        (Some(_), false) => bail!("--log-dir is for the experiment log-device"),
        (None, true) => bail!("say with --log-dir where the logs are to be: a folder on a device of its own"),
        (Some(folder), true) => {
            let data = options.output.dir.clone().unwrap_or_else(std::env::temp_dir);
            let device = |path: &Path| {
                std::fs::metadata(path).map(|found| found.dev()).with_context(|| path.display().to_string())
            };
            if device(folder)? == device(&data)? {
                let (folder, data) = (folder.display(), data.display());
                bail!(
                    "{folder} is on the same device as {data} (--dir): nothing would be learned of one of its own"
                );
            }
            Scratch::new(Some(folder)).map(Some)
        }
    }
}

fn tell((a, b): &(Variant, Variant), results: &Results, found: &[Finding], options: &Options) -> Result<()> {
    outln!("\n{} (A) and {} (B)\n", a.label, b.label);
    out!("{}\n{}", table::of(results), show(found, &options.judging.settings()?));
    for finding in found {
        let effect = table::percent(finding.comparison.effect);
        let (cell, metric) = (&finding.cell, finding.metric.name());
        let verdict = match finding.comparison.verdict {
            Verdict::Same => format!("the same as {}", a.label),
            Verdict::CannotTell => format!("whether better or worse than {} cannot be told", a.label),
            Verdict::Higher | Verdict::Lower => format!("{} than {}", finding.verdict(), a.label),
        };
        outln!("{}: {verdict}, by {metric} of {cell} ({effect})", b.label);
    }
    Ok(())
}

/// All experiments, with what each asks and takes.
fn list(options: &Options) -> Result<String> {
    let mut out = String::new();
    for experiment in &EXPERIMENTS {
        let load = load_of(experiment, &options.load);
        let seconds = seconds(experiment.plan.pairs.len(), &load, options.judging.rounds()?)?;
        let takes = format!("some {} minutes, of {}", seconds.div_ceil(60), load.cells.join(", "));
        out.push_str(&format!("{}\n    {}\n    {takes}\n", experiment.name, experiment.asks));
    }
    out.push_str("\nnacre bench experiment NAME carries one out; --rounds, --seconds and --cells make it shorter or longer.\n");
    Ok(out)
}

/// How long so many comparisons take.
fn seconds(pairs: usize, load: &Load, rounds: usize) -> Result<usize> {
    let cells = parse_cells(&load.cells)?.len();
    let each = load.seconds.saturating_add(load.warmup) as usize;
    Ok(pairs * (PREPARING_S + 4 * rounds * cells * each))
}

#[cfg(test)]
mod tests;
