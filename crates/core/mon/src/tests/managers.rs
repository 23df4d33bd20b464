//! Stock managers under our monitor: who is active, who takes over, what they are told and what they tell.

use super::{ADMIN, World, addr, json};
use crate::event::{Event, SessionId};
use nacre_buf::{BufList, Bytes};
use nacre_maps::MgrMap;
use nacre_msg::{
    HealthCheck, HealthChecks, KvData, Message, MgrBeacon, MgrDigest, ModuleInfo, ModuleOption, MonMgrReport,
    PgStats, PgStatsWanted, ProgressEvent, RawMessage, ServiceMap,
};
use nacre_types::{Epoch, Errno};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A message that a real daemon sent: `testdata/messages/README.md` says how it is written down.
fn golden(text: &str) -> Message {
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().expect("a head").split(' ').collect();
    let field = |name: &str| {
        let at = head.iter().position(|word| *word == name).expect("a field");
        head[at + 1].parse::<u16>().expect("a number")
    };
    let bytes = |segment: &str| -> Vec<u8> {
        let of_segment = text.lines().skip(1).filter_map(|line| line.strip_prefix(segment));
        let hex: String = of_segment.collect::<String>().split_whitespace().collect();
        let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("text"));
        digits.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal")).collect()
    };
    let raw = RawMessage {
        tid: 0,
        kind: field("kind"),
        version: field("version"),
        compat: field("compat"),
        priority: field("priority"),
        front: Bytes::from(bytes("f ")),
        middle: Bytes::new(),
        data: BufList::from(Bytes::from(bytes("d "))),
    };
    Message::decode(raw).expect("a message of a real daemon")
}

/// A real manager's first beacon and its first as the active one, with the identity of ours.
fn real_beacons() -> (MgrBeacon, MgrBeacon) {
    let first = golden(include_str!("../../../../../testdata/messages/mgr_beacon.hex"));
    let active = golden(include_str!("../../../../../testdata/messages/mgr_beacon_first.hex"));
    match (first, active) {
        (Message::MgrBeacon(first), Message::MgrBeacon(active)) => (first, active),
        other => panic!("two beacons, not {other:?}"),
    }
}

/// A stock manager: its session with the monitor, and what it says.
struct Manager {
    session: SessionId,
    beacon: MgrBeacon,
}

impl Manager {
    fn start(world: &mut World, id: &str) -> Self {
        Self::start_as(world, id, id)
    }

    /// With the key of `mgr.ID`, it says to be `says`.
    fn start_as(world: &mut World, id: &str, says: &str) -> Self {
        let (session, _) = world.connect_stock("mgr", id);
        let gid = world.mon.sessions[&session].identity.global_id;
        let (real, _) = real_beacons();
        let beacon = MgrBeacon {
            gid,
            name: says.to_owned(),
            fsid: world.mon.fsid(),
            available: false,
            server_addrs: Default::default(),
            ..real
        };
        let manager = Self { session, beacon };
        manager.beacon(world);
        manager
    }

    fn beacon(&self, world: &mut World) {
        world.message(self.session, 0, self.beacon.clone());
    }

    /// It has loaded its modules.
    fn becomes_available(&mut self, world: &mut World) {
        let (_, active) = real_beacons();
        self.beacon.available = true;
        self.beacon.commands = active.commands;
        self.beacon.server_addrs = addr(6900);
        self.beacon.clients = vec![addr(6901)];
        self.beacon.client_names = vec!["devicehealth".to_owned()];
        self.beacon(world);
        self.beacon.commands.clear();
    }

    fn dies(&self, world: &mut World) {
        world.front_event(crate::FrontEvent::Closed { session: self.session });
    }

    fn lives_for(&self, world: &mut World, seconds: u64) {
        for _ in 0..seconds {
            world.pass(SECOND);
            self.beacon(world);
        }
    }
}

fn map(world: &World) -> &MgrMap {
    world.mon.state().mgr.map()
}

#[test]
fn a_stock_manager_becomes_active_and_our_own_steps_back() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let modules = |world: &World| (map(world).modules.clone(), map(world).always_on_modules.clone());
    let before = modules(&world);
    let at_own = world.connect_manager(ADMIN);
    let mut x = Manager::start(&mut world, "x");
    assert_eq!((map(&world).active_name.as_str(), map(&world).available), ("x", false));
    assert!(world.closed.contains(&at_own), "nobody is served by our own manager any more");
    assert_eq!(map(&world).active_addrs, Default::default(), "nowhere to go yet");
    assert!(map(&world).always_on_modules[&16].contains("balancer"));
    x.becomes_available(&mut world);
    assert_eq!((map(&world).available, &map(&world).active_addrs), (true, &addr(6900)));
    let epoch = map(&world).epoch;
    x.lives_for(&mut world, 100);
    assert_eq!(map(&world).epoch, epoch, "nothing new");
    assert_eq!(modules(&world), before, "a manager that sees others than in its first map starts anew");
    let modules = json(&mut world, admin, r#"{"prefix":"mgr module ls","format":"json"}"#);
    assert_eq!(modules["enabled_modules"], serde_json::json!(["iostat", "prometheus"]));
    let stat = json(&mut world, admin, r#"{"prefix":"mgr stat","format":"json"}"#);
    assert_eq!(stat["active_name"], "x");
    let metadata = json(&mut world, admin, r#"{"prefix":"mgr metadata","format":"json"}"#);
    assert_eq!(metadata[0]["name"], "x");
    assert!(metadata[0]["ceph_version"].as_str().is_some_and(|text| text.contains("16.2.15")));
}

#[test]
fn the_tool_learns_the_managers_commands_and_the_monitor_does_not_answer_for_its_modules() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let mut x = Manager::start(&mut world, "x");
    x.becomes_available(&mut world);
    let (_, real) = real_beacons();
    let all = json(&mut world, admin, r#"{"prefix":"get_command_descriptions"}"#);
    let rows: Vec<&Value> = all.as_object().expect("an object").values().collect();
    let of_manager = rows.iter().filter(|row| row["flags"].as_u64().is_some_and(|flags| flags & 8 != 0));
    assert_eq!(of_manager.count(), real.commands.len());
    let words: Vec<&str> = real.commands[0].signature.split_whitespace().collect();
    assert!(
        rows.iter().any(|row| row["sig"][0] == words[0] && row["help"] == real.commands[0].help.as_str())
    );
    let refused = world.ask(admin, r#"{"prefix":"balancer status"}"#).expect("an answer");
    assert_eq!(refused.result, Errno::EOPNOTSUPP.negated());
    assert!(refused.status.contains("mgr.x"), "{}", refused.status);
    assert_eq!(
        world.ask(admin, r#"{"prefix":"pg stat"}"#).expect("an answer").result,
        0,
        "what we know as well"
    );
    x.dies(&mut world);
    world.pass(SECOND * 4);
    assert_eq!(world.ask(admin, r#"{"prefix":"balancer status"}"#).expect("an answer").result, 0);
}

#[test]
fn a_manager_that_does_not_serve_is_a_health_check_until_it_does() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let mut x = Manager::start(&mut world, "x");
    let is_said = |world: &mut World| {
        json(world, admin, r#"{"prefix":"health","format":"json"}"#)["checks"].get("MGR_DOWN").is_some()
    };
    x.lives_for(&mut world, 55);
    assert!(!is_said(&mut world), "it may load its modules");
    x.lives_for(&mut world, 10);
    assert!(is_said(&mut world));
    x.becomes_available(&mut world);
    x.lives_for(&mut world, 2);
    assert!(!is_said(&mut world));
}

#[test]
fn our_own_takes_over_within_four_seconds_of_a_dead_one_and_shuts_it_out() {
    let mut world = World::new(1);
    let mut x = Manager::start(&mut world, "x");
    x.becomes_available(&mut world);
    x.lives_for(&mut world, 30);
    let osdmap = world.map().epoch;
    x.dies(&mut world);
    world.pass(SECOND);
    assert_eq!(map(&world).active_name, "x", "its connection may have been cut");
    world.pass(SECOND * 3);
    assert_eq!((map(&world).active_name.as_str(), map(&world).available), ("a", true));
    assert_eq!(map(&world).active_addrs, addr(6800));
    assert!(map(&world).clients.is_empty());
    let shut_out = &world.map().blocklist;
    let held = |port: u16| shut_out.keys().any(|at| at.socket == addr(port).front().socket);
    assert!(held(6900) && held(6901), "{shut_out:?}");
    assert_eq!(map(&world).last_failure_osd_epoch, osdmap + 1);
    world.connect_manager(ADMIN);
    // It comes back, as another instance.
    Manager::start(&mut world, "x");
    assert_eq!(map(&world).active_name, "x");
}

#[test]
fn a_manager_that_is_only_silent_has_its_grace() {
    let mut world = World::new(1);
    let mut x = Manager::start(&mut world, "x");
    x.becomes_available(&mut world);
    world.pass(SECOND * 29);
    assert_eq!(map(&world).active_name, "x");
    world.pass(SECOND * 3);
    assert_eq!(map(&world).active_name, "a");
    // It wakes up and believes to be the active one.
    world.subscribe(x.session, "mgrmap", 0, false);
    world.take(x.session);
    x.beacon(&mut world);
    let told = world.take(x.session);
    let Some(Message::MMgrMap(told)) = told.last() else { panic!("a map, not {told:?}") };
    let told: MgrMap = nacre_denc::Decode::from_bytes(told.map.clone()).expect("a map");
    assert_eq!((told.epoch, told.active_gid), (Epoch::MAX, 0));
    assert_eq!(map(&world).active_name, "a");
}

#[test]
fn a_standby_takes_over_by_command_and_a_restarted_one_replaces_itself() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let mut x = Manager::start(&mut world, "x");
    let y = Manager::start(&mut world, "y");
    x.becomes_available(&mut world);
    assert_eq!(map(&world).standbys.values().map(|at| at.name.as_str()).collect::<Vec<_>>(), ["y"]);
    assert_eq!(world.ask(admin, r#"{"prefix":"mgr fail"}"#).expect("an answer").result, 0);
    assert_eq!((map(&world).active_name.as_str(), map(&world).active_gid), ("y", y.beacon.gid));
    assert!(map(&world).standbys.is_empty() && !map(&world).available);
    // The failed one starts anew, under its name.
    x.dies(&mut world);
    let x = Manager::start(&mut world, "x");
    assert_eq!(map(&world).standbys.keys().copied().collect::<Vec<_>>(), [x.beacon.gid]);
    let again = Manager::start(&mut world, "y");
    assert_eq!(map(&world).active_name, "x", "y is another instance and waits");
    assert_eq!(map(&world).standbys.keys().copied().collect::<Vec<_>>(), [again.beacon.gid]);
    let gone = world.ask(admin, r#"{"prefix":"mgr fail","who":"z"}"#).expect("an answer");
    assert_eq!((gone.result, gone.status.as_str()), (0, "Daemon not found 'z', already failed?"));
    world.ask(admin, r#"{"prefix":"mgr fail","who":"y"}"#);
    assert!(map(&world).standbys.is_empty());
}

#[test]
fn a_manager_speaks_only_for_itself() {
    let mut world = World::new(1);
    Manager::start_as(&mut world, "x", "y");
    assert!(world.mon.state().mgr.own_is_active());
    assert!(world.logged("a manager with the key of mgr.x is turned away"));
    let mut x = Manager::start(&mut world, "z");
    x.beacon.gid += 1;
    world.mon.state.mgr.wish_gone(x.beacon.gid - 1);
    world.event(Event::Tick);
    x.beacon(&mut world);
    assert!(world.mon.state().mgr.own_is_active(), "another's gid");
    world.add_client("client.r", "allow r", "");
    let client = world.connect("client.r");
    x.beacon.gid = world.mon.sessions[&client].identity.global_id;
    world.message(client, 0, x.beacon.clone());
    assert!(world.mon.state().mgr.own_is_active(), "without caps");
}

#[test]
fn modules_are_switched_and_the_manager_may_start_anew_meanwhile() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let ask = |world: &mut World, module: &str, what: &str, force: bool| {
        let force = if force { r#","force":"--force""# } else { "" };
        let json = format!(r#"{{"prefix":"mgr module {what}","module":"{module}"{force}}}"#);
        world.ask(admin, &json).expect("an answer").result
    };
    assert_eq!(ask(&mut world, "nonsense", "enable", false), Errno::ENOENT.negated());
    assert_eq!(ask(&mut world, "nonsense", "enable", true), 0);
    assert_eq!(ask(&mut world, "nonsense", "disable", false), 0);
    assert!(!map(&world).modules.contains("nonsense"));
    let mut x = Manager::start(&mut world, "x");
    x.becomes_available(&mut world);
    world.pass(SECOND * 20);
    x.beacon(&mut world);
    assert_eq!(ask(&mut world, "balancer", "disable", false), Errno::EINVAL.negated(), "always on");
    let module = x.beacon.modules.iter().find(|module| module.can_run).expect("a module").name.clone();
    assert_eq!(ask(&mut world, &module, "enable", false), 0);
    assert!(map(&world).modules.contains(&module) || map(&world).always_on_modules[&16].contains(&module));
    let modules_changed = map(&world).modules.len() > 1;
    x.dies(&mut world);
    world.pass(SECOND * 5);
    assert_eq!(map(&world).active_name, if modules_changed { "x" } else { "a" });
}

#[test]
fn who_is_active_outlives_the_leader() {
    let mut world = World::new(1);
    let mut x = Manager::start(&mut world, "x");
    x.becomes_available(&mut world);
    let (gid, commands) = (map(&world).active_gid, world.mon.state().mgr.commands().len());
    world.restart();
    assert_eq!((map(&world).active_gid, map(&world).available), (gid, true));
    assert_eq!(world.mon.state().mgr.commands().len(), commands);
    world.pass(SECOND * 8);
    assert_eq!(map(&world).active_gid, gid, "it may be looking for us");
    world.pass(SECOND * 5);
    assert_eq!(map(&world).active_name, "a");
    let own = map(&world).active_gid;
    world.restart();
    assert!(world.mon.state().mgr.own_is_active() && map(&world).active_gid > own);
}

#[test]
fn what_the_manager_reports_is_shown_while_it_is_active() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let mut x = Manager::start(&mut world, "x");
    x.becomes_available(&mut world);
    world.pass(SECOND * 8);
    x.beacon(&mut world);
    let real = golden(include_str!("../../../../../testdata/messages/mon_mgr_report_checks.hex"));
    let Message::MonMgrReport(real) = real else { panic!("a report") };
    let check = |severity, summary: &str| HealthCheck {
        severity,
        summary: summary.to_owned(),
        ..HealthCheck::default()
    };
    let mut checks = HealthChecks::default();
    checks.checks.insert("DEVICE_HEALTH".to_owned(), check(1, "1 device(s) expected to fail soon"));
    for code in ["PG_DEGRADED", "SLOW_OPS", "OSD_SLOW_OPS", "OSD_CLIENTS_THROTTLED"] {
        checks.checks.insert(code.to_owned(), check(1, "what we know better"));
    }
    let event = ProgressEvent { message: "Rebalancing".to_owned(), progress: 0.5, add_to_ceph_s: true };
    let mut services = ServiceMap { epoch: 5, ..ServiceMap::default() };
    services
        .services
        .entry("rgw".to_owned())
        .or_default()
        .daemons
        .insert("4107".to_owned(), Default::default());
    let report = MonMgrReport {
        health_checks: checks,
        progress_events: BTreeMap::from([("e".to_owned(), event)]),
        service_map: nacre_denc::Encode::to_bytes(&services),
        gid: x.beacon.gid,
        ..real
    };
    world.message(x.session, 0, MonMgrReport { gid: 1, ..report.clone() });
    world.message(admin, 0, report.clone());
    let status = json(&mut world, admin, r#"{"prefix":"status","format":"json"}"#);
    assert_eq!(status["progress_events"], serde_json::json!({}), "not from others than the active one");
    world.message(x.session, 0, report);
    let status = json(&mut world, admin, r#"{"prefix":"status","format":"json"}"#);
    let checks = status["health"]["checks"].as_object().expect("an object");
    assert!(checks.contains_key("DEVICE_HEALTH"), "{checks:?}");
    assert!(!format!("{checks:?}").contains("what we know better"), "{checks:?}");
    assert_eq!(status["progress_events"]["e"]["message"], "Rebalancing");
    assert!(status["servicemap"]["services"]["rgw"]["daemons"]["4107"].is_object(), "{status}");
    let text = world.ask(admin, r#"{"prefix":"status"}"#).expect("an answer").data.to_bytes();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(
        text.contains("    rgw: 1 daemon active\n") && text.contains("  progress:\n    Rebalancing\n"),
        "{text}"
    );
    x.dies(&mut world);
    world.pass(SECOND * 4);
    let status = json(&mut world, admin, r#"{"prefix":"status","format":"json"}"#);
    assert_eq!(status["health"]["checks"].get("DEVICE_HEALTH"), None, "nobody says so any more");
    world.pass(SECOND * 20);
    let status = json(&mut world, admin, r#"{"prefix":"status","format":"json"}"#);
    assert_eq!(status["servicemap"]["services"], serde_json::json!({}), "none is connected to our own");
}

#[test]
fn managers_are_told_how_the_cluster_is_every_few_seconds() {
    let mut world = World::new(1);
    let x = Manager::start(&mut world, "x");
    world.subscribe(x.session, "mgrdigest", 0, false);
    let digests = |world: &mut World| -> Vec<MgrDigest> {
        let of = |message| if let Message::MgrDigest(digest) = message { Some(digest) } else { None };
        world.take(x.session).into_iter().filter_map(of).collect()
    };
    let first = digests(&mut world);
    let digest = first.first().expect("at once");
    let status: Value = serde_json::from_slice(&digest.mon_status_json).expect("JSON");
    assert_eq!(status["monmap"]["mons"][0]["name"], "a");
    let health: Value = serde_json::from_slice(&digest.health_json).expect("JSON");
    assert!(health["status"].is_string() && health["checks"].is_object());
    x.lives_for(&mut world, 10);
    assert_eq!(digests(&mut world).len(), 2);
    world.add_client("client.r", "allow profile rbd", "");
    let client = world.connect("client.r");
    world.subscribe(client, "mgrdigest", 0, false);
    assert!(world.take(client).is_empty());
}

#[test]
fn keys_come_whole_and_then_as_they_change_to_those_who_may_read_them() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let set = |world: &mut World, key: &str, value: &str| {
        let json = format!(r#"{{"prefix":"config-key set","key":"{key}","val":"{value}"}}"#);
        assert_eq!(world.ask(admin, &json).expect("an answer").result, 0);
    };
    set(&mut world, "mgr/a", "1");
    set(&mut world, "other", "1");
    let mut x = Manager::start(&mut world, "x");
    x.becomes_available(&mut world);
    world.take(x.session);
    let data = |world: &mut World, session: SessionId| -> Vec<KvData> {
        let of = |message| if let Message::KvData(data) = message { Some(data) } else { None };
        world.take(session).into_iter().filter_map(of).collect()
    };
    let value = |text: &'static str| Some(Bytes::from(text));
    world.subscribe(x.session, "kv:mgr/", 0, false);
    let all = data(&mut world, x.session);
    assert_eq!((all[0].incremental, &all[0].prefix), (false, &"mgr/".to_owned()));
    assert_eq!(all[0].data, BTreeMap::from([("mgr/a".to_owned(), value("1"))]));
    set(&mut world, "other", "2");
    assert_eq!(data(&mut world, x.session), []);
    set(&mut world, "mgr/b", "2");
    world.ask(admin, r#"{"prefix":"config-key rm","key":"mgr/a"}"#);
    let news = data(&mut world, x.session);
    assert!(news.iter().all(|data| data.incremental) && news[1].version > news[0].version);
    assert_eq!(news[0].data, BTreeMap::from([("mgr/b".to_owned(), value("2"))]));
    assert_eq!(news[1].data, BTreeMap::from([("mgr/a".to_owned(), None)]));
    // The values of options stand there as in Ceph.
    world.subscribe(x.session, "kv:config/", 7, false);
    data(&mut world, x.session);
    world.ask(
        admin,
        r#"{"prefix":"config set","who":"osd/class:ssd","name":"osd_max_backfills","value":"3"}"#,
    );
    let news = data(&mut world, x.session);
    assert_eq!(news[0].data["config/osd/class:ssd/osd_max_backfills"], value("3"));
    world.add_client("client.r", "allow rw", "");
    let client = world.connect("client.r");
    for what in ["kv:mgr/", "kv:", "kv:config/"] {
        world.subscribe(client, what, 0, false);
    }
    set(&mut world, "mgr/b", "3");
    let seen: Vec<String> = data(&mut world, client).into_iter().map(|data| data.prefix).collect();
    assert_eq!(seen, ["config/"], "keys are secret, options are not");
}

/// Its caps allow keys of a form; that a prefix has that form says nothing of the keys below it.
#[test]
fn keys_below_a_prefix_are_looked_at_one_by_one() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    for key in ["rbd/mirror/site_name", "rbd/mirror/peer/1/secret"] {
        let json = format!(r#"{{"prefix":"config-key set","key":"{key}","val":"x"}}"#);
        assert_eq!(world.ask(admin, &json).expect("an answer").result, 0);
    }
    world.add_client("client.peer", "profile rbd-mirror-peer", "");
    let client = world.connect("client.peer");
    let seen = |world: &mut World| -> Vec<String> {
        let of = |message| if let Message::KvData(data) = message { Some(data.data) } else { None };
        world.take(client).into_iter().filter_map(of).flat_map(BTreeMap::into_keys).collect()
    };
    world.subscribe(client, "kv:rbd/mirror/", 0, false);
    assert_eq!(seen(&mut world), ["rbd/mirror/site_name"]);
    world.subscribe(client, "kv:rbd/mirror/peer", 0, false);
    assert_eq!(seen(&mut world), [] as [&str; 0]);
    world.ask(admin, r#"{"prefix":"config-key set","key":"rbd/mirror/peer/1/secret","val":"y"}"#);
    assert_eq!(seen(&mut world), [] as [&str; 0], "nor when one changes");
}

/// What is kept for one manager is followed by that one: our own has the name of the monitor that leads.
#[test]
fn options_of_one_manager_are_its_own() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let mut set = |who: &str, name: &str, value: &str| {
        let json = format!(r#"{{"prefix":"config set","who":"{who}","name":"{name}","value":"{value}"}}"#);
        assert_eq!(world.ask(admin, &json).expect("an answer").result, 0, "{json}");
        world.mon.state.option_of_managers("mgr/balancer/active").map(str::to_owned)
    };
    assert_eq!(set("mgr", "mgr/balancer/active", "true").as_deref(), Some("true"));
    assert_eq!(set("mgr.z", "mgr/balancer/active", "false").as_deref(), Some("true"), "another one's");
    assert_eq!(set("mgr.a", "mgr/balancer/active", "false").as_deref(), Some("false"));
    assert_eq!(set("mgr", "mgr/balancer/a/active", "true").as_deref(), Some("true"));
}

#[test]
fn osds_report_to_the_monitor_too_while_a_stock_manager_is_active() {
    let mut world = World::new(1);
    let osd = world.boot_all(1)[0];
    world.subscribe(osd, PgStatsWanted::TOPIC, 0, false);
    let wanted = |world: &mut World| -> Vec<bool> {
        let of =
            |message| if let Message::PgStatsWanted(stats) = message { Some(stats.wanted) } else { None };
        world.take(osd).into_iter().filter_map(of).collect()
    };
    assert_eq!(wanted(&mut world), [false]);
    let mut x = Manager::start(&mut world, "x");
    x.becomes_available(&mut world);
    assert_eq!(wanted(&mut world), [true]);
    let fsid = world.mon.fsid();
    world.message(osd, 0, PgStats { fsid, ..PgStats::default() });
    assert!(world.mon.state().stats.pgs.osd(0).is_some());
    // Our own command goes on, whoever is the manager.
    let admin = world.connect(ADMIN);
    for command in ["nacre overview", "nacre history"] {
        let ack =
            world.ask(admin, &format!(r#"{{"prefix":"{command}","format":"json"}}"#)).expect("an answer");
        assert_eq!(ack.result, 0, "{command}: {}", ack.status);
        let shown = String::from_utf8_lossy(&ack.data.to_bytes()).into_owned();
        assert!(command == "nacre history" || shown.contains(r#""images":null"#), "nobody counts: {shown}");
    }
    x.dies(&mut world);
    world.pass(SECOND * 4);
    assert_eq!(wanted(&mut world), [false]);
}

#[test]
fn options_of_modules_are_checked_by_what_the_manager_says_of_them() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let set = |world: &mut World, who: &str, name: &str, value: &str| {
        let json = format!(r#"{{"prefix":"config set","who":"{who}","name":"{name}","value":"{value}"}}"#);
        world.ask(admin, &json).expect("an answer").result
    };
    let none = "mgr/telemetry/interval";
    assert_eq!(set(&mut world, "mgr", none, "60"), Errno::EOPNOTSUPP.negated(), "nobody would read it");
    let mut x = Manager::start(&mut world, "x");
    let number = "mgr/prometheus/server_port".to_owned();
    let port = ModuleOption { name: "server_port".to_owned(), kind: 1, ..ModuleOption::default() };
    let options = BTreeMap::from([(port.name.clone(), port)]);
    let module =
        ModuleInfo { name: "prometheus".to_owned(), can_run: true, options, ..ModuleInfo::default() };
    x.beacon.modules.push(module);
    x.becomes_available(&mut world);
    world.subscribe(x.session, "config", 0, false);
    world.take(x.session);
    assert_eq!(set(&mut world, "mgr", &number, "many"), Errno::EINVAL.negated());
    assert_eq!(set(&mut world, "osd", &number, "3"), Errno::EOPNOTSUPP.negated());
    assert_eq!(set(&mut world, "mgr", "mgr/nonsense/x", "3"), Errno::EOPNOTSUPP.negated());
    assert_eq!(set(&mut world, "mgr", &number, "3"), 0);
    assert_eq!(set(&mut world, "mgr", "debug_ms", "1"), 0, "it is a client, too");
    let told = world.take(x.session);
    let Some(Message::Config(config)) = told.last() else { panic!("options, not {told:?}") };
    assert_eq!(config.config.get(&number).map(String::as_str), Some("3"));
}

fn set(world: &mut World, option: &str, value: &str) {
    let admin = world.connect(ADMIN);
    let ask = format!(r#"{{"prefix":"config set","who":"mon","name":"{option}","value":"{value}"}}"#);
    assert_eq!(world.ask(admin, &ask).map(|ack| ack.result), Some(0), "{option}");
}

/// Each by the difference that it makes; the stories above have the defaults.
#[test]
fn managers_are_watched_shut_out_and_told_as_the_options_say() {
    let mut world = World::new(1);
    set(&mut world, "mon_mgr_beacon_grace", "10");
    set(&mut world, "mon_mgr_blocklist_interval", "7200");
    set(&mut world, "mon_mgr_digest_period", "2");
    let mut x = Manager::start(&mut world, "x");
    x.becomes_available(&mut world);
    world.subscribe(x.session, "mgrdigest", 0, false);
    x.lives_for(&mut world, 6); // the first is due as it was before the option
    world.take(x.session);
    x.lives_for(&mut world, 10);
    let told = world.take(x.session);
    assert_eq!(told.iter().filter(|message| matches!(message, Message::MgrDigest(_))).count(), 5);
    world.pass(SECOND * 9);
    assert_eq!(map(&world).active_name, "x");
    world.pass(SECOND * 3);
    assert_eq!(map(&world).active_name, "a");
    let left = |until: &nacre_types::UTime| until.since(world.wall);
    let shut_out: Vec<Duration> = world.map().blocklist.values().map(left).collect();
    let two_hours = SECOND * 7195..=SECOND * 7200;
    assert!(shut_out.len() == 2 && shut_out.iter().all(|left| two_hours.contains(left)), "{shut_out:?}");
}
