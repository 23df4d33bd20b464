//! Completions: transactions that are durable, data that was read, and what an interval's end takes back. Each part gets its own.

use crate::backend::{Ends, OwnChange, RepGather};
use crate::pipeline::staged_token;
use crate::tokens::{OnDurable, OnFetched};
use crate::{Cx, Pg, StoreRoom};
use nacre_msg::peer::{LogEntry, RepOp, RepOpReply};
use nacre_txn::Transaction;
use nacre_types::OsdId;
use smallvec::SmallVec;

impl Pg {
    /// Sends a change of our own to all members.
    pub(crate) fn submit_own(&mut self, cx: &mut Cx<'_>, change: OwnChange) {
        let OwnChange { head, txn, entries, ends } = change;
        self.pipeline.write_started(&head);
        self.submit_write(cx, txn, entries, RepGather { head, after: SmallVec::new(), ends });
    }

    /// Sends a change to all members.
    pub(crate) fn submit_write(
        &mut self,
        cx: &mut Cx<'_>,
        txn: Transaction,
        entries: Vec<LogEntry>,
        repgather: RepGather,
    ) {
        let deferred = self.replication.submit_write(&mut self.state, cx, txn, entries, repgather);
        if let Some(object) = deferred {
            self.recovery.look_again_at(&object);
        }
    }

    /// A write from the primary.
    pub(crate) fn on_rep_op(&mut self, cx: &mut Cx<'_>, op: RepOp) {
        if !self.state.apply_rep_op(cx, op) {
            self.state.notify_primary(cx);
        }
    }

    /// A replica has a write durably.
    pub(crate) fn rep_op_reply(&mut self, cx: &mut Cx<'_>, from: OsdId, reply: &RepOpReply) {
        if let Some(peer) = self.state.peers.get_mut(&from).filter(|peer| peer.activated) {
            peer.info.last_complete = peer.info.last_complete.max(reply.last_complete);
        }
        if let Some(token) = staged_token(reply.tid) {
            let goes_on = self.pipeline.part_is_staged(&mut self.state, cx, from, token);
            self.follow_op(cx, goes_on);
        } else if self.replication.acked(from, reply.tid) {
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
            OnDurable::Activation => {
                let me = self.state.whoami;
                let outcome = self.peering.confirmed(&mut self.state, cx, me);
                self.follow_peering(cx, outcome);
            }
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
            OnDurable::Staged(token) => {
                let me = self.state.whoami;
                let goes_on = self.pipeline.part_is_staged(&mut self.state, cx, me, token);
                self.follow_op(cx, goes_on);
            }
        }
        while let Some(then) = self.state.tokens.take_flushed(token) {
            let outcome = self.peering.flushed(&mut self.state, cx, then);
            self.follow_peering(cx, outcome);
        }
    }

    /// True when this copy has one write under way in the store, and other members have not said that they have it: that
    /// it is durable here then changes nothing yet.
    #[must_use]
    pub fn waits_for_others(&mut self) -> bool {
        let me = self.state.whoami;
        let only_write = self.state.tokens.only_write().filter(|_| !self.pipeline.has_parked());
        only_write.is_some_and(|tid| self.replication.waits_for_others(me, tid))
    }

    fn write_is_durable(&mut self, cx: &mut Cx<'_>, tid: u64) {
        if self.replication.written(self.state.whoami, tid, cx.now) {
            self.complete_writes(cx);
        }
    }

    /// Completes what is durable everywhere, strictly in version order.
    fn complete_writes(&mut self, cx: &mut Cx<'_>) {
        while let Some((version, repgather)) = self.replication.take_complete(cx.now) {
            self.state.committed_to = version;
            self.state.note_safe();
            self.pipeline.write_completed(&repgather.head);
            for after in repgather.after {
                self.after_commit(cx, &repgather.head, after);
            }
            match repgather.ends {
                Ends::Nothing => {}
                Ends::Trim => self.snaptrim.trimmed(cx.now),
                Ends::Watch(key) => self.watches.end_watch(cx, &repgather.head, key, true),
            }
        }
        if self.replication.is_idle() {
            self.state.tell_safe(cx);
        }
    }

    /// Data that was asked for is there.
    pub(crate) fn fetched(&mut self, cx: &mut Cx<'_>, token: nacre_txn::Token) {
        if let Some(op_ctx) = self.pipeline.take_parked(token) {
            return self.unpark(cx, op_ctx);
        }
        match self.state.tokens.take_fetch(token) {
            None => {} // of an older interval
            Some(OnFetched::Push(object)) => {
                let outcome = self.recovery.push_was_read(&mut self.state, cx, &object);
                self.follow_recovery(cx, outcome);
            }
            Some(OnFetched::Pull { from, pull }) => self.state.answer_pull(cx, from, *pull),
            Some(OnFetched::Copy { from, get, gathered }) => self.answer_copy(cx, from, *get, gathered),
            Some(OnFetched::OwnChunk(token)) => {
                let outcome = self.gathers.read_own_chunk(&mut self.state, cx, token);
                self.follow_gather(cx, outcome);
            }
            Some(OnFetched::Chunk { from, read }) => self.state.answer_chunk(cx, from, *read),
            Some(OnFetched::Scrub { from, request, so_far }) => {
                let compared = self.scrub.answer(&mut self.state, cx, from, &request, so_far);
                self.repair_compared(cx, compared);
            }
        }
    }

    /// The data itself came, which the view may not have.
    pub(crate) fn brought(&mut self, cx: &mut Cx<'_>, token: nacre_txn::Token, data: nacre_buf::BufList) {
        let Some(mut op_ctx) = self.pipeline.take_parked(token) else { return self.fetched(cx, token) };
        if let Some(plain) = &mut op_ctx.plain {
            plain.bring(data);
        }
        self.unpark(cx, op_ctx);
    }

    /// Takes back all that is under way in this interval. Clients' messages are admitted again: what their
    /// changes left in the log is found there, the rest is executed anew or dropped.
    pub(crate) fn cancel(&mut self, cx: &mut Cx<'_>) {
        self.state.tokens.cancel();
        self.gathers.clear();
        self.pipeline.requeue(self.replication.cancel());
        self.pipeline.backoffs.release_objects(&self.state, cx);
        self.reservations.cancel(&self.state, cx);
        self.recovery = crate::recovery::Recovery::default();
        self.snaptrim.cancel();
        self.scrub.abort();
        self.watches.resume(cx.now);
        self.state.drop_staged(cx);
    }
}
