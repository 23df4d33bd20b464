//! [`LogEntry`]: one change in a PG's log. Our own form of Ceph's `pg_log_entry_t`.

use super::Counters;
use super::coded::coded;
use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Eversion, HObject, IntervalSet, ReqId, SnapId, UTime};

/// What an entry did to its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogKind {
    /// Created or changed it.
    Modify,
    /// The object was removed.
    Delete,
    /// Made this clone of the head.
    Clone,
    /// Nothing: a write that failed, remembered so that its resend fails alike.
    Error,
}

impl Encode for LogKind {
    fn encode(&self, w: &mut Writer) {
        w.u8(match self {
            Self::Modify => 1,
            Self::Delete => 2,
            Self::Clone => 3,
            Self::Error => 4,
        });
    }
}

impl Decode for LogKind {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        match r.u8()? {
            1 => Ok(Self::Modify),
            2 => Ok(Self::Delete),
            3 => Ok(Self::Clone),
            4 => Ok(Self::Error),
            value => Err(DecodeError::Invalid { what: "log entry kind", value: value.into() }),
        }
    }
}

/// Result of one op of a message, kept for resends of messages that asked for it (RETURNVEC) or failed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpOutput {
    /// The op's return value.
    pub rval: i32,
    /// Its output, bounded by the executor.
    pub data: Bytes,
}

coded!(OpOutput, "op output", { rval, data });

/// One change in a PG's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// What it did.
    pub kind: LogKind,
    /// To which object.
    pub object: HObject,
    /// Greater than every version before.
    pub version: Eversion,
    /// The object's version before; zero when it did not exist.
    pub prior_version: Eversion,
    /// The object's user version after.
    pub user_version: u64,
    /// The client's request that made it; default for changes of our own.
    pub reqid: ReqId,
    /// When the client says it happened.
    pub mtime: UTime,
    /// The message's result.
    pub result: i32,
    /// Outputs of the message's ops, where they are part of the answer.
    pub outputs: Vec<OpOutput>,
    /// A clone's snapshots.
    pub snaps: Vec<SnapId>,
    /// What it added to the PG's sums.
    pub delta: Counters,
    /// All members of the pool's chunks had this durably when the entry was made, as far as the primary knew. Since version 2,
    /// which only entries have that say so; a program that knows version 1 passes over it.
    pub committed_to: Eversion,
    /// `(offset, length)` of the data of a coded object that may differ from before, where that was in part of it: of the rest, each
    /// shard has kept nothing. `None` where all may, and all is kept. Since version 3, likewise.
    pub modified: Option<IntervalSet>,
}

const LOG_ENTRY_VERSION: u8 = 3;

impl Encode for LogEntry {
    fn encode(&self, w: &mut Writer) {
        let version = match self.modified {
            Some(_) => LOG_ENTRY_VERSION,
            None => 1 + u8::from(self.committed_to > Eversion::ZERO),
        };
        w.envelope(version, 1, |w| {
            w.put(&self.kind);
            w.put(&self.object);
            w.put(&self.version);
            w.put(&self.prior_version);
            w.u64(self.user_version);
            w.put(&self.reqid);
            w.put(&self.mtime);
            w.put(&self.result);
            w.put(&self.outputs);
            w.put(&self.snaps);
            w.put(&self.delta);
            if version >= 2 {
                w.put(&self.committed_to);
            }
            if let Some(modified) = &self.modified {
                w.put(modified);
            }
        });
    }
}

impl Decode for LogEntry {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("log entry", LOG_ENTRY_VERSION, |version, r| {
            Ok(Self {
                kind: r.get()?,
                object: r.get()?,
                version: r.get()?,
                prior_version: r.get()?,
                user_version: r.u64()?,
                reqid: r.get()?,
                mtime: r.get()?,
                result: r.get()?,
                outputs: r.get()?,
                snaps: r.get()?,
                delta: r.get()?,
                committed_to: if version >= 2 { r.get()? } else { Eversion::ZERO },
                modified: if version >= 3 { Some(r.get()?) } else { None },
            })
        })
    }
}

impl LogEntry {
    /// True when a resend of a client's request can match this entry.
    #[must_use]
    pub fn has_reqid(&self) -> bool {
        self.reqid != ReqId::default()
    }

    /// True when the object is (or is no more) what this entry says; false for failed writes.
    #[must_use]
    pub fn changes_object(&self) -> bool {
        self.kind != LogKind::Error
    }

    /// True when the object does not exist after it.
    #[must_use]
    pub fn is_delete(&self) -> bool {
        self.kind == LogKind::Delete
    }
}
