//! OSDs come up, fail, are forgotten and come back.

use super::{ADMIN, World, addr, store};
use nacre_denc::{Decode, Encode};
use nacre_maps::{OsdMap, flags};
use nacre_msg::{
    MarkMeDead, MarkMeDown, Message, MonGetOsdMap, OsdAlive, OsdBeacon, OsdBoot, OsdFailure, OsdPgTemp,
};
use nacre_types::{Epoch, Errno, OsdId, PgId};
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) fn report(world: &World, target: OsdId, flags: u8) -> OsdFailure {
    let target_addrs = world.map().client_addr(target).cloned().unwrap_or_default();
    OsdFailure {
        target,
        target_addrs,
        flags,
        failed_for_s: 25,
        fsid: world.mon.fsid(),
        ..OsdFailure::default()
    }
}

#[test]
fn three_boots_bring_three_osds_up_and_in() {
    let mut world = World::new(3);
    let sessions = world.boot_all(3);
    let map = world.map();
    assert_eq!((map.osd_count(), map.up_count(), map.in_count()), (3, 3, 3));
    assert_eq!(map.osd_uuid[2], store(2));
    assert_eq!(map.client_addr(1), Some(&addr(7001)));
    assert_eq!(map.cluster_addr(1), Some(&addr(8013)));
    assert_eq!(map.info(1).up_from, map.epoch - 1);
    world.check();
    // The same instance again changes nothing.
    let before = world.map().epoch;
    world.boot(sessions[0], 0, 0);
    assert_eq!(world.map().epoch, before);
}

#[test]
fn an_unknown_osd_gets_a_place_by_its_host_and_size() {
    let mut world = World::new(1);
    world.add_client("osd.5", "allow profile osd", "allow *");
    let session = world.connect("osd.5");
    world.boot(session, 5, 0);
    let map = world.map();
    assert!(map.is_up(5) && map.is_in(5));
    assert_eq!(crate::osd::view::location(&map.crush, 5).get("host").map(String::as_str), Some("host5"));
    assert_eq!(map.max_osd(), 6);
    world.check();
}

#[test]
fn a_new_osd_weighs_what_the_operator_says() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    for (who, value) in [("osd", "0.5"), ("osd.6", "0")] {
        let set = format!(
            r#"{{"prefix":"config set","who":"{who}","name":"osd_crush_initial_weight","value":"{value}"}}"#
        );
        assert_eq!(world.ask(admin, &set).map(|ack| ack.result), Some(0));
    }
    for (osd, weight) in [(5, 0x8000), (6, 0)] {
        world.add_client(&format!("osd.{osd}"), "allow profile osd", "allow *");
        let session = world.connect(&format!("osd.{osd}"));
        world.boot(session, osd, 0);
        assert!(world.map().is_up(osd));
        assert_eq!(crate::osd::crush_edit::weight_of(&world.map().crush, osd), weight, "osd.{osd}");
    }
    world.check();
}

#[test]
fn a_new_osd_gets_no_place_or_class_where_the_operator_says_so() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    for (who, name) in [("osd.5", "osd_crush_update_on_start"), ("osd.6", "osd_class_update_on_start")] {
        let set = format!(r#"{{"prefix":"config set","who":"{who}","name":"{name}","value":"false"}}"#);
        assert_eq!(world.ask(admin, &set).map(|ack| ack.result), Some(0));
    }
    for osd in [5, 6] {
        world.add_client(&format!("osd.{osd}"), "allow profile osd", "allow *");
        let session = world.connect(&format!("osd.{osd}"));
        world.boot(session, osd, 0);
        assert!(world.map().is_up(osd));
        let placed = crate::osd::view::parent(&world.map().crush, osd).is_some();
        assert_eq!(placed, osd == 6, "osd.{osd}");
    }
    assert_eq!(world.map().crush.item_classes.get(&6), None);
    world.check();
}

#[test]
fn nobody_boots_for_another_or_with_a_foreign_store() {
    let mut world = World::new(2);
    let session = world.connect("osd.0");
    world.boot(session, 1, 0);
    let client = world.connect(ADMIN);
    world.boot(client, 0, 0);
    assert_eq!(world.map().up_count(), 0);
    world.boot(session, 0, 0);
    assert_eq!(world.map().up_count(), 1);
    world.mon.state.osd.mark_down(0, world.wall);
    world.mon.state.osd.change().new_uuid.insert(0, store(9));
    world.settle();
    world.boot(session, 0, 1);
    assert_eq!(world.map().up_count(), 0);
}

#[test]
fn a_restart_that_nobody_noticed_takes_the_predecessor_down_first() {
    let mut world = World::new(1);
    let session = world.boot_all(1)[0];
    let (epoch, up_from) = (world.map().epoch, world.map().info(0).up_from);
    world.boot(session, 0, 1);
    assert_eq!(world.map().epoch, epoch + 2);
    assert_eq!(world.map().info(0).down_at, epoch + 1);
    assert!(world.map().info(0).up_from > up_from && world.map().is_up(0));
    assert_eq!(world.map().cluster_addr(0), Some(&addr(8004)));
    world.check();
}

#[test]
fn two_hosts_must_report_unless_the_connection_was_refused() {
    let mut world = World::new(4);
    let sessions = world.boot_all(4);
    let failed = report(&world, 3, 1);
    world.message(sessions[0], 0, failed.clone());
    assert!(world.map().is_up(3));
    world.message(sessions[0], 0, report(&world, 3, 0));
    world.message(sessions[1], 0, failed.clone());
    assert!(world.map().is_up(3), "the first report was taken back");
    world.message(sessions[2], 0, failed);
    assert!(!world.map().is_up(3));
    world.message(sessions[0], 0, report(&world, 2, 3));
    assert!(!world.map().is_up(2), "one refused connection suffices");
    assert_eq!(world.map().xinfo(2).dead_epoch, world.map().epoch, "nobody has to wait for its leases");
    assert_eq!(world.map().xinfo(3).dead_epoch, 0, "it may still run");
    world.check();
}

#[test]
fn an_osd_that_finds_itself_down_says_that_nobody_has_to_wait_for_it() {
    let mut world = World::new(4);
    let sessions = world.boot_all(4);
    for reporter in [0, 1] {
        world.message(sessions[reporter], 0, report(&world, 3, 1));
    }
    assert!(!world.map().is_up(3));
    let (fsid, epoch) = (world.mon.fsid(), world.map().epoch);
    let dead = |osd, epoch| -> Message { MarkMeDead { osd, epoch, fsid, ..MarkMeDead::default() }.into() };
    world.message(sessions[3], 0, dead(3, epoch - 1));
    assert_eq!(world.map().xinfo(3).dead_epoch, 0, "of an instance before");
    world.message(sessions[0], 0, dead(3, epoch));
    assert_eq!(world.map().xinfo(3).dead_epoch, 0, "by another OSD");
    world.message(sessions[3], 0, dead(3, epoch));
    assert!(world.map().xinfo(3).dead_epoch > world.map().info(3).up_from);
    world.message(sessions[0], 0, dead(0, epoch));
    assert!(world.map().is_up(0) && world.map().xinfo(0).dead_epoch == 0, "it is up");
    world.check();
}

#[test]
fn nodown_holds_osds_up() {
    let mut world = World::new(3);
    let sessions = world.boot_all(3);
    let flags = world.map().flags | flags::osdmap::NODOWN;
    world.mon.state.osd.change().new_flags = i32::try_from(flags).expect("31 bits");
    world.settle();
    let failed = report(&world, 2, 3);
    world.message(sessions[0], 0, failed);
    assert!(world.map().is_up(2));
}

#[test]
fn silence_marks_down_and_being_down_marks_out_until_the_next_boot() {
    let mut world = World::new(3);
    let sessions = world.boot_all(3);
    for _ in 0..95 {
        world.pass(Duration::from_secs(10));
        for session in &sessions[..2] {
            world.message(*session, 0, OsdBeacon { min_last_epoch_clean: 1, ..OsdBeacon::default() });
        }
    }
    assert!(!world.map().is_up(2) && world.map().is_up(1));
    assert!(world.map().is_in(2));
    world.pass(Duration::from_secs(610));
    assert!(!world.map().is_in(2));
    assert_ne!(world.map().state(2) & flags::osd::AUTOOUT, 0);
    world.boot(sessions[2], 2, 1);
    assert!(world.map().is_in(2) && world.map().is_up(2));
    assert_eq!(world.map().state(2) & flags::osd::AUTOOUT, 0);
    world.check();
}

#[test]
fn an_osd_that_lagged_is_given_more_time() {
    let mut world = World::new(3);
    let sessions = world.boot_all(3);
    let silent = |world: &World, seconds| OsdFailure { failed_for_s: seconds, ..report(world, 2, 1) };
    let fail = |world: &mut World, seconds| {
        for session in &sessions[..2] {
            world.message(*session, 0, silent(world, seconds));
        }
    };
    fail(&mut world, 7);
    assert!(!world.map().is_up(2));
    let down_for = Duration::from_secs(40);
    world.pass(down_for);
    world.boot_again(sessions[2], 2, 1, 4);
    let lag = world.map().xinfo(2);
    assert_eq!((lag.laggy_interval, lag.laggy_probability), (12, (f64::from(u32::MAX) * 0.3) as u32));
    fail(&mut world, 8);
    assert!(world.map().is_up(2), "7 s and 0.3 * 12 s are more than 8");
    fail(&mut world, 11);
    assert!(!world.map().is_up(2));
    // Started anew, it is trusted more again.
    world.boot(sessions[2], 2, 2);
    assert_eq!(world.map().xinfo(2).laggy_interval, 8);
    world.check();
}

#[test]
fn osds_that_went_down_with_their_whole_rack_stay_in() {
    let mut world = World::new(4);
    let sessions = world.boot_all(4);
    let admin = world.connect(ADMIN);
    let run = |world: &mut World, command: &str| {
        let answer = world.ask(admin, command).map(|ack| (ack.result, ack.status));
        assert_eq!(answer.as_ref().map(|(result, _)| *result), Some(0), "{command}: {answer:?}");
    };
    for rack in ["r1", "r2"] {
        run(&mut world, &format!(r#"{{"prefix":"osd crush add-bucket","name":"{rack}","type":"rack"}}"#));
        let place = format!(r#"{{"prefix":"osd crush move","name":"{rack}","args":["root=default"]}}"#);
        run(&mut world, &place);
    }
    let hosts = [("host0", "r1"), ("host1", "r1"), ("host2", "r2"), ("host3", "r2")];
    for (host, rack) in hosts {
        let place = format!(r#"{{"prefix":"osd crush move","name":"{host}","args":["rack={rack}"]}}"#);
        run(&mut world, &place);
    }
    for osd in [0, 1, 3] {
        world.mon.state.osd.mark_down(osd, world.wall);
    }
    world.settle();
    for _ in 0..62 {
        world.pass(Duration::from_secs(10));
        world.message(sessions[2], 0, OsdBeacon::default());
    }
    assert!(world.map().is_in(0) && world.map().is_in(1), "their rack is down");
    assert!(!world.map().is_in(3), "its rack is not");
}

#[test]
fn an_osd_that_says_goodbye_is_down_before_the_answer() {
    let mut world = World::new(2);
    let sessions = world.boot_all(2);
    let addrs = world.map().client_addr(0).cloned().unwrap_or_default();
    world.take(sessions[0]);
    let down =
        MarkMeDown { osd: 0, addrs, request_ack: true, fsid: world.mon.fsid(), ..MarkMeDown::default() };
    world.message(sessions[0], 5, down);
    assert!(!world.map().is_up(0));
    assert!(world.take(sessions[0]).iter().any(|message| matches!(message, Message::MarkMeDown(_))));
}

#[test]
fn peering_gets_its_up_thru_and_acting_sets_and_the_maps_behind_them() {
    let mut world = World::new(3);
    let sessions = world.boot_all(3);
    let admin = world.connect(ADMIN);
    assert_eq!(
        world.ask(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#).map(|ack| ack.result),
        Some(0)
    );
    let epoch = world.map().epoch;
    world.message(sessions[0], 0, OsdAlive { version: epoch.into(), want: epoch });
    assert_eq!(world.map().info(0).up_thru, epoch);
    let pg = PgId::new(1, 0);
    let up = world.map().pg_to_up_acting(pg).up;
    let turned: Vec<OsdId> = up.iter().rev().copied().collect();
    let ask = |set: Vec<OsdId>, map_epoch| OsdPgTemp {
        map_epoch,
        pg_temp: BTreeMap::from([(pg, set)]),
        ..OsdPgTemp::default()
    };
    world.message(sessions[0], 0, ask(turned.clone(), epoch));
    assert_eq!(world.map().pg_to_up_acting(pg).acting, turned);
    world.message(sessions[0], 0, ask(Vec::new(), epoch));
    assert!(world.map().pg_temp.is_empty());
    // What the map has already is answered by the maps that the asker lacks.
    world.take(sessions[0]);
    world.message(sessions[0], 0, OsdAlive { version: epoch.into(), want: epoch });
    let maps = world.take(sessions[0]);
    let Some(Message::MOsdMap(maps)) = maps.first() else { panic!("maps, not {maps:?}") };
    assert_eq!(maps.incrementals.keys().next(), Some(&(epoch + 1)));
    // An acting set equal to the up set is no exception.
    world.message(sessions[0], 0, ask(up, epoch));
    assert!(world.map().pg_temp.is_empty());
    // A primary that asks for others cannot lead: an operator's choice of it must not keep it.
    world.message(sessions[0], 0, ask(turned.clone(), epoch));
    world.mon.state.osd.change().new_primary_temp.insert(pg, turned[1]);
    world.settle();
    assert_eq!(world.map().pg_to_up_acting(pg).acting_primary, turned[1]);
    world.message(sessions[0], 0, ask(turned.clone(), epoch));
    assert_eq!(world.map().pg_to_up_acting(pg).acting_primary, turned[0]);
    world.check();
}

#[test]
fn old_epochs_go_when_nobody_needs_them() {
    let mut world = World::new(1);
    let session = world.boot_all(1)[0];
    for round in 0..700_u32 {
        let weight = 0x1_0000 - round;
        world.mon.state.osd.change().new_weight.insert(0, weight);
        world.settle();
    }
    world.pass(Duration::from_secs(2));
    assert_eq!(world.mon.state().osd.oldest(), 1, "no beacon has said what the PGs need");
    world.message(session, 0, OsdBeacon { min_last_epoch_clean: 150, ..OsdBeacon::default() });
    world.pass(Duration::from_secs(2));
    assert_eq!(world.mon.state().osd.oldest(), 150);
    world.check();
    let before = world.map().to_bytes();
    world.restart();
    assert_eq!(world.mon.state().osd.oldest(), 150);
    assert_eq!(world.map().to_bytes(), before);
    world.check();
}

#[test]
fn who_boots_while_its_predecessor_is_being_marked_down_was_down_for_an_epoch() {
    let mut world = World::new(3);
    let sessions = world.boot_all(3);
    let first = world.map().epoch;
    let wall = world.wall;
    world.mon.state.osd.mark_down(2, wall);
    world.boot(sessions[2], 2, 1);
    assert!(world.map().is_up(2) && world.map().info(2).up_from > first);
    let full = |epoch| world.mon.state().osd.full_map(epoch).expect("a recent epoch");
    let was_down = |epoch| !OsdMap::from_bytes(full(epoch)).expect("a good map").is_up(2);
    assert!((first..=world.map().epoch).any(was_down), "others must see that it was away");
    world.check();
}

/// Found by commands from their signatures: every stock client aborted on the map that followed.
#[test]
fn nothing_in_the_crush_map_gets_an_empty_name() {
    let mut world = World::new(3);
    world.boot_all(3);
    let admin = world.connect(ADMIN);
    let before = world.map().epoch;
    let commands = [
        r#"{"prefix":"osd crush rule rename","srcname":"replicated_rule","dstname":""}"#,
        r#"{"prefix":"osd crush rule create-replicated","name":"","root":"default","type":"host"}"#,
        r#"{"prefix":"osd crush rule create-erasure","name":""}"#,
        r#"{"prefix":"osd crush class create","class":""}"#,
        r#"{"prefix":"osd crush add-bucket","name":"","type":"host"}"#,
        r#"{"prefix":"osd crush rename-bucket","srcname":"default","dstname":""}"#,
    ];
    for command in commands {
        let answer = world.ask(admin, command).expect("an answer");
        assert_eq!(answer.result, Errno::EINVAL.negated(), "{command}: {}", answer.status);
    }
    assert_eq!(world.map().epoch, before);
}

#[test]
fn maps_are_kept_for_groups_that_nobody_leads() {
    let mut world = World::new(1);
    let session = world.boot_all(1)[0];
    let admin = world.connect(ADMIN);
    let create = r#"{"prefix":"osd pool create","pool":"p","pg_num":2,"size":1,"yes_i_really_mean_it":true}"#;
    assert_eq!(world.ask(admin, create).map(|ack| ack.result), Some(0));
    for round in 0..700_u32 {
        world.mon.state.osd.change().new_weight.insert(0, 0x1_0000 - round);
        world.settle();
    }
    let beacon = |pgs: &[u32], clean| OsdBeacon {
        pgs: pgs.iter().map(|seed| PgId::new(1, *seed)).collect(),
        min_last_epoch_clean: clean,
        ..OsdBeacon::default()
    };
    world.message(session, 0, beacon(&[0], 150));
    world.pass(Duration::from_secs(2));
    assert_eq!(world.mon.state().osd.oldest(), 1, "nobody has said when 1.1 was clean");
    world.message(session, 0, beacon(&[1], 120));
    world.message(session, 0, beacon(&[0], 180));
    world.pass(Duration::from_secs(2));
    assert_eq!(world.mon.state().osd.oldest(), 120, "1.1 has no primary any more, and needs what came since");
    world.restart();
    let session = world.connect("osd.0");
    world.message(session, 0, beacon(&[0], 190));
    world.pass(Duration::from_secs(2));
    assert_eq!(world.mon.state().osd.oldest(), 120, "a monitor that has just started knows nothing of 1.1");
    world.check();
}

#[test]
fn osds_with_newer_maps_than_the_monitor_are_refused() {
    let mut world = World::new(2);
    let sessions = world.boot_all(2);
    let epoch = world.map().epoch;
    let ahead = |world: &World| {
        let checks = crate::health::checks(world.mon.state());
        checks.into_iter().find(|check| check.code == "OSD_MAPS_AHEAD").map(|check| check.detail.len())
    };
    world.message(sessions[0], 0, OsdBeacon { version: epoch.into(), ..OsdBeacon::default() });
    world.subscribe(sessions[0], "osdmap", u64::from(epoch) + 1, false);
    assert_eq!(ahead(&world), None);
    world.subscribe(sessions[0], "osdmap", u64::from(epoch) + 5, false);
    assert_eq!(ahead(&world), Some(1));
    let wall = world.wall;
    world.mon.state.osd.mark_down(1, wall);
    world.settle();
    let newer = u64::from(world.map().epoch) + 7;
    world.boot_as(sessions[1], 1, 1, |boot| OsdBoot { version: newer, ..boot });
    assert!(!world.map().is_up(1));
    assert_eq!(ahead(&world), Some(2));
    assert!(world.logged("the monitor's store is an older copy"));
    let client = world.connect(ADMIN);
    world.subscribe(client, "osdmap", 9999, false);
    assert_eq!(ahead(&world), Some(2), "clients may ask for what they want");
}

#[test]
fn epochs_are_given_by_number() {
    let mut world = World::new(1);
    let session = world.boot_all(1)[0];
    for round in 0..60_u32 {
        world.mon.state.osd.change().new_weight.insert(0, 0x1_0000 - round);
        world.settle();
    }
    let newest = world.map().epoch;
    world.take(session);
    let ask = MonGetOsdMap {
        full_first: newest - 1,
        full_last: newest + 9,
        inc_first: 2,
        inc_last: newest,
        version: 0,
    };
    world.message(session, 0, ask);
    let answer = world.take(session).into_iter().find_map(|message| match message {
        Message::MOsdMap(maps) => Some(maps),
        _ => None,
    });
    let answer = answer.expect("maps");
    assert_eq!(answer.full.keys().copied().collect::<Vec<_>>(), [newest - 1, newest]);
    assert!(answer.incrementals.len() == 40 && answer.incrementals.contains_key(&2));
    let full = OsdMap::from_bytes(answer.full[&(newest - 1)].clone()).expect("a good map");
    assert_eq!(full.epoch, newest - 1);
}

/// Two OSDs of one host share a disk; a third has one of its own beside one without a serial number.
#[test]
fn devices_are_those_that_osds_name() {
    let mut world = World::new(3);
    for (osd, host, ids) in
        [(0, "here", "sda=ACME_S1"), (1, "here", "sda=ACME_S1"), (2, "there", "vda=S2,vdb=")]
    {
        let session = world.connect(&format!("osd.{osd}"));
        world.boot_as(session, osd, 0, |mut boot| {
            boot.metadata.extend(
                [("hostname", host), ("device_ids", ids)]
                    .map(|(key, value)| (key.to_owned(), value.to_owned())),
            );
            boot
        });
    }
    let admin = world.connect(ADMIN);
    let mut tell = |command: &str| {
        let ack = world.ask(admin, &format!(r#"{{"prefix":"device {command}}}"#)).expect("an answer");
        let text = String::from_utf8(ack.data.to_bytes().to_vec()).expect("text");
        (
            ack.result,
            text.lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>(),
        )
    };
    let (_, lines) = tell(r#"ls""#);
    assert_eq!(
        lines,
        [
            "DEVICE HOST:DEV DAEMONS WEAR LIFE EXPECTANCY",
            "ACME_S1 here:sda osd.0 osd.1",
            "S2 there:vda osd.2"
        ]
    );
    assert_eq!(tell(r#"ls-by-daemon","who":"osd.2""#).1[1..], ["S2 there:vda"]);
    assert_eq!(tell(r#"ls-by-host","host":"here""#).1[1..], ["ACME_S1 sda osd.0 osd.1"]);
    assert_eq!(tell(r#"ls-by-host","host":"nowhere""#).1.len(), 1);
    assert_eq!(tell(r#"ls-by-daemon","who":"osd.7""#).0, Errno::ENOENT.negated());
    assert_eq!(tell(r#"ls-by-daemon","who":"osd""#).0, Errno::EINVAL.negated());
    let (_, json) = tell(r#"info","devid":"S2","format":"json""#);
    let place = r#""location":[{"host":"there","dev":"vda","path":"/dev/vda"}]"#;
    assert!(json[0].contains(place) && json[0].contains(r#""daemons":["osd.2"]"#), "{json:?}");
    assert_eq!(tell(r#"info","devid":"S3""#).0, Errno::ENOENT.negated());
}

#[test]
fn an_epoch_that_no_map_has_harms_nobody() {
    let mut world = World::new(1);
    let session = world.boot_all(1)[0];
    world.message(session, 0, OsdAlive { version: u64::MAX, ..OsdAlive::default() });
    world.message(session, 0, OsdPgTemp { version: u64::MAX, map_epoch: Epoch::MAX, ..OsdPgTemp::default() });
    world.boot_as(session, 0, 1, |boot| OsdBoot { version: u64::MAX, ..boot });
    world.pass(Duration::from_secs(1));
    let admin = world.connect(ADMIN);
    let ask = |world: &mut World, json: &str| world.ask(admin, json).expect("an answer").result;
    let is_ahead = |world: &World| {
        crate::health::checks(world.mon.state()).iter().any(|check| check.code == "OSD_MAPS_AHEAD")
    };
    assert!(is_ahead(&world));
    // With the OSD the complaint goes.
    let wall = world.wall;
    world.mon.state.osd.mark_down(0, wall);
    world.settle();
    assert_eq!(ask(&mut world, r#"{"prefix":"osd purge-actual","id":0,"yes_i_really_mean_it":true}"#), 0);
    assert!(!is_ahead(&world));
}
