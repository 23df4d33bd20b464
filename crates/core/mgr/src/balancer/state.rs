//! What OSDs have and should have, and the moves that bring them nearer to it.

use super::{Evaluation, Load, Plan, Reach};
use nacre_crush::ITEM_NONE;
use nacre_maps::OsdMap;
use nacre_types::{OsdId, PgId, PoolId};
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// An OSD is full enough when it has so much more than it should, as a share of the mean.
const EXCESS_MAX: f64 = 0.02;
/// OSDs that are tried as targets of a move, the emptiest first.
const TARGETS_MAX: usize = 64;
/// Work is counted in looks at a copy that may move, a tenth of a microsecond or so. Looks that it costs to ask whether the rule allows a
/// move, to take a copy in, and to ask where CRUSH puts a PG.
const RULE_WORK: u64 = 4;
const INTAKE_WORK: u64 = 4;
pub(super) const CRUSH_WORK: u64 = 100;

/// A pool's copies: where they are, and how many belong where.
#[derive(Debug)]
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

/// Copies of a pool on an OSD.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    count: f64,
    bytes: f64,
}

/// Two OSDs, one of which has too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pair {
    from: OsdId,
    to: OsdId,
}

/// Where the search for the next move has come to.
#[derive(Debug, Default)]
struct Search {
    /// Numbers of copies of the pools below this one are even.
    pool: Option<PoolId>,
    /// OSDs of that pool, or of all pools, with what they have too much, the fullest first.
    order: Vec<(f64, OsdId)>,
    /// Index of the full one.
    full: usize,
    /// How many of the others have been looked at, the emptiest first.
    tried: usize,
    is_ordered: bool,
    /// All numbers are even: bytes are next.
    counts_are_even: bool,
}

#[derive(Debug)]
pub(super) struct State {
    map: Arc<OsdMap>,
    loads: Vec<Load>,
    /// How many of them have been taken in.
    taken: usize,
    /// What OSDs hold of the pool that is being taken in.
    intake: BTreeMap<OsdId, Held>,
    pools: BTreeMap<PoolId, PoolLoad>,
    osds: BTreeMap<OsdId, Bytes>,
    /// Indices of the PGs that have a copy on it, in order.
    copies: BTreeMap<OsdId, Vec<usize>>,
    /// Where CRUSH alone put the PGs that this plan moves.
    crush_alone: BTreeMap<usize, Vec<OsdId>>,
    search: Search,
    /// Looks that are left in this slice.
    work: Cell<u64>,
}

impl Search {
    /// The next full OSD with the next one to take from it, of those that are worth a look.
    fn pair(&mut self, targets_max: usize, is_worth: &dyn Fn(f64, f64) -> bool) -> Option<Pair> {
        loop {
            let (most, from) = *self.order.get(self.full)?;
            let other = self.order.iter().rev().nth(self.tried).filter(|_| self.tried < targets_max);
            match other {
                Some((least, to)) if is_worth(most, *least) => {
                    self.tried += 1;
                    if *to != from {
                        return Some(Pair { from, to: *to });
                    }
                }
                // The others are fuller, and so are those of a full one that is less full.
                _ if self.tried == 0 => return None,
                _ => (self.full, self.tried) = (self.full + 1, 0),
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "shares of bytes")]
fn real(number: u64) -> f64 {
    number as f64
}

impl State {
    pub(super) fn new(map: Arc<OsdMap>, mut loads: Vec<Load>) -> Self {
        loads.sort_by_key(|load| load.pg);
        let (pools, osds, copies) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self {
            map,
            loads,
            taken: 0,
            intake: BTreeMap::new(),
            pools,
            osds,
            copies,
            crush_alone: BTreeMap::new(),
            search: Search::default(),
            work: Cell::new(u64::MAX),
        }
    }

    pub(super) fn allow(&mut self, work: u64) {
        self.work.set(work);
    }

    /// What is left of that.
    pub(super) fn left(&self) -> u64 {
        self.work.get()
    }

    /// What a pool's rule allows, if it has been taken in and is one that we understand.
    pub(super) fn reach(&self, pool: PoolId) -> Option<&Reach> {
        self.pools.get(&pool).map(|pool| &pool.reach)
    }

    /// The slice's work is done.
    pub(super) fn is_spent(&self) -> bool {
        self.work.get() == 0
    }

    pub(super) fn spend(&self, work: u64) {
        self.work.set(self.work.get().saturating_sub(work));
    }

    /// Goes on taking the PGs in; whether that was all.
    pub(super) fn take_in(&mut self) -> bool {
        while let Some(load) = self.loads.get(self.taken) {
            if self.is_spent() {
                return false;
            }
            let bytes = real(load.bytes);
            for osd in load.up.iter().filter(|osd| **osd != ITEM_NONE) {
                let held = self.intake.entry(*osd).or_default();
                (held.count, held.bytes) = (held.count + 1.0, held.bytes + bytes);
                self.copies.entry(*osd).or_default().push(self.taken);
            }
            let (id, copies) = (load.pg.pool, load.up.len() as u64);
            self.spend(INTAKE_WORK * copies);
            self.taken += 1;
            if self.loads.get(self.taken).is_none_or(|next| next.pg.pool != id) {
                self.end_pool(id);
            }
        }
        true
    }

    /// All PGs of a pool have been taken in.
    fn end_pool(&mut self, id: PoolId) {
        let held = std::mem::take(&mut self.intake);
        let Some(pool) = self.map.pool(id) else { return };
        // What pools that are left as they are have is neither in what OSDs have nor in what they should have.
        let Some(reach) = Reach::of(&self.map, pool) else { return };
        let counts: BTreeMap<OsdId, f64> = held.iter().map(|(osd, held)| (*osd, held.count)).collect();
        let sum: f64 = held.values().map(|held| held.bytes).sum();
        let there = |osd: OsdId| counts.get(&osd).copied().unwrap_or_default();
        let targets = reach.targets(f64::from(pool.pg_num), &there);
        let copies: f64 = targets.values().sum();
        for (osd, weight) in reach.weights() {
            let entry = self.osds.entry(osd).or_default();
            entry.weight = weight;
            entry.target += targets.get(&osd).copied().unwrap_or_default() / copies * sum;
        }
        for (osd, held) in held {
            self.osds.entry(osd).and_modify(|entry| entry.used += held.bytes);
        }
        self.spend(INTAKE_WORK * counts.len() as u64);
        self.pools.insert(id, PoolLoad { reach, counts, targets });
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

    /// Goes on looking for moves; whether there are none any more, or enough.
    pub(super) fn optimize(&mut self, moves_max: usize, plan: &mut Plan) -> bool {
        while plan.moves < moves_max {
            if self.is_spent() {
                return false;
            }
            let is_for_counts = !self.search.counts_are_even;
            let pair = self.next_pair();
            let copies = pair.and_then(|pair| self.copies.get(&pair.from)).map_or(0, Vec::len);
            self.spend(1 + copies as u64);
            let moves = match pair {
                Some(pair) if is_for_counts => self.even_counts(pair),
                Some(pair) => self.one_way(pair.from, pair.to).or_else(|| self.both_ways(pair.from, pair.to)),
                None if is_for_counts => {
                    self.search = Search { counts_are_even: true, ..Search::default() };
                    continue;
                }
                None => return true,
            };
            if let Some(moves) = moves {
                moves.into_iter().for_each(|one| self.carry_out(one, plan));
                // The pools before are even in numbers, and stay so.
                self.search =
                    Search { pool: self.search.pool, counts_are_even: !is_for_counts, ..Search::default() };
            }
        }
        true
    }

    /// The next two OSDs to be looked at; `None` when all have been.
    fn next_pair(&mut self) -> Option<Pair> {
        if self.search.counts_are_even { self.next_pair_by_bytes() } else { self.next_pair_by_counts() }
    }

    fn next_pair_by_counts(&mut self) -> Option<Pair> {
        loop {
            let at = match self.search.pool {
                Some(pool) => pool,
                None => *self.pools.keys().next()?,
            };
            let Some(pool) = self.pools.get(&at) else {
                self.search.pool = Some(*self.pools.range(at..).next()?.0);
                continue;
            };
            if !self.search.is_ordered {
                let order = pool.reach.weights().map(|(osd, _)| (pool.deviation(osd), osd)).collect();
                self.search = Search { pool: Some(at), order: self.in_order(order), ..Search::default() };
                self.search.is_ordered = true;
            }
            // Both must gain, and one must be off by a copy: it would come and go for ever otherwise.
            let pair = self
                .search
                .pair(usize::MAX, &|most, least| most - least > 1.0 && (most >= 1.0 || least <= -1.0));
            if pair.is_some() {
                return pair;
            }
            let next = self.pools.range((Bound::Excluded(at), Bound::Unbounded)).next().map(|(id, _)| *id);
            self.search = Search { pool: Some(next?), ..Search::default() };
        }
    }

    fn next_pair_by_bytes(&mut self) -> Option<Pair> {
        let mean = self.mean();
        if mean <= 0.0 {
            return None;
        }
        if !self.search.is_ordered {
            let filled = self.osds.iter().filter(|(_, bytes)| bytes.weight > 0.0);
            let order = filled.map(|(osd, bytes)| (bytes.excess() / bytes.weight, *osd)).collect();
            self.search.order = self.in_order(order);
            self.search.is_ordered = true;
        }
        self.search.pair(TARGETS_MAX, &|most, _| most > EXCESS_MAX * mean)
    }

    /// The fullest first.
    fn in_order(&self, mut order: Vec<(f64, OsdId)>) -> Vec<(f64, OsdId)> {
        order.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        self.spend(order.len() as u64);
        order
    }

    /// A copy of the pool whose numbers are being evened.
    fn even_counts(&self, Pair { from, to }: Pair) -> Option<Vec<Move>> {
        let pool = self.pools.get(&self.search.pool?)?;
        self.copy_for(pool, from, to).map(|at| vec![(at, from, to)])
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
            && {
                self.spend(RULE_WORK);
                true
            }
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
                self.spend(1);
                if one.pg.pool != other.pg.pool || one.bytes <= other.bytes {
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
        let load = self.loads.get(at)?;
        let pool = self.map.pool(load.pg.pool)?;
        let raw = if self.map.pg_upmap_items.contains_key(&load.pg) {
            self.spend(CRUSH_WORK);
            Cow::Owned(self.map.pg_to_raw_osds(load.pg))
        } else {
            // CRUSH alone puts it there; what has moved in this plan has an exception to come.
            Cow::Borrowed(self.crush_alone.get(&at).unwrap_or(&load.up))
        };
        if self.map.pg_upmap.contains_key(&load.pg) || raw.len() != load.up.len() {
            return None;
        }
        let wanted: Vec<OsdId> = load.up.iter().map(|osd| if *osd == from { to } else { *osd }).collect();
        let pairs: Vec<(OsdId, OsdId)> = if pool.is_replicated() {
            // The order may be another one by the OSDs' affinity as primaries. A copy stays below the root that it was chosen from.
            let part = |osd: &OsdId| self.pools.get(&load.pg.pool).and_then(|pool| pool.reach.part_of(*osd));
            let mut gone: Vec<OsdId> = raw.iter().copied().filter(|osd| !wanted.contains(osd)).collect();
            let mut new: Vec<OsdId> = wanted.iter().copied().filter(|osd| !raw.contains(osd)).collect();
            gone.sort_by_key(part);
            new.sort_by_key(part);
            gone.into_iter().zip(new).collect()
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
        self.crush_alone.entry(at).or_insert_with(|| load.up.clone());
        load.up.iter_mut().filter(|osd| **osd == from).for_each(|osd| *osd = to);
        for (osd, change) in [(from, -1.0), (to, 1.0)] {
            if let Some(pool) = self.pools.get_mut(&pg.pool) {
                *pool.counts.entry(osd).or_default() += change;
            }
            self.osds.entry(osd).or_default().used += change * bytes;
        }
        self.copies.entry(from).or_default().retain(|known| *known != at);
        let there = self.copies.entry(to).or_default();
        let place = there.partition_point(|known| *known < at);
        there.insert(place, at);
        plan.exceptions.insert(pg, pairs);
        plan.moves += 1;
    }
}
