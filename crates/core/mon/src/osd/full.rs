//! How full OSDs and pools are, as the map says it.

use super::OsdMaps;
use nacre_maps::{OsdMap, Pool, flags};
use nacre_mgr::pgmap::{Digest, PgMap};
use nacre_types::{OsdId, PoolId};
use std::collections::BTreeMap;

/// State bits that say how full an OSD is.
const OSD_BITS: u32 = flags::osd::FULL | flags::osd::BACKFILLFULL | flags::osd::NEARFULL;
/// The same for pools, and for those over their quota.
const POOL_BITS: u64 =
    flags::pool::FULL | flags::pool::FULL_QUOTA | flags::pool::BACKFILLFULL | flags::pool::NEARFULL;

/// The one bit that an OSD's use deserves.
fn osd_bits(map: &OsdMap, used: f32) -> u32 {
    if used >= map.full_ratio && map.full_ratio > 0.0 {
        flags::osd::FULL
    } else if used >= map.backfillfull_ratio && map.backfillfull_ratio > 0.0 {
        flags::osd::BACKFILLFULL
    } else if used >= map.nearfull_ratio && map.nearfull_ratio > 0.0 {
        flags::osd::NEARFULL
    } else {
        0
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people and thresholds")]
fn used_ratio(total: i64, available: i64) -> Option<f32> {
    (total > 0).then(|| 1.0 - available as f32 / total as f32)
}

/// OSDs whose bits differ from what their last report deserves, with the bits to flip.
fn osd_changes(map: &OsdMap, pgs: &PgMap, may_lower: bool) -> BTreeMap<OsdId, u32> {
    let change = |osd: OsdId| {
        let statfs = &pgs.osd(osd)?.statfs;
        let (held, wanted) =
            (map.state(osd) & OSD_BITS, osd_bits(map, used_ratio(statfs.total, statfs.available)?));
        let flip = held ^ wanted;
        let may = may_lower || raised(pool_level(held), pool_level(wanted)) == pool_level(wanted);
        (flip != 0 && may).then_some((osd, flip))
    };
    map.up_osds().filter_map(change).collect()
}

/// Is the pool over its quota? `None` while that cannot be known: a sum that lacks PGs shows that a quota is
/// exceeded, never that it is not.
fn is_over_quota(map: &OsdMap, id: PoolId, digest: &Digest) -> Option<bool> {
    let pool = map.pool(id)?;
    if pool.quota_max_bytes == 0 && pool.quota_max_objects == 0 {
        return Some(false);
    }
    let sum = digest.pools.get(&id)?;
    let over = |used: i64, quota: u64| quota > 0 && u64::try_from(used).unwrap_or(0) >= quota;
    let is_over = over(sum.stats.num_bytes, pool.quota_max_bytes)
        || over(sum.stats.num_objects, pool.quota_max_objects);
    (is_over || has_all(pool, digest, id)).then_some(is_over)
}

/// True when every PG of the pool has been reported.
fn has_all(pool: &Pool, digest: &Digest, id: PoolId) -> bool {
    digest.pools.get(&id).is_some_and(|sum| u32::try_from(sum.pg_count) == Ok(pool.pg_num))
}

/// The one bit of a pool that stands for how full the fullest of some OSDs is.
fn pool_level(osd_bits: u32) -> u64 {
    let levels = [
        (flags::osd::FULL, flags::pool::FULL),
        (flags::osd::BACKFILLFULL, flags::pool::BACKFILLFULL),
        (flags::osd::NEARFULL, flags::pool::NEARFULL),
    ];
    levels.iter().find(|(osd, _)| osd_bits & osd != 0).map_or(0, |(_, pool)| *pool)
}

/// The higher and the lower of two levels.
fn order_levels(one: u64, other: u64) -> (u64, u64) {
    let rank = |level| {
        [flags::pool::NEARFULL, flags::pool::BACKFILLFULL, flags::pool::FULL]
            .iter()
            .position(|known| *known == level)
            .map_or(0, |at| at + 1)
    };
    if rank(one) >= rank(other) { (one, other) } else { (other, one) }
}

/// The bits of a pool that had `held` and deserves `wanted`, while it must not look emptier than it did.
fn raised(held: u64, wanted: u64) -> u64 {
    match (held | wanted) & flags::pool::FULL_QUOTA {
        0 => order_levels(held, wanted).0,
        quota => flags::pool::FULL | quota,
    }
}

/// What the map knows of how full its OSDs are.
struct Fullest {
    /// State bits of all OSDs together: no pool is fuller.
    any: u32,
    /// State bits of the OSDs that hold PGs of each pool, as far as these reported.
    by_pool: BTreeMap<PoolId, u32>,
}

/// Fullness of a pool: its own quota, and that of the fullest OSD that it uses. While PGs have not been reported, however long that takes, it
/// is what the map says: a pool that was full stays full until it is known not to be.
fn pool_bits(map: &OsdMap, id: PoolId, pool: &Pool, digest: &Digest, fullest: &Fullest) -> u64 {
    let both = flags::pool::FULL | flags::pool::FULL_QUOTA;
    if is_over_quota(map, id, digest).unwrap_or(pool.flags & flags::pool::FULL_QUOTA != 0) {
        return both;
    }
    let known = pool_level(fullest.by_pool.get(&id).copied().unwrap_or(0));
    if has_all(pool, digest, id) {
        return known;
    }
    let held = order_levels(pool.flags & POOL_BITS, pool_level(fullest.any)).1;
    order_levels(known, held).0
}

/// How full OSDs are, with `flips` of their bits.
fn fullest(map: &OsdMap, pgs: &PgMap, flips: &BTreeMap<OsdId, u32>) -> Fullest {
    let mut out = BTreeMap::new();
    let bits = |osd: &OsdId| (map.state(*osd) ^ flips.get(osd).copied().unwrap_or(0)) & OSD_BITS;
    for (pg, stat) in pgs.pgs(map) {
        *out.entry(pg.pool).or_default() |= stat.acting.iter().map(bits).fold(0, |all, bits| all | bits);
    }
    Fullest { any: map.osds().fold(0, |all, osd| all | bits(&osd)), by_pool: out }
}

impl OsdMaps {
    /// Brings the full bits of OSDs and pools up to what was reported; none is taken away unless `may_lower`.
    pub(crate) fn update_fullness(&mut self, pgs: &PgMap, digest: &Digest, may_lower: bool) {
        let map = self.upcoming().clone();
        let osds = osd_changes(&map, pgs, may_lower);
        let fullest = fullest(&map, pgs, &osds);
        for (osd, flip) in osds {
            // Bits that this very epoch flips already are flipped back, not twice.
            *self.change().new_state.entry(osd).or_default() ^= flip;
        }
        for (id, pool) in &map.pools {
            let deserved = pool_bits(&map, *id, pool, digest, &fullest);
            let wanted = if may_lower { deserved } else { raised(pool.flags & POOL_BITS, deserved) };
            if pool.flags & POOL_BITS != wanted
                && let Some(pool) = self.change_pool(*id)
            {
                pool.flags = (pool.flags & !POOL_BITS) | wanted;
            }
        }
    }
}
