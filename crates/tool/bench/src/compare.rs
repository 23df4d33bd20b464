//! `nacre bench compare`: two sides in alternation, or two files of results, and a verdict per cell.

use crate::driver::Driver;
use crate::figures::{Metric, median};
use crate::finding::Finding;
use crate::load::Load;
use crate::results::{Output, Results, Row};
use crate::session::Session;
use crate::side::Spec;
use crate::stats::{Comparison, PAIRS_MAX, Pair, Settings, judge};
use crate::{html, table};
use anyhow::{Result, bail};
use clap::Args;
use std::path::Path;
use std::process::ExitCode;

/// Metrics with a verdict, if nobody says otherwise.
const METRICS: [Metric; 3] = [Metric::MeanUs, Metric::P99Us, Metric::ServerCpuUs];

/// Options of `nacre bench compare`.
#[derive(Debug, Args)]
pub struct Options {
    /// Side A: a file of results, `nacre:BINARY[,OPTION..]` (a cluster of that binary is started with these options of
    /// `nacre up`; pgs=1024, images=16, objects=1000, connections=200 among them are of this side's load, osd_NAME=VALUE is set in its OSDs' configuration), or `cluster:CONF:KEYRING[:PID,PID..]` (a cluster that runs, such as a real Ceph).
    a: String,
    /// Side B, of the same kind; left out when one file holds both sides. Or `same:osd_NAME=VALUE[,..]`: side A's cluster of a
    /// binary, whose OSDs are told these options while side B is measured, and side A's again after it.
    b: Option<String>,
    #[command(flatten)]
    load: Load,
    /// Rounds: each runs every cell twice on each side, in the order A B B A, the next B A A B.
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    /// Figures to judge by, as they are called in the results.
    #[arg(long, value_delimiter = ',', value_parser = parse_metric)]
    metrics: Vec<Metric>,
    /// Of 100 verdicts on equal sides, at least so many are not `better` or `worse`.
    #[arg(long, default_value_t = 98.0)]
    confidence: f64,
    /// Percent of difference that is nobody's concern.
    #[arg(long, default_value_t = 1.0)]
    margin: f64,
    /// A run that could not have found a difference of so many percent does not say `same`.
    #[arg(long, default_value_t = 5.0)]
    relevant: f64,
    /// To try the method: hold back answers to side B by so many percent of the time that they took. Only with --client own.
    #[arg(long)]
    planted_delay: Option<f64>,
    /// Print the verdicts as JSON lines, and nothing else.
    #[arg(long)]
    json: bool,
    /// Exit with status 2 when any verdict is `worse`.
    #[arg(long)]
    gate: bool,
    #[command(flatten)]
    output: Output,
}

fn parse_metric(name: &str) -> Result<Metric, String> {
    let names = || Metric::ALL.map(Metric::name).join(", ");
    Metric::parse(name).ok_or_else(|| format!("'{name}' is none of {}", names()))
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let settings = settings(options)?;
    let (results, a, b) = results(options)?;
    let metrics = if options.metrics.is_empty() { METRICS.to_vec() } else { options.metrics.clone() };
    let findings = findings(&results, (&a, &b), &metrics, &settings);
    if findings.is_empty() {
        bail!("the sides have no cell and figure in common");
    }
    if options.json {
        findings.iter().for_each(|finding| println!("{}", finding.to_json()));
    } else {
        print!("\n{}\n{}", table::of(&results), show(&findings, &settings));
        if !is_alternating(&results, (&a, &b)) {
            println!(
                "These sides did not alternate: what changed on the machine between them counts as well."
            );
        }
    }
    if let Some(path) = &options.output.html {
        html::write(path, &results, &findings)?;
    }
    let is_worse = findings.iter().any(|finding| finding.verdict() == "worse");
    Ok(if options.gate && is_worse { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

fn settings(options: &Options) -> Result<Settings> {
    if !(50.0..=99.99).contains(&options.confidence) {
        bail!("--confidence is from 50 to 99.99 percent");
    }
    if !(0.0..=100.0).contains(&options.margin) || !(0.0..=1000.0).contains(&options.relevant) {
        bail!("--margin is from 0 to 100 percent, --relevant from 0 to 1000");
    }
    let (confidence, margin) = (options.confidence / 100.0, options.margin / 100.0);
    Ok(Settings { confidence, margin, relevant: options.relevant / 100.0, ..Settings::default() })
}

/// The results of both sides, and what the sides are called in them.
fn results(options: &Options) -> Result<(Results, String, String)> {
    let a = Spec::parse(&options.a)?;
    let b = options.b.as_deref().map(Spec::parse).transpose()?.flatten();
    match (a, b, &options.b) {
        (Some(a), Some(b), _) => measure(options, &a, &b),
        (None, None, Some(b)) => read_two(Path::new(&options.a), Path::new(b)),
        (None, None, None) => read_one(Path::new(&options.a)),
        _ => bail!("both sides are files of results, or both are clusters (nacre:.. or cluster:..)"),
    }
}

fn measure(options: &Options, a: &Spec, b: &Spec) -> Result<(Results, String, String)> {
    if options.rounds == 0 || options.rounds > PAIRS_MAX / 2 {
        bail!("--rounds is from 1 to {}", PAIRS_MAX / 2);
    }
    let Output { dir, out, .. } = &options.output;
    let sides = [("a", a), ("b", b)];
    let mut session = Session::open(&options.load, &sides, dir.as_deref(), out.as_deref())?;
    if let Some(percent) = options.planted_delay {
        if options.load.client != Driver::Own || !(0.0..=1000.0).contains(&percent) {
            bail!("--planted-delay is from 0 to 1000 percent, and needs --client own");
        }
        session.planted_delay = Some((1, percent / 100.0));
    }
    for round in 0..options.rounds {
        for cell in session.cells.clone() {
            for (side, repetition) in order(round) {
                session.measure(side, cell, repetition)?;
            }
        }
    }
    Ok((session.writer.results.clone(), "a".to_owned(), "b".to_owned()))
}

/// Side and repetition, one after the other: A B B A in even rounds, B A A B in odd ones.
fn order(round: usize) -> [(usize, usize); 4] {
    let (one, other) = if round.is_multiple_of(2) { (0, 1) } else { (1, 0) };
    let (first, second) = (2 * round, 2 * round + 1);
    [(one, first), (other, first), (other, second), (one, second)]
}

fn read_one(path: &Path) -> Result<(Results, String, String)> {
    let results = Results::read(path)?;
    let sides: Vec<String> = results.sides().into_iter().map(str::to_owned).collect();
    match sides.as_slice() {
        [a, b] => Ok((results, a.clone(), b.clone())),
        others => bail!("{} holds {} sides; two are compared", path.display(), others.len()),
    }
}

/// Two files with one side each; in the results the sides are `a` and `b`.
fn read_two(a: &Path, b: &Path) -> Result<(Results, String, String)> {
    let mut all = Results::default();
    for (path, name) in [(a, "a"), (b, "b")] {
        let mut results = Results::read(path)?;
        let sides = results.sides().len();
        if sides != 1 {
            bail!("{} holds {sides} sides; give it alone", path.display());
        }
        results.rows.iter_mut().for_each(|row| name.clone_into(&mut row.side));
        // Several runs appended to one file repeat the numbers.
        for cell in results.cells().into_iter().map(str::to_owned).collect::<Vec<_>>() {
            let rows = results.rows.iter_mut().filter(|row| row.cell == cell);
            rows.zip(0..).for_each(|(row, number)| row.repetition = number);
        }
        all.headers.extend(results.headers);
        all.rows.extend(results.rows);
    }
    Ok((all, "a".to_owned(), "b".to_owned()))
}

/// Repetitions of the same number, next to each other.
fn pairs<'a>(results: &'a Results, (a, b): (&str, &str), cell: &str) -> Vec<(&'a Row, &'a Row)> {
    let others = results.of(b, cell);
    let partner = |row: &Row| others.iter().copied().find(|other| other.repetition == row.repetition);
    results.of(a, cell).into_iter().filter_map(|row| Some((row, partner(row)?))).collect()
}

fn findings(results: &Results, sides: (&str, &str), metrics: &[Metric], settings: &Settings) -> Vec<Finding> {
    let mut all = Vec::new();
    for cell in results.cells() {
        let rows = pairs(results, sides, cell);
        for metric in metrics {
            let values: Vec<(f64, f64, bool)> = rows
                .iter()
                .filter_map(|(a, b)| {
                    Some((a.figures.get(*metric)?, b.figures.get(*metric)?, a.began_ms < b.began_ms))
                })
                .filter(|(a, b, _)| *a > 0.0 && *b > 0.0)
                .collect();
            let pair =
                |(a, b, a_first): &(f64, f64, bool)| Pair { log_ratio: (b / a).ln(), a_first: *a_first };
            let pairs: Vec<Pair> = values.iter().map(pair).collect();
            let middle = |side: fn(&(f64, f64, bool)) -> f64| median(values.iter().map(side));
            let (Some(a), Some(b)) = (middle(|row| row.0), middle(|row| row.1)) else { continue };
            let comparison = judge(&pairs, settings);
            all.push(Finding { cell: cell.to_owned(), metric: *metric, a, b, comparison });
        }
    }
    all
}

/// True when neither side always came first.
fn is_alternating(results: &Results, sides: (&str, &str)) -> bool {
    let pairs = results.cells().into_iter().flat_map(|cell| pairs(results, sides, cell));
    let firsts: Vec<bool> = pairs.map(|(a, b)| a.began_ms < b.began_ms).collect();
    firsts.contains(&true) && firsts.contains(&false)
}

fn show(findings: &[Finding], settings: &Settings) -> String {
    let cell_width = findings.iter().map(|finding| finding.cell.len()).max().unwrap_or(0).max(4);
    let metric_width = findings.iter().map(|finding| finding.metric.name().len()).max().unwrap_or(0);
    let mut out = format!(
        "{:cell_width$} {:metric_width$} {:>9} {:>9} {:>8}  {:^19} {:>6} {:>8}  B is\n",
        "cell", "figure", "A", "B", "B to A", "interval", "size", "visible"
    );
    for finding in findings {
        let Comparison { effect, low, high, effect_size, detectable, .. } = finding.comparison;
        out.push_str(&format!(
            "{:cell_width$} {:metric_width$} {:>9} {:>9} {:>8}  {:>8} to {:>7} {effect_size:>6.2} {:>8}  {}\n",
            finding.cell,
            finding.metric.name(),
            table::number(Some(finding.a)),
            table::number(Some(finding.b)),
            table::percent(effect),
            table::percent(low),
            table::percent(high),
            table::percent(detectable).trim_start_matches('+'),
            finding.verdict(),
        ));
    }
    out.push_str(&format!(
        "Interval of {:.0} % confidence; size: the difference in standard deviations of a pair; visible: the smallest\n\
         difference that this run would have found. `same`: within {:.0} %, and that would have been found; `cannot tell`:\n\
         it might not have been.\n",
        settings.confidence * 100.0,
        settings.relevant * 100.0,
    ));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::row;
    use serde_json::json;

    fn results(sides: &[(&str, f64)]) -> Results {
        let rows = sides.iter().flat_map(|(side, iops)| {
            (0..8).map(move |nth| {
                let mut row = row(side, "read-4k-qd1", nth, iops * (1.0 + 0.001 * (nth % 3) as f64));
                // A first in even pairs.
                row.began_ms = nth as u64 * 10 + if (*side == "a") == (nth % 2 == 0) { 0 } else { 1 };
                row
            })
        });
        Results { headers: Vec::new(), rows: rows.collect() }
    }

    #[test]
    fn verdicts_know_what_is_better() {
        let verdict = |b: f64| {
            let results = results(&[("a", 1000.0), ("b", b)]);
            assert!(is_alternating(&results, ("a", "b")));
            let found = findings(&results, ("a", "b"), &[Metric::Iops, Metric::P99Us], &Settings::default());
            let [finding] = found.as_slice() else { panic!("one figure is there: {found:?}") };
            assert!(show(&found, &Settings::default()).contains(finding.verdict()));
            (finding.verdict(), finding.to_json()["verdict"].clone())
        };
        assert_eq!(verdict(1100.0), ("better", json!("better")));
        assert_eq!(verdict(900.0), ("worse", json!("worse")));
        assert_eq!(verdict(1000.0), ("same", json!("same")));
        // Real, but too small to count.
        assert_eq!(verdict(1005.0), ("same", json!("same")));
    }

    #[test]
    fn one_repetition_tells_nothing() {
        let mut results = results(&[("a", 1000.0), ("b", 500.0)]);
        results.rows.retain(|row| row.repetition == 0);
        let found = findings(&results, ("a", "b"), &[Metric::Iops], &Settings::default());
        assert_eq!(found.first().map(Finding::verdict), Some("cannot tell"));
    }

    #[test]
    fn neither_side_is_always_first() {
        assert_eq!(order(0), [(0, 0), (1, 0), (1, 1), (0, 1)]);
        assert_eq!(order(1), [(1, 2), (0, 2), (0, 3), (1, 3)]);
    }
}
