//! `nacre bench compare`: two sides in alternation, or two files of results, and a verdict per cell.

use crate::driver::Driver;
use crate::finding::{findings, is_alternating, show};
use crate::judging::Judging;
use crate::load::Load;
use crate::results::{Output, Results};
use crate::session::Session;
use crate::spec::Spec;
use crate::{html, table};
use anyhow::{Result, bail};
use clap::Args;
use nacre_env::{out, outln};
use std::path::Path;
use std::process::ExitCode;

/// Options of `nacre bench compare`.
#[derive(Debug, Args)]
pub struct Options {
    /// Side A: a file of results, `nacre:BINARY[,OPTION..]` (a cluster of that binary is started with these options of
    /// `nacre up`; pgs=1024, images=16, objects=1000, connections=200 among them are of this side's load, osd_NAME=VALUE and nacre_NAME=VALUE are set in its OSDs' configuration), or `cluster:CONF:KEYRING[:PID,PID..]` (a cluster that runs, such as a real Ceph).
    a: String,
    /// Side B, of the same kind; left out when one file holds both sides. Or `same:NAME=VALUE[,..]`: side A's cluster of a
    /// binary, whose OSDs are told these options while side B is measured, and side A's again after it.
    b: Option<String>,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    judging: Judging,
    /// To try the method: hold back answers to side B by so many percent of the time that they took. Only with --client own.
    #[arg(long)]
    planted_delay: Option<f64>,
    #[command(flatten)]
    output: Output,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let judging = &options.judging;
    let settings = judging.settings()?;
    let (results, a, b) = results(options)?;
    let findings = findings(&results, (&a, &b), &judging.metrics(), &settings);
    if findings.is_empty() {
        bail!("the sides have no cell and figure in common");
    }
    if judging.json {
        findings.iter().for_each(|finding| outln!("{}", finding.to_json()));
    } else {
        out!("\n{}\n{}", table::of(&results), show(&findings, &settings));
        if !is_alternating(&results, (&a, &b)) {
            outln!("These sides did not alternate: what changed on the machine between them counts as well.");
        }
    }
    if let Some(path) = &options.output.html {
        html::write(path, &results, &findings)?;
    }
    Ok(judging.exit_code(&findings))
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
    let rounds = options.judging.rounds()?;
    let Output { dir, out, .. } = &options.output;
    let sides = [("a", a), ("b", b)];
    let mut session = Session::open(&options.load, &sides, dir.as_deref(), out.as_deref())?;
    if let Some(percent) = options.planted_delay {
        if options.load.client != Driver::Own || !(0.0..=1000.0).contains(&percent) {
            bail!("--planted-delay is from 0 to 1000 percent, and needs --client own");
        }
        session.planted_delay = Some((1, percent / 100.0));
    }
    for round in 0..rounds {
        alternate(&mut session, round)?;
    }
    Ok((session.writer.results.clone(), "a".to_owned(), "b".to_owned()))
}

/// One round: every cell twice on each of the two sides, in alternation.
pub(crate) fn alternate(session: &mut Session, round: usize) -> Result<()> {
    for cell in session.cells.clone() {
        for (side, repetition) in order(round) {
            session.measure(side, cell, repetition)?;
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Metric;
    use crate::finding::Finding;
    use crate::results::tests::row;
    use crate::stats::Settings;
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
