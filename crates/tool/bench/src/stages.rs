//! [`Stages`]: what operations spent in which stage on the OSDs, from `perf dump`.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The section of `perf dump`.
const SECTION: &str = "osd-stages";

/// Operations and seconds by stage, over all OSDs.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Stages(BTreeMap<String, (u64, f64)>);

impl Stages {
    /// Adds one OSD's; false when it has none.
    pub(crate) fn add(&mut self, dump: &Value) -> bool {
        let Some(stages) = dump[SECTION].as_object() else { return false };
        for (name, clock) in stages {
            let (count, seconds) = self.0.entry(name.clone()).or_default();
            *count += clock["avgcount"].as_u64().unwrap_or(0);
            *seconds += clock["sum"].as_f64().unwrap_or(0.0);
        }
        true
    }

    /// Mean microseconds by stage since `before`, of the stages that anything went through.
    pub(crate) fn since(&self, before: &Self) -> Value {
        let means = self.0.iter().filter_map(|(name, (count, seconds))| {
            let (count_before, seconds_before) = before.0.get(name).copied().unwrap_or_default();
            let count = count.checked_sub(count_before).filter(|count| *count > 0)?;
            let mean_us = (seconds - seconds_before) / count as f64 * 1e6;
            Some((name.clone(), json!((mean_us * 10.0).round() / 10.0)))
        });
        Value::Object(means.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_of_osds_add_up() {
        let dump =
            |count: u64, sum: f64| json!({"osd-stages": {"op_w_logged": {"avgcount": count, "sum": sum}}});
        let (mut before, mut after) = (Stages::default(), Stages::default());
        assert!(before.add(&dump(10, 1.0)) && after.add(&dump(15, 1.5)) && after.add(&dump(5, 0.5)));
        assert_eq!(after.since(&before), json!({"op_w_logged": 100_000.0}));
        assert_eq!(after.since(&after.clone()), json!({}));
        assert!(!Stages::default().add(&json!({"osd": {}})));
    }
}
