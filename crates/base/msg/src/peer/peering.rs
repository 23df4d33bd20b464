//! Finding out what the members have, and agreeing on one log.

use super::coded::{coded, coded_message};
use super::{LogEntry, PastIntervals, PeerHeader, PgInfo};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Epoch, Eversion, HObject, OsdId};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryKind {
    /// The info alone.
    Info,
    /// Info, the whole log and what is missing.
    Log,
}

impl Encode for QueryKind {
    fn encode(&self, w: &mut Writer) {
        w.u8(match self {
            Self::Info => 1,
            Self::Log => 2,
        });
    }
}

impl Decode for QueryKind {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        match r.u8()? {
            1 => Ok(Self::Info),
            2 => Ok(Self::Log),
            value => Err(DecodeError::Invalid { what: "query kind", value: value.into() }),
        }
    }
}

/// Which OSDs serve the PG, and since when. A copy that is made because of a message takes the epochs over if its own
/// map says the same of the members.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IntervalId {
    /// First epoch of the interval.
    pub since: Epoch,
    /// First epoch with this primary.
    pub primary_since: Epoch,
    /// OSDs that CRUSH and upmaps choose, the primary first.
    pub up: Vec<OsdId>,
    /// OSDs that serve: the up set, or its `pg_temp`.
    pub acting: Vec<OsdId>,
    /// Primary of the acting set.
    pub primary: OsdId,
}

coded!(IntervalId, "peer interval", { since, primary_since, up, acting, primary });

/// What do you have of this PG? Answered by [`Notify`] or [`LogReply`].
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// PG and epoch.
    pub header: PeerHeader,
    /// What is asked for.
    pub kind: QueryKind,
    /// Number of the question, not 0; echoed by a [`Notify`].
    pub nonce: u64,
}

coded_message!(Query, "Query", { header, kind, nonce });

/// This is what I have of the PG: an answer, or unasked when an interval begins (or the sender started
/// within one), to its primary.
#[derive(Debug, Clone, PartialEq)]
pub struct Notify {
    /// PG and epoch.
    pub header: PeerHeader,
    /// The question that is answered, 0 when nobody asked.
    pub nonce: u64,
    /// The interval, for a receiver that has no copy yet and must make one.
    pub interval: IntervalId,
    /// What the sender's copy is.
    pub info: PgInfo,
    /// Intervals since the sender last knew the PG active.
    pub past: PastIntervals,
}

coded_message!(Notify, "Notify", { header, nonce, interval, info, past });

/// One object that a copy lacks in the version that the log demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingItem {
    /// Name of the object that it is about.
    pub object: HObject,
    /// The version that is needed; zero when the object must not exist.
    pub need: Eversion,
}

coded!(MissingItem, "missing item", { object, need });

/// My log, as asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct LogReply {
    /// PG and epoch.
    pub header: PeerHeader,
    /// The copy; `log_tail` says what `entries` begin above.
    pub info: PgInfo,
    /// All entries of the log.
    pub entries: Vec<LogEntry>,
    /// What this copy lacks itself.
    pub missing: Vec<MissingItem>,
}

coded_message!(LogReply, "LogReply", { header, info, entries, missing });

/// This is the authoritative log; take part in the interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Activate {
    /// PG and epoch.
    pub header: PeerHeader,
    /// The interval, for a receiver that has no copy yet and must make one.
    pub interval: IntervalId,
    /// The primary's info: the authoritative history, `last_update` and `log_tail`.
    pub info: PgInfo,
    /// Entries begin above this version. When it is above `info.log_tail`, the receiver has it as an entry.
    pub since: Eversion,
    /// Entries of the authoritative log above `since`.
    pub entries: Vec<LogEntry>,
    /// The receiver's copy is compared object by object by the primary: its log is replaced, and it is
    /// incomplete until the primary says otherwise.
    pub backfill: bool,
    /// Intervals since the PG was last known active.
    pub past: PastIntervals,
}

coded_message!(Activate, "Activate", { header, interval, info, since, entries, backfill, past });

/// I have it durably; these objects I miss.
#[derive(Debug, Clone, PartialEq)]
pub struct Activated {
    /// PG and epoch.
    pub header: PeerHeader,
    /// The copy after the merge.
    pub info: PgInfo,
    /// What the log says is missing (empty for a rebuilt copy: the primary knows).
    pub missing: Vec<MissingItem>,
}

coded_message!(Activated, "Activated", { header, info, missing });
