//! Which OSDs are to lead more or fewer PGs, so that each leads its share of those that it has a copy of: clients' reads, and the first
//! half of every write, are the primaries' work.
//!
//! By primary affinity, which all clients since Firefly follow. Whether an OSD wants to lead a PG follows from a number that both have in
//! common and its affinity ([`OsdMap::primary_candidates`]), so that an affinity that is lowered by a little takes exactly one PG away. No
//! copy moves, but a PG that gets another primary peers again: few do at a time.
//!
//! An affinity is one number for all pools: their sum is evened, not each of them.
//!
//! Pure: the same map gives the same plan.

mod seats;

use nacre_maps::OsdMap;
use nacre_types::{OsdId, PgId};
use seats::Seats;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Work of asking CRUSH where a PG is, in looks of a tenth of a microsecond or so, as [`crate::balancer::Planner::step`] counts.
const CRUSH_WORK: u64 = 100;

/// How even the primaries are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evenness {
    /// The OSD that leads most, by its share.
    pub busiest: Option<OsdId>,
    /// What it leads, as a ratio to its share; 1 where there are no PGs.
    pub spread: f64,
    /// The largest number of PGs that an OSD leads too many or too few.
    pub deviation: f64,
}

/// What is to be changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Primary affinities that OSDs are to have, of `WEIGHT_ONE`.
    pub affinities: BTreeMap<OsdId, u32>,
    /// PGs that get another primary.
    pub moves: usize,
    /// As it is.
    pub before: Evenness,
    /// As it will be.
    pub after: Evenness,
}

/// Makes one plan, in slices.
#[derive(Debug)]
pub struct Planner {
    map: Arc<OsdMap>,
    /// PGs that have not been looked at.
    left: Vec<PgId>,
    seats: Seats,
    moves_max: usize,
    before: Option<Evenness>,
}

impl Planner {
    /// Begins with a plan that gives so many PGs another primary, or a few more: a chain is not broken off. The affinities of `fixed` OSDs stay as they are.
    #[must_use]
    pub fn new(map: Arc<OsdMap>, fixed: &BTreeSet<OsdId>, moves_max: usize) -> Self {
        let pgs = map.pools.iter().rev();
        let left = pgs.flat_map(|(id, pool)| (0..pool.pg_num).map(|seed| PgId::new(*id, seed))).collect();
        let seats = Seats::new(&map, fixed);
        Self { map, left, seats, moves_max, before: None }
    }

    /// The map that it plans by.
    #[must_use]
    pub fn map(&self) -> &OsdMap {
        &self.map
    }

    /// Goes on with so much work; the plan, once it is made. One of no moves where none is worth it.
    pub fn step(&mut self, work: u64) -> Option<Plan> {
        let mut work = work;
        while let Some(pg) = self.left.pop() {
            self.seats.add(self.map.primary_candidates(pg));
            work = work.saturating_sub(CRUSH_WORK);
            if work == 0 {
                return None;
            }
        }
        let before = *self.before.get_or_insert_with(|| {
            self.seats.share_out();
            self.seats.evenness()
        });
        while self.seats.moves < self.moves_max {
            if work == 0 {
                return None;
            }
            let Some(cost) = self.seats.improve() else { break };
            work = work.saturating_sub(cost);
        }
        let (affinities, after) = (self.seats.changed(), self.seats.evenness());
        Some(Plan { affinities, moves: self.seats.moves, before, after })
    }
}

/// How even the primaries are, by what each PG's members and its primary are said to be.
#[must_use]
pub fn evaluate(
    map: &OsdMap,
    fixed: &BTreeSet<OsdId>,
    pgs: impl Iterator<Item = (Vec<OsdId>, OsdId)>,
) -> Evenness {
    let mut seats = Seats::new(map, fixed);
    for (members, primary) in pgs {
        seats.add_led(members.into_iter().map(|osd| (osd, 0)).collect(), primary);
    }
    seats.share_out();
    seats.evenness()
}

#[cfg(test)]
mod tests;
