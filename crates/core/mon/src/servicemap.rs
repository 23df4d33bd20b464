//! Services that registered with the manager (gateways and the like).

use nacre_msg::ServiceMap;

/// The service map; kept in memory, since services register anew with a new manager.
#[derive(Debug)]
pub struct ServiceMaps {
    map: ServiceMap,
}

impl ServiceMaps {
    pub(crate) fn open() -> Self {
        Self { map: ServiceMap { epoch: 1, ..ServiceMap::default() } }
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
    }
}
