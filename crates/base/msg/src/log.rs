//! The cluster log.
//!
//! Source: Ceph `MLog.h`, `MLogAck.h`, `src/common/LogEntry.h`, v16.2.15.

use crate::body::{body, fields};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{AddrVec, AuthName, EntityName, UTime, Uuid};

/// `MLog`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Log {
    /// Version that the sender knows.
    pub version: u64,
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// In the order of their sequence numbers.
    pub entries: Vec<ClusterLogEntry>,
}
body!(Log = 52, 1 / 1; @version; fsid, entries);

/// `MLogAck`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LogAck {
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// Last entry that is committed.
    pub last_seq: u64,
    /// The log channel; unused.
    pub channel: String,
}
body!(LogAck = 53, 1 / 1 [high]; fsid, last_seq, channel);

/// How grave an entry is. Ceph `clog_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LogPriority(pub u16);

impl LogPriority {
    /// Of use to developers only.
    pub const DEBUG: Self = Self(0);
    /// For the record.
    pub const INFO: Self = Self(1);
    /// A matter of security.
    pub const SEC: Self = Self(2);
    /// Look into it.
    pub const WARN: Self = Self(3);
    /// Something is broken.
    pub const ERROR: Self = Self(4);
}

impl Encode for LogPriority {
    fn encode(&self, w: &mut Writer) {
        w.u16(self.0);
    }
}

impl Decode for LogPriority {
    const MIN_BYTES: usize = 2;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.u16().map(Self)
    }
}

/// One line. Ceph `LogEntry`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ClusterLogEntry {
    /// The daemon or client that says it.
    pub name: AuthName,
    /// The running instance.
    pub rank: EntityName,
    /// Addresses of the daemon that says it.
    pub addrs: AddrVec,
    /// When it was said, by the sender's clock.
    pub stamp: UTime,
    /// Counts the sender's entries.
    pub seq: u64,
    /// How grave it is.
    pub priority: LogPriority,
    /// The line, for people.
    pub message: String,
    /// `cluster` or `audit`.
    pub channel: String,
}
fields!(ClusterLogEntry, "LogEntry", 5, 5; name, rank, addrs, stamp, seq, priority, message, channel);
