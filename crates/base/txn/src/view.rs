//! What a PG may read of a store.

use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_types::{HObject, SpgId};
use std::collections::BTreeMap;

/// Why a read gave no data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The data must come from the device first. The driver fetches it and hands the parked operation back.
    #[error("data of {object} at {offset}~{length} is on its way from the device")]
    Pending {
        /// Name of the object that it is about.
        object: HObject,
        /// First byte wanted.
        offset: u64,
        /// Length of the read in bytes.
        length: u64,
    },
    /// The device cannot give the data, or its checksum does not match.
    #[error("data of {object} at {offset} cannot be read: {reason}")]
    Damaged {
        /// Name of the object that it is about.
        object: HObject,
        /// First byte that is damaged.
        offset: u64,
        /// What the device or the check said.
        reason: String,
    },
}

/// Where data that is fetched may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FetchFrom {
    /// What is in memory need not be read again.
    #[default]
    Anywhere,
    /// Likewise, for a caller that looks at the data once: it may come with the completion instead, and memory need not keep it.
    AnywhereOnce,
    /// The device is read and its checksums are compared even where memory has the data: a deep scrub asks what would be there
    /// after a restart. Blocks that turn out to be damaged read as [`ReadError::Damaged`] from then on. What is not at the
    /// device yet, or just on its way there, stays as it is.
    Device,
}

/// A run of omap entries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OmapPage {
    /// Entries in key order.
    pub entries: Vec<(ByteStr, Bytes)>,
    /// True when entries behind the last one were left out.
    pub more: bool,
}

/// Read access to one OSD's objects as of the last submitted transaction, durable or not.
///
/// Metadata is answered at once; data may be [`ReadError::Pending`], after which the caller runs the whole
/// operation again (it has changed nothing yet). An object or collection that does not exist reads as `None`
/// or empty.
pub trait ObjectView {
    /// The PG's record of the object ([`crate::Op::SetMeta`]); `None` when the object does not exist.
    fn meta(&self, collection: &SpgId, object: &HObject) -> Option<Bytes>;

    /// Data bytes in `[offset, offset + length)`, holes as zeros, cut at the end of the data.
    ///
    /// # Errors
    /// [`ReadError`].
    fn read(
        &self,
        collection: &SpgId,
        object: &HObject,
        offset: u64,
        length: u64,
    ) -> Result<BufList, ReadError>;

    /// `(offset, length)` of what is allocated in the range, ascending, disjoint; holes are left out.
    fn extents(&self, collection: &SpgId, object: &HObject, offset: u64, length: u64) -> Vec<(u64, u64)>;

    /// One user attribute.
    fn attr(&self, collection: &SpgId, object: &HObject, name: &[u8]) -> Option<Bytes>;

    /// All user attributes.
    fn attrs(&self, collection: &SpgId, object: &HObject) -> BTreeMap<ByteStr, Bytes>;

    /// The omap header, empty when never set.
    fn omap_header(&self, collection: &SpgId, object: &HObject) -> Bytes;

    /// The value of one omap key.
    fn omap_value(&self, collection: &SpgId, object: &HObject, key: &[u8]) -> Option<Bytes>;

    /// Omap entries with `key >= from`, at most `entries_max` of them and about `bytes_max` bytes.
    fn omap_page(
        &self,
        collection: &SpgId,
        object: &HObject,
        from: &[u8],
        entries_max: usize,
        bytes_max: usize,
    ) -> OmapPage;

    /// Objects and clones `>= from` in the order of [`HObject`], at most `count_max`.
    fn list(&self, collection: &SpgId, from: &HObject, count_max: usize) -> Vec<HObject>;

    /// PG log entries in ascending order, as appended.
    fn log(&self, collection: &SpgId) -> Vec<Bytes>;

    /// The collection's own key-value entries whose keys start with `prefix` and are not less than `from`, ascending, at most
    /// `count_max`.
    fn pg_meta_page(
        &self,
        collection: &SpgId,
        prefix: &[u8],
        from: &[u8],
        count_max: usize,
    ) -> Vec<(ByteStr, Bytes)>;

    /// All of them: for entries that are known to be few.
    fn pg_meta(&self, collection: &SpgId, prefix: &[u8]) -> Vec<(ByteStr, Bytes)> {
        self.pg_meta_page(collection, prefix, b"", usize::MAX)
    }
}
