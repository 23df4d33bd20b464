//! [`Reservation`]: a primary's slots for the recovery of its PG, and a member's slot for its primary.
//!
//! ```text
//!  primary                         member
//!  ask here, granted
//!     --- Request(number) ------->  ask there
//!     <-- Grant(number) ----------  granted          ... the next member, in ascending order
//!  recover                                           all granted
//!     --- Release(number) ------->  give back        nothing left of that kind
//!     <-- Revoke(number) ---------  preempted        the primary gives all back, and asks anew
//! ```

use super::Kind;
use crate::phase::Phase;
use crate::state::PgState;
use crate::{Cx, Decision, Effect, Side};
use nacre_msg::peer::{Reserve, ReserveStep};
use nacre_types::OsdId;
use std::collections::BTreeSet;

/// Ceph's `OSD_RECOVERY_PRIORITY_FORCED` and `OSD_BACKFILL_PRIORITY_FORCED`.
const PRIORITY_FORCED_RECOVERY: u32 = 255;
const PRIORITY_FORCED_BACKFILL: u32 = 254;
/// Ceph's `OSD_*_PRIORITY_BASE`: work without which nothing is served, whatever it is.
const PRIORITY_INACTIVE: u32 = 220;
const PRIORITY_RECOVERY: u32 = 180;
const PRIORITY_BACKFILL_DEGRADED: u32 = 140;
const PRIORITY_BACKFILL: u32 = 100;

/// A primary's slots in one round of recovery.
#[derive(Debug)]
struct Reservation {
    kind: Kind,
    number: u64,
    priority: u32,
    /// The slot here.
    local: bool,
    /// Members that have granted one.
    granted: BTreeSet<OsdId>,
    /// Members that were asked and have not answered.
    asked: Option<OsdId>,
}

/// The slots of one copy: as primary, for what it recovers, and as member, for its primary.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    own: Option<Reservation>,
    last_number: u64,
    /// The number of the primary's request for a slot here.
    for_primary: Option<u64>,
    /// An operator wants this PG's recovery before others'.
    pub(crate) forced_recovery: bool,
    /// Or its backfill.
    pub(crate) forced_backfill: bool,
}

impl Reservations {
    /// This copy, as primary, neither has slots nor asks for any.
    pub(crate) fn has_none(&self) -> bool {
        self.own.is_none()
    }

    /// All slots are there for this kind of work.
    pub(crate) fn allow(&self, kind: Kind) -> bool {
        self.own.as_ref().is_some_and(|reservation| {
            reservation.kind == kind && reservation.local && reservation.asked.is_none()
        })
    }
}

impl Reservations {
    /// Reserves what the work that is due needs, if it may go on now, and gives back what it does not.
    pub(crate) fn update(&mut self, state: &PgState, cx: &mut Cx<'_>, due: Option<Kind>) {
        let active = matches!(state.phase, Phase::Active { .. });
        let due = due.filter(|kind| active && state.is_permitted(*kind));
        if self.own.as_ref().map(|reservation| reservation.kind) == due {
            return;
        }
        self.release(state, cx);
        let Some(kind) = due else { return };
        self.last_number += 1;
        let (number, priority) = (self.last_number, self.priority(state, kind));
        let granted = BTreeSet::new();
        self.own = Some(Reservation { kind, number, priority, local: false, granted, asked: None });
        cx.effects.push(Effect::Reserve { side: Side::Local, number, priority });
    }

    /// As Ceph's `get_recovery_priority` and `get_backfill_priority`.
    fn priority(&self, state: &PgState, kind: Kind) -> u32 {
        let short =
            |of: u8| u32::from(of).saturating_sub(u32::try_from(state.interval.acting.len()).unwrap_or(0));
        match kind {
            Kind::Recovery if self.forced_recovery => PRIORITY_FORCED_RECOVERY,
            Kind::Backfill if self.forced_backfill => PRIORITY_FORCED_BACKFILL,
            _ if !state.phase.is_serving() => PRIORITY_INACTIVE + short(state.interval.min_size),
            Kind::Recovery => PRIORITY_RECOVERY,
            Kind::Backfill if state.is_degraded() => PRIORITY_BACKFILL_DEGRADED + short(state.interval.size),
            Kind::Backfill => PRIORITY_BACKFILL,
        }
    }

    /// An operator wants this kind of work on this PG done before others' (or in turn again). As in Ceph a PG
    /// with nothing to do is left as it is, and the order holds until the PG is clean.
    pub(crate) fn force(&mut self, state: &PgState, cx: &mut Cx<'_>, kind: Kind, forced: bool) {
        let due = state.is_degraded()
            || state.missing_of(kind).any(|missing| !missing.is_empty())
            || (kind == Kind::Backfill && state.has_more_to_compare());
        let held = match kind {
            Kind::Recovery => &mut self.forced_recovery,
            Kind::Backfill => &mut self.forced_backfill,
        };
        if *held == forced || (forced && !(due && state.interval.primary == state.whoami)) {
            return;
        }
        *held = forced;
        if self.own.as_ref().is_some_and(|reservation| reservation.kind == kind) {
            self.release(state, cx); // and it asks again, under its new priority
        }
    }

    /// There is nothing left to force.
    pub(crate) fn forget_forced(&mut self) {
        (self.forced_recovery, self.forced_backfill) = (false, false);
    }

    /// Gives all slots back: the work is done, has to stop, or the interval is over.
    pub(crate) fn release(&mut self, state: &PgState, cx: &mut Cx<'_>) {
        let Some(reservation) = self.own.take() else { return };
        cx.effects.push(Effect::Unreserve { side: Side::Local });
        for osd in reservation.granted.into_iter().chain(reservation.asked) {
            let (header, number) = (state.header(), reservation.number);
            state.send(cx, osd, Reserve { header, number, step: ReserveStep::Release, priority: 0 });
        }
    }

    /// The interval is over: nobody holds a slot for it any more.
    pub(crate) fn cancel(&mut self, state: &PgState, cx: &mut Cx<'_>) {
        self.release(state, cx);
        self.release_for_primary(cx);
    }

    fn release_for_primary(&mut self, cx: &mut Cx<'_>) {
        if self.for_primary.take().is_some() {
            cx.effects.push(Effect::Unreserve { side: Side::Remote });
        }
    }

    /// Messages between the primary and this copy were lost, so that they may not agree about the slot.
    pub(crate) fn revoke_for_primary(&mut self, state: &PgState, cx: &mut Cx<'_>) {
        let Some(number) = self.for_primary else { return };
        self.release_for_primary(cx);
        let (header, step) = (state.header(), ReserveStep::Revoke);
        state.send(cx, state.interval.primary, Reserve { header, number, step, priority: 0 });
    }

    /// The OSD has decided about a slot here.
    pub(crate) fn on_decision(&mut self, state: &PgState, cx: &mut Cx<'_>, decision: Decision) {
        match decision.side {
            Side::Remote if self.for_primary == Some(decision.number) => {
                let step = if decision.granted { ReserveStep::Grant } else { ReserveStep::Revoke };
                if !decision.granted {
                    self.for_primary = None;
                }
                let (header, number) = (state.header(), decision.number);
                state.send(cx, state.interval.primary, Reserve { header, number, step, priority: 0 });
            }
            Side::Local if self.is_current(decision.number) => {
                if let Some(reservation) = self.own.as_mut().filter(|_| decision.granted) {
                    reservation.local = true;
                    self.reserve_next(state, cx);
                } else {
                    self.release(state, cx); // and ask again, behind the others
                }
            }
            Side::Local | Side::Remote => (), // of a request that was taken back
        }
    }

    fn is_current(&self, number: u64) -> bool {
        self.own.as_ref().is_some_and(|reservation| reservation.number == number)
    }

    /// Asks the next member that is to be brought up to date.
    fn reserve_next(&mut self, state: &PgState, cx: &mut Cx<'_>) {
        let header = state.header();
        let Some(reservation) = &mut self.own else { return };
        let kind = reservation.kind;
        let targets = state.peers.iter().filter(|(_, peer)| kind.is_due_at(peer)).map(|(osd, _)| *osd);
        reservation.asked = { targets }.find(|osd| !reservation.granted.contains(osd));
        let (number, priority) = (reservation.number, reservation.priority);
        if let Some(osd) = reservation.asked {
            state.send(cx, osd, Reserve { header, number, step: ReserveStep::Request, priority });
        }
    }

    /// The other side of a reservation speaks.
    pub(crate) fn on_reserve(&mut self, state: &PgState, cx: &mut Cx<'_>, from: OsdId, message: &Reserve) {
        let from_primary = from == state.interval.primary;
        match message.step {
            ReserveStep::Request if from_primary && matches!(state.phase, Phase::Replica) => {
                let (number, priority) = (message.number, message.priority);
                self.for_primary = Some(number);
                cx.effects.push(Effect::Reserve { side: Side::Remote, number, priority });
            }
            ReserveStep::Release if from_primary && self.for_primary == Some(message.number) => {
                self.release_for_primary(cx);
            }
            ReserveStep::Grant if self.is_current(message.number) => {
                let Some(reservation) =
                    self.own.as_mut().filter(|reservation| reservation.asked == Some(from))
                else {
                    return;
                };
                reservation.asked = None;
                reservation.granted.insert(from);
                self.reserve_next(state, cx);
            }
            ReserveStep::Revoke if self.is_current(message.number) => {
                self.release(state, cx);
            }
            _ => (), // of an earlier round
        }
    }
}
