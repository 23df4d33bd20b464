//! Objects of erasure-coded pools that some copies lack: computed from the chunks of others.
//!
//! ```text
//!   source --Pull-->  <--Push (pulled)--.
//!   source --Pull-->  <--Push (pulled)--+- k parts: decode, --Push--> copies without it, this one perhaps among them
//!   this copy's own part ---------------'                              all durable: the next part
//! ```
//! A part holds the chunk's data and, at its ends, what all chunks of an object share: attributes and record.

use super::{Recovery, RecoveryOutcome, Work, part};
use crate::pipeline::ObjectUse;
use crate::state::PgState;
use crate::tokens::{OnDurable, OnFetched};
use crate::{Cx, Effect};
use nacre_buf::{BufList, Bytes};
use nacre_ec::{Codec, Shards};
use nacre_msg::peer::{PartCursor, Pull, Push, PushReply};
use nacre_msg::size::PART_BYTES_MAX;
use nacre_txn::{FetchFrom, Op, ReadError, Transaction};
use nacre_types::{Eversion, HObject, OsdId};
use std::collections::{BTreeMap, BTreeSet};

/// One object being computed.
#[derive(Debug)]
pub(super) struct Reconstruction {
    version: Eversion,
    /// OSDs that lack it.
    targets: BTreeSet<OsdId>,
    /// The part: where in the chunk it begins.
    at: PartCursor,
    /// The part behind it, as far as is known.
    next: Option<PartCursor>,
    /// OSDs that were asked for their part.
    asked: BTreeMap<u8, OsdId>,
    /// What came, by shard.
    parts: BTreeMap<u8, Vec<Op>>,
    /// OSDs that cannot give it.
    absent: BTreeSet<OsdId>,
    /// OSDs that do not have the new part durably yet.
    waiting: BTreeSet<OsdId>,
}

impl Reconstruction {
    /// An OSD that it waits for is not there any more.
    pub(super) fn lost_source(&self, is_up: impl Fn(OsdId) -> bool) -> bool {
        self.asked.values().any(|osd| !is_up(*osd))
    }
}

impl PgState {
    fn apply_own_part(
        &mut self,
        cx: &mut Cx<'_>,
        object: &HObject,
        at: PartCursor,
        is_last: bool,
        mut txn: Transaction,
    ) {
        if is_last {
            self.forget_missing(&mut txn, object);
        }
        self.submit(cx, txn, OnDurable::Rebuilt(Box::new((object.clone(), at))));
    }

    /// True when the chunks of others suffice for this copy's of `object`.
    pub(super) fn can_reconstruct_here(&self, object: &HObject, need: Eversion) -> bool {
        let sources = self.chunk_sources(object, need, &[self.whoami].into(), true);
        self.chunks_needed().is_some_and(|k| sources.len() >= k)
    }
}

impl Recovery {
    /// Begins to compute `object` for all copies that lack it.
    pub(super) fn reconstruct(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        object: HObject,
        version: Eversion,
    ) -> Option<RecoveryOutcome> {
        let mut targets = state.peers_without(&object);
        if state.missing.need(&object).is_some() {
            targets.insert(state.whoami);
        }
        let work = Reconstruction {
            version,
            targets,
            at: PartCursor::Start,
            next: None,
            asked: BTreeMap::new(),
            parts: BTreeMap::new(),
            absent: BTreeSet::new(),
            waiting: BTreeSet::new(),
        };
        self.active.insert(object.clone(), Work::Reconstructing(Box::new(work)));
        self.collect_parts(state, cx, &object)
    }

    fn reconstructing(&mut self, object: &HObject) -> Option<&mut Reconstruction> {
        match self.active.get_mut(object) {
            Some(Work::Reconstructing(work)) => Some(work),
            _ => None,
        }
    }

    /// True while `object` is being computed.
    pub(super) fn is_reconstructing(&self, object: &HObject) -> bool {
        matches!(self.active.get(object), Some(Work::Reconstructing(_)))
    }

    /// Asks for as many parts as are needed, and no more.
    pub(super) fn collect_parts(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        object: &HObject,
    ) -> Option<RecoveryOutcome> {
        let k = state.chunks_needed()?;
        let Some(Work::Reconstructing(work)) = self.active.get(object) else { return None };
        if work.parts.len() >= k {
            return self.make_parts(state, cx, object);
        }
        let mut sources = state.chunk_sources(object, work.version, &work.absent, true);
        sources.retain(|shard, osd| {
            !work.parts.contains_key(shard) && !work.asked.contains_key(shard) && !work.targets.contains(osd)
        });
        let under_way = work.parts.len() + work.asked.len();
        if under_way + sources.len() < k {
            return Some(self.cannot_recover(state, cx, object));
        }
        let fresh: Vec<(u8, OsdId)> = sources.into_iter().take(k.saturating_sub(under_way)).collect();
        let (header, need, at) = (state.header(), work.version, work.at.clone());
        let me = state.whoami;
        if let Some(work) = self.reconstructing(object) {
            work.asked.extend(fresh.iter().copied());
        }
        for osd in fresh.iter().map(|(_, osd)| *osd).filter(|osd| *osd != me) {
            state.send(cx, osd, Pull { header, object: object.clone(), need, at: at.clone() });
        }
        if fresh.iter().any(|(_, osd)| *osd == me) { self.read_own_part(state, cx, object) } else { None }
    }

    /// This copy's own part.
    pub(super) fn read_own_part(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        object: &HObject,
    ) -> Option<RecoveryOutcome> {
        let Some(Work::Reconstructing(work)) = self.active.get(object) else { return None };
        let version = work.version;
        let read = part::read(cx.view, state.spg, (object, object), (&work.at, PART_BYTES_MAX), |size| {
            state.stored_bytes(size)
        });
        match read {
            Ok(part) if state.copy_version(cx.view, object) == Some(version) => {
                self.part_came(state, cx, state.whoami, object, part.next, part.txn.ops)
            }
            Err(ReadError::Pending { object: wanted, offset, length }) => {
                let token = state.tokens.issue_fetch(OnFetched::Push(object.clone()));
                cx.effects.push(Effect::Fetch {
                    object: wanted,
                    offset,
                    length,
                    from: FetchFrom::Anywhere,
                    token,
                });
                None
            }
            Ok(_) => self.part_is_absent(state, cx, state.whoami, object),
            Err(ReadError::Damaged { .. }) => {
                self.active.remove(object);
                let is_missing = self.repair_here(state, cx, object);
                (!is_missing).then(|| self.is_out_of_reach(object.clone()))
            }
        }
    }

    /// A source's part came.
    pub(super) fn receive_part(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        from: OsdId,
        push: Push,
    ) -> Option<RecoveryOutcome> {
        let Push { object, version, at, next, txn, .. } = push;
        let fits = |work: &&mut Reconstruction| work.version == version && work.at == at;
        if self.reconstructing(&object).filter(fits).is_some() && next.as_ref().is_none_or(|next| *next > at)
        {
            return self.part_came(state, cx, from, &object, next, txn.ops);
        }
        None
    }

    fn part_came(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        from: OsdId,
        object: &HObject,
        next: Option<PartCursor>,
        ops: Vec<Op>,
    ) -> Option<RecoveryOutcome> {
        let work = self.reconstructing(object)?;
        let shard = work.asked.iter().find(|(_, osd)| **osd == from).map(|(shard, _)| *shard)?;
        work.asked.remove(&shard);
        work.parts.insert(shard, ops);
        work.next = next;
        self.collect_parts(state, cx, object)
    }

    /// A source has not got it after all.
    pub(super) fn part_is_absent(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        from: OsdId,
        object: &HObject,
    ) -> Option<RecoveryOutcome> {
        let work = self.reconstructing(object)?;
        work.asked.retain(|_, osd| *osd != from);
        work.absent.insert(from);
        self.collect_parts(state, cx, object)
    }

    /// All parts are there: computes those of the copies that lack the object.
    fn make_parts(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        object: &HObject,
    ) -> Option<RecoveryOutcome> {
        let coding = state.ec.as_ref().map(|ec| std::sync::Arc::clone(&ec.coding))?;
        let work = self.reconstructing(object)?;
        let parts = std::mem::take(&mut work.parts);
        let (version, at, next) = (work.version, work.at.clone(), work.next.clone());
        let targets = work.targets.clone();
        work.waiting.clone_from(&targets);
        for osd in targets {
            let made = state
                .chunk_of(osd, object)
                .and_then(|chunk| compute(&coding.codec, &parts, object, &at, next.as_ref(), chunk));
            let Some(ops) = made else { return Some(self.cannot_recover(state, cx, object)) };
            state.stamps.moved(&ops, 1);
            let txn = Transaction { collection: state.spg, ops };
            if osd == state.whoami {
                state.apply_own_part(cx, object, at.clone(), next.is_none(), txn);
            } else {
                let (header, object, pulled) = (state.header(), object.clone(), false);
                let (at, next) = (at.clone(), next.clone());
                state.send(cx, osd, Push { header, object, version, at, next, pulled, txn });
            }
        }
        None
    }

    /// A copy that lacked the object has the part that begins at `at` durably.
    pub(crate) fn part_is_there(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        ops: ObjectUse<'_>,
        osd: OsdId,
        (object, at): (&HObject, &PartCursor),
    ) -> Option<RecoveryOutcome> {
        let work = self.reconstructing(object).filter(|work| work.at == *at)?;
        if !work.waiting.remove(&osd) || !work.waiting.is_empty() {
            return None;
        }
        if let Some(next) = work.next.take() {
            work.at = next;
            self.parts.push_back(object.clone());
            return None;
        }
        let targets = std::mem::take(&mut work.targets);
        self.active.remove(object);
        for osd in &targets {
            if let Some(peer) = state.peers.get_mut(osd) {
                peer.missing.remove(object);
            }
        }
        if targets.contains(&state.whoami) {
            return Some(self.recovered_here(state, cx, object));
        }
        self.recovered_there(state, cx, ops, object)
    }

    /// A part that was sent is durable there, or a source has nothing to give.
    pub(super) fn part_reply(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        ops: ObjectUse<'_>,
        from: OsdId,
        reply: &PushReply,
    ) -> Option<RecoveryOutcome> {
        if !reply.absent {
            return self.part_is_there(state, cx, ops, from, (&reply.object, &reply.at));
        }
        let fits = |work: &&mut Reconstruction| work.version == reply.version && work.at == reply.at;
        self.reconstructing(&reply.object).filter(fits)?;
        self.part_is_absent(state, cx, from, &reply.object)
    }

    /// `osd`'s chunk of an object turned out to be damaged: it lacks it from now on.
    pub(crate) fn repair_there(
        &mut self,
        state: &mut PgState,
        osd: OsdId,
        object: HObject,
        version: Eversion,
    ) {
        if let Some(peer) = state.peers.get_mut(&osd).filter(|peer| peer.activated) {
            peer.missing.insert(object, version);
            peer.told_complete = false;
            self.search_again();
        }
    }
}

/// The part of `shard` from those of `k` others: their own ops, with other data.
fn compute(
    codec: &Codec,
    parts: &BTreeMap<u8, Vec<Op>>,
    object: &HObject,
    at: &PartCursor,
    next: Option<&PartCursor>,
    shard: u8,
) -> Option<Vec<Op>> {
    let any = parts.values().next()?;
    let end = match next {
        Some(PartCursor::Data(end)) => *end,
        // Names, keys and values alone: alike in all chunks.
        Some(_) => return Some(any.clone()),
        None => {
            any.iter().find_map(|op| if let Op::Truncate { size, .. } = op { Some(*size) } else { None })?
        }
    };
    let offset = if let PartCursor::Data(offset) = at { *offset } else { 0 };
    let length = usize::try_from(end.checked_sub(offset)?).ok().filter(|length| *length <= PART_BYTES_MAX)?;
    let data: BTreeMap<u8, Vec<u8>> =
        parts.iter().map(|(shard, ops)| Some((*shard, flat(ops, offset, length)?))).collect::<Option<_>>()?;
    let have: Shards<'_> = data.iter().map(|(shard, bytes)| (*shard, bytes.as_slice())).collect();
    let made = codec.recover(&have, &[shard]).ok()?.pop()?;
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    for op in any.iter().filter(|op| !matches!(op, Op::Write { .. })).cloned() {
        // What ends a part comes behind its data.
        if matches!(op, Op::Truncate { .. }) || !behind.is_empty() {
            behind.push(op)
        } else {
            before.push(op)
        }
    }
    if made.iter().any(|byte| *byte != 0) {
        before.push(Op::Write { object: object.clone(), offset, data: BufList::from(Bytes::from(made)) });
    }
    before.append(&mut behind);
    Some(before)
}

/// The data of a part in one piece, holes as zeros.
fn flat(ops: &[Op], offset: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    for op in ops {
        let Op::Write { offset: at, data, .. } = op else { continue };
        let start = usize::try_from(at.checked_sub(offset)?).ok()?;
        let place = bytes.get_mut(start..start.checked_add(data.len())?)?;
        place.copy_from_slice(&data.to_bytes());
    }
    Some(bytes)
}
