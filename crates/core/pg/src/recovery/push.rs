//! Objects that other copies lack.

use super::{Recovery, RecoveryOutcome, Work, part};
use crate::peer::Peer;
use crate::phase::Phase;
use crate::pipeline::ObjectUse;
use crate::state::PgState;
use crate::tokens::{OnDurable, OnFetched};
use crate::{Cx, Effect};
use nacre_msg::peer::{PartCursor, Push, PushReply};
use nacre_txn::{FetchFrom, ReadError};
use nacre_types::{Eversion, HObject, OsdId, Stamp};
use std::collections::{BTreeSet, VecDeque};

/// An object on its way to the copies that miss it.
#[derive(Debug)]
pub(super) struct Pushing {
    /// OSDs that the object is pushed to.
    targets: BTreeSet<OsdId>,
    /// The version that is sent; `None` where the object is to be dropped.
    version: Option<Eversion>,
    /// The part to be sent next; `None` behind the last one.
    next: Option<PartCursor>,
    /// That part is being read.
    reading: bool,
    /// Parts that were sent, in order, and are not durable everywhere.
    sent: VecDeque<SentPart>,
}

#[derive(Debug)]
struct SentPart {
    at: PartCursor,
    since: Stamp,
    /// OSDs that do not have it durably yet.
    waiting: BTreeSet<OsdId>,
}

impl Pushing {
    /// Others have parts of it to answer for.
    pub(super) fn is_under_way(&self) -> bool {
        !self.sent.is_empty()
    }

    /// OSDs that it goes to.
    pub(super) fn targets(&self) -> impl Iterator<Item = &OsdId> {
        self.targets.iter()
    }

    /// Its last part was not sent yet.
    pub(super) fn has_more(&self) -> bool {
        self.next.is_some()
    }

    /// There is another part, and no more than `parts_max` would be under way with it.
    fn takes_another(&self, parts_max: usize) -> bool {
        self.next.is_some() && !self.reading && self.sent.len() < parts_max
    }

    /// `from` has the part at `at` durably. Yields since when that was under way, if nobody else has it to answer for. Answers of
    /// another version tell of what gave way to a write; of the same, whose last part was never sent, they do no harm: the answer
    /// to that part says that all before it is durable, too.
    fn answered(&mut self, from: OsdId, version: Eversion, at: &PartCursor) -> Option<Stamp> {
        if version != self.version.unwrap_or_default() {
            return None;
        }
        let nth = self.sent.iter().position(|part| part.at == *at)?;
        let part = self.sent.get_mut(nth)?;
        if !part.waiting.remove(&from) || !part.waiting.is_empty() {
            return None;
        }
        self.sent.remove(nth).map(|part| part.since)
    }
}

impl PgState {
    /// Members that miss `object`, this one apart.
    pub(super) fn peers_without(&self, object: &HObject) -> BTreeSet<OsdId> {
        let misses = |peer: &Peer| peer.activated && peer.missing.need(object).is_some();
        self.peers.iter().filter(|(_, peer)| misses(peer)).map(|(osd, _)| *osd).collect()
    }
}

impl Recovery {
    /// Sends `object` to all members that miss it.
    pub(super) fn push(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        object: HObject,
    ) -> Option<RecoveryOutcome> {
        let targets = state.peers_without(&object);
        if targets.is_empty() {
            return Some(self.recovered_everywhere(object));
        }
        let version = state.copy_version(cx.view, &object);
        if let Some(version) = version.filter(|_| state.ec.is_some()) {
            return self.reconstruct(state, cx, object, version);
        }
        let (next, sent) = (Some(PartCursor::Start), VecDeque::new());
        let pushing = Pushing { targets, version, next, reading: false, sent };
        self.active.insert(object.clone(), Work::Pushing(pushing));
        self.push_on(state, cx, &object)
    }

    fn pushing(&mut self, object: &HObject) -> Option<&mut Pushing> {
        match self.active.get_mut(object) {
            Some(Work::Pushing(pushing)) => Some(pushing),
            _ => None,
        }
    }

    /// Whether the next part of an object under way is to be sent now; only pushes have more than one on their way.
    pub(super) fn takes_another_part(&mut self, object: &HObject, parts_max: usize) -> bool {
        self.pushing(object).is_none_or(|pushing| pushing.takes_another(parts_max))
    }

    /// What was to be read for a part is there.
    pub(crate) fn push_was_read(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        object: &HObject,
    ) -> Option<RecoveryOutcome> {
        if self.is_reconstructing(object) {
            return self.read_own_part(state, cx, object);
        }
        let pushing = self.pushing(object).filter(|pushing| pushing.reading)?;
        pushing.reading = false;
        self.push_on(state, cx, object)
    }

    /// Sends the part that is due.
    pub(super) fn push_on(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        object: &HObject,
    ) -> Option<RecoveryOutcome> {
        let Some(Work::Pushing(Pushing { next: Some(at), version, .. })) = self.active.get(object) else {
            return None;
        };
        if version.is_none() {
            let txn = part::removal(state.spg, object);
            self.send_part(state, cx, object, part::Part { txn, next: None });
            return None;
        }
        match part::read(cx.view, state.spg, (object, object), (at, cx.throttle.part_bytes(cx.now)), |size| {
            size
        }) {
            Ok(part) => self.send_part(state, cx, object, part),
            Err(ReadError::Pending { object: wanted, offset, length }) => {
                let token = state.tokens.issue_fetch(OnFetched::Push(object.clone()));
                self.pushing(object).into_iter().for_each(|pushing| pushing.reading = true);
                cx.effects.push(Effect::Fetch {
                    object: wanted,
                    offset,
                    length,
                    from: FetchFrom::Anywhere,
                    token,
                });
            }
            Err(ReadError::Damaged { .. }) => {
                self.active.remove(object);
                if !self.repair_here(state, cx, object) {
                    // No copy is a source: it is out of reach until the interval changes.
                    return Some(self.is_out_of_reach(object.clone()));
                }
            }
        }
        None
    }

    fn send_part(&mut self, state: &mut PgState, cx: &mut Cx<'_>, object: &HObject, part: part::Part) {
        let header = state.header();
        let Some(pushing) = self.pushing(object) else { return };
        let Some(at) = std::mem::replace(&mut pushing.next, part.next.clone()) else { return };
        let (targets, version) = (pushing.targets.clone(), pushing.version.unwrap_or_default());
        state.stamps.moved(&part.txn.ops, targets.len());
        pushing.sent.push_back(SentPart { at: at.clone(), since: cx.now, waiting: targets.clone() });
        if part.next.is_some() {
            self.part_is_due(object);
        }
        for osd in targets {
            let (object, at, next, txn) = (object.clone(), at.clone(), part.next.clone(), part.txn.clone());
            state.send(cx, osd, Push { header, object, version, at, next, pulled: false, txn });
        }
    }

    /// A part came, asked for or by the primary's order.
    pub(crate) fn receive_push(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        from: OsdId,
        push: Push,
    ) -> Option<RecoveryOutcome> {
        if push.txn.collection != state.spg {
            return None;
        }
        if push.pulled && self.is_reconstructing(&push.object) {
            return self.receive_part(state, cx, from, push);
        }
        if push.pulled {
            self.receive_pulled(state, cx, from, push);
            return None;
        }
        if from != state.interval.primary || !matches!(state.phase, Phase::Replica) {
            return None;
        }
        let Push { object, version, at, next, mut txn, .. } = push;
        let expected = self.receiving.remove(&object);
        if at != PartCursor::Start && expected.as_ref() != Some(&at) {
            return None; // the primary begins anew when no answer comes
        }
        if let Some(next) = &next {
            self.receiving.insert(object.clone(), next.clone());
        }
        let begins = next.is_some() && at == PartCursor::Start;
        let replaces = state.info.covers(&object) && state.missing.need(&object).is_none();
        state.stamps.repaired_objects += u64::from(replaces && at == PartCursor::Start);
        if begins && replaces {
            // A copy that was there and is replaced: it must not be taken for whole after a crash.
            state.missing.insert(object.clone(), version);
            state.note_missing(&mut txn, &object, version);
        }
        if next.is_none() {
            state.forget_missing(&mut txn, &object);
            state.missing.remove(&object);
            if state.missing.is_empty() && !state.info.is_incomplete() {
                state.info.last_complete = state.info.last_update;
            }
        }
        let reply = PushReply { header: state.header(), object, version, at, absent: false };
        state.submit(cx, txn, OnDurable::Pushed { to: from, reply: Box::new(reply) });
        None
    }

    /// A part is durable there, or a source has nothing to give.
    pub(crate) fn push_reply(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        ops: ObjectUse<'_>,
        from: OsdId,
        reply: &PushReply,
    ) -> Option<RecoveryOutcome> {
        if self.is_reconstructing(&reply.object) {
            return self.part_reply(state, cx, ops, from, reply);
        }
        if reply.absent {
            return self.pull_is_absent(state, cx, from, reply);
        }
        let object = &reply.object;
        let pushing = self.pushing(object)?;
        let since = pushing.answered(from, reply.version, &reply.at)?;
        cx.throttle.part_came(cx.now, cx.now.since(since));
        if pushing.next.is_some() {
            self.part_is_due(object);
            return None;
        }
        if pushing.is_under_way() {
            return None;
        }
        for osd in std::mem::take(&mut pushing.targets) {
            if let Some(peer) = state.peers.get_mut(&osd) {
                peer.missing.remove(object);
            }
        }
        self.recovered_there(state, cx, ops, object)
    }
}
