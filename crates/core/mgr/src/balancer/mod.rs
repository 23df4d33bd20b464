//! The balancer: which copies of PGs are to lie elsewhere so that OSDs fill evenly, as exceptions from CRUSH (`pg_upmap_items`, which all
//! clients since Luminous follow).
//!
//! Two things are evened, in this order: how many copies of each pool's PGs an OSD has, to within one, and then the bytes of all pools
//! together. What an OSD should have follows from its weight and from what the rule allows ([`Reach`]): a failure domain holds no two
//! copies of a PG, so that a host that is larger than its share cannot be filled like the others. The best that is possible is
//! [`Evaluation::bound`].
//!
//! Pure: the same map and loads give the same plan. Pools whose rule takes from several roots are left as they are.

mod reach;
mod state;

pub use reach::Reach;

use nacre_maps::{OsdMap, Pool};
use nacre_types::{OsdId, PgId, PoolId};
use state::State;
use std::collections::BTreeMap;

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
pub fn evaluate(map: &OsdMap, loads: &[Load]) -> Evaluation {
    State::new(map, loads).evaluate()
}

/// At most `moves_max` moves that make the OSDs more even. Exceptions that have no effect any more, or that break what the rule wants, go
/// first. An empty plan: nothing that is worth moving.
#[must_use]
pub fn plan(map: &OsdMap, loads: &[Load], moves_max: usize) -> Plan {
    let mut plan = Plan::default();
    let reach = |(id, pool): (&PoolId, &Pool)| (*id, Reach::of(map, pool));
    let reaches: BTreeMap<PoolId, Option<Reach>> = map.pools.iter().map(reach).collect();
    for pg in map.pg_upmap_items.keys().filter(|pg| is_stale(map, &reaches, **pg)) {
        if plan.moves == moves_max {
            return plan;
        }
        plan.exceptions.insert(*pg, Vec::new());
        plan.moves += 1;
    }
    // Where those copies lie then is for the next plan.
    if plan.moves == 0 {
        State::new(map, loads).optimize(moves_max, &mut plan);
    }
    plan
}

/// Whether an exception does nothing, or puts two copies into one failure domain.
fn is_stale(map: &OsdMap, reaches: &BTreeMap<PoolId, Option<Reach>>, pg: PgId) -> bool {
    let Some(reach) = reaches.get(&pg.pool) else { return true };
    let now = map.pg_to_raw_upmap(pg);
    now == map.pg_to_raw_osds(pg) || reach.as_ref().is_some_and(|reach| !reach.allows(&now))
}

#[cfg(test)]
mod tests;
