//! [`Replica`]: this monitor's copy of the replicated log and of the tables that it makes, in one key-value store.
//!
//! A change costs one durable commit on each monitor: that of its log entry. Applying it changes the tables in the same store, and that part
//! goes with the next commit; after a crash the log is applied again from the position that is kept with the tables.
//!
//! Keys: `raft` zero byte `id` (which member of the log this store is that of), `raft` zero byte `state` (hard state, then the position of the
//! last entry that is not kept), `raft` zero byte `applied` (position, members), `raft` zero byte `log/` and sixteen hexadecimal digits of the
//! index (the entry); `raft` zero byte `joins` in a store that is to get its tables ([`crate::offline`]), `raft` zero byte `gone` in one that
//! is of no use any more; all else is the monitor's tables ([`crate::store`]). A store without state and position is that of a program before
//! the log; it is taken over by its only monitor.

use crate::members::{Monitors, ReadError};
use crate::planted::Planted;
use crate::store;
use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_env::FileRoom;
use nacre_kv::{Durability, KvBatch, KvError, KvReader, KvStore, Pair, end_of_prefix};
use nacre_mon::{Batch, MkfsOptions, Token};
use nacre_quorum::{
    Effect, HardState, LogEntry, LogPosition, LogWrite, Members, MembersChange, NodeId, PeerMessage,
    Proposal, ProposeError, Quorum, Settings, StepError, Stored, StoredError,
};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// Everything of the log; the rest are tables.
const RAFT: &[u8] = b"raft\0";
const ID: &[u8] = b"raft\0id";
const STATE: &[u8] = b"raft\0state";
const APPLIED: &[u8] = b"raft\0applied";
const LOG: &[u8] = b"raft\0log/";
/// There as long as this monitor has not got the tables that it joined for.
const JOINS: &[u8] = b"raft\0joins";
/// There when another monitor has said that this one was replaced or removed.
const GONE: &[u8] = b"raft\0gone";
/// The member of a cluster that had one monitor, before there was a table of them.
const FIRST: NodeId = NodeId(1);
/// Bytes of applied entries that are kept for monitors that are behind.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// The same of a witness, which leads for moments only.
const WITNESS_KEPT_BYTES_MAX: usize = 4 << 20;
/// Longest change: with all around it, it goes between monitors in one message's data, see [`nacre_msgr::DATA_BYTES_MAX`].
const PROPOSAL_BYTES_MAX: usize = 92 << 20;
const _: () = assert!(nacre_mon::BATCH_BYTES_MAX <= PROPOSAL_BYTES_MAX);
/// Names the changes of members, which nobody waits for.
const NOBODY: Proposal = Proposal(u64::MAX);

/// Why the store's log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] KvError),
    /// It contradicts itself.
    #[error("the store is damaged: {0}; restore a backup of the monitor's folder")]
    Log(#[from] StoredError),
    /// Of what says where its log is, some is missing.
    #[error("the store is damaged: a part of its log is missing; restore a backup of the monitor's folder")]
    HalfLog,
    /// A part of it does not decode: damaged, or a newer program's.
    #[error(
        "the store's log cannot be read: {0}; use the program that wrote it, or restore a backup of the monitor's folder"
    )]
    Decode(#[from] DecodeError),
    /// The monitors' map of the store has no monitor of this name.
    #[error("the monitors' map has no mon.{0} with an address")]
    Unknown(String),
    /// The monitor has been made anew elsewhere, or removed, since the store was written.
    #[error(
        "the store is that of mon.{name} as it was before it was replaced (member {own}); remove the folder"
    )]
    Replaced {
        /// Name of the monitor.
        name: String,
        /// The member that the store is that of.
        own: u64,
    },
    /// The monitor was removed from the cluster.
    #[error(
        "mon.{0} was removed from the cluster, or made anew elsewhere; remove its folder, or let it join again"
    )]
    Removed(String),
    /// The log goes on from a position for which no tables have come.
    #[error(
        "the log goes on from entry {0}, and the tables that have come are others; start the monitor again, which asks for them anew"
    )]
    OtherTables(u64),
    /// There is no cluster in it, or not yet.
    #[error("the store holds no cluster, or has not got its data yet")]
    NoTables,
    /// The monitors' map is about to change in it.
    #[error(
        "a change of the monitors' map is not in the tables yet; start the monitors once as they were, stop them, and try again"
    )]
    MapUnderWay,
    /// A change was not taken although this monitor leads.
    #[error("a change of the cluster's state was refused: {0}")]
    Refused(ProposeError),
}

impl From<ReadError> for ReplicaError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(error) => Self::Store(error),
            ReadError::Decode(error) => Self::Decode(error),
            ReadError::NoCluster => Self::NoTables,
        }
    }
}

/// What came of the log.
#[derive(Debug)]
pub(crate) enum ReplicaEvent {
    /// To be sent to another monitor.
    Send(NodeId, PeerMessage),
    /// Another monitor needs all tables, which are to follow with this message.
    SendTables(NodeId, PeerMessage),
    /// The tables have taken this in.
    Applied(Batch),
    /// All tables are others.
    TablesReplaced,
    /// A change that was proposed here is durable and applied.
    Committed(Token),
    /// No other monitor led when this was asked.
    Confirmed(Token),
    /// This monitor leads from here on; all that was acknowledged before is applied.
    BecameLeader(u64),
    /// It does not lead.
    BecameFollower,
}

/// The log, its tables, and what decides about them.
pub(crate) struct Replica {
    store: Box<dyn KvStore + Send>,
    quorum: Quorum,
    effects: VecDeque<Effect>,
    /// Must be on the device before anything goes on.
    to_write: Option<LogWrite>,
    /// A change that the log does not take yet, since the lead is being handed over.
    deferred: Option<(Token, Bytes)>,
    /// Tables that came from leaders, each for the snapshot at an entry of the log, which the log may take up.
    received: BTreeMap<u64, Vec<Pair>>,
    /// Goes with the next commit: what was applied, and how far the log is known to be committed.
    pending: KvBatch,
    /// The last entry that is not kept, as stored or pending.
    trimmed: LogPosition,
    /// Index of the last entry, as stored or pending.
    last: u64,
    /// What the tables have come to, as stored or pending.
    applied: (LogPosition, Members),
    planted: Planted,
}

/// All tables as of one moment, ascending by key.
pub(crate) struct TablesReader {
    /// Before and behind the log, which is none of them.
    pub(crate) parts: [Box<dyn KvReader + Send>; 2],
}

impl TablesReader {
    /// The next pairs, which take some `bytes`; none when it has read all.
    pub(crate) fn read(&mut self, bytes: usize) -> Result<Vec<Pair>, KvError> {
        for part in &mut self.parts {
            let pairs = part.read(bytes)?;
            if !pairs.is_empty() {
                return Ok(pairs);
            }
        }
        Ok(Vec::new())
    }
}

impl Replica {
    /// Opens a store that holds a cluster, as the monitor `name`. The only monitor of its cluster leads with its first write.
    /// So many applied entries are kept for others.
    pub(crate) fn open(
        mut store: Box<dyn KvStore + Send>,
        name: &str,
        kept_entries_max: usize,
    ) -> Result<Self, ReplicaError> {
        let mut first = KvBatch::default();
        let stored = match load(store.as_ref())? {
            Some(stored) => stored,
            None => begin_log(Members::voting([FIRST]), &mut first),
        };
        let Own { id, turn, is_witness } = own_member(store.as_ref(), name)?;
        if store.get(ID)?.is_none() {
            first.put(ID, id_bytes(id));
        }
        if !first.is_empty() {
            store.commit(&first, Durability::Durable)?;
        }
        let settings = Settings {
            id,
            rank: turn,
            proposal_bytes_max: PROPOSAL_BYTES_MAX,
            kept_entries_max,
            kept_bytes_max: kept_bytes_max(is_witness),
        };
        let (trimmed, applied) = (stored.trimmed, (stored.applied, stored.members.clone()));
        let last = stored.entries.last().map_or(trimmed.index, |entry| entry.position.index);
        let quorum = Quorum::open(settings, stored)?;
        Ok(Self {
            store,
            quorum,
            effects: VecDeque::new(),
            to_write: None,
            deferred: None,
            received: BTreeMap::new(),
            pending: KvBatch::default(),
            trimmed,
            last,
            applied,
            planted: Planted::Nothing,
        })
    }

    /// Builds a mistake in.
    pub(crate) fn plant(&mut self, planted: Planted) {
        self.planted = planted;
    }

    /// The log's state.
    pub(crate) fn quorum(&self) -> &Quorum {
        &self.quorum
    }

    /// The tables, with all that was applied.
    pub(crate) fn tables(&mut self) -> Result<&dyn KvStore, ReplicaError> {
        self.flush()?;
        Ok(self.store.as_ref())
    }

    /// How far the log is in the tables.
    pub(crate) fn applied(&self) -> LogPosition {
        self.applied.0
    }

    /// All tables as they are now, and what they have come to.
    pub(crate) fn all_tables(&mut self) -> Result<(TablesReader, LogPosition, Members), ReplicaError> {
        let behind_log = end_of_prefix(RAFT);
        let behind_log = behind_log.as_deref().map_or(Bound::Unbounded, Bound::Included);
        let tables = self.tables()?;
        let parts = [
            tables.reader(Bound::Unbounded, Bound::Excluded(RAFT))?,
            tables.reader(behind_log, Bound::Unbounded)?,
        ];
        let (position, members) = self.applied.clone();
        Ok((TablesReader { parts }, position, members))
    }

    /// Proposes a change. Where this monitor has just ceased to lead it is dropped: it did not happen.
    pub(crate) fn commit(&mut self, batch: &Batch, token: Token) -> Result<(), ReplicaError> {
        self.propose(token, batch.to_bytes())
    }

    fn propose(&mut self, token: Token, bytes: Bytes) -> Result<(), ReplicaError> {
        match self.quorum.propose(Proposal(token.0), bytes.clone()) {
            Ok(()) | Err(ProposeError::NotLeader) => (),
            Err(ProposeError::Busy) => self.deferred = Some((token, bytes)),
            Err(error @ ProposeError::TooLarge { .. }) => return Err(ReplicaError::Refused(error)),
        }
        Ok(())
    }

    /// Asks whether another monitor leads. Nothing comes of it where this one does not.
    pub(crate) fn confirm(&mut self, token: Token) {
        if let Err(error) = self.quorum.read(Proposal(token.0)) {
            tracing::debug!(%error, "a read is not confirmed");
        }
    }

    /// 50 ms have passed.
    pub(crate) fn tick(&mut self) -> Result<(), ReplicaError> {
        self.quorum.tick();
        match self.deferred.take() {
            Some((token, bytes)) => self.propose(token, bytes),
            None => Ok(()),
        }
    }

    /// A message of another monitor.
    ///
    /// # Errors
    /// It is at fault.
    pub(crate) fn step(&mut self, from: NodeId, message: PeerMessage) -> Result<(), StepError> {
        self.quorum.step(from, message)
    }

    /// All tables have come, with this message.
    ///
    /// # Errors
    /// It is at fault.
    pub(crate) fn step_with_tables(
        &mut self,
        from: NodeId,
        message: PeerMessage,
        tables: Vec<Pair>,
    ) -> Result<(), StepError> {
        if let Some(position) = message.snapshot() {
            self.received.insert(position.index, tables);
        }
        self.quorum.step(from, message)
    }

    /// Tables that were to be sent have arrived, or have not.
    pub(crate) fn tables_sent(&mut self, to: NodeId, arrived: bool) {
        self.quorum.snapshot_sent(to, arrived);
    }

    /// No process listens at the leader's address.
    pub(crate) fn leader_is_dead(&mut self) {
        self.quorum.leader_is_dead();
    }

    /// Hands the lead to another.
    pub(crate) fn hand_over(&mut self, to: NodeId) {
        self.quorum.hand_over(to);
    }

    /// Proposes other members; refused, the wish comes again.
    pub(crate) fn change_members(&mut self, change: &MembersChange) {
        if let Err(error) = self.quorum.change_members(NOBODY, change) {
            tracing::debug!(%error, ?change, "a change of the monitors' members has to wait");
        }
    }

    /// What the store has of its file system, where that is known.
    pub(crate) fn room(&self) -> Option<FileRoom> {
        self.store.room()
    }

    /// The monitor's turn in elections is another, or whether it is a witness, which keeps little for others.
    pub(crate) fn set_turn(&mut self, turn: usize, is_witness: bool) {
        self.quorum.set_rank(turn);
        self.quorum.set_kept_bytes(kept_bytes_max(is_witness));
    }

    /// Remembers that the member that this store is that of is none any more.
    pub(crate) fn note_gone(&mut self) -> Result<(), KvError> {
        self.pending.put(GONE, Bytes::new());
        self.store.commit(&std::mem::take(&mut self.pending), Durability::Durable)
    }

    /// Writes what was applied, without waiting for the device.
    pub(crate) fn flush(&mut self) -> Result<(), KvError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.store.commit(&std::mem::take(&mut self.pending), Durability::Buffered)
    }

    /// Takes what came of the log since the last call, up to what waits for [`Replica::write`].
    pub(crate) fn drain(&mut self, events: &mut Vec<ReplicaEvent>) -> Result<(), ReplicaError> {
        while self.to_write.is_none() {
            if self.effects.is_empty() {
                let mut effects = Vec::new();
                self.quorum.drain(&mut effects);
                self.effects.extend(effects);
            }
            let Some(effect) = self.effects.pop_front() else { break };
            self.take_in(effect, events)?;
        }
        if self.to_write.is_none() {
            self.received.clear(); // the log had no use for them
        }
        Ok(())
    }

    /// True when something has to be written before anything goes on. What was to be sent before goes out first: other monitors
    /// write at the same time.
    pub(crate) fn must_write(&self) -> bool {
        self.to_write.is_some()
    }

    /// Makes durable what waits for it.
    pub(crate) fn write(&mut self, events: &mut Vec<ReplicaEvent>) -> Result<(), ReplicaError> {
        let Some(write) = self.to_write.take() else { return Ok(()) };
        self.stage(&write)?;
        let durability = match self.planted {
            Planted::AcknowledgedBeforeWrite => Durability::Buffered,
            _ => Durability::Durable,
        };
        self.store.commit(&std::mem::take(&mut self.pending), durability)?;
        if write.snapshot.is_some() {
            events.push(ReplicaEvent::TablesReplaced);
        }
        self.quorum.persisted(write.number);
        Ok(())
    }

    fn take_in(&mut self, effect: Effect, events: &mut Vec<ReplicaEvent>) -> Result<(), ReplicaError> {
        match effect {
            Effect::Send { to, message } if message.snapshot().is_some() => {
                events.push(ReplicaEvent::SendTables(to, message));
            }
            Effect::Send { to, message } => events.push(ReplicaEvent::Send(to, message)),
            Effect::Persist(write) if write.must_sync || write.snapshot.is_some() => {
                self.to_write = Some(write);
            }
            Effect::Persist(write) => {
                self.stage(&write)?;
                self.quorum.persisted(write.number);
            }
            Effect::Apply { position, data, members, proposal } => {
                if !data.is_empty() {
                    let batch = Batch::from_bytes(data)?;
                    store::collect(&batch, &mut self.pending);
                    events.push(ReplicaEvent::Applied(batch));
                }
                self.pending.put(APPLIED, applied_bytes(position, &members));
                self.applied = (position, members);
                self.quorum.applied(position);
                let waits = proposal.filter(|proposal| *proposal != NOBODY);
                events.extend(waits.map(|proposal| ReplicaEvent::Committed(Token(proposal.0))));
            }
            Effect::ReadReady(read) => events.push(ReplicaEvent::Confirmed(Token(read.0))),
            Effect::BecameLeader { term } => events.push(ReplicaEvent::BecameLeader(term)),
            Effect::BecameFollower { .. } => {
                self.deferred = None;
                events.push(ReplicaEvent::BecameFollower);
            }
        }
        Ok(())
    }

    /// Adds a change of the log to what is committed next.
    fn stage(&mut self, write: &LogWrite) -> Result<(), ReplicaError> {
        if let Some((position, members)) = &write.snapshot {
            self.stage_tables(*position, members)?;
        }
        if let Some(first) = write.entries.first() {
            // They replace whatever was there from the first of them on.
            (first.position.index..=self.last).for_each(|index| self.pending.delete(key_of(index)));
        }
        for entry in &write.entries {
            self.pending.put(key_of(entry.position.index), entry.to_bytes());
            self.last = entry.position.index;
        }
        let no_longer_kept = self.trimmed.index + 1..=write.trimmed.index;
        no_longer_kept.for_each(|index| self.pending.delete(key_of(index)));
        self.trimmed = write.trimmed;
        self.pending.put(STATE, state_bytes(write.hard_state, write.trimmed));
        Ok(())
    }

    /// Instead of all tables and of all of the log, the tables that were received for `position`.
    fn stage_tables(&mut self, position: LogPosition, members: &Members) -> Result<(), ReplicaError> {
        let tables =
            self.received.remove(&position.index).ok_or(ReplicaError::OtherTables(position.index))?;
        self.pending = KvBatch::default();
        for (key, _) in self.store.scan_prefix(b"")? {
            if !key.starts_with(RAFT) || key.starts_with(LOG) {
                self.pending.delete(key);
            }
        }
        tables.into_iter().for_each(|(key, value)| self.pending.put(key, value));
        self.pending.delete(JOINS);
        self.pending.put(APPLIED, applied_bytes(position, members));
        self.applied = (position, members.clone());
        (self.trimmed, self.last) = (position, position.index);
        Ok(())
    }
}

fn id_bytes(id: NodeId) -> Vec<u8> {
    id.0.to_le_bytes().to_vec()
}

fn key_of(index: u64) -> Vec<u8> {
    [LOG, format!("{index:016x}").as_bytes()].concat()
}

fn state_bytes(hard_state: HardState, trimmed: LogPosition) -> Bytes {
    let mut w = Writer::new();
    w.put(&hard_state);
    w.put(&trimmed);
    w.finish()
}

fn applied_bytes(position: LogPosition, members: &Members) -> Bytes {
    let mut w = Writer::new();
    w.put(&position);
    w.put(members);
    w.finish()
}

/// The log of a store, if it has one. One that joins has none, whatever it has voted: the leader sends tables first.
fn load(store: &dyn KvStore) -> Result<Option<Stored>, ReplicaError> {
    if store.get(JOINS)?.is_some() {
        let hard_state = store.get(STATE)?.map(|state| Reader::new(state).get()).transpose()?;
        return Ok(Some(Stored { hard_state: hard_state.unwrap_or_default(), ..Stored::default() }));
    }
    let (state, applied) = match (store.get(STATE)?, store.get(APPLIED)?) {
        (Some(state), Some(applied)) => (state, applied),
        (None, None) if store.scan_prefix(LOG)?.is_empty() => return Ok(None),
        _ => return Err(ReplicaError::HalfLog),
    };
    let (mut state, mut applied) = (Reader::new(state), Reader::new(applied));
    let (hard_state, trimmed) = (state.get()?, state.get()?);
    let (applied, members) = (applied.get()?, applied.get()?);
    let entries = store.scan_prefix(LOG)?.into_iter().map(|(_, value)| LogEntry::from_bytes(value));
    let entries = entries.collect::<Result<_, _>>()?;
    Ok(Some(Stored { hard_state, members, applied, trimmed, entries }))
}

/// What the monitor is whose store this is.
struct Own {
    id: NodeId,
    /// Its turn in elections.
    turn: usize,
    is_witness: bool,
}

fn kept_bytes_max(is_witness: bool) -> usize {
    if is_witness { WITNESS_KEPT_BYTES_MAX } else { KEPT_BYTES_MAX }
}

/// Which member of the log the monitor is, by its store.
fn own_member(store: &dyn KvStore, name: &str) -> Result<Own, ReplicaError> {
    let unknown = || ReplicaError::Unknown(name.to_owned());
    let monitors = Monitors::read(store).map_err(|error| match error {
        ReadError::Store(error) => error.into(),
        ReadError::Decode(error) => error.into(),
        ReadError::NoCluster => unknown(),
    })?;
    let own = store.get(ID)?.map(|value| Reader::new(value).u64()).transpose()?;
    let id = match monitors.id_of(name) {
        Some(id) if store.get(GONE)?.is_none() => id,
        _ if own.is_some_and(|own| monitors.name_of(NodeId(own)).is_none_or(|known| known == name)) => {
            return Err(ReplicaError::Removed(name.to_owned()));
        }
        _ => return Err(unknown()),
    };
    let turn = monitors.turn_of(id).ok_or_else(unknown)?;
    match own {
        Some(own) if own != id.0 => Err(ReplicaError::Replaced { name: name.to_owned(), own }),
        _ => Ok(Own { id, turn, is_witness: !monitors.may_lead(id) }),
    }
}

/// Writes the first tables of a new cluster, and the beginning of its log, into an empty store; durable when this returns. The monitors of
/// `options` are members 1, 2, and so on, so stores that are made alike are those of one quorum.
pub(crate) fn bootstrap(
    store: &mut dyn KvStore,
    tables: &Batch,
    options: &MkfsOptions,
) -> Result<(), KvError> {
    let members = Members::voting((1..).map(NodeId).take(options.mons.len()));
    let mut batch = KvBatch::default();
    store::collect(tables, &mut batch);
    begin_log(members, &mut batch);
    store.commit(&batch, Durability::Durable)
}

fn begin_log(members: Members, batch: &mut KvBatch) -> Stored {
    let stored = Stored::bootstrap(members);
    batch.put(STATE, state_bytes(stored.hard_state, stored.trimmed));
    batch.put(APPLIED, applied_bytes(stored.applied, &stored.members));
    stored
}

mod stopped;
#[cfg(test)]
mod tests;

pub(crate) use stopped::{begin_anew, begin_to_join, recover, set_addrs};
