//! Recovery waits for its places, and keeps to its pace.

use crate::harness::{World, head};
use crate::{Event, RecoveryKind};
use nacre_msg::SubOp;
use nacre_msg::stats::pg_state;
use std::time::Duration;

const OBJECTS: usize = 30;
/// Ceph's priority of forced recovery.
const FORCED: u32 = 255;

fn write(bytes: usize) -> Vec<SubOp> {
    vec![SubOp::write_full(vec![7; bytes].into())]
}

fn state(world: &mut World) -> String {
    let primary = world.primary();
    pg_state::text(world.pg(primary).map_or(0, |pg| pg.state()))
}

/// osd.2 was away and is up again, not yet recovered; `before` it is.
fn behind(seed: u64, bytes: usize, before: impl FnOnce(&mut World)) -> World {
    let mut world = World::new(seed, 1);
    world.run_until_idle();
    world.call(0, "first", write(1)); // a copy without anything would be compared
    world.crash(2);
    world.mark_down(2);
    world.run_until_idle();
    for n in 0..OBJECTS {
        world.request(0, &format!("o{n}"), write(bytes));
    }
    world.run_until_idle();
    before(&mut world);
    world.restart(2);
    world.run_until_idle();
    world
}

fn some_steps(world: &mut World) {
    for _ in 0..world.pick(20) {
        world.step();
    }
}

#[test]
fn recovery_waits_for_a_place_on_either_side() {
    for full in [0, 2] {
        let mut world = behind(1, 1, |world| world.take_places(full, full == 0));
        if full == 2 {
            // Its places went with its process: they are taken once the PG has them.
            world = behind(1, 1, |world| world.take_places(0, true));
            world.take_places(2, true);
            world.take_places(0, false);
            world.run_until_idle();
        }
        assert_eq!(state(&mut world), "active+recovery_wait+degraded", "osd.{full} has no place");
        // What a client waits for needs none.
        assert_eq!(world.call(0, "o1", write(2)).result, 0);
        world.take_places(full, false);
        world.run_until_idle();
        assert_eq!(state(&mut world), "active+clean");
        world.assert_equal_copies();
    }
}

#[test]
fn more_urgent_work_takes_the_place_away_and_recovery_goes_on_later() {
    for seed in 0..50 {
        for full in [0, 2] {
            let mut world = behind(seed, 1, |world| world.take_places(0, true));
            world.take_places(0, false);
            some_steps(&mut world);
            world.take_places(full, true);
            world.run_until_idle();
            world.take_places(full, false);
            world.run_until_idle();
            assert_eq!(state(&mut world), "active+clean", "seed {seed}");
        }
    }
}

#[test]
fn a_lost_connection_leaves_no_place_taken() {
    for seed in 0..50 {
        let mut world = behind(seed, 1, |world| world.take_places(0, true));
        world.take_places(0, false);
        some_steps(&mut world);
        world.cut(0, 2);
        world.run_until_idle();
        assert_eq!(state(&mut world), "active+clean", "seed {seed}");
    }
}

#[test]
fn beside_busy_clients_recovery_keeps_to_a_rate() {
    const BYTES: usize = 1 << 20;
    let mut world = behind(1, BYTES, |world| {
        let now = world.now;
        world.throttle(0).configure(Duration::from_millis(5), 2000, 10);
        world.throttle(0).client_op(now, Some(Duration::from_secs(1)));
    });
    let missing = |world: &mut World| world.pg(0).expect("a PG").stat(Default::default()).expect("a report");
    let left = missing(&mut world).stats.sum.num_objects_degraded;
    assert!(left > 0, "it paused");
    assert!(state(&mut world).contains("recovering"));
    let wanted = world.pg(0).expect("a PG").next_deadline().expect("it wants to go on");
    assert!(wanted > world.now);
    // A client's write every 10 ms, all of them slow: what is left comes more slowly than at 64 MiB/s, with which it begins.
    let mut rounds = 0_u64;
    while missing(&mut world).stats.sum.num_objects_degraded > 0 {
        rounds += 1;
        world.now = world.now + Duration::from_millis(10);
        let now = world.now;
        world.throttle(0).client_op(now, Some(Duration::from_secs(1)));
        world.event(0, Event::Tick);
        world.run_until_idle();
        assert!(rounds < 10_000, "it ends");
    }
    assert!(rounds * 64 > left.unsigned_abs() * 100, "{left} MiB in {rounds} rounds of 10 ms");
    world.tick(Duration::from_secs(1));
    world.run_until_idle();
    assert_eq!(state(&mut world), "active+clean");
}

/// The most objects that were on their way at once, where so many may be.
fn at_a_time(objects_max: usize) -> usize {
    let mut world = behind(1, 1, |world| {
        world.throttle(0).configure(Duration::ZERO, 2000, objects_max);
        world.take_places(0, true);
    });
    world.take_places(0, false);
    let objects: Vec<_> = (0..OBJECTS).map(|n| head(&format!("o{n}"))).collect();
    let mut most = 0;
    while world.step() {
        let pg = world.pg(0).expect("a PG");
        most = most.max(objects.iter().filter(|object| pg.recovery.holds(object)).count());
    }
    assert_eq!(state(&mut world), "active+clean");
    most
}

#[test]
fn as_many_objects_are_on_their_way_as_may_be() {
    assert_eq!([1, 3, 10].map(at_a_time), [1, 3, 10]);
}

#[test]
fn a_forced_pg_goes_before_others_until_it_is_clean() {
    let order = |forced| Event::Force { kind: RecoveryKind::Recovery, forced };
    let mut world = behind(1, 1, |_| ());
    world.event(0, order(true));
    assert_eq!(state(&mut world), "active+clean", "there is nothing to force");
    world = behind(1, 1, |world| world.take_places_at(0, FORCED - 1));
    assert_eq!(state(&mut world), "active+recovery_wait+degraded");
    world.event(0, Event::Force { kind: RecoveryKind::Backfill, forced: true });
    assert_eq!(
        state(&mut world),
        "active+recovery_wait+degraded+forced_backfill",
        "that is not what it waits for"
    );
    world.event(0, Event::Force { kind: RecoveryKind::Backfill, forced: false });
    world.event(0, order(true));
    world.event(0, order(false));
    assert_eq!(state(&mut world), "active+recovery_wait+degraded", "in turn again");
    world.run_until_idle();
    world = behind(1, 1, |world| world.take_places_at(0, FORCED - 1));
    world.event(0, order(true));
    assert!(state(&mut world).contains("forced_recovery"), "{}", state(&mut world));
    world.run_until_idle();
    assert_eq!(state(&mut world), "active+clean");
    world.assert_equal_copies();
}
