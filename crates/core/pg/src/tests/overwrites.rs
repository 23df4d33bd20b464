//! Objects of erasure-coded pools that are changed in part: what is kept of them, and taken back.

use super::coded::{lose, noise, part, read_all, state, write};
use crate::Event;
use crate::coding::is_rollback_gen;
use crate::harness::{World, head};
use crate::object::ObjectContext;
use crate::ops::testing::Stored;
use nacre_msg::SubOp;
use nacre_msg::osd_op::{Extent, code};
use nacre_msg::peer::{PartCursor, PeerHeader, Pull};
use nacre_types::{Eversion, HObject, OsdId, PgId, SnapId, SpgId};
use std::collections::BTreeMap;

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

/// A small write is kept, and made, where it is: of a chunk of 60 units one.
#[test]
fn a_small_write_keeps_and_writes_no_more_than_it_changes() {
    let mut world = World::overwritten(1, 1, 2, 1);
    world.run_until_idle();
    let old = noise(6, 120 * 4096);
    assert_eq!(world.call(0, "a", write(&old)).result, 0);
    world.heal();
    (0..3).for_each(|osd| world.disk(osd).is_stuck = true);
    world.request(0, "a", part(10 * 4096 + 100, b"changed"));
    world.run_until_idle();
    let (mut kept, mut written) = (Vec::new(), Vec::new());
    for osd in 0..3 {
        let of_write = |data: &nacre_buf::BufList| data.len();
        written.push(world.disk(osd).pending_data().map(of_write).sum::<usize>());
        let is_kept = |(name, _): &(&HObject, &Stored)| is_rollback_gen(name);
        let objects = world.disk(osd).objects();
        let found: Vec<&Stored> = objects.iter().filter(is_kept).map(|(_, stored)| stored).collect();
        assert_eq!((found.len(), found[0].data.len()), (1, 60 * 4096));
        let units = found[0].data.chunks(4096).enumerate();
        kept.push(
            units
                .filter(|(_, unit)| unit.iter().any(|byte| *byte != 0))
                .map(|(nth, _)| nth)
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(written, [4096, 0, 4096]);
    assert_eq!(kept, [vec![5], vec![], vec![5]]);
    (0..3).for_each(|osd| world.disk(osd).is_stuck = false);
    world.heal();
    world.assert_equal_copies();
    let new = [&old[..10 * 4096 + 100], b"changed", &old[10 * 4096 + 107..]].concat();
    assert!(read_all(&mut world, "a") == Ok(new));
}

/// Several changes of an object are under way when all fail, some on more shards than others, and the client is gone: what is there then is
/// what some number of them made, and no fewer than were acknowledged.
#[test]
fn changes_that_too_few_have_are_taken_back_one_after_the_other() {
    let mut taken_back = 0;
    for seed in 0..150 {
        let mut world = World::overwritten(seed, 2, 2, if seed % 3 == 0 { 2 } else { 1 });
        let osds = if seed % 3 == 0 { 4 } else { 3 };
        world.run_until_idle();
        let mut content = noise(6, 50_000);
        assert_eq!(world.call(0, "a", write(&content)).result, 0);
        let (mut states, mut tids) = (vec![content.clone()], Vec::new());
        for _ in 0..2 + world.pick(5) {
            let change = if world.chance(5) {
                content = noise(8, 1 + world.pick(30_000));
                write(&content)
            } else {
                any_change(&mut world, &mut content)
            };
            states.push(content.clone());
            tids.push(world.request(1, "a", change));
            let _is_busy = (0..world.pick(8)).all(|_| world.step());
        }
        for _ in 0..world.pick(40) {
            world.step();
        }
        let acknowledged = tids.iter().filter(|tid| world.clients[1].replies.contains_key(tid)).count();
        (0..osds).for_each(|osd| world.crash(osd));
        world.clients[1].sent.clear();
        world.heal();
        assert_eq!(state(&mut world), "active+clean", "seed {seed}");
        let found = read_all(&mut world, "a").expect("it is there");
        let nth = states.iter().rposition(|state| *state == found);
        assert!(
            nth.is_some_and(|nth| nth >= acknowledged),
            "seed {seed}: {nth:?}, {acknowledged} acknowledged"
        );
        taken_back += usize::from(nth < Some(tids.len()));
        world.heal();
        world.assert_equal_copies();
    }
    assert!(taken_back > 20, "{taken_back} times something was taken back");
}

/// A copy has made changes that no other has, kept in part, and is asked for its chunk as it was before them, by an OSD that peers with it:
/// it puts that together, and takes its changes back from there when it takes part again.
#[test]
fn what_is_kept_in_part_is_put_together_for_others() {
    let mut world = World::overwritten(1, 2, 2, 1);
    world.run_until_idle();
    let old = noise(6, 40_000);
    assert_eq!(world.call(0, "a", write(&old)).result, 0);
    world.heal();
    let before = world.disk(2).objects()[&head("a")].clone();
    [0, 1].into_iter().for_each(|osd| world.disk(osd).is_stuck = true);
    for at in [100, 9000, 200] {
        world.request(1, "a", part(at, &noise(7, 3000)));
    }
    world.run_until_idle();
    let kept = |world: &mut World| -> Vec<(HObject, Stored)> {
        let objects = world.disk(2).objects().iter();
        objects
            .filter(|(name, _)| is_rollback_gen(name))
            .map(|(name, stored)| (name.clone(), stored.clone()))
            .collect()
    };
    let in_part = kept(&mut world);
    assert_eq!(in_part.len(), 3);
    assert!(in_part.iter().all(|(_, stored)| stored.data != before.data));
    let need = ObjectContext::from_record(before.meta.clone()).expect("a record").info.version;
    let header = PeerHeader { spg: SpgId::replicated(PgId::new(3, 0)), epoch: world.map().epoch };
    let pull = |need| Pull { header, object: head("a"), need, at: PartCursor::Start };
    for version in [need, Eversion::new(need.epoch, need.version + 2)] {
        world.event(2, Event::Peer { from: 0, message: pull(version).into() });
        world.run_until_idle();
    }
    let now = kept(&mut world);
    assert_eq!(now.len(), 3, "each is kept once");
    let whole: Vec<_> = now.iter().filter(|(_, stored)| *stored == before).collect();
    assert_eq!(whole.len(), 1, "the whole chunk as it was, with its record");
    assert_eq!(now.iter().filter(|kept| in_part.contains(kept)).count(), 1, "the one that nobody asked for");
    world.clients[1].sent.clear();
    (0..3).for_each(|osd| world.crash(osd));
    [0, 1].into_iter().for_each(|osd| world.disk(osd).is_stuck = false);
    world.heal();
    assert!(read_all(&mut world, "a") == Ok(old));
    world.heal();
    world.assert_equal_copies();
}

/// The only other copy of a member that is new has written further than the primary.
#[test]
fn a_copy_that_has_written_further_is_taken_back_and_serves_a_new_member() {
    for seed in 0..10 {
        let mut world = World::overwritten(seed, 2, 2, 1);
        world.run_until_idle();
        let old = noise(6, 40_000);
        assert_eq!(world.call(0, "a", write(&old)).result, 0);
        world.heal();
        [0, 1].into_iter().for_each(|osd| world.disk(osd).is_stuck = true);
        for at in [100, 9000, 200] {
            world.request(1, "a", part(at, &noise(7, 3000)));
        }
        world.run_until_idle();
        world.clients[1].sent.clear();
        [0, 1].into_iter().for_each(|osd| world.crash(osd));
        [0, 1].into_iter().for_each(|osd| world.disk(osd).is_stuck = false);
        world.mark_down(1);
        world.publish(|map| drop(map.pg_upmap.insert(PgId::new(3, 0), vec![0, 1, 3])));
        world.restart(0);
        world.run_until_idle();
        assert!(read_all(&mut world, "a") == Ok(old), "seed {seed}: {}", world.describe());
        world.heal();
        assert_eq!(state(&mut world), "active+clean", "seed {seed}");
        world.assert_equal_copies();
    }
}
