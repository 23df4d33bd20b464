//! A client's message from part to part: `pipeline` admits and runs it, recovery says whether its object is there, watches whether their
//! clients are, and replication takes what it changes.

use crate::backend::{AfterCommit, Ends, RepGather};
use crate::coding::Piece;
use crate::ops::{Change, Outcome, Suspend};
use crate::pipeline::{Attempt, Executed, OpContext};
use crate::reply::PendingReply;
use crate::state::PgState;
use crate::{Cx, Pg, SessionId};
use nacre_msg::peer::{CopyGet, LogEntry};
use nacre_txn::{Op, ReadError, Transaction};
use nacre_types::{Errno, Eversion, HObject, OsdId};
use smallvec::smallvec;

impl Pg {
    /// Admits all that is ready, and runs what gets its turn by that; up to the first message that changes
    /// something, since the next one must see the change, and as far as the turn goes.
    pub(crate) fn run_ready(&mut self, cx: &mut Cx<'_>) {
        while !self.state.view_is_stale && !cx.throttle.turn.is_spent() {
            let Some(op_ctx) = self.pipeline.next(&self.state, cx) else { return };
            self.go_on(cx, op_ctx);
        }
    }

    /// The session is gone.
    pub(crate) fn session_closed(&mut self, cx: &mut Cx<'_>, session: SessionId) {
        self.pipeline.drop_session(session);
        self.watches.disconnect_session(cx.now, session);
    }

    /// A message whose turn has come: it runs, unless its object is to be recovered first, or compared.
    fn go_on(&mut self, cx: &mut Cx<'_>, mut op_ctx: OpContext) {
        if op_ctx.admitted < self.state.map.epoch {
            let Some(again) = self.pipeline.readmit(&self.state, cx, op_ctx) else { return };
            op_ctx = again;
        }
        let Some(op_ctx) = self.pipeline.unless_held(op_ctx) else { return };
        let may_write = op_ctx.intent.may_write();
        let waits = !op_ctx.intent.on_pg
            && (self.pipeline.is_behind_missing(&op_ctx)
                || self.recovery.holds_back(&self.state, &op_ctx.head, may_write));
        if waits {
            return self.wait_for_recovery(cx, op_ctx);
        }
        self.execute(cx, op_ctx);
    }

    /// The same, of a message that a step of what it waited for has yielded.
    pub(crate) fn follow_op(&mut self, cx: &mut Cx<'_>, op_ctx: Option<OpContext>) {
        if let Some(op_ctx) = op_ctx {
            self.go_on(cx, op_ctx);
        }
    }

    fn wait_for_recovery(&mut self, cx: &mut Cx<'_>, op_ctx: OpContext) {
        self.recovery.want(&op_ctx.head);
        let is_unfound = self.recovery.is_unfound(&op_ctx.head);
        self.pipeline.wait_for_recovery(&self.state, cx, op_ctx, is_unfound);
    }

    /// Runs a message whose turn has come.
    fn execute(&mut self, cx: &mut Cx<'_>, mut op_ctx: OpContext) {
        let Self { state, pipeline, watches, recovery, gathers, .. } = self;
        let recall = |state: &PgState, now, head: &HObject, info: &_| {
            watches.recall_watchers(state, now, head, info);
        };
        match pipeline.run(state, cx, &mut op_ctx, recall) {
            Attempt::Executed(outcome) => self.apply_outcome(cx, op_ctx, outcome),
            Attempt::Dup(version, reply) => self.finish_dup(cx, op_ctx, version, reply),
            Attempt::Refused(errno) => pipeline.refuse(state, cx, &op_ctx, errno),
            Attempt::Suspended(Suspend::Read(ReadError::Pending { object, offset, length })) => {
                if let Some(request) = pipeline.wait_for_data(state, cx, op_ctx, (object, offset, length)) {
                    let outcome = gathers.gather(state, cx, request);
                    self.follow_gather(cx, outcome);
                }
            }
            Attempt::Suspended(Suspend::Read(ReadError::Damaged { object, .. })) => {
                if !op_ctx.intent.on_pg && recovery.repair_here(state, cx, &object) {
                    return self.wait_for_recovery(cx, op_ctx);
                }
                pipeline.refuse(state, cx, &op_ctx, Errno::EIO);
            }
            Attempt::Suspended(Suspend::Copy { op_index, source }) => {
                let goes_on = pipeline.begin_copy(state, cx, op_ctx, (op_index, *source));
                self.follow_op(cx, goes_on);
            }
            Attempt::Suspended(Suspend::Pause { op_index, progress }) => {
                pipeline.pause(state, op_ctx, (op_index, progress));
            }
        }
    }

    /// Answers it: at once, or together with the write that is still in flight.
    fn finish_dup(&mut self, cx: &mut Cx<'_>, op_ctx: OpContext, version: Eversion, reply: PendingReply) {
        let after = AfterCommit::of_reply(op_ctx.op, reply);
        match self.replication.repgather_of(version) {
            Some(repgather) => repgather.after.push(after),
            None => self.after_commit(cx, &op_ctx.head, after),
        }
        self.pipeline.start_next(&op_ctx.head);
    }

    /// Too few chunks of what a message reads can be had: it is admitted anew if that is being repaired.
    pub(crate) fn unreadable(&mut self, cx: &mut Cx<'_>, op_ctx: OpContext) {
        self.pipeline.give_up_waiting(&op_ctx);
        if self.recovery.must_recover(&self.state, &op_ctx.head, op_ctx.is_write())
            && !self.recovery.is_unfound(&op_ctx.head)
        {
            return self.wait_for_recovery(cx, op_ctx);
        }
        self.pipeline.refuse(&self.state, cx, &op_ctx, Errno::EIO);
    }

    fn apply_outcome(&mut self, cx: &mut Cx<'_>, op_ctx: OpContext, outcome: Outcome) {
        let Self { state, pipeline, watches, .. } = self;
        let refusal = watches.refusal(cx.now, &op_ctx.op.session, &op_ctx.head, &outcome);
        let Executed { head, change, after } = pipeline.finish(state, cx, op_ctx, outcome, refusal);
        match change {
            Change::Dropped => {}
            Change::None => self.finish_read(cx, &head, after),
            Change::Log(entry) => self.replicate(cx, head.clone(), Vec::new(), vec![*entry], after),
            Change::Write(write) => self.replicate(cx, head.clone(), write.ops, write.entries, after),
        }
        self.pipeline.start_next(&head);
    }

    /// A message that changed nothing is answered at once, unless it saw what is not durable yet.
    fn finish_read(&mut self, cx: &mut Cx<'_>, head: &HObject, after: AfterCommit) {
        let flying = self.pipeline.has_in_flight(head);
        match flying.then(|| self.replication.newest_of(head)).flatten() {
            Some(repgather) => repgather.after.push(after),
            None => self.after_commit(cx, head, after),
        }
    }

    fn replicate(
        &mut self,
        cx: &mut Cx<'_>,
        head: HObject,
        ops: Vec<Op>,
        entries: Vec<LogEntry>,
        after: AfterCommit,
    ) {
        self.pipeline.write_started(&head);
        let txn = Transaction { collection: self.state.spg, ops };
        self.submit_write(cx, txn, entries, RepGather { head, after: smallvec![after], ends: Ends::Nothing });
    }

    /// Carries out what a message promised, now that it is durable.
    pub(crate) fn after_commit(&mut self, cx: &mut Cx<'_>, head: &HObject, after: AfterCommit) {
        let AfterCommit { origin, reply, watches, notifies, acks } = after;
        let user_version = reply.message.user_version;
        reply.send(cx);
        self.watches.change_watches(cx, &origin.session, head, watches);
        self.watches.start_notifies(cx, &origin.session, head, user_version, notifies);
        self.watches.acknowledge(cx, &origin.session, head, acks);
    }

    /// What a parked message waited for is there.
    pub(crate) fn unpark(&mut self, cx: &mut Cx<'_>, op_ctx: Box<OpContext>) {
        let goes_on = self.pipeline.unpark(cx, op_ctx);
        self.follow_op(cx, goes_on);
    }

    /// A message that waited for a later turn goes on, one of them: what they do together is more than a turn is for.
    pub(crate) fn go_on_paused(&mut self, cx: &mut Cx<'_>) {
        if !cx.throttle.turn.is_spent()
            && let Some(op_ctx) = self.pipeline.take_paused()
        {
            self.unpark(cx, op_ctx);
        }
    }

    /// Asks again for what copies wait for.
    pub(crate) fn retry_copies(&mut self, cx: &mut Cx<'_>) {
        for token in self.pipeline.copies() {
            let goes_on = self.pipeline.retry_copy(&self.state, cx, token);
            self.follow_op(cx, goes_on);
        }
    }

    /// Gives another PG a part of an object that it copies, with what was `gathered` of it.
    pub(crate) fn answer_copy(&mut self, cx: &mut Cx<'_>, from: OsdId, get: CopyGet, gathered: Vec<Piece>) {
        let Self { state, pipeline, recovery, gathers, .. } = self;
        let is_missing = recovery.must_recover(state, &get.object.to_head(), false);
        if let Some(request) = pipeline.answer_copy(state, cx, (from, get, gathered), is_missing) {
            let outcome = gathers.gather(state, cx, request);
            self.follow_gather(cx, outcome);
        }
    }
}
