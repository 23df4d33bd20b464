//! What one event asks of a disk, while a pool with many objects gets more PGs, and fewer, and loses snapshots. Nothing of it
//! may grow with the number of objects: heartbeats and all other PGs wait for the event's end.

use super::merge::{announce, prepare};
use crate::harness::{POOL, Touched, World, head, spg};
use crate::snap::mapper;
use crate::storage;
use nacre_buf::Bytes;
use nacre_msg::SubOp;
use nacre_txn::Transaction;
use nacre_types::{HObject, OsdId, PgId, SnapId, SpgId};
use std::time::Duration;

const PG_NUM: u32 = 4;
/// For one event, however many objects there are.
const BOUND: Touched = Touched { objects: 1000, keys: 400, changes: 1200, bytes: 512 << 10 };

fn child(seed: u32) -> SpgId {
    SpgId::replicated(PgId::new(spg().pg.pool, seed))
}

fn write(text: &str) -> Vec<SubOp> {
    vec![SubOp::write_full(Bytes::from(text.to_owned()).into())]
}

/// A PG of so many objects, every tenth with a clone that `snap` keeps.
fn filled(objects: usize, snap: SnapId) -> World {
    let mut world = World::new(7, 1);
    world.run_until_idle();
    world.call(0, "plain", write("x"));
    world.call(0, "cloned", write("x"));
    world.request_with_snaps(0, "cloned", write("newer"), vec![snap]);
    world.run_until_idle();
    let stored = |world: &World, object: &HObject| world.stored_as(object).expect("just written").clone();
    let plain = stored(&world, &head("plain"));
    let cloned = (stored(&world, &head("cloned")), stored(&world, &head("cloned").with_snap(snap)));
    for osd in 0..3 {
        for n in 0..objects {
            let name = head(&format!("o{n}"));
            if n % 10 > 0 {
                world.disk(osd).plant(name, plain.clone());
                continue;
            }
            let clone = name.with_snap(snap);
            let mut ops = Vec::new();
            mapper::insert(&clone, &[snap], &mut ops);
            ops.iter().for_each(|op| world.disk(osd).plant_value(op));
            world.disk(osd).plant(clone, cloned.1.clone());
            world.disk(osd).plant(name, cloned.0.clone());
        }
        let counters = &mut world.pg(osd).expect("a copy").state.info.counters;
        let count = i64::try_from(objects).expect("small");
        let clones = i64::try_from(objects.div_ceil(10)).expect("small");
        (counters.objects, counters.clones) = (counters.objects + count + clones, counters.clones + clones);
        let pg = world.pg(osd).expect("a copy");
        let mut txn = Transaction::new(spg());
        storage::save_info(&mut txn, pg.info(), pg.epoch());
        txn.ops.iter().for_each(|op| world.disk(osd).plant_value(op));
    }
    world.most_touched = Touched::default();
    world
}

fn assert_bound(world: &World) {
    assert_eq!(world.most_touched.max(BOUND), BOUND, "{:?}", world.most_touched);
}

fn split(world: &mut World) {
    world.publish(|map| map.pools.values_mut().for_each(|pool| pool.pg_num = PG_NUM));
}

/// Every copy has divided its objects, snapshot entries and sums by the PGs that they belong to.
fn assert_divided(world: &mut World, objects: usize, snap: SnapId) {
    let clones = objects.div_ceil(10) + 1;
    for osd in 0..3 {
        let info = world.pg(osd).expect("a copy").info().clone();
        let mut sums = info.counters;
        let mut count = world.disk(osd).objects().len();
        assert!(world.disk(osd).objects().keys().all(|object| object.pg(PG_NUM) == spg().pg));
        let mut seen = mapper::clones(world.disk(osd), &spg(), snap, usize::MAX).len();
        for seed in 1..PG_NUM {
            let disk = world.disk(osd).child(&child(seed)).expect("it was split off");
            let saved = storage::load(&disk, &child(seed)).expect("readable records");
            assert!(disk.objects().keys().all(|object| object.pg(PG_NUM) == child(seed).pg));
            assert!(saved.progress.is_none() && saved.missing.is_empty());
            count += disk.objects().len();
            seen += mapper::clones(&disk, &child(seed), snap, usize::MAX).len();
            sums.add(&saved.info.counters);
        }
        assert_eq!((count, seen), (objects + 2 + clones, clones), "osd.{osd}");
        assert_eq!(
            (sums.objects, sums.clones),
            (i64::try_from(count).expect("small"), i64::try_from(clones).expect("small"))
        );
    }
}

#[test]
fn no_turn_of_a_split_grows_with_the_number_of_objects() {
    const OBJECTS: usize = 100_000;
    let mut world = filled(OBJECTS, SnapId(1));
    split(&mut world);
    world.run_until_idle();
    assert_bound(&world);
    assert_divided(&mut world, OBJECTS, SnapId(1));
}

/// The state of a copy that is at work.
fn is_moving(world: &mut World, osd: OsdId) -> bool {
    world.pg(osd).is_some_and(|pg| pg.is_moving())
}

/// Lets things happen until `osd` moves objects, and has moved some.
fn until_halfway(world: &mut World, osd: OsdId) {
    while !is_moving(world, osd) {
        assert!(world.step(), "{}", world.describe());
    }
    for _ in 0..60 {
        world.step();
    }
    assert!(is_moving(world, osd), "it was done already");
}

#[test]
fn a_split_goes_on_after_a_crash_and_takes_nothing_for_missing() {
    const OBJECTS: usize = 4_000;
    for osd in 0..3 {
        let mut world = filled(OBJECTS, SnapId(1));
        world.call(0, "o7", write("in the log"));
        split(&mut world);
        until_halfway(&mut world, osd);
        world.crash(osd);
        world.restart(osd);
        assert!(!is_moving(&mut world, osd));
        let lacks = world.pg(osd).map(|pg| pg.state.missing.len());
        assert_eq!(lacks, Some(0));
        // What comes meanwhile waits, and is answered.
        let ours = (0..100).map(|n| format!("o{n}")).find(|name| head(name).pg(PG_NUM) == spg().pg);
        let ours = ours.expect("one of so many");
        let tid = world.request(0, &ours, write("while objects move"));
        world.heal();
        assert_eq!(world.clients[0].replies.get(&tid).map(|reply| reply.result), Some(0));
        assert_divided(&mut world, OBJECTS, SnapId(1));
        world.assert_equal_copies();
    }
}

/// A peer that is further already may call for a PG that is yet to be split off, by a map that waits: made anew, it would be
/// empty, and its objects would stay where nobody looks for them.
#[test]
fn pgs_of_maps_that_wait_for_a_split_are_coming_too() {
    let mut world = filled(4_000, SnapId(1));
    world.publish(|map| map.pools.values_mut().for_each(|pool| pool.pg_num = 2));
    until_halfway(&mut world, 1);
    let coming = |world: &mut World| {
        let pg = world.pg(1).expect("a copy");
        (0..8).filter(|seed| pg.is_splitting_off(&child(*seed))).collect::<Vec<_>>()
    };
    let newest_pg_num = |world: &mut World| {
        let pg = world.pg(1).expect("a copy");
        pg.moves.newest_seen(&pg.state).1
    };
    assert_eq!(coming(&mut world), [1]);
    split(&mut world);
    while newest_pg_num(&mut world) != PG_NUM {
        assert!(world.step(), "{}", world.describe());
    }
    assert!(is_moving(&mut world, 1), "it was done already");
    assert_eq!(coming(&mut world), [1, 2, 3]);
    world.run_until_idle();
    assert_eq!(coming(&mut world), [0; 0]);
}

#[test]
fn a_merge_goes_on_after_a_crash_in_turns_that_do_not_grow() {
    const OBJECTS: usize = 4_000;
    for osd in 0..3 {
        let mut world = filled(OBJECTS, SnapId(1));
        world.publish(|map| map.pools.values_mut().for_each(|pool| pool.pg_num = 2));
        world.run_until_idle();
        let state = prepare(&mut world);
        announce(&mut world, &state);
        until_halfway(&mut world, osd);
        world.crash(osd);
        world.heal();
        world.assert_equal_copies();
        assert_bound(&world);
        for osd in 0..3 {
            let clones = mapper::clones(world.disk(osd), &spg(), SnapId(1), usize::MAX);
            assert_eq!(clones.len(), OBJECTS / 10 + 1);
            assert_eq!(world.disk(osd).objects().len(), OBJECTS + 3 + OBJECTS / 10, "osd.{osd}");
            let info = world.pg(osd).expect("a copy").info();
            assert!(!info.is_incomplete() && info.last_complete == info.last_update, "osd.{osd}");
        }
        let reply = world.call(0, "o0", vec![SubOp::read(0, 0)]);
        assert_eq!(reply.result, 0);
    }
}

#[test]
fn no_turn_of_trimming_grows_with_clones_or_snapshots() {
    const OBJECTS: usize = 20_000;
    let snap = SnapId(900_000);
    let mut world = filled(OBJECTS, snap);
    world.publish(|map| map.removed_snaps_queue.entry(POOL).or_default().insert(1, 1_000_000));
    for _ in 0..3 {
        world.run_until_idle();
        world.tick(Duration::from_secs(1));
    }
    assert_bound(&world);
    assert_eq!(world.purged.total(), 1_000_000);
    assert!(mapper::clones(world.disk(0), &spg(), snap, 1).is_empty());
    assert_eq!(world.disk(0).objects().len(), OBJECTS + 2);
}
