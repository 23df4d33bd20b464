//! A leader that has just begun takes nobody's silence for an answer.

use super::osds::report as failure;
use super::{ADMIN, World};
use crate::event::{Event, SessionId};
use crate::{Snapshot, WARM_UP};
use nacre_maps::flags;
use nacre_msg::stats::{PgStat, pg_state};
use nacre_msg::{Message, PgStats, failure_flag};
use nacre_types::{Errno, OsdId, PgId, UTime};
use std::ops::Range;
use std::time::Duration;

const GIB: i64 = 1 << 30;
const PG_NUM: u32 = 32;
const CLEAN: u64 = pg_state::ACTIVE | pg_state::CLEAN;

/// A pool of 32 PGs on three OSDs, which have reported all of it.
fn one_pool() -> World {
    let mut world = World::new(3);
    world.boot_all(3);
    let admin = world.connect(ADMIN);
    ask(&mut world, admin, &format!(r#"{{"prefix":"osd pool create","pool":"p","pg_num":{PG_NUM}}}"#), 0);
    all_report(&mut world);
    world.pass(Duration::from_secs(1));
    world
}

fn ask(world: &mut World, admin: SessionId, json: &str, result: i32) -> String {
    let ack = world.ask(admin, json).expect("an answer");
    assert_eq!(ack.result, result, "{json}: {}", ack.status);
    ack.status
}

/// What an OSD says of itself, in per cent, and of the PGs that it leads.
struct Said {
    used: i64,
    seeds: Range<u32>,
    stat: PgStat,
}

impl Said {
    fn clean(world: &World) -> Self {
        let mut stat = PgStat { state: CLEAN, acting: vec![0, 1], acting_primary: 0, ..PgStat::default() };
        (stat.reported_epoch, stat.reported_seq) = (world.map().epoch, world.now.0);
        Self { used: 10, seeds: 0..PG_NUM, stat }
    }

    fn nothing() -> Self {
        Self { used: 10, seeds: 0..0, stat: PgStat::default() }
    }
}

fn says(world: &mut World, osd: OsdId, said: &Said) {
    let session = world.connect(&format!("osd.{osd}"));
    let mut stats = PgStats { fsid: world.mon.fsid(), ..PgStats::default() };
    stats.pg_stat.extend(said.seeds.clone().map(|seed| (PgId::new(1, seed), said.stat.clone())));
    (stats.osd_stat.statfs.total, stats.osd_stat.statfs.available) = (100 * GIB, (100 - said.used) * GIB);
    world.message(session, 0, stats);
}

fn others_report(world: &mut World) {
    says(world, 1, &Said::nothing());
    says(world, 2, &Said::nothing());
}

fn all_report(world: &mut World) {
    let clean = Said::clean(world);
    says(world, 0, &clean);
    others_report(world);
}

#[test]
fn a_leader_is_warm_when_all_osds_that_are_up_have_reported_or_after_five_seconds() {
    let mut world = one_pool();
    assert!(world.mon.state().is_warm());
    world.restart();
    says(&mut world, 0, &Said::nothing());
    says(&mut world, 1, &Said::nothing());
    assert!(!world.mon.state().is_warm());
    says(&mut world, 2, &Said::nothing());
    assert!(world.mon.state().is_warm(), "all have reported");
    world.restart();
    world.pass(WARM_UP - Duration::from_secs(1));
    assert!(!world.mon.state().is_warm());
    world.pass(Duration::from_secs(1));
    assert!(world.mon.state().is_warm(), "who is silent may be dead");
    let admin = world.connect(ADMIN);
    ask(&mut world, admin, r#"{"prefix":"osd down","ids":["0","1","2"]}"#, 0);
    world.restart();
    assert!(world.mon.state().is_warm(), "nobody is up who could say anything");
}

#[test]
fn full_bits_are_taken_away_by_a_warm_leader_and_set_by_any() {
    let mut world = one_pool();
    let nearly = Said { used: 86, ..Said::clean(&world) };
    says(&mut world, 0, &nearly);
    world.pass(Duration::from_secs(1));
    let bits = |world: &World| (world.map().state(0), world.map().pools[&1].flags);
    let is_near = |world: &World| {
        let (osd, pool) = bits(world);
        (osd & flags::osd::NEARFULL != 0, pool & flags::pool::NEARFULL != 0)
    };
    assert_eq!(is_near(&world), (true, true));
    world.restart();
    let clean = Said::clean(&world);
    says(&mut world, 0, &clean);
    world.pass(Duration::from_secs(2));
    assert_eq!(is_near(&world), (true, true), "two OSDs have not reported");
    let full = Said { used: 97, ..Said::clean(&world) };
    says(&mut world, 0, &full);
    world.pass(Duration::from_secs(1));
    let (osd, pool) = bits(&world);
    assert!(osd & flags::osd::FULL != 0 && pool & flags::pool::FULL != 0, "what is full is full");
    let clean = Said::clean(&world);
    says(&mut world, 0, &clean);
    others_report(&mut world);
    world.pass(Duration::from_secs(1));
    let (osd, pool) = bits(&world);
    assert_eq!((osd & flags::osd::FULL, pool & flags::pool::FULL, is_near(&world)), (0, 0, (false, false)));
    world.check();
}

/// Exam Q14 in the small: the leader dies again and again while a pool is over its quota and an OSD is full.
#[test]
fn a_pool_over_its_quota_is_closed_whoever_leads() {
    let mut world = one_pool();
    let admin = world.connect(ADMIN);
    let quota = r#"{"prefix":"osd pool set-quota","pool":"p","field":"max_objects","val":"100"}"#;
    ask(&mut world, admin, quota, 0);
    let of_each = |world: &World, objects| {
        let mut said = Said { used: 97, ..Said::clean(world) };
        said.stat.stats.sum.num_objects = objects;
        said
    };
    let over = of_each(&world, 4);
    says(&mut world, 0, &over);
    world.pass(Duration::from_secs(1));
    let both = flags::pool::FULL | flags::pool::FULL_QUOTA;
    let check = |world: &World, when: &str| {
        let (osd, pool) = (world.map().state(0), world.map().pools[&1].flags);
        assert_eq!((osd & flags::osd::FULL, pool & both), (flags::osd::FULL, both), "{when}");
    };
    check(&world, "128 objects of 100");
    let epoch = world.map().epoch;
    for round in 0..20 {
        world.restart();
        for second in 0..round % 8 {
            check(&world, &format!("leader {round}, second {second}"));
            if second == 3 {
                // A part of the PGs, and the emptiest OSDs first.
                let part = Said { seeds: 0..PG_NUM / 2, ..of_each(&world, 4) };
                others_report(&mut world);
                says(&mut world, 0, &part);
            }
            world.pass(Duration::from_secs(1));
        }
        check(&world, &format!("leader {round}"));
    }
    assert_eq!(world.map().epoch, epoch, "not for a moment");
    let under = of_each(&world, 3);
    says(&mut world, 0, &under);
    world.pass(WARM_UP);
    assert_eq!(world.map().pools[&1].flags & flags::pool::FULL_QUOTA, 0, "96 objects");
    world.check();
}

#[test]
fn pgs_are_merged_by_a_warm_leader() {
    let mut world = one_pool();
    let admin = world.connect(ADMIN);
    for seed in 0..PG_NUM {
        let session = world.connect("osd.0");
        world.message(session, 0, nacre_msg::OsdPgCreated { version: 0, pg: PgId::new(1, seed) });
    }
    let lower = format!(r#"{{"prefix":"osd pool set","pool":"p","var":"pg_num","val":"{}"}}"#, PG_NUM - 1);
    ask(&mut world, admin, &lower, 0);
    world.pass(Duration::from_secs(1));
    let pending = |world: &World| world.map().pools[&1].pg_num_pending;
    assert_eq!((world.map().pools[&1].pgp_num, pending(&world)), (PG_NUM - 1, PG_NUM));
    world.restart();
    let clean = Said::clean(&world);
    says(&mut world, 0, &clean);
    world.pass(Duration::from_secs(2));
    assert_eq!(pending(&world), PG_NUM, "two OSDs have not reported");
    others_report(&mut world);
    world.pass(Duration::from_secs(1));
    assert_eq!(pending(&world), PG_NUM - 1);
    world.check();
}

#[test]
fn snapshots_are_purged_by_a_warm_leader() {
    let mut world = one_pool();
    let snap = world.mon.state.osd.create_self_managed_snap(1).expect("a pool");
    world.mon.state.osd.remove_self_managed_snap(1, snap).expect("a snapshot");
    world.settle();
    let is_queued = |world: &World| world.map().removed_snaps_queue.contains_key(&1);
    assert!(is_queued(&world));
    world.restart();
    let mut trimmed = Said::clean(&world);
    trimmed.stat.purged_snaps.insert(snap.0, 1);
    says(&mut world, 0, &trimmed);
    world.pass(Duration::from_secs(2));
    assert!(is_queued(&world), "two OSDs have not reported");
    others_report(&mut world);
    world.pass(Duration::from_secs(2));
    assert!(!is_queued(&world));
    world.check();
}

#[test]
fn whether_an_osd_can_be_spared_is_told_by_a_warm_leader() {
    let commands = [
        (r#"{"prefix":"osd ok-to-stop","ids":["2"]}"#, 0),
        (r#"{"prefix":"osd safe-to-destroy","ids":["2"]}"#, 0),
        (
            r#"{"prefix":"osd force-create-pg","pgid":"1.3","yes_i_really_mean_it":true}"#,
            Errno::EPERM.negated(),
        ),
        (r#"{"prefix":"osd destroy","id":2,"yes_i_really_mean_it":true}"#, Errno::EBUSY.negated()),
        (r#"{"prefix":"osd purge","id":2,"yes_i_really_mean_it":true}"#, Errno::EBUSY.negated()),
    ];
    let mut world = one_pool();
    world.restart();
    let clean = Said::clean(&world);
    says(&mut world, 0, &clean);
    let admin = world.connect(ADMIN);
    for (command, _) in commands {
        let status = ask(&mut world, admin, command, Errno::EAGAIN.negated());
        assert!(status.contains("Ask again"), "{status}");
    }
    others_report(&mut world);
    let primary = world.map().pg_to_up_acting(PgId::new(1, 3)).acting_primary;
    let mut served = Said::clean(&world);
    (served.stat.acting_primary, served.stat.acting) = (primary, vec![0, 1]);
    says(&mut world, 0, &served);
    for (command, result) in commands {
        ask(&mut world, admin, command, result);
    }
    // Who is sure need not wait.
    world.restart();
    let admin = world.connect(ADMIN);
    ask(&mut world, admin, r#"{"prefix":"osd down","ids":["2"]}"#, 0);
    ask(&mut world, admin, r#"{"prefix":"osd purge","id":2,"yes_i_really_mean_it":true,"force":true}"#, 0);
    world.check();
}

#[test]
fn health_goes_on_with_a_warm_leader() {
    let mut world = one_pool();
    let degraded = |world: &World| {
        let mut said = Said::clean(world);
        said.stat.state = pg_state::ACTIVE | pg_state::DEGRADED;
        said
    };
    let said = degraded(&world);
    says(&mut world, 0, &said);
    world.pass(Duration::from_secs(1));
    let admin = world.connect(ADMIN);
    ask(&mut world, admin, r#"{"prefix":"health mute","code":"PG_DEGRADED"}"#, 0);
    world.restart();
    world.pass(WARM_UP - Duration::from_secs(1));
    let is_muted = |world: &World| world.mon.state().health.mutes().contains_key("PG_DEGRADED");
    assert!(is_muted(&world), "nobody says that it went away");
    let said = degraded(&world);
    says(&mut world, 0, &said);
    others_report(&mut world);
    world.pass(WARM_UP);
    assert!(is_muted(&world));
    assert!(!world.logged("pgs inactive"), "nobody said so");
    all_report(&mut world);
    world.pass(Duration::from_secs(1));
    assert!(!is_muted(&world), "it went away");
}

#[test]
fn silence_and_failure_reports_count_from_the_takeover() {
    let mut world = World::new(4);
    let sessions = world.boot_all(4);
    let timeout = Duration::from_secs(900);
    world.pass(timeout - Duration::from_secs(10));
    let target = failure(&world, 3, failure_flag::FAILED);
    world.message(sessions[0], 0, target.clone());
    world.restart();
    world.pass(Duration::from_secs(20));
    assert!(world.map().is_up(3), "one of two reporters, and that one spoke to another leader");
    let other = world.connect("osd.1");
    world.message(other, 0, target.clone());
    world.pass(Duration::from_secs(1));
    assert!(world.map().is_up(3), "one of two");
    let again = world.connect("osd.0");
    world.message(again, 0, target);
    world.pass(Duration::from_secs(1));
    assert!(!world.map().is_up(3));
    world.pass(timeout - Duration::from_secs(23));
    assert!(world.map().is_up(2), "899 s");
    world.pass(Duration::from_secs(2));
    assert!(!world.map().is_up(2), "901 s");
    world.check();
}

/// Subscribers ask for what follows the epoch that they have: one that began anew with each leader would leave them with old maps.
#[test]
fn epochs_of_maps_never_go_back() {
    let mut world = World::new(1);
    let epochs = |world: &World| {
        let state = world.mon.state();
        let single = [state.mon.map().epoch, state.mgr.map().epoch, state.fs.map().epoch];
        [&single[..], &[state.services.map().epoch, state.osd.published().epoch]].concat()
    };
    let mut before = epochs(&world);
    for round in 0..5_u32 {
        let state = &mut world.mon.state;
        state.fs.update(UTime::default(), |_| ());
        state.services.update(|map| {
            map.services.insert(format!("rgw{round}"), nacre_msg::ServiceEntry::default());
        });
        world.settle();
        let told = epochs(&world);
        assert_eq!((told[2], told[3]), (before[2] + 1, before[3] + 1));
        // What is not committed nobody was told.
        world.commits_complete = false;
        world.mon.state.services.update(|_| ());
        world.settle();
        world.commits_complete = true;
        world.restart();
        before = epochs(&world);
        assert!(told.iter().zip(&before).all(|(told, now)| told <= now), "{told:?}, then {before:?}");
        assert_eq!((told[2], told[3]), (before[2], before[3]), "as it was durable");
        assert!(world.mon.state().services.map().services.contains_key(&format!("rgw{round}")));
    }
    let (client, newest) = (world.connect(ADMIN), u64::from(before[3]));
    world.subscribe(client, "servicemap", newest + 1, false);
    let maps = |world: &mut World| {
        let sent = world.take(client).into_iter();
        sent.filter_map(|message| if let Message::ServiceMap(map) = message { Some(map.epoch) } else { None })
            .collect::<Vec<_>>()
    };
    assert!(maps(&mut world).is_empty());
    world.mon.state.services.update(|_| ());
    world.event(Event::Tick);
    assert_eq!(maps(&mut world).into_iter().map(u64::from).collect::<Vec<_>>(), [newest + 1]);
}

/// What `ceph -s -f json` and `ceph df -f json` say of PGs and room.
fn shown(world: &mut World) -> (serde_json::Value, serde_json::Value) {
    let admin = world.connect(ADMIN);
    let mut json = |prefix: &str| {
        let ask = format!(r#"{{"prefix":"{prefix}","format":"json"}}"#);
        let ack = world.ask(admin, &ask).expect("an answer");
        serde_json::from_slice::<serde_json::Value>(&ack.data.to_bytes()).expect("JSON")
    };
    (json("status")["pgmap"].take(), json("df").take())
}

#[test]
fn statistics_do_not_blink_when_another_takes_over_and_nothing_is_decided_by_them() {
    let mut world = one_pool();
    world.pass(Duration::from_secs(6));
    let before = shown(&mut world);
    assert_eq!(before.0["pgs_by_state"][0]["state_name"], "active+clean");
    assert!(before.0["bytes_total"].as_i64() > Some(0) && before.1["pools"][0].is_object(), "{before:?}");
    world.restart();
    assert_eq!(shown(&mut world), before, "as the leader before had it");
    assert!(!world.mon.state().is_warm());
    let admin = world.connect(ADMIN);
    ask(&mut world, admin, r#"{"prefix":"osd ok-to-stop","ids":["0"]}"#, Errno::EAGAIN.negated());
    // Nobody reports: then that counts, and not what was.
    world.pass(WARM_UP);
    assert!(world.mon.state().is_warm());
    assert_eq!(shown(&mut world).0["pgs_by_state"][0]["state_name"], "unknown");
}

#[test]
fn what_is_kept_of_statistics_is_written_when_it_changes() {
    let mut world = one_pool();
    world.pass(Duration::from_secs(6));
    let kept = |world: &World| world.kv.scan("digest");
    let before = kept(&world);
    assert_eq!(before.len(), 1);
    world.commits_complete = false;
    world.pass(Duration::from_secs(30));
    assert!(world.waiting_batch.is_none(), "nothing has changed: {:?}", world.waiting_batch);
    world.commits_complete = true;
    world.restart();
    all_report(&mut world);
    let mut said = Said::clean(&world);
    said.used = 20;
    says(&mut world, 0, &said);
    world.pass(Duration::from_secs(6));
    assert_ne!(kept(&world), before);
}
