//! Messages between OSDs that are lost although their sessions are not: at the bounds of queues, and by nobody's fault.

use crate::harness::{MEMBERS, World, pg};
use crate::{Event, QueueLimits};
use nacre_msg::SubOp;
use nacre_msg::size::PART_BYTES_MAX;
use nacre_msg::stats::pg_state;
use std::time::Duration;

/// How long it may take until all is well again.
const HEALING_SECONDS: u32 = 900;

fn state(world: &mut World) -> String {
    let primary = world.primary();
    pg_state::text(world.pg(primary).map_or(0, |pg| pg.state()))
}

/// Misfortunes, with writes between them.
fn trouble(world: &mut World, losses: u64) {
    world.losses = losses;
    for n in 0..12 {
        for _ in 0..3 {
            let object = format!("o{}", world.pick(4));
            world.request(0, &object, vec![SubOp::append(format!("{n};").into_bytes().into())]);
        }
        let osd = i32::try_from(world.pick(MEMBERS as usize)).expect("small");
        match world.pick(6) {
            0 => {
                world.crash(osd);
                world.mark_down(osd);
            }
            1 => world.restart(osd),
            2 => world.defame(osd),
            3 => {
                let members = vec![osd, (osd + 1) % MEMBERS, (osd + 2) % MEMBERS];
                world.publish(|map| drop(map.pg_upmap.insert(pg(), members)));
            }
            _ => (),
        }
        for _ in 0..world.pick(200) {
            world.step();
        }
        world.tick(Duration::from_secs(1));
    }
    world.losses = 0;
}

fn ends_well(seed: u64, world: &mut World) {
    world.heal();
    for _ in 0..HEALING_SECONDS {
        if state(world) == "active+clean" && world.clients[0].sent.is_empty() {
            break;
        }
        world.tick(Duration::from_secs(1));
        world.run_until_idle();
    }
    assert_eq!(state(world), "active+clean", "seed {seed}: {}", world.describe());
    assert!(world.clients[0].sent.is_empty(), "seed {seed}: {}", world.describe());
    world.heal();
    world.assert_equal_copies();
}

#[test]
fn with_tiny_queues_everything_still_ends_well() {
    for seed in 0..300 {
        let mut world = World::new(seed, 1);
        world.bound_queues(QueueLimits {
            future_max: usize::try_from(seed % 3).expect("small"),
            ..QueueLimits::default()
        });
        trouble(&mut world, 0);
        ends_well(seed, &mut world);
    }
}

#[test]
fn a_lost_message_hangs_nothing() {
    for seed in 0..300 {
        let mut world = World::new(seed, 1);
        trouble(&mut world, 10 + seed % 40);
        ends_well(seed, &mut world);
    }
}

#[test]
fn a_lost_message_hangs_no_scrub() {
    for seed in 0..40 {
        let mut world = World::new(seed, 1);
        world.run_until_idle();
        for n in 0..4 {
            world.call(0, &format!("o{n}"), vec![SubOp::write_full(vec![b'x'; 5000].into())]);
        }
        let primary = world.primary();
        world.losses = 2;
        world.event(primary, Event::Scrub { deep: true, repair: false });
        world.run_until_idle();
        world.losses = 0;
        let scrubs = |world: &mut World| world.pg(primary).is_some_and(|pg| pg.is_scrubbing());
        for _ in 0..HEALING_SECONDS {
            world.tick(Duration::from_secs(1));
            world.run_until_idle();
        }
        assert!(!scrubs(&mut world), "seed {seed}: {}", world.describe());
        assert_eq!(state(&mut world), "active+clean", "seed {seed}");
    }
}

/// Parts of an object are sent without waiting for those before: a copy that did not get one of them must not take what follows
/// for the object.
#[test]
fn a_lost_part_of_an_object_leaves_no_hole() {
    for seed in 0..40 {
        let mut world = World::new(seed, 1);
        world.run_until_idle();
        world.crash(2);
        world.mark_down(2);
        world.run_until_idle();
        for n in 0..3 {
            let content = vec![b'a' + n; 4 * PART_BYTES_MAX + 1];
            assert_eq!(world.call(0, &format!("o{n}"), vec![SubOp::write_full(content.into())]).result, 0);
        }
        world.losses = 4;
        world.restart(2);
        world.run_until_idle();
        (0..20).for_each(|_| world.tick(Duration::from_secs(1)));
        world.run_until_idle();
        world.losses = 0;
        ends_well(seed, &mut world);
    }
}
