//! Damaged copies are repaired from good ones: when a client reads, and by order.

use crate::Event;
use crate::harness::{World, head, spg};
use nacre_buf::Bytes;
use nacre_msg::SubOp;
use nacre_msg::stats::pg_state;
use nacre_txn::{ObjectView, Op, Token, Transaction};
use nacre_types::Errno;
use std::time::Duration;

fn write(bytes: usize) -> Vec<SubOp> {
    vec![SubOp::write_full(vec![7; bytes].into())]
}

fn state(world: &mut World) -> String {
    let primary = world.primary();
    pg_state::text(world.pg(primary).map_or(0, |pg| pg.state()))
}

fn pass(world: &mut World) {
    for _ in 0..3 {
        world.run_until_idle();
        world.tick(Duration::from_secs(1));
    }
    world.run_until_idle();
}

fn filled(seed: u64, bytes: usize) -> World {
    let mut world = World::new(seed, 1);
    world.run_until_idle();
    for n in 0..10 {
        world.request(0, &format!("o{n}"), write(bytes));
    }
    world.run_until_idle();
    world
}

fn repair(world: &mut World) {
    let primary = world.primary();
    world.event(primary, Event::Scrub { deep: true, repair: true });
    pass(world);
}

#[test]
fn a_read_of_a_damaged_copy_is_answered_from_another_and_repairs_it() {
    for bytes in [1000, 2 << 20] {
        let mut world = filled(1, bytes);
        world.disk(0).spoil(head("o3"));
        let reply = world.call(0, "o3", vec![SubOp::read(0, 0)]);
        assert_eq!((reply.result, reply.ops[0].outdata.len()), (0, bytes));
        assert!(world.disk(0).read(&spg(), &head("o3"), 0, 10).is_ok(), "it is repaired");
        pass(&mut world);
        assert_eq!(state(&mut world), "active+clean");
        world.assert_equal_copies();
        assert_eq!((0..3).map(|osd| repaired(&mut world, osd)).collect::<Vec<_>>(), [1, 0, 0]);
    }
}

/// How many objects an OSD says that it was brought anew.
fn repaired(world: &mut World, osd: i32) -> u64 {
    world.pg(osd).map_or(0, |pg| pg.repaired_objects())
}

/// The count is that of the OSD whose copy was damaged, which leads nothing here.
#[test]
fn a_copy_of_a_replica_that_is_repaired_counts_there() {
    for bytes in [1000, 2 << 20] {
        let mut world = filled(3, bytes);
        let primary = world.primary();
        let replica = (0..3).find(|osd| *osd != primary).expect("three OSDs");
        world.disk(replica).spoil(head("o3"));
        repair(&mut world);
        let counts: Vec<u64> = (0..3).map(|osd| repaired(&mut world, osd)).collect();
        assert_eq!((counts.iter().sum::<u64>(), repaired(&mut world, replica)), (1, 1), "{counts:?}");
    }
}

/// Deep scrubs count objects whose omaps are too large, until they are smaller, whoever leads the PG.
#[test]
fn deep_scrubs_count_objects_with_large_omaps() {
    let mut world = filled(4, 10);
    let counted = |world: &mut World| {
        let (primary, wall) =
            (world.primary(), nacre_types::UTime::from_unix(Duration::from_nanos(world.now.0)));
        let stat = world.pg(primary).and_then(|pg| pg.stat(wall)).expect("it leads");
        stat.stats.sum.num_large_omap_objects
    };
    let deep_scrub = |world: &mut World| {
        let primary = world.primary();
        world.event(primary, Event::Scrub { deep: true, repair: false });
        pass(world);
        counted(world)
    };
    for keys in [0..100_000, 100_000..200_000] {
        world.call(0, "o1", vec![super::sizes::omap_set(keys, 1)]);
    }
    assert_eq!(deep_scrub(&mut world), 0, "200,000 keys");
    world.call(0, "o1", vec![super::sizes::omap_set(200_000..200_001, 1)]);
    assert_eq!(deep_scrub(&mut world), 1);
    let before = world.primary();
    world.crash(before);
    world.mark_down(before);
    pass(&mut world);
    assert_ne!(world.primary(), before);
    assert_eq!(counted(&mut world), 1, "another one leads");
    world.heal();
    assert_eq!((world.primary(), counted(&mut world)), (before, 1), "it is back, and has forgotten nothing");
    world.call(0, "o1", vec![SubOp::new(nacre_msg::osd_op::code::OMAPCLEAR)]);
    assert_eq!(deep_scrub(&mut world), 0);
}

#[test]
fn a_crash_while_an_object_is_mended_loses_nothing() {
    for seed in 0..60 {
        let mut world = filled(seed, 2 << 20);
        world.disk(0).spoil(head("o3"));
        world.request(0, "o3", vec![SubOp::read(0, 0)]);
        for _ in 0..world.pick(40) {
            world.step();
        }
        world.crash(0);
        world.mark_down(0);
        world.heal();
        let reply = world.call(0, "o3", vec![SubOp::read(0, 0)]);
        assert_eq!((reply.result, reply.ops[0].outdata.len()), (0, 2 << 20), "seed {seed}");
        assert_eq!(state(&mut world), "active+clean", "seed {seed}");
        world.assert_equal_copies();
    }
}

#[test]
fn what_nobody_can_read_is_an_error_and_stays_one() {
    let mut world = filled(2, 1000);
    (0..3).for_each(|osd| world.disk(osd).spoil(head("o3")));
    for _ in 0..2 {
        let reply = world.call(0, "o3", vec![SubOp::read(0, 0)]);
        assert_eq!(reply.result, Errno::EIO.negated());
    }
    assert_eq!(world.call(0, "o4", vec![SubOp::read(0, 0)]).result, 0);
    // A new content needs nothing of the old one.
    assert_eq!(world.call(0, "o3", vec![SubOp::new(nacre_msg::osd_op::code::DELETE)]).result, 0);
    assert_eq!(world.call(0, "o3", write(5)).result, 0);
    assert_eq!(world.call(0, "o3", vec![SubOp::read(0, 0)]).result, 0);
}

#[test]
fn repair_repairs_what_differs_or_cannot_be_read() {
    for victim in 0..3 {
        let mut world = filled(3, 1000);
        let mut rot = Transaction::new(spg());
        rot.push(Op::Write { object: head("o7"), offset: 1, data: Bytes::from_static(b"x").into() });
        world.disk(victim).submit(rot, Token(u64::MAX));
        world.disk(victim).spoil(head("o2"));
        let primary = world.primary();
        world.event(primary, Event::Scrub { deep: true, repair: false });
        pass(&mut world);
        assert_eq!(state(&mut world), "active+clean+inconsistent");
        repair(&mut world);
        assert_eq!(state(&mut world), "active+clean", "osd.{victim}");
        assert!(world.disk(victim).read(&spg(), &head("o2"), 0, 10).is_ok());
        world.assert_equal_copies();
    }
}

#[test]
fn a_deep_scrub_looks_at_the_device_below_what_is_in_memory() {
    for victim in 0..3 {
        for bytes in [1000, 3 << 20] {
            let mut world = filled(5, bytes);
            world.disk(victim).spoil_below(head("o3"));
            let primary = world.primary();
            world.event(primary, Event::Scrub { deep: false, repair: false });
            pass(&mut world);
            assert_eq!(state(&mut world), "active+clean", "only a deep one reads data");
            world.event(primary, Event::Scrub { deep: true, repair: false });
            pass(&mut world);
            assert_eq!(state(&mut world), "active+clean+inconsistent", "osd.{victim}");
            repair(&mut world);
            assert_eq!(state(&mut world), "active+clean", "osd.{victim}");
            assert!(world.disk(victim).read(&spg(), &head("o3"), 0, 10).is_ok());
            world.assert_equal_copies();
        }
    }
}

#[test]
fn repair_brings_back_a_copy_that_is_gone() {
    for victim in 0..3 {
        let mut world = filled(4, 1000);
        let mut rot = Transaction::new(spg());
        rot.push(Op::Remove(head("o7")));
        world.disk(victim).submit(rot, Token(u64::MAX));
        repair(&mut world);
        assert_eq!(state(&mut world), "active+clean", "osd.{victim}");
        world.assert_equal_copies();
    }
}

#[test]
fn a_write_behind_a_read_that_finds_damage_waits_until_it_is_repaired() {
    for (seed, bytes) in (0..40).zip([1000, 2 << 20].into_iter().cycle()) {
        let mut world = filled(seed, bytes);
        world.disk(0).slow = true;
        world.disk(0).cool_down();
        world.disk(0).spoil(head("o3"));
        let reads: Vec<u64> =
            (0..3).map(|n| world.request(0, "o3", vec![SubOp::read(n * 100, 100)])).collect();
        let write = world.request(0, "o3", vec![SubOp::write(0, vec![9; 10].into())]);
        let behind = world.request(0, "o3", vec![SubOp::read(0, 0)]);
        pass(&mut world);
        for tid in reads {
            let reply = &world.clients[0].replies[&tid];
            assert_eq!((reply.result, reply.ops[0].outdata.len()), (0, 100), "seed {seed}");
        }
        assert_eq!(world.clients[0].replies[&write].result, 0);
        let reply = &world.clients[0].replies[&behind];
        assert_eq!((reply.result, reply.ops[0].outdata.len()), (0, bytes), "seed {seed}");
        assert_eq!(&reply.ops[0].outdata.to_bytes()[..11], [&[9; 10][..], &[7]].concat());
        assert_eq!(state(&mut world), "active+clean");
        world.assert_equal_copies();
    }
}

/// Its place is taken by a new, empty one; what lay there must not count as the new one's.
#[test]
fn what_a_copy_with_damaged_records_held_does_not_come_back() {
    for victim in 0..3 {
        let mut world = filled(6, 1000);
        world.crash(victim);
        world.mark_down(victim);
        world.run_until_idle();
        assert_eq!(world.call(0, "o3", vec![SubOp::new(nacre_msg::osd_op::code::DELETE)]).result, 0);
        world.disk(victim).spoil_records();
        world.restart(victim);
        pass(&mut world);
        assert_eq!(state(&mut world), "active+clean", "osd.{victim}");
        world.assert_equal_copies();
        assert!(!world.disk(victim).objects().contains_key(&head("o3")), "osd.{victim}");
    }
}

#[test]
fn repair_removes_what_only_one_member_still_has() {
    for victim in 0..3 {
        let mut world = filled(7, 1000);
        let old = world.stored("o3").expect("the object").clone();
        assert_eq!(world.call(0, "o3", vec![SubOp::new(nacre_msg::osd_op::code::DELETE)]).result, 0);
        let mut leftover = Transaction::new(spg());
        leftover.push(Op::Write { object: head("o3"), offset: 0, data: old.data.into() });
        leftover.push(Op::SetMeta { object: head("o3"), meta: old.meta });
        world.disk(victim).submit(leftover, Token(u64::MAX));
        repair(&mut world);
        assert_eq!(state(&mut world), "active+clean", "osd.{victim}");
        world.assert_equal_copies();
        assert!(world.stored("o3").is_none());
    }
}
