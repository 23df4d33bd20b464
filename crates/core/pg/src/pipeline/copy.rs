//! Fetching the source of a `copy-from`: from the primary of the source's PG, part by part, as Ceph's
//! OSDs do with the op `copy-get`. The primary may be this OSD, even this PG: the driver carries the
//! messages there too.

use super::staged_copy::Staging;
use super::{OpContext, Pipeline};
use crate::backend::ec::GatherRequest;
use crate::coding::{EcView, Piece};
use crate::ops::{
    Copied, CopiedObject, CopyCursor, CopyPart, CopySource, PART_BYTES_MAX, TRANSACTION_BYTES_MAX, extract,
};
use crate::snap::{Resolved, resolve_snap};
use crate::state::PgState;
use crate::tokens::OnFetched;
use crate::{Cx, Effect, SessionId};
use nacre_denc::{Decode, Encode, Reader, Writer};
use nacre_msg::peer::{CopyGet, CopyReply, PeerHeader};
use nacre_txn::{FetchFrom, ReadError, Token};
use nacre_types::{Errno, HObject, OsdId, SpgId, Stamp};
use std::time::Duration;

/// Silence after which a part is asked for again: its PG's primary may have changed, or not serve yet.
const RETRY: Duration = Duration::from_secs(2);

/// Silence after which the copy fails with `EAGAIN`: its source's PG serves no client, and all that want the target wait behind
/// this message. Longer than it takes to notice that an OSD is gone and to peer without it.
const GIVE_UP: Duration = Duration::from_secs(60);

/// A copy under way.
#[derive(Debug)]
pub(crate) struct Copying {
    op_index: usize,
    source: CopySource,
    cursor: CopyCursor,
    pub(super) so_far: Option<Box<CopiedObject>>,
    pub(super) asked: Stamp,
    /// When the last part came, or the copy began.
    pub(super) heard: Stamp,
    /// Bytes that may be in memory: what the copies of a message have there, one write makes.
    bytes_max: usize,
    /// Bytes that are.
    pub(super) bytes: usize,
    /// Where they go when they are many.
    pub(super) staging: Option<Box<Staging>>,
}

impl Copying {
    /// Forgets what has come.
    pub(super) fn begin_again(&mut self) {
        (self.so_far, self.cursor, self.bytes, self.staging) = (None, CopyCursor::default(), 0, None);
    }

    fn is_staging(&self) -> bool {
        self.staging.as_ref().is_some_and(|staging| staging.is_busy())
    }
}

impl PgState {
    /// The part cannot be read.
    pub(crate) fn refuse_copy(&self, cx: &mut Cx<'_>, from: OsdId, get: &CopyGet) {
        let header = PeerHeader { spg: get.reply_to, epoch: self.map.epoch };
        let (tid, result) = (get.tid, Errno::EIO.negated());
        let reply = CopyReply { header, tid, result, part: Default::default(), data: Default::default() };
        cx.effects.push(Effect::Peer { osd: from, message: reply.into() });
    }

    /// The head or clone that `object`, named as of a snapshot, means.
    fn resolve(&self, cx: &Cx<'_>, object: &HObject) -> Option<HObject> {
        let head = object.to_head();
        let context = crate::object::ObjectContext::load(cx.view, &self.spg, &head).ok()?;
        match resolve_snap(&context, object.snap, &self.pool.removed_snaps) {
            Resolved::Head => Some(head),
            Resolved::Clone(id) => Some(head.with_snap(id)),
            Resolved::Nowhere => None,
        }
    }
}

impl Pipeline {
    /// The copy that the message under the token waits for.
    pub(super) fn copying(&mut self, token: Token) -> Option<&mut Copying> {
        self.parked.get_mut(&token)?.copying.as_mut()
    }

    /// Begins to fetch what `op_ctx` copies.
    pub(crate) fn begin_copy(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        mut op_ctx: OpContext,
        (op_index, source): (usize, CopySource),
    ) -> Option<OpContext> {
        let cursor = CopyCursor::default();
        // With erasure coding all of it is in memory at the end.
        let limit =
            if state.ec.is_some() { state.message_limits.transaction_bytes } else { TRANSACTION_BYTES_MAX };
        let bytes_max = limit.saturating_sub(op_ctx.copied_bytes);
        let (so_far, asked, heard, bytes, staging) = (None, cx.now, cx.now, 0, None);
        op_ctx.copying =
            Some(Copying { op_index, source, cursor, so_far, asked, heard, bytes_max, bytes, staging });
        let token = self.park(state, op_ctx);
        self.ask_part(state, cx, token)
    }

    pub(super) fn ask_part(&mut self, state: &PgState, cx: &mut Cx<'_>, token: Token) -> Option<OpContext> {
        let (spg, map) = (state.spg, &state.map);
        let copying = self.copying(token)?;
        copying.asked = cx.now;
        let object = copying.source.object.clone();
        let Some(pool) = map.pools.get(&object.pool) else {
            return self.finish_copy(cx, token, Err(Errno::ENOENT));
        };
        let source = object.pg(pool.pg_num);
        let primary = map.pg_to_up_acting(source).acting_primary;
        if primary < 0 {
            return None; // asked again when it has one
        }
        let header = PeerHeader { spg: SpgId::replicated(source), epoch: map.epoch };
        let message =
            CopyGet { header, reply_to: spg, tid: token.0, object, cursor: copying.cursor.to_bytes() };
        cx.effects.push(Effect::Peer { osd: primary, message: message.into() });
        None
    }

    /// Drops the copies of a session that is gone, and what goes on in later turns: no client waits for them, but others do for their
    /// objects.
    pub(super) fn drop_long(&mut self, session: SessionId) {
        let paused = std::mem::take(&mut self.paused);
        for token in self.copies().into_iter().chain(paused.iter().copied()) {
            let is_its = |op_ctx: &OpContext| op_ctx.op.session.id == session;
            if self.parked.get(&token).is_some_and(|op_ctx| is_its(op_ctx))
                && let Some(op_ctx) = self.parked.remove(&token)
            {
                self.order.unpark(&op_ctx.head, op_ctx.is_write());
                self.start_next(&op_ctx.head);
            }
        }
        self.paused = paused.into_iter().filter(|token| self.parked.contains_key(token)).collect();
    }

    /// The messages that wait for what they copy.
    pub(crate) fn copies(&self) -> Vec<Token> {
        let copies = self.parked.iter().filter(|(_, op_ctx)| op_ctx.copying.is_some());
        copies.map(|(token, _)| *token).collect()
    }

    /// Asks again for a part that did not come, and gives up when none has for long.
    pub(crate) fn retry_copy(&mut self, state: &PgState, cx: &mut Cx<'_>, token: Token) -> Option<OpContext> {
        let now = cx.now;
        let copying = self.copying(token)?;
        if copying.is_staging() {
            None // a member that does not answer ends the interval
        } else if now.since(copying.heard) >= GIVE_UP {
            self.finish_copy(cx, token, Err(Errno::EAGAIN))
        } else if now.since(copying.asked) >= RETRY {
            self.ask_part(state, cx, token)
        } else {
            None
        }
    }

    /// Gives a part of an object of this PG. Silent while it cannot: the asker tries again. `is_missing`: the object is to be
    /// recovered first.
    pub(crate) fn answer_copy(
        &self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        (from, get, gathered): (OsdId, CopyGet, Vec<Piece>),
        is_missing: bool,
    ) -> Option<GatherRequest> {
        let head = get.object.to_head();
        let busy = self.order.has_in_flight(&head) || is_missing;
        let cursor = CopyCursor::from_bytes(get.cursor.clone()).ok()?;
        if !state.is_active() || busy || head.pg(state.interval.pg_num) != state.spg.pg {
            return None;
        }
        let coded = EcView { inner: cx.view, pieces: &gathered };
        let view = if state.ec.is_some() { &coded } else { cx.view };
        let part = match state.resolve(cx, &get.object) {
            Some(object) => extract(view, &state.spg, &object, &cursor, PART_BYTES_MAX),
            None => Ok(None),
        };
        let header = PeerHeader { spg: get.reply_to, epoch: state.map.epoch };
        let mut reply =
            CopyReply { header, tid: get.tid, result: 0, part: Default::default(), data: Default::default() };
        match part {
            // Its attributes alone are more than any copy may have.
            Ok(Some(part)) if part.object.size_bytes() > TRANSACTION_BYTES_MAX => {
                reply.result = Errno::EFBIG.negated();
            }
            Ok(Some(part)) => {
                let mut w = Writer::new();
                reply.data = part.encode_parts(&mut w);
                reply.part = w.finish();
            }
            Ok(None) => reply.result = Errno::ENOENT.negated(),
            Err(ReadError::Damaged { .. }) => reply.result = Errno::EIO.negated(),
            Err(ReadError::Pending { object, offset, length }) => {
                let is_coded = state.ec.is_some();
                let then = OnFetched::Copy { from, get: Box::new(get), gathered };
                let token = state.tokens.issue_fetch(then);
                if is_coded {
                    return Some(GatherRequest { token, writes: false, object, offset, length });
                }
                cx.effects.push(Effect::Fetch { object, offset, length, from: FetchFrom::Anywhere, token });
                return None;
            }
        }
        cx.effects.push(Effect::Peer { osd: from, message: reply.into() });
        None
    }

    /// A part came.
    pub(crate) fn on_copy(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        reply: &CopyReply,
    ) -> Option<OpContext> {
        // Asked twice, a part may come twice: the second one must not be taken for the next.
        if self.copying(Token(reply.tid))?.is_staging() {
            return None;
        }
        let op_ctx = self.parked.remove(&Token(reply.tid))?;
        let token = state.tokens.issue();
        self.parked.insert(token, op_ctx);
        let copying = self.copying(token)?;
        if reply.result < 0 {
            return self.finish_copy(cx, token, Err(Errno(reply.result.saturating_neg())));
        }
        let Ok(part) = CopyPart::decode_parts(&mut Reader::new(reply.part.clone()), &reply.data) else {
            return self.finish_copy(cx, token, Err(Errno::EIO));
        };
        let CopyPart { object, next } = part;
        copying.heard = cx.now;
        copying.bytes += object.size_bytes();
        // With erasure coding holes are written as zeros: how much it comes to is known with the first part.
        let whole = if state.ec.is_some() { usize::try_from(object.size).unwrap_or(usize::MAX) } else { 0 };
        if copying.bytes.max(whole) > copying.bytes_max {
            return self.finish_copy(cx, token, Err(Errno::EFBIG));
        }
        match &mut copying.so_far {
            None => copying.so_far = Some(Box::new(object)),
            Some(so_far) => {
                if so_far.append(object).is_err() {
                    // The source changed between two parts: begin again.
                    copying.begin_again();
                    return self.ask_part(state, cx, token);
                }
            }
        }
        match next {
            Some(next) if next != copying.cursor => {
                copying.cursor = next;
                let is_large = copying
                    .so_far
                    .as_ref()
                    .is_some_and(|so_far| so_far.is_large(state.message_limits.copied_bytes));
                if is_large && state.ec.is_none() {
                    self.stage_part(state, cx, token)
                } else {
                    self.ask_part(state, cx, token)
                }
            }
            _ => {
                let mut object = copying.so_far.take().unwrap_or_default();
                object.staged = copying.staging.take().map(|staging| Box::new(staging.into_staged()));
                self.finish_copy(cx, token, Ok(object))
            }
        }
    }

    /// The message goes on with what was copied, or why it could not be.
    pub(super) fn finish_copy(
        &mut self,
        cx: &Cx<'_>,
        token: Token,
        result: Result<Box<CopiedObject>, Errno>,
    ) -> Option<OpContext> {
        let mut op_ctx = self.parked.remove(&token)?;
        let copying = op_ctx.copying.take()?;
        op_ctx.copied_bytes += copying.bytes;
        op_ctx.copied.push(Copied { op_index: copying.op_index, result });
        self.unpark(cx, op_ctx)
    }
}
