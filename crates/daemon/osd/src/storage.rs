//! Where an OSD keeps its objects: in memory, in a file with its metadata beside it, or on raw devices. Also what tools need to
//! work on the store of an OSD that is stopped.

mod devices;
mod encryption;
mod error;
mod facts;
mod metadata;
mod moves;
mod opening;
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
use metadata::metadata_files;
use nacre_blockstore::{Options, Partitions, SplitDisk};
use nacre_crypt::{CryptDisk, DataKey, Part, WrappingKey};
use nacre_env::disk::{Disk, Window};
use nacre_env::real::private;
use nacre_env::real::{DriverChoice, HeldDevice, RealDisk};
use nacre_kv::{KvOptions, KvStore, RedbKv};
use nacre_osd_core::Room;
use nacre_types::Uuid;
use parts::{PartDisk, PartitionParts, Parts};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

pub use crate::own_collection::{
    MapsApart, OWN_COLLECTION, is_of_pool, partition_of, stored_initial_pg_nums, stored_maps,
};
pub use crate::recovery_snapshot::stored_snapshot;
pub use crate::relocation::is_arriving;
pub(crate) use opening::HeldStore;

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
/// What was found about the devices when the store was last opened: a name and a value in each line.
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
    /// Its partitions, in order; one where it is not divided.
    pub partitions: Vec<StoppedPartition>,
    /// The labels of its devices; none of a store in files.
    pub labels: Vec<DeviceLabel>,
    /// Its wrapped key, if it is encrypted.
    pub keys: Option<StoreKeys>,
}

/// What a partition of such a store is on; of one that is not divided, all of it.
pub struct StoppedPartition {
    /// The store's device, or its devices as one: a hold of the partition's own.
    pub disk: Box<dyn Disk>,
    /// Where its metadata are.
    pub metadata: MetadataPlace,
}

impl std::fmt::Debug for StoppedPartition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoppedPartition").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stopped").field("partitions", &self.partitions).finish_non_exhaustive()
    }
}

/// The devices or files of the store in `folder`, locked, with the key of an encrypted one.
///
/// # Errors
/// [`StorageError`]; [`StorageError::is_in_use`] when an OSD runs on it.
pub fn open_stopped(folder: &Path, key: Option<&WrappingKey>) -> Result<Stopped, StorageError> {
    let Parts { first, others, labels, keys, .. } = open_parts(folder, key)?;
    let stopped = |PartitionParts { data, log, metadata }| {
        Ok(StoppedPartition { disk: join(data, log, folder)?, metadata })
    };
    let partitions =
        std::iter::once(first).chain(others).map(stopped).collect::<Result<_, StorageError>>()?;
    Ok(Stopped { partitions, labels, keys })
}

fn open_parts(folder: &Path, key: Option<&WrappingKey>) -> Result<Parts, StorageError> {
    if let Some(parts) = devices::open_labelled(folder, key)? {
        return Ok(parts);
    }
    let Unlocked { keys, data: key } = unlock(folder, StoreKeys::in_folder(folder)?, key)?;
    let hold = |name| {
        let path = folder.join(name);
        HeldDevice::open(&path).map_err(|source| StorageError::Disk { path, source })
    };
    let data = hold(BLOCK_FILE)?;
    // A link to nowhere is an error, not a store without a log of its own.
    let has_log = folder.join(LOG_FILE).symlink_metadata().is_ok();
    let log = has_log.then(|| hold(LOG_FILE)).transpose()?;
    let key = key.as_ref();
    let partition = |number| {
        Ok::<_, StorageError>(PartitionParts {
            data: disk_in_file(&data, number, &folder.join(BLOCK_FILE), (key, Part::Data))?,
            log: match &log {
                Some(log) => Some(disk_in_file(log, number, &folder.join(LOG_FILE), (key, Part::Log))?),
                None => None,
            },
            metadata: MetadataPlace::in_folder(folder, number, key),
        })
    };
    let mut first = partition(0)?;
    let others = (1..partitions_on(&mut first.data)).map(partition).collect::<Result<_, StorageError>>()?;
    Ok(Parts { first, others, labels: Vec::new(), metadata_disks: BTreeMap::new(), keys })
}

/// A disk for a partition over a further hold on a file, all of it.
fn disk_in_file(
    held: &HeldDevice,
    partition: u32,
    path: &Path,
    (key, part): (Option<&DataKey>, Part),
) -> Result<PartDisk, StorageError> {
    // The only one goes through the file that has the lock.
    let hold = if partition == 0 { held.again() } else { held.opened_again() };
    let disk = hold.map_err(file_error(path))?.into_disk(DriverChoice::Auto);
    let disk = disk.map_err(|source| StorageError::Disk { path: path.to_owned(), source })?;
    Ok(CryptDisk::new(Window::whole(disk), cipher(key, part)))
}

/// How many partitions the store on a device has. One where nothing says so: whoever opens it then says what is wrong with it.
fn partitions_on(data: &mut PartDisk) -> u32 {
    Partitions::count(data).unwrap_or(1)
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

/// Makes a store of `size_bytes` in `folder`, divided between so many partitions, in place of what an attempt before may have left there,
/// encrypted if there is a key for it; gives the bytes that it has for clients, as the OSD says them later. What is elsewhere is
/// named after the folder, and linked to from it.
///
/// # Errors
/// [`StorageError`].
pub fn mkfs(
    folder: &Path,
    id: Uuid,
    (size_bytes, partitions): (u64, u32),
    device_dirs: &DeviceDirs,
    key: Option<&WrappingKey>,
) -> Result<u64, StorageError> {
    private::make_folder(folder).map_err(file_error(folder))?;
    let block = folder.join(BLOCK_FILE);
    remove(&block)?;
    remove(&folder.join(NOTE_FILE))?;
    let log = place(folder, LOG_FILE, device_dirs.log.as_deref())?;
    for name in (0..partitions).flat_map(metadata_files) {
        place(folder, &name, device_dirs.meta.as_deref())?;
    }
    remove_metadata_behind(folder, partitions)?;
    let key = encryption::new_in_folder(folder, id, key)?;
    let create = |path: &Path, bytes, part| {
        let disk = RealDisk::create(path, bytes, DriverChoice::Auto);
        let disk = disk.map_err(|source| StorageError::Disk { path: path.to_owned(), source })?;
        Ok::<_, StorageError>(CryptDisk::new(disk, cipher(key.as_ref(), part)))
    };
    let data = create(&block, size_bytes, Part::Data)?;
    let metadata = |number| MetadataPlace::in_folder(folder, number, key.as_ref());
    let metadata: Vec<MetadataPlace> = (0..partitions).map(metadata).collect();
    let log_bytes = SplitDisk::HEAD_BYTES + Options::default().wal_bytes(size_bytes);
    let log = log.map(|log| create(&log, log_bytes, Part::Log)).transpose()?;
    let log = log.map(|log| Box::new(log) as Box<dyn Disk>);
    let holds_bytes = make_store(folder, Box::new(data), log, &metadata, id)?;
    metadata.iter().try_for_each(|metadata| make_journal(metadata, size_bytes / u64::from(partitions)))?;
    Ok(Room::bytes_for_clients(holds_bytes, partitions.into()))
}

/// Removes the metadata of partitions that an attempt before had and the store has not.
fn remove_metadata_behind(folder: &Path, partitions: u32) -> Result<(), StorageError> {
    for number in partitions.. {
        let names = metadata_files(number);
        if names.iter().all(|name| folder.join(name).symlink_metadata().is_err()) {
            break;
        }
        names.iter().try_for_each(|name| place(folder, name, None).map(drop))?;
    }
    Ok(())
}

/// Gives the metadata of a new store, or of a partition of one, their journal. An OSD with another memory target makes it smaller or larger
/// when it opens it.
fn make_journal(metadata: &MetadataPlace, store_bytes: u64) -> Result<(), StorageError> {
    let half_bytes = Options::default().journal_half_bytes(store_bytes);
    metadata.open_with(KvOptions::default(), Some(half_bytes)).map(drop)
}

/// Makes a store on devices and metadata that hold nothing; it has as many partitions as there are metadata. Gives the bytes that it can
/// hold.
fn make_store(
    folder: &Path,
    mut data: Box<dyn Disk>,
    log: Option<Box<dyn Disk>>,
    metadata: &[MetadataPlace],
    id: Uuid,
) -> Result<u64, StorageError> {
    let block_error = |source| StorageError::Block { path: folder.to_owned(), source };
    let trees = metadata.iter().map(|metadata| metadata.open_tree(KvOptions::default()));
    let mut trees: Vec<RedbKv> = trees.collect::<Result<_, StorageError>>()?;
    let mut trees: Vec<&mut dyn KvStore> = trees.iter_mut().map(|tree| tree as &mut dyn KvStore).collect();
    let Some(log) = log else {
        let made = Partitions::mkfs(data.as_mut(), &mut trees, id.0, &Options::default());
        return made.map_err(block_error);
    };
    let mut disk = SplitDisk::new(data, log).map_err(block_error)?;
    let options = Options { wal_bytes: Some(disk.log_bytes()), ..Options::default() };
    let holds_bytes = Partitions::mkfs(&mut disk, &mut trees, id.0, &options).map_err(block_error)?;
    disk.label().map_err(block_error)?;
    Ok(holds_bytes)
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

/// What was found about the devices when the store in `folder` was last opened by an OSD, for `osd metadata`.
#[must_use]
pub fn device_facts(folder: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(folder.join(DEVICE_FILE)).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
