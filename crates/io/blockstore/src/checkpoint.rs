//! [`Checkpoint`]: writes dirty blocks home and changed metadata to the KV store, then lets the log go.
//!
//! ```text
//!  cut -> gather -> write home -> settle -> flush -> encode -> commit -> adopt -> free -> done
//!   |       which     to fresh     log and    all     onodes,   KV, all    slots    what was
//!   |       blocks    blocks       data up    of it   pairs,    as one;    point    released
//!   |                              to cut             logs,     log        home     before
//!   |                                                 free map  trimmed             the cut
//!  the live layers become the cut's; the store goes on changing above them
//! ```
//!
//! Nothing that the last durable state refers to is overwritten before the commit is complete, so a crash before
//! it finds the old state and the whole log, and after it the new state and the log from the cut on. While the KV
//! store commits on a thread of its own, a crash finds one of the two: the batch is atomic, and both the old log
//! and the blocks that the old state refers to stay until the completion has been drained.
//!
//! No step waits, and each is small: writers go on between any two. So a step must not look at what the store holds
//! *now*, or the batch would mix several moments. It could not be repaired by replay either: applying the log from
//! the cut to a newer object is not idempotent (a clone made since the cut would copy what was written to its source
//! later, a rename would find its source gone, placed blocks would be taken twice). What a checkpoint writes is
//! the state at its cut exactly: the layers of the cut do not change any more, and a change since then copies.

use crate::BLOCK;
use crate::alloc::Run;
use crate::cache::Pin;
use crate::dirty::Dirty;
use crate::freemap::{FreeMapShard, RefChanges};
use crate::kv_schema::{self, State};
use crate::onode::{DeviceBlock, Onode, Slot};
use crate::options::Planted;
use crate::reads::DamageKind;
use crate::store::{BlockStore, Io};
use crate::table::Table;
use crate::throttle::fill::{Fill, WHOLE};
use crate::throttle::{Begins, Ends};
use crate::wal::{TxnNumber, WalPosition};
use nacre_buf::{AlignedBuf, BufList, Bytes, PAYLOAD_CRC_SEED, crc};
use nacre_env::disk::Durability;
use nacre_kv::{KvBatch, KvError, KvTag};
use nacre_types::{Eversion, SpgId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

// A step takes some 50 us at most: that is what a completion may have to wait for it. Between two steps writers have
// their turn.

/// Objects looked at in one step at most, and blocks after which no further one is begun.
const OBJECTS_PER_STEP: usize = 64;
const ENTRIES_PER_STEP: usize = 1024;
/// Blocks written in one step.
const BLOCKS_PER_STEP: usize = 16;
/// Writes of dirty blocks in flight above which no more are begun, so that log writes do not queue behind many: with
/// 256 KiB of them a record waits for little more than for another record.
const WRITES_MAX: usize = 8;
/// Blocks given their new home in one step.
const ADOPTIONS_PER_STEP: usize = 256;
/// Runs of blocks freed in one step.
const FREES_PER_STEP: usize = 64;
/// Small changed values written, and let go of, in one step.
const PAIRS_PER_STEP: usize = 256;
const CHUNKS_PER_STEP: usize = 16;
/// Blocks that find a home in one step: among holes each is a search of its own.
const HOMES_PER_STEP: usize = 64;

/// A dirty block and where it goes.
struct Home {
    /// Number of the object.
    object: u64,
    index: u32,
    dirty: Arc<Dirty>,
    /// That of `dirty`, which does not change any more and may have left the processor's caches when the base is asked for.
    base: Option<DeviceBlock>,
    target: DeviceBlock,
}

enum Stage {
    Gather { from: u64 },
    Place { next: usize },
    Write { next: usize },
    Settle,
    Flush { done: bool },
    Objects { from: u64, home: usize },
    Pairs { last: Option<Bytes> },
    Logs { last: Option<(SpgId, Eversion)> },
    Space { home: usize },
    Commit,
    Adopt,
    Release,
    Free,
    Done,
}

/// A checkpoint under way.
pub(crate) struct Checkpoint {
    cut: u64,
    /// What was in use at the cut.
    fill: Fill,
    number: TxnNumber,
    state: State,
    batch: KvBatch,
    homes: Vec<Home>,
    /// Changes of references up to the cut; the homes' are added.
    changes: RefChanges,
    /// Blocks promised at the cut, until they are allocated.
    held: u64,
    stage: Stage,
    writes: usize,
    reads: usize,
    /// Blocks that it asked the device for in vain, a few times each.
    unreadable: BTreeSet<u32>,
    /// Runs in the cache that must stay until the blocks being written are put together.
    pins: Vec<u32>,
    begins: Begins,
}

impl Checkpoint {
    pub(crate) fn held_blocks(&self) -> u64 {
        self.held
    }

    /// What it is at, for people.
    pub(crate) fn stage_name(&self) -> &'static str {
        match self.stage {
            Stage::Gather { .. } => "gather",
            Stage::Place { .. } => "place",
            Stage::Write { .. } => "write home",
            Stage::Settle => "settle",
            Stage::Flush { .. } => "flush",
            Stage::Objects { .. } => "encode objects",
            Stage::Pairs { .. } => "encode pairs",
            Stage::Logs { .. } => "encode logs",
            Stage::Space { .. } => "encode space",
            Stage::Commit => "commit",
            Stage::Adopt => "adopt",
            Stage::Release => "let go",
            Stage::Free => "free",
            Stage::Done => "done",
        }
    }

    pub(crate) fn fill(&self) -> &Fill {
        &self.fill
    }

    /// About how much of the time that it takes is over, of [`WHOLE`], when the parts end where `ends` says and the KV store has
    /// done so much of a commit.
    pub(crate) fn progress(&self, ends: Ends, committed: u64) -> u64 {
        let part = |home: usize| home as u64 * WHOLE / self.homes.len().max(1) as u64;
        let between = |begin: u64, end: u64, part: u64| begin + (end - begin) * part.min(WHOLE) / WHOLE;
        match self.stage {
            Stage::Gather { .. } | Stage::Place { .. } => 0,
            Stage::Write { next } => between(0, ends.written, part(next)),
            Stage::Settle | Stage::Flush { .. } => ends.settled,
            // Two rounds over the homes.
            Stage::Objects { home, .. } => between(ends.settled, ends.encoded, part(home) / 2),
            Stage::Pairs { .. } | Stage::Logs { .. } => ends.settled.midpoint(ends.encoded),
            Stage::Space { home } => between(ends.settled, ends.encoded, WHOLE / 2 + part(home) / 2),
            Stage::Commit => between(ends.encoded, WHOLE, committed),
            Stage::Adopt | Stage::Release | Stage::Free | Stage::Done => WHOLE,
        }
    }

    /// Whether the KV store has it.
    pub(crate) fn is_committing(&self) -> bool {
        matches!(self.stage, Stage::Commit)
    }
}

impl BlockStore {
    /// Begins a checkpoint if there is reason to.
    pub(crate) fn consider_checkpoint(&mut self) {
        if self.checkpoint.is_some() {
            return;
        }
        let (size, used) = self.wal.usage();
        let dirty = self.table.space.dirty_bytes();
        let (entries, bytes) = self.table.changed();
        if used * 100 > size * self.options.wal_percent_max
            || dirty > self.options.overlay_bytes_max
            || entries + self.table.space.alloc.changes_count() > self.options.marks_max
            || bytes + self.table.space.alloc.changes_bytes() > self.options.dirty_metadata_bytes_max
            || self.wal.collecting_bytes() > 0 && self.wal.is_durable_to(TxnNumber::MAX)
            || self.wal.is_stuck()
            || self.table.space.alloc.wants_checkpoint()
        {
            self.start_checkpoint();
        }
    }

    /// Takes the cut: all that was submitted so far is in the checkpoint, nothing after it. Takes the same time however
    /// much that is.
    pub(crate) fn start_checkpoint(&mut self) {
        self.write_all_records();
        let number = self.wal.cut();
        let cut = self.table.space.alloc.cut();
        let wal: WalPosition = self.wal.next_position();
        let state = State {
            id: self.superblock.id,
            wal,
            next_id: self.table.next_id,
            sums: self.table.sums(),
            has_copies: !self.table.copies.is_empty(),
        };
        let mut batch = KvBatch::default();
        std::mem::take(&mut self.table.dead_prefixes)
            .into_iter()
            .for_each(|prefix| batch.delete_prefix(prefix));
        self.table.freeze();
        self.checkpoint = Some(Checkpoint {
            cut,
            fill: self.fill(),
            number,
            state,
            batch,
            // All of it at once: to grow it in steps is to touch twice as much memory.
            homes: Vec::with_capacity(usize::try_from(self.table.space.dirty_slots).unwrap_or(0)),
            changes: self.table.space.alloc.take_changes(),
            held: self.table.space.dirty_slots,
            stage: Stage::Gather { from: 0 },
            writes: 0,
            reads: 0,
            unreadable: BTreeSet::new(),
            pins: Vec::new(),
            begins: Begins { homes: self.shares.now(), ..Begins::default() },
        });
    }

    /// Takes up to `steps_max` steps, as far as they need not wait for the device. True when the next one need not.
    pub(crate) fn advance_checkpoint(&mut self, steps_max: usize) -> bool {
        for _ in 0..steps_max {
            if self.failed.is_some() {
                return false;
            }
            let Some(mut checkpoint) = self.checkpoint.take() else { return false };
            let advanced = self.step(&mut checkpoint);
            if matches!(checkpoint.stage, Stage::Done) {
                return false;
            }
            self.checkpoint = Some(checkpoint);
            if !advanced {
                return false;
            }
        }
        self.checkpoint.is_some()
    }

    /// One step; false when it has to wait.
    fn step(&mut self, checkpoint: &mut Checkpoint) -> bool {
        match &checkpoint.stage {
            Stage::Gather { from } => self.gather(checkpoint, *from),
            Stage::Place { next } => self.place_homes(checkpoint, *next),
            Stage::Write { next } => self.write_home(checkpoint, *next),
            Stage::Settle => {
                if checkpoint.writes > 0 || !self.wal.is_durable_to(checkpoint.number) {
                    return false;
                }
                self.start_flush();
                checkpoint.stage = Stage::Flush { done: false };
                true
            }
            Stage::Flush { done: false } => false,
            Stage::Flush { done: true } => {
                checkpoint.begins.batch = self.shares.now();
                checkpoint.stage = Stage::Objects { from: 0, home: 0 };
                true
            }
            Stage::Objects { from, home } => self.encode_objects(checkpoint, *from, *home),
            Stage::Pairs { last } => self.encode_pairs(checkpoint, last.clone()),
            Stage::Logs { last } => self.encode_logs(checkpoint, *last),
            Stage::Space { home } => self.encode_space(checkpoint, *home),
            Stage::Commit | Stage::Done => false,
            Stage::Adopt => self.adopt(checkpoint),
            Stage::Release => self.release(checkpoint),
            Stage::Free => self.free(checkpoint),
        }
    }

    fn gather(&mut self, checkpoint: &mut Checkpoint, from: u64) -> bool {
        let (mut looked_at, mut next) = (0, None);
        for (nth, (id, onode)) in self.table.onodes.frozen.range(from..).enumerate() {
            if nth == OBJECTS_PER_STEP || looked_at >= ENTRIES_PER_STEP {
                next = Some(*id);
                break;
            }
            let Some(onode) = onode else { continue };
            looked_at += onode.blocks.pages_count();
            for (index, dirty) in onode.blocks.in_memory() {
                looked_at += 1;
                let (target, base) = (DeviceBlock { block: 0, crc: 0 }, dirty.base());
                checkpoint.homes.push(Home { object: *id, index, dirty: Arc::clone(dirty), base, target });
            }
        }
        checkpoint.stage = next.map_or(Stage::Place { next: 0 }, |from| Stage::Gather { from });
        true
    }

    fn place_homes(&mut self, checkpoint: &mut Checkpoint, next: usize) -> bool {
        let end = checkpoint.homes.len().min(next + HOMES_PER_STEP);
        let homes = checkpoint.homes.get_mut(next..end).unwrap_or_default();
        let count = u32::try_from(homes.len()).expect("a step is small");
        let Some(runs) = self.table.space.alloc.allocate_homes(count) else {
            self.fail(format!("no room for {count} dirty blocks that were promised room"));
            return false;
        };
        let targets = runs.into_iter().flat_map(Run::blocks);
        homes.iter_mut().zip(targets).for_each(|(home, block)| home.target.block = block);
        checkpoint.held -= u64::from(count);
        checkpoint.stage = Stage::Place { next: end };
        if end == checkpoint.homes.len() {
            assert_eq!(checkpoint.held, 0, "each block that was dirty at the cut has a home now");
            checkpoint.stage = Stage::Write { next: 0 };
        }
        true
    }

    fn write_home(&mut self, checkpoint: &mut Checkpoint, next: usize) -> bool {
        if checkpoint.writes >= WRITES_MAX || checkpoint.reads > 0 {
            return false;
        }
        let end = checkpoint.homes.len().min(next + BLOCKS_PER_STEP);
        let window = checkpoint.homes.get_mut(next..end).unwrap_or_default();
        let bases = match self.bases(window, &checkpoint.unreadable) {
            Ok(bases) => bases,
            Err(mut absent) => {
                absent.sort_unstable_by_key(|device| device.block);
                absent.dedup_by_key(|device| device.block);
                checkpoint.reads = self.start_reads(&absent, None);
                return true;
            }
        };
        checkpoint.pins.drain(..).for_each(|first| self.cache.unpin(first, Pin::Checkpoint));
        let mut rest = window;
        while !rest.is_empty() {
            let follows = |pair: &[Home]| matches!(pair, [a, b] if a.target.block + 1 == b.target.block);
            let length = 1 + rest.windows(2).take_while(|pair| follows(pair)).count();
            let (group, behind) = rest.split_at_mut(length);
            rest = behind;
            let Some(first) = group.first().map(|home| home.target.block) else { break };
            checkpoint.writes += 1;
            let content = fill_homes(group, &bases);
            self.keep_cached(group, &content);
            self.start_write(first, content, Durability::Cached, Io::Home);
        }
        checkpoint.stage =
            if end == checkpoint.homes.len() { Stage::Settle } else { Stage::Write { next: end } };
        true
    }

    /// What replaces cached content is cached: somebody reads these blocks, and nobody reads from replicas.
    fn keep_cached(&mut self, group: &[Home], content: &BufList) {
        let blocks = content.slices().iter().flat_map(|slice| slice.chunks_exact(BLOCK));
        for (home, block) in group.iter().zip(blocks) {
            if home.dirty.replaced().is_some_and(|replaced| self.cache.holds(replaced)) {
                let mut copy = AlignedBuf::with_len(BLOCK);
                copy.copy_from_slice(block);
                self.cache.insert(home.target.block, copy.freeze(), Pin::None);
            }
        }
    }

    /// Contents of the blocks that show between the written pieces: `None` for a damaged one. Or which of them must
    /// be read first.
    fn bases(&self, window: &[Home], unreadable: &BTreeSet<u32>) -> Result<Bases, Vec<DeviceBlock>> {
        // That somebody could not read a block some time ago is no reason to lose it.
        let is_lost = |block: &u32| match self.damaged.get(block) {
            Some(damage) => damage.kind == DamageKind::Lost || unreadable.contains(block),
            None => false,
        };
        let (mut bases, mut absent) = (Bases::new(), Vec::new());
        for device in window.iter().filter_map(|home| home.base) {
            match self.cache.block(device.block) {
                Some(bytes) => drop(bases.insert(device.block, Some(bytes))),
                None if is_lost(&device.block) => drop(bases.insert(device.block, None)),
                None => absent.push(device),
            }
        }
        if absent.is_empty() { Ok(bases) } else { Err(absent) }
    }

    pub(crate) fn home_written(&mut self) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.writes -= 1;
        }
    }

    pub(crate) fn base_pinned(&mut self, first: u32) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.pins.push(first);
        }
    }

    pub(crate) fn base_unreadable(&mut self, block: u32) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.unreadable.insert(block);
        }
    }

    /// In place of one read there are `count` now.
    pub(crate) fn bases_split(&mut self, count: usize) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.reads += count - 1;
        }
    }

    pub(crate) fn base_read(&mut self) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.reads -= 1;
        }
    }

    pub(crate) fn flushed(&mut self) {
        if let Some(Checkpoint { stage: Stage::Flush { done }, .. }) = &mut self.checkpoint {
            *done = true;
        }
    }

    fn encode_objects(&mut self, checkpoint: &mut Checkpoint, from: u64, home: usize) -> bool {
        let Checkpoint { homes, batch, .. } = checkpoint;
        let mut homes_left = homes.get(home..).unwrap_or_default().iter();
        let (mut entries, mut next) = (0, None);
        for (nth, (id, onode)) in self.table.onodes.frozen.range(from..).enumerate() {
            if nth == OBJECTS_PER_STEP || entries >= ENTRIES_PER_STEP {
                next = Some(*id);
                break;
            }
            let value = onode.as_ref().map(|onode| {
                entries += onode.blocks.len();
                let blocks = onode.blocks.iter().filter_map(|(index, slot)| match slot {
                    Slot::Device(device) => Some((index, *device)),
                    Slot::Memory(_) => homes_left.next().map(|home| {
                        assert_eq!((home.object, home.index), (*id, index), "homes are in order");
                        (index, home.target)
                    }),
                });
                onode.encode(blocks)
            });
            put_or_delete(batch, kv_schema::object_key(*id), value);
        }
        let home = homes.len() - homes_left.len();
        checkpoint.stage = next.map_or(Stage::Pairs { last: None }, |from| Stage::Objects { from, home });
        true
    }

    fn encode_pairs(&mut self, checkpoint: &mut Checkpoint, mut last: Option<Bytes>) -> bool {
        let from = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let pairs = self.table.pairs.frozen.range::<Bytes, _>((from, Bound::Unbounded));
        let mut count = 0;
        for (key, value) in pairs.take(PAIRS_PER_STEP) {
            put_or_delete(&mut checkpoint.batch, key.clone(), value.clone());
            count += 1;
            if count == PAIRS_PER_STEP {
                last = Some(key.clone());
            }
        }
        let is_last = count < PAIRS_PER_STEP;
        checkpoint.stage = if is_last { Stage::Logs { last: None } } else { Stage::Pairs { last } };
        true
    }

    fn encode_logs(&mut self, checkpoint: &mut Checkpoint, mut last: Option<(SpgId, Eversion)>) -> bool {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut count = 0;
        for (key, chunk) in self.table.log.frozen.range((from, Bound::Unbounded)).take(CHUNKS_PER_STEP) {
            let value = chunk.as_ref().map(kv_schema::encode_log);
            put_or_delete(&mut checkpoint.batch, kv_schema::log_key(&key.0, key.1), value);
            (count, last) = (count + 1, Some(*key));
        }
        let is_last = count < CHUNKS_PER_STEP;
        checkpoint.stage = if is_last { Stage::Space { home: 0 } } else { Stage::Logs { last } };
        true
    }

    /// The free map as it will be once the homes are taken and what lay below them is not needed any more.
    fn encode_space(&mut self, checkpoint: &mut Checkpoint, home: usize) -> bool {
        let one = |block: u32| Run { start: block, count: 1 };
        let Checkpoint { homes, changes, batch, .. } = checkpoint;
        let end = homes.len().min(home + ENTRIES_PER_STEP);
        for home in homes.get(home..end).unwrap_or_default() {
            changes.add(one(home.target.block), 1);
            if let Some(base) = home.base {
                changes.add(one(base.block), -1);
            }
        }
        checkpoint.stage = Stage::Space { home: end };
        if end < homes.len() {
            return true;
        }
        let Some((nth, changes)) = changes.pop() else {
            self.commit(checkpoint);
            return true;
        };
        match self.changed_portion(nth, &changes) {
            Ok(value) => put_or_delete(batch, kv_schema::free_key(nth), value),
            Err(reason) => {
                self.fail(reason);
                return false;
            }
        }
        true
    }

    fn changed_portion(&self, nth: u32, changes: &[(Run, i32)]) -> Result<Option<Bytes>, String> {
        let value = self.table.kv.get(&kv_schema::free_key(nth)).map_err(|error| error.to_string())?;
        let shard = value.map(FreeMapShard::decode).transpose().map_err(|error| error.to_string())?;
        let mut shard = shard.unwrap_or_default();
        shard.apply(changes).map_err(|block| format!("block {block} is released too often"))?;
        Ok(shard.encode())
    }

    fn commit(&mut self, checkpoint: &mut Checkpoint) {
        checkpoint.batch.put(kv_schema::state_key(), checkpoint.state.encode());
        self.table.kv.submit(std::mem::take(&mut checkpoint.batch), KvTag(self.checkpoints));
        checkpoint.stage = Stage::Commit;
        checkpoint.begins.commit = self.shares.now();
        if self.options.planted == Planted::EarlyTrim {
            self.wal.checkpoint_durable(checkpoint.number, checkpoint.state.wal, &mut self.durable);
        }
    }

    /// The KV store has the checkpoint, or failed.
    pub(crate) fn committed(&mut self, result: Result<(), KvError>) {
        if let Err(error) = result {
            return self.fail(error.to_string());
        }
        let Some(checkpoint) = &mut self.checkpoint else { return };
        assert!(checkpoint.is_committing(), "nothing else is submitted to the KV store");
        self.shares.committed(checkpoint.begins);
        self.wal.checkpoint_durable(checkpoint.number, checkpoint.state.wal, &mut self.durable);
        checkpoint.stage = Stage::Adopt;
    }

    /// Objects of the cut become clean ones, the last one first.
    fn adopt(&mut self, checkpoint: &mut Checkpoint) -> bool {
        let mut adopted = 0;
        while adopted < ADOPTIONS_PER_STEP {
            let Some((id, onode)) = self.table.onodes.frozen.pop_last() else {
                let early = self.options.planted == Planted::EarlyReuse;
                self.table.space.alloc.checkpoint_durable(if early { u64::MAX } else { checkpoint.cut });
                checkpoint.stage = Stage::Release;
                return true;
            };
            let first = checkpoint.homes.partition_point(|home| home.object < id);
            let homes = checkpoint.homes.split_off(first);
            adopted += 1 + homes.len();
            if self.table.onodes.is_mutable(&id) {
                // From here on a change of it need not copy any more.
                drop(onode);
                self.adopt_in_live(id, &homes);
            } else if let Some(onode) = onode {
                self.adopt_all(id, onode, &homes);
            }
        }
        true
    }

    /// The object is as it was at the cut.
    fn adopt_all(&mut self, id: u64, mut onode: Arc<Onode>, homes: &[Home]) {
        let space = &mut self.table.space;
        if !homes.is_empty() {
            let blocks = Arc::make_mut(&mut Arc::make_mut(&mut onode).blocks);
            for home in homes {
                blocks.insert(home.index, Slot::Device(home.target));
                space.dirty_slots -= 1;
                if let Some(base) = home.base {
                    space.alloc.release_base(base.block);
                }
            }
        }
        self.table.keep_clean(id, onode);
    }

    /// The object was changed since the cut, or removed: its slots point home if they are still the same. A clone made
    /// since the cut keeps the block in memory until the next checkpoint.
    fn adopt_in_live(&mut self, id: u64, homes: &[Home]) {
        let Table { onodes, space, .. } = &mut self.table;
        let same =
            |slot: &Slot, home: &Home| matches!(slot, Slot::Memory(dirty) if Arc::ptr_eq(dirty, &home.dirty));
        let adopted = onodes.change(&id, |onode| {
            let is_same = |home: &Home| onode.blocks.get(home.index).is_some_and(|slot| same(slot, home));
            let adopted: Vec<bool> = homes.iter().map(is_same).collect();
            if !homes.is_empty() {
                let blocks = Arc::make_mut(&mut Arc::make_mut(onode).blocks);
                for (home, adopted) in homes.iter().zip(&adopted) {
                    if *adopted {
                        blocks.insert(home.index, Slot::Device(home.target));
                    } else if let Some(dirty) = blocks.in_memory_mut(home.index) {
                        Arc::make_mut(dirty).set_replaced(home.target.block);
                    }
                }
            }
            adopted
        });
        let adopted = adopted.unwrap_or_else(|| vec![false; homes.len()]);
        for (home, adopted) in homes.iter().zip(adopted) {
            let base = home.base.map(|base| base.block);
            if adopted {
                space.dirty_slots -= 1;
                base.into_iter().for_each(|base| space.alloc.release_base(base));
            } else {
                space.alloc.release(home.target.block);
                base.into_iter().for_each(|base| space.alloc.base_was_released_early(base));
            }
        }
    }

    /// Lets go of the small values that the KV store has now.
    fn release(&mut self, checkpoint: &mut Checkpoint) -> bool {
        let Table { pairs, onodes, log, .. } = &mut self.table;
        let more = pairs.release(PAIRS_PER_STEP) | log.release(CHUNKS_PER_STEP) | onodes.release(1);
        if !more {
            checkpoint.stage = Stage::Free;
        }
        true
    }

    /// Frees what nothing refers to any more.
    fn free(&mut self, checkpoint: &mut Checkpoint) -> bool {
        let freed = self.table.space.alloc.free_some(FREES_PER_STEP);
        if freed.is_empty() {
            self.checkpoints += 1;
            checkpoint.stage = Stage::Done;
            return true;
        }
        for run in freed {
            self.cache.forget(run);
            let damaged: Vec<u32> = self.damaged.range(run.blocks()).map(|(block, _)| *block).collect();
            damaged.iter().for_each(|block| drop(self.damaged.remove(block)));
        }
        self.frees += 1;
        true
    }
}

type Bases = BTreeMap<u32, Option<Bytes>>;

/// Puts the blocks of a PG together, and notes their checksums. Blocks that came whole go as they came, with the
/// checksums that clients and primaries sent with them.
fn fill_homes(group: &mut [Home], bases: &Bases) -> BufList {
    let as_written = |home: &mut Home| {
        let whole = home.dirty.as_written()?.clone();
        let compute = || crc::crc32c(PAYLOAD_CRC_SEED, &whole);
        home.target.crc = home.dirty.known_crc().unwrap_or_else(compute);
        debug_assert_eq!(home.target.crc, compute(), "what came with the block is not its checksum");
        Some(whole)
    };
    if group.iter().all(|home| home.dirty.as_written().is_some()) {
        return group.iter_mut().filter_map(as_written).collect();
    }
    let mut buffer = AlignedBuf::with_len(group.len() * BLOCK);
    for (home, block) in group.iter_mut().zip(buffer.chunks_exact_mut(BLOCK)) {
        let base = home.base.and_then(|device| bases.get(&device.block));
        home.dirty.fill(block, base.and_then(Option::as_ref));
        let crc = crc::crc32c(PAYLOAD_CRC_SEED, block);
        // What lay below the pieces is lost: the block must stay damaged, not become good zeros.
        let lost = matches!(base, Some(None));
        home.target.crc = if lost { !crc } else { crc };
    }
    buffer.freeze().into()
}

fn put_or_delete(batch: &mut KvBatch, key: Bytes, value: Option<Bytes>) {
    match value {
        Some(value) => batch.put(key, value),
        None => batch.delete(key),
    }
}
