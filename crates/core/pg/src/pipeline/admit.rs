//! Admission of a client's message, before it touches an object: map, interval, blocklist, caps, sizes. Ceph `PrimaryLogPG::do_op`.

use super::{OpContext, Pipeline};
use crate::ops::{Intent, check_limits, classify, head_of};
use crate::state::PgState;
use crate::{ClientOp, Cx, Effect, Planted};
use nacre_auth::{ClassCall, OsdRequest};
use nacre_cls::Caller;
use nacre_msg::osd_op::flag;
use nacre_types::{EntityKind, EntityName, Errno, HObject, ReqId, Stamp};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// What the checks say of a message.
#[allow(clippy::large_enum_variant, reason = "moved once; a box would be an allocation per message")]
enum Admission {
    /// It may be executed once its object is free.
    Pass(Intent, HObject),
    /// Its client has seen a newer map.
    Future,
    /// The PG does not serve yet.
    Inactive,
    /// Say nothing: the client sends it again, to the OSD that it belongs to.
    Drop,
    /// It is answered with this errno.
    Refuse(Errno),
}

impl PgState {
    /// Sends the client the maps that it lacks.
    fn push_maps(&self, cx: &mut Cx<'_>, op: &ClientOp) {
        if op.op.epoch < self.map.epoch {
            cx.effects.push(Effect::PushMaps { session: op.session.id, since: op.op.epoch });
        }
    }

    /// Whether a message that comes now goes no further: it is refused, or its client sends it again.
    pub(crate) fn turns_away(&self, op: &ClientOp) -> bool {
        match self.check_op(op) {
            Admission::Drop | Admission::Refuse(_) => true,
            // Whoever may not ask by the newest map that is here, may not until there is another.
            Admission::Future => self.permitted(op).is_err(),
            Admission::Pass(..) | Admission::Inactive => false,
        }
    }

    /// What a message is going to do, if its client may ask for that; else what it is answered.
    fn permitted(&self, op: &ClientOp) -> Result<Intent, Errno> {
        if op.session.is_blocklisted(&self.map) && self.planted != Planted::FencingIgnored {
            return Err(Errno::ESHUTDOWN);
        }
        let intent = classify(&op.op)?;
        if self.is_allowed(op, &intent) { Ok(intent) } else { Err(Errno::EPERM) }
    }

    fn check_op(&self, op: &ClientOp) -> Admission {
        if op.op.epoch > self.map.epoch {
            return Admission::Future;
        }
        if !self.is_primary() {
            let asked_replica = op.op.flags & (flag::BALANCE_READS | flag::LOCALIZE_READS) != 0;
            let member = self.interval.acting.contains(&self.whoami);
            return if asked_replica && member { Admission::Refuse(Errno::EAGAIN) } else { Admission::Drop };
        }
        let head = head_of(&op.op);
        if self.is_resent_elsewhere(op, &head) {
            return Admission::Drop;
        }
        let intent = match self.permitted(op) {
            Ok(intent) => intent,
            Err(errno) => return Admission::Refuse(errno),
        };
        if let Err(errno) = check_limits(&op.op, &intent, self.message_limits) {
            return Admission::Refuse(errno);
        }
        if !self.is_active() {
            return Admission::Inactive;
        }
        if self.is_older_than_full(op, &intent) {
            return Admission::Drop;
        }
        Admission::Pass(intent, head)
    }

    /// A write whose client did not know yet that the pool is full: it is dropped, whether or not it would need room,
    /// and its client sends it again, in order with the others, when there is room. If only those that need room were,
    /// one that does not could be acknowledged, and overtaken later by an older one. What is in the log already is
    /// answered from there. Ceph `PrimaryLogPG::do_op`, `last_epoch_marked_full`; it excepts metadata servers, too.
    fn is_older_than_full(&self, op: &ClientOp, intent: &Intent) -> bool {
        self.planted != Planted::FullTransitionIgnored
            && op.op.epoch < self.marked_full
            && intent.is_ordered_as_write()
            && op.op.flags & (flag::FULL_TRY | flag::FULL_FORCE) == 0
            && op.session.name.kind != EntityKind::MDS
            && self.log.by_reqid(&reqid_of(op)).is_none()
    }

    /// The client computed with a map in which something else served the object; it sends the message
    /// again, or has done so.
    fn is_resent_elsewhere(&self, op: &ClientOp, head: &HObject) -> bool {
        let epoch = op.op.epoch;
        let forced = self.map.pools.get(&self.spg.pg.pool).map_or(0, |pool| pool.last_force_op_resend);
        let placed = op.op.name.is_empty() || head.pg(self.interval.pg_num) == self.spg.pg;
        epoch < self.interval.primary_since || epoch < forced || epoch <= self.resent_through || !placed
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
        let allowed = op.session.caps.allows(&OsdRequest {
            pool: self.map.pool_name(id).unwrap_or_default(),
            namespace: &locator.namespace,
            applications: &pool.application_metadata,
            object: if locator.key.is_empty() { &op.op.name } else { &locator.key },
            read: intent.read,
            write: intent.write,
            classes: &calls,
        });
        allowed && intent.sources.iter().all(|source| self.may_read(op, source))
    }

    /// Whether the client may read what it wants copied. Ceph's OSDs do not ask: they read any pool for it.
    fn may_read(&self, op: &ClientOp, source: &HObject) -> bool {
        let Some(pool) = self.map.pools.get(&source.pool) else { return false };
        op.session.caps.allows(&OsdRequest {
            pool: self.map.pool_name(source.pool).unwrap_or_default(),
            namespace: &source.namespace,
            applications: &pool.application_metadata,
            object: if source.key.is_empty() { &source.name } else { &source.key },
            read: true,
            write: false,
            classes: &[],
        })
    }
}

impl Pipeline {
    /// A message arrived.
    pub(crate) fn client_op(&mut self, now: Stamp, mut op: ClientOp) {
        op.trace.dispatched = now;
        if !self.backoffs.hold(&op) {
            self.ready.push_back(op);
        }
    }

    /// The next message that may go on: one whose turn has come, or else the first of those that are ready which passes the checks and
    /// has its turn at once.
    pub(crate) fn next(&mut self, state: &PgState, cx: &mut Cx<'_>) -> Option<OpContext> {
        if let Some(op_ctx) = self.started.pop_front() {
            return Some(op_ctx);
        }
        while let Some(op) = self.ready.pop_front() {
            if let Some(op_ctx) = self.admit(state, cx, op) {
                return Some(op_ctx);
            }
        }
        None
    }

    fn admit(&mut self, state: &PgState, cx: &mut Cx<'_>, op: ClientOp) -> Option<OpContext> {
        match state.check_op(&op) {
            Admission::Pass(intent, head) => {
                state.push_maps(cx, &op);
                self.enter(state, op, intent, head)
            }
            admission => {
                self.turn_away(state, cx, op, &admission);
                None
            }
        }
    }

    /// Does what is to be done with a message that did not pass.
    fn turn_away(&mut self, state: &PgState, cx: &mut Cx<'_>, op: ClientOp, admission: &Admission) {
        match admission {
            Admission::Drop => state.push_maps(cx, &op), // it may not know yet which OSD it belongs to
            Admission::Refuse(errno) => state.refuse(cx, &op, *errno),
            Admission::Future => self.future.entry(op.op.epoch).or_default().push(op),
            Admission::Inactive if op.session.backs_off && state.is_stuck() => {
                self.backoffs.back_off_pg(state, cx, &op);
            }
            Admission::Inactive | Admission::Pass(..) => self.inactive.push_back(op),
        }
    }

    /// A message has waited for its turn, or for data, and a map has come: what it passed when it came may not hold any more. The map may
    /// have blocklisted its client or marked the pool full. Gives it back if it passes again.
    pub(crate) fn readmit(
        &mut self,
        state: &PgState,
        cx: &mut Cx<'_>,
        mut op_ctx: OpContext,
    ) -> Option<OpContext> {
        match state.check_op(&op_ctx.op) {
            Admission::Pass(..) => op_ctx.admitted = state.map.epoch,
            admission => {
                self.turn_away(state, cx, op_ctx.op, &admission);
                self.start_next(&op_ctx.head);
                return None;
            }
        }
        Some(op_ctx)
    }

    /// A write whose turn has come is behind others that wait for the object to be recovered: it is overtaken by reads then, never by
    /// another write.
    pub(crate) fn is_behind_missing(&self, op_ctx: &OpContext) -> bool {
        op_ctx.is_write() && self.missing.contains_key(&op_ctx.head)
    }

    /// A write of an object that a scrub compares waits until it has done so; gives back what need not.
    pub(crate) fn unless_held(&mut self, op_ctx: OpContext) -> Option<OpContext> {
        if !op_ctx.is_write() || self.held.as_ref() != Some(&op_ctx.head) {
            return Some(op_ctx);
        }
        self.set_aside(op_ctx);
        None
    }

    /// A message whose turn has come waits among those of its object in `missing`; the next of the object has its turn meanwhile.
    fn set_aside(&mut self, op_ctx: OpContext) {
        let head = op_ctx.head.clone();
        self.missing.entry(head.clone()).or_default().push_back(op_ctx.anew());
        self.start_next(&head);
    }

    /// A message whose turn has come waits until its object is recovered, and then has its turn again; the next of its object has
    /// it meanwhile. Of an object that nobody has (`is_unfound`), its client is to hold the message if it can.
    pub(crate) fn wait_for_recovery(
        &mut self,
        state: &PgState,
        cx: &mut Cx<'_>,
        op_ctx: OpContext,
        is_unfound: bool,
    ) {
        if op_ctx.op.session.backs_off && is_unfound {
            self.backoffs.back_off_object(state, cx, &op_ctx.op, op_ctx.head.clone());
            self.start_next(&op_ctx.head);
        } else {
            self.set_aside(op_ctx);
        }
    }

    /// The message takes its place among those on its object; gives it back when its turn has come already.
    fn enter(&mut self, state: &PgState, op: ClientOp, intent: Intent, head: HObject) -> Option<OpContext> {
        let caller = Caller { name: op.session.name, addr: op.session.addr };
        let op_ctx = OpContext {
            reqid: reqid_of(&op),
            op,
            intent,
            head,
            caller,
            admitted: state.map.epoch,
            copied: Vec::new(),
            copied_bytes: 0,
            copying: None,
            gathered: Vec::new(),
            plain: None,
            progress: BTreeMap::new(),
        };
        if op_ctx.intent.on_pg {
            return Some(op_ctx);
        }
        // First the order, then the object: while it is missing, messages that came before may still wait for their turn.
        self.order.enter(op_ctx)
    }
}

/// Which request a message is: its session and number, which nobody else can name. Ceph takes what stands in the message
/// (`MOSDOp::get_reqid`), where an OSD names the client that it acts for. From anybody else it is not believed: who could
/// name another's next request would have that one's write acknowledged from the log, and never made. Metadata servers
/// fill in their incarnation alone: without name and number nothing is named.
fn reqid_of(op: &ClientOp) -> ReqId {
    let claimed = op.op.reqid;
    let acts_for_another = claimed.name != EntityName::default() || claimed.tid != 0;
    if acts_for_another && op.session.name.kind == EntityKind::OSD {
        return claimed;
    }
    ReqId { name: op.session.name, tid: op.tid, incarnation: op.op.client_inc.cast_signed() }
}
