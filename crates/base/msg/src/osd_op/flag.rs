//! Bits of [`OsdOp::flags`](super::OsdOp::flags). Ceph `CEPH_OSD_FLAG_*`.

/// Wants an acknowledgement (obsolete, always answered).
pub const ACK: u32 = 0x1;
/// Obsolete: nothing reads it.
pub const ONNVRAM: u32 = 0x2;
/// Wants the commit acknowledgement.
pub const ONDISK: u32 = 0x4;
/// The message was sent before.
pub const RETRY: u32 = 0x8;
/// The client thinks that it reads.
pub const READ: u32 = 0x10;
/// The client thinks that it writes.
pub const WRITE: u32 = 0x20;
/// Fail with `EOLDSNAPC` when the snapshot context is older than the object's.
pub const ORDERSNAP: u32 = 0x40;
/// May be served by any replica.
pub const BALANCE_READS: u32 = 0x100;
/// Class code may run in parallel (unused).
pub const PARALLELEXEC: u32 = 0x200;
/// Works on a PG.
pub const PGOP: u32 = 0x400;
/// Calls a class method.
pub const EXEC: u32 = 0x800;
/// May be served by the nearest replica.
pub const LOCALIZE_READS: u32 = 0x2000;
/// Order reads after earlier writes.
pub const RWORDERED: u32 = 0x4000;
/// Ignore the cache tier.
pub const IGNORE_CACHE: u32 = 0x8000;
/// Skip read and write locks.
pub const SKIPRWLOCKS: u32 = 0x1_0000;
/// Ignore the pool overlay.
pub const IGNORE_OVERLAY: u32 = 0x2_0000;
/// A cache tier flush.
pub const FLUSH: u32 = 0x4_0000;
/// Map a snapshot to its clone.
pub const MAP_SNAP_CLONE: u32 = 0x8_0000;
/// Use the request's snapshot context even in a pool with pool snapshots.
pub const ENFORCE_SNAPC: u32 = 0x10_0000;
/// The message was redirected by a tier.
pub const REDIRECTED: u32 = 0x20_0000;
/// Knows redirects; always set.
pub const KNOWN_REDIR: u32 = 0x40_0000;
/// Try even when the pool is full.
pub const FULL_TRY: u32 = 0x80_0000;
/// Do it even when the pool is full.
pub const FULL_FORCE: u32 = 0x100_0000;
/// Redirects of the object are ignored.
pub const IGNORE_REDIRECT: u32 = 0x200_0000;
/// Return outputs of operations that write.
pub const RETURNVEC: u32 = 0x400_0000;
/// The client takes EIO from a pool flagged `eio`.
pub const SUPPORTSPOOLEIO: u32 = 0x800_0000;
