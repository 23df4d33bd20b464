//! A pool gets fewer PGs: what belonged to them comes back, on every copy alike.

use crate::harness::{World, spg};
use crate::{MergeRole, MergeState, storage};
use nacre_buf::Bytes;
use nacre_maps::{OsdMap, PgMerge, flags};
use nacre_msg::SubOp;
use nacre_msg::peer::{PgInfo, Shards};
use nacre_msg::stats::pg_state;
use nacre_txn::Transaction;
use nacre_types::{OsdId, PgId, SnapId, SpgId};
use std::time::Duration;

fn write(text: &str) -> Vec<SubOp> {
    vec![SubOp::write_full(Bytes::from(text.to_owned()).into())]
}

fn child() -> SpgId {
    SpgId::replicated(PgId::new(spg().pg.pool, 1))
}

/// Forty objects in two PGs, the second of which nobody serves.
fn split(seed: u64) -> World {
    split_of(World::new(seed, 2))
}

fn split_of(mut world: World) -> World {
    world.run_until_idle();
    world.clients[0].backs_off = true;
    for n in 0..40 {
        world.call(0, &format!("o{n}"), write(&format!("content {n}")));
    }
    world.request_with_snaps(0, "o7", write("newer"), vec![SnapId(1)]);
    world.run_until_idle();
    world.publish(|map| map.pools.values_mut().for_each(|pool| pool.pg_num = 2));
    world.run_until_idle();
    world
}

/// A name that belongs to the PG that stays.
fn ours() -> String {
    let mut names = (0..40).map(|n| format!("o{n}"));
    names.find(|name| crate::harness::head(name).pg(2) == spg().pg).expect("one of forty")
}

/// Both PGs stand still; what the primary of ours says of that.
pub(super) fn prepare(world: &mut World) -> MergeState {
    world.publish(|map| map.pools.values_mut().for_each(|pool| pool.pg_num_pending = 1));
    world.run_until_idle();
    world.tick(Duration::from_secs(1));
    world.merges.last().expect("the primary speaks of the merge").1
}

/// The map comes in which there is one PG again.
pub(super) fn announce(world: &mut World, state: &MergeState) {
    announce_with(world, state, |_| ());
}

fn announce_with(world: &mut World, state: &MergeState, change: impl FnOnce(&mut OsdMap)) {
    let copy = (0..3).find_map(|osd| world.disk(osd).child(&child())).expect("it was split off");
    let source = storage::load(&copy, &child()).expect("readable records");
    let record = PgMerge {
        source: child().pg,
        ready_epoch: state.epoch,
        last_epoch_started: state.last_epoch_started,
        last_epoch_clean: state.last_epoch_clean,
        source_version: source.info.last_update,
        target_version: state.version,
    };
    world.publish(|map| {
        for pool in map.pools.values_mut() {
            (pool.pg_num, pool.pg_num_pending, pool.last_pg_merge) = (1, 1, record);
        }
        change(map);
    });
}

fn merge(world: &mut World, state: &MergeState) {
    announce(world, state);
    world.run_until_idle();
}

fn state(world: &mut World) -> String {
    let primary = world.primary();
    pg_state::text(world.pg(primary).map_or(0, |pg| pg.state()))
}

#[test]
fn pgs_that_are_to_be_merged_serve_nobody_until_they_are() {
    let mut world = split(7);
    let said = prepare(&mut world);
    assert_eq!((said.role, said.source, said.clean), (MergeRole::Target, child().pg, true));
    assert_eq!(state(&mut world), "clean+premerge+peered");
    // One client holds its messages, the other's wait here.
    let held = (world.request(0, &ours(), write("a")), world.request(1, &ours(), write("b")));
    world.run_until_idle();
    assert_eq!((world.clients[0].sent.len(), world.clients[1].sent.len()), (1, 1));
    merge(&mut world, &said);
    assert_eq!(state(&mut world), "active+clean");
    let reply = |world: &World, at: usize, tid| world.clients[at].replies.get(&tid).map(|reply| reply.result);
    assert_eq!((reply(&world, 0, held.0), reply(&world, 1, held.1)), (Some(0), Some(0)));
    world.assert_equal_copies();
    let info = world.pg(0).expect("a copy").info();
    assert_eq!((info.counters.objects, info.counters.clones), (41, 1), "sums of both");
    assert_eq!(world.disk(0).objects().len(), 41);
    assert_eq!(world.call(0, "o7", write("again")).result, 0);
    // A merge that was called off is not one.
    world.publish(|map| map.pools.values_mut().for_each(|pool| pool.pg_num = 2));
    world.run_until_idle();
    prepare(&mut world);
    world.publish(|map| map.pools.values_mut().for_each(|pool| pool.pg_num_pending = 2));
    world.run_until_idle();
    assert_eq!(state(&mut world), "active+clean");
}

/// The second PG's copies lie on the OSDs in another order, as after moves to other OSDs and back, and stand still to be merged: all know
/// who has which.
fn reorder(world: &mut World, exchanges: &[(OsdId, OsdId)]) {
    for (one, other) in exchanges {
        let mut taken = std::mem::take(world.disk(*one));
        world.disk(*other).exchange_child(&child(), &mut taken);
        *world.disk(*one) = taken;
    }
    let epoch = world.map().epoch;
    let info = |world: &mut World, osd| {
        let copy = world.disk(osd).child(&child()).expect("it was split off");
        storage::load(&copy, &child()).expect("readable records").info
    };
    let shards: Shards = (0..3).map(|osd| (osd, info(world, osd).shard.expect("a shard"))).collect();
    for osd in 0..3 {
        let info = PgInfo { merge_shards: shards.clone(), ..info(world, osd) };
        let mut txn = Transaction::new(child());
        storage::save_info(&mut txn, &info, epoch);
        world.disk(osd).plant_value_of(&child(), &txn.ops[0]);
    }
}

fn read_all(world: &mut World) {
    for n in (0..40).filter(|n| *n != 7) {
        let reply = world.call(1, &format!("o{n}"), vec![SubOp::read(0, 0)]);
        assert_eq!(reply.ops[0].outdata.to_bytes(), format!("content {n}").as_bytes(), "o{n}");
    }
}

#[test]
fn shards_of_merged_pgs_go_on_with_the_chunks_that_they_have() {
    for (seed, exchanges) in [(1, &[][..]), (2, &[(0, 1)]), (3, &[(1, 2)]), (4, &[(0, 1), (1, 2)])] {
        let mut world = split_of(World::coded(seed, 2, 2, 1));
        let said = prepare(&mut world);
        assert!(said.clean);
        reorder(&mut world, exchanges);
        merge(&mut world, &said);
        assert_eq!(state(&mut world), "active+clean", "seed {seed}");
        let primary = world.primary();
        let mapping = world.pg(primary).expect("a copy").info().mapping.clone();
        assert_eq!(mapping.is_plain(), exchanges.is_empty(), "seed {seed}");
        world.assert_equal_copies();
        read_all(&mut world);
        world.call(0, "o9", write("content 9"));
        // Each copy in turn is made anew from the others.
        for osd in 0..3 {
            world.crash(osd);
            world.mark_down(osd);
            world.run_until_idle();
            world.call(0, "o8", write("content 8"));
            read_all(&mut world);
            world.lose(osd);
            world.heal();
            assert_eq!(state(&mut world), "active+clean", "seed {seed}, osd.{osd}");
            world.assert_equal_copies();
        }
        read_all(&mut world);
    }
}

/// One that is away for a moment, and comes back with the map in which the PGs are merged, has what it had; nobody was served meanwhile.
#[test]
fn a_member_that_is_away_for_a_moment_is_merged_with_the_others() {
    for away in [1, 2] {
        let mut world = split_of(World::coded(11, 2, 2, 1));
        let said = prepare(&mut world);
        reorder(&mut world, &[(0, 1), (1, 2)]);
        world.mark_down(away);
        world.run_until_idle();
        announce_with(&mut world, &said, |map| {
            let at = usize::try_from(away).expect("small");
            map.osd_state[at] |= flags::osd::UP;
            map.osd_info[at].up_from = map.epoch;
        });
        world.run_until_idle();
        world.heal();
        assert_eq!(state(&mut world), "active+clean", "osd.{away}");
        let primary = world.primary();
        assert!(!world.pg(primary).expect("a copy").info().mapping.is_plain());
        world.assert_equal_copies();
        read_all(&mut world);
    }
}

/// It has lost one of the two copies, so nobody knows which chunks it would have; or it ends in the moment of the merge.
#[test]
fn a_coded_copy_that_was_not_merged_with_the_others_is_made_anew() {
    for (lost, crash) in [(2, false), (1, true), (0, false)] {
        let mut world = split_of(World::coded(9, 2, 2, 1));
        let said = prepare(&mut world);
        reorder(&mut world, &[(0, 1), (1, 2)]);
        if crash {
            world.crash(lost);
        } else {
            world.disk(lost).forget_children();
        }
        announce(&mut world, &said);
        if crash {
            world.mark_down(lost);
        }
        world.run_until_idle();
        world.heal();
        assert_eq!(state(&mut world), "active+clean", "osd.{lost}");
        world.assert_equal_copies();
        read_all(&mut world);
    }
}

#[test]
fn requests_of_both_pg_are_still_known() {
    let mut world = split(8);
    let before = world.clients[0].replies.clone();
    let said = prepare(&mut world);
    merge(&mut world, &said);
    let log = |world: &mut World| world.pg(0).expect("a copy").info().last_update;
    let head = log(&mut world);
    // All of them once more, as if no answer had come.
    for n in 0..40 {
        let object = format!("o{n}");
        world.repeat(0, n + 1, &object, write("must not be executed"));
    }
    world.run_until_idle();
    assert_eq!(log(&mut world), head, "nothing was executed again");
    for (tid, reply) in before {
        assert_eq!(world.clients[0].replies[&tid].user_version, reply.user_version, "request {tid}");
    }
}

/// The map that splits the PG again comes while the objects of the merge move.
#[test]
fn a_split_that_waits_for_a_merge_divides_what_that_brought() {
    for seed in 0..10 {
        let mut world = split(20 + seed);
        let said = prepare(&mut world);
        announce(&mut world, &said);
        world.publish(|map| {
            for pool in map.pools.values_mut() {
                (pool.pg_num, pool.pg_num_pending) = (2, 2);
            }
        });
        world.run_until_idle();
        for osd in 0..3 {
            let objects = world.disk(osd).objects();
            let strangers = objects.keys().filter(|object| object.pg(2) != spg().pg).count();
            assert_eq!(strangers, 0, "seed {seed}: osd.{osd}");
        }
    }
}

#[test]
fn a_copy_without_its_counterpart_is_made_anew() {
    for (lost, crash) in [(2, false), (1, true), (0, false)] {
        let mut world = split(9);
        let said = prepare(&mut world);
        world.disk(lost).forget_children();
        if crash {
            world.crash(lost);
            world.mark_down(lost);
            world.run_until_idle();
        }
        merge(&mut world, &said);
        world.heal();
        assert_eq!(state(&mut world), "active+clean", "osd.{lost}");
        world.assert_equal_copies();
        assert_eq!(world.disk(lost).objects().len(), 41);
        assert_eq!(world.call(0, &ours(), write("still served")).result, 0);
    }
}
