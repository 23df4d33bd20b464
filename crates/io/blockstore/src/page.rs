//! [`Page`]: the blocks of a part of an object.

use crate::device::Run;
use crate::memtable::Weigh;
use crate::slot::Slot;
use std::sync::Arc;

/// Blocks of a page: 128 KiB of an object. Unit tests have small objects, which are to have several pages.
pub(crate) const PAGE_BLOCKS: u32 = if cfg!(test) { 4 } else { 32 };
/// Numbers of pages are below it, since those of blocks have 32 bits.
pub(crate) const PAGES_END: u32 = u32::MAX / PAGE_BLOCKS + 1;

/// About the bytes of a page without its slots.
const PAGE_BYTES: usize = 96;

/// Number of the page that has a block.
pub(crate) const fn page_of(index: u32) -> u32 {
    index / PAGE_BLOCKS
}

/// Its place there.
pub(crate) const fn within(index: u32) -> usize {
    (index % PAGE_BLOCKS) as usize
}

/// As long as its last block needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    slots: Vec<Option<Slot>>,
    /// Slots that are there, and those of them in memory.
    count: usize,
    in_memory: usize,
}

impl Page {
    /// Of slots by index, all of one page, ascending.
    pub(crate) fn of(blocks: Vec<(u32, Slot)>) -> Self {
        let mut page = Self::default();
        page.slots.reserve_exact(blocks.last().map_or(0, |(index, _)| within(*index) + 1));
        blocks.into_iter().for_each(|(index, slot)| drop(page.set(within(index), Some(slot))));
        page
    }

    fn counted(slot: &Slot) -> usize {
        usize::from(matches!(slot, Slot::Memory(_)))
    }

    /// Sets a slot and gives the one that was there.
    pub(crate) fn set(&mut self, at: usize, slot: Option<Slot>) -> Option<Slot> {
        if self.slots.len() <= at {
            if self.slots.is_empty() {
                // A small object's page stays as long as it is.
                self.slots.reserve_exact(at + 1);
            }
            self.slots.resize_with(at + 1, || None);
        }
        let place = self.slots.get_mut(at)?;
        if let Some(slot) = &slot {
            self.count += 1;
            self.in_memory += Self::counted(slot);
        }
        let old = std::mem::replace(place, slot);
        if let Some(old) = &old {
            self.count -= 1;
            self.in_memory -= Self::counted(old);
        }
        old
    }

    pub(crate) fn get(&self, at: usize) -> Option<&Slot> {
        self.slots.get(at)?.as_ref()
    }

    /// A slot that is there, to be changed in its place.
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut Slot> {
        self.slots.get_mut(at)?.as_mut()
    }

    /// All places up to the last block.
    pub(crate) fn slots(&self) -> &[Option<Slot>] {
        &self.slots
    }

    /// Slots that are there.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Those of them whose blocks are in memory.
    pub(crate) const fn in_memory(&self) -> usize {
        self.in_memory
    }

    /// The slots that are there, with their indexes; the page is number `nth`.
    pub(crate) fn iter(&self, nth: u32) -> impl Iterator<Item = (u32, &Slot)> {
        self.between(nth, 0, u32::MAX)
    }

    /// Those of them from `first` to `last`, some of which are of this page.
    pub(crate) fn between(&self, nth: u32, first: u32, last: u32) -> impl Iterator<Item = (u32, &Slot)> {
        let begin = nth * PAGE_BLOCKS;
        debug_assert!(first <= last && begin <= last, "page {nth} has nothing of {first} to {last}");
        let from = (first.saturating_sub(begin) as usize).min(self.slots.len());
        let to = (last.saturating_sub(begin) as usize + 1).clamp(from, self.slots.len());
        let slots = self.slots.get(from..to).unwrap_or_default().iter().zip(first.max(begin) - begin..);
        slots.filter_map(move |(slot, at)| Some((begin + at, slot.as_ref()?)))
    }

    /// A block of it on the device that is outside of this area.
    pub(crate) fn block_outside(&self, area: Run) -> Option<u64> {
        let mut devices = self.slots.iter().flatten().filter_map(Slot::device);
        devices.find(|device| !area.blocks().contains(&{ device.block })).map(|device| device.block)
    }

    /// About the bytes of memory that it takes.
    pub(crate) const fn bytes(&self) -> usize {
        PAGE_BYTES + self.slots.len() * size_of::<Option<Slot>>()
    }
}

impl Weigh for Arc<Page> {
    fn weight(&self) -> usize {
        self.bytes()
    }
}
