//! OSDs as the overview shows them, with what their devices did of late.

use crate::osd::view;
use crate::slow_osds::describe;
use crate::state::State;
use nacre_format::{Node, Section};
use nacre_maps::{OsdMap, WEIGHT_ONE};
use nacre_mgr::pgmap::Digest;
use nacre_types::{DeviceWork, LatencyHistogram, OsdId};

/// OSDs that are shown: more than a page can.
const OSDS_COUNT_MAX: usize = 4096;
/// What devices did in so many steps of five seconds is shown.
const STEPS: usize = 12;
/// Of these requests: those that clients wait for, and flushes, which tell of volatile caches.
const SHOWN: [DeviceWork; 3] = [DeviceWork::Read, DeviceWork::DurableWrite, DeviceWork::Flush];

pub(super) fn all(state: &State, map: &OsdMap, digest: &Digest) -> Vec<Section> {
    let are_judged = crate::slow_devices::ratio(state) > 0.0;
    map.osds().take(OSDS_COUNT_MAX).map(|osd| one(state, map, digest, (osd, are_judged))).collect()
}

fn fraction(weight: u32) -> f64 {
    f64::from(weight) / f64::from(WEIGHT_ONE)
}

/// Of devices that are not judged nothing is kept.
fn one(state: &State, map: &OsdMap, digest: &Digest, (osd, is_judged): (OsdId, bool)) -> Section {
    let stat = state.shown_pgs().osd(osd);
    let pgs = digest.osd_pgs.get(&osd).copied().unwrap_or_default();
    let facts = state.osd.metadata(osd);
    let fact = |name: &str| facts.and_then(|facts| facts.get(name)).map_or("", String::as_str);
    let host = view::location(&map.crush, osd).remove("host");
    let commit_us = state.stats.pgs.osd(osd).map_or(0, |stat| stat.perf_stat.commit_latency_ns / 1000);
    let slow = state.slow_osds.found.find(osd).map(|slow| slow.finding.as_ref().map(describe));
    let slow = slow.map(|text| text.unwrap_or_else(|| "its device was slow".to_owned()));
    let latencies = state.slow_osds.found.latencies(osd, STEPS);
    let device =
        || SHOWN.map(|work| (work.key(), histogram(&latencies.of(work)))).into_iter().collect::<Section>();
    Section::new()
        .with("id", osd)
        .with("host", host.unwrap_or_else(|| fact("hostname").to_owned()))
        .with("class", map.crush.item_class_name(osd).unwrap_or_default())
        .with("devices", fact("devices"))
        .with("up", map.is_up(osd))
        .with("in", map.is_in(osd))
        .with("reweight", fraction(map.weight(osd)))
        .with("primary_affinity", fraction(map.primary_affinity(osd)))
        .with("total_bytes", stat.map_or(0, |stat| stat.statfs.total))
        .with("used_bytes", stat.map_or(0, |stat| stat.statfs.used_raw()))
        .with("pgs", pgs.members)
        .with("primaries", pgs.primary)
        .with("commit_us", commit_us)
        .with("slow", slow.unwrap_or_default())
        .with("device", if is_judged { Node::from(device()) } else { super::null() })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "microseconds for people")]
fn quantile(histogram: &LatencyHistogram, permille: u32) -> Option<u64> {
    histogram.quantile_us(permille).map(|us| us as u64)
}

/// How many requests took how long, by powers of two of microseconds, without the empty ones at the end.
fn histogram(histogram: &LatencyHistogram) -> Section {
    let counts = histogram.counts();
    let used = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    let us = |permille| quantile(histogram, permille).unwrap_or(0);
    Section::new()
        .with("count", histogram.total())
        .with("us_p50", us(500))
        .with("us_p99", us(990))
        .with("counts", Node::array("count", counts.iter().take(used).copied()))
}

/// Microseconds within which 99 of 100 reads, and of 100 durable writes, of all devices were done in the last step.
pub(super) fn latest_p99(state: &State) -> [Option<u64>; 2] {
    let mut sums = [LatencyHistogram::default(); 2];
    for osd in state.osd.map().up_osds() {
        let latencies = state.slow_osds.found.latencies(osd, 1);
        for (sum, work) in sums.iter_mut().zip([DeviceWork::Read, DeviceWork::DurableWrite]) {
            sum.add(&latencies.of(work));
        }
    }
    sums.map(|sum| quantile(&sum, 990))
}
