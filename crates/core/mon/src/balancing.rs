//! The balancer as our own manager runs it: while all PGs are active and clean it lets a few copies move, by exceptions from CRUSH in the
//! next OSD map, and looks again when they have. What moves is decided in `nacre_mgr::balancer`.
//!
//! Its options are those of Ceph's module, so that a `ceph-mgr` that takes over goes on with them.

use crate::balancer::{ACTIVE, MODE, SLEEP_INTERVAL, SLEEP_INTERVAL_S};
use crate::mon::{Cx, Mon};
use crate::osd::has_its_pg_num;
use crate::state::State;
use nacre_maps::{OsdMap, Pool, flags};
use nacre_mgr::balancer::{Evaluation, Load, Plan, Planner, evaluate};
use nacre_msg::LogPriority;
use nacre_msg::stats::pg_state;
use nacre_types::UTime;
use std::sync::Arc;
use std::time::Duration;

/// Copies that one plan moves: Ceph's `upmap_max_optimizations`.
const MOVES_MAX: usize = 10;
/// Work of one slice of a plan, which keeps the monitor from all else: ten or twenty milliseconds. There is one each second.
const SLICE_WORK: u64 = 100_000;
/// States of a PG that may be moved.
const CALM: u64 = pg_state::ACTIVE | pg_state::CLEAN;
const SCRUBS: u64 = pg_state::SCRUBBING | pg_state::DEEP_SCRUB;
/// Flags of the map that keep it from moving anything.
const STOPPED_BY: [(u32, &str); 3] = [
    (flags::osdmap::NOREBALANCE, "norebalance"),
    (flags::osdmap::NOBACKFILL, "nobackfill"),
    (flags::osdmap::NORECOVER, "norecover"),
];

pub(crate) fn is_active(state: &State) -> bool {
    state.option_of_managers(ACTIVE) != Some("false")
}

pub(crate) fn mode(state: &State) -> &str {
    state.option_of_managers(MODE).unwrap_or("upmap")
}

/// Where the PGs lie by what their primaries have reported, with what a copy of each takes.
fn loads(state: &State) -> Vec<Load> {
    let map = state.osd.map();
    let load = |(pg, stat): (nacre_types::PgId, &nacre_msg::stats::PgStat)| {
        let sum = &stat.stats.sum;
        let bytes = u64::try_from(sum.num_bytes.saturating_add(sum.num_omap_bytes)).unwrap_or_default();
        let copies = map.pool(pg.pool).map_or(1.0, |pool| map.raw_used_rate(pool) / f64::from(pool.size));
        Load { pg, up: stat.up.clone(), bytes: share(bytes, copies) }
    };
    state.stats.pgs.pgs(map).map(load).collect()
}

/// What one chunk of a coded object takes of its bytes; all of it where there are copies.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate of bytes"
)]
fn share(bytes: u64, part: f64) -> u64 {
    (bytes as f64 * part) as u64
}

/// How even the OSDs are, by the PGs that have been reported, and how many have not.
pub(crate) fn evaluation(state: &State) -> (Evaluation, usize) {
    let loads = loads(state);
    let unreported = unreported(state.osd.map(), loads.len());
    (evaluate(state.osd.map(), loads), unreported)
}

/// PGs of the map beside those.
pub(crate) fn unreported(map: &OsdMap, reported: usize) -> usize {
    let all: u32 = map.pools.values().map(|pool| pool.pg_num).sum();
    usize::try_from(all).unwrap_or(usize::MAX).saturating_sub(reported)
}

/// Why the balancer may not move anything now.
fn obstacle(state: &State, map: &OsdMap) -> Option<String> {
    if map.require_min_compat_client < nacre_maps::RELEASE_LUMINOUS {
        return Some("clients older than luminous are allowed, which do not know of exceptions".to_owned());
    }
    obstacle_to_copying(state, map)
}

/// Why no PG is to be copied elsewhere now that need not be.
pub(crate) fn obstacle_to_copying(state: &State, map: &OsdMap) -> Option<String> {
    if let Some((_, name)) = STOPPED_BY.iter().find(|(flag, _)| map.has_flag(*flag)) {
        return Some(format!("the flag {name} is set"));
    }
    if map.pools.values().any(|pool| !has_its_pg_num(pool)) {
        return Some("a pool is on its way to another number of PGs".to_owned());
    }
    let unclean = state.stats.pgs.pgs(map).filter(|(_, stat)| stat.state & !SCRUBS != CALM).count();
    (unclean > 0).then(|| format!("{unclean} PGs are not active and clean"))
}

/// Whether a plan by one map is one by the other: all PGs lie the same by both.
fn is_same(one: &OsdMap, other: &OsdMap) -> bool {
    let numbers = |map: &OsdMap| map.pools.iter().map(|(id, pool)| (*id, shape(pool))).collect::<Vec<_>>();
    one.epoch == other.epoch
        || Arc::ptr_eq(&one.crush, &other.crush)
            && one.osd_weight == other.osd_weight
            && (one.osd_state == other.osd_state && one.pg_upmap == other.pg_upmap)
            && one.osd_primary_affinity == other.osd_primary_affinity
            && one.pg_upmap_items == other.pg_upmap_items
            && numbers(one) == numbers(other)
}

/// What PGs are placed by.
fn shape(pool: &Pool) -> (u32, u32, u8, u8) {
    (pool.pg_num, pool.pgp_num, pool.size, pool.crush_rule)
}

impl Mon {
    /// The next plan, when it is time, and the next slice of the one that is being made.
    pub(crate) fn tick_balancer(&mut self, cx: &Cx<'_>) {
        let period = self.state.option_of_managers(SLEEP_INTERVAL).and_then(|text| text.parse().ok());
        let period = nacre_types::seconds(period.unwrap_or(SLEEP_INTERVAL_S)).max(Duration::from_secs(1));
        // A shorter period begins at once.
        let due = self.state.balancer.next.map_or(cx.now + period, |due| due.min(cx.now + period));
        self.state.balancer.next = Some(due);
        let is_wanted =
            self.state.mgr.own_is_active() && is_active(&self.state) && mode(&self.state) == "upmap";
        if !is_wanted {
            (self.state.balancer.planner, self.state.primaries.planner) = (None, None);
            return;
        }
        let is_planning = self.state.balancer.planner.is_some() || self.state.primaries.planner.is_some();
        if !is_planning && cx.now >= due {
            self.state.balancer.next = Some(cx.now + period);
            self.state.balancer.started = Some(cx.wall);
            self.state.balancer.is_even = false;
            match begin(&self.state) {
                Ok(planner) => self.state.balancer.planner = Some(planner),
                Err(why) => self.state.balancer.result = format!("Nothing moves: {why}"),
            }
        }
        if let Some(planner) = self.state.balancer.planner.take() {
            self.go_on(planner, cx.wall);
        } else if let Some(planner) = self.state.primaries.planner.take() {
            self.go_on_with_primaries(planner, cx.wall);
        }
    }

    /// Why a plan that was begun by `planned` is not to be carried out.
    fn is_off(&self, planned: &OsdMap, map: &OsdMap) -> Option<String> {
        let changed = (!is_same(planned, map)).then(|| "the map has changed meanwhile".to_owned());
        changed.or_else(|| obstacle(&self.state, map))
    }

    /// A slice of a plan, and what it says once it is made.
    fn go_on(&mut self, mut planner: Planner, wall: UTime) {
        let map = Arc::clone(self.state.osd.map());
        if let Some(why) = self.is_off(planner.map(), &map) {
            self.state.balancer.result = format!("Nothing moves: {why}");
            return;
        }
        match planner.step(SLICE_WORK) {
            Some(plan) => {
                self.state.balancer.result = self.carry_out(plan, planner.before(), wall);
                // Copies first: whoever moves one may change who leads it.
                if self.state.balancer.is_even {
                    self.begin_primaries(&map, wall);
                }
            }
            None => self.state.balancer.planner = Some(planner),
        }
    }

    /// Likewise of primaries.
    fn go_on_with_primaries(&mut self, mut planner: nacre_mgr::primaries::Planner, wall: UTime) {
        let map = Arc::clone(self.state.osd.map());
        if let Some(why) = self.is_off(planner.map(), &map) {
            self.state.balancer.result = format!("Nothing moves: {why}");
            return;
        }
        let Some(plan) = planner.step(SLICE_WORK) else {
            self.state.primaries.planner = Some(planner);
            return;
        };
        if let Some(result) = self.carry_out_primaries(&plan, &map, wall) {
            (self.state.balancer.result, self.state.balancer.is_even) = (result, false);
        }
    }

    /// Lets some copies move; says what comes of it.
    fn carry_out(&mut self, plan: Plan, before: Option<Evaluation>, wall: UTime) -> String {
        if plan.exceptions.is_empty() {
            self.state.balancer.is_even = true;
            return "Unable to find further optimization, or pool(s) pg_num is decreasing, or distribution is already perfect"
                .to_owned();
        }
        let (spread, bound) = before.map_or((1.0, 1.0), |before| (before.spread, before.bound));
        let text = format!(
            "{} copies of PGs move; the fullest OSD has {spread:.3} of the mean, at best {bound:.3}",
            plan.moves
        );
        let change = self.state.osd.change();
        for (pg, pairs) in plan.exceptions {
            if pairs.is_empty() {
                change.new_pg_upmap_items.remove(&pg);
                change.old_pg_upmap_items.insert(pg);
            } else {
                change.old_pg_upmap_items.remove(&pg);
                change.new_pg_upmap_items.insert(pg, pairs);
            }
        }
        self.state.clog(LogPriority::INFO, wall, format!("balancer: {text}"));
        text
    }
}

/// Begins with a plan, unless nothing may move now.
fn begin(state: &State) -> Result<Planner, String> {
    let map = Arc::clone(state.osd.map());
    if let Some(why) = obstacle(state, &map) {
        return Err(why);
    }
    let loads = loads(state);
    let unreported = unreported(&map, loads.len());
    if unreported > 0 {
        return Err(format!("{unreported} PGs have not been reported"));
    }
    Ok(Planner::new(map, loads, MOVES_MAX))
}
