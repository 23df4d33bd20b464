//! What is done to the log of a monitor that does not run.

use super::{APPLIED, ID, JOINS, RAFT, ReplicaError, STATE, applied_bytes, id_bytes, load, state_bytes};
use crate::members::Monitors;
use crate::store;
use nacre_buf::Bytes;
use nacre_denc::Decode;
use nacre_kv::{Durability, KvBatch, KvError, KvStore};
use nacre_mon::recovery::LogPlace;
use nacre_mon::{Batch, Restored};
use nacre_quorum::{EntryKind, HardState, LogEntry, LogPosition, Members, NodeId, Stored, StoredError};
use nacre_types::{AddrVec, UTime};

/// Writes what a member of an existing log begins with into an empty store; durable when this returns.
pub(crate) fn begin_to_join(store: &mut dyn KvStore, tables: &Batch, id: u64) -> Result<(), KvError> {
    let mut batch = KvBatch::default();
    store::collect(tables, &mut batch);
    batch.put(ID, id_bytes(NodeId(id)));
    batch.put(JOINS, Bytes::new());
    store.commit(&batch, Durability::Durable)
}

/// The entries that are not in the tables yet.
fn behind_tables(stored: &Stored) -> impl Iterator<Item = &LogEntry> {
    stored.entries.iter().filter(|entry| entry.position.index > stored.applied.index)
}

fn change_of(entry: &LogEntry) -> Result<Option<Batch>, ReplicaError> {
    let is_change = entry.kind == EntryKind::Change && !entry.data.is_empty();
    Ok(is_change.then(|| Batch::from_bytes(entry.data.clone())).transpose()?)
}

/// Puts into the tables what the log has beyond them, all of it, whether or not it was committed: what was may be only here.
fn apply_log(store: &mut dyn KvStore) -> Result<Stored, ReplicaError> {
    let stored = load(store)?.filter(|stored| stored.applied.index > 0).ok_or(ReplicaError::NoTables)?;
    let (mut batch, mut next) = (KvBatch::default(), stored.applied.index + 1);
    for entry in behind_tables(&stored) {
        if entry.position.index != next {
            return Err(StoredError::Gap(next).into());
        }
        next += 1;
        if let Some(change) = change_of(entry)? {
            store::collect(&change, &mut batch);
        }
    }
    store.commit(&batch, Durability::Buffered)?;
    Ok(stored)
}

/// Makes a store that of the only monitor of a cluster that begins anew, with the tables and the whole log that it has. Nothing may use it
/// meanwhile, and one of which this was done by half is of no use.
pub(crate) fn recover(
    store: &mut dyn KvStore,
    name: &str,
    addrs: AddrVec,
    wall: UTime,
) -> Result<(), ReplicaError> {
    let stored = apply_log(store)?;
    let made = store::read(store, |tables| nacre_mon::recover(tables, name, addrs, wall))?;
    let (tables, id) = made?.ok_or(ReplicaError::NoTables)?;
    let mut batch = KvBatch::default();
    batch.delete_prefix(RAFT);
    store::collect(&tables, &mut batch);
    let newest = stored.entries.last().map_or(stored.applied, |entry| entry.position.max(stored.applied));
    let term = stored.hard_state.term.max(newest.term);
    begin_log_behind(LogPosition { index: newest.index, term }, id, &mut batch);
    store.commit(&batch, Durability::Durable)?;
    Ok(())
}

/// Writes what the only monitor of a cluster begins with that begins anew from what OSDs have kept, into an empty store; durable when this
/// returns. `place` is where in the log of before that was.
pub(crate) fn begin_anew(
    store: &mut dyn KvStore,
    restored: &Restored,
    place: LogPlace,
) -> Result<(), KvError> {
    let mut batch = KvBatch::default();
    store::collect(&restored.tables, &mut batch);
    begin_log_behind(LogPosition { index: place.index, term: place.term }, restored.id, &mut batch);
    store.commit(&batch, Durability::Durable)
}

/// The log of a cluster whose only member is `id`, behind all that was in an earlier one.
fn begin_log_behind(newest: LogPosition, id: u64, batch: &mut KvBatch) {
    let first = LogPosition { index: newest.index + 1, term: newest.term + 1 };
    let hard_state = HardState { term: first.term, vote: 0, commit: first.index };
    batch.put(ID, id_bytes(NodeId(id)));
    batch.put(STATE, state_bytes(hard_state, first));
    batch.put(APPLIED, applied_bytes(first, &Members::voting([NodeId(id)])));
}

/// Gives monitors other addresses in a store that nothing uses at the moment.
pub(crate) fn set_addrs(store: &mut dyn KvStore, addrs: &[(String, AddrVec)]) -> Result<(), ReplicaError> {
    let stored = load(store)?.ok_or(ReplicaError::NoTables)?;
    let monitors = Monitors::read(store)?;
    if let Some((name, _)) = addrs.iter().find(|(name, _)| monitors.id_of(name).is_none()) {
        return Err(ReplicaError::Unknown(name.clone()));
    }
    for entry in behind_tables(&stored) {
        if change_of(entry)?.is_some_and(|change| nacre_mon::monmap::changes_monitors(&change)) {
            return Err(ReplicaError::MapUnderWay);
        }
    }
    let made = store::read(store, |tables| nacre_mon::set_addrs(tables, addrs))?;
    let mut batch = KvBatch::default();
    store::collect(&made?.ok_or(ReplicaError::NoTables)?, &mut batch);
    store.commit(&batch, Durability::Durable)?;
    Ok(())
}
