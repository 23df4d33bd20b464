//! Checks of OSDs against each other: how they were built, how they reach their devices, and which device is slower than its like.

use super::Facts;
use super::checks::of_osds;
use super::session::Answer;
use super::watched::grown;
use crate::report::{Finding, Rank, Report};
use nacre_types::OsdId;
use nacre_types::build_kind::BuildKind;
use serde_json::Value;
use std::collections::BTreeMap;

/// So many times the median of the others, and so much more in milliseconds.
const SLOWER_TIMES: f64 = 3.0;
const SLOWER_MS: f64 = 2.0;
const PEERS_MIN: usize = 2;
/// Means of fewer writes say little.
const WRITES_MIN: f64 = 100.0;

/// What OSDs said of themselves when they booted.
fn metadata(facts: &Facts, check: &'static str, report: &mut Report) -> BTreeMap<OsdId, Value> {
    let answer = match &facts.osd_metadata {
        Ok(answer) => answer,
        Err(why) => {
            report.unknown(check, why.clone());
            return BTreeMap::new();
        }
    };
    let one = |osd: &Value| Some((OsdId::try_from(osd["id"].as_i64()?).ok()?, osd.clone()));
    answer.as_array().into_iter().flatten().filter_map(one).collect()
}

fn names(osds: &[OsdId]) -> String {
    osds.iter().map(|osd| format!("osd.{osd}")).collect::<Vec<_>>().join(" ")
}

pub(super) fn builds(facts: &Facts, report: &mut Report) {
    let (mut slow, mut silent) = (BTreeMap::<String, Vec<OsdId>>::new(), Vec::new());
    for (osd, facts) in metadata(facts, "osd-build", report) {
        match facts[BuildKind::METADATA_KEY].as_str().and_then(BuildKind::parse) {
            None => silent.push(osd),
            Some(kind) => {
                report.judged("osd-build");
                if !kind.is_optimised() {
                    slow.entry(kind.to_string()).or_default().push(osd);
                }
            }
        }
    }
    if !silent.is_empty() {
        report.unknown("osd-build", format!("{} do not tell how they were built", names(&silent)));
    }
    for (kind, osds) in slow {
        report.findings.push(Finding {
            check: "osd-build",
            rank: Rank::Serious,
            weight: 10.0,
            subject: format!("{} run no release build", names(&osds)),
            measured: format!("compiled with {kind}"),
            cost: "several times the processor time of a release build for each operation; no measurement of them says anything".to_owned(),
            advice: "run what `make bin` builds (target/release/nacre)".to_owned(),
            ..Finding::default()
        });
    }
}

pub(super) fn drivers(facts: &Facts, report: &mut Report) {
    let mut slow = Vec::new();
    for (osd, facts) in metadata(facts, "device-driver", report) {
        if let Some(driver) = facts["nacre_bdev_driver"].as_str() {
            report.judged("device-driver");
            if driver != "io_uring" {
                slow.push((osd, driver.to_owned()));
            }
        }
    }
    let Some((_, driver)) = slow.first() else { return };
    let osds: Vec<OsdId> = slow.iter().map(|(osd, _)| *osd).collect();
    report.findings.push(Finding {
        check: "device-driver",
        rank: Rank::Costly,
        weight: 1.0,
        subject: format!("{} reach their devices the slow way", names(&osds)),
        measured: format!("by {driver}, not by io_uring"),
        cost: "each access wakes another thread, twice".to_owned(),
        advice: "sysctl kernel.io_uring_disabled=0; in containers, allow io_uring in the seccomp profile"
            .to_owned(),
        ..Finding::default()
    });
}

/// Mean milliseconds until an OSD had a client's write durably: its device, and its own thread that must see it. Nothing of network or other
/// OSDs is in it.
struct Latency {
    ms: f64,
    /// In which time.
    when: String,
}

/// Of `op_w_logged`, by what the counter grew, or all of it.
fn logged(before: Option<&Value>, after: &Value, when: &str) -> Option<Latency> {
    let of = |name: &str| {
        let path = format!("/osd-stages/op_w_logged/{name}");
        grown(before.and_then(|before| before.pointer(&path)), after.pointer(&path)?)
    };
    let count = of("avgcount").filter(|count| *count >= WRITES_MIN)?;
    Some(Latency { ms: of("sum")? * 1e3 / count, when: when.to_owned() })
}

/// What OSDs of Ceph tell, too. Their devices alone `slow_device` compares, of OSDs that tell more. All are of the same time, to be compared.
fn device_latencies(facts: &Facts, report: &mut Report) -> BTreeMap<OsdId, Latency> {
    let perf = facts.osd_perf.as_ref().ok().and_then(|perf| perf["osdstats"]["osd_perf_infos"].as_array());
    let recent = perf.into_iter().flatten().filter_map(|info| {
        let osd = OsdId::try_from(info["id"].as_i64()?).ok()?;
        let ms = info["perf_stats"]["commit_latency_ns"].as_f64()? / 1e6;
        Some((osd, Latency { ms, when: "in the last seconds (osd perf)".to_owned() }))
    });
    let recent: BTreeMap<OsdId, Latency> = recent.collect();
    if recent.len() > PEERS_MIN {
        return recent;
    }
    let when = format!("in {:.1} s (perf dump)", facts.window_s);
    let dumps = of_osds(&facts.after.perf, "osd-latency", report).into_iter();
    let watched = dumps.filter_map(|(osd, after)| {
        let before = facts.before.perf.get(&osd)?.as_ref().ok()?;
        Some((osd, logged(Some(before), after, &when)?))
    });
    watched.collect()
}

fn is_slow(latency: &Latency, middle_ms: f64) -> bool {
    latency.ms >= middle_ms * SLOWER_TIMES && latency.ms - middle_ms >= SLOWER_MS
}

/// Against the median of all: one host's worth of slow OSDs does not move it while most are well.
fn middle_ms(latencies: &BTreeMap<OsdId, Latency>) -> f64 {
    median(latencies.values().map(|latency| latency.ms).collect())
}

/// What there is to say where too few write to tell what is slow now: who was slow on average since they started may be well again.
fn too_few_writes(facts: &Facts, measured: usize) -> String {
    let of_osd = |(osd, after): (&OsdId, &Answer)| Some((*osd, logged(None, after.as_ref().ok()?, "")?));
    let past: BTreeMap<OsdId, Latency> = facts.after.perf.iter().filter_map(of_osd).collect();
    let middle = middle_ms(&past);
    let slow = past.iter().filter(|(_, latency)| past.len() > PEERS_MIN && is_slow(latency, middle));
    let slow: Vec<String> = slow.map(|(osd, latency)| format!("osd.{osd} {:.2} ms", latency.ms)).collect();
    let few = format!(
        "{measured} OSDs have had enough writes in {:.1} s to be compared; {} are needed",
        facts.window_s,
        PEERS_MIN + 1
    );
    match slow.as_slice() {
        [] => few,
        slow => format!(
            "{few}. On average since their start, {} to have a write durably, the median of {} {middle:.2} ms: look again while clients write",
            slow.join(", "),
            past.len()
        ),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

pub(super) fn latencies(facts: &Facts, report: &mut Report) {
    let latencies = device_latencies(facts, report);
    if latencies.len() <= PEERS_MIN {
        let why = too_few_writes(facts, latencies.len());
        return report.unknown("osd-latency", why);
    }
    report.judged("osd-latency");
    let metadata = metadata(facts, "osd-latency", report);
    let host = |osd: OsdId| {
        metadata.get(&osd).and_then(|facts| facts["hostname"].as_str()).unwrap_or("?").to_owned()
    };
    let middle = middle_ms(&latencies);
    let slow: Vec<OsdId> =
        latencies.iter().filter(|(_, latency)| is_slow(latency, middle)).map(|(osd, _)| *osd).collect();
    for osd in &slow {
        let Some(latency) = latencies.get(osd) else { continue };
        let here: Vec<OsdId> = latencies.keys().copied().filter(|other| host(*other) == host(*osd)).collect();
        let slow_here = here.iter().filter(|other| slow.contains(other)).count();
        let device = metadata.get(osd).map_or_else(String::new, |facts| {
            let word = |name: &str| facts[name].as_str().unwrap_or("unknown").to_owned();
            format!(", device {} ({}) on {}", word("devices"), word("device_ids"), host(*osd))
        });
        // What would slow a whole machine down, slows all its OSDs.
        let whose = match (here.len(), slow_here) {
            (1, _) => format!(
                "the only OSD on {} that was measured: the device, the OSD or the machine",
                host(*osd)
            ),
            (all, slow) if slow == all => {
                format!("all {all} OSDs on {} are: the machine rather than one device", host(*osd))
            }
            (all, slow) => format!(
                "{} of the {all} OSDs on {} are not: this device, or this OSD's thread",
                all - slow,
                host(*osd)
            ),
        };
        report.findings.push(Finding {
            check: "osd-latency",
            rank: Rank::Costly,
            weight: latency.ms / middle.max(0.01),
            subject: format!("osd.{osd} is slower than others{device}"),
            measured: format!(
                "it took {:.2} ms to have a write durably {}, the median of {} OSDs is {middle:.2} ms; {whose}",
                latency.ms, latency.when, latencies.len()
            ),
            cost: "every write whose PG has a copy there waits for it".to_owned(),
            advice: format!("ceph osd primary-affinity {osd} 0 takes reads and primaries off it for now; smartctl -a; `nacre doctor` on {}", host(*osd)),
            about: vec![format!("osd.{osd}")],
            ..Finding::default()
        });
    }
}
