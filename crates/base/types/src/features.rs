//! Connection feature bits (Ceph `src/include/ceph_features.h`, v16.2.15).

/// What every 16.2.15 component offers; all encodings of ours assume all of them.
pub const SUPPORTED: u64 = 0x3f01_cfbd_fffd_ffff;
/// `RADOS_BACKOFF`: a client holds operations back when told to. Bit 21 of the second incarnation, whose mark is bit 57.
pub const RADOS_BACKOFF: u64 = 1 << 21 | 1 << 57;
/// `MSG_ADDR2`: the only feature that we insist on from a peer.
pub const REQUIRED: u64 = 1 << 59;
