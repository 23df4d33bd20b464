//! What a map does to the parts of a PG, and where peering meets the others: objects move, intervals begin and end, the PG becomes
//! active, clean, or begins to peer again.

use crate::interval::is_up;
use crate::moving::{Moved, Source};
use crate::ops::PoolFacts;
use crate::peering::PeeringOutcome;
use crate::phase::Phase;
use crate::{Cx, Effect, Event, Pg};
use nacre_maps::OsdMap;
use nacre_msg::peer::Release;
use nacre_types::OsdId;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Pg {
    /// OSDs that may have objects that no other has, and have not told what they have: not up, or asked just now. Those that were marked
    /// lost since they were up last do not count. Ceph's `might_have_unfound`, but for those already queried.
    #[must_use]
    pub fn unprobed(&self) -> Vec<OsdId> {
        self.state.unprobed()
    }

    /// Takes in the copies of PGs that end with `cx.map`, as far as this OSD has them; [`crate::Event::Map`] with
    /// that map must come next. Their objects come some at a time (`moving/`).
    pub fn absorb(&mut self, cx: &mut Cx<'_>, sources: Vec<Self>) {
        let sources = sources.into_iter().map(|source| source.end(cx)).collect();
        self.moves.absorb(sources);
    }

    /// The PG is no more: its clients are to look for their objects elsewhere.
    fn end(mut self, cx: &mut Cx<'_>) -> Source {
        self.pipeline.backoffs.release_all(&self.state, cx);
        for session in self.pipeline.sessions() {
            cx.effects.push(Effect::PushMaps { session, since: self.state.map.epoch });
        }
        Source::new(self.state, self.moves)
    }

    /// Follows the map that came: what belongs elsewhere moves first, then its interval may begin.
    pub(crate) fn advance_map(&mut self, cx: &mut Cx<'_>) {
        let before = std::mem::replace(&mut self.state.map, Arc::clone(cx.map));
        let Some(pool) = PoolFacts::of(cx.map, self.state.spg.pg.pool) else {
            return self.remove(cx);
        };
        if self.state.spg.pg.seed >= pool.pg_num {
            return self.remove(cx); // merged, and there was no copy here of what it was merged into
        }
        self.state.follow_map(&before, pool);
        if !self.begin_moving(cx, &before) {
            self.take_interval(cx, &before);
        }
    }

    /// What belongs to other PGs is there, and what is ours is here: the map's interval may begin.
    fn take_interval(&mut self, cx: &mut Cx<'_>, before: &OsdMap) {
        self.advance_interval(cx, before);
        self.drop_blocklisted(cx);
        self.snaptrim.queue_removed_snaps(&mut self.state);
        self.pipeline.wake_for_epoch(self.state.map.epoch);
        self.handle_early(cx);
    }

    /// Ends the interval if objects are to move in the map that came; true while they do. `before` is the last map of the
    /// interval.
    fn begin_moving(&mut self, cx: &mut Cx<'_>, before: &Arc<OsdMap>) -> bool {
        let moves = self.moves.begin(&mut self.state, cx, before);
        if moves {
            self.end_interval(cx);
            self.state.begun = false;
        }
        moves
    }

    /// What happens while objects move: a step, or it has to wait.
    pub(crate) fn handle_while_moving(&mut self, cx: &mut Cx<'_>, event: Event) {
        let now = match event {
            Event::Tick => return self.move_on(cx),
            Event::Map => return drop(self.moves.keep_map(Arc::clone(cx.map))),
            Event::Resume => return,
            Event::ClientOp(_) | Event::Force { .. } | Event::MarkLost(_) | Event::Scrub { .. } => {
                self.moves.keep(event)
            }
            Event::SessionClosed(session) => {
                self.moves.drop_session(session);
                Some(event)
            }
            event => Some(event),
        };
        if let Some(event) = now {
            self.react(cx, event);
        }
    }

    /// One step of moving objects; behind the last one all that came meanwhile has its turn.
    fn move_on(&mut self, cx: &mut Cx<'_>) {
        let Some(moved) = self.moves.step(&mut self.state, cx) else { return };
        let Moved { before, splits_on, maps, kept } = moved;
        if !(splits_on && self.begin_moving(cx, &before)) {
            self.take_interval(cx, &before);
        }
        for map in maps {
            if let Some(map) = self.moves.keep_map(map) {
                let (now, wall, view, room) = (cx.now, cx.wall, cx.view, cx.room);
                let (entropy, throttle, effects) = (&mut *cx.entropy, &mut *cx.throttle, &mut *cx.effects);
                self.advance_map(&mut Cx { now, wall, map: &map, view, room, entropy, throttle, effects });
            }
        }
        self.moves.forget_taken_in();
        for event in kept {
            if self.is_removed() {
                return;
            }
            if let Some(event) = self.moves.keep(event) {
                self.react(cx, event);
            }
        }
    }

    /// Looks whether the map that came begins a new interval; `before` is the last map of the current one.
    pub(crate) fn advance_interval(&mut self, cx: &mut Cx<'_>, before: &OsdMap) {
        if self.state.advance_interval(cx, before, &mut self.moves.absorbed) {
            self.begin_interval(cx);
            self.state.notify_primary(cx);
        } else {
            let outcome = self.peering.reconsider(&mut self.state, cx);
            self.follow_peering(cx, outcome);
        }
    }

    /// Forgets all that belonged to the interval before and begins this one.
    pub(crate) fn begin_interval(&mut self, cx: &mut Cx<'_>) {
        self.state.begun = true;
        self.peering.patience.renew();
        if let Some(ec) = &mut self.state.ec {
            ec.may_change = false; // a member may have come that lacks something
        }
        self.end_interval(cx);
        if !self.is_primary() {
            self.reservations.forget_forced();
        } else {
            self.state.phase = Phase::GetInfo { waiting: BTreeSet::new() };
            let outcome = self.peering.start(&mut self.state, cx);
            self.follow_peering(cx, outcome);
        }
    }

    /// Forgets all that belonged to the interval.
    fn end_interval(&mut self, cx: &mut Cx<'_>) {
        self.cancel(cx);
        self.pipeline.backoffs.release_all(&self.state, cx);
        self.watches.forget(); // clients watch again when the interval changes
        self.state.peers.clear();
        self.state.phase = Phase::Stray;
    }

    /// Goes on with what came of a step of peering.
    pub(crate) fn follow_peering(&mut self, cx: &mut Cx<'_>, mut outcome: Option<PeeringOutcome>) {
        while let Some(came) = outcome.take() {
            match came {
                PeeringOutcome::Restart => {
                    self.cancel(cx);
                    outcome = self.peering.restart(&mut self.state, cx);
                }
                PeeringOutcome::Stuck => self.pipeline.wake_inactive(), // for their clients to hold
                PeeringOutcome::Activated => self.all_activated(cx),
                PeeringOutcome::Stray(osd) => self.on_stray(cx, osd),
                PeeringOutcome::SourcesMayBeGone => self.recovery.forget_dead_sources(&self.state),
            }
        }
    }

    /// Begins peering anew within the interval: a copy came, went, or changed.
    fn restart_peering(&mut self, cx: &mut Cx<'_>) {
        self.follow_peering(cx, Some(PeeringOutcome::Restart));
    }

    /// All members have the log.
    fn all_activated(&mut self, cx: &mut Cx<'_>) {
        self.recovery.begin();
        if !self.finish_if_clean(cx) {
            self.state.share_progress(cx);
            self.state.report_merge(cx);
        }
        self.pipeline.wake_inactive(); // to be served, or for their clients to hold
        if self.is_active() {
            self.pipeline.backoffs.release_pg(&self.state, cx);
        }
        self.reconsider_serving(cx);
    }

    /// When no copy misses anything any more: says so to all of them, frees copies that are not needed, gives a
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

    /// A rebuilt copy became whole: there may be enough now to serve clients.
    pub(crate) fn reconsider_serving(&mut self, cx: &mut Cx<'_>) {
        let counted =
            self.state.complete_count(|state, osd| state.peers.get(&osd).is_some_and(|peer| peer.counts()));
        if matches!(self.state.phase, Phase::Active { serving: false }) && counted >= self.state.min_size() {
            self.restart_peering(cx);
        }
    }

    /// A copy that is no member turned up: perhaps it has what no other does, perhaps it can go.
    pub(crate) fn on_stray(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        if self.state.is_clean() {
            self.state.peers.remove(&osd);
            self.state.send(cx, osd, Release { header: self.state.header() });
        } else {
            self.recovery.retry_unfound();
        }
    }

    /// The connection to `osd` was lost with messages in it, although both sides live on.
    pub(crate) fn peer_reset(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        if !self.state.begun {
            return;
        }
        let asking = !matches!(self.state.phase, Phase::Activating { .. } | Phase::Active { .. });
        let matters =
            asking || self.state.interval.members().contains(&osd) || self.state.peers.contains_key(&osd);
        if !self.is_primary() && osd == self.state.interval.primary {
            self.reservations.revoke_for_primary(&self.state, cx);
            self.state.notify_primary(cx);
        } else if self.is_primary() && matters && is_up(&self.state.map, osd) {
            self.restart_peering(cx);
        }
    }

    /// Makes up for messages that were lost.
    pub(crate) fn retry_peers(&mut self, cx: &mut Cx<'_>) {
        if !self.state.begun {
            return;
        }
        if !self.expects_map() {
            for osd in self.peering.take_lost() {
                self.peer_reset(cx, osd);
            }
        }
        let compared = self.scrub.retry(&mut self.state, cx);
        self.repair_compared(cx, compared);
        if self.peering.looks_again(&self.state) {
            self.restart_peering(cx);
        }
        let Self { state, peering, replication, recovery, .. } = self;
        let active_since = || {
            let write = replication.waits_for_others_since(state.whoami);
            let recovery = recovery.waits_since().or_else(|| recovery.waits_for_list_since(state));
            write.into_iter().chain(recovery).min()
        };
        if !peering.is_out_of_patience(state, cx.now, active_since) {
            return;
        }
        if self.is_primary() {
            self.restart_peering(cx);
        } else {
            self.state.notify_primary(cx);
        }
    }

    /// The primary needs this copy no more. A member would not be told so. What is already here from a newer
    /// epoch is not thrown away: if the copy is still not needed then, it will be told again.
    pub(crate) fn on_release(&mut self, cx: &mut Cx<'_>) {
        if self.expects_map() {
            return;
        }
        if matches!(self.state.phase, Phase::Stray)
            && !self.state.interval.members().contains(&self.state.whoami)
        {
            self.remove(cx);
        }
    }

    /// No copy lacks anything: one of two members with the same chunks may begin anew with others.
    pub(crate) fn part_twins(&mut self, cx: &mut Cx<'_>) {
        if let Some(ec) = &mut self.state.ec {
            ec.may_change = true;
        }
        self.restart_peering(cx);
    }
}
