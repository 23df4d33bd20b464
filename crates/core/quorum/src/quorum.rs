//! [`Quorum`]: one member.

use crate::effect::{Effect, LogWrite, Proposal};
use crate::log::{Log, Stored, StoredError};
use crate::wire::{self, HardState, LogEntry, LogPosition, Members, MembersChange, NodeId, PeerMessage};
use nacre_buf::Bytes;
use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2, Entry, EntryType, Message, MessageType};
use raft::{Config, RawNode, ReadOnlyOption, SnapshotStatus, StateRole};
use std::collections::{BTreeMap, VecDeque};

/// Ticks without a leader after which the member of rank 0 stands for election, and those without a majority after which a leader steps down.
const ELECTION_TICKS: usize = 20;
/// What each rank waits longer.
const RANK_TICKS: usize = 2;
/// Ranks from here on wait as long as this one.
const RANK_MAX: usize = 63;
/// Between heartbeats of a leader.
const HEARTBEAT_TICKS: usize = 2;
/// Most bytes of one message's entries beyond the first of them.
const MESSAGE_BYTES_MAX: u64 = 1 << 20;
/// Messages with entries that may be under way to one member.
const MESSAGES_IN_FLIGHT_MAX: usize = 64;
/// Bytes of proposals that are not committed.
const UNCOMMITTED_BYTES_MAX: u64 = 64 << 20;

/// How a member behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Id of this member.
    pub id: NodeId,
    /// Its place among the monitors at first, see [`Quorum::set_rank`].
    pub rank: usize,
    /// Longest change: what one message between monitors carries.
    pub proposal_bytes_max: usize,
    /// Applied entries that are kept for members that are behind; one that is further behind gets all tables.
    pub kept_entries_max: usize,
    /// Bytes of them.
    pub kept_bytes_max: usize,
}

/// Why a proposal was not taken: it did not and will not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Another member leads, or none.
    #[error("this monitor does not lead")]
    NotLeader,
    /// Too long for one entry.
    #[error("a change of {bytes} bytes is more than the {max} that one entry carries")]
    TooLarge {
        /// Length of the change in bytes.
        bytes: usize,
        /// Most bytes that a change may have.
        max: usize,
    },
    /// Too much waits to be committed, or a change of members is under way.
    #[error("earlier changes are not committed yet")]
    Busy,
}

/// A member's message that was not taken; it is at fault, and its session should end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// It says that it is from another member than its session is of, or for another than us.
    #[error("a message of another member, or for another")]
    WrongMember,
    /// Its entries do not follow each other.
    #[error("entries that do not follow each other")]
    Gap,
    /// It contradicts what is committed: logs of two clusters, or a store that was put back.
    #[error("a log that differs from what is committed here")]
    Contradiction,
}

/// The write that is under way.
struct Writing {
    number: u64,
    /// Its tables have come to here, if it brings such.
    snapshot: Option<LogPosition>,
    /// May be sent when it is done.
    messages: Vec<Message>,
}

/// One member of the quorum. See the crate's documentation.
pub struct Quorum {
    node: RawNode<Log>,
    settings: Settings,
    /// Ticks without a leader after which this member stands for election.
    election_ticks: usize,
    effects: Vec<Effect>,
    /// Proposals of the present term that are not applied, by entry.
    proposals: BTreeMap<u64, Proposal>,
    writing: Option<Writing>,
    /// What was handed out to be applied, and has not been; with it, the members from there on.
    applying: VecDeque<(LogPosition, Members)>,
    /// The term in which we lead, once that was said.
    leads: Option<u64>,
    followed: Option<(u64, Option<NodeId>)>,
    /// Ticks since this member was opened.
    ticks: u64,
    /// When other members were heard last.
    heard: BTreeMap<NodeId, u64>,
}

fn election_ticks_of(rank: usize) -> usize {
    ELECTION_TICKS + RANK_TICKS * rank.min(RANK_MAX)
}

impl std::fmt::Debug for Quorum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let raft = &self.node.raft;
        write!(
            f,
            "Quorum({} {:?} of term {}, committed {})",
            raft.id, raft.state, raft.term, raft.raft_log.committed
        )
    }
}

impl Quorum {
    /// A member as its store has it. It follows until it hears a leader or stands for election; the only voter of its
    /// cluster leads as soon as its first write is done.
    ///
    /// # Errors
    /// [`StoredError`].
    pub fn open(settings: Settings, stored: Stored) -> Result<Self, StoredError> {
        let log = Log::open(stored)?;
        let config = Config {
            id: settings.id.0,
            election_tick: ELECTION_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            // What the library draws from this range is never used: `pump` sets our own.
            min_election_tick: ELECTION_TICKS,
            max_election_tick: election_ticks_of(RANK_MAX) + 1,
            applied: log.applied.index,
            max_size_per_msg: MESSAGE_BYTES_MAX,
            max_inflight_msgs: MESSAGES_IN_FLIGHT_MAX,
            max_uncommitted_size: UNCOMMITTED_BYTES_MAX,
            check_quorum: true,
            pre_vote: true,
            read_only_option: ReadOnlyOption::Safe,
            ..Config::default()
        };
        let is_alone = log.members.voters == [settings.id] && log.members.voters_outgoing.is_empty();
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        // Fails only for settings that are none, and for a log that `Log::open` refuses.
        let node = RawNode::new(&config, log, &logger).map_err(|_| StoredError::NoVoters)?;
        let mut quorum = Self {
            node,
            election_ticks: election_ticks_of(settings.rank),
            settings,
            effects: Vec::new(),
            proposals: BTreeMap::new(),
            writing: None,
            applying: VecDeque::new(),
            leads: None,
            followed: None,
            ticks: 0,
            heard: BTreeMap::new(),
        };
        if is_alone {
            quorum.campaign(MessageType::MsgHup);
        }
        quorum.pump();
        Ok(quorum)
    }

    /// Its place among the monitors by now: a lower one stands for election earlier, and two with the same might do so at once, again and
    /// again.
    pub fn set_rank(&mut self, rank: usize) {
        self.election_ticks = election_ticks_of(rank);
        self.pump();
    }

    /// How many bytes are kept from now on for members that are behind, as [`Settings`] has it at first.
    pub fn set_kept_bytes(&mut self, max: usize) {
        self.settings.kept_bytes_max = max;
    }

    /// Takes what is to be done since the last call.
    pub fn drain(&mut self, out: &mut Vec<Effect>) {
        out.append(&mut self.effects);
    }

    /// 50 ms have passed.
    pub fn tick(&mut self) {
        self.ticks += 1;
        self.node.tick();
        self.pump();
    }

    /// Another member's message, whose session proved to be that of `from`.
    ///
    /// # Errors
    /// [`StepError`]: it is dropped.
    pub fn step(&mut self, from: NodeId, message: PeerMessage) -> Result<(), StepError> {
        let message = message.0;
        if message.from != from.0
            || message.to != self.settings.id.0
            || !wire::is_for_peers(message.get_msg_type())
        {
            return Err(StepError::WrongMember);
        }
        self.check_log(&message)?;
        if self.node.raft.prs().get(from.0).is_some() {
            self.heard.insert(from, self.ticks);
        }
        // Refused are answers of those that are no members any more.
        self.node.step(message).unwrap_or_default();
        self.pump();
        Ok(())
    }

    /// What the library takes for granted of a message, and would end the process for.
    fn check_log(&self, message: &Message) -> Result<(), StepError> {
        if message.term < self.node.raft.term {
            return Ok(()); // of an older leader: it is not looked into
        }
        let log = &self.node.raft.raft_log;
        let known = log.first_index()..=log.committed;
        let mut next = message.index;
        for entry in &message.entries {
            next += 1;
            if entry.index != next {
                return Err(StepError::Gap);
            }
            if known.contains(&entry.index) && log.term(entry.index).is_ok_and(|term| term != entry.term) {
                return Err(StepError::Contradiction);
            }
        }
        if message.get_msg_type() == MessageType::MsgHeartbeat && message.commit > log.last_index() {
            return Err(StepError::Contradiction);
        }
        Ok(())
    }

    /// A change, which [`Effect::Apply`] brings back when it is committed.
    ///
    /// # Errors
    /// [`ProposeError`].
    pub fn propose(&mut self, proposal: Proposal, data: Bytes) -> Result<(), ProposeError> {
        if !self.leads() {
            return Err(ProposeError::NotLeader);
        }
        let (bytes, max) = (data.len(), self.settings.proposal_bytes_max);
        if bytes > max {
            return Err(ProposeError::TooLarge { bytes, max });
        }
        self.append(proposal, Entry { data, ..Entry::default() })
    }

    /// Other members, as [`crate::Membership`] says. One change at a time.
    ///
    /// # Errors
    /// [`ProposeError`].
    pub fn change_members(&mut self, proposal: Proposal, wanted: &MembersChange) -> Result<(), ProposeError> {
        if !self.leads() {
            return Err(ProposeError::NotLeader);
        }
        let mut change = ConfChangeV2::default();
        let kinds = [
            (ConfChangeType::AddNode, &wanted.voters),
            (ConfChangeType::AddLearnerNode, &wanted.learners),
            (ConfChangeType::RemoveNode, &wanted.removed),
        ];
        for (kind, ids) in kinds {
            for id in ids {
                let mut one = ConfChangeSingle { node_id: id.0, ..ConfChangeSingle::default() };
                one.set_change_type(kind);
                change.mut_changes().push(one);
            }
        }
        let data = protobuf::Message::write_to_bytes(&change).map_err(|_| ProposeError::Busy)?;
        let mut entry = Entry { data: data.into(), ..Entry::default() };
        entry.set_entry_type(EntryType::EntryConfChangeV2);
        self.append(proposal, entry)
    }

    fn append(&mut self, proposal: Proposal, entry: Entry) -> Result<(), ProposeError> {
        let is_change_of_members = entry.get_entry_type() != EntryType::EntryNormal;
        if is_change_of_members && self.node.raft.has_pending_conf() {
            return Err(ProposeError::Busy); // the library would append an empty entry and say nothing
        }
        let mut message = Message { from: self.settings.id.0, ..Message::default() };
        message.set_msg_type(MessageType::MsgPropose);
        message.mut_entries().push(entry);
        self.node.raft.step(message).map_err(|_| ProposeError::Busy)?;
        self.proposals.insert(self.node.raft.raft_log.last_index(), proposal);
        self.pump();
        Ok(())
    }

    /// Asks for [`Effect::ReadReady`].
    ///
    /// # Errors
    /// [`ProposeError::NotLeader`].
    pub fn read(&mut self, read: Proposal) -> Result<(), ProposeError> {
        if !self.leads() {
            return Err(ProposeError::NotLeader);
        }
        self.node.read_index(read.0.to_le_bytes().to_vec());
        self.pump();
        Ok(())
    }

    /// The write of this number is done.
    pub fn persisted(&mut self, number: u64) {
        let Some(done) = self.writing.take_if(|writing| writing.number == number) else { return };
        self.node.on_persist_ready(number);
        if let Some(position) = done.snapshot {
            self.node.advance_apply_to(position.index);
        }
        self.send(done.messages);
        self.pump();
    }

    /// The tables have taken in the entry at `position`, the oldest that was handed out.
    pub fn applied(&mut self, position: LogPosition) {
        let Some((_, members)) = self.applying.pop_front_if(|(oldest, _)| *oldest == position) else {
            return;
        };
        self.node.advance_apply_to(position.index);
        let log = self.node.mut_store();
        log.applied = position;
        log.members = members;
        log.trim(self.settings.kept_entries_max, self.settings.kept_bytes_max);
        if !self.leads() && self.is_leader() && position.term == self.node.raft.term {
            (self.leads, self.followed) = (Some(position.term), None);
            self.effects.push(Effect::BecameLeader { term: position.term });
        }
        self.pump();
    }

    /// No process listens at the leader's address: instead of waiting for its silence, stand for election at once, also where another has done
    /// so in vain; and stand again where votes were split.
    pub fn leader_is_dead(&mut self) {
        match self.node.raft.state {
            StateRole::Leader => return,
            StateRole::Follower => self.campaign(MessageType::MsgTimeoutNow),
            StateRole::Candidate | StateRole::PreCandidate => self.campaign(MessageType::MsgHup),
        }
        self.pump();
    }

    /// A snapshot that was sent to a member has arrived there, or has not.
    pub fn snapshot_sent(&mut self, to: NodeId, arrived: bool) {
        self.node
            .report_snapshot(to.0, if arrived { SnapshotStatus::Finish } else { SnapshotStatus::Failure });
        self.pump();
    }

    /// Hands the lead to a voter that is up to date, if that answers soon.
    pub fn hand_over(&mut self, to: NodeId) {
        self.node.transfer_leader(to.0);
        self.pump();
    }

    /// The members as they are now.
    #[must_use]
    pub fn members(&self) -> Members {
        Members::from(&self.node.raft.prs().conf().to_conf_state())
    }

    /// The present term.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// The member that leads, as far as we know.
    #[must_use]
    pub fn leader(&self) -> Option<NodeId> {
        Some(self.node.raft.leader_id).filter(|id| *id != 0).map(NodeId)
    }

    /// True from [`Effect::BecameLeader`] to [`Effect::BecameFollower`].
    #[must_use]
    pub fn leads(&self) -> bool {
        self.leads.is_some()
    }

    /// Entries by which a member is behind our log; `None` where we do not lead, it is no member, or it has nothing of our log yet.
    #[must_use]
    pub fn lag_of(&self, member: NodeId) -> Option<u64> {
        let progress = self.node.raft.prs().get(member.0).filter(|_| self.leads())?;
        let matched = Some(progress.matched).filter(|matched| *matched > 0)?;
        Some(self.node.raft.raft_log.last_index().saturating_sub(matched))
    }

    /// Ticks since a member was heard, 0 for this one; `None` when it is no member, or was not heard since this one was opened.
    #[must_use]
    pub fn silence_of(&self, member: NodeId) -> Option<u64> {
        if member == self.settings.id {
            return Some(0);
        }
        self.node.raft.prs().get(member.0)?;
        self.heard.get(&member).map(|heard| self.ticks - heard)
    }

    /// Ticks since this member was opened.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Id of this member.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.settings.id
    }

    fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// Stands for election, as the library's own timeout or the leader's wish would have it.
    fn campaign(&mut self, why: MessageType) {
        let raft = &self.node.raft;
        let mut message = Message { to: raft.id, from: raft.id, ..Message::default() };
        if why == MessageType::MsgTimeoutNow {
            (message.from, message.term) = (raft.leader_id, raft.term);
        }
        message.set_msg_type(why);
        // Refused where we have no vote.
        self.node.raft.step(message).unwrap_or_default();
    }

    fn send(&mut self, messages: Vec<Message>) {
        let sent = messages
            .into_iter()
            .map(|message| Effect::Send { to: NodeId(message.to), message: PeerMessage(message) });
        self.effects.extend(sent);
    }

    /// Turns what the library has ready into effects, until a write has to be waited for.
    fn pump(&mut self) {
        // It draws a new one with each change of term, and looks at it only as time passes.
        self.node.raft.set_randomized_election_timeout(self.election_ticks);
        self.note_role();
        while self.writing.is_none() && self.node.has_ready() {
            let mut ready = self.node.ready();
            let (now, later) = (ready.take_messages(), ready.take_persisted_messages());
            self.send(now);
            for read in ready.take_read_states() {
                let number = <[u8; 8]>::try_from(read.request_ctx.as_slice()).map(u64::from_le_bytes);
                self.effects.extend(number.map(|number| Effect::ReadReady(Proposal(number))));
            }
            let write = self.write_of(&mut ready);
            let committed = ready.take_committed_entries();
            self.node.advance_append_async(ready);
            match write {
                Some(write) => {
                    let snapshot = write.snapshot.as_ref().map(|(position, _)| *position);
                    self.writing = Some(Writing { number: write.number, snapshot, messages: later });
                    self.effects.push(Effect::Persist(write));
                }
                None => {
                    self.node.on_persist_ready(u64::MAX); // nothing to be written: as good as done
                    self.send(later);
                }
            }
            committed.into_iter().for_each(|entry| self.apply(entry));
            self.note_role();
        }
    }

    /// The part of `ready` that must be stored, after the log in memory has it.
    fn write_of(&mut self, ready: &mut raft::Ready) -> Option<LogWrite> {
        let log = self.node.mut_store();
        let mut write =
            LogWrite { number: ready.number(), must_sync: ready.must_sync(), ..LogWrite::default() };
        if !ready.snapshot().is_empty() {
            let metadata = ready.snapshot().get_metadata();
            let position = LogPosition { index: metadata.index, term: metadata.term };
            let members = Members::from(metadata.get_conf_state());
            log.reset(position, members.clone());
            self.applying.clear();
            write.snapshot = Some((position, members));
        }
        log.append(ready.entries());
        write.entries = ready.take_entries().iter().map(LogEntry::from).collect();
        log.hard_state = ready.hs().map_or(log.hard_state, HardState::from);
        (write.hard_state, write.trimmed) = (log.hard_state, log.trimmed);
        let is_needed = write.snapshot.is_some() || ready.hs().is_some() || !write.entries.is_empty();
        is_needed.then_some(write)
    }

    fn apply(&mut self, entry: Entry) {
        let position = LogPosition { index: entry.index, term: entry.term };
        let is_ours = self.is_leader() && entry.term == self.node.raft.term;
        let proposal = self.proposals.remove(&entry.index).filter(|_| is_ours);
        let data = match entry.get_entry_type() {
            EntryType::EntryNormal => entry.data,
            EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => {
                self.apply_members(&entry);
                Bytes::new()
            }
        };
        let members = self.members();
        self.applying.push_back((position, members.clone()));
        self.effects.push(Effect::Apply { position, data, members, proposal });
    }

    /// One that is refused, or does not decode, changes nothing, on any member.
    fn apply_members(&mut self, entry: &Entry) {
        if let Ok(change) = protobuf::Message::parse_from_bytes(&entry.data) {
            let change: ConfChangeV2 = change;
            drop(self.node.apply_conf_change(&change));
        }
    }

    /// Says when we stop to lead, and which member we follow. Elected and with the term's first entry not applied we follow nobody.
    fn note_role(&mut self) {
        if self.is_leader() && self.leads == Some(self.term()) {
            return;
        }
        let leader = self.leader().filter(|_| !self.is_leader());
        let now = (self.term(), leader);
        if self.leads() || self.followed != Some(now) {
            (self.leads, self.followed) = (None, Some(now));
            self.proposals.clear();
            self.effects.push(Effect::BecameFollower { term: now.0, leader });
        }
    }
}
