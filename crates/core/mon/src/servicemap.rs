//! Services that registered with the manager (gateways and the like).

use crate::batch::{Batch, Snapshot};
use crate::stored_map::StoredMap;
use nacre_denc::DecodeError;
use nacre_msg::ServiceMap;

const TABLE: &str = "servicemap";

/// The service map. Services register anew with a new manager, but it is durable for its epoch's sake: subscribers wait for a greater one than
/// they have, whoever leads.
#[derive(Debug)]
pub struct ServiceMaps(StoredMap<ServiceMap>);

impl ServiceMaps {
    /// Epoch 1 in a store that has none.
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<Self, DecodeError> {
        let first = ServiceMap { epoch: 1, ..ServiceMap::default() };
        StoredMap::open(snapshot, TABLE, first).map(Self)
    }

    /// The current map.
    #[must_use]
    pub fn map(&self) -> &ServiceMap {
        self.0.map()
    }

    /// Changes the map; the epoch grows by one.
    pub fn update(&mut self, edit: impl FnOnce(&mut ServiceMap)) {
        self.0.update(|map| {
            edit(map);
            map.epoch += 1;
        });
    }

    /// Bytes that wait to be committed.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.0.pending_bytes()
    }

    /// Takes over the map of an active stock manager. The epoch grows, whatever that manager has counted.
    pub(crate) fn replace(&mut self, new: ServiceMap) {
        let is_other = |map: &ServiceMap| map.services != new.services || map.modified != new.modified;
        if is_other(self.map()) {
            self.0.update(|map| *map = ServiceMap { epoch: new.epoch.max(map.epoch + 1), ..new });
        }
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.0.is_dirty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        self.0.flush(batch);
    }
}
