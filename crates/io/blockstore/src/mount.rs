//! Making a store, and opening one: superblock, metadata, replay.

use crate::BLOCK;
use crate::alloc::Run;
use crate::error::OpenError;
use crate::metadata::{self, State, StoredState, Sums};
use crate::options::Options;
use crate::store::{BlockStore, Parts};
use crate::superblock::{COPIES, Superblock};
use crate::table::Table;
use crate::wal::{Found, Placement, Scan, Wal, WalPosition};
use nacre_buf::crc;
use nacre_env::DiskError;
use nacre_env::disk::{Disk, Durability, blocking};
use nacre_kv::{KvBatch, KvStore};
use std::collections::VecDeque;
use std::ops::Bound;

/// What opening a store found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MountReport {
    /// Collections after replay.
    pub collections: usize,
    /// Objects after replay.
    pub objects: usize,
    /// Records of the log that were applied.
    pub records: u64,
    /// Transactions in them.
    pub transactions: u64,
    /// Whole records that were not applied because data placed beside one of them had not reached the device: none
    /// of their transactions had been acknowledged.
    pub records_discarded: u64,
}

pub(crate) fn mkfs(
    disk: &mut dyn Disk,
    kv: &mut dyn KvStore,
    id: [u8; 16],
    options: &Options,
) -> Result<(), OpenError> {
    if !kv.scan(Bound::Unbounded, Bound::Unbounded, 1)?.is_empty() {
        return Err(OpenError::NotEmpty);
    }
    let device_bytes = disk.info().size_bytes;
    let superblock = Superblock::new(id, device_bytes, options.wal_bytes(device_bytes))?;
    let wal_bytes = u64::from(superblock.wal.count) * BLOCK as u64;
    blocking::zero_fill(disk, BlockStore::offset(superblock.wal.start), wal_bytes, &mut |_| ())?;
    for copy in 0..COPIES {
        blocking::write(disk, BlockStore::offset(copy), superblock.encode().into(), Durability::Durable)?;
    }
    let wal = WalPosition { position: 0, seq: 1, mount: 0 };
    let state = State { id, wal, next_id: 1, sums: Sums::default() };
    let mut batch = KvBatch::default();
    batch.put(metadata::state_key(), state.encode());
    kv.commit(&batch, nacre_kv::Durability::Durable)?;
    Ok(())
}

/// The first copy that is whole. The copies never change, so they cannot differ.
pub(crate) fn read_superblock(disk: &mut dyn Disk) -> Result<Superblock, OpenError> {
    let size_bytes = disk.info().size_bytes;
    read_copies(disk, size_bytes)
}

/// As [`read_superblock`], of a store that may have so many bytes in all.
pub(crate) fn read_copies(disk: &mut dyn Disk, store_bytes: u64) -> Result<Superblock, OpenError> {
    let size_bytes = disk.info().size_bytes;
    if size_bytes < u64::from(COPIES) * BLOCK as u64 {
        return Err(OpenError::Size { size_bytes });
    }
    let mut first = None;
    for copy in 0..COPIES {
        let found = blocking::read(disk, BlockStore::offset(copy), BLOCK).map_err(OpenError::from);
        match found.and_then(|block| Superblock::decode(&block.freeze(), store_bytes)) {
            Ok(superblock) => return Ok(superblock),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or(OpenError::NoSuperblock { reason: "no copies" }))
}

pub(crate) fn open(
    mut disk: Box<dyn Disk>,
    mut kv: Box<dyn KvStore + Send>,
    options: Options,
) -> Result<(BlockStore, MountReport), OpenError> {
    let superblock = read_superblock(disk.as_mut())?;
    let StoredState { mut state, is_version_1 } = State::load(kv.as_ref(), &superblock)?;
    if is_version_1 {
        state = crate::upgrade::from_version_1(kv.as_mut(), state)?;
    }
    let mut table = Table::load(kv, superblock.data, &state, &options)?;
    let mut wal = Wal::new(superblock.wal, superblock.salt(), state.wal, options.record_bytes_max);
    let mut report = MountReport::default();
    replay(disk.as_mut(), &mut wal, &mut table, &mut report)?;
    report.collections = table.collections.len();
    report.objects = usize::try_from(table.objects).unwrap_or(usize::MAX);
    if let Some(reason) = table.failure() {
        return Err(OpenError::Unreadable { reason });
    }
    let mut store = BlockStore::assemble(Parts { disk, superblock, options, table, wal });
    store.begin()?;
    tracing::info!(?report, "store opened");
    Ok((store, report))
}

/// Applies the log. A record is applied once a later one says that its placed data was durable; the last few have to
/// be looked at.
fn replay(
    disk: &mut dyn Disk,
    wal: &mut Wal,
    table: &mut Table,
    report: &mut MountReport,
) -> Result<(), OpenError> {
    let mut held: VecDeque<Found> = VecDeque::new();
    let mut scan = Scan::new(disk, wal);
    let mut found_last = Vec::new();
    while let Some(found) = scan.next()? {
        let durable_through = found.durable_through;
        held.push_back(found);
        while held.front().is_some_and(|found| found.seq <= durable_through) {
            found_last.extend(held.pop_front());
        }
        for found in found_last.drain(..) {
            apply(wal, table, found, report)?;
        }
    }
    while let Some(found) = held.pop_front() {
        if !is_placed(disk, &found)? {
            report.records_discarded = 1 + held.len() as u64;
            break;
        }
        apply(wal, table, found, report)?;
    }
    Ok(())
}

fn apply(wal: &mut Wal, table: &mut Table, found: Found, report: &mut MountReport) -> Result<(), OpenError> {
    wal.replayed(&found);
    report.records += 1;
    for entry in found.entries {
        report.transactions += 1;
        let mut runs = entry.placements.iter().flat_map(|placement| &placement.runs);
        // What a record places was free in the state it builds on: anything else is damage of ours.
        if let Some(run) = runs.find(|run| !table.space.alloc.replay(**run)) {
            return Err(OpenError::Inconsistent {
                what: "data placed on a used block",
                value: run.start.into(),
            });
        }
        table.apply(entry.txn, &entry.placements);
    }
    Ok(())
}

/// Whether the data placed beside a record reached the device. A block that cannot be read at all is taken as there:
/// the device lost it after it was written, and reading it will say so.
fn is_placed(disk: &mut dyn Disk, found: &Found) -> Result<bool, OpenError> {
    for placement in found.entries.iter().flat_map(|entry| &entry.placements) {
        if !matches(disk, placement)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn matches(disk: &mut dyn Disk, placement: &Placement) -> Result<bool, OpenError> {
    let device_blocks = disk.info().size_bytes / BLOCK as u64;
    let mut crcs = placement.crcs.iter();
    for Run { start, count } in &placement.runs {
        if u64::from(*start) + u64::from(*count) > device_blocks || *count == 0 {
            return Err(OpenError::Inconsistent {
                what: "data placed outside the device",
                value: (*start).into(),
            });
        }
        let read = blocking::read(disk, BlockStore::offset(*start), *count as usize * BLOCK);
        let content = match read {
            Ok(content) => content,
            Err(DiskError::Failed { .. }) => {
                crcs.by_ref().take(*count as usize).for_each(drop);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if !content
            .chunks_exact(BLOCK)
            .zip(crcs.by_ref())
            .all(|(block, crc)| crc::crc32c(u32::MAX, block) == *crc)
        {
            return Ok(false);
        }
    }
    Ok(true)
}

impl BlockStore {
    /// Makes sure that records of earlier openings, which may lie behind the end of the log, never count again.
    fn begin(&mut self) -> Result<(), OpenError> {
        self.wal.begin_mount();
        let (size, used) = self.wal.usage();
        let record = if used * 2 > size { None } else { self.wal.mount_record() };
        match record {
            Some(write) => {
                blocking::write(self.disk.as_mut(), write.offset, write.data.into(), Durability::Durable)?;
            }
            None => {
                self.finish_checkpoint();
                if self.failed.is_some() {
                    return Err(OpenError::Inconsistent {
                        what: "checkpoint at opening, log blocks",
                        value: used,
                    });
                }
            }
        }
        Ok(())
    }
}
