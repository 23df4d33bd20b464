//! Stores on raw devices: made, found again by their labels, given up. In the OSD's folder `block`, `log` and `meta` are links to the devices.

use super::encryption::{self, StoreKeys, Unlocked, cipher, part_of, through, unlock};
use super::metadata::MetadataPlace;
use super::parts::{DeviceLabel, PartDisk, PartitionParts, Parts};
use super::{
    BLOCK_FILE, JOURNAL_FILE, LOG_FILE, META_DEVICE, META_FILE, NOTE_FILE, StorageError, file_error,
    make_journal, make_store, remove, remove_metadata_behind,
};
use nacre_blockstore::{Options, Partitions, SplitDisk};
use nacre_crypt::{CryptDisk, DataKey, Part as CryptPart, WrappingKey};
use nacre_device::{
    Claimed, Found, Label, LabelError, LayoutError, Owner, Region, RegionKind, Role, System, claim,
    data_regions, erase, foreign, log_region, metadata_regions, read_label, write_label,
};
use nacre_env::File;
use nacre_env::disk::{Disk, Window, blocking};
use nacre_env::real::{DeviceView, DriverChoice, HeldDevice, RealDisk, private};
use nacre_kv::{DevicePart, KvError, RegionFile, RegionPlace, journal_file_bytes};
use nacre_types::{OsdId, Uuid};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of one order to trim a new device.
const TRIM_BYTES: u64 = 1 << 30;
/// Bytes of the metadata of one of several partitions at least.
const METADATA_PART_BYTES_MIN: u64 = 64 << 20;
/// Who the OSD is; written by whoever made it.
const IDENTITY_FILE: &str = "fsid";

/// The devices of a new store: block devices, or files that are there already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Devices {
    /// For data, and all that has no device of its own.
    pub data: PathBuf,
    /// For the log.
    pub log: Option<PathBuf>,
    /// For the metadata.
    pub metadata: Option<PathBuf>,
    /// Bytes of the metadata's region on the data device, if an operator wants another number than [`nacre_device::metadata_share`].
    pub metadata_bytes: Option<u64>,
    /// Takes bytes of no known kind for refuse.
    pub force: bool,
    /// Partitions between which the store is divided, one at least.
    pub partitions: u32,
}

/// A partition's key, from the store's.
pub(super) fn partition_key(key: Option<&DataKey>, partition: u32) -> Option<DataKey> {
    key.map(|key| key.of_partition(partition))
}

/// A device that is ours, and what is where on it.
struct Part {
    claimed: Claimed,
    view: Arc<DeviceView>,
    label: Label,
}

impl Part {
    fn new(claimed: Claimed, role: Role, owner: Owner, regions: Vec<Region>) -> Result<Self, StorageError> {
        let view = Arc::new(claimed.held.view().map_err(file_error(&claimed.name))?);
        let device_bytes = claimed.held.size_bytes();
        let label = Label { owner, role, device_bytes, regions, is_encrypted: false, partitions: 1 };
        Ok(Self { claimed, view, label })
    }

    fn to_be_labelled(&self, link: &'static str) -> ToBeLabelled {
        let (device, label) = (self.claimed.name.clone(), self.label.clone());
        ToBeLabelled { link, device, label, view: Arc::clone(&self.view) }
    }
}

/// What is left to do for a device when the store is made.
struct ToBeLabelled {
    /// Name of the link to it.
    link: &'static str,
    device: PathBuf,
    label: Label,
    view: Arc<DeviceView>,
}

/// Makes a store on devices that nobody uses, with links to them in `folder`, encrypted if there is a key for it; gives the bytes that it has for objects and log. The
/// labels come last, and that of the data at the very end: what was left without any is taken again with [`Devices::force`], what has one
/// already must be given up first ([`wipe`]).
///
/// # Errors
/// [`StorageError`].
pub fn mkfs_on_devices(
    folder: &Path,
    owner: Owner,
    devices: &Devices,
    key: Option<&WrappingKey>,
) -> Result<u64, StorageError> {
    let mut plan = Plan::new(owner, devices)?;
    plan.parts().for_each(|part| part.label.is_encrypted = key.is_some());
    let Plan { data, log, metadata } = plan;
    let store_bytes = region_of(&data.label, RegionKind::Store, &data.claimed.name)?.length;
    private::make_folder(folder).map_err(file_error(folder))?;
    let key = encryption::new_on_device(&data.claimed.name, data.view.as_ref(), owner.store, key)?;
    let on = metadata.as_ref().unwrap_or(&data);
    let new = |partition| new_metadata(on, key.as_ref(), partition);
    let places = (0..devices.partitions).map(new).collect::<Result<Vec<_>, _>>()?;
    let mut labels = vec![data.to_be_labelled(BLOCK_FILE)];
    labels.extend(log.as_ref().map(|log| log.to_be_labelled(LOG_FILE)));
    labels.extend(metadata.as_ref().map(|metadata| metadata.to_be_labelled(META_DEVICE)));
    let data = new_disk(data, RegionKind::Store, key.as_ref())?;
    let log = log.map(|log| new_disk(log, RegionKind::Log, key.as_ref())).transpose()?;
    let log = log.map(|log| Box::new(log) as Box<dyn Disk>);
    make_store(folder, Box::new(data), log, &places, owner.store)?;
    let bytes_of_each = store_bytes / u64::from(devices.partitions.max(1));
    places.iter().try_for_each(|place| make_journal(place, bytes_of_each))?;
    for name in [BLOCK_FILE, LOG_FILE, META_DEVICE, META_FILE, JOURNAL_FILE, NOTE_FILE] {
        remove(&folder.join(name))?;
    }
    remove_metadata_behind(folder, 1)?;
    for ToBeLabelled { link, device, .. } in &labels {
        let link = folder.join(link);
        std::os::unix::fs::symlink(device, &link).map_err(file_error(&link))?;
    }
    for ToBeLabelled { device, label, view, .. } in labels.iter().rev() {
        write_label(view.as_ref(), label).map_err(file_error(device))?;
    }
    Ok(store_bytes)
}

/// The devices of a store, held, and how they are divided.
struct Plan {
    data: Part,
    log: Option<Part>,
    metadata: Option<Part>,
}

impl Plan {
    fn new(owner: Owner, devices: &Devices) -> Result<Self, StorageError> {
        refuse_twins(devices)?;
        let system = System::default();
        let claim = |path: &PathBuf| claim(&system, path, devices.force);
        let data = claim(&devices.data)?;
        let log = devices.log.as_ref().map(claim).transpose()?;
        let metadata = devices.metadata.as_ref().map(claim).transpose()?;
        let on_data = metadata.is_none().then_some(devices.metadata_bytes);
        let journal_bytes = journal_file_bytes(Options::JOURNAL_HALF_BYTES_MAX);
        let regions = data_regions(data.held.size_bytes(), on_data, journal_bytes);
        let regions = regions.map_err(layout_error(&data))?;
        let store_bytes = regions.last().map_or(0, |store| store.length);
        let log_bytes_max = SplitDisk::HEAD_BYTES + Options::default().wal_bytes(store_bytes);
        let log = log.map(|log| {
            let region = log_region(log.held.size_bytes(), log_bytes_max).map_err(layout_error(&log))?;
            Part::new(log, Role::Log, owner, vec![region])
        });
        let metadata = metadata.map(|metadata| {
            let regions = metadata_regions(metadata.held.size_bytes(), None, journal_bytes);
            let regions = regions.map_err(layout_error(&metadata))?;
            Part::new(metadata, Role::Metadata, owner, regions)
        });
        let data = Part::new(data, Role::Data, owner, regions)?;
        let mut plan = Self { data, log: log.transpose()?, metadata: metadata.transpose()? };
        plan.parts().for_each(|part| part.label.partitions = devices.partitions);
        let Part { claimed, label, .. } = plan.metadata.as_ref().unwrap_or(&plan.data);
        check_parts(label, &claimed.name)?;
        Ok(plan)
    }
}

impl Plan {
    fn parts(&mut self) -> impl Iterator<Item = &mut Part> {
        [Some(&mut self.data), self.log.as_mut(), self.metadata.as_mut()].into_iter().flatten()
    }
}

pub(super) fn layout_error(claimed: &Claimed) -> impl FnOnce(LayoutError) -> StorageError + use<> {
    let path = claimed.name.clone();
    move |source| StorageError::Layout { path, source }
}

/// Whether all partitions have room for their metadata on a device that is to have this label.
pub(super) fn check_parts(label: &Label, device: &Path) -> Result<(), StorageError> {
    let region = region_of(label, RegionKind::Metadata, device)?;
    let shards_max = (region.length / METADATA_PART_BYTES_MIN).max(1);
    if u64::from(label.partitions) <= shards_max {
        return Ok(());
    }
    let source = LayoutError::Shards { shards: label.partitions, shards_max };
    Err(StorageError::Layout { path: device.to_owned(), source })
}

/// A device that is given twice would be refused as one in use; this says why.
fn refuse_twins(devices: &Devices) -> Result<(), StorageError> {
    let all = [Some(&devices.data), devices.log.as_ref(), devices.metadata.as_ref()];
    let mut seen: Vec<PathBuf> = Vec::new();
    for path in all.into_iter().flatten() {
        let real = path.canonicalize().map_err(file_error(path))?;
        if seen.contains(&real) {
            return Err(StorageError::Twice { path: real });
        }
        seen.push(real);
    }
    Ok(())
}

pub(super) fn region_of(label: &Label, kind: RegionKind, link: &Path) -> Result<Region, StorageError> {
    let missing = || StorageError::NoRegion { path: link.to_owned(), kind };
    label.region(kind).ok_or_else(missing)
}

/// The place of a partition's tree.
pub(super) fn place_of(label: &Label, link: &Path, partition: u32) -> Result<RegionPlace, StorageError> {
    let (path, kind) = (link.to_owned(), RegionKind::Metadata);
    let part = label.part(kind, partition).ok_or(StorageError::NoRegion { path, kind })?;
    let Region { offset, length, .. } = part;
    Ok(RegionPlace { offset, length, owner: label.owner.store.0 })
}

/// What a partition has of the journals' region, and its length, if a device has one. `key` is the store's.
pub(super) fn journal_of(
    label: &Label,
    device: &Arc<dyn File>,
    key: Option<&DataKey>,
    partition: u32,
) -> Option<(Arc<DevicePart>, u64)> {
    let Region { offset, length, .. } = label.part(RegionKind::Journal, partition)?;
    let device = through(Arc::clone(device), partition_key(key, partition).as_ref(), CryptPart::Journal);
    Some((Arc::new(DevicePart::new(device, offset, length)), length))
}

/// What was in a region before is no journal.
pub(super) fn new_journal(part: &dyn File) -> std::io::Result<()> {
    let smallest_bytes = usize::try_from(journal_file_bytes(0)).unwrap_or(0);
    part.write(0, &vec![0; smallest_bytes])?;
    part.sync()
}

/// An empty region for a partition's metadata, and one in which no journal is.
fn new_metadata(part: &Part, key: Option<&DataKey>, partition: u32) -> Result<MetadataPlace, StorageError> {
    let path = &part.claimed.name;
    let place = place_of(&part.label, path, partition)?;
    let view = Arc::clone(&part.view) as Arc<dyn File>;
    let journal = journal_of(&part.label, &view, key, partition);
    let device = through(view, partition_key(key, partition).as_ref(), CryptPart::Metadata);
    let tree = Arc::new(RegionFile::create(device, place).map_err(file_error(path))?);
    if let Some((part, _)) = &journal {
        new_journal(part.as_ref()).map_err(file_error(path))?;
    }
    Ok(MetadataPlace::Regions { device: path.clone(), tree, journal })
}

/// The region of a kind as a disk, trimmed where it is flash, which need not keep what was there.
fn new_disk(part: Part, kind: RegionKind, key: Option<&DataKey>) -> Result<PartDisk, StorageError> {
    let Part { claimed: Claimed { held, name }, label, .. } = part;
    let region = region_of(&label, kind, &name)?;
    let disk = held
        .into_disk(DriverChoice::Auto)
        .map_err(|source| StorageError::Disk { path: name.clone(), source })?;
    let mut disk = Window::new(disk, region.offset, region.length);
    // A spindle would write zeros instead, all over; a file keeps what was allocated for it.
    let is_trimmed = disk.disk().is_block_device() && disk.disk().rotational() != Some(true);
    let mut at = if is_trimmed { 0 } else { region.length };
    while at < region.length {
        let length = TRIM_BYTES.min(region.length - at);
        if let Err(error) = blocking::discard(&mut disk, at, length) {
            tracing::warn!(device = %name.display(), %error, "not trimmed");
            break;
        }
        at += length;
    }
    Ok(decrypted(disk, kind, key))
}

/// The region of store or log, decrypted.
pub(super) fn decrypted(disk: Window<RealDisk>, kind: RegionKind, key: Option<&DataKey>) -> PartDisk {
    CryptDisk::new(disk, cipher(key, part_of(kind)))
}

/// A device behind a link, and what its label says.
pub(super) struct Linked {
    pub(super) link: PathBuf,
    held: HeldDevice,
    pub(super) view: Arc<DeviceView>,
    pub(super) found: Found,
}

impl Linked {
    fn open(folder: &Path, name: &str) -> Result<Self, StorageError> {
        let link = folder.join(name);
        let held =
            HeldDevice::open(&link).map_err(|source| StorageError::Disk { path: link.clone(), source })?;
        let view = Arc::new(held.view().map_err(file_error(&link))?);
        let found = read_label(view.as_ref(), held.size_bytes())
            .map_err(|source| StorageError::Label { path: link.clone(), source })?;
        if let Some(what) = foreign(view.as_ref(), held.size_bytes(), &found).map_err(file_error(&link))? {
            return Err(StorageError::TakenOver { link, what, label: found.label.to_string() });
        }
        Ok(Self { link, held, view, found })
    }

    /// Refuses a device of another OSD, of an earlier store of this one, or in another role.
    fn check(&self, role: Role, fits: impl Fn(&Owner) -> bool, expected: String) -> Result<(), StorageError> {
        if self.found.label.role == role && fits(&self.found.label.owner) {
            return Ok(());
        }
        let device = self.link.canonicalize().unwrap_or_default();
        let found = self.found.label.to_string();
        Err(StorageError::Foreign { link: self.link.clone(), device, found, expected })
    }

    fn label(&self) -> DeviceLabel {
        DeviceLabel { link: self.link.clone(), found: self.found.clone(), view: Arc::clone(&self.view) }
    }

    /// A disk for a partition over a further hold on its region of a kind.
    pub(super) fn disk(
        &self,
        kind: RegionKind,
        key: Option<&DataKey>,
        partition: u32,
    ) -> Result<PartDisk, StorageError> {
        region_disk(&self.held, (&self.link, &self.found.label), kind, key, partition)
    }

    /// Through the page cache, for a partition's metadata. Each but the first opens the device once more: that a page could not be written
    /// back, the system says once to each open file.
    fn view_of(&self, partition: u32) -> Result<Arc<dyn File>, StorageError> {
        Ok(match partition {
            0 => Arc::clone(&self.view) as Arc<dyn File>,
            _ => Arc::new(self.held.view().map_err(file_error(&self.link))?),
        })
    }

    /// Where its wrapped key is, if it is encrypted.
    pub(super) fn keys(&self) -> Result<Option<StoreKeys>, StorageError> {
        let label = &self.found.label;
        let device = Arc::clone(&self.view) as Arc<dyn File>;
        let keys = || StoreKeys::on_device(&self.link, device, label.owner.store);
        label.is_encrypted.then(keys).transpose()
    }
}

/// The region of store or log on a device that is held, for a partition, decrypted. The first one's requests go through the file that has the
/// lock.
pub(super) fn region_disk(
    held: &HeldDevice,
    (name, label): (&Path, &Label),
    kind: RegionKind,
    key: Option<&DataKey>,
    partition: u32,
) -> Result<PartDisk, StorageError> {
    let region = region_of(label, kind, name)?;
    let hold = if partition == 0 { held.again() } else { held.opened_again() };
    let disk = hold.map_err(file_error(name))?.into_disk(DriverChoice::Auto);
    let disk = disk.map_err(|source| StorageError::Disk { path: name.to_owned(), source })?;
    Ok(decrypted(Window::new(disk, region.offset, region.length), kind, key))
}

/// The devices of a store, which say that they are its own.
pub(super) struct LinkedDevices {
    pub(super) data: Linked,
    pub(super) log: Option<Linked>,
    pub(super) metadata: Option<Linked>,
}

impl LinkedDevices {
    /// Opens the devices of the store in `folder`; `None` when its data lie in a file, or on a device without a label as an operator may
    /// have linked it.
    pub(super) fn open(folder: &Path) -> Result<Option<Self>, StorageError> {
        let Some((uuid, data)) = data_device(folder)? else { return Ok(None) };
        let Label { owner, is_encrypted, partitions, .. } = data.found.label;
        let other = |name: &str, role: Role| -> Result<Option<Linked>, StorageError> {
            // A link to nowhere is an error, not a store without such a device.
            if folder.join(name).symlink_metadata().is_err() {
                return Ok(None);
            }
            let linked = Linked::open(folder, name)?;
            let Owner { osd, store, .. } = owner;
            let expected = format!("the {role} device of osd.{osd} (uuid {uuid}, store {store})");
            linked.check(role, |found| *found == owner, expected)?;
            if linked.found.label.is_encrypted != is_encrypted {
                return Err(StorageError::Mixed { link: linked.link });
            }
            let found = linked.found.label.partitions;
            if found != partitions {
                return Err(StorageError::Partitions {
                    link: linked.link,
                    partitions: found,
                    expected: partitions,
                });
            }
            Ok(Some(linked))
        };
        let log = other(LOG_FILE, Role::Log)?;
        let metadata = other(META_DEVICE, Role::Metadata)?;
        Ok(Some(Self { data, log, metadata }))
    }

    pub(super) fn labels(&self) -> Vec<DeviceLabel> {
        let all = [Some(&self.data), self.log.as_ref(), self.metadata.as_ref()];
        all.into_iter().flatten().map(Linked::label).collect()
    }

    /// Partitions of the store. Its superblocks say the same, or it does not open.
    pub(super) const fn partitions(&self) -> u32 {
        self.data.found.label.partitions
    }
}

/// Opens the devices of the store in `folder`; `None` as of [`LinkedDevices::open`].
pub(super) fn open_labelled(folder: &Path, key: Option<&WrappingKey>) -> Result<Option<Parts>, StorageError> {
    let Some(linked) = LinkedDevices::open(folder)? else { return Ok(None) };
    let (labels, partitions) = (linked.labels(), linked.partitions());
    let LinkedDevices { data, log, metadata } = linked;
    let Unlocked { keys, data: key } = unlock(folder, data.keys()?, key)?;
    let key = key.as_ref();
    let disk = |number| data.disk(RegionKind::Store, key, number);
    let mut first = disk(0)?;
    // One whose superblocks are damaged says what is wrong when it is opened.
    if let Ok(found) = Partitions::count(&mut first)
        && found != partitions
    {
        return Err(StorageError::Partitions { link: data.link.clone(), partitions, expected: found });
    }
    let partition = |number, disk| {
        let metadata = metadata_place(metadata.as_ref().unwrap_or(&data), key, number)?;
        let log = log.as_ref().map(|log| log.disk(RegionKind::Log, key, number)).transpose()?;
        Ok::<_, StorageError>(PartitionParts { data: disk, log, metadata })
    };
    let first = partition(0, first)?;
    let others = (1..partitions).map(|number| partition(number, disk(number)?));
    let others = others.collect::<Result<_, StorageError>>()?;
    let metadata_disks = metadata.map_or_else(BTreeMap::new, |linked| linked.held.disks());
    Ok(Some(Parts { first, others, labels, metadata_disks, keys }))
}

/// The OSD's uuid and its data device, if that has a label.
fn data_device(folder: &Path) -> Result<Option<(Uuid, Linked)>, StorageError> {
    let has_metadata_file = folder.join(META_FILE).symlink_metadata().is_ok();
    let is_link = folder.join(BLOCK_FILE).symlink_metadata().is_ok_and(|found| found.is_symlink());
    if has_metadata_file || !is_link {
        return Ok(None);
    }
    let uuid = identity(folder)?;
    let data = Linked::open(folder, BLOCK_FILE)?;
    let expected = format!("the data device of the OSD with uuid {uuid}, of which this is the folder");
    data.check(Role::Data, |owner| owner.osd_uuid == uuid, expected)?;
    Ok(Some((uuid, data)))
}

/// The wrapped key of the store in `folder`, which no OSD runs on; `None` when it is not encrypted.
///
/// # Errors
/// [`StorageError`].
pub fn store_keys(folder: &Path) -> Result<Option<StoreKeys>, StorageError> {
    match data_device(folder)? {
        Some((_, data)) => data.keys(),
        None => StoreKeys::in_folder(folder),
    }
}

fn identity(folder: &Path) -> Result<Uuid, StorageError> {
    let path = folder.join(IDENTITY_FILE);
    let text = std::fs::read_to_string(&path).map_err(file_error(&path))?;
    Uuid::parse(text.trim()).ok_or(StorageError::NoIdentity { path })
}

pub(super) fn metadata_place(
    linked: &Linked,
    key: Option<&DataKey>,
    partition: u32,
) -> Result<MetadataPlace, StorageError> {
    let device = linked.view_of(partition)?;
    metadata_place_on((&linked.link, &linked.found.label), &device, key, partition)
}

pub(super) fn metadata_place_on(
    (name, label): (&Path, &Label),
    device: &Arc<dyn File>,
    key: Option<&DataKey>,
    partition: u32,
) -> Result<MetadataPlace, StorageError> {
    let place = place_of(label, name, partition)?;
    let tree = through(Arc::clone(device), partition_key(key, partition).as_ref(), CryptPart::Metadata);
    let file = RegionFile::open(tree, place)
        .map_err(|error| StorageError::Meta { path: name.to_owned(), source: of_region(error) })?;
    let journal = journal_of(label, device, key, partition);
    Ok(MetadataPlace::Regions { device: name.to_owned(), tree: Arc::new(file), journal })
}

fn of_region(error: std::io::Error) -> KvError {
    match error.kind() {
        std::io::ErrorKind::InvalidData => KvError::Damaged(error.to_string()),
        _ => error.into(),
    }
}

/// What the label of a device says, of one that no OSD runs on.
///
/// # Errors
/// [`StorageError`].
pub fn label_of(path: &Path) -> Result<Label, StorageError> {
    Ok(held_label(path)?.1)
}

fn held_label(path: &Path) -> Result<(DeviceView, Label), StorageError> {
    let held =
        HeldDevice::open(path).map_err(|source| StorageError::Disk { path: path.to_owned(), source })?;
    let view = held.view().map_err(file_error(path))?;
    match read_label(&view, held.size_bytes()) {
        Ok(found) => Ok((view, found.label)),
        Err(LabelError::Differ { first, last }) if first.owner == last.owner => Ok((view, *first)),
        Err(source) => Err(StorageError::Label { path: path.to_owned(), source }),
    }
}

/// Takes a device away from the OSD with this number, which does not run and is gone for good: what is on it is lost.
///
/// # Errors
/// [`StorageError`]; when it is another OSD's, or nobody's, it stays as it is.
pub fn wipe(path: &Path, osd: OsdId) -> Result<Label, StorageError> {
    let (view, label) = held_label(path)?;
    if label.owner.osd != osd {
        let expected = format!("a device of osd.{osd}");
        let (link, device) = (path.to_owned(), path.canonicalize().unwrap_or_default());
        return Err(StorageError::Foreign { link, device, found: label.to_string(), expected });
    }
    erase(&view, &label).map_err(file_error(path))?;
    Ok(label)
}
