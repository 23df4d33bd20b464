//! [`Onode`]: what the store knows of one object, and how a checkpoint keeps it in the KV store.

use crate::BLOCK;
use crate::blob::Place;
use crate::block_page;
use crate::blocks::{Blocks, INLINE_PAGE};
use crate::device::{DeviceBlock, Run};
use crate::memtable::Weigh;
use crate::page::{PAGE_BLOCKS, PAGES_END};
use crate::page_set::{PageRun, PageSet};
use crate::slot::Slot;
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_types::{HObject, PoolId, SpgId};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// Written by this code, and the newest it reads. Version 2 had all blocks in the object's record; version 1 named the object as well, and
/// had an omap under the object's own number or none.
const VERSION: u8 = 3;
/// Version, compat and length before the fields.
const ENVELOPE_BYTES: usize = 6;

type Attrs = BTreeMap<ByteStr, Bytes>;

/// Most objects have no attributes: they share it.
static NO_ATTRS: LazyLock<Arc<Attrs>> = LazyLock::new(Arc::default);

fn shared(attrs: Attrs) -> Arc<Attrs> {
    if attrs.is_empty() { Arc::clone(&NO_ATTRS) } else { Arc::new(attrs) }
}

/// One object. The large parts are shared with a running checkpoint and copied when changed meanwhile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Onode {
    /// Its number, never used again in this store.
    pub(crate) id: u64,
    pub(crate) meta: Bytes,
    /// Length in bytes. No slot lies behind it, and bytes behind it in the last slot are zeros.
    pub(crate) size: u64,
    pub(crate) blocks: Arc<Blocks>,
    pub(crate) attrs: Arc<Attrs>,
    /// Number of its omap, whose entries are in the KV store and above; zero while it never had one. Cleared, it
    /// gets a new one when it has entries again.
    pub(crate) omap: u64,
    /// Bytes of the omap's keys and values.
    pub(crate) omap_bytes: u64,
    pub(crate) omap_header: Bytes,
    /// The pool of the collection in which it was changed last; not stored.
    pub(crate) pool: PoolId,
}

/// An onode as the KV store has it.
pub(crate) struct Stored {
    pub(crate) onode: Onode,
    /// Of version 1 only: where the object is.
    pub(crate) name: Option<(SpgId, HObject)>,
}

/// From here on blocks are in pages.
const PAGED_VERSION: u8 = 3;
/// What a stretch of blocks takes beside their checksums.
const STRETCH_BYTES: usize = 9;
/// About the bytes of an onode without its parts.
const ONODE_BYTES: usize = 256;

impl Weigh for Arc<Onode> {
    fn weight(&self) -> usize {
        let attrs: usize = self.attrs.iter().map(|(name, value)| name.len() + value.len() + 64).sum();
        ONODE_BYTES + self.blocks.bytes() + self.meta.len() + self.omap_header.len() + attrs
    }
}

impl Onode {
    /// Everything but the omap's entries and the pages of blocks behind the first, of which `first_page` has the blocks with their places.
    pub(crate) fn encode(&self, first_page: &[(u32, Place)]) -> Bytes {
        // It stays in memory for a while: without the room for stretches that there were not.
        Bytes::copy_from_slice(self.written(first_page).as_slice())
    }

    /// The same for a cache.
    pub(crate) fn pack(&self, first_page: &[(u32, Place)]) -> Box<[u8]> {
        self.written(first_page).as_slice().into()
    }

    fn written(&self, first_page: &[(u32, Place)]) -> Writer {
        let blocks_bytes = (STRETCH_BYTES + 4) * first_page.len();
        let mut w = Writer::with_capacity(ONODE_BYTES + self.meta.len() + blocks_bytes);
        w.envelope(VERSION, VERSION, |w| {
            self.encode_head(w);
            let records = self.blocks.records();
            w.count(records.runs().len());
            for run in records.runs() {
                w.u32(run.first);
                w.u32(run.count);
            }
            block_page::encode(w, first_page);
        });
        w
    }

    /// What versions from 2 on have before the blocks.
    fn encode_head(&self, w: &mut Writer) {
        w.blob(&self.meta);
        w.u64(self.size);
        w.u64(self.omap);
        w.u64(self.omap_bytes);
        w.blob(&self.omap_header);
        w.count(self.attrs.len());
        for (name, value) in self.attrs.iter() {
            w.blob(name);
            w.blob(value);
        }
    }

    /// As programs wrote it that knew format 2, of an object whose blocks are all at home.
    #[cfg(test)]
    pub(crate) fn encode_format_2(&self) -> Bytes {
        let blocks: Vec<_> =
            self.blocks.here().filter_map(|(index, slot)| Some((index, slot.device()?))).collect();
        let mut w = Writer::new();
        w.envelope(2, 2, |w| {
            self.encode_head(w);
            w.count(blocks.len());
            for (index, device) in blocks {
                w.u32(index);
                w.u32(u32::try_from(device.block).expect("format 2 has numbers of 32 bits"));
                w.count(1);
                w.u32(device.crc);
            }
        });
        w.finish()
    }

    /// What [`Onode::encode`] made, or an earlier version, with the records of further pages by their numbers.
    pub(crate) fn decode(id: u64, value: Bytes, pages: &[(u32, Bytes)]) -> Result<Stored, DecodeError> {
        OwnRecord::decode(id, value)?.with_pages(pages)
    }

    /// A block of the pages that are here that is not in the data area: nothing may be read or written there.
    pub(crate) fn block_outside(&self, area: Run) -> Option<u64> {
        self.blocks.pages(0, u32::MAX).find_map(|(_, page)| page.block_outside(area))
    }

    /// Of an onode that may be damaged further behind: its name, if it is of version 1, and the number of its omap.
    pub(crate) fn claimed(id: u64, value: Bytes) -> Result<(Option<(SpgId, HObject)>, u64), DecodeError> {
        let version = value.first().copied().unwrap_or_default();
        let mut r = Reader::new(value);
        r.skip(ENVELOPE_BYTES)?;
        if version < 2 {
            return Ok((Some((r.get()?, r.get()?)), id));
        }
        let (_meta, _size) = (r.blob()?, r.u64()?);
        Ok((None, r.u64()?))
    }
}

/// The object's own record: all of it but for further pages of its blocks.
pub(crate) struct OwnRecord {
    /// Without blocks yet.
    onode: Onode,
    /// Of version 1 only: where the object is.
    name: Option<(SpgId, HObject)>,
    /// Those of this record.
    blocks: Vec<(u32, Slot)>,
    /// Which pages have records of their own; `None` for versions up to 2, which have all blocks here.
    pages: Option<PageSet>,
}

impl OwnRecord {
    pub(crate) fn decode(id: u64, value: Bytes) -> Result<Self, DecodeError> {
        Reader::new(value).envelope("onode", VERSION, |version, r| {
            let name = if version < 2 { Some((r.get()?, r.get()?)) } else { None };
            let (meta, size) = (r.blob()?, r.u64()?);
            let (omap, omap_bytes) = if version < 2 { (0, 0) } else { (r.u64()?, r.u64()?) };
            let omap_header = r.blob()?;
            let attrs = (0..r.count(8)?)
                .map(|_| Ok((r.str()?, r.blob()?)))
                .collect::<Result<Attrs, DecodeError>>()?;
            let (attrs, blocks) = (shared(attrs), Arc::default());
            let known = Onode { id, meta, size, blocks, attrs, ..Onode::default() };
            let onode = Onode { omap, omap_bytes, omap_header, ..known };
            let (mut blocks, mut pages) = (Vec::new(), None);
            if version < PAGED_VERSION {
                decode_stretches(r, &mut blocks)?;
            } else {
                let runs = (0..r.count(8)?).map(|_| Ok(PageRun { first: r.u32()?, count: r.u32()? }));
                let runs = runs.collect::<Result<Vec<_>, DecodeError>>()?;
                pages = Some(PageSet::read(runs, INLINE_PAGE + 1, pages_end(size))?);
                block_page::decode(r, 0, &mut blocks)?;
            }
            Ok(Self { onode, name, blocks, pages })
        })
    }

    /// Whether there are records of further pages beside it.
    #[cfg(test)]
    pub(crate) fn has_page_records(&self) -> bool {
        self.pages.as_ref().is_some_and(|pages| !pages.is_empty())
    }

    /// Whether it is of a version that has its blocks in pages.
    #[cfg(test)]
    pub(crate) const fn is_paged(&self) -> bool {
        self.pages.is_some()
    }

    /// The object without further pages.
    pub(crate) fn without_pages(self) -> Onode {
        let Self { mut onode, blocks, pages, .. } = self;
        onode.blocks = Arc::new(match pages {
            Some(pages) => Blocks::stored(blocks, pages),
            None => blocks.into_iter().collect(),
        });
        onode
    }

    /// The object with all of its pages, if these are what it has: of one that is missing, the blocks would read as zeros.
    pub(crate) fn with_pages(self, pages: &[(u32, Bytes)]) -> Result<Stored, DecodeError> {
        let Self { onode, name, mut blocks, pages: has } = self;
        if !has.iter().flat_map(PageSet::numbers).eq(pages.iter().map(|(number, _)| *number)) {
            return Err(DecodeError::Invalid { what: "pages of an object", value: pages.len() as u64 });
        }
        for (number, value) in pages {
            block_page::decode_record(value, *number, &mut blocks)?;
        }
        let onode = Self { onode, name: None, blocks, pages: has }.without_pages();
        Ok(Stored { onode, name })
    }
}

/// The number behind the last page that an object of so many bytes may have.
fn pages_end(size: u64) -> u32 {
    let pages = size.div_ceil(BLOCK as u64).div_ceil(PAGE_BLOCKS.into());
    u32::try_from(pages).unwrap_or(PAGES_END).min(PAGES_END)
}

/// Of versions up to 2: all blocks.
fn decode_stretches(r: &mut Reader, blocks: &mut Vec<(u32, Slot)>) -> Result<(), DecodeError> {
    for _ in 0..r.count(12)? {
        let (index, block) = (r.u32()?, u64::from(r.u32()?));
        for nth in 0..r.count(4)? {
            let crc = r.u32()?;
            let nth = u32::try_from(nth).unwrap_or(u32::MAX);
            let index = index
                .checked_add(nth)
                .ok_or(DecodeError::Invalid { what: "blocks of an onode", value: block })?;
            let block = block + u64::from(nth);
            blocks.push((index, Slot::Device(DeviceBlock { block, crc })));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(block: u64) -> DeviceBlock {
        DeviceBlock { block, crc: block as u32 ^ 3 }
    }

    fn onode(blocks: &[(u32, u64)]) -> Onode {
        let slots = blocks.iter().map(|(index, block)| (*index, Slot::Device(device(*block))));
        Onode {
            id: 5,
            meta: Bytes::from_static(b"m"),
            size: 520_000,
            attrs: Arc::new(BTreeMap::from([("k".into(), Bytes::from_static(b"v"))])),
            omap: 9,
            omap_bytes: 77,
            omap_header: Bytes::from_static(b"h"),
            blocks: Arc::new(slots.collect()),
            ..Onode::default()
        }
    }

    #[test]
    fn an_onode_survives_its_encoding() {
        let behind = |pages, at| pages * PAGE_BLOCKS + at;
        let blocks =
            [(0, 7), (1, 8), (PAGE_BLOCKS - 1, 21), (behind(1, 2), 5), (behind(1, 3), 6), (behind(31, 0), 7)];
        let onode = onode(&blocks);
        let first: Vec<_> = blocks[..3].iter().map(|(at, block)| (*at, device(*block).into())).collect();
        let value = onode.encode(&first);
        let page = |at, block| {
            block_page::encode_record(&[(at, device(block).into()), (at + 1, device(block + 1).into())])
        };
        let last = block_page::encode_record(&[(0, device(7).into())]);
        let pages = [(1, page(2, 5)), (31, last)];
        let Stored { onode: back, name } = Onode::decode(5, value.clone(), &pages).expect("our own bytes");
        assert_eq!(name, None);
        assert_eq!((back.id, &back.meta, back.size, &back.attrs), (5, &onode.meta, 520_000, &onode.attrs));
        assert_eq!((back.omap, back.omap_bytes, &back.omap_header), (9, 77, &onode.omap_header));
        let found = back.blocks.here().filter_map(|(index, slot)| Some((index, slot.device()?.block)));
        assert_eq!(found.collect::<Vec<_>>(), blocks);
        assert!(OwnRecord::decode(5, value.clone()).is_ok_and(|own| own.has_page_records()));
        assert!(Onode::decode(5, value.slice(..value.len() - 3), &pages).is_err());
        assert!(Onode::decode(5, value, &pages[1..]).is_err(), "a page is missing");
        let short = Onode { size: 31 * u64::from(PAGE_BLOCKS) * BLOCK as u64, ..onode };
        assert!(OwnRecord::decode(5, short.encode(&first)).is_err(), "a page behind the end");
    }

    #[test]
    fn a_small_object_is_one_record() {
        let last = PAGE_BLOCKS - 1;
        let onode = onode(&[(last, 7)]);
        let value = onode.encode(&[(last, device(7).into())]);
        assert!(OwnRecord::decode(5, value.clone()).is_ok_and(|own| !own.has_page_records()));
        let back = Onode::decode(5, value.clone(), &[]).expect("our own bytes").onode;
        assert_eq!(back.blocks.get(last).and_then(Slot::device), Some(device(7)));
        assert!(Onode::decode(5, value, &[(1, Bytes::new())]).is_err(), "a page too many");
    }
}
