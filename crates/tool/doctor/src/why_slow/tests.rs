//! Parts add up to what was measured; who makes them wait is named by what was seen only.

use super::account::Account;
use super::samples::Samples;
use super::text::text;
use super::verdict::{Beside, verdicts};
use crate::cluster::session::Answer;
use crate::host::clients::ClientProcess;
use nacre_types::OsdId;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One OSD's dump: writes, and the seconds of each of their stages; the whole is their sum.
fn dump(count: u64, stages: [f64; 5]) -> Value {
    let clock = |count: u64, sum: f64| json!({ "avgcount": count, "sum": sum });
    let names = ["dispatched", "executed", "logged", "replicated", "replied"];
    let writes = names.iter().zip(stages).map(|(name, sum)| (format!("op_w_{name}"), clock(count, sum)));
    let reads = names.iter().map(|name| (format!("op_r_{name}"), clock(0, 0.0)));
    json!({
        "osd": { "op_r_latency": clock(0, 0.0), "op_w_latency": clock(count, stages.iter().sum()) },
        "osd-stages": Value::Object(writes.chain(reads).collect()),
    })
}

type Dumps = BTreeMap<OsdId, Answer>;

fn dumps(of: [(u64, [f64; 5]); 3]) -> Dumps {
    (0..).zip(of).map(|(osd, (count, stages))| (osd, Ok(dump(count, stages)))).collect()
}

/// Three OSDs, of which the device of osd.1 is slow; before, each had done something already.
fn pair() -> (Dumps, Dumps) {
    let before = dumps([(100, [1.0; 5]); 3]);
    let after = dumps([
        (1100, [1.0, 1.1, 1.5, 3.0, 1.0]),
        (1100, [1.0, 1.1, 7.0, 1.3, 1.0]),
        (1100, [1.0, 1.1, 1.5, 2.8, 1.0]),
    ]);
    (before, after)
}

fn op(client: &str, object: &str, event: &str) -> Value {
    json!({ "age": 0.004, "description": format!("osd_op({client}:7 1.2 {object} [write] e6)"),
            "type_data": { "client_info": { "client": client }, "events": [{ "event": "initiated" }, { "event": event }] } })
}

#[test]
fn parts_add_up_and_the_largest_comes_first() {
    let (before, after) = pair();
    let account = Account::new(&before, &after, 10.0, Samples::default());
    assert_eq!((account.osds, account.whole[1].0, account.unknown.as_slice()), (3, 3000, &[][..]));
    let sum: f64 = account.parts.iter().map(|part| part.seconds).sum();
    assert!((account.total_s() - 11.4).abs() < 1e-6 && (account.total_s() - sum).abs() < 1e-6, "{account:?}");
    assert!(account.unexplained_s().abs() < 1e-6);
    let first = &account.parts[0];
    assert_eq!((first.osd, first.stage, first.count), (1, "logged", 1000));
    assert!(
        (first.mean_ms() - 6.0).abs() < 1e-6
            && account.elsewhere_ms(first).is_some_and(|ms| (ms - 0.5).abs() < 1e-6)
    );
    let shown = text(&account);
    assert!(
        shown.contains(
            "0 reads (mean 0.00 ms) and 3000 writes (mean 3.80 ms) were answered; clients waited 11.40 s"
        ),
        "{shown}"
    );
    let line = "1. 53 % 6.00 s: writes waited until osd.1 had them durably (its device, and its thread that must see it) (1000 of them, 6.00 ms each; 0.50 ms elsewhere, 12.0 times as long)";
    assert!(shown.contains(line), "{shown}");
    assert!(shown.contains("which clients and images wait is unknown: at 0 moments"), "{shown}");
    assert!(shown.contains("; 0 % 0.00 s: unexplained"), "{shown}");
}

#[test]
fn samples_name_the_osd_the_client_and_the_image() {
    let (before, after) = pair();
    let mut samples = Samples::default();
    let wait = |osds: &str| format!("waiting for the disks of osd.[{osds}]");
    for _ in 0..20 {
        let in_flight = BTreeMap::from([
            (
                0,
                Ok(json!({ "ops": [
                op("client.5", "rbd_data.10b.0000000000000001", &wait("1")),
                op("client.5", "rbd_data.10b.0000000000000002", &wait("1,2")),
                // Its own device, too: that is no wait for others.
                op("client.6", "rbd_data.7.10c.0000000000000002", &wait("0,2")),
                op("client.6", "journal", "waiting for earlier messages on the object"),
            ] })),
            ),
            (1, Err("EACCES".to_owned())),
        ]);
        samples.add(&in_flight, 10.0);
    }
    assert!((samples.in_flight() - 4.0).abs() < 1e-9 && samples.stuck == 0);
    let (waits, seen) = samples.waits_of(0);
    assert_eq!((waits, seen), (vec![(1, 0.75), (2, 0.25)], 40.0));
    assert_eq!(samples.clients(), [("client.5".to_owned(), 0.5), ("client.6".to_owned(), 0.5)]);
    assert_eq!(samples.images(), [("rbd_data.10b".to_owned(), 0.5), ("rbd_data.7.10c".to_owned(), 0.25)]);
    let shown = text(&Account::new(&before, &after, 10.0, samples));
    assert!(shown.contains("writes waited for other OSDs, led by osd.0"), "{shown}");
    assert!(shown.contains("      waited for: osd.1 75 %, osd.2 25 % (of 40 seen waiting)"), "{shown}");
    assert!(
        shown.contains(
            "images by their part of 80 messages seen under way: rbd_data.10b 50 %, rbd_data.7.10c 25 %"
        ),
        "{shown}"
    );
}

#[test]
fn what_was_not_measured_is_not_counted() {
    let (mut before, mut after) = pair();
    after.insert(0, Ok(dump(3, [0.0; 5])));
    after.insert(1, Err("osd.1 is not up".to_owned()));
    before.insert(3, Ok(json!({ "osd": { "op_r_latency": {} } })));
    after.insert(3, Ok(json!({ "osd": {} })));
    let account = Account::new(&before, &after, 10.0, Samples::default());
    assert_eq!((account.osds, account.whole[1].0), (1, 1000));
    let why: Vec<&str> = account.unknown.iter().map(|(_, why)| why.as_str()).collect();
    assert_eq!(
        why,
        ["it has started anew meanwhile", "osd.1 is not up", "it has no osd op_r_latency: no OSD of Nacre"]
    );
    let idle = Account::new(&before, &before, 10.0, Samples::default());
    assert!(text(&idle).contains("No message of a client was answered"));
    let mut samples = Samples::default();
    samples.add(&BTreeMap::from([(0, Ok(json!({ "ops": [{ "age": 60.0 }] })))]), 10.0);
    let stuck = Account::new(&before, &before, 10.0, samples);
    assert!(text(&stuck).contains("1 messages have been under way for longer than that"));
}

#[test]
fn how_busy_threads_were_is_told() {
    let (mut before, mut after) = pair();
    assert!(
        text(&Account::new(&before, &after, 10.0, Samples::default())).contains("threads were is unknown")
    );
    for (osd, us) in [(0, 1_000_000), (1, 2_000_000), (2, 9_500_000)] {
        before.get_mut(&osd).and_then(|dump| dump.as_mut().ok()).expect("a dump")["osd-cpu"] =
            json!({ "threads_us": 500 });
        after.get_mut(&osd).and_then(|dump| dump.as_mut().ok()).expect("a dump")["osd-cpu"] =
            json!({ "threads_us": us + 500 });
    }
    let account = Account::new(&before, &after, 10.0, Samples::default());
    let shown = text(&account);
    let line = "the busiest OSD's thread, osd.2's, was on a processor for 95 % of the time: it is what holds messages up there; 4166.7 us";
    assert!(shown.contains(line), "{shown}");
    assert!(account.to_json()["busy"][0]["share"].as_f64().is_some_and(|share| (share - 0.1).abs() < 1e-9));
}

#[test]
fn idle_osds_are_not_blamed() {
    let (before, after) = (dumps([(0, [0.0; 5]); 3]), dumps([(100, [0.0, 0.0, 0.01, 0.02, 0.0]); 3]));
    let shown = text(&Account::new(&before, &after, 10.0, Samples::default()));
    assert!(
        shown.contains(
            "OSDs had 0.01 messages at a time on average: most of the time there was nothing to do"
        ),
        "{shown}"
    );
    let (before, after) = pair();
    let shown = text(&Account::new(&before, &after, 10.0, Samples::default()));
    assert!(shown.contains("are in none of these numbers"), "{shown}");
}

fn device(dump: &mut Answer, count: u64, sum: f64, threads_us: u64) {
    let dump = dump.as_mut().expect("an answer");
    let clock = |count: u64, sum: f64| json!({ "avgcount": count, "sum": sum });
    dump["device"] = json!({
        "read_latency": clock(0, 0.0), "durable_write_latency": clock(count, sum),
        "cached_write_latency": clock(0, 0.0), "flush_latency": clock(0, 0.0),
    });
    dump["osd-cpu"] = json!({ "threads_us": threads_us });
}

/// The pair, with devices: osd.1's takes `ms`, the others' 0.4 ms; threads are on a processor for so much of 10 s.
fn measured(ms: f64, share: f64) -> Account {
    let (mut before, mut after) = pair();
    for osd in 0..3 {
        let ms = if osd == 1 { ms } else { 0.4 };
        device(before.get_mut(&osd).expect("one"), 10, 0.004, 0);
        device(after.get_mut(&osd).expect("one"), 1010, 0.004 + ms, (share * 1e7) as u64);
    }
    Account::new(&before, &after, 10.0, samples([("client.7", 1), ("client.8", 1)]))
}

/// Twenty moments, at each of which clients wait for osd.1.
fn samples<const N: usize>(of: [(&str, usize); N]) -> Samples {
    let mut samples = Samples::default();
    for _ in 0..20 {
        let ops = of.iter().flat_map(|(client, count)| {
            (0..*count)
                .map(|_| op(client, "rbd_data.5f.0000000000000001", "waiting for the disks of osd.[1]"))
        });
        let in_flight = BTreeMap::from([(0, Ok(json!({ "ops": ops.collect::<Vec<_>>() })))]);
        samples.add(&in_flight, 10.0);
    }
    samples
}

fn causes(account: &Account, beside: &Beside) -> Vec<&'static str> {
    verdicts(account, beside).iter().map(|verdict| verdict.cause).collect()
}

#[test]
fn an_osd_that_clients_wait_for_is_its_device_its_thread_or_neither() {
    let first =
        |account: &Account| verdicts(account, &Beside::default()).first().cloned().expect("a verdict");
    let device = first(&measured(6.0, 0.3));
    assert_eq!(
        (device.cause, device.subject.as_str()),
        ("slow-device", "osd.1's device is slow, or its process does not get to run")
    );
    assert!(device.measured.contains("a request to its device takes 6.0 ms (others 0.4 ms), its thread is on a processor for 30 % (others 30 %)"), "{device:?}");
    assert_eq!(first(&measured(6.0, 0.95)).cause, "osd-busy");
    assert_eq!(first(&measured(0.5, 0.3)).cause, "slow-osd");
}

/// As much of each OSD, in little time or much.
fn even(seconds: f64, samples: Samples) -> Account {
    let before = dumps([(100, [1.0; 5]); 3]);
    let after = dumps([(1100, [1.0 + seconds; 5]); 3]);
    Account::new(&before, &after, 10.0, samples)
}

#[test]
fn a_noisy_client_is_named_beside_others_only_and_while_there_is_much() {
    let noisy = even(3.0, samples([("client.7", 9), ("client.8", 1)]));
    let verdict = verdicts(&noisy, &Beside::default()).first().cloned().expect("a verdict");
    assert_eq!((verdict.cause, verdict.share), ("noisy-image", 0.9));
    assert!(
        verdict.subject.starts_with("client.7 takes most of what OSDs can do, with image rbd_data.5f"),
        "{verdict:?}"
    );
    assert!(verdict.measured.contains("the next, client.8, has 10 %"), "{verdict:?}");
    assert_eq!(
        causes(&even(3.0, samples([("client.7", 9)])), &Beside::default()),
        [""; 0],
        "nobody is its neighbour"
    );
    assert_eq!(causes(&even(3.0, samples([("client.7", 5), ("client.8", 5)])), &Beside::default()), [""; 0]);
    assert_eq!(
        causes(&even(3.0, samples([("client.7", 2), ("client.8", 1)])), &Beside::default()),
        [""; 0],
        "there is little"
    );
}

#[test]
fn idle_osds_make_it_the_clients_and_a_busy_thread_there_says_which() {
    let idle = even(0.1, Samples::default());
    let process = |share: f64| ClientProcess {
        pid: 7,
        comm: "app".to_owned(),
        connections: 3,
        thread: "app".to_owned(),
        on: share / 2.0,
        wanted: share,
    };
    let beside = |share: f64| Beside {
        processes: vec![process(share)],
        settings: vec!["client rbd_cache = false".to_owned()],
        ..Beside::default()
    };
    let busy = verdicts(&idle, &beside(0.97)).first().cloned().expect("a verdict");
    assert_eq!(
        (busy.cause, busy.subject.as_str()),
        ("client-cpu", "the client itself is what is slow: app (process 7)")
    );
    assert!(
        busy.measured.contains("on a processor for 48 % of the time and wanted to be for 97 %")
            && busy.measured.ends_with("set: client rbd_cache = false"),
        "{busy:?}"
    );
    assert_eq!(causes(&idle, &beside(0.4)), ["client-or-network"]);
    assert_eq!(causes(&idle, &Beside::default()), ["client-or-network"]);
    // OSDs that are at work for their clients are no idle ones.
    assert_eq!(causes(&even(3.0, Samples::default()), &beside(0.97)), [""; 0]);
}

#[test]
fn work_in_the_background_is_named_while_it_is_there() {
    let account = even(3.0, Samples::default());
    assert_eq!(causes(&account, &Beside { recovering: 3, scrubbing: 1, ..Beside::default() }), ["recovery"]);
    assert_eq!(causes(&account, &Beside { scrubbing: 1, ..Beside::default() }), ["scrub"]);
}
