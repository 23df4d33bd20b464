//! Where an OSD keeps its objects: in memory, or in a file with its metadata beside it. Also what tools need to
//! work on the store of an OSD that is stopped.

use nacre_blockstore::{BlockStore, OpenError as BlockError, Options, SplitDisk};
use nacre_env::RealClock;
use nacre_env::disk::{DeviceReport, Disk};
use nacre_env::real::private::{self, PrivateError};
use nacre_env::real::{DriverChoice, OpenError as DiskError, RealDisk, RealNet};
use nacre_kv::{KvError, KvOptions, RedbKv};
use nacre_store::{MemStore, ObjectStore};
use nacre_types::Uuid;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

pub use crate::own_collection::{OWN_COLLECTION, stored_maps};
pub use crate::recovery_snapshot::stored_snapshot;

/// Data and write-ahead log.
const BLOCK_FILE: &str = "block";
/// A link to the write-ahead log's device, when it has one of its own.
const LOG_FILE: &str = "log";
/// Metadata, in a key-value store; a link when it is elsewhere.
const META_FILE: &str = "meta.redb";
/// What was found about the device when the store was last opened: a name and a value in each line.
const DEVICE_FILE: &str = "device";
/// Of the metadata's file system, kept for a store that has no other room left: a few checkpoints of deletions.
const META_RESERVE_BYTES: u64 = 64 << 20;

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
        /// Memory that the store keeps to, about.
        memory_bytes: usize,
    },
}

/// Why a store cannot be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The folder or an old file cannot be changed.
    #[error("{path}: {source}")]
    File {
        /// File or device that it is about.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Others may read the store.
    #[error(transparent)]
    Private(#[from] PrivateError),
    /// The data file cannot be made or opened.
    #[error("{path}: {source}")]
    Disk {
        /// File or device that it is about.
        path: PathBuf,
        /// What is wrong.
        source: DiskError,
    },
    /// The metadata cannot be opened.
    #[error("{path}: {source}")]
    Meta {
        /// File or device that it is about.
        path: PathBuf,
        /// What is wrong.
        source: KvError,
    },
    /// What the files hold is no store, or damaged.
    #[error("{path}: {source}")]
    Block {
        /// Folder of the OSD.
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
    let (data, log) = open_disks(folder)?;
    join(data, log, folder)
}

/// Data and, when it has a device of its own, the log.
fn open_disks(folder: &Path) -> Result<(RealDisk, Option<RealDisk>), StorageError> {
    let open = |name| {
        let path = folder.join(name);
        RealDisk::open(&path, DriverChoice::Auto).map_err(|source| StorageError::Disk { path, source })
    };
    let data = open(BLOCK_FILE)?;
    // A link to nowhere is an error, not a store without a log of its own.
    let has_log = folder.join(LOG_FILE).symlink_metadata().is_ok();
    Ok((data, has_log.then(|| open(LOG_FILE)).transpose()?))
}

fn join(data: RealDisk, log: Option<RealDisk>, folder: &Path) -> Result<Box<dyn Disk>, StorageError> {
    let Some(log) = log else { return Ok(Box::new(data)) };
    match SplitDisk::open(Box::new(data), Box::new(log)) {
        Ok(disk) => Ok(Box::new(disk)),
        Err(source) => Err(StorageError::Block { path: folder.to_owned(), source }),
    }
}

/// What of a store is elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceDirs {
    /// Folder for the log's file, on a device of its own.
    pub log: Option<PathBuf>,
    /// Folder for the metadata's file.
    pub meta: Option<PathBuf>,
}

/// Makes a store of `size_bytes` in `folder`, in place of what an attempt before may have left there. What is
/// elsewhere is named after the folder, and linked to from it.
///
/// # Errors
/// [`StorageError`].
pub fn mkfs(folder: &Path, id: Uuid, size_bytes: u64, device_dirs: &DeviceDirs) -> Result<(), StorageError> {
    private::make_folder(folder).map_err(file_error(folder))?;
    let block = folder.join(BLOCK_FILE);
    remove(&block)?;
    let log = place(folder, LOG_FILE, device_dirs.log.as_deref())?;
    let meta = place(folder, META_FILE, device_dirs.meta.as_deref())?.unwrap_or_else(|| meta_path(folder));
    let create = |path: &Path, bytes| {
        RealDisk::create(path, bytes, DriverChoice::Auto)
            .map_err(|source| StorageError::Disk { path: path.to_owned(), source })
    };
    let block_error = |source| StorageError::Block { path: folder.to_owned(), source };
    let data = create(&block, size_bytes)?;
    let mut kv = RedbKv::open(&meta).map_err(|source| StorageError::Meta { path: meta.clone(), source })?;
    let Some(log) = log else {
        let mut data = data;
        return BlockStore::mkfs(&mut data, &mut kv, id.0, &Options::default()).map_err(block_error);
    };
    let log_bytes = SplitDisk::HEAD_BYTES + Options::default().wal_bytes(size_bytes);
    let log = create(&log, log_bytes)?;
    let mut disk = SplitDisk::new(Box::new(data), Box::new(log)).map_err(block_error)?;
    let options = Options { wal_bytes: Some(disk.log_bytes()), ..Options::default() };
    BlockStore::mkfs(&mut disk, &mut kv, id.0, &options).map_err(block_error)?;
    disk.label().map_err(block_error)
}

fn file_error(path: &Path) -> impl FnOnce(io::Error) -> StorageError + use<> {
    let path = path.to_owned();
    move |source| StorageError::File { path, source }
}

fn remove(path: &Path) -> Result<(), StorageError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error(path)(error)),
        _ => Ok(()),
    }
}

/// Where a file of the store goes that may be in another folder, with the link to it; `None` when it is not elsewhere.
/// What an earlier attempt linked to is removed; a file that nothing links to is somebody else's and stays.
fn place(folder: &Path, name: &str, elsewhere: Option<&Path>) -> Result<Option<PathBuf>, StorageError> {
    let link = folder.join(name);
    if let Ok(old) = std::fs::read_link(&link) {
        remove(&old)?;
    }
    remove(&link)?;
    let Some(elsewhere) = elsewhere else { return Ok(None) };
    private::make_folder(elsewhere).map_err(file_error(elsewhere))?;
    let elsewhere = elsewhere.canonicalize().map_err(file_error(elsewhere))?;
    let owner = folder.file_name().unwrap_or_default().to_string_lossy();
    let path = elsewhere.join(format!("{owner}.{name}"));
    if path.exists() {
        let source = io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the file belongs to another store, or is left of one",
        );
        return Err(StorageError::File { path, source });
    }
    std::os::unix::fs::symlink(&path, &link).map_err(file_error(&link))?;
    Ok(Some(path))
}

/// Opens a store. What the device completes ends waits of `net`.
///
/// # Errors
/// [`StorageError`].
pub(crate) fn open(config: &StoreConfig, net: &RealNet) -> Result<Box<dyn ObjectStore + Send>, StorageError> {
    let (folder, memory_bytes) = match config {
        StoreConfig::Memory { capacity_bytes } => return Ok(Box::new(MemStore::new(*capacity_bytes))),
        StoreConfig::File { folder, memory_bytes } => (folder, *memory_bytes),
    };
    for path in private::tighten(folder)? {
        tracing::warn!(path = %path.display(), "other users could read or write this; its permissions are now the owner's only");
    }
    let (block, meta) = (folder.join(BLOCK_FILE), meta_path(folder));
    let (mut data, mut log) = open_disks(folder)?;
    for disk in [Some(&data), log.as_ref()].into_iter().flatten() {
        net.watch(disk.wake_fd()).map_err(file_error(&block))?;
    }
    let refused = data.ring_refused().map(str::to_owned);
    let options = examine(&mut data, log.as_mut(), folder, Options::for_memory(memory_bytes))?;
    let disk = join(data, log, folder)?;
    let kv_options = KvOptions { cache_bytes: options.kv_cache_bytes, reserve_bytes: META_RESERVE_BYTES };
    let kv = RedbKv::open_with(&meta, kv_options)
        .map_err(|source| StorageError::Meta { path: meta.clone(), source })?;
    if !kv.has_checksums() {
        tracing::warn!(path = %meta.display(), "metadata file of an older version, without page checksums: make room for a copy and restart");
    }
    net.watch(kv.wake_fd()).map_err(|source| StorageError::File { path: meta.clone(), source })?;
    let (mut store, report) = BlockStore::open(disk, Box::new(kv), options)
        .map_err(|source| StorageError::Block { path: folder.clone(), source })?;
    store.set_clock(Box::new(RealClock::start()));
    tracing::info!(folder = %folder.display(), ?refused, ?report, "store opened");
    Ok(Box::new(store))
}

/// Measures the device that the log is on, says what it costs and what follows from it, and keeps that for people.
fn examine(
    data: &mut RealDisk,
    log: Option<&mut RealDisk>,
    folder: &Path,
    options: Options,
) -> Result<Options, StorageError> {
    let log_rotational = log.as_ref().map_or_else(|| data.rotational(), |log| log.rotational());
    let is_apart = log.is_some();
    let probed = match log {
        Some(log) => nacre_blockstore::probe(log, &RealClock::start()),
        None => nacre_blockstore::probe(data, &RealClock::start()),
    };
    let report = probed.map_err(|source| StorageError::Block { path: folder.to_owned(), source })?;
    let options = match &report {
        Some(report) => options.on_device(report),
        None => options,
    };
    match &report {
        Some(report) => {
            tracing::info!(folder = %folder.display(), %report, commit = options.commit_text(), "device probed")
        }
        None => tracing::warn!(
            folder = %folder.display(),
            "the second superblock is damaged, so the device was not probed; `nacre store repair` restores it"
        ),
    }
    let text: String = facts(data, report.as_ref(), &options)
        .into_iter()
        .map(|(name, value)| format!("{name} {value}\n"))
        .collect();
    let rotational = u8::from(log_rotational.unwrap_or(false));
    let text = format!("{text}journal_rotational {rotational}\nnacre_log_apart {}\n", u8::from(is_apart));
    let path = folder.join(DEVICE_FILE);
    private::write(&path, text.as_bytes()).map_err(|source| StorageError::File { path, source })?;
    Ok(options)
}

fn facts(disk: &RealDisk, report: Option<&DeviceReport>, options: &Options) -> Vec<(&'static str, String)> {
    let info = disk.info();
    let rotational = disk.rotational().unwrap_or(false);
    let known = |value: Option<bool>| value.map_or("unknown", |yes| if yes { "1" } else { "0" });
    let mut facts = vec![
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
    let names: Vec<&str> = disk.disks().keys().map(String::as_str).collect();
    let named = disk.disks().iter().filter_map(|(name, id)| Some(format!("{name}={}", id.as_ref()?)));
    let ids: Vec<String> = named.collect();
    let disks = [("devices", names.join(",")), ("device_ids", ids.join(","))];
    facts.extend(disks.into_iter().filter(|(_, value)| !value.is_empty()));
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
