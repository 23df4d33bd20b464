//! Where an OSD keeps its objects: in memory, or in a file with its metadata beside it. Also what tools need to
//! work on the store of an OSD that is stopped.

use nacre_blockstore::{BlockStore, OpenError as BlockError, Options};
use nacre_env::disk::Disk;
use nacre_env::real::{DriverChoice, OpenError as DiskError, RealDisk, RealNet};
use nacre_kv::{KvError, RedbKv};
use nacre_store::{MemStore, ObjectStore};
use nacre_types::Uuid;
use std::io;
use std::path::{Path, PathBuf};

pub use crate::restore::{OWN_COLLECTION, stored_maps};

/// Data and write-ahead log.
const BLOCK_FILE: &str = "block";
/// Metadata, in a key-value store.
const META_FILE: &str = "meta.redb";

/// Which store an OSD has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreConfig {
    /// Objects are gone when the process ends.
    Memory {
        /// Bytes of object data that it takes.
        capacity_bytes: u64,
    },
    /// Objects survive a crash of the process and of the machine.
    File {
        /// Folder of the files, made by [`mkfs`].
        folder: PathBuf,
    },
}

/// Why a store cannot be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The folder or an old file cannot be changed.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The data file cannot be made or opened.
    #[error("{path}: {source}")]
    Disk {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        source: DiskError,
    },
    /// The metadata cannot be opened.
    #[error("{path}: {source}")]
    Meta {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        source: KvError,
    },
    /// What the files hold is no store, or damaged.
    #[error("{path}: {source}")]
    Block {
        /// The folder.
        path: PathBuf,
        /// What is wrong.
        source: BlockError,
    },
}

impl StorageError {
    /// Whether another process has the store open.
    #[must_use]
    pub const fn is_in_use(&self) -> bool {
        matches!(
            self,
            Self::Disk { source: DiskError::InUse { .. }, .. } | Self::Meta { source: KvError::InUse, .. }
        )
    }
}

/// Where the metadata of a store in `folder` is.
#[must_use]
pub fn meta_path(folder: &Path) -> PathBuf {
    folder.join(META_FILE)
}

/// The device of the store in `folder`, locked.
///
/// # Errors
/// [`StorageError`]; [`StorageError::is_in_use`] when an OSD runs on it.
pub fn open_device(folder: &Path) -> Result<Box<dyn Disk>, StorageError> {
    Ok(Box::new(open_disk(folder)?))
}

fn open_disk(folder: &Path) -> Result<RealDisk, StorageError> {
    let path = folder.join(BLOCK_FILE);
    RealDisk::open(&path, DriverChoice::Auto).map_err(|source| StorageError::Disk { path, source })
}

/// Makes a store of `size_bytes` in `folder`, in place of what an attempt before may have left there.
///
/// # Errors
/// [`StorageError`].
pub fn mkfs(folder: &Path, id: Uuid, size_bytes: u64) -> Result<(), StorageError> {
    let file_error = |path: &Path| {
        let path = path.to_owned();
        move |source| StorageError::File { path, source }
    };
    std::fs::create_dir_all(folder).map_err(file_error(folder))?;
    let (block, meta) = (folder.join(BLOCK_FILE), folder.join(META_FILE));
    for path in [&block, &meta] {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(file_error(path)(error)),
            _ => (),
        }
    }
    let mut disk = RealDisk::create(&block, size_bytes, DriverChoice::Auto)
        .map_err(|source| StorageError::Disk { path: block.clone(), source })?;
    let mut kv = RedbKv::open(&meta).map_err(|source| StorageError::Meta { path: meta.clone(), source })?;
    BlockStore::mkfs(&mut disk, &mut kv, id.0, &Options::default())
        .map_err(|source| StorageError::Block { path: folder.to_owned(), source })
}

/// Opens a store. What the device completes ends waits of `net`.
///
/// # Errors
/// [`StorageError`].
pub(crate) fn open(config: &StoreConfig, net: &RealNet) -> Result<Box<dyn ObjectStore + Send>, StorageError> {
    let folder = match config {
        StoreConfig::Memory { capacity_bytes } => return Ok(Box::new(MemStore::new(*capacity_bytes))),
        StoreConfig::File { folder } => folder,
    };
    let (block, meta) = (folder.join(BLOCK_FILE), meta_path(folder));
    let disk = open_disk(folder)?;
    net.watch(disk.wake_fd()).map_err(|source| StorageError::File { path: block.clone(), source })?;
    let (driver, refused) = (disk.info().driver, disk.ring_refused().map(str::to_owned));
    let kv = RedbKv::open(&meta).map_err(|source| StorageError::Meta { path: meta.clone(), source })?;
    net.watch(kv.wake_fd()).map_err(|source| StorageError::File { path: meta.clone(), source })?;
    let (store, report) = BlockStore::open(Box::new(disk), Box::new(kv), Options::default())
        .map_err(|source| StorageError::Block { path: folder.clone(), source })?;
    tracing::info!(folder = %folder.display(), ?driver, ?refused, ?report, "store opened");
    Ok(Box::new(store))
}
