//! `nacre bench bisect`: which of several binaries, in the order in which they came to be, was the first to be slower than the first one.

mod search;

use crate::compare::alternate;
use crate::figures::Metric;
use crate::finding::{Finding, findings, pairs_of};
use crate::html;
use crate::judging::parse_metric;
use crate::load::Load;
use crate::results::{Output, Results};
use crate::session::Session;
use crate::spec::Spec;
use crate::stats::sequential::{Decision, Question, ROUNDS_MAX};
use crate::stats::{Pair, Settings};
use crate::table::percent;
use anyhow::{Result, bail};
use clap::Args;
use nacre_env::{errln, outln};
use search::{Answer, Outcome, Search};
use std::path::PathBuf;
use std::process::ExitCode;

/// More than anybody has built.
const BINARIES_MAX: usize = 1000;
/// Status of a search that found nothing, as of one that was not carried out.
const FOUND_NOTHING: u8 = 3;

/// Options of `nacre bench bisect`.
#[derive(Debug, Args)]
pub struct Options {
    /// Binaries in the order in which they came to be: the first is good, the last is believed to be slower.
    #[arg(required = true, num_args = 2..)]
    binaries: Vec<PathBuf>,
    /// Options of `nacre up`, and words of a side (see compare), for all clusters, each as one word, such as --up=--osds=1.
    #[arg(long = "up", allow_hyphen_values = true)]
    up: Vec<String>,
    /// The figure that counts. Of one of which more is better, less is slower.
    #[arg(long, default_value = "mean_us", value_parser = parse_metric)]
    metric: Metric,
    /// Percent of difference that counts as slower.
    #[arg(long, default_value_t = 5.0)]
    slower: f64,
    /// Of 100 answers at least so many are right.
    #[arg(long, default_value_t = 95.0)]
    confidence: f64,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    output: Output,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let cells = options.load.check()?;
    let [cell] = cells.as_slice() else {
        bail!("name one cell with --cells, in which it is slower, such as randwrite-4k-qd1");
    };
    if !(50.0..=99.9).contains(&options.confidence) || !(0.1..=1000.0).contains(&options.slower) {
        bail!("--confidence is from 50 to 99.9 percent, --slower from 0.1 to 1000");
    }
    if options.binaries.len() > BINARIES_MAX {
        bail!("at most {BINARIES_MAX} binaries");
    }
    if let Some(missing) = options.binaries.iter().find(|binary| !binary.is_file()) {
        bail!("{} is no file", missing.display());
    }
    let mut search = Search::new(options.binaries.len());
    let question = Question {
        threshold: options.slower / 100.0,
        error: (1.0 - options.confidence / 100.0) / search.tries_max() as f64,
        seed: 1,
        resamples: Settings::default().resamples,
    };
    let mut bisection =
        Bisection { options, cell: cell.name(), question, all: Results::default(), found: Vec::new() };
    while let Some(candidate) = search.next() {
        let outcome = bisection.try_one(candidate)?;
        search.add(candidate, outcome);
    }
    if let Some(path) = &options.output.html {
        html::write(path, &bisection.all, &bisection.found)?;
    }
    Ok(tell(options, &search.answer()))
}

struct Bisection<'a> {
    options: &'a Options,
    cell: String,
    question: Question,
    all: Results,
    found: Vec<Finding>,
}

impl Bisection<'_> {
    /// Measures a candidate beside the first binary until it is known whether it is slower.
    fn try_one(&mut self, candidate: usize) -> Result<Outcome> {
        let options = self.options;
        let (Some(good), Some(binary)) = (options.binaries.first(), options.binaries.get(candidate)) else {
            bail!("no binary of number {candidate}");
        };
        let spec = |binary: &PathBuf| Spec::nacre(binary, options.up.iter().map(String::as_str));
        let (good, other) = (spec(good)?, spec(binary)?);
        let name = name(candidate);
        errln!("{name}: {}", binary.display());
        let sides = [(GOOD, &good), (name.as_str(), &other)];
        let Output { dir, out, .. } = &options.output;
        let mut session = Session::open(&options.load, &sides, dir.as_deref(), out.as_deref())?;
        let mut decision = Decision::Open;
        for round in 0..ROUNDS_MAX {
            alternate(&mut session, round)?;
            let pairs = pairs_of(&session.writer.results, (GOOD, &name), &self.cell, options.metric);
            let pairs: Vec<Pair> = pairs.into_iter().map(|pair| slowness(pair, options.metric)).collect();
            let (now, seen) = self.question.look(&pairs, round + 1);
            if let Some(seen) = seen {
                let (low, high) = (percent(seen.low), percent(seen.high));
                outln!("{name} {}: {low} to {high} slower after {} rounds", binary.display(), round + 1);
            }
            decision = now;
            if decision != Decision::Open {
                break;
            }
        }
        let results = session.writer.results.clone();
        let settings = Settings { confidence: options.confidence / 100.0, ..Settings::default() };
        self.found.extend(findings(&results, (GOOD, &name), &[options.metric], &settings));
        self.all.headers.extend(results.headers);
        self.all.rows.extend(results.rows);
        Ok(match decision {
            Decision::Above => Outcome::Slower,
            Decision::Below => Outcome::NotSlower,
            Decision::Open => Outcome::CannotTell,
        })
    }
}

/// What the first binary is called in the results.
const GOOD: &str = "good";

fn name(candidate: usize) -> String {
    format!("binary-{}", candidate + 1)
}

/// How much slower B is: of a figure of which more is better, how much less it has.
fn slowness(pair: Pair, metric: Metric) -> Pair {
    if metric.is_gain() { Pair { log_ratio: -pair.log_ratio, ..pair } } else { pair }
}

fn tell(options: &Options, answer: &Answer) -> ExitCode {
    let binary =
        |nth: usize| options.binaries.get(nth).map(|path| path.display().to_string()).unwrap_or_default();
    let (metric, slower) = (options.metric.name(), options.slower);
    match *answer {
        Answer::First(nth) => {
            outln!(
                "{} is the first that is more than {slower} % slower by {metric}; {} is not",
                binary(nth),
                binary(nth - 1)
            );
            return ExitCode::SUCCESS;
        }
        Answer::Among(first, last) => {
            outln!(
                "one of these is the first that is more than {slower} % slower by {metric}; it could not be told which:"
            );
            (first..=last).for_each(|nth| outln!("  {}", binary(nth)));
            outln!("longer --seconds or a quieter machine tell more");
            return ExitCode::SUCCESS;
        }
        Answer::NothingToFind(Outcome::NotSlower) => {
            outln!(
                "the last one is not more than {slower} % slower by {metric} than the first: nothing to look for"
            );
        }
        Answer::NothingToFind(_) => outln!(
            "after {ROUNDS_MAX} rounds it cannot be told whether the last one is more than {slower} % slower by {metric}: \
             longer --seconds, another --slower or a quieter machine are needed"
        ),
    }
    ExitCode::from(FOUND_NOTHING)
}

#[cfg(test)]
mod tests;
