//! What people look at: the overview and the history, where the web page is shown, and to whom.

use super::{ADMIN, World, clean_pg, json};
use crate::event::SessionId;
use crate::{Listening, Reader, ScrapeTarget};
use nacre_msg::{BillReport, BillRow, DeviceReport, PgStats, SlowRequest, SlowRequests};
use nacre_types::{DeviceLatencies, DeviceWork, EntityName, Errno, PgId, RequestClass, UTime};
use serde_json::Value;
use std::net::IpAddr;
use std::time::Duration;

const FROM: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9));

fn overview(world: &mut World, admin: SessionId) -> Value {
    json(world, admin, r#"{"prefix":"nacre overview","format":"json"}"#)
}

fn do_it(world: &mut World, admin: SessionId, command: &str) -> i32 {
    let answer = world.ask(admin, command).expect("an answer").result;
    world.pass(Duration::from_secs(1));
    answer
}

fn set(world: &mut World, admin: SessionId, name: &str, value: &str) -> i32 {
    let command =
        format!(r#"{{"prefix":"config set","who":"mgr","name":"mgr/dashboard/{name}","value":"{value}"}}"#);
    do_it(world, admin, &command)
}

#[test]
fn it_says_how_osds_and_their_devices_are() {
    let mut world = World::new(3);
    world.boot_all(3);
    let admin = world.connect(ADMIN);
    let osds: Vec<SessionId> = (0..3).map(|osd| world.connect(&format!("osd.{osd}"))).collect();
    for second in 0..21 {
        for (osd, session) in osds.iter().enumerate().filter(|_| second % 5 == 0) {
            let mut latencies = DeviceLatencies::default();
            let histogram = latencies.class_mut(RequestClass::of(DeviceWork::DurableWrite, 0, 4096));
            // The later the number, the slower: 300 us, 600 us, 1200 us.
            (0..40).for_each(|_| histogram.note(300_000 << osd));
            world.message(*session, 0, DeviceReport { latencies, ..DeviceReport::default() });
        }
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(do_it(&mut world, admin, r#"{"prefix":"osd down","ids":["2"]}"#), 0);
    let shown = overview(&mut world, admin);
    let of = |osd: usize, name: &str| shown["osds"][osd][name].clone();
    assert_eq!((of(0, "up"), of(2, "up"), of(2, "host")), (true.into(), false.into(), "host2".into()));
    let writes = &shown["osds"][1]["device"]["durable_write"];
    let [count, p50, p99] =
        ["count", "us_p50", "us_p99"].map(|name| writes[name].as_u64().expect("a number"));
    assert!(count >= 120 && (512..1024).contains(&p50) && (p50..=1024).contains(&p99), "{writes}");
    let counts: Vec<u64> =
        writes["counts"].as_array().expect("counts").iter().filter_map(Value::as_u64).collect();
    assert_eq!((counts.len(), counts.last()), (11, Some(&count)), "all in the bucket below 1024 us");
    let down = shown["health"]["checks"]
        .as_array()
        .expect("checks")
        .iter()
        .find(|check| check["code"] == "OSD_DOWN");
    let down = down.expect("it is down");
    assert!(down["means"].as_str().is_some_and(|means| means.contains("does not run")), "{down}");
    assert!(down["advice"].as_str().is_some_and(|advice| !advice.is_empty()), "{down}");
    assert_eq!(shown["recovery"], Value::Null, "nobody has reported any");
    assert_eq!(shown["recovery_known"], true);
    assert_eq!(shown["images"], serde_json::json!([]));
    // The history has a sample each five seconds, with what devices took.
    let history = json(&mut world, admin, r#"{"prefix":"nacre history","format":"json"}"#);
    let rows = history["rows"].as_array().expect("rows");
    assert!(
        rows.len() >= 4
            && rows
                .iter()
                .all(|row| row.as_array().map(Vec::len) == history["columns"].as_array().map(Vec::len))
    );
    let p99 = |row: &Value| row[9].as_i64().expect("a number");
    assert!(
        rows.iter().any(|row| (1024..2048).contains(&p99(row))) && rows.iter().any(|row| row[6] == -1),
        "{history}"
    );
    let last = &rows[rows.len() - 1][0];
    let none =
        json(&mut world, admin, &format!(r#"{{"prefix":"nacre history","after":{last},"format":"json"}}"#));
    assert_eq!(none["rows"], serde_json::json!([]));
    let off = r#"{"prefix":"config set","who":"mon","name":"nacre_slow_device_ratio","value":"0"}"#;
    assert_eq!(do_it(&mut world, admin, off), 0);
    assert_eq!(overview(&mut world, admin)["osds"][1]["device"], Value::Null, "nobody looks at it");
}

#[test]
fn slow_requests_are_those_of_osds_that_are_up_and_say_so() {
    let mut world = World::new(2);
    world.boot_all(2);
    let admin = world.connect(ADMIN);
    let osd = world.connect("osd.1");
    let request = SlowRequest::of(
        "osd_op(x)".to_owned(),
        31_000,
        "waiting".to_owned(),
        vec![("dispatched".to_owned(), 3)],
    );
    let requests = vec![request; 3];
    world.message(osd, 0, SlowRequests { requests: requests.clone() });
    let shown = overview(&mut world, admin);
    assert_eq!(shown["slow_requests"].as_array().map(Vec::len), Some(3));
    assert_eq!(
        shown["slow_requests"][0],
        serde_json::json!({ "osd": 1, "description": "osd_op(x)", "age_ms": 31_000, "waits_for": "waiting", "stages": [{ "stage": "dispatched", "at_ms": 3 }] })
    );
    world.message(osd, 0, SlowRequests::default());
    assert_eq!(overview(&mut world, admin)["slow_requests"], serde_json::json!([]));
    // A client says nothing for an OSD.
    world.message(admin, 0, SlowRequests { requests: requests.clone() });
    assert_eq!(overview(&mut world, admin)["slow_requests"], serde_json::json!([]));
    world.message(osd, 0, SlowRequests { requests });
    world.pass(Duration::from_secs(17));
    assert_eq!(overview(&mut world, admin)["slow_requests"], serde_json::json!([]), "long ago");
}

#[test]
fn clients_are_shown_by_what_osds_worked_for_them() {
    let mut world = World::new(1);
    world.boot_all(1);
    let admin = world.connect(ADMIN);
    assert_eq!(overview(&mut world, admin)["clients"], Value::Null, "no OSD has told of any");
    let osd = world.connect("osd.0");
    world.mon.state.stats.bill.learn(EntityName::client(7), "client.nova".to_owned(), "10.0.0.7".to_owned());
    let row =
        |id| BillRow { client: EntityName::client(id), cpu_ns: 1_000_000 * id, ops: 2, ..BillRow::default() };
    let (process, time_ns) = ("host/1/a".to_owned(), 2_000_000_000);
    world.message(
        osd,
        0,
        BillReport {
            process,
            process_ns: time_ns,
            process_delta_ns: time_ns,
            rows: (1..=60).map(row).collect(),
            ..BillReport::default()
        },
    );
    let clients = overview(&mut world, admin)["clients"].clone();
    let lines = clients["lines"].as_array().expect("lines");
    let ids: Vec<&str> = lines.iter().filter_map(|line| line["client"].as_str()).collect();
    assert_eq!(
        (ids.len(), ids.first(), ids.last()),
        (50, Some(&"client.60"), Some(&"client.11")),
        "the costliest"
    );
    let nova =
        json(&mut world, admin, r#"{"prefix":"bill","limit":60,"format":"json"}"#)["lines"][53].clone();
    assert_eq!((&nova["entity"], &nova["cpu_us"]), (&"client.nova".into(), &7000.into()));
    assert_eq!(clients["total_cpu_us"], 2_000_000, "the rest of the process's time is that of no client");
    world.pass(Duration::from_secs(60));
    assert_eq!(overview(&mut world, admin)["clients"], Value::Null, "no OSD has reported of late");
}

#[test]
fn options_say_where_the_page_is_and_what_is_wrong_is_a_health_check() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let wanted = |world: &World| ScrapeTarget::open(&world.kv, "a").expect("our own tables").wanted_page();
    assert!(
        wanted(&world)
            .is_ok_and(|page| page.is_some_and(|page| page.addr.is_loopback() && page.tls.is_none()))
    );
    for (name, value) in [("server_port", "65536"), ("server_addr", "here"), ("ssl", "true")] {
        assert!(set(&mut world, admin, name, value) < 0, "{name} {value}");
    }
    assert_eq!(set(&mut world, admin, "server_addr", "10.0.0.1"), 0);
    let why = wanted(&world).expect_err("no TLS");
    world.mon.set_page_listener(Listening::Failed(why));
    world.mon.set_metrics_listener(Listening::Failed("in use".to_owned()));
    world.pass(Duration::from_secs(1));
    let checks = world.checks(admin);
    let check = &checks["MGR_MODULE_ERROR"];
    assert_eq!(check["summary"], serde_json::json!({ "message": "2 mgr modules have failed", "count": 2 }));
    assert!(check["detail"].to_string().contains("by TLS only"), "{check}");
    for (name, value) in [("crt_file", "/a"), ("key_file", "/b"), ("ssl_server_port", "9999")] {
        assert_eq!(set(&mut world, admin, name, value), 0);
    }
    assert!(
        wanted(&world).is_ok_and(|page| page.is_some_and(|page| page.tls.is_some() && page.port == 9999))
    );
    world.mon.set_page_listener(Listening::At("https://10.0.0.1:9999/".to_owned()));
    world.mon.set_metrics_listener(Listening::Nowhere);
    world.pass(Duration::from_secs(1));
    let services = json(&mut world, admin, r#"{"prefix":"mgr services","format":"json"}"#);
    assert_eq!(services, serde_json::json!({ "dashboard": "https://10.0.0.1:9999/" }));
    let modules = json(&mut world, admin, r#"{"prefix":"mgr module ls","format":"json"}"#);
    assert!(modules["always_on_modules"].to_string().contains("dashboard"), "{modules}");
    // A ceph-mgr that takes over is told of no module that it may not have.
    assert!(!modules["enabled_modules"].to_string().contains("dashboard"), "{modules}");
    assert_eq!(set(&mut world, admin, "ssl_server_port", "0"), 0);
    assert_eq!(wanted(&world), Ok(None));
}

#[test]
fn who_reads_is_proved_by_a_key_and_has_caps() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    for (name, caps) in [
        ("reader", "allow r"),
        ("writer", "allow w"),
        ("near", "allow r network 10.0.0.0/24"),
        ("tenant", "profile rbd"),
    ] {
        world.add_client(&format!("client.{name}"), caps, "");
    }
    let key = |world: &World, name: &str| {
        let keys = world.mon.state().auth.keys();
        keys.entity(&super::name(name)).expect("there is one").key.to_text()
    };
    let reads = |world: &World, name: &str, key: &str, from| {
        Reader::parse(name, key, from).expect("a key").may_read(world.mon.state())
    };
    let [reader, writer, near, osd, tenant] =
        ["client.reader", "client.writer", "client.near", "osd.0", "client.tenant"]
            .map(|name| key(&world, name));
    assert!(
        reads(&world, "client.reader", &reader, FROM)
            && reads(&world, " reader", &format!("{reader}\n"), FROM)
    );
    assert!(!reads(&world, "client.reader", &writer, FROM), "another's key");
    assert!(!reads(&world, "client.writer", &writer, FROM), "no caps to read");
    assert!(!reads(&world, "client.nobody", &reader, FROM));
    assert!(
        reads(&world, "client.near", &near, FROM)
            && !reads(&world, "client.near", &near, [10, 0, 1, 9].into())
    );
    let seen = Reader::parse("client.near", &near, FROM).map(|reader| reader.seen_from([10, 0, 1, 9].into()));
    assert!(seen.is_some_and(|reader| !reader.may_read(world.mon.state())), "it comes from elsewhere by now");
    assert!(!reads(&world, "osd.0", &osd, FROM), "its profile is for its work");
    assert!(!reads(&world, "client.tenant", &tenant, FROM), "it would see images of other tenants");
    assert!(Reader::parse("client.reader", "nonsense", FROM).is_none());
    for name in ["client.re\u{1b}ader", &"x".repeat(129)] {
        assert!(Reader::parse(name, &reader, FROM).is_none(), "{name}");
    }
    assert_eq!(
        do_it(
            &mut world,
            admin,
            r#"{"prefix":"auth caps","entity":"client.reader","caps":["mon","allow w"]}"#
        ),
        0
    );
    assert!(!reads(&world, "client.reader", &reader, FROM), "no longer");
    assert_eq!(do_it(&mut world, admin, r#"{"prefix":"auth rm","entity":"client.near"}"#), 0);
    assert!(!reads(&world, "client.near", &near, FROM), "gone");
    for stranger in ["client.writer", "client.tenant"] {
        let session = world.connect(stranger);
        for command in ["nacre overview", "nacre history"] {
            let ack = world.ask(session, &format!(r#"{{"prefix":"{command}"}}"#)).expect("an answer");
            assert_eq!(ack.result, Errno::EACCES.negated(), "the same caps for {command} of {stranger}");
        }
    }
}

/// What a large cluster's overview costs the monitor's thread.
#[test]
#[ignore = "a measurement: cargo test --release -p nacre-mon --lib overview::of_a_thousand -- --ignored --nocapture"]
#[expect(clippy::disallowed_methods, reason = "a measurement")]
fn of_a_thousand_osds_and_forty_thousand_pgs() {
    const OSDS: i32 = 1000;
    let mut world = World::new(OSDS);
    world.boot_all(OSDS);
    let admin = world.connect(ADMIN);
    let osds: Vec<SessionId> = (0..OSDS).map(|osd| world.connect(&format!("osd.{osd}"))).collect();
    for pool in 0..100 {
        let create = format!(r#"{{"prefix":"osd pool create","pool":"p{pool}","pg_num":400,"pgp_num":400}}"#);
        assert_eq!(do_it(&mut world, admin, &create), 0);
    }
    let map = std::sync::Arc::clone(world.mon.state.osd.map());
    let fsid = world.mon.fsid();
    let mut stats: Vec<PgStats> = osds.iter().map(|_| PgStats { fsid, ..PgStats::default() }).collect();
    for (id, pool) in &map.pools {
        for pg in (0..pool.pg_num).map(|seed| PgId::new(*id, seed)) {
            let stat = clean_pg(&map, pg);
            stats[usize::try_from(stat.acting_primary).expect("a primary")].pg_stat.insert(pg, stat);
        }
    }
    for (session, stats) in osds.iter().zip(stats) {
        world.message(*session, 0, stats);
    }
    world.pass(Duration::from_secs(2));
    let took = |_| {
        let began = std::time::Instant::now();
        std::hint::black_box(crate::overview::tree(&world.mon.state, world.now, UTime::default()));
        began.elapsed()
    };
    let mut times: Vec<Duration> = (0..21).map(took).collect();
    times.sort_unstable();
    let pgs = world.mon.state.stats.pgs.pgs(&map).count();
    eprintln!(
        "{} OSDs, {pgs} PGs: {:?} to {:?}, median {:?}",
        map.osds().count(),
        times[0],
        times[20],
        times[10]
    );
}
