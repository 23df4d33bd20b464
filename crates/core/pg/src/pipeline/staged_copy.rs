//! Large copies, collected in a temporary object on every member until all of the source is there.
//!
//! ```text
//!   part of the source came      RepOp without log entries: changes of o:staged, `staged/` + its name    one transaction each
//!   durable on all members       the next part is asked for
//!   the last part came           log + 12: remove o, rename o:staged -> o, record of o, forget the name  one transaction
//! ```
//! So the copy is seen as a whole or not at all, whatever its length. The temporary name is that of a clone with a snapshot id
//! that no snapshot has; the object has no record, and lists for recovery and scrub leave it out. Each member removes what it
//! has of this kind when the interval ends, and at its start after a crash; the primary has all remove what no message needs
//! any more. In erasure-coded pools, whose objects have no omap, a copy is no longer than a write may be.

use super::{OpContext, Pipeline};
use crate::ops::{Copied, CopiedObject, Staged};
use crate::state::PgState;
use crate::tokens::OnDurable;
use crate::{Cx, Effect, storage};
use nacre_msg::peer::RepOp;
use nacre_txn::{Op, Token, Transaction};
use nacre_types::{Errno, Eversion, HObject, OsdId, SnapId};
use std::collections::{BTreeSet, VecDeque};

/// Set in the snapshot ids of temporary names; the rest is a number that no other copy of the PG has.
const STAGED: u64 = 1 << 62;
/// Set in the numbers of writes that are parts of a copy; the rest is the token of the message that copies.
const STAGED_TID: u64 = 1 << 63;
/// Bytes of one write of such parts, unless a single change has more.
const BATCH_BYTES_MAX: usize = 32 << 20;

/// The token that a write with this number belongs to, if it is a part of a copy.
pub(crate) fn staged_token(tid: u64) -> Option<Token> {
    (tid & STAGED_TID != 0).then_some(Token(tid & !STAGED_TID))
}

/// What a copy has in its temporary object, and on the way there.
#[derive(Debug)]
pub(super) struct Staging {
    staged: Staged,
    /// Changes that are yet to be sent, each a write.
    batches: VecDeque<Vec<Op>>,
    /// Members that have not got the last one durably.
    waiting_on: Vec<OsdId>,
}

impl Staging {
    fn new(head: &HObject, token: Token, members: Vec<OsdId>) -> Self {
        let object = head.with_snap(SnapId(STAGED | token.0 & (STAGED - 1)));
        let first =
            vec![storage::note_staged(&object), Op::Remove(object.clone()), Op::Touch(object.clone())];
        let staged = Staged { object, members, has_omap: false };
        Self { staged, batches: [first].into(), waiting_on: Vec::new() }
    }

    /// Takes what has come.
    fn add(&mut self, object: &mut CopiedObject) {
        self.staged.has_omap |= object.has_omap();
        let mut room = 0;
        for op in object.take_content(&self.staged.object) {
            let bytes = op.size_bytes();
            if room < bytes {
                self.batches.push_back(Vec::new());
                room = BATCH_BYTES_MAX;
            }
            room = room.saturating_sub(bytes);
            if let Some(batch) = self.batches.back_mut() {
                batch.push(op);
            }
        }
    }

    /// Something is on its way to members.
    pub(super) fn is_busy(&self) -> bool {
        !self.waiting_on.is_empty()
    }

    pub(super) fn into_staged(self) -> Staged {
        self.staged
    }
}

impl OpContext {
    /// Temporary objects that the message needs.
    fn staged(&self) -> impl Iterator<Item = &HObject> + '_ {
        let under_way = self.copying.iter().filter_map(|copying| copying.staging.as_ref());
        let done = self.copied.iter().filter_map(Copied::staged);
        under_way.map(|staging| &staging.staged).chain(done).map(|staged| &staged.object)
    }
}

impl PgState {
    /// Has `others` and this copy apply what no log entry tells of.
    fn replicate_aside(
        &mut self,
        cx: &mut Cx<'_>,
        others: Vec<OsdId>,
        tid: u64,
        txn: Transaction,
        then: OnDurable,
    ) {
        storage::follow_staged(&mut self.staged, &txn.ops);
        let (header, previous) = (self.header(), self.log.head());
        let (trim_to, committed_to) = (Eversion::ZERO, self.committed_to);
        let op = RepOp { header, tid, previous, entries: Vec::new(), trim_to, committed_to, txn };
        if !others.is_empty() {
            cx.effects.push(Effect::Peers { osds: others.into(), message: op.encode() });
        }
        self.submit(cx, op.txn, then);
    }

    /// Copies that some member has not got which is to apply their write are made again.
    pub(super) fn drop_outdated_copies(&self, op_ctx: &mut OpContext) {
        if op_ctx.copied.iter().all(|copied| copied.staged().is_none()) {
            return;
        }
        let members = self.appliers(&op_ctx.head);
        op_ctx.copied.retain(|copied| copied.staged().is_none_or(|staged| staged.members == members));
        op_ctx.copied_bytes = op_ctx.copied.iter().map(Copied::size_bytes).sum();
    }

    /// True for an object that is none of its own: what a write replaced, or a part of a copy.
    pub(crate) fn is_hidden(&self, object: &HObject) -> bool {
        self.is_rollback_gen(object) || self.staged.contains(object)
    }

    /// No copy goes on: what was collected here is removed.
    pub(crate) fn drop_staged(&mut self, cx: &mut Cx<'_>) {
        let staged = std::mem::take(&mut self.staged);
        if !staged.is_empty() {
            let txn = removal(self, staged);
            self.submit(cx, txn, OnDurable::Nothing);
        }
    }
}

impl Pipeline {
    /// Takes what came of a source to the temporary object; the next part is asked for when all members have it.
    pub(super) fn stage_part(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        token: Token,
    ) -> Option<OpContext> {
        if let Some(errno) = state.pool.fullness.errno() {
            return self.finish_copy(cx, token, Err(errno));
        }
        let op_ctx = self.parked.get_mut(&token)?;
        // One is enough: all copies of a message have the same target.
        if op_ctx.copied.iter().any(|copied| copied.staged().is_some()) {
            return self.finish_copy(cx, token, Err(Errno::EFBIG));
        }
        let head = &op_ctx.head;
        let copying = op_ctx.copying.as_mut()?;
        let staging =
            copying.staging.get_or_insert_with(|| Box::new(Staging::new(head, token, state.appliers(head))));
        if let Some(so_far) = &mut copying.so_far {
            cx.throttle.turn.spend(so_far.size_bytes() as u64);
            staging.add(so_far);
        }
        copying.bytes = 0;
        self.send_batch(state, cx, token)
    }

    /// Sends the next changes to all members, or asks for the next part when there are none.
    fn send_batch(&mut self, state: &mut PgState, cx: &mut Cx<'_>, token: Token) -> Option<OpContext> {
        let op_ctx = self.parked.get_mut(&token)?;
        let members = state.appliers(&op_ctx.head);
        let copying = op_ctx.copying.as_mut()?;
        let staging = copying.staging.as_mut()?;
        if staging.staged.members != members {
            copying.begin_again(); // a member has not got the first parts
            return self.ask_part(state, cx, token);
        }
        let Some(ops) = staging.batches.pop_front() else { return self.ask_part(state, cx, token) };
        staging.waiting_on.clone_from(&members);
        let others = members.into_iter().filter(|osd| *osd != state.whoami).collect();
        let txn = Transaction { collection: state.spg, ops };
        state.replicate_aside(cx, others, STAGED_TID | token.0, txn, OnDurable::Staged(token));
        None
    }

    /// A member has durably what was sent last.
    pub(crate) fn part_is_staged(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        from: OsdId,
        token: Token,
    ) -> Option<OpContext> {
        let copying = self.copying(token)?;
        let staging = copying.staging.as_mut().filter(|staging| staging.is_busy())?;
        staging.waiting_on.retain(|osd| *osd != from);
        if staging.is_busy() {
            return None;
        }
        (copying.asked, copying.heard) = (cx.now, cx.now);
        self.send_batch(state, cx, token)
    }

    /// Has all members remove temporary objects that no message needs: it failed, or its client has gone.
    pub(crate) fn drop_unused_staged(&self, state: &mut PgState, cx: &mut Cx<'_>) {
        if state.staged.is_empty() || !state.is_primary() || !state.phase.is_serving() {
            return;
        }
        let waiting = self.parked.values().map(|op_ctx| &**op_ctx).chain(&self.started);
        let needed: BTreeSet<&HObject> = waiting.flat_map(OpContext::staged).collect();
        let unused: Vec<HObject> =
            state.staged.iter().filter(|object| !needed.contains(object)).cloned().collect();
        if unused.is_empty() {
            return;
        }
        let others: BTreeSet<OsdId> = state.members().filter(|osd| *osd != state.whoami).collect();
        let txn = removal(state, unused);
        state.replicate_aside(cx, others.into_iter().collect(), 0, txn, OnDurable::Nothing);
    }
}

fn removal(state: &PgState, objects: impl IntoIterator<Item = HObject>) -> Transaction {
    let mut txn = Transaction::new(state.spg);
    for object in objects {
        txn.push(storage::forget_staged(&object));
        txn.push(Op::Remove(object));
    }
    txn
}
