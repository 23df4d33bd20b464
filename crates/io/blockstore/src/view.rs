//! Reading what is in memory: [`ObjectView`] of the store.

use crate::BLOCK;
use crate::blob::{Blob, Place};
use crate::device::DeviceBlock;
use crate::dirty::ZEROS;
use crate::onode::Onode;
use crate::slot::Slot;
use crate::store::BlockStore;
use crate::table::{index_of, within};
use nacre_buf::crc::ZERO_BLOCK_CRC;
use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_txn::{ObjectView, OmapPage, ReadError};
use nacre_types::{HObject, SpgId};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Collects slices, joining neighbours of one buffer so that a large read is a few slices. The checksums of its blocks go with it as
/// far as they are known without a gap: the messenger needs them.
#[derive(Default)]
struct Joiner {
    out: BufList,
    /// A part of a cached run that may go on.
    open: Option<(Bytes, usize, usize)>,
    /// Bytes so far, the open part included.
    bytes: usize,
    /// Of the first blocks of it.
    crcs: SmallVec<[u32; 4]>,
}

impl Joiner {
    fn for_blocks(count: usize) -> Self {
        Self { crcs: SmallVec::with_capacity(count), ..Self::default() }
    }

    /// Notes that `bytes` come, which are a whole block where the checksum is known.
    fn note(&mut self, bytes: usize, crc: Option<u32>) {
        if self.crcs.len() * BLOCK == self.bytes {
            self.crcs.extend(crc);
        }
        self.bytes += bytes;
    }

    fn part(&mut self, run: &Bytes, from: usize, to: usize) {
        if let Some((open, _, end)) = &mut self.open
            && open.as_ptr() == run.as_ptr()
            && *end == from
        {
            *end = to;
            return;
        }
        self.close();
        self.open = Some((run.clone(), from, to));
    }

    fn close(&mut self) {
        if let Some((run, from, to)) = self.open.take() {
            self.out.push(run.slice(from..to));
        }
    }

    fn slice(&mut self, slice: Bytes) {
        self.close();
        self.out.push(slice);
    }

    fn zeros(&mut self, mut count: u64) {
        self.close();
        while count > 0 {
            let take = usize::try_from(count).unwrap_or(usize::MAX).min(ZEROS.len());
            self.out.push(Bytes::from_static(&ZEROS).slice(..take));
            (0..take / BLOCK).for_each(|_| self.note(BLOCK, Some(ZERO_BLOCK_CRC)));
            self.note(take % BLOCK, None);
            count -= take as u64;
        }
    }

    fn finish(mut self) -> BufList {
        self.close();
        debug_assert_eq!(self.bytes, self.out.len(), "bytes that were noted");
        match self.crcs.as_slice() {
            [one] if self.bytes == BLOCK => self.out.with_crc(*one),
            _ => self.out.with_block_crcs(self.crcs.into_vec()),
        }
    }
}

/// Why one block could not be read.
enum Missing {
    Pending,
    Damaged(String),
}

impl BlockStore {
    fn content(&self, device: DeviceBlock) -> Result<(&Bytes, usize), Missing> {
        self.cache.find(device.block).ok_or_else(|| match self.damaged.get(&{ device.block }) {
            Some(damage) => Missing::Damaged(damage.reason.clone()),
            None => Missing::Pending,
        })
    }

    /// Content of a block of an object: what it is within, and the block's byte in that.
    fn content_at(&self, place: &Place) -> Result<(&Bytes, usize), Missing> {
        match place {
            Place::Block(device) => self.content(*device),
            Place::Blob(blob, nth) => self.content_in(blob, *nth),
        }
    }

    /// The same of one that is in a blob.
    fn content_in(&self, blob: &Blob, nth: u8) -> Result<(&Bytes, usize), Missing> {
        match (self.unpacked.get(blob), self.damage_of(blob)) {
            (Some(bytes), _) => Ok((bytes, usize::from(nth) * BLOCK)),
            (None, Some(damage)) => Err(Missing::Damaged(damage.reason.clone())),
            (None, None) => Err(Missing::Pending),
        }
    }

    fn read_slot(&self, slot: &Slot, from: usize, to: usize, out: &mut Joiner) -> Result<(), Missing> {
        let is_whole = (from, to) == (0, BLOCK);
        match slot {
            Slot::Device(device) => {
                let (run, at) = self.content(*device)?;
                out.note(to - from, is_whole.then_some(device.crc));
                out.part(run, at + from, at + to);
            }
            Slot::Blob(blob, nth) => {
                let (run, at) = self.content_in(blob, *nth)?;
                out.note(to - from, None);
                out.part(run, at + from, at + to);
            }
            Slot::Memory(dirty) => {
                let base = match dirty.base().filter(|_| !dirty.covers(from, to)) {
                    Some(place) => self.content_at(place).map(|(run, at)| Some(run.slice(at..at + BLOCK)))?,
                    None => None,
                };
                out.note(to - from, dirty.known_crc().filter(|_| is_whole));
                dirty.read(from, to, base.as_ref(), &mut |slice| out.slice(slice));
            }
        }
        Ok(())
    }

    /// `(at, missing)` on failure: which byte of the object.
    fn read_onode(&self, onode: &Onode, offset: u64, end: u64) -> Result<BufList, (u64, Missing)> {
        let (first, last) = (index_of(offset), index_of(end - 1));
        let mut out = Joiner::for_blocks((last - first) as usize + 1);
        let mut at = offset;
        for (index, slot) in self.table.slots(onode, first, last).iter() {
            let start = (u64::from(index) * BLOCK as u64).max(offset);
            let stop = ((u64::from(index) + 1) * BLOCK as u64).min(end);
            out.zeros(start - at);
            self.read_slot(slot, within(start), within(stop - 1) + 1, &mut out)
                .map_err(|why| (start, why))?;
            at = stop;
        }
        out.zeros(end - at);
        Ok(out.finish())
    }
}

impl ObjectView for BlockStore {
    fn meta(&self, collection: &SpgId, object: &HObject) -> Option<Bytes> {
        self.table.object(collection, object).map(|onode| onode.meta.clone())
    }

    fn read(
        &self,
        collection: &SpgId,
        object: &HObject,
        offset: u64,
        length: u64,
    ) -> Result<BufList, ReadError> {
        let Some(onode) = self.table.object(collection, object) else { return Ok(BufList::new()) };
        let end = offset.saturating_add(length).min(onode.size);
        if offset >= end {
            return Ok(BufList::new());
        }
        self.read_onode(&onode, offset, end).map_err(|(at, missing)| match missing {
            Missing::Pending => ReadError::Pending { object: object.clone(), offset, length },
            Missing::Damaged(reason) => ReadError::Damaged { object: object.clone(), offset: at, reason },
        })
    }

    fn extents(&self, collection: &SpgId, object: &HObject, offset: u64, length: u64) -> Vec<(u64, u64)> {
        let Some(onode) = self.table.object(collection, object) else { return Vec::new() };
        let end = offset.saturating_add(length).min(onode.size);
        let mut out: Vec<(u64, u64)> = Vec::new();
        if offset >= end {
            return out;
        }
        for (index, _) in self.table.slots(&onode, index_of(offset), index_of(end - 1)).iter() {
            let start = (u64::from(index) * BLOCK as u64).max(offset);
            let stop = ((u64::from(index) + 1) * BLOCK as u64).min(end);
            match out.last_mut() {
                Some((from, span)) if *from + *span == start => *span += stop - start,
                _ => out.push((start, stop - start)),
            }
        }
        out
    }

    fn attr(&self, collection: &SpgId, object: &HObject, name: &[u8]) -> Option<Bytes> {
        self.table.object(collection, object)?.attrs.get(name).cloned()
    }

    fn attrs(&self, collection: &SpgId, object: &HObject) -> BTreeMap<ByteStr, Bytes> {
        self.table.object(collection, object).map(|onode| (*onode.attrs).clone()).unwrap_or_default()
    }

    fn omap_header(&self, collection: &SpgId, object: &HObject) -> Bytes {
        self.table.object(collection, object).map(|onode| onode.omap_header.clone()).unwrap_or_default()
    }

    fn omap_value(&self, collection: &SpgId, object: &HObject, key: &[u8]) -> Option<Bytes> {
        let omap = self.table.object(collection, object).map(|onode| onode.omap).filter(|omap| *omap != 0)?;
        self.table.omap_value(omap, key)
    }

    fn omap_page(
        &self,
        collection: &SpgId,
        object: &HObject,
        from: &[u8],
        entries_max: usize,
        bytes_max: usize,
    ) -> OmapPage {
        let mut page = OmapPage::default();
        let Some(onode) = self.table.object(collection, object) else { return page };
        let mut bytes = 0;
        for (key, value) in self.table.omap_entries(onode.omap, from, entries_max.saturating_add(1)) {
            if page.entries.len() >= entries_max || bytes >= bytes_max {
                page.more = true;
                break;
            }
            bytes += key.len() + value.len();
            page.entries.push((key, value));
        }
        page
    }

    fn list(&self, collection: &SpgId, from: &HObject, count_max: usize) -> Vec<HObject> {
        let found = self.table.names_from(collection, from, count_max);
        found.into_iter().map(|(_, name)| name).collect()
    }

    fn log(&self, collection: &SpgId) -> Vec<Bytes> {
        self.table.log_entries(collection).into_iter().map(|(_, entry)| entry).collect()
    }

    fn pg_meta_page(
        &self,
        collection: &SpgId,
        prefix: &[u8],
        from: &[u8],
        count_max: usize,
    ) -> Vec<(ByteStr, Bytes)> {
        let found = self.table.values(collection, prefix, from, count_max);
        found.into_iter().map(|(key, value)| (key.into(), value)).collect()
    }
}
