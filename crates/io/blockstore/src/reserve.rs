//! Room on the device: what a transaction needs is made sure of before it is applied, and large writes get their places.

use crate::BLOCK;
use crate::cache::Pin;
use crate::checkpoint::Checkpoint;
use crate::device::Run;
use crate::leases::Leases;
use crate::page::PAGE_BLOCKS;
use crate::requests::{Io, PlacedPiece};
use crate::store::BlockStore;
use crate::table::{Table, within};
use crate::wal::{Placement, TxnNumber};
use nacre_buf::{AlignedBuf, BufList, Bytes};
use nacre_store::StoreError;
use nacre_txn::{Op, Transaction};
use nacre_types::{DeviceWork, HObject, PoolId, SpgId, Stamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// Blocks of one write of placed data at most: 4 MiB. Each is a flush of its own on a device that must be flushed.
const PLACED_BLOCKS_MAX: u64 = 1024;
/// Placed bytes of a transaction from which on they are sent to the device at once: less is sent with what else the turn
/// brings, in one call.
const SENT_AT_ONCE_BYTES: usize = 256 << 10;

/// Checkpoints that a transaction waits for at most, to have room.
const ROUNDS_MAX: usize = 3;
/// How long a partition that has no room waits for others, which may have slabs to spare, and must end a checkpoint to give them.
const OTHERS_WAIT_MAX: Duration = Duration::from_secs(2);
/// So often it looks where there is no clock.
const OTHERS_LOOKS_MAX: usize = 32;

/// A wait for slabs of other partitions.
#[derive(Default)]
struct WaitForOthers {
    since: Option<Stamp>,
    looks: usize,
}

/// What room there is for a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outlook {
    /// There is enough.
    Free,
    /// There is when what is under way has ended, or a checkpoint more.
    Reachable,
    /// There is none but what other partitions may give.
    Lacking,
}

/// Whether objects are cloned.
fn has_clones(ops: &[Op]) -> bool {
    ops.iter().any(|op| match op {
        Op::Split { ops, .. } | Op::Move { ops, .. } => has_clones(ops),
        op => matches!(op, Op::Clone { .. }),
    })
}

/// Blocks that changes may take, counted one after the other.
struct Needs<'a> {
    table: &'a Table,
    /// The objects are in one of these.
    collections: Vec<SpgId>,
    blocks: u64,
    /// Where objects are cloned: blocks that those changed so far have in memory then, which each clone has once more.
    in_memory: Option<BTreeMap<&'a HObject, u64>>,
}

impl<'a> Needs<'a> {
    fn add(&mut self, ops: &'a [Op]) {
        for op in ops {
            match op {
                Op::Write { object, data, .. } => {
                    let blocks = (data.len() / BLOCK) as u64;
                    // What is compressed later has a place before.
                    let twice = if self.compresses() { 2 * blocks } else { blocks };
                    self.change(object, twice + 2 + self.around());
                }
                Op::Zero { object, .. } | Op::Truncate { object, .. } => {
                    self.change(object, 2 + self.around())
                }
                // What moves stays where it is on the device.
                Op::Split { child: other, ops, .. } | Op::Move { target: other, ops, .. } => {
                    self.collections.push(*other);
                    self.add(ops);
                    self.collections.pop();
                }
                Op::CloneExtents { target, extents, .. } => {
                    let around = extents.iter().count() as u64 * self.around();
                    // It is cut to the source's length as well.
                    self.change(target, extents.blocks() + around + 2 + self.around());
                }
                Op::Clone { source, target } => {
                    let blocks = self.in_memory(source);
                    self.blocks += blocks;
                    self.note(target, blocks);
                }
                _ => (),
            }
        }
    }

    fn pool(&self) -> Option<PoolId> {
        self.collections.last().map(|at| at.pg.pool)
    }

    fn compresses(&self) -> bool {
        self.pool().is_some_and(|pool| self.table.space.compression.contains_key(&pool))
    }

    /// Blocks beside a range that is changed that may become dirty by it: of the pages at its ends.
    fn around(&self) -> u64 {
        let may_have_blobs = self.pool().is_some_and(|pool| self.table.space.may_have_blobs(pool));
        if may_have_blobs { 2 * u64::from(PAGE_BLOCKS) } else { 0 }
    }

    fn change(&mut self, object: &'a HObject, blocks: u64) {
        self.blocks += blocks;
        if self.in_memory.is_some() {
            let held = self.in_memory(object);
            self.note(object, held + blocks);
        }
    }

    fn note(&mut self, object: &'a HObject, blocks: u64) {
        if let Some(all) = &mut self.in_memory {
            all.insert(object, blocks);
        }
    }

    fn in_memory(&self, object: &HObject) -> u64 {
        let changed = self.in_memory.as_ref().and_then(|all| all.get(object)).copied();
        changed.unwrap_or_else(|| {
            let stored = self.collections.iter().find_map(|at| self.table.object(at, object));
            stored.map_or(0, |onode| onode.blocks.in_memory().count() as u64)
        })
    }
}

impl BlockStore {
    /// Blocks that the reserve keeps for deletes and checkpoints.
    pub(crate) fn reserve_blocks(&self) -> u64 {
        // Each partition keeps its part of it.
        let partitions = self.leases.as_ref().map_or(1, Leases::partitions);
        let area = self.superblock.data.count / u64::from(partitions);
        // Room for two changes without data, which nobody refuses.
        let least = if self.table.space.has_no_blobs() { 8 } else { 8 + 4 * u64::from(PAGE_BLOCKS) };
        (area * self.options.reserve_permille / 1000).max(least)
    }

    /// Blocks that are promised already: to dirty blocks, and to a checkpoint that has not taken them yet.
    pub(crate) fn promised_blocks(&self) -> u64 {
        let held = self.checkpoint.as_ref().map_or(0, Checkpoint::held_blocks);
        self.table.space.dirty_slots + held
    }

    /// Blocks of slabs that a partition has asked for.
    fn coming_blocks(&self) -> u64 {
        self.leases.as_ref().map_or(0, Leases::expected_blocks)
    }

    /// Blocks that a transaction may take, at most.
    pub(crate) fn needed_blocks(&self, txn: &Transaction) -> u64 {
        let in_memory = has_clones(&txn.ops).then(BTreeMap::new);
        let mut needs = Needs { table: &self.table, collections: vec![txn.collection], blocks: 0, in_memory };
        needs.add(&txn.ops);
        needs.blocks
    }

    /// Looks for so many blocks beside a reserve, and asks for the slabs that are missing.
    fn look_for_room(&mut self, needed: u64, reserve: u64) -> Outlook {
        let wanted = self.promised_blocks() + needed + reserve;
        if self.table.space.alloc.free_count() < wanted {
            self.end_discards();
        }
        let free = self.table.space.alloc.free_count();
        if free >= wanted {
            return Outlook::Free;
        }
        self.need_slabs((wanted - free).saturating_sub(self.coming_blocks()));
        let reachable = self.table.space.alloc.free_count()
            + self.table.space.alloc.pending_count()
            + self.table.space.dirty_slots
            + self.coming_blocks()
            + self.leases.as_ref().map_or(0, Leases::going_blocks);
        if reachable < needed + reserve { Outlook::Lacking } else { Outlook::Reachable }
    }

    fn reserve_beside(&self, txn: &Transaction) -> u64 {
        if txn.data_bytes() > 0 { self.reserve_blocks() } else { 0 }
    }

    /// As [`nacre_store::ObjectStore::lacks_room`]. Others are told that slabs are needed.
    pub(crate) fn lacks_slabs(&mut self, txn: &Transaction) -> bool {
        if self.leases.is_none() || self.failed.is_some() {
            return false;
        }
        let (needed, reserve) = (self.needed_blocks(txn), self.reserve_beside(txn));
        if needed == 0 {
            return false;
        }
        // What checkpoints bring home may take as much as they free.
        for _ in 0..ROUNDS_MAX {
            match self.look_for_room(needed, reserve) {
                Outlook::Free => return false,
                Outlook::Lacking => return true,
                Outlook::Reachable => self.next_checkpoint(),
            }
        }
        self.look_for_room(needed, reserve) != Outlook::Free
    }

    /// Ends the checkpoint under way, which may free enough, or makes one.
    fn next_checkpoint(&mut self) {
        if !self.end_checkpoint() {
            self.finish_checkpoint();
        }
    }

    /// Makes sure that the blocks a transaction needs can be had, if need be by waiting for checkpoints that free
    /// what was released.
    pub(crate) fn make_room(&mut self, txn: &Transaction) -> Result<(), StoreError> {
        let needed = self.needed_blocks(txn);
        if needed == 0 {
            return Ok(());
        }
        let reserve = self.reserve_beside(txn);
        let (mut rounds, mut wait) = (0, WaitForOthers::default());
        loop {
            match self.look_for_room(needed, reserve) {
                Outlook::Free => return Ok(()),
                Outlook::Lacking if self.wait_for_others(&mut wait) => continue,
                Outlook::Lacking => break,
                Outlook::Reachable => (),
            }
            if rounds == ROUNDS_MAX {
                break;
            }
            rounds += 1;
            self.next_checkpoint();
        }
        let free_blocks =
            self.table.space.alloc.free_count().saturating_sub(self.promised_blocks() + reserve);
        if free_blocks >= needed {
            return Ok(());
        }
        let (wanted_bytes, free_bytes) = (needed * BLOCK as u64, free_blocks * BLOCK as u64);
        Err(StoreError::Full { wanted_bytes, free_bytes })
    }

    /// Other partitions were told that slabs are needed: gives them the time of a look at the device. False when they had enough, or none
    /// has a thread of its own.
    fn wait_for_others(&mut self, wait: &mut WaitForOthers) -> bool {
        if self.leases.is_none() || !self.options.others_run || self.failed.is_some() {
            return false;
        }
        let now = self.shares.now();
        wait.since = wait.since.or(now);
        let is_over = match (wait.since, now) {
            (Some(since), Some(now)) => now.since(since) >= OTHERS_WAIT_MAX,
            _ => wait.looks >= OTHERS_LOOKS_MAX,
        };
        if is_over {
            return false;
        }
        wait.looks += 1;
        self.look_at_device();
        true
    }

    /// Finds places for the large writes of a transaction, and for shorter ones where they go together; checksums are still to be noted,
    /// see [`BlockStore::send_placed`]. A write for which there is no room goes into the record.
    pub(crate) fn place(&mut self, txn: &Transaction) -> Vec<(Placement, BufList)> {
        let mut placed = Vec::new();
        let mut data_offset = 0;
        for (op, change) in txn.ops.iter().enumerate() {
            let Op::Write { offset, data, .. } = change else {
                data_offset += split_data_bytes(change);
                continue;
            };
            let head = (BLOCK - within(*offset)) % BLOCK;
            let blocks = data.len().saturating_sub(head) / BLOCK;
            let is_whole = head == 0 && blocks * BLOCK == data.len();
            let runs = match (blocks as u64, data.len() > self.options.inline_bytes_max) {
                (0, _) => None,
                (blocks, true) => self.table.space.alloc.allocate(blocks),
                (blocks, false) if is_whole && self.places_short(txn.collection.pg.pool) => {
                    self.table.space.alloc.allocate_next(blocks).map(|run| vec![run])
                }
                (_, false) => None,
            };
            if let Some(runs) = runs {
                let body = data.slice(head, blocks * BLOCK);
                let crcs = vec![0; blocks];
                placed.push((Placement { op, data_offset: data_offset + head, runs, crcs }, body));
            }
            data_offset += data.len();
        }
        placed
    }

    /// Whether writes that would have room in the record are placed now. One by itself is durable sooner in the record; with others it is
    /// mostly one request with theirs, and nobody writes it home again. What a checkpoint compresses goes home anyhow; and where little is
    /// free, a block that is written over and over must not take a place each time.
    fn places_short(&self, pool: PoolId) -> bool {
        let is_busy = self.options.placed_together_min.is_some_and(|least| self.under_way() >= least);
        if !is_busy || self.table.space.compression.contains_key(&pool) {
            return false;
        }
        let alloc = &self.table.space.alloc;
        alloc.free_count() > self.promised_blocks() + self.reserve_blocks() + alloc.reclaim_blocks()
    }

    /// Sends placed data to the device, then notes its checksums: mostly they came with the data. Where they must be computed, the
    /// device has the data first.
    pub(crate) fn send_placed(&mut self, placements: &mut [Placement], bodies: &[BufList]) {
        for (placement, body) in placements.iter().zip(bodies) {
            self.start_placed(placement, body);
        }
        if bodies.iter().map(BufList::len).sum::<usize>() >= SENT_AT_ONCE_BYTES {
            self.start_queued();
        }
        for (placement, body) in placements.iter_mut().zip(bodies) {
            placement.crcs = body.block_crcs();
        }
    }

    /// Until it is on the device, the cache has it. Many pieces are flushed together: a durable write is a flush of its own, and
    /// with the free space in holes there would be hundreds.
    fn start_placed(&mut self, placement: &Placement, body: &BufList) {
        let number = self.wal.next_number();
        let pieces = pieces_of(&placement.runs);
        let together = pieces.len() >= self.options.flushed_together_min;
        if together {
            self.pieces_sent(number, pieces.len());
        }
        let mut at = 0;
        for piece in pieces {
            let first = piece.start;
            let bytes = aligned(&body.slice(at, piece.count as usize * BLOCK));
            at += bytes.len();
            self.cache.insert(first, bytes.clone(), Pin::Write);
            if together {
                self.request_piece(PlacedPiece { number, first }, bytes);
            } else {
                self.wal.placing(number);
                self.requests.gather(PlacedPiece { number, first }, bytes.into());
            }
        }
    }

    fn pieces_sent(&mut self, number: TxnNumber, count: usize) {
        let pieces = self.unflushed.entry(number).or_default();
        if *pieces == 0 {
            // For the flush that comes behind the last of them.
            self.wal.placing(number);
        }
        *pieces += count;
    }

    /// A piece of the data of transaction `number` was written.
    pub(crate) fn piece_written(&mut self, number: TxnNumber) {
        let Some(pieces) = self.unflushed.get_mut(&number) else {
            unreachable!("a piece of {number} completed twice");
        };
        *pieces -= 1;
        if *pieces == 0 {
            self.unflushed.remove(&number);
            let tag = self.tag(Io::PiecesFlush { number }, DeviceWork::Flush, 0);
            self.disk.flush(tag);
        }
    }
}

/// Runs as they are written, none longer than a request may be.
fn pieces_of(runs: &[Run]) -> Vec<Run> {
    let mut pieces = Vec::with_capacity(runs.len());
    for run in runs {
        let mut left = *run;
        while left.count > 0 {
            let count = left.count.min(PLACED_BLOCKS_MAX);
            pieces.push(Run { start: left.start, count });
            left = Run { start: left.start + count, count: left.count - count };
        }
    }
    pieces
}

/// Data of writes inside of a split or move, which always travels in the record.
fn split_data_bytes(op: &Op) -> usize {
    let (Op::Split { ops, .. } | Op::Move { ops, .. }) = op else { return 0 };
    ops.iter().map(|op| if let Op::Write { data, .. } = op { data.len() } else { 0 }).sum()
}

/// One slice at an address that the device takes: shared when it is such already.
fn aligned(data: &BufList) -> Bytes {
    if let [one] = data.slices()
        && one.as_ptr().addr().is_multiple_of(BLOCK)
    {
        return one.clone();
    }
    let mut out = AlignedBuf::with_len(data.len());
    crate::gather(&mut out, data.slices());
    out.freeze()
}
