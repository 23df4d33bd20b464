//! [`Finding`]: what a comparison found about one figure of one cell.

use crate::figures::Metric;
use crate::stats::{Comparison, Verdict};
use serde_json::{Value, json};

/// What was found about one figure of one cell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Finding {
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
