//! Where an OSD keeps its objects: in memory, or in a file with its metadata beside it.

use nacre_blockstore::{BlockStore, OpenError as BlockError, Options};
use nacre_env::disk::Disk;
use nacre_env::real::{DriverChoice, OpenError as DiskError, RealDisk, RealNet};
use nacre_kv::{KvError, RedbKv};
use nacre_store::{MemStore, ObjectStore};
use nacre_types::Uuid;
use std::io;
use std::path::{Path, PathBuf};

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
    let (block, meta) = (folder.join(BLOCK_FILE), folder.join(META_FILE));
    let disk = RealDisk::open(&block, DriverChoice::Auto)
        .map_err(|source| StorageError::Disk { path: block.clone(), source })?;
    net.watch(disk.wake_fd()).map_err(|source| StorageError::File { path: block.clone(), source })?;
    let (driver, refused) = (disk.info().driver, disk.ring_refused().map(str::to_owned));
    let kv = RedbKv::open(&meta).map_err(|source| StorageError::Meta { path: meta.clone(), source })?;
    net.watch(kv.wake_fd()).map_err(|source| StorageError::File { path: meta.clone(), source })?;
    let (store, report) = BlockStore::open(Box::new(disk), Box::new(kv), Options::default())
        .map_err(|source| StorageError::Block { path: folder.clone(), source })?;
    tracing::info!(folder = %folder.display(), ?driver, ?refused, ?report, "store opened");
    Ok(Box::new(store))
}
