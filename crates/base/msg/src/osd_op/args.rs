//! Typed views of the 28 bytes of arguments, `union` in Ceph's `struct ceph_osd_op` (packed, little-endian).

use super::{ARGS_BYTES, SubOp};
use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_denc::DecodeError;
use nacre_types::SnapId;

/// Comparisons of `cmpxattr` and `omap-cmp`.
pub mod compare_op {
    /// Holds when both are equal.
    pub const EQ: u8 = 1;
    /// Holds when they differ.
    pub const NE: u8 = 2;
    /// Holds when the first is greater than the second; each operation says which is which.
    pub const GT: u8 = 3;
    /// Holds when the first is greater, or both are equal.
    pub const GTE: u8 = 4;
    /// Holds when the first is less than the second.
    pub const LT: u8 = 5;
    /// Holds when the first is less, or both are equal.
    pub const LTE: u8 = 6;
}

/// What [`WatchArgs::op`] asks for.
pub mod watch_op {
    /// The client watches the object no longer.
    pub const UNWATCH: u8 = 0;
    /// Watch, as old clients say it.
    pub const LEGACY_WATCH: u8 = 1;
    /// Begin to watch.
    pub const WATCH: u8 = 3;
    /// Resume an existing watch on a new connection.
    pub const RECONNECT: u8 = 5;
    /// Keep an existing watch alive.
    pub const PING: u8 = 7;
}

/// Bits of [`AllocHint::flags`].
pub mod alloc_hint_flag {
    /// Written in sequence.
    pub const SEQUENTIAL_WRITE: u32 = 1;
    /// Written at random.
    pub const RANDOM_WRITE: u32 = 2;
    /// Read in sequence.
    pub const SEQUENTIAL_READ: u32 = 4;
    /// Read at random.
    pub const RANDOM_READ: u32 = 8;
    /// Only appended to.
    pub const APPEND_ONLY: u32 = 16;
    /// Never written again.
    pub const IMMUTABLE: u32 = 32;
    /// The object will be deleted soon.
    pub const SHORTLIVED: u32 = 64;
    /// Kept for long.
    pub const LONGLIVED: u32 = 128;
    /// The data are worth compressing.
    pub const COMPRESSIBLE: u32 = 256;
    /// Not worth compressing.
    pub const INCOMPRESSIBLE: u32 = 512;
}

/// Values of [`Checksum::kind`].
pub mod checksum_kind {
    /// xxHash, 32 bits.
    pub const XXHASH32: u8 = 0;
    /// xxHash, 64 bits.
    pub const XXHASH64: u8 = 1;
    /// Checksum by CRC-32C.
    pub const CRC32C: u8 = 2;
}

/// Bits of [`CopyFrom::flags`].
pub mod copy_from_flag {
    /// Part of a cache flush.
    pub const FLUSH: u8 = 1;
    /// Ignore the overlay.
    pub const IGNORE_OVERLAY: u8 = 2;
    /// Ignore the cache.
    pub const IGNORE_CACHE: u8 = 4;
    /// Map a snapshot to its clone.
    pub const MAP_SNAP_CLONE: u8 = 8;
    /// Order after earlier writes.
    pub const RWORDERED: u8 = 16;
    /// Copy truncate sequence and size too (`copy-from2`).
    pub const TRUNCATE_SEQ: u8 = 32;
}

/// How an attribute is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompareMode {
    /// Values are compared byte by byte.
    Text,
    /// As decimal text of a `u64` on the object's side, a binary `u64` on the request's.
    Number,
}

/// A byte range, with the truncation that the file system's client knows of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// Offset of the first byte within the object.
    pub offset: u64,
    /// Bytes; 0 reads to the end.
    pub length: u64,
    /// Size that the object was cut to.
    pub truncate_size: u64,
    /// Which truncation that was.
    pub truncate_seq: u32,
}

/// Lengths of an attribute's name and value in the input, and how to compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct XattrArgs {
    /// Bytes of the name.
    pub name_len: u32,
    /// Bytes of the value behind it.
    pub value_len: u32,
    /// See [`compare_op`].
    pub compare_op: u8,
    /// 1 text, 2 number.
    pub compare_mode: u8,
}

impl XattrArgs {
    /// How to compare, if the mode is one that exists.
    #[must_use]
    pub fn mode(&self) -> Option<CompareMode> {
        match self.compare_mode {
            1 => Some(CompareMode::Text),
            2 => Some(CompareMode::Number),
            _ => None,
        }
    }
}

/// A class method's call, cut out of the input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassCall {
    /// Name of the class.
    pub class: ByteStr,
    /// Name of the class's method.
    pub method: ByteStr,
    /// The method's input.
    pub input: Bytes,
}

/// A listing's page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PgList {
    /// Most entries wanted.
    pub count: u64,
    /// Map epoch at which the listing began.
    pub start_epoch: u32,
}

/// Arguments of `watch`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WatchArgs {
    /// The client's handle.
    pub cookie: u64,
    /// Obsolete: nothing reads it.
    pub version: u64,
    /// See [`watch_op`].
    pub op: u8,
    /// Counts the reconnects of this watch.
    pub generation: u32,
    /// Seconds without a sign of life after which the watch ends; 0 for the default.
    pub timeout_s: u32,
}

/// A copy's source, beside the name and locator in the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CopyFrom {
    /// Snapshot of the source.
    pub source_snap: SnapId,
    /// User version that the source must have, 0 for any.
    pub source_version: u64,
    /// See [`copy_from_flag`].
    pub flags: u8,
    /// Hints for reading the source, as in [`op_flag`](super::op_flag).
    pub source_fadvise: u32,
}

/// What the client expects to do with an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AllocHint {
    /// Size that it will have.
    pub expected_object_size: u64,
    /// Size of its writes.
    pub expected_write_size: u64,
    /// See [`alloc_hint_flag`].
    pub flags: u32,
}

/// A pattern written over a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteSame {
    /// Offset of the first byte within the object.
    pub offset: u64,
    /// Bytes of the range.
    pub length: u64,
    /// Bytes of the pattern.
    pub data_length: u64,
}

/// Checksums over a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Checksum {
    /// Offset of the first byte within the object.
    pub offset: u64,
    /// Bytes of the range.
    pub length: u64,
    /// Bytes per checksum, 0 for the whole range.
    pub chunk_size: u32,
    /// See [`checksum_kind`].
    pub kind: u8,
}

impl SubOp {
    fn at<const N: usize>(&self, offset: usize) -> [u8; N] {
        let rest = self.args.get(offset..).unwrap_or_default();
        rest.first_chunk().copied().unwrap_or([0; N])
    }

    fn byte(&self, offset: usize) -> u8 {
        u8::from_le_bytes(self.at(offset))
    }

    fn word(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.at(offset))
    }

    fn long(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.at(offset))
    }

    /// Of `read`, `write`, `zero`, `truncate` (offset only), `cmpext` and their kin. Clients of file systems that know of no truncation say
    /// so by the first number with a size of all ones (`PrimaryLogPG::do_osd_ops`, v16.2.15); it comes out as none.
    #[must_use]
    pub fn extent(&self) -> Extent {
        let (truncate_seq, truncate_size) = match (self.word(24), self.long(16)) {
            (1, u64::MAX) => (0, 0),
            known => known,
        };
        Extent { offset: self.long(0), length: self.long(8), truncate_size, truncate_seq }
    }

    /// Of the attribute operations.
    #[must_use]
    pub fn xattr(&self) -> XattrArgs {
        XattrArgs {
            name_len: self.word(0),
            value_len: self.word(4),
            compare_op: self.byte(8),
            compare_mode: self.byte(9),
        }
    }

    /// Name and value of an attribute operation, out of the input.
    ///
    /// # Errors
    /// When the input is shorter than the arguments say.
    pub fn xattr_parts(&self) -> Result<(ByteStr, Bytes), DecodeError> {
        let XattrArgs { name_len, value_len, .. } = self.xattr();
        let (name, value) = (name_len as usize, value_len as usize);
        Ok((cut(&self.indata, 0, name)?.into(), cut(&self.indata, name, value)?))
    }

    /// Class, method and input of `call`.
    ///
    /// # Errors
    /// When the input is shorter than the arguments say.
    pub fn class_call(&self) -> Result<ClassCall, DecodeError> {
        let (class, method) = (usize::from(self.byte(0)), usize::from(self.byte(1)));
        let input = self.word(3) as usize;
        Ok(ClassCall {
            class: cut(&self.indata, 0, class)?.into(),
            method: cut(&self.indata, class, method)?.into(),
            input: cut(&self.indata, class + method, input)?,
        })
    }

    /// Of the listings.
    #[must_use]
    pub fn pg_list(&self) -> PgList {
        PgList { count: self.long(0), start_epoch: self.word(8) }
    }

    /// Of `rollback`.
    #[must_use]
    pub fn snap(&self) -> SnapId {
        SnapId(self.long(0))
    }

    /// Of `watch`.
    #[must_use]
    pub fn watch(&self) -> WatchArgs {
        WatchArgs {
            cookie: self.long(0),
            version: self.long(8),
            op: self.byte(16),
            generation: self.word(17),
            timeout_s: self.word(21),
        }
    }

    /// Cookie of `notify`.
    #[must_use]
    pub fn notify_cookie(&self) -> u64 {
        self.long(0)
    }

    /// Version of `assert-version`.
    #[must_use]
    pub fn assert_ver(&self) -> u64 {
        self.long(8)
    }

    /// Of `copy-from` and `copy-from2`.
    #[must_use]
    pub fn copy_from(&self) -> CopyFrom {
        CopyFrom {
            source_snap: SnapId(self.long(0)),
            source_version: self.long(8),
            flags: self.byte(16),
            source_fadvise: self.word(17),
        }
    }

    /// Of `set-alloc-hint`.
    #[must_use]
    pub fn alloc_hint(&self) -> AllocHint {
        AllocHint {
            expected_object_size: self.long(0),
            expected_write_size: self.long(8),
            flags: self.word(16),
        }
    }

    /// Of `writesame`.
    #[must_use]
    pub fn writesame(&self) -> WriteSame {
        WriteSame { offset: self.long(0), length: self.long(8), data_length: self.long(16) }
    }

    /// Of `checksum`.
    #[must_use]
    pub fn checksum(&self) -> Checksum {
        Checksum {
            offset: self.long(0),
            length: self.long(8),
            chunk_size: self.word(16),
            kind: self.byte(20),
        }
    }
}

fn cut(list: &BufList, start: usize, length: usize) -> Result<Bytes, DecodeError> {
    let left = list.len().saturating_sub(start);
    if length > left {
        return Err(DecodeError::Short { offset: start, wanted: length, left });
    }
    Ok(list.slice(start, length).to_bytes())
}

/// Fills a union: fields are put at their offsets, all else stays zero.
#[derive(Default)]
pub(super) struct ArgsWriter(pub(super) [u8; ARGS_BYTES]);

impl ArgsWriter {
    pub(super) fn put<const N: usize>(mut self, offset: usize, bytes: [u8; N]) -> Self {
        let place = self.0.get_mut(offset..offset + N).expect("an offset of the union's layout");
        place.copy_from_slice(&bytes);
        self
    }

    pub(super) fn byte(self, offset: usize, value: u8) -> Self {
        self.put(offset, [value])
    }

    pub(super) fn word(self, offset: usize, value: u32) -> Self {
        self.put(offset, value.to_le_bytes())
    }

    pub(super) fn long(self, offset: usize, value: u64) -> Self {
        self.put(offset, value.to_le_bytes())
    }
}
