//! A write on its way to the replicas.

use super::coded::{coded_message, coded_with_txn};
use super::{LogEntry, PeerHeader};
use nacre_txn::Transaction;
use nacre_types::Eversion;

/// Apply this write. The transaction already holds the log entries; they are repeated decoded, so that the
/// replica's log in memory follows without reading its store.
#[derive(Debug, Clone, PartialEq)]
pub struct RepOp {
    /// Placement group and epoch.
    pub header: PeerHeader,
    /// The primary's number for the write, echoed.
    pub tid: u64,
    /// The log's head before the write: the replica must stand there.
    pub previous: Eversion,
    /// Entries that the write appends, at least one (or none for a mere log trim).
    pub entries: Vec<LogEntry>,
    /// Log entries up to here are forgotten by this transaction.
    pub trim_to: Eversion,
    /// Every member has this durably; reads up to it are safe on replicas.
    pub committed_to: Eversion,
    /// The changes, log appends included.
    pub txn: Transaction,
}

coded_with_txn!(RepOp, "RepOp", { header, tid, previous, entries, trim_to, committed_to });

/// The write is durable here.
#[derive(Debug, Clone, PartialEq)]
pub struct RepOpReply {
    /// Placement group and epoch.
    pub header: PeerHeader,
    /// The write.
    pub tid: u64,
    /// The replica's own `last_complete`.
    pub last_complete: Eversion,
}

coded_message!(RepOpReply, "RepOpReply", { header, tid, last_complete });
