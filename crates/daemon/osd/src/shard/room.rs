//! The room of a shard's store, in the words of `core/osd`, which judges it.

use super::Shard;
use nacre_osd_core::Room;
use nacre_store::StoreUsage;

pub(super) fn room(usage: &StoreUsage) -> Room {
    Room { total_bytes: usage.total_bytes, available_bytes: usage.available_bytes }
}

impl Shard {
    /// What the store has for clients: see [`Room::for_clients`].
    pub(super) fn usage_for_clients(&self) -> StoreUsage {
        let usage = self.store.usage();
        let Room { total_bytes, available_bytes } = room(&usage).for_clients();
        StoreUsage { total_bytes, available_bytes, ..usage }
    }
}
