//! [`Turn`]: lets others have the processor every few microseconds of work.
//!
//! A commit is some 10 ms of work without a pause. Durable writes to a file end in a kernel thread that is bound to one
//! processor: that of the interrupt. When the commit runs there, the kernel lets it finish its slice first, which lasts until a
//! tick: up to 4 ms for each of the two steps of a durable write (seen: writes of 0.2 ms that took 6 ms). To offer the
//! processor costs less than 1 us where nobody wants it.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Work between two offers: some 20 to 50 us.
const TURN_BYTES: usize = 32 << 10;

/// Counts work, and lets other threads run when a turn's worth of it is done.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    spent_bytes: AtomicUsize,
}

impl Turn {
    /// Work on so many bytes is about to be done.
    pub(crate) fn spend(&self, bytes: usize) {
        if self.spent_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes >= TURN_BYTES {
            self.spent_bytes.store(0, Ordering::Relaxed);
            std::thread::yield_now();
        }
    }
}
