//! A write on its way to the replicas.

use super::coded::{coded_with_txn, message_parts};
use super::{LogEntry, PeerHeader};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_txn::Transaction;
use nacre_types::Eversion;

/// Apply this write. The transaction already holds the log entries; they are repeated decoded, so that the
/// replica's log in memory follows without reading its store.
#[derive(Debug, Clone, PartialEq)]
pub struct RepOp {
    /// PG and epoch.
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
    /// PG and epoch.
    pub header: PeerHeader,
    /// Number of the write that is durable, as its primary counts them.
    pub tid: u64,
    /// The replica's own `last_complete`.
    pub last_complete: Eversion,
    /// The replica's store is nearly full: what it keeps free is for what is under way to it. Clients' writes that bring
    /// data are to be refused. Since version 2.
    pub is_failsafe_full: bool,
}

const REP_OP_REPLY_VERSION: u8 = 2;

impl Encode for RepOpReply {
    fn encode(&self, w: &mut Writer) {
        w.envelope(REP_OP_REPLY_VERSION, 1, |w| {
            w.put(&self.header);
            w.u64(self.tid);
            w.put(&self.last_complete);
            w.bool(self.is_failsafe_full);
        });
    }
}

impl Decode for RepOpReply {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("RepOpReply", REP_OP_REPLY_VERSION, |version, r| {
            let (header, tid, last_complete) = (r.get()?, r.u64()?, r.get()?);
            Ok(Self { header, tid, last_complete, is_failsafe_full: version >= 2 && r.bool()? })
        })
    }
}

message_parts!(RepOpReply);
