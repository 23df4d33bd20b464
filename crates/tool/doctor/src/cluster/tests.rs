//! A cluster with which nothing is wrong is silent; each fault is found, and alone.

use super::*;
use crate::report::Rank;
use serde_json::{Value, json};

/// Nine OSDs on three hosts, 40 % full, with 100 PGs each; writes take 0.5 ms.
fn clean() -> Facts {
    let osds = 0..9;
    let each = |answer: &Value| -> BTreeMap<OsdId, Answer> {
        osds.clone().map(|osd| (osd, Ok(answer.clone()))).collect()
    };
    let list = |one: &dyn Fn(i32) -> Value| Value::Array(osds.clone().map(one).collect());
    let stages = json!({ "osd-stages": { "op_w_logged": { "avgcount": 5000, "sum": 2.5 } } });
    Facts {
        health: Ok(json!({ "status": "HEALTH_OK", "checks": {} })),
        status: Ok(
            json!({ "pgmap": { "num_pgs": 300, "pgs_by_state": [{ "state_name": "active+clean", "count": 300 }] } }),
        ),
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
        perf_dumps: each(&stages),
        blocked: each(&json!({ "num_blocked_ops": 0, "ops": [], "complaint_time": 30.0 })),
        pings: each(&json!({ "threshold": 350, "entries": [] })),
    }
}

fn checked(facts: &Facts) -> Report {
    let mut report = Report::default();
    check(facts, &mut report);
    report.sort();
    report
}

/// The only finding.
fn only(facts: &Facts) -> crate::report::Finding {
    let mut report = checked(facts);
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    report.findings.remove(0)
}

fn set(answer: &mut Answer, path: &str, value: Value) {
    *answer.as_mut().expect("an answer").pointer_mut(path).unwrap_or_else(|| panic!("no {path}")) = value;
}

const CHECKS: [&str; 10] = [
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
    facts.pings.insert(2, Ok(json!({ "entries": [entry(4, 400.0)] })));
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

#[test]
fn without_load_the_past_is_compared_and_without_that_nothing() {
    let mut facts = clean();
    set(&mut facts.osd_perf, "/osdstats/osd_perf_infos", json!([]));
    facts
        .perf_dumps
        .insert(8, Ok(json!({ "osd-stages": { "op_w_logged": { "avgcount": 1000, "sum": 9.0 } } })));
    assert!(
        only(&facts)
            .measured
            .starts_with("it took 9.00 ms to have a write durably since its start (perf dump)")
    );
    for osd in 0..9 {
        facts
            .perf_dumps
            .insert(osd, Ok(json!({ "osd-stages": { "op_w_logged": { "avgcount": 7, "sum": 9.0 } } })));
    }
    let report = checked(&facts);
    assert!(report.findings.is_empty() && !report.judged.contains(&"osd-latency"));
    assert_eq!(report.unknown[0].why, "0 OSDs have had enough writes to be compared; 3 are needed");
}

#[test]
fn what_is_not_answered_is_unknown() {
    let no = || Err("EACCES: access denied".to_owned());
    let none = || BTreeMap::from([(0, no()), (1, no())]);
    let facts = Facts {
        health: no(),
        status: no(),
        osd_df: no(),
        osd_perf: no(),
        osd_metadata: no(),
        time_sync: no(),
        perf_dumps: none(),
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
