//! Services that registered with the manager (gateways and the like).

use crate::batch::{Batch, Snapshot};
use nacre_denc::{Decode, DecodeError, Encode};
use nacre_msg::ServiceMap;

const PREFIX: &str = "servicemap";
const KEY: &str = "current";

/// The service map. Services register anew with a new manager, but it is durable for its epoch's sake: subscribers wait for a greater one than
/// they have, whoever leads.
#[derive(Debug)]
pub struct ServiceMaps {
    map: ServiceMap,
    changes: Batch,
}

impl ServiceMaps {
    /// Epoch 1 in a store that has none.
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<Self, DecodeError> {
        let stored = snapshot.get(PREFIX, KEY).map(ServiceMap::from_bytes).transpose()?;
        let map = stored.unwrap_or_else(|| ServiceMap { epoch: 1, ..ServiceMap::default() });
        Ok(Self { map, changes: Batch::default() })
    }

    /// The current map.
    #[must_use]
    pub fn map(&self) -> &ServiceMap {
        &self.map
    }

    /// Changes the map; the epoch grows by one.
    pub fn update(&mut self, edit: impl FnOnce(&mut ServiceMap)) {
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
