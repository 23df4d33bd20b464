//! The last step of peering: everybody takes over the log, durably; then clients are served.

use super::intervals::{Interval, up_thru};
use super::phase::{Phase, Sync};
use crate::recovery::Backfill;
use crate::state::PgState;
use crate::tokens::OnDurable;
use crate::{Cx, Effect, Pg, Planted};
use nacre_maps::flags;
use nacre_msg::peer::{Activate, Activated, PgInfo, Progress, Release};
use nacre_txn::Transaction;
use nacre_types::{Epoch, OsdId};
use std::collections::BTreeSet;

impl PgState {
    fn send_activate(&self, cx: &mut Cx<'_>, osd: OsdId) {
        let sync = self.sync_of(osd);
        let backfill = sync == Sync::Backfill;
        let since = if let Sync::From(version) = sync { version } else { self.log.tail() };
        let entries = self.log.above(since).collect();
        let (info, past) = (PgInfo { shard: self.shard_of(osd), ..self.info.clone() }, self.past.clone());
        let (header, interval) = (self.header(), self.interval.id());
        self.send(cx, osd, Activate { header, interval, info, since, entries, backfill, past });
    }

    /// Tells all members what is known of the PG and of them, and keeps it.
    pub(crate) fn share_progress(&mut self, cx: &mut Cx<'_>) {
        for osd in self.others() {
            self.send_progress(cx, osd);
        }
        let mut txn = Transaction::new(self.spg);
        self.save_state(&mut txn);
        self.submit(cx, txn, OnDurable::Nothing);
    }

    /// Tells one member.
    pub(crate) fn send_progress(&self, cx: &mut Cx<'_>, osd: OsdId) {
        let Some(peer) = self.peers.get(&osd) else { return };
        let (complete, last_backfill) = (peer.is_complete(), peer.info.last_backfill.clone());
        self.send(
            cx,
            osd,
            Progress { header: self.header(), info: self.info.clone(), complete, last_backfill },
        );
    }

    /// Asks the monitor for what this copy waits for. Asked on each tick: a request may get lost.
    pub(crate) fn ask_monitor_again(&self, cx: &mut Cx<'_>) {
        match &self.phase {
            Phase::WaitUpThru => cx.effects.push(Effect::WantUpThru { epoch: self.interval.since }),
            Phase::WaitActingChange { wanted } => {
                cx.effects.push(Effect::WantPgTemp { pg: self.spg.pg, acting: wanted.clone() });
            }
            _ => (),
        }
        if self.is_recovered() && self.interval.acting != self.interval.up {
            self.give_up_pg_temp(cx);
        }
    }

    fn release_strays(&mut self, cx: &mut Cx<'_>) {
        let members = self.interval.members();
        let strays: Vec<OsdId> = self.peers.keys().copied().filter(|osd| !members.contains(osd)).collect();
        for osd in strays {
            self.peers.remove(&osd);
            self.send(cx, osd, Release { header: self.header() });
        }
    }

    /// True when no member misses anything.
    pub(crate) fn is_recovered(&self) -> bool {
        let complete = |osd| self.peers.get(&osd).is_some_and(|peer| peer.is_complete());
        matches!(self.phase, Phase::Active { .. }) && self.missing.is_empty() && self.others().all(complete)
    }

    /// True when as many copies are there as the pool wants.
    pub(crate) fn is_full_strength(&self) -> bool {
        self.interval.acting.len() >= usize::from(self.interval.size)
    }

    /// True when nothing is left to do.
    pub(crate) fn is_clean(&self) -> bool {
        self.is_recovered() && self.is_full_strength() && self.phase.is_serving()
    }

    pub(crate) fn min_size(&self) -> usize {
        if self.planted == Planted::MinSizeIgnored {
            return 1;
        }
        usize::from(self.interval.min_size.max(1))
    }

    /// When others have more whole copies than the acting set, asks the monitor to let those serve, until the
    /// others have caught up.
    fn wish_pg_temp(&self, cx: &mut Cx<'_>) {
        let whole = |osd| self.is_whole(osd);
        let strays = self.peers.iter().filter(|(_, peer)| !peer.info.is_empty()).map(|(osd, _)| *osd);
        let wanted = self.wanted_acting(strays, whole);
        let serving = self.interval.acting.iter().filter(|osd| whole(**osd)).count();
        if wanted.len() > serving && wanted != self.interval.acting {
            cx.effects.push(Effect::WantPgTemp { pg: self.spg.pg, acting: wanted });
        }
    }

    /// A temporary acting set has done its work once all members have everything; but where CRUSH finds
    /// fewer places than the pool wants copies, those that have one go on.
    fn give_up_pg_temp(&self, cx: &mut Cx<'_>) {
        let wanted = self.wanted_acting(std::iter::empty(), |_| true);
        if wanted != self.interval.acting {
            let acting = if wanted == self.interval.up { Vec::new() } else { wanted };
            cx.effects.push(Effect::WantPgTemp { pg: self.spg.pg, acting });
        }
    }

    /// True for a copy that is whole in itself, or holds a shard that no other one before it does.
    fn adds_shard(&self, osd: OsdId, shards: &mut BTreeSet<u8>) -> bool {
        let stray = || self.peers.get(&osd).and_then(|peer| peer.info.shard);
        self.ec.is_none() || self.shard_of(osd).or_else(stray).is_some_and(|shard| shards.insert(shard))
    }

    /// As many whole copies as the pool wants: first those where CRUSH puts them, then those that serve, then
    /// `strays`. Ceph `PeeringState::calc_replicated_acting`.
    fn wanted_acting(
        &self,
        strays: impl Iterator<Item = OsdId>,
        whole: impl Fn(OsdId) -> bool,
    ) -> Vec<OsdId> {
        let mut wanted = Vec::new();
        let Interval { up, acting, size, .. } = &self.interval;
        let me = std::iter::once(self.whoami);
        let mut shards = BTreeSet::new();
        for osd in up.iter().chain(acting).copied().chain(me).chain(strays) {
            let fits = wanted.len() < usize::from(*size) && !wanted.contains(&osd);
            if fits && super::is_up(&self.map, osd) && whole(osd) && self.adds_shard(osd, &mut shards) {
                wanted.push(osd);
            }
        }
        wanted
    }

    /// Copies of the acting set whose missing objects, if any, the log can tell.
    pub(crate) fn complete_count(&self, counts: impl Fn(&Self, OsdId) -> bool) -> usize {
        let whole = |osd: &&OsdId| {
            if **osd == self.whoami { self.is_whole(**osd) } else { counts(self, **osd) }
        };
        let whole = self.interval.acting.iter().filter(whole);
        if self.ec.is_some() {
            return whole.filter_map(|osd| self.shard_of(*osd)).collect::<BTreeSet<u8>>().len();
        }
        whole.count()
    }
}

impl Pg {
    /// What every copy lacks is known, or will be once it has the log.
    pub(crate) fn ready_to_activate(&mut self, cx: &mut Cx<'_>) {
        self.set_phase(Phase::WaitUpThru);
        self.try_activate(cx);
    }

    /// Activates once the monitor knows that this OSD lives in this interval. A PG that nobody ever
    /// served need not wait: its first interval counts as served whatever the map says.
    pub(crate) fn try_activate(&mut self, cx: &mut Cx<'_>) {
        let first = self.state.interval.since <= self.state.info.history.epoch_created;
        let first = first || self.state.planted == Planted::UpThruNotAwaited;
        if !first && up_thru(&self.state.map, self.state.whoami) < self.state.interval.since {
            cx.effects.push(Effect::WantUpThru { epoch: self.state.interval.since });
            return;
        }
        let epoch = self.state.map.epoch;
        self.state.wish_pg_temp(cx);
        if self.state.complete_count(PgState::is_whole) >= self.state.min_size() {
            self.state.info.last_epoch_started = epoch;
            self.state.info.last_interval_started = self.state.interval.since;
        }
        self.set_phase(Phase::Activating { epoch, waiting: self.state.interval.members() });
        for osd in self.state.others() {
            self.state.send_activate(cx, osd);
        }
        let mut txn = Transaction::new(self.state.spg);
        self.state.save_state(&mut txn);
        self.state.submit(cx, txn, OnDurable::Activation);
        if !self.state.interval.members().contains(&self.state.whoami) {
            self.confirmed(cx, self.state.whoami); // a primary by order (primary_temp) that is no member
        }
    }

    /// A member has the log durably, and says what it misses.
    pub(crate) fn on_activated(&mut self, cx: &mut Cx<'_>, from: OsdId, activated: Activated) {
        if !matches!(&self.state.phase, Phase::Activating { waiting, .. } if waiting.contains(&from)) {
            return;
        }
        let Some(peer) = self.state.peers.get_mut(&from) else { return };
        if activated.info.last_update != self.state.info.last_update {
            peer.info = activated.info;
            return self.restart_peering(cx); // its log turned out to have nothing in common with ours
        }
        peer.missing = activated.missing.into_iter().collect();
        let incomplete = activated.info.is_incomplete();
        peer.backfill = incomplete.then(|| Backfill::from(activated.info.last_backfill.clone()));
        peer.info = activated.info;
        peer.activated = true;
        self.confirmed(cx, from);
    }

    /// `osd` (perhaps this one) has the log durably.
    pub(crate) fn confirmed(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        let Phase::Activating { epoch, waiting } = &mut self.state.phase else { return };
        waiting.remove(&osd);
        if waiting.is_empty() {
            let epoch = *epoch;
            self.all_activated(cx, epoch);
        }
    }

    fn all_activated(&mut self, cx: &mut Cx<'_>, epoch: Epoch) {
        let serving = self.state.info.last_epoch_started == epoch;
        self.set_phase(Phase::Active { serving });
        if serving {
            self.state.info.history.last_epoch_started = epoch;
            self.state.info.history.last_interval_started = self.state.interval.since;
            self.state.past.trim_before(epoch);
            if self.state.ec.is_some() {
                self.state.committed_to = self.state.committed_to.max(self.state.log.head()); // nobody goes behind this activation any more
                self.state.note_safe();
            }
            if self
                .state
                .map
                .pools
                .get(&self.state.spg.pg.pool)
                .is_some_and(|pool| pool.has_flag(flags::pool::CREATING))
            {
                cx.effects.push(Effect::Created(self.state.spg.pg));
            }
        }
        self.state.stamps.activated(cx.wall, serving);
        self.recovery.begin();
        for peer in self.state.peers.values_mut().filter(|peer| peer.is_complete()) {
            (peer.backfill, peer.told_complete) = (None, true); // by the progress that everybody gets now
        }
        if !self.finish_if_clean(cx) {
            self.state.share_progress(cx);
            self.state.report_merge(cx);
        }
        self.pipeline.wake_inactive(); // to be served, or for their clients to hold
        if self.is_active() {
            self.backoffs.release_pg(&self.state, cx);
        }
        self.reconsider_serving(cx);
    }

    /// When nobody misses anything any more: says so to everybody, frees copies that are not needed, gives a
    /// temporary acting set up. True when clean.
    pub(crate) fn finish_if_clean(&mut self, cx: &mut Cx<'_>) -> bool {
        if !self.state.is_recovered() {
            return false;
        }
        self.state.info.last_complete = self.state.info.last_update;
        self.state.info.last_backfill = nacre_types::HObject::max_value();
        if self.state.has_twins() {
            self.state.share_progress(cx);
            self.part_twins(cx);
            return true;
        }
        if self.state.is_full_strength() && self.state.phase.is_serving() {
            self.state.info.history.last_epoch_clean = self.state.map.epoch;
            self.state.info.history.last_interval_clean = self.state.interval.since;
            self.state.past.clear();
            self.state.info.lost_through = 0;
            self.reservations.forget_forced();
            self.state.release_strays(cx);
        }
        self.state.share_progress(cx);
        self.state.ask_monitor_again(cx);
        self.state.report_merge(cx);
        true
    }

    /// A copy that is no member turned up: perhaps it has what nobody else does, perhaps it can go.
    pub(crate) fn on_stray(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        if self.state.is_clean() {
            self.state.peers.remove(&osd);
            self.state.send(cx, osd, Release { header: self.state.header() });
        } else {
            self.recovery.retry_unfound();
        }
    }

    /// A rebuilt copy became whole: there may be enough now to serve clients.
    pub(crate) fn reconsider_serving(&mut self, cx: &mut Cx<'_>) {
        let counted =
            self.state.complete_count(|state, osd| state.peers.get(&osd).is_some_and(|peer| peer.counts()));
        if matches!(self.state.phase, Phase::Active { serving: false }) && counted >= self.state.min_size() {
            self.restart_peering(cx);
        }
    }
}
