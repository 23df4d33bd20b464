//! [`Checkpoint`]: writes dirty blocks home and changed metadata to the KV store, then lets the log go.
//!
//! ```text
//!  cut -> gather -> write home -> settle -> flush -> encode -> commit -> adopt -> free -> done
//!   |       which     to fresh     log and    all     onodes,   KV, all    slots    what was
//!   |       blocks    blocks       data up    of it   omap      as one;    point    released
//!   |                              to cut                       log        home     before
//!   |                                                           trimmed             the cut
//!  what changed so far, by reference; the store goes on changing
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
//! the state at its cut exactly: the objects of the cut are held by reference, and a change since then copies.

use crate::BLOCK;
use crate::alloc::Run;
use crate::cache::Pin;
use crate::metadata::{self, State};
use crate::onode::{DeviceBlock, Onode, Slot};
use crate::options::Planted;
use crate::overlay::Dirty;
use crate::store::{BlockStore, Io};
use crate::table::{Marks, ObjectMark};
use crate::wal::{TxnNumber, WalPosition};
use nacre_buf::{AlignedBuf, Bytes, crc};
use nacre_env::disk::Durability;
use nacre_kv::{KvBatch, KvError, KvTag};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Objects looked at in one step at most, and blocks after which no further one is begun. A step takes some 100 us.
const OBJECTS_PER_STEP: usize = 64;
const ENTRIES_PER_STEP: usize = 2048;
/// Blocks written in one step.
const BLOCKS_PER_STEP: usize = 64;
/// Writes of dirty blocks in flight, so that log writes do not queue behind many.
const WRITES_MAX: usize = 4;
/// Blocks given their new home in one step.
const ADOPTIONS_PER_STEP: usize = 256;
/// Blocks freed in one step.
const FREES_PER_STEP: usize = 256;

/// A changed object as of the cut; without onode when it was gone.
struct CutObject {
    id: u64,
    mark: ObjectMark,
    onode: Option<Arc<Onode>>,
}

/// A dirty block and where it goes.
struct Home {
    /// Of the objects of the cut.
    object: usize,
    index: u32,
    dirty: Arc<Dirty>,
    target: DeviceBlock,
}

enum Stage {
    Gather { next: usize },
    Write { next: usize },
    Settle,
    Flush { done: bool },
    Encode { next: usize, home: usize },
    Commit,
    Adopt,
    Free,
    Done,
}

/// A checkpoint under way.
pub(crate) struct Checkpoint {
    cut: u64,
    number: TxnNumber,
    state: State,
    /// Metadata that is small enough to be taken at the cut.
    batch: KvBatch,
    objects: Vec<CutObject>,
    homes: Vec<Home>,
    /// Blocks promised at the cut, until they are allocated.
    held: u64,
    stage: Stage,
    writes: usize,
    reads: usize,
    /// Runs in the cache that must stay until the blocks being written are put together.
    pins: Vec<u32>,
}

impl Checkpoint {
    pub(crate) fn held_blocks(&self) -> u64 {
        self.held
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
        let dirty = self.table.space.dirty_slots * BLOCK as u64;
        let alloc = &self.table.space.alloc;
        let scarce = alloc.pending_count() > 0 && alloc.free_count() < u64::from(alloc.area().count) / 16;
        if used * 100 > size * self.options.wal_percent_max
            || dirty > self.options.overlay_bytes_max
            || self.table.marks.len() > self.options.marks_max
            || self.wal.collecting_bytes() > 0 && self.wal.is_durable_to(TxnNumber::MAX)
            || scarce
        {
            self.start_checkpoint();
        }
    }

    /// Takes the cut: all that was submitted so far is in the checkpoint, nothing after it.
    pub(crate) fn start_checkpoint(&mut self) {
        self.write_all_records();
        let number = self.wal.cut();
        let cut = self.table.space.alloc.cut();
        let wal: WalPosition = self.wal.next_position();
        let state = State { id: self.superblock.id, wal, next_id: self.table.next_id };
        let marks = std::mem::take(&mut self.table.marks);
        let batch = self.cut_batch(&marks);
        let objects = marks.objects.into_iter().map(|(id, mark)| {
            let onode = self.table.object(&mark.at, &mark.name).filter(|onode| onode.id == id);
            CutObject { id, onode: onode.map(Arc::clone), mark }
        });
        self.checkpoint = Some(Checkpoint {
            cut,
            number,
            state,
            batch,
            objects: objects.collect(),
            homes: Vec::new(),
            held: self.table.space.dirty_slots,
            stage: Stage::Gather { next: 0 },
            writes: 0,
            reads: 0,
            pins: Vec::new(),
        });
    }

    fn cut_batch(&self, marks: &Marks) -> KvBatch {
        let mut batch = KvBatch::default();
        let collections = &self.table.collections;
        for at in &marks.collections {
            put_or_delete(
                &mut batch,
                metadata::collection_key(at),
                collections.get(at).map(|_| Bytes::new()),
            );
        }
        for (at, chunk) in &marks.log {
            let value =
                collections.get(at).and_then(|collection| metadata::encode_log(&collection.log, *chunk));
            put_or_delete(&mut batch, metadata::log_key(at, *chunk), value);
        }
        for (at, name) in &marks.meta {
            let value = collections.get(at).and_then(|collection| collection.meta.get(name));
            put_or_delete(&mut batch, metadata::meta_key(at, name), value.cloned());
        }
        batch
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
        match checkpoint.stage {
            Stage::Gather { next } => self.gather(checkpoint, next),
            Stage::Write { next } => self.write_home(checkpoint, next),
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
                checkpoint.stage = Stage::Encode { next: 0, home: 0 };
                true
            }
            Stage::Encode { next, home } => self.encode(checkpoint, next, home),
            Stage::Commit => false,
            Stage::Adopt => self.adopt(checkpoint),
            Stage::Free => self.free(checkpoint),
            Stage::Done => false,
        }
    }

    fn gather(&mut self, checkpoint: &mut Checkpoint, next: usize) -> bool {
        let objects = checkpoint.objects.get(next..).unwrap_or_default();
        let mut looked_at = 0;
        let mut end = next;
        for cut in objects.iter().take(OBJECTS_PER_STEP) {
            let blocks = cut.onode.iter().flat_map(|onode| onode.blocks.iter());
            for (index, slot) in blocks {
                looked_at += 1;
                if let Slot::Memory(dirty) = slot {
                    let (target, dirty) = (DeviceBlock { block: 0, crc: 0 }, Arc::clone(dirty));
                    checkpoint.homes.push(Home { object: end, index: *index, dirty, target });
                }
            }
            end += 1;
            if looked_at >= ENTRIES_PER_STEP {
                break;
            }
        }
        checkpoint.stage = Stage::Gather { next: end };
        if end == checkpoint.objects.len() {
            let count = u32::try_from(checkpoint.homes.len()).expect("bounded by the device");
            let Some(runs) = self.table.space.alloc.allocate(count) else {
                self.fail(format!("no room for {count} dirty blocks that were promised room"));
                return false;
            };
            let targets = runs.into_iter().flat_map(Run::blocks);
            checkpoint.homes.iter_mut().zip(targets).for_each(|(home, block)| home.target.block = block);
            checkpoint.held = 0;
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
        let bases = match self.bases(window) {
            Ok(bases) => bases,
            Err(absent) => {
                checkpoint.reads = self.start_reads(absent, None);
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
            let (bytes, sound) = fill_homes(group, &bases);
            checkpoint.writes += 1;
            if sound {
                self.cache.insert(first, bytes.clone(), Pin::Write);
            }
            self.start_write(first, bytes, Durability::Cached, Io::Home { first });
        }
        checkpoint.stage =
            if end == checkpoint.homes.len() { Stage::Settle } else { Stage::Write { next: end } };
        true
    }

    /// Contents of the blocks that show between the written pieces: `None` for a damaged one. Or which of them must
    /// be read first.
    fn bases(&self, window: &[Home]) -> Result<Bases, Vec<DeviceBlock>> {
        let (mut bases, mut absent) = (Bases::new(), Vec::new());
        for device in window.iter().filter_map(|home| home.dirty.base()) {
            match self.cache.block(device.block) {
                Some(bytes) => drop(bases.insert(device.block, Some(bytes))),
                None if self.damaged.contains_key(&device.block) => drop(bases.insert(device.block, None)),
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

    fn encode(&mut self, checkpoint: &mut Checkpoint, next: usize, home: usize) -> bool {
        let Checkpoint { objects, homes, batch, .. } = checkpoint;
        let mut homes_left = homes.get(home..).unwrap_or_default().iter();
        let (mut end, mut entries) = (next, 0);
        for object in objects.get(next..).unwrap_or_default().iter().take(OBJECTS_PER_STEP) {
            let value = object.onode.as_ref().map(|onode| {
                entries += onode.blocks.len();
                let blocks = onode.blocks.iter().filter_map(|(index, slot)| match slot {
                    Slot::Device(device) => Some((*index, *device)),
                    Slot::Memory(_) => homes_left.next().map(|home| {
                        assert_eq!(home.index, *index, "homes are in the order of blocks");
                        (*index, home.target)
                    }),
                });
                onode.encode(&object.mark.at, &object.mark.name, blocks)
            });
            put_or_delete(batch, metadata::object_key(object.id), value);
            for key in &object.mark.omap {
                let value = object.onode.as_ref().and_then(|onode| onode.omap.get(key));
                put_or_delete(batch, metadata::omap_key(object.id, key), value.cloned());
            }
            end += 1;
            entries += object.mark.omap.len();
            if entries >= ENTRIES_PER_STEP {
                break;
            }
        }
        checkpoint.stage = Stage::Encode { next: end, home: homes.len() - homes_left.len() };
        if end == objects.len() {
            self.commit(checkpoint);
        }
        true
    }

    fn commit(&mut self, checkpoint: &mut Checkpoint) {
        checkpoint.batch.put(metadata::state_key(), checkpoint.state.encode());
        self.kv.submit(std::mem::take(&mut checkpoint.batch), KvTag(self.checkpoints));
        checkpoint.stage = Stage::Commit;
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
        self.wal.checkpoint_durable(checkpoint.number, checkpoint.state.wal, &mut self.durable);
        checkpoint.stage = Stage::Adopt;
    }

    /// From the last block to the first, so that what is done with goes away step by step.
    fn adopt(&mut self, checkpoint: &mut Checkpoint) -> bool {
        let Checkpoint { objects, homes, .. } = checkpoint;
        for _ in 0..ADOPTIONS_PER_STEP {
            let last = objects.len().wrapping_sub(1);
            let Some(object) = objects.last_mut() else {
                let early = self.options.planted == Planted::EarlyReuse;
                self.table.space.alloc.checkpoint_durable(if early { u64::MAX } else { checkpoint.cut });
                checkpoint.stage = Stage::Free;
                return true;
            };
            // A changed object need not be copied any more.
            object.onode = None;
            match homes.pop_if(|home| home.object == last) {
                Some(home) => self.adopt_home(&object.mark, &home),
                None => drop(objects.pop()),
            }
        }
        true
    }

    /// Points the object's block to its new home, unless it was written, removed or renamed since the cut. A clone made
    /// since the cut keeps the block in memory until the next checkpoint.
    fn adopt_home(&mut self, mark: &ObjectMark, home: &Home) {
        let objects = self.table.collections.get_mut(&mark.at).map(|collection| &mut collection.objects);
        let onode = objects.and_then(|objects| objects.get_mut(&mark.name));
        let same = |slot: &Slot| matches!(slot, Slot::Memory(dirty) if Arc::ptr_eq(dirty, &home.dirty));
        let space = &mut self.table.space;
        match onode.filter(|onode| onode.blocks.get(&home.index).is_some_and(same)) {
            None => space.alloc.release(home.target.block),
            Some(onode) => {
                Arc::make_mut(&mut Arc::make_mut(onode).blocks).insert(home.index, Slot::Device(home.target));
                space.dirty_slots -= 1;
                if let Some(base) = home.dirty.base() {
                    space.alloc.release(base.block);
                }
            }
        }
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

/// Puts the blocks of a group together, and notes their checksums. False when one of them is damaged.
fn fill_homes(group: &mut [Home], bases: &Bases) -> (Bytes, bool) {
    let mut sound = true;
    let mut buffer = AlignedBuf::with_len(group.len() * BLOCK);
    for (home, block) in group.iter_mut().zip(buffer.chunks_exact_mut(BLOCK)) {
        let base = home.dirty.base().and_then(|device| bases.get(&device.block));
        home.dirty.fill(block, base.and_then(Option::as_ref));
        let crc = crc::crc32c(u32::MAX, block);
        // What lay below the pieces is lost: the block must stay damaged, not become good zeros.
        let lost = matches!(base, Some(None));
        home.target.crc = if lost { !crc } else { crc };
        sound &= !lost;
    }
    (buffer.freeze(), sound)
}

fn put_or_delete(batch: &mut KvBatch, key: Bytes, value: Option<Bytes>) {
    match value {
        Some(value) => batch.put(key, value),
        None => batch.delete(key),
    }
}
