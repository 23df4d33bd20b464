//! [`EcView`]: the objects of a coded PG as execution sees them: metadata from this copy, data as gathered.

use crate::object::ObjectContext;
use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_txn::{ObjectView, OmapPage, ReadError};
use nacre_types::{HObject, SpgId};
use std::collections::BTreeMap;

/// Data of an object that was gathered.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) object: HObject,
    pub(crate) offset: u64,
    pub(crate) data: BufList,
}

impl Piece {
    /// A range of it, if all of that is here.
    fn part(&self, object: &HObject, offset: u64, length: u64) -> Option<BufList> {
        let start = offset.checked_sub(self.offset).filter(|_| *object == self.object)?;
        let fits = start.checked_add(length)? <= self.data.len() as u64;
        let (start, length) = (usize::try_from(start).ok()?, usize::try_from(length).ok()?);
        fits.then(|| self.data.slice(start, length))
    }
}

/// Metadata of this copy, and data that was gathered; other data is pending.
pub(crate) struct EcView<'a> {
    pub(crate) inner: &'a dyn ObjectView,
    pub(crate) pieces: &'a [Piece],
}

impl EcView<'_> {
    /// Bytes of a range that are before the object's end.
    fn length_within(&self, collection: &SpgId, object: &HObject, offset: u64, length: u64) -> u64 {
        length.min(size_of(self.inner, collection, object).saturating_sub(offset))
    }
}

impl ObjectView for EcView<'_> {
    fn meta(&self, collection: &SpgId, object: &HObject) -> Option<Bytes> {
        self.inner.meta(collection, object)
    }

    fn read(
        &self,
        collection: &SpgId,
        object: &HObject,
        offset: u64,
        length: u64,
    ) -> Result<BufList, ReadError> {
        let length = self.length_within(collection, object, offset, length);
        if length == 0 {
            return Ok(BufList::new());
        }
        let found = self.pieces.iter().find_map(|piece| piece.part(object, offset, length));
        found.ok_or_else(|| ReadError::Pending { object: object.clone(), offset, length })
    }

    /// Where the holes are is not known: all of the object counts as written.
    fn extents(&self, collection: &SpgId, object: &HObject, offset: u64, length: u64) -> Vec<(u64, u64)> {
        let length = self.length_within(collection, object, offset, length);
        if length == 0 { Vec::new() } else { vec![(offset, length)] }
    }

    fn attr(&self, collection: &SpgId, object: &HObject, name: &[u8]) -> Option<Bytes> {
        self.inner.attr(collection, object, name)
    }

    fn attrs(&self, collection: &SpgId, object: &HObject) -> BTreeMap<ByteStr, Bytes> {
        self.inner.attrs(collection, object)
    }

    fn omap_header(&self, collection: &SpgId, object: &HObject) -> Bytes {
        self.inner.omap_header(collection, object)
    }

    fn omap_value(&self, collection: &SpgId, object: &HObject, key: &[u8]) -> Option<Bytes> {
        self.inner.omap_value(collection, object, key)
    }

    fn omap_page(
        &self,
        collection: &SpgId,
        object: &HObject,
        from: &[u8],
        entries_max: usize,
        bytes_max: usize,
    ) -> OmapPage {
        self.inner.omap_page(collection, object, from, entries_max, bytes_max)
    }

    fn list(&self, collection: &SpgId, from: &HObject, count_max: usize) -> Vec<HObject> {
        self.inner.list(collection, from, count_max)
    }

    fn log(&self, collection: &SpgId) -> Vec<Bytes> {
        self.inner.log(collection)
    }

    fn pg_meta_page(
        &self,
        collection: &SpgId,
        prefix: &[u8],
        from: &[u8],
        count_max: usize,
    ) -> Vec<(ByteStr, Bytes)> {
        self.inner.pg_meta_page(collection, prefix, from, count_max)
    }
}

/// The size of an object's data, by its record.
fn size_of(view: &dyn ObjectView, spg: &SpgId, object: &HObject) -> u64 {
    ObjectContext::load(view, spg, object).map_or(0, |context| context.info.size)
}
