//! What a peer says is checked before it is believed: a log that does not ascend, or versions that nobody can have given out, would
//! stop an OSD that takes them over. The session of such a peer is reset, as behind any other message that cannot be read.

use super::{LogEntry, PeerMessage, PgInfo};
use nacre_denc::DecodeError;
use nacre_types::Eversion;

/// Versions are counted one by one: none comes near this.
const VERSION_MAX: u64 = 1 << 62;

fn invalid(what: &'static str, version: Eversion) -> DecodeError {
    DecodeError::Invalid { what, value: version.version }
}

fn check_version(what: &'static str, version: Eversion) -> Result<(), DecodeError> {
    if version.version < VERSION_MAX { Ok(()) } else { Err(invalid(what, version)) }
}

fn check_info(info: &PgInfo) -> Result<(), DecodeError> {
    for version in [info.last_update, info.last_complete, info.log_tail] {
        check_version("version in a peer's info", version)?;
    }
    let ordered = info.log_tail <= info.last_update && info.last_complete <= info.last_update;
    if ordered { Ok(()) } else { Err(invalid("order of versions in a peer's info", info.last_update)) }
}

/// Entries ascend from above `since` up to `head`.
fn check_log(since: Eversion, entries: &[LogEntry], head: Eversion) -> Result<(), DecodeError> {
    let mut last = since;
    for entry in entries {
        if entry.version <= last {
            return Err(invalid("order of a peer's log", entry.version));
        }
        last = entry.version;
    }
    if last == head { Ok(()) } else { Err(invalid("end of a peer's log", last)) }
}

impl PeerMessage {
    /// Whether what it says can be. Of what epoch versions may be, the PG knows by its own map.
    pub(super) fn check(&self) -> Result<(), DecodeError> {
        match self {
            Self::Notify(notify) => check_info(&notify.info),
            Self::LogReply(reply) => {
                check_info(&reply.info)?;
                check_log(reply.info.log_tail, &reply.entries, reply.info.last_update)
            }
            Self::Activate(activate) => {
                check_info(&activate.info)?;
                check_version("version in a peer's log", activate.since)?;
                check_log(activate.since, &activate.entries, activate.info.last_update)
            }
            Self::Activated(activated) => check_info(&activated.info),
            Self::Progress(progress) => check_info(&progress.info),
            Self::RepOp(op) => {
                let versions = op.entries.iter().map(|entry| entry.version);
                versions
                    .chain([op.previous])
                    .try_for_each(|version| check_version("version of a peer's write", version))
            }
            _ => Ok(()),
        }
    }
}
