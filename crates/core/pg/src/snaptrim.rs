//! Removing the clones of removed snapshots, in the background and a bounded number at a time.

use crate::backend::{Ends, RepGather};
use crate::object::ObjectContext;
use crate::ops::Env;
use crate::snap::{mapper, trim_object};
use crate::tokens::OnDurable;
use crate::{Cx, Effect, Pg};
use nacre_maps::flags;
use nacre_txn::Transaction;
use nacre_types::{HObject, IntervalSet, SnapId, Stamp};
use smallvec::SmallVec;

/// Clones trimmed at a time in one PG.
pub(crate) const TRIMS_MAX: usize = 16;

/// Snapshots that turn out to have no clones here, in one event: there may be millions of those as well.
const PURGES_MAX: usize = 64;

/// What is left to trim.
#[derive(Debug, Default)]
pub(crate) struct SnapTrim {
    /// Removed snapshots whose clones may still be here.
    queue: IntervalSet,
    in_flight: usize,
    /// More could be trimmed as soon as the view shows the last trim.
    put_off: bool,
    /// More can be, in a turn of its own.
    due: Option<Stamp>,
}

impl SnapTrim {
    /// When it goes on.
    pub(crate) fn due(&self) -> Option<Stamp> {
        self.due
    }

    /// Snapshots whose clones may still be here.
    pub(crate) fn queued(&self) -> u64 {
        self.queue.total()
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

impl Pg {
    /// Takes in which snapshots the map says are removed.
    pub(crate) fn queue_removed_snaps(&mut self) {
        let removed = &self.state.pool.removed_snaps;
        if !self.state.info.purged_snaps.is_empty() {
            // The monitor has taken those out that every PG reported; nobody asks about them again.
            self.state.info.purged_snaps = self.state.info.purged_snaps.intersection(removed);
        }
        self.snaptrim.queue = removed.clone();
        self.snaptrim.queue.subtract(&self.state.info.purged_snaps);
    }

    /// Trims some clones. Called on each tick.
    pub(crate) fn trim_snaps(&mut self, cx: &mut Cx<'_>) {
        (self.snaptrim.put_off, self.snaptrim.due) = (false, None);
        let mut purges_left = PURGES_MAX;
        let paused = self.state.map.has_flag(flags::osdmap::NOSNAPTRIM);
        while !paused && self.snaptrim.in_flight < TRIMS_MAX && self.state.is_recovered() && self.is_active()
        {
            let Some((first, _)) = self.snaptrim.queue.iter().next() else { return };
            if self.state.view_is_stale {
                self.snaptrim.put_off = true;
                return;
            }
            let snap = SnapId(first);
            let clones = mapper::clones(cx.view, &self.state.spg, snap, TRIMS_MAX);
            if clones.is_empty() {
                if self.snaptrim.in_flight > 0 {
                    return; // purged is what no member has any more
                }
                if purges_left == 0 {
                    self.snaptrim.due = Some(cx.now);
                    return;
                }
                purges_left -= 1;
                self.snap_is_purged(cx, snap);
                continue;
            }
            if !clones.iter().any(|clone| self.trim_clone(cx, clone, snap)) {
                return; // all of them are in use; the next tick tries again
            }
        }
    }

    fn snap_is_purged(&mut self, cx: &mut Cx<'_>, snap: SnapId) {
        self.snaptrim.queue.remove(snap.0, 1);
        self.state.info.purged_snaps.insert(snap.0, 1);
        cx.effects.push(Effect::Purged { pg: self.state.spg.pg, snaps: IntervalSet::of(snap.0, 1) });
        if self.snaptrim.queue.is_empty() {
            self.state.share_progress(cx);
        }
    }

    /// Trims one clone; false when its object is in use just now.
    fn trim_clone(&mut self, cx: &mut Cx<'_>, clone: &HObject, snap: SnapId) -> bool {
        let head = clone.to_head();
        if self.recovery.must_recover(&self.state, &head, true) || !self.pipeline.is_undisturbed(&head) {
            return false;
        }
        let context = ObjectContext::load(cx.view, &self.state.spg, &head).unwrap_or_default();
        let env = Env {
            view: cx.view,
            collection: self.state.spg,
            pool: &self.state.pool,
            epoch: self.state.map.epoch,
            now: cx.wall,
            at_version: self.state.next_version(),
            last_user_version: self.state.info.last_user_version,
            notify_id: 0,
            entropy: &mut *cx.entropy,
            work: 0,
        };
        let Ok(trim) = trim_object(&env, &head, &context, clone.snap, snap) else {
            // The entry is stale, or the clone damaged beyond what trimming can use: nothing to remove.
            let mut txn = Transaction::new(self.state.spg);
            mapper::remove(clone, &[snap], &mut txn.ops);
            self.state.submit(cx, txn, OnDurable::Nothing);
            return true;
        };
        self.pipeline.write_started(&head);
        self.snaptrim.in_flight += 1;
        let txn = Transaction { collection: self.state.spg, ops: trim.ops };
        self.submit_write(
            cx,
            txn,
            trim.entries,
            RepGather { head, after: SmallVec::new(), ends: Ends::Trim },
        );
        true
    }

    /// A trim is durable everywhere. The next one is a matter of the next turn: a store may be done at once, again and again.
    pub(crate) fn trimmed(&mut self, cx: &Cx<'_>) {
        self.snaptrim.in_flight = self.snaptrim.in_flight.saturating_sub(1);
        self.snaptrim.due = Some(cx.now);
    }

    /// The interval is over, and with it what was in flight.
    pub(crate) fn cancel_trims(&mut self) {
        (self.snaptrim.in_flight, self.snaptrim.put_off, self.snaptrim.due) = (0, false, None);
    }
}
