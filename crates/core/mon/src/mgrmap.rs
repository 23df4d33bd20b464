//! The manager map: this process is the active manager, on an address of its own.

use crate::batch::{Batch, Snapshot};
use nacre_denc::{Decode, DecodeError, Encode};
use nacre_maps::MgrMap;
use nacre_types::{AddrVec, UTime};

const PREFIX: &str = "mgrmap";
const KEY: &str = "current";

/// The manager map. Its epoch is durable, since subscribers compare it across our restarts.
#[derive(Debug)]
pub struct MgrMaps {
    map: MgrMap,
    changes: Batch,
}

impl MgrMaps {
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<Self, DecodeError> {
        let map = match snapshot.get(PREFIX, KEY) {
            Some(bytes) => MgrMap::from_bytes(bytes)?,
            None => MgrMap::default(),
        };
        Ok(Self { map, changes: Batch::default() })
    }

    /// The current map.
    #[must_use]
    pub fn map(&self) -> &MgrMap {
        &self.map
    }

    /// Changes the map; the epoch grows by one.
    pub fn update(&mut self, edit: impl FnOnce(&mut MgrMap)) {
        edit(&mut self.map);
        self.map.epoch += 1;
        self.changes.put(PREFIX, KEY, self.map.to_bytes());
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
        !self.changes.is_empty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        batch.append(&mut self.changes);
    }
}
