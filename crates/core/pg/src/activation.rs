//! Where peering meets the other parts of a PG: it becomes active, clean, or begins to peer again.

use crate::interval::is_up;
use crate::peering::{PeeringOutcome, Recovered};
use crate::phase::Phase;
use crate::{Cx, Pg};
use nacre_msg::peer::Release;
use nacre_types::OsdId;

impl Pg {
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

    /// When no copy misses anything any more: the parts hear of it. True then.
    pub(crate) fn finish_if_clean(&mut self, cx: &mut Cx<'_>) -> bool {
        let recovered = self.state.finish_if_recovered(cx);
        match recovered {
            None | Some(Recovered::Short) => {}
            Some(Recovered::Clean) => self.reservations.forget_forced(),
            Some(Recovered::Twins) => self.restart_peering(cx),
        }
        recovered.is_some()
    }

    /// A rebuilt copy became whole: there may be enough now to serve clients.
    pub(crate) fn reconsider_serving(&mut self, cx: &mut Cx<'_>) {
        if self.state.could_serve() {
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
}
