//! The manager map: this process is the active manager, on an address of its own.

use crate::batch::{Batch, Snapshot};
use crate::stored_map::StoredMap;
use nacre_denc::DecodeError;
use nacre_maps::MgrMap;
use nacre_types::{AddrVec, UTime};

const TABLE: &str = "mgrmap";

/// The manager map. Its epoch is durable, since subscribers compare it across our restarts.
#[derive(Debug)]
pub struct MgrMaps(StoredMap<MgrMap>);

impl MgrMaps {
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<Self, DecodeError> {
        StoredMap::open(snapshot, TABLE, MgrMap::default()).map(Self)
    }

    /// The current map.
    #[must_use]
    pub fn map(&self) -> &MgrMap {
        self.0.map()
    }

    /// Changes the map; the epoch grows by one.
    pub fn update(&mut self, edit: impl FnOnce(&mut MgrMap)) {
        self.0.update(|map| {
            edit(map);
            map.epoch += 1;
        });
    }

    /// Says that we serve as the active manager, listening at `addrs`.
    pub(crate) fn activate(&mut self, name: &str, gid: u64, addrs: AddrVec, wall: UTime) {
        self.update(|map| {
            map.active_name = name.to_owned();
            map.active_gid = gid;
            map.active_addrs = addrs;
            map.available = true;
            map.active_change = wall;
            map.active_mgr_features = nacre_types::features::SUPPORTED;
        });
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.0.is_dirty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        self.0.flush(batch);
    }
}
