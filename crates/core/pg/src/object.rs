//! What a PG records of an object: [`ObjectInfo`], [`SnapSet`], and both as [`ObjectContext`].
//!
//! The record is the store's `meta` of the object ([`nacre_txn::Op::SetMeta`]), opaque to the store. A head
//! carries its object info and, once it met a snapshot, its snapshot set; a clone carries its object info.
//! The format is our own (Ceph keeps `object_info_t` and `SnapSet` in two attributes): see
//! `docs/formats/object-record.md`. Record version written: 1; accepted: 1.

use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_msg::osd_op::{AllocHint, alloc_hint_flag};
use nacre_txn::ObjectView;
use nacre_types::{
    CompressionHint, EntityAddr, EntityName, Eversion, HObject, IntervalSet, SnapId, SpgId, UTime,
};
use std::collections::BTreeMap;

/// Version of the record that we write, and the newest that we read.
const RECORD_VERSION: u8 = 1;
/// Offset of the byte of bits in a record: behind version, compat and length of the envelope.
const BITS_OFFSET: usize = 6;
/// Bytes of a record without any optional part.
const RECORD_BYTES_MIN: usize = 64;

/// Bits that say what a record holds. The low ones are flags, the high ones optional parts.
mod bit {
    pub(super) const WHITEOUT: u8 = 1;
    pub(super) const OMAP: u8 = 1 << 1;
    pub(super) const TRUNCATE: u8 = 1 << 3;
    pub(super) const DIGEST: u8 = 1 << 4;
    pub(super) const HINT: u8 = 1 << 5;
    pub(super) const WATCHERS: u8 = 1 << 6;
    pub(super) const SNAPS: u8 = 1 << 7;
}

/// What identifies a watch: the client's cookie, and which client.
pub type WatchKey = (u64, EntityName);

/// A watch that outlives the connection that made it. Ceph `watch_info_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watcher {
    /// Where the client spoke from; of kind `Any`.
    pub addr: EntityAddr,
    /// Seconds without a sign of life after which the watch ends.
    pub timeout_s: u32,
}

impl Encode for Watcher {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.addr);
        w.u32(self.timeout_s);
    }
}

impl Decode for Watcher {
    const MIN_BYTES: usize = EntityAddr::MIN_BYTES + 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { addr: r.get()?, timeout_s: r.u32()? })
    }
}

/// One object or clone. Ceph `object_info_t`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectInfo {
    /// PG version of the last change.
    pub version: Eversion,
    /// PG version of the change before; zero when the object did not exist.
    pub prior_version: Eversion,
    /// Version as users count: watching does not raise it.
    pub user_version: u64,
    /// Length of the data in bytes.
    pub size: u64,
    /// When a client last changed it, by the client's clock.
    pub mtime: UTime,
    /// Newest truncation by the file system; older writes do not grow the object again.
    pub truncate_seq: u32,
    /// Size in bytes that this truncation cut the object to.
    pub truncate_size: u64,
    /// The head is deleted; the record only carries the clones' snapshot set.
    pub whiteout: bool,
    /// The object has, or had, omap entries or an omap header.
    pub has_omap: bool,
    /// CRC-32C over all data, where somebody computed it and nothing was written since.
    pub data_digest: Option<u32>,
    /// What clients expect to do with the object.
    pub hint: AllocHint,
    /// Watches of the object, by client and cookie.
    pub watchers: BTreeMap<WatchKey, Watcher>,
}

impl ObjectInfo {
    fn bits(&self, snaps: Option<&SnapSet>) -> u8 {
        let all = [
            (self.whiteout, bit::WHITEOUT),
            (self.has_omap, bit::OMAP),
            (self.truncate_seq != 0 || self.truncate_size != 0, bit::TRUNCATE),
            (self.data_digest.is_some(), bit::DIGEST),
            (self.hint != AllocHint::default(), bit::HINT),
            (!self.watchers.is_empty(), bit::WATCHERS),
            (snaps.is_some_and(|snaps| !snaps.is_empty()), bit::SNAPS),
        ];
        all.iter().filter(|(there, _)| *there).fold(0, |bits, (_, bit)| bits | bit)
    }

    /// The record of a clone, or of a head with its snapshot set.
    fn to_record(&self, snaps: Option<&SnapSet>) -> Bytes {
        let mut w = Writer::with_capacity(RECORD_BYTES_MIN);
        w.envelope(RECORD_VERSION, RECORD_VERSION, |w| {
            let bits = self.bits(snaps);
            w.u8(bits);
            self.write(bits, w);
            if let Some(snaps) = snaps.filter(|_| bits & bit::SNAPS != 0) {
                w.put(snaps);
            }
        });
        w.finish()
    }

    fn write(&self, bits: u8, w: &mut Writer) {
        w.put(&self.version);
        w.put(&self.prior_version);
        w.u64(self.user_version);
        w.u64(self.size);
        w.put(&self.mtime);
        if bits & bit::TRUNCATE != 0 {
            w.u32(self.truncate_seq);
            w.u64(self.truncate_size);
        }
        if let Some(digest) = self.data_digest {
            w.u32(digest);
        }
        if bits & bit::HINT != 0 {
            w.u64(self.hint.expected_object_size);
            w.u64(self.hint.expected_write_size);
            w.u32(self.hint.flags);
        }
        if bits & bit::WATCHERS != 0 {
            w.put(&self.watchers);
        }
    }

    fn read(bits: u8, r: &mut Reader) -> Result<Self, DecodeError> {
        let mut info = Self {
            version: r.get()?,
            prior_version: r.get()?,
            user_version: r.u64()?,
            size: r.u64()?,
            mtime: r.get()?,
            whiteout: bits & bit::WHITEOUT != 0,
            has_omap: bits & bit::OMAP != 0,
            ..Self::default()
        };
        if bits & bit::TRUNCATE != 0 {
            (info.truncate_seq, info.truncate_size) = (r.u32()?, r.u64()?);
        }
        if bits & bit::DIGEST != 0 {
            info.data_digest = Some(r.u32()?);
        }
        if bits & bit::HINT != 0 {
            info.hint =
                AllocHint { expected_object_size: r.u64()?, expected_write_size: r.u64()?, flags: r.u32()? };
        }
        if bits & bit::WATCHERS != 0 {
            info.watchers = r.get()?;
        }
        Ok(info)
    }
}

/// A past state of an object, kept because snapshots need it. Ceph `SnapSet::clone_*`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CloneInfo {
    /// Its own id: the newest snapshot that existed when it was made.
    pub id: SnapId,
    /// Snapshots that see it, ascending, not empty.
    pub snaps: Vec<SnapId>,
    /// Length of its data in bytes.
    pub size: u64,
    /// Byte ranges that are the same in the next newer clone, or in the head for the newest clone. May
    /// leave out what is the same, never name what is not: `rbd export-diff` believes it.
    pub overlap: IntervalSet,
}

impl CloneInfo {
    /// Bytes that only this clone holds, the way Ceph counts a pool's use.
    #[must_use]
    pub fn own_bytes(&self) -> u64 {
        self.size.saturating_sub(self.overlap.total())
    }
}

impl Encode for CloneInfo {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.id);
        w.put(&self.snaps);
        w.u64(self.size);
        w.put(&self.overlap);
    }
}

impl Decode for CloneInfo {
    const MIN_BYTES: usize = 8 + 4 + 8 + 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { id: r.get()?, snaps: r.get()?, size: r.u64()?, overlap: r.get()? })
    }
}

/// An object's clones. Ceph `SnapSet`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapSet {
    /// Newest snapshot that a write to the head has seen.
    pub seq: SnapId,
    /// Ascending by id.
    pub clones: Vec<CloneInfo>,
}

impl SnapSet {
    /// True when the object never met a snapshot.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seq == SnapId(0) && self.clones.is_empty()
    }

    /// The clone with this id.
    #[must_use]
    pub fn clone_of(&self, id: SnapId) -> Option<&CloneInfo> {
        self.clones.iter().find(|clone| clone.id == id)
    }
}

impl Encode for SnapSet {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.seq);
        w.put(&self.clones);
    }
}

impl Decode for SnapSet {
    const MIN_BYTES: usize = 12;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { seq: r.get()?, clones: r.get()? })
    }
}

/// What is known of a head when an operation begins. Ceph `ObjectContext` with its `SnapSetContext`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectContext {
    /// The store has a record: the object exists, or a whiteout stands for it.
    pub exists: bool,
    /// The record; default when there is none.
    pub info: ObjectInfo,
    /// The clones; those of a clone itself stand with its head.
    pub snaps: SnapSet,
}

impl ObjectContext {
    /// True when clients see an object.
    #[must_use]
    pub fn is_visible(&self) -> bool {
        self.exists && !self.info.whiteout
    }

    /// Reads the record of `object`, a head or a clone.
    ///
    /// # Errors
    /// [`DecodeError`] when the record is damaged.
    pub fn load(view: &dyn ObjectView, collection: &SpgId, object: &HObject) -> Result<Self, DecodeError> {
        view.meta(collection, object).map_or_else(|| Ok(Self::default()), Self::from_record)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`DecodeError`] when it is damaged.
    pub fn from_record(record: Bytes) -> Result<Self, DecodeError> {
        Reader::new(record).envelope("object record", RECORD_VERSION, |_, r| {
            let bits = r.u8()?;
            let info = ObjectInfo::read(bits, r)?;
            let snaps = if bits & bit::SNAPS == 0 { SnapSet::default() } else { r.get()? };
            Ok(Self { exists: true, info, snaps })
        })
    }

    /// The record of a head; [`ObjectContext::from_record`] reads it.
    #[must_use]
    pub fn to_record(&self) -> Bytes {
        self.info.to_record(Some(&self.snaps))
    }
}

/// The record of a clone.
#[must_use]
pub fn clone_record(info: &ObjectInfo) -> Bytes {
    info.to_record(None)
}

/// True when `record` is that of a deleted head. Looks at one byte: listings ask it of every object.
#[must_use]
pub fn is_whiteout(record: &[u8]) -> bool {
    record.get(BITS_OFFSET).is_some_and(|bits| bits & bit::WHITEOUT != 0)
}

/// What clients said of an object's data, by its record; nothing of a record that cannot be read.
#[must_use]
pub fn compression_hint(record: &Bytes) -> CompressionHint {
    use alloc_hint_flag::{COMPRESSIBLE, INCOMPRESSIBLE};
    let flags = ObjectContext::from_record(record.clone()).map_or(0, |context| context.info.hint.flags);
    match (flags & COMPRESSIBLE != 0, flags & INCOMPRESSIBLE != 0) {
        (true, false) => CompressionHint::Compressible,
        (false, true) => CompressionHint::Incompressible,
        (true, true) => CompressionHint::Both,
        (false, false) => CompressionHint::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_whether_its_data_are_worth_compressing() {
        let hint_of = |flags| {
            let mut context = ObjectContext::default();
            context.info.hint.flags = flags;
            compression_hint(&context.to_record())
        };
        assert_eq!(hint_of(0), CompressionHint::None);
        assert_eq!(hint_of(alloc_hint_flag::COMPRESSIBLE | 1), CompressionHint::Compressible);
        assert_eq!(hint_of(alloc_hint_flag::INCOMPRESSIBLE), CompressionHint::Incompressible);
        assert_eq!(hint_of(256 | 512), CompressionHint::Both);
        assert_eq!(compression_hint(&Bytes::from_static(b"\xff\xff")), CompressionHint::None);
    }

    fn full() -> ObjectContext {
        let addr = EntityAddr::parse("192.0.2.1:0/7").expect("an address");
        let info = ObjectInfo {
            version: Eversion::new(3, 40),
            prior_version: Eversion::new(2, 12),
            user_version: 40,
            size: 4096,
            mtime: UTime { sec: 5, nsec: 6 },
            truncate_seq: 2,
            truncate_size: 100,
            whiteout: false,
            has_omap: true,
            data_digest: Some(7),
            hint: AllocHint { expected_object_size: 1, expected_write_size: 2, flags: 3 },
            watchers: [((9, EntityName::client(4)), Watcher { addr, timeout_s: 30 })].into(),
        };
        let clone = CloneInfo {
            id: SnapId(4),
            snaps: vec![SnapId(3), SnapId(4)],
            size: 10,
            overlap: IntervalSet::of(2, 5),
        };
        ObjectContext { exists: true, info, snaps: SnapSet { seq: SnapId(4), clones: vec![clone] } }
    }

    #[test]
    fn records_round_trip() {
        for context in [full(), ObjectContext { exists: true, ..ObjectContext::default() }] {
            assert_eq!(ObjectContext::from_record(context.to_record()), Ok(context));
        }
        let clone = ObjectContext::from_record(clone_record(&full().info)).expect("a good record");
        assert_eq!(clone, ObjectContext { snaps: SnapSet::default(), ..full() });
    }

    #[test]
    fn a_plain_record_is_small_and_a_cut_one_is_refused() {
        let plain = ObjectContext { exists: true, ..ObjectContext::default() }.to_record();
        assert!(plain.len() < RECORD_BYTES_MIN);
        for length in 0..full().to_record().len() {
            assert!(ObjectContext::from_record(full().to_record().slice(..length)).is_err());
        }
    }

    #[test]
    fn whiteouts_show_without_decoding() {
        let mut context = full();
        assert!(!is_whiteout(&context.to_record()));
        context.info.whiteout = true;
        assert!(is_whiteout(&context.to_record()) && !context.is_visible());
        assert!(!is_whiteout(b""));
    }

    #[test]
    fn a_clone_owns_what_does_not_overlap() {
        assert_eq!(full().snaps.clones[0].own_bytes(), 5);
    }
}
