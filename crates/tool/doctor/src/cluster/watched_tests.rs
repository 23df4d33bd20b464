//! Devices, threads and ways between OSDs: each that is slow, cut or lossy is named, and not what only looks like it.

use super::tests::{checked, clean, histograms, only, set};
use super::watched::busiest_thread_us;
use super::*;
use crate::report::Rank;
use serde_json::{Value, json};

fn histogram(facts: &mut Facts, osd: OsdId, count: u64, bucket: usize) {
    let mut look = histograms(1000, 9);
    let values = look["device"]["durable_write_latency_histogram"]["values"].as_array_mut().expect("a list");
    let slot = &mut values[bucket];
    *slot = json!(slot.as_u64().expect("a number") + count);
    facts.after.histograms.insert(osd, Ok(look));
}

fn perf(facts: &mut Facts, osd: OsdId, path: &str, value: Value) {
    set(facts.after.perf.get_mut(&osd).expect("an OSD"), path, value);
}

fn way(facts: &mut Facts, from: OsdId, to: OsdId, path: &str, value: Value) {
    let links = facts.after.links.get_mut(&from).and_then(|answer| answer.as_mut().ok()).expect("an OSD");
    let links = links["links"].as_array_mut().expect("a list");
    let way = links.iter_mut().find(|link| link["osd"] == to).expect("a way");
    *way.pointer_mut(path).expect("a field") = value;
}

/// Pings of `osd` took so many milliseconds between the looks: ten of each other one.
fn pinged(facts: &mut Facts, osd: OsdId, ms: f64) {
    for from in (0..9).filter(|from| *from != osd) {
        way(facts, from, osd, "/pings/sum", json!(0.002 + ms / 100.0));
    }
}

fn checks(facts: &Facts) -> Vec<(&'static str, Option<&'static str>)> {
    checked(facts).findings.iter().map(|finding| (finding.check, finding.explained_by)).collect()
}

#[test]
fn a_slow_device_is_named_with_what_excludes_thread_and_machine() {
    let mut facts = clean();
    histogram(&mut facts, 4, 800, 14);
    let finding = only(&facts);
    assert_eq!((finding.check, finding.rank), ("slow-device", Rank::Costly));
    assert_eq!(finding.subject, "osd.4 (device nvme0n1 (nvme0n1=X_1) on h1) is slower than others");
    let measured = "in 5.0 s 800 durable writes took 12.3 ms (median) and 16.3 ms (p99), of 8 others 0.4 ms and 0.5 ms; before, since its \
                    start, 0.4 ms and 0.5 ms, 0.1 requests at the device at a time; its thread was on a processor for 20 % of the time, and \
                    answers pings after 0.2 ms: it is not the OSD; 2 of 3 OSDs there are not slow: it is not the machine";
    assert_eq!(finding.measured, measured);
    // What monitors and older measures say of it is not told as something else, but behind it.
    set(&mut facts.osd_perf, "/osdstats/osd_perf_infos/4/perf_stats/commit_latency_ns", json!(60_000_000));
    let named = json!({ "OSD_SLOW_DEVICE": { "severity": "HEALTH_WARN", "summary": { "message": "1 device" }, "detail": [{ "message": "osd.4 (host h1): slow" }] } });
    set(&mut facts.health, "/checks", named);
    let named = checks(&facts);
    assert_eq!(named[0], ("slow-device", None));
    assert_eq!(named.len(), 3);
    assert!(named[1..].iter().all(|(_, because)| *because == Some("slow-device")), "{named:?}");
    // Two thirds of a machine, and all of it.
    for osd in [3, 5] {
        histogram(&mut facts, osd, 800, 14);
    }
    let report = checked(&facts);
    let of_devices: Vec<_> =
        report.findings.iter().filter(|finding| finding.check == "slow-device").collect();
    assert!(
        of_devices.len() == 3 && of_devices[0].subject.starts_with("all devices on h1 are slower"),
        "{of_devices:?}"
    );
}

#[test]
fn what_only_looks_like_a_slow_device_is_called_what_it_is() {
    // A thread that has no time left.
    let mut facts = clean();
    histogram(&mut facts, 4, 800, 14);
    perf(&mut facts, 4, "/osd-cpu/threads_us", json!(5_900_000));
    let finding = only(&facts);
    assert!(finding.check == "osd-busy" && finding.measured.contains("98 % of the time"), "{finding:?}");
    // An OSD that does not get to run answers pings as late.
    let mut facts = clean();
    histogram(&mut facts, 4, 800, 14);
    pinged(&mut facts, 4, 11.0);
    let finding = only(&facts);
    assert_eq!(finding.check, "osd-stalled");
    assert!(
        finding.measured.contains(
            "all 8 OSDs that ping it waited 11.0 ms or more for answers (11.0 ms in the middle; 0.2 ms"
        ),
        "{}",
        finding.measured
    );
    // Over one way alone it is the way, and not that OSD.
    let mut facts = clean();
    way(&mut facts, 3, 4, "/pings/sum", json!(0.2));
    assert_eq!(checks(&facts), []);
    // One that has four times as much to do is slow by itself, unless requests wait for each other.
    let mut facts = clean();
    histogram(&mut facts, 4, 4000, 12);
    assert_eq!(only(&facts).check, "slow-device");
    // Which they would not do at one that is as fast as others: 800 a second of 0.5 ms are less than half of its time.
    perf(&mut facts, 4, "/device/durable_write_latency", json!({ "avgcount": 6000, "sum": 16.0 }));
    assert_eq!(only(&facts).check, "slow-device");
    histogram(&mut facts, 4, 8000, 12);
    assert_eq!(only(&facts).check, "uneven-load");
    assert!(only(&facts).measured.ends_with("times as many as of others, and 3.1 at a time"));
    // All are as slow: overload, and nobody's device.
    let mut facts = clean();
    (0..9).for_each(|osd| histogram(&mut facts, osd, 800, 14));
    assert_eq!(checks(&facts), []);
    // Of few requests nothing is said.
    let mut facts = clean();
    (0..9).for_each(|osd| histogram(&mut facts, osd, if osd == 4 { 19 } else { 0 }, 14));
    let report = checked(&facts);
    assert!(
        report.findings.is_empty() && report.unknown.iter().any(|unknown| unknown.check == "slow-device")
    );
}

#[test]
fn an_osd_that_answers_nobody_is_named_and_its_waiters_explained() {
    let mut facts = clean();
    facts.after.links.insert(4, Err("no answer within 5s".to_owned()));
    for from in (0..9).filter(|from| *from != 4) {
        way(&mut facts, from, 4, "/pings/silent_s", json!(20.0));
    }
    let event = json!({ "event": "waiting for the disks of osd.[4]" });
    let op =
        json!({ "age": 31.0, "type_data": { "client_info": { "client": "client.7" }, "events": [event] } });
    facts.blocked.insert(2, Ok(json!({ "num_blocked_ops": 1, "complaint_time": 30.0, "ops": [op] })));
    assert_eq!(checks(&facts), [("osd-silent", None), ("slow-ops", Some("osd-silent"))]);
    // That only we do not reach it says nothing of it.
    let mut facts = clean();
    facts.after.links.insert(4, Err("no answer within 5s".to_owned()));
    assert_eq!(checks(&facts), []);
}

#[test]
fn a_way_is_cut_in_one_direction_or_both_or_it_is_an_end() {
    // Connections that osd.3 makes do not come about, those of osd.7 do.
    let mut facts = clean();
    way(&mut facts, 3, 7, "/pings/silent_s", json!(12.0));
    let finding = only(&facts);
    assert_eq!(
        (finding.check, finding.subject.as_str()),
        ("one-way-cut", "the way from osd.3 to osd.7 is cut, in this direction")
    );
    assert!(
        finding.measured.starts_with(
            "osd.3's pings of osd.7 are not answered for 12 s, osd.7's pings of osd.3 are answered"
        ),
        "{}",
        finding.measured
    );
    // Both wait, and what osd.7 sends still comes to osd.3.
    way(&mut facts, 7, 3, "/pings/silent_s", json!(12.0));
    way(&mut facts, 7, 3, "/segments_since_heard", json!(0));
    way(&mut facts, 3, 7, "/segments_since_heard", json!(7));
    assert_eq!(only(&facts).subject, "the way from osd.3 to osd.7 is cut, in this direction");
    way(&mut facts, 3, 7, "/segments_since_heard", json!(1));
    assert_eq!(
        (only(&facts).check, only(&facts).subject.as_str()),
        ("link-cut", "the way between osd.3 and osd.7 is cut")
    );
    // All of its ways: the OSD's end, and none of the ways.
    for other in (0..9).filter(|other| *other != 7) {
        way(&mut facts, 7, other, "/pings/silent_s", json!(12.0));
        way(&mut facts, other, 7, "/pings/silent_s", json!(12.0));
    }
    let finding = only(&facts);
    assert_eq!(
        (finding.check, finding.subject.as_str()),
        ("osd-cut-off", "osd.7 is cut off from all other OSDs")
    );
}

/// The mean time of writes does not tell a slow device from work beside clients: it is said of the work, unless the device was seen slow.
#[test]
fn an_osd_that_is_slower_than_others_while_scrubs_go_on_is_their_symptom() {
    let mut facts = clean();
    set(&mut facts.osd_perf, "/osdstats/osd_perf_infos/8/perf_stats/commit_latency_ns", json!(30_000_000));
    let scrubbing = json!([{ "state_name": "active+clean+scrubbing+deep", "count": 55 }]);
    set(&mut facts.status, "/pgmap/pgs_by_state", scrubbing);
    let named = |facts: &Facts| {
        let mut report = checked(facts);
        report.sort();
        report.findings.iter().map(|one| (one.check, one.rank, one.explained_by)).collect::<Vec<_>>()
    };
    let costly = Rank::Costly;
    assert_eq!(named(&facts), [("background", costly, None), ("osd-latency", costly, Some("background"))]);
    // An OSD whose thread stands still is slow by that.
    histogram(&mut facts, 8, 800, 14);
    pinged(&mut facts, 8, 11.0);
    let named = named(&facts);
    assert!(named.contains(&("osd-stalled", costly, None)), "{named:?}");
    assert!(named.contains(&("osd-latency", costly, Some("osd-stalled"))), "{named:?}");
    assert!(named.contains(&("background", Rank::Hint, None)), "{named:?}");
}

/// PGs that peer before they recover are the recovery's, and a slow pool is a slow OSD's: both causes stand above what they explain.
#[test]
fn recovery_and_a_slow_device_stand_above_what_the_cluster_warns_of() {
    let mut facts = clean();
    let warning =
        |text: &str| json!({ "severity": "HEALTH_WARN", "summary": { "message": text }, "detail": [] });
    set(
        &mut facts.health,
        "/checks",
        json!({ "PG_AVAILABILITY": warning("1 pg inactive"), "POOL_PROBE_SLOW": warning("1 pool") }),
    );
    let states = |also: &str| json!([{ "state_name": "active+recovering+degraded", "count": 3 }, { "state_name": also, "count": 1 }]);
    set(&mut facts.status, "/pgmap/pgs_by_state", states("activating"));
    histogram(&mut facts, 3, 800, 17);
    let named = |facts: &Facts| {
        let mut report = checked(facts);
        report.sort();
        report.findings.iter().map(|one| (one.check, one.explained_by)).collect::<Vec<_>>()
    };
    let symptoms = [("health", Some("background")), ("health", Some("slow-device"))];
    assert_eq!(named(&facts)[..2], [("slow-device", None), ("background", None)]);
    assert!(symptoms.iter().all(|symptom| named(&facts)[2..].contains(symptom)), "{:?}", named(&facts));
    set(&mut facts.status, "/pgmap/pgs_by_state", states("down"));
    assert!(named(&facts).contains(&("health", None)), "nobody recovers that one: {:?}", named(&facts));
}

#[test]
fn losses_are_of_a_way_of_an_end_or_of_all() {
    let lose = |facts: &mut Facts, from: OsdId, to: OsdId| way(facts, from, to, "/tcp/resent", json!(401));
    let mut facts = clean();
    lose(&mut facts, 3, 7);
    let finding = only(&facts);
    assert_eq!(
        (finding.check, finding.subject.as_str()),
        ("lossy-link", "the way from osd.3 to osd.7 loses what is sent")
    );
    assert!(
        finding
            .measured
            .starts_with("401 of 40000 segments were lost on the way and sent again (1.00 %, TCP); 0.01 % on the other ways"),
        "{}",
        finding.measured
    );
    (0..9).filter(|to| *to != 3).for_each(|to| lose(&mut facts, 3, to));
    assert_eq!(only(&facts).subject, "what osd.3 sends gets lost, on all 8 ways");
    // What had arrived before was not lost: an OSD that stands still acknowledges late.
    let mut facts = clean();
    lose(&mut facts, 3, 7);
    way(&mut facts, 3, 7, "/tcp/duplicates", json!(398));
    assert_eq!(checks(&facts), []);
    // Few segments that were sent again are no share of anything; few of few leave it open.
    let mut facts = clean();
    way(&mut facts, 3, 7, "/tcp/resent", json!(4));
    assert_eq!(checks(&facts), []);
    assert!(checked(&facts).judged.contains(&"lossy-link"));
    way(&mut facts, 3, 7, "/tcp/segments", json!(20_096));
    let report = checked(&facts);
    assert!(report.findings.is_empty() && !report.judged.contains(&"lossy-link"));
    let why = report.unknown.iter().find(|one| one.check == "lossy-link").expect("said to be open");
    assert!(why.why.starts_with("3 of 96 segments from osd.3 to osd.7 were lost: too few"), "{}", why.why);
}

#[test]
fn free_space_in_short_pieces_is_named_unless_the_device_is_full() {
    let mut facts = clean();
    perf(&mut facts, 4, "/device-free/free_long_bytes", json!(6 << 20));
    perf(&mut facts, 4, "/device-free/free_runs", json!(76_800));
    let finding = only(&facts);
    assert_eq!(finding.check, "fragmentation");
    let measured = "1 % of it lies in pieces of 1 MiB or more (83 %, 83 %, 83 % on others), 8 KiB in the mean of all pieces; it is not full";
    assert_eq!(finding.measured, measured);
    perf(&mut facts, 4, "/device-free/free_bytes", json!(60 << 20));
    assert_eq!(checks(&facts), []);
}

#[test]
fn one_thread_of_several_may_be_busy() {
    let of = |threads: u64, first: u64, second: u64| json!({ "osd-cpu": { "threads_us": threads, "shard_0_us": first, "shard_1_us": second, "process_us": 9 } });
    assert_eq!(busiest_thread_us(&of(30, 10, 20), &of(130, 20, 110)), Some(90.0));
    let alone = |us: u64| json!({ "osd-cpu": { "threads_us": us } });
    assert_eq!(busiest_thread_us(&alone(5), &alone(12)), Some(7.0));
    assert_eq!(busiest_thread_us(&json!({}), &json!({})), None);
}
