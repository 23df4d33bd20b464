//! [`History`]: the kept epochs of the OSDMap.
//!
//! The store holds the full and the incremental encoding of each epoch. In memory all incrementals stay, but
//! full maps only every [`CHECKPOINT_EPOCHS`]; those in between are rebuilt, since they are asked for rarely
//! (a daemon that was away for long, `osd getmap`) and would cost the most on large clusters.

use super::OsdMapsError;
use crate::batch::{Batch, Snapshot};
use nacre_buf::Bytes;
use nacre_denc::{Decode, Encode};
use nacre_maps::{Incremental, OsdMap};
use nacre_types::Epoch;
use std::collections::BTreeMap;

const FULL_PREFIX: &str = "osdmap-full";
const INCREMENTAL_PREFIX: &str = "osdmap-inc";
const BOUNDS_PREFIX: &str = "osdmap";
const OLDEST_KEY: &str = "oldest";
const NEWEST_KEY: &str = "newest";

/// Epochs kept at least; Ceph `mon_min_osdmap_epochs`.
pub const EPOCHS_COUNT_MIN: u32 = 500;
/// Epochs dropped per commit at most, so that trimming never makes a commit large; `paxos_service_trim_max`.
const TRIM_EPOCHS_MAX: u32 = 500;
/// Distance of full maps kept in memory.
const CHECKPOINT_EPOCHS: u32 = 64;

/// Keys sort as epochs do.
fn key(epoch: Epoch) -> String {
    format!("{epoch:010}")
}

/// The newest full map of the tables, alone: what a cluster goes on from that has lost the epochs before it.
#[derive(Debug)]
pub(crate) struct NewestMap {
    /// Which epoch of the cluster it is.
    pub(crate) epoch: Epoch,
    /// The map as clients and OSDs read it.
    pub(crate) full: Bytes,
}

impl NewestMap {
    /// That of these tables.
    pub(crate) fn read(snapshot: &dyn Snapshot) -> Result<Self, OsdMapsError> {
        let epoch = snapshot.get(BOUNDS_PREFIX, NEWEST_KEY).ok_or(OsdMapsError::Missing)?;
        let epoch = Epoch::from_bytes(epoch)?;
        let full = snapshot.get(FULL_PREFIX, &key(epoch)).ok_or(OsdMapsError::Gap(epoch))?;
        Ok(Self { epoch, full })
    }

    /// Puts it into tables that have none.
    pub(crate) fn store(&self, batch: &mut Batch) {
        History::create(self.epoch, &self.full, batch);
    }

    /// Removes it from tables that have another one.
    pub(crate) fn remove(&self, batch: &mut Batch) {
        batch.delete(FULL_PREFIX, key(self.epoch));
    }
}

/// The kept epochs.
#[derive(Debug)]
pub struct History {
    oldest: Epoch,
    newest: Epoch,
    incrementals: BTreeMap<Epoch, Bytes>,
    /// Full maps of the oldest epoch and of every checkpoint.
    fulls: BTreeMap<Epoch, Bytes>,
}

impl History {
    /// Stores the first epoch of a cluster.
    pub(crate) fn create(epoch: Epoch, full: &Bytes, batch: &mut Batch) {
        batch.put(FULL_PREFIX, key(epoch), full.clone());
        batch.put(BOUNDS_PREFIX, OLDEST_KEY, epoch.to_bytes());
        batch.put(BOUNDS_PREFIX, NEWEST_KEY, epoch.to_bytes());
    }

    /// Reads the kept epochs and the newest full map.
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<(Self, Bytes), OsdMapsError> {
        let bound = |name| snapshot.get(BOUNDS_PREFIX, name).ok_or(OsdMapsError::Missing);
        let oldest = Epoch::from_bytes(bound(OLDEST_KEY)?)?;
        let newest = Epoch::from_bytes(bound(NEWEST_KEY)?)?;
        let newest_full = snapshot.get(FULL_PREFIX, &key(newest)).ok_or(OsdMapsError::Gap(newest))?;
        let full = |epoch| snapshot.get(FULL_PREFIX, &key(epoch)).ok_or(OsdMapsError::Gap(epoch));
        let stored = snapshot.scan(INCREMENTAL_PREFIX).into_iter();
        let incrementals: BTreeMap<Epoch, Bytes> =
            stored.filter_map(|(epoch, value)| Some((epoch.parse().ok()?, value))).collect();
        if let Some(gap) = (oldest + 1..=newest).find(|epoch| !incrementals.contains_key(epoch)) {
            return Err(OsdMapsError::Gap(gap));
        }
        let checkpoints =
            (oldest..=newest).filter(|epoch| *epoch == oldest || epoch.is_multiple_of(CHECKPOINT_EPOCHS));
        let fulls =
            checkpoints.map(|epoch| Ok((epoch, full(epoch)?))).collect::<Result<_, OsdMapsError>>()?;
        if let Some(last) = incrementals.get(&newest).filter(|_| newest > oldest) {
            let wanted = Incremental::from_bytes(last.clone())?.full_crc;
            let found = newest_full.last_chunk().map_or(0, |tail| u32::from_le_bytes(*tail));
            if found != wanted {
                return Err(OsdMapsError::Torn(newest));
            }
        }
        Ok((Self { oldest, newest, incrementals, fulls }, newest_full))
    }

    /// Oldest epoch that is kept.
    #[must_use]
    pub fn oldest(&self) -> Epoch {
        self.oldest
    }

    /// The encoded change that made `epoch`.
    #[must_use]
    pub fn incremental(&self, epoch: Epoch) -> Option<&Bytes> {
        self.incrementals.get(&epoch)
    }

    /// The encoded full map of `epoch`, rebuilt from the checkpoint before it.
    #[must_use]
    pub fn full(&self, epoch: Epoch) -> Option<Bytes> {
        if epoch < self.oldest || epoch > self.newest {
            return None;
        }
        let (base, bytes) = self.fulls.range(..=epoch).next_back()?;
        if *base == epoch {
            return Some(bytes.clone());
        }
        let mut map = OsdMap::from_bytes(bytes.clone()).ok()?;
        for step in base + 1..epoch {
            map.apply(&Incremental::from_bytes(self.incrementals.get(&step)?.clone()).ok()?).ok()?;
        }
        // Whatever went wrong on the way shows in the last one.
        map.apply_verified(&Incremental::from_bytes(self.incrementals.get(&epoch)?.clone()).ok()?).ok()
    }

    /// Adds the newest epoch.
    pub(crate) fn append(&mut self, epoch: Epoch, incremental: Bytes, full: Bytes, batch: &mut Batch) {
        assert_eq!(epoch, self.newest + 1, "epochs leave no gap");
        batch.put(INCREMENTAL_PREFIX, key(epoch), incremental.clone());
        batch.put(FULL_PREFIX, key(epoch), full.clone());
        batch.put(BOUNDS_PREFIX, NEWEST_KEY, epoch.to_bytes());
        self.incrementals.insert(epoch, incremental);
        if epoch.is_multiple_of(CHECKPOINT_EPOCHS) {
            self.fulls.insert(epoch, full);
        }
        self.newest = epoch;
    }

    /// True when there is more than has to be kept in any case.
    pub(crate) fn is_long(&self) -> bool {
        self.newest.saturating_sub(EPOCHS_COUNT_MIN) > self.oldest
    }

    /// Drops epochs below `floor`, the oldest that an OSD may still need, but keeps
    /// [`EPOCHS_COUNT_MIN`].
    pub(crate) fn trim(&mut self, floor: Epoch, batch: &mut Batch) {
        let goal = floor
            .min(self.newest.saturating_sub(EPOCHS_COUNT_MIN))
            .min(self.oldest.saturating_add(TRIM_EPOCHS_MAX));
        if goal <= self.oldest {
            return;
        }
        let Some(full) = self.full(goal) else { return };
        for epoch in self.oldest..goal {
            batch.delete(FULL_PREFIX, key(epoch));
            batch.delete(INCREMENTAL_PREFIX, key(epoch));
        }
        batch.delete(INCREMENTAL_PREFIX, key(goal));
        batch.put(BOUNDS_PREFIX, OLDEST_KEY, goal.to_bytes());
        self.incrementals = self.incrementals.split_off(&(goal + 1));
        self.fulls = self.fulls.split_off(&goal);
        self.fulls.insert(goal, full);
        self.oldest = goal;
    }
}
