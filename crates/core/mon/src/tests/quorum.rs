//! Commands and health show the monitors as the leader knows them.

use super::{ADMIN, World, addr};
use crate::event::SessionId;
use crate::{MonitorView, QuorumView};
use nacre_types::Errno;
use serde_json::{Value, json};
use std::time::Duration;

/// Monitors a, b and c, of which a leads and c is gone.
fn two_of_three() -> (World, SessionId) {
    let mut world = World::new(3);
    world.boot_all(3);
    for (name, port) in [("b", 3301), ("c", 3302)] {
        world.mon.state.mon.add(name, addr(port), world.wall);
    }
    let since = world.wall;
    let mut view = QuorumView::of_all(world.mon.state().mon.map(), 7, since);
    view.monitors.insert("c".to_owned(), MonitorView::default());
    world.mon.set_quorum(view);
    world.pass(Duration::from_secs(5));
    let admin = world.connect(ADMIN);
    (world, admin)
}

fn text(world: &mut World, admin: SessionId, prefix: &str) -> String {
    let ack = world.ask(admin, &format!(r#"{{"prefix":"{prefix}"}}"#)).expect("an answer");
    String::from_utf8(ack.data.to_bytes().to_vec()).expect("text")
}

fn tree(world: &mut World, admin: SessionId, prefix: &str) -> Value {
    let ask = format!(r#"{{"prefix":"{prefix}","format":"json"}}"#);
    let ack = world.ask(admin, &ask).expect("an answer");
    serde_json::from_slice(&ack.data.to_bytes()).expect("JSON")
}

/// Summary and details of a health check, if it is there.
fn check(world: &mut World, admin: SessionId, code: &str) -> Option<(Value, Value, Vec<Value>)> {
    let checks = world.checks(admin);
    let check = checks.get(code)?;
    let detail = check["detail"].as_array().expect("a list").iter().map(|line| line["message"].clone());
    Some((check["severity"].clone(), check["summary"]["message"].clone(), detail.collect()))
}

#[test]
fn a_monitor_that_is_gone_is_out_of_the_quorum() {
    let (mut world, admin) = two_of_three();
    let stat = text(&mut world, admin, "mon stat");
    assert!(stat.starts_with("e3: 3 mons at {a="), "{stat}");
    assert!(stat.ends_with("election epoch 14, leader 0 a, quorum 0,1 a,b\n"), "{stat}");
    let status = tree(&mut world, admin, "quorum_status");
    assert_eq!((&status["election_epoch"], &status["quorum"]), (&json!(14), &json!([0, 1])));
    assert_eq!((&status["quorum_names"], &status["quorum_leader_name"]), (&json!(["a", "b"]), &json!("a")));
    assert_eq!((&status["quorum_age"], &status["monmap"]["mons"][2]["name"]), (&json!(5), &json!("c")));
    let status = tree(&mut world, admin, "mon_status");
    assert_eq!((&status["state"], &status["election_epoch"]), (&json!("leader"), &json!(14)));
    assert_eq!(status["quorum"], json!([0, 1]));
    assert_eq!(tree(&mut world, admin, "mon dump")["quorum"], json!([0, 1]));
    assert_eq!(tree(&mut world, admin, "status")["quorum_names"], json!(["a", "b"]));
    let status = text(&mut world, admin, "status");
    assert!(status.contains("mon: 3 daemons, quorum a,b (age 5s), out of quorum: c\n"), "{status}");
    let (severity, summary, detail) = check(&mut world, admin, "MON_DOWN").expect("a warning");
    assert_eq!((severity, summary), (json!("HEALTH_WARN"), json!("1/3 mons down, quorum a,b")));
    let down = format!("mon.c (rank 2) addr {} is down (out of quorum)", addr(3302));
    assert_eq!(detail, [json!(down)]);
    for (id, result) in [("b", Errno::EBUSY.negated()), ("c", 0)] {
        let ask = format!(r#"{{"prefix":"mon ok-to-stop","ids":["{id}"]}}"#);
        assert_eq!(world.ask(admin, &ask).map(|ack| ack.result), Some(result), "{id}");
    }
    // It is back.
    let mut view = world.mon.state().quorum.clone();
    view.monitors.insert("c".to_owned(), MonitorView { is_in_quorum: true, ..MonitorView::default() });
    world.mon.set_quorum(view);
    assert_eq!(check(&mut world, admin, "MON_DOWN"), None);
    assert!(!text(&mut world, admin, "status").contains("out of quorum"));
    let ask = r#"{"prefix":"mon ok-to-stop","ids":["b"]}"#;
    assert_eq!(world.ask(admin, ask).map(|ack| ack.result), Some(0));
}

#[test]
fn clocks_that_differ_and_full_file_systems_show() {
    let (mut world, admin) = two_of_three();
    let measured = |skew: f64, percent| MonitorView {
        is_in_quorum: true,
        is_heard: true,
        is_learner: false,
        clock_skew_s: Some(skew),
        latency_s: 0.001,
        disk_avail_percent: Some(percent),
    };
    let set = |world: &mut World, of_b, of_c| {
        let mut view = world.mon.state().quorum.clone();
        view.monitors.insert("b".to_owned(), of_b);
        view.monitors.insert("c".to_owned(), of_c);
        world.mon.set_quorum(view);
        ["MON_CLOCK_SKEW", "MON_DISK_LOW", "MON_DISK_CRIT"].map(|code| check(world, admin, code))
    };
    assert_eq!(set(&mut world, measured(0.05, 31), measured(-0.05, 100)), [None, None, None]);
    let [skew, low, crit] = set(&mut world, measured(0.25, 30), measured(-2.5, 6));
    let warn = |summary: &str, detail: &[&str]| {
        let detail = detail.iter().map(|line| json!(line)).collect();
        Some((json!("HEALTH_WARN"), json!(summary), detail))
    };
    let lines = [
        "mon.b clock skew 0.25s > max 0.05s (latency 0.001s)",
        "mon.c clock skew 2.5s > max 0.05s (latency 0.001s)",
    ];
    assert_eq!(skew, warn("clock skew detected on mon.b, mon.c", &lines));
    assert_eq!(
        low,
        warn("mons b,c are low on available space", &["mon.b has 30% avail", "mon.c has 6% avail"])
    );
    assert_eq!(crit, None);
    let gone = MonitorView { is_in_quorum: false, ..measured(9.0, 1) };
    let [skew, low, crit] = set(&mut world, measured(0.0, 5), gone);
    assert_eq!((skew, low), (None, None), "nobody knows by now how one is that is gone");
    let (severity, summary, detail) = crit.expect("an error");
    assert_eq!(severity, json!("HEALTH_ERR"));
    assert_eq!(summary, json!("mon b is very low on available space"));
    assert_eq!(detail, [json!("mon.b has 5% avail")]);
}

#[test]
fn how_full_file_systems_may_be_and_how_far_clocks_differ_is_as_the_options_say() {
    let (mut world, admin) = two_of_three();
    let mut view = world.mon.state().quorum.clone();
    let with_20_percent = MonitorView {
        is_in_quorum: true,
        is_heard: true,
        disk_avail_percent: Some(20),
        clock_skew_s: Some(-0.25),
        ..MonitorView::default()
    };
    view.monitors.insert("b".to_owned(), with_20_percent);
    world.mon.set_quorum(view);
    let checks = |world: &mut World| {
        ["MON_DISK_LOW", "MON_DISK_CRIT", "MON_CLOCK_SKEW"].map(|code| check(world, admin, code).is_some())
    };
    assert_eq!(checks(&mut world), [true, false, true]);
    let mut set = |option: &str, value: f64| {
        let ask = format!(r#"{{"prefix":"config set","who":"mon.b","name":"{option}","value":"{value}"}}"#);
        assert_eq!(world.ask(admin, &ask).map(|ack| ack.result), Some(0));
        checks(&mut world)
    };
    assert_eq!(set("mon_data_avail_warn", 19.0), [false, false, true]);
    assert_eq!(set("mon_data_avail_crit", 20.0), [false, true, true]);
    assert_eq!(set("mon_clock_drift_allowed", 0.25), [false, true, false]);
    assert_eq!(set("mon_clock_drift_allowed", 0.24), [false, true, true]);
}
