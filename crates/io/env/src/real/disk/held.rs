//! [`HeldDevice`]: a file or block device that is ours and not used yet; [`DeviceView`]: the same through the page cache, for labels and
//! for a database in a region of it.

use super::file::{DeviceFile, OpenError, open_again};
use super::page_cache::read_cached_first;
use super::{DriverChoice, RealDisk, sys};
use crate::{File, FileRoom};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

/// An open file or block device, locked against every other opener; a block device is opened with `O_EXCL`, so that nobody mounts it
/// or puts a mapper over it.
pub struct HeldDevice {
    file: DeviceFile,
    path: PathBuf,
}

impl std::fmt::Debug for HeldDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldDevice").field("path", &self.path).finish_non_exhaustive()
    }
}

impl HeldDevice {
    /// Opens an existing file or block device.
    ///
    /// # Errors
    /// As [`RealDisk::open`].
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Ok(Self { file: DeviceFile::open(path)?, path: path.to_owned() })
    }

    /// Its bytes, in whole blocks of 4 KiB: what a device has beyond the last one is not used.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.file.info().size_bytes
    }

    /// As [`RealDisk::disks`].
    #[must_use]
    pub fn disks(&self) -> BTreeMap<String, Option<String>> {
        self.file.disks()
    }

    /// The same device, opened once more without `O_DIRECT`. As long as the view lives, others are kept away, too.
    ///
    /// # Errors
    /// What the system says.
    pub fn view(&self) -> io::Result<DeviceView> {
        let file = open_again(&self.file.file)?;
        let guard = self.file.again()?;
        Ok(DeviceView { file, size_bytes: self.size_bytes(), _guard: guard })
    }

    /// A further hold on the same device, under the same lock: others are kept away until the last one ends. For those who share it.
    ///
    /// # Errors
    /// What the system says.
    pub fn again(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.again()?, path: self.path.clone() })
    }

    /// The same for one who has to hear by itself of what the system could not write: without `O_DIRECT` the file is opened once more.
    ///
    /// # Errors
    /// What the system says.
    pub fn opened_again(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.opened_again()?, path: self.path.clone() })
    }

    /// A disk over it.
    ///
    /// # Errors
    /// As [`RealDisk::open`].
    pub fn into_disk(self, choice: DriverChoice) -> Result<RealDisk, OpenError> {
        RealDisk::over(self.file, &self.path, choice)
    }
}

impl DeviceView {
    /// Tells a block device that nobody needs a range any more; what can be read there then may be anything. A file keeps its blocks.
    ///
    /// # Errors
    /// What the system says; `Unsupported` and the like where the device takes no discards.
    pub fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        match self.file.metadata()?.file_type().is_block_device() {
            true => sys::discard(&self.file, offset, length),
            false => Ok(()),
        }
    }
}

/// A device through the page cache, where nobody waits for each write: pages that it has, a database reads again and again. Its length
/// is the device's.
#[derive(Debug)]
pub struct DeviceView {
    file: std::fs::File,
    size_bytes: u64,
    /// A hold on the device: its lock ends with the last one.
    _guard: DeviceFile,
}

impl File for DeviceView {
    fn length(&self) -> io::Result<u64> {
        Ok(self.size_bytes)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        read_cached_first(self.file.as_fd(), offset, out, |out| self.file.read_exact_at(out, offset))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset.saturating_add(data.len() as u64) > self.size_bytes {
            return Err(ErrorKind::StorageFull.into());
        }
        self.file.write_all_at(data, offset)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        if length == self.size_bytes { Ok(()) } else { Err(ErrorKind::Unsupported.into()) }
    }

    /// Of a block device also empties its cache.
    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write_back(&self) -> io::Result<()> {
        sys::write_back(self.file.as_fd())
    }

    fn reserve(&self, _bytes: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn room(&self) -> io::Result<FileRoom> {
        Ok(FileRoom { used_bytes: self.size_bytes, available_bytes: 0, total_bytes: self.size_bytes })
    }
}
