//! The PG log: what changed, in order; which request asked for it; and how two copies of it become one.

mod compact;
mod merge;
mod missing;
mod pg_log;
mod requests;
mod segments;

use nacre_msg::peer::{Counters, LogEntry, LogKind};
use nacre_msg::size::LOG_BYTES_MAX;
use nacre_types::{Eversion, HObject, ReqId, UTime};

pub(crate) use merge::{Change, merge};
pub(crate) use missing::Missing;
pub(crate) use pg_log::PgLog;

/// Entries that a log keeps when it can: as many as Ceph remembers requests for (`osd_pg_log_dups_tracked`),
/// since our log itself is what recognises a resent request.
pub const LOG_ENTRIES_TARGET: usize = 3000;
/// Entries over the target before a trim is worth a record of its own (`osd_pg_log_trim_min`).
pub const LOG_TRIM_ENTRIES_MIN: usize = 100;
/// Entries that a log never exceeds, although a copy still needs them to know what it misses
/// (`osd_max_pg_log_entries`): beyond, that copy is compared object by object.
pub const LOG_ENTRIES_MAX: usize = 10_000;

/// As [`LOG_BYTES_MAX`], with room for what is in flight when it is reached.
const LOG_BYTES_TRIMMED: usize = LOG_BYTES_MAX / 2;

/// An entry that no client asked for: of what the PG does by itself.
pub(crate) fn own_entry(
    kind: LogKind,
    object: HObject,
    (version, prior_version): (Eversion, Eversion),
    user_version: u64,
    mtime: UTime,
) -> LogEntry {
    LogEntry {
        kind,
        object,
        version,
        prior_version,
        user_version,
        reqid: ReqId::default(),
        mtime,
        result: 0,
        outputs: Vec::new(),
        snaps: Vec::new(),
        delta: Counters::default(),
        committed_to: Eversion::ZERO,
        modified: None,
    }
}

/// What the four numbers are in one PG: tests make them tiny, so that rare branches are common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    /// See [`LOG_ENTRIES_TARGET`].
    pub target: usize,
    /// See [`LOG_TRIM_ENTRIES_MIN`].
    pub trim_min: usize,
    /// See [`LOG_ENTRIES_MAX`].
    pub max: usize,
    /// Bytes of encoded entries that a log does not exceed likewise; it is trimmed from half of them on.
    pub bytes_max: usize,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            target: LOG_ENTRIES_TARGET,
            trim_min: LOG_TRIM_ENTRIES_MIN,
            max: LOG_ENTRIES_MAX,
            bytes_max: LOG_BYTES_TRIMMED,
        }
    }
}

const _: () =
    assert!(LOG_ENTRIES_TARGET + LOG_TRIM_ENTRIES_MIN < LOG_ENTRIES_MAX, "a trim must come before the cap");

#[cfg(test)]
pub(crate) use pg_log::tests::entry;
