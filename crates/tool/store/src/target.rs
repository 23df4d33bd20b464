//! [`Target`]: the folder of an OSD whose store a command is about. Opening takes the same locks as the OSD does, so
//! a store in use is refused.

use crate::scratch::{ScratchDisk, ScratchKv};
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use nacre_blockstore::{BlockStore, MountReport, OpenError, Options, Partitions};
use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_env::Disk;
use nacre_env::real::private::OF_OTHERS;
use nacre_kv::KvStore;
use nacre_maps::OsdMap;
use nacre_osd::storage::{self, MetadataPlace, Stopped, StoppedPartition};
use nacre_osd::{StorageError, WrappingKey};
use nacre_store::{Completion, ObjectStore, StoreUsage};
use nacre_txn::{FetchFrom, ObjectView, ReadError, StoreToken};
use nacre_types::{HObject, PgId, SpgId, Uuid};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zeroize::Zeroizing;

/// Objects listed at a time.
const PAGE_OBJECTS: usize = 1024;
/// Memory for all of a store.
const MEMORY_BYTES: usize = 1 << 30;
/// Names the one read that is ever on its way.
const FETCH: StoreToken = StoreToken::without_pg(1);

/// Store that a command works on.
#[derive(Debug, Clone, Args)]
pub(crate) struct Target {
    /// Folder of the OSD, such as nacre-data/osd.0.
    folder: PathBuf,
    /// File with the key of an encrypted store: what `ceph config-key get dm-crypt/osd/UUID/luks` prints, with the OSD's uuid. May be
    /// given several times: the one that opens the store is taken.
    #[arg(long = "key-file")]
    key_files: Vec<PathBuf>,
}

/// Why a store does not open.
enum StoppedError {
    Storage(StorageError),
    /// A file with a key is none.
    Key(anyhow::Error),
}

impl StoppedError {
    fn with_hint(self) -> anyhow::Error {
        match self {
            Self::Storage(error) => with_hint(error),
            Self::Key(error) => error,
        }
    }
}

impl From<StorageError> for StoppedError {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

/// The key that a file has. One that others may read keeps nothing from them.
fn read_key(path: &Path) -> Result<WrappingKey> {
    let mode = std::fs::metadata(path).with_context(|| path.display().to_string())?.permissions().mode();
    if mode & OF_OTHERS != 0 {
        let shown = path.display();
        bail!(
            "{shown}: other users may read or write this file with a key (mode {:o}): chmod 600",
            mode & 0o7777
        );
    }
    let text = Zeroizing::new(std::fs::read_to_string(path).with_context(|| path.display().to_string())?);
    WrappingKey::from_text(&text).with_context(|| path.display().to_string())
}

impl Target {
    /// With files that may have its key.
    pub(crate) fn new(folder: PathBuf, key_files: Vec<PathBuf>) -> Self {
        Self { folder, key_files }
    }

    pub(crate) fn shown(&self) -> String {
        self.folder.display().to_string()
    }

    /// Its devices or files, locked.
    pub(crate) fn stopped(&self) -> Result<Stopped> {
        match self.unlocked() {
            Ok(stopped) => Ok(stopped),
            Err(StoppedError::Storage(error)) if error.is_in_use() => Err(in_use(&self.shown())),
            Err(error) => Err(error.with_hint()),
        }
    }

    fn unlocked(&self) -> Result<Stopped, StoppedError> {
        let key = self.find_key()?;
        Ok(storage::open_stopped(&self.folder, key.as_ref())?)
    }

    /// The first key that opens it, or else the last one; `None` where none is given.
    fn find_key(&self) -> Result<Option<WrappingKey>, StoppedError> {
        let Some((last, others)) = self.key_files.split_last() else { return Ok(None) };
        for path in others {
            let key = read_key(path).map_err(StoppedError::Key)?;
            if storage::store_keys(&self.folder)?.is_none_or(|keys| keys.opens(&key)) {
                return Ok(Some(key));
            }
        }
        read_key(last).map(Some).map_err(StoppedError::Key)
    }

    /// As [`Target::find_key`], for what opens the store itself.
    pub(crate) fn key(&self) -> Result<Option<WrappingKey>> {
        self.find_key().map_err(StoppedError::with_hint)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn device_facts(&self) -> std::collections::BTreeMap<String, String> {
        storage::device_facts(&self.folder)
    }

    /// Devices and metadata of each partition.
    pub(crate) fn pieces(&self) -> Result<Vec<Piece>> {
        pieces_of(self.stopped()?, &self.shown())
    }

    /// The same, whose changes stay in memory.
    pub(crate) fn scratch(&self) -> Result<Vec<Piece>> {
        Ok(self.pieces()?.into_iter().map(Piece::into_scratch).collect())
    }

    /// The partitions of the store, to be changed; one where it is not divided.
    pub(crate) fn open_all(&self) -> Result<Vec<Opened>> {
        open_each(self.pieces()?, Partitions::open).with_context(|| self.shown())
    }

    /// The partitions as they would open, without a byte of them being changed.
    pub(crate) fn look_at_all(&self) -> Result<Vec<Opened>> {
        open_scratch(self.pieces()?, &self.shown())
    }

    /// As [`Target::look_at_all`], of a store whose logs may have a gap: as each was before.
    pub(crate) fn look_before_gap(&self) -> Result<Vec<Opened>> {
        open_each(self.scratch()?, Partitions::open_before_gap)
            .with_context(|| format!("{}: `nacre store check` says more", self.shown()))
    }
}

/// A partition that is open, and what opening it found.
pub(crate) type Opened = (BlockStore, MountReport);

/// What a partition is opened from; of a store that is not divided, all of it.
pub(crate) struct Piece {
    pub(crate) disk: Box<dyn Disk>,
    pub(crate) kv: Box<dyn KvStore + Send>,
}

impl Piece {
    fn into_scratch(self) -> Self {
        let Self { disk, kv } = self;
        Self { disk: Box::new(ScratchDisk::over(disk)), kv: Box::new(ScratchKv::over(kv)) }
    }
}

/// Devices and metadata of each partition of a store that is held.
pub(crate) fn pieces_of(stopped: Stopped, shown: &str) -> Result<Vec<Piece>> {
    let piece = |partition: StoppedPartition| {
        let kv = open_metadata(&partition.metadata, shown)?;
        Ok(Piece { disk: partition.disk, kv })
    };
    stopped.partitions.into_iter().map(piece).collect()
}

/// With what each of so many partitions is opened.
pub(crate) fn options(partitions: usize) -> Options {
    Options { others_run: false, ..Options::for_memory(MEMORY_BYTES / partitions.max(1)) }
}

/// Which partition has what, of all pieces of a store.
pub(crate) fn read_partitions(pieces: &mut [Piece]) -> Result<Partitions, OpenError> {
    let (mut disks, mut metadata) = (Vec::new(), Vec::new());
    for Piece { disk, kv } in pieces {
        disks.push(disk);
        metadata.push(&**kv as &dyn KvStore);
    }
    let Some(first) = disks.first_mut() else { return Err(OpenError::ForeignMetadata) };
    Partitions::read(first.as_mut(), &metadata)
}

/// A way to open a partition.
type Open =
    fn(&mut Partitions, u32, Box<dyn Disk>, Box<dyn KvStore + Send>, Options) -> Result<Opened, OpenError>;

fn open_each(mut pieces: Vec<Piece>, open: Open) -> Result<Vec<Opened>, OpenError> {
    let (mut shared, options) = (read_partitions(&mut pieces)?, options(pieces.len()));
    let open =
        |(number, Piece { disk, kv }): (u32, Piece)| open(&mut shared, number, disk, kv, options.clone());
    (0..).zip(pieces).map(open).collect()
}

/// What to do about an error, where the error does not say it.
pub(crate) fn with_hint(error: StorageError) -> anyhow::Error {
    match error {
        StorageError::NoKey { .. } => anyhow!("{error}. Give it with --key-file"),
        error => error.into(),
    }
}

fn in_use(shown: &str) -> anyhow::Error {
    anyhow!(
        "{shown}: the store is in use by a running OSD; stop it first, these commands work on stopped stores"
    )
}

/// The metadata of a partition of a store that is held. Never made anew: a store without metadata is damaged, not empty.
pub(crate) fn open_metadata(metadata: &MetadataPlace, shown: &str) -> Result<Box<dyn KvStore + Send>> {
    if !metadata.exists() {
        bail!("{} is missing: the store's metadata is lost", metadata.path().display());
    }
    match metadata.open() {
        Err(error) if error.is_in_use() => Err(in_use(shown)),
        opened => Ok(opened?),
    }
}

/// The partitions of a store as they would open, whose changes stay in memory.
pub(crate) fn open_scratch(pieces: Vec<Piece>, shown: &str) -> Result<Vec<Opened>> {
    open_each(pieces.into_iter().map(Piece::into_scratch).collect(), Partitions::open)
        .with_context(|| format!("{shown}: `nacre store check` says more"))
}

/// The partition that has a PG; `None`: none has it. Where one has a copy that is on its way to it, the one that it is copied from.
pub(crate) fn partition_with<'a>(stores: &'a mut [Opened], at: &SpgId) -> Option<&'a mut BlockStore> {
    let with = stores.iter_mut().map(|(store, _)| store).filter(|store| store.collections().contains(at));
    with.min_by_key(|store| storage::is_arriving(*store, at))
}

/// How full a store is, as its OSD counts it.
pub(crate) fn usage_of(stores: &[Opened]) -> StoreUsage {
    StoreUsage::of_partitions(stores.iter().map(|(store, _)| (store.usage(), 1)))
}

/// Newest map that any partition holds.
pub(crate) fn newest_map_of_all(stores: &[Opened]) -> Option<Arc<OsdMap>> {
    stores.iter().filter_map(|(store, _)| newest_map(store)).max_by_key(|map| map.epoch)
}

/// Newest map that a store holds: cluster and epoch; `None` in one that no OSD has used yet.
pub(crate) fn newest_map(store: &BlockStore) -> Option<Arc<OsdMap>> {
    storage::stored_maps(store).pop()
}

/// The PGs of a store, without what the OSD has for itself.
pub(crate) fn pgs(store: &BlockStore) -> Vec<SpgId> {
    store.collections().into_iter().filter(storage::is_of_pool).collect()
}

/// Reads `2.1f`, or `2.1fs3` for a shard of an erasure-coded pool.
pub(crate) fn parse_pgid(text: &str) -> Result<SpgId, String> {
    let wrong = || format!("'{text}' is no placement group: wanted is something like 2.1f");
    let (pg, shard) = match text.split_once('s') {
        Some((pg, shard)) => (pg, Some(shard.parse::<i8>().map_err(|_| wrong())?)),
        None => (text, None),
    };
    let pg = PgId::parse(pg).ok_or_else(wrong)?;
    Ok(shard.map_or(SpgId::replicated(pg), |shard| SpgId { pg, shard }))
}

pub(crate) fn id_text(id: [u8; 16]) -> String {
    Uuid(id).to_string()
}

/// Reads a range of an object, waiting for the device.
pub(crate) fn read(
    store: &mut BlockStore,
    at: &SpgId,
    name: &HObject,
    offset: u64,
    length: u64,
) -> Result<BufList> {
    let mut completions = Vec::new();
    loop {
        match store.read(at, name, offset, length) {
            Ok(data) => return Ok(data),
            Err(ReadError::Pending { offset, length, .. }) => {
                store.fetch(at, name, offset, length, FetchFrom::Anywhere, FETCH);
                completions.clear();
                while !completions.contains(&Completion::Fetched(FETCH)) {
                    store.drain(&mut completions);
                    if completions.is_empty() {
                        store.wait();
                    }
                }
            }
            Err(error @ ReadError::Damaged { .. }) => return Err(error.into()),
        }
    }
}

/// Calls `visit` with every object of a PG, in order.
pub(crate) fn each_object(
    store: &mut BlockStore,
    at: &SpgId,
    mut visit: impl FnMut(&mut BlockStore, &HObject) -> Result<()>,
) -> Result<u64> {
    let (mut from, mut count) = (HObject::MIN, 0);
    loop {
        let page = store.list(at, &from, PAGE_OBJECTS);
        let fresh: Vec<&HObject> = page.iter().filter(|name| count == 0 || **name != from).collect();
        for name in &fresh {
            visit(store, name)?;
            count += 1;
        }
        match page.last() {
            Some(last) if page.len() == PAGE_OBJECTS && !fresh.is_empty() => from = last.clone(),
            _ => return Ok(count),
        }
    }
}

/// Calls `visit` with all omap entries of an object, in pages of about `bytes_max`.
pub(crate) fn each_omap_page(
    store: &BlockStore,
    at: &SpgId,
    name: &HObject,
    bytes_max: usize,
    mut visit: impl FnMut(Vec<(ByteStr, Bytes)>) -> Result<()>,
) -> Result<()> {
    let mut from: Vec<u8> = Vec::new();
    loop {
        let page = store.omap_page(at, name, &from, usize::MAX, bytes_max);
        if let Some((last, _)) = page.entries.last() {
            // The least key behind the last one.
            from = [last.as_bytes(), &[0]].concat();
            visit(page.entries)?;
        }
        if !page.more {
            return Ok(());
        }
    }
}
