//! Replicated pools: every member applies the same transaction; a write counts when all have it durably.
//!
//! ```text
//!   primary   submit ------------------------ durable ---.
//!      |--RepOp--> replica: submit --- durable -- reply --+--> complete, in version order
//!      '--RepOp--> replica: submit --- durable -- reply --'
//! ```

use crate::object::WatchKey;
use crate::ops::{Notify, NotifyAck, WatchChange};
use crate::peer::Peer;
use crate::phase::Phase;
use crate::reply::PendingReply;
use crate::state::PgState;
use crate::tokens::OnDurable;
use crate::{ClientOp, Cx, Effect, OpInFlight, OpStage, Planted, storage};
use nacre_msg::peer::{LogEntry, RepOp};
use nacre_txn::{Op, Transaction};
use nacre_types::{Eversion, HObject, OsdId, Stamp};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Members beside this one.
type Replicas = SmallVec<[OsdId; 4]>;

/// What a message promised; due once its change is durable everywhere.
#[derive(Debug)]
pub(crate) struct AfterCommit {
    /// The message, kept to be run again should the interval end first.
    pub(crate) origin: ClientOp,
    pub(crate) reply: PendingReply,
    pub(crate) watches: Vec<WatchChange>,
    pub(crate) notifies: Vec<Notify>,
    pub(crate) acks: Vec<NotifyAck>,
}

impl AfterCommit {
    /// Nothing but the answer.
    pub(crate) fn of_reply(origin: ClientOp, reply: PendingReply) -> Self {
        Self { origin, reply, watches: Vec::new(), notifies: Vec::new(), acks: Vec::new() }
    }
}

/// A change of an object, and what depends on it.
#[derive(Debug)]
pub(crate) struct RepGather {
    /// The object's head.
    pub(crate) head: HObject,
    /// The client's message, and those that asked for the same or read the result meanwhile; empty for a
    /// change of our own.
    pub(crate) after: SmallVec<[AfterCommit; 1]>,
    /// What else ends with it.
    pub(crate) ends: Ends,
}

/// What a change of our own is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Nothing that waits for it.
    Nothing,
    /// It removes a snapshot from a clone.
    Trim,
    /// It removes a watch from the object's record: until then the watch is there, here and wherever the PG goes on.
    Watch(WatchKey),
}

/// A change that no client asked for. A part of the PG makes it, and [`crate::Pg::submit_own`] sends it to all members.
#[derive(Debug)]
pub(crate) struct OwnChange {
    /// The object's head.
    pub(crate) head: HObject,
    pub(crate) txn: Transaction,
    /// At least one.
    pub(crate) entries: Vec<LogEntry>,
    /// What ends when it is durable everywhere.
    pub(crate) ends: Ends,
}

/// A change on its way.
#[derive(Debug)]
struct InProgressOp {
    /// Counts up over the life of the `Pg`, without gaps among those in flight.
    tid: u64,
    /// Its last log entry.
    version: Eversion,
    /// When it was sent to them.
    since: Stamp,
    /// Members that have not got it durably.
    waiting_on: SmallVec<[OsdId; 4]>,
    repgather: RepGather,
}

impl InProgressOp {
    fn ack(&mut self, osd: OsdId) {
        self.waiting_on.retain(|waiting| *waiting != osd);
    }
}

/// Changes on their way, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Replication {
    last_tid: u64,
    in_flight: VecDeque<InProgressOp>,
}

impl Replication {
    fn by_tid(&mut self, tid: u64) -> Option<&mut InProgressOp> {
        let first = self.in_flight.front()?.tid;
        let at = usize::try_from(tid.checked_sub(first)?).ok()?;
        self.in_flight.get_mut(at)
    }

    /// The change that made `version`, if it is not durable everywhere yet.
    pub(crate) fn repgather_of(&mut self, version: Eversion) -> Option<&mut RepGather> {
        let at = self.in_flight.partition_point(|write| write.version < version);
        self.in_flight.get_mut(at).map(|write| &mut write.repgather)
    }

    /// The newest change of `head` on its way.
    pub(crate) fn newest_of(&mut self, head: &HObject) -> Option<&mut RepGather> {
        let newest = self.in_flight.iter_mut().rev().find(|write| write.repgather.head == *head);
        newest.map(|write| &mut write.repgather)
    }

    /// Sends a change to all members at once, this one included; `repgather` completes when all have it. Yields the first object that
    /// a copy lacks from now on which gets it by backfill.
    ///
    /// # Panics
    /// Without log entries: what is not in the log could not be replayed.
    pub(crate) fn submit_write(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        mut txn: Transaction,
        mut entries: Vec<LogEntry>,
        repgather: RepGather,
    ) -> Option<HObject> {
        let committed_to = state.committed_to;
        let newest = entries.last_mut().expect("a write has a log entry");
        let version = newest.version;
        if let Some(ec) = &mut state.ec {
            newest.committed_to = committed_to;
            (ec.told_safe, ec.kept_safe) = (committed_to, committed_to);
        }
        let changes = txn.ops.len();
        txn.ops.extend(entries.iter().map(storage::log_append));
        let (previous, trim_to) = (state.log.head(), state.trim_target());
        self.last_tid += 1;
        let tid = self.last_tid;
        let mut waiting_on: SmallVec<[OsdId; 4]> =
            state.interval.acting.iter().chain(&state.interval.up).copied().collect();
        waiting_on.sort_unstable();
        waiting_on.dedup();
        let others = waiting_on.iter().copied().filter(|osd| *osd != state.whoami);
        let (later, osds): (Replicas, Replicas) =
            others.partition(|osd| state.deferred_by_backfill(*osd, &repgather.head));
        let header = state.header();
        let op = |entries, txn| RepOp { header, tid, previous, entries, trim_to, committed_to, txn };
        if state.ec.is_some() {
            txn.ops.truncate(changes);
            state.send_shards(cx, &mut txn, &entries, &osds, |txn| op(entries.clone(), txn));
        } else if !osds.is_empty() {
            let whole = op(entries, txn);
            cx.effects.push(Effect::Peers { osds, message: whole.encode() });
            RepOp { entries, txn, .. } = whole;
        }
        let mut deferred = None;
        if !later.is_empty() {
            let log_only = entries.iter().map(storage::log_append).collect();
            let txn = Transaction { collection: txn.collection, ops: log_only };
            deferred = state.add_backfill_missing(&later, &entries);
            cx.effects.push(Effect::Peers { osds: later, message: op(entries.clone(), txn).encode() });
        }
        if state.planted == Planted::EarlyReply {
            waiting_on.retain(|osd| *osd == state.whoami);
        }
        entries.iter().for_each(|entry| state.append(entry));
        state.drop_rollback_gens(&mut txn, committed_to);
        storage::follow_staged(&mut state.staged, &txn.ops);
        state.trim_log(&mut txn, trim_to);
        self.in_flight.push_back(InProgressOp { tid, version, since: cx.now, waiting_on, repgather });
        state.submit(cx, txn, OnDurable::Write(tid));
        deferred
    }

    /// This copy has the change with this number durably; true when it is one that is in flight.
    pub(crate) fn written(&mut self, me: OsdId, tid: u64, now: Stamp) -> bool {
        let Some(write) = self.by_tid(tid) else { return false };
        write.ack(me);
        stamp(&mut write.repgather, |trace| trace.logged = now);
        true
    }

    /// A member has the change with this number durably; true when it is one that is in flight.
    pub(crate) fn acked(&mut self, from: OsdId, tid: u64) -> bool {
        self.by_tid(tid).map(|write| write.ack(from)).is_some()
    }

    /// The change with this number waits for other members than this one.
    pub(crate) fn waits_for_others(&mut self, me: OsdId, tid: u64) -> bool {
        self.by_tid(tid).is_some_and(|write| write.waiting_on.iter().any(|osd| *osd != me))
    }

    /// The next change that all members have durably, in version order, and its version.
    pub(crate) fn take_complete(&mut self, now: Stamp) -> Option<(Eversion, RepGather)> {
        let complete = self.in_flight.front().is_some_and(|write| write.waiting_on.is_empty());
        let mut write = complete.then(|| self.in_flight.pop_front()).flatten()?;
        stamp(&mut write.repgather, |trace| trace.replicated = now);
        Some((write.version, write.repgather))
    }

    /// The interval is over; yields the messages whose changes are in flight, oldest first.
    pub(crate) fn cancel(&mut self) -> Vec<ClientOp> {
        self.in_flight.drain(..).flat_map(|write| write.repgather.after).map(|after| after.origin).collect()
    }

    /// True when nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Since when the oldest change in flight waits for other members.
    pub(crate) fn waits_for_others_since(&self, me: OsdId) -> Option<Stamp> {
        let oldest = self.in_flight.front()?;
        oldest.waiting_on.iter().any(|osd| *osd != me).then_some(oldest.since)
    }

    /// Number of changes in flight.
    pub(crate) fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// Clients' messages whose changes are in flight.
    pub(crate) fn ops_in_flight(&self) -> impl Iterator<Item = OpInFlight<'_>> + '_ {
        self.in_flight.iter().flat_map(|write| {
            write.repgather.after.iter().map(|after| OpInFlight {
                op: &after.origin,
                trace: after.reply.trace,
                stage: OpStage::Commit,
                waiting_on: &write.waiting_on,
            })
        })
    }

    /// Asserts what always holds.
    pub(crate) fn check(&self) {
        for (before, after) in self.in_flight.iter().zip(self.in_flight.iter().skip(1)) {
            assert!(before.version < after.version && before.tid + 1 == after.tid, "writes in flight ascend");
        }
        let waits = self.in_flight.front().is_none_or(|write| !write.waiting_on.is_empty());
        assert!(waits, "a durable write was not completed");
    }
}

impl PgState {
    /// True for a copy that cannot apply a write to the object: the comparison has still to bring it there, or it lacks what
    /// is given up now (clients' writes wait for such copies).
    fn deferred_by_backfill(&self, osd: OsdId, head: &HObject) -> bool {
        self.peers.get(&osd).is_some_and(|peer| peer.deferred_by_backfill(head) || peer.needs_first(head))
    }

    /// The members that apply changes of the object as they are made, ascending.
    pub(crate) fn appliers(&self, head: &HObject) -> Vec<OsdId> {
        let members: std::collections::BTreeSet<OsdId> = self.members().collect();
        members.into_iter().filter(|osd| !self.deferred_by_backfill(*osd, head)).collect()
    }

    /// Chunks cannot do without what all members have: peering hears of it. Written down with the next write, or when
    /// nothing else is.
    pub(crate) fn note_safe(&mut self) {
        if self.ec.is_some() {
            self.info.safe_to = self.info.safe_to.max(self.committed_to).min(self.info.last_update);
        }
    }

    fn append(&mut self, entry: &LogEntry) {
        storage::follow(&mut self.info, entry);
        self.log.append(entry);
        if self.missing.is_empty() && !self.info.is_incomplete() {
            self.info.last_complete = self.info.last_update;
        }
    }

    /// Up to where all members trim their logs with the next write.
    fn trim_target(&self) -> Eversion {
        let own = (!self.missing.is_empty() && !self.info.is_incomplete()).then_some(self.info.last_complete);
        let behind = |peer: &&Peer| peer.counts() && !peer.missing.is_empty();
        let peers = self.peers.values().filter(behind).map(|peer| peer.info.last_complete);
        let needed = peers.chain(own).min().unwrap_or(self.log.head());
        let target = self.log.trim_target(needed, self.limits).unwrap_or_default();
        target.min(self.committed_to)
    }

    /// Forgets old log entries. What they alone told to be missing is recorded.
    fn trim_log(&mut self, txn: &mut Transaction, to: Eversion) {
        if to <= self.log.tail() {
            return;
        }
        self.log.trim(to);
        self.info.log_tail = self.log.tail();
        self.record_missing(txn, to);
        self.save_info(txn);
        txn.push(Op::LogTrim { to });
    }

    /// What this copy misses of an object is what the newest entry says: one that nobody has was given up.
    fn miss_instead(&mut self, txn: &mut Transaction, entries: &[LogEntry]) {
        for entry in entries.iter().filter(|entry| entry.changes_object()) {
            if self.missing.need(&entry.object).is_some() {
                self.forget_missing(txn, &entry.object);
                let need = if entry.is_delete() { Eversion::ZERO } else { entry.version };
                self.missing.insert(entry.object.clone(), need);
            }
        }
    }

    /// These copies miss what `entries` made of objects that were compared. Yields the first of these objects.
    fn add_backfill_missing(&mut self, osds: &[OsdId], entries: &[LogEntry]) -> Option<HObject> {
        let mut first: Option<&HObject> = None;
        for entry in entries.iter().filter(|entry| entry.changes_object()) {
            let need = if entry.is_delete() { Eversion::ZERO } else { entry.version };
            for osd in osds {
                if let Some(peer) = self.peers.get_mut(osd).filter(|peer| peer.knows(&entry.object)) {
                    peer.missing.insert(entry.object.clone(), need);
                    first = Some(first.map_or(&entry.object, |first| first.min(&entry.object)));
                }
            }
        }
        first.cloned()
    }

    /// A write from the primary. It must follow exactly what is here: same interval, next version. False when it does not: something was
    /// lost between us, and peering finds out what.
    pub(crate) fn apply_rep_op(&mut self, cx: &mut Cx<'_>, op: RepOp) -> bool {
        if !matches!(self.phase, Phase::Replica) {
            return true; // not activated yet: the primary has counted us out already
        }
        let ascending = op.entries.windows(2).all(|pair| pair[0].version < pair[1].version)
            && op.entries.first().is_none_or(|entry| entry.version > op.previous);
        let known = op.entries.last().is_none_or(|entry| !self.is_of_the_future(entry.version));
        if op.previous != self.log.head() || !ascending || !known || op.txn.collection != self.spg {
            return false;
        }
        if op.tid == 0 && op.entries.is_empty() && op.txn.ops.is_empty() {
            self.committed_to = op.committed_to; // written down with the next write, or when nothing else is
            self.note_safe();
            return true;
        }
        let mut txn = op.txn;
        self.note_rollback_gens(&txn.ops, &op.entries);
        storage::follow_staged(&mut self.staged, &txn.ops);
        self.drop_rollback_gens(&mut txn, op.committed_to);
        self.miss_instead(&mut txn, &op.entries);
        op.entries.iter().for_each(|entry| self.append(entry));
        self.trim_log(&mut txn, op.trim_to);
        self.committed_to = op.committed_to;
        self.note_safe();
        if let Some(ec) = self.ec.as_mut().filter(|_| !op.entries.is_empty()) {
            ec.kept_safe = op.committed_to;
        }
        let to = self.interval.primary;
        self.submit(cx, txn, OnDurable::RepOp { to, tid: op.tid });
        true
    }
}

fn stamp(repgather: &mut RepGather, set: impl Fn(&mut crate::Trace)) {
    repgather.after.iter_mut().for_each(|after| set(&mut after.reply.trace));
}
