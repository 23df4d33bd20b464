//! Running a message against the objects, and its answer.

use super::{OpContext, Pipeline};
use crate::backend::AfterCommit;
use crate::coding::EcView;
use crate::list::{self, Listing};
use crate::object::{ObjectContext, ObjectInfo};
use crate::ops::{self, Change, Env, Outcome, PlainRead, Request, Suspend};
use crate::reply::{Answer, PendingReply};
use crate::state::PgState;
use crate::{Cx, MessageLimits, Planted};
use nacre_txn::ReadError;
use nacre_types::{Errno, Eversion, HObject, SnapId, Stamp};

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

/// How it went with a message whose turn has come.
#[allow(clippy::large_enum_variant, reason = "moved once; a box would be an allocation per message")]
pub(crate) enum Attempt {
    /// It was executed: [`Pipeline::finish`].
    Executed(Outcome),
    /// The log has it already, in the entry of this version, and with it the answer.
    Dup(Eversion, PendingReply),
    /// It is answered with an errno.
    Refused(Errno),
    /// It waits for what it could not read.
    Suspended(Suspend),
}

/// A message that was executed: what is left to do.
pub(crate) struct Executed {
    /// Its object's head.
    pub(crate) head: HObject,
    pub(crate) change: Change,
    /// Due when that is durable everywhere.
    pub(crate) after: AfterCommit,
}

/// A message that only reads an object counts for no more than there is of it. Changes may make more of it first, and a clone may be longer.
fn expect_by_record(op_ctx: &mut OpContext, context: &ObjectContext, limits: MessageLimits) {
    let op = &mut op_ctx.op;
    if !op_ctx.intent.may_write() && op.op.snap == SnapId::HEAD {
        let bytes = ops::expected_of_object(&op.op, limits, context.info.size);
        op.permit.expect_at_most(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
}

impl Pipeline {
    /// Runs a message whose turn has come against the objects as they are; changes nothing yet. `recall` hears what its object's record
    /// says of watchers.
    pub(crate) fn run(
        &self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        op_ctx: &mut OpContext,
        recall: impl FnOnce(&PgState, Stamp, &HObject, &ObjectInfo),
    ) -> Attempt {
        if let Some(plain) = op_ctx.plain.take()
            && let Ok(outcome) = plain.finish(cx.view, &state.spg, &op_ctx.head)
        {
            // Changes of the object wait while it is parked: it is what the message saw.
            return Attempt::Executed(outcome);
        }
        if op_ctx.intent.may_write()
            && let Some((version, reply)) = state.lookup_dup(cx, op_ctx)
        {
            return Attempt::Dup(version, reply);
        }
        if op_ctx.op.is_beyond_room {
            return Attempt::Refused(Errno::ENOSPC);
        }
        state.drop_outdated_copies(op_ctx);
        match self.execute(state, cx, op_ctx, recall) {
            Ok(outcome) => Attempt::Executed(outcome),
            Err(suspend) => Attempt::Suspended(suspend),
        }
    }

    fn execute(
        &self,
        state: &PgState,
        cx: &mut Cx<'_>,
        op_ctx: &mut OpContext,
        recall: impl FnOnce(&PgState, Stamp, &HObject, &ObjectInfo),
    ) -> Result<Outcome, Suspend> {
        if op_ctx.intent.on_pg {
            return Ok(state.list_objects(cx, op_ctx));
        }
        let Ok(context) = ObjectContext::load(cx.view, &state.spg, &op_ctx.head) else {
            let (object, reason) = (op_ctx.head.clone(), "the object's record is damaged".to_owned());
            return Err(ReadError::Damaged { object, offset: 0, reason }.into());
        };
        recall(state, cx.now, &op_ctx.head, &context.info);
        expect_by_record(op_ctx, &context, state.message_limits);
        let coded = EcView { inner: cx.view, pieces: &op_ctx.gathered };
        let mut env = Env {
            view: if state.ec.is_some() { &coded } else { cx.view },
            collection: state.spg,
            pool: &state.pool,
            epoch: state.map.epoch,
            now: cx.wall,
            at_version: state.next_version(),
            last_user_version: state.info.last_user_version,
            notify_id: u64::from(state.map.epoch) << 32 | u64::from(self.notifies),
            entropy: &mut *cx.entropy,
            limits: state.message_limits,
            work: 0,
        };
        let request = Request {
            op: &op_ctx.op.op,
            intent: &op_ctx.intent,
            head: &op_ctx.head,
            reqid: op_ctx.reqid,
            caller: &op_ctx.caller,
            copied: &op_ctx.copied,
            progress: &op_ctx.progress,
        };
        let result = ops::execute(&mut env, &request, &context);
        cx.throttle.turn.spend(env.work);
        let is_pending = matches!(&result, Err(Suspend::Read(ReadError::Pending { .. })));
        // What a coded object's data is put together from comes with it, and is looked at once.
        op_ctx.plain =
            if is_pending && state.ec.is_none() { PlainRead::of(&request, &context) } else { None };
        result
    }

    /// Takes the outcome of a message, or the `refusal` of one that went well otherwise, for its answer.
    pub(crate) fn finish(
        &mut self,
        state: &mut PgState,
        cx: &Cx<'_>,
        mut op_ctx: OpContext,
        outcome: Outcome,
        refusal: Option<Errno>,
    ) -> Executed {
        op_ctx.op.trace.executed = cx.now;
        self.next_notify(outcome.notifies.len());
        let Outcome { mut result, ops, user_version, change, watches, notifies, acks, counters } = outcome;
        result = refusal.map_or(result, Errno::negated);
        let version = match &change {
            Change::None | Change::Dropped => Eversion::ZERO,
            Change::Log(entry) => entry.version,
            Change::Write(write) => write.entries.last().map_or(Eversion::ZERO, |entry| entry.version),
        };
        if matches!(change, Change::None) {
            state.info.counters.add(&counters);
        }
        let reply = state.reply_to(&op_ctx.op, Answer { result, version, user_version, ops });
        let mut after = AfterCommit::of_reply(op_ctx.op, reply);
        if result >= 0 {
            (after.watches, after.notifies, after.acks) = (watches, notifies, acks);
        }
        Executed { head: op_ctx.head, change, after }
    }
}
