//! What the autoscaler finds: pools that it may only warn of, and expectations that cannot come true.
//!
//! Ceph's module warns of every pool with the mode `warn`, however many PGs it has; here of those that it would change with `on`.

use super::{Check, Severity};
use crate::outlook::{is_off, outlook};
use crate::state::State;
use nacre_maps::{AutoscaleMode, OsdMap, Pool};
use nacre_mgr::autoscaler::{Advice, Cluster, binary_bytes, expectations};
use nacre_mgr::pgmap::Digest;
use nacre_types::PoolId;
use std::collections::BTreeMap;

pub(super) fn checks(state: &State, map: &OsdMap, digest: &Digest) -> Vec<Check> {
    let is_asked = |pool: &Pool| pool.pg_autoscale_mode == AutoscaleMode::Warn || expectations(pool).0 > 0;
    // A stock manager says it itself.
    if !state.mgr.own_is_active() || is_off(state) || !map.pools.values().any(is_asked) {
        return Vec::new();
    }
    let (cluster, outlook) = outlook(state, digest);
    let named = Named { map, cluster: &cluster };
    let mut out = counts(&named, &outlook.advice);
    out.extend(both_expectations(map));
    out.extend(overcommitted(&named, &outlook.advice));
    out
}

/// Pools and their names.
struct Named<'a> {
    map: &'a OsdMap,
    cluster: &'a Cluster,
}

impl Named<'_> {
    fn name(&self, pool: PoolId) -> &str {
        self.map.pool_name(pool).unwrap_or_default()
    }
}

fn warn(code: &'static str, summary: &str, detail: Vec<String>) -> Option<Check> {
    let summary = format!("{} {summary}", detail.len());
    (!detail.is_empty()).then(|| Check::new(code, Severity::Warn, summary, detail))
}

fn counts(named: &Named<'_>, advice: &[Advice]) -> Vec<Check> {
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for advice in advice.iter().filter(|advice| advice.is_off) {
        let Some(facts) = named.cluster.pools.get(&advice.pool) else { continue };
        if facts.mode != AutoscaleMode::Warn {
            continue;
        }
        let (name, there, wanted) = (named.name(advice.pool), facts.pg_num_target, advice.pg_num);
        let text = format!("Pool {name} has {there} placement groups, should have {wanted}");
        if wanted > there { few.push(text) } else { many.push(text) }
    }
    let few = warn("POOL_TOO_FEW_PGS", "pools have too few placement groups", few);
    let many = warn("POOL_TOO_MANY_PGS", "pools have too many placement groups", many);
    few.into_iter().chain(many).collect()
}

fn both_expectations(map: &OsdMap) -> Option<Check> {
    let is_both = |pool: &Pool| matches!(expectations(pool), (bytes, ratio) if bytes > 0 && ratio > 0.0);
    let both = map.pools.iter().filter(|(_, pool)| is_both(pool));
    let text = |(id, _): (&PoolId, &Pool)| {
        let name = map.pool_name(*id).unwrap_or_default();
        format!("Pool {name} has target_size_bytes and target_size_ratio set")
    };
    warn(
        "POOL_HAS_TARGET_SIZE_BYTES_AND_RATIO",
        "pools have both target_size_bytes and target_size_ratio set",
        both.map(text).collect(),
    )
}

/// What the pools of one root take, or are expected to take.
#[derive(Default)]
struct Sum<'a> {
    all: Vec<&'a str>,
    with_target: Vec<&'a str>,
    expected: f64,
    target: f64,
    capacity: u64,
}

fn overcommitted(named: &Named<'_>, advice: &[Advice]) -> Option<Check> {
    let mut roots: BTreeMap<i32, Sum<'_>> = BTreeMap::new();
    for advice in advice {
        let sum = roots.entry(advice.root).or_default();
        sum.all.push(named.name(advice.pool));
        sum.expected += advice.raw_used;
        sum.capacity = advice.capacity;
        if advice.target_bytes > 0 {
            let rate = named.cluster.pools.get(&advice.pool).map_or(1.0, |facts| facts.raw_rate);
            sum.target += real(advice.target_bytes) * rate;
            sum.with_target.push(named.name(advice.pool));
        }
    }
    let text = |sum: &Sum<'_>| {
        let times = sum.expected / real(sum.capacity);
        let target = binary_bytes(whole(sum.target), 5);
        let target = target.trim();
        (sum.target > 0.0 && times > 1.0).then(|| {
            format!(
                "Pools {:?} overcommit available storage by {times:.3}x due to target_size_bytes {target} on pools {:?}",
                sum.all, sum.with_target
            )
        })
    };
    warn(
        "POOL_TARGET_SIZE_BYTES_OVERCOMMITTED",
        "subtrees have overcommitted pool target_size_bytes",
        roots.values().filter_map(text).collect(),
    )
}

#[expect(clippy::cast_precision_loss, reason = "shares of bytes")]
fn real(bytes: u64) -> f64 {
    bytes as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "float casts saturate")]
fn whole(bytes: f64) -> u64 {
    bytes as u64
}
