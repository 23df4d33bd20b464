//! PGs of erasure-coded pools: what is lost is computed, and what only some have is taken back.

use super::sizes::copy_of;
use crate::Event;
use crate::harness::{World, head};
use crate::ops::MessageLimits;
use nacre_msg::SubOp;
use nacre_msg::osd_op::{Extent, code};
use nacre_msg::peer::CopyGet;
use nacre_msg::stats::pg_state;
use nacre_types::{Errno, OsdId, PgId, SnapId, UTime};
use std::time::Duration;

pub(super) fn noise(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at * 7 % 251).expect("small") ^ seed).collect()
}

pub(super) fn write(data: &[u8]) -> Vec<SubOp> {
    vec![SubOp::write_full(data.to_vec().into())]
}

pub(super) fn read_all(world: &mut World, object: &str) -> Result<Vec<u8>, i32> {
    let reply = world.call(0, object, vec![SubOp::read(0, 0)]);
    if reply.result < 0 { Err(reply.result) } else { Ok(reply.ops[0].outdata.to_bytes().to_vec()) }
}

pub(super) fn state(world: &mut World) -> String {
    let primary = world.primary();
    let stat = world.pg(primary).and_then(|pg| pg.stat(UTime::ZERO)).expect("a report");
    pg_state::text(stat.state)
}

pub(super) fn lose(world: &mut World, osd: OsdId) {
    world.crash(osd);
    world.mark_down(osd);
    world.run_until_idle();
}

#[test]
fn objects_are_written_read_and_removed() {
    for (k, m) in [(2, 1), (2, 2), (3, 2)] {
        let mut world = World::coded(1, 1, k, m);
        world.run_until_idle();
        assert_eq!(state(&mut world), "active+clean");
        for length in [0, 1, 4096, 8192, 30_000, 300_000] {
            let data = noise(k, length);
            assert_eq!(world.call(0, "a", write(&data)).result, 0);
            assert_eq!(read_all(&mut world, "a"), Ok(data));
        }
        let stat = world.call(0, "a", vec![SubOp::new(code::STAT)]);
        assert_eq!(&stat.ops[0].outdata.to_bytes()[..8], &300_000_u64.to_le_bytes());
        world.heal();
        world.assert_equal_copies();
        assert_eq!(world.call(0, "a", vec![SubOp::new(code::DELETE)]).result, 0);
        assert_eq!(read_all(&mut world, "a"), Err(Errno::ENOENT.negated()));
        world.heal();
        (0..OsdId::from(k + m)).for_each(|osd| assert!(world.disk(osd).objects().is_empty()));
    }
}

#[test]
fn objects_grow_by_whole_stripes() {
    let mut world = World::coded(2, 1, 2, 1);
    world.run_until_idle();
    let (first, second) = (noise(1, 8192), noise(2, 10_000));
    let append = |data: &[u8]| vec![SubOp::append(data.to_vec().into())];
    assert_eq!(world.call(0, "a", append(&first)).result, 0);
    assert_eq!(world.call(0, "a", append(&second)).result, 0);
    assert_eq!(world.call(0, "a", append(b"x")).result, Errno::EOPNOTSUPP.negated());
    assert_eq!(read_all(&mut world, "a"), Ok([first.clone(), second.clone()].concat()));
    let both = world.call(0, "a", vec![SubOp::read(5, 3), SubOp::read(4090, 10), SubOp::read(8190, 9000)]);
    let all = [first, second].concat();
    for (op, (from, length)) in both.ops.iter().zip([(5, 3), (4090, 10), (8190, 9000)]) {
        assert_eq!(&op.outdata.to_bytes()[..], &all[from..from + length], "{from}~{length}");
    }
    world.heal();
    world.assert_equal_copies();
}

#[test]
fn what_is_lost_is_computed_and_rebuilt() {
    let mut world = World::coded(3, 1, 2, 2);
    world.run_until_idle();
    let data = noise(3, 1_500_000);
    assert_eq!(world.call(0, "big", write(&data)).result, 0);
    lose(&mut world, 0);
    lose(&mut world, 1);
    let tid = world.request(0, "big", vec![SubOp::read(0, 0)]);
    world.run_until_idle();
    assert!(!world.clients[0].replies.contains_key(&tid), "below min_size nothing is served");
    world.restart(1);
    world.run_until_idle();
    assert_eq!(world.clients[0].replies[&tid].ops[0].outdata.to_bytes(), data);
    let newer = noise(4, 40_000);
    assert_eq!(world.call(0, "new", write(&newer)).result, 0);
    // The first one comes back with an empty disk.
    world.disk(0).wipe();
    world.heal();
    assert_eq!(state(&mut world), "active+clean");
    world.assert_equal_copies();
    for osd in [2, 3] {
        lose(&mut world, osd);
    }
    world.restart(3);
    world.run_until_idle();
    assert_eq!(read_all(&mut world, "big"), Ok(data));
    assert_eq!(read_all(&mut world, "new"), Ok(newer));
}

#[test]
fn with_one_parity_shard_one_may_be_lost() {
    let mut world = World::coded(4, 1, 2, 1);
    world.run_until_idle();
    let data = noise(5, 300_000);
    assert_eq!(world.call(0, "a", write(&data)).result, 0);
    for osd in 0..3 {
        lose(&mut world, osd);
        assert_eq!(read_all(&mut world, "a"), Ok(data.clone()), "without osd.{osd}");
        assert_eq!(world.call(0, "b", write(&data[..9000])).result, 0);
        world.heal();
        assert_eq!(state(&mut world), "active+clean");
        world.assert_equal_copies();
    }
}

pub(super) fn part(offset: usize, data: &[u8]) -> Vec<SubOp> {
    vec![SubOp::write(offset as u64, data.to_vec().into())]
}

/// A write reaches one shard of three, and that one must not be believed.
#[test]
fn what_too_few_have_is_taken_back() {
    for (seed, overwrites) in (0..40).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut world =
            if overwrites { World::overwritten(seed, 1, 2, 1) } else { World::coded(seed, 1, 2, 1) };
        world.run_until_idle();
        let (old, mut new) = (noise(6, 20_000), noise(7, 9_000));
        assert_eq!(world.call(0, "a", write(&old)).result, 0);
        let tid = world.request(0, "a", if overwrites { part(0, &new) } else { write(&new) });
        if overwrites {
            new.extend_from_slice(&old[9_000..]);
        }
        for _ in 0..world.pick(if overwrites { 30 } else { 12 }) {
            world.step();
        }
        (0..3).for_each(|osd| world.crash(osd));
        world.heal();
        assert_eq!(state(&mut world), "active+clean", "seed {seed}");
        assert_eq!(world.clients[0].replies[&tid].result, 0, "seed {seed}");
        assert_eq!(read_all(&mut world, "a"), Ok(new), "sent again where it was taken back");
        world.heal();
        world.assert_equal_copies();
    }
}

/// Two shards are left of an interval, and one of them went on, in a later epoch, to a write that the other does not have. The other leads
/// in the next interval and begins an activation on what both have; the new member ends before it takes part.
#[test]
fn an_activation_that_was_begun_does_not_shut_out_a_shard_that_went_on() {
    for (seed, overwrites) in (0..20).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut world =
            if overwrites { World::overwritten(seed, 1, 2, 1) } else { World::coded(seed, 1, 2, 1) };
        world.run_until_idle();
        let (old, new) = (noise(6, 20_000), noise(7, 9_000));
        lose(&mut world, 0);
        assert_eq!(world.call(0, "a", write(&old)).result, 0);
        world.publish(|_| ());
        world.run_until_idle();
        world.disk(1).is_stuck = true;
        let tid = world.request(0, "b", write(&new));
        world.run_until_idle();
        world.crash(1);
        world.disk(1).is_stuck = false;
        world.publish(|map| drop(map.pg_upmap.insert(PgId::new(3, 0), vec![0, 1, 3])));
        world.restart(1);
        while !world.pg(1).is_some_and(|pg| pg.phase_name().ends_with("Activating")) {
            assert!(world.step(), "seed {seed}: no activation begins");
        }
        let head = |world: &mut World, osd| world.pg(osd).map(|pg| pg.info().last_update).expect("a copy");
        assert!(head(&mut world, 1).epoch < head(&mut world, 2).epoch, "seed {seed}: osd.2 went on");
        world.crash(3);
        world.heal();
        assert_eq!(state(&mut world), "active+clean", "seed {seed}");
        assert_eq!(world.clients[0].replies[&tid].result, 0, "seed {seed}");
        assert!(read_all(&mut world, "a") == Ok(old), "seed {seed}");
        assert!(read_all(&mut world, "b") == Ok(new), "seed {seed}");
        world.heal();
        world.assert_equal_copies();
    }
}

/// `victim` forgets the last `count` of these writes, which all members had. The others must not take them back, but give them to that one
/// again.
fn keeps_what_one_forgets(
    (seed, victim): (u64, OsdId),
    min_size: u8,
    count: usize,
    before: impl FnOnce(&mut World),
) {
    let mut world = World::coded(seed, 1, 2, 1);
    world.publish(|map| map.pools.values_mut().for_each(|pool| pool.min_size = min_size));
    world.run_until_idle();
    let (old, new, other) = (noise(6, 20_000), noise(7, 9_000), noise(8, 5_000));
    assert_eq!(world.call(0, "a", write(&old)).result, 0);
    world.disk(victim).remembers = true;
    assert_eq!(world.call(0, "b", write(&other)).result, 0);
    assert_eq!(world.call(0, "a", write(&new)).result, 0);
    before(&mut world);
    world.crash(victim);
    world.disk(victim).forget_last(count);
    world.heal();
    let why = format!("seed {seed}, osd.{victim} forgets {count}");
    assert_eq!(read_all(&mut world, "b"), Ok(other), "{why}");
    assert_eq!(read_all(&mut world, "a"), Ok(new), "{why}");
    assert_eq!(state(&mut world), "active+clean", "{why}");
    world.heal();
    world.assert_equal_copies();
}

fn seeds_and_victims() -> impl Iterator<Item = (u64, OsdId)> {
    (0..20).flat_map(|seed| (0..3).map(move |victim| (seed, victim)))
}

/// The newest record of one shard's log is gone, which its store cannot tell from one that was never acknowledged. Who led knew that
/// all had it, and the others were told.
#[test]
fn a_log_that_lost_what_all_had_is_not_followed() {
    for (at, count) in seeds_and_victims().flat_map(|at| [(at, 1), (at, 2)]) {
        keeps_what_one_forgets(at, 3, count, |_| ());
    }
}

/// All lose power at once, and nobody knows any more that it was acknowledged; but it is where a write must be to be so.
#[test]
fn what_enough_shards_have_is_not_taken_back() {
    for (at, count) in seeds_and_victims().flat_map(|at| [(at, 1), (at, 2)]) {
        keeps_what_one_forgets(at, 2, count, |world| (0..3).for_each(|osd| world.crash(osd)));
        keeps_what_one_forgets(at, 2, count, |_| ());
    }
}

/// Of those that have the write only one is there when the one that led comes back without it: the two could serve, and it must not.
#[test]
fn what_one_other_knows_is_not_taken_back() {
    for seed in 0..20 {
        let mut world = World::coded(seed, 1, 2, 2);
        world.run_until_idle();
        let (old, new) = (noise(6, 20_000), noise(7, 9_000));
        assert_eq!(world.call(0, "a", write(&old)).result, 0);
        let victim = world.primary();
        world.disk(victim).remembers = true;
        assert_eq!(world.call(0, "a", write(&new)).result, 0);
        world.crash(victim);
        world.disk(victim).forget_last(1);
        for osd in (0..4).filter(|osd| *osd != victim).take(2) {
            world.crash(osd);
            world.mark_down(osd);
        }
        world.restart(victim);
        world.run_until_idle();
        world.heal();
        assert_eq!(read_all(&mut world, "a"), Ok(new), "seed {seed}, osd.{victim}");
        assert_eq!(state(&mut world), "active+clean", "seed {seed}");
        world.assert_equal_copies();
    }
}

/// Nobody has it in memory any more: it was written down when nothing else was to be done.
#[test]
fn what_all_had_is_known_when_all_have_ended() {
    for at in seeds_and_victims() {
        keeps_what_one_forgets(at, 3, 1, |world| {
            world.tick(Duration::from_secs(1));
            world.run_until_idle();
            (0..3).for_each(|osd| world.crash(osd));
        });
    }
}

/// All lose power at once, before anything was written down but the writes: each says how far all members had those before it, so a
/// copy that forgot two of them is found out.
#[test]
fn a_write_says_what_all_had_before_it() {
    for at in seeds_and_victims() {
        keeps_what_one_forgets(at, 3, 2, |world| (0..3).for_each(|osd| world.crash(osd)));
    }
}

/// A write is acknowledged while the next one is stuck at a member, so that no message of a write says so, and the one that led forgets
/// both. It was told within a second.
#[test]
fn what_was_acknowledged_while_the_next_write_is_stuck_is_not_taken_back() {
    for seed in 0..20 {
        let mut world = World::coded(seed, 1, 2, 1);
        world.publish(|map| map.pools.values_mut().for_each(|pool| pool.min_size = 3));
        world.run_until_idle();
        let (old, new) = (noise(6, 20_000), noise(7, 9_000));
        assert_eq!(world.call(0, "a", write(&old)).result, 0);
        let victim = world.primary();
        let stuck = (victim + 1) % 3;
        world.disk(victim).remembers = true;
        world.disk(stuck).is_stuck = true;
        let first = world.request(0, "a", write(&new));
        world.run_until_idle();
        let second = world.request(0, "b", write(&new));
        world.run_until_idle();
        let token = world.disk(stuck).sync_one().expect("the first write");
        world.event(stuck, Event::Durable(token));
        world.run_until_idle();
        let replies = &world.clients[0].replies;
        assert!(replies.contains_key(&first) && !replies.contains_key(&second), "seed {seed}");
        world.tick(Duration::from_secs(1));
        world.run_until_idle();
        world.crash(victim);
        world.disk(victim).forget_last(2);
        world.disk(stuck).is_stuck = false;
        world.heal();
        assert!(read_all(&mut world, "a") == Ok(new.clone()), "seed {seed}");
        assert!(read_all(&mut world, "b") == Ok(new), "seed {seed}");
        assert_eq!(state(&mut world), "active+clean", "seed {seed}");
        world.assert_equal_copies();
    }
}

/// Writes are under way, some of them acknowledged, and one member forgets the newest that it has. As many others as a write must be on have
/// what was acknowledged, however far that was told.
#[test]
fn what_was_acknowledged_under_load_is_not_taken_back() {
    for (seed, (k, m)) in (0..40).flat_map(|seed| [(2, 1), (2, 2), (3, 2)].map(|code| (seed, code))) {
        let mut world = World::coded(seed, 1, k, m);
        world.publish(|map| map.pools.values_mut().for_each(|pool| pool.min_size = k + m - 1));
        world.run_until_idle();
        let victim = OsdId::try_from(world.pick(usize::from(k + m))).expect("small");
        world.disk(victim).remembers = true;
        let data = |nth: u8| noise(nth, 9_000);
        for nth in 0..6_u8 {
            world.request(0, &format!("o{nth}"), write(&data(nth)));
            let _is_busy = (0..world.pick(60)).all(|_| world.step());
        }
        let acknowledged = world.clients[0].replies.len();
        world.crash(victim);
        let count = world.disk(victim).remembered().min(1 + world.pick(3));
        if count > 0 {
            world.disk(victim).forget_last(count);
        }
        world.heal();
        for nth in 0..6 {
            let is_there = read_all(&mut world, &format!("o{nth}")) == Ok(data(nth));
            assert!(is_there, "o{nth}, seed {seed}, {k}+{m}, osd.{victim} forgets {count} of {acknowledged}");
        }
        assert_eq!(state(&mut world), "active+clean", "seed {seed}, {k}+{m}");
        world.assert_equal_copies();
    }
}

/// One device does not answer: a read waits for it only where it is not to be fast. Parts of stripes are read to be changed as ever.
#[test]
fn a_fast_read_does_not_wait_for_the_slowest() {
    for stuck in 0..3 {
        let mut world = World::overwritten(3, 1, 2, 1);
        world.run_until_idle();
        let data = noise(2, 40_000);
        assert_eq!(world.call(0, "a", write(&data)).result, 0);
        (world.disk(stuck).slow, world.disk(stuck).is_stuck) = (true, true);
        let waits = |world: &mut World| {
            world.disk(stuck).cool_down();
            let tid = world.request(0, "a", vec![SubOp::read(0, 0)]);
            world.run_until_idle();
            let reply = world.clients[0].replies.remove(&tid);
            let found = reply.map(|reply| reply.ops[0].outdata.to_bytes());
            assert!(found.as_ref().is_none_or(|found| *found == data));
            found.is_none()
        };
        let is_parity = world.pg(stuck).and_then(|pg| pg.info().shard) == Some(2);
        assert_eq!(waits(&mut world), !is_parity, "osd.{stuck}");
        world.publish(|map| map.pools.values_mut().for_each(|pool| pool.fast_read = true));
        world.run_until_idle();
        assert!(!waits(&mut world), "osd.{stuck}");
        world.disk(stuck).is_stuck = false;
        world.heal();
        assert_eq!(world.call(0, "a", part(10, b"more")).result, 0);
        assert_eq!(read_all(&mut world, "a"), Ok([&data[..10], b"more", &data[14..]].concat()));
        world.heal();
        world.assert_equal_copies();
    }
}

#[test]
fn members_move_and_chunks_with_them() {
    let mut world = World::coded(5, 1, 2, 1);
    world.run_until_idle();
    let data = noise(8, 100_000);
    for n in 0..5 {
        assert_eq!(world.call(0, &format!("o{n}"), write(&data[n * 1000..])).result, 0);
    }
    for members in [[1, 2, 3], [3, 1, 2], [4, 0, 3], [0, 1, 2]] {
        world.publish(|map| drop(map.pg_upmap.insert(PgId::new(3, 0), members.to_vec())));
        world.heal();
        assert_eq!(state(&mut world), "active+clean", "{members:?}");
        world.assert_equal_copies();
        for n in 0..5 {
            assert_eq!(read_all(&mut world, &format!("o{n}")).as_deref(), Ok(&data[n * 1000..]));
        }
    }
}

#[test]
fn snapshots_keep_chunks() {
    let mut world = World::coded(6, 1, 2, 1);
    world.run_until_idle();
    let (old, new) = (noise(9, 20_000), noise(10, 5_000));
    assert_eq!(world.call(0, "a", write(&old)).result, 0);
    let tid = world.request_with_snaps(0, "a", write(&new), vec![SnapId(4)]);
    world.run_until_idle();
    assert_eq!(world.clients[0].replies[&tid].result, 0);
    let back = vec![SubOp::rollback(SnapId(4))];
    let tid = world.request_with_snaps(0, "a", back, vec![SnapId(4)]);
    world.run_until_idle();
    assert_eq!(world.clients[0].replies[&tid].result, 0);
    assert_eq!(read_all(&mut world, "a"), Ok(old));
    world.heal();
    world.assert_equal_copies();
}

#[test]
fn a_damaged_chunk_is_computed_and_repaired() {
    for spoiled in 0..3 {
        let mut world = World::overwritten(7, 1, 2, 1);
        world.run_until_idle();
        let mut data = noise(11, 50_000);
        assert_eq!(world.call(0, "a", write(&data)).result, 0);
        data[20_000..21_000].copy_from_slice(&noise(12, 1_000));
        assert_eq!(world.call(0, "a", part(20_000, &noise(12, 1_000))).result, 0);
        world.disk(spoiled).spoil(head("a"));
        assert_eq!(read_all(&mut world, "a"), Ok(data.clone()), "osd.{spoiled}");
        world.event(world.primary(), Event::Scrub { deep: true, repair: true });
        world.heal();
        assert_eq!(state(&mut world), "active+clean");
        lose(&mut world, (spoiled + 1) % 3);
        assert_eq!(read_all(&mut world, "a"), Ok(data), "osd.{spoiled} repaired");
    }
}

/// With little memory, what could not be written at the end is not fetched either.
#[test]
fn a_copy_that_is_too_large_for_the_memory_is_refused_with_its_first_part() {
    let mut world = World::overwritten(7, 1, 2, 1);
    world.bound_messages(MessageLimits { transaction_bytes: 6 << 20, ..MessageLimits::default() });
    world.run_until_idle();
    for piece in 0..3 {
        assert_eq!(world.call(0, "a", part(piece * (3 << 20), &noise(1, 3 << 20))).result, 0);
    }
    let asked = |world: &World| {
        world
            .sent
            .iter()
            .filter(|((_, kind), _)| *kind == CopyGet::KIND)
            .map(|(_, count)| *count)
            .sum::<usize>()
    };
    let before = asked(&world);
    assert_eq!(world.call(0, "b", vec![copy_of("a")]).result, Errno::EFBIG.negated());
    assert_eq!(asked(&world), before + 1, "one part was asked for");
    let shorter = SubOp::with_extent(code::TRUNCATE, Extent { offset: 5 << 20, ..Extent::default() });
    assert_eq!(world.call(0, "a", vec![shorter]).result, 0);
    assert_eq!(world.call(0, "b", vec![copy_of("a")]).result, 0);
}
