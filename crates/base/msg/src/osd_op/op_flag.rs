//! Bits of [`SubOp::flags`](super::SubOp::flags). Ceph `CEPH_OSD_OP_FLAG_*`.

/// `create` fails when the object exists.
pub const EXCL: u32 = 0x1;
/// A failure of this operation does not fail the message.
pub const FAILOK: u32 = 0x2;
/// Hint: random access.
pub const FADVISE_RANDOM: u32 = 0x4;
/// Hint: sequential access.
pub const FADVISE_SEQUENTIAL: u32 = 0x8;
/// Hint: needed again soon.
pub const FADVISE_WILLNEED: u32 = 0x10;
/// Hint: not needed again.
pub const FADVISE_DONTNEED: u32 = 0x20;
/// Hint: keep out of caches.
pub const FADVISE_NOCACHE: u32 = 0x40;
/// Do not verify checksums.
pub const BYPASS_CLEAN_CACHE: u32 = 0x80;
