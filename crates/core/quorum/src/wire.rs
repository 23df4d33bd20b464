//! Members, entries and messages, with encodings of our own for the wire between monitors and for the store.
//!
//! All integers are little-endian. Every type is in an envelope (version 1, compat 1), so that a later one may add to it.

use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use raft::eraftpb::{self, ConfState, Entry, Message, MessageType};

/// One member for as long as it has its store: never used again for another, nor for the same one without it. Not 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub u64);

/// A place in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition {
    /// Number of the entry; the first is 1.
    pub index: u64,
    /// The term in which it was proposed.
    pub term: u64,
}

/// What a member must not forget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HardState {
    /// The newest term it has seen.
    pub term: u64,
    /// The member that it voted for in it; 0 for none.
    pub vote: u64,
    /// Entries up to here are committed.
    pub commit: u64,
}

/// Members that vote and that only listen; two majorities are needed while `voters_outgoing` is not empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// Have a vote.
    pub voters: Vec<NodeId>,
    /// Get the log and have no vote.
    pub learners: Vec<NodeId>,
    /// Had a vote before the change that is under way.
    pub voters_outgoing: Vec<NodeId>,
    /// Of these, those that listen when the change is complete.
    pub learners_next: Vec<NodeId>,
    /// The change completes by itself.
    pub is_auto_leave: bool,
}

impl Members {
    /// Members that all vote.
    #[must_use]
    pub fn voting(voters: impl IntoIterator<Item = NodeId>) -> Self {
        Self { voters: voters.into_iter().collect(), ..Self::default() }
    }
}

/// A change of members, as [`crate::Quorum::change_members`] takes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MembersChange {
    /// Are to vote.
    pub voters: Vec<NodeId>,
    /// Are to listen.
    pub learners: Vec<NodeId>,
    /// Are no members any more.
    pub removed: Vec<NodeId>,
}

/// What kind of entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A change of the tables, or the empty one that a leader begins its term with.
    Change,
    /// A change of the members.
    Members,
}

/// One entry of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Term and index of the entry.
    pub position: LogPosition,
    /// What the entry is.
    pub kind: EntryKind,
    /// The change that was proposed.
    pub data: Bytes,
    /// Goes with a change of members.
    pub context: Bytes,
}

/// What one member tells another.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerMessage(pub(crate) Message);

impl PeerMessage {
    /// The member that says it.
    #[must_use]
    pub fn from(&self) -> NodeId {
        NodeId(self.0.from)
    }

    /// The tables are to be sent with it, as of the entry named; hand it to [`crate::Quorum::step`] when all of them are there.
    #[must_use]
    pub fn snapshot(&self) -> Option<LogPosition> {
        let metadata = self.0.get_snapshot().get_metadata();
        let is_snapshot = self.0.get_msg_type() == MessageType::MsgSnapshot;
        is_snapshot.then_some(LogPosition { index: metadata.index, term: metadata.term })
    }

    /// Says of a snapshot's message what the tables that go with it have come to: what is handed out to be applied may have been taken in
    /// since it was made.
    pub fn set_snapshot(&mut self, position: LogPosition, members: &Members) {
        let metadata = self.0.mut_snapshot().mut_metadata();
        (metadata.index, metadata.term) = (position.index, position.term);
        *metadata.mut_conf_state() = ConfState::from(members);
    }
}

impl From<&HardState> for eraftpb::HardState {
    fn from(state: &HardState) -> Self {
        Self { term: state.term, vote: state.vote, commit: state.commit, ..Self::default() }
    }
}

impl From<&eraftpb::HardState> for HardState {
    fn from(state: &eraftpb::HardState) -> Self {
        Self { term: state.term, vote: state.vote, commit: state.commit }
    }
}

fn numbers(ids: &[NodeId]) -> Vec<u64> {
    ids.iter().map(|id| id.0).collect()
}

fn ids(numbers: &[u64]) -> Vec<NodeId> {
    numbers.iter().copied().map(NodeId).collect()
}

impl From<&Members> for ConfState {
    fn from(members: &Members) -> Self {
        Self {
            voters: numbers(&members.voters),
            learners: numbers(&members.learners),
            voters_outgoing: numbers(&members.voters_outgoing),
            learners_next: numbers(&members.learners_next),
            auto_leave: members.is_auto_leave,
            ..Self::default()
        }
    }
}

impl From<&ConfState> for Members {
    fn from(state: &ConfState) -> Self {
        Self {
            voters: ids(&state.voters),
            learners: ids(&state.learners),
            voters_outgoing: ids(&state.voters_outgoing),
            learners_next: ids(&state.learners_next),
            is_auto_leave: state.auto_leave,
        }
    }
}

impl From<LogEntry> for Entry {
    fn from(entry: LogEntry) -> Self {
        let mut out = Self { term: entry.position.term, index: entry.position.index, ..Self::default() };
        (out.data, out.context) = (entry.data, entry.context);
        if entry.kind == EntryKind::Members {
            out.set_entry_type(eraftpb::EntryType::EntryConfChangeV2);
        }
        out
    }
}

impl From<&Entry> for LogEntry {
    fn from(entry: &Entry) -> Self {
        let is_change = entry.get_entry_type() == eraftpb::EntryType::EntryNormal;
        Self {
            position: LogPosition { index: entry.index, term: entry.term },
            kind: if is_change { EntryKind::Change } else { EntryKind::Members },
            data: entry.data.clone(),
            context: entry.context.clone(),
        }
    }
}

impl Encode for NodeId {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.0);
    }
}

impl Decode for NodeId {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.u64().map(Self)
    }
    const MIN_BYTES: usize = 8;
}

impl Encode for LogPosition {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.index);
        w.u64(self.term);
    }
}

impl Decode for LogPosition {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { index: r.u64()?, term: r.u64()? })
    }
    const MIN_BYTES: usize = 16;
}

impl Encode for HardState {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| [self.term, self.vote, self.commit].iter().for_each(|number| w.u64(*number)));
    }
}

impl Decode for HardState {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("HardState", 1, |_, r| Ok(Self { term: r.u64()?, vote: r.u64()?, commit: r.u64()? }))
    }
}

impl Encode for Members {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            for list in [&self.voters, &self.learners, &self.voters_outgoing, &self.learners_next] {
                w.put(list);
            }
            w.bool(self.is_auto_leave);
        });
    }
}

impl Decode for Members {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("Members", 1, |_, r| {
            Ok(Self {
                voters: r.get()?,
                learners: r.get()?,
                voters_outgoing: r.get()?,
                learners_next: r.get()?,
                is_auto_leave: r.bool()?,
            })
        })
    }
}

impl Encode for LogEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.position);
            w.bool(self.kind == EntryKind::Members);
            w.blob_of(&self.data);
            w.blob_of(&self.context);
        });
    }
}

impl Decode for LogEntry {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("LogEntry", 1, |_, r| {
            let position = r.get()?;
            let kind = if r.bool()? { EntryKind::Members } else { EntryKind::Change };
            Ok(Self { position, kind, data: r.blob()?, context: r.blob()? })
        })
    }
}

/// The kinds that one member sends another; a kind's place is its number on the wire.
const KINDS: [MessageType; 10] = [
    MessageType::MsgAppend,
    MessageType::MsgAppendResponse,
    MessageType::MsgRequestVote,
    MessageType::MsgRequestVoteResponse,
    MessageType::MsgSnapshot,
    MessageType::MsgHeartbeat,
    MessageType::MsgHeartbeatResponse,
    MessageType::MsgTimeoutNow,
    MessageType::MsgRequestPreVote,
    MessageType::MsgRequestPreVoteResponse,
];

pub(crate) fn is_for_peers(kind: MessageType) -> bool {
    KINDS.contains(&kind)
}

impl Encode for PeerMessage {
    fn encode(&self, w: &mut Writer) {
        let message = &self.0;
        let kind = KINDS.iter().position(|kind| *kind == message.get_msg_type());
        let metadata = message.get_snapshot().get_metadata();
        w.envelope(1, 1, |w| {
            w.u8(kind.and_then(|kind| u8::try_from(kind).ok()).unwrap_or(u8::MAX));
            let numbers = [
                message.to,
                message.from,
                message.term,
                message.log_term,
                message.index,
                message.commit,
                message.commit_term,
                message.request_snapshot,
                message.reject_hint,
                message.priority.cast_unsigned(),
            ];
            numbers.iter().for_each(|number| w.u64(*number));
            w.bool(message.reject);
            w.blob_of(&message.context);
            w.count(message.entries.len());
            for entry in &message.entries {
                w.put(&LogEntry::from(entry));
            }
            w.put(&LogPosition { index: metadata.index, term: metadata.term });
            w.put(&Members::from(metadata.get_conf_state()));
        });
    }
}

impl Decode for PeerMessage {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("PeerMessage", 1, |_, r| {
            let mut message = Message::default();
            let number = r.u8()?;
            let unknown =
                DecodeError::Invalid { what: "kind of a message between monitors", value: number.into() };
            let kind = KINDS.get(usize::from(number)).ok_or(unknown)?;
            message.set_msg_type(*kind);
            (message.to, message.from, message.term) = (r.u64()?, r.u64()?, r.u64()?);
            (message.log_term, message.index) = (r.u64()?, r.u64()?);
            (message.commit, message.commit_term) = (r.u64()?, r.u64()?);
            (message.request_snapshot, message.reject_hint) = (r.u64()?, r.u64()?);
            message.priority = r.i64()?;
            (message.reject, message.context) = (r.bool()?, r.blob()?);
            let entries: Vec<LogEntry> = r.get()?;
            message.entries = entries.into_iter().map(Entry::from).collect::<Vec<_>>().into();
            let (position, members): (LogPosition, Members) = (r.get()?, r.get()?);
            let mut message = Self(message);
            if *kind == MessageType::MsgSnapshot {
                message.set_snapshot(position, &members);
            }
            Ok(message)
        })
    }
}
