//! [`CleanRecords`]: records of objects that are in memory as the KV store has them, within one limit: an object's own, with page 0 of its
//! blocks, and its further pages, each by itself. The least used go first, nearly.
//!
//! Most of them are *packed*, in the bytes that the KV store has. An object of 4 KiB takes half of what it takes as it is used or less, and
//! to unpack it takes a microsecond where the KV store takes ten or more, and waits for the device. What was used last is kept unpacked:
//!
//! ```text
//!            read, or written by a checkpoint
//!                          v
//!   used again <->  unpacked, an eighth  -- least used -->  packed, the rest  -- least used -->  in the KV store only
//!                          ^---- used: a copy, the packed stays ----'
//! ```
//!
//! Where more objects are used than have room unpacked, each is unpacked for each use. So a packed record stays beside the copy that is
//! unpacked from it, and the copy is dropped when it goes, also where the packed one went before it; only a record that was never packed
//! is packed then.

use crate::block_page;
use crate::blocks::INLINE_PAGE;
use crate::clock_cache::Clock;
use crate::memtable::Weigh;
use crate::objects::PageBlocks;
use crate::onode::{Onode, OwnRecord};
use crate::page::Page;
use crate::page_set::PageSet;
use nacre_buf::Bytes;
use std::sync::Arc;

/// Of the limit, what is for unpacked records.
const UNPACKED_DIVISOR: usize = 8;

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

impl Record {
    /// As the KV store has it; `None` for an object whose blocks are stored as programs did that knew no pages.
    fn pack(&self) -> Option<Box<[u8]>> {
        match self {
            Self::Own(onode) if onode.blocks.is_stored_in_pages() => {
                Some(onode.pack(&blocks_of(onode.blocks.page(INLINE_PAGE).map(Arc::as_ref))?))
            }
            Self::Own(_) => None,
            Self::Page(page) => Some(block_page::encode_record(&blocks_of(Some(page))?).as_ref().into()),
        }
    }

    fn unpack((object, number): RecordKey, packed: Box<[u8]>) -> Option<Self> {
        let packed = Bytes::from(packed);
        let unpacked = match number {
            INLINE_PAGE => {
                OwnRecord::decode(object, packed).map(|own| Self::Own(Arc::new(own.without_pages())))
            }
            _ => block_page::decode_page(&packed, number).map(|page| Self::Page(Arc::new(page))),
        };
        debug_assert!(unpacked.is_ok(), "packed by this program: {unpacked:?}");
        unpacked.ok()
    }
}

/// Blocks of a page with their places, all of them on the device, as those of a clean one are.
fn blocks_of(page: Option<&Page>) -> Option<PageBlocks> {
    let Some(page) = page else { return Some(PageBlocks::new()) };
    (page.in_memory() == 0).then(|| page.iter(0).filter_map(|(at, slot)| Some((at, slot.place()?))).collect())
}

/// A record as it is used, and whether it was unpacked from one that was packed.
#[derive(Clone, Debug)]
struct Unpacked {
    record: Record,
    is_copy: bool,
}

impl Weigh for Unpacked {
    fn weight(&self) -> usize {
        self.record.weight()
    }
}

/// Whether a record that was found is likely to be asked for again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keep {
    Yes,
    No,
}

/// A page is here only while it is with no object that was changed: see [`crate::blocks`].
#[derive(Debug)]
pub(crate) struct CleanRecords {
    unpacked: Clock<RecordKey, Unpacked>,
    packed: Clock<RecordKey, Box<[u8]>>,
}

impl CleanRecords {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let unpacked = bytes_max / UNPACKED_DIVISOR;
        Self { unpacked: Clock::new(unpacked), packed: Clock::new(bytes_max - unpacked) }
    }

    /// Sets the limit; see [`CleanRecords::tidy`].
    pub(crate) const fn set_bytes_max(&mut self, bytes_max: usize) {
        let unpacked = bytes_max / UNPACKED_DIVISOR;
        self.unpacked.set_bytes_max(unpacked);
        self.packed.set_bytes_max(bytes_max - unpacked);
    }

    /// Takes a step towards the limit, if it was lowered.
    pub(crate) fn tidy(&mut self) {
        let packed = &mut self.packed;
        self.unpacked.tidy(|key, unpacked| keep_packed(packed, key, &unpacked));
        packed.tidy(|_, _| ());
    }

    /// Whether the object's own record is here; nothing is used by that.
    pub(crate) fn has_onode(&self, object: u64) -> bool {
        self.has_page(object, INLINE_PAGE)
    }

    /// Likewise one of its pages.
    pub(crate) fn has_page(&self, object: u64, number: u32) -> bool {
        let key = (object, number);
        self.unpacked.has(&key) || self.packed.has(&key)
    }

    pub(crate) fn onode(&mut self, object: u64) -> Option<Arc<Onode>> {
        match self.find((object, INLINE_PAGE), Keep::Yes)? {
            Record::Own(onode) => Some(onode),
            Record::Page(_) => None,
        }
    }

    /// The object's own record, which is not clean any more; its pages stay.
    pub(crate) fn take_onode(&mut self, object: u64) -> Option<Arc<Onode>> {
        let key = (object, INLINE_PAGE);
        let (unpacked, packed) = (self.unpacked.remove(&key), self.packed.remove(&key));
        let unpacked = unpacked.map(|unpacked| unpacked.record);
        match unpacked.or_else(|| Record::unpack(key, packed?))? {
            Record::Own(onode) => Some(onode),
            Record::Page(_) => None,
        }
    }

    pub(crate) fn page(&mut self, object: u64, number: u32, keep: Keep) -> Option<Arc<Page>> {
        match self.find((object, number), keep)? {
            Record::Page(page) => Some(page),
            Record::Own(_) => None,
        }
    }

    pub(crate) fn keep_onode(&mut self, object: u64, onode: Arc<Onode>) {
        self.insert((object, INLINE_PAGE), Record::Own(onode));
    }

    pub(crate) fn keep_page(&mut self, object: u64, number: u32, page: Arc<Page>) {
        self.insert((object, number), Record::Page(page));
    }

    /// The object's own record; its pages stay.
    pub(crate) fn forget_onode(&mut self, object: u64) {
        self.forget(&(object, INLINE_PAGE));
    }

    pub(crate) fn forget_pages(&mut self, object: u64, pages: &PageSet) {
        pages.numbers().for_each(|number| self.forget(&(object, number)));
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.unpacked.bytes() + self.packed.bytes()
    }

    /// Objects' own records as the KV store is to have them, by number, in no order; some of them twice.
    pub(crate) fn own(&self) -> impl Iterator<Item = (u64, Box<[u8]>)> {
        let unpacked =
            self.unpacked.iter().filter_map(|(key, unpacked)| Some((key, unpacked.record.pack()?)));
        let packed = self.packed.iter().map(|(key, bytes)| (key, bytes.clone()));
        let own = unpacked.chain(packed).filter(|((_, number), _)| *number == INLINE_PAGE);
        own.map(|((object, _), bytes)| (*object, bytes))
    }

    /// The pages with their objects and numbers, likewise.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (RecordKey, Arc<Page>)> {
        let packed =
            self.packed.iter().filter_map(|(key, bytes)| Some((*key, Record::unpack(*key, bytes.clone())?)));
        let unpacked = self.unpacked.iter().map(|(key, unpacked)| (*key, unpacked.record.clone()));
        unpacked.chain(packed).filter_map(|(key, record)| match record {
            Record::Page(page) => Some((key, page)),
            Record::Own(_) => None,
        })
    }

    fn find(&mut self, key: RecordKey, keep: Keep) -> Option<Record> {
        if let Some(unpacked) = self.unpacked.get(&key) {
            return Some(unpacked.record);
        }
        let record = Record::unpack(key, self.packed.get(&key)?)?;
        if keep == Keep::Yes {
            self.keep(key, Unpacked { record: record.clone(), is_copy: true });
        }
        Some(record)
    }

    fn insert(&mut self, key: RecordKey, record: Record) {
        self.packed.remove(&key);
        self.keep(key, Unpacked { record, is_copy: false });
    }

    fn keep(&mut self, key: RecordKey, unpacked: Unpacked) {
        let packed = &mut self.packed;
        self.unpacked.insert(key, unpacked, |key, unpacked| keep_packed(packed, key, &unpacked));
    }

    fn forget(&mut self, key: &RecordKey) {
        self.unpacked.remove(key);
        self.packed.remove(key);
    }
}

/// What becomes of an unpacked record that goes.
fn keep_packed(packed: &mut Clock<RecordKey, Box<[u8]>>, key: RecordKey, unpacked: &Unpacked) {
    if !unpacked.is_copy
        && let Some(bytes) = unpacked.record.pack()
    {
        packed.insert(key, bytes, |_, _| ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::Blocks;
    use crate::device::DeviceBlock;
    use crate::page::PAGE_BLOCKS;
    use crate::slot::Slot;

    fn device(block: u64) -> Slot {
        Slot::Device(DeviceBlock { block, crc: block as u32 ^ 5 })
    }

    fn object(id: u64) -> Arc<Onode> {
        let pages = PageSet::read(vec![], INLINE_PAGE + 1, PAGE_BLOCKS).expect("none");
        let blocks = Blocks::stored([(0, device(7)), (2, device(9 + id))], pages);
        let attrs = [("a".into(), Bytes::from_static(b"1"))].into_iter().collect();
        Arc::new(Onode {
            id,
            meta: Bytes::from(vec![id as u8; 200]),
            size: 9000,
            blocks: Arc::new(blocks),
            attrs: Arc::new(attrs),
            omap: 3,
            omap_bytes: 77,
            omap_header: Bytes::from_static(b"header"),
            ..Onode::default()
        })
    }

    fn text(onode: &Onode) -> String {
        format!("{onode:?}")
    }

    #[test]
    fn records_come_back_as_they_went() {
        let mut clean = CleanRecords::new(1 << 20);
        let unpacked = clean.unpacked.bytes();
        assert_eq!(unpacked, 0);
        for id in 0..2000 {
            clean.keep_onode(id, object(id));
            clean.keep_page(id, 1, Arc::new(Page::of(vec![(PAGE_BLOCKS + 1, device(id))])));
        }
        let packed = clean.packed.iter().count();
        assert!(packed > 1000 && clean.unpacked.iter().count() > 100, "{packed} packed");
        assert!(clean.bytes() <= 1 << 20);
        let mut found = 0;
        for id in 0..2000 {
            let before = clean.packed.iter().count();
            let Some(page) = clean.page(id, 1, Keep::No) else { continue };
            assert_eq!(clean.packed.iter().count(), before, "nothing moved");
            assert_eq!(page.get(1).and_then(Slot::device), device(id).device());
            let Some(onode) = clean.onode(id) else { continue };
            assert_eq!(text(&onode), text(&object(id)));
            found += 1;
        }
        assert!(found > 500, "{found} found");
        // What was used last is unpacked, and is the same as what is packed.
        let (mut copies, mut last) = (0, 0);
        for (key, unpacked) in clean.unpacked.iter() {
            last = last.max(key.0);
            let Some(packed) = clean.packed.get(key) else { continue };
            assert!(unpacked.is_copy && unpacked.record.pack() == Some(packed), "{key:?}");
            copies += 1;
        }
        assert!(copies > 50 && last == 1999, "{copies} copies, {last}");
    }

    #[test]
    fn what_is_used_once_and_again_is_packed_once() {
        let mut clean = CleanRecords::new(1 << 20);
        (0..1000).for_each(|id| clean.keep_onode(id, object(id)));
        let packed =
            |clean: &CleanRecords| clean.packed.iter().map(|(key, bytes)| (*key, bytes.as_ptr())).collect();
        let before: std::collections::BTreeMap<RecordKey, *const u8> = packed(&clean);
        assert!(before.len() > 500);
        for id in 0..1000 {
            assert_eq!(clean.onode(id).map(|onode| text(&onode)), Some(text(&object(id))));
        }
        let after = packed(&clean);
        assert!(before.iter().all(|(key, bytes)| after.get(key) == Some(bytes)), "in the same place");
        assert!(clean.bytes() <= 1 << 20);
    }

    #[test]
    fn what_is_taken_or_forgotten_is_in_neither_form() {
        // Nothing has room unpacked.
        let mut clean = CleanRecords::new(2000);
        let mut all = PageSet::default();
        all.insert(1);
        for _ in 0..2 {
            clean.keep_onode(1, object(1));
            clean.keep_page(1, 1, Arc::new(Page::of(vec![(PAGE_BLOCKS, device(4))])));
            clean.keep_onode(2, object(2));
            assert!(clean.packed.iter().count() >= 2);
            assert_eq!(clean.take_onode(1).map(|onode| text(&onode)), Some(text(&object(1))));
            assert!(clean.onode(1).is_none() && clean.take_onode(1).is_none());
            assert!(clean.page(1, 1, Keep::Yes).is_some());
            clean.forget_pages(1, &all);
            clean.forget_onode(2);
            assert!(clean.page(1, 1, Keep::Yes).is_none() && clean.onode(2).is_none());
            assert_eq!(clean.bytes(), 0);
        }
    }

    #[test]
    fn a_lower_limit_is_kept() {
        let mut clean = CleanRecords::new(1 << 20);
        (0..2000).for_each(|id| clean.keep_onode(id, object(id)));
        assert!(clean.bytes() > 512 << 10);
        clean.set_bytes_max(64 << 10);
        (0..20).for_each(|_| clean.tidy());
        assert!(clean.bytes() <= 64 << 10 && clean.bytes() > 32 << 10, "{} bytes", clean.bytes());
    }

    #[test]
    fn a_newer_record_takes_the_place_of_a_packed_one() {
        let mut clean = CleanRecords::new(2000);
        clean.keep_onode(1, object(1));
        assert_eq!(clean.packed.iter().count(), 1);
        let mut newer = Onode::clone(&object(1));
        newer.size = 8193;
        clean.keep_onode(1, Arc::new(newer));
        assert_eq!(clean.onode(1).map(|onode| onode.size), Some(8193));
        assert_eq!(clean.take_onode(1).map(|onode| onode.size), Some(8193));
        assert_eq!(clean.bytes(), 0);
    }

    #[test]
    fn an_object_without_records_of_pages_is_not_packed() {
        let mut clean = CleanRecords::new(1000);
        let blocks = [(0, device(7))].into_iter().collect::<Blocks>();
        clean.keep_onode(
            1,
            Arc::new(Onode { id: 1, size: 4096, blocks: Arc::new(blocks), ..Onode::default() }),
        );
        assert!(clean.onode(1).is_none());
        assert_eq!(clean.bytes(), 0);
    }
}
