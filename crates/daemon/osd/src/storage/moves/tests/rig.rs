//! A store on simulated devices, with an OSD's folder that loses power as they do.

use crate::storage::devices::{metadata_place_on, partition_key};
use crate::storage::encryption::{cipher, part_of, through};
use crate::storage::make_journal;
use crate::storage::metadata::MetadataPlace;
use crate::storage::moves::folder::{Links, Note};
use crate::storage::moves::steps::{Job, Place, Planted, free_device, free_on_data, log_home, to_be_freed};
use crate::storage::moves::{MoveError, Moved};
use crate::storage::{LOG_FILE, META_DEVICE, StorageError};
use nacre_blockstore::{BlockStore, Options, Partitions, SplitDisk, refuse_without_log};
use nacre_buf::{AlignedBuf, BufList, ByteStr, Bytes};
use nacre_crypt::{CryptDisk, DataKey, Part};
use nacre_device::{Label, Owner, Region, RegionKind, Role, read_label, write_label};
use nacre_env::File;
use nacre_env::disk::{
    BLOCK_BYTES, Disk, DiskCompletion, DiskError, DiskInfo, DiskRequest, DiskTag, Durability, Window,
    assert_range, assert_write,
};
use nacre_kv::{KvOptions, KvStore, RegionFile};
use nacre_simdisk::SimFile;
use nacre_store::{Completion, ObjectStore, StoreState};
use nacre_txn::{FetchFrom, ObjectView, Op, ReadError, StoreToken, Transaction};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{Entropy, Errno, HObject, PgId, SpgId, Uuid};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const MIB: u64 = 1 << 20;
const DATA_BYTES: u64 = 40 * MIB;
const OTHER_BYTES: u64 = 24 * MIB;
const HALF_BYTES: u64 = 256 << 10;
const PG: SpgId = SpgId::replicated(PgId::new(2, 1));
const TOKEN: StoreToken = StoreToken::without_pg(1);
const OWNER: Owner = Owner { cluster: Uuid([1; 16]), osd: 3, osd_uuid: Uuid([2; 16]), store: Uuid([4; 16]) };

/// A file as a disk: each request is done when it is submitted.
struct FileDisk {
    file: Arc<dyn File>,
    size_bytes: u64,
    done: Vec<DiskCompletion>,
}

impl FileDisk {
    fn finish(&mut self, request: DiskRequest, at: (u64, u64), tag: DiskTag, outcome: std::io::Result<()>) {
        let (offset, length) = at;
        let failed = |_| DiskError::Failed { request, offset, length, errno: Errno::EIO };
        self.done.push(DiskCompletion { tag, result: outcome.map_err(failed), buffer: None });
    }
}

impl Disk for FileDisk {
    fn write(&mut self, offset: u64, data: BufList, durability: Durability, tag: DiskTag) {
        assert_write(&self.info(), offset, &data);
        let sync = || if durability == Durability::Durable { self.file.sync() } else { Ok(()) };
        let outcome = self.file.write(offset, &data.to_bytes()).and_then(|()| sync());
        self.finish(DiskRequest::Write, (offset, data.len() as u64), tag, outcome);
    }

    fn read(&mut self, offset: u64, into: AlignedBuf, tag: DiskTag) {
        assert_range(&self.info(), offset, into.len() as u64);
        let (mut buffer, length) = (into, 0);
        let outcome = self.file.read(offset, &mut buffer);
        self.finish(DiskRequest::Read, (offset, length), tag, outcome);
        self.done.last_mut().expect("just pushed").buffer = Some(buffer);
    }

    fn flush(&mut self, tag: DiskTag) {
        let outcome = self.file.sync();
        self.finish(DiskRequest::Flush, (0, 0), tag, outcome);
    }

    fn discard(&mut self, offset: u64, length: u64, tag: DiskTag) {
        self.finish(DiskRequest::Discard, (offset, length), tag, Err(std::io::ErrorKind::Unsupported.into()));
    }

    fn submit(&mut self) {}

    fn drain(&mut self, out: &mut Vec<DiskCompletion>) {
        out.append(&mut self.done);
    }

    fn wait(&mut self) {}

    fn info(&self) -> DiskInfo {
        let (size_bytes, driver) = (self.size_bytes, "simulated");
        DiskInfo { size_bytes, is_file: false, block_bytes: 4096, discard_bytes: 0, driver }
    }
}

#[derive(Default)]
struct Names {
    links: BTreeMap<String, PathBuf>,
    note: Option<Note>,
    power_for: Option<u64>,
    is_dead: bool,
    seed: u64,
}

/// An OSD's folder. A change in which the power goes is there or not.
#[derive(Default)]
pub(super) struct SimLinks(Mutex<Names>);

impl SimLinks {
    fn change(&self, change: impl FnOnce(&mut Names)) -> Result<(), StorageError> {
        let mut names = self.0.lock().expect("not poisoned");
        let gone = || StorageError::File { path: "folder".into(), source: std::io::Error::other("no power") };
        let goes = names.power_for == Some(0);
        names.power_for = names.power_for.map(|left| left.saturating_sub(1));
        if names.is_dead || (goes && SeededEntropy(names.seed).u64().is_multiple_of(2)) {
            names.is_dead = true;
            return Err(gone());
        }
        change(&mut names);
        names.is_dead = goes;
        if goes { Err(gone()) } else { Ok(()) }
    }
}

impl Links for SimLinks {
    fn link(&self, name: &str) -> Result<Option<PathBuf>, StorageError> {
        Ok(self.0.lock().expect("not poisoned").links.get(name).cloned())
    }

    fn set_link(&self, name: &str, target: &Path) -> Result<(), StorageError> {
        self.change(|names| drop(names.links.insert(name.to_owned(), target.to_owned())))
    }

    fn remove_link(&self, name: &str) -> Result<(), StorageError> {
        self.change(|names| drop(names.links.remove(name)))
    }

    fn note(&self) -> Result<Option<Note>, StorageError> {
        Ok(self.0.lock().expect("not poisoned").note.clone())
    }

    fn set_note(&self, note: &Note) -> Result<(), StorageError> {
        self.change(|names| names.note = Some(note.clone()))
    }

    fn remove_note(&self) -> Result<(), StorageError> {
        self.change(|names| names.note = None)
    }
}

/// What may lose its power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Victim {
    Device(&'static str),
    Folder,
}

/// A store and devices that it may be moved to.
pub(super) struct Rig {
    devices: BTreeMap<&'static str, SimFile>,
    /// Of an encrypted one.
    key: Option<DataKey>,
    partitions: u32,
    pub(super) links: SimLinks,
    objects: u32,
}

pub(super) const DATA: &str = "data";
pub(super) const ONE: &str = "one";
pub(super) const TWO: &str = "two";

fn name(device: Option<&'static str>) -> Option<PathBuf> {
    device.map(PathBuf::from)
}

fn region(kind: RegionKind, offset: u64, length: u64) -> Region {
    Region { kind, offset: offset * MIB, length: length * MIB }
}

fn data_label(is_encrypted: bool, partitions: u32) -> Label {
    let regions = vec![
        region(RegionKind::Journal, 1, 1),
        region(RegionKind::Metadata, 2, 14),
        region(RegionKind::Store, 16, 20),
    ];
    let (owner, role, device_bytes) = (OWNER, Role::Data, DATA_BYTES);
    Label { owner, role, device_bytes, regions, is_encrypted, partitions }
}

impl Rig {
    /// A store of so many partitions with everything on the device with the data, and something in each.
    pub(super) fn new(seed: u64, is_encrypted: bool, partitions: u32) -> Self {
        let devices: BTreeMap<_, _> =
            [DATA, ONE, TWO].into_iter().zip(seed..).map(|(name, seed)| (name, SimFile::new(seed))).collect();
        for (name, device) in &devices {
            let bytes = if *name == DATA { DATA_BYTES } else { OTHER_BYTES };
            device.open().set_length(bytes).expect("room");
        }
        let links = SimLinks::default();
        links.0.lock().expect("not poisoned").seed = seed;
        let key = is_encrypted.then(|| DataKey::generate(&mut SeededEntropy(seed)));
        let mut rig = Self { devices, key, partitions, links, objects: 0 };
        let data = rig.place(DATA, data_label(is_encrypted, partitions));
        write_label(data.file.as_ref(), &data.label).expect("healthy");
        for partition in 0..partitions {
            let region = data.label.part(RegionKind::Metadata, partition).expect("there is one");
            let place =
                nacre_kv::RegionPlace { offset: region.offset, length: region.length, owner: OWNER.store.0 };
            let key = partition_key(rig.key.as_ref(), partition);
            let device = through(Arc::clone(&data.file), key.as_ref(), Part::Metadata);
            RegionFile::create(device, place).expect("healthy");
        }
        let metadata = rig.metadata(&data).expect("just made");
        let trees = metadata.iter().map(|metadata| metadata.open_tree(KvOptions::default()).expect("new"));
        let mut trees: Vec<_> = trees.collect();
        let mut all: Vec<&mut dyn KvStore> = trees.iter_mut().map(|tree| tree as &mut dyn KvStore).collect();
        let mut disk = rig.disk(&data, RegionKind::Store);
        Partitions::mkfs(disk.as_mut(), &mut all, OWNER.store.0, &Options::default()).expect("healthy");
        drop(trees);
        let half_bytes = HALF_BYTES / u64::from(partitions);
        metadata.iter().for_each(|metadata| make_journal(metadata, half_bytes * 64).expect("healthy"));
        rig.write_more(6);
        rig
    }

    /// Cuts off whoever has it open.
    fn place(&self, name: &'static str, label: Label) -> Place {
        let file = Arc::new(self.devices[name].open()) as Arc<dyn File>;
        Place { name: name.into(), file, label, key: self.key.clone() }
    }

    /// Of each partition.
    fn metadata(&self, place: &Place) -> Result<Vec<MetadataPlace>, StorageError> {
        let (on, key) = ((place.name.as_path(), &place.label), self.key.as_ref());
        (0..self.partitions).map(|partition| metadata_place_on(on, &place.file, key, partition)).collect()
    }

    fn disk(&self, place: &Place, kind: RegionKind) -> Box<dyn Disk> {
        let Region { offset, length, .. } = place.label.region(kind).expect("it has one");
        let size_bytes = place.label.device_bytes;
        let disk = FileDisk { file: Arc::clone(&place.file), size_bytes, done: Vec::new() };
        Box::new(CryptDisk::new(Window::new(disk, offset, length), cipher(self.key.as_ref(), part_of(kind))))
    }

    fn labelled(&self, name: &'static str) -> Result<Place, String> {
        let file = self.devices[name].open();
        let bytes = file.length().map_err(|error| error.to_string())?;
        let found = read_label(&file, bytes).map_err(|error| format!("{name}: {error}"))?;
        Ok(self.place(name, found.label))
    }

    fn linked(&self, link: &str) -> Result<Option<Place>, String> {
        let target = self.links.link(link).expect("readable");
        let known = target.map(|target| {
            let name = self.devices.keys().find(|name| Path::new(name) == target).expect("a device");
            self.labelled(name)
        });
        known.transpose()
    }

    /// The store's disk, with its log.
    fn joined(&self, data: &Place, log: Option<&Place>) -> Result<Box<dyn Disk>, String> {
        let mut disk = self.disk(data, RegionKind::Store);
        let disk = match log {
            None => refuse_without_log(disk.as_mut()).map(|()| disk),
            Some(log) => SplitDisk::open(disk, self.disk(log, RegionKind::Log))
                .map(|disk| Box::new(disk) as Box<dyn Disk>),
        };
        disk.map_err(|error| format!("log: {error}"))
    }

    /// All partitions, as an OSD does.
    fn open(&self) -> Result<Vec<BlockStore>, String> {
        let data = self.labelled(DATA)?;
        let (log, metadata) = (self.linked(LOG_FILE)?, self.linked(META_DEVICE)?);
        let place = metadata.as_ref().unwrap_or(&data);
        let metadata = self.metadata(place).map_err(|error| format!("metadata: {error}"))?;
        let opened = metadata.iter().map(MetadataPlace::open).collect::<Result<Vec<_>, _>>();
        let all = opened.map_err(|error| format!("metadata: {error}"))?;
        let trees: Vec<&dyn KvStore> = all.iter().map(|kv| kv.as_ref() as &dyn KvStore).collect();
        let failed = |error| format!("store: {error}");
        let mut shared =
            Partitions::read(self.joined(&data, log.as_ref())?.as_mut(), &trees).map_err(failed)?;
        let open = |(number, kv)| {
            let disk = self.joined(&data, log.as_ref())?;
            Ok(shared.open(number, disk, kv, Options::default()).map_err(failed)?.0)
        };
        (0..).zip(all).map(open).collect()
    }

    /// Which partition has an object.
    fn home(&self, nth: u32) -> usize {
        (nth % self.partitions) as usize
    }

    /// Writes objects, of which the last ones are only in the log.
    pub(super) fn write_more(&mut self, count: u32) {
        assert!(self.try_to_write(count), "the store opens, and there is room");
    }

    /// The same, where power may go: false when it went. Those that were acknowledged are the store's.
    pub(super) fn try_to_write(&mut self, count: u32) -> bool {
        let Ok(mut stores) = self.open() else { return false };
        let (middle, end) = (self.objects + count / 2, self.objects + count);
        while self.objects < end {
            let nth = self.objects;
            let store = &mut stores[self.home(nth)];
            let mut ops = if nth < self.partitions { vec![Op::CreateCollection] } else { Vec::new() };
            let object = object(nth);
            ops.push(Op::Write { object: object.clone(), offset: 0, data: BufList::from(content(nth)) });
            ops.push(Op::OmapSet { object, entries: vec![("key".into(), content(nth).into())] });
            let submitted = store.submit(Transaction { collection: PG, ops }, TOKEN);
            if submitted.is_err() || !comes(store, Completion::Durable(TOKEN)) {
                return false;
            }
            self.objects += 1;
            if nth == middle && stores.iter_mut().any(|store| store.checkpoint_now().is_err()) {
                return false;
            }
        }
        true
    }

    /// What is wrong with the store.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut stores = self.open()?;
        for nth in 0..self.objects {
            let store = &mut stores[self.home(nth)];
            let data = read(store, &object(nth));
            if data != content(nth) {
                return Err(format!("object {nth} is not as it was: {} bytes", data.len()));
            }
            let omap: Vec<(ByteStr, Bytes)> =
                store.omap_page(&PG, &object(nth), b"", usize::MAX, usize::MAX).entries;
            if omap != [("key".into(), Bytes::from(content(nth)))] {
                return Err(format!("the omap of object {nth} is not as it was"));
            }
        }
        for (number, store) in stores.iter_mut().enumerate() {
            let report = store.check(true);
            if !report.inconsistencies.is_empty() || !report.damaged.is_empty() {
                let (wrong, damaged) = (report.inconsistencies, report.damaged.len());
                return Err(format!("partition {number}: {wrong:?}, {damaged} damaged"));
            }
        }
        Ok(())
    }

    /// Brings all home that is in the log.
    pub(super) fn checkpoint(&self) {
        let mut stores = self.open().expect("healthy");
        stores.iter_mut().for_each(|store| store.checkpoint_now().expect("healthy"));
    }

    /// Whether the store gives all that was written; false when it says that it cannot.
    ///
    /// # Errors
    /// It gives something else, and takes that for right.
    pub(super) fn serves(&self) -> Result<bool, String> {
        let Ok(mut stores) = self.open() else { return Ok(false) };
        let mut is_whole = true;
        for nth in 0..self.objects {
            let store = &mut stores[self.home(nth)];
            let (bytes, data) = (store.data_bytes(&PG, &object(nth)), read(store, &object(nth)));
            let omap = store.omap_page(&PG, &object(nth), b"", usize::MAX, usize::MAX).entries;
            if store.state() == StoreState::Failed {
                return Ok(false);
            }
            let is_damaged = bytes == Some(content(nth).len() as u64) && data.is_empty();
            is_whole &= !is_damaged;
            if data != content(nth) && !is_damaged {
                return Err(format!("object {nth}: {} bytes of data", data.len()));
            }
            if omap != [("key".into(), Bytes::from(content(nth)))] {
                return Err(format!("object {nth}: an omap of {} keys", omap.len()));
            }
        }
        Ok(is_whole)
    }

    /// What is on all devices.
    pub(super) fn contents(&self) -> BTreeMap<&'static str, Vec<u8>> {
        self.devices.iter().map(|(name, device)| (*name, raw(device))).collect()
    }

    /// Changes a bit on a device.
    pub(super) fn rot(&self, name: &'static str, at: u64, bit: u32) {
        let file = self.devices[name].open();
        let mut byte = [0];
        file.read(at, &mut byte).expect("healthy");
        file.write(at, &[byte[0] ^ (1 << bit)]).and_then(|()| file.sync()).expect("healthy");
    }

    /// Puts that back which the devices had.
    pub(super) fn put_back(&self, contents: &BTreeMap<&'static str, Vec<u8>>) {
        for (name, before) in contents {
            let (now, file) = (raw(&self.devices[name]), self.devices[name].open());
            let blocks = before.chunks(BLOCK_BYTES).zip(now.chunks(BLOCK_BYTES)).enumerate();
            for (nth, (block, _)) in blocks.filter(|(_, (block, now))| block != now) {
                file.write((nth * BLOCK_BYTES) as u64, block).expect("healthy");
            }
            file.sync().expect("healthy");
        }
    }

    /// Which of some marks are at the beginning of a sector, as the devices have it.
    pub(super) fn shows<'a>(&self, wanted: &[&'a [u8]]) -> Vec<&'a [u8]> {
        let contents: Vec<Vec<u8>> = self.devices.values().map(raw).collect();
        let sectors = || contents.iter().flat_map(|content| content.chunks(512));
        wanted.iter().copied().filter(|mark| sectors().any(|sector| sector.starts_with(mark))).collect()
    }

    /// Where it is: `None` is with the data.
    pub(super) fn current(&self, what: Moved) -> Option<PathBuf> {
        self.links.link(what.link()).expect("readable")
    }

    pub(super) fn has_label(&self, name: &'static str) -> bool {
        self.labelled(name).is_ok()
    }

    fn label_for(&self, what: Moved, data: &Place) -> Label {
        let regions = match what {
            Moved::Log => {
                let length = log_home(data).expect("it has a superblock").device_bytes();
                vec![Region { kind: RegionKind::Log, offset: MIB, length }]
            }
            Moved::Metadata => vec![region(RegionKind::Journal, 1, 2), region(RegionKind::Metadata, 4, 18)],
        };
        let is_encrypted = self.key.is_some();
        let (owner, role, device_bytes) = (OWNER, what.role(), OTHER_BYTES);
        Label { owner, role, device_bytes, regions, is_encrypted, partitions: self.partitions }
    }

    /// All of a move, as the tool makes it.
    pub(super) fn move_all(
        &self,
        what: Moved,
        to: Option<&'static str>,
        planted: Planted,
    ) -> Result<(), MoveError> {
        let gone =
            |_| StorageError::File { path: "device".into(), source: std::io::Error::other("no power") };
        let data = self.labelled(DATA).map_err(gone)?;
        let from = self.linked(what.link()).map_err(gone)?;
        let to = to.map(|to| self.place(to, self.label_for(what, &data)));
        let job = Job { what, data: &data, from: from.as_ref(), to: to.as_ref(), planted };
        job.copy(&self.links, &mut |_| ())?;
        job.switch(&self.links)?;
        job.free(&self.links)
    }

    /// The same once more after it was interrupted.
    pub(super) fn again(&self, what: Moved, to: Option<&'static str>) {
        if let Some(note) = self.links.note().expect("readable") {
            let current = self.current(what);
            let freed = to_be_freed(&note, |place| place == current.as_deref());
            match freed.expect("one of the two") {
                None => free_on_data(what, &self.labelled(DATA).expect("a label")).expect("healthy"),
                Some(name) => {
                    let device = self.devices.iter().find(|(device, _)| Path::new(device) == name);
                    let file = device.expect("a device").1.open();
                    free_device(what, OWNER, &name, &file).expect("healthy");
                }
            }
            self.links.remove_note().expect("writable");
        }
        if self.current(what) != name(to) {
            self.move_all(what, to, Planted::Nothing).expect("healthy");
        }
    }

    pub(super) fn lose_power_after(&self, victim: Victim, changes: u64) {
        match victim {
            Victim::Device(name) => self.devices[name].lose_power_after(changes),
            Victim::Folder => self.links.0.lock().expect("not poisoned").power_for = Some(changes),
        }
    }

    /// Power goes everywhere, and comes back.
    pub(super) fn crash(&self) {
        let all: Vec<&str> = self.devices.keys().copied().collect();
        self.crash_of(&all);
    }

    /// Power goes of these devices, and comes back; the process ends with it, and others keep what they have.
    pub(super) fn crash_of(&self, devices: &[&str]) {
        let lost = self.devices.iter().filter(|(name, _)| devices.contains(name));
        lost.for_each(|(_, device)| device.crash());
        let mut names = self.links.0.lock().expect("not poisoned");
        (names.power_for, names.is_dead) = (None, false);
    }
}

fn raw(device: &SimFile) -> Vec<u8> {
    let file = device.open();
    let mut content = vec![0; usize::try_from(file.length().expect("healthy")).expect("small")];
    file.read(0, &mut content).expect("healthy");
    content
}

fn object(nth: u32) -> HObject {
    HObject::head(2, "".into(), "".into(), format!("object.{nth}").into())
}

fn content(nth: u32) -> Vec<u8> {
    vec![u8::try_from(nth % 200 + 1).expect("small"); 3000 + nth as usize * 900]
}

/// False when the store fails first.
fn comes(store: &mut BlockStore, completion: Completion) -> bool {
    let mut completions = Vec::new();
    while !completions.contains(&completion) {
        store.drain(&mut completions);
        if store.state() == StoreState::Failed {
            return completions.contains(&completion);
        }
        if completions.is_empty() {
            store.wait();
        }
    }
    true
}

fn read(store: &mut BlockStore, name: &HObject) -> Vec<u8> {
    loop {
        match store.read(&PG, name, 0, u64::MAX) {
            Ok(data) => return data.to_bytes().to_vec(),
            Err(ReadError::Pending { offset, length, .. }) => {
                store.fetch(&PG, name, offset, length, FetchFrom::Anywhere, TOKEN);
                if !comes(store, Completion::Fetched(TOKEN)) {
                    return Vec::new();
                }
            }
            Err(ReadError::Damaged { .. }) => return Vec::new(),
        }
    }
}
