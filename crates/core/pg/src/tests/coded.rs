//! PGs of erasure-coded pools: what is lost is computed, and what only some have is taken back.

use crate::harness::{World, head};
use nacre_msg::SubOp;
use nacre_msg::osd_op::{Extent, code};
use nacre_msg::stats::pg_state;
use nacre_types::{Errno, OsdId, PgId, SnapId, UTime};
use std::collections::BTreeMap;
use std::time::Duration;

fn noise(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at * 7 % 251).expect("small") ^ seed).collect()
}

fn write(data: &[u8]) -> Vec<SubOp> {
    vec![SubOp::write_full(data.to_vec().into())]
}

fn read_all(world: &mut World, object: &str) -> Result<Vec<u8>, i32> {
    let reply = world.call(0, object, vec![SubOp::read(0, 0)]);
    if reply.result < 0 { Err(reply.result) } else { Ok(reply.ops[0].outdata.to_bytes().to_vec()) }
}

fn state(world: &mut World) -> String {
    let primary = world.primary();
    let stat = world.pg(primary).and_then(|pg| pg.stat(UTime::ZERO)).expect("a report");
    pg_state::text(stat.state)
}

fn lose(world: &mut World, osd: OsdId) {
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

fn part(offset: usize, data: &[u8]) -> Vec<SubOp> {
    vec![SubOp::write(offset as u64, data.to_vec().into())]
}

/// Changes `content` in part, and gives the message that does so to an object.
fn any_change(world: &mut World, content: &mut Vec<u8>) -> Vec<SubOp> {
    let (at, length) = (world.pick(60_000), 1 + world.pick(30_000));
    let extent = |code| {
        let (offset, length) = (at as u64, length as u64);
        vec![SubOp::with_extent(code, Extent { offset, length, ..Extent::default() })]
    };
    match world.pick(6) {
        0 => {
            content.resize(at, 0);
            vec![SubOp::with_extent(code::TRUNCATE, Extent { offset: at as u64, ..Extent::default() })]
        }
        1 if at + length < content.len() => {
            content[at..at + length].fill(0);
            extent(code::ZERO)
        }
        2 => {
            content.extend_from_slice(&noise(1, length));
            vec![SubOp::append(noise(1, length).into())]
        }
        nth => {
            content.resize(content.len().max(at + length), 0);
            let data = noise(u8::try_from(nth).expect("small"), length);
            content[at..at + length].copy_from_slice(&data);
            part(at, &data)
        }
    }
}

/// Also with a member missing, which has what it lacks computed when it is back.
#[test]
fn objects_are_changed_in_part() {
    for (seed, (k, m)) in (0..6).flat_map(|seed| [(2, 1), (2, 2), (3, 2)].map(|code| (seed, code))) {
        let mut world = World::overwritten(seed, 1, k, m);
        world.run_until_idle();
        let mut content = noise(k, 50_000);
        assert_eq!(world.call(0, "a", write(&content)).result, 0);
        for nth in 0..30 {
            match nth {
                10 => lose(&mut world, OsdId::from(k)),
                20 => world.heal(),
                _ => {}
            }
            let change = any_change(&mut world, &mut content);
            assert_eq!(world.call(0, "a", change).result, 0);
            if world.chance(3) {
                (0..OsdId::from(k + m)).for_each(|osd| world.disk(osd).cool_down());
            }
            assert!(read_all(&mut world, "a") == Ok(content.clone()), "seed {seed}, {k}+{m}, change {nth}");
        }
        assert_eq!(world.call(0, "same", write(&content)).result, 0);
        world.heal();
        assert_eq!(state(&mut world), "active+clean");
        world.assert_equal_copies();
        for osd in 0..OsdId::from(k + m) {
            let chunk = |world: &mut World, name| world.disk(osd).objects()[&head(name)].data.clone();
            assert!(
                chunk(&mut world, "a") == chunk(&mut world, "same"),
                "the chunks are those of the content"
            );
        }
    }
}

/// Whatever the snapshot has is not changed by what comes behind it.
#[test]
fn snapshots_of_what_is_changed_in_part() {
    for seed in 0..10 {
        let mut world = World::overwritten(seed, 1, 2, 1);
        world.run_until_idle();
        let (old, mut new) = (noise(9, 40_000), noise(9, 40_000));
        assert_eq!(world.call(0, "a", write(&old)).result, 0);
        for _ in 0..5 {
            let change = any_change(&mut world, &mut new);
            let tid = world.request_with_snaps(0, "a", change, vec![SnapId(4)]);
            world.run_until_idle();
            assert_eq!(world.clients[0].replies[&tid].result, 0);
        }
        assert!(read_all(&mut world, "a") == Ok(new), "seed {seed}");
        world.heal();
        world.assert_equal_copies();
        // Back to it, and on from there, in one message.
        let back =
            [vec![SubOp::rollback(SnapId(4))], part(100, b"changed"), part(39_990, &old[..100])].concat();
        let tid = world.request_with_snaps(0, "a", back, vec![SnapId(4)]);
        world.run_until_idle();
        assert_eq!(world.clients[0].replies[&tid].result, 0);
        let wanted = [&old[..100], b"changed", &old[107..39_990], &old[..100]].concat();
        assert!(read_all(&mut world, "a") == Ok(wanted), "seed {seed}");
        lose(&mut world, OsdId::try_from(seed % 3).expect("small"));
        world.disk(OsdId::try_from(seed % 3).expect("small")).wipe();
        world.heal();
        assert_eq!(state(&mut world), "active+clean");
        world.assert_equal_copies();
    }
}

/// Writes follow each other without waiting for answers, each of a part of the same stripes.
#[test]
fn parts_that_are_written_at_once_do_not_get_lost() {
    for seed in 0..20 {
        let mut world = World::overwritten(seed, 1, 2, 1);
        world.run_until_idle();
        let mut content = noise(1, 16_384);
        assert_eq!(world.call(0, "a", write(&content)).result, 0);
        for nth in 0..40_u8 {
            let (at, data) = (usize::from(nth) * 400, noise(nth, 500));
            content[at..at + data.len().min(16_384 - at)]
                .copy_from_slice(&data[..data.len().min(16_384 - at)]);
            world.request(0, "a", part(at, &data[..data.len().min(16_384 - at)]));
            let _is_busy = (0..world.pick(6)).all(|_| world.step());
        }
        world.run_until_idle();
        assert!(read_all(&mut world, "a") == Ok(content), "seed {seed}");
        world.heal();
        world.assert_equal_copies();
    }
}

/// A part that is written reaches some of the shards, and the client is gone: it is in all or in none.
#[test]
fn a_part_that_too_few_have_is_taken_back() {
    let mut outcomes = BTreeMap::new();
    for seed in 0..100 {
        let mut world = World::overwritten(seed, 2, 2, 1);
        world.run_until_idle();
        let old = noise(6, 20_000);
        let mut new = old.clone();
        new[5_000..6_000].copy_from_slice(&noise(7, 1_000));
        assert_eq!(world.call(0, "a", write(&old)).result, 0);
        let tid = world.request(1, "a", part(5_000, &new[5_000..6_000]));
        for _ in 0..world.pick(30) {
            world.step();
        }
        let acknowledged = world.clients[1].replies.contains_key(&tid);
        (0..3).for_each(|osd| world.crash(osd));
        world.clients[1].sent.remove(&tid);
        world.heal();
        assert_eq!(state(&mut world), "active+clean", "seed {seed}");
        let found = read_all(&mut world, "a").expect("it is there");
        assert!(found == new || found == old && !acknowledged, "seed {seed}");
        *outcomes.entry((acknowledged, found == new)).or_insert(0) += 1;
        world.heal();
        world.assert_equal_copies();
    }
    assert!(outcomes.len() == 3, "taken back, kept, and acknowledged: {outcomes:?}");
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
        world.event(stuck, crate::Event::Durable(token));
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
        world.event(world.primary(), crate::Event::Scrub { deep: true, repair: true });
        world.heal();
        assert_eq!(state(&mut world), "active+clean");
        lose(&mut world, (spoiled + 1) % 3);
        assert_eq!(read_all(&mut world, "a"), Ok(data), "osd.{spoiled} repaired");
    }
}
