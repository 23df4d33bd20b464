//! Making a store, and opening one: superblock, metadata, replay.

use crate::BLOCK;
use crate::alloc::Alloc;
use crate::device::Run;
use crate::error::{LogGap, OpenError};
use crate::held::Source;
use crate::kv_schema::{self, PartitionRecord, State, StoredState, Sums};
use crate::leases::Leases;
use crate::options::Options;
use crate::slabs::Slabs;
use crate::store::{BlockStore, Parts};
use crate::superblock::{COPIES, Division, Superblock};
use crate::table::Table;
use crate::wal::{Behind, Found, Placement, Scan, Step, Wal, WalPosition};
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
    /// Blocks of the unused part of the log that the device does not give. Harmless: the next write there repairs them, or
    /// fails.
    pub log_blocks_unreadable: u64,
    /// Where the log was cut, when it was opened for looking in spite of that.
    pub gap: Option<LogGap>,
}

/// What becomes of a store whose log has a gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnGap {
    /// It does not open.
    Refuse,
    /// It opens as it was before the gap: to be looked at, or emptied.
    Cut,
}

/// Which partition of a divided store is opened.
pub(crate) struct Seat {
    pub(crate) superblock: Superblock,
    pub(crate) number: u32,
    pub(crate) leases: Leases,
}

impl BlockStore {
    /// Makes a store on `disk`, overwriting what is there; gives the bytes that it can hold. `id` must be unique: take it from the kernel's
    /// entropy. `kv` must be empty.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn mkfs(
        disk: &mut dyn Disk,
        kv: &mut dyn KvStore,
        id: [u8; 16],
        options: &Options,
    ) -> Result<u64, OpenError> {
        mkfs(disk, &mut [kv], id, options)
    }

    /// Opens a store and replays its log. Reads all of the log's area: what is behind its end says whether it ends there.
    ///
    /// # Errors
    /// [`OpenError`]; the store is as it was.
    pub fn open(
        disk: Box<dyn Disk>,
        kv: Box<dyn KvStore + Send>,
        options: Options,
    ) -> Result<(Self, MountReport), OpenError> {
        open(disk, kv, options, OnGap::Refuse, None)
    }
}

/// Makes a store of as many partitions as there are metadata; gives the bytes that it can hold.
pub(crate) fn mkfs(
    disk: &mut dyn Disk,
    metadata: &mut [&mut dyn KvStore],
    id: [u8; 16],
    options: &Options,
) -> Result<u64, OpenError> {
    for kv in metadata.iter() {
        if !kv.scan(Bound::Unbounded, Bound::Unbounded, 1)?.is_empty() {
            return Err(OpenError::NotEmpty);
        }
    }
    let device_bytes = disk.info().size_bytes;
    let partitions = u32::try_from(metadata.len()).unwrap_or(u32::MAX);
    let superblock = Superblock::new(id, device_bytes, options.wal_bytes(device_bytes))?
        .divided(partitions, options.slab_blocks)?;
    let wal_bytes = superblock.wal.count * BLOCK as u64;
    blocking::zero_fill(disk, BlockStore::offset(superblock.wal.start), wal_bytes, &mut |_| ())?;
    for copy in 0..COPIES {
        blocking::write(
            disk,
            BlockStore::offset(copy.into()),
            superblock.encode().into(),
            Durability::Durable,
        )?;
    }
    let wal = WalPosition { position: 0, seq: 1, mount: 0 };
    let state = State { id, wal, next_id: 1, sums: Sums::default(), is_journaled: false };
    for (number, kv) in (0..).zip(metadata) {
        let mut batch = KvBatch::default();
        batch.put(kv_schema::state_key(), state.encode());
        if partitions > 1 {
            let record = PartitionRecord { number, partitions, slabs: vec![first_slab(&superblock, number)] };
            batch.put(kv_schema::partition_key(), record.encode());
        }
        kv.commit(&batch, nacre_kv::Durability::Durable)?;
    }
    Ok(superblock.data.count * BLOCK as u64)
}

/// The slab that a partition has from the beginning: that where its share of the area begins.
fn first_slab(superblock: &Superblock, partition: u32) -> u32 {
    let Division { partitions, slab_blocks } = superblock.division;
    let count = Slabs::new(superblock.data, slab_blocks).count();
    let first = u64::from(partition) * u64::from(count) / u64::from(partitions);
    u32::try_from(first).expect("less than all slabs")
}

/// The first copy that is whole. Where both are they say the same, but for what an interrupted move has written to the first one only.
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
        let found =
            blocking::read_patiently(disk, BlockStore::offset(copy.into()), BLOCK).map_err(OpenError::from);
        match found.and_then(|block| Superblock::decode(&block.freeze(), store_bytes)) {
            Ok(superblock) => return Ok(superblock),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or(OpenError::NoSuperblock { reason: "no copies" }))
}

pub(crate) fn open(
    disk: Box<dyn Disk>,
    kv: Box<dyn KvStore + Send>,
    options: Options,
    on_gap: OnGap,
    seat: Option<Seat>,
) -> Result<(BlockStore, MountReport), OpenError> {
    let (mut store, highest, report) = load(disk, kv, options, on_gap, seat)?;
    store.begin(highest)?;
    tracing::info!(?report, "store opened");
    Ok((store, report))
}

/// All of [`open`] but its only write; also gives the highest mount that any record on the device has.
pub(crate) fn load(
    mut disk: Box<dyn Disk>,
    mut kv: Box<dyn KvStore + Send>,
    options: Options,
    on_gap: OnGap,
    seat: Option<Seat>,
) -> Result<(BlockStore, u64, MountReport), OpenError> {
    let (superblock, salt, leases) = match seat {
        Some(Seat { superblock, number, leases }) => {
            // Records of another partition's log are none of this one.
            (superblock.share(number), superblock.salt() ^ u64::from(number), Some(leases))
        }
        None => {
            let superblock = read_undivided(disk.as_mut(), kv.as_ref())?;
            (superblock, superblock.salt(), None)
        }
    };
    let StoredState { mut state, is_version_1 } = State::load(kv.as_ref(), &superblock)?;
    if is_version_1 {
        state = crate::upgrade::from_version_1(kv.as_mut(), state)?;
    }
    let alloc = match &leases {
        Some(leases) => Alloc::in_slabs(superblock.data, leases.runs()),
        None => Alloc::new(superblock.data),
    };
    let mut table = Table::load(kv, alloc, &state, &options)?;
    let mut wal = Wal::new(&superblock, salt, state.wal, options.record_bytes_max);
    let mut report = MountReport::default();
    let behind = replay(disk.as_mut(), &mut wal, &mut table, &mut report, on_gap)?;
    report.collections = table.collections.len();
    report.objects = usize::try_from(table.objects).unwrap_or(usize::MAX);
    if let Some(reason) = table.failure() {
        return Err(OpenError::Unreadable { reason });
    }
    Ok((BlockStore::assemble(Parts { disk, superblock, options, table, wal, leases }), behind.mount, report))
}

/// The superblock of a store that is not divided, which has these metadata.
pub(crate) fn read_undivided(disk: &mut dyn Disk, kv: &dyn KvStore) -> Result<Superblock, OpenError> {
    let superblock = read_superblock(disk)?;
    let Division { partitions, .. } = superblock.division;
    if partitions > 1 {
        return Err(OpenError::Divided { partitions });
    }
    match kv.get(&kv_schema::partition_key())? {
        Some(_of_a_partition) => Err(OpenError::ForeignMetadata),
        None => Ok(superblock),
    }
}

/// Applies the log. A record is applied once a later one says that its placed data was durable; the last few have to
/// be looked at.
fn replay(
    disk: &mut dyn Disk,
    wal: &mut Wal,
    table: &mut Table,
    report: &mut MountReport,
    on_gap: OnGap,
) -> Result<Behind, OpenError> {
    let state = wal.next_position().seq;
    let mut held: VecDeque<Found> = VecDeque::new();
    let mut scan = Scan::new(disk, wal);
    let (mut needed, mut found_last) = (state, Vec::new());
    let unreadable = loop {
        let found = match scan.next()? {
            Step::Record(found) => found,
            Step::End => break None,
            Step::Unreadable(error) => break Some(error),
        };
        let durable_through = found.durable_through;
        needed = needed.max(found.needed_from);
        if needed > state {
            return Err(OpenError::StaleMetadata { state, needed });
        }
        held.push_back(found);
        while held.front().is_some_and(|found| found.seq <= durable_through) {
            found_last.extend(held.pop_front());
        }
        for found in found_last.drain(..) {
            apply(wal, table, found, report)?;
        }
    };
    let expected = scan.expected();
    let behind = Behind::look(disk, wal, expected)?;
    report.log_blocks_unreadable = behind.unreadable;
    if behind.needed_from > state {
        return Err(OpenError::StaleMetadata { state, needed: behind.needed_from });
    }
    // What the checkpoint has was on the device before it was committed, and is overwritten by later records only.
    if expected.seq == state && behind.claimed + 1 < state && unreadable.is_none() {
        return Err(OpenError::StaleDevice { state, newest: behind.claimed });
    }
    if unreadable.is_some() || behind.durable_through >= expected.seq {
        let block = wal.block(expected.position);
        let (seq, later, last) = (expected.seq, behind.later, behind.last.max(expected.seq));
        let gap = LogGap { seq, block, unreadable, later, last };
        if on_gap == OnGap::Refuse {
            return Err(OpenError::LogGap(gap));
        }
        report.gap = Some(gap);
    }
    while let Some(found) = held.pop_front() {
        if found.seq > behind.durable_through && !is_placed(disk, &found)? {
            report.records_discarded = 1 + held.len() as u64;
            break;
        }
        apply(wal, table, found, report)?;
    }
    Ok(behind)
}

fn apply(wal: &mut Wal, table: &mut Table, found: Found, report: &mut MountReport) -> Result<(), OpenError> {
    wal.replayed(&found);
    table.space.is_replaying = true;
    report.records += 1;
    for entry in found.entries {
        report.transactions += 1;
        let mut runs = entry.placements.iter().flat_map(|placement| &placement.runs);
        // What a record places was free in the state it builds on: anything else is damage of ours.
        if let Some(run) = runs.find(|run| !table.space.alloc.replay(**run)) {
            return Err(OpenError::Inconsistent { what: "data placed on a used block", value: run.start });
        }
        // Not to keep pieces of the log alive.
        table.apply(entry.txn, &entry.placements, &Source::Copy);
    }
    table.space.is_replaying = false;
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
        if start + count > device_blocks || *count == 0 {
            return Err(OpenError::Inconsistent { what: "data placed outside the device", value: *start });
        }
        let read = blocking::read_patiently(disk, BlockStore::offset(*start), *count as usize * BLOCK);
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
    /// Makes sure that records of earlier openings, which may lie behind the end of the log, never count again, and that the
    /// device says which checkpoint is the newest.
    pub(crate) fn begin(&mut self, highest: u64) -> Result<(), OpenError> {
        // A process that was killed may have left records that can be read and are not durable: from here on all that is
        // acknowledged builds on them.
        blocking::flush(self.disk.as_mut())?;
        self.wal.begin_mount(highest);
        let (size, used) = self.wal.usage();
        if used * 2 > size {
            self.finish_checkpoint();
        }
        match self.wal.mount_record() {
            Some(write) if self.failed.is_none() => {
                blocking::write(self.disk.as_mut(), write.offset, write.data.into(), Durability::Durable)?;
                Ok(())
            }
            _ => Err(OpenError::Inconsistent { what: "checkpoint at opening, log blocks", value: used }),
        }
    }
}
