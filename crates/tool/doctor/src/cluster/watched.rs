//! [`Watched`]: what OSDs did between two looks at their counters: their devices, their threads, and the pings of them.

use super::session::Answer;
use super::{Facts, Look};
use nacre_types::device_latency::LATENCY_BUCKETS;
use nacre_types::{DeviceWork, LatencyHistogram, OsdId};
use serde_json::Value;
use std::collections::BTreeMap;

/// Requests of one kind to one device.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Requests {
    /// Between the looks.
    pub(super) now: LatencyHistogram,
    /// Before the first one, since the OSD's start.
    pub(super) past: LatencyHistogram,
}

/// See the module's documentation.
#[derive(Debug, Clone, Default)]
pub(super) struct Watched {
    /// Where it says that it runs; empty where it does not.
    pub(super) host: String,
    /// Its device's class in CRUSH.
    pub(super) class: String,
    /// What it says of its device.
    pub(super) device: String,
    /// Of each kind, in the order of [`DeviceWork::ALL`]; `None` where it does not count them.
    pub(super) requests: Option<[Requests; DeviceWork::ALL.len()]>,
    /// Requests at its device at a time, on average.
    pub(super) depth: Option<f64>,
    /// The share of the time that its threads were on a processor; more than 1 where there are several.
    pub(super) thread_share: Option<f64>,
    /// How long pings of it took, milliseconds: the median of those that ping it.
    pub(super) ping_ms: Option<f64>,
    /// The same of the one for which they took least, and how many ping it.
    pub(super) ping_ms_min: Option<f64>,
    pub(super) pingers: usize,
}

impl Watched {
    /// `osd.3 (device nvme1n1 on h2)`.
    pub(super) fn name(&self, osd: OsdId) -> String {
        format!("osd.{osd} (device {} on {})", self.device, self.host)
    }
}

fn ok(answers: &BTreeMap<OsdId, Answer>, osd: OsdId) -> Option<&Value> {
    answers.get(&osd)?.as_ref().ok()
}

/// The middle one, of two the lesser one.
pub(super) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

/// What was added to a counter; all of it where the OSD has begun anew.
pub(super) fn grown(before: Option<&Value>, after: &Value) -> Option<f64> {
    let after = after.as_f64()?;
    let before = before.and_then(Value::as_f64).unwrap_or(0.0);
    Some(if after < before { after } else { after - before })
}

/// Microseconds that the busiest thread of an OSD was on a processor between two of its `perf dump`; `None` of one that does not tell. An OSD
/// whose threads are busy for half of the time each has time left; one with an idle thread beside one that is always busy has none.
pub(crate) fn busiest_thread_us(before: &Value, after: &Value) -> Option<f64> {
    let (before, after) = (&before["osd-cpu"], after["osd-cpu"].as_object()?);
    let of_shards = after.iter().filter(|(name, _)| name.starts_with("shard_"));
    let busiest = of_shards.filter_map(|(name, us)| grown(before.get(name), us)).reduce(f64::max);
    // An OSD of an older version tells of its first thread only.
    busiest.or_else(|| grown(before.get("threads_us"), after.get("threads_us")?))
}

fn counts(dump: Option<&Value>, work: DeviceWork) -> Option<[u32; LATENCY_BUCKETS]> {
    let values = dump?["device"][format!("{}_latency_histogram", work.key())]["values"].as_array()?;
    let number = |value: &Value| value.as_u64().map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    values.iter().map(number).collect::<Option<Vec<u32>>>()?.try_into().ok()
}

fn requests(facts: &Facts, osd: OsdId) -> Option<[Requests; DeviceWork::ALL.len()]> {
    let (before, after) = (ok(&facts.before.histograms, osd), ok(&facts.after.histograms, osd));
    let mut of = [Requests::default(); DeviceWork::ALL.len()];
    for (work, requests) in DeviceWork::ALL.into_iter().zip(&mut of) {
        let (mut past, mut now) = (counts(before, work)?, counts(after, work)?);
        // One that has begun anew has no past.
        if now.iter().zip(past).any(|(now, past)| *now < past) {
            past = [0; LATENCY_BUCKETS];
        }
        now.iter_mut().zip(past).for_each(|(now, past)| *now -= past);
        *requests = Requests { now: now.into(), past: past.into() };
    }
    Some(of)
}

/// Seconds that requests of all kinds were at the device.
fn spent_s(dump: &Value) -> f64 {
    let sum =
        |work: DeviceWork| dump["device"][format!("{}_latency", work.key())]["sum"].as_f64().unwrap_or(0.0);
    DeviceWork::ALL.map(sum).iter().sum()
}

/// What one OSD says of the way to another.
pub(super) fn link(look: &Look, from: OsdId, to: OsdId) -> Option<&Value> {
    let links = ok(&look.links, from)?["links"].as_array()?;
    links.iter().find(|link| link["osd"].as_i64() == Some(i64::from(to)))
}

/// Mean milliseconds of the pings that were answered between the looks.
pub(super) fn ping_ms(facts: &Facts, from: OsdId, to: OsdId) -> Option<f64> {
    let (before, after) = (link(&facts.before, from, to), &link(&facts.after, from, to)?["pings"]);
    let of = |name: &str| grown(before.map(|link| &link["pings"][name]), &after[name]);
    let count = of("avgcount").filter(|count| *count >= 1.0)?;
    Some(of("sum")? * 1e3 / count)
}

fn one(facts: &Facts, osd: OsdId, metadata: Option<&Value>, class: &str) -> Watched {
    let word = |name: &str| metadata.and_then(|facts| facts[name].as_str()).unwrap_or("unknown").to_owned();
    let perf = ok(&facts.before.perf, osd).zip(ok(&facts.after.perf, osd)).filter(|_| facts.window_s > 0.0);
    let thread_share =
        perf.and_then(|(before, after)| Some(busiest_thread_us(before, after)? / 1e6 / facts.window_s));
    let pings: Vec<f64> = facts
        .after
        .links
        .keys()
        .filter(|from| **from != osd)
        .filter_map(|from| ping_ms(facts, *from, osd))
        .collect();
    Watched {
        host: word("hostname"),
        class: class.to_owned(),
        device: format!("{} ({})", word("devices"), word("device_ids")),
        requests: requests(facts, osd),
        depth: perf.map(|(before, after)| (spent_s(after) - spent_s(before)).max(0.0) / facts.window_s),
        thread_share,
        ping_ms: median(pings.iter().copied()),
        ping_ms_min: pings.iter().copied().reduce(f64::min),
        pingers: pings.len(),
    }
}

/// All OSDs that are up.
pub(super) fn watched(facts: &Facts) -> BTreeMap<OsdId, Watched> {
    let of_osd = |list: &Value, osd: OsdId| -> Option<Value> {
        list.as_array()?.iter().find(|one| one["id"].as_i64() == Some(i64::from(osd))).cloned()
    };
    let metadata = facts.osd_metadata.as_ref().ok();
    let df = facts.osd_df.as_ref().ok();
    let osds = facts.after.perf.keys().copied();
    osds.map(|osd| {
        let class = df
            .and_then(|df| of_osd(&df["nodes"], osd))
            .and_then(|node| Some(node["device_class"].as_str()?.to_owned()));
        let metadata = metadata.and_then(|all| of_osd(all, osd));
        (osd, one(facts, osd, metadata.as_ref(), &class.unwrap_or_default()))
    })
    .collect()
}
