//! [`DeviceFile`]: the descriptor, and what the system says about what is behind it.

use super::{identity, sys, system_device};
use crate::disk::{BLOCK_BYTES, DiskInfo, SECTOR_BYTES};
use crate::real::private;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long an open waits for a disk that is in use: more than requests under way take on a busy disk.
const LOCK_PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });
const LOCK_TRIES: u32 = 500;

/// A disk could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    System {
        /// What was opened.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another process, or another part of this one, has it open.
    #[error("{} is in use by another process", path.display())]
    InUse {
        /// What was opened.
        path: PathBuf,
    },
    /// Neither a regular file nor a block device.
    #[error("{} is neither a file nor a block device", path.display())]
    NoDisk {
        /// What was opened.
        path: PathBuf,
    },
    /// Smaller than one block.
    #[error("{} holds not even one block", path.display())]
    TooSmall {
        /// What was opened.
        path: PathBuf,
    },
}

/// An open, locked file or block device.
#[derive(Debug)]
pub(super) struct DeviceFile {
    pub(super) file: File,
    pub(super) is_device: bool,
    pub(super) direct: bool,
    size_bytes: u64,
    /// Of the block device, or of the one that the file is on.
    device: u64,
    /// Where the file was opened once more: what has the lock.
    pub(super) lock: Option<File>,
}

impl DeviceFile {
    pub(super) fn create(path: &Path, size_bytes: u64) -> Result<Self, OpenError> {
        let system = |source| OpenError::System { path: path.to_owned(), source };
        let size_bytes = size_bytes - size_bytes % BLOCK_BYTES as u64;
        let file = private::options().read(true).write(true).create_new(true).open(path).map_err(system)?;
        let made = allocate(&file, size_bytes).and_then(|()| sync_with_folder(&file, path));
        if let Err(source) = made {
            // Half a disk would be taken for one at the next start. If it cannot go either, that was said.
            let _still_there = std::fs::remove_file(path);
            return Err(system(source));
        }
        drop(file);
        Self::open(path)
    }

    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        let system = |source| OpenError::System { path: path.to_owned(), source };
        let metadata = std::fs::metadata(path).map_err(system)?;
        let is_device = metadata.file_type().is_block_device();
        if !is_device && !metadata.is_file() {
            return Err(OpenError::NoDisk { path: path.to_owned() });
        }
        // Of a block device this also keeps file systems and device mappers away.
        let exclusive = if is_device { libc::O_EXCL } else { 0 };
        let opened =
            patiently(|| open_direct(path, exclusive), |error| error.kind() == io::ErrorKind::ResourceBusy);
        let (mut file, direct) = opened.map_err(|source| match source.kind() {
            io::ErrorKind::ResourceBusy => OpenError::InUse { path: path.to_owned() },
            _ => system(source),
        })?;
        match lock(&file) {
            Ok(()) => (),
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(system(source)),
        }
        let end = file.seek(SeekFrom::End(0)).map_err(system)?;
        let size_bytes = end - end % BLOCK_BYTES as u64;
        if size_bytes == 0 {
            return Err(OpenError::TooSmall { path: path.to_owned() });
        }
        let device = system_device::device_number(&metadata);
        Ok(Self { file, is_device, direct, size_bytes, device, lock: None })
    }

    /// A further hold on it, under the same lock: requests through it keep the file locked until they are done.
    pub(super) fn again(&self) -> io::Result<Self> {
        let Self { ref file, is_device, direct, size_bytes, device, ref lock } = *self;
        let lock = lock.as_ref().map(File::try_clone).transpose()?;
        Ok(Self { file: file.try_clone()?, is_device, direct, size_bytes, device, lock })
    }

    /// The same for another user of it. Through the page cache it is opened once more: that a page could not be written back, the system says
    /// once to each open file.
    pub(super) fn opened_again(&self) -> io::Result<Self> {
        let again = self.again()?;
        if self.direct {
            return Ok(again);
        }
        let file = open_again(&self.file)?;
        let lock = again.lock.or(Some(again.file));
        Ok(Self { file, lock, ..*self })
    }

    pub(super) fn info(&self) -> DiskInfo {
        let physical = self.queue_attribute("physical_block_size").and_then(|text| text.parse().ok());
        let block_bytes = physical.unwrap_or(BLOCK_BYTES).clamp(SECTOR_BYTES, BLOCK_BYTES);
        let discard_bytes = self.queue_attribute("discard_granularity").filter(|_| self.is_device);
        let discard_bytes = discard_bytes.and_then(|text| text.parse().ok()).unwrap_or(0);
        let (size_bytes, is_file) = (self.size_bytes, !self.is_device);
        DiskInfo { size_bytes, is_file, block_bytes, discard_bytes, driver: "" }
    }

    /// As of [`system_device::volatile_cache`].
    pub(super) fn volatile_cache(&self) -> Option<bool> {
        system_device::volatile_cache(&self.sysfs_folder())
    }

    /// The disks below, with what is printed on them ([`identity::disks_below`]).
    pub(super) fn disks(&self) -> BTreeMap<String, Option<String>> {
        identity::disks_below(&self.sysfs_folder())
    }

    /// As of [`system_device::rotational`].
    pub(super) fn rotational(&self) -> Option<bool> {
        system_device::rotational(&self.sysfs_folder())
    }

    /// From sysfs. None on network and layered file systems.
    fn queue_attribute(&self, name: &str) -> Option<String> {
        system_device::queue_attribute(&self.sysfs_folder(), name)
    }

    /// A link to the folder of the device below.
    fn sysfs_folder(&self) -> PathBuf {
        system_device::sysfs_folder(Path::new("/"), self.device)
    }
}

/// Tries again for a while what another opener is in the way of: it may be what a killed process left behind.
///
/// Requests that a ring still has under way keep their file open, and so locked, when the process is gone: the kernel
/// takes a ring down in the background. To wait for the lock is to wait until none of them can reach the disk any more.
fn patiently<T, E>(attempt: impl Fn() -> Result<T, E>, is_busy: impl Fn(&E) -> bool) -> Result<T, E> {
    let step = LOCK_PATIENCE / LOCK_TRIES;
    for _ in 1..LOCK_TRIES {
        match attempt() {
            Err(error) if is_busy(&error) => std::thread::sleep(step),
            done => return done,
        }
    }
    attempt()
}

fn lock(file: &File) -> Result<(), TryLockError> {
    patiently(|| file.try_lock(), |error| matches!(error, TryLockError::WouldBlock))
}

/// An open file opened once more, without `O_DIRECT`. By the descriptor: what a path names may have changed since.
pub(super) fn open_again(file: &File) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// With O_DIRECT, or without where the file system does not have it; durable writes are durable all the same.
fn open_direct(path: &Path, flags: i32) -> io::Result<(File, bool)> {
    let open = |flags| OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    match open(flags | libc::O_DIRECT) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok((open(flags)?, false)),
        other => Ok((other?, true)),
    }
}

/// Allocated blocks, so that a full file system shows here and not in the middle of a write.
fn allocate(file: &File, size_bytes: u64) -> io::Result<()> {
    match sys::allocate(file, size_bytes) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => file.set_len(size_bytes),
        other => other,
    }
}

/// The file and its name survive loss of power.
fn sync_with_folder(file: &File, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
