//! Running a message, and carrying out what comes of it.

use super::reply::Answer;
use super::{PendingReply, Running};
use crate::backend::ec::EcView;
use crate::backend::{AfterCommit, Ends, Flight};
use crate::list::{self, Listing};
use crate::object::ObjectContext;
use crate::ops::{self, Change, Env, Outcome, PlainRead, Request, Suspend};
use crate::tokens::OnFetched;
use crate::{Cx, Effect, Pg, Planted};
use nacre_msg::peer::LogEntry;
use nacre_txn::{FetchFrom, Op, ReadError, Transaction};
use nacre_types::{Errno, Eversion, HObject};
use smallvec::smallvec;

impl Pg {
    /// Runs a message whose turn has come.
    pub(super) fn execute(&mut self, cx: &mut Cx<'_>, mut running: Running) {
        if let Some(plain) = running.plain.take()
            && let Ok(outcome) = plain.finish(cx.view, &self.spg, &running.head)
        {
            // Changes of the object wait while it is parked: it is what the message saw.
            return self.carry_out(cx, running, outcome);
        }
        if running.intent.may_write()
            && let Some((version, reply)) = self.answer_again(cx, &running)
        {
            return self.finish_dup(cx, running, version, reply);
        }
        if running.op.is_beyond_room {
            self.refuse(cx, &running.op, Errno::ENOSPC);
            return self.left(&running.head);
        }
        self.drop_outdated_copies(&mut running);
        match self.run(cx, &mut running) {
            Ok(outcome) => self.carry_out(cx, running, outcome),
            Err(Suspend::Read(ReadError::Pending { object, offset, length })) => {
                self.park(&running);
                let from = match running.plain {
                    Some(_) => FetchFrom::AnywhereOnce,
                    None => FetchFrom::Anywhere,
                };
                let then = OnFetched::Operation(Box::new(running));
                if self.ec.is_some() {
                    return self.gather(cx, object, offset, length, then);
                }
                let token = self.tokens.issue_fetch(then);
                cx.effects.push(Effect::Fetch { object, offset, length, from, token });
            }
            Err(Suspend::Read(ReadError::Damaged { object, .. })) => {
                if !running.intent.on_pg && self.mend_here(cx, &object) {
                    return self.wait_for_recovery(cx, running);
                }
                self.refuse(cx, &running.op, Errno::EIO);
                self.left(&running.head);
            }
            Err(Suspend::Copy { op_index, source }) => {
                self.park(&running);
                self.begin_copy(cx, running, op_index, *source);
            }
        }
    }

    fn run(&mut self, cx: &mut Cx<'_>, running: &mut Running) -> Result<Outcome, Suspend> {
        if running.intent.on_pg {
            return Ok(self.list_objects(cx, running));
        }
        let Ok(context) = ObjectContext::load(cx.view, &self.spg, &running.head) else {
            let (object, reason) = (running.head.clone(), "the object's record is damaged".to_owned());
            return Err(ReadError::Damaged { object, offset: 0, reason }.into());
        };
        self.recall_watchers(cx.now, &running.head, &context.info);
        let coded = EcView { inner: cx.view, pieces: &running.gathered };
        let mut env = Env {
            view: if self.ec.is_some() { &coded } else { cx.view },
            collection: self.spg,
            pool: &self.pool,
            epoch: self.map.epoch,
            now: cx.wall,
            at_version: self.next_version(),
            last_user_version: self.info.last_user_version,
            notify_id: u64::from(self.map.epoch) << 32 | u64::from(self.pipeline.notifies),
            entropy: &mut *cx.entropy,
            work: 0,
        };
        let request = Request {
            op: &running.op.op,
            intent: &running.intent,
            head: &running.head,
            reqid: running.reqid,
            caller: &running.caller,
            copied: &running.copied,
        };
        let result = ops::execute(&mut env, &request, &context);
        cx.pace.turn.spend(env.work);
        let is_pending = matches!(&result, Err(Suspend::Read(ReadError::Pending { .. })));
        // What a coded object's data is put together from comes with it, and is looked at once.
        running.plain =
            if is_pending && self.ec.is_none() { PlainRead::of(&request, &context) } else { None };
        result
    }

    fn list_objects(&self, cx: &Cx<'_>, running: &Running) -> Outcome {
        let there = |(object, need): &(&HObject, Eversion)| object.snap.is_head() && *need != Eversion::ZERO;
        let missing: Vec<HObject> =
            self.missing.iter().filter(there).map(|(object, _)| object.clone()).collect();
        let (collection, pg_num) = (self.spg, self.interval.pg_num);
        list::execute(&Listing { view: cx.view, collection, pg_num, missing: &missing }, &running.op.op)
    }

    /// The version of the next log entry.
    pub(crate) fn next_version(&self) -> Eversion {
        Eversion::new(self.map.epoch, self.log.head().version + 1)
    }

    /// The answer to a request that the log already knows.
    fn answer_again(&self, cx: &Cx<'_>, running: &Running) -> Option<(Eversion, PendingReply)> {
        if self.planted == Planted::NoDuplicateCheck {
            return None;
        }
        let entry = self.log.by_reqid(&running.reqid)?;
        let is_old = entry.version.version + 4 < self.log.head().version;
        if self.planted == Planted::DuplicatesTrimmed && is_old {
            return None;
        }
        let mut reply = self.reply_to(&running.op, Answer::of_entry(&entry));
        reply.trace.executed = cx.now;
        Some((entry.version, reply))
    }

    /// Answers it: at once, or together with the write that is still in flight.
    fn finish_dup(&mut self, cx: &mut Cx<'_>, running: Running, version: Eversion, reply: PendingReply) {
        let after = AfterCommit::of_reply(running.op, reply);
        match self.replication.flight_of(version) {
            Some(flight) => flight.after.push(after),
            None => self.after_commit(cx, &running.head, after),
        }
        self.left(&running.head);
    }

    /// Too few chunks of what a message reads can be had: it is admitted anew if that is being mended.
    pub(crate) fn unreadable(&mut self, cx: &mut Cx<'_>, running: Running) {
        self.pipeline.lanes.unpark(&running.head, running.is_write());
        if self.must_recover(&running.head, running.is_write()) && !self.recovery.is_unfound(&running.head) {
            return self.wait_for_recovery(cx, running);
        }
        self.refuse(cx, &running.op, Errno::EIO);
        self.left(&running.head);
    }

    /// True when changes of the object are under way.
    pub(crate) fn is_changing(&self, head: &HObject) -> bool {
        self.pipeline.lanes.has_flights(head) || !self.pipeline.lanes.is_quiet(head)
    }

    fn park(&mut self, running: &Running) {
        if !running.intent.on_pg {
            self.pipeline.lanes.park(&running.head, running.is_write());
        }
    }

    /// What a parked message waited for is there.
    pub(crate) fn unpark(&mut self, cx: &mut Cx<'_>, running: Running) {
        if !running.intent.on_pg {
            self.pipeline.lanes.unpark(&running.head, running.is_write());
        }
        match cx.pace.turn.is_spent() {
            true => self.pipeline.started.push_back(running),
            false => self.go_on(cx, running),
        }
    }

    /// See [`super::Pipeline::start_next`].
    pub(super) fn left(&mut self, head: &HObject) {
        self.pipeline.start_next(head);
    }

    fn carry_out(&mut self, cx: &mut Cx<'_>, mut running: Running, outcome: Outcome) {
        running.op.trace.executed = cx.now;
        self.pipeline.next_notify(outcome.notifies.len());
        let Outcome { mut result, ops, user_version, change, watches, notifies, acks, counters } = outcome;
        let head = running.head;
        if result >= 0 && !self.has_pinged(cx.now, &running.op.session, &head, &watches) {
            result = Errno::ETIMEDOUT.negated();
        }
        if result >= 0 && !self.takes_notifies(&running.op.session, &notifies) {
            result = Errno::EBUSY.negated();
        }
        let version = match &change {
            Change::None | Change::Dropped => Eversion::ZERO,
            Change::Log(entry) => entry.version,
            Change::Write(write) => write.entries.last().map_or(Eversion::ZERO, |entry| entry.version),
        };
        let reply = self.reply_to(&running.op, Answer { result, version, user_version, ops });
        let mut after = AfterCommit::of_reply(running.op, reply);
        if result >= 0 {
            (after.watches, after.notifies, after.acks) = (watches, notifies, acks);
        }
        match change {
            Change::Dropped => {}
            Change::None => {
                self.info.counters.add(&counters);
                self.finish_read(cx, &head, after);
            }
            Change::Log(entry) => self.replicate(cx, head.clone(), Vec::new(), vec![*entry], after),
            Change::Write(write) => self.replicate(cx, head.clone(), write.ops, write.entries, after),
        }
        self.left(&head);
    }

    /// A message that changed nothing is answered at once, unless it saw what is not durable yet.
    fn finish_read(&mut self, cx: &mut Cx<'_>, head: &HObject, after: AfterCommit) {
        let flying = self.pipeline.lanes.has_flights(head);
        match flying.then(|| self.replication.newest_of(head)).flatten() {
            Some(flight) => flight.after.push(after),
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
        self.take_off(&head);
        let txn = Transaction { collection: self.spg, ops };
        self.submit_write(cx, txn, entries, Flight { head, after: smallvec![after], ends: Ends::Nothing });
    }

    /// A change of the object is in flight from now on.
    pub(crate) fn take_off(&mut self, head: &HObject) {
        self.pipeline.lanes.fly(head);
    }

    /// True when a change of our own may be made: nobody waits for data to look at the object as it is.
    pub(crate) fn is_undisturbed(&self, head: &HObject) -> bool {
        self.pipeline.lanes.is_quiet(head)
    }

    /// The change is durable everywhere.
    pub(crate) fn landed(&mut self, head: &HObject) {
        if self.pipeline.lanes.land(head) {
            self.left(head);
        }
    }

    /// Carries out what a message promised, now that it is durable.
    pub(crate) fn after_commit(&mut self, cx: &mut Cx<'_>, head: &HObject, after: AfterCommit) {
        let AfterCommit { origin, reply, watches, notifies, acks } = after;
        let user_version = reply.message.user_version;
        Self::send_reply(cx, reply);
        self.change_watches(cx, &origin.session, head, watches);
        self.start_notifies(cx, &origin.session, head, user_version, notifies);
        self.acknowledge(cx, &origin.session, head, acks);
    }
}
