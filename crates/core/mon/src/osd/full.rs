//! How full OSDs and pools are, as the map says it.

use super::OsdMaps;
use nacre_maps::{OsdMap, flags};
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
fn osd_changes(map: &OsdMap, pgs: &PgMap) -> BTreeMap<OsdId, u32> {
    let change = |osd: OsdId| {
        let statfs = &pgs.osd(osd)?.statfs;
        let wanted = osd_bits(map, used_ratio(statfs.total, statfs.available)?);
        let flip = (map.state(osd) & OSD_BITS) ^ wanted;
        (flip != 0).then_some((osd, flip))
    };
    map.up_osds().filter_map(change).collect()
}

fn is_over_quota(map: &OsdMap, id: PoolId, digest: &Digest) -> bool {
    let (Some(pool), Some(sum)) = (map.pool(id), digest.pools.get(&id)) else { return false };
    let over = |used: i64, quota: u64| quota > 0 && u64::try_from(used).unwrap_or(0) >= quota;
    over(sum.stats.num_bytes, pool.quota_max_bytes) || over(sum.stats.num_objects, pool.quota_max_objects)
}

/// Fullness of a pool: its own quota, and that of the fullest OSD it may use (`fullest`).
fn pool_bits(map: &OsdMap, id: PoolId, digest: &Digest, fullest: u32) -> u64 {
    if is_over_quota(map, id, digest) {
        return flags::pool::FULL | flags::pool::FULL_QUOTA;
    }
    if fullest & flags::osd::FULL != 0 {
        flags::pool::FULL
    } else if fullest & flags::osd::BACKFILLFULL != 0 {
        flags::pool::BACKFILLFULL
    } else if fullest & flags::osd::NEARFULL != 0 {
        flags::pool::NEARFULL
    } else {
        0
    }
}

/// State bits of all OSDs that hold PGs of each pool, taken together.
fn bits_by_pool(map: &OsdMap, pgs: &PgMap, osds: &BTreeMap<OsdId, u32>) -> BTreeMap<PoolId, u32> {
    let mut out = BTreeMap::new();
    let bits = |osd: &OsdId| (map.state(*osd) ^ osds.get(osd).copied().unwrap_or(0)) & OSD_BITS;
    for (pg, stat) in pgs.pgs(map) {
        *out.entry(pg.pool).or_default() |= stat.acting.iter().map(bits).fold(0, |all, bits| all | bits);
    }
    out
}

impl OsdMaps {
    /// Brings the full bits of OSDs and pools up to what was reported.
    pub(crate) fn update_fullness(&mut self, pgs: &PgMap, digest: &Digest) {
        let map = self.upcoming().clone();
        let osds = osd_changes(&map, pgs);
        let fullest = bits_by_pool(&map, pgs, &osds);
        for (osd, flip) in osds {
            // Bits that this very epoch flips already are flipped back, not twice.
            *self.change().new_state.entry(osd).or_default() ^= flip;
        }
        for (id, pool) in &map.pools {
            let wanted = pool_bits(&map, *id, digest, fullest.get(id).copied().unwrap_or(0));
            if pool.flags & POOL_BITS != wanted
                && let Some(pool) = self.change_pool(*id)
            {
                pool.flags = (pool.flags & !POOL_BITS) | wanted;
            }
        }
        // An entry of 0 would mean "flip up".
        if let Some(pending) = &mut self.pending {
            pending.incremental.new_state.retain(|_, bits| *bits != 0);
        }
    }
}
