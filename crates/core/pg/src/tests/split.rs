//! A pool gets more PGs: what belongs to them leaves, on every copy alike.

use crate::harness::{World, spg};
use crate::{Pg, storage};
use nacre_buf::Bytes;
use nacre_maps::flags::osdmap;
use nacre_msg::SubOp;
use nacre_types::{PgId, SnapId, SpgId};
use std::time::Duration;

const PG_NUM: u32 = 4;

fn write(text: &str) -> Vec<SubOp> {
    vec![SubOp::write_full(Bytes::from(text.to_owned()).into())]
}

fn child(seed: u32) -> SpgId {
    SpgId::replicated(PgId::new(spg().pg.pool, seed))
}

/// A world whose PG holds forty objects, one of them with a clone.
fn filled() -> World {
    let mut world = World::new(7, 1);
    world.run_until_idle();
    for n in 0..40 {
        world.call(0, &format!("o{n}"), write(&format!("content {n}")));
    }
    world.request_with_snaps(0, "o7", write("newer"), vec![SnapId(1)]);
    world.run_until_idle();
    world
}

fn split(world: &mut World) {
    world.publish(|map| map.pools.values_mut().for_each(|pool| pool.pg_num = PG_NUM));
    world.run_until_idle();
}

#[test]
fn objects_log_and_sums_are_divided() {
    let mut world = filled();
    let whole = world.disk(0).objects().clone();
    let before = world.pg(0).expect("a copy").info().counters;
    split(&mut world);
    world.assert_equal_copies();
    let mut sums = world.pg(0).expect("a copy").info().counters;
    let mut objects = world.disk(0).objects().clone();
    assert!(objects.keys().all(|object| object.pg(PG_NUM) == spg().pg));
    for seed in 1..PG_NUM {
        let disk = world.disk(0).child(&child(seed)).expect("it was split off");
        let saved = storage::load(&disk, &child(seed)).expect("readable records");
        assert!(!disk.objects().is_empty() && saved.missing.is_empty());
        assert!(disk.objects().keys().all(|object| object.pg(PG_NUM) == child(seed).pg));
        assert_eq!(saved.info.last_update, saved.log.head());
        assert!(saved.log.iter().all(|entry| entry.object.pg(PG_NUM) == child(seed).pg));
        sums.add(&saved.info.counters);
        objects.extend(disk.objects().iter().map(|(object, stored)| (object.clone(), stored.clone())));
    }
    assert_eq!(objects, whole);
    assert_eq!((sums.objects, sums.clones, sums.bytes), (before.objects, before.clones, before.bytes));
    assert_eq!(sums.objects, 41);
}

#[test]
fn what_a_copy_lacks_of_a_child_it_lacks_after_the_split() {
    let mut world = filled();
    world.publish(|map| map.flags |= osdmap::NORECOVER);
    world.crash(2);
    world.mark_down(2);
    world.run_until_idle();
    // All that osd.2 misses belongs to one child: afterwards its copy of the parent lacks nothing.
    let objects = world.disk(0).objects().clone();
    let moved =
        objects.keys().filter(|object| object.pg(PG_NUM) == child(1).pg && object.snap == SnapId::HEAD);
    let names: Vec<String> =
        moved.take(2).map(|object| String::from_utf8_lossy(&object.name).into_owned()).collect();
    for name in &names {
        world.request(0, name, write("newest"));
    }
    world.run_until_idle();
    world.restart(2);
    for _ in 0..5 {
        world.run_until_idle();
        world.tick(Duration::from_secs(1));
    }
    // And the parent's log goes on behind it.
    let kept =
        objects.keys().find(|object| object.pg(PG_NUM) == spg().pg).expect("one is left to the parent");
    assert_eq!(world.call(0, &String::from_utf8_lossy(&kept.name), write("later")).result, 0);
    split(&mut world);
    let parent = world.pg(2).expect("a copy").info();
    assert_eq!(parent.last_complete, parent.last_update);
    let disk = world.disk(2).child(&child(1)).expect("it was split off");
    let saved = storage::load(&disk, &child(1)).expect("readable records");
    assert_eq!((names.len(), saved.missing.len()), (2, 2));
}

/// What all copies had of an object that left with a child is none of the parent's versions: a copy that has not got that much of the parent's
/// log would be taken for one that lost something.
#[test]
fn what_left_with_a_child_is_not_known_to_be_on_all_copies() {
    let mut world = World::coded(7, 1, 2, 2);
    world.run_until_idle();
    let of = |seed: u32| {
        let names = (0..40).map(|n| format!("o{n}"));
        names
            .into_iter()
            .find(|name| crate::harness::head(name).pg(PG_NUM) == child(seed).pg)
            .expect("one of forty")
    };
    let (ours, theirs) = (of(0), of(1));
    for object in [&ours, &theirs] {
        assert_eq!(world.call(0, object, write("content")).result, 0);
    }
    split(&mut world);
    let head = world.pg(0).expect("a copy").info().last_update;
    world.request(0, &ours, write("newer"));
    while world.step() {
        for osd in 0..4 {
            let info = world.pg(osd).expect("a copy").info();
            let known = [head, info.last_update].contains(&info.safe_to);
            assert!(
                known,
                "osd.{osd} knows {:?} of all copies, and its log {head:?} and {:?}",
                info.safe_to, info.last_update
            );
        }
    }
}

/// What all copies had of an object that leaves with a child is known in the child, though it is the newest: a copy that lacks it has lost it, and
/// would have the others take it back, who keep nothing of what it replaced any more.
#[test]
fn what_all_copies_had_is_known_in_a_child() {
    let mut world = World::coded(7, 1, 2, 2);
    world.run_until_idle();
    let of = |seed: u32| {
        let mut names = (0..40).map(|n| format!("o{n}"));
        names.find(|name| crate::harness::head(name).pg(PG_NUM) == child(seed).pg).expect("one of forty")
    };
    for object in [of(0), of(1), of(1)] {
        assert_eq!(world.call(0, &object, write("content")).result, 0);
    }
    world.tick(Duration::from_secs(1));
    world.run_until_idle();
    split(&mut world);
    for osd in 0..4 {
        let disk = world.disk(osd).child(&child(1)).expect("it was split off");
        let info = storage::load(&disk, &child(1)).expect("readable records").info;
        assert_eq!(info.safe_to, info.last_update, "osd.{osd}");
        let parent = world.pg(osd).expect("a copy").info();
        assert_eq!(parent.safe_to, parent.last_update, "osd.{osd}");
    }
}

#[test]
fn all_copies_split_alike_and_the_parent_goes_on() {
    let mut world = filled();
    split(&mut world);
    assert_eq!(world.children.len(), 3 * 3, "three copies, three children each");
    for seed in 1..PG_NUM {
        let copies: Vec<_> =
            (0..3).map(|osd| world.disk(osd).child(&child(seed)).expect("it was split off")).collect();
        assert!(copies.iter().all(|copy| copy.objects() == copies[0].objects()));
    }
    let map = world.map().clone();
    let copy = world.disk(1).child(&child(1)).expect("it was split off");
    assert!(Pg::load(&copy, 1, child(1), &map).is_some());
    let ours =
        (0..40).map(|n| format!("o{n}")).find(|name| crate::harness::head(name).pg(PG_NUM) == spg().pg);
    assert_eq!(world.call(0, &ours.expect("one of forty"), write("still served")).result, 0);
    world.assert_equal_copies();
}
