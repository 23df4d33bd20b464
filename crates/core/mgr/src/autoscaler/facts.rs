//! [`Cluster`] by the map and by what OSDs have reported.

use super::{Cluster, PoolFacts};
use crate::pgmap::{PgMap, PoolSum, pool_usage};
use nacre_crush::{CrushMap, ITEM_NONE, Step};
use nacre_maps::{OsdMap, Pool, PoolOption, flags};
use nacre_types::{OsdId, PoolId};
use std::collections::{BTreeMap, BTreeSet};

/// Keys of pools' settings. Ceph `pool_opts_t::key_t` at v16.2.15.
const PG_NUM_MIN_KEY: i32 = 15;
const TARGET_SIZE_BYTES_KEY: i32 = 16;
const TARGET_SIZE_RATIO_KEY: i32 = 17;
const PG_AUTOSCALE_BIAS_KEY: i32 = 18;
const PG_NUM_MAX_KEY: i32 = 23;

fn number(pool: &Pool, key: i32) -> Option<u64> {
    match pool.options.get(&key)? {
        PoolOption::Int(value) => u64::try_from(*value).ok(),
        _ => None,
    }
}

fn real(pool: &Pool, key: i32) -> Option<f64> {
    match pool.options.get(&key)? {
        PoolOption::Float(value) => Some(*value),
        _ => None,
    }
}

/// A pool's expected bytes and share, as they are set.
#[must_use]
pub fn expectations(pool: &Pool) -> (u64, f64) {
    let bytes = number(pool, TARGET_SIZE_BYTES_KEY).unwrap_or(0);
    (bytes, real(pool, TARGET_SIZE_RATIO_KEY).unwrap_or(0.0))
}

/// Fewest and most PGs that a pool may have, where that is set.
#[must_use]
pub fn pg_num_bounds(pool: &Pool) -> (Option<u32>, Option<u32>) {
    let count = |key: i32| number(pool, key).and_then(|value| u32::try_from(value).ok());
    (count(PG_NUM_MIN_KEY), count(PG_NUM_MAX_KEY).filter(|most| *most > 0))
}

/// The root that a pool's rule takes from first. A class's shadow tree is a root of its own.
fn root(map: &OsdMap, pool: &Pool) -> Option<i32> {
    let steps = &map.crush.rule(i32::from(pool.crush_rule))?.steps;
    steps.iter().find_map(|step| if let Step::Take(root) = step { Some(*root) } else { None })
}

fn osds_below(crush: &CrushMap, id: i32, seen: &mut BTreeSet<i32>, out: &mut BTreeSet<OsdId>) {
    if id >= 0 {
        out.insert(id);
        return;
    }
    let Some(bucket) = crush.bucket(id).filter(|_| seen.insert(id)) else { return };
    for (item, _) in bucket.entries().filter(|(item, _)| *item != ITEM_NONE) {
        osds_below(crush, item, seen, out);
    }
}

impl Cluster {
    /// The cluster as the map and the reports have it. Pools that nobody has reported are left out.
    #[must_use]
    pub fn of(map: &OsdMap, pgs: &PgMap, sums: &BTreeMap<PoolId, PoolSum>, target_pgs_per_osd: u64) -> Self {
        let mut out = Self { target_pgs_per_osd, ..Self::default() };
        for (id, pool) in &map.pools {
            let Some(sum) = sums.get(id) else { continue };
            let usage = pool_usage(pgs, map, pool, sum);
            let (target_bytes, target_ratio) = expectations(pool);
            let (pg_num_min, pg_num_max) = pg_num_bounds(pool);
            let facts = PoolFacts {
                root: root(map, pool),
                mode: pool.pg_autoscale_mode,
                pg_num_target: pool.pg_num_target,
                size: pool.size,
                stored_bytes: usage.stored(),
                raw_rate: map.raw_used_rate(pool),
                bias: real(pool, PG_AUTOSCALE_BIAS_KEY).unwrap_or(1.0),
                target_bytes,
                target_ratio,
                pg_num_min,
                pg_num_max,
                is_bulk: pool.has_flag(flags::pool::BULK),
            };
            if let Some(root) = facts.root {
                out.roots.entry(root).or_insert_with(|| {
                    let mut osds = BTreeSet::new();
                    osds_below(&map.crush, root, &mut BTreeSet::new(), &mut osds);
                    osds
                });
            }
            out.pools.insert(*id, facts);
        }
        let capacity = |(osd, stat): (OsdId, &nacre_msg::stats::OsdStat)| {
            Some((osd, stat.statfs.total.try_into().ok()?))
        };
        out.capacities = pgs.osds().filter_map(capacity).collect();
        out
    }
}
