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
mod calm;
mod give_way;
mod lost;
mod part;
mod pull;
mod push;
mod reconstruct;
mod recovery_kind;
mod repair;
mod reservation;
mod reserver;
mod throttle;

pub(crate) use backfill::{Backfill, SCAN_OBJECTS_MAX};
pub use lost::{LOST_OBJECTS_MAX, Lost, LostError, MissingObject};
pub use recovery_kind::Kind;
pub(crate) use reservation::Reservations;
pub use reserver::{Decision, Reserver, Side};
pub use throttle::RecoveryThrottle;

use crate::object::ObjectContext;
use crate::state::PgState;
use crate::tokens::OnDurable;
use crate::{Cx, Pg, peering};
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
        /// From whom.
        from: OsdId,
        /// The version.
        need: Eversion,
        /// The part.
        at: PartCursor,
        /// Who has not got it after all.
        absent: BTreeSet<OsdId>,
    },
    /// All of it came; not durable yet.
    Applying,
    /// It is computed from chunks of others.
    Reconstructing(Box<reconstruct::Reconstruction>),
    /// Parts of it are on their way to those who miss it.
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

impl Pg {
    /// Peering has told what is missing where.
    pub(crate) fn begin_recovery(&mut self) {
        (self.recovery.kind, self.recovery.cursor) = (None, None);
    }

    /// Starts recoveries as far as the limit allows.
    pub(crate) fn start_recoveries(&mut self, cx: &mut Cx<'_>) {
        self.recovery.resume_at = None;
        if self.recovery.is_at_rest() && self.reservations.has_none() && self.state.is_whole_everywhere() {
            return; // as after almost every event
        }
        self.reservations.update(&self.state, cx, self.recovery_due());
        if !matches!(self.state.phase, peering::Phase::Active { .. }) {
            return;
        }
        self.recover_drained(cx);
        while let Some(head) = self.recovery.urgent.pop_front() {
            self.hurry(&head);
            if !self.recovery.must_recover(&self.state, &head, true) {
                self.go_on_with(cx, &head); // it was given up, or nobody lacks it any more
            }
            for object in self.missing_family(&head) {
                self.recover_in_turn(cx, object); // beyond the limit: a client waits
            }
        }
        self.send_due_parts(cx);
        let Some(kind) = self.recovery_due().filter(|_| self.recovery.resume_at.is_none()) else { return };
        if kind == Kind::Backfill {
            self.compare_on(cx);
        }
        if self.recovery.kind != Some(kind) {
            (self.recovery.kind, self.recovery.cursor) = (Some(kind), Some(HObject::MIN));
        }
        let under_way = |recovery: &Recovery| recovery.active.len() + recovery.draining.len();
        while self.reservations.allow(kind) && under_way(&self.recovery) < cx.throttle.objects_max(cx.now) {
            self.recovery.resume_at = cx.throttle.begins_at(cx.now);
            if self.recovery.resume_at.is_some() {
                return;
            }
            let Some(object) = self.next_missing(kind) else { break };
            self.recover_in_turn(cx, object);
        }
        self.send_due_parts(cx);
    }

    /// Goes on with objects under way, part by part: a whole object at once would keep devices busy for longer than
    /// a client should wait.
    fn send_due_parts(&mut self, cx: &mut Cx<'_>) {
        let mut later = VecDeque::new();
        while let Some(object) = self.recovery.parts.pop_front() {
            let is_urgent = self.is_urgent(&object);
            let parts_max = if is_urgent { throttle::PARTS_MAX } else { cx.throttle.parts_max(cx.now) };
            if !self.takes_another_part(&object, parts_max) {
                continue;
            }
            let closed = if is_urgent { None } else { cx.throttle.goes_on_at(cx.now) };
            if closed.is_some() {
                self.recovery.resume_at = closed;
                later.push_back(object);
                continue;
            }
            self.take_pace(cx, &object, self.state.part_bytes(cx, &object));
            self.recovery.moves(cx.now);
            match self.recovery.active.get(&object) {
                Some(Work::Pulling { .. }) => self.pull_on(cx, &object),
                Some(Work::Pushing(_)) => self.push_on(cx, &object),
                Some(Work::Reconstructing(_)) => self.collect_parts(cx, &object),
                _ => (), // it turned out damaged, or gone, meanwhile
            }
        }
        self.recovery.parts = later;
    }

    /// A client waits for `object`.
    fn is_urgent(&self, object: &HObject) -> bool {
        self.pipeline.is_waited_for(&object.to_head())
    }

    /// Counts what recovery moves of an object, unless a client waits for it: that goes at once, and nothing else pays for it.
    fn take_pace(&self, cx: &mut Cx<'_>, object: &HObject, bytes: u64) {
        if !self.is_urgent(object) {
            cx.throttle.take(cx.now, bytes);
        }
    }

    /// Clients that wait for an object under way go before the pace.
    fn hurry(&mut self, head: &HObject) {
        let family = head.with_snap(SnapId(0))..=head.with_snap(SnapId::SNAPDIR);
        let under_way = self.recovery.active.range(family).map(|(object, _)| object.clone());
        for object in under_way.collect::<Vec<_>>() {
            if matches!(self.recovery.active.get(&object), Some(Work::Pushing(_))) {
                self.recovery.part_is_due(&object);
            }
        }
    }

    /// Recovers `object`, at once or when writes to it that have begun are durable: what is copied must not change.
    fn recover_in_turn(&mut self, cx: &mut Cx<'_>, object: HObject) {
        if self.pipeline.has_writes(&object.to_head()) {
            self.recovery.draining.insert(object);
        } else {
            self.recover(cx, object);
        }
    }

    fn recover_drained(&mut self, cx: &mut Cx<'_>) {
        for object in std::mem::take(&mut self.recovery.draining) {
            self.recover_in_turn(cx, object);
        }
    }

    fn missing_family(&self, head: &HObject) -> BTreeSet<HObject> {
        let families = self.state.copies_missing().flat_map(|missing| missing.family(head));
        families.map(|(object, _)| object.clone()).filter(|object| !self.recovery.is_taken(object)).collect()
    }

    /// The next object that some copy misses and nobody works on.
    fn next_missing(&mut self, kind: Kind) -> Option<HObject> {
        loop {
            let cursor = self.recovery.cursor.clone()?;
            let lists = self.state.missing_of(kind);
            let next = lists.filter_map(|missing| missing.next_from(&cursor)).min().cloned();
            let Some(object) = next else {
                self.recovery.cursor = None;
                return None;
            };
            self.recovery.cursor = Some(successor(&object));
            if !self.recovery.is_taken(&object) {
                return Some(object);
            }
        }
    }

    /// Does the next thing that `object` needs.
    fn recover(&mut self, cx: &mut Cx<'_>, object: HObject) {
        let first_part = self.state.cost_of(cx, &object).min(self.state.part_bytes(cx, &object));
        self.take_pace(cx, &object, first_part + OBJECT_COST_BYTES);
        self.recovery.moves(cx.now);
        match self.state.missing.need(&object) {
            Some(Eversion::ZERO) => self.drop_here(cx, object),
            Some(need) if self.state.ec.is_some() => self.reconstruct(cx, object, need),
            Some(need) => self.pull(cx, object, need, BTreeSet::new()),
            None => self.push(cx, object),
        }
    }

    /// This copy has `object` durably as it should be: go on with the other copies.
    pub(crate) fn recovered_here(&mut self, cx: &mut Cx<'_>, object: &HObject) {
        self.recovery.active.remove(object);
        self.state.missing.remove(object);
        self.state.stamps.recovered_objects += 1;
        self.state.stamps.repaired_objects += u64::from(self.recovery.repairing.remove(object));
        if self.state.missing.is_empty() {
            self.state.is_whole_again(cx);
        }
        self.go_on_with(cx, &object.to_head());
        self.recover(cx, object.clone());
    }

    /// Messages that waited for an object go on.
    fn go_on_with(&mut self, cx: &mut Cx<'_>, head: &HObject) {
        self.pipeline.wake_recovered(head);
        self.release_object(cx, head);
    }

    /// Nobody who is up can give an object: clients that can are to hold what waits for it.
    fn is_out_of_reach(&mut self, object: HObject) {
        self.pipeline.wake_recovered(&object.to_head());
        self.recovery.unfound.insert(object);
    }

    /// Those who missed `object` when it was sent have it durably. Others may have turned out since to miss it, too.
    fn recovered_there(&mut self, cx: &mut Cx<'_>, object: &HObject) {
        self.state.stamps.recovered_objects += 1;
        if self.state.peers_without(object).is_empty() {
            self.recovered_everywhere(cx, object);
        } else {
            self.recover(cx, object.clone());
        }
    }

    /// No copy misses `object` any more.
    fn recovered_everywhere(&mut self, cx: &mut Cx<'_>, object: &HObject) {
        self.recovery.active.remove(object);
        self.recovery.gave_way.remove(object);
        self.go_on_with(cx, &object.to_head());
        self.note_whole_peers(cx);
    }

    /// Tells copies once that they miss nothing any more, and goes on if that was what the PG waited for.
    fn note_whole_peers(&mut self, cx: &mut Cx<'_>) {
        let whole = |peer: &peering::Peer| peer.is_complete() && !peer.told_complete;
        let whole: Vec<OsdId> =
            self.state.peers.iter().filter(|(_, peer)| whole(peer)).map(|(osd, _)| *osd).collect();
        for osd in whole {
            self.state.peer_is_whole(cx, osd);
        }
        let _clean = self.finish_if_clean(cx);
        self.reconsider_serving(cx);
    }

    /// Some OSD went down: objects that were to come from it come from another one.
    pub(crate) fn forget_dead_sources(&mut self) {
        let map = &self.state.map;
        self.recovery.active.retain(|_, work| match work {
            Work::Pulling { from, .. } => peering::is_up(map, *from),
            Work::Reconstructing(work) => !work.lost_source(|osd| peering::is_up(map, osd)),
            _ => true,
        });
        self.recovery.retry_unfound();
    }
}

/// The first object behind `object`.
fn successor(object: &HObject) -> HObject {
    match object.snap.0.checked_add(1) {
        Some(snap) => object.with_snap(SnapId(snap)),
        None => HObject { name: [&object.name[..], &[0]].concat().into(), snap: SnapId(0), ..object.clone() },
    }
}
