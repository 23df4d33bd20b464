//! [`Blocks`]: where the blocks of an object are, by index, in pages.
//!
//! An object that a checkpoint has, and that is changed meanwhile, must exist twice. With pages only what is changed does, and a
//! checkpoint, which wants the blocks in memory only, passes over pages that have none.

use crate::dirty::Dirty;
use crate::slot::Slot;
use std::sync::Arc;

/// Blocks of a page: 128 KiB of an object.
const PAGE_BLOCKS: u32 = 32;

/// About the bytes of a page without its slots.
const PAGE_BYTES: usize = 96;

const fn page_of(index: u32) -> u32 {
    index / PAGE_BLOCKS
}

const fn within(index: u32) -> usize {
    (index % PAGE_BLOCKS) as usize
}

/// As long as its last block needs.
#[derive(Clone, Debug, Default)]
struct Page {
    slots: Vec<Option<Slot>>,
    /// Slots that are there, and those of them in memory.
    count: usize,
    in_memory: usize,
}

impl Page {
    fn counted(slot: &Slot) -> usize {
        usize::from(matches!(slot, Slot::Memory(_)))
    }

    fn set(&mut self, at: usize, slot: Option<Slot>) -> Option<Slot> {
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

    fn get(&self, at: usize) -> Option<&Slot> {
        self.slots.get(at)?.as_ref()
    }

    /// The slots that are there, with their indexes; the page is number `nth`.
    fn iter(&self, nth: u32) -> impl Iterator<Item = (u32, &Slot)> {
        let slots = self.slots.iter().zip(0..);
        slots.filter_map(move |(slot, at)| Some((nth * PAGE_BLOCKS + at, slot.as_ref()?)))
    }
}

/// Slots by index; what is absent is a hole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    /// Ascending by number, none without slots.
    pages: Vec<(u32, Arc<Page>)>,
    count: usize,
}

impl Blocks {
    fn find(&self, page: u32) -> Result<usize, usize> {
        // Most objects have all of their pages.
        match self.pages.get(page as usize) {
            Some((number, _)) if *number == page => Ok(page as usize),
            _ => self.pages.binary_search_by_key(&page, |(number, _)| *number),
        }
    }

    fn page(&self, page: u32) -> Option<&Arc<Page>> {
        self.pages.get(self.find(page).ok()?).map(|(_, page)| page)
    }

    /// Slots that are there.
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Slot> {
        self.page(page_of(index))?.get(within(index))
    }

    /// The block, if it is in memory, to be changed.
    pub(crate) fn in_memory_mut(&mut self, index: u32) -> Option<&mut Arc<Dirty>> {
        if !matches!(self.get(index), Some(Slot::Memory(_))) {
            return None;
        }
        let at = self.find(page_of(index)).ok()?;
        let (_, page) = self.pages.get_mut(at)?;
        match Arc::make_mut(page).slots.get_mut(within(index)) {
            Some(Some(Slot::Memory(dirty))) => Some(dirty),
            _ => None,
        }
    }

    /// Sets a slot and gives the one that was there.
    pub(crate) fn insert(&mut self, index: u32, slot: Slot) -> Option<Slot> {
        let number = page_of(index);
        let at = self.find(number).unwrap_or_else(|at| {
            if self.pages.is_empty() {
                self.pages.reserve_exact(1);
            }
            self.pages.insert(at, (number, Arc::default()));
            at
        });
        let (_, page) = self.pages.get_mut(at)?;
        let old = Arc::make_mut(page).set(within(index), Some(slot));
        self.count += usize::from(old.is_none());
        old
    }

    /// Removes the slots from `first` up to `end`, or all behind it, and hands them to `removed`.
    pub(crate) fn remove(&mut self, first: u32, end: Option<u32>, mut removed: impl FnMut(&Slot)) {
        if end.is_some_and(|end| end <= first) {
            return;
        }
        let last = end.map_or(u32::MAX, |end| end - 1);
        let indexes: Vec<u32> = self.range(first, last).map(|(index, _)| index).collect();
        for same_page in indexes.chunk_by(|a, b| page_of(*a) == page_of(*b)) {
            let Some(at) = same_page.first().and_then(|index| self.find(page_of(*index)).ok()) else {
                continue;
            };
            let Some((_, page)) = self.pages.get_mut(at) else { continue };
            let page = Arc::make_mut(page);
            same_page
                .iter()
                .filter_map(|index| page.set(within(*index), None))
                .for_each(|slot| removed(&slot));
            if page.count == 0 {
                self.pages.remove(at);
            }
        }
        self.count -= indexes.len();
    }

    /// Slots from `first` to `last`.
    pub(crate) fn range(&self, first: u32, last: u32) -> impl Iterator<Item = (u32, &Slot)> {
        // A single one, which most reads are about, is looked up and no more.
        let (one, many) = if first == last { (self.get(first), None) } else { (None, Some(first..=last)) };
        let many = many.into_iter().flat_map(|range| {
            let (start, end) = (*range.start(), *range.end());
            let from = self.pages.partition_point(|(number, _)| *number < page_of(start));
            let pages = self.pages.iter().skip(from).take_while(move |(number, _)| *number <= page_of(end));
            pages
                .flat_map(|(number, page)| page.iter(*number))
                .filter(move |(index, _)| range.contains(index))
        });
        one.map(|slot| (first, slot)).into_iter().chain(many)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Slot)> {
        self.pages.iter().flat_map(|(number, page)| page.iter(*number))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Slot> {
        self.iter().map(|(_, slot)| slot)
    }

    /// The blocks in memory.
    pub(crate) fn in_memory(&self) -> impl Iterator<Item = (u32, &Arc<Dirty>)> {
        let pages = self.pages.iter().filter(|(_, page)| page.in_memory > 0);
        pages.flat_map(|(number, page)| page.iter(*number)).filter_map(|(index, slot)| match slot {
            Slot::Memory(dirty) => Some((index, dirty)),
            Slot::Device(_) => None,
        })
    }

    /// About the steps that looking for the blocks in memory takes.
    pub(crate) fn pages_count(&self) -> usize {
        self.pages.len()
    }

    /// About the bytes of memory that the pages take.
    pub(crate) fn bytes(&self) -> usize {
        const SLOT_BYTES: usize = size_of::<Option<Slot>>();
        match self.pages.as_slice() {
            [(_, only)] => PAGE_BYTES + only.slots.len() * SLOT_BYTES,
            pages => pages.len() * (PAGE_BYTES + PAGE_BLOCKS as usize * SLOT_BYTES),
        }
    }

    /// The highest index.
    pub(crate) fn last(&self) -> Option<u32> {
        self.pages.last().and_then(|(number, page)| page.iter(*number).last()).map(|(index, _)| index)
    }
}

impl FromIterator<(u32, Slot)> for Blocks {
    fn from_iter<I: IntoIterator<Item = (u32, Slot)>>(slots: I) -> Self {
        let mut blocks = Self::default();
        slots.into_iter().for_each(|(index, slot)| drop(blocks.insert(index, slot)));
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceBlock;
    use std::collections::BTreeMap;

    fn at_home(block: u32) -> Slot {
        Slot::Device(DeviceBlock { block, crc: 0 })
    }

    fn number(slot: &Slot) -> u32 {
        slot.device().map_or(u32::MAX, |device| device.block)
    }

    /// The same as a map by index, whatever is done, and a copy stays as it was.
    #[test]
    fn is_a_map_whose_copies_do_not_change() {
        let (mut blocks, mut model, mut seed) = (Blocks::default(), BTreeMap::new(), 7_u32);
        let mut next = |bound: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 16) % bound
        };
        let mut copies = Vec::new();
        for step in 0..4000 {
            let index = if next(50) == 0 { u32::MAX - next(40) } else { next(300) };
            match next(8) {
                0 => {
                    let end = (next(4) > 0).then(|| index.saturating_add(next(90)));
                    let mut removed = Vec::new();
                    blocks.remove(index, end, |slot| removed.push(number(slot)));
                    let gone: Vec<u32> = model
                        .range(index..)
                        .map(|(index, _)| *index)
                        .filter(|index| end.is_none_or(|end| *index < end))
                        .collect();
                    let gone: Vec<u32> = gone.iter().filter_map(|index| model.remove(index)).collect();
                    assert_eq!(removed, gone);
                }
                1 => {
                    let old = blocks.insert(index, Slot::Memory(Arc::new(Dirty::over(None))));
                    assert_eq!(old.as_ref().map(number), model.insert(index, u32::MAX));
                    assert!(blocks.in_memory_mut(index).is_some());
                }
                _ => {
                    let old = blocks.insert(index, at_home(step));
                    assert_eq!(old.as_ref().map(number), model.insert(index, step));
                    assert!(blocks.in_memory_mut(index).is_none());
                }
            }
            if step % 500 == 0 {
                copies.push((blocks.clone(), model.clone()));
            }
            let last = index.saturating_add(next(100));
            let found: Vec<_> =
                blocks.range(index, last).map(|(index, slot)| (index, number(slot))).collect();
            assert!(found.into_iter().eq(model.range(index..=last).map(|(index, block)| (*index, *block))));
            assert_eq!(blocks.get(index).map(number), model.get(&index).copied());
            assert_eq!((blocks.len(), blocks.last()), (model.len(), model.keys().last().copied()));
        }
        copies.push((blocks, model));
        for (blocks, model) in copies {
            let found = blocks.iter().map(|(index, slot)| (index, number(slot)));
            assert!(found.eq(model.iter().map(|(index, block)| (*index, *block))));
            let in_memory = blocks.in_memory().map(|(index, _)| index);
            assert!(
                in_memory.eq(model.iter().filter(|(_, block)| **block == u32::MAX).map(|(index, _)| *index))
            );
            assert!(blocks.pages.iter().all(|(_, page)| page.count > 0));
            assert_eq!(blocks.values().count(), blocks.len());
        }
    }
}
