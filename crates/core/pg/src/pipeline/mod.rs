//! A client's message from arrival to reply. A message that waits sits in exactly one of these places:
//!
//! | place | waits for |
//! |---|---|
//! | [`OpStage::Future`] | a map that its client has already seen |
//! | [`OpStage::Inactive`] | peering |
//! | [`OpStage::Missing`] | recovery of its object |
//! | [`OpStage::Scrub`] | a scrub that compares its object |
//! | [`OpStage::Queued`] | earlier messages on its object |
//! | [`OpStage::Data`] | data from the device, or an object that it copies |
//! | in flight ([`crate::backend`]) | the members' disks |
//!
//! Where waiting may take long, clients that can are told to hold the message themselves (`backoff`).
//!
//! A change of interval takes everything out of the last five and admits it anew: what the new interval's
//! primary is not responsible for is dropped there (its client resends), what was executed is found in the
//! log.

mod admit;
mod backoff;
mod copy;
mod execute;
mod object_order;
mod staged_copy;

pub(crate) use execute::{Attempt, Executed};
pub(crate) use staged_copy::staged_token;

use crate::backend::ec::GatherRequest;
use crate::coding::Piece;
use crate::ops::{Copied, Intent, PlainRead};
use crate::state::PgState;
use crate::{ClientOp, Cx, Effect, OpInFlight, OpStage, SessionId};
use backoff::Backoffs;
use nacre_buf::Bytes;
use nacre_cls::Caller;
use nacre_txn::{FetchFrom, Token};
use nacre_types::{Epoch, Errno, HObject, ReqId};
use object_order::ObjectOrder;
use std::collections::{BTreeMap, VecDeque};

/// A message that passed the checks.
#[derive(Debug)]
pub(crate) struct OpContext {
    pub(crate) op: ClientOp,
    pub(crate) intent: Intent,
    /// Its object's head.
    pub(crate) head: HObject,
    pub(crate) reqid: ReqId,
    pub(crate) caller: Caller,
    /// The map under which it passed them.
    pub(crate) admitted: Epoch,
    /// Sources of its copies, as far as they are fetched.
    pub(crate) copied: Vec<Copied>,
    /// Bytes of those, as far as they are in memory.
    pub(crate) copied_bytes: usize,
    /// The copy whose source is being fetched.
    pub(crate) copying: Option<copy::Copying>,
    /// Data that it reads, as far as it is collected: of an erasure-coded pool.
    pub(crate) gathered: Vec<Piece>,
    /// All that is left of it when the data comes that it waits for.
    pub(crate) plain: Option<PlainRead>,
    /// How far its class calls came that have paused, by the operation's index.
    pub(crate) progress: BTreeMap<usize, Bytes>,
}

impl OpContext {
    /// Ordered like a write: nothing of the object runs beside it until its place in the log is taken.
    pub(crate) fn is_write(&self) -> bool {
        self.intent.is_ordered_as_write()
    }

    /// With nothing of what it has read so far.
    fn anew(self) -> Self {
        let (copied, gathered, progress) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { copied, copied_bytes: 0, copying: None, gathered, plain: None, progress, ..self }
    }
}

/// Messages that are not in flight.
///
/// [`Pipeline::next`] admits what came and yields a message whose turn it is; `Pg` asks recovery whether its object is there, and has it
/// run ([`Pipeline::run`]). A message that waits comes back from what ends the waiting, as an [`OpContext`] to go on with.
#[derive(Debug, Default)]
pub(crate) struct Pipeline {
    /// To be admitted (again) before the event ends.
    ready: VecDeque<ClientOp>,
    /// Whose turn in their object's queue has come.
    started: VecDeque<OpContext>,
    future: BTreeMap<Epoch, Vec<ClientOp>>,
    inactive: VecDeque<ClientOp>,
    /// By head, in the order in which they came, which is before all of their object that have not started: writes wait here
    /// behind each other, while reads of an object that is here go on.
    missing: BTreeMap<HObject, VecDeque<OpContext>>,
    /// The head whose writes wait while a scrub compares copies: here, too, behind those that wait for recovery.
    held: Option<HObject>,
    order: ObjectOrder,
    /// Wait for data, for what they copy, or for a later turn.
    parked: BTreeMap<Token, Box<OpContext>>,
    /// Those of them that wait for a later turn, in the order in which they paused.
    paused: VecDeque<Token>,
    /// The last turn was theirs: the next one begins with others.
    paused_had_turn: bool,
    /// Clients that hold their messages until they are told to go on.
    pub(crate) backoffs: Backoffs,
    /// Counts notifies of this copy: their ids must not repeat within an epoch.
    notifies: u32,
}

/// What clients' messages do with objects, as far as other parts of the PG have to know.
#[derive(Clone, Copy)]
pub(crate) struct ObjectUse<'a>(&'a Pipeline);

impl ObjectUse<'_> {
    /// A client waits for the object, or its head, to be recovered.
    pub(crate) fn is_waited_for(self, object: &HObject) -> bool {
        self.0.missing.contains_key(&object.to_head())
    }

    /// A write of the object, or its head, passed the checks and is not durable everywhere yet.
    pub(crate) fn has_writes(self, object: &HObject) -> bool {
        let head = object.to_head();
        self.0.order.has_writes(&head)
            || self.0.started.iter().any(|op_ctx| op_ctx.is_write() && op_ctx.head == head)
    }

    /// True when changes of the object with this head are under way.
    pub(crate) fn is_changing(self, head: &HObject) -> bool {
        self.0.order.has_in_flight(head) || !self.0.order.is_quiet(head)
    }

    /// True when a change of our own may be made: no message waits for data to look at the object as it is.
    pub(crate) fn is_undisturbed(self, head: &HObject) -> bool {
        self.0.order.is_quiet(head) && self.0.held.as_ref() != Some(head)
    }
}

impl Pipeline {
    /// What other parts of the PG may ask.
    pub(crate) fn object_use(&self) -> ObjectUse<'_> {
        ObjectUse(self)
    }

    /// True when a message may go on at once.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.started.is_empty()
    }

    /// True when a client has seen a newer map than we have.
    pub(crate) fn has_future(&self) -> bool {
        !self.future.is_empty()
    }

    /// Those that wait for a newer map, in the order of these, and in which they came.
    pub(crate) fn take_future(&mut self) -> Vec<ClientOp> {
        std::mem::take(&mut self.future).into_values().flatten().collect()
    }

    /// Messages that computed with `epoch` or older go on.
    pub(crate) fn wake_for_epoch(&mut self, epoch: Epoch) {
        let later = self.future.split_off(&(epoch.saturating_add(1)));
        let now = std::mem::replace(&mut self.future, later);
        self.ready.extend(now.into_values().flatten());
    }

    /// The PG serves: messages that came before go on.
    pub(crate) fn wake_inactive(&mut self) {
        self.ready.extend(self.inactive.drain(..));
    }

    /// The object is recovered: messages that waited for it have their turn again, before those that came later.
    pub(crate) fn wake_recovered(&mut self, head: &HObject) {
        if let Some(mut woken) = self.missing.remove(head) {
            // Those whose turn has come came behind them, and before those that wait for theirs.
            let is_of = |op_ctx: &OpContext| !op_ctx.intent.on_pg && op_ctx.head == *head;
            let (behind, others): (VecDeque<_>, _) = self.started.drain(..).partition(is_of);
            self.started = others;
            woken.extend(behind.into_iter().map(OpContext::anew));
            self.order.put_back(head, woken);
            self.start_next(head);
        }
    }

    /// From now on writes of this object wait, and of no other: those of the one before have their turn again.
    pub(crate) fn hold(&mut self, head: Option<HObject>) {
        if self.held == head {
            return;
        }
        if let Some(released) = std::mem::replace(&mut self.held, head) {
            self.wake_recovered(&released);
        }
    }

    /// The message waits under a new token.
    fn park(&mut self, state: &mut PgState, op_ctx: OpContext) -> Token {
        if !op_ctx.intent.on_pg {
            self.order.park(&op_ctx.head, op_ctx.is_write());
        }
        let token = state.tokens.issue();
        self.parked.insert(token, Box::new(op_ctx));
        token
    }

    /// The message waits for data from the device; in an erasure-coded pool for chunks of it, which the caller is to have gathered.
    pub(crate) fn wait_for_data(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        op_ctx: OpContext,
        (object, offset, length): (HObject, u64, u64),
    ) -> Option<GatherRequest> {
        let writes = op_ctx.is_write();
        let from = if op_ctx.plain.is_some() { FetchFrom::AnywhereOnce } else { FetchFrom::Anywhere };
        let token = self.park(state, op_ctx);
        if state.ec.is_some() {
            return Some(GatherRequest { token, writes, object, offset, length });
        }
        cx.effects.push(Effect::Fetch { object, offset, length, from, token });
        None
    }

    /// The message goes on in a later turn, one of its calls from where it is.
    pub(crate) fn pause(
        &mut self,
        state: &mut PgState,
        mut op_ctx: OpContext,
        (op_index, progress): (usize, Bytes),
    ) {
        op_ctx.progress.insert(op_index, progress);
        let token = self.park(state, op_ctx);
        self.paused.push_back(token);
        self.paused_had_turn = true;
    }

    /// True when a message waits for a later turn.
    pub(crate) fn has_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    /// The message that has waited longest for a later turn, in every other one: it takes all that a turn has, and others must get on
    /// beside it.
    pub(crate) fn take_paused(&mut self) -> Option<Box<OpContext>> {
        if std::mem::take(&mut self.paused_had_turn) {
            return None;
        }
        let token = self.paused.pop_front()?;
        self.take_parked(token)
    }

    /// The message that waits under the token; `None` when its interval is over, or something else waits there.
    pub(crate) fn take_parked(&mut self, token: Token) -> Option<Box<OpContext>> {
        self.parked.remove(&token)
    }

    /// True when messages wait for data.
    pub(crate) fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// What a parked message waited for is there: it goes on, at once if the turn has anything left for it.
    pub(crate) fn unpark(&mut self, cx: &Cx<'_>, op_ctx: Box<OpContext>) -> Option<OpContext> {
        if !op_ctx.intent.on_pg {
            self.order.unpark(&op_ctx.head, op_ctx.is_write());
        }
        if cx.throttle.turn.is_spent() {
            self.started.push_back(*op_ctx);
            return None;
        }
        Some(*op_ctx)
    }

    /// What a parked message waited for cannot be had: it has its turn still, and does not wait any more.
    pub(crate) fn give_up_waiting(&mut self, op_ctx: &OpContext) {
        self.order.unpark(&op_ctx.head, op_ctx.is_write());
    }

    /// Answers a message with an errno; the next one on its object has its turn.
    pub(crate) fn refuse(&mut self, state: &PgState, cx: &mut Cx<'_>, op_ctx: &OpContext, errno: Errno) {
        state.refuse(cx, &op_ctx.op, errno);
        self.start_next(&op_ctx.head);
    }

    /// A change of the object is in flight, and not durable everywhere yet.
    pub(crate) fn has_in_flight(&self, head: &HObject) -> bool {
        self.order.has_in_flight(head)
    }

    /// A change of the object is durable everywhere.
    pub(crate) fn write_completed(&mut self, head: &HObject) {
        if self.order.write_completed(head) {
            self.start_next(head);
        }
    }

    /// A message ended: the next one on its object has its turn. One at a time: what starts now decides whether the one behind it
    /// may start as well.
    pub(crate) fn start_next(&mut self, head: &HObject) {
        self.started.extend(self.order.next(head));
    }

    /// Nothing executes, and no message waits behind one that does.
    pub(crate) fn is_idle(&self) -> bool {
        self.order.is_empty() && self.missing.is_empty() && self.started.is_empty()
    }

    /// A change of the object is in flight from now on.
    pub(crate) fn write_started(&mut self, head: &HObject) {
        self.order.write_started(head);
    }

    /// The interval is over: everything is to be admitted again, `first` before all, in the order in which
    /// it came.
    pub(crate) fn requeue(&mut self, first: Vec<ClientOp>) {
        self.paused.clear();
        let mut all: Vec<ClientOp> = first;
        all.extend(std::mem::take(&mut self.parked).into_values().map(|op_ctx| op_ctx.op));
        self.held = None;
        let missing = std::mem::take(&mut self.missing).into_values().flatten();
        let waiting =
            missing.chain(self.started.drain(..)).chain(std::mem::take(&mut self.order).into_waiting());
        all.extend(waiting.map(|op_ctx| op_ctx.op));
        all.extend(self.inactive.drain(..));
        all.extend(self.ready.drain(..));
        self.ready = all.into();
    }

    /// Drops what a closed session waits for, and forgets what its client holds. What runs already stays: its reply goes nowhere.
    pub(crate) fn drop_session(&mut self, session: SessionId) {
        let keep = |op: &ClientOp| op.session.id != session;
        self.ready.retain(keep);
        self.inactive.retain(keep);
        self.future.values_mut().for_each(|ops| ops.retain(keep));
        self.future.retain(|_, ops| !ops.is_empty());
        self.missing.values_mut().for_each(|waiting| waiting.retain(|op_ctx| keep(&op_ctx.op)));
        self.missing.retain(|_, waiting| !waiting.is_empty());
        self.order.drop_waiting(session);
        self.drop_long(session);
        self.backoffs.drop_session(session);
    }

    /// Whose messages wait for the PG to serve, or for a newer map.
    pub(crate) fn sessions(&self) -> std::collections::BTreeSet<SessionId> {
        let all = self.ready.iter().chain(&self.inactive).chain(self.future.values().flatten());
        all.map(|op| op.session.id).collect()
    }

    /// How many messages wait where, for status.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (OpStage, usize)> + '_ {
        let future = self.future.values().map(Vec::len).sum();
        let held = self.held.as_ref().and_then(|held| self.missing.get(held)).map_or(0, VecDeque::len);
        let missing = self.missing.values().map(VecDeque::len).sum::<usize>() - held;
        [
            (OpStage::Future, future),
            (OpStage::Inactive, self.inactive.len()),
            (OpStage::Missing, missing),
            (OpStage::Scrub, held),
            (OpStage::Queued, self.order.waiting_count()),
            (OpStage::Data, self.order.parked_count()),
        ]
        .into_iter()
    }

    /// Messages that are not in flight, and what each waits for.
    pub(crate) fn ops_in_flight(&self) -> impl Iterator<Item = OpInFlight<'_>> + '_ {
        let future = self.future.values().flatten().map(|op| (OpStage::Future, op));
        let inactive = self.inactive.iter().map(|op| (OpStage::Inactive, op));
        let stage = |head| if self.held.as_ref() == Some(head) { OpStage::Scrub } else { OpStage::Missing };
        let missing = self.missing.iter();
        let missing =
            missing.flat_map(move |(head, all)| all.iter().map(move |op_ctx| (stage(head), &op_ctx.op)));
        let in_order = self.started.iter().chain(self.order.waiting()).map(|op_ctx| &op_ctx.op);
        let in_order = self.ready.iter().chain(in_order).map(|op| (OpStage::Queued, op));
        let parked = self.parked.values().map(|op_ctx| (OpStage::Data, &op_ctx.op));
        let all = future.chain(inactive).chain(missing).chain(in_order).chain(parked);
        all.map(|(stage, op)| OpInFlight::waiting(stage, op))
    }

    fn next_notify(&mut self, count: usize) {
        self.notifies = self.notifies.wrapping_add(u32::try_from(count).unwrap_or(u32::MAX));
    }
}
