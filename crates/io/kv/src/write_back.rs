//! [`WriteBack`]: has pages that a commit wrote go to the device a little at a time.
//!
//! A commit writes some megabytes of pages, and then syncs. Left to the page cache they would all go to the device in that
//! sync: every durable write of the store beside it, whose flush takes what the device holds with it, would wait for them.

use crate::progress::Progress;
use nacre_env::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes that may wait to be written back: about what a record of the store's log is.
const WAITING_BYTES_MAX: usize = 256 << 10;
/// The same within one change, such as the deletion of a prefix: what the device has to do is done under the database's locks then.
const OF_A_CHANGE_BYTES_MAX: usize = 8 * WAITING_BYTES_MAX;

/// Of one open file.
#[derive(Debug)]
pub(crate) struct WriteBack {
    file: Arc<dyn File>,
    waiting_bytes: AtomicUsize,
    in_tree: AtomicBool,
    progress: Arc<Progress>,
}

/// Changes are being put into the tree: see [`WriteBack::in_tree`].
pub(crate) struct InTree<'a>(&'a WriteBack);

impl Drop for InTree<'_> {
    fn drop(&mut self) {
        self.0.in_tree.store(false, Ordering::Relaxed);
    }
}

impl InTree<'_> {
    /// A change is in the tree, and the thread has no lock of the database.
    pub(crate) fn changed(&self) -> io::Result<()> {
        self.0.progress.changed();
        self.0.write_back_above(WAITING_BYTES_MAX)
    }
}

impl WriteBack {
    pub(crate) fn new(file: Arc<dyn File>, progress: Arc<Progress>) -> Self {
        let (waiting_bytes, in_tree) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { file, waiting_bytes, in_tree, progress }
    }

    /// Until that is dropped, pages that have no room in the database's cache are written with its state locked, for which every new
    /// snapshot waits: they are written back between two changes.
    pub(crate) fn in_tree(&self) -> InTree<'_> {
        self.in_tree.store(true, Ordering::Relaxed);
        InTree(self)
    }

    /// So many bytes were written to the file.
    pub(crate) fn wrote(&self, bytes: usize) -> io::Result<()> {
        self.progress.wrote(bytes);
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        if !self.in_tree.load(Ordering::Relaxed) {
            return self.write_back_above(WAITING_BYTES_MAX);
        }
        // Without a pause: who wants a snapshot would wait for that, too.
        if self.takes(OF_A_CHANGE_BYTES_MAX) { self.file.write_back() } else { Ok(()) }
    }

    fn write_back_above(&self, bytes: usize) -> io::Result<()> {
        if self.takes(bytes) { self.progress.pausing_after(|| self.file.write_back()) } else { Ok(()) }
    }

    /// Whether so many bytes wait; none do then.
    fn takes(&self, bytes: usize) -> bool {
        let is_due = self.waiting_bytes.load(Ordering::Relaxed) >= bytes;
        if is_due {
            self.synced();
        }
        is_due
    }

    /// Nothing waits: it is all at the device, or is about to be.
    pub(crate) fn synced(&self) {
        self.waiting_bytes.store(0, Ordering::Relaxed);
    }
}
