//! Objects that the primary's own copy lacks.

use super::{Recovery, RecoveryOutcome, Work, part};
use crate::interval::is_up;
use crate::peer::Peer;
use crate::state::PgState;
use crate::tokens::{OnDurable, OnFetched};
use crate::{Cx, Effect};
use nacre_msg::peer::{PartCursor, Pull, Push, PushReply};
use nacre_msg::size::PART_BYTES_MAX;
use nacre_txn::{FetchFrom, ReadError};
use nacre_types::{Eversion, HObject, OsdId};
use std::collections::BTreeSet;

impl PgState {
    /// Members that are known to have it are the surest; any other one only says no if it has another version.
    fn source_of(&self, object: &HObject, need: Eversion, absent: &BTreeSet<OsdId>) -> Option<OsdId> {
        let may_have = |osd: &OsdId, peer: &Peer| {
            is_up(&self.map, *osd)
                && !absent.contains(osd)
                && peer.missing.need(object).is_none()
                && (peer.activated || peer.info.last_update >= need)
        };
        let candidates = self.peers.iter().filter(|(osd, peer)| may_have(osd, peer));
        candidates.min_by_key(|(_, peer)| !(peer.activated && peer.has(object))).map(|(osd, _)| *osd)
    }

    /// True when somebody may have that version.
    pub(super) fn has_source(&self, object: &HObject, need: Eversion) -> bool {
        if self.ec.is_some() {
            return self.can_reconstruct_here(object, need);
        }
        self.source_of(object, need, &BTreeSet::new()).is_some()
    }

    /// Sends what the primary (or an OSD that peers with this copy) needs, if it is here in that version.
    pub(crate) fn answer_pull(&mut self, cx: &mut Cx<'_>, from: OsdId, pull: Pull) {
        let Pull { ref object, need, ref at, .. } = pull;
        let has = self.copy_version(cx.view, object) == Some(need) && self.missing.need(object).is_none();
        // A copy whose newest writes are to be taken back still has what they replaced.
        let place = if has { Ok(Some(object.clone())) } else { self.kept_version(cx, object, need) };
        let stored = |size| self.stored_bytes(size);
        let read =
            |place: HObject| part::read(cx.view, self.spg, (&place, object), (at, PART_BYTES_MAX), stored);
        let part = place.and_then(|place| place.map(read).transpose());
        match part {
            Ok(Some(part)) => {
                let (header, object, at) = (self.header(), object.clone(), at.clone());
                let (next, txn) = (part.next, part.txn);
                self.send(cx, from, Push { header, object, version: need, at, next, pulled: true, txn });
            }
            Err(ReadError::Pending { object, offset, length }) => {
                let token = self.tokens.issue_fetch(OnFetched::Pull { from, pull: Box::new(pull) });
                cx.effects.push(Effect::Fetch { object, offset, length, from: FetchFrom::Anywhere, token });
            }
            Ok(None) | Err(ReadError::Damaged { .. }) => {
                let (header, object, at) = (self.header(), object.clone(), at.clone());
                self.send(cx, from, PushReply { header, object, version: need, at, absent: true });
            }
        }
    }
}

impl Recovery {
    pub(super) fn drop_here(&mut self, state: &mut PgState, cx: &mut Cx<'_>, object: HObject) {
        let mut txn = part::removal(state.spg, &object);
        state.forget_missing(&mut txn, &object);
        state.submit(cx, txn, OnDurable::Recovered(Box::new(object.clone())));
        self.active.insert(object, Work::Dropping);
    }

    /// Asks an OSD that may have it for `object`; `absent` have not.
    pub(super) fn pull(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        object: HObject,
        need: Eversion,
        absent: BTreeSet<OsdId>,
    ) -> Option<RecoveryOutcome> {
        let Some(from) = state.source_of(&object, need, &absent) else {
            return Some(self.cannot_recover(state, cx, &object));
        };
        let (header, at) = (state.header(), PartCursor::Start);
        state.send(cx, from, Pull { header, object: object.clone(), need, at: at.clone() });
        self.active.insert(object, Work::Pulling { from, need, at, absent });
        None
    }

    /// Asks for the part that is due.
    pub(super) fn pull_on(&self, state: &PgState, cx: &mut Cx<'_>, object: &HObject) {
        if let Some(Work::Pulling { from, need, at, .. }) = self.active.get(object) {
            let (header, object, at) = (state.header(), object.clone(), at.clone());
            state.send(cx, *from, Pull { header, object, need: *need, at });
        }
    }

    /// A part that this primary asked for.
    pub(super) fn receive_pulled(&mut self, state: &mut PgState, cx: &mut Cx<'_>, from: OsdId, push: Push) {
        let Push { object, version, at: here, next, mut txn, .. } = push;
        let Some(Work::Pulling { from: source, need, at, .. }) = self.active.get_mut(&object) else {
            return;
        };
        let goes_on = next.as_ref().is_none_or(|next| *next > here);
        if *source != from || *need != version || *at != here || !goes_on {
            return;
        }
        state.stamps.moved(&txn.ops, 1);
        match next {
            Some(next) => {
                *at = next;
                state.submit(cx, txn, OnDurable::Nothing);
                self.parts.push_back(object);
            }
            None => {
                self.active.insert(object.clone(), Work::Applying);
                state.forget_missing(&mut txn, &object);
                state.submit(cx, txn, OnDurable::Recovered(Box::new(object)));
            }
        }
    }

    /// The source has not got it after all: ask another one.
    pub(super) fn pull_is_absent(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        from: OsdId,
        reply: &PushReply,
    ) -> Option<RecoveryOutcome> {
        let object = &reply.object;
        let Some(Work::Pulling { from: source, need, absent, .. }) = self.active.get_mut(object) else {
            return None;
        };
        if *source != from || *need != reply.version {
            return None;
        }
        absent.insert(from);
        let (need, absent) = (*need, std::mem::take(absent));
        self.pull(state, cx, object.clone(), need, absent)
    }
}
