//! [`Judging`]: by what two sides are judged: options of all commands that compare.

use crate::figures::Metric;
use crate::finding::Finding;
use crate::stats::{PAIRS_MAX, Settings};
use anyhow::{Result, bail};
use clap::Args;
use std::process::ExitCode;

/// Metrics with a verdict, if nobody says otherwise.
const METRICS: [Metric; 3] = [Metric::MeanUs, Metric::P99Us, Metric::ServerCpuUs];

/// See the module's documentation.
#[derive(Debug, Clone, Args)]
pub(crate) struct Judging {
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
    /// Print the verdicts as JSON lines, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with status 2 when any verdict is `worse`.
    #[arg(long)]
    gate: bool,
}

/// One of the figures by its name.
pub(crate) fn parse_metric(name: &str) -> Result<Metric, String> {
    let names = || Metric::ALL.map(Metric::name).join(", ");
    Metric::parse(name).ok_or_else(|| format!("'{name}' is none of {}", names()))
}

impl Judging {
    /// What is judged.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        if self.metrics.is_empty() { METRICS.to_vec() } else { self.metrics.clone() }
    }

    /// How often both sides are measured.
    pub(crate) fn rounds(&self) -> Result<usize> {
        if self.rounds == 0 || self.rounds > PAIRS_MAX / 2 {
            bail!("--rounds is from 1 to {}", PAIRS_MAX / 2);
        }
        Ok(self.rounds)
    }

    /// How sure to be.
    pub(crate) fn settings(&self) -> Result<Settings> {
        if !(50.0..=99.99).contains(&self.confidence) {
            bail!("--confidence is from 50 to 99.99 percent");
        }
        if !(0.0..=100.0).contains(&self.margin) || !(0.0..=1000.0).contains(&self.relevant) {
            bail!("--margin is from 0 to 100 percent, --relevant from 0 to 1000");
        }
        let (confidence, margin) = (self.confidence / 100.0, self.margin / 100.0);
        Ok(Settings { confidence, margin, relevant: self.relevant / 100.0, ..Settings::default() })
    }

    /// How the program ends.
    pub(crate) fn exit_code(&self, findings: &[Finding]) -> ExitCode {
        let is_worse = findings.iter().any(|finding| finding.verdict() == "worse");
        if self.gate && is_worse { ExitCode::from(2) } else { ExitCode::SUCCESS }
    }
}
