//! The balancer: which copies of PGs are to lie elsewhere so that OSDs fill evenly, as exceptions from CRUSH (`pg_upmap_items`, which all
//! clients since Luminous follow).
//!
//! Two things are evened, in this order: how many copies of each pool's PGs an OSD has, to within one, and then the bytes of all pools
//! together. What an OSD should have follows from its weight and from what the rule allows ([`Reach`]): a failure domain holds no two
//! copies of a PG, so that a host that is larger than its share cannot be filled like the others. The best that is possible is
//! [`Evaluation::bound`].
//!
//! A rule may take from several roots, such as one copy on flash and the others on disks: each copy stays below its root.
//!
//! Pure: the same map and loads give the same plan. Pools whose rule takes from roots that share OSDs are left as they are.

mod reach;
mod state;

pub use reach::Reach;

use nacre_maps::OsdMap;
use nacre_types::{OsdId, PgId};
use state::{CRUSH_WORK, State};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A PG as it lies now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// The PG, of the pools that the map has.
    pub pg: PgId,
    /// OSDs that CRUSH and the exceptions choose, in order; holes as `ITEM_NONE`.
    pub up: Vec<OsdId>,
    /// Bytes that one copy, or one chunk, takes.
    pub bytes: u64,
}

/// How even the OSDs are. All are ratios to the mean of bytes by weight, of the OSDs that pools can lie on; 1 while nothing is stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evaluation {
    /// The fullest OSD.
    pub fullest: Option<OsdId>,
    /// What it has.
    pub spread: f64,
    /// What the fullest would have at least, as far as copies and failure domains allow.
    pub bound: f64,
    /// The largest number of copies of one pool's PGs that an OSD has too many or too few.
    pub count_deviation: f64,
}

/// What is to be changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Exceptions by PG: pairs of from and to. None of them: the one that is there goes.
    pub exceptions: BTreeMap<PgId, Vec<(OsdId, OsdId)>>,
    /// Copies that move.
    pub moves: usize,
}

/// How even the OSDs are.
#[must_use]
pub fn evaluate(map: &Arc<OsdMap>, loads: Vec<Load>) -> Evaluation {
    let mut state = State::new(Arc::clone(map), loads);
    state.take_in();
    state.evaluate()
}

/// Looks that one plan may cost; see [`Planner::step`].
const WORK_MAX: u64 = 10_000_000;

/// Makes one plan, in slices: with thousands of OSDs it takes longer than a monitor may be away.
#[derive(Debug)]
pub struct Planner {
    state: State,
    map: Arc<OsdMap>,
    moves_max: usize,
    /// Exceptions that have not been looked at.
    exceptions: Vec<PgId>,
    before: Option<Evaluation>,
    plan: Plan,
    work_left: u64,
}

impl Planner {
    /// Begins with a plan of at most `moves_max` moves that make the OSDs more even. Exceptions that have no effect any more, or that break
    /// what the rule wants, go first.
    #[must_use]
    pub fn new(map: Arc<OsdMap>, loads: Vec<Load>, moves_max: usize) -> Self {
        let exceptions = map.pg_upmap_items.keys().rev().copied().collect();
        let (state, plan) = (State::new(Arc::clone(&map), loads), Plan::default());
        Self { state, map, moves_max, exceptions, before: None, plan, work_left: WORK_MAX }
    }

    /// The map that it plans by.
    #[must_use]
    pub fn map(&self) -> &OsdMap {
        &self.map
    }

    /// How even the OSDs were; `None` while that is being found out.
    #[must_use]
    pub fn before(&self) -> Option<Evaluation> {
        self.before
    }

    /// Goes on with so much work, in looks at a copy that may move: a tenth of a microsecond or so each. The plan, once it is made: an empty
    /// one where nothing is worth moving. Two OSDs are compared in one go.
    pub fn step(&mut self, work: u64) -> Option<Plan> {
        let work = work.min(self.work_left);
        self.state.allow(work);
        let is_made = self.go_on();
        self.work_left -= work - self.state.left();
        // What has been found until then is worth having.
        (is_made || self.work_left == 0).then(|| std::mem::take(&mut self.plan))
    }

    fn go_on(&mut self) -> bool {
        if !self.state.take_in() {
            return false;
        }
        self.before = self.before.or_else(|| Some(self.state.evaluate()));
        while let Some(pg) = self.exceptions.last().copied().filter(|_| self.plan.moves < self.moves_max) {
            if self.state.is_spent() {
                return false;
            }
            self.exceptions.pop();
            self.state.spend(2 * CRUSH_WORK);
            if self.is_stale(pg) {
                self.plan.exceptions.insert(pg, Vec::new());
                self.plan.moves += 1;
            }
        }
        // Where the copies of those lie then is for the next plan.
        let has_stale = self.plan.exceptions.values().any(Vec::is_empty);
        has_stale || self.state.optimize(self.moves_max, &mut self.plan)
    }

    /// Whether an exception does nothing, or puts two copies into one failure domain.
    fn is_stale(&self, pg: PgId) -> bool {
        if self.map.pool(pg.pool).is_none() {
            return true;
        }
        let now = self.map.pg_to_raw_upmap(pg);
        now == self.map.pg_to_raw_osds(pg)
            || self.state.reach(pg.pool).is_some_and(|reach| !reach.allows(&now))
    }
}

#[cfg(test)]
pub(crate) mod tests;
