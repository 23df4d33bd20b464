//! Records of objects in the KV store: one of the object itself, with the first page of its blocks, and one for each further page.

use crate::blob::Place;
use crate::block_page;
use crate::blocks::{INLINE_PAGE, Period, StoredPage};
use crate::device::Run;
use crate::kv_schema::{self, prefix};
use crate::onode::{Onode, OwnRecord, Stored};
use crate::page::PAGE_BLOCKS;
use crate::slot::Slot;
use nacre_buf::Bytes;
use nacre_denc::DecodeError;
use nacre_kv::{KvBatch, KvError, KvStore};
use smallvec::SmallVec;

/// Blocks of a page with their places in it.
pub(crate) type PageBlocks = SmallVec<[(u32, Place); PAGE_BLOCKS as usize]>;

/// Writes an object, and the pages of its blocks that were changed in this period; `home` says where its blocks in memory go, asked for in
/// order. Gives the number of places of blocks that were looked at.
pub(crate) fn encode(
    batch: &mut KvBatch,
    onode: &Onode,
    period: Period,
    mut home: impl FnMut(u32) -> Place,
) -> usize {
    let (mut first_page, mut looked_at) = (PageBlocks::new(), 0);
    for page in onode.blocks.to_store(period) {
        let (number, slots) = match page {
            StoredPage::Slots(number, slots) => (number, slots),
            StoredPage::Gone(number) => {
                batch.delete(kv_schema::page_key(onode.id, number));
                continue;
            }
        };
        looked_at += slots.len();
        let place = |(at, slot): (u32, &Option<Slot>)| match slot.as_ref()? {
            Slot::Memory(_) => Some((at, home(number * PAGE_BLOCKS + at))),
            at_home => Some((at, at_home.place()?)),
        };
        let blocks: PageBlocks = (0..).zip(slots).filter_map(place).collect();
        if number == INLINE_PAGE {
            first_page = blocks;
        } else {
            batch.put(kv_schema::page_key(onode.id, number), block_page::encode_record(&blocks));
        }
    }
    batch.put(kv_schema::object_key(onode.id), onode.encode(&first_page));
    looked_at
}

/// The records of one object.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// Key of the object's own, without its prefix: its number, unless it is damaged.
    pub(crate) key: Bytes,
    /// `None` where there are only pages.
    pub(crate) own: Option<Bytes>,
    /// Those of pages with their numbers, ascending.
    pub(crate) pages: Vec<(u32, Bytes)>,
}

impl Records {
    pub(crate) fn number(&self) -> Result<u64, DecodeError> {
        kv_schema::decode_number(self.key.clone())
    }

    /// The object; all of its records must be there.
    pub(crate) fn decode(&self) -> Result<Stored, DecodeError> {
        let number = self.number()?;
        let own = self
            .own
            .clone()
            .ok_or(DecodeError::Invalid { what: "pages without an object", value: number })?;
        Onode::decode(number, own, &self.pages)
    }
}

/// Why an object cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The KV store failed.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// One of its records cannot be understood.
    #[error(transparent)]
    Record(#[from] DecodeError),
    /// A page of its blocks is not there.
    #[error("page {page} of object {object} is not there")]
    NoPage {
        /// Number of the object.
        object: u64,
        /// Number of the page.
        page: u32,
    },
    /// It refers to what is no block for data.
    #[error("block {block} of object {object} is outside the data area")]
    Outside {
        /// Number of the object.
        object: u64,
        /// Number of the block, on the device.
        block: u64,
    },
}

/// The object of this number, if it is there, without the pages of its blocks that have records of their own. Its blocks are to be in `area`.
pub(crate) fn read(kv: &dyn KvStore, number: u64, area: Run) -> Result<Option<Onode>, ReadError> {
    let own = kv.get(&kv_schema::object_key(number))?;
    own.map(|own| decode_own(number, own, area)).transpose()
}

/// The same by its record.
pub(crate) fn decode_own(number: u64, own: Bytes, area: Run) -> Result<Onode, ReadError> {
    let onode = OwnRecord::decode(number, own)?.without_pages();
    match onode.block_outside(area) {
        Some(block) => Err(ReadError::Outside { object: number, block }),
        None => Ok(onode),
    }
}

/// Calls `visit` with each object.
pub(crate) fn each<E: From<KvError>>(
    kv: &dyn KvStore,
    mut visit: impl FnMut(Records) -> Result<(), E>,
) -> Result<(), E> {
    let mut gathered: Option<Records> = None;
    kv_schema::scan::<E>(kv, &[prefix::OBJECT], |key, value| {
        let Ok((object, number)) = kv_schema::decode_page_key(key.clone()) else {
            let next = Records { key, own: Some(value), pages: Vec::new() };
            return gathered.replace(next).map_or(Ok(()), &mut visit);
        };
        match &mut gathered {
            Some(records) if records.key == object => records.pages.push((number, value)),
            _ => {
                let alone = Records { key: object, own: None, pages: vec![(number, value)] };
                gathered.replace(alone).map_or(Ok(()), &mut visit)?;
            }
        }
        Ok(())
    })?;
    gathered.map_or(Ok(()), visit)
}
