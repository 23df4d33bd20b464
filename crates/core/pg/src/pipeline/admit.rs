//! What is checked before a message touches anything.

use super::Running;
use crate::ops::{Intent, check_limits, classify};
use crate::peering::Peer;
use crate::{ClientOp, Cx, Effect, Pg, SessionId};
use nacre_auth::{ClassCall, OsdRequest};
use nacre_cls::Caller;
use nacre_msg::osd_op::flag;
use nacre_types::{Errno, HObject, ReqId};
use smallvec::SmallVec;

/// What the checks say of a message.
enum Verdict {
    /// Execute it.
    Pass(Intent, HObject),
    /// Its client has seen a newer map.
    Future,
    /// The group does not serve yet.
    Inactive,
    /// Say nothing: the client sends it again, to whom it belongs.
    Drop,
    /// Say no.
    Refuse(Errno),
}

impl Pg {
    /// A message arrived.
    pub(crate) fn client_op(&mut self, cx: &mut Cx<'_>, mut op: ClientOp) {
        op.trace.dispatched = cx.now;
        if self.is_held_by_client(&op) {
            return;
        }
        self.pipeline.ready.push_back(op);
    }

    /// Admits all that is ready, and runs what gets its turn by that; up to the first message that changes
    /// something, since the next one must see the change.
    pub(crate) fn run_ready(&mut self, cx: &mut Cx<'_>) {
        while !self.view_is_stale {
            if let Some(running) = self.pipeline.started.pop_front() {
                self.execute(cx, running);
            } else if let Some(op) = self.pipeline.ready.pop_front() {
                self.admit(cx, op);
            } else {
                return;
            }
        }
    }

    /// The session is gone.
    pub(crate) fn session_closed(&mut self, cx: &mut Cx<'_>, session: SessionId) {
        self.pipeline.drop_session(session);
        self.backoffs.drop_session(session);
        self.disconnect_session(cx, session);
    }

    fn admit(&mut self, cx: &mut Cx<'_>, op: ClientOp) {
        match self.judge(&op) {
            Verdict::Drop => self.push_maps(cx, &op), // it may not know yet to whom it belongs
            Verdict::Refuse(errno) => self.refuse(cx, &op, errno),
            Verdict::Future => self.pipeline.future.entry(op.op.epoch).or_default().push(op),
            Verdict::Inactive if op.session.backs_off && self.is_stuck() => self.back_off_group(cx, &op),
            Verdict::Inactive => self.pipeline.inactive.push_back(op),
            Verdict::Pass(intent, head) => {
                self.push_maps(cx, &op);
                self.enter(cx, op, intent, head);
            }
        }
    }

    /// Sends the client the maps that it lacks.
    fn push_maps(&self, cx: &mut Cx<'_>, op: &ClientOp) {
        if op.op.epoch < self.map.epoch {
            cx.effects.push(Effect::PushMaps { session: op.session.id, since: op.op.epoch });
        }
    }

    fn judge(&self, op: &ClientOp) -> Verdict {
        if op.op.epoch > self.map.epoch {
            return Verdict::Future;
        }
        if !self.is_primary() {
            let asked_replica = op.op.flags & (flag::BALANCE_READS | flag::LOCALIZE_READS) != 0;
            let member = self.interval.acting.contains(&self.whoami);
            return if asked_replica && member { Verdict::Refuse(Errno::EAGAIN) } else { Verdict::Drop };
        }
        let head = head_of(op);
        if self.is_resent_elsewhere(op, &head) {
            return Verdict::Drop;
        }
        if self.map.is_blocklisted(&op.session.addr) {
            return Verdict::Refuse(Errno::ESHUTDOWN);
        }
        let intent = match classify(&op.op) {
            Ok(intent) => intent,
            Err(errno) => return Verdict::Refuse(errno),
        };
        if !self.is_allowed(op, &intent) {
            return Verdict::Refuse(Errno::EPERM);
        }
        if let Err(errno) = check_limits(&op.op, &intent) {
            return Verdict::Refuse(errno);
        }
        if !self.is_active() {
            return Verdict::Inactive;
        }
        Verdict::Pass(intent, head)
    }

    /// The client computed with a map in which something else served the object; it sends the message
    /// again, or has done so.
    fn is_resent_elsewhere(&self, op: &ClientOp, head: &HObject) -> bool {
        let epoch = op.op.epoch;
        let forced = self.map.pools.get(&self.spg.pg.pool).map_or(0, |pool| pool.last_force_op_resend);
        let placed = op.op.name.is_empty() || head.pg(self.interval.pg_num) == self.spg.pg;
        epoch < self.interval.primary_since || epoch < forced || !placed
    }

    fn is_allowed(&self, op: &ClientOp, intent: &Intent) -> bool {
        if op.session.caps.allows_everything() {
            return true;
        }
        let id = self.spg.pg.pool;
        let Some(pool) = self.map.pools.get(&id) else { return false };
        let calls: SmallVec<[ClassCall<'_>; 2]> = intent
            .calls
            .iter()
            .map(|call| ClassCall {
                class: call.class,
                method: call.method.name,
                read: call.method.flags.reads(),
                write: call.method.flags.writes(),
                listed: true, // every class of our table is on Ceph's default list
            })
            .collect();
        let locator = &op.op.locator;
        op.session.caps.allows(&OsdRequest {
            pool: self.map.pool_name(id).unwrap_or_default(),
            namespace: &locator.namespace,
            applications: &pool.application_metadata,
            object: if locator.key.is_empty() { &op.op.name } else { &locator.key },
            read: intent.read,
            write: intent.write,
            classes: &calls,
        })
    }

    /// Takes its place among the messages on its object.
    fn enter(&mut self, cx: &mut Cx<'_>, op: ClientOp, intent: Intent, head: HObject) {
        if !intent.on_pg && self.must_recover(&head, intent.may_write()) {
            self.recovery.want(&head);
            if op.session.backs_off && self.recovery.is_unfound(&head) {
                return self.back_off_object(cx, &op, head);
            }
            self.pipeline.missing.entry(head).or_default().push(op);
            return;
        }
        let caller = Caller { name: op.session.name, addr: op.session.addr };
        let running = Running {
            reqid: reqid_of(&op),
            op,
            intent,
            head,
            caller,
            copied: Vec::new(),
            copying: None,
            gathered: Vec::new(),
        };
        if running.intent.on_pg {
            return self.execute(cx, running);
        }
        if let Some(running) = self.pipeline.lanes.enter(running) {
            self.execute(cx, running);
        }
    }

    /// A read needs the object here. A write needs it also at everybody who knows what it misses: such a copy could not
    /// apply the write otherwise. A copy that is rebuilt gets the object later, and until then of its writes the log
    /// entries only (`submit_write`); but a write would spoil what is on its way there just now.
    pub(crate) fn must_recover(&self, head: &HObject, write: bool) -> bool {
        let applies = |peer: &Peer| peer.activated && !peer.rebuilding;
        self.missing.has_family(head)
            || self.has_too_few_chunks(head)
            || write
                && (self.recovery.holds(head)
                    || self.peers.values().any(|peer| applies(peer) && peer.missing.has_family(head)))
    }
}

/// The head of the object that a message is about. Owns its name: the log keeps it longer than the message.
pub(super) fn head_of(op: &ClientOp) -> HObject {
    let locator = &op.op.locator;
    let (namespace, key, name) =
        (locator.namespace.detached(), locator.key.detached(), op.op.name.detached());
    HObject::head(locator.pool, namespace, key, name)
}

/// Which request a message is: clients leave the field empty and mean their session and number.
fn reqid_of(op: &ClientOp) -> ReqId {
    if op.op.reqid != ReqId::default() {
        return op.op.reqid;
    }
    ReqId { name: op.session.name, tid: op.tid, incarnation: op.op.client_inc.cast_signed() }
}
