//! [`Blocks`]: where the blocks of an object are, by index, in pages.
//!
//! An object that a checkpoint has, and that is changed meanwhile, must exist twice. With pages only what is changed does; a checkpoint
//! passes over pages that have no blocks in memory as it looks for those, and writes the pages that were changed since the one before.
//!
//! Time is counted in *periods* for that: one ends with the cut of a checkpoint, which takes all that was changed in it. The entry of a page
//! says in which one it was changed last. So a page that an older copy of the object has as well need not be touched to be told that it has
//! been written.
//!
//! # Which pages are here
//!
//! ```text
//!                  with the object     cache of clean records     KV store
//!  page 0          always, if any      with the object            within the object's own record
//!  not changed     -                   perhaps                    as it is: listed in `stored`
//!  changed         always              -                          older, or none
//!  emptied         always, empty       -                          older, or none
//!                       |                   ^                          ^
//!                       |                   |  settle                  |  commit
//!                       '-------------------'--------------------------'
//! ```
//!
//! * A page that is not here and not listed in `stored` has no blocks. One that is not here and listed is in the KV store, byte for byte, for
//!   as long as it is not here: a checkpoint writes pages that are here only. [`crate::object_pages`] gives it to readers, and puts it here
//!   ([`Blocks::take_in`]) before it is changed. To look for a block of it before that is a mistake, which panics: it would read as zeros.
//! * A page that was changed stays here until a checkpoint that has the change is committed and its blocks are home. Only
//!   [`Blocks::settle`] gives pages away, at that moment; they are clean from then on, may go from memory, and are with nobody else.
//! * An object has all of its pages here until the KV store has its records in pages: one that was made since the last checkpoint, a clone,
//!   one that was read in format 2.
//! * A running checkpoint has the object as it was at its cut, with the pages that were changed before it. Who changes the object meanwhile
//!   has them too, as a copy that shares what is not changed again, and takes in others by itself: they are not the checkpoint's.

use crate::blob::{Blob, Place};
use crate::dirty::Dirty;
use crate::page::{PAGE_BLOCKS, Page, page_of, within};
use crate::page_set::PageSet;
use crate::slot::Slot;
use std::sync::Arc;

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
    /// Those that are here, ascending by number. One without slots may have a record in the KV store, which the next checkpoint deletes.
    pages: Vec<Entry>,
    /// Pages with a record of their own in the KV store; counts for those that are not here.
    stored: PageSet,
    /// The KV store has records of the pages that were not changed since the last checkpoint. Otherwise it has none, or the running
    /// checkpoint writes them: the object was made since, or has its pages within its own record, as in format 2.
    is_stored: bool,
}

/// A page as a checkpoint has to write it.
pub(crate) enum StoredPage<'a> {
    /// With these slots, by place in the page; in the object's own record for page 0, else in one of its own.
    Slots(u32, &'a [Option<Slot>]),
    /// Its record goes.
    Gone(u32),
}

impl Blocks {
    /// As they were read: the blocks of page 0, and of others that are to be here from the beginning.
    pub(crate) fn stored(slots: impl IntoIterator<Item = (u32, Slot)>, stored: PageSet) -> Self {
        Self { stored, is_stored: true, ..slots.into_iter().collect() }
    }

    fn find(&self, page: u32) -> Result<usize, usize> {
        // Small objects, and those that are written from their beginning on, have all of their pages here.
        match self.pages.get(page as usize) {
            Some(entry) if entry.number == page => Ok(page as usize),
            _ => self.pages.binary_search_by_key(&page, |entry| entry.number),
        }
    }

    /// A page, if it is here.
    pub(crate) fn page(&self, page: u32) -> Option<&Arc<Page>> {
        self.pages.get(self.find(page).ok()?).map(|entry| &entry.page)
    }

    /// The pages from `first` to `last` that are here, with their numbers, ascending.
    pub(crate) fn pages(&self, first: u32, last: u32) -> impl Iterator<Item = (u32, &Arc<Page>)> {
        let from = self.pages.partition_point(|entry| entry.number < first);
        let pages = self.pages.iter().skip(from).take_while(move |entry| entry.number <= last);
        pages.map(|entry| (entry.number, &entry.page))
    }

    /// The pages from `first` to `last` that are in the KV store and not here.
    pub(crate) fn absent(&self, first: u32, last: u32) -> PageSet {
        if first == last && self.find(first).is_ok() {
            return PageSet::default();
        }
        let mut absent = self.stored.between(first, last);
        if !absent.is_empty() {
            self.pages(first, last).for_each(|(number, _)| absent.remove(number));
        }
        absent
    }

    /// Puts a page here as it is in the KV store.
    pub(crate) fn take_in(&mut self, number: u32, page: Arc<Page>) {
        if let Err(at) = self.find(number) {
            self.pages.insert(at, Entry { number, changed: 0, page });
        }
    }

    /// The block of a page that is here.
    pub(crate) fn get(&self, index: u32) -> Option<&Slot> {
        let number = page_of(index);
        let Some(page) = self.page(number) else {
            assert!(!self.stored.contains(number), "page {number} is looked for where it is not");
            return None;
        };
        page.get(within(index))
    }

    /// The block, if it is in memory, to be changed in this period; 0 where what is stored stays the same.
    pub(crate) fn in_memory_mut(&mut self, index: u32, period: Period) -> Option<&mut Arc<Dirty>> {
        if !matches!(self.get(index), Some(Slot::Memory(_))) {
            return None;
        }
        let at = self.find(page_of(index)).ok()?;
        let entry = self.pages.get_mut(at)?;
        entry.changed = entry.changed.max(period);
        match Arc::make_mut(&mut entry.page).get_mut(within(index)) {
            Some(Slot::Memory(dirty)) => Some(dirty),
            _ => None,
        }
    }

    /// Sets a slot in this period, of a page that is here or nowhere, and gives the one that was there.
    pub(crate) fn insert(&mut self, index: u32, slot: Slot, period: Period) -> Option<Slot> {
        let number = page_of(index);
        let at = self.find(number).unwrap_or_else(|at| {
            assert!(!self.stored.contains(number), "page {number} is changed where it is not");
            if self.pages.is_empty() {
                self.pages.reserve_exact(1);
            }
            self.pages.insert(at, Entry { number, changed: 0, page: Arc::default() });
            at
        });
        let entry = self.pages.get_mut(at)?;
        entry.changed = entry.changed.max(period);
        Arc::make_mut(&mut entry.page).set(within(index), Some(slot))
    }

    /// A checkpoint has brought a block home: its page, as that checkpoint has stored it, says so already.
    pub(crate) fn came_home(&mut self, index: u32, home: Place) {
        self.insert(index, home.into(), 0);
    }

    /// Whether a block of the page of this one, which is here, is in a blob, not only in memory above it.
    pub(crate) fn has_in(&self, index: u32, blob: &Blob) -> bool {
        self.page(page_of(index)).is_some_and(|page| page.has_in(blob))
    }

    /// Whether the page of a block, which is here or nowhere, needs a blob.
    pub(crate) fn uses(&self, index: u32, blob: &Blob) -> bool {
        self.page(page_of(index)).is_some_and(|page| page.uses(blob))
    }

    /// Removes the slots from `first` to `last` of the pages that are here, in this period, and hands them to `removed`, each
    /// with whether its page needs the blob no more that it needed, if it did.
    pub(crate) fn remove(
        &mut self,
        first: u32,
        last: u32,
        period: Period,
        mut removed: impl FnMut(&Slot, bool),
    ) {
        let mut at = self.pages.partition_point(|entry| entry.number < page_of(first));
        while let Some(entry) = self.pages.get_mut(at).filter(|entry| entry.number <= page_of(last)) {
            at += 1;
            let indexes: Vec<u32> =
                entry.page.between(entry.number, first, last).map(|(index, _)| index).collect();
            if indexes.is_empty() {
                continue;
            }
            entry.changed = entry.changed.max(period);
            let page = Arc::make_mut(&mut entry.page);
            for index in indexes {
                let Some(slot) = page.set(within(index), None) else { continue };
                removed(&slot, slot.blob().is_some_and(|blob| !page.uses(blob)));
            }
            if page.count() > 0 {
                continue;
            }
            if entry.number == INLINE_PAGE {
                at -= 1;
                self.pages.remove(at);
            } else {
                entry.page = Arc::default();
            }
        }
    }

    /// The blocks in memory, all of which are here.
    pub(crate) fn in_memory(&self) -> impl Iterator<Item = (u32, &Arc<Dirty>)> {
        let pages = self.pages.iter().filter(|entry| entry.page.in_memory() > 0);
        pages.flat_map(|entry| entry.page.iter(entry.number)).filter_map(|(index, slot)| match slot {
            Slot::Memory(dirty) => Some((index, dirty)),
            Slot::Device(_) | Slot::Blob(..) => None,
        })
    }

    /// The slots of pages that are here.
    pub(crate) fn here(&self) -> impl Iterator<Item = (u32, &Slot)> {
        self.pages.iter().flat_map(|entry| entry.page.iter(entry.number))
    }

    /// About the steps that looking for the blocks in memory takes.
    pub(crate) fn pages_count(&self) -> usize {
        self.pages.len()
    }

    /// Pages with slots that have a record of their own, once all that is here is stored.
    pub(crate) fn records(&self) -> PageSet {
        let mut records = self.stored.clone();
        for entry in self.pages.iter().filter(|entry| entry.number != INLINE_PAGE) {
            match entry.page.count() {
                0 => records.remove(entry.number),
                _ => records.insert(entry.number),
            }
        }
        records
    }

    /// Whether the KV store may have records of pages, by what it has now and what the running checkpoint writes.
    pub(crate) fn may_have_records(&self) -> bool {
        !self.stored.is_empty() || self.pages.last().is_some_and(|entry| entry.number != INLINE_PAGE)
    }

    /// Whether the KV store has each page but the first by itself, and the object's own record says which: then that record is all there
    /// is of an object that is clean.
    pub(crate) fn is_stored_in_pages(&self) -> bool {
        self.is_stored && self.pages.iter().all(|entry| entry.number == INLINE_PAGE)
    }

    /// The pages that a checkpoint of this period writes, in order. Page 0 is always among them, if there is one: the record of its
    /// object is written whenever anything of the object has changed.
    pub(crate) fn to_store(&self, period: Period) -> impl Iterator<Item = StoredPage<'_>> {
        self.pages.iter().filter_map(move |entry| {
            let Entry { number, changed, page } = entry;
            if *number != INLINE_PAGE && self.is_stored && *changed != period {
                assert_eq!(page.in_memory(), 0, "a block that is brought home was changed in this period");
                return None;
            }
            Some(match page.count() {
                0 => StoredPage::Gone(*number),
                _ => StoredPage::Slots(*number, page.slots()),
            })
        })
    }

    /// The KV store has what a checkpoint of this period wrote. False when that changes nothing.
    pub(crate) fn is_to_settle(&self, period: Period) -> bool {
        !self.is_stored || self.pages.iter().any(|entry| entry.is_settled_by(period))
    }

    /// Takes note of that, after all of its blocks came home, and gives the pages away that are as the KV store has them.
    pub(crate) fn settle(&mut self, period: Period) -> Vec<(u32, Arc<Page>)> {
        self.is_stored = true;
        let (mut clean, stored) = (Vec::new(), &mut self.stored);
        self.pages.retain_mut(|entry| {
            if !entry.is_settled_by(period) {
                return true;
            }
            assert_eq!(entry.page.in_memory(), 0, "page {} has blocks that are not home", entry.number);
            if entry.page.count() == 0 {
                stored.remove(entry.number);
            } else {
                stored.insert(entry.number);
                clean.push((entry.number, std::mem::take(&mut entry.page)));
            }
            false
        });
        self.pages.shrink_to_fit();
        clean
    }

    /// A mistake that tests must find: pages that were changed go as if they were clean.
    pub(crate) fn lose_changed(&mut self) {
        self.pages.retain(|entry| entry.number == INLINE_PAGE || entry.page.in_memory() > 0);
    }

    /// About the bytes of memory that the pages take that are here.
    pub(crate) fn bytes(&self) -> usize {
        let pages = match self.pages.as_slice() {
            [only] => only.page.bytes(),
            pages => {
                pages.len() * (Page::default().bytes() + PAGE_BLOCKS as usize * size_of::<Option<Slot>>())
            }
        };
        pages + self.stored.bytes()
    }
}

impl Entry {
    /// Whether the KV store has it as it is, once it has what a checkpoint of this period wrote.
    const fn is_settled_by(&self, period: Period) -> bool {
        self.number != INLINE_PAGE && self.changed <= period
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
mod tests;
