//! Pool operations of librados, snapshots, quotas.

use super::{ADMIN, World};
use crate::event::SessionId;
use nacre_denc::Decode;
use nacre_maps::flags;
use nacre_msg::stats::{OsdStat, PgStat, pg_state};
use nacre_msg::{
    Message, OsdBoot, OsdPgCreated, PgStats, PoolOp, PoolOpReply, RemoveSnaps, pool_op_code as code,
};
use nacre_types::{Errno, PgId, SnapId};
use std::collections::BTreeMap;
use std::time::Duration;

fn op(world: &mut World, session: SessionId, pool: u32, op: u32, name: &str, snap: u64) -> PoolOpReply {
    let fsid = world.mon.fsid();
    let ask = PoolOp {
        fsid,
        pool,
        op,
        name: name.to_owned(),
        snap: SnapId(snap),
        crush_rule: -1,
        ..PoolOp::default()
    };
    let tid = world.new_tid();
    world.message(session, tid, ask);
    let replies = world.take(session).into_iter();
    replies
        .filter_map(|message| match message {
            Message::PoolOpReply(reply) => Some(reply),
            _ => None,
        })
        .last()
        .expect("a reply")
}

fn world_with_pool() -> (World, SessionId) {
    let mut world = World::new(3);
    world.boot_all(3);
    let admin = world.connect(ADMIN);
    let reply = op(&mut world, admin, 0, code::CREATE, "p", 0);
    assert_eq!((reply.result, reply.epoch), (0, world.map().epoch));
    (world, admin)
}

#[test]
fn a_group_that_nobody_serves_is_ordered_anew_until_it_serves() {
    let (mut world, admin) = world_with_pool();
    let osd = world.connect("osd.0");
    let pg = PgId::new(1, 0);
    for seed in 0..world.map().pools[&1].pg_num {
        world.message(osd, 0, OsdPgCreated { version: 0, pg: PgId::new(1, seed) });
    }
    assert_eq!(world.mon.state().osd.creating().count(), 0);
    let order = r#"{"prefix":"osd force-create-pg","pgid":"1.0"}"#;
    assert_eq!(world.ask(admin, order).map(|ack| ack.result), Some(Errno::EPERM.negated()));
    let order = r#"{"prefix":"osd force-create-pg","pgid":"1.0","yes_i_really_mean_it":true}"#;
    let primary = world.map().pg_to_up_acting(pg).acting_primary;
    let leader = world.connect(&format!("osd.{primary}"));
    report(&mut world, leader, |stat| stat.acting_primary = primary);
    assert_eq!(world.ask(admin, order).map(|ack| ack.result), Some(Errno::EPERM.negated()), "it serves");
    report(&mut world, leader, |stat| (stat.acting_primary, stat.state) = (primary, pg_state::DOWN));
    let before = world.map().epoch;
    assert_eq!(world.ask(admin, order).map(|ack| ack.result), Some(0));
    let ordered = |world: &World| {
        world.mon.state().osd.creating().map(|(pg, epoch, _)| (pg, epoch)).collect::<Vec<_>>()
    };
    assert_eq!(ordered(&world), [(pg, before + 1)]);
    assert_eq!(world.map().pools[&1].last_force_op_resend, before + 1, "clients ask again");
    assert!(!world.map().pools[&1].has_flag(flags::pool::CREATING));
    world.restart();
    assert_eq!(ordered(&world), [(pg, before + 1)], "over a restart");
    let leader = world.connect(&format!("osd.{primary}"));
    report(&mut world, leader, |stat| stat.acting_primary = primary);
    assert_eq!(ordered(&world), []);
    world.check();
}

#[test]
fn pools_come_and_go_once() {
    let (mut world, admin) = world_with_pool();
    assert_eq!(op(&mut world, admin, 0, code::CREATE, "p", 0).result, Errno::EEXIST.negated());
    assert_eq!(
        op(&mut world, admin, 1, code::DELETE, "", 0).result,
        Errno::EPERM.negated(),
        "not allowed yet"
    );
    let allow = r#"{"prefix":"config set","who":"mon","name":"mon_allow_pool_delete","value":"true"}"#;
    assert_eq!(world.ask(admin, allow).map(|ack| ack.result), Some(0));
    assert_eq!(op(&mut world, admin, 1, code::DELETE, "", 0).result, 0);
    let epoch = world.map().epoch;
    assert!(world.map().pools.is_empty());
    assert_eq!(op(&mut world, admin, 1, code::DELETE, "", 0).result, 0, "a repeated request");
    assert_eq!(op(&mut world, admin, 9, code::DELETE, "", 0).result, Errno::ENOENT.negated());
    assert_eq!(world.map().epoch, epoch);
    world.check();
}

#[test]
fn client_snapshots_are_numbered_and_removed_once() {
    let (mut world, admin) = world_with_pool();
    let create = |world: &mut World| {
        let reply = op(world, admin, 1, code::CREATE_UNMANAGED_SNAP, "", 0);
        u64::from_bytes(reply.response.expect("a number")).expect("eight bytes")
    };
    assert_eq!(create(&mut world), 2);
    assert_eq!(create(&mut world), 3);
    assert_eq!(op(&mut world, admin, 1, code::DELETE_UNMANAGED_SNAP, "", 2).result, 0);
    assert!(world.map().new_removed_snaps[&1].contains(2));
    assert!(world.map().removed_snaps_queue[&1].contains(2));
    let epoch = world.map().epoch;
    assert_eq!(op(&mut world, admin, 1, code::DELETE_UNMANAGED_SNAP, "", 2).result, 0);
    assert_eq!(world.map().epoch, epoch, "a repeated request");
    assert_eq!(create(&mut world), 5);
    assert!(world.map().pools[&1].has_flag(flags::pool::SELFMANAGED_SNAPS));
    assert_eq!(op(&mut world, admin, 1, code::CREATE_SNAP, "s", 0).result, Errno::EINVAL.negated());
    world.restart();
    let admin = world.connect(ADMIN);
    assert_eq!(op(&mut world, admin, 1, code::DELETE_UNMANAGED_SNAP, "", 2).result, 0);
    assert_eq!(world.map().epoch, epoch + 1, "removals are remembered");
    world.check();
}

#[test]
fn pool_snapshots_have_names() {
    let (mut world, admin) = world_with_pool();
    assert_eq!(op(&mut world, admin, 1, code::CREATE_SNAP, "s", 0).result, 0);
    assert_eq!(op(&mut world, admin, 1, code::CREATE_SNAP, "s", 0).result, Errno::EEXIST.negated());
    assert_eq!(world.map().pools[&1].snaps[&SnapId(1)].name, "s");
    assert_eq!(op(&mut world, admin, 1, code::DELETE_SNAP, "s", 0).result, 0);
    assert_eq!(op(&mut world, admin, 1, code::DELETE_SNAP, "s", 0).result, Errno::ENOENT.negated());
    assert!(world.map().removed_snaps_queue[&1].contains(1));
    assert_eq!(op(&mut world, admin, 1, code::CREATE_UNMANAGED_SNAP, "", 0).result, Errno::EINVAL.negated());
}

#[test]
fn a_metadata_server_removes_snapshots_by_its_own_numbers() {
    let (mut world, admin) = world_with_pool();
    let snaps = BTreeMap::from([(1, vec![SnapId(9)]), (7, vec![SnapId(1)])]);
    world.message(admin, 4, RemoveSnaps { snaps, ..RemoveSnaps::default() });
    assert!(world.take(admin).iter().any(|message| matches!(message, Message::RemoveSnaps(_))));
    assert!(world.map().removed_snaps_queue[&1].contains(9));
}

/// Every PG of pool 1 reports `change`d statistics from OSD 0.
fn report(world: &mut World, session: SessionId, change: impl Fn(&mut PgStat)) {
    let mut stats = PgStats { fsid: world.mon.fsid(), ..PgStats::default() };
    for seed in 0..world.map().pools[&1].pg_num {
        let pg = PgId::new(1, seed);
        let mut stat =
            PgStat { state: pg_state::ACTIVE | pg_state::CLEAN, reported_seq: 1, ..PgStat::default() };
        stat.acting = world.map().pg_to_up_acting(pg).acting;
        stat.acting_primary = 0;
        change(&mut stat);
        stats.pg_stat.insert(pg, stat);
    }
    let statfs = &mut stats.osd_stat;
    *statfs = OsdStat::default();
    world.message(session, 0, stats);
}

#[test]
fn creating_ends_when_all_pgs_are_there() {
    let (mut world, _) = world_with_pool();
    let osd = world.connect("osd.0");
    world.subscribe(osd, "osd_pg_creates", 0, false);
    let asked = world.take(osd);
    let Some(Message::OsdPgCreate2(asked)) = asked.first() else { panic!("creations, not {asked:?}") };
    assert!(asked.pgs.keys().all(|spg| world.map().pg_to_up_acting(spg.pg).acting_primary == 0));
    assert!(world.map().pools[&1].has_flag(flags::pool::CREATING));
    for seed in 0..world.map().pools[&1].pg_num {
        world.message(osd, 0, OsdPgCreated { version: 0, pg: PgId::new(1, seed) });
    }
    assert!(!world.map().pools[&1].has_flag(flags::pool::CREATING));
    world.restart();
    assert_eq!(world.mon.state().osd.creating().count(), 0);
    world.check();
}

#[test]
fn erasure_coded_pools_are_set_for_overwrites_once_and_for_fast_reads_at_will() {
    let (mut world, admin) = world_with_pool();
    let create = r#"{"prefix":"osd pool create","pool":"ec","pg_num":8,"pool_type":"erasure"}"#;
    assert_eq!(world.ask(admin, create).map(|ack| ack.result), Some(0));
    let set = |world: &mut World, pool: &str, var: &str, val: &str| {
        let command = format!(r#"{{"prefix":"osd pool set","pool":"{pool}","var":"{var}","val":"{val}"}}"#);
        let result = world.ask(admin, &command).expect("an answer").result;
        let id = world.map().pool_by_name("ec").expect("the pool");
        let pool = world.map().pool(id).expect("the pool");
        (result, pool.has_flag(flags::pool::EC_OVERWRITES), pool.fast_read)
    };
    let refused = Errno::EINVAL.negated();
    for var in ["allow_ec_overwrites", "fast_read"] {
        assert_eq!(set(&mut world, "p", var, "true"), (refused, false, false), "{var} of a replicated pool");
        assert_eq!(set(&mut world, "ec", var, "perhaps"), (refused, false, false), "{var}");
    }
    assert_eq!(set(&mut world, "ec", "allow_ec_overwrites", "false"), (refused, false, false));
    assert_eq!(set(&mut world, "ec", "allow_ec_overwrites", "true"), (0, true, false));
    assert_eq!(set(&mut world, "ec", "allow_ec_overwrites", "true"), (0, true, false));
    assert_eq!(set(&mut world, "ec", "allow_ec_overwrites", "false"), (refused, true, false), "no way back");
    assert_eq!(set(&mut world, "ec", "fast_read", "1"), (0, true, true));
    assert_eq!(set(&mut world, "ec", "fast_read", "0"), (0, true, false));
    world.check();
}

#[test]
fn a_pool_gets_more_groups_once_the_first_are_made() {
    let (mut world, admin) = world_with_pool();
    let osd = world.connect("osd.0");
    let all = world.map().pools[&1].pg_num;
    for var in ["pg_num", "pgp_num"] {
        let more = format!(r#"{{"prefix":"osd pool set","pool":"p","var":"{var}","val":"{}"}}"#, all + 2);
        assert_eq!(world.ask(admin, &more).map(|ack| ack.result), Some(0));
    }
    let numbers = |world: &World| {
        let pool = &world.map().pools[&1];
        (pool.pg_num, pool.pg_num_pending, pool.pgp_num)
    };
    let wanted = |world: &World| {
        let pool = &world.map().pools[&1];
        (pool.pg_num_target, pool.pgp_num_target)
    };
    assert_eq!((numbers(&world), wanted(&world)), ((all, all, all), (all + 2, all + 2)));
    for seed in 1..all {
        world.message(osd, 0, OsdPgCreated { version: 0, pg: PgId::new(1, seed) });
    }
    for young in [0, pg_state::CREATING | pg_state::PEERING, pg_state::ACTIVATING, pg_state::PEERED] {
        report(&mut world, osd, |stat| stat.state = young);
        assert_eq!(numbers(&world), (all, all, all), "state {young:x}: the last one is not made yet");
    }
    world.restart();
    assert_eq!((numbers(&world), wanted(&world)), ((all, all, all), (all + 2, all + 2)));
    let osd = world.connect("osd.0");
    report(&mut world, osd, |_| {});
    assert!(!world.map().pools[&1].has_flag(flags::pool::CREATING));
    assert_eq!(numbers(&world), (all + 2, all + 2, all + 2));
    assert_eq!(world.mon.state().osd.creating().count(), 0, "what splits off needs no order");
    world.check();
}

/// As in Ceph: placement follows, unless an operator has given it a number of its own.
#[test]
fn placement_follows_the_number_of_pgs() {
    let (mut world, admin) = world_with_pool();
    let osd = world.connect("osd.0");
    let all = world.map().pools[&1].pg_num;
    for seed in 0..all {
        world.message(osd, 0, OsdPgCreated { version: 0, pg: PgId::new(1, seed) });
    }
    let set = |world: &mut World, var: &str, number: u32| {
        let command = format!(r#"{{"prefix":"osd pool set","pool":"p","var":"{var}","val":"{number}"}}"#);
        assert_eq!(world.ask(admin, &command).map(|ack| ack.result), Some(0));
    };
    let numbers = |world: &World| {
        let pool = &world.map().pools[&1];
        (pool.pg_num, pool.pgp_num, pool.pgp_num_target)
    };
    set(&mut world, "pg_num", 2 * all);
    assert_eq!(numbers(&world), (2 * all, all, 2 * all), "PGs are divided before they move");
    for _ in 0..40 {
        let now = world.map().epoch;
        report(&mut world, osd, |stat| stat.reported_epoch = now);
        world.pass(Duration::from_secs(2));
    }
    assert_eq!(numbers(&world), (2 * all, 2 * all, 2 * all));
    set(&mut world, "pgp_num", all);
    set(&mut world, "pg_num", 2 * all + 1);
    assert_eq!(numbers(&world), (2 * all + 1, all, all), "the operator's own");
}

#[test]
fn trimmed_snapshots_leave_the_queue_and_quotas_close_the_pool() {
    let (mut world, admin) = world_with_pool();
    let osd = world.connect("osd.0");
    op(&mut world, admin, 1, code::CREATE_UNMANAGED_SNAP, "", 0);
    op(&mut world, admin, 1, code::DELETE_UNMANAGED_SNAP, "", 2);
    if let Some(pool) = world.mon.state.osd.change_pool(1) {
        pool.quota_max_objects = 10;
    }
    report(&mut world, osd, |stat| {
        stat.stats.sum.num_objects = 1;
        stat.purged_snaps.insert(2, 1);
    });
    world.pass(Duration::from_secs(2));
    assert!(!world.map().removed_snaps_queue.contains_key(&1));
    let full = flags::pool::FULL | flags::pool::FULL_QUOTA;
    assert!(world.map().pools[&1].has_flag(full), "32 PGs with an object each");
    report(&mut world, osd, |stat| stat.reported_seq = 2);
    world.pass(Duration::from_secs(2));
    assert!(!world.map().pools[&1].has_flag(flags::pool::FULL));
    world.check();
}

#[test]
fn blocklist_entries_end_by_themselves() {
    let mut world = World::new(1);
    let addr = nacre_types::EntityAddr::parse("127.0.0.1:0/55").expect("a valid address");
    world.mon.state.osd.blocklist_add(addr, world.wall.after(Duration::from_secs(30)));
    world.settle();
    assert!(world.map().is_blocklisted(&addr));
    world.pass(Duration::from_secs(31));
    assert!(!world.map().is_blocklisted(&addr));
    world.check();
}

#[test]
fn a_pool_loses_groups_one_at_a_time_when_both_stand_still() {
    let (mut world, admin) = world_with_pool();
    let osd = world.connect("osd.0");
    for seed in 0..world.map().pools[&1].pg_num {
        world.message(osd, 0, OsdPgCreated { version: 0, pg: PgId::new(1, seed) });
    }
    let all = world.map().pools[&1].pg_num;
    let numbers = |world: &World| {
        let pool = &world.map().pools[&1];
        (pool.pg_num, pool.pg_num_pending, pool.pgp_num)
    };
    let lower = format!(r#"{{"prefix":"osd pool set","pool":"p","var":"pg_num","val":"{}"}}"#, all - 1);
    assert_eq!(world.ask(admin, &lower).map(|ack| ack.result), Some(0));
    assert_eq!(numbers(&world), (all, all, all), "nothing at once");
    world.pass(Duration::from_secs(2));
    assert_eq!(numbers(&world), (all, all, all - 1), "placement goes first");
    report(&mut world, osd, |stat| stat.reported_seq = 2);
    world.pass(Duration::from_secs(2));
    assert_eq!(numbers(&world), (all, all, all - 1), "these reports are older than the placement");
    let now = world.map().epoch;
    report(&mut world, osd, |stat| stat.reported_epoch = now);
    world.pass(Duration::from_secs(2));
    assert_eq!(numbers(&world), (all, all - 1, all - 1));
    let pg = PgId::new(1, all - 1);
    let primary = world.map().pg_to_up_acting(pg).acting_primary;
    let speaker = world.connect(&format!("osd.{primary}"));
    let early = u64::from(world.map().pools[&1].last_change) - 1;
    let said = |world: &mut World, session, version: u64, ready| {
        let message = nacre_msg::OsdPgReadyToMerge { version, pg, ready, ..Default::default() };
        world.message(session, 0, message);
        world.pass(Duration::from_secs(1));
    };
    said(&mut world, speaker, early, true);
    assert_eq!(numbers(&world), (all, all - 1, all - 1), "said before they were to stand still");
    let epoch = world.map().epoch.into();
    let other = world.connect(&format!("osd.{}", (primary + 1) % 3));
    said(&mut world, other, epoch, true);
    assert_eq!(numbers(&world), (all, all - 1, all - 1), "only the primary knows");
    said(&mut world, speaker, epoch, false);
    assert_eq!(numbers(&world), (all, all, all - 1), "not now");
    let now = world.map().epoch;
    report(&mut world, osd, |stat| (stat.reported_epoch, stat.reported_seq) = (now, 9));
    world.pass(Duration::from_secs(2));
    assert_eq!(numbers(&world), (all, all - 1, all - 1), "but later");
    let epoch = world.map().epoch.into();
    said(&mut world, speaker, epoch, true);
    assert_eq!(numbers(&world), (all - 1, all - 1, all - 1));
    let merge = world.map().pools[&1].last_pg_merge;
    assert_eq!((merge.source, u64::from(merge.ready_epoch)), (pg, epoch));
    world.check();
}

/// An OSD with several shards says so, and whether it can bring PGs together: what it could not do is refused, and not begun when it comes
/// later.
#[test]
fn pgs_on_different_shards_of_an_osd_are_not_to_be_merged() {
    let (mut world, admin) = world_with_pool();
    let osd = world.connect("osd.0");
    let all = world.map().pools[&1].pg_num;
    for seed in 0..all {
        world.message(osd, 0, OsdPgCreated { version: 0, pg: PgId::new(1, seed) });
    }
    let set = |world: &mut World, pg_num: u32| {
        let json = format!(r#"{{"prefix":"osd pool set","pool":"p","var":"pg_num","val":"{pg_num}"}}"#);
        world.ask(admin, &json).map(|ack| ack.result)
    };
    let boot = |world: &mut World, shards: &str, relocates: bool| {
        world.ask(admin, r#"{"prefix":"osd down","ids":["2"]}"#);
        let session = world.connect("osd.2");
        let boot_epoch = world.map().epoch;
        world.boot_as(session, 2, 1, |mut boot| {
            boot.metadata.insert("nacre_shards".to_owned(), shards.to_owned());
            if relocates {
                boot.metadata.insert("nacre_relocates_pgs".to_owned(), "1".to_owned());
            }
            OsdBoot { boot_epoch, ..boot }
        });
        world.pass(Duration::from_secs(2));
        assert!(world.map().is_up(2));
    };
    boot(&mut world, "2", false);
    assert_eq!(set(&mut world, 1), Some(Errno::EOPNOTSUPP.negated()));
    world.ask(admin, r#"{"prefix":"osd down","ids":["2"]}"#);
    world.pass(Duration::from_secs(1));
    assert!(!world.map().is_up(2));
    assert_eq!(set(&mut world, 1), Some(Errno::EOPNOTSUPP.negated()), "it comes back with what it has");
    assert_eq!(set(&mut world, 2), Some(0), "an even distance");
    assert_eq!(world.map().pools[&1].pg_num_target, 2);
    boot(&mut world, "3", false);
    world.pass(Duration::from_secs(2));
    let epoch = world.map().epoch;
    report(&mut world, osd, |stat| (stat.reported_epoch, stat.acting_primary) = (epoch, 0));
    world.pass(Duration::from_secs(10));
    let pool = &world.map().pools[&1];
    assert_eq!((pool.pg_num, pool.pg_num_pending), (all, all), "nothing begins that does not end");
    boot(&mut world, "3", true);
    let epoch = world.map().epoch;
    report(&mut world, osd, |stat| (stat.reported_epoch, stat.acting_primary) = (epoch, 0));
    world.pass(Duration::from_secs(10));
    assert_eq!(world.map().pools[&1].pg_num_pending, all - 1, "this one brings them together");
    assert_eq!(set(&mut world, 1), Some(0));
    world.check();
}

/// The PG that ends is copied to the other's partition: begun only where there is room for that.
#[test]
fn pgs_on_different_shards_wait_for_room() {
    let (mut world, admin) = world_with_pool();
    let osd = world.connect("osd.0");
    let all = world.map().pools[&1].pg_num;
    for seed in 0..all {
        world.message(osd, 0, OsdPgCreated { version: 0, pg: PgId::new(1, seed) });
    }
    world.ask(admin, r#"{"prefix":"osd down","ids":["0"]}"#);
    let osd = world.connect("osd.0");
    let boot_epoch = world.map().epoch;
    world.boot_as(osd, 0, 1, |mut boot| {
        for (key, value) in [("nacre_shards", "3"), ("nacre_relocates_pgs", "1")] {
            boot.metadata.insert(key.to_owned(), value.to_owned());
        }
        OsdBoot { boot_epoch, ..boot }
    });
    world.pass(Duration::from_secs(2));
    let lower = format!(r#"{{"prefix":"osd pool set","pool":"p","var":"pg_num","val":"{}"}}"#, all - 1);
    assert_eq!(world.ask(admin, &lower).map(|ack| ack.result), Some(0));
    let waits = |world: &World| {
        let checks = crate::health::checks(world.mon.state());
        checks.into_iter().find(|check| check.code == "POOL_MERGE_WAITS").map(|check| check.detail)
    };
    // First they are placed together.
    world.pass(Duration::from_secs(5));
    let epoch = world.map().epoch;
    // The report tells of nothing available.
    report(&mut world, osd, |stat| {
        (stat.reported_epoch, stat.acting_primary) = (epoch, 0);
        stat.stats.sum.num_bytes = 1 << 20;
    });
    world.pass(Duration::from_secs(5));
    assert_eq!(world.map().pools[&1].pg_num_pending, all, "it waits");
    let said = waits(&world).expect("a check");
    assert_eq!(said, ["pool 'p': osd.0 has no room to bring both pgs to one part of its store"]);
    let epoch = world.map().epoch;
    report(&mut world, osd, |stat| {
        (stat.reported_epoch, stat.reported_seq, stat.acting_primary) = (epoch, 9, 0);
    });
    world.pass(Duration::from_secs(5));
    assert_eq!(world.map().pools[&1].pg_num_pending, all - 1, "an empty one needs no room");
    assert_eq!(waits(&world), None);
}

#[test]
fn a_merge_is_called_off_when_an_osd_goes_down() {
    let (mut world, admin) = world_with_pool();
    let osd = world.connect("osd.0");
    for seed in 0..world.map().pools[&1].pg_num {
        world.message(osd, 0, OsdPgCreated { version: 0, pg: PgId::new(1, seed) });
    }
    let all = world.map().pools[&1].pg_num;
    let lower = format!(r#"{{"prefix":"osd pool set","pool":"p","var":"pg_num","val":"{}"}}"#, all - 1);
    world.ask(admin, &lower);
    world.pass(Duration::from_secs(2));
    let now = world.map().epoch;
    report(&mut world, osd, |stat| stat.reported_epoch = now);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.map().pools[&1].pg_num_pending, all - 1);
    world.ask(admin, r#"{"prefix":"osd down","ids":["2"]}"#);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.map().pools[&1].pg_num_pending, all, "both serve again");
    assert_eq!(world.map().pools[&1].pg_num, all);
}
