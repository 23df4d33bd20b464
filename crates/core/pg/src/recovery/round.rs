//! [`RecoveryRound`]: what recovery begins, or goes on with, behind every event.
//!
//! In this order: what had to wait for writes, what clients wait for, parts that are due of objects under way, and what is next in turn, as
//! far as slots and the throttle allow. A step that comes to an outcome stops the round until that was followed: messages that go on
//! may be writes, which the next object has to wait for.

use super::{Kind, Recovery, RecoveryOutcome, Reservations, Work, take_pace};
use crate::Cx;
use crate::pipeline::ObjectUse;
use crate::state::PgState;
use crate::throttle::PARTS_MAX;
use nacre_types::{HObject, SnapId};
use std::collections::{BTreeSet, VecDeque};

/// How far recovery has come behind one event.
#[derive(Debug, Default)]
pub(crate) struct RecoveryRound {
    step: Step,
    /// Those left that had to wait for writes.
    drained: Option<BTreeSet<HObject>>,
    /// Clients wait for this one.
    urgent: Option<HObject>,
    /// Those left of an object that clients wait for, and of its clones.
    family: BTreeSet<HObject>,
    /// The kind of work that is in turn, once it is known.
    kind: Option<Kind>,
    /// Their next part is not due yet.
    later: VecDeque<HObject>,
}

/// The order of a [`RecoveryRound`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Step {
    #[default]
    Drained,
    Urgent,
    Parts,
    InTurn,
    LastParts,
    Done,
}

impl Recovery {
    /// Begins to start recoveries as far as the limit allows, after every event; `None` when there is nothing to do, as after almost
    /// every one. Call [`Recovery::next`] until `None`.
    pub(crate) fn begin_round(&mut self, state: &PgState, has_slots: bool) -> Option<RecoveryRound> {
        self.resume_at = None;
        let is_idle = self.is_at_rest() && !has_slots && state.is_whole_everywhere();
        (!is_idle).then(RecoveryRound::default)
    }

    /// Starts recoveries until one of them has an outcome, or all that may start have. `slots` are those for `due`.
    pub(crate) fn next(
        &mut self,
        round: &mut RecoveryRound,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        ops: ObjectUse<'_>,
        slots: &Reservations,
    ) -> Option<RecoveryOutcome> {
        loop {
            let outcome = match round.step {
                Step::Drained => self.recover_drained(round, state, cx, ops),
                Step::Urgent => self.recover_urgent(round, state, cx, ops),
                Step::Parts | Step::LastParts => self.send_due_parts(round, state, cx, ops),
                Step::InTurn => self.recover_next(round, state, cx, ops, slots),
                Step::Done => return None,
            };
            if outcome.is_some() {
                return outcome;
            }
        }
    }

    /// What waited for writes that had begun.
    fn recover_drained(
        &mut self,
        round: &mut RecoveryRound,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        ops: ObjectUse<'_>,
    ) -> Option<RecoveryOutcome> {
        let drained = round.drained.get_or_insert_with(|| std::mem::take(&mut self.draining));
        let Some(object) = drained.pop_first() else {
            round.step = Step::Urgent;
            return None;
        };
        self.recover_in_turn(state, cx, ops, object)
    }

    /// What clients wait for, beyond the limit.
    fn recover_urgent(
        &mut self,
        round: &mut RecoveryRound,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        ops: ObjectUse<'_>,
    ) -> Option<RecoveryOutcome> {
        if let Some(object) = round.family.pop_first() {
            return self.recover_in_turn(state, cx, ops, object);
        }
        if let Some(head) = round.urgent.take() {
            round.family = self.missing_family(state, &head);
            return None;
        }
        let Some(head) = self.urgent.pop_front() else {
            round.step = Step::Parts;
            return None;
        };
        self.hurry(&head);
        let goes_on = !self.must_recover(state, &head, true); // it was given up, or no copy lacks it any more
        round.urgent = Some(head.clone());
        goes_on.then(|| RecoveryOutcome::GoOn(head))
    }

    /// What is next in turn, as far as the limit allows.
    fn recover_next(
        &mut self,
        round: &mut RecoveryRound,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        ops: ObjectUse<'_>,
        slots: &Reservations,
    ) -> Option<RecoveryOutcome> {
        let kind = match round.kind {
            Some(kind) => kind,
            None => {
                round.step = Step::Done;
                let kind = self.due(state).filter(|_| self.resume_at.is_none())?;
                if kind == Kind::Backfill {
                    self.compare_on(state, cx, slots.allow(kind));
                }
                if self.kind != Some(kind) {
                    (self.kind, self.cursor) = (Some(kind), Some(HObject::MIN));
                }
                round.step = Step::InTurn;
                *round.kind.insert(kind)
            }
        };
        if slots.allow(kind) && self.active.len() + self.draining.len() < cx.throttle.objects_max(cx.now) {
            self.resume_at = cx.throttle.begins_at(cx.now);
            if self.resume_at.is_some() {
                round.step = Step::Done;
                return None;
            }
            if let Some(object) = self.next_missing(state, kind) {
                return self.recover_in_turn(state, cx, ops, object);
            }
        }
        round.step = Step::LastParts;
        None
    }

    /// Goes on with objects under way, part by part: a whole object at once would keep devices busy for longer than
    /// a client should wait.
    fn send_due_parts(
        &mut self,
        round: &mut RecoveryRound,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        ops: ObjectUse<'_>,
    ) -> Option<RecoveryOutcome> {
        let Some(object) = self.parts.pop_front() else {
            self.parts = std::mem::take(&mut round.later);
            round.step = if round.step == Step::Parts { Step::InTurn } else { Step::Done };
            return None;
        };
        let is_urgent = ops.is_waited_for(&object);
        let parts_max = if is_urgent { PARTS_MAX } else { cx.throttle.parts_max(cx.now) };
        if !self.takes_another_part(&object, parts_max) {
            return None;
        }
        let closed = if is_urgent { None } else { cx.throttle.goes_on_at(cx.now) };
        if closed.is_some() {
            self.resume_at = closed;
            round.later.push_back(object);
            return None;
        }
        let bytes = state.part_bytes(cx, &object);
        take_pace(cx, ops, &object, bytes);
        self.moves(cx.now);
        match self.active.get(&object) {
            Some(Work::Pulling { .. }) => {
                self.pull_on(state, cx, &object);
                None
            }
            Some(Work::Pushing(_)) => self.push_on(state, cx, &object),
            Some(Work::Reconstructing(_)) => self.collect_parts(state, cx, &object),
            _ => None, // it turned out damaged, or gone, meanwhile
        }
    }

    /// Clients that wait for an object under way go before the pace.
    fn hurry(&mut self, head: &HObject) {
        let family = head.with_snap(SnapId(0))..=head.with_snap(SnapId::SNAPDIR);
        let under_way = self.active.range(family).map(|(object, _)| object.clone());
        for object in under_way.collect::<Vec<_>>() {
            if matches!(self.active.get(&object), Some(Work::Pushing(_))) {
                self.part_is_due(&object);
            }
        }
    }

    /// Recovers `object`, at once or when writes to it that have begun are durable: what is copied must not change.
    fn recover_in_turn(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        ops: ObjectUse<'_>,
        object: HObject,
    ) -> Option<RecoveryOutcome> {
        if ops.has_writes(&object) {
            self.draining.insert(object);
            return None;
        }
        self.recover(state, cx, ops, object)
    }

    fn missing_family(&self, state: &PgState, head: &HObject) -> BTreeSet<HObject> {
        let families = state.copies_missing().flat_map(|missing| missing.family(head));
        families.map(|(object, _)| object.clone()).filter(|object| !self.is_taken(object)).collect()
    }

    /// The next object that some copy misses and nobody works on.
    fn next_missing(&mut self, state: &PgState, kind: Kind) -> Option<HObject> {
        loop {
            let cursor = self.cursor.clone()?;
            let lists = state.missing_of(kind);
            let next = lists.filter_map(|missing| missing.next_from(&cursor)).min().cloned();
            let Some(object) = next else {
                self.cursor = None;
                return None;
            };
            self.cursor = Some(successor(&object));
            if !self.is_taken(&object) {
                return Some(object);
            }
        }
    }
}

/// The first object behind `object`.
fn successor(object: &HObject) -> HObject {
    match object.snap.0.checked_add(1) {
        Some(snap) => object.with_snap(SnapId(snap)),
        None => HObject { name: [&object.name[..], &[0]].concat().into(), snap: SnapId(0), ..object.clone() },
    }
}
