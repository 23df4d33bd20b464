//! The PG becomes clean: no copy misses anything; what is recorded then, and which past intervals are forgotten.

use crate::Cx;
use crate::phase::Phase;
use crate::state::PgState;
use nacre_types::HObject;

/// How the PG stands when no copy misses anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recovered {
    /// The PG is clean.
    Clean,
    /// There are fewer copies than the pool wants, or too few to serve.
    Short,
    /// Two members have the same chunks: one of them is to get others, once peering has begun anew.
    Twins,
}

impl PgState {
    /// When no copy misses anything any more: says so to all of them, frees copies that are not needed, gives a
    /// temporary acting set up.
    pub(crate) fn finish_if_recovered(&mut self, cx: &mut Cx<'_>) -> Option<Recovered> {
        if !self.is_recovered() {
            return None;
        }
        self.info.last_complete = self.info.last_update;
        self.info.last_backfill = HObject::max_value();
        if self.has_twins() {
            self.share_progress(cx);
            self.let_shards_change();
            return Some(Recovered::Twins);
        }
        let is_clean = self.is_full_strength() && self.phase.is_serving();
        if is_clean {
            self.info.history.last_epoch_clean = self.map.epoch;
            self.info.history.last_interval_clean = self.interval.since;
            self.past.clear();
            self.info.lost_through = 0;
            self.release_strays(cx);
        }
        self.share_progress(cx);
        self.ask_monitor_again(cx);
        self.report_merge(cx);
        Some(if is_clean { Recovered::Clean } else { Recovered::Short })
    }

    /// Of two members with the same chunks one may get others when peering begins anew.
    fn let_shards_change(&mut self) {
        if let Some(ec) = &mut self.ec {
            ec.may_change = true;
        }
    }

    /// Clients are not served for want of copies, and there are enough of them now.
    pub(crate) fn could_serve(&self) -> bool {
        let counts = |state: &Self, osd| state.peers.get(&osd).is_some_and(|peer| peer.counts());
        matches!(self.phase, Phase::Active { serving: false })
            && self.complete_count(counts) >= self.min_size()
    }
}
