//! Metrics of the active manager: where they are shown, and that they are what daemons have reported and the health checks say.

use super::{ADMIN, World};
use crate::event::SessionId;
use crate::metrics::view;
use crate::{Listening, ScrapeTarget, Wanted};
use nacre_msg::{
    Message, MgrOpen, MgrReport, PerfCounterType, PerfQueryReport, counter_kind, image_name_query,
    image_query, pack_counters, pack_sums,
};
use nacre_types::Errno;
use std::collections::BTreeMap;
use std::time::Duration;

fn wanted(world: &World) -> Option<Wanted> {
    ScrapeTarget::open(&world.kv, "a").expect("our own tables").wanted()
}

fn ask(world: &mut World, admin: SessionId, command: &str) -> i32 {
    let answer = world.ask(admin, command).expect("an answer").result;
    world.pass(Duration::from_secs(1));
    answer
}

fn set(world: &mut World, admin: SessionId, who: &str, name: &str, value: &str) -> i32 {
    let command = format!(
        r#"{{"prefix":"config set","who":"{who}","name":"mgr/prometheus/{name}","value":"{value}"}}"#
    );
    ask(world, admin, &command)
}

#[test]
fn options_say_where_metrics_are_shown() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let usual = Wanted { addr: None, port: 9283, is_port_fixed: false };
    assert_eq!(wanted(&world), Some(usual.clone()));
    for (name, value) in
        [("server_port", "many"), ("server_port", "0"), ("server_port", "65536"), ("server_addr", "here")]
    {
        assert_eq!(set(&mut world, admin, "mgr", name, value), Errno::EINVAL.negated(), "{name} {value}");
    }
    assert_eq!(
        set(&mut world, admin, "mgr", "cache", "true"),
        Errno::EOPNOTSUPP.negated(),
        "nobody reads it"
    );
    assert_eq!(set(&mut world, admin, "osd", "server_port", "9284"), Errno::EOPNOTSUPP.negated());
    assert_eq!(wanted(&world), Some(usual.clone()));
    assert_eq!(set(&mut world, admin, "mgr", "server_port", "9284"), 0);
    assert_eq!(set(&mut world, admin, "mgr", "server_addr", "::"), 0);
    let everywhere = "::".parse().ok();
    assert_eq!(wanted(&world), Some(Wanted { addr: everywhere, port: 9284, is_port_fixed: true }));
    // The more specific one counts, and one by the manager's name first of all.
    assert_eq!(set(&mut world, admin, "mgr.a", "server_port", "9285"), 0);
    assert_eq!(set(&mut world, admin, "mgr.b", "server_port", "9286"), 0);
    assert_eq!(wanted(&world).map(|at| at.port), Some(9285));
    assert_eq!(set(&mut world, admin, "mgr", "a/server_port", "9287"), 0);
    assert_eq!(wanted(&world).map(|at| at.port), Some(9287));
    for (who, name) in
        [("mgr", "a/server_port"), ("mgr.a", "server_port"), ("mgr", "server_port"), ("mgr", "server_addr")]
    {
        let command = format!(r#"{{"prefix":"config rm","who":"{who}","name":"mgr/prometheus/{name}"}}"#);
        assert_eq!(ask(&mut world, admin, &command), 0);
    }
    assert_eq!(wanted(&world), Some(usual.clone()));
    assert_eq!(ask(&mut world, admin, r#"{"prefix":"mgr module disable","module":"prometheus"}"#), 0);
    assert_eq!(wanted(&world), None);
    assert_eq!(ask(&mut world, admin, r#"{"prefix":"mgr module enable","module":"prometheus"}"#), 0);
    assert_eq!(wanted(&world), Some(usual));
}

/// The same from the changes that a monitor takes in one by one as from its tables.
#[test]
fn a_monitor_that_follows_changes_finds_the_same() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let mut target = ScrapeTarget::open(&world.kv, "a").expect("our own tables");
    assert_eq!(set(&mut world, admin, "mgr", "server_port", "9284"), 0);
    let mut batch = crate::Batch::default();
    for (key, value) in crate::Snapshot::scan(&world.kv, "config") {
        batch.put("config", key, value);
    }
    target.applied(&batch).expect("our own batch");
    assert_eq!((target.wanted(), target.wanted().map(|at| at.port)), (wanted(&world), Some(9284)));
}

#[test]
fn everybody_is_told_where_they_are_and_what_is_wrong() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let services = |world: &mut World| {
        let ack = world.ask(admin, r#"{"prefix":"mgr services","format":"json"}"#).expect("an answer");
        serde_json::from_slice::<serde_json::Value>(&ack.data.to_bytes()).expect("JSON")["prometheus"].clone()
    };
    let health = |world: &mut World| {
        let ack = world.ask(admin, r#"{"prefix":"health","detail":"detail"}"#).expect("an answer");
        String::from_utf8_lossy(&ack.data.to_bytes()).into_owned()
    };
    assert_eq!(services(&mut world), serde_json::Value::Null);
    world.mon.set_metrics_listener(Listening::At("http://10.0.0.1:9283/".to_owned()));
    world.pass(Duration::from_secs(1));
    assert_eq!(services(&mut world), "http://10.0.0.1:9283/");
    let epoch = world.mon.state().mgr.map().epoch;
    world.mon.set_metrics_listener(Listening::At("http://10.0.0.1:9283/".to_owned()));
    assert_eq!(world.mon.state().mgr.map().epoch, epoch, "nothing new");
    world.mon.set_metrics_listener(Listening::Failed("cannot listen on 10.0.0.1:9283: in use".to_owned()));
    world.pass(Duration::from_secs(1));
    assert_eq!(services(&mut world), serde_json::Value::Null);
    assert!(health(&mut world).contains("MGR_MODULE_ERROR"), "{}", health(&mut world));
    // Once it is over, and for another leader as well, it is a check that was on.
    world.mon.set_metrics_listener(Listening::Nowhere);
    world.pass(Duration::from_secs(1));
    assert!(!health(&mut world).contains("MGR_MODULE_ERROR"));
    world.change_leader();
    let page = view(world.mon.state(), Vec::new()).render();
    let line = "ceph_health_detail{name=\"MGR_MODULE_ERROR\",severity=\"HEALTH_WARN\"} 0";
    assert!(page.lines().any(|shown| shown == line), "{page}");
}

#[test]
fn what_osds_report_is_shown_and_gone_with_them() {
    let mut world = World::new(3);
    world.boot_all(3);
    let admin = world.connect(ADMIN);
    assert_eq!(ask(&mut world, admin, r#"{"prefix":"osd pool create","pool":"p"}"#), 0);
    let osd = world.connect_manager("osd.0");
    world.message(osd, 0, MgrOpen { daemon_name: "0".to_owned(), ..MgrOpen::default() });
    let told = world.take(osd);
    let Some(Message::MgrConfigure(asked)) = told.last() else { panic!("how to report, not {told:?}") };
    assert!(
        asked.perf_queries.contains_key(&image_query())
            && asked.perf_queries.contains_key(&image_name_query())
    );
    let kind = counter_kind::U64 | counter_kind::COUNTER;
    let declared =
        PerfCounterType { path: "osd.op_r".to_owned(), kind, priority: 5, ..PerfCounterType::default() };
    let of_image = |last: [&str; 2]| {
        let parts = [vec!["1"], vec![""], last.to_vec()];
        parts
            .map(|part| part.into_iter().map(|text| nacre_buf::Bytes::from(text.to_owned())).collect())
            .to_vec()
    };
    let counters = image_query().counters;
    let sums = pack_sums(&counters, &[(7, 7); 6]);
    let sums = PerfQueryReport { counters, sums: BTreeMap::from([(of_image(["", "10a"]), sums)]) };
    let names = BTreeMap::from([(of_image(["10a", "disk"]), nacre_buf::Bytes::new())]);
    let names = PerfQueryReport { counters: Vec::new(), sums: names };
    let report = MgrReport {
        daemon_name: "0".to_owned(),
        declare_types: vec![declared],
        packed: pack_counters(&BTreeMap::from([("osd.op_r", (kind, 42, 0))])),
        perf_reports: BTreeMap::from([(image_query(), sums), (image_name_query(), names)]),
        ..MgrReport::default()
    };
    world.message(osd, 0, report);
    let page = |world: &World| view(world.mon.state(), vec![("a".to_owned(), 5)]).render();
    let shown = page(&world);
    for line in [
        "ceph_osd_op_r{ceph_daemon=\"osd.0\"} 42",
        "ceph_rbd_write_ops{pool=\"p\",namespace=\"\",image=\"disk\"} 7",
        "ceph_osd_up{ceph_daemon=\"osd.0\"} 1",
        "ceph_osd_in{ceph_daemon=\"osd.2\"} 1",
        "ceph_mon_quorum_status{ceph_daemon=\"mon.a\"} 1",
        "ceph_mon_num_sessions{ceph_daemon=\"mon.a\"} 5",
        "ceph_mgr_status{ceph_daemon=\"mgr.a\"} 1",
        "ceph_mgr_module_status{name=\"prometheus\"} 1",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}\n{shown}");
    }
    world.event(crate::Event::Closed { session: osd });
    assert!(!page(&world).contains("ceph_osd_op_r{"), "it is gone");
}

/// `osd status` shows what clients did each second between an OSD's last two reports.
#[test]
fn what_clients_do_with_an_osd_is_the_difference_of_its_reports() {
    let mut world = World::new(2);
    world.boot_all(2);
    let admin = world.connect(ADMIN);
    let osd = world.connect_manager("osd.0");
    let stats = world.connect("osd.0");
    let mut report = nacre_msg::PgStats { fsid: world.mon.fsid(), ..nacre_msg::PgStats::default() };
    (report.osd_stat.statfs.total, report.osd_stat.statfs.available) = (10 << 30, 7 << 30);
    world.message(stats, 0, report);
    world.message(osd, 0, MgrOpen { daemon_name: "0".to_owned(), ..MgrOpen::default() });
    let kind = counter_kind::U64 | counter_kind::COUNTER;
    let paths = ["osd.op_in_bytes", "osd.op_out_bytes", "osd.op_r", "osd.op_w"];
    let declared = |path: &&str| PerfCounterType {
        path: (*path).to_owned(),
        kind,
        priority: 5,
        ..PerfCounterType::default()
    };
    for (declare_types, values) in
        [(paths.iter().map(declared).collect(), [0; 4]), (Vec::new(), [40_960, 4096, 50, 10])]
    {
        let values = paths.iter().zip(values).map(|(path, value)| (*path, (kind, value, 0)));
        let packed = pack_counters(&values.collect());
        let daemon_name = "0".to_owned();
        world.message(osd, 0, MgrReport { daemon_name, declare_types, packed, ..MgrReport::default() });
        world.pass(Duration::from_secs(5));
    }
    let text = |world: &mut World, ask: &str| {
        let ack = world.ask(admin, ask).expect("an answer");
        (ack.result, String::from_utf8(ack.data.to_bytes().to_vec()).expect("text"))
    };
    let (result, shown) = text(&mut world, r#"{"prefix":"osd status"}"#);
    assert_eq!((result, shown.lines().count()), (0, 3), "{shown}");
    let cells: Vec<&str> = shown.lines().nth(1).expect("a line").split_whitespace().collect();
    let expected = ["0", "host0", "3", "GiB", "7", "GiB", "2", "8", "KiB", "10", "819", "B", "exists,up"];
    assert_eq!(cells, expected, "{shown}");
    let (_, of_host) = text(&mut world, r#"{"prefix":"osd status","bucket":"host1","format":"json"}"#);
    let of_host: serde_json::Value = serde_json::from_str(&of_host).expect("JSON");
    assert_eq!((of_host["OSDs"].as_array().map(Vec::len), &of_host["OSDs"][0]["id"]), (Some(1), &1.into()));
    assert_eq!(text(&mut world, r#"{"prefix":"osd status","bucket":"nowhere"}"#).0, Errno::ENOENT.negated());
}
