//! Running a message, and carrying out what comes of it.

use super::reply::Answer;
use super::{OpContext, PendingReply};
use crate::backend::{AfterCommit, Ends, RepGather};
use crate::coding::EcView;
use crate::list::{self, Listing};
use crate::object::ObjectContext;
use crate::ops::{self, Change, Env, Outcome, PlainRead, Request, Suspend};
use crate::state::PgState;
use crate::tokens::OnFetched;
use crate::{Cx, Effect, Pg, Planted};
use nacre_msg::peer::LogEntry;
use nacre_txn::{FetchFrom, Op, ReadError, Transaction};
use nacre_types::{Errno, Eversion, HObject};
use smallvec::smallvec;

impl PgState {
    fn list_objects(&self, cx: &Cx<'_>, op_ctx: &OpContext) -> Outcome {
        let there = |(object, need): &(&HObject, Eversion)| object.snap.is_head() && *need != Eversion::ZERO;
        let missing: Vec<HObject> =
            self.missing.iter().filter(there).map(|(object, _)| object.clone()).collect();
        let (collection, pg_num) = (self.spg, self.interval.pg_num);
        list::execute(&Listing { view: cx.view, collection, pg_num, missing: &missing }, &op_ctx.op.op)
    }

    /// The version of the next log entry.
    pub(crate) fn next_version(&self) -> Eversion {
        Eversion::new(self.map.epoch, self.log.head().version + 1)
    }

    /// The answer to a request that the log already knows.
    fn lookup_dup(&self, cx: &Cx<'_>, op_ctx: &OpContext) -> Option<(Eversion, PendingReply)> {
        if self.planted == Planted::NoDuplicateCheck {
            return None;
        }
        let entry = self.log.by_reqid(&op_ctx.reqid)?;
        let is_old = entry.version.version + 4 < self.log.head().version;
        if self.planted == Planted::DuplicatesTrimmed && is_old {
            return None;
        }
        let mut reply = self.reply_to(&op_ctx.op, Answer::of_entry(&entry));
        reply.trace.executed = cx.now;
        Some((entry.version, reply))
    }
}

impl Pg {
    /// Runs a message whose turn has come.
    pub(super) fn execute(&mut self, cx: &mut Cx<'_>, mut op_ctx: OpContext) {
        if let Some(plain) = op_ctx.plain.take()
            && let Ok(outcome) = plain.finish(cx.view, &self.state.spg, &op_ctx.head)
        {
            // Changes of the object wait while it is parked: it is what the message saw.
            return self.apply_outcome(cx, op_ctx, outcome);
        }
        if op_ctx.intent.may_write()
            && let Some((version, reply)) = self.state.lookup_dup(cx, &op_ctx)
        {
            return self.finish_dup(cx, op_ctx, version, reply);
        }
        if op_ctx.op.is_beyond_room {
            self.state.refuse(cx, &op_ctx.op, Errno::ENOSPC);
            return self.pipeline.start_next(&op_ctx.head);
        }
        self.state.drop_outdated_copies(&mut op_ctx);
        match self.run(cx, &mut op_ctx) {
            Ok(outcome) => self.apply_outcome(cx, op_ctx, outcome),
            Err(Suspend::Read(ReadError::Pending { object, offset, length })) => {
                self.pipeline.park(&op_ctx);
                let from = match op_ctx.plain {
                    Some(_) => FetchFrom::AnywhereOnce,
                    None => FetchFrom::Anywhere,
                };
                let then = OnFetched::Operation(Box::new(op_ctx));
                if self.state.ec.is_some() {
                    let outcome = self.gathers.gather(&mut self.state, cx, (object, offset, length), then);
                    return self.follow_gather(cx, outcome);
                }
                let token = self.state.tokens.issue_fetch(then);
                cx.effects.push(Effect::Fetch { object, offset, length, from, token });
            }
            Err(Suspend::Read(ReadError::Damaged { object, .. })) => {
                if !op_ctx.intent.on_pg && self.recovery.repair_here(&mut self.state, cx, &object) {
                    return self.wait_for_recovery(cx, op_ctx);
                }
                self.state.refuse(cx, &op_ctx.op, Errno::EIO);
                self.pipeline.start_next(&op_ctx.head);
            }
            Err(Suspend::Copy { op_index, source }) => {
                self.pipeline.park(&op_ctx);
                self.begin_copy(cx, op_ctx, op_index, *source);
            }
        }
    }

    fn run(&mut self, cx: &mut Cx<'_>, op_ctx: &mut OpContext) -> Result<Outcome, Suspend> {
        if op_ctx.intent.on_pg {
            return Ok(self.state.list_objects(cx, op_ctx));
        }
        let Ok(context) = ObjectContext::load(cx.view, &self.state.spg, &op_ctx.head) else {
            let (object, reason) = (op_ctx.head.clone(), "the object's record is damaged".to_owned());
            return Err(ReadError::Damaged { object, offset: 0, reason }.into());
        };
        self.watches.recall_watchers(&self.state, cx.now, &op_ctx.head, &context.info);
        let coded = EcView { inner: cx.view, pieces: &op_ctx.gathered };
        let mut env = Env {
            view: if self.state.ec.is_some() { &coded } else { cx.view },
            collection: self.state.spg,
            pool: &self.state.pool,
            epoch: self.state.map.epoch,
            now: cx.wall,
            at_version: self.state.next_version(),
            last_user_version: self.state.info.last_user_version,
            notify_id: u64::from(self.state.map.epoch) << 32 | u64::from(self.pipeline.notifies),
            entropy: &mut *cx.entropy,
            work: 0,
        };
        let request = Request {
            op: &op_ctx.op.op,
            intent: &op_ctx.intent,
            head: &op_ctx.head,
            reqid: op_ctx.reqid,
            caller: &op_ctx.caller,
            copied: &op_ctx.copied,
        };
        let result = ops::execute(&mut env, &request, &context);
        cx.throttle.turn.spend(env.work);
        let is_pending = matches!(&result, Err(Suspend::Read(ReadError::Pending { .. })));
        // What a coded object's data is put together from comes with it, and is looked at once.
        op_ctx.plain =
            if is_pending && self.state.ec.is_none() { PlainRead::of(&request, &context) } else { None };
        result
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
        self.pipeline.order.unpark(&op_ctx.head, op_ctx.is_write());
        if self.recovery.must_recover(&self.state, &op_ctx.head, op_ctx.is_write())
            && !self.recovery.is_unfound(&op_ctx.head)
        {
            return self.wait_for_recovery(cx, op_ctx);
        }
        self.state.refuse(cx, &op_ctx.op, Errno::EIO);
        self.pipeline.start_next(&op_ctx.head);
    }

    /// What a parked message waited for is there.
    pub(crate) fn unpark(&mut self, cx: &mut Cx<'_>, op_ctx: OpContext) {
        if !op_ctx.intent.on_pg {
            self.pipeline.order.unpark(&op_ctx.head, op_ctx.is_write());
        }
        match cx.throttle.turn.is_spent() {
            true => self.pipeline.started.push_back(op_ctx),
            false => self.go_on(cx, op_ctx),
        }
    }

    fn apply_outcome(&mut self, cx: &mut Cx<'_>, mut op_ctx: OpContext, outcome: Outcome) {
        op_ctx.op.trace.executed = cx.now;
        self.pipeline.next_notify(outcome.notifies.len());
        let Outcome { mut result, ops, user_version, change, watches, notifies, acks, counters } = outcome;
        let head = op_ctx.head;
        if result >= 0 && !self.watches.note_alive(cx.now, &op_ctx.op.session, &head, &watches) {
            result = Errno::ETIMEDOUT.negated();
        }
        if result >= 0 && !self.watches.takes_notifies(&op_ctx.op.session, &notifies) {
            result = Errno::EBUSY.negated();
        }
        let version = match &change {
            Change::None | Change::Dropped => Eversion::ZERO,
            Change::Log(entry) => entry.version,
            Change::Write(write) => write.entries.last().map_or(Eversion::ZERO, |entry| entry.version),
        };
        let reply = self.state.reply_to(&op_ctx.op, Answer { result, version, user_version, ops });
        let mut after = AfterCommit::of_reply(op_ctx.op, reply);
        if result >= 0 {
            (after.watches, after.notifies, after.acks) = (watches, notifies, acks);
        }
        match change {
            Change::Dropped => {}
            Change::None => {
                self.state.info.counters.add(&counters);
                self.finish_read(cx, &head, after);
            }
            Change::Log(entry) => self.replicate(cx, head.clone(), Vec::new(), vec![*entry], after),
            Change::Write(write) => self.replicate(cx, head.clone(), write.ops, write.entries, after),
        }
        self.pipeline.start_next(&head);
    }

    /// A message that changed nothing is answered at once, unless it saw what is not durable yet.
    fn finish_read(&mut self, cx: &mut Cx<'_>, head: &HObject, after: AfterCommit) {
        let flying = self.pipeline.order.has_in_flight(head);
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
}
