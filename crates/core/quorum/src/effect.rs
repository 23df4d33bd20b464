//! [`Effect`]: what a member of the quorum asks its driver to do.

use crate::wire::{HardState, LogEntry, LogPosition, Members, NodeId, PeerMessage};
use nacre_buf::Bytes;

/// Names a proposal, or a read, to the one that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Proposal(pub u64);

/// To be done in the order in which they come.
#[derive(Debug)]
pub enum Effect {
    /// Send to another member. May be lost, repeated or overtaken. A snapshot's message ([`PeerMessage::snapshot`]) goes with all tables
    /// as they are now, after [`PeerMessage::set_snapshot`] with the position and the members that are kept with them.
    Send {
        /// Member that the message is for.
        to: NodeId,
        /// What it is told.
        message: PeerMessage,
    },
    /// Write to the log, then call [`crate::Quorum::persisted`]. At most one is under way.
    Persist(LogWrite),
    /// Change the tables and keep `position` and `members` with them, atomically; then call [`crate::Quorum::applied`]. It need not be
    /// durable: after a crash the log is applied from the position that was kept.
    Apply {
        /// The entry's place in the log.
        position: LogPosition,
        /// The change; empty for entries of the algorithm itself.
        data: Bytes,
        /// The members from here on.
        members: Members,
        /// The caller that waits for it: it was proposed here, in this term.
        proposal: Option<Proposal>,
    },
    /// We lead, and everything that was acknowledged in earlier terms is applied. Somebody may lead a later term already: only what comes
    /// back by [`Effect::Apply`] or [`Effect::ReadReady`] may be told to anybody.
    BecameLeader {
        /// Term of the leader.
        term: u64,
    },
    /// We do not lead; what was proposed here and has not been applied may or may not happen.
    BecameFollower {
        /// Term of the leader.
        term: u64,
        /// The leader, where one is known.
        leader: Option<NodeId>,
    },
    /// What is applied now has all that was acknowledged anywhere before the read was asked for.
    ReadReady(Proposal),
}

/// A change of the stored log. All of it takes effect, or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogWrite {
    /// What [`crate::Quorum::persisted`] is told.
    pub number: u64,
    /// Instead of all tables and all of the log, those that came with the snapshot; what they are the state of.
    pub snapshot: Option<(LogPosition, Members)>,
    /// Entries, ascending without gaps: they replace all stored ones from the first of them on.
    pub entries: Vec<LogEntry>,
    /// The hard state from here on.
    pub hard_state: HardState,
    /// Entries up to here are not needed any more, since this write or an earlier one.
    pub trimmed: LogPosition,
    /// It must be on the device before [`crate::Quorum::persisted`]; else a crash may take it back.
    pub must_sync: bool,
}
