//! Checks on numbers of PGs, and on how objects are spread over them.
//!
//! Source: Ceph `src/mon/PGMap.cc: get_health_checks`, `src/osd/OSDMap.cc: check_health` at v16.2.15.

use super::{Check, Severity};
use crate::state::State;
use nacre_maps::{OsdMap, Pool};
use nacre_mgr::pgmap::{Digest, PoolSum};
use nacre_types::PoolId;

pub(super) fn checks(state: &State, map: &OsdMap, digest: &Digest) -> Vec<Check> {
    let lists = [
        ("POOL_PG_NUM_NOT_POWER_OF_TWO", "pool(s) have non-power-of-two pg_num", uneven(state, map)),
        ("SMALLER_PGP_NUM", "pools have pg_num > pgp_num", smaller_pgp_num(map)),
        (
            "MANY_OBJECTS_PER_PG",
            "pools have many more objects per pg than average",
            crowded(state, map, digest),
        ),
    ];
    let check = |(code, what, lines): (&'static str, &str, Vec<String>)| {
        let summary = format!("{} {what}", lines.len());
        (!lines.is_empty()).then(|| Check::new(code, Severity::Warn, summary, lines))
    };
    lists.into_iter().filter_map(check).chain(per_osd(state, map, digest)).collect()
}

fn named(map: &OsdMap) -> impl Iterator<Item = (PoolId, &str, &Pool)> {
    map.pools.iter().map(|(id, pool)| (*id, map.pool_name(*id).unwrap_or_default(), pool))
}

/// How many PGs a pool is to have, and by how many its objects are placed; pools of old maps have no targets.
fn targets(pool: &Pool) -> (u32, u32) {
    let or = |target: u32, now: u32| if target > 0 { target } else { now };
    (or(pool.pg_num_target, pool.pg_num), or(pool.pgp_num_target, pool.pgp_num))
}

fn uneven(state: &State, map: &OsdMap) -> Vec<String> {
    if !state.config.flag_of_monitor("mon_warn_on_pool_pg_num_not_power_of_two") {
        return Vec::new();
    }
    let counts = named(map).map(|(_, name, pool)| (name, targets(pool).0));
    let uneven = counts.filter(|(_, pg_num)| !pg_num.is_power_of_two());
    uneven.map(|(name, pg_num)| format!("pool '{name}' pg_num {pg_num} is not a power of two")).collect()
}

fn smaller_pgp_num(map: &OsdMap) -> Vec<String> {
    let counts = named(map).map(|(_, name, pool)| (name, targets(pool)));
    let smaller = counts.filter(|(_, (pg_num, pgp_num))| pg_num > pgp_num);
    smaller
        .map(|(name, (pg_num, pgp_num))| format!("pool {name} pg_num {pg_num} > pgp_num {pgp_num}"))
        .collect()
}

/// Pools whose PGs hold many times as many objects as PGs do on average: they should have more of them.
fn crowded(state: &State, map: &OsdMap, digest: &Digest) -> Vec<String> {
    let config = &state.config;
    let skew_max = config.number_of_monitor("mon_pg_warn_max_object_skew", 10.0);
    let objects_min = config.number_of_monitor("mon_pg_warn_min_objects", 10_000.0);
    let of_pool_min = config.number_of_monitor("mon_pg_warn_min_pool_objects", 1000.0);
    let all = digest.sum.stats.num_objects;
    let average = all.checked_div(i64::try_from(digest.sum.pg_count).unwrap_or(i64::MAX)).unwrap_or(0);
    if skew_max <= 0.0 || average <= 0 || (all as f64) < objects_min {
        return Vec::new();
    }
    let crowded = |(id, name, pool): (PoolId, &str, &Pool)| {
        let objects = digest.pools.get(&id).map(|sum: &PoolSum| sum.stats.num_objects)?;
        let per_pg = objects.checked_div(i64::from(targets(pool).0))?;
        let ratio = per_pg as f64 / average as f64;
        (objects as f64 >= of_pool_min && ratio > skew_max).then(|| {
            format!(
                "pool {name} objects per pg ({per_pg}) is more than {ratio} times cluster average ({average})"
            )
        })
    };
    named(map).filter_map(crowded).collect()
}

/// Copies of PGs on the average OSD that is in.
fn per_osd(state: &State, map: &OsdMap, digest: &Digest) -> Option<Check> {
    let copies = digest.sum.up.max(digest.sum.pg_count);
    let per = copies.checked_div(map.in_count())?;
    let min = state.config.number_of_monitor("mon_pg_warn_min_per_osd", 0.0);
    let max = state.config.number_of_monitor("mon_max_pg_per_osd", 250.0);
    let shown = per as f64;
    if per > 0 && shown < min {
        let summary = format!("too few PGs per OSD ({per} < min {min})");
        return Some(Check::new("TOO_FEW_PGS", Severity::Warn, summary, Vec::new()).counting(1));
    }
    let summary = format!("too many PGs per OSD ({per} > max {max})");
    (max > 0.0 && shown > max)
        .then(|| Check::new("TOO_MANY_PGS", Severity::Warn, summary, Vec::new()).counting(1))
}
