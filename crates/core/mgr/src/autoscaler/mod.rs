//! The PG autoscaler: how many PGs each pool should have, by Ceph's rules.
//!
//! The OSDs below a CRUSH root should have `mon_target_pg_per_osd` copies of PGs each. Pools share them by what they hold of the root's
//! capacity, or are expected to hold (`target_size_bytes`, `target_size_ratio`). Pools with the flag `bulk` share what the others leave:
//! those that hold more than an even part of it get that, the rest the same each. A number is a power of two, at least 32 or the pool's
//! `pg_num_min`, and changed only where it is off by more than [`THRESHOLD`], or out of the pool's bounds: Ceph refuses bounds that
//! `pg_num` does not keep to yet.
//!
//! Pure: the same [`Cluster`] gives the same [`Outlook`]. Source of the rules: module `pg_autoscaler` at v16.2.15, by whose results
//! (`testdata/autoscaler`, made by `test/autoscaler-golden`) it is tested.

mod facts;
mod sizes;

pub use facts::{expectations, pg_num_bounds};
pub use sizes::binary_bytes;

use nacre_maps::AutoscaleMode;
use nacre_types::{OsdId, PoolId};
use std::collections::{BTreeMap, BTreeSet};

/// How many times too many or too few PGs a pool has before that is changed.
pub const THRESHOLD: f64 = 3.0;
/// Fewest PGs of a pool without `pg_num_min`.
pub const PG_NUM_MIN: u32 = 32;

/// What counts of a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolFacts {
    /// The root that its rule takes from first; `None` when there is no such.
    pub root: Option<i32>,
    /// What may be done.
    pub mode: AutoscaleMode,
    /// PGs that it is to have as things are.
    pub pg_num_target: u32,
    /// Copies or shards.
    pub size: u8,
    /// Bytes that clients have stored.
    pub stored_bytes: u64,
    /// Bytes on OSDs for each of those.
    pub raw_rate: f64,
    /// PGs are multiplied by it.
    pub bias: f64,
    /// Bytes that it is expected to hold; 0 for none.
    pub target_bytes: u64,
    /// Share that it is expected to hold, relative to the others'; 0 for none.
    pub target_ratio: f64,
    /// Fewest PGs that it gets, if that is set.
    pub pg_num_min: Option<u32>,
    /// Most PGs that it gets, if that is set; 0 is no limit.
    pub pg_num_max: Option<u32>,
    /// It begins with its full share of PGs.
    pub is_bulk: bool,
}

/// What is looked at.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cluster {
    /// All pools that have been reported on.
    pub pools: BTreeMap<PoolId, PoolFacts>,
    /// OSDs below the pools' roots.
    pub roots: BTreeMap<i32, BTreeSet<OsdId>>,
    /// Bytes of each OSD that has said so.
    pub capacities: BTreeMap<OsdId, u64>,
    /// Copies of PGs that an OSD should have.
    pub target_pgs_per_osd: u64,
}

/// What a pool should have, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// The pool that this is about.
    pub pool: PoolId,
    /// The root of its OSDs, by its number in the CRUSH map.
    pub root: i32,
    /// Bytes of the root's OSDs.
    pub capacity: u64,
    /// Bytes that are expected, unless a share is.
    pub target_bytes: u64,
    /// Bytes on OSDs.
    pub actual_raw_used: f64,
    /// The same, or what is expected if that is more.
    pub raw_used: f64,
    /// `actual_raw_used` by the capacity.
    pub actual_ratio: f64,
    /// What counts: the larger of what is used, expected in bytes and expected as a share.
    pub ratio: f64,
    /// The share that is expected, of what is left when others have their bytes.
    pub effective_target_ratio: f64,
    /// PGs that it should have.
    pub pg_num_ideal: i64,
    /// The same as a power of two within its bounds.
    pub pg_num: u32,
    /// It is off by more than [`THRESHOLD`], or out of the pool's bounds.
    pub is_off: bool,
    /// It is, and may be changed.
    pub would_adjust: bool,
}

/// Why nothing is said of a pool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeftAlone {
    /// Its rule takes from nowhere.
    #[error("its rule takes from no root")]
    NoRoot,
    /// Who gets how many PGs of an OSD in two roots is open.
    #[error(
        "its root shares OSDs with that of other pools; give all pools of those OSDs rules with the same root"
    )]
    Overlap,
    /// Nothing is known of the OSDs' size.
    #[error("its OSDs have not said how large they are")]
    NoCapacity,
}

/// What is to be said of all pools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outlook {
    /// In the order of Ceph's table: pools without `bulk`, those of more than an even part, the others.
    pub advice: Vec<Advice>,
    /// The others, with the reason.
    pub left_alone: BTreeMap<PoolId, LeftAlone>,
}

/// OSDs that pools share, of one root or of several that overlap.
#[derive(Debug, Default)]
struct Subtree {
    osds: BTreeSet<OsdId>,
    capacity: u64,
    /// Copies of PGs that are not given out yet.
    pgs_left: i64,
    pool_count: i64,
    /// Pools that have theirs.
    pools_served: i64,
    target_ratio_sum: f64,
    target_bytes_sum: f64,
}

#[derive(Debug, Default)]
struct Subtrees {
    all: Vec<Subtree>,
    /// Roots in the order in which pools name them, and which subtree is theirs.
    of_root: Vec<(i32, usize)>,
    overlapping: BTreeSet<i32>,
}

#[expect(clippy::cast_precision_loss, reason = "shares of bytes and of PGs")]
fn real(number: i64) -> f64 {
    number as f64
}

#[expect(clippy::cast_precision_loss, reason = "shares of bytes")]
fn bytes(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, reason = "float casts saturate")]
fn whole(number: f64) -> i64 {
    number as i64
}

/// The power of two that is nearest, the larger one of two; 0 for what is below 1.
fn nearest_power_of_two(number: f64) -> u32 {
    let floor = u32::try_from(whole(number)).unwrap_or(if number < 0.0 { 0 } else { u32::MAX });
    if floor == 0 {
        return 0;
    }
    let above = floor.checked_next_power_of_two().unwrap_or(1 << 31);
    let below = above / 2;
    if f64::from(above) - number > number - f64::from(below) { below } else { above }
}

impl Subtrees {
    fn of(cluster: &Cluster) -> Self {
        let mut out = Self::default();
        let none = BTreeSet::new();
        for pool in cluster.pools.values() {
            let Some(root) = pool.root else { continue };
            let osds = cluster.roots.get(&root).unwrap_or(&none);
            let at = out.place(root, osds);
            let Some(subtree) = out.all.get_mut(at) else { continue };
            subtree.osds.extend(osds);
            subtree.pool_count += 1;
            if pool.target_ratio > 0.0 {
                subtree.target_ratio_sum += pool.target_ratio;
            } else if pool.target_bytes > 0 {
                subtree.target_bytes_sum += bytes(pool.target_bytes) * pool.raw_rate;
            }
        }
        for subtree in &mut out.all {
            let count = u64::try_from(subtree.osds.len()).unwrap_or(u64::MAX);
            subtree.pgs_left =
                i64::try_from(count.saturating_mul(cluster.target_pgs_per_osd)).unwrap_or(i64::MAX);
            let capacities = subtree.osds.iter().filter_map(|osd| cluster.capacities.get(osd));
            subtree.capacity = capacities.fold(0, |sum: u64, capacity| sum.saturating_add(*capacity));
        }
        out
    }

    /// The subtree of a root: that of the first one with OSDs of it, or a new one.
    fn place(&mut self, root: i32, osds: &BTreeSet<OsdId>) -> usize {
        let shares = |at: usize| self.all.get(at).is_some_and(|other| !other.osds.is_disjoint(osds));
        let found = self.of_root.iter().copied().find(|(_, at)| shares(*at));
        if let Some((other, _)) = found.filter(|(other, _)| *other != root) {
            self.overlapping.extend([root, other]);
        }
        let at = found.map_or(self.all.len(), |(_, at)| at);
        if at == self.all.len() {
            self.all.push(Subtree::default());
        }
        match self.of_root.iter_mut().find(|(known, _)| *known == root) {
            Some(known) => known.1 = at,
            None => self.of_root.push((root, at)),
        }
        at
    }

    fn root(&mut self, root: i32) -> Option<&mut Subtree> {
        let at = self.of_root.iter().find(|(known, _)| *known == root)?.1;
        self.all.get_mut(at)
    }
}

/// Pools of one root are served in three turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Pools without `bulk` get what they use.
    Small,
    /// Others that hold more than an even part of what is left get that.
    Large,
    /// The rest get the same each.
    Even,
}

/// How many PGs each pool should have.
#[must_use]
pub fn look(cluster: &Cluster) -> Outlook {
    let mut outlook = Outlook::default();
    let mut subtrees = Subtrees::of(cluster);
    let mut waiting: Vec<PoolId> = cluster.pools.keys().copied().collect();
    for turn in [Turn::Small, Turn::Large, Turn::Even] {
        let now = std::mem::take(&mut waiting);
        for id in now {
            let Some(pool) = cluster.pools.get(&id) else { continue };
            match advise(id, pool, turn, &mut subtrees) {
                Ok(Some(advice)) => outlook.advice.push(advice),
                Ok(None) => waiting.push(id),
                Err(reason) => drop(outlook.left_alone.insert(id, reason)),
            }
        }
    }
    outlook
}

/// `None`: in a later turn.
fn advise(
    id: PoolId,
    pool: &PoolFacts,
    turn: Turn,
    subtrees: &mut Subtrees,
) -> Result<Option<Advice>, LeftAlone> {
    let root = pool.root.ok_or(LeftAlone::NoRoot)?;
    if subtrees.overlapping.contains(&root) {
        return Err(LeftAlone::Overlap);
    }
    let subtree = subtrees.root(root).ok_or(LeftAlone::NoRoot)?;
    if subtree.capacity == 0 {
        return Err(LeftAlone::NoCapacity);
    }
    let capacity = bytes(subtree.capacity);
    let target_bytes = if pool.target_ratio > 0.0 { 0 } else { pool.target_bytes };
    let actual_raw_used = bytes(pool.stored_bytes) * pool.raw_rate;
    let raw_used = bytes(pool.stored_bytes.max(target_bytes)) * pool.raw_rate;
    let effective_target_ratio = effective_ratio(pool.target_ratio, subtree);
    let ratio = (raw_used / capacity).max(effective_target_ratio);
    let Some((share, copies)) = serve(pool, turn, ratio, subtree) else { return Ok(None) };
    let ideal = copies / f64::from(pool.size.max(1)) * pool.bias;
    let least = pool.pg_num_min.unwrap_or(PG_NUM_MIN);
    let bounded = nearest_power_of_two(ideal).max(least);
    let pg_num = pool.pg_num_max.filter(|most| *most > 0 && *most < bounded).unwrap_or(bounded);
    let (wanted, there) = (f64::from(pg_num), f64::from(pool.pg_num_target));
    let is_below = pool.pg_num_min.is_some_and(|least| pool.pg_num_target < least);
    let is_outside = is_below || pool.pg_num_max.is_some_and(|most| most > 0 && pool.pg_num_target > most);
    let is_far = wanted > there * THRESHOLD || wanted < there / THRESHOLD;
    let is_off = (is_far || is_outside) && (0.0..=1.0).contains(&share);
    Ok(Some(Advice {
        pool: id,
        root,
        capacity: subtree.capacity,
        target_bytes,
        actual_raw_used,
        raw_used,
        actual_ratio: actual_raw_used / capacity,
        ratio,
        effective_target_ratio,
        pg_num_ideal: whole(ideal),
        pg_num,
        is_off,
        would_adjust: is_off && pool.mode == AutoscaleMode::On,
    }))
}

/// The share that a pool is expected to hold: ratios are weights among pools, of what is left by those with bytes.
fn effective_ratio(ratio: f64, subtree: &Subtree) -> f64 {
    let sum = subtree.target_ratio_sum;
    let share = if sum > 0.0 { ratio / sum } else { ratio };
    let reserved = subtree.target_bytes_sum;
    if reserved > 0.0 { share * (1.0 - (reserved / bytes(subtree.capacity)).min(1.0)) } else { share }
}

/// The share of the PGs that are left that a pool gets, and how many copies that is; `None`: not in this turn.
fn serve(pool: &PoolFacts, turn: Turn, ratio: f64, subtree: &mut Subtree) -> Option<(f64, f64)> {
    let even = 1.0 / real((subtree.pool_count - subtree.pools_served).max(1));
    let is_now = match turn {
        Turn::Small => !pool.is_bulk,
        Turn::Large => ratio > even,
        Turn::Even => true,
    };
    if !is_now {
        return None;
    }
    if turn == Turn::Even {
        return Some((even, even * real(subtree.pgs_left)));
    }
    let copies = ratio * real(subtree.pgs_left);
    subtree.pgs_left -= whole(copies);
    subtree.pools_served += 1;
    Some((ratio, copies))
}

#[cfg(test)]
mod tests;
