//! [`BlockStore`] itself: submitting, completing, and turns. Opening is in `mount.rs`, requests to the device in
//! `device_io.rs`, reading in `reads.rs`, finding room in `reserve.rs`, checkpoints in `checkpointing/`.

use crate::BLOCK;
use crate::cache::Cache;
use crate::checkpoint::Checkpoint;
use crate::codec::Codec;
use crate::discards::Discards;
use crate::fetch::{Damage, Fetch};
use crate::held::Source;
use crate::latencies::Latencies;
use crate::leases::Leases;
use crate::options::Options;
use crate::requests::{Requests, UnderWay};
use crate::superblock::Superblock;
use crate::table::Table;
use crate::throttle::CheckpointShares;
use crate::unpacked::{UNPACKED_PER_TURN, Unpacked};
use crate::wal::{Placement, TxnNumber, Wal};
use crate::warmings::Warmings;
use nacre_buf::BufList;
use nacre_env::Clock;
use nacre_env::disk::{Disk, DiskCompletion};
use nacre_kv::KvCompletion;
use nacre_store::{
    Completion, FreeSpace, HintIn, MeasuredDevice, ObjectStore, PackedUsage, StoreCounters, StoreError,
    StoreMemory, StoreState, StoreUsage, SubmitHint, WarmToken,
};
use nacre_txn::{FetchFrom, Op, StoreToken, Transaction};
use nacre_types::{Compression, CompressionMode, HObject, PoolId, SpgId};
use slab::Slab;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Blocks of one read or write at most.
pub(crate) const IO_BLOCKS_MAX: usize = 256;
/// Objects are addressed by 32-bit block numbers.
const OBJECT_BYTES_MAX: u64 = (u32::MAX as u64) * BLOCK as u64;

/// The part of clean memory that decompressed blobs may have.
const UNPACKED_DIVISOR: usize = 16;

/// An [`ObjectStore`] on a file or block device; formats and recovery are in the crate's documentation.
///
/// [`ObjectStore::submit`] changes the table in memory at once, so that reads see it, and queues a record of the log; [`ObjectStore::drain`]
/// starts what is queued, takes what the device has finished, gives completions in the order of submission, and takes a few steps of the
/// running checkpoint. It owns device, log, table, cache and free space; only the KV store's commit runs elsewhere. The price: the table of what
/// changed since the last checkpoint is in memory, and a writer that outruns the checkpoint waits. Tests run it on `simdisk`, which tears,
/// loses and rots from a seed, beside a model that knows what may be left after each crash.
pub struct BlockStore {
    pub(crate) disk: Box<dyn Disk>,
    pub(crate) superblock: Superblock,
    pub(crate) options: Options,
    pub(crate) table: Table,
    pub(crate) wal: Wal,
    pub(crate) cache: Cache,
    pub(crate) codec: Codec,
    /// What was read of blobs lately.
    pub(crate) unpacked: Unpacked,
    /// Fetches that have more to decompress than the turn had time for.
    pub(crate) unpacking: VecDeque<usize>,
    /// The one of them whose turn it is.
    pub(crate) unpacking_now: Option<usize>,
    /// Blobs that may still be decompressed in this turn.
    pub(crate) unpacks_left: usize,
    /// Transactions that became durable together when any last did.
    durable_lately: usize,
    /// The last drain gave no completion. A thread that drains as long as that gives any is in the same turn until then.
    gave_nothing: bool,
    /// Bytes of clean metadata and blocks that are kept now: [`Options::clean_bytes_max`], or less.
    clean_bytes: usize,
    pub(crate) checkpoint: Option<Checkpoint>,
    /// Slabs of the partition that this is; `None` of a store that is not divided.
    pub(crate) leases: Option<Leases>,
    pub(crate) shares: CheckpointShares,
    /// Requests on their way, by tag.
    pub(crate) io: Slab<UnderWay>,
    pub(crate) latencies: Latencies,
    pub(crate) requests: Requests,
    /// Pieces of large writes on their way that are to be flushed together, by transaction.
    pub(crate) unflushed: BTreeMap<TxnNumber, usize>,
    pub(crate) fetches: Slab<Fetch>,
    pub(crate) warmings: Warmings,
    /// Blocks that could not be read, and why; until they are written again or asked for again.
    pub(crate) damaged: BTreeMap<u64, Damage>,
    pub(crate) durable: Vec<StoreToken>,
    pub(crate) fetched: Vec<StoreToken>,
    pub(crate) brought: Vec<(StoreToken, BufList)>,
    pub(crate) frees: u64,
    pub(crate) discards: Discards,
    pub(crate) failed: Option<String>,
    /// Checkpoints completed since the store was opened.
    pub(crate) checkpoints: u64,
    pub(crate) completions: Vec<DiskCompletion>,
    pub(crate) commits: Vec<KvCompletion>,
    /// The checkpoint has more to do that waits for nothing.
    pub(crate) has_work: bool,
    submit_hint: SubmitHint,
}

impl std::fmt::Debug for BlockStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockStore").field("superblock", &self.superblock).finish_non_exhaustive()
    }
}

/// What an open store is made of.
pub(crate) struct Parts {
    pub(crate) disk: Box<dyn Disk>,
    pub(crate) superblock: Superblock,
    pub(crate) options: Options,
    pub(crate) table: Table,
    pub(crate) wal: Wal,
    pub(crate) leases: Option<Leases>,
}

impl BlockStore {
    pub(crate) fn assemble(parts: Parts) -> Self {
        let policy = parts.options.discards;
        let mut store = Self {
            cache: Cache::new(parts.options.clean_bytes_max),
            codec: Codec::default(),
            unpacked: Unpacked::default(),
            unpacking: VecDeque::new(),
            unpacking_now: None,
            unpacks_left: UNPACKED_PER_TURN,
            durable_lately: 0,
            gave_nothing: true,
            clean_bytes: parts.options.clean_bytes_max,
            disk: parts.disk,
            superblock: parts.superblock,
            options: parts.options,
            table: parts.table,
            wal: parts.wal,
            checkpoint: None,
            leases: parts.leases,
            shares: CheckpointShares::default(),
            io: Slab::new(),
            latencies: Latencies::default(),
            requests: Requests::default(),
            unflushed: BTreeMap::new(),
            fetches: Slab::new(),
            warmings: Warmings::default(),
            damaged: BTreeMap::new(),
            durable: Vec::new(),
            fetched: Vec::new(),
            brought: Vec::new(),
            frees: 0,
            discards: Discards::default(),
            failed: None,
            checkpoints: 0,
            completions: Vec::new(),
            commits: Vec::new(),
            has_work: false,
            submit_hint: SubmitHint::Batch,
        };
        store.follow_policy(policy);
        store
    }

    /// Lets the store learn from its checkpoints how their time divides into parts, by which writers that outrun one are
    /// slowed down. Without a clock it keeps to what is usual.
    pub fn set_clock(&mut self, clock: Box<dyn Clock>) {
        self.shares.set_clock(clock);
    }

    /// Why the store stopped acknowledging, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Checkpoints completed since the store was opened.
    #[must_use]
    pub fn checkpoints(&self) -> u64 {
        self.checkpoints
    }

    /// What the running checkpoint is at; `None` when there is none. For measurements.
    #[must_use]
    pub fn checkpoint_stage(&self) -> Option<&'static str> {
        self.checkpoint.as_ref().map(Checkpoint::stage_name)
    }

    /// About how many bytes of memory the store takes: metadata, dirty blocks, the cache, and transactions that wait for their record, whose
    /// short data is that of dirty blocks as well; by its own count. Not in it: the KV store's cache, and what is in flight.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let dirty = usize::try_from(self.table.space.dirty_bytes()).unwrap_or(usize::MAX);
        let metadata = self.table.bytes() + self.wal.collecting_bytes();
        metadata + self.cache.bytes() + self.unpacked.bytes() + dirty + self.discards.bytes()
    }

    /// Transactions submitted and not acknowledged.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.wal.waiting()
    }

    /// About as many transactions are under way at a time: where many became durable together, as many are about to come.
    pub(crate) fn under_way(&self) -> usize {
        self.waiting().max(self.durable_lately)
    }

    /// The table could not read its metadata: what it says since may be wrong.
    pub(crate) fn note_table_failure(&mut self) {
        if self.table.has_failed()
            && let Some(reason) = self.table.failure()
        {
            self.fail(reason);
        }
    }

    pub(crate) fn fail(&mut self, reason: String) {
        if self.failed.is_none() {
            tracing::error!(reason, "device failure: the store acknowledges nothing any more");
            if let Some(leases) = &self.leases {
                leases.ledger().note_failed(&reason);
            }
            self.failed = Some(reason);
        }
    }

    /// Why another partition has failed, if one has.
    fn failure_of_others(&self) -> Option<&str> {
        self.leases.as_ref().and_then(|leases| leases.ledger().failure())
    }

    /// When another partition has failed, so has this one. What was durable and is not told yet may be what the device has lost: its
    /// flush here succeeded before or behind the one that failed there.
    pub(crate) fn hear_of_failures(&mut self) {
        if self.failed.is_none()
            && let Some(reason) = self.failure_of_others()
        {
            self.fail(format!("another partition has failed: {reason}"));
            self.durable.clear();
        }
    }

    /// Writes records as long as some may be written; true when there were any.
    fn write_records(&mut self) -> bool {
        let mut wrote = false;
        while self.failed.is_none()
            && !self.outruns_checkpoint()
            && let Some(write) = self.wal.next_write()
        {
            self.start_record(write);
            wrote = true;
        }
        wrote
    }

    /// Writes all that was submitted, as far as the ring has room, before a cut.
    pub(crate) fn write_all_records(&mut self) {
        while let Some(write) = self.wal.seal() {
            self.start_record(write);
        }
    }

    /// A step of what removed collections have left, and one of the omaps that are being copied, unless the checkpoint has enough
    /// to do; true when another may follow at once.
    fn tidy_up(&mut self) -> bool {
        let limit = self.options.dirty_metadata_bytes_max;
        let is_behind = self.table.changed().0 >= self.options.marks_max || self.table.changed().1 >= limit;
        !is_behind && (self.table.remove_some() | self.table.copy_some())
    }

    /// Whether anything is not yet where a checkpoint brings it.
    fn has_changes(&self) -> bool {
        self.table.space.dirty_slots > 0 || self.table.changed().0 > 0
    }

    /// Runs a whole checkpoint now, waiting for the device; a running one is finished and a new one made.
    pub(crate) fn finish_checkpoint(&mut self) {
        self.end_checkpoint();
        if self.failed.is_none() {
            self.start_checkpoint();
        }
        self.end_checkpoint();
    }

    /// Waits for the end of the running checkpoint; false when there is none.
    pub(crate) fn end_checkpoint(&mut self) -> bool {
        let was_running = self.checkpoint.is_some();
        while self.checkpoint.is_some() && self.failed.is_none() {
            self.poll_devices();
            self.write_records();
            self.advance_checkpoint(usize::MAX);
            self.start_queued();
            if self.checkpoint.is_some() {
                self.wait_for_devices();
            }
            self.wal.durable(&mut self.durable);
        }
        was_running
    }

    /// Lets the checkpoint go on and sends what comes of it. Dirty blocks wait for the next turn if that comes at once: they
    /// go with its records then, in one call.
    fn advance(&mut self) {
        if self.failed.is_some() {
            return self.start_queued();
        }
        self.consider_checkpoint();
        self.has_work = self.advance_checkpoint(self.options.checkpoint_steps_max);
        self.has_work |= self.tidy_up();
        if self.write_records() || !self.has_work {
            self.start_queued();
        }
    }

    /// What is available when the metadata's file system lets no more data in: of it the same share is free then. That is the
    /// free part of what the metadata have and could have; what others keep there is no part of the store.
    fn bounded_by_metadata(&self, available: u64, total: u64) -> u64 {
        let Some(room) = self.table.kv.room() else { return available };
        let [total, free, used] = [total, room.available_bytes, room.used_bytes].map(u128::from);
        let share = total * free / (free + used).max(1);
        available.min(u64::try_from(share).unwrap_or(u64::MAX))
    }

    fn refuse_impossible(&self, txn: &Transaction) -> Result<(), StoreError> {
        if let Some(reason) = &self.failed {
            return Err(StoreError::Failed { reason: reason.clone() });
        }
        for op in &txn.ops {
            let Op::Write { offset, data, .. } = op else { continue };
            let wanted_bytes = offset.saturating_add(data.len() as u64);
            if wanted_bytes > OBJECT_BYTES_MAX {
                return Err(StoreError::Full { wanted_bytes, free_bytes: OBJECT_BYTES_MAX });
            }
        }
        Ok(())
    }
}

impl ObjectStore for BlockStore {
    fn submit(&mut self, txn: Transaction, token: StoreToken) -> Result<(), StoreError> {
        self.refuse_impossible(&txn)?;
        let room = self.make_room(&txn);
        // Then that there is no room need not be true.
        self.note_table_failure();
        if let Some(reason) = &self.failed {
            return Err(StoreError::Failed { reason: reason.clone() });
        }
        room?;
        let placed = self.place(&txn);
        let (mut placements, bodies): (Vec<Placement>, Vec<BufList>) = placed.into_iter().unzip();
        self.send_placed(&mut placements, &bodies);
        let encoded = self.wal.encode(&txn, &placements);
        let source = Source::of(&txn, &self.table.space.held);
        // From here on it is logged; if the table fails, nothing more leaves this store.
        self.wal.push(encoded, token);
        if self.submit_hint == SubmitHint::Now && self.write_records() {
            self.start_queued();
        }
        self.table.apply(txn, &placements, &source);
        self.table.space.replaced.drain(..).for_each(|(left, placed)| self.cache.replaced(left, placed));
        self.note_table_failure();
        if let Some(reason) = &self.failed {
            return Err(StoreError::Failed { reason: reason.clone() });
        }
        Ok(())
    }

    fn fetch(
        &mut self,
        collection: &SpgId,
        object: &HObject,
        offset: u64,
        length: u64,
        from: FetchFrom,
        token: StoreToken,
    ) {
        let fetch = Fetch::new(*collection, object.clone(), offset, length, from, token);
        let id = self.fetches.insert(fetch);
        self.continue_fetch(id);
    }

    fn waits_for_metadata(&self) -> bool {
        self.table.kv.waits_for_device()
    }

    fn warm(&mut self, collection: &SpgId, object: &HObject, bytes: Range<u64>, token: WarmToken) -> bool {
        self.begin_warming(collection, object, bytes, token)
    }

    fn drain(&mut self, out: &mut Vec<Completion>) {
        let before = out.len();
        if self.clean_bytes < self.options.clean_bytes_max {
            self.table.tidy_clean();
        }
        let unpacked_bytes = self.clean_bytes / UNPACKED_DIVISOR;
        self.unpacked.next_turn(unpacked_bytes);
        if self.gave_nothing {
            self.unpacks_left = UNPACKED_PER_TURN;
        }
        let taken = self.table.clean_bytes() + self.unpacked.bytes();
        self.cache.next_turn(self.clean_bytes.saturating_sub(taken));
        self.forgive();
        // Those that wait come first.
        self.unpack_some();
        self.poll_devices();
        self.unpack_some();
        self.has_work = false;
        self.note_table_failure();
        // What clients wait for is on its way before the checkpoint takes a step, which takes its time.
        self.write_records();
        self.start_queued();
        self.advance();
        self.trim();
        self.has_work |= !self.unpacking.is_empty();
        // Behind all that the device has said here: nothing that rests on it is told when it has failed elsewhere.
        self.hear_of_failures();
        if self.failed.is_none() {
            self.wal.durable(&mut self.durable);
        }
        if !self.durable.is_empty() {
            self.durable_lately = self.durable.len();
        }
        out.extend(self.durable.drain(..).map(Completion::Durable));
        out.extend(self.warmings.done.drain(..).map(Completion::Warm));
        out.extend(self.fetched.drain(..).map(Completion::Fetched));
        out.extend(self.brought.drain(..).map(|(token, data)| Completion::Brought(token, data)));
        self.gave_nothing = out.len() == before;
    }

    fn set_wakeups(&mut self, wakeups: bool) {
        if !wakeups {
            self.latencies.unwatch();
        }
        self.disk.set_wakeups(wakeups);
    }

    fn set_submit_hint(&mut self, hint: SubmitHint) {
        self.submit_hint = hint;
    }

    fn set_compression(&mut self, pool: PoolId, compression: Compression, hint_in: HintIn) {
        let settings = &mut self.table.space.compression;
        match compression.mode {
            CompressionMode::None => drop(settings.remove(&pool)),
            _ => drop(settings.insert(pool, (compression, hint_in))),
        }
    }

    fn state(&self) -> StoreState {
        if self.failed.is_some() || self.table.has_failed() || self.failure_of_others().is_some() {
            StoreState::Failed
        } else if self.has_work {
            StoreState::HasWork
        } else {
            StoreState::Idle
        }
    }

    fn is_overrun(&self) -> bool {
        self.far_outruns_checkpoint()
    }

    fn lacks_room(&mut self, txn: &Transaction) -> bool {
        self.lacks_slabs(txn)
    }

    fn spare_room(&mut self) {
        self.spare_slabs();
    }

    fn idle_trim(&mut self) -> bool {
        if self.failed.is_none()
            && self.checkpoint.is_none()
            && (self.has_changes() || self.withdraw_unwanted())
        {
            self.start_checkpoint();
        }
        let is_tidy = self.table.dead_keyspaces().next().is_none() && self.table.copies.is_empty();
        if self.failed.is_none() && (self.checkpoint.is_some() || !is_tidy) {
            return true;
        }
        if self.failed.is_some() {
            return false;
        }
        match self.table.kv.idle_trim() {
            Ok(is_left) => is_left,
            Err(error) => {
                self.fail(format!("metadata cannot be opened again: {error}"));
                false
            }
        }
    }

    fn data_bytes(&self, collection: &SpgId, object: &HObject) -> Option<u64> {
        Some(self.table.object(collection, object)?.size)
    }

    fn collections(&self) -> Vec<SpgId> {
        self.table.collections.keys().copied().collect()
    }

    fn usage(&self) -> StoreUsage {
        let alloc = &self.table.space.alloc;
        // A partition counts what it has, and of what is nobody's its part: together they count all of the device.
        let spare = self.leases.as_ref().map_or(0, Leases::spare_blocks);
        let has = alloc.blocks() + spare;
        let total = self.leases.as_ref().map_or(has, Leases::share_blocks);
        let reachable = alloc.free_count() + alloc.pending_count() + alloc.held_count() + spare;
        let available = reachable.saturating_sub(self.promised_blocks() + self.reserve_blocks());
        let on_device = has - reachable;
        let block = BLOCK as u64;
        StoreUsage {
            total_bytes: total * block,
            available_bytes: self.bounded_by_metadata(available * block, total * block),
            stored_bytes: self.table.space.slots * block,
            allocated_bytes: (on_device + self.table.space.dirty_slots) * block,
            omap_bytes: self.table.omap_bytes,
            metadata_bytes: self.superblock.wal.count * block,
        }
    }

    fn packed(&self) -> BTreeMap<PoolId, PackedUsage> {
        self.table.space.packed.by_pool().collect()
    }

    fn memory(&self) -> StoreMemory {
        let (data, metadata) = (self.cache.bytes() + self.unpacked.bytes(), self.table.clean_bytes());
        StoreMemory {
            data_bytes: data as u64,
            metadata_bytes: metadata as u64,
            changes_bytes: (self.memory_bytes() - data - metadata) as u64,
            kv_bytes: self.table.kv.cached_bytes() as u64,
            clean_bytes_max: self.options.clean_bytes_max as u64,
        }
    }

    fn limit_clean(&mut self, bytes: u64) {
        self.clean_bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(self.options.clean_bytes_max);
        let whole = (self.options.clean_bytes_max as u128).max(1);
        let metadata = self.options.metadata_bytes_max as u128 * self.clean_bytes as u128 / whole;
        self.table.limit_clean(usize::try_from(metadata).unwrap_or(usize::MAX));
    }

    fn give_back(&mut self, give_back: fn()) {
        self.table.kv.give_back(give_back);
    }

    fn device(&mut self) -> Option<&mut dyn MeasuredDevice> {
        Some(self)
    }

    fn counters(&self) -> StoreCounters {
        let (hits, misses) = &self.table.looked_up;
        let log_bytes = self.superblock.wal.count * BLOCK as u64;
        let device = self.latencies.totals();
        let (free, block) = (self.table.space.alloc.free(), BLOCK as u64);
        let free = FreeSpace {
            bytes: free.blocks() * block,
            long_bytes: free.long_blocks() * block,
            runs: free.runs(),
        };
        let (object_hits, object_misses, discards) = (hits.get(), misses.get(), self.discards.totals);
        StoreCounters { object_hits, object_misses, log_bytes, device, free, discards }
    }
}
