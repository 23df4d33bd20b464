use super::*;
use crate::own_collection::{
    MapsApart, level_maps, partition_of, save_map, stored_initial_pg_nums, stored_maps,
};
use nacre_maps::OsdMap;
use nacre_store::{MemStore, conformance};
use nacre_types::{Epoch, PgId, PoolId};

const BYTES: u64 = 16 << 20;

fn pg(seed: u32) -> SpgId {
    SpgId::replicated(PgId::new(2, seed))
}

/// Partitions 1, 3 and 5: of six, those of the second of two shards.
fn three() -> Divided {
    let store = || Box::new(MemStore::new(BYTES)) as Box<dyn ObjectStore + Send>;
    Divided::new((1, store()), vec![(3, store()), (5, store())])
}

fn object(seed: u32, name: &str) -> HObject {
    HObject { hash: seed, ..HObject::head(2, "".into(), "".into(), name.into()) }
}

fn done(store: &mut Divided) -> Vec<Completion> {
    let mut out = Vec::new();
    store.drain(&mut out);
    out
}

fn put(store: &mut Divided, at: SpgId, ops: Vec<Op>) {
    store.submit(Transaction { collection: at, ops }, StoreToken::new(at, Token(7))).expect("room");
    assert_eq!(done(store), [Completion::Durable(StoreToken::new(at, Token(7)))]);
}

fn has(store: &Divided) -> Vec<Vec<SpgId>> {
    store.all().map(ObjectStore::collections).collect()
}

#[test]
fn a_pg_is_in_the_partition_that_was_said_and_its_children_are_with_it() {
    let mut store = three();
    for (seed, partition) in [(1, 5), (3, 1)] {
        assert!(store.place(&pg(seed), partition));
        let touch = Op::Touch(object(seed, "one"));
        put(&mut store, pg(seed), vec![Op::CreateCollection, touch, Op::Touch(object(seed + 8, "two"))]);
    }
    assert!(!store.place(&pg(5), 2), "that one is another shard's");
    assert_eq!(has(&store), [vec![pg(3)], vec![], vec![pg(1)]]);
    let split = |child| Op::Split { child, pg_num: 16, ops: Vec::new() };
    put(&mut store, pg(1), vec![split(pg(9))]);
    put(&mut store, pg(3), vec![split(pg(11))]);
    assert_eq!(has(&store), [vec![pg(3), pg(11)], vec![], vec![pg(1), pg(9)]]);
    assert_eq!(store.collections(), [pg(1), pg(3), pg(9), pg(11)]);
    for child in [9, 11] {
        put(&mut store, pg(child), vec![Op::Touch(object(child, "three"))]);
        assert_eq!(store.list(&pg(child), &HObject::MIN, 9).len(), 2);
    }
    // As it is opened the next time.
    let Divided { first, others, .. } = store;
    let again = Divided::new((1, first), [3, 5].into_iter().zip(others).collect());
    assert_eq!(again.list(&pg(9), &HObject::MIN, 9).len(), 2);
}

#[test]
fn maps_are_in_all_partitions_and_one_completion_is_heard_of() {
    let mut store = three();
    let map = OsdMap { epoch: 5, ..OsdMap::default() };
    let txn = save_map(&store, &map, Some(&[(2, 8)].into()), None);
    put(&mut store, OWN_COLLECTION, txn.ops);
    for part in store.all() {
        assert_eq!(stored_maps(part).len(), 1);
        assert_eq!(stored_initial_pg_nums([part as &dyn ObjectStore]), [(2, 8)].into());
    }
    let key = ByteStr::from_static("recovery/1");
    put(&mut store, OWN_COLLECTION, vec![Op::MetaSet { key, value: Bytes::from_static(b"sealed") }]);
    let sealed = store.all().map(|part| part.pg_meta(&OWN_COLLECTION, b"recovery").len());
    assert_eq!(sealed.collect::<Vec<_>>(), [1, 0, 0]);
}

/// A partition with maps of these epochs, as far as it keeps them.
fn with(epochs: std::ops::RangeInclusive<Epoch>, pools: &[(PoolId, u32)]) -> MemStore {
    let mut store = MemStore::new(BYTES);
    save(&mut store, epochs, pools, None);
    store
}

fn save(
    store: &mut MemStore,
    epochs: std::ops::RangeInclusive<Epoch>,
    pools: &[(PoolId, u32)],
    needed: Option<Epoch>,
) {
    for epoch in epochs {
        let pools = pools.iter().copied().collect();
        let txn = save_map(store, &OsdMap { epoch, ..OsdMap::default() }, Some(&pools), needed);
        store.submit(txn, COPY).expect("room");
    }
}

fn level(stores: &mut [MemStore]) -> Result<(), MapsApart> {
    let all: Vec<&dyn ObjectStore> = stores.iter().map(|store| store as &dyn ObjectStore).collect();
    for (txns, store) in level_maps(&all)?.into_iter().zip(stores) {
        txns.into_iter().for_each(|txn| store.submit(txn, COPY).expect("room"));
    }
    Ok(())
}

fn keys(store: &MemStore) -> (usize, Option<ByteStr>) {
    let maps = store.pg_meta(&OWN_COLLECTION, b"osdmap/");
    (maps.len(), maps.into_iter().next().map(|(key, _)| key))
}

/// Each of them would be copied at every start, and nobody would ever remove it.
#[test]
fn older_maps_than_a_partition_keeps_are_not_copied_and_go() {
    let mut stores = [with(900..=1000, &[]), with(880..=999, &[]), with(900..=930, &[])];
    assert_eq!(keys(&stores[1]), (50, Some("osdmap/0000000950".into())));
    for _ in 0..2 {
        level(&mut stores).expect("one has no PGs, and the others are close enough");
        for store in &stores {
            assert_eq!(keys(store), (50, Some("osdmap/0000000951".into())));
        }
    }
}

/// A PG that changes its partition sees them later, also after a restart with another number of shards.
#[test]
fn maps_that_are_needed_are_kept_however_old_and_go_when_they_are_not() {
    let mut stores = [with(900..=999, &[]), with(900..=999, &[])];
    save(&mut stores[0], 1000..=1100, &[], Some(960));
    save(&mut stores[1], 1000..=1100, &[], None);
    assert_eq!(keys(&stores[0]), (141, Some("osdmap/0000000960".into())));
    level(&mut stores).expect("close enough");
    for store in &mut stores {
        assert_eq!(keys(store), (141, Some("osdmap/0000000960".into())));
        save(store, 1101..=1110, &[], None);
        assert_eq!(keys(store), (50, Some("osdmap/0000001061".into())));
    }
}

/// A shard that was behind when another one stored that a pool has fewer PGs, and stored newer maps since.
#[test]
fn the_fewest_pgs_that_any_partition_knows_of_count() {
    let stores = [with(10..=20, &[(1, 7), (2, 4)]), with(10..=30, &[(1, 8), (3, 1)])];
    let all = || stores.iter().map(|store| store as &dyn ObjectStore);
    let known = [(1, 7), (2, 4), (3, 1)].into();
    assert_eq!(stored_initial_pg_nums(all()), known);
    assert_eq!(stored_initial_pg_nums(all().rev()), known);
}

#[test]
fn partitions_with_pgs_whose_maps_are_too_far_apart_do_not_come_to_one_shard() {
    let with_pg = |epochs| {
        let mut store = with(epochs, &[]);
        store.submit(Transaction { collection: pg(1), ops: vec![Op::CreateCollection] }, COPY).expect("room");
        store
    };
    let mut stores = [with_pg(900..=950), with_pg(900..=1000)];
    let apart = level(&mut stores).expect_err("951 is in none");
    assert_eq!(apart, MapsApart { oldest: 950, newest: 1000 });
    assert!(apart.to_string().contains("as many shards as it has partitions"), "{apart}");
    stores[0] = with_pg(900..=951);
    level(&mut stores).expect("just close enough");
}

/// A crash leaves some partitions a map behind others.
#[test]
fn partitions_that_come_to_one_shard_get_each_others_maps() {
    let mut stores = [with(3..=6, &[(2, 4)]), with(4..=9, &[(2, 4), (3, 1)]), MemStore::new(BYTES)];
    let all: Vec<&dyn ObjectStore> = stores.iter().map(|store| store as &dyn ObjectStore).collect();
    let lacking = level_maps(&all).expect("close enough");
    for (txns, store) in lacking.into_iter().zip(&mut stores) {
        for txn in txns {
            assert!(is_of_maps(&txn));
            store.submit(txn, COPY).expect("room");
        }
    }
    for store in &stores {
        let epochs: Vec<Epoch> = stored_maps(store).iter().map(|map| map.epoch).collect();
        assert_eq!(epochs, [3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(stored_initial_pg_nums([store as &dyn ObjectStore]), [(2, 4), (3, 1)].into());
    }
    let all: Vec<&dyn ObjectStore> = stores.iter().map(|store| store as &dyn ObjectStore).collect();
    assert!(level_maps(&all).expect("equal").iter().all(Vec::is_empty), "nothing is lacking");
}

/// Whatever collections there are, the whole is as full as the fullest part, and says so of the whole.
#[test]
fn a_shard_with_several_partitions_is_as_full_as_the_fullest() {
    let mut store = three();
    assert!(store.place(&pg(1), 3));
    let data = BufList::from(vec![1; 4 << 20]);
    put(&mut store, pg(1), vec![Op::CreateCollection, Op::Write { object: object(1, "a"), offset: 0, data }]);
    let (usage, least) = (store.usage(), store.nth(1).usage());
    assert_eq!(usage.total_bytes, 3 * BYTES);
    assert_eq!(usage.available_bytes, 3 * least.available_bytes);
    assert!(4 << 20 <= BYTES - least.available_bytes);
    // All that is under way may be towards the fullest.
    let room = crate::pg_driver::room(&store);
    assert_eq!((room.total_bytes, room.available_bytes), (BYTES, least.available_bytes));
}

#[test]
fn a_pg_that_was_split_off_stays_in_the_partition_of_its_parent() {
    let pools = [(2, 3)].into();
    for (seed, origin) in [(0, 0), (1, 1), (2, 2), (3, 1), (5, 1), (6, 2), (9, 1)] {
        assert_eq!(partition_of(&pools, &pg(seed), 5), (2 + origin) % 5, "{seed}");
    }
    assert_eq!(partition_of(&BTreeMap::new(), &pg(6), 5), 3, "of a pool that nobody knows, by its own seed");
    assert!((0..40).all(|seed| partition_of(&pools, &pg(seed), 1) == 0));
}

/// The suite of all stores, whose collections are in the second partition.
#[test]
fn it_conforms() {
    conformance::run(|| {
        let mut store = three();
        assert!((0..16).all(|seed| store.place(&SpgId::replicated(PgId::new(3, seed)), 3)));
        store
    });
}
