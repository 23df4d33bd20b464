//! [`Space`]: the room that a store's file has in its file system, and a reserve of it.
//!
//! Whoever decides what may grow looks at [`Space::room`]. It leaves something over; all the same others may fill the file system,
//! and then the store must still take what makes it smaller, and open. So some bytes are kept for it beforehand, and given up when
//! nothing else is left. A file system that is full beyond that is an error, after which the store must be opened anew.

use nacre_env::{File, FileRoom};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// There is no reserve, because nobody wants one, or the file system cannot keep one.
const NONE: u8 = 0;
/// It is there.
const HELD: u8 = 1;
/// It was needed, or there was no room for it.
const SPENT: u8 = 2;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Space {
    file: Arc<dyn File>,
    reserve_bytes: u64,
    state: AtomicU8,
    /// Length of the file when its reserve was made.
    held_behind: AtomicU64,
}

/// Whether a file system is full, or its owner's share of it.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

impl Space {
    /// Of a file that was just opened: a reserve of earlier may be there.
    pub(crate) fn new(file: Arc<dyn File>, reserve_bytes: u64) -> Self {
        Self { file, reserve_bytes, state: AtomicU8::new(HELD), held_behind: AtomicU64::new(u64::MAX) }
    }

    /// Makes the reserve, where there is none and room for it. Called when nothing is half-done.
    pub(crate) fn keep(&self) {
        let Ok(length) = self.file.length() else { return };
        let is_held = self.state.load(Ordering::Relaxed) == HELD;
        if self.reserve_bytes == 0 || (is_held && self.held_behind.load(Ordering::Relaxed) == length) {
            return;
        }
        let state = match self.file.reserve(self.reserve_bytes) {
            Ok(()) => HELD,
            Err(error) if is_full(&error) => SPENT,
            Err(_) => NONE,
        };
        self.state.store(state, Ordering::Relaxed);
        self.held_behind.store(length, Ordering::Relaxed);
    }

    /// Does what may need room; gives up the reserve when there is no other.
    pub(crate) fn with_room(&self, work: impl Fn() -> io::Result<()>) -> io::Result<()> {
        match work() {
            Err(error) if is_full(&error) && self.state.swap(SPENT, Ordering::Relaxed) != SPENT => {
                self.file.reserve(0)?;
                work()
            }
            outcome => outcome,
        }
    }

    /// What the file may grow by before somebody should stop it. Nothing once the reserve was needed.
    pub(crate) fn room(&self) -> Option<FileRoom> {
        let room = self.file.room().ok()?;
        let is_spent = self.reserve_bytes > 0 && self.state.load(Ordering::Relaxed) == SPENT;
        let available_bytes =
            if is_spent { 0 } else { room.available_bytes.saturating_sub(self.reserve_bytes) };
        Some(FileRoom { available_bytes, ..room })
    }
}
