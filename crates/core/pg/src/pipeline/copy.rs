//! Fetching the source of a `copy-from`: from the primary of the source's PG, part by part, as Ceph's
//! OSDs do with the op `copy-get`. The primary may be this OSD, even this PG: the driver carries the
//! messages there too.

use super::OpContext;
use super::staged_copy::Staging;
use crate::coding::{EcView, Piece};
use crate::ops::{Copied, CopiedObject, CopyCursor, CopyPart, CopySource, TRANSACTION_BYTES_MAX, extract};
use crate::snap::{Resolved, resolve_snap};
use crate::state::PgState;
use crate::tokens::OnFetched;
use crate::{Cx, Effect, Pg, SessionId};
use nacre_denc::{Decode, Encode, Reader, Writer};
use nacre_msg::peer::{CopyGet, CopyReply, PeerHeader};
use nacre_txn::{FetchFrom, ReadError, Token};
use nacre_types::{Errno, HObject, OsdId, SpgId, Stamp};
use std::time::Duration;

/// Bytes in one part.
const PART_BYTES_MAX: usize = 4 << 20;
/// Silence after which a part is asked for again: its PG's primary may have changed, or not serve yet.
const RETRY: Duration = Duration::from_secs(2);

/// Silence after which the copy fails with `EAGAIN`: its source's PG serves nobody, and all who want the target wait behind
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
    pub(super) fn copying(&mut self, token: Token) -> Option<&mut Copying> {
        self.tokens.op_ctx_mut(token)?.copying.as_mut()
    }

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

impl Pg {
    /// Begins to fetch what `op_ctx` copies.
    pub(super) fn begin_copy(
        &mut self,
        cx: &mut Cx<'_>,
        mut op_ctx: OpContext,
        op_index: usize,
        source: CopySource,
    ) {
        let cursor = CopyCursor::default();
        let bytes_max = TRANSACTION_BYTES_MAX.saturating_sub(op_ctx.copied_bytes);
        let (so_far, asked, heard, bytes, staging) = (None, cx.now, cx.now, 0, None);
        op_ctx.copying =
            Some(Copying { op_index, source, cursor, so_far, asked, heard, bytes_max, bytes, staging });
        let token = self.state.tokens.issue_fetch(OnFetched::Operation(Box::new(op_ctx)));
        self.ask_part(cx, token);
    }

    pub(super) fn ask_part(&mut self, cx: &mut Cx<'_>, token: Token) {
        let (spg, epoch) = (self.state.spg, self.state.map.epoch);
        let map = std::sync::Arc::clone(&self.state.map);
        let Some(copying) = self.state.copying(token) else { return };
        copying.asked = cx.now;
        let object = copying.source.object.clone();
        let Some(pool) = map.pools.get(&object.pool) else {
            return self.finish_copy(cx, token, Err(Errno::ENOENT));
        };
        let source = object.pg(pool.pg_num);
        let primary = map.pg_to_up_acting(source).acting_primary;
        if primary < 0 {
            return; // asked again when it has one
        }
        let header = PeerHeader { spg: SpgId::replicated(source), epoch };
        let message =
            CopyGet { header, reply_to: spg, tid: token.0, object, cursor: copying.cursor.to_bytes() };
        cx.effects.push(Effect::Peer { osd: primary, message: message.into() });
    }

    /// Drops the copies of a session that is gone: nobody waits for them, but others for their targets.
    pub(crate) fn drop_copies(&mut self, session: SessionId) {
        for token in self.state.tokens.fetches() {
            let is_its = |then: &mut OnFetched| matches!(then, OnFetched::Operation(op_ctx) if op_ctx.copying.is_some() && op_ctx.op.session.id == session);
            if self.state.tokens.fetch_mut(token).is_some_and(is_its)
                && let Some(OnFetched::Operation(op_ctx)) = self.state.tokens.take_fetch(token)
            {
                self.pipeline.order.unpark(&op_ctx.head, op_ctx.is_write());
                self.pipeline.start_next(&op_ctx.head);
            }
        }
    }

    /// Asks again for parts that did not come, and gives up when none have for long.
    pub(crate) fn retry_copies(&mut self, cx: &mut Cx<'_>) {
        for token in self.state.tokens.fetches() {
            if self.state.copying(token).is_some_and(|copying| copying.is_staging()) {
                continue; // a member that does not answer ends the interval
            } else if self.state.copying(token).is_some_and(|copying| cx.now.since(copying.heard) >= GIVE_UP)
            {
                self.finish_copy(cx, token, Err(Errno::EAGAIN));
            } else if self.state.copying(token).is_some_and(|copying| cx.now.since(copying.asked) >= RETRY) {
                self.ask_part(cx, token);
            }
        }
    }

    /// Gives a part of an object of this PG. Silent while it cannot: the asker tries again.
    pub(crate) fn answer_copy(&mut self, cx: &mut Cx<'_>, from: OsdId, get: CopyGet, gathered: Vec<Piece>) {
        let head = get.object.to_head();
        let busy =
            self.pipeline.order.has_in_flight(&head) || self.recovery.must_recover(&self.state, &head, false);
        let Ok(cursor) = CopyCursor::from_bytes(get.cursor.clone()) else { return };
        if !self.is_active() || busy || head.pg(self.state.interval.pg_num) != self.state.spg.pg {
            return;
        }
        let coded = EcView { inner: cx.view, pieces: &gathered };
        let view = if self.state.ec.is_some() { &coded } else { cx.view };
        let part = match self.state.resolve(cx, &get.object) {
            Some(object) => extract(view, &self.state.spg, &object, &cursor, PART_BYTES_MAX),
            None => Ok(None),
        };
        let header = PeerHeader { spg: get.reply_to, epoch: self.state.map.epoch };
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
                let then = OnFetched::Copy { from, get: Box::new(get), gathered };
                if self.state.ec.is_some() {
                    let outcome = self.gathers.gather(&mut self.state, cx, (object, offset, length), then);
                    return self.follow_gather(cx, outcome);
                }
                let token = self.state.tokens.issue_fetch(then);
                cx.effects.push(Effect::Fetch { object, offset, length, from: FetchFrom::Anywhere, token });
                return;
            }
        }
        cx.effects.push(Effect::Peer { osd: from, message: reply.into() });
    }

    /// A part came.
    pub(crate) fn on_copy(&mut self, cx: &mut Cx<'_>, reply: &CopyReply) {
        // Asked twice, a part may come twice: the second one must not be taken for the next.
        if self.state.copying(Token(reply.tid)).is_none_or(|copying| copying.is_staging()) {
            return;
        }
        let Some(token) = self.state.tokens.renew_fetch(Token(reply.tid)) else { return };
        let coded = self.state.ec.is_some();
        let Some(copying) = self.state.copying(token) else { return };
        if reply.result < 0 {
            return self.finish_copy(cx, token, Err(Errno(reply.result.saturating_neg())));
        }
        let Ok(part) = CopyPart::decode_parts(&mut Reader::new(reply.part.clone()), &reply.data) else {
            return self.finish_copy(cx, token, Err(Errno::EIO));
        };
        let CopyPart { object, next } = part;
        copying.heard = cx.now;
        copying.bytes += object.size_bytes();
        if copying.bytes > copying.bytes_max {
            return self.finish_copy(cx, token, Err(Errno::EFBIG));
        }
        match &mut copying.so_far {
            None => copying.so_far = Some(Box::new(object)),
            Some(so_far) => {
                if so_far.append(object).is_err() {
                    // The source changed between two parts: begin again.
                    copying.begin_again();
                    return self.ask_part(cx, token);
                }
            }
        }
        match next {
            Some(next) if next != copying.cursor => {
                copying.cursor = next;
                let is_large = !coded && copying.so_far.as_ref().is_some_and(|so_far| so_far.is_large());
                if is_large { self.stage_part(cx, token) } else { self.ask_part(cx, token) }
            }
            _ => {
                let mut object = copying.so_far.take().unwrap_or_default();
                object.staged = copying.staging.take().map(|staging| Box::new(staging.into_staged()));
                self.finish_copy(cx, token, Ok(object));
            }
        }
    }

    pub(super) fn finish_copy(
        &mut self,
        cx: &mut Cx<'_>,
        token: Token,
        result: Result<Box<CopiedObject>, Errno>,
    ) {
        let Some(OnFetched::Operation(mut op_ctx)) = self.state.tokens.take_fetch(token) else { return };
        let Some(copying) = op_ctx.copying.take() else { return };
        op_ctx.copied_bytes += copying.bytes;
        op_ctx.copied.push(Copied { op_index: copying.op_index, result });
        self.unpark(cx, *op_ctx);
    }
}
