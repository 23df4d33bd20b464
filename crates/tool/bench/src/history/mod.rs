//! `nacre bench history`: the figures of many runs over time, by their files of results, and where they changed.

mod energy;
mod plot;
mod series;

use crate::figures::{Metric, median};
use crate::judging::parse_metric;
use crate::results::Results;
use crate::table::{number, percent};
use anyhow::{Context, Result, bail};
use clap::Args;
use energy::{SIDE_MIN, Settings, changes};
use nacre_env::{out, outln};
use nacre_types::UTime;
use series::{Point, Series};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Of one series; earlier runs are left out.
const POINTS_MAX: usize = 300;
/// Files of one archive.
const FILES_MAX: usize = 10_000;
/// Random orders of a series that a change is held against.
const ORDERS: usize = 999;
const METRICS: [Metric; 3] = [Metric::MeanUs, Metric::P99Us, Metric::ServerCpuUs];

/// Options of `nacre bench history`.
#[derive(Debug, Args)]
pub struct Options {
    /// Files of results (--out of run, compare and experiment, which append to them), or folders with such files (*.jsonl).
    #[arg(required = true)]
    archive: Vec<PathBuf>,
    /// Figures to show, as they are called in the results.
    #[arg(long, value_delimiter = ',', value_parser = parse_metric)]
    metrics: Vec<Metric>,
    /// Of 100 series without a change, at least so many show none.
    #[arg(long, default_value_t = 99.0)]
    confidence: f64,
    /// Percent of change that is nobody's concern.
    #[arg(long, default_value_t = 1.0)]
    margin: f64,
    /// Seed of the random orders.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the changes as JSON lines, and nothing else.
    #[arg(long)]
    json: bool,
    /// File for a report with plots.
    #[arg(long)]
    html: Option<PathBuf>,
}

/// A change that was found in a series.
#[derive(Debug)]
struct Change {
    /// Of the first run after it.
    at: usize,
    /// Medians of the runs from the change before it, and up to the next one.
    before: f64,
    after: f64,
}

impl Change {
    fn share(&self) -> f64 {
        self.after / self.before - 1.0
    }

    fn verdict(&self, metric: Metric) -> &'static str {
        if (self.after > self.before) == metric.is_gain() { "better" } else { "worse" }
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if !(50.0..=99.9).contains(&options.confidence) || !(0.0..=1000.0).contains(&options.margin) {
        bail!("--confidence is from 50 to 99.9 percent, --margin from 0 to 1000");
    }
    let metrics = if options.metrics.is_empty() { METRICS.to_vec() } else { options.metrics.clone() };
    let mut all = series::of(&read(&options.archive)?, &metrics);
    for series in &mut all {
        series.points.drain(..series.points.len().saturating_sub(POINTS_MAX));
    }
    let found: Vec<(Series, Vec<Change>)> = all
        .into_iter()
        .map(|series| {
            let changes = changes_of(&series, options);
            (series, changes)
        })
        .collect();
    for (series, changes) in &found {
        if options.json {
            changes.iter().for_each(|change| outln!("{}", to_json(series, change)));
        } else {
            out!("{}", show(series, changes));
        }
    }
    if let Some(path) = &options.html {
        std::fs::write(path, plot::report(&found)).with_context(|| path.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// All runs of the files, and of those in the folders.
fn read(archive: &[PathBuf]) -> Result<Vec<Results>> {
    let mut files = Vec::new();
    for path in archive {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).with_context(|| path.display().to_string())?;
        let entries = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        let of_results = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "jsonl");
        files.extend(entries.into_iter().filter(of_results));
    }
    if files.is_empty() || files.len() > FILES_MAX {
        bail!("{} files of results (*.jsonl) where 1 to {FILES_MAX} are wanted", files.len());
    }
    files.sort();
    let runs = files.iter().map(|file: &PathBuf| Results::runs(Path::new(file)));
    Ok(runs.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Changes beyond the margin. By logarithms: twice as fast and half as fast weigh the same.
fn changes_of(series: &Series, options: &Options) -> Vec<Change> {
    let logs: Vec<f64> = series.points.iter().map(|point| point.value.ln()).collect();
    let settings = Settings { error: 1.0 - options.confidence / 100.0, orders: ORDERS, seed: options.seed };
    let cuts = changes(&logs, &settings);
    let ends: Vec<usize> = std::iter::once(0).chain(cuts).chain([series.points.len()]).collect();
    let middle = |from: usize, to: usize| {
        let points = series.points.get(from..to).unwrap_or_default();
        median(points.iter().map(|point| point.value)).unwrap_or_default()
    };
    let change = |ends: &[usize]| match ends {
        [from, at, to] => Some(Change { at: *at, before: middle(*from, *at), after: middle(*at, *to) }),
        _ => None,
    };
    let all = ends.windows(3).filter_map(change);
    all.filter(|change| (change.after / change.before).ln().abs() > (options.margin / 100.0).ln_1p())
        .collect()
}

fn when(point: &Point) -> String {
    UTime::from_unix(Duration::from_millis(point.began_ms)).to_string()
}

fn show(series: &Series, changes: &[Change]) -> String {
    let Series { cell, setting, metric, points } = series;
    let mut out = format!("{cell} {} ({setting})\n", metric.name());
    let value = |point: &Point| number(Some(point.value));
    if let (Some(first), Some(last)) = (points.first(), points.last()) {
        let middle = number(median(points.iter().map(|point| point.value)));
        out.push_str(&format!(
            "  {} runs from {} to {}: first {}, median {middle}, last {}\n",
            points.len(),
            when(first),
            when(last),
            value(first),
            value(last),
        ));
    }
    if points.len() < 2 * SIDE_MIN {
        out.push_str(&format!("  no change can be told in fewer than {} runs\n", 2 * SIDE_MIN));
    } else if changes.is_empty() {
        out.push_str("  no change\n");
    }
    for change in changes {
        let Some(point) = points.get(change.at) else { continue };
        out.push_str(&format!(
            "  {} since {}: {} before, {} after ({}); {}\n",
            change.verdict(*metric),
            when(point),
            number(Some(change.before)),
            number(Some(change.after)),
            percent(change.share()),
            point.program,
        ));
    }
    out
}

fn to_json(series: &Series, change: &Change) -> serde_json::Value {
    let point = series.points.get(change.at);
    serde_json::json!({
        "kind": "change",
        "cell": series.cell,
        "setting": series.setting,
        "metric": series.metric.name(),
        "since_ms": point.map(|point| point.began_ms),
        "program": point.map(|point| point.program.as_str()),
        "before": change.before,
        "after": change.after,
        "percent": (change.share() * 1e4).round() / 1e2,
        "verdict": change.verdict(series.metric),
    })
}

#[cfg(test)]
mod tests;
