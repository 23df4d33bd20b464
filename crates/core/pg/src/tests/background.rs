//! Trimming, scrubbing, copying, moving to other OSDs.

use crate::harness::{World, head};
use crate::log::LogLimits;
use crate::{Event, OpStage};
use nacre_buf::Bytes;
use nacre_msg::SubOp;
use nacre_msg::stats::pg_state;
use nacre_txn::{Op, Token, Transaction};
use nacre_types::{ObjectLocator, PgId, SnapId, UTime};
use std::time::Duration;

fn write(text: &str) -> Vec<SubOp> {
    vec![SubOp::write_full(text.as_bytes().to_vec().into())]
}

fn state(world: &mut World) -> String {
    let primary = world.primary();
    pg_state::text(world.pg(primary).map_or(0, |pg| pg.state()))
}

#[test]
fn removed_snapshots_lose_their_clones() {
    let mut world = World::new(1, 1);
    world.run_until_idle();
    for snap in 1..=40 {
        for name in ["a", "b"] {
            let snaps = (1..=snap).rev().map(SnapId).collect();
            world.request_with_snaps(0, name, write(&format!("{snap}")), snaps);
        }
        world.run_until_idle();
    }
    assert_eq!(world.disk(0).objects().len(), 2 + 2 * 39);
    world.publish(|map| map.removed_snaps_queue.entry(3).or_default().insert(1, 40));
    world.heal();
    assert_eq!(world.disk(0).objects().len(), 2);
    assert_eq!(world.purged.total(), 40);
    world.assert_equal_copies();
    let primary = world.primary();
    let counters = world.pg(primary).expect("a PG").info().counters;
    assert_eq!((counters.objects, counters.clones), (2, 0));
    assert_eq!(state(&mut world), "active+clean");
}

#[test]
fn a_scrub_finds_what_differs() {
    let mut world = World::new(2, 1);
    world.run_until_idle();
    for n in 0..100 {
        world.request(0, &format!("o{n}"), write("same"));
    }
    world.run_until_idle();
    let primary = world.primary();
    let scrub = |world: &mut World, deep| {
        world.event(primary, Event::Scrub { deep, repair: false });
        world.run_until_idle();
        state(world)
    };
    assert_eq!(scrub(&mut world, true), "active+clean");
    let history = world.pg(primary).expect("a PG").info().history;
    assert!(history.last_scrub_stamp > UTime::ZERO && history.last_deep_scrub_stamp > UTime::ZERO);
    let mut rot = Transaction::new(crate::harness::spg());
    rot.push(Op::Write { object: head("o7"), offset: 1, data: Bytes::from_static(b"x").into() });
    world.disk(2).submit(rot, Token(u64::MAX));
    assert_eq!(scrub(&mut world, false), "active+clean", "only the data differs");
    assert_eq!(scrub(&mut world, true), "active+clean+inconsistent");
}

#[test]
fn a_scrub_needs_no_memory_for_a_whole_chunk() {
    let mut world = World::new(4, 1);
    for osd in 0..3 {
        let disk = world.disk(osd);
        (disk.slow, disk.narrow) = (true, true);
    }
    world.run_until_idle();
    for n in 0..20 {
        world.request(0, &format!("o{n}"), write("same"));
    }
    world.run_until_idle();
    let mut rot = Transaction::new(crate::harness::spg());
    rot.push(Op::Write { object: head("o7"), offset: 1, data: Bytes::from_static(b"x").into() });
    world.disk(2).submit(rot, Token(u64::MAX));
    let primary = world.primary();
    world.event(primary, Event::Scrub { deep: true, repair: false });
    world.run_until_idle();
    assert_eq!(state(&mut world), "active+clean+inconsistent");
}

#[test]
fn what_changes_while_it_is_read_is_no_difference() {
    let mut world = World::new(5, 1);
    (0..3).for_each(|osd| world.disk(osd).slow = true);
    world.run_until_idle();
    let objects: Vec<String> = (0..8).map(|n| format!("o{n}")).collect();
    for name in &objects {
        world.request(0, name, write("before"));
    }
    world.run_until_idle();
    (0..3).for_each(|osd| world.disk(osd).cool_down());
    let primary = world.primary();
    world.event(primary, Event::Scrub { deep: true, repair: false });
    for name in &objects {
        for _ in 0..20 {
            world.step();
        }
        world.request(0, name, write("behind"));
    }
    world.run_until_idle();
    assert_eq!(state(&mut world), "active+clean");
    let history = world.pg(primary).expect("a PG").info().history;
    assert!(history.last_deep_scrub_stamp > UTime::ZERO);
}

/// Clients write to all objects all the time, and data come from the device: the copies are never all listed at the same moment, but of
/// an object whose writes wait. A copy that is wrong where nobody writes is found all the same.
#[test]
fn what_changes_all_the_time_is_compared_while_its_writes_wait() {
    let names: Vec<String> = (0..12).map(|n| format!("o{n}")).collect();
    let mut held = 0;
    for (seed, rotten) in (0..12).map(|seed| (seed, seed % 2 == 1)) {
        let mut world = World::new(seed, 1);
        (0..3).for_each(|osd| world.disk(osd).slow = true);
        world.run_until_idle();
        for name in &names {
            world.request(0, name, write(&"before".repeat(9)));
        }
        world.run_until_idle();
        if rotten {
            let mut rot = Transaction::new(crate::harness::spg());
            rot.push(Op::Write { object: head("o7"), offset: 40, data: Bytes::from_static(b"x").into() });
            world.disk(2).submit(rot, Token(u64::MAX));
        }
        let primary = world.primary();
        world.event(primary, Event::Scrub { deep: true, repair: false });
        let mut steps = 0;
        while world.pg(primary).is_some_and(|pg| pg.is_scrubbing()) {
            (0..3).for_each(|osd| world.disk(osd).cool_down());
            let name = &names[world.pick(names.len())];
            let tick = vec![SubOp::write(0, Bytes::from(format!("{steps:06}")).into())];
            world.request(0, name, tick);
            for _ in 0..4 {
                world.step();
            }
            let waits = world.pg(primary).expect("a PG").ops_in_flight();
            held += waits.filter(|op| op.stage == OpStage::Scrub).count();
            steps += 1;
            assert!(steps < 20_000, "seed {seed}: no end: {}", world.describe());
        }
        world.run_until_idle();
        let wanted = if rotten { "active+clean+inconsistent" } else { "active+clean" };
        assert_eq!(state(&mut world), wanted, "seed {seed}");
        assert_eq!(world.clients[0].replies.len(), names.len() + steps, "seed {seed}: all are answered");
        if !rotten {
            world.assert_equal_copies();
        }
    }
    assert!(held > 0, "writes waited");
}

/// Writes of one object end in the order in which they came, however little of them a turn has room for while a scrub holds some of them
/// and lets them go.
#[test]
fn writes_keep_their_order_when_a_scrub_lets_them_go() {
    let mut held = 0;
    for seed in 0..20 {
        let mut world = World::new(seed, 1);
        (0..3).for_each(|osd| world.disk(osd).slow = true);
        world.run_until_idle();
        let names = ["a", "b"];
        for name in names {
            world.request(0, name, write(&"before".repeat(500)));
        }
        world.run_until_idle();
        let primary = world.primary();
        let (mut steps, mut last) = (0, [None; 2]);
        let mut newest = [b"before".to_vec(), b"before".to_vec()];
        for _ in 0..1500 {
            if world.pg(primary).is_some_and(|pg| !pg.is_scrubbing()) {
                world.event(primary, Event::Scrub { deep: true, repair: false });
            }
            (0..3).for_each(|osd| world.disk(osd).cool_down());
            let at = world.pick(names.len());
            if world.chance(3) {
                world.request(0, names[at], vec![SubOp::read(0, 100), SubOp::read(2000, 100)]);
            } else {
                world.request(0, names[at], vec![SubOp::write(0, Bytes::from(format!("{steps:06}")).into())]);
                last[at] = Some(steps);
            }
            for _ in 0..3 {
                world.throttle(primary).turn.begin(1);
                world.step();
            }
            let waits = world.pg(primary).expect("a PG").ops_in_flight();
            held += waits.filter(|op| op.stage == OpStage::Scrub).count();
            steps += 1;
            for (name, newest) in names.into_iter().zip(&mut newest) {
                let stored =
                    world.disk(primary).objects().get(&head(name)).map(|stored| stored.data[..6].to_vec());
                let stored = stored.expect("it is there");
                assert!(
                    stored >= *newest || newest == b"before",
                    "seed {seed}: {name}: {stored:?} behind {newest:?}"
                );
                *newest = stored;
            }
        }
        world.throttle(primary).turn.begin(u64::MAX);
        world.tick(Duration::from_secs(1));
        world.run_until_idle();
        for (name, last) in names.into_iter().zip(last) {
            let data = &world.stored(name).expect("it is there").data;
            let wanted = last.map_or("before".to_owned(), |last| format!("{last:06}"));
            assert_eq!(data[..6], *wanted.as_bytes(), "seed {seed}: {name}");
        }
        world.assert_equal_copies();
    }
    assert!(held > 0, "writes waited");
}

#[test]
fn an_object_is_copied_within_the_cluster() {
    let mut world = World::new(3, 1);
    (0..3).for_each(|osd| world.disk(osd).slow = true);
    world.run_until_idle();
    world.call(0, "source", write("content"));
    (0..3).for_each(|osd| world.disk(osd).cool_down());
    let copy = |name: &str| vec![SubOp::copy_of(name, &ObjectLocator::in_pool(3), 0)];
    assert_eq!(world.call(0, "target", copy("source")).result, 0);
    assert_eq!(world.stored("target").expect("the copy").data, b"content");
    assert_eq!(world.call(0, "other", copy("nothing")).result, nacre_types::Errno::ENOENT.negated());
    world.assert_equal_copies();
}

#[test]
fn new_members_get_everything_and_old_ones_drop_it() {
    let mut world = World::new(4, 1);
    world.limits = LogLimits { target: 10, trim_min: 1, max: 20, ..LogLimits::default() };
    (0..3).for_each(|osd| world.pg(osd).into_iter().for_each(|pg| pg.set_log_limits(world_limits())));
    world.run_until_idle();
    for n in 0..200 {
        world.request(0, &format!("o{n}"), write("x"));
    }
    world.run_until_idle();
    world.publish(|map| drop(map.pg_upmap.insert(PgId::new(3, 0), vec![3, 4, 2])));
    world.heal();
    assert_eq!(state(&mut world), "active+clean");
    assert_eq!(world.map().pg_to_up_acting(PgId::new(3, 0)).acting, [3, 4, 2]);
    world.assert_equal_copies();
    assert!(world.pg(0).is_none() && world.pg(1).is_none(), "strays are released");
    assert_eq!(world.disk(3).objects().len(), 200);
}

fn world_limits() -> LogLimits {
    LogLimits { target: 10, trim_min: 1, max: 20, ..LogLimits::default() }
}

/// While too few members have the objects, those that do serve in their place.
#[test]
fn a_move_does_not_stop_clients() {
    let mut world = World::new(5, 1);
    world.run_until_idle();
    (0..3).for_each(|osd| world.pg(osd).into_iter().for_each(|pg| pg.set_log_limits(world_limits())));
    for n in 0..100 {
        world.request(0, &format!("o{n}"), write("x"));
    }
    world.run_until_idle();
    world.publish(|map| drop(map.pg_upmap.insert(PgId::new(3, 0), vec![3, 4])));
    let tid = world.request(0, "o5", write("y"));
    world.run_until_idle();
    world.tick(Duration::from_secs(1));
    world.run_until_idle();
    assert!(world.clients[0].replies.contains_key(&tid), "{}", world.describe());
}
