//! Removing the clones of removed snapshots, in the background and a bounded number at a time.

mod trim;

pub(crate) use trim::{TrimError, trim_object};

use crate::backend::{Ends, OwnChange};
use crate::object::ObjectContext;
use crate::ops::Env;
use crate::snap::mapper;
use crate::state::PgState;
use crate::tokens::OnDurable;
use crate::{Cx, Effect};
use nacre_maps::flags;
use nacre_txn::Transaction;
use nacre_types::{HObject, IntervalSet, SnapId, Stamp};
use std::collections::BTreeSet;
use std::time::Duration;

/// Clones trimmed at a time in one PG.
pub(crate) const TRIMS_MAX: usize = 16;

/// Snapshots that turn out to have no clones here, in one event: there may be millions of those as well.
const PURGES_MAX: usize = 64;

/// Snapshots whose clones are damaged are tried again after so long, or with the next map.
const DAMAGED_RETRY: Duration = Duration::from_secs(600);

/// What is left to trim.
#[derive(Debug, Default)]
pub(crate) struct SnapTrim {
    /// Removed snapshots whose clones may still be here.
    queue: IntervalSet,
    /// Clones of the first of them that cannot be trimmed before they are repaired.
    damaged: BTreeSet<HObject>,
    /// Snapshots that only have such clones, and when they are tried again.
    set_aside: u64,
    retry_at: Option<Stamp>,
    in_flight: usize,
    /// More could be trimmed as soon as the view shows the last trim.
    put_off: bool,
    /// More can be, in a turn of its own.
    due: Option<Stamp>,
}

/// What is left to one round of trims.
pub(crate) struct TrimRound {
    purges_left: usize,
}

impl SnapTrim {
    /// When it goes on.
    pub(crate) fn due(&self) -> Option<Stamp> {
        self.due
    }

    /// Snapshots whose clones may still be here.
    pub(crate) fn queued(&self) -> u64 {
        self.queue.total() + self.set_aside
    }

    /// True when all that are left have damaged clones only.
    pub(crate) fn has_failed(&self) -> bool {
        self.set_aside > 0 && self.queue.is_empty()
    }

    /// True when trimming goes on with the next event.
    pub(crate) fn is_put_off(&self) -> bool {
        self.put_off
    }

    /// True while clones are being removed.
    pub(crate) fn is_busy(&self) -> bool {
        self.in_flight > 0
    }
}

impl SnapTrim {
    /// Takes in which snapshots the map says are removed. Those that were set aside because clones are damaged come again.
    pub(crate) fn queue_removed_snaps(&mut self, state: &mut PgState) {
        let (removed, purged) = (&state.pool.removed_snaps, &mut state.info.purged_snaps);
        if !purged.is_empty() {
            // The monitor has taken those out that every PG reported; no OSD asks about them again.
            *purged = purged.intersection(removed);
        }
        self.queue = removed.clone();
        self.queue.subtract(purged);
        self.damaged.clear();
        (self.set_aside, self.retry_at) = (0, None);
    }

    /// Begins a round of trims, on each tick and when one is durable everywhere: call [`SnapTrim::next`] until `None`.
    pub(crate) fn begin_round(&mut self, state: &mut PgState, now: Stamp) -> TrimRound {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.queue_removed_snaps(state);
        }
        (self.put_off, self.due) = (false, None);
        TrimRound { purges_left: PURGES_MAX }
    }

    /// The next change of this round, to be submitted before the next call. `is_in_use` says whether a change of the object has to wait.
    pub(crate) fn next(
        &mut self,
        round: &mut TrimRound,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        is_in_use: impl Fn(&PgState, &HObject) -> bool,
    ) -> Option<OwnChange> {
        let paused = state.map.has_flag(flags::osdmap::NOSNAPTRIM);
        while !paused && self.in_flight < TRIMS_MAX && state.is_recovered() && state.is_active() {
            let (first, _) = self.queue.iter().next()?;
            if state.view_is_stale {
                self.put_off = true;
                return None;
            }
            let snap = SnapId(first);
            let mut clones = mapper::clones(cx.view, &state.spg, snap, TRIMS_MAX + self.damaged.len());
            clones.retain(|clone| !self.damaged.contains(clone));
            if clones.is_empty() && !self.damaged.is_empty() {
                self.queue.remove(snap.0, 1);
                self.damaged.clear();
                self.set_aside += 1;
                self.retry_at.get_or_insert(cx.now + DAMAGED_RETRY);
                continue;
            }
            if clones.is_empty() {
                if self.in_flight > 0 {
                    return None; // purged is what no member has any more
                }
                if round.purges_left == 0 {
                    self.due = Some(cx.now);
                    return None;
                }
                round.purges_left -= 1;
                self.snap_is_purged(state, cx, snap);
                continue;
            }
            // All of them in use: the next tick tries again.
            let clone = clones.iter().find(|clone| !is_in_use(state, &clone.to_head()))?;
            if let Some(change) = self.trim_clone(state, cx, clone, snap) {
                return Some(change);
            }
        }
        None
    }

    fn snap_is_purged(&mut self, state: &mut PgState, cx: &mut Cx<'_>, snap: SnapId) {
        self.queue.remove(snap.0, 1);
        state.info.purged_snaps.insert(snap.0, 1);
        cx.effects.push(Effect::Purged { pg: state.spg.pg, snaps: IntervalSet::of(snap.0, 1) });
        if self.queue.is_empty() {
            state.share_progress(cx);
        }
    }

    /// The change that trims one clone; none for a stale entry, which is removed here, and for a damaged clone.
    fn trim_clone(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        clone: &HObject,
        snap: SnapId,
    ) -> Option<OwnChange> {
        let head = clone.to_head();
        let Ok(context) = ObjectContext::load(cx.view, &state.spg, &head) else {
            self.damaged.insert(clone.clone());
            return None;
        };
        let env = Env {
            view: cx.view,
            collection: state.spg,
            pool: &state.pool,
            epoch: state.map.epoch,
            now: cx.wall,
            at_version: state.next_version(),
            last_user_version: state.info.last_user_version,
            notify_id: 0,
            entropy: &mut *cx.entropy,
            limits: state.message_limits,
            work: 0,
        };
        let trim = match trim_object(&env, &head, &context, clone.snap, snap) {
            Ok(trim) => trim,
            Err(TrimError::UnknownClone { .. }) => {
                let mut txn = Transaction::new(state.spg);
                mapper::remove(clone, &[snap], &mut txn.ops);
                state.submit(cx, txn, OnDurable::Nothing);
                return None;
            }
            Err(TrimError::Damaged { .. }) => {
                self.damaged.insert(clone.clone());
                return None;
            }
        };
        self.in_flight += 1;
        let txn = Transaction { collection: state.spg, ops: trim.ops };
        Some(OwnChange { head, txn, entries: trim.entries, ends: Ends::Trim })
    }

    /// A trim is durable everywhere. The next one is a matter of the next turn: a store may be done at once, again and again.
    pub(crate) fn trimmed(&mut self, now: Stamp) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.due = Some(now);
    }

    /// The interval is over, and with it what was in flight.
    pub(crate) fn cancel(&mut self) {
        (self.in_flight, self.put_off, self.due) = (0, false, None);
    }
}
