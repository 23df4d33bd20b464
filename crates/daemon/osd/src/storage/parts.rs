//! [`Parts`]: the devices or files of a store, held and not opened as a store yet.

use super::{META_RESERVE_BYTES, StorageError};
use nacre_device::{Found, Label};
use nacre_env::disk::{Disk, Window};
use nacre_env::real::{DeviceView, RealDisk};
use nacre_env::{File, FileRoom};
use nacre_kv::{KvError, KvOptions, RedbKv, RegionFile};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A region keeps at most one part of so many as its reserve.
const REGION_RESERVE_DIVISOR: u64 = 8;

/// What a store is on.
pub(super) struct Parts {
    pub(super) data: Window<RealDisk>,
    /// The log's, when it has one of its own.
    pub(super) log: Option<Window<RealDisk>>,
    pub(super) metadata: MetadataPlace,
    /// The labels of its devices; none of a store in files.
    pub(super) labels: Vec<DeviceLabel>,
    /// The metadata's disks, where they have a device of their own.
    pub(super) metadata_disks: BTreeMap<String, Option<String>>,
}

/// The label of a device that belongs to a store.
#[derive(Debug)]
pub struct DeviceLabel {
    /// The device, by the link in the OSD's folder.
    pub(super) link: PathBuf,
    pub(super) found: Found,
    pub(super) view: Arc<DeviceView>,
}

impl DeviceLabel {
    /// What it says.
    #[must_use]
    pub const fn label(&self) -> &Label {
        &self.found.label
    }

    /// What the link leads to now.
    #[must_use]
    pub fn device(&self) -> PathBuf {
        self.link.canonicalize().unwrap_or_else(|_| self.link.clone())
    }

    /// Which copy of the label is not whole, in a sentence.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        let (copy, why) = self.found.damaged.as_ref()?;
        Some(format!("{}: the copy of the label {copy} is damaged ({why})", self.device().display()))
    }

    /// Something that is not ours is in the place of a copy.
    pub(super) const fn is_overwritten(&self) -> bool {
        self.found.is_overwritten
    }

    /// Writes the copy that is not whole again, if one is not.
    ///
    /// # Errors
    /// When the device fails.
    pub fn repair(&mut self) -> Result<(), StorageError> {
        nacre_device::repair_label(self.view.as_ref(), &self.found)
            .map_err(|source| StorageError::File { path: self.link.clone(), source })?;
        (self.found.damaged, self.found.is_overwritten) = (None, false);
        Ok(())
    }
}

/// Where the metadata of a store are.
#[derive(Debug, Clone)]
pub enum MetadataPlace {
    /// In a file.
    File(PathBuf),
    /// In a region of a device.
    Region {
        /// The device, by the link in the OSD's folder.
        device: PathBuf,
        /// What is in the region.
        file: Arc<RegionFile>,
    },
}

impl MetadataPlace {
    /// The file or the device.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::File(path) => path,
            Self::Region { device, .. } => device,
        }
    }

    fn failed(&self) -> impl FnOnce(KvError) -> StorageError + use<> {
        let path = self.path().to_owned();
        |source| StorageError::Meta { path, source }
    }

    /// Whether there are any: a database that is opened would be made.
    #[must_use]
    pub fn exists(&self) -> bool {
        match self {
            Self::File(path) => path.exists(),
            Self::Region { file, .. } => file.length().is_ok_and(|length| length > 0),
        }
    }

    /// Opens the metadata, with the memory that a tool has for them.
    ///
    /// # Errors
    /// [`StorageError::Meta`].
    pub fn open(&self) -> Result<RedbKv, StorageError> {
        self.open_with(KvOptions::default())
    }

    pub(super) fn open_with(&self, options: KvOptions) -> Result<RedbKv, StorageError> {
        let opened = match self {
            Self::File(path) => RedbKv::open_with(path, options),
            Self::Region { file, .. } => {
                let file = Arc::clone(file);
                RedbKv::open_on(move || Ok(Arc::clone(&file) as Arc<dyn File>), options)
            }
        };
        opened.map_err(self.failed())
    }

    /// The options with which an OSD opens them.
    pub(super) fn options(&self, cache_bytes: usize) -> KvOptions {
        let reserve_bytes = match self {
            Self::File(_) => META_RESERVE_BYTES,
            Self::Region { file, .. } => {
                let total = file.room().map_or(0, |room: FileRoom| room.total_bytes);
                META_RESERVE_BYTES.min(total / REGION_RESERVE_DIVISOR)
            }
        };
        KvOptions { cache_bytes, reserve_bytes }
    }

    /// Gives back what the metadata do not need any more.
    ///
    /// # Errors
    /// [`StorageError::Meta`].
    pub fn compact(&self) -> Result<(), StorageError> {
        let done = match self {
            Self::File(path) => RedbKv::compact(path),
            Self::Region { file, .. } => {
                let file = Arc::clone(file);
                RedbKv::compact_on(move || Ok(Arc::clone(&file) as Arc<dyn File>))
            }
        };
        done.map_err(self.failed())
    }

    /// Bytes of their region; `None` where they are in a file.
    pub(super) fn region_bytes(&self) -> Option<u64> {
        match self {
            Self::File(_) => None,
            Self::Region { file, .. } => file.room().ok().map(|room| room.total_bytes),
        }
    }

    /// Bytes that they take.
    ///
    /// # Errors
    /// [`StorageError::File`].
    pub fn used_bytes(&self) -> Result<u64, StorageError> {
        let used = match self {
            Self::File(path) => std::fs::metadata(path).map(|file| file.len()),
            Self::Region { file, .. } => file.room().map(|room| room.used_bytes),
        };
        used.map_err(|source| StorageError::File { path: self.path().to_owned(), source })
    }
}

/// The names of the disks below, with what is printed on them.
pub(super) fn disks_of(parts: &Parts) -> BTreeMap<String, Option<String>> {
    let of_log = parts.log.iter().flat_map(|log| log.disk().disks());
    let all = parts.data.disk().disks().iter().chain(of_log).chain(&parts.metadata_disks);
    all.map(|(name, id)| (name.clone(), id.clone())).collect()
}

/// Bytes of a whole device or file.
pub(super) fn device_bytes(disk: &Window<RealDisk>) -> u64 {
    disk.disk().info().size_bytes
}
