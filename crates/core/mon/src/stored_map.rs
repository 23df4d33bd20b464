//! [`StoredMap`]: a map of the cluster that is kept whole, under one key of a table of its own.

use crate::batch::{Batch, Snapshot};
use nacre_denc::{Decode, DecodeError, Encode};

pub(crate) const KEY: &str = "current";

/// A map and its table. It is durable with its epoch: subscribers wait for a greater one than they have, over restarts and whoever leads.
#[derive(Debug)]
pub(crate) struct StoredMap<T> {
    table: &'static str,
    map: T,
    changes: Batch,
}

impl<T: Encode + Decode> StoredMap<T> {
    /// The map of `table`, or `first` in a store that has none.
    pub(crate) fn open(snapshot: &dyn Snapshot, table: &'static str, first: T) -> Result<Self, DecodeError> {
        let stored = snapshot.get(table, KEY).map(T::from_bytes).transpose()?;
        Ok(Self { table, map: stored.unwrap_or(first), changes: Batch::default() })
    }

    pub(crate) fn map(&self) -> &T {
        &self.map
    }

    /// Changes the map. What changes it sees to it that the epoch grows.
    pub(crate) fn update<R>(&mut self, edit: impl FnOnce(&mut T) -> R) -> R {
        let outcome = edit(&mut self.map);
        self.changes = Batch::default(); // the same key
        self.changes.put(self.table, KEY, self.map.to_bytes());
        outcome
    }

    pub(crate) fn pending_bytes(&self) -> usize {
        self.changes.bytes()
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.changes.is_empty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        batch.append(&mut self.changes);
    }
}
