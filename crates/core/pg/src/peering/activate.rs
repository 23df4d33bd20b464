//! The last step of peering: everybody takes over the log, durably; then clients are served.

use super::{Peering, PeeringOutcome};
use crate::interval::{Interval, is_up, up_thru};
use crate::peer::{Backfill, Sync};
use crate::phase::Phase;
use crate::state::PgState;
use crate::tokens::OnDurable;
use crate::{Cx, Effect, Planted};
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

    pub(crate) fn release_strays(&mut self, cx: &mut Cx<'_>) {
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
            if fits && is_up(&self.map, osd) && whole(osd) && self.adds_shard(osd, &mut shards) {
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

impl Peering {
    /// What every copy lacks is known, or will be once it has the log.
    pub(crate) fn ready_to_activate(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
    ) -> Option<PeeringOutcome> {
        self.set_phase(state, Phase::WaitUpThru);
        self.try_activate(state, cx)
    }

    /// Activates once the monitor knows that this OSD lives in this interval. A PG that nobody ever
    /// served need not wait: its first interval counts as served whatever the map says.
    pub(crate) fn try_activate(&mut self, state: &mut PgState, cx: &mut Cx<'_>) -> Option<PeeringOutcome> {
        let first = state.interval.since <= state.info.history.epoch_created;
        let first = first || state.planted == Planted::UpThruNotAwaited;
        if !first && up_thru(&state.map, state.whoami) < state.interval.since {
            cx.effects.push(Effect::WantUpThru { epoch: state.interval.since });
            return None;
        }
        let epoch = state.map.epoch;
        state.wish_pg_temp(cx);
        let is_enough = state.complete_count(PgState::is_whole) >= state.min_size();
        if is_enough {
            state.info.last_epoch_started = epoch;
            state.info.last_interval_started = state.interval.since;
        }
        state.info.merge_shards = state.shards_to_merge();
        self.set_phase(state, Phase::Activating { epoch, is_enough, waiting: state.interval.members() });
        for osd in state.others() {
            state.send_activate(cx, osd);
        }
        let mut txn = Transaction::new(state.spg);
        state.save_state(&mut txn);
        state.submit(cx, txn, OnDurable::Activation);
        if !state.interval.members().contains(&state.whoami) {
            return self.confirmed(state, cx, state.whoami); // a primary by order (primary_temp) that is no member
        }
        None
    }

    /// A member has the log durably, and says what it misses.
    pub(crate) fn on_activated(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        from: OsdId,
        activated: Activated,
    ) -> Option<PeeringOutcome> {
        if !matches!(&state.phase, Phase::Activating { waiting, .. } if waiting.contains(&from)) {
            return None;
        }
        let peer = state.peers.get_mut(&from)?;
        if activated.info.last_update != state.info.last_update {
            peer.info = activated.info;
            return Some(PeeringOutcome::Restart); // its log turned out to have nothing in common with ours
        }
        peer.missing = activated.missing.into_iter().collect();
        let incomplete = activated.info.is_incomplete();
        peer.backfill = incomplete.then(|| Backfill::from(activated.info.last_backfill.clone()));
        peer.info = activated.info;
        peer.activated = true;
        self.confirmed(state, cx, from)
    }

    /// `osd` (perhaps this one) has the log durably.
    pub(crate) fn confirmed(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        osd: OsdId,
    ) -> Option<PeeringOutcome> {
        let Phase::Activating { epoch, is_enough, waiting } = &mut state.phase else { return None };
        waiting.remove(&osd);
        let (epoch, serving) = (*epoch, *is_enough);
        waiting.is_empty().then(|| self.all_activated(state, cx, (epoch, serving)))
    }

    fn all_activated(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        (epoch, serving): (Epoch, bool),
    ) -> PeeringOutcome {
        self.set_phase(state, Phase::Active { serving });
        if serving {
            state.info.history.last_epoch_started = epoch;
            state.info.history.last_interval_started = state.interval.since;
            state.past.trim_before(epoch);
            if state.ec.is_some() {
                state.committed_to = state.committed_to.max(state.log.head()); // nobody goes behind this activation any more
                state.note_safe();
            }
            if state
                .map
                .pools
                .get(&state.spg.pg.pool)
                .is_some_and(|pool| pool.has_flag(flags::pool::CREATING))
            {
                cx.effects.push(Effect::Created(state.spg.pg));
            }
        }
        state.stamps.activated(cx.wall, serving);
        for peer in state.peers.values_mut().filter(|peer| peer.is_complete()) {
            (peer.backfill, peer.told_complete) = (None, true); // by the progress that all get now
        }
        PeeringOutcome::Activated
    }
}
