//! [`Replica`]: this monitor's copy of the replicated log and of the tables that it makes, in one key-value store.
//!
//! A change costs one durable commit: that of its log entry. Applying it changes the tables in the same store, and that part goes with the
//! next commit; after a crash the log is applied again from the position that is kept with the tables.
//!
//! Keys: `raft` zero byte `state` (hard state, then the position of the last entry that is not kept), `raft` zero byte `applied` (position,
//! members), `raft` zero byte `log/` and sixteen hexadecimal digits of the index (the entry); all else is the monitor's tables
//! ([`crate::store`]). A store without the first two is that of a program before the log; it is taken over by its only monitor.

use crate::store;
use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_kv::{Durability, KvBatch, KvError, KvStore};
use nacre_mon::{Batch, MkfsOptions, Token};
use nacre_quorum::{
    Effect, HardState, LogEntry, LogPosition, LogWrite, Members, NodeId, Proposal, ProposeError, Quorum,
    Settings, Stored, StoredError,
};

const STATE: &[u8] = b"raft\0state";
const APPLIED: &[u8] = b"raft\0applied";
const LOG: &[u8] = b"raft\0log/";
/// The only member, until there are others.
const ONLY: NodeId = NodeId(1);
/// Applied entries that are kept: nobody is behind while there is one member, and what a crash needs is kept anyway.
const KEPT_ENTRIES_MAX: usize = 1000;
/// Bytes of them.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Longest change. More than all messages of one turn can ask for, and no message between monitors has to carry it yet.
const PROPOSAL_BYTES_MAX: usize = 1 << 30;

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
    /// The log has other members, without which nothing can be decided.
    #[error("the store is that of one of several monitors, which this program cannot run")]
    NotAlone,
    /// A change was not taken.
    #[error("a change of the cluster's state was refused: {0}")]
    Refused(#[from] ProposeError),
}

/// What came of the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReplicaEvent {
    /// The tables have taken this in.
    Applied(Batch),
    /// A change that was proposed here is durable and applied.
    Committed(Token),
    /// No other monitor led when this was asked.
    Confirmed(Token),
}

/// The log, its tables, and what decides about them.
pub(crate) struct Replica {
    store: Box<dyn KvStore + Send>,
    quorum: Quorum,
    /// Goes with the next commit: what was applied, and how far the log is known to be committed.
    pending: KvBatch,
    /// The last entry that is not kept, as stored or pending.
    trimmed: LogPosition,
    /// Index of the last entry, as stored or pending.
    last: u64,
}

impl Replica {
    /// Opens a store that holds a cluster, and leads.
    pub(crate) fn open(store: Box<dyn KvStore + Send>) -> Result<Self, ReplicaError> {
        Self::open_keeping(KEPT_ENTRIES_MAX, store)
    }

    fn open_keeping(
        kept_entries_max: usize,
        mut store: Box<dyn KvStore + Send>,
    ) -> Result<Self, ReplicaError> {
        let stored = match load(store.as_ref())? {
            Some(stored) => stored,
            None => adopt(store.as_mut())?,
        };
        let settings = Settings {
            id: ONLY,
            rank: 0,
            proposal_bytes_max: PROPOSAL_BYTES_MAX,
            kept_entries_max,
            kept_bytes_max: KEPT_BYTES_MAX,
        };
        if stored.members != Members::voting([ONLY]) {
            return Err(ReplicaError::NotAlone);
        }
        let trimmed = stored.trimmed;
        let last = stored.entries.last().map_or(trimmed.index, |entry| entry.position.index);
        let quorum = Quorum::open(settings, stored)?;
        let mut replica = Self { store, quorum, pending: KvBatch::default(), trimmed, last };
        replica.carry_out(&mut Vec::new())?;
        replica.flush()?;
        if replica.quorum.leads() { Ok(replica) } else { Err(ReplicaError::NotAlone) }
    }

    /// The tables, up to the last [`Replica::flush`].
    pub(crate) fn tables(&self) -> &dyn KvStore {
        self.store.as_ref()
    }

    /// Makes a change durable and applies it; `events` gets what came of it.
    pub(crate) fn commit(
        &mut self,
        batch: &Batch,
        token: Token,
        events: &mut Vec<ReplicaEvent>,
    ) -> Result<(), ReplicaError> {
        self.quorum.propose(Proposal(token.0), batch.to_bytes())?;
        self.carry_out(events)
    }

    /// Asks whether another monitor leads; `events` gets the answer.
    pub(crate) fn confirm(
        &mut self,
        token: Token,
        events: &mut Vec<ReplicaEvent>,
    ) -> Result<(), ReplicaError> {
        self.quorum.read(Proposal(token.0))?;
        self.carry_out(events)
    }

    /// Writes what was applied, without waiting for the device.
    pub(crate) fn flush(&mut self) -> Result<(), KvError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.store.commit(&std::mem::take(&mut self.pending), Durability::Buffered)
    }

    fn carry_out(&mut self, events: &mut Vec<ReplicaEvent>) -> Result<(), ReplicaError> {
        let mut effects = Vec::new();
        loop {
            self.quorum.drain(&mut effects);
            if effects.is_empty() {
                return Ok(());
            }
            for effect in effects.drain(..) {
                match effect {
                    Effect::Persist(write) => self.persist(&write)?,
                    Effect::Apply { position, data, members, proposal } => {
                        if !data.is_empty() {
                            let batch = Batch::from_bytes(data)?;
                            store::collect(&batch, &mut self.pending);
                            events.push(ReplicaEvent::Applied(batch));
                        }
                        self.pending.put(APPLIED, applied_bytes(position, &members));
                        self.quorum.applied(position);
                        events.extend(proposal.map(|proposal| ReplicaEvent::Committed(Token(proposal.0))));
                    }
                    Effect::ReadReady(read) => events.push(ReplicaEvent::Confirmed(Token(read.0))),
                    // There is nobody else.
                    Effect::Send { .. } | Effect::BecameLeader { .. } | Effect::BecameFollower { .. } => (),
                }
            }
        }
    }

    fn persist(&mut self, write: &LogWrite) -> Result<(), KvError> {
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
        if write.must_sync {
            self.store.commit(&std::mem::take(&mut self.pending), Durability::Durable)?;
        }
        self.quorum.persisted(write.number);
        Ok(())
    }
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

/// The log of a store, if it has one.
fn load(store: &dyn KvStore) -> Result<Option<Stored>, ReplicaError> {
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

/// Takes over the tables of a program before the log.
fn adopt(store: &mut dyn KvStore) -> Result<Stored, KvError> {
    let mut batch = KvBatch::default();
    let stored = begin_log(Members::voting([ONLY]), &mut batch);
    store.commit(&batch, Durability::Durable)?;
    Ok(stored)
}

fn begin_log(members: Members, batch: &mut KvBatch) -> Stored {
    let stored = Stored::bootstrap(members);
    batch.put(STATE, state_bytes(stored.hard_state, stored.trimmed));
    batch.put(APPLIED, applied_bytes(stored.applied, &stored.members));
    stored
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_kv::{MemoryKv, RedbKv};
    use nacre_types::entropy::SeededEntropy;
    use nacre_types::{AddrVec, EntityAddr, UTime, Uuid};
    use tempfile::TempDir;

    fn open(folder: &TempDir) -> RedbKv {
        RedbKv::open(&folder.path().join("store")).expect("a folder of our own")
    }

    fn put(value: &str) -> Batch {
        let mut batch = Batch::default();
        batch.put("table", "key", Bytes::copy_from_slice(value.as_bytes()));
        batch
    }

    fn copy_of(kv: &RedbKv) -> MemoryKv {
        let (mut copy, mut batch) = (MemoryKv::new(), KvBatch::default());
        for (key, value) in kv.scan_prefix(b"").expect("the device is well") {
            batch.put(key.to_vec(), value);
        }
        copy.commit(&batch, Durability::Durable).expect("memory does not fail");
        copy
    }

    fn value(kv: &dyn KvStore) -> Option<Bytes> {
        kv.get(b"table\0key").expect("the device is well")
    }

    fn commit(replica: &mut Replica, token: u64, value: &str) {
        let mut events = Vec::new();
        replica.commit(&put(value), Token(token), &mut events).expect("the only member decides");
        assert_eq!(events, [ReplicaEvent::Applied(put(value)), ReplicaEvent::Committed(Token(token))]);
        events.clear();
        replica.confirm(Token(token), &mut events).expect("the only member decides");
        assert_eq!(events, [ReplicaEvent::Confirmed(Token(token))]);
    }

    #[test]
    fn what_is_committed_is_there_after_a_kill_though_it_was_not_flushed() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut replica = Replica::open(Box::new(open(&folder))).expect("an empty store is taken over");
        commit(&mut replica, 1, "a");
        commit(&mut replica, 2, "b");
        drop(replica);
        let kv = open(&folder);
        assert_eq!(value(&kv), Some(Bytes::from_static(b"a")), "the last change is in the log alone");
        let replica = Replica::open(Box::new(kv)).expect("its own log");
        assert_eq!(value(replica.tables()), Some(Bytes::from_static(b"b")));
    }

    #[test]
    fn the_log_does_not_grow_for_ever() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut replica =
            Replica::open_keeping(10, Box::new(open(&folder))).expect("an empty store is taken over");
        (0..30).for_each(|token| commit(&mut replica, token, "x"));
        replica.flush().expect("the device is well");
        drop(replica);
        let kv = open(&folder);
        let count = kv.scan_prefix(LOG).expect("the device is well").len();
        assert!((9..=12).contains(&count), "{count}");
        Replica::open(Box::new(kv)).expect("its own log");
    }

    /// A store of which somebody has put back a part, or of which a part is lost: it says what is wrong and what to do, in one line.
    #[test]
    fn a_log_of_which_a_part_is_lost_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut replica = Replica::open(Box::new(open(&folder))).expect("an empty store is taken over");
        (0..5).for_each(|token| commit(&mut replica, token, "x"));
        replica.flush().expect("the device is well");
        drop(replica);
        let mut kv = open(&folder);
        let entries = kv.scan_prefix(LOG).expect("the device is well");
        let without = |kv: &mut RedbKv, key: &[u8]| {
            let before = kv.get(key).expect("the device is well").expect("a value");
            let mut batch = KvBatch::default();
            batch.delete(key.to_vec());
            kv.commit(&batch, Durability::Durable).expect("the device is well");
            let refused = Replica::open(Box::new(copy_of(kv))).err().expect("a part is missing");
            let mut batch = KvBatch::default();
            batch.put(key.to_vec(), before);
            kv.commit(&batch, Durability::Durable).expect("the device is well");
            refused.to_string()
        };
        let (newest, _) = entries.last().expect("an entry");
        let text = without(&mut kv, newest);
        assert!(text.contains("ends with entry") && text.contains("restore a backup"), "{text}");
        for key in [STATE, APPLIED] {
            let text = without(&mut kv, key);
            assert!(text.contains("a part of its log is missing; restore a backup"), "{text}");
        }
        Replica::open(Box::new(kv)).expect("all of it is there");
    }

    #[test]
    fn a_log_of_several_monitors_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut kv = open(&folder);
        let entropy = &mut SeededEntropy(7);
        let addr = |port: u16| EntityAddr::parse(&format!("v2:127.0.0.1:{port}/0")).expect("an address");
        let mons = vec![("a".to_owned(), AddrVec::of(addr(1))), ("b".to_owned(), AddrVec::of(addr(2)))];
        let options = MkfsOptions::new(Uuid::from_random([7; 16]), mons, UTime::default(), entropy);
        let tables = nacre_mon::mkfs(&options, UTime::default()).expect("valid options");
        bootstrap(&mut kv, &tables, &options).expect("the device is well");
        let other = tempfile::tempdir().expect("a folder");
        let mut twin = open(&other);
        let tables = nacre_mon::mkfs(&options, UTime::default()).expect("valid options");
        bootstrap(&mut twin, &tables, &options).expect("the device is well");
        let all = |kv: &RedbKv| kv.scan_prefix(b"").expect("the device is well");
        assert_eq!(all(&kv), all(&twin));
        assert!(matches!(Replica::open(Box::new(kv)), Err(ReplicaError::NotAlone)));
    }
}
