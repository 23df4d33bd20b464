//! Of how much a processor the threads of an OSD had, by its `perf dump`.

use serde_json::Value;

/// Microseconds that the busiest of its threads was on a processor between two dumps; `None` of an OSD that does not tell. An OSD whose
/// threads are busy for half of the time each has time left; one with an idle thread beside one that is always busy has none.
pub(crate) fn busiest_thread_us(before: &Value, after: &Value) -> Option<f64> {
    let (before, after) = (&before["osd-cpu"], after["osd-cpu"].as_object()?);
    let grown = |name: &str, value: &Value| {
        let (value, earlier) = (value.as_f64()?, before[name].as_f64().unwrap_or(0.0));
        Some(if value < earlier { value } else { value - earlier })
    };
    let of_shards = after.iter().filter(|(name, _)| name.starts_with("shard_"));
    let busiest = of_shards.filter_map(|(name, value)| grown(name, value)).reduce(f64::max);
    // An OSD of an older version tells of its first thread only.
    busiest.or_else(|| grown("threads_us", after.get("threads_us")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_thread_of_several_may_be_busy() {
        let of = |threads: u64, first: u64, second: u64| json!({ "osd-cpu": { "threads_us": threads, "shard_0_us": first, "shard_1_us": second, "process_us": 9 } });
        assert_eq!(busiest_thread_us(&of(30, 10, 20), &of(130, 20, 110)), Some(90.0));
        let alone = |us: u64| json!({ "osd-cpu": { "threads_us": us } });
        assert_eq!(busiest_thread_us(&alone(5), &alone(12)), Some(7.0));
        assert_eq!(busiest_thread_us(&json!({}), &json!({})), None);
    }
}
