//! What a shard does for the latency of few operations, and leaves when it has many: then the processor's time counts.

use super::Shard;
use nacre_store::SubmitHint;

/// A turn that brought no more events than this sends before it lets the store work; a busier one sends once.
const EARLY_SEND_MAX: usize = 2;

impl Shard {
    /// Notes how many events there are to handle before the next sending.
    pub(super) fn note_load(&mut self, events: usize) {
        self.lightly_loaded = events <= EARLY_SEND_MAX;
        // One record takes as many requests to the device whether it begins now or in a moment.
        self.store.set_submit_hint(if events == 1 { SubmitHint::Now } else { SubmitHint::Batch });
    }

    /// Sends what is there, if there is little to do.
    pub(super) fn flush_early(&mut self) {
        if self.lightly_loaded {
            self.messenger.flush();
        }
    }
}
