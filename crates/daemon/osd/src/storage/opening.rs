//! [`HeldStore`]: the store of an OSD that starts: held, looked at, opened.

use super::facts::facts;
use super::parts::{PartDisk, PartitionParts, Parts, real};
use super::{BLOCK_FILE, DEVICE_FILE, NOTE_FILE, StorageError, StoreConfig, file_error, join, open_parts};
use crate::divided::Divided;
use crate::own_collection::level_maps;
use nacre_blockstore::{BlockStore, KnownDevice, KnownDevices, Options, Partitions};
use nacre_crypt::WrappingKey;
use nacre_env::RealClock;
use nacre_env::disk::Disk;
use nacre_env::real::{RealNet, private};
use nacre_kv::KvStore;
use nacre_osd_core::Room;
use nacre_store::{MemStore, ObjectStore};
use nacre_txn::StoreToken;
use std::path::Path;

/// What an OSD opens as its store, in as many partitions as there are.
pub(crate) struct HeldStore<'a>(Held<'a>);

enum Held<'a> {
    /// In memory: one for each shard, of so many bytes together.
    Memory { capacity_bytes: u64 },
    /// In files or on devices, which nobody else has.
    OnDevice { folder: &'a Path, memory_bytes: usize, parts: Box<Parts> },
}

impl<'a> HeldStore<'a> {
    /// Takes what the store is on.
    ///
    /// # Errors
    /// [`StorageError`].
    pub(crate) fn hold(config: &'a StoreConfig) -> Result<Self, StorageError> {
        Ok(Self(match config {
            StoreConfig::Memory { capacity_bytes } => Held::Memory { capacity_bytes: *capacity_bytes },
            StoreConfig::File { folder, memory_bytes, key } => {
                let parts = Box::new(hold(folder, key.as_ref())?);
                Held::OnDevice { folder, memory_bytes: *memory_bytes, parts }
            }
        }))
    }

    /// How many partitions the store was made with; `None` of one in memory, which has as many as are wanted.
    pub(crate) fn partitions(&self) -> Option<usize> {
        match &self.0 {
            Held::Memory { .. } => None,
            Held::OnDevice { parts, .. } => Some(parts.partitions()),
        }
    }

    /// Opens the store, in a part for each shard, which has one of `nets`: what completes for the part ends waits of it.
    ///
    /// # Errors
    /// [`StorageError`].
    pub(crate) fn open(self, nets: &[RealNet]) -> Result<Vec<Box<dyn ObjectStore + Send>>, StorageError> {
        match self.0 {
            Held::Memory { capacity_bytes } => {
                let share = capacity_bytes / nets.len().max(1) as u64;
                Ok(nets
                    .iter()
                    .map(|_| Box::new(MemStore::new(share)) as Box<dyn ObjectStore + Send>)
                    .collect())
            }
            Held::OnDevice { folder, memory_bytes, parts } => open(*parts, folder, memory_bytes, nets),
        }
    }
}

/// The devices or files of a store, whose labels and wrapped key are repaired where one copy is not whole.
fn hold(folder: &Path, key: Option<&WrappingKey>) -> Result<Parts, StorageError> {
    for path in private::tighten(folder)? {
        tracing::warn!(path = %path.display(), "other users could read or write this; its permissions are now the owner's only");
    }
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
    Ok(parts)
}

fn open(
    mut parts: Parts,
    folder: &Path,
    memory_bytes: usize,
    nets: &[RealNet],
) -> Result<Vec<Box<dyn ObjectStore + Send>>, StorageError> {
    let block_error = |source| StorageError::Block { path: folder.to_owned(), source };
    let partitions = parts.partitions();
    let refused = real(&parts.first.data).ring_refused().map(str::to_owned);
    let mut options = examine(&mut parts, folder, Options::for_memory(memory_bytes / partitions))?;
    if partitions > 1 {
        // Others may fill the device while what this was promised is under way.
        options.ready_bytes = Room::kept_bytes(parts.first.data.info().size_bytes / partitions as u64);
        options.others_run = nets.len() > 1;
    }
    let (mut disks, mut metadata, mut all_options) = (Vec::new(), Vec::new(), Vec::new());
    for (part, net) in std::iter::once(parts.first).chain(parts.others).zip(nets.iter().cycle()) {
        watch_disks(&part, folder, net)?;
        let (kv, options) = open_metadata(&part, options.clone(), partitions, net)?;
        disks.push(join(part.data, part.log, folder)?);
        metadata.push(kv);
        all_options.push(options);
    }
    let Some(first) = disks.first_mut() else { return Ok(Vec::new()) };
    let of_all: Vec<&dyn KvStore> = metadata.iter().map(|kv| kv.as_ref() as &dyn KvStore).collect();
    let mut shared = Partitions::read(first.as_mut(), &of_all).map_err(block_error)?;
    let mut stores = Vec::new();
    for (((number, disk), kv), options) in (0..).zip(disks).zip(metadata).zip(all_options) {
        let (mut store, report) = shared.open(number, disk, kv, options).map_err(block_error)?;
        store.set_clock(Box::new(RealClock::start()));
        tracing::info!(folder = %folder.display(), partition = number, ?refused, ?report, "store opened");
        stores.push(store);
    }
    share_out(stores, nets.len(), folder)
}

/// Gives so many shards the partitions in turn. Those of one shard have the same maps then.
fn share_out(
    stores: Vec<BlockStore>,
    shards: usize,
    folder: &Path,
) -> Result<Vec<Box<dyn ObjectStore + Send>>, StorageError> {
    let path = || folder.to_owned();
    let mut shares: Vec<Vec<(usize, BlockStore)>> = (0..shards).map(|_| Vec::new()).collect();
    for (number, store) in stores.into_iter().enumerate() {
        if let Some(share) = shares.get_mut(number % shards) {
            share.push((number, store));
        }
    }
    let mut parts: Vec<Box<dyn ObjectStore + Send>> = Vec::new();
    for mut share in shares {
        if share.len() > 1 {
            let all: Vec<&dyn ObjectStore> =
                share.iter().map(|(_, store)| store as &dyn ObjectStore).collect();
            let lacking =
                level_maps(&all).map_err(|source| StorageError::MapsApart { path: path(), source })?;
            for (txns, (_, store)) in lacking.into_iter().zip(&mut share) {
                for txn in txns {
                    let written =
                        store.submit(txn, StoreToken::without_pg(0)).and_then(|()| store.checkpoint_now());
                    written.map_err(|source| StorageError::Maps { path: path(), source })?;
                }
            }
        }
        let boxed = |(number, store)| (number, Box::new(store) as Box<dyn ObjectStore + Send>);
        let mut share = share.into_iter().map(boxed);
        let Some(first) = share.next() else { continue };
        let others: Vec<_> = share.collect();
        parts.push(if others.is_empty() { first.1 } else { Box::new(Divided::new(first, others)) });
    }
    Ok(parts)
}

/// What the devices of a partition complete ends waits of `net`.
fn watch_disks(part: &PartitionParts, folder: &Path, net: &RealNet) -> Result<(), StorageError> {
    for disk in [Some(&part.data), part.log.as_ref()].into_iter().flatten() {
        net.watch(real(disk).wake_fd()).map_err(file_error(&folder.join(BLOCK_FILE)))?;
    }
    Ok(())
}

/// The metadata of a partition, and the options for it, which follow from the size of the journal. What they complete ends waits of `net`.
fn open_metadata(
    part: &PartitionParts,
    options: Options,
    partitions: usize,
    net: &RealNet,
) -> Result<(Box<dyn KvStore + Send>, Options), StorageError> {
    let metadata = &part.metadata;
    let half_bytes = options.journal_half_bytes(part.data.info().size_bytes / partitions as u64);
    let kv_options = metadata.options(options.kv_cache_bytes, partitions);
    let opened = metadata.open_with(kv_options, Some(half_bytes))?;
    let meta = metadata.path();
    if !opened.has_checksums {
        tracing::warn!(path = %meta.display(), "metadata file of an older version, without page checksums: make room for a copy and restart");
    }
    for fd in opened.kv.wake_fds() {
        net.watch(fd).map_err(file_error(meta))?;
    }
    let options = options.with_journal(usize::try_from(opened.half_bytes).unwrap_or(usize::MAX));
    Ok((opened.kv, options))
}

/// Measures the devices of data and log, says what they cost and what follows from it, and keeps that for people.
fn examine(parts: &mut Parts, folder: &Path, options: Options) -> Result<Options, StorageError> {
    let block_error = |source| StorageError::Block { path: folder.to_owned(), source };
    let PartitionParts { data, log, .. } = &mut parts.first;
    let log_bytes = nacre_blockstore::log_bytes(data).map_err(block_error)?;
    let known = KnownDevices {
        data: look_at(data, "data", folder)?,
        log: log.as_mut().map(|log| look_at(log, "log", folder)).transpose()?,
        log_bytes,
    };
    let options = options.on_devices(&known);
    tracing::info!(folder = %folder.display(), commit = options.commit_text(), "devices examined");
    let facts = facts(parts, folder, &known, &options);
    let text: String = facts.into_iter().map(|(name, value)| format!("{name} {value}\n")).collect();
    let path = folder.join(DEVICE_FILE);
    private::write(&path, text.as_bytes()).map_err(|source| StorageError::File { path, source })?;
    Ok(options)
}

/// Measures a device, unless its second superblock, over which it would write, is not as the first one.
fn look_at(disk: &mut PartDisk, role: &str, folder: &Path) -> Result<KnownDevice, StorageError> {
    let probed = nacre_blockstore::probe(disk, &RealClock::start());
    let report = probed.map_err(|source| StorageError::Block { path: folder.to_owned(), source })?;
    match &report {
        Some(report) => tracing::info!(folder = %folder.display(), role, %report, "device probed"),
        None => tracing::warn!(
            folder = %folder.display(),
            role,
            "the second superblock is not as the first one, so the device was not probed; `nacre store repair` restores that of the data"
        ),
    }
    Ok(KnownDevice { report, rotational: real(disk).rotational() })
}

#[cfg(test)]
mod tests;
