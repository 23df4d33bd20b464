//! File systems: none yet, but subscribers get empty maps.

use crate::batch::{Batch, Snapshot};
use nacre_denc::{Decode, DecodeError, Encode};
use nacre_maps::{FsMap, MdsMap};
use nacre_msg::FsMapUserBody;

const PREFIX: &str = "fsmap";
const KEY: &str = "current";

/// The file-system map. It is durable, and its epoch with it: subscribers wait for a greater one than they have, whoever leads.
#[derive(Debug)]
pub struct FsMaps {
    map: FsMap,
    changes: Batch,
}

impl FsMaps {
    /// Epoch 1 in a store that has none.
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<Self, DecodeError> {
        let stored = snapshot.get(PREFIX, KEY).map(FsMap::from_bytes).transpose()?;
        Ok(Self { map: stored.unwrap_or_else(|| FsMap::empty(1)), changes: Batch::default() })
    }

    /// Changes the map; the epoch grows by one.
    pub fn update(&mut self, edit: impl FnOnce(&mut FsMap)) {
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

    /// The current map.
    #[must_use]
    pub fn map(&self) -> &FsMap {
        &self.map
    }

    /// The names of the file systems.
    #[must_use]
    pub fn user_map(&self) -> FsMapUserBody {
        FsMapUserBody {
            epoch: self.map.epoch,
            legacy_fscid: self.map.legacy_client_fscid,
            filesystems: Vec::new(),
        }
    }

    /// What a client that mounts sees: a file system that is not enabled.
    #[must_use]
    pub fn mds_map(&self) -> MdsMap {
        MdsMap { epoch: self.map.epoch, ..MdsMap::default() }
    }
}
