//! [`PacedFile`]: the file of a database, written back a little at a time.
//!
//! A commit writes some megabytes of pages, and then syncs. Left to the page cache they would all go to the device in that
//! sync: every durable write of the store beside it, whose flush takes what the device holds with it, would wait for them.

use crate::progress::Progress;
use crate::turn::Turn;
use nacre_env::real::write_back;
use redb::backends::FileBackend;
use redb::{BackendError, DatabaseError, StorageBackend};
use std::io;
use std::ops::Bound;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that may wait to be written back: about what a record of the store's log is.
const WAITING_BYTES_MAX: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct PacedFile {
    file: FileBackend,
    /// The same open file.
    descriptor: OwnedFd,
    waiting_bytes: AtomicUsize,
    turn: Turn,
    progress: Arc<Progress>,
}

impl PacedFile {
    /// Opens the file, which is made if absent. What is written to it counts as `progress`.
    pub(crate) fn open(path: &Path, progress: Arc<Progress>) -> Result<Self, DatabaseError> {
        let mut how = std::fs::OpenOptions::new();
        let file = how.read(true).write(true).create(true).truncate(false).open(path)?;
        let descriptor = file.try_clone()?.into();
        Ok(Self {
            file: FileBackend::new(file)?,
            descriptor,
            waiting_bytes: AtomicUsize::new(0),
            turn: Turn::default(),
            progress,
        })
    }
}

impl StorageBackend for PacedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.waiting_bytes.store(0, Ordering::Relaxed);
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.turn.spend(data.len());
        self.progress.wrote(data.len());
        self.file.write(offset, data)?;
        let waiting = self.waiting_bytes.fetch_add(data.len(), Ordering::Relaxed) + data.len();
        if waiting < WAITING_BYTES_MAX {
            return Ok(());
        }
        self.waiting_bytes.store(0, Ordering::Relaxed);
        write_back(self.descriptor.as_fd())
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}
