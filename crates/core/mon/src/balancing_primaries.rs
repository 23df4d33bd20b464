//! Primaries are evened by affinity, once copies are: each OSD leads its share of the PGs. Which affinities are best is for
//! `nacre_mgr::primaries`.
//!
//! An affinity has up to three owners. An operator's is never changed: any that is not 1 and not the one that was set here. That of an OSD
//! whose device is slow (`slow_devices`) is left alone until it is well; it gets back what it had. The rest is ours; 1 gives one back to us.

use crate::mon::Mon;
use crate::primaries::OPTION;
use crate::state::State;
use nacre_maps::{OSD_NONE, OsdMap, WEIGHT_ONE};
use nacre_mgr::primaries::{Evenness, Plan, Planner, evaluate};
use nacre_msg::LogPriority;
use nacre_types::{OsdId, UTime};
use std::collections::BTreeSet;
use std::sync::Arc;

/// PGs that one plan gives another primary: each of them peers again.
const MOVES_MAX: usize = 10;

fn is_wanted(state: &State) -> bool {
    state.option_of_managers(OPTION) != Some("false")
}

/// OSDs whose affinity is an operator's, or 0 while the device is slow.
fn fixed(state: &State, map: &OsdMap) -> BTreeSet<OsdId> {
    let is_ours = |osd: OsdId| {
        let affinity = map.primary_affinity(osd);
        let is_free = affinity == WEIGHT_ONE || state.primaries.known().get(&osd) == Some(&affinity);
        is_free && state.slow_osds.measure(osd).is_none()
    };
    map.up_osds().filter(|osd| !is_ours(*osd)).collect()
}

/// How even the primaries are, by what the PGs' primaries have reported.
pub(crate) fn evenness(state: &State) -> Evenness {
    let map = state.osd.map();
    let there = |up: &[OsdId]| up.iter().copied().filter(|osd| *osd != OSD_NONE && map.is_up(*osd)).collect();
    let pgs = state.stats.pgs.pgs(map).map(|(_, stat)| (there(&stat.up), stat.up_primary));
    evaluate(map, &fixed(state, map), pgs)
}

impl Mon {
    /// The next map has other affinities: an operator's change is under way, which nothing may replace.
    fn affinities_change(&mut self, map: &OsdMap) -> bool {
        self.state.osd.upcoming().osd_primary_affinity != map.osd_primary_affinity
    }

    /// Begins to look whether primaries are even; where nobody wants that, one OSD gets back what it had.
    pub(crate) fn begin_primaries(&mut self, map: &Arc<OsdMap>, wall: UTime) {
        if self.affinities_change(map) {
            return;
        }
        self.forget_primaries(map);
        if is_wanted(&self.state) {
            let fixed = fixed(&self.state, map);
            self.state.primaries.planner = Some(Planner::new(Arc::clone(map), &fixed, MOVES_MAX));
            return;
        }
        let mut ours = self.state.primaries.known().keys().copied();
        let Some(osd) = ours.find(|osd| self.state.slow_osds.measure(*osd).is_none()) else {
            return;
        };
        self.set_affinity(osd, WEIGHT_ONE);
        let text = format!("balancer: osd.{osd} has primary affinity 1 again, since {OPTION} is false");
        self.state.clog(LogPriority::INFO, wall, text);
    }

    /// What is not in the map any more as it was set is not ours.
    fn forget_primaries(&mut self, map: &OsdMap) {
        let ours = self.state.primaries.known().iter();
        let others = ours.filter(|(osd, set)| {
            let is_relieved = self.state.slow_osds.measure(**osd).is_some();
            !map.exists(**osd) || !is_relieved && map.primary_affinity(**osd) != **set
        });
        let others: Vec<OsdId> = others.map(|(osd, _)| *osd).collect();
        others.into_iter().for_each(|osd| self.state.primaries.operator_has_set(osd));
    }

    fn set_affinity(&mut self, osd: OsdId, affinity: u32) {
        self.state.primaries.note(osd, affinity);
        self.state.osd.change().new_primary_affinity.insert(osd, affinity);
    }

    /// Gives some PGs other primaries; says what comes of it.
    pub(crate) fn carry_out_primaries(&mut self, plan: &Plan, map: &OsdMap, wall: UTime) -> Option<String> {
        let fixed = fixed(&self.state, map);
        let is_stale = plan.affinities.keys().any(|osd| fixed.contains(osd)) || self.affinities_change(map);
        if plan.moves == 0 || is_stale {
            return None;
        }
        for (osd, affinity) in &plan.affinities {
            self.set_affinity(*osd, *affinity);
        }
        let busiest = plan.before.busiest.map_or_else(String::new, |osd| format!("osd.{osd}"));
        let text = format!(
            "{} PGs get other primaries; {busiest} leads {:.3} times its share, the busiest {:.3} times then",
            plan.moves, plan.before.spread, plan.after.spread
        );
        self.state.clog(LogPriority::INFO, wall, format!("balancer: {text}"));
        Some(text)
    }
}
