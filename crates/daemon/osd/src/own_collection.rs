//! The OSD's own collection in its store, as Ceph's `meta`: the newest maps, and how many PGs each pool had at first.
//!
//! The collection [`OWN_COLLECTION`] belongs to no pool. Its key-value space holds the newest maps, each under
//! `osdmap/<epoch>`, written before the PGs see the map: whatever epoch a PG has stored, the map of it
//! is there. The key `origins` holds how many PGs each pool had when this OSD first heard of it, or the
//! fewest since, by which it finds the partition of PGs that were split off since then.

use nacre_buf::ByteStr;
use nacre_denc::{Decode, Encode};
use nacre_maps::OsdMap;
use nacre_store::ObjectStore;
use nacre_txn::{Op, Transaction};
use nacre_types::{Epoch, PgId, PoolId, SpgId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The OSD's own collection.
pub const OWN_COLLECTION: SpgId = SpgId::replicated(PgId::new(-1, u32::MAX));
/// Where `ceph tell osd.N bench` writes, as long as one is under way.
pub(crate) const BENCH_COLLECTION: SpgId = SpgId::replicated(PgId::new(-1, 0));
const MAP_PREFIX: &str = "osdmap/";
const INITIAL_PG_NUM_KEY: ByteStr = ByteStr::from_static("origins");
/// Maps kept, but for PGs that change their partition; one that is further behind begins with the oldest.
const MAPS_KEPT_MAX: Epoch = 50;
/// Maps that are forgotten with one that is stored, at most: more were kept for a PG that has changed its partition.
const FORGOTTEN_MAX: usize = 16;
/// Maps that partitions get of each other at a time.
const LEVELLED_MAX: usize = 16;
/// Maps that are read at a time.
const MAPS_READ_MAX: usize = 16;

/// Whether a collection is a PG's, or a copy of one: what an OSD has for itself belongs to no pool.
#[must_use]
pub const fn is_of_pool(collection: &SpgId) -> bool {
    collection.pg.pool >= 0
}

fn map_key(epoch: Epoch) -> ByteStr {
    ByteStr::from(format!("{MAP_PREFIX}{epoch:010}"))
}

/// The epoch of the map with such a key, 0 of any other.
fn epoch_of(key: &ByteStr) -> Epoch {
    let digits = key.as_bytes().strip_prefix(MAP_PREFIX.as_bytes());
    digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok()).unwrap_or(0)
}

/// A map as it is stored; `None` where it does not decode.
fn decoded(key: &ByteStr, bytes: nacre_buf::Bytes) -> Option<Arc<OsdMap>> {
    match OsdMap::from_bytes(bytes) {
        Ok(map) => Some(Arc::new(map)),
        Err(error) => {
            tracing::error!(%key, %error, "a stored map is damaged");
            None
        }
    }
}

/// What the store holds of maps, oldest first.
fn stored_pages(store: &dyn ObjectStore) -> impl Iterator<Item = (ByteStr, nacre_buf::Bytes)> + '_ {
    let mut from = Some(ByteStr::EMPTY);
    let pages = std::iter::from_fn(move || {
        let page = store.pg_meta_page(&OWN_COLLECTION, MAP_PREFIX.as_bytes(), from.as_ref()?, MAPS_READ_MAX);
        from = page.last().map(|(last, _)| [last.as_bytes(), &[0]].concat().into());
        Some(page)
    });
    pages.flatten()
}

/// The epochs of all maps that the store holds.
pub(crate) fn stored_epochs(store: &dyn ObjectStore) -> BTreeSet<Epoch> {
    stored_pages(store).map(|(key, _)| epoch_of(&key)).collect()
}

/// The newest maps that the store holds, at most `MAPS_KEPT_MAX`, oldest first and without a gap: those before one that does not decode
/// are left out. No PG needs them, since whatever they changed for a PG was stored by it before the maps behind them.
#[must_use]
pub fn stored_maps(store: &dyn ObjectStore) -> Vec<Arc<OsdMap>> {
    let mut newest = VecDeque::new();
    for stored in stored_pages(store) {
        if newest.len() == MAPS_KEPT_MAX as usize {
            newest.pop_front();
        }
        newest.push_back(stored);
    }
    let mut maps: Vec<Arc<OsdMap>> =
        newest.into_iter().filter_map(|(key, bytes)| decoded(&key, bytes)).collect();
    let gap = maps.iter().zip(maps.iter().skip(1)).rposition(|(map, next)| map.epoch + 1 < next.epoch);
    maps.drain(..gap.map_or(0, |at| at + 1));
    maps
}

/// The map of one epoch, where the store has it.
pub(crate) fn stored_map(store: &dyn ObjectStore, epoch: Epoch) -> Option<Arc<OsdMap>> {
    let key = map_key(epoch);
    let page = store.pg_meta_page(&OWN_COLLECTION, key.as_bytes(), b"", 1);
    page.into_iter().find_map(|(key, bytes)| decoded(&key, bytes))
}

/// How many PGs each pool had at first, or the fewest since, as an OSD's stores have it: of each pool the least counts, since it only
/// falls. All shards must say the same of it, or they would look for a PG on each other for ever.
#[must_use]
pub fn stored_initial_pg_nums<'a>(
    stores: impl IntoIterator<Item = &'a dyn ObjectStore>,
) -> BTreeMap<PoolId, u32> {
    let mut least: BTreeMap<PoolId, u32> = BTreeMap::new();
    for (pool, pg_num) in stores.into_iter().flat_map(stored_initial_pg_num) {
        let known = least.entry(pool).or_insert(pg_num);
        *known = pg_num.min(*known);
    }
    least
}

/// Whether a transaction of the OSD's own collection is about maps, and what goes with them.
pub(crate) fn is_of_maps(txn: &Transaction) -> bool {
    let is_key =
        |key: &ByteStr| *key == INITIAL_PG_NUM_KEY || key.as_bytes().starts_with(MAP_PREFIX.as_bytes());
    txn.ops.iter().all(|op| match op {
        Op::MetaSet { key, .. } | Op::MetaRemove { key } => is_key(key),
        _ => false,
    })
}

/// Partitions that come to one shard have maps that are further apart than a store keeps maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "one partition has maps up to {oldest}, another one up to {newest}, and some between are nowhere any more: start the OSD once with as \
     many shards as it has partitions, so that they catch up"
)]
pub struct MapsApart {
    /// Epoch of the newest map of the partition that is furthest behind.
    pub oldest: Epoch,
    /// Epoch of the newest map of all.
    pub newest: Epoch,
}

/// What partitions that come to one shard lack of each other's maps, transactions for each, in their order: the next map is the same for
/// all, and what any of their PGs has stored rests on maps that the shard must have. Of older maps than one partition would keep, none is
/// kept: nobody would remove it later. What has been done of it leaves no gap.
///
/// # Errors
/// [`MapsApart`]: a PG could not go on from the map that it has.
pub(crate) fn level_maps(stores: &[&dyn ObjectStore]) -> Result<Vec<Vec<Transaction>>, MapsApart> {
    let maps_of = |store: &&dyn ObjectStore| store.pg_meta(&OWN_COLLECTION, MAP_PREFIX.as_bytes());
    let maps: Vec<BTreeMap<ByteStr, nacre_buf::Bytes>> =
        stores.iter().map(|store| maps_of(store).into_iter().collect()).collect();
    let all: BTreeMap<&ByteStr, &nacre_buf::Bytes> = maps.iter().flatten().collect();
    let newest = all.keys().next_back().map_or(0, |key| epoch_of(key));
    // More maps than that are kept where a PG changes its partition, which sees them all later.
    let more =
        maps.iter().filter(|own| own.len() > MAPS_KEPT_MAX as usize).filter_map(|own| own.keys().next());
    let first = map_key((newest + 1).saturating_sub(MAPS_KEPT_MAX));
    let first = more.min().map_or(first.clone(), |oldest| first.min(oldest.clone()));
    for (store, own) in stores.iter().zip(&maps) {
        // One without PGs begins with any map.
        let has_pgs = store.collections().iter().any(is_of_pool);
        if let Some(last) = own.keys().next_back().filter(|last| has_pgs && **last < first) {
            return Err(MapsApart { oldest: epoch_of(last), newest });
        }
    }
    let pools = stored_initial_pg_nums(stores.iter().copied());
    let lacks = |(store, own): (&&dyn ObjectStore, &BTreeMap<ByteStr, nacre_buf::Bytes>)| {
        let mut ops = Vec::new();
        if stored_initial_pg_num(*store) != pools {
            ops.push(Op::MetaSet { key: INITIAL_PG_NUM_KEY, value: pools.to_bytes() });
        }
        let of_others = all.iter().filter(|(key, _)| **key >= &first && !own.contains_key(**key));
        // Those behind its own from the oldest on, then those before from the newest on.
        let (behind, before): (Vec<_>, Vec<_>) =
            of_others.partition(|(key, _)| own.keys().next() < Some(**key));
        for (key, value) in behind.into_iter().chain(before.into_iter().rev()) {
            ops.push(Op::MetaSet { key: (*key).clone(), value: (*value).clone() });
        }
        for key in own.keys().take_while(|key| **key < first) {
            ops.push(Op::MetaRemove { key: key.clone() });
        }
        let txn = |ops: &[Op]| Transaction { collection: OWN_COLLECTION, ops: ops.to_vec() };
        ops.chunks(LEVELLED_MAX).map(txn).collect()
    };
    Ok(stores.iter().zip(&maps).map(lacks).collect())
}

/// Which of so many partitions of an OSD's store a PG is in: that of the PG which it was split off, which knew `initial_pg_num` of its pool,
/// so that it need not move when it splits. Once a store is made this never changes.
#[must_use]
pub fn partition_of(initial_pg_num: &BTreeMap<PoolId, u32>, spg: &SpgId, partitions: usize) -> usize {
    let origin = initial_pg_num.get(&spg.pg.pool).filter(|pg_num| **pg_num > 0);
    let seed = origin.map_or(spg.pg.seed, |pg_num| nacre_types::hash::stable_mod(spg.pg.seed, *pg_num));
    let spread = spg.pg.pool.unsigned_abs().wrapping_add(seed.into());
    (spread % partitions as u64) as usize
}

/// A PG and those that it may have been split off, the youngest first.
pub(crate) fn ancestors(pg: PgId) -> impl Iterator<Item = PgId> {
    let seeds = std::iter::successors(Some(pg.seed), |seed| {
        seed.checked_ilog2().map(|highest| seed & !(1 << highest))
    });
    seeds.map(move |seed| PgId::new(pg.pool, seed))
}

/// How many PGs each pool had at first, as the store has it.
fn stored_initial_pg_num(store: &dyn ObjectStore) -> BTreeMap<PoolId, u32> {
    let stored = store.pg_meta(&OWN_COLLECTION, &INITIAL_PG_NUM_KEY);
    let value = stored.into_iter().find(|(key, _)| *key == INITIAL_PG_NUM_KEY).map(|(_, value)| value);
    value.and_then(|value| BTreeMap::from_bytes(value).ok()).unwrap_or_default()
}

/// Stores a map, and forgets some that are old enough, and older than that of `needed`; with it `initial_pg_num`, where that has changed.
pub(crate) fn save_map(
    store: &dyn ObjectStore,
    map: &OsdMap,
    initial_pg_num: Option<&BTreeMap<PoolId, u32>>,
    needed: Option<Epoch>,
) -> Transaction {
    let mut txn = Transaction::new(OWN_COLLECTION);
    txn.push(Op::MetaSet { key: map_key(map.epoch), value: map.to_bytes() });
    let first = (map.epoch + 1).saturating_sub(MAPS_KEPT_MAX);
    let first = map_key(needed.map_or(first, |needed| first.min(needed)));
    let oldest = store.pg_meta_page(&OWN_COLLECTION, MAP_PREFIX.as_bytes(), b"", FORGOTTEN_MAX);
    for (key, _) in oldest.into_iter().take_while(|(key, _)| *key < first) {
        txn.push(Op::MetaRemove { key });
    }
    if let Some(pools) = initial_pg_num {
        txn.push(Op::MetaSet { key: INITIAL_PG_NUM_KEY, value: pools.to_bytes() });
    }
    txn
}
