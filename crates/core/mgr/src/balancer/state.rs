//! What OSDs have and should have, and the moves that bring them nearer to it.

use super::{Evaluation, Load, Plan, Reach};
use nacre_crush::ITEM_NONE;
use nacre_maps::OsdMap;
use nacre_types::{OsdId, PgId, PoolId};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// An OSD is full enough when it has so much more than it should, as a share of the mean.
const EXCESS_MAX: f64 = 0.02;
/// OSDs that are tried as targets of a move, the emptiest first.
const TARGETS_MAX: usize = 64;
/// What one plan may cost, in looks at a copy that may move; a tenth of a second or so.
const WORK_MAX: u64 = 1_000_000;
/// Looks that it costs to ask whether the rule allows a move.
const RULE_WORK: u64 = 4;

/// A pool's copies: where they are, and how many belong where.
struct PoolLoad {
    reach: Reach,
    /// Copies on each OSD.
    counts: BTreeMap<OsdId, f64>,
    /// Copies that each OSD should have.
    targets: BTreeMap<OsdId, f64>,
}

impl PoolLoad {
    /// Copies too many.
    fn deviation(&self, osd: OsdId) -> f64 {
        self.counts.get(&osd).copied().unwrap_or_default()
            - self.targets.get(&osd).copied().unwrap_or_default()
    }
}

/// Bytes of one OSD.
#[derive(Debug, Clone, Copy, Default)]
struct Bytes {
    used: f64,
    target: f64,
    weight: f64,
}

impl Bytes {
    fn excess(&self) -> f64 {
        self.used - self.target
    }
}

/// A copy that moves: index of the PG, from where, to where.
type Move = (usize, OsdId, OsdId);

pub(super) struct State<'a> {
    map: &'a OsdMap,
    loads: Vec<Load>,
    pools: BTreeMap<PoolId, PoolLoad>,
    osds: BTreeMap<OsdId, Bytes>,
    /// Indices of the PGs that have a copy on it.
    copies: BTreeMap<OsdId, BTreeSet<usize>>,
    /// Where CRUSH alone puts each PG.
    raw: Vec<Vec<OsdId>>,
    /// Looks that are left.
    work: Cell<u64>,
}

#[expect(clippy::cast_precision_loss, reason = "shares of bytes")]
fn real(number: u64) -> f64 {
    number as f64
}

impl<'a> State<'a> {
    pub(super) fn new(map: &'a OsdMap, loads: &[Load]) -> Self {
        let mut state = Self {
            map,
            loads: loads.to_vec(),
            pools: BTreeMap::new(),
            osds: BTreeMap::new(),
            copies: BTreeMap::new(),
            raw: Vec::new(),
            work: Cell::new(WORK_MAX),
        };
        let mut sums: BTreeMap<PoolId, f64> = BTreeMap::new();
        let mut counts: BTreeMap<PoolId, BTreeMap<OsdId, f64>> = BTreeMap::new();
        for (at, load) in loads.iter().enumerate() {
            for osd in load.up.iter().filter(|osd| **osd != ITEM_NONE) {
                *counts.entry(load.pg.pool).or_default().entry(*osd).or_default() += 1.0;
                *sums.entry(load.pg.pool).or_default() += real(load.bytes);
                state.copies.entry(*osd).or_default().insert(at);
            }
        }
        for (id, counts) in counts {
            let Some(pool) = map.pool(id) else { continue };
            let Some(reach) = Reach::of(map, pool) else { continue };
            let (pg_count, size) = (f64::from(pool.pg_num), f64::from(pool.size));
            let there = |osd: OsdId| counts.get(&osd).copied().unwrap_or_default();
            let targets = reach.targets(pg_count, size, &there);
            let copies: f64 = targets.values().sum();
            let bytes = sums.get(&id).copied().unwrap_or_default();
            for (osd, weight) in reach.weights() {
                let entry = state.osds.entry(osd).or_default();
                entry.weight = weight;
                entry.target += targets.get(&osd).copied().unwrap_or_default() / copies * bytes;
            }
            state.pools.insert(id, PoolLoad { reach, counts, targets });
        }
        // What pools that are left as they are have is neither in what OSDs have nor in what they should have.
        for load in loads.iter().filter(|load| state.pools.contains_key(&load.pg.pool)) {
            for osd in &load.up {
                if let Some(entry) = state.osds.get_mut(osd) {
                    entry.used += real(load.bytes);
                }
            }
        }
        state
    }

    /// Bytes per weight of all.
    fn mean(&self) -> f64 {
        let used: f64 = self.osds.values().map(|bytes| bytes.used).sum();
        let weight: f64 = self.osds.values().map(|bytes| bytes.weight).sum();
        if weight > 0.0 { used / weight } else { 0.0 }
    }

    pub(super) fn evaluate(&self) -> Evaluation {
        let mean = self.mean();
        let ratio = |bytes: f64, weight: f64| if mean > 0.0 { bytes / weight / mean } else { 1.0 };
        let fills = self.osds.iter().map(|(osd, bytes)| (ratio(bytes.used, bytes.weight), *osd));
        let fullest = fills.max_by(|one, other| one.0.total_cmp(&other.0));
        let bounds = self.osds.values().map(|bytes| ratio(bytes.target, bytes.weight));
        let deviations = self
            .pools
            .values()
            .flat_map(|pool| pool.reach.weights().map(|(osd, _)| pool.deviation(osd).abs()));
        Evaluation {
            fullest: fullest.map(|(_, osd)| osd),
            spread: fullest.map_or(1.0, |(fill, _)| fill),
            bound: bounds.fold(1.0, f64::max),
            count_deviation: deviations.fold(0.0, f64::max),
        }
    }

    /// True while there is some left.
    fn spend(&self, work: u64) -> bool {
        self.work.set(self.work.get().saturating_sub(work));
        self.work.get() > 0
    }

    pub(super) fn optimize(&mut self, moves_max: usize, plan: &mut Plan) {
        let raw = |load: &Load| match self.map.pg_upmap_items.contains_key(&load.pg) {
            true => self.map.pg_to_raw_osds(load.pg),
            false => load.up.clone(),
        };
        self.raw = self.loads.iter().map(raw).collect();
        while plan.moves < moves_max {
            if self.work.get() == 0 {
                return;
            }
            let found = self.even_counts().map(|found| vec![found]).or_else(|| self.even_bytes());
            let Some(moves) = found else { return };
            for one in moves {
                self.carry_out(one, plan);
            }
        }
    }

    /// A copy of the pool whose OSDs are the least even, by number.
    fn even_counts(&self) -> Option<Move> {
        for pool in self.pools.values() {
            let mut order: Vec<(f64, OsdId)> =
                pool.reach.weights().map(|(osd, _)| (pool.deviation(osd), osd)).collect();
            order.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
            for (most, from) in &order {
                for (least, to) in order.iter().rev() {
                    // Both must gain, and one must be off by a copy: it would come and go for ever otherwise.
                    if most - least <= 1.0 || (*most < 1.0 && *least > -1.0) {
                        break;
                    }
                    if let Some(pg) = self.copy_for(pool, *from, *to) {
                        return Some((pg, *from, *to));
                    }
                }
            }
        }
        None
    }

    /// The copy of a pool that goes from one OSD to the other: the one that brings their bytes nearest to what they should be.
    fn copy_for(&self, pool: &PoolLoad, from: OsdId, to: OsdId) -> Option<usize> {
        let candidates = self.copies.get(&from)?.iter().filter(|at| self.may_move(pool, **at, from, to));
        candidates
            .min_by(|one, other| self.cost(**one, from, to).total_cmp(&self.cost(**other, from, to)))
            .copied()
    }

    fn may_move(&self, pool: &PoolLoad, at: usize, from: OsdId, to: OsdId) -> bool {
        let Some(load) = self.loads.get(at) else { return false };
        let is_of_pool = self.pools.get(&load.pg.pool).is_some_and(|other| std::ptr::eq(other, pool));
        is_of_pool
            && self.spend(RULE_WORK)
            && pool.reach.allows_move(&load.up, from, to)
            && self.exception(at, from, to).is_some()
    }

    fn bytes(&self, osd: OsdId) -> Bytes {
        self.osds.get(&osd).copied().unwrap_or_default()
    }

    /// How much the squares of what two OSDs have too much, by weight, grow when so many bytes move.
    fn cost_of(&self, moved: f64, from: OsdId, to: OsdId) -> f64 {
        let part = |osd: OsdId, change: f64| {
            let bytes = self.bytes(osd);
            let excess = bytes.excess();
            ((excess + change).powi(2) - excess.powi(2)) / bytes.weight.max(f64::MIN_POSITIVE)
        };
        part(from, -moved) + part(to, moved)
    }

    fn cost(&self, at: usize, from: OsdId, to: OsdId) -> f64 {
        self.cost_of(self.loads.get(at).map_or(0.0, |load| real(load.bytes)), from, to)
    }

    /// A copy, or two that change places, so that OSDs that have too many bytes have less.
    fn even_bytes(&self) -> Option<Vec<Move>> {
        let mean = self.mean();
        let mut order: Vec<(f64, OsdId)> = self
            .osds
            .iter()
            .filter(|(_, bytes)| bytes.weight > 0.0)
            .map(|(osd, bytes)| (bytes.excess() / bytes.weight, *osd))
            .collect();
        order.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        for (excess, from) in &order {
            if mean <= 0.0 || *excess <= EXCESS_MAX * mean {
                return None;
            }
            for (_, to) in order.iter().rev().take(TARGETS_MAX).filter(|(_, to)| to != from) {
                if let Some(moves) = self.one_way(*from, *to).or_else(|| self.both_ways(*from, *to)) {
                    return Some(moves);
                }
            }
        }
        None
    }

    /// Moves that gain less than this part of what a perfect one would are not worth their bytes.
    fn is_gain(&self, cost: f64, from: OsdId, to: OsdId) -> bool {
        let best = self.bytes(from).excess().powi(2) / self.bytes(from).weight.max(f64::MIN_POSITIVE);
        to != from && cost < -0.05 * best
    }

    fn one_way(&self, from: OsdId, to: OsdId) -> Option<Vec<Move>> {
        let candidates = self.copies.get(&from)?.iter().copied().filter(|at| {
            let pool = self.loads.get(*at).and_then(|load| self.pools.get(&load.pg.pool));
            pool.is_some_and(|pool| {
                // Numbers stay even.
                pool.deviation(from) - 1.0 > -1.0
                    && pool.deviation(to) + 1.0 < 1.0
                    && self.is_gain(self.cost(*at, from, to), from, to)
                    && self.may_move(pool, *at, from, to)
            })
        });
        let best = candidates
            .min_by(|one, other| self.cost(*one, from, to).total_cmp(&self.cost(*other, from, to)))?;
        Some(vec![(best, from, to)])
    }

    /// A larger copy for a smaller one of the same pool: numbers stay as they are.
    fn both_ways(&self, from: OsdId, to: OsdId) -> Option<Vec<Move>> {
        let (there, here) = (self.copies.get(&from)?, self.copies.get(&to)?);
        let mut best: Option<(f64, usize, usize)> = None;
        for large in there {
            for small in here {
                let (Some(one), Some(other)) = (self.loads.get(*large), self.loads.get(*small)) else {
                    continue;
                };
                if !self.spend(1) || one.pg.pool != other.pg.pool || one.bytes <= other.bytes {
                    continue;
                }
                let cost = self.cost_of(real(one.bytes - other.bytes), from, to);
                if self.is_gain(cost, from, to) && best.is_none_or(|(least, ..)| cost < least) {
                    let Some(pool) = self.pools.get(&one.pg.pool) else { continue };
                    if self.may_move(pool, *large, from, to) && self.may_move(pool, *small, to, from) {
                        best = Some((cost, *large, *small));
                    }
                }
            }
        }
        best.map(|(_, large, small)| vec![(large, from, to), (small, to, from)])
    }

    /// The pairs with which a PG lies as now but for one copy; `None` when pairs cannot say it.
    fn exception(&self, at: usize, from: OsdId, to: OsdId) -> Option<Vec<(OsdId, OsdId)>> {
        let (load, raw) = (self.loads.get(at)?, self.raw.get(at)?);
        let pool = self.map.pool(load.pg.pool)?;
        if self.map.pg_upmap.contains_key(&load.pg) || raw.len() != load.up.len() {
            return None;
        }
        let wanted: Vec<OsdId> = load.up.iter().map(|osd| if *osd == from { to } else { *osd }).collect();
        let pairs: Vec<(OsdId, OsdId)> = if pool.is_replicated() {
            // The order may be another one by the OSDs' affinity as primaries.
            let gone = raw.iter().filter(|osd| !wanted.contains(osd));
            gone.copied().zip(wanted.iter().filter(|osd| !raw.contains(osd)).copied()).collect()
        } else {
            raw.iter().copied().zip(wanted).filter(|(raw, to)| raw != to).collect()
        };
        // A pair does nothing while its target is there: one that another pair takes away.
        pairs.iter().all(|(_, to)| !raw.contains(to)).then_some(pairs)
    }

    fn carry_out(&mut self, (at, from, to): Move, plan: &mut Plan) {
        let Some(pairs) = self.exception(at, from, to) else { return };
        let Some(load) = self.loads.get_mut(at) else { return };
        let (pg, bytes): (PgId, f64) = (load.pg, real(load.bytes));
        load.up.iter_mut().filter(|osd| **osd == from).for_each(|osd| *osd = to);
        for (osd, change) in [(from, -1.0), (to, 1.0)] {
            if let Some(pool) = self.pools.get_mut(&pg.pool) {
                *pool.counts.entry(osd).or_default() += change;
            }
            self.osds.entry(osd).or_default().used += change * bytes;
        }
        self.copies.entry(from).or_default().remove(&at);
        self.copies.entry(to).or_default().insert(at);
        plan.exceptions.insert(pg, pairs);
        plan.moves += 1;
    }
}
