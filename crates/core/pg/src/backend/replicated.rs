//! Replicated pools: every member applies the same transaction; a write counts when all have it durably.
//!
//! ```text
//!   primary   submit ------------------------ durable ---.
//!      |--RepOp--> replica: submit --- durable -- reply --+--> complete, in version order
//!      '--RepOp--> replica: submit --- durable -- reply --'
//! ```

use crate::object::WatchKey;
use crate::ops::{Notify, NotifyAck, WatchChange};
use crate::peering::Phase;
use crate::pipeline::{OpInFlight, OpStage, PendingReply, staged_token};
use crate::state::PgState;
use crate::tokens::{OnDurable, OnFetched};
use crate::{ClientOp, Cx, Effect, Pg, Planted, StoreRoom, storage};
use nacre_msg::peer::{LogEntry, RepOp, RepOpReply};
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
    /// Whose message it was, and who asked for the same or looked at the result meanwhile; empty for a
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

/// A change that no client asked for. A part of the PG makes it, and [`Pg::submit_own`] sends it to all members.
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

    fn take_complete(&mut self) -> Option<(Eversion, RepGather)> {
        let complete = self.in_flight.front().is_some_and(|write| write.waiting_on.is_empty());
        let write = complete.then(|| self.in_flight.pop_front()).flatten()?;
        Some((write.version, write.repgather))
    }

    /// The interval is over; yields the messages whose changes are in flight, oldest first.
    fn cancel(&mut self) -> Vec<ClientOp> {
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

    /// Chunks cannot do without what all members have: peering hears of it. Written down when nothing else is written.
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
        let behind = |peer: &&crate::peering::Peer| peer.counts() && !peer.missing.is_empty();
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
}

impl Pg {
    /// Sends a change of our own to all members.
    pub(crate) fn submit_own(&mut self, cx: &mut Cx<'_>, change: OwnChange) {
        let OwnChange { head, txn, entries, ends } = change;
        self.pipeline.write_started(&head);
        self.submit_write(cx, txn, entries, RepGather { head, after: SmallVec::new(), ends });
    }

    /// Sends a change to all members at once, this one included; `repgather` completes when all have it.
    ///
    /// # Panics
    /// Without log entries: what is not in the log could not be replayed.
    pub(crate) fn submit_write(
        &mut self,
        cx: &mut Cx<'_>,
        mut txn: Transaction,
        mut entries: Vec<LogEntry>,
        repgather: RepGather,
    ) {
        let version = entries.last().expect("a write has a log entry").version;
        let changes = txn.ops.len();
        txn.ops.extend(entries.iter().map(storage::log_append));
        let (previous, trim_to) = (self.state.log.head(), self.state.trim_target());
        self.replication.last_tid += 1;
        let tid = self.replication.last_tid;
        let mut waiting_on: SmallVec<[OsdId; 4]> =
            self.state.interval.acting.iter().chain(&self.state.interval.up).copied().collect();
        waiting_on.sort_unstable();
        waiting_on.dedup();
        let others = waiting_on.iter().copied().filter(|osd| *osd != self.state.whoami);
        let (later, osds): (Replicas, Replicas) =
            others.partition(|osd| self.state.deferred_by_backfill(*osd, &repgather.head));
        let (header, committed_to) = (self.state.header(), self.state.committed_to);
        let op = |entries, txn| RepOp { header, tid, previous, entries, trim_to, committed_to, txn };
        if self.state.ec.is_some() {
            txn.ops.truncate(changes);
            self.state.send_shards(cx, &mut txn, &entries, &osds, |txn| op(entries.clone(), txn));
        } else if !osds.is_empty() {
            let whole = op(entries, txn);
            cx.effects.push(Effect::Peers { osds, message: whole.encode() });
            RepOp { entries, txn, .. } = whole;
        }
        if !later.is_empty() {
            let log_only = entries.iter().map(storage::log_append).collect();
            let txn = Transaction { collection: txn.collection, ops: log_only };
            self.add_backfill_missing(&later, &entries);
            cx.effects.push(Effect::Peers { osds: later, message: op(entries.clone(), txn).encode() });
        }
        if self.state.planted == Planted::EarlyReply {
            waiting_on.retain(|osd| *osd == self.state.whoami);
        }
        entries.iter().for_each(|entry| self.state.append(entry));
        self.state.drop_rollback_gens(&mut txn, committed_to);
        storage::follow_staged(&mut self.state.staged, &txn.ops);
        self.state.trim_log(&mut txn, trim_to);
        self.replication.in_flight.push_back(InProgressOp {
            tid,
            version,
            since: cx.now,
            waiting_on,
            repgather,
        });
        self.state.submit(cx, txn, OnDurable::Write(tid));
    }

    /// These copies miss what `entries` made of objects that were compared.
    fn add_backfill_missing(&mut self, osds: &[OsdId], entries: &[LogEntry]) {
        for entry in entries.iter().filter(|entry| entry.changes_object()) {
            let need = if entry.is_delete() { Eversion::ZERO } else { entry.version };
            for osd in osds {
                if let Some(peer) = self.state.peers.get_mut(osd).filter(|peer| peer.knows(&entry.object)) {
                    peer.missing.insert(entry.object.clone(), need);
                    self.recovery.look_again_at(&entry.object);
                }
            }
        }
    }

    /// A write from the primary. It must follow exactly what is here: same interval, next version.
    pub(crate) fn apply_rep_op(&mut self, cx: &mut Cx<'_>, op: RepOp) {
        if !matches!(self.state.phase, Phase::Replica) {
            return; // not activated yet: the primary has counted us out already
        }
        let ascending = op.entries.windows(2).all(|pair| pair[0].version < pair[1].version)
            && op.entries.first().is_none_or(|entry| entry.version > op.previous);
        let known = op.entries.last().is_none_or(|entry| !self.state.is_of_the_future(entry.version));
        if op.previous != self.state.log.head() || !ascending || !known || op.txn.collection != self.state.spg
        {
            return self.notify_primary(cx); // something was lost between us: peering finds out what
        }
        let mut txn = op.txn;
        let lets_go = op.entries.is_empty() && self.state.ec.is_some();
        self.state.note_rollback_gen(&txn.ops);
        storage::follow_staged(&mut self.state.staged, &txn.ops);
        self.state.drop_rollback_gens(&mut txn, op.committed_to);
        self.state.miss_instead(&mut txn, &op.entries);
        op.entries.iter().for_each(|entry| self.state.append(entry));
        self.state.trim_log(&mut txn, op.trim_to);
        self.state.committed_to = op.committed_to;
        self.state.note_safe();
        if lets_go {
            self.state.save_info(&mut txn);
        }
        let to = self.state.interval.primary;
        self.state.submit(cx, txn, OnDurable::RepOp { to, tid: op.tid });
    }

    /// A replica has a write durably.
    pub(crate) fn rep_op_reply(&mut self, cx: &mut Cx<'_>, from: OsdId, reply: &RepOpReply) {
        if let Some(peer) = self.state.peers.get_mut(&from).filter(|peer| peer.activated) {
            peer.info.last_complete = peer.info.last_complete.max(reply.last_complete);
        }
        if let Some(token) = staged_token(reply.tid) {
            self.part_is_staged(cx, from, token);
        } else if let Some(write) = self.replication.by_tid(reply.tid) {
            write.ack(from);
            self.complete_writes(cx);
        }
    }

    /// A transaction of this copy is durable.
    pub(crate) fn durable(&mut self, cx: &mut Cx<'_>, token: nacre_txn::Token) {
        match self.state.tokens.take_durable(token) {
            OnDurable::Nothing => {}
            OnDurable::Write(tid) => self.write_is_durable(cx, tid),
            OnDurable::RepOp { to, tid } => {
                let last_complete = self.state.info.last_complete;
                let is_failsafe_full = cx.room == StoreRoom::FailsafeFull;
                let header = self.state.header();
                self.state.send(cx, to, RepOpReply { header, tid, last_complete, is_failsafe_full });
            }
            OnDurable::Activation => self.confirmed(cx, self.state.whoami),
            OnDurable::Activated => self.state.activation_is_durable(cx),
            OnDurable::Pushed { to, reply } => self.state.send(cx, to, *reply),
            OnDurable::Recovered(object) => {
                let outcome = self.recovery.recovered_here(&mut self.state, cx, &object);
                self.follow_recovery(cx, Some(outcome));
            }
            OnDurable::Rebuilt(part) => {
                let Self { state, recovery, pipeline, .. } = self;
                let (me, ops) = (state.whoami, pipeline.object_use());
                let outcome = recovery.part_is_there(state, cx, ops, me, (&part.0, &part.1));
                self.follow_recovery(cx, outcome);
            }
            OnDurable::Staged(token) => self.part_is_staged(cx, self.state.whoami, token),
        }
        while let Some(then) = self.state.tokens.take_flushed(token) {
            self.flushed(cx, then);
        }
    }

    /// True when this copy has one write under way in the store, and other members have not said that they have it: that
    /// it is durable here then changes nothing yet.
    #[must_use]
    pub fn waits_for_others(&mut self) -> bool {
        let me = self.state.whoami;
        let write = self.state.tokens.only_write().and_then(|tid| self.replication.by_tid(tid));
        write.is_some_and(|write| write.waiting_on.iter().any(|osd| *osd != me))
    }

    fn write_is_durable(&mut self, cx: &mut Cx<'_>, tid: u64) {
        let me = self.state.whoami;
        if let Some(write) = self.replication.by_tid(tid) {
            write.ack(me);
            stamp(&mut write.repgather, |trace| trace.logged = cx.now);
            self.complete_writes(cx);
        }
    }

    /// Completes what is durable everywhere, strictly in version order.
    fn complete_writes(&mut self, cx: &mut Cx<'_>) {
        while let Some((version, mut repgather)) = self.replication.take_complete() {
            self.state.committed_to = version;
            stamp(&mut repgather, |trace| trace.replicated = cx.now);
            self.state.note_safe();
            self.write_completed(&repgather.head);
            for after in repgather.after {
                self.after_commit(cx, &repgather.head, after);
            }
            match repgather.ends {
                Ends::Nothing => {}
                Ends::Trim => self.snaptrim.trimmed(cx.now),
                Ends::Watch(key) => self.watches.end_watch(cx, &repgather.head, key, true),
            }
        }
    }

    /// Data that was asked for is there.
    pub(crate) fn fetched(&mut self, cx: &mut Cx<'_>, token: nacre_txn::Token) {
        match self.state.tokens.take_fetch(token) {
            None => {} // of an older interval
            Some(OnFetched::Operation(op_ctx)) => self.unpark(cx, *op_ctx),
            Some(OnFetched::Push(object)) => {
                let outcome = self.recovery.push_was_read(&mut self.state, cx, &object);
                self.follow_recovery(cx, outcome);
            }
            Some(OnFetched::Pull { from, pull }) => self.state.answer_pull(cx, from, *pull),
            Some(OnFetched::Copy { from, get, gathered }) => self.answer_copy(cx, from, *get, gathered),
            Some(OnFetched::OwnChunk(token)) => self.read_own_chunk(cx, token),
            Some(OnFetched::Chunk { from, read }) => self.state.answer_chunk(cx, from, *read),
            Some(OnFetched::Scrub { from, request, so_far }) => {
                let compared = self.scrub.answer(&mut self.state, cx, from, &request, so_far);
                self.repair_compared(cx, compared);
            }
        }
    }

    /// The data itself came, which the view may not have.
    pub(crate) fn brought(&mut self, cx: &mut Cx<'_>, token: nacre_txn::Token, data: nacre_buf::BufList) {
        if let Some(plain) = self.state.tokens.op_ctx_mut(token).and_then(|op_ctx| op_ctx.plain.as_mut()) {
            plain.bring(data);
        }
        self.fetched(cx, token);
    }

    /// Takes back all that is under way in this interval. Clients' messages are admitted again: what their
    /// changes left in the log is found there, the rest is executed anew or dropped.
    pub(crate) fn cancel(&mut self, cx: &mut Cx<'_>) {
        let mut again = self.replication.cancel();
        for waiting in self.state.tokens.cancel() {
            if let OnFetched::Operation(op_ctx) = waiting {
                again.push(op_ctx.op);
            }
        }
        self.gathers.clear();
        self.pipeline.requeue(again);
        self.backoffs.release_objects(&self.state, cx);
        self.reservations.cancel(&self.state, cx);
        self.recovery = crate::recovery::Recovery::default();
        self.snaptrim.cancel();
        self.scrub.abort();
        self.drop_staged(cx);
    }
}

fn stamp(repgather: &mut RepGather, set: impl Fn(&mut crate::Trace)) {
    repgather.after.iter_mut().for_each(|after| set(&mut after.reply.trace));
}
