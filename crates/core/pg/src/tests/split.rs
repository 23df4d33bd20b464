//! A pool gets more groups: what belongs to them leaves, on every copy alike.

use crate::harness::{World, spg};
use crate::{Pg, storage};
use nacre_buf::Bytes;
use nacre_msg::SubOp;
use nacre_types::{PgId, SnapId, SpgId};

const PG_NUM: u32 = 4;

fn write(text: &str) -> Vec<SubOp> {
    vec![SubOp::write_full(Bytes::from(text.to_owned()).into())]
}

fn child(seed: u32) -> SpgId {
    SpgId::replicated(PgId::new(spg().pg.pool, seed))
}

/// A world whose group holds forty objects, one of them with a clone.
fn filled() -> World {
    let mut world = World::new(7, 1);
    world.settle();
    for n in 0..40 {
        world.call(0, &format!("o{n}"), write(&format!("content {n}")));
    }
    world.request_with_snaps(0, "o7", write("newer"), vec![SnapId(1)]);
    world.settle();
    world
}

fn split(world: &mut World) {
    world.publish(|map| map.pools.values_mut().for_each(|pool| pool.pg_num = PG_NUM));
    world.settle();
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
