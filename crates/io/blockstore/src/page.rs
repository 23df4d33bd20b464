//! [`Page`]: the blocks of a part of an object.

use crate::blob::Blob;
use crate::device::Run;
use crate::memtable::Weigh;
use crate::slot::Slot;
use smallvec::SmallVec;
use std::sync::Arc;

pub(crate) use crate::PAGE_BLOCKS;

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
    /// A slot was set that needs a blob; it may be gone.
    had_blobs: bool,
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
            self.had_blobs |= slot.blob().is_some();
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

    /// Whether a slot of it needs this blob.
    pub(crate) fn uses(&self, blob: &Blob) -> bool {
        self.had_blobs && self.needed().any(|needed| needed.first() == blob.first())
    }

    /// Whether a slot of it is in this blob.
    pub(crate) fn has_in(&self, blob: &Blob) -> bool {
        let is_in = |slot: &Slot| matches!(slot, Slot::Blob(known, _) if known.first() == blob.first());
        self.had_blobs && self.slots.iter().flatten().any(is_in)
    }

    /// The blobs that slots of it need, each once.
    pub(crate) fn blobs(&self) -> SmallVec<[Arc<Blob>; 2]> {
        let mut blobs = SmallVec::<[Arc<Blob>; 2]>::new();
        if !self.had_blobs {
            return blobs;
        }
        for blob in self.needed() {
            if blobs.iter().all(|known| known.first() != blob.first()) {
                blobs.push(Arc::clone(blob));
            }
        }
        blobs
    }

    /// The same, each with the index of the first block that needs it; the page is number `nth`.
    pub(crate) fn blobs_with_places(&self, nth: u32) -> Vec<(u32, Arc<Blob>)> {
        let needs =
            |slot: &Slot, blob: &Blob| slot.blob().is_some_and(|needed| needed.first() == blob.first());
        let place = |blob: Arc<Blob>| {
            let first = self.iter(nth).find(|(_, slot)| needs(slot, &blob)).map(|(index, _)| index)?;
            Some((first, blob))
        };
        self.blobs().into_iter().filter_map(place).collect()
    }

    /// Places of slots that are in blobs of which the page has less than they cost. `is_shared` says of a blob whether other objects need it
    /// as well: then it stays on the device anyway, and no more of it than half of what it costs is little.
    pub(crate) fn dear_places(&self, is_shared: impl Fn(&Blob) -> bool) -> SmallVec<[usize; 4]> {
        let mut places = SmallVec::new();
        for blob in self.blobs() {
            let is_in = |slot: &Slot| matches!(slot, Slot::Blob(known, _) if known.first() == blob.first());
            let slots = self.slots.iter().enumerate();
            let within = slots.filter(|(_, slot)| slot.as_ref().is_some_and(is_in)).map(|(at, _)| at);
            let within: SmallVec<[usize; 16]> = within.collect();
            let (count, cost) = (within.len(), blob.stored().len());
            let is_dear = if is_shared(&blob) { 2 * count <= cost } else { count < cost };
            if is_dear {
                places.extend(within);
            }
        }
        places
    }

    /// The blob that each slot needs that needs one.
    fn needed(&self) -> impl Iterator<Item = &Arc<Blob>> {
        self.slots.iter().flatten().filter_map(Slot::blob)
    }

    /// A block of it on the device that is outside of this area.
    pub(crate) fn block_outside(&self, area: Run) -> Option<u64> {
        let mut devices = self.slots.iter().flatten().filter_map(Slot::device);
        let outside =
            devices.find(|device| !area.blocks().contains(&{ device.block })).map(|device| device.block);
        outside.or_else(|| self.blobs().iter().find_map(|blob| blob.block_outside(area)))
    }

    /// About the bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let blobs: usize = self.blobs().iter().map(|blob| blob.memory_bytes()).sum();
        PAGE_BYTES + self.slots.len() * size_of::<Option<Slot>>() + blobs
    }
}

impl Weigh for Arc<Page> {
    fn weight(&self) -> usize {
        self.bytes()
    }
}
