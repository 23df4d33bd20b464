//! [`ObjectPages`]: pages of one object's blocks that are not with it: out of the cache of clean records, or the KV store. The rules by which
//! they are there are those of [`crate::blocks`].
//!
//! One that cannot be read, or is not where the object's record says, is a failure of the store: its blocks would read as zeros.

use crate::block_page;
use crate::blocks::Blocks;
use crate::clean_records::{CleanRecords, Keep};
use crate::device::Run;
use crate::failure::Failure;
use crate::kv_schema;
use crate::objects::ReadError;
use crate::page::{Page, page_of};
use crate::page_set::PageRun;
use crate::slot::Slot;
use nacre_buf::Bytes;
use nacre_kv::KvStore;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::ops::Bound;
use std::sync::Arc;

/// Pages read at once: of an object of 4 MiB all, of a larger one no more are in memory at a time.
const PAGES_AT_ONCE: u32 = 32;

/// See the module.
#[derive(Clone, Copy)]
pub(crate) struct ObjectPages<'a> {
    /// Number of the object.
    pub(crate) object: u64,
    pub(crate) kv: &'a dyn KvStore,
    pub(crate) clean: &'a RefCell<CleanRecords>,
    /// Records that were found there, and those that were read.
    pub(crate) looked_up: &'a (Cell<u64>, Cell<u64>),
    pub(crate) failure: &'a Failure,
    /// Where blocks may be.
    pub(crate) area: Run,
}

/// Slots of a range of an object, wherever their pages are.
pub(crate) struct Slots {
    /// With their numbers, ascending.
    pages: SmallVec<[(u32, Arc<Page>); 1]>,
    first: u32,
    last: u32,
}

impl Slots {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Slot)> {
        self.pages.iter().flat_map(|(number, page)| page.between(*number, self.first, self.last))
    }
}

impl<'a> ObjectPages<'a> {
    /// Those of another object.
    pub(crate) fn of(&self, object: u64) -> Self {
        Self { object, ..*self }
    }

    /// Slots from `first` to `last`.
    pub(crate) fn range(&self, blocks: &Blocks, first: u32, last: u32) -> Slots {
        let (mut pages, number) = (SmallVec::new(), page_of(first));
        match blocks.page(number) {
            // Most reads are within one.
            Some(page) if number == page_of(last) => pages.push((number, Arc::clone(page))),
            _ => self.each_page(blocks, first, last, Keep::Yes, |number, page| {
                pages.push((number, Arc::clone(page)));
            }),
        }
        Slots { pages, first, last }
    }

    /// All slots, ascending, a few pages in memory at a time.
    pub(crate) fn each(&self, blocks: &Blocks, mut visit: impl FnMut(u32, &Slot)) {
        self.each_whole(blocks, |number, page| {
            page.iter(number).for_each(|(index, slot)| visit(index, slot));
        });
    }

    /// All pages, likewise.
    pub(crate) fn each_whole(&self, blocks: &Blocks, mut visit: impl FnMut(u32, &Page)) {
        self.each_page(blocks, 0, u32::MAX, Keep::No, |number, page| visit(number, page));
    }

    /// The blocks of another object that has the same and no records yet.
    pub(crate) fn copied(&self, blocks: &Blocks) -> Blocks {
        let mut copy = Blocks::default();
        self.each_page(blocks, 0, u32::MAX, Keep::No, |number, page| {
            if page.count() > 0 {
                copy.take_in(number, Arc::clone(page));
            }
        });
        copy
    }

    /// Puts the pages of blocks `first` to `last` with their object, which is about to change them.
    pub(crate) fn take_in(&self, blocks: &mut Blocks, first: u32, last: u32) {
        if !self.take_in_each(blocks, first, last, |_, _| ()) {
            // The store has failed; what comes now is never stored.
            let absent = blocks.absent(page_of(first), page_of(last));
            absent.numbers().for_each(|number| blocks.take_in(number, Arc::default()));
        }
    }

    /// The same page by page, for who leaves little of each: `then` is called with the number of one that was put there just now. False when
    /// one could not be read: it and those behind it are where they were.
    pub(crate) fn take_in_each(
        &self,
        blocks: &mut Blocks,
        first: u32,
        last: u32,
        mut then: impl FnMut(&mut Blocks, u32),
    ) -> bool {
        let absent = blocks.absent(page_of(first), page_of(last));
        for run in absent.runs() {
            let taken = self.walk(*run, Keep::No, &mut |number, page| {
                blocks.take_in(number, Arc::clone(page));
                then(blocks, number);
            });
            if let Err(error) = taken {
                self.failure.note(&error);
                return false;
            }
        }
        self.clean.borrow_mut().forget_pages(self.object, &absent);
        true
    }

    /// Nobody will ask for pages of the object any more.
    pub(crate) fn forget(&self, blocks: &Blocks) {
        self.clean.borrow_mut().forget_pages(self.object, &blocks.absent(0, u32::MAX));
    }

    /// Calls `visit` with the pages of blocks `first` to `last`, ascending.
    fn each_page(
        &self,
        blocks: &Blocks,
        first: u32,
        last: u32,
        keep: Keep,
        mut visit: impl FnMut(u32, &Arc<Page>),
    ) {
        let (first, last) = (page_of(first), page_of(last));
        let mut here = blocks.pages(first, last).peekable();
        for run in blocks.absent(first, last).runs() {
            while let Some((number, page)) = here.next_if(|(number, _)| *number < run.first) {
                visit(number, page);
            }
            if let Err(error) = self.walk(*run, keep, &mut visit) {
                return self.failure.note(&error);
            }
        }
        here.for_each(|(number, page)| visit(number, page));
    }

    /// Calls `visit` with each page of a run, none of which is with the object.
    fn walk(
        &self,
        run: PageRun,
        keep: Keep,
        visit: &mut impl FnMut(u32, &Arc<Page>),
    ) -> Result<(), ReadError> {
        let (hits, misses) = self.looked_up;
        let mut next = run.first;
        while next < run.end() {
            let clean = self.clean.borrow_mut().page(self.object, next, keep);
            if let Some(page) = clean {
                hits.set(hits.get() + 1);
                visit(next, &page);
                next += 1;
                continue;
            }
            let missing = ReadError::NoPage { object: self.object, page: next };
            let read = self.read(next, (run.end() - next).min(PAGES_AT_ONCE))?;
            if read.first().is_none_or(|(number, _)| *number != next) {
                return Err(missing);
            }
            for (number, value) in read {
                if number != next {
                    // The next round says that one is missing.
                    break;
                }
                misses.set(misses.get() + 1);
                let page = Arc::new(self.decode(number, &value)?);
                if keep == Keep::Yes {
                    self.clean.borrow_mut().keep_page(self.object, number, Arc::clone(&page));
                }
                visit(number, &page);
                next += 1;
            }
        }
        Ok(())
    }

    /// Records of up to `count` pages from `first` on.
    fn read(&self, first: u32, count: u32) -> Result<SmallVec<[(u32, Bytes); 1]>, ReadError> {
        let key = kv_schema::page_key(self.object, first);
        if count == 1 {
            return Ok(self.kv.get(&key)?.map(|value| (first, value)).into_iter().collect());
        }
        let last = kv_schema::page_key(self.object, first + count - 1);
        let found = self.kv.scan(Bound::Included(&key), Bound::Included(&last), count as usize)?;
        let numbered =
            |(key, value): (Bytes, Bytes)| Ok((kv_schema::decode_page_key(key.slice(1..))?.1, value));
        found.into_iter().map(numbered).collect()
    }

    fn decode(&self, number: u32, value: &Bytes) -> Result<Page, ReadError> {
        let page = block_page::decode_page(value, number)?;
        match page.block_outside(self.area) {
            Some(block) => Err(ReadError::Outside { object: self.object, block }),
            None => Ok(page),
        }
    }
}
