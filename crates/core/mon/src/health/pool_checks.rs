//! Checks on pools, by the OSDMap and by what OSDs report of them.

use super::{Check, Severity};
use crate::state::State;
use nacre_maps::{OsdMap, Pool, flags};
use nacre_mgr::pgmap::Digest;
use nacre_types::PoolId;

fn name(map: &OsdMap, id: PoolId) -> &str {
    map.pool_name(id).unwrap_or_default()
}

fn pools_with(map: &OsdMap, flag: u64) -> impl Iterator<Item = (PoolId, &Pool)> {
    map.pools.iter().filter(move |(_, pool)| pool.has_flag(flag)).map(|(id, pool)| (*id, pool))
}

pub(super) fn checks(state: &State, map: &OsdMap, digest: &Digest) -> Vec<Check> {
    let full = |(id, pool): (PoolId, &Pool)| {
        let why = if pool.has_flag(flags::pool::FULL_QUOTA) { "running out of quota" } else { "no space" };
        format!("pool '{}' is full ({why})", name(map, id))
    };
    let quotas = Quotas::look(state, map, digest);
    let mut full: Vec<String> = pools_with(map, flags::pool::FULL).map(full).collect();
    let is_critical = !quotas.critical.is_empty();
    full.extend(quotas.critical);
    let lists = [
        ("POOL_FULL", "pool(s) full", full),
        ("POOL_NEAR_FULL", "pool(s) near their quota", quotas.near),
        (
            "POOL_BACKFILLFULL",
            "pool(s) backfillfull",
            pools_with(map, flags::pool::BACKFILLFULL)
                .map(|(id, _)| format!("pool '{}' is backfillfull", name(map, id)))
                .collect(),
        ),
        (
            "POOL_NEARFULL",
            "pool(s) nearfull",
            pools_with(map, flags::pool::NEARFULL)
                .map(|(id, _)| format!("pool '{}' is nearfull", name(map, id)))
                .collect(),
        ),
        ("POOL_NO_REDUNDANCY", "pool(s) have no replicas configured", without_redundancy(state, map)),
        ("POOL_APP_NOT_ENABLED", "pool(s) without an application", without_application(state, map, digest)),
    ];
    let check = |(code, what, mut lines): (&'static str, &str, Vec<String>)| {
        let summary = format!("{} {what}", lines.len());
        if code == "POOL_APP_NOT_ENABLED" {
            lines.push(APPLICATION_HINT.to_owned()); // a line more, not a pool more
        }
        let severity = if code == "POOL_FULL" && is_critical { Severity::Error } else { Severity::Warn };
        Check::new(code, severity, summary, lines)
    };
    lists.into_iter().filter(|(.., lines)| !lines.is_empty()).map(check).collect()
}

const APPLICATION_HINT: &str =
    "'ceph osd pool application enable POOL APP' names it: cephfs, rbd, rgw, or a word of your own.";

fn without_redundancy(state: &State, map: &OsdMap) -> Vec<String> {
    if !state.config.flag_of_monitor("mon_warn_on_pool_no_redundancy") {
        return Vec::new();
    }
    let single = map.pools.iter().filter(|(_, pool)| pool.is_replicated() && pool.size == 1);
    single.map(|(id, _)| format!("pool '{}' has no replicas configured", name(map, *id))).collect()
}

fn without_application(state: &State, map: &OsdMap, digest: &Digest) -> Vec<String> {
    if !state.config.flag_of_monitor("mon_warn_on_pool_no_app") {
        return Vec::new();
    }
    let used = |id: &PoolId| digest.pools.get(id).is_some_and(|sum| sum.stats.num_objects > 0);
    let silent = map.pools.iter().filter(|(id, pool)| pool.application_metadata.is_empty() && used(id));
    silent.map(|(id, _)| format!("application not enabled on pool '{}'", name(map, *id))).collect()
}

/// Pools that hold so much of what their quotas allow that an operator wants to know, and are not closed for it yet.
#[derive(Default)]
struct Quotas {
    near: Vec<String>,
    critical: Vec<String>,
}

impl Quotas {
    /// Per cent of a quota from which on it is spoken of; 0: never.
    fn look(state: &State, map: &OsdMap, digest: &Digest) -> Self {
        let warn = state.config.number_of_monitor("mon_pool_quota_warn_threshold", 0.0);
        let critical = state.config.number_of_monitor("mon_pool_quota_crit_threshold", 0.0);
        let mut found = Self::default();
        for (id, pool) in &map.pools {
            let Some(sum) = digest.pools.get(id) else { continue };
            let kinds = [
                (sum.stats.num_objects, pool.quota_max_objects, "objects"),
                (sum.stats.num_bytes, pool.quota_max_bytes, "bytes"),
            ];
            for (used, quota, what) in kinds {
                let used = u64::try_from(used).unwrap_or(0);
                let percent = used as f64 * 100.0 / quota as f64;
                let is_over = |threshold: f64| threshold > 0.0 && percent >= threshold;
                if quota == 0 || used >= quota {
                    continue; // without a quota, or closed
                }
                let line = format!("pool '{}' has {used} {what} (max {quota})", name(map, *id));
                match (is_over(critical), is_over(warn)) {
                    (true, _) => found.critical.push(line),
                    (false, true) => found.near.push(line),
                    (false, false) => {}
                }
            }
        }
        found
    }
}
