//! Bringing copies up to date object by object: first this copy (pulled), then the others (pushed).
//!
//! Objects that a client waits for come first, whatever flags say; then what the log tells (recovery), then
//! what only a comparison of the copies tells (`backfill`), each in order, a bounded number at a time.
//!
//! No copy is ever asked to apply a write to an object that it does not have. An object that the log tells to be missing
//! somewhere is recovered before writes to it go on. One that only a compared copy lacks is not waited for: that copy gets
//! the write's log entry alone and the object later, as Ceph does behind `last_backfill`. While such an object is on its way, the
//! first write to it goes before it (`give_way`); those that come when it is sent again wait until it is everywhere, or an object
//! that is always written to would never be.

mod backfill;
mod give_way;
mod lost;
mod part;
mod pull;
mod push;
mod reconstruct;
mod recovery_kind;
mod repair;
mod reservation;
mod round;

pub use lost::{LOST_OBJECTS_MAX, LostError, MissingObject};
pub(crate) use reservation::Reservations;

use crate::interval::is_up;
use crate::object::ObjectContext;
use crate::peer::Peer;
use crate::pipeline::ObjectUse;
use crate::state::PgState;
use crate::tokens::OnDurable;
use crate::{Cx, RecoveryKind as Kind};
use nacre_msg::peer::PartCursor;
use nacre_msg::size::PART_BYTES_MAX;
use nacre_txn::Transaction;
use nacre_types::{Eversion, HObject, OsdId, SnapId, Stamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What an object costs beside its data, in bytes of data.
const OBJECT_COST_BYTES: u64 = 4 << 10;

/// What is being done for one object.
#[derive(Debug)]
enum Work {
    /// It must not exist: removed here, not durable yet.
    Dropping,
    /// A part of it was asked for.
    Pulling {
        /// OSD that sends the object.
        from: OsdId,
        /// Version that is wanted.
        need: Eversion,
        /// How far the object has come.
        at: PartCursor,
        /// OSDs that do not have it after all.
        absent: BTreeSet<OsdId>,
    },
    /// All of it came; not durable yet.
    Applying,
    /// It is computed from chunks of others.
    Reconstructing(Box<reconstruct::Reconstruction>),
    /// Parts of it are on their way to the copies that miss it.
    Pushing(push::Pushing),
}

/// Recovery of one PG, at its primary.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    active: BTreeMap<HObject, Work>,
    /// The next part of these is due, as soon as the pace lets it.
    parts: VecDeque<HObject>,
    /// Next in turn, once the writes to them that have begun are durable.
    draining: BTreeSet<HObject>,
    /// Clients wait for these.
    urgent: VecDeque<HObject>,
    /// A write went before these when they were on their way; the next one waits.
    gave_way: BTreeSet<HObject>,
    /// What the search is for.
    kind: Option<Kind>,
    /// Where the search for more goes on; `None` when there is nothing to do.
    cursor: Option<HObject>,
    /// Nobody who is up has them.
    unfound: BTreeSet<HObject>,
    /// This copy of them was damaged, and comes from another one.
    repairing: BTreeSet<HObject>,
    /// Nobody who is up could give them.
    unrepairable: BTreeSet<HObject>,
    /// The pace lets the next object, or the next part of one, begin then.
    resume_at: Option<Stamp>,
    /// When something of it last came or went.
    moved_at: Stamp,
    /// The part that the primary is to send next of objects that come here: one behind a part that was lost makes no object.
    receiving: BTreeMap<HObject, PartCursor>,
}

/// What came of a step of recovery, for others to go on with.
#[must_use]
#[derive(Debug)]
pub(crate) enum RecoveryOutcome {
    /// Messages that wait for the object with this head go on.
    GoOn(HObject),
    /// No copy that is up can give an object with this head: clients that can are to hold what waits for it.
    OutOfReach(HObject),
    /// This copy has the object durably as it should be: messages go on, then [`Recovery::recover`] with the other copies.
    Here(HObject),
    /// No copy misses an object with this head any more: messages go on, and a copy may be whole now.
    Everywhere(HObject),
    /// Lists of copies were compared: one of them may be whole now.
    Compared,
}

impl Recovery {
    /// A client waits for the object.
    pub(crate) fn want(&mut self, head: &HObject) {
        if !self.urgent.contains(head) {
            self.urgent.push_back(head.clone());
        }
    }

    /// A copy turned up: it may have what nobody had.
    pub(crate) fn retry_unfound(&mut self) {
        self.unfound.clear();
        self.unrepairable.clear();
        self.cursor = Some(HObject::MIN);
    }

    /// A copy lacks `object` from now on: the search may have passed its place.
    pub(crate) fn look_again_at(&mut self, object: &HObject) {
        if self.kind.is_some() && self.cursor.as_ref().is_none_or(|cursor| object < cursor) {
            self.cursor = Some(object.clone());
        }
    }

    /// Objects that nobody who is up has.
    pub(crate) fn unfound_count(&self) -> usize {
        self.unfound.len()
    }

    /// Nobody who is up has all of this object and its clones.
    pub(crate) fn is_unfound(&self, head: &HObject) -> bool {
        !self.unfound.is_empty() && self.unfound.iter().any(|object| object.to_head() == *head)
    }

    /// True when objects are being recovered.
    pub(crate) fn is_busy(&self) -> bool {
        !self.active.is_empty()
    }

    /// Nothing waits for its turn.
    fn is_at_rest(&self) -> bool {
        self.urgent.is_empty() && self.parts.is_empty() && self.draining.is_empty()
    }

    /// When the next object may begin, if that is what recovery waits for.
    pub(crate) fn resume_at(&self) -> Option<Stamp> {
        self.resume_at
    }

    /// When something of it last came or went.
    pub(crate) fn moved_at(&self) -> Stamp {
        self.moved_at
    }

    /// Something of it came or went.
    pub(crate) fn moves(&mut self, now: Stamp) {
        self.moved_at = now;
    }

    /// The next part of an object may be sent, if the pace lets it.
    fn part_is_due(&mut self, object: &HObject) {
        if !self.parts.contains(object) {
            self.parts.push_back(object.clone());
        }
    }

    /// Since when it waits for other copies, and for nothing else.
    pub(crate) fn waits_since(&self) -> Option<Stamp> {
        let on_others = |work: &Work| match work {
            Work::Pulling { .. } | Work::Reconstructing(_) => true,
            Work::Pushing(pushing) => pushing.is_under_way(),
            Work::Dropping | Work::Applying => false,
        };
        let waits = self.parts.is_empty() && self.resume_at.is_none() && self.active.values().any(on_others);
        waits.then_some(self.moved_at)
    }

    fn is_taken(&self, object: &HObject) -> bool {
        self.active.contains_key(object) || self.draining.contains(object) || self.unfound.contains(object)
    }

    /// True while `head` or a clone of it is on its way to other copies, or next in turn.
    pub(crate) fn holds(&self, head: &HObject) -> bool {
        !(self.active.is_empty() && self.draining.is_empty()) && self.held(head).next().is_some()
    }

    /// A read needs the object here. A write needs it also on every copy of which it is known what it misses: such a copy could not
    /// apply the write otherwise. A copy that is compared gets the object later, and until then of its writes the log
    /// entries only (`submit_write`); but a write would spoil what is on its way there just now.
    pub(crate) fn must_recover(&self, state: &PgState, head: &HObject, write: bool) -> bool {
        state.missing.has_family(head)
            || state.has_too_few_chunks(head)
            || write && (self.holds(head) || state.peers.values().any(|peer| peer.needs_first(head)))
    }

    /// `head` and its clones as far as they are on their way, or next in turn.
    fn held(&self, head: &HObject) -> impl Iterator<Item = &HObject> + use<'_> {
        let family = head.with_snap(SnapId(0))..=head.with_snap(SnapId::SNAPDIR);
        let active = self.active.range(family.clone()).map(|(object, _)| object);
        active.chain(self.draining.range(family))
    }
}

impl PgState {
    /// Most bytes of a part of `object`. Other copies answer pulls by themselves, and chunks of one object must have parts alike.
    fn part_bytes(&self, cx: &Cx<'_>, object: &HObject) -> u64 {
        let is_sent = self.ec.is_none() && self.missing.need(object).is_none();
        if is_sent { cx.throttle.part_bytes(cx.now) as u64 } else { PART_BYTES_MAX as u64 }
    }

    fn copies_missing(&self) -> impl Iterator<Item = &crate::log::Missing> + '_ {
        let peers = self.peers.values().filter(|peer| peer.activated).map(|peer| &peer.missing);
        std::iter::once(&self.missing).chain(peers)
    }

    /// Bytes that the recovery of `object` moves; the PG's average where only others have it.
    fn cost_of(&self, cx: &Cx<'_>, object: &HObject) -> u64 {
        let record = cx.view.meta(&self.spg, object).filter(|_| self.missing.need(object).is_none());
        match record.and_then(|record| ObjectContext::from_record(record).ok()) {
            Some(context) => context.info.size,
            None => {
                let counters = &self.info.counters;
                counters.bytes.max(0).unsigned_abs() / counters.objects.max(1).unsigned_abs()
            }
        }
    }

    /// This copy misses nothing any more, and keeps that in mind.
    fn is_whole_again(&mut self, cx: &mut Cx<'_>) {
        self.info.last_complete = self.info.last_update;
        self.info.last_backfill = HObject::max_value();
        let mut txn = Transaction::new(self.spg);
        self.forget_all_missing(&mut txn);
        self.save_info(&mut txn);
        self.submit(cx, txn, OnDurable::Nothing);
    }

    /// Tells copies once that they miss nothing any more.
    pub(crate) fn tell_whole_peers(&mut self, cx: &mut Cx<'_>) {
        let whole = |peer: &Peer| peer.is_complete() && !peer.told_complete;
        let whole: Vec<OsdId> =
            self.peers.iter().filter(|(_, peer)| whole(peer)).map(|(osd, _)| *osd).collect();
        for osd in whole {
            self.peer_is_whole(cx, osd);
        }
    }

    fn peer_is_whole(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        let head = self.info.last_update;
        if let Some(peer) = self.peers.get_mut(&osd) {
            peer.backfill = None;
            peer.told_complete = true;
            peer.info.last_complete = head;
            peer.info.last_backfill = HObject::max_value();
        }
        self.send_progress(cx, osd);
    }
}

impl Recovery {
    /// Peering has told what is missing where.
    pub(crate) fn begin(&mut self) {
        (self.kind, self.cursor) = (None, None);
    }

    /// Does the next thing that `object` needs.
    pub(crate) fn recover(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        ops: ObjectUse<'_>,
        object: HObject,
    ) -> Option<RecoveryOutcome> {
        let first_part = state.cost_of(cx, &object).min(state.part_bytes(cx, &object));
        take_pace(cx, ops, &object, first_part + OBJECT_COST_BYTES);
        self.moves(cx.now);
        match state.missing.need(&object) {
            Some(Eversion::ZERO) => {
                self.drop_here(state, cx, object);
                None
            }
            Some(need) if state.ec.is_some() => self.reconstruct(state, cx, object, need),
            Some(need) => self.pull(state, cx, object, need, BTreeSet::new()),
            None => self.push(state, cx, object),
        }
    }

    /// This copy has `object` durably as it should be.
    pub(crate) fn recovered_here(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        object: &HObject,
    ) -> RecoveryOutcome {
        self.active.remove(object);
        state.missing.remove(object);
        state.stamps.recovered_objects += 1;
        state.stamps.repaired_objects += u64::from(self.repairing.remove(object));
        if state.missing.is_empty() {
            state.is_whole_again(cx);
        }
        RecoveryOutcome::Here(object.clone())
    }

    /// No copy that is up can give an object.
    fn is_out_of_reach(&mut self, object: HObject) -> RecoveryOutcome {
        let head = object.to_head();
        self.unfound.insert(object);
        RecoveryOutcome::OutOfReach(head)
    }

    /// Copies that missed `object` when it was sent have it durably. Others may have turned out since to miss it, too.
    fn recovered_there(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        ops: ObjectUse<'_>,
        object: &HObject,
    ) -> Option<RecoveryOutcome> {
        state.stamps.recovered_objects += 1;
        if state.peers_without(object).is_empty() {
            return Some(self.recovered_everywhere(object.clone()));
        }
        self.recover(state, cx, ops, object.clone())
    }

    /// No copy misses `object` any more.
    fn recovered_everywhere(&mut self, object: HObject) -> RecoveryOutcome {
        self.active.remove(&object);
        self.gave_way.remove(&object);
        RecoveryOutcome::Everywhere(object.to_head())
    }

    /// Some OSD went down: objects that were to come from it come from another one.
    pub(crate) fn forget_dead_sources(&mut self, state: &PgState) {
        let map = &state.map;
        self.active.retain(|_, work| match work {
            Work::Pulling { from, .. } => is_up(map, *from),
            Work::Reconstructing(work) => !work.lost_source(|osd| is_up(map, osd)),
            _ => true,
        });
        self.retry_unfound();
    }
}

/// Counts what recovery moves of an object, unless a client waits for it: that goes at once, and nothing else pays for it.
fn take_pace(cx: &mut Cx<'_>, ops: ObjectUse<'_>, object: &HObject, bytes: u64) {
    if !ops.is_waited_for(object) {
        cx.throttle.take(cx.now, bytes);
    }
}
