//! [`IdleTrim`]: a store that nobody uses gives back memory.

use nacre_buf::AlignedBuf;
use nacre_store::ObjectStore;
use nacre_types::Stamp;
use std::time::Duration;

/// A store that nobody used for so long brings its changes home, and free memory goes back to the system.
const IDLE_TRIM_AFTER: Duration = Duration::from_secs(5);

/// Since when a shard's store rests.
#[derive(Debug, Default)]
pub(crate) struct IdleTrim {
    used_at: Stamp,
    /// Nothing is left to do until it is used again.
    is_done: bool,
}

impl IdleTrim {
    /// The store is used.
    pub(crate) fn used(&mut self, now: Stamp) {
        *self = Self { used_at: now, is_done: false };
    }

    /// Lets the store rest when nobody has used it for a while, and gives memory back once it does (`give_back_memory`).
    pub(crate) fn trim(&mut self, now: Stamp, store: &mut dyn ObjectStore, give_back_memory: fn()) {
        if self.is_done || now < self.used_at + IDLE_TRIM_AFTER || store.idle_trim() {
            return;
        }
        self.is_done = true;
        AlignedBuf::empty_pool();
        give_back_memory();
    }
}
