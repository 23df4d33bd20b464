//! Where an OSD keeps its objects: in memory, in a file with its metadata beside it, or on raw devices. Also what tools need to
//! work on the store of an OSD that is stopped.

mod devices;
mod encryption;
mod error;
mod metadata;
mod moves;
mod parts;

pub use devices::{Devices, label_of, mkfs_on_devices, store_keys, wipe};
pub use encryption::StoreKeys;
pub use error::StorageError;
pub use metadata::MetadataPlace;
pub use moves::{
    MoveError, MoveOutcome, MoveTo, Moved, Onlooker, Progress, SettledMove, move_part, settle_move,
};
pub use parts::DeviceLabel;

use encryption::{Unlocked, cipher, unlock};
use nacre_blockstore::{BlockStore, Options, SplitDisk};
use nacre_crypt::{CryptDisk, Part, WrappingKey};
use nacre_env::RealClock;
use nacre_env::disk::{DeviceReport, Disk, Window};
use nacre_env::real::private;
use nacre_env::real::{DriverChoice, RealDisk, RealNet};
use nacre_kv::{KvOptions, RedbKv};
use nacre_store::{MemStore, ObjectStore};
use nacre_types::Uuid;
use parts::{PartDisk, Parts, device_bytes, disks_of, real};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

pub use crate::own_collection::{OWN_COLLECTION, stored_maps};
pub use crate::recovery_snapshot::stored_snapshot;

/// Data and write-ahead log; a link when they are on a device.
const BLOCK_FILE: &str = "block";
/// A link to the write-ahead log's device, when it has one of its own.
const LOG_FILE: &str = "log";
/// A link to the metadata's device, when they have one of their own.
const META_DEVICE: &str = "meta";
/// Metadata, in a key-value store; a link when it is elsewhere. None where they are on a device.
const META_FILE: &str = "meta.redb";
/// The journal before that, beside it; a link when it is elsewhere.
const JOURNAL_FILE: &str = "meta.journal";
/// The note of a move of log or metadata that has not ended.
const NOTE_FILE: &str = "move";
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
        /// What opens it, if it is encrypted.
        key: Option<WrappingKey>,
    },
}

/// Whether there is a store in `folder`, whatever state it is in.
#[must_use]
pub fn is_made(folder: &Path) -> bool {
    folder.join(BLOCK_FILE).symlink_metadata().is_ok()
}

/// A store that no OSD runs on, held so that none starts.
pub struct Stopped {
    /// Its device, or its devices as one.
    pub disk: Box<dyn Disk>,
    /// Where its metadata are.
    pub metadata: MetadataPlace,
    /// The labels of its devices; none of a store in files.
    pub labels: Vec<DeviceLabel>,
    /// Its wrapped key, if it is encrypted.
    pub keys: Option<StoreKeys>,
}

impl std::fmt::Debug for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stopped").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}

/// The devices or files of the store in `folder`, locked, with the key of an encrypted one.
///
/// # Errors
/// [`StorageError`]; [`StorageError::is_in_use`] when an OSD runs on it.
pub fn open_stopped(folder: &Path, key: Option<&WrappingKey>) -> Result<Stopped, StorageError> {
    let Parts { data, log, metadata, labels, keys, .. } = open_parts(folder, key)?;
    Ok(Stopped { disk: join(data, log, folder)?, metadata, labels, keys })
}

fn open_parts(folder: &Path, key: Option<&WrappingKey>) -> Result<Parts, StorageError> {
    if let Some(parts) = devices::open_labelled(folder, key)? {
        return Ok(parts);
    }
    let Unlocked { keys, data: key } = unlock(folder, StoreKeys::in_folder(folder)?, key)?;
    let open = |name, part| {
        let path = folder.join(name);
        let disk = RealDisk::open(&path, DriverChoice::Auto);
        let disk = disk.map_err(|source| StorageError::Disk { path, source })?;
        Ok::<PartDisk, StorageError>(CryptDisk::new(Window::whole(disk), cipher(key.as_ref(), part)))
    };
    let data = open(BLOCK_FILE, Part::Data)?;
    // A link to nowhere is an error, not a store without a log of its own.
    let has_log = folder.join(LOG_FILE).symlink_metadata().is_ok();
    let log = has_log.then(|| open(LOG_FILE, Part::Log)).transpose()?;
    let metadata = MetadataPlace::in_folder(folder, key);
    Ok(Parts { data, log, metadata, labels: Vec::new(), metadata_disks: BTreeMap::new(), keys })
}

fn join(data: PartDisk, log: Option<PartDisk>, folder: &Path) -> Result<Box<dyn Disk>, StorageError> {
    let block_error = |source| StorageError::Block { path: folder.to_owned(), source };
    match log {
        None => {
            let mut data = data;
            nacre_blockstore::refuse_without_log(&mut data).map_err(block_error)?;
            Ok(Box::new(data))
        }
        Some(log) => Ok(Box::new(SplitDisk::open(Box::new(data), Box::new(log)).map_err(block_error)?)),
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

/// Makes a store of `size_bytes` in `folder`, in place of what an attempt before may have left there, encrypted if there is a key for it.
/// What is elsewhere is named after the folder, and linked to from it.
///
/// # Errors
/// [`StorageError`].
pub fn mkfs(
    folder: &Path,
    id: Uuid,
    size_bytes: u64,
    device_dirs: &DeviceDirs,
    key: Option<&WrappingKey>,
) -> Result<(), StorageError> {
    private::make_folder(folder).map_err(file_error(folder))?;
    let block = folder.join(BLOCK_FILE);
    remove(&block)?;
    remove(&folder.join(NOTE_FILE))?;
    let log = place(folder, LOG_FILE, device_dirs.log.as_deref())?;
    place(folder, META_FILE, device_dirs.meta.as_deref())?;
    place(folder, JOURNAL_FILE, device_dirs.meta.as_deref())?;
    let key = encryption::new_in_folder(folder, id, key)?;
    let create = |path: &Path, bytes, part| {
        let disk = RealDisk::create(path, bytes, DriverChoice::Auto);
        let disk = disk.map_err(|source| StorageError::Disk { path: path.to_owned(), source })?;
        Ok::<_, StorageError>(CryptDisk::new(disk, cipher(key.as_ref(), part)))
    };
    let data = create(&block, size_bytes, Part::Data)?;
    let metadata = MetadataPlace::in_folder(folder, key.clone());
    let mut kv = metadata.open_tree(KvOptions::default())?;
    let log_bytes = SplitDisk::HEAD_BYTES + Options::default().wal_bytes(size_bytes);
    let log = log.map(|log| create(&log, log_bytes, Part::Log)).transpose()?;
    make_store(folder, Box::new(data), log.map(|log| Box::new(log) as Box<dyn Disk>), &mut kv, id)?;
    drop(kv);
    make_journal(&metadata, size_bytes)
}

/// Gives the metadata of a new store their journal. An OSD with another memory target makes it smaller or larger when it opens it.
fn make_journal(metadata: &MetadataPlace, store_bytes: u64) -> Result<(), StorageError> {
    let half_bytes = Options::default().journal_half_bytes(store_bytes);
    metadata.open_with(KvOptions::default(), Some(half_bytes)).map(drop)
}

/// Makes a store on devices and metadata that hold nothing.
fn make_store(
    folder: &Path,
    mut data: Box<dyn Disk>,
    log: Option<Box<dyn Disk>>,
    kv: &mut RedbKv,
    id: Uuid,
) -> Result<(), StorageError> {
    let block_error = |source| StorageError::Block { path: folder.to_owned(), source };
    let Some(log) = log else {
        return BlockStore::mkfs(data.as_mut(), kv, id.0, &Options::default()).map_err(block_error);
    };
    let mut disk = SplitDisk::new(data, log).map_err(block_error)?;
    let options = Options { wal_bytes: Some(disk.log_bytes()), ..Options::default() };
    BlockStore::mkfs(&mut disk, kv, id.0, &options).map_err(block_error)?;
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
/// What an earlier attempt made and linked to is removed; what nothing links to, or has another name, is somebody else's and stays.
fn place(folder: &Path, name: &str, elsewhere: Option<&Path>) -> Result<Option<PathBuf>, StorageError> {
    let link = folder.join(name);
    let owner = folder.file_name().unwrap_or_default().to_string_lossy();
    let file_name = format!("{owner}.{name}");
    if let Ok(old) = std::fs::read_link(&link)
        && old.file_name().is_some_and(|old| *old == *file_name)
    {
        remove(&old)?;
    }
    remove(&link)?;
    let Some(elsewhere) = elsewhere else { return Ok(None) };
    private::make_folder(elsewhere).map_err(file_error(elsewhere))?;
    let elsewhere = elsewhere.canonicalize().map_err(file_error(elsewhere))?;
    let path = elsewhere.join(file_name);
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
    let (folder, memory_bytes, key) = match config {
        StoreConfig::Memory { capacity_bytes } => return Ok(Box::new(MemStore::new(*capacity_bytes))),
        StoreConfig::File { folder, memory_bytes, key } => (folder, *memory_bytes, key.as_ref()),
    };
    for path in private::tighten(folder)? {
        tracing::warn!(path = %path.display(), "other users could read or write this; its permissions are now the owner's only");
    }
    let block = folder.join(BLOCK_FILE);
    if folder.join(NOTE_FILE).exists() {
        tracing::warn!(
            folder = %folder.display(),
            "a move of the log or the metadata was interrupted; say it again when the OSD is stopped, and it ends"
        );
    }
    let mut parts = open_parts(folder, key)?;
    for label in &mut parts.labels {
        let Some(complaint) = label.complaint() else { continue };
        if label.is_overwritten() {
            return Err(StorageError::Overwritten { complaint });
        }
        tracing::warn!(complaint, "it is written again from the other copy");
        // The other one is enough.
        if let Err(error) = label.repair() {
            tracing::warn!(%error, "the label cannot be written: the device may be about to fail");
        }
    }
    if let Some(keys) = &mut parts.keys
        && let Some(complaint) = keys.complaint()
    {
        tracing::warn!(complaint, "it is written again from the other copy");
        if let Err(error) = keys.repair() {
            tracing::warn!(%error, "the wrapped key cannot be written: the device may be about to fail");
        }
    }
    for disk in [Some(&parts.data), parts.log.as_ref()].into_iter().flatten() {
        net.watch(real(disk).wake_fd()).map_err(file_error(&block))?;
    }
    let refused = real(&parts.data).ring_refused().map(str::to_owned);
    let options = examine(&mut parts, folder, Options::for_memory(memory_bytes))?;
    let Parts { data, log, metadata, .. } = parts;
    let half_bytes = options.journal_half_bytes(data.info().size_bytes);
    let disk = join(data, log, folder)?;
    let opened = metadata.open_with(metadata.options(options.kv_cache_bytes), Some(half_bytes))?;
    let options = options.with_journal(usize::try_from(opened.half_bytes).unwrap_or(usize::MAX));
    let meta = metadata.path();
    if !opened.has_checksums {
        tracing::warn!(path = %meta.display(), "metadata file of an older version, without page checksums: make room for a copy and restart");
    }
    for fd in opened.kv.wake_fds() {
        net.watch(fd).map_err(file_error(meta))?;
    }
    let (mut store, report) = BlockStore::open(disk, opened.kv, options)
        .map_err(|source| StorageError::Block { path: folder.clone(), source })?;
    store.set_clock(Box::new(RealClock::start()));
    tracing::info!(folder = %folder.display(), ?refused, ?report, "store opened");
    Ok(Box::new(store))
}

/// Measures the device that the log is on, says what it costs and what follows from it, and keeps that for people.
fn examine(parts: &mut Parts, folder: &Path, options: Options) -> Result<Options, StorageError> {
    let probed = match &mut parts.log {
        Some(log) => nacre_blockstore::probe(log, &RealClock::start()),
        None => nacre_blockstore::probe(&mut parts.data, &RealClock::start()),
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
    let mut facts = facts(parts, report.as_ref(), &options);
    facts.extend(place_facts(parts, folder));
    let text: String = facts.into_iter().map(|(name, value)| format!("{name} {value}\n")).collect();
    let path = folder.join(DEVICE_FILE);
    private::write(&path, text.as_bytes()).map_err(|source| StorageError::File { path, source })?;
    Ok(options)
}

fn facts(parts: &Parts, report: Option<&DeviceReport>, options: &Options) -> Vec<(&'static str, String)> {
    let disk = real(&parts.data);
    let info = disk.info();
    let rotational = disk.rotational().unwrap_or(false);
    let known = |value: Option<bool>| value.map_or("unknown", |yes| if yes { "1" } else { "0" });
    let mut facts = vec![
        ("nacre_bdev_access_mode", if disk.is_block_device() { "blk" } else { "file" }.to_owned()),
        ("nacre_bdev_block_size", info.block_bytes.to_string()),
        ("nacre_bdev_direct", u8::from(disk.is_direct()).to_string()),
        ("nacre_bdev_encrypted", u8::from(parts.data.is_encrypted()).to_string()),
        ("nacre_bdev_driver", info.driver.to_owned()),
        ("nacre_bdev_size", info.size_bytes.to_string()),
        ("nacre_bdev_type", if rotational { "hdd" } else { "ssd" }.to_owned()),
        ("nacre_bdev_volatile_cache", known(disk.volatile_cache()).to_owned()),
        ("nacre_commit", options.commit_text()),
        ("rotational", u8::from(rotational).to_string()),
    ];
    let below = disks_of(parts);
    let names: Vec<&str> = below.keys().map(String::as_str).collect();
    let named = below.iter().filter_map(|(name, id)| Some(format!("{name}={}", id.as_ref()?)));
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

/// What of a store is where, and how large that is.
fn place_facts(parts: &Parts, folder: &Path) -> Vec<(&'static str, String)> {
    let log = parts.log.as_ref();
    let log_rotational = log.map_or_else(|| real(&parts.data).rotational(), |log| real(log).rotational());
    let mut facts = vec![
        ("journal_rotational", u8::from(log_rotational.unwrap_or(false)).to_string()),
        ("nacre_log_apart", u8::from(log.is_some()).to_string()),
    ];
    if parts.labels.is_empty() {
        return facts;
    }
    let node = |link: &Path| link.canonicalize().unwrap_or_default().display().to_string();
    facts.push(("nacre_bdev_dev_node", node(&folder.join(BLOCK_FILE))));
    if let Some(log) = log {
        facts.push(("nacre_log_dev_node", node(&folder.join(LOG_FILE))));
        facts.push(("nacre_log_size", device_bytes(log).to_string()));
    }
    facts.push(("nacre_meta_apart", u8::from(parts.metadata.path() != folder.join(BLOCK_FILE)).to_string()));
    facts.push(("nacre_meta_dev_node", node(parts.metadata.path())));
    facts.extend(parts.metadata.region_bytes().map(|bytes| ("nacre_meta_size", bytes.to_string())));
    let journal_bytes = parts.metadata.journal_region_bytes();
    facts.extend(journal_bytes.map(|bytes| ("nacre_meta_journal_size", bytes.to_string())));
    facts
}

/// What was found about the device when the store in `folder` was last opened by an OSD, for `osd metadata`.
#[must_use]
pub fn device_facts(folder: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(folder.join(DEVICE_FILE)).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
