//! [`Blocks`]: where the blocks of an object are, by index, in pages.
//!
//! An object that a checkpoint has, and that is changed meanwhile, must exist twice. With pages only what is changed does; a checkpoint
//! passes over pages that have no blocks in memory as it looks for those, and writes the pages that were changed since the one before.
//!
//! Time is counted in *periods* for that: one ends with the cut of a checkpoint, which takes all that was changed in it. The entry of a page
//! says in which one it was changed last. So a page that an older copy of the object has as well need not be touched to be told that it has
//! been written.

use crate::device::DeviceBlock;
use crate::dirty::Dirty;
use crate::slot::Slot;
use std::sync::Arc;

/// Blocks of a page: 128 KiB of an object. Unit tests have small objects, which are to have several pages.
pub(crate) const PAGE_BLOCKS: u32 = if cfg!(test) { 4 } else { 32 };

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

#[derive(Clone, Debug)]
struct Entry {
    number: u32,
    /// The period in which it was changed last; 0 for one that was read.
    changed: Period,
    page: Arc<Page>,
}

/// What is between two cuts of checkpoints, counted from 1 on since the store was opened.
pub(crate) type Period = u32;

/// Number of the page that is stored within the object's own record.
pub(crate) const INLINE_PAGE: u32 = 0;

/// Slots by index; what is absent is a hole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    /// Ascending by number. One without slots may have a record in the KV store, which the next checkpoint deletes.
    pages: Vec<Entry>,
    count: usize,
    /// The KV store has records of the pages that were not changed since the last checkpoint. Otherwise it has none, or the running
    /// checkpoint writes them: the object was made since, or has its pages within its own record, as in format 2.
    is_stored: bool,
}

/// Pages whose numbers follow one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageRun {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// A page as a checkpoint has to write it.
pub(crate) enum StoredPage<'a> {
    /// With these slots, by place in the page; in the object's own record for page 0, else in one of its own.
    Slots(u32, &'a [Option<Slot>]),
    /// Its record goes.
    Gone(u32),
}

impl Blocks {
    fn find(&self, page: u32) -> Result<usize, usize> {
        // Most objects have all of their pages.
        match self.pages.get(page as usize) {
            Some(entry) if entry.number == page => Ok(page as usize),
            _ => self.pages.binary_search_by_key(&page, |entry| entry.number),
        }
    }

    fn page(&self, page: u32) -> Option<&Arc<Page>> {
        self.pages.get(self.find(page).ok()?).map(|entry| &entry.page)
    }

    /// Slots that are there.
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Slot> {
        self.page(page_of(index))?.get(within(index))
    }

    /// The block, if it is in memory, to be changed in this period; 0 where what is stored stays the same.
    pub(crate) fn in_memory_mut(&mut self, index: u32, period: Period) -> Option<&mut Arc<Dirty>> {
        if !matches!(self.get(index), Some(Slot::Memory(_))) {
            return None;
        }
        let at = self.find(page_of(index)).ok()?;
        let entry = self.pages.get_mut(at)?;
        entry.changed = entry.changed.max(period);
        match Arc::make_mut(&mut entry.page).slots.get_mut(within(index)) {
            Some(Some(Slot::Memory(dirty))) => Some(dirty),
            _ => None,
        }
    }

    /// Sets a slot in this period and gives the one that was there.
    pub(crate) fn insert(&mut self, index: u32, slot: Slot, period: Period) -> Option<Slot> {
        let number = page_of(index);
        let at = self.find(number).unwrap_or_else(|at| {
            if self.pages.is_empty() {
                self.pages.reserve_exact(1);
            }
            self.pages.insert(at, Entry { number, changed: 0, page: Arc::default() });
            at
        });
        let entry = self.pages.get_mut(at)?;
        entry.changed = entry.changed.max(period);
        let old = Arc::make_mut(&mut entry.page).set(within(index), Some(slot));
        self.count += usize::from(old.is_none());
        old
    }

    /// A checkpoint has brought a block home: its page, as that checkpoint has stored it, says so already.
    pub(crate) fn came_home(&mut self, index: u32, home: DeviceBlock) {
        self.insert(index, Slot::Device(home), 0);
    }

    /// Removes the slots from `first` up to `end`, or all behind it, in this period, and hands them to `removed`.
    pub(crate) fn remove(
        &mut self,
        first: u32,
        end: Option<u32>,
        period: Period,
        mut removed: impl FnMut(&Slot),
    ) {
        if end.is_some_and(|end| end <= first) {
            return;
        }
        let last = end.map_or(u32::MAX, |end| end - 1);
        let indexes: Vec<u32> = self.range(first, last).map(|(index, _)| index).collect();
        for same_page in indexes.chunk_by(|a, b| page_of(*a) == page_of(*b)) {
            let Some(at) = same_page.first().and_then(|index| self.find(page_of(*index)).ok()) else {
                continue;
            };
            let Some(entry) = self.pages.get_mut(at) else { continue };
            entry.changed = entry.changed.max(period);
            let page = Arc::make_mut(&mut entry.page);
            same_page
                .iter()
                .filter_map(|index| page.set(within(*index), None))
                .for_each(|slot| removed(&slot));
            if page.count > 0 {
                continue;
            }
            if entry.number == INLINE_PAGE {
                self.pages.remove(at);
            } else {
                entry.page = Arc::default();
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
            let from = self.pages.partition_point(|entry| entry.number < page_of(start));
            let pages = self.pages.iter().skip(from).take_while(move |entry| entry.number <= page_of(end));
            pages
                .flat_map(|entry| entry.page.iter(entry.number))
                .filter(move |(index, _)| range.contains(index))
        });
        one.map(|slot| (first, slot)).into_iter().chain(many)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Slot)> {
        self.pages.iter().flat_map(|entry| entry.page.iter(entry.number))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Slot> {
        self.iter().map(|(_, slot)| slot)
    }

    /// The blocks in memory.
    pub(crate) fn in_memory(&self) -> impl Iterator<Item = (u32, &Arc<Dirty>)> {
        let pages = self.pages.iter().filter(|entry| entry.page.in_memory > 0);
        pages.flat_map(|entry| entry.page.iter(entry.number)).filter_map(|(index, slot)| match slot {
            Slot::Memory(dirty) => Some((index, dirty)),
            Slot::Device(_) => None,
        })
    }

    /// About the steps that looking for the blocks in memory takes.
    pub(crate) fn pages_count(&self) -> usize {
        self.pages.len()
    }

    /// Pages with slots that have a record of their own, as runs of their numbers.
    pub(crate) fn records(&self) -> Vec<PageRun> {
        let mut runs: Vec<PageRun> = Vec::new();
        for entry in self.pages.iter().filter(|entry| entry.number != INLINE_PAGE && entry.page.count > 0) {
            match runs.last_mut() {
                Some(run) if run.first + run.count == entry.number => run.count += 1,
                _ => runs.push(PageRun { first: entry.number, count: 1 }),
            }
        }
        runs
    }

    /// Whether the KV store may have records of pages, by what it has now and what the running checkpoint writes.
    pub(crate) fn may_have_records(&self) -> bool {
        self.pages.last().is_some_and(|entry| entry.number != INLINE_PAGE)
    }

    /// The pages that a checkpoint of this period writes, in order. Page 0 is always among them, if there is one: the record of its
    /// object is written whenever anything of the object has changed.
    pub(crate) fn to_store(&self, period: Period) -> impl Iterator<Item = StoredPage<'_>> {
        self.pages.iter().filter_map(move |entry| {
            let Entry { number, changed, page } = entry;
            if *number != INLINE_PAGE && self.is_stored && *changed != period {
                assert_eq!(page.in_memory, 0, "a block that is brought home was changed in this period");
                return None;
            }
            Some(match page.count {
                0 => StoredPage::Gone(*number),
                _ => StoredPage::Slots(*number, &page.slots),
            })
        })
    }

    /// The KV store has what a checkpoint of this period wrote. False when that changes nothing.
    pub(crate) fn is_to_settle(&self, period: Period) -> bool {
        !self.is_stored || self.pages.iter().any(|entry| entry.is_settled_by(period))
    }

    /// Takes note of that.
    pub(crate) fn settle(&mut self, period: Period) {
        self.is_stored = true;
        self.pages.retain(|entry| !entry.is_settled_by(period));
    }

    /// Those of another object that has no records yet.
    pub(crate) fn copied(&self) -> Self {
        let mut copied = Self { is_stored: false, ..self.clone() };
        copied.pages.retain(|entry| entry.page.count > 0);
        copied
    }

    /// As they were read, page by page.
    pub(crate) fn stored(slots: impl IntoIterator<Item = (u32, Slot)>) -> Self {
        Self { is_stored: true, ..slots.into_iter().collect() }
    }

    /// About the bytes of memory that the pages take.
    pub(crate) fn bytes(&self) -> usize {
        const SLOT_BYTES: usize = size_of::<Option<Slot>>();
        match self.pages.as_slice() {
            [only] => PAGE_BYTES + only.page.slots.len() * SLOT_BYTES,
            pages => pages.len() * (PAGE_BYTES + PAGE_BLOCKS as usize * SLOT_BYTES),
        }
    }

    /// The highest index.
    pub(crate) fn last(&self) -> Option<u32> {
        let last = self.pages.iter().rev().find(|entry| entry.page.count > 0)?;
        last.page.iter(last.number).last().map(|(index, _)| index)
    }
}

impl Entry {
    /// Whether it was kept only until its record is deleted, by a checkpoint of this period.
    fn is_settled_by(&self, period: Period) -> bool {
        self.page.count == 0 && self.changed <= period
    }
}

/// Of blocks that no checkpoint has written yet.
impl FromIterator<(u32, Slot)> for Blocks {
    fn from_iter<I: IntoIterator<Item = (u32, Slot)>>(slots: I) -> Self {
        let mut blocks = Self::default();
        slots.into_iter().for_each(|(index, slot)| drop(blocks.insert(index, slot, 0)));
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
                    blocks.remove(index, end, 1, |slot| removed.push(number(slot)));
                    let gone: Vec<u32> = model
                        .range(index..)
                        .map(|(index, _)| *index)
                        .filter(|index| end.is_none_or(|end| *index < end))
                        .collect();
                    let gone: Vec<u32> = gone.iter().filter_map(|index| model.remove(index)).collect();
                    assert_eq!(removed, gone);
                }
                1 => {
                    let old = blocks.insert(index, Slot::Memory(Arc::new(Dirty::over(None))), 1);
                    assert_eq!(old.as_ref().map(number), model.insert(index, u32::MAX));
                    assert!(blocks.in_memory_mut(index, 1).is_some());
                }
                _ => {
                    let old = blocks.insert(index, at_home(step), 1);
                    assert_eq!(old.as_ref().map(number), model.insert(index, step));
                    assert!(blocks.in_memory_mut(index, 1).is_none());
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
            assert!(blocks.pages.iter().all(|entry| entry.page.count > 0 || entry.number > INLINE_PAGE));
            let records = model.keys().map(|index| page_of(*index)).filter(|page| *page > INLINE_PAGE);
            let numbers = blocks.records().into_iter().flat_map(|run| run.first..run.first + run.count);
            assert!(numbers.eq(records.collect::<std::collections::BTreeSet<_>>()));
            assert_eq!(blocks.values().count(), blocks.len());
        }
    }

    /// Numbers of the pages that a checkpoint of the period writes, negative those that go.
    fn to_store(blocks: &Blocks, period: Period) -> Vec<i64> {
        let number = |page| match page {
            StoredPage::Slots(number, _) => i64::from(number),
            StoredPage::Gone(number) => -i64::from(number),
        };
        blocks.to_store(period).map(number).collect()
    }

    #[test]
    fn a_page_is_written_by_the_checkpoint_of_the_period_in_which_it_was_changed() {
        let mut blocks: Blocks = (0..5 * PAGE_BLOCKS).map(|index| (index, at_home(index))).collect();
        assert_eq!(to_store(&blocks, 1), [0, 1, 2, 3, 4], "the first one has all of it");
        let cut = blocks.clone();
        // The checkpoint runs; what is changed meanwhile is the next one's.
        blocks.insert(2 * PAGE_BLOCKS, at_home(1000), 2);
        blocks.settle(1);
        assert_eq!((to_store(&cut, 1), to_store(&blocks, 2)), (vec![0, 1, 2, 3, 4], vec![0, 2]));
        blocks.settle(2);
        assert_eq!(to_store(&blocks, 3), [0], "with the object's own record");
        blocks.came_home(2 * PAGE_BLOCKS + 1, DeviceBlock { block: 7, crc: 0 });
        assert_eq!(to_store(&blocks, 3), [0], "a block that came home is where the stored page says");
        // One without blocks goes, and is gone.
        blocks.remove(3 * PAGE_BLOCKS, Some(4 * PAGE_BLOCKS), 3, |_| ());
        assert_eq!((to_store(&blocks, 3), blocks.records().len()), (vec![0, -3], 2));
        let cut = blocks.clone();
        blocks.insert(3 * PAGE_BLOCKS + 1, at_home(2000), 4);
        blocks.settle(3);
        assert_eq!((to_store(&cut, 3), to_store(&blocks, 4)), (vec![0, -3], vec![0, 3]));
        blocks.settle(4);
        blocks.remove(PAGE_BLOCKS, None, 5, |_| ());
        assert_eq!(to_store(&blocks, 5), [0, -1, -2, -3, -4]);
        assert!(blocks.is_to_settle(5) && blocks.may_have_records());
        blocks.settle(5);
        assert!(to_store(&blocks, 6) == [0] && !blocks.is_to_settle(5) && !blocks.may_have_records());
        // Another object has nothing stored.
        blocks.insert(PAGE_BLOCKS + 2, at_home(3000), 6);
        blocks.settle(6);
        assert_eq!((to_store(&blocks, 7), to_store(&blocks.copied(), 7)), (vec![0], vec![0, 1]));
    }
}
