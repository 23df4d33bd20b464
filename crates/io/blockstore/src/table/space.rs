//! [`Space`]: the blocks of all objects, counted, and the device's blocks that they refer to.

use super::BLOCK_U64;
use crate::alloc::Alloc;
use crate::blob::{Blob, Place};
use crate::blocks::{Blocks, Period};
use crate::checkpoint::Home;
use crate::dirty::Dirty;
use crate::held::{Held, Source};
use crate::object_pages::ObjectPages;
use crate::onode::Onode;
use crate::packed_sums::PackedSums;
use crate::page::{PAGE_BLOCKS, page_of};
use crate::slot::Slot;
use nacre_buf::{BufList, Bytes};
use nacre_store::HintIn;
use nacre_types::{Compression, CompressionMode, PoolId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Device blocks and the counts that follow from the slots.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) alloc: Alloc,
    /// Slots of all objects, at home or not.
    pub(crate) slots: u64,
    /// Slots in memory: each needs a block at the next checkpoint.
    pub(crate) dirty_slots: u64,
    /// What they keep alive beyond themselves.
    pub(crate) held: Arc<Held>,
    /// What is changed now is changed in this one.
    pub(crate) period: Period,
    /// What is applied was submitted before the store was opened.
    pub(crate) is_replaying: bool,
    /// What pages refer to of blobs.
    pub(crate) packed: PackedSums,
    /// Blocks of the device that were left for others in which short writes are placed, and these, since somebody took note.
    pub(crate) replaced: Vec<(u64, u64)>,
    /// How data of pools are to be compressed, of those that want it.
    pub(crate) compression: BTreeMap<PoolId, (Compression, HintIn)>,
}

impl Space {
    /// Bytes of memory that dirty blocks take.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty_slots * BLOCK_U64 + self.held.excess() as u64
    }

    /// The blob that it needed, its page needs no more if `frees_blob`.
    pub(super) fn drop_slot(&mut self, slot: &Slot, frees_blob: bool) {
        self.slots -= 1;
        self.dirty_slots -= u64::from(matches!(slot, Slot::Memory(_)));
        if let Some(device) = slot.device() {
            self.alloc.release(device.block);
        }
        self.leaves_blob(Some(slot));
        if let Some(blob) = slot.blob().filter(|_| frees_blob) {
            self.release_blob(blob);
        }
    }

    /// A slot is no more what it was: it may have been in a blob, which its page may still need.
    fn leaves_blob(&mut self, slot: Option<&Slot>) {
        if let Some(Slot::Blob(blob, _)) = slot {
            self.packed.remove_block(blob);
        }
    }

    /// A page needs a blob no more.
    pub(crate) fn release_blob(&mut self, blob: &Blob) {
        self.packed.remove(blob);
        blob.stored().iter().for_each(|device| self.alloc.release(device.block));
    }

    /// One page more needs a blob.
    pub(crate) fn share_blob(&mut self, blob: &Blob) {
        self.packed.add(blob);
        blob.stored().iter().for_each(|device| self.alloc.share(device.block));
    }

    /// A checkpoint that is durable has brought home a block that was in memory, and needs no more what was below it.
    pub(crate) fn came_home(&mut self, home: &Home) {
        self.dirty_slots -= 1;
        home.new_blob().into_iter().for_each(|blob| self.packed.add_block(blob));
        let base = home.base.as_ref().filter(|_| !home.stays());
        base.and_then(Place::device).into_iter().for_each(|base| self.alloc.release_base(base.block));
    }

    /// The same of a blob that a page needed.
    pub(crate) fn left_base_blob(&mut self, blob: &Blob) {
        self.packed.remove(blob);
        blob.stored().iter().for_each(|device| self.alloc.release_base(device.block));
    }

    /// A checkpoint that is durable has brought home blocks of a page above a blob: it needs that no more, or not so, if `is_left`. The page,
    /// as it is now, needed the blob before it knew of that, and needs it now, as they say.
    pub(crate) fn adopt_base_blob(&mut self, blob: &Blob, before: bool, after: bool, is_left: bool) {
        match (before, after, is_left) {
            (true, false, true) => self.left_base_blob(blob),
            (true, false, false) => self.release_blob(blob),
            (true, true, true) | (false, _, true) => {
                blob.stored().iter().for_each(|device| self.alloc.base_was_released_early(device.block));
            }
            (true, true, false) | (false, _, false) => (),
        }
    }

    pub(crate) fn add_slot(&mut self, slot: &Slot) {
        self.slots += 1;
        self.dirty_slots += u64::from(matches!(slot, Slot::Memory(_)));
        if let Slot::Blob(blob, _) = slot {
            self.packed.add_block(blob);
        }
    }

    /// How the data of an object are to be compressed that was changed since the last checkpoint, if they are. `meta` is its record, as it
    /// is or is about to be.
    pub(crate) fn compression_of(&self, onode: &Onode, meta: &Bytes) -> Option<&Compression> {
        let (compression, hint_in) = self.compression.get(&onode.pool)?;
        // A hint is in the record, which takes time to read.
        let wants = compression.mode == CompressionMode::Force || compression.mode.wants(hint_in(meta));
        wants.then_some(compression)
    }

    pub(crate) fn compresses_nothing(&self) -> bool {
        self.compression.is_empty()
    }

    /// Whether a change of an object of this pool may make blocks dirty beside those that it is about: see [`Space::leave_dear_blobs`].
    pub(crate) fn may_have_blobs(&self, pool: PoolId) -> bool {
        self.compression.contains_key(&pool) || self.packed.has(pool)
    }

    pub(crate) fn has_no_blobs(&self) -> bool {
        self.compression.is_empty() && self.packed.is_empty()
    }

    /// Gives what was there.
    pub(super) fn put(&mut self, blocks: &mut Blocks, index: u32, slot: Slot) -> Option<Slot> {
        self.add_slot(&slot);
        let old = blocks.insert(index, slot, self.period)?;
        let frees_blob = old.blob().is_some_and(|blob| !blocks.uses(index, blob));
        self.drop_slot(&old, frees_blob);
        Some(old)
    }

    /// Gives an object another one's block.
    pub(super) fn share(&mut self, blocks: &mut Blocks, index: u32, slot: &Slot) {
        if let Some(device) = slot.device() {
            self.alloc.share(device.block);
        }
        if let Some(blob) = slot.blob().filter(|blob| !blocks.uses(index, blob)) {
            self.share_blob(blob);
        }
        self.put(blocks, index, slot.clone());
    }

    /// Blocks of the page of this block that are in blobs of which it has less than they cost become dirty, so that the next checkpoint
    /// brings them home by themselves. The page is here or nowhere.
    pub(super) fn leave_dear_blobs(&mut self, blocks: &mut Blocks, index: u32) {
        // Pages may be in blobs by now that were not when it was submitted: nothing made sure of room for that.
        if self.is_replaying {
            return;
        }
        let number = page_of(index);
        let Some(page) = blocks.page(number) else { return };
        let shared = self.alloc.shared();
        for at in page.dear_places(|blob| shared.extra(blob.first()) > 0) {
            let index = number * PAGE_BLOCKS + u32::try_from(at).expect("within a page");
            let dirty = Dirty::over(blocks.get(index).and_then(Slot::place));
            // The page needs the blob until they are home.
            let old = blocks.insert(index, Slot::Memory(Arc::new(dirty)), self.period);
            self.leaves_blob(old.as_ref());
            self.dirty_slots += 1;
        }
    }

    /// Removes slots `first ..` up to `end`, `None` for all behind.
    pub(super) fn punch(
        &mut self,
        blocks: &mut Blocks,
        first: u64,
        end: Option<u64>,
        pages: &ObjectPages<'_>,
    ) {
        let Ok(first) = u32::try_from(first) else { return };
        let end = end.and_then(|end| u32::try_from(end).ok());
        if end.is_some_and(|end| end <= first) {
            return;
        }
        let (last, period) = (end.map_or(u32::MAX, |end| end - 1), self.period);
        // Of pages that are read for this, little is left.
        pages.take_in_each(blocks, first, last, |blocks, number| {
            let (begin, end) = (number * PAGE_BLOCKS, number * PAGE_BLOCKS + (PAGE_BLOCKS - 1));
            blocks.remove(first.max(begin), last.min(end), period, |slot, is_last| {
                self.drop_slot(slot, is_last)
            });
        });
        blocks.remove(first, last, period, |slot, is_last| self.drop_slot(slot, is_last));
    }

    /// Writes within one block.
    pub(super) fn write_block(
        &mut self,
        blocks: &mut Blocks,
        index: u32,
        at: usize,
        data: BufList,
        source: &Source,
    ) {
        let hidden = if let Some(dirty) = blocks.in_memory_mut(index, self.period) {
            Dirty::write_shared(dirty, at, data, source)
        } else {
            // The slot's reference to the block, if there is one, goes on as that of the base.
            let mut dirty = Dirty::over(blocks.get(index).and_then(Slot::place));
            let hidden = dirty.write(at, data, source);
            let old = blocks.insert(index, Slot::Memory(Arc::new(dirty)), self.period);
            self.leaves_blob(old.as_ref());
            self.slots += u64::from(old.is_none());
            self.dirty_slots += 1;
            hidden
        };
        match hidden {
            Some(Place::Block(base)) => self.alloc.release(base.block),
            Some(Place::Blob(base, _)) if !blocks.uses(index, &base) => self.release_blob(&base),
            _ => (),
        }
    }
}
