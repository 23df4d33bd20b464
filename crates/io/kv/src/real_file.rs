//! [`RealFile`]: a database's file in a file system of this machine.

use nacre_env::real::{private, read_cached_first, reserve, room, write_back};
use nacre_env::{Clock, File, FileRoom, RealClock};
use nacre_types::Stamp;
use redb::backends::FileBackend;
use redb::{DatabaseError, StorageBackend};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long the system's word on free space holds: it is asked for each write of a client.
const ROOM_HOLDS: Duration = Duration::from_millis(500);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct RealFile {
    backend: FileBackend,
    /// The same open file.
    descriptor: OwnedFd,
    clock: RealClock,
    room: Mutex<Option<(Stamp, FileRoom)>>,
}

impl RealFile {
    /// Opens the file, which is made if absent.
    pub(crate) fn open(path: &Path) -> Result<Self, DatabaseError> {
        Self::open_as(path, private::options().read(true).write(true).create(true).truncate(false))
    }

    pub(crate) fn open_as(path: &Path, how: &OpenOptions) -> Result<Self, DatabaseError> {
        let file = how.open(path)?;
        let descriptor = file.try_clone()?.into();
        let backend = FileBackend::new(file)?;
        Ok(Self { backend, descriptor, clock: RealClock::start(), room: Mutex::default() })
    }

    /// What locks the file, as redb wants it.
    pub(crate) const fn backend(&self) -> &FileBackend {
        &self.backend
    }

    fn look(&self) -> io::Result<FileRoom> {
        room(self.descriptor.as_fd())
    }
}

impl File for RealFile {
    fn length(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        read_cached_first(self.descriptor.as_fd(), offset, out, |out| self.backend.read(offset, out))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.backend.write(offset, data)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.backend.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.backend.sync_data()
    }

    fn write_back(&self) -> io::Result<()> {
        write_back(self.descriptor.as_fd())
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let length = self.length()?;
        match bytes {
            // What lies behind the end goes.
            0 => self.backend.set_len(length),
            _ => reserve(self.descriptor.as_fd(), length, bytes),
        }
    }

    fn room(&self) -> io::Result<FileRoom> {
        let mut kept = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        if let Some((at, room)) = *kept
            && now.since(at) < ROOM_HOLDS
        {
            return Ok(room);
        }
        let room = self.look()?;
        *kept = Some((now, room));
        Ok(room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::tempdir;

    #[test]
    fn what_is_reserved_is_allocated_behind_the_end_and_given_back() {
        let folder = tempdir().expect("a writable temporary folder");
        let file = RealFile::open(&folder.path().join("file")).expect("a writable folder");
        file.set_length(8192).expect("room");
        file.write(0, &[1; 8192]).expect("room");
        file.sync().expect("a healthy device");
        let before = file.look().expect("a file").used_bytes;
        match file.reserve(1 << 20) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return,
            other => other.expect("room"),
        }
        let reserved = file.look().expect("a file").used_bytes;
        assert!(reserved >= before + (1 << 20), "{before} {reserved}");
        assert_eq!(file.length().expect("a file"), 8192);
        file.reserve(0).expect("a file");
        assert_eq!((file.look().expect("a file").used_bytes, file.length().expect("a file")), (before, 8192));
        assert!(file.room().expect("a file").available_bytes > 0);
    }
}
