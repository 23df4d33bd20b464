//! The PG autoscaler as our own manager runs it: pools whose number of PGs is off by more than three get another one. Which, is decided in
//! `nacre_mgr::autoscaler`; how fast they come to have it, in `osd/pace.rs` and `osd/merge.rs`.
//!
//! Its options are those of Ceph's module, so that a `ceph-mgr` that takes over goes on with them.

use crate::autoscaler::{SLEEP_INTERVAL, SLEEP_INTERVAL_S};
use crate::commands::change_pg_num;
use crate::mon::{Cx, Mon};
use crate::outlook::{is_off, outlook};
use nacre_mgr::pgmap::Digest;
use nacre_msg::LogPriority;
use nacre_types::{OsdId, UTime};
use std::collections::BTreeMap;
use std::time::Duration;

impl Mon {
    /// Pools that are on their way go on. A stock manager's module bounds nothing here: there they arrive at once.
    pub(crate) fn pace_pools(&mut self, digest: &Digest) {
        let is_ours = self.state.mgr.own_is_active();
        let share = is_ours.then(|| self.state.number_of_managers("target_max_misplaced_ratio"));
        self.state.osd.pace_pools(&self.state.stats.pgs, digest, share);
    }

    /// The next look, when it is time.
    pub(crate) fn tick_autoscaler(&mut self, cx: &Cx<'_>, digest: &Digest) {
        let period = self.state.option_of_managers(SLEEP_INTERVAL).and_then(|text| text.parse().ok());
        let period = nacre_types::seconds(period.unwrap_or(SLEEP_INTERVAL_S)).max(Duration::from_secs(1));
        let due = *self.state.autoscaler.next.get_or_insert_with(|| cx.now + period);
        // One that waits for long is not to be waited for when the period has become shorter.
        let due = due.min(cx.now + period);
        self.state.autoscaler.next = Some(due);
        if cx.now < due || !self.state.mgr.own_is_active() || is_off(&self.state) {
            return;
        }
        self.state.autoscaler.next = Some(cx.now + period);
        if self.knows_all(digest) {
            self.autoscale(cx.wall, digest);
        }
    }

    /// Whether what was reported is all there is, with all its copies: else pools seem smaller or larger than they are, or the room for them.
    fn knows_all(&self, digest: &Digest) -> bool {
        let map = self.state.osd.map();
        let has_room = |osd: OsdId| map.exists(osd) && map.is_in(osd);
        let is_known = |osd| self.state.stats.pgs.osd(osd).is_some();
        digest.unknown_count == 0
            && digest.sum.stats.num_objects_degraded == 0
            && (0..).take(map.osd_state.len()).filter(|osd| has_room(*osd)).all(is_known)
    }

    fn autoscale(&mut self, wall: UTime, digest: &Digest) {
        let (_, outlook) = outlook(&self.state, digest);
        let mut refused = BTreeMap::new();
        for advice in outlook.advice.iter().filter(|advice| advice.would_adjust) {
            let map = self.state.osd.map();
            let name = map.pool_name(advice.pool).unwrap_or_default().to_owned();
            let was = map.pool(advice.pool).map_or(0, |pool| pool.pg_num_target);
            let text = match change_pg_num(&mut self.state, advice.pool, advice.pg_num.into()) {
                Ok(_) => format!("autoscaler: pool '{name}' goes from {was} to {} PGs", advice.pg_num),
                Err(failure) => {
                    let is_news = self.state.autoscaler.refused.get(&advice.pool) != Some(&failure.text);
                    refused.insert(advice.pool, failure.text.clone());
                    if !is_news {
                        continue;
                    }
                    format!(
                        "autoscaler: pool '{name}' keeps {was} PGs and should have {}: {}",
                        advice.pg_num, failure.text
                    )
                }
            };
            self.state.clog(LogPriority::INFO, wall, text);
        }
        self.state.autoscaler.refused = refused;
    }
}
