//! [`CleanRecords`]: records of objects that are in memory as the KV store has them, within one limit: an object's own, with page 0 of its
//! blocks, and its further pages, each by itself. The least used go first, nearly.

use crate::blocks::INLINE_PAGE;
use crate::clock_cache::Clock;
use crate::memtable::Weigh;
use crate::onode::Onode;
use crate::page::Page;
use crate::page_set::PageSet;
use std::sync::Arc;

/// Number of the object, and of the page; [`INLINE_PAGE`] for its own record.
type RecordKey = (u64, u32);

impl Weigh for RecordKey {
    fn weight(&self) -> usize {
        size_of::<Self>()
    }
}

#[derive(Clone, Debug)]
enum Record {
    Own(Arc<Onode>),
    Page(Arc<Page>),
}

impl Weigh for Record {
    fn weight(&self) -> usize {
        match self {
            Self::Own(onode) => onode.weight(),
            Self::Page(page) => page.weight(),
        }
    }
}

/// A page is here only while it is with no object that was changed: see [`crate::blocks`].
#[derive(Debug)]
pub(crate) struct CleanRecords(Clock<RecordKey, Record>);

impl CleanRecords {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self(Clock::new(bytes_max))
    }

    pub(crate) fn onode(&self, object: u64) -> Option<Arc<Onode>> {
        match self.0.get(&(object, INLINE_PAGE))? {
            Record::Own(onode) => Some(onode),
            Record::Page(_) => None,
        }
    }

    pub(crate) fn page(&self, object: u64, number: u32) -> Option<Arc<Page>> {
        match self.0.get(&(object, number))? {
            Record::Page(page) => Some(page),
            Record::Own(_) => None,
        }
    }

    pub(crate) fn keep_onode(&mut self, object: u64, onode: Arc<Onode>) {
        self.0.insert((object, INLINE_PAGE), Record::Own(onode));
    }

    pub(crate) fn keep_page(&mut self, object: u64, number: u32, page: Arc<Page>) {
        self.0.insert((object, number), Record::Page(page));
    }

    /// The object's own record; its pages stay.
    pub(crate) fn forget_onode(&mut self, object: u64) {
        self.0.remove(&(object, INLINE_PAGE));
    }

    pub(crate) fn forget_pages(&mut self, object: u64, pages: &PageSet) {
        pages.numbers().for_each(|number| self.0.remove(&(object, number)));
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// The pages with their objects and numbers, in no order.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (RecordKey, &Arc<Page>)> {
        self.0.iter().filter_map(|(key, record)| match record {
            Record::Page(page) => Some((*key, page)),
            Record::Own(_) => None,
        })
    }
}
