//! Copies that the log does not reach: compared with the others, some objects at a time, while clients are served.

use crate::Event;
use crate::harness::{Touched, World};
use crate::log::LogLimits;
use nacre_maps::flags;
use nacre_msg::SubOp;
use nacre_msg::peer::{Push, Scan};
use nacre_msg::stats::pg_state;
use nacre_types::{OsdId, PgId, SnapId};
use std::time::Duration;

const LIMITS: LogLimits = LogLimits { target: 40, trim_min: 5, max: 60, bytes_max: 1 << 20 };

fn write(text: &str) -> Vec<SubOp> {
    vec![SubOp::write_full(text.as_bytes().to_vec().into())]
}

fn state(world: &mut World) -> String {
    let primary = world.primary();
    pg_state::text(world.pg(primary).map_or(0, |pg| pg.state()))
}

/// A world with a short log and so many objects.
fn filled(objects: usize, scan_objects: usize) -> World {
    let mut world = World::new(7, 1);
    (world.limits, world.scan_objects) = (LIMITS, scan_objects);
    for osd in 0..3 {
        world.pg(osd).into_iter().for_each(|pg| {
            pg.set_log_limits(LIMITS);
            pg.state.scan_objects = scan_objects;
        });
    }
    world.run_until_idle();
    for osd in 1..3 {
        let pg = world.pg(osd).expect("a copy");
        pg.set_log_limits(LIMITS);
        pg.state.scan_objects = scan_objects;
    }
    for n in 0..objects {
        world.request(0, &format!("o{n}"), write("x"));
        if n % 500 == 499 {
            world.run_until_idle();
        }
    }
    world.run_until_idle();
    world
}

fn place(world: &mut World, osds: &[OsdId]) {
    let osds = osds.to_vec();
    world.publish(|map| drop(map.pg_upmap.insert(PgId::new(3, 0), osds)));
}

/// Lets time pass until the PG is clean.
fn heal(world: &mut World) {
    for _ in 0..20 {
        while world.step() {}
        world.tick(Duration::from_secs(1));
        if state(world) == "active+clean" && !world.has_wishes() {
            break;
        }
    }
    while world.step() {}
    assert_eq!(state(world), "active+clean", "{}", world.describe());
    world.assert_equal_copies();
}

fn sent(world: &World, osd: OsdId, kind: u16) -> usize {
    world.sent.get(&(osd, kind)).copied().unwrap_or(0)
}

/// What one event asks of a disk at most while a PG of so many objects moves, is scrubbed and loses a snapshot.
fn most_touched(objects: usize) -> Touched {
    let mut world = filled(objects, 512);
    for n in 0..objects / 10 {
        world.request_with_snaps(0, &format!("o{n}"), write("newer"), vec![SnapId(1)]);
    }
    world.run_until_idle();
    world.most_touched = Touched::default();
    place(&mut world, &[3, 4, 2]);
    heal(&mut world);
    let primary = world.primary();
    for deep in [false, true] {
        world.event(primary, Event::Scrub { deep, repair: false });
        heal(&mut world);
    }
    world.most_touched
}

#[test]
fn no_turn_grows_with_the_number_of_objects() {
    let (few, many) = (most_touched(2_000), most_touched(20_000));
    // Two copies are compared with this one, in the event that brings the second list.
    let bound = Touched { objects: 2 * 3 * 513, keys: 200, changes: 300, bytes: 2 << 20 };
    assert_eq!(few.max(bound), bound, "{few:?}");
    assert_eq!(many.max(bound), bound, "{many:?}");
}

/// The PG serves before anything was compared.
#[test]
fn a_pg_is_active_before_its_new_copies_are_compared() {
    let mut world = filled(200, 16);
    world.publish(|map| map.flags |= flags::osdmap::NOBACKFILL);
    place(&mut world, &[3, 4, 2]);
    world.run_until_idle();
    assert_eq!(world.call(0, "o7", write("served")).result, 0);
    assert_eq!(world.call(0, "o7", vec![SubOp::read(0, 0)]).result, 0);
    assert_eq!((sent(&world, 3, Scan::KIND), sent(&world, 4, Scan::KIND)), (0, 0));
    assert_eq!(state(&mut world), "active+remapped+backfill_wait");
    world.publish(|map| map.flags &= !flags::osdmap::NOBACKFILL);
    heal(&mut world);
}

/// Ceph's `last_backfill`: what was compared before a restart is not compared again, as long as the log reaches back.
#[test]
fn a_new_copy_goes_on_where_it_was_when_it_restarts() {
    const OBJECTS: usize = 400;
    let mut world = filled(OBJECTS, 16);
    place(&mut world, &[0, 1, 3]);
    while world.disk(3).objects().len() < OBJECTS * 3 / 4 {
        assert!(world.step(), "{}", world.describe());
    }
    world.crash(3);
    world.mark_down(3);
    world.run_until_idle();
    // Some before the cursor, some behind it.
    for n in 0..20 {
        world.request(0, &format!("o{}", n * 20), write("while it was away"));
    }
    world.run_until_idle();
    let scans = sent(&world, 3, Scan::KIND);
    let pushes = sent(&world, 3, Push::KIND);
    world.restart(3);
    heal(&mut world);
    let (scans, pushes) = (sent(&world, 3, Scan::KIND) - scans, sent(&world, 3, Push::KIND) - pushes);
    assert!(scans <= OBJECTS / 4 / 16 + 4, "{scans} scans for the last quarter");
    assert!(pushes <= OBJECTS / 4 + 20 + 32, "{pushes} objects");
    assert_eq!(world.disk(3).objects().len(), OBJECTS);
}

/// Once the log has gone on without it, all of the copy is compared again.
#[test]
fn a_new_copy_begins_again_when_the_log_does_not_reach_back() {
    const OBJECTS: usize = 400;
    let mut world = filled(OBJECTS, 16);
    place(&mut world, &[0, 1, 3]);
    while world.disk(3).objects().len() < OBJECTS / 2 {
        assert!(world.step(), "{}", world.describe());
    }
    world.crash(3);
    world.mark_down(3);
    world.run_until_idle();
    for n in 0..100 {
        world.request(0, &format!("o{}", n * 4), write("while it was away"));
    }
    world.run_until_idle();
    let scans = sent(&world, 3, Scan::KIND);
    world.restart(3);
    heal(&mut world);
    assert!(sent(&world, 3, Scan::KIND) - scans >= OBJECTS / 16, "all is compared");
}

/// A primary answers for all objects; one that the log does not tell what it lacks leaves that to others, at once.
#[test]
fn a_primary_with_an_empty_disk_leaves_the_lead_to_others() {
    let mut world = filled(200, 16);
    world.crash(0);
    world.disk(0).wipe();
    world.mark_down(0);
    world.run_until_idle();
    world.restart(0);
    let mut waited = false;
    while world.step() {
        waited |= world.pg(0).is_some_and(|pg| pg.phase_name() == "Started/Primary/WaitActingChange");
    }
    assert!(waited, "it never was primary");
    assert_eq!(world.call(0, "o7", write("served")).result, 0);
    heal(&mut world);
    assert_eq!(world.primary(), 0);
    assert_eq!(world.disk(0).objects().len(), 200);
}

/// A write to an object of eight parts, of which some are on their way to a new copy, goes before the rest; the next one does not, or
/// the copy would never have the object.
#[test]
fn the_first_write_goes_before_an_object_on_its_way() {
    const PARTS: usize = 8;
    let mut world = filled(1, 16);
    world.request(0, "large", vec![SubOp::write_full(vec![1; PARTS << 19].into())]);
    world.run_until_idle();
    place(&mut world, &[0, 1, 3]);
    let pushes = |world: &World| sent(world, 3, Push::KIND);
    let mut before = 0;
    for (round, waits) in [false, true].into_iter().enumerate() {
        // The small object is one more.
        while pushes(&world) < before + 3 {
            assert!(world.step(), "{}", world.describe());
        }
        let write =
            world.request(0, "large", vec![SubOp::write(0, format!("round {round}").into_bytes().into())]);
        while world.clients[0].sent.contains_key(&write) {
            assert!(world.step(), "{}", world.describe());
        }
        let all = pushes(&world) - before >= PARTS;
        assert_eq!(
            all,
            waits,
            "round {round}: {} parts were sent when it was answered",
            pushes(&world) - before
        );
        before = pushes(&world);
    }
    heal(&mut world);
    let large = world.stored("large").expect("it is there");
    assert_eq!(&large.data[..8], b"round 1\x01");
}
