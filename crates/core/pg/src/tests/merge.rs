//! A pool gets fewer PGs: what belonged to them comes back, on every copy alike.

use crate::harness::{World, spg};
use crate::{MergeRole, MergeState, storage};
use nacre_buf::Bytes;
use nacre_maps::PgMerge;
use nacre_msg::SubOp;
use nacre_msg::stats::pg_state;
use nacre_types::{PgId, SnapId, SpgId};
use std::time::Duration;

fn write(text: &str) -> Vec<SubOp> {
    vec![SubOp::write_full(Bytes::from(text.to_owned()).into())]
}

fn child() -> SpgId {
    SpgId::replicated(PgId::new(spg().pg.pool, 1))
}

/// Forty objects in two PGs, the second of which nobody serves.
fn split(seed: u64) -> World {
    let mut world = World::new(seed, 2);
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
