//! A cluster with which nothing is wrong is silent; each fault is found, and alone.

use super::*;
use crate::report::Rank;
use nacre_types::device_latency::LATENCY_BUCKETS;
use serde_json::{Value, json};

/// Nine OSDs on three hosts, 40 % full, with 100 PGs each; writes take 0.5 ms.
pub(super) fn clean() -> Facts {
    let osds = 0..9;
    let each = |answer: &Value| -> BTreeMap<OsdId, Answer> {
        osds.clone().map(|osd| (osd, Ok(answer.clone()))).collect()
    };
    let list = |one: &dyn Fn(i32) -> Value| Value::Array(osds.clone().map(one).collect());
    let status = || json!({ "pgmap": { "num_pgs": 300, "pgs_by_state": [{ "state_name": "active+clean", "count": 300 }] } });
    Facts {
        health: Ok(json!({ "status": "HEALTH_OK", "checks": {} })),
        status_before: Ok(status()),
        status: Ok(status()),
        osd_df: Ok(
            json!({ "nodes": list(&|osd| json!({ "id": osd, "reweight": 1, "kb": 1000, "utilization": 40.0, "pgs": 100 })) }),
        ),
        osd_perf: Ok(
            json!({ "osdstats": { "osd_perf_infos": list(&|osd| json!({ "id": osd, "perf_stats": { "commit_latency_ns": 500_000 } })) } }),
        ),
        osd_metadata: Ok(list(&|osd| {
            json!({ "id": osd, "hostname": format!("h{}", osd / 3), "devices": "nvme0n1", "device_ids": "nvme0n1=X_1",
                    "nacre_build": "opt-level 3", "nacre_bdev_driver": "io_uring" })
        })),
        time_sync: Ok(
            json!({ "timechecks": {}, "time_skew_status": { "a": { "skew": 0.0 }, "b": { "skew": -0.003 } } }),
        ),
        before: look(1),
        after: look(2),
        window_s: 5.0,
        blocked: each(&json!({ "num_blocked_ops": 0, "ops": [], "complaint_time": 30.0 })),
        pings: each(&json!({ "threshold": 350, "entries": [] })),
    }
}

/// What nine OSDs have counted after so many times 5 s: a thread that is on a processor for 20 % of the time, 1000 durable writes of about
/// 400 us, pings that take 0.2 ms, 20,000 segments to each other OSD.
fn look(times: u64) -> Look {
    let clock = |count: u64, each_s: f64| json!({ "avgcount": count * times, "sum": each_s * (count * times) as f64 });
    let each = |of: &dyn Fn(OsdId) -> Value| -> BTreeMap<OsdId, Answer> {
        (0..9).map(|osd| (osd, Ok(of(osd)))).collect()
    };
    let perf = json!({
        "osd": { "stat_bytes": 1000 << 20 },
        "osd-stages": { "op_w_logged": clock(2500, 0.0005) },
        "osd-cpu": { "threads_us": 1_000_000 * times },
        "device": { "read_latency": clock(0, 0.0), "cached_write_latency": clock(0, 0.0), "durable_write_latency": clock(1000, 0.0004), "flush_latency": clock(0, 0.0) },
        "device-free": { "free_bytes": 600 << 20, "free_long_bytes": 500 << 20, "free_runs": 900 },
    });
    let way = |osd: OsdId| {
        json!({ "osd": osd, "pings": { "avgcount": 10 * times, "sum": 0.002 * times as f64, "silent_s": 0.0 }, "heard_s": 0.4, "segments_since_heard": 1,
                "tcp": { "connections": 3, "segments": 20_000 * times, "resent": times, "duplicates": 0, "round_trip_us_max": 80 } })
    };
    Look {
        perf: each(&|_| perf.clone()),
        histograms: each(&|_| histograms(1000 * times, 9)),
        links: each(&|from| json!({ "links": (0..9).filter(|to| *to != from).map(way).collect::<Vec<_>>() })),
    }
}

/// So many durable writes, each of 2^(bucket - 1) us or more.
pub(super) fn histograms(count: u64, bucket: usize) -> Value {
    let values =
        |count: u64| (0..LATENCY_BUCKETS).map(|at| if at == bucket { count } else { 0 }).collect::<Vec<_>>();
    let of = |count: u64| json!({ "values": values(count) });
    json!({ "device": { "read_latency_histogram": of(0), "cached_write_latency_histogram": of(0), "durable_write_latency_histogram": of(count), "flush_latency_histogram": of(0) } })
}

pub(super) fn checked(facts: &Facts) -> Report {
    let mut report = Report::default();
    check(facts, &mut report);
    report.sort();
    report
}

/// The only finding.
pub(super) fn only(facts: &Facts) -> crate::report::Finding {
    let mut report = checked(facts);
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    report.findings.remove(0)
}

pub(super) fn set(answer: &mut Answer, path: &str, value: Value) {
    *answer.as_mut().expect("an answer").pointer_mut(path).unwrap_or_else(|| panic!("no {path}")) = value;
}

const CHECKS: [&str; 16] = [
    "health",
    "slow-ops",
    "slow-pings",
    "clock-skew",
    "background",
    "fill",
    "pg-count",
    "osd-build",
    "device-driver",
    "osd-latency",
    "slow-device",
    "osd-stalled",
    "osd-silent",
    "link-cut",
    "lossy-link",
    "fragmentation",
];

#[test]
fn a_well_cluster_is_silent_and_nothing_of_it_unknown() {
    let report = checked(&clean());
    assert_eq!((report.findings.as_slice(), report.unknown.as_slice()), (&[][..], &[][..]));
    assert!(CHECKS.iter().all(|check| report.judged.contains(check)), "{:?}", report.judged);
}

#[test]
fn health_checks_are_findings_unless_muted() {
    let mut facts = clean();
    let check = |muted: bool| {
        json!({ "OSD_DOWN": { "severity": "HEALTH_WARN", "summary": { "message": "1 osds down" }, "muted": muted,
                "detail": [{ "message": "osd.3 (root=default,host=h1) is down" }] } })
    };
    set(&mut facts.health, "/checks", check(false));
    let finding = only(&facts);
    assert_eq!((finding.check, finding.rank), ("health", Rank::Costly));
    assert_eq!(finding.measured, "1 osds down (osd.3 (root=default,host=h1) is down)");
    set(&mut facts.health, "/checks", check(true));
    assert!(checked(&facts).findings.is_empty());
}

#[test]
fn requests_that_do_not_end_say_what_they_wait_for() {
    let mut facts = clean();
    let op = |age: f64, event: &str| json!({ "age": age, "type_data": { "client_info": { "client": "client.7" }, "events": [{ "event": "initiated" }, { "event": event }] } });
    let ops = json!([op(31.0, "waiting for peering"), op(64.2, "waiting for the disks of osd.[5]")]);
    facts.blocked.insert(2, Ok(json!({ "num_blocked_ops": 2, "complaint_time": 30.0, "ops": ops })));
    let finding = only(&facts);
    assert_eq!(
        (finding.check, finding.subject.as_str()),
        ("slow-ops", "osd.2 has requests of clients that do not end")
    );
    assert_eq!(
        finding.measured,
        "2 for longer than 30.0 s; the oldest for 64 s: waiting for the disks of osd.[5]"
    );
    assert!(finding.cost.contains("client.7"));
}

#[test]
fn slow_pings_name_an_end_only_where_all_have_it() {
    let entry = |to: i32, ms: f64| json!({ "to osd": to, "interface": "back", "stale": false, "average": { "1min": ms } });
    let mut facts = clean();
    for osd in [0, 1, 2] {
        facts.pings.insert(osd, Ok(json!({ "entries": [entry(5, 400.0 + f64::from(osd))] })));
    }
    let finding = only(&facts);
    assert_eq!(finding.subject, "all 3 slow ways between OSDs begin or end at osd.5");
    assert!(finding.measured.contains("from osd.2 to osd.5 (back) took 402.0 ms"), "{}", finding.measured);
    facts.pings.insert(2, Ok(json!({ "threshold": 350, "entries": [entry(4, 400.0), entry(5, 3.0)] })));
    // Pings between the looks were quick: it was slow, and is not any more.
    assert_eq!(only(&facts).subject, "2 ways between OSDs are slow");
    let Some(Ok(of_osd)) = facts.after.links.get_mut(&2) else { panic!("links of osd.2") };
    let links = of_osd["links"].as_array_mut().expect("a list");
    let way = links.iter_mut().find(|way| way["osd"] == 4).expect("a way to osd.4");
    way["pings"]["sum"] = json!(0.002 + 10.0 * 0.36);
    assert_eq!(only(&facts).subject, "3 ways between OSDs are slow");
}

#[test]
fn clocks_and_work_in_the_background_are_seen() {
    let mut facts = clean();
    set(&mut facts.time_sync, "/time_skew_status/b/skew", json!(-0.2));
    assert_eq!(only(&facts).measured, "it is -0.200 s off the leader's");
    let mut facts = clean();
    set(
        &mut facts.status,
        "/pgmap/pgs_by_state",
        json!([
            { "state_name": "active+remapped+backfilling", "count": 4 }, { "state_name": "active+remapped+backfill_wait", "count": 9 },
            { "state_name": "active+clean", "count": 287 }
        ]),
    );
    assert!(only(&facts).measured.starts_with("4 of 300 PGs, 0.0 MB/s"));
    set(
        &mut facts.status,
        "/pgmap/pgs_by_state",
        json!([{ "state_name": "active+clean+scrubbing+deep", "count": 3 }]),
    );
    assert_eq!(only(&facts).measured, "3 of 300 PGs, 3 of them with their data");
    // What was over before the looking ended counts, and of both moments the larger number.
    let mut facts = clean();
    let scrubbing = |count| json!([{ "state_name": "active+clean+scrubbing", "count": count }]);
    set(&mut facts.status_before, "/pgmap/pgs_by_state", scrubbing(5));
    assert_eq!(only(&facts).measured, "5 of 300 PGs, 0 of them with their data");
    set(&mut facts.status, "/pgmap/pgs_by_state", scrubbing(2));
    assert_eq!(only(&facts).measured, "5 of 300 PGs, 0 of them with their data");
    facts.status_before = Err("no answer".to_owned());
    assert_eq!(only(&facts).measured, "2 of 300 PGs, 0 of them with their data");
}

#[test]
fn fill_and_pg_counts_are_compared() {
    let mut facts = clean();
    set(&mut facts.osd_df, "/nodes/4/utilization", json!(70.0));
    assert_eq!(only(&facts).subject, "osd.4 is fuller than others");
    // One that is out is no measure.
    set(&mut facts.osd_df, "/nodes/4/reweight", json!(0));
    assert!(checked(&facts).findings.is_empty());
    let mut facts = clean();
    for osd in 0..9 {
        set(&mut facts.osd_df, &format!("/nodes/{osd}/pgs"), json!(8));
    }
    assert_eq!(only(&facts).measured, "8 copies of PGs on an OSD on average, 8 at most, of 9 OSDs");
}

#[test]
fn osds_are_compared_with_each_other() {
    let mut facts = clean();
    set(&mut facts.osd_metadata, "/3/nacre_build", json!("opt-level 0, debug assertions"));
    let finding = only(&facts);
    assert_eq!(
        (finding.check, finding.rank, finding.subject.as_str()),
        ("osd-build", Rank::Serious, "osd.3 run no release build")
    );
    let mut facts = clean();
    set(&mut facts.osd_metadata, "/3/nacre_bdev_driver", json!("threads"));
    assert_eq!(only(&facts).measured, "by threads, not by io_uring");
    let mut facts = clean();
    set(&mut facts.osd_perf, "/osdstats/osd_perf_infos/4/perf_stats/commit_latency_ns", json!(6_000_000));
    let finding = only(&facts);
    assert!(
        finding.subject.starts_with("osd.4 is slower than others, device nvme0n1"),
        "{}",
        finding.subject
    );
    let measured = "it took 6.00 ms to have a write durably in the last seconds (osd perf), the median of 9 OSDs is 0.50 ms; 2 of the 3 OSDs \
                    on h1 are not: this device, or this OSD's thread";
    assert_eq!(finding.measured, measured);
    // A whole machine that is slow is not blamed on its devices.
    for osd in [3, 5] {
        set(
            &mut facts.osd_perf,
            &format!("/osdstats/osd_perf_infos/{osd}/perf_stats/commit_latency_ns"),
            json!(7_000_000),
        );
    }
    let report = checked(&facts);
    assert_eq!(report.findings.len(), 3);
    assert!(report.findings.iter().all(|finding| {
        finding.measured.ends_with("all 3 OSDs on h1 are: the machine rather than one device")
    }));
}

/// Writes that one OSD had had at both looks, and the seconds that they took together.
fn logged(facts: &mut Facts, osd: OsdId, before: (u64, f64), after: (u64, f64)) {
    for (look, (count, sum)) in [(&mut facts.before, before), (&mut facts.after, after)] {
        let dump = json!({ "osd-stages": { "op_w_logged": { "avgcount": count, "sum": sum } } });
        look.perf.insert(osd, Ok(dump));
    }
}

#[test]
fn osds_are_compared_by_what_they_did_between_the_looks() {
    let mut facts = clean();
    set(&mut facts.osd_perf, "/osdstats/osd_perf_infos", json!([]));
    assert!(checked(&facts).findings.is_empty());
    logged(&mut facts, 8, (1000, 0.5), (2000, 9.5));
    assert!(
        only(&facts).measured.starts_with("it took 9.00 ms to have a write durably in 5.0 s (perf dump)")
    );
    // It was slow once, and is well again.
    logged(&mut facts, 8, (1000, 900.0), (2000, 900.5));
    assert!(checked(&facts).findings.is_empty());
}

#[test]
fn without_load_the_past_is_told_and_nobody_is_named() {
    let mut facts = clean();
    set(&mut facts.osd_perf, "/osdstats/osd_perf_infos", json!([]));
    (0..9).for_each(|osd| logged(&mut facts, osd, (1000, 0.5), (1007, 0.5)));
    logged(&mut facts, 8, (1000, 9.0), (1000, 9.0));
    let report = checked(&facts);
    assert!(report.findings.is_empty() && !report.judged.contains(&"osd-latency"));
    assert_eq!(
        report.unknown[0].why,
        "0 OSDs have had enough writes in 5.0 s to be compared; 3 are needed. On average since their start, osd.8 9.00 ms to have a write \
         durably, the median of 9 0.50 ms: look again while clients write"
    );
    (0..9).for_each(|osd| logged(&mut facts, osd, (0, 0.0), (7, 9.0)));
    let report = checked(&facts);
    assert!(report.findings.is_empty() && !report.judged.contains(&"osd-latency"));
    let why = "0 OSDs have had enough writes in 5.0 s to be compared; 3 are needed";
    assert_eq!(report.unknown[0].why, why);
}

#[test]
fn what_is_not_answered_is_unknown() {
    let no = || Err("EACCES: access denied".to_owned());
    let none = || BTreeMap::from([(0, no()), (1, no())]);
    let facts = Facts {
        health: no(),
        status_before: no(),
        status: no(),
        osd_df: no(),
        osd_perf: no(),
        osd_metadata: no(),
        time_sync: no(),
        before: Look { perf: none(), histograms: none(), links: none() },
        after: Look { perf: none(), histograms: none(), links: none() },
        window_s: 5.0,
        blocked: none(),
        pings: none(),
    };
    let report = checked(&facts);
    assert_eq!((report.findings.len(), report.judged.as_slice()), (0, &[][..]));
    let unknown: Vec<&str> = report.unknown.iter().map(|one| one.check).collect();
    for check in CHECKS.iter().filter(|check| **check != "clock-skew") {
        assert!(unknown.contains(check), "{check} is not among {unknown:?}");
    }
    assert!(report.unknown.iter().any(|one| one.why == "osd.0 and 1 more: EACCES: access denied"));
}
