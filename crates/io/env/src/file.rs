//! [`File`]: one file that grows, as a database in it sees it. Calls wait for the device: a caller that must not wait has a thread
//! for them.

use std::fmt::Debug;
use std::io;

/// What of a file system one file has, and could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FileRoom {
    /// Bytes that the file takes.
    pub used_bytes: u64,
    /// Bytes that it could take more, without what is reserved for it.
    pub available_bytes: u64,
    /// Bytes of the whole file system, whoever uses them.
    pub total_bytes: u64,
}

/// A file. Reads see what was written before; a loss of power leaves of each write since the last [`File::sync`] all, any of its
/// 512-byte sectors, or nothing, whatever it leaves of others, and of lengths any since then.
pub trait File: Debug + Send + Sync {
    /// Its length in bytes.
    ///
    /// # Errors
    /// When the device fails.
    fn length(&self) -> io::Result<u64>;

    /// Fills `out` with what is at `offset`.
    ///
    /// # Errors
    /// When the device fails, or the file is too short.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes `data` at `offset`, within the file.
    ///
    /// # Errors
    /// When the device fails: what was written is then unknown. [`io::ErrorKind::StorageFull`] when the file system has no room.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Cuts the file, or lets it grow by zeros.
    ///
    /// # Errors
    /// When the device fails, or there is no room.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// What was written survives a loss of power.
    ///
    /// # Errors
    /// When the device fails: what survives is then unknown, and no later call tells.
    fn sync(&self) -> io::Result<()>;

    /// Hands what was written to the device, which promises nothing.
    ///
    /// # Errors
    /// When the device fails.
    fn write_back(&self) -> io::Result<()> {
        Ok(())
    }

    /// Keeps so many bytes of the file system for what the file grows by; 0 gives them back. Survives the process.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] when there is no room, [`io::ErrorKind::Unsupported`] where it cannot be done.
    fn reserve(&self, bytes: u64) -> io::Result<()>;

    /// What the file has of its file system; may be of some moments ago.
    ///
    /// # Errors
    /// When the system does not tell.
    fn room(&self) -> io::Result<FileRoom>;
}
