//! [`RecoverySnapshotPart`]: our monitor hands our OSDs what the cluster can be begun anew from when all monitors are lost. Ceph has nothing
//! like it.

use crate::body::body;
use nacre_buf::BufList;

/// A part of a recovery snapshot: tables of the monitors, sealed to a key that no OSD has. Parts come in order, on one session with the
/// monitor; the last one makes the snapshot whole, and it replaces the one before then.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RecoverySnapshotPart {
    /// When the snapshot was made, in seconds since 1970. What an OSD subscribes behind.
    pub made: u64,
    /// Which part this is, from 0 on.
    pub index: u32,
    /// How many parts there are.
    pub count: u32,
    /// The part's bytes.
    pub bytes: BufList,
}
body!(RecoverySnapshotPart = 0x7103, 1 / 1; made, index, count; + bytes);

impl RecoverySnapshotPart {
    /// What OSDs subscribe to, behind the snapshot that they have. Ceph's monitors have nothing of this name, and say nothing.
    pub const TOPIC: &'static str = "nacre_recovery_snapshot";
    /// Bytes of one part: small beside every limit of messages and of an OSD's transactions.
    pub const BYTES_MAX: usize = 128 << 10;
    /// Parts of one snapshot: a snapshot has at most 64 MiB.
    pub const COUNT_MAX: u32 = 512;
}
