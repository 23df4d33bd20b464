//! [`Space`]: the blocks of all objects, counted, and the device's blocks that they refer to.

use super::BLOCK_U64;
use crate::alloc::Alloc;
use crate::blocks::{Blocks, Period};
use crate::dirty::Dirty;
use crate::held::{Held, Source};
use crate::object_pages::ObjectPages;
use crate::page::PAGE_BLOCKS;
use crate::slot::Slot;
use nacre_buf::BufList;
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
}

impl Space {
    /// Bytes of memory that dirty blocks take.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty_slots * BLOCK_U64 + self.held.excess() as u64
    }

    pub(super) fn drop_slot(&mut self, slot: &Slot) {
        self.slots -= 1;
        self.dirty_slots -= u64::from(matches!(slot, Slot::Memory(_)));
        if let Some(device) = slot.device() {
            self.alloc.release(device.block);
        }
    }

    pub(crate) fn add_slot(&mut self, slot: &Slot) {
        self.slots += 1;
        self.dirty_slots += u64::from(matches!(slot, Slot::Memory(_)));
    }

    pub(super) fn put(&mut self, blocks: &mut Blocks, index: u32, slot: Slot) {
        self.add_slot(&slot);
        if let Some(old) = blocks.insert(index, slot, self.period) {
            self.drop_slot(&old);
        }
    }

    /// Gives an object another one's block.
    pub(super) fn share(&mut self, blocks: &mut Blocks, index: u32, slot: &Slot) {
        if let Some(device) = slot.device() {
            self.alloc.share(device.block);
        }
        self.put(blocks, index, slot.clone());
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
            blocks.remove(first.max(begin), last.min(end), period, |slot| self.drop_slot(slot));
        });
        blocks.remove(first, last, period, |slot| self.drop_slot(slot));
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
            let mut dirty = Dirty::over(blocks.get(index).and_then(Slot::device));
            let hidden = dirty.write(at, data, source);
            let was_there = blocks.insert(index, Slot::Memory(Arc::new(dirty)), self.period).is_some();
            self.slots += u64::from(!was_there);
            self.dirty_slots += 1;
            hidden
        };
        if let Some(base) = hidden {
            self.alloc.release(base.block);
        }
    }
}
