//! Copies of objects that are more than one write should carry: whole or not at all, whatever happens on the way.

use super::sizes::{copy_of, omap_set};
use crate::harness::{World, head, spg};
use crate::ops::MessageLimits;
use crate::storage;
use nacre_msg::SubOp;
use nacre_types::{Errno, OsdId};
use std::time::Duration;

const KEYS: usize = 48_000;

/// A source whose keys come in several parts.
fn with_source(seed: u64) -> World {
    let mut world = World::new(seed, 2);
    world.run_until_idle();
    world.call(0, "source", vec![SubOp::write_full(vec![1; 3000].into())]);
    for batch in 0..3 {
        let keys = omap_set(batch * KEYS / 3..(batch + 1) * KEYS / 3, 10);
        assert_eq!(world.call(0, "source", vec![keys]).result, 0);
    }
    world
}

/// Temporary objects on any disk, and their names on record.
fn left_over(world: &mut World) -> usize {
    (0..3)
        .map(|osd| {
            let objects =
                world.disk(osd).objects().keys().filter(|object| object.snap != head("x").snap).count();
            objects + storage::staged(world.disk(osd), &spg()).len()
        })
        .sum()
}

fn assert_copied(world: &mut World, what: &str) {
    let (source, target) = (world.stored("source").cloned(), world.stored("target").cloned());
    let (source, target) = (source.expect("the source"), target.unwrap_or_else(|| panic!("{what}: no copy")));
    assert_eq!(target.omap.len(), source.omap.len(), "{what}");
    assert!(
        target.omap == source.omap && target.data == source.data && target.attrs == source.attrs,
        "{what}"
    );
    assert_eq!(left_over(world), 0, "{what}");
    world.assert_equal_copies();
}

/// Steps until the temporary object is there on some disk.
fn until_staged(world: &mut World) {
    while left_over(world) == 0 {
        assert!(world.step(), "no part was ever staged");
    }
}

#[test]
fn a_large_copy_is_seen_as_a_whole_or_not_at_all() {
    let mut world = with_source(1);
    world.call(0, "target", vec![SubOp::write_full(b"before".to_vec().into()), omap_set(0..5, 3)]);
    let copy =
        world.request(0, "target", vec![copy_of("source"), SubOp::write(0, b"and more".to_vec().into())]);
    until_staged(&mut world);
    let read = world.request(1, "target", vec![SubOp::read(0, 0)]);
    let mut seen = 0;
    while world.step() {
        let target = world.stored("target").expect("it is there all the time");
        assert!(target.omap.len() == 5 || target.omap.len() == KEYS, "{} keys", target.omap.len());
        seen += usize::from(target.omap.len() == 5);
    }
    assert!(seen > 10, "parts came one by one");
    assert_eq!(world.clients[0].replies[&copy].result, 0);
    assert_eq!(&world.clients[1].replies[&read].ops[0].outdata.to_bytes()[..8], b"and more");
    world.call(0, "target", vec![copy_of("source")]);
    assert_copied(&mut world, "at last");
    // No other message saw the temporary object.
    assert_eq!(world.pg(0).map(|pg| pg.info().counters.objects), Some(2));
}

/// Whichever OSD dies, and whenever: the copy is made once all is well, and nothing is left of the first attempt.
#[test]
fn a_large_copy_survives_the_loss_of_any_member() {
    for (seed, victim) in (2..6).flat_map(|seed| (0..3).map(move |victim| (seed, victim))) {
        let mut world = with_source(seed);
        let copy = world.request(0, "target", vec![copy_of("source")]);
        until_staged(&mut world);
        let steps = seed as usize * 7;
        for _ in 0..steps {
            world.step();
        }
        let what = format!("seed {seed}, osd.{victim}");
        world.crash(victim);
        if seed % 2 == 0 {
            world.mark_down(victim);
            world.run_until_idle();
        }
        world.heal();
        assert_eq!(world.clients[0].replies.get(&copy).map(|reply| reply.result), Some(0), "{what}");
        world.tick(Duration::from_secs(1));
        world.run_until_idle();
        assert_copied(&mut world, &what);
    }
}

#[test]
fn nothing_is_left_of_a_copy_whose_client_has_gone() {
    let mut world = with_source(9);
    world.request(0, "target", vec![copy_of("source")]);
    until_staged(&mut world);
    let primary = world.primary();
    world.clients[0].sent.clear();
    world.reset_session(0, primary);
    world.run_until_idle();
    world.tick(Duration::from_secs(1));
    world.run_until_idle();
    assert_eq!(left_over(&mut world), 0);
    assert!(world.stored("target").is_none());
    assert_eq!(world.call(1, "target", vec![SubOp::write_full(b"next".to_vec().into())]).result, 0);
    world.assert_equal_copies();
}

/// A message may fail behind its copy.
#[test]
fn nothing_is_left_of_a_copy_whose_message_fails() {
    let mut world = with_source(10);
    let fails = SubOp::with_assert_ver(77);
    assert!(world.call(0, "target", vec![copy_of("source"), fails]).result < 0);
    world.tick(Duration::from_secs(1));
    world.run_until_idle();
    assert_eq!(left_over(&mut world), 0);
    assert!(world.stored("target").is_none());
}

#[test]
fn a_source_that_changes_meanwhile_is_copied_as_it_is_then() {
    let mut world = with_source(11);
    let copy = world.request(0, "target", vec![copy_of("source")]);
    until_staged(&mut world);
    let change = world.request(1, "source", vec![omap_set(KEYS..KEYS + 7, 10)]);
    world.run_until_idle();
    for _ in 0..10 {
        world.tick(Duration::from_secs(3)); // parts were not given while it changed
        world.run_until_idle();
    }
    assert_eq!(world.clients[0].replies.get(&copy).map(|reply| reply.result), Some(0));
    assert_eq!(world.clients[1].replies.get(&change).map(|reply| reply.result), Some(0));
    assert_copied(&mut world, "with the change");
}

/// One that joins while parts come has not got the first of them; a map that changes nothing takes nothing back.
#[test]
fn a_copy_goes_to_who_is_there_at_its_end() {
    for returning in [1, 2] {
        let mut world = with_source(12);
        world.lose(returning);
        let copy = world.request(0, "target", vec![copy_of("source")]);
        until_staged(&mut world);
        world.restart(returning);
        world.heal();
        assert_eq!(world.clients[0].replies.get(&copy).map(|reply| reply.result), Some(0));
        world.tick(Duration::from_secs(1));
        world.run_until_idle();
        assert_copied(&mut world, "after the return");
    }
}

/// A part that stays out for long is asked for again, and may come twice. The second one was taken for the end: the copy had
/// zeros where the rest of its source belongs, and its client was told that all went well.
#[test]
fn a_part_that_comes_twice_counts_once() {
    for seed in 20..30 {
        let mut world = World::new(seed, 1);
        world.run_until_idle();
        let content: Vec<u8> = (0..9_u32 << 20).map(|at| (at >> 12) as u8).collect();
        world.call(0, "source", vec![SubOp::write_full(content.into())]);
        let copy = world.request(0, "target", vec![copy_of("source")]);
        while !world.clients[0].replies.contains_key(&copy) {
            if world.chance(6) {
                world.tick(Duration::from_secs(3));
            }
            world.step();
        }
        assert_eq!(world.clients[0].replies[&copy].result, 0);
        world.run_until_idle();
        assert_copied(&mut world, &format!("seed {seed}"));
    }
}

/// A deep scrub beside a copy does not take its parts for objects.
#[test]
fn a_scrub_does_not_see_what_is_copied() {
    let mut world = with_source(31);
    world.request(0, "target", vec![copy_of("source")]);
    until_staged(&mut world);
    let primary: OsdId = world.primary();
    world.event(primary, crate::Event::Scrub { deep: true, repair: false });
    world.run_until_idle();
    world.tick(Duration::from_secs(1));
    world.run_until_idle();
    assert_eq!(world.pg(primary).map(|pg| pg.info().counters.scrub_errors), Some(0));
    assert_copied(&mut world, "beside a scrub");
}

/// As an OSD with little memory has it.
#[test]
fn a_copy_that_fits_the_memory_of_others_is_staged_where_there_is_little() {
    let mut world = World::new(33, 1);
    world.bound_messages(MessageLimits { copied_bytes: 4 << 20, ..MessageLimits::default() });
    world.run_until_idle();
    world.call(0, "source", vec![SubOp::write_full(vec![1; 13 << 20].into())]);
    let copy = world.request(0, "target", vec![copy_of("source")]);
    until_staged(&mut world);
    world.run_until_idle();
    assert_eq!(world.clients[0].replies[&copy].result, 0);
    assert_copied(&mut world, "in parts");
}

/// All copies of a message have one target: more than one large one is asked of us only to use up space.
#[test]
fn one_large_copy_is_enough_for_a_message() {
    let mut world = with_source(32);
    let twice = world.call(0, "target", vec![copy_of("source"), copy_of("source")]);
    assert_eq!(twice.result, Errno::EFBIG.negated());
    world.tick(Duration::from_secs(1));
    world.run_until_idle();
    assert_eq!(left_over(&mut world), 0);
}
