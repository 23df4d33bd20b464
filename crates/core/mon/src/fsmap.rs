//! File systems: none yet, but subscribers get empty maps.

use crate::batch::{Batch, Snapshot};
use crate::stored_map::StoredMap;
use nacre_denc::DecodeError;
use nacre_maps::{FsMap, MdsMap};
use nacre_msg::FsMapUserBody;

const TABLE: &str = "fsmap";

/// The file-system map. It is durable, and its epoch with it: subscribers wait for a greater one than they have, whoever leads.
#[derive(Debug)]
pub struct FsMaps(StoredMap<FsMap>);

impl FsMaps {
    /// Epoch 1 in a store that has none.
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<Self, DecodeError> {
        StoredMap::open(snapshot, TABLE, FsMap::empty(1)).map(Self)
    }

    /// Changes the map; the epoch grows by one.
    pub fn update(&mut self, edit: impl FnOnce(&mut FsMap)) {
        self.0.update(|map| {
            edit(map);
            map.epoch += 1;
        });
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.0.is_dirty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        self.0.flush(batch);
    }

    /// The current map.
    #[must_use]
    pub fn map(&self) -> &FsMap {
        self.0.map()
    }

    /// The names of the file systems.
    #[must_use]
    pub fn user_map(&self) -> FsMapUserBody {
        FsMapUserBody {
            epoch: self.map().epoch,
            legacy_fscid: self.map().legacy_client_fscid,
            filesystems: Vec::new(),
        }
    }

    /// What a client that mounts sees: a file system that is not enabled.
    #[must_use]
    pub fn mds_map(&self) -> MdsMap {
        MdsMap { epoch: self.map().epoch, ..MdsMap::default() }
    }
}
