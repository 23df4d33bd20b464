//! The device of an OSD, as far as it is measured: what our monitor hears of it, with pings of other OSDs, and what operators see.

use nacre_msg::{DeviceReport, LeastPing};
use nacre_osd_core::ControlPlane;
use nacre_store::{DeviceTotals, DiscardTotals};
use nacre_types::device_latency::LATENCY_BUCKETS;
use nacre_types::{DeviceLatencies, DeviceWork, Stamp};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Our monitor hears of the device, and of pings, this often: a slow link is named within a minute (`nacre_mgr::slow_links`).
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// An OSD that is no primary of anything by its affinity has little to do: whether its device is well is looked at this often.
pub(crate) const PROBE_INTERVAL_RELIEVED: Duration = Duration::from_secs(1);

/// What our monitor was not told yet.
#[derive(Debug)]
pub(crate) struct DeviceWatch {
    plane: ControlPlane,
    latencies: DeviceLatencies,
    told_at: Stamp,
}

impl DeviceWatch {
    /// Ceph's monitors are told nothing.
    pub(crate) fn new(plane: ControlPlane) -> Self {
        Self { plane, latencies: DeviceLatencies::default(), told_at: Stamp::default() }
    }

    /// A shard reports.
    pub(crate) fn note(&mut self, latencies: &DeviceLatencies) {
        if self.plane == ControlPlane::Nacre {
            self.latencies.add(latencies);
        }
    }

    /// What is to be told now, if it is time and there is something. `pings`: what is known of pings of other OSDs.
    pub(crate) fn report(
        &mut self,
        now: Stamp,
        pings: impl FnOnce() -> Vec<LeastPing>,
    ) -> Option<DeviceReport> {
        if self.plane != ControlPlane::Nacre || now.since(self.told_at) < REPORT_INTERVAL {
            return None;
        }
        let pings = pings();
        if self.latencies.is_empty() && pings.is_empty() {
            return None;
        }
        self.told_at = now;
        Some(DeviceReport { latencies: std::mem::take(&mut self.latencies), pings })
    }
}

/// Requests by kind, as a section of `perf dump`.
pub(crate) fn dump(totals: &[DeviceTotals; DeviceWork::ALL.len()], discards: DiscardTotals) -> Value {
    let latency = |count: u64, spent_ns: u64| {
        let sum = Duration::from_nanos(spent_ns).as_secs_f64();
        json!({ "avgcount": count, "sum": sum, "avgtime": sum / count.max(1) as f64 })
    };
    let rows = DeviceWork::ALL
        .into_iter()
        .zip(totals)
        .map(|(work, total)| (format!("{}_latency", work.key()), latency(total.count, total.spent_ns)));
    let mut rows: Map<String, Value> = rows.collect();
    rows.insert("discard_latency".to_owned(), latency(discards.count, discards.spent_ns));
    rows.insert("discarded_bytes".to_owned(), discards.bytes.into());
    Value::Object(rows)
}

/// The same as histograms, as a section of `perf histogram dump`.
pub(crate) fn dump_histograms(totals: &[DeviceTotals; DeviceWork::ALL.len()]) -> Value {
    let range = |bucket: usize| match bucket {
        0 => json!({ "min": 0, "max": 0 }),
        bucket if bucket == LATENCY_BUCKETS - 1 => json!({ "min": 1_u64 << (bucket - 1) }),
        bucket => json!({ "min": 1_u64 << (bucket - 1), "max": (1_u64 << bucket) - 1 }),
    };
    let axis = json!({
        "name": "Latency (usec)", "min": 0, "quant_size": 1, "buckets": LATENCY_BUCKETS, "scale_type": "log2",
        "ranges": (0..LATENCY_BUCKETS).map(range).collect::<Vec<_>>(),
    });
    let rows = DeviceWork::ALL.into_iter().zip(totals).map(|(work, total)| {
        (format!("{}_latency_histogram", work.key()), json!({ "axes": [axis], "values": total.counts }))
    });
    Value::Object(Map::from_iter(rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::RequestClass;

    #[test]
    fn what_was_counted_is_told_once_and_not_too_often() {
        let at = |s| Stamp::default() + Duration::from_secs(s);
        let pings = || vec![LeastPing { osd: 4, back_us: 200, front_us: 300 }];
        let mut counted = DeviceLatencies::default();
        counted.class_mut(RequestClass::of(DeviceWork::Read, 0, 4096)).note(70_000);
        let mut watch = DeviceWatch::new(ControlPlane::Ceph);
        watch.note(&counted);
        assert!(watch.report(at(10), pings).is_none());
        let mut watch = DeviceWatch::new(ControlPlane::Nacre);
        watch.note(&counted);
        let first = watch.report(at(10), Vec::new).expect("the first");
        assert_eq!((first.latencies, first.pings), (counted.clone(), vec![]));
        assert!(watch.report(at(20), Vec::new).is_none(), "nothing to tell");
        watch.note(&counted);
        watch.note(&counted);
        assert!(watch.report(at(14), pings).is_none(), "too early");
        let second = watch.report(at(15), Vec::new).expect("the second");
        assert_eq!(second.latencies.of(DeviceWork::Read).total(), 2);
        // An OSD whose store has no device pings others as well.
        assert!(watch.report(at(19), pings).is_none(), "too early");
        let third = watch.report(at(20), pings).expect("the third");
        assert_eq!((third.latencies.is_empty(), third.pings), (true, pings()));
    }

    #[test]
    fn a_histogram_has_a_range_for_each_value() {
        let totals = [DeviceTotals::default(); 4];
        let shown = dump_histograms(&totals);
        let shown = &shown["durable_write_latency_histogram"];
        let ranges = shown["axes"][0]["ranges"].as_array().expect("ranges");
        assert_eq!(ranges.len(), shown["values"].as_array().map_or(0, Vec::len));
        assert_eq!(ranges[13], json!({ "min": 4096, "max": 8191 }));
    }
}
