//! How much more a pool can take: `MAX AVAIL` of `df`.

use super::{PgMap, PoolSum};
use nacre_crush::{CrushMap, ITEM_NONE, Step};
use nacre_maps::{OsdMap, Pool};
use nacre_types::{OsdId, PoolId};
use std::collections::{BTreeMap, BTreeSet};

/// What `df` says of one pool, all but the average in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PoolUsage {
    /// Data that clients stored, one copy.
    pub stored_data: u64,
    /// Omap that clients stored, one copy.
    pub stored_omap: u64,
    /// Everything stored, all copies.
    pub stored_raw: u64,
    /// Space taken by data, all copies.
    pub used_data: u64,
    /// Space taken by omap, all copies.
    pub used_omap: u64,
    /// Space taken before compression.
    pub compressed_original: u64,
    /// Space taken by compressed data.
    pub compressed_used: u64,
    /// Share of what the pool could take at most.
    pub used_ratio: f64,
    /// What clients can still store.
    pub max_avail: u64,
    /// The same with all copies.
    pub raw_avail: u64,
}

impl PoolUsage {
    /// Bytes that clients have stored, omap included.
    #[must_use]
    pub fn stored(&self) -> u64 {
        self.stored_data.saturating_add(self.stored_omap)
    }

    /// Bytes that these take up on OSDs.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used_data.saturating_add(self.used_omap)
    }
}

/// OSDs under the roots that a rule takes from, with their share of the weight.
///
/// Shares and all that follows from them are in single precision, as Ceph has them: `df` then agrees to the byte.
fn rule_weights(crush: &CrushMap, rule: i32) -> BTreeMap<OsdId, f32> {
    let mut weights = BTreeMap::new();
    for step in crush.rule(rule).map_or(&[][..], |rule| &rule.steps) {
        if let Step::Take(root) = step {
            let mut seen = BTreeSet::new();
            collect_weights(crush, *root, &mut seen, &mut weights);
        }
    }
    let total: f32 = weights.values().sum();
    weights.retain(|_, weight| *weight > 0.0);
    weights.values_mut().for_each(|weight| *weight /= total);
    weights
}

fn collect_weights(crush: &CrushMap, id: i32, seen: &mut BTreeSet<i32>, out: &mut BTreeMap<OsdId, f32>) {
    if !seen.insert(id) {
        return;
    }
    let Some(bucket) = crush.bucket(id) else { return };
    for (item, weight) in bucket.entries() {
        if item >= 0 && item != ITEM_NONE {
            *out.entry(item).or_default() += single(f64::from(weight)) / 65_536.0;
        } else {
            collect_weights(crush, item, seen, out);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate of bytes")]
fn float(bytes: i64) -> f64 {
    bytes as f64
}

#[expect(clippy::cast_possible_truncation, reason = "single precision is wanted")]
fn single(value: f64) -> f32 {
    value as f32
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "float casts saturate")]
fn whole(bytes: f64) -> u64 {
    bytes as u64
}

/// Raw bytes that a rule's OSDs can still take before the first of them is full.
#[must_use]
pub fn rule_avail_bytes(pgs: &PgMap, map: &OsdMap, rule: i32) -> u64 {
    let room = |(osd, share): (&OsdId, &f32)| {
        let statfs = &pgs.osd(*osd)?.statfs;
        let reserve = float(statfs.total) * (1.0 - f64::from(map.full_ratio));
        (statfs.total > 0).then(|| (float(statfs.available) - reserve).max(0.0) / f64::from(*share))
    };
    let least = rule_weights(&map.crush, rule).iter().filter_map(room).fold(f64::INFINITY, f64::min);
    if least.is_finite() { whole(least) } else { 0 }
}

/// What `df` says of a pool. OSDs that do not report their use by pool are covered by an estimate: bytes of
/// objects times copies.
#[must_use]
pub fn pool_usage(pgs: &PgMap, map: &OsdMap, pool: &Pool, sum: &PoolSum) -> PoolUsage {
    usage_within(rule_avail_bytes(pgs, map, i32::from(pool.crush_rule)), map, pool, sum)
}

/// The same of all pools of a map, looking only once at what each rule has left.
#[must_use]
pub fn pool_usages(
    pgs: &PgMap,
    map: &OsdMap,
    sums: &BTreeMap<PoolId, PoolSum>,
) -> BTreeMap<PoolId, PoolUsage> {
    let mut avail = BTreeMap::new();
    let usage = |(id, pool): (&PoolId, &Pool)| {
        let rule = i32::from(pool.crush_rule);
        let raw_avail = *avail.entry(rule).or_insert_with(|| rule_avail_bytes(pgs, map, rule));
        Some((*id, usage_within(raw_avail, map, pool, sums.get(id)?)))
    };
    map.pools.iter().filter_map(usage).collect()
}

fn usage_within(raw_avail: u64, map: &OsdMap, pool: &Pool, sum: &PoolSum) -> PoolUsage {
    let stats = &sum.stats;
    let mut copies = single(map.raw_used_rate(pool));
    if stats.num_object_copies > 0 {
        let there = stats.num_object_copies.saturating_sub(stats.num_objects_degraded);
        copies *= single(float(there)) / single(float(stats.num_object_copies));
    }
    let one_copy = |bytes: f64| if copies > 0.0 { f64::from(single(bytes) / copies) } else { 0.0 };
    let reported = sum.store_count > 0;
    let estimate = float(stats.num_bytes) * f64::from(copies);
    let (stored, used) = if reported {
        (float(sum.store.data_stored), float(sum.store.allocated))
    } else {
        (estimate, estimate)
    };
    let omap = if reported {
        float(sum.store.omap_allocated)
    } else {
        float(stats.num_omap_bytes) * f64::from(copies)
    };
    let all_used = single(used + omap);
    let room = float(i64::try_from(raw_avail).unwrap_or(i64::MAX));
    let used_ratio = if all_used > 0.0 { f64::from(all_used / (all_used + single(room))) } else { 0.0 };
    PoolUsage {
        stored_data: whole(one_copy(stored).round()),
        stored_omap: whole(one_copy(omap).round()),
        stored_raw: whole(stored + omap),
        used_data: whole(used),
        used_omap: whole(omap),
        compressed_original: whole(float(sum.store.data_compressed_original)),
        compressed_used: whole(float(sum.store.data_compressed_allocated)),
        used_ratio,
        max_avail: whole(one_copy(room)),
        raw_avail,
    }
}
