//! A copy whose records are damaged: what it alone had is lost, and must not be taken for never written.

use crate::harness::{World, head};
use nacre_msg::SubOp;
use nacre_msg::stats::pg_state;
use nacre_types::OsdId;
use std::time::Duration;

fn append(text: &str) -> Vec<SubOp> {
    vec![SubOp::append(text.as_bytes().to_vec().into())]
}

fn state(world: &mut World) -> u64 {
    let primary = world.primary();
    world.pg(primary).map_or(0, |pg| pg.state())
}

fn pass(world: &mut World) {
    for _ in 0..10 {
        world.run_until_idle();
        world.tick(Duration::from_secs(1));
    }
    world.run_until_idle();
}

/// osd.`alone` has served the newest writes by itself, and cannot read its records any more. All run again.
fn damaged(seed: u64, alone: OsdId) -> World {
    let mut world = World::new(seed, 2);
    world.clients[0].backs_off = true;
    world.run_until_idle();
    world.call(0, "log", append("a"));
    world.publish(|map| map.pools.values_mut().for_each(|pool| pool.min_size = 1));
    world.run_until_idle();
    let others: Vec<OsdId> = (0..3).filter(|osd| *osd != alone).collect();
    others.iter().for_each(|osd| world.lose(*osd));
    world.call(0, "log", append("b"));
    world.lose(alone);
    world.disk(alone).spoil_records();
    world.restart(alone);
    if seed.is_multiple_of(2) {
        world.run_until_idle();
    }
    others.iter().for_each(|osd| world.restart(*osd));
    pass(&mut world);
    world
}

/// An OSD that cannot serve again what it alone had.
fn blocked_by(world: &mut World) -> Vec<OsdId> {
    let (primary, wall) = (world.primary(), nacre_types::UTime::ZERO);
    world.pg(primary).and_then(|pg| pg.stat(wall)).map_or_else(Vec::new, |stat| stat.blocked_by)
}

fn mark_lost(world: &mut World, osd: OsdId) {
    let at = usize::try_from(osd).expect("small");
    world.lose(osd);
    world.publish(|map| map.osd_info[at].lost_at = map.epoch);
    world.restart(osd);
    pass(world);
}

#[test]
fn writes_of_one_that_lost_its_records_are_not_taken_for_never_made() {
    for (seed, alone) in (0..30).zip([0, 1, 2].into_iter().cycle()) {
        let mut world = damaged(seed, alone);
        let found = state(&mut world);
        assert!(found & pg_state::DOWN != 0, "seed {seed}: {} {}", pg_state::text(found), world.describe());
        assert_eq!(blocked_by(&mut world), [alone], "seed {seed}");
        // Nor after it was started once more, nor with a map that says nothing of it.
        world.crash(alone);
        world.restart(alone);
        pass(&mut world);
        world.publish(|_| ());
        pass(&mut world);
        let found = state(&mut world);
        assert!(found & pg_state::DOWN != 0, "seed {seed}: {} {}", pg_state::text(found), world.describe());
        mark_lost(&mut world, alone);
        world.heal();
        assert_eq!(pg_state::text(state(&mut world)), "active+clean", "seed {seed}: {}", world.describe());
        world.call(1, "log", append("c"));
        assert_eq!(world.stored("log").expect("an object").data, b"ac", "seed {seed}: given up by order");
        world.assert_equal_copies();
    }
}

#[test]
fn what_others_have_as_well_comes_back_to_one_that_lost_its_records() {
    for (seed, victim) in (0..30).zip([0, 1, 2].into_iter().cycle()) {
        let mut world = World::new(seed, 1);
        world.run_until_idle();
        for n in 0..5 {
            world.call(0, &format!("o{n}"), append("a"));
        }
        world.lose(victim);
        world.call(0, "o1", append("b"));
        world.call(0, "o2", vec![SubOp::new(nacre_msg::osd_op::code::DELETE)]);
        world.disk(victim).spoil_records();
        world.restart(victim);
        world.heal();
        assert_eq!(pg_state::text(state(&mut world)), "active+clean", "seed {seed}: {}", world.describe());
        world.assert_equal_copies();
        assert!(world.stored("o2").is_none() && world.stored("o1").is_some_and(|it| it.data == b"ab"));
        let pg = world.pg(victim).expect("a copy");
        assert_eq!(pg.info().lost_through, 0, "others have all of it");
        // Read back from what it stores.
        world.restart(victim);
        world.crash(victim);
        world.restart(victim);
        world.heal();
        world.assert_equal_copies();
    }
}

/// What the copy had before its records were damaged stays where it is, until others have given it a new one.
#[test]
fn what_lies_in_a_damaged_copy_stays_until_there_is_another() {
    let mut world = damaged(4, 1);
    assert!(world.disk(1).objects().contains_key(&head("log")));
    let before = world.disk(1).objects().clone();
    world.publish(|map| map.pools.values_mut().for_each(|pool| pool.min_size = 2));
    pass(&mut world);
    assert_eq!(world.disk(1).objects(), &before);
}

#[test]
fn a_pg_is_made_anew_by_order_whatever_copies_hold() {
    for (seed, alone) in (0..30).zip([0, 1, 2].into_iter().cycle()) {
        let mut world = damaged(seed, alone);
        assert!(state(&mut world) & pg_state::DOWN != 0, "seed {seed}: {}", world.describe());
        if seed % 4 == 1 {
            world.crash((alone + 1) % 3); // comes back later, with what it had
            world.mark_down((alone + 1) % 3);
            world.run_until_idle();
        }
        world.recreate();
        pass(&mut world);
        assert!(state(&mut world) & pg_state::ACTIVE != 0, "seed {seed}: {}", world.describe());
        assert!(world.stored("log").is_none(), "seed {seed}");
        world.call(1, "other", append("x"));
        world.heal();
        assert_eq!(pg_state::text(state(&mut world)), "active+clean", "seed {seed}: {}", world.describe());
        world.assert_equal_copies();
        assert!(world.stored("log").is_none() && world.stored("other").is_some(), "seed {seed}");
    }
}

/// Half-way through its new copy, the OSD still has lost what it had.
#[test]
fn a_crash_while_the_copy_is_made_anew_does_not_forget_the_loss() {
    for seed in 0..60 {
        let mut world = World::new(seed, 1);
        world.run_until_idle();
        world.call(0, "log", append("a"));
        world.publish(|map| map.pools.values_mut().for_each(|pool| pool.min_size = 1));
        world.run_until_idle();
        world.lose(0);
        // osd.1 and osd.2 have it, and osd.2 alone is left.
        world.call(0, "log", append("b"));
        world.lose(2);
        world.disk(2).spoil_records();
        world.restart(2);
        for _ in 0..world.pick(120) {
            world.step();
        }
        world.crash(1);
        world.mark_down(1);
        world.restart(0);
        for _ in 0..world.pick(60) {
            world.step();
        }
        world.crash(2);
        world.restart(2);
        pass(&mut world);
        // osd.0 is behind, and osd.2 has what osd.1 gave it before, or nothing.
        if world.stored("log").is_some_and(|log| log.data == b"ab") {
            continue;
        }
        assert!(state(&mut world) & pg_state::ACTIVE == 0, "seed {seed}: {}", world.describe());
        world.heal();
        assert_eq!(pg_state::text(state(&mut world)), "active+clean", "seed {seed}: {}", world.describe());
        assert_eq!(world.stored("log").expect("an object").data, b"ab", "seed {seed}");
    }
}
