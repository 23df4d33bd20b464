//! [`Patience`]: when a copy that waits for a peer's answer during peering begins anew, since messages may have been lost.
//!
//! Sessions between OSDs lose nothing while they last, and both sides hear when one is reset. But queues have bounds, and
//! what does not fit is dropped. An OSD that drops something takes it as a reset of that session ([`Peering::note_lost`]): both
//! sides then find out anew what the other has. What nobody noticed is found by the clock: a primary that waits for a
//! peer too long peers anew, a copy that its primary never spoke to introduces itself again. Each time it waits twice as
//! long, so that a slow peer is not kept from ever answering. A scrub asks again by itself (`scrub/mod.rs`).

use super::Peering;
use crate::phase::Phase;
use crate::state::PgState;
use nacre_types::{OsdId, Stamp};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long peers may be silent during peering, at first.
const WAIT_FIRST: Duration = Duration::from_secs(10);
/// And at last.
const WAIT_MAX: Duration = Duration::from_secs(600);
/// Writes and recovery wait for other members' devices: so many times as long.
const ACTIVE_FACTOR: u32 = 3;

/// How long this copy has waited for others in this interval, and how long it will.
#[derive(Debug)]
pub(crate) struct Patience {
    /// When the event that is being handled came.
    now: Stamp,
    /// When a peer last spoke, or a phase began.
    heard_at: Stamp,
    wait: Duration,
    /// The primary has spoken to this copy in this interval.
    called: bool,
    /// OSDs of which a message was dropped.
    lost: BTreeSet<OsdId>,
    /// An incomplete PG is to peer again: the operator has changed what counts.
    again: bool,
}

impl Default for Patience {
    fn default() -> Self {
        let (now, heard_at) = (Stamp::default(), Stamp::default());
        Self { now, heard_at, wait: WAIT_FIRST, called: false, lost: BTreeSet::new(), again: false }
    }
}

impl Patience {
    /// An event is handled.
    pub(crate) fn wake(&mut self, now: Stamp) {
        self.now = now;
    }

    /// A peer has spoken, or there is something new to wait for.
    pub(crate) fn begin(&mut self) {
        self.heard_at = self.now;
    }

    /// Begins anew, as in another interval.
    pub(crate) fn renew(&mut self) {
        (self.wait, self.called) = (WAIT_FIRST, false);
        self.begin();
    }

    /// What a choice rests on has changed.
    pub(crate) fn look_again(&mut self) {
        self.again = true;
    }

    /// The primary knows of this copy.
    pub(super) fn is_called(&mut self) {
        self.called = true;
    }
}

impl Peering {
    /// A message of `from` had to be dropped.
    pub(crate) fn note_lost(&mut self, from: OsdId) {
        self.patience.lost.insert(from);
    }

    /// Members of which messages had to be dropped.
    pub(crate) fn take_lost(&mut self) -> BTreeSet<OsdId> {
        std::mem::take(&mut self.patience.lost)
    }

    /// The operator has changed what counts, and the PG was incomplete by what counted before.
    pub(crate) fn looks_again(&mut self, state: &PgState) -> bool {
        std::mem::take(&mut self.patience.again) && matches!(state.phase, Phase::Incomplete)
    }

    /// True when this copy has waited for others for too long; from now on it waits twice as long.
    pub(crate) fn is_out_of_patience(
        &mut self,
        state: &PgState,
        now: Stamp,
        active_since: impl FnOnce() -> Option<Stamp>,
    ) -> bool {
        let Some((since, wait)) = self.waits_for_peers(state, active_since) else { return false };
        if now.since(since) < wait {
            return false;
        }
        self.patience.wait = (self.patience.wait * 2).min(WAIT_MAX);
        self.patience.begin();
        true
    }

    /// Since when this copy waits for others, and how long it does. Writes and recovery wait since `active_since`.
    fn waits_for_peers(
        &self,
        state: &PgState,
        active_since: impl FnOnce() -> Option<Stamp>,
    ) -> Option<(Stamp, Duration)> {
        let (since, wait) = (self.patience.heard_at, self.patience.wait);
        let on_others = |waiting: &BTreeSet<OsdId>| waiting.iter().any(|osd| *osd != state.whoami);
        match &state.phase {
            Phase::GetInfo { waiting } | Phase::Activating { waiting, .. } => {
                on_others(waiting).then_some((since, wait))
            }
            Phase::GetLog { .. } => Some((since, wait)),
            Phase::Stray => (!state.is_primary() && !self.patience.called).then_some((since, wait)),
            Phase::Active { .. } => Some((active_since()?, wait * ACTIVE_FACTOR)),
            Phase::Replica
            | Phase::WaitActingChange { .. }
            | Phase::WaitUpThru
            | Phase::Down { .. }
            | Phase::Incomplete => None,
        }
    }
}
