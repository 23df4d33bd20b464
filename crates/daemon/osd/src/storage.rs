//! Where an OSD keeps its objects: in memory, or in a file with its metadata beside it. Also what tools need to
//! work on the store of an OSD that is stopped.

use nacre_blockstore::{BlockStore, OpenError as BlockError, Options};
use nacre_env::RealClock;
use nacre_env::disk::{DeviceReport, Disk};
use nacre_env::real::{DriverChoice, OpenError as DiskError, RealDisk, RealNet};
use nacre_kv::{KvError, RedbKv};
use nacre_store::{MemStore, ObjectStore};
use nacre_types::Uuid;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

pub use crate::restore::{OWN_COLLECTION, stored_maps};

/// Data and write-ahead log.
const BLOCK_FILE: &str = "block";
/// Metadata, in a key-value store.
const META_FILE: &str = "meta.redb";
/// What was found about the device when the store was last opened: a name and a value in each line.
const DEVICE_FILE: &str = "device";

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
    let mut disk = open_disk(folder)?;
    net.watch(disk.wake_fd()).map_err(|source| StorageError::File { path: block.clone(), source })?;
    let refused = disk.ring_refused().map(str::to_owned);
    let options = examine(&mut disk, folder)?;
    let kv = RedbKv::open_with_cache(&meta, options.kv_cache_bytes)
        .map_err(|source| StorageError::Meta { path: meta.clone(), source })?;
    net.watch(kv.wake_fd()).map_err(|source| StorageError::File { path: meta.clone(), source })?;
    let (store, report) = BlockStore::open(Box::new(disk), Box::new(kv), options)
        .map_err(|source| StorageError::Block { path: folder.clone(), source })?;
    tracing::info!(folder = %folder.display(), ?refused, ?report, "store opened");
    Ok(Box::new(store))
}

/// Measures the device, says what it costs and what follows from it, and keeps that for people.
fn examine(disk: &mut RealDisk, folder: &Path) -> Result<Options, StorageError> {
    let report = nacre_blockstore::probe(disk, &RealClock::start())
        .map_err(|source| StorageError::Block { path: folder.to_owned(), source })?;
    let options = report.as_ref().map_or_else(Options::default, Options::for_device);
    match &report {
        Some(report) => {
            tracing::info!(folder = %folder.display(), %report, commit = options.commit_text(), "device probed")
        }
        None => tracing::warn!(
            folder = %folder.display(),
            "the second superblock is damaged, so the device was not probed; `nacre store repair` mends it"
        ),
    }
    let text: String = facts(disk, report.as_ref(), &options)
        .into_iter()
        .map(|(name, value)| format!("{name} {value}\n"))
        .collect();
    let path = folder.join(DEVICE_FILE);
    std::fs::write(&path, text).map_err(|source| StorageError::File { path, source })?;
    Ok(options)
}

fn facts(disk: &RealDisk, report: Option<&DeviceReport>, options: &Options) -> Vec<(&'static str, String)> {
    let info = disk.info();
    let rotational = disk.rotational().unwrap_or(false);
    let known = |value: Option<bool>| value.map_or("unknown", |yes| if yes { "1" } else { "0" });
    let mut facts = vec![
        ("journal_rotational", u8::from(rotational).to_string()),
        ("nacre_bdev_access_mode", if disk.is_block_device() { "blk" } else { "file" }.to_owned()),
        ("nacre_bdev_block_size", info.block_bytes.to_string()),
        ("nacre_bdev_direct", u8::from(disk.is_direct()).to_string()),
        ("nacre_bdev_driver", info.driver.to_owned()),
        ("nacre_bdev_size", info.size_bytes.to_string()),
        ("nacre_bdev_type", if rotational { "hdd" } else { "ssd" }.to_owned()),
        ("nacre_bdev_volatile_cache", known(disk.volatile_cache()).to_owned()),
        ("nacre_commit", options.commit_text()),
        ("rotational", u8::from(rotational).to_string()),
    ];
    if let Some(report) = report {
        let flush = if report.flush_is_expensive() { "expensive" } else { "cheap" };
        facts.extend([
            ("nacre_bdev_cached_write_us", report.cached_write.median.as_micros().to_string()),
            ("nacre_bdev_durable_write_us", report.durable_write.median.as_micros().to_string()),
            ("nacre_bdev_flush", flush.to_owned()),
            ("nacre_bdev_flush_us", report.flush.median.as_micros().to_string()),
            ("nacre_bdev_read_us", report.read.median.as_micros().to_string()),
        ]);
    }
    facts
}

/// What was found about the device when the store in `folder` was last opened by an OSD, for `osd metadata`.
#[must_use]
pub fn device_facts(folder: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(folder.join(DEVICE_FILE)).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
