//! [`Finding`]: what a comparison found about one figure of one cell.

use crate::figures::{Metric, median};
use crate::results::{Results, Row};
use crate::stats::{Comparison, Pair, Settings, Verdict, judge};
use crate::table;
use serde_json::{Value, json};

/// What was found about one figure of one cell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Finding {
    /// What A and B are called in the results.
    pub(crate) sides: (String, String),
    pub(crate) cell: String,
    pub(crate) metric: Metric,
    /// Medians of the sides.
    pub(crate) a: f64,
    pub(crate) b: f64,
    pub(crate) comparison: Comparison,
}

impl Finding {
    /// What B is, compared with A.
    pub(crate) fn verdict(&self) -> &'static str {
        match (self.comparison.verdict, self.metric.is_gain()) {
            (Verdict::Higher, true) | (Verdict::Lower, false) => "better",
            (Verdict::Higher, false) | (Verdict::Lower, true) => "worse",
            (Verdict::Same, _) => "same",
            (Verdict::CannotTell, _) => "cannot tell",
        }
    }

    /// The line of the results file.
    pub(crate) fn to_json(&self) -> Value {
        let Comparison { pairs, effect, low, high, effect_size, detectable, .. } = self.comparison;
        let percent =
            |share: f64| if share.is_finite() { json!((share * 1e4).round() / 1e2) } else { Value::Null };
        json!({
            "kind": "verdict",
            "a_side": self.sides.0,
            "b_side": self.sides.1,
            "cell": self.cell,
            "metric": self.metric.name(),
            "a": self.a,
            "b": self.b,
            "pairs": pairs,
            "effect_percent": percent(effect),
            "low_percent": percent(low),
            "high_percent": percent(high),
            "effect_size": (effect_size * 100.0).round() / 100.0,
            "detectable_percent": percent(detectable),
            "verdict": self.verdict(),
        })
    }
}

/// Repetitions of the same number, next to each other.
fn pairs<'a>(results: &'a Results, (a, b): (&str, &str), cell: &str) -> Vec<(&'a Row, &'a Row)> {
    let others = results.of(b, cell);
    let partner = |row: &Row| others.iter().copied().find(|other| other.repetition == row.repetition);
    results.of(a, cell).into_iter().filter_map(|row| Some((row, partner(row)?))).collect()
}

/// Values of a figure in A and in B, and whether A came first, of each pair that has both.
fn values(results: &Results, sides: (&str, &str), cell: &str, metric: Metric) -> Vec<(f64, f64, bool)> {
    let value = |(a, b): (&Row, &Row)| {
        Some((a.figures.get(metric)?, b.figures.get(metric)?, a.began_ms < b.began_ms))
    };
    let all = pairs(results, sides, cell).into_iter().filter_map(value);
    all.filter(|(a, b, _)| *a > 0.0 && *b > 0.0).collect()
}

fn pair((a, b, a_first): &(f64, f64, bool)) -> Pair {
    Pair { log_ratio: (b / a).ln(), a_first: *a_first }
}

/// The pairs of one figure of one cell.
pub(crate) fn pairs_of(results: &Results, sides: (&str, &str), cell: &str, metric: Metric) -> Vec<Pair> {
    values(results, sides, cell, metric).iter().map(pair).collect()
}

/// What is found about each cell and figure that both sides have.
pub(crate) fn findings(
    results: &Results,
    sides: (&str, &str),
    metrics: &[Metric],
    settings: &Settings,
) -> Vec<Finding> {
    let mut all = Vec::new();
    for cell in results.cells() {
        for metric in metrics {
            let values = values(results, sides, cell, *metric);
            let pairs: Vec<Pair> = values.iter().map(pair).collect();
            let middle = |side: fn(&(f64, f64, bool)) -> f64| median(values.iter().map(side));
            let (Some(a), Some(b)) = (middle(|row| row.0), middle(|row| row.1)) else { continue };
            let (sides, comparison) = ((sides.0.to_owned(), sides.1.to_owned()), judge(&pairs, settings));
            all.push(Finding { sides, cell: cell.to_owned(), metric: *metric, a, b, comparison });
        }
    }
    all
}

/// True when neither side always came first.
pub(crate) fn is_alternating(results: &Results, sides: (&str, &str)) -> bool {
    let pairs = results.cells().into_iter().flat_map(|cell| pairs(results, sides, cell));
    let firsts: Vec<bool> = pairs.map(|(a, b)| a.began_ms < b.began_ms).collect();
    firsts.contains(&true) && firsts.contains(&false)
}

/// A table for people.
pub(crate) fn show(findings: &[Finding], settings: &Settings) -> String {
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
