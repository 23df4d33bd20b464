//! Objects that nobody has any more, and an operator who gives them up.

use crate::harness::{World, head};
use crate::{Event, Lost, LostError};
use nacre_msg::SubOp;
use nacre_msg::stats::pg_state;
use nacre_types::{Errno, HObject};
use std::time::Duration;

fn append(text: &str) -> Vec<SubOp> {
    vec![SubOp::append(text.as_bytes().to_vec().into())]
}

fn state(world: &mut World) -> String {
    let primary = world.primary();
    pg_state::text(world.pg(primary).map_or(0, |pg| pg.state()))
}

/// osd.2 alone has the newest "log", and "new"; the others know of it when it is gone for good.
fn unfound(seed: u64) -> World {
    let mut world = World::new(seed, 2);
    world.clients[0].backs_off = seed.is_multiple_of(2);
    world.run_until_idle();
    world.call(0, "log", append("a"));
    world.call(0, "other", append("a"));
    world.leave_alone(2, |world| {
        world.call(0, "log", append("b"));
        world.call(0, "new", append("b"));
    });
    // A client's wish finds out that nobody has the object.
    world.request(0, "log", append("c"));
    world.request(0, "new", append("c"));
    world.run_until_idle();
    world
}

/// Those that are away may be gone for good: they are marked lost. osd.2 is.
fn give_up(world: &mut World) {
    world.disk(2).wipe();
    for osd in [0, 2] {
        world.publish(|map| map.osd_info[osd].lost_at = map.osd_info[osd].down_at);
    }
    world.run_until_idle();
    // The map brought a search for what is missing; a client's wish finds out again that nobody has it.
    world.request(1, "log", append(""));
    world.request(1, "new", append(""));
    world.run_until_idle();
}

fn listed(world: &mut World, unfound: bool) -> Vec<String> {
    let disk = std::mem::take(world.disk(1));
    let pg = world.pg(1).expect("a PG");
    let (objects, more) = pg.missing_objects(&disk, &HObject::MIN, unfound, 10);
    assert!(!more);
    let mut names: Vec<String> =
        objects.iter().map(|one| String::from_utf8_lossy(&one.object.name).into_owned()).collect();
    names.sort();
    *world.disk(1) = disk;
    names
}

fn can_mark_lost(world: &mut World, lost: Lost) -> Result<usize, LostError> {
    let disk = std::mem::take(world.disk(1));
    let answer = world.pg(1).expect("a PG").can_mark_lost(&disk, lost);
    *world.disk(1) = disk;
    answer
}

#[test]
fn unfound_objects_are_listed_and_given_up() {
    for (seed, lost) in (0..40).zip([Lost::Revert, Lost::Delete].into_iter().cycle()) {
        let mut world = unfound(seed);
        give_up(&mut world);
        assert_eq!(world.primary(), 1);
        assert_eq!(listed(&mut world, true), ["log", "new"], "seed {seed}: {}", world.describe());
        assert_eq!(listed(&mut world, false), ["log", "new"]);
        assert_eq!(can_mark_lost(&mut world, lost), Ok(2));
        if u64::is_multiple_of(seed, 3) {
            world.restart(0); // a member that misses them as well
            world.run_until_idle();
        }
        let primary = world.primary();
        world.event(primary, Event::MarkLost(lost));
        world.run_until_idle();
        // What waited goes on, on what there is now.
        let (log, new) = if lost == Lost::Revert { ("ac", "c") } else { ("c", "c") };
        for client in [0, 1] {
            assert!(world.clients[client].sent.is_empty(), "seed {seed} {lost:?}: {}", world.describe());
        }
        for _ in 0..3 {
            world.restart(0);
            world.take_places(0, false);
            world.take_places(1, false);
            world.heal();
        }
        for (name, text) in [("log", log), ("new", new), ("other", "a")] {
            let reply = world.call(1, name, vec![SubOp::read(0, 0)]);
            assert_eq!(reply.ops[0].outdata.to_bytes(), text.as_bytes(), "seed {seed} {lost:?} {name}");
        }
        assert_eq!(state(&mut world), "active+clean", "seed {seed}: {}", world.describe());
        world.assert_equal_copies();
        assert_eq!(can_mark_lost(&mut world, lost).unwrap_or(0), 0);
    }
}

#[test]
fn a_crash_while_objects_are_given_up_leaves_them_so_or_unfound() {
    for seed in 0..60 {
        let mut world = unfound(seed);
        give_up(&mut world);
        world.restart(0);
        world.run_until_idle();
        let primary = world.primary();
        world.event(primary, Event::MarkLost(Lost::Delete));
        for _ in 0..world.pick(60) {
            world.step();
        }
        world.crash(primary);
        world.mark_down(primary);
        for _ in 0..3 {
            world.heal();
        }
        let primary = world.primary();
        world.event(primary, Event::MarkLost(Lost::Delete));
        for _ in 0..2 {
            world.heal();
        }
        assert_eq!(state(&mut world), "active+clean", "seed {seed}: {}", world.describe());
        assert!(world.clients[0].sent.is_empty(), "seed {seed}: {}", world.describe());
        world.assert_equal_copies();
    }
}

#[test]
fn nothing_is_given_up_that_somebody_may_have_who_was_not_asked() {
    for seed in 0..20 {
        let mut world = unfound(seed);
        assert_eq!(listed(&mut world, true), ["log", "new"], "seed {seed}: {}", world.describe());
        // OSDs that the intervals of this one's own time do not name any more, either.
        for _ in 0..seed % 3 {
            world.restart(0);
            world.run_until_idle();
            world.lose(0);
            world.request(1, "log", append(""));
            world.run_until_idle();
        }
        let refused = can_mark_lost(&mut world, Lost::Delete);
        let Err(LostError::Unprobed(osds)) = &refused else { panic!("seed {seed}: {refused:?}") };
        assert!(osds.contains(&2), "seed {seed}: {osds:?}");
        let refused = refused.unwrap_err();
        assert_eq!(refused.errno(), Errno::EINVAL);
        assert!(refused.to_string().contains("osd.2"), "{refused}");
        world.event(1, Event::MarkLost(Lost::Delete));
        world.run_until_idle();
        assert!(listed(&mut world, true).contains(&"log".to_owned()), "seed {seed}: nothing was given up");
        // It comes back, and all is there.
        world.restart(2);
        world.heal();
        assert_eq!(state(&mut world), "active+clean", "seed {seed}: {}", world.describe());
        let reply = world.call(1, "log", vec![SubOp::read(0, 0)]);
        assert_eq!(reply.ops[0].outdata.to_bytes(), b"abc"[..], "seed {seed}");
    }
}

/// One that comes up with an empty disk has told by that that it has nothing.
#[test]
fn who_comes_up_with_nothing_was_asked() {
    for seed in 0..20 {
        let mut world = unfound(seed);
        world.disk(2).wipe();
        // Not a member again, so that it has no reason to speak.
        world.publish(|map| drop(map.pg_upmap.insert(crate::harness::pg(), vec![1, 0, 3])));
        world.run_until_idle();
        world.restart(2);
        world.run_until_idle();
        world.request(1, "log", append(""));
        world.request(1, "new", append(""));
        world.run_until_idle();
        let primary = world.primary();
        assert_eq!(primary, 1, "seed {seed}");
        let answer = can_mark_lost(&mut world, Lost::Delete);
        let osds = match &answer {
            Err(LostError::Unprobed(osds)) => osds.clone(),
            _ => Vec::new(),
        };
        assert!(!osds.contains(&2), "seed {seed}: {answer:?}");
    }
}

#[test]
fn only_a_primary_that_serves_gives_objects_up() {
    let mut world = unfound(1);
    world.restart(0);
    world.run_until_idle();
    assert_eq!(world.primary(), 0);
    assert_eq!(can_mark_lost(&mut world, Lost::Delete), Err(LostError::NotPrimary));
    assert_eq!(LostError::NotPrimary.errno(), Errno::EROFS);
    let object = head("log");
    let text = LostError::NoOlder { osd: 1, object }.to_string();
    assert!(text.contains("osd.1") && text.contains("delete"), "{text}");
}

/// osd.0 and osd.1 have a write that osd.2 missed. osd.1's disk is replaced under its number, and osd.0 is away.
#[test]
fn a_new_disk_under_an_old_number_is_no_witness() {
    for seed in 0..20 {
        let mut world = World::new(seed, 1);
        world.run_until_idle();
        world.call(0, "log", append("a"));
        world.lose(2);
        world.call(0, "log", append("b"));
        world.lose(1);
        world.lose(0);
        world.disk(1).wipe();
        world.publish(|map| map.osd_info[1].lost_at = map.osd_info[1].down_at);
        for osd in [1, 2] {
            world.restart(osd);
        }
        for _ in 0..5 {
            world.run_until_idle();
            world.tick(Duration::from_secs(1));
        }
        assert_eq!(state(&mut world), "down", "seed {seed}: {}", world.describe());
        world.restart(0);
        world.heal();
        assert_eq!(world.stored("log").expect("an object").data, b"ab", "seed {seed}: {}", world.describe());
        world.assert_equal_copies();
    }
}
