//! The monitors' own map.

use crate::batch::{Batch, Snapshot};
use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError, Encode};
use nacre_maps::MonMap;

const PREFIX: &str = "monmap";
const KEY: &str = "current";

/// The monmap; with a single monitor it changes only at mkfs and when the address does.
#[derive(Debug)]
pub struct MonMaps {
    map: MonMap,
    changes: Batch,
}

impl MonMaps {
    pub(crate) fn create(map: MonMap, batch: &mut Batch) {
        batch.put(PREFIX, KEY, map.to_bytes());
    }

    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<Option<Self>, DecodeError> {
        let Some(bytes) = snapshot.get(PREFIX, KEY) else { return Ok(None) };
        Ok(Some(Self { map: MonMap::from_bytes(bytes)?, changes: Batch::default() }))
    }

    /// The current map.
    #[must_use]
    pub fn map(&self) -> &MonMap {
        &self.map
    }

    /// The current map as clients read it.
    #[must_use]
    pub fn encoded(&self) -> Bytes {
        self.map.to_bytes()
    }

    /// Replaces the map by its successor; the epoch grows by one.
    pub fn update(&mut self, edit: impl FnOnce(&mut MonMap)) {
        edit(&mut self.map);
        self.map.epoch += 1;
        self.changes.put(PREFIX, KEY, self.map.to_bytes());
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.changes.is_empty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        batch.append(&mut self.changes);
    }
}
