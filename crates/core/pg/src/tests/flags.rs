//! The operator's flags, and what the PG says of itself under them.

use crate::ScrubIntervals;
use crate::harness::{World, head};
use crate::log::LogLimits;
use crate::ops::testing::Stored;
use nacre_maps::flags::{osd as osd_flags, osdmap};
use nacre_msg::SubOp;
use nacre_msg::osd_op::code;
use nacre_msg::stats::{ObjStatSum, pg_state};
use nacre_types::{PgId, SnapId, UTime};
use std::time::Duration;

fn write(text: &str) -> Vec<SubOp> {
    vec![SubOp::write_full(text.as_bytes().to_vec().into())]
}

/// State and sums as the primary reports them.
fn report(world: &mut World) -> (String, ObjStatSum) {
    let primary = world.primary();
    let stat = world.pg(primary).and_then(|pg| pg.stat(UTime::ZERO)).expect("a report");
    (pg_state::text(stat.state), stat.stats.sum)
}

fn state(world: &mut World) -> String {
    report(world).0
}

fn pass(world: &mut World, seconds: u32) {
    for _ in 0..seconds {
        world.run_until_idle();
        world.tick(Duration::from_secs(1));
    }
    world.run_until_idle();
}

/// A PG with `count` objects.
fn filled(seed: u64, count: usize, limits: LogLimits) -> World {
    let mut world = World::new(seed, 1);
    world.limits = limits;
    (0..3).for_each(|osd| world.pg(osd).into_iter().for_each(|pg| pg.set_log_limits(limits)));
    world.run_until_idle();
    for n in 0..count {
        world.request(0, &format!("o{n}"), write("x"));
    }
    world.run_until_idle();
    world
}

/// So short that an OSD that is away misses entries.
fn short_log() -> LogLimits {
    LogLimits { target: 10, trim_min: 1, max: 20, ..LogLimits::default() }
}

/// osd.2 was away, and comes back under `flags` without 30 objects that the log tells.
fn behind(flags: u32) -> World {
    let mut world = filled(1, 40, LogLimits::default());
    world.crash(2);
    world.mark_down(2);
    world.run_until_idle();
    for n in 0..30 {
        world.request(0, &format!("o{n}"), write("y"));
    }
    world.run_until_idle();
    world.publish(|map| map.flags |= flags);
    world.restart(2);
    pass(&mut world, 5);
    world
}

#[test]
fn norecover_stops_recovery_but_not_what_a_client_waits_for() {
    let mut world = behind(osdmap::NORECOVER);
    let (state_text, sums) = report(&mut world);
    assert_eq!(state_text, "active+recovery_wait+degraded");
    assert_eq!((sums.num_objects_degraded, sums.num_objects_misplaced), (30, 0));
    assert_eq!(world.call(0, "o3", write("z")).result, 0);
    assert_eq!(report(&mut world).1.num_objects_degraded, 29);
    world.publish(|map| map.flags &= !osdmap::NORECOVER);
    pass(&mut world, 3);
    assert_eq!(state(&mut world), "active+clean");
    world.assert_equal_copies();
}

#[test]
fn nobackfill_does_not_stop_recovery() {
    assert_eq!(state(&mut behind(osdmap::NOBACKFILL | osdmap::NOREBALANCE)), "active+clean");
}

/// osd.3 takes the place of osd.2, with nothing, and `nobackfill` keeps it so.
fn to_be_filled() -> World {
    let mut world = filled(2, 50, short_log());
    world.publish(|map| map.flags |= osdmap::NOBACKFILL);
    world.crash(2);
    world.mark_down(2);
    world.publish(|map| drop(map.pg_upmap.insert(PgId::new(3, 0), vec![0, 1, 3])));
    pass(&mut world, 5);
    world
}

#[test]
fn nobackfill_stops_the_filling_of_a_new_copy() {
    let mut world = to_be_filled();
    let (state_text, sums) = report(&mut world);
    assert!(state_text.contains("backfill_wait") && state_text.contains("degraded"), "{state_text}");
    assert_eq!(sums.num_objects_degraded, 50);
    world.publish(|map| map.flags &= !osdmap::NOBACKFILL);
    pass(&mut world, 5);
    assert_eq!(state(&mut world), "active+clean");
}

/// Sets or takes the bits that say how full an OSD is.
fn fill(world: &mut World, osd: i32, bits: u32) {
    let all = osd_flags::FULL | osd_flags::BACKFILLFULL | osd_flags::NEARFULL;
    world.publish(|map| {
        let state = &mut map.osd_state[usize::try_from(osd).expect("an OSD")];
        *state = *state & !all | bits;
    });
}

#[test]
fn a_backfill_waits_for_room_at_its_target() {
    let mut world = to_be_filled();
    fill(&mut world, 3, osd_flags::BACKFILLFULL);
    world.publish(|map| map.flags &= !osdmap::NOBACKFILL);
    pass(&mut world, 5);
    let (state_text, sums) = report(&mut world);
    assert!(state_text.contains("backfill_toofull") && !state_text.contains("backfill_wait"), "{state_text}");
    assert_eq!(sums.num_objects_degraded, 50);
    assert_eq!(world.call(0, "o3", write("z")).result, 0, "clients go on");
    fill(&mut world, 3, osd_flags::NEARFULL);
    pass(&mut world, 5);
    assert_eq!(state(&mut world), "active+clean");
    world.assert_equal_copies();
}

#[test]
fn recovery_waits_for_room_only_where_an_osd_is_full() {
    let mut world = behind(osdmap::NORECOVER);
    fill(&mut world, 2, osd_flags::FULL);
    world.publish(|map| map.flags &= !osdmap::NORECOVER);
    pass(&mut world, 5);
    assert_eq!(state(&mut world), "active+recovery_toofull+degraded");
    fill(&mut world, 2, osd_flags::BACKFILLFULL);
    pass(&mut world, 5);
    assert_eq!(state(&mut world), "active+clean");
    world.assert_equal_copies();
}

#[test]
fn clients_do_not_wait_for_a_copy_that_is_rebuilt() {
    let mut world = to_be_filled();
    let changed: [(&str, Vec<SubOp>); 3] =
        [("o3", write("z")), ("o4", vec![SubOp::new(code::DELETE)]), ("new", write("n"))];
    for (name, ops) in changed {
        assert_eq!(world.call(0, name, ops).result, 0, "{name}");
    }
    let (state_text, sums) = report(&mut world);
    assert!(state_text.contains("backfill_wait"), "{state_text}");
    assert_eq!(sums.num_objects_degraded, 50, "the writes brought nothing there but the new object");
    world.publish(|map| map.flags &= !osdmap::NOBACKFILL);
    pass(&mut world, 5);
    assert_eq!(state(&mut world), "active+clean");
    world.assert_equal_copies();
}

#[test]
fn norebalance_stops_what_only_moves() {
    let mut world = filled(3, 50, short_log());
    world.publish(|map| map.flags |= osdmap::NOREBALANCE);
    world.publish(|map| drop(map.pg_upmap.insert(PgId::new(3, 0), vec![0, 1, 3])));
    pass(&mut world, 5);
    let (state_text, sums) = report(&mut world);
    assert_eq!(state_text, "active+remapped+backfill_wait");
    assert_eq!((sums.num_objects_degraded, sums.num_objects_misplaced), (0, 50));
    // One of those that serve dies: now the new copy is needed.
    world.crash(2);
    world.mark_down(2);
    pass(&mut world, 10);
    assert_eq!(state(&mut world), "active+clean");
    assert_eq!(world.map().pg_to_up_acting(PgId::new(3, 0)).acting, [0, 1, 3]);
}

#[test]
fn nosnaptrim_keeps_clones() {
    let mut world = filled(4, 1, LogLimits::default());
    world.request_with_snaps(0, "o0", write("1"), vec![SnapId(1)]);
    world.run_until_idle();
    world.publish(|map| {
        map.flags |= osdmap::NOSNAPTRIM;
        map.removed_snaps_queue.entry(3).or_default().insert(1, 1);
    });
    pass(&mut world, 3);
    assert_eq!(state(&mut world), "active+clean+snaptrim_wait");
    world.publish(|map| map.flags &= !osdmap::NOSNAPTRIM);
    pass(&mut world, 3);
    assert_eq!(state(&mut world), "active+clean");
    assert_eq!(world.disk(0).objects().len(), 1);
}

/// Neither may it keep others from being trimmed.
#[test]
fn a_clone_whose_record_is_damaged_is_trimmed_when_it_is_repaired() {
    let mut world = filled(4, 1, LogLimits::default());
    for snap in [1, 2] {
        world.request_with_snaps(0, "o0", write("1"), vec![SnapId(snap)]);
        world.run_until_idle();
    }
    let damaged = head("o0").with_snap(SnapId(1));
    let whole = world.disk(0).objects()[&damaged].clone();
    world.disk(0).plant(damaged.clone(), Stored { meta: b"rot".as_slice().into(), ..whole.clone() });
    world.publish(|map| map.removed_snaps_queue.entry(3).or_default().insert(1, 2));
    pass(&mut world, 3);
    assert_eq!(state(&mut world), "active+clean+snaptrim_error");
    assert!(world.disk(0).objects().keys().eq([&damaged, &head("o0")]), "2 is trimmed");
    world.disk(0).plant(damaged, whole);
    pass(&mut world, 700);
    assert_eq!(state(&mut world), "active+clean");
    assert_eq!(world.disk(0).objects().len(), 1);
}

#[test]
fn scrubs_come_in_time_unless_they_are_held_and_orders_in_any_case() {
    const DAY: Duration = Duration::from_secs(86400);
    let intervals = ScrubIntervals { shallow: DAY, longest: 7 * DAY, deep: 7 * DAY };
    let due = |world: &mut World| {
        let wall = UTime::from_unix(Duration::from_nanos(world.now.0));
        world.pg(0).expect("a PG").scrub_due(wall, &intervals).map(|due| due.is_deep)
    };
    let stamp = |world: &mut World| world.pg(0).expect("a PG").info().history.last_scrub_stamp;
    let mut world = filled(5, 3, LogLimits::default());
    assert_eq!(due(&mut world), None, "it was just made");
    world.tick(DAY * 3 / 2);
    world.run_until_idle();
    assert!(due(&mut world).is_some(), "a deep one may come at any time of its interval");
    world.tick(DAY * 6);
    world.run_until_idle();
    assert_eq!(due(&mut world), Some(true));
    world.publish(|map| map.flags |= osdmap::NODEEP_SCRUB);
    world.run_until_idle();
    assert_eq!(due(&mut world), Some(false));
    world.publish(|map| map.flags |= osdmap::NOSCRUB);
    world.run_until_idle();
    assert_eq!(due(&mut world), None);
    let before = stamp(&mut world);
    world.event(0, crate::Event::Scrub { deep: true, repair: false });
    pass(&mut world, 2);
    assert!(stamp(&mut world) > before, "an order is an order");
    world.publish(|map| map.flags &= !(osdmap::NOSCRUB | osdmap::NODEEP_SCRUB));
    world.run_until_idle();
    assert_eq!(due(&mut world), None, "it is done");
    // The pool's own intervals (0: scrub_min_interval, 2: deep_scrub_interval) come before the OSD's.
    let hour = nacre_maps::PoolOption::Float(3600.0);
    world.publish(|map| {
        for pool in map.pools.values_mut() {
            pool.options.insert(0, hour.clone());
        }
    });
    world.tick(Duration::from_secs(2 * 3600));
    world.run_until_idle();
    assert_eq!(due(&mut world), Some(false));
    world.publish(|map| {
        for pool in map.pools.values_mut() {
            pool.options.insert(2, hour.clone());
        }
    });
    world.run_until_idle();
    assert_eq!(due(&mut world), Some(true));
}
