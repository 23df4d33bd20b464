//! Snapshots of pools and of clients, and the bookkeeping of their removal.
//!
//! A removed snapshot stands in `removed_snaps_queue` of the map until every PG of the pool has trimmed it;
//! then it is purged from the queue. That it was removed once is remembered for as long as the pool lives, so
//! that a repeated removal has no effect.

use super::{OsdMaps, PoolError};
use nacre_denc::{Decode, DecodeError, Encode};
use nacre_maps::{OsdMap, Pool, PoolSnap, flags};
use nacre_types::{IntervalSet, PoolId, SnapId, UTime};
use std::collections::BTreeMap;

const REMOVED_PREFIX: &str = "osd-removed-snaps";

pub(super) fn read_removed(
    snapshot: &dyn crate::batch::Snapshot,
) -> Result<BTreeMap<PoolId, IntervalSet>, DecodeError> {
    let pairs = snapshot.scan(REMOVED_PREFIX).into_iter();
    pairs
        .filter_map(|(pool, value)| Some((pool.parse().ok()?, value)))
        .map(|(pool, value)| Ok((pool, IntervalSet::from_bytes(value)?)))
        .collect()
}

fn name_of(map: &OsdMap, pool: PoolId) -> String {
    map.pool_names.get(&pool).cloned().unwrap_or_else(|| pool.to_string())
}

/// A pool whose snapshots may be of the kind `flag`; `other` is the kind that excludes it.
fn pool_for(map: &OsdMap, id: PoolId, other: u64) -> Result<&Pool, PoolError> {
    let pool = map.pools.get(&id).ok_or_else(|| PoolError::NoPool(id.to_string()))?;
    if pool.has_flag(other) { Err(PoolError::SnapMode(name_of(map, id))) } else { Ok(pool) }
}

impl OsdMaps {
    /// Takes a snapshot of the whole pool.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn create_pool_snap(&mut self, id: PoolId, name: &str, wall: UTime) -> Result<SnapId, PoolError> {
        let map = self.upcoming();
        let pool = pool_for(map, id, flags::pool::SELFMANAGED_SNAPS)?;
        if pool.snaps.values().any(|snap| snap.name == name) {
            return Err(PoolError::SnapExists { pool: name_of(map, id), snap: name.to_owned() });
        }
        let snap = self.next_snap(id, flags::pool::POOL_SNAPS)?;
        let entry = PoolSnap { id: snap, stamp: wall, name: name.to_owned() };
        if let Some(pool) = self.change_pool(id) {
            pool.snaps.insert(snap, entry);
        }
        Ok(snap)
    }

    /// Removes a snapshot of the whole pool.
    ///
    /// # Errors
    /// [`PoolError`]; [`PoolError::NoSnap`] when there is none of that name.
    pub fn remove_pool_snap(&mut self, id: PoolId, name: &str) -> Result<(), PoolError> {
        let pool = pool_for(self.upcoming(), id, flags::pool::SELFMANAGED_SNAPS)?;
        let found = pool.snaps.values().find(|snap| snap.name == name).map(|snap| snap.id);
        let snap = found.ok_or(PoolError::NoSnap)?;
        if let Some(pool) = self.change_pool(id) {
            pool.snaps.remove(&snap);
        }
        self.remove(id, snap);
        Ok(())
    }

    /// Allocates a client's snapshot.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn create_self_managed_snap(&mut self, id: PoolId) -> Result<SnapId, PoolError> {
        pool_for(self.upcoming(), id, flags::pool::POOL_SNAPS)?;
        self.next_snap(id, flags::pool::SELFMANAGED_SNAPS)
    }

    /// Removes a client's snapshot; one that is removed already stays so.
    ///
    /// # Errors
    /// [`PoolError`]; [`PoolError::NoSnap`] for an id that was never given out.
    pub fn remove_self_managed_snap(&mut self, id: PoolId, snap: SnapId) -> Result<(), PoolError> {
        let pool = pool_for(self.upcoming(), id, flags::pool::POOL_SNAPS)?;
        if snap > pool.snap_seq || snap.0 == 0 {
            return Err(PoolError::NoSnap);
        }
        if self.was_removed(id, snap) {
            return Ok(());
        }
        self.remove(id, snap);
        Ok(())
    }

    /// Removes snapshots that a metadata server made with ids of its own. Unknown pools are passed over.
    pub fn remove_snaps(&mut self, id: PoolId, snaps: &[SnapId]) {
        if !self.upcoming().pools.contains_key(&id) {
            return;
        }
        for snap in snaps.iter().filter(|snap| **snap <= SnapId::MAX && snap.0 > 0) {
            if self.was_removed(id, *snap) {
                continue;
            }
            if let Some(pool) = self.change_pool(id) {
                pool.snap_seq = pool.snap_seq.max(*snap);
            }
            self.remove(id, *snap);
        }
    }

    fn next_snap(&mut self, id: PoolId, mode: u64) -> Result<SnapId, PoolError> {
        let epoch = self.pending().incremental.epoch;
        let pool = self.change_pool(id).ok_or_else(|| PoolError::NoPool(id.to_string()))?;
        // The first client snapshot of a pool has always been number 2.
        if mode == flags::pool::SELFMANAGED_SNAPS && pool.snap_seq.0 == 0 {
            pool.snap_seq = SnapId(1);
        }
        pool.flags |= mode;
        pool.snap_seq = SnapId(pool.snap_seq.0 + 1);
        pool.snap_epoch = epoch;
        Ok(pool.snap_seq)
    }

    fn remove(&mut self, id: PoolId, snap: SnapId) {
        let epoch = self.pending().incremental.epoch;
        if let Some(pool) = self.change_pool(id) {
            // A new number, so that clients with the old one see that their context is stale.
            pool.snap_seq = SnapId(pool.snap_seq.0 + 1);
            pool.snap_epoch = epoch;
        }
        self.change().new_removed_snaps.entry(id).or_default().insert(snap.0, 1);
        let removed = self.removed_snaps.entry(id).or_default();
        removed.insert(snap.0, 1);
        self.changes.put(REMOVED_PREFIX, id.to_string(), removed.to_bytes());
    }

    fn was_removed(&self, id: PoolId, snap: SnapId) -> bool {
        self.removed_snaps.get(&id).is_some_and(|removed| removed.contains(snap.0))
    }

    pub(super) fn forget_snaps(&mut self, id: PoolId) {
        if self.removed_snaps.remove(&id).is_some() {
            self.changes.delete(REMOVED_PREFIX, id.to_string());
        }
    }

    /// Every PG of the pool has trimmed `trimmed`: what of it is still queued is purged.
    pub(crate) fn purge_snaps(&mut self, id: PoolId, trimmed: &IntervalSet) {
        let map = self.upcoming();
        let Some(queued) = map.removed_snaps_queue.get(&id) else { return };
        let purged = queued.intersection(trimmed);
        if !purged.is_empty() {
            self.change().new_purged_snaps.entry(id).or_default().union_with(&purged);
        }
    }
}
