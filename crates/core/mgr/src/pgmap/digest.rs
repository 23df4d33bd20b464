//! [`Digest`]: what all reports add up to, under one OSD map.

use super::PgMap;
use nacre_maps::OsdMap;
use nacre_msg::stats::{ObjStatSum, OsdStat, PgStat, StoreStatfs, pg_state};
use nacre_types::{OsdId, PoolId};
use std::collections::BTreeMap;

/// Sums over PGs. Ceph `pool_stat_t`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolSum {
    /// PGs that reported.
    pub pg_count: usize,
    /// Objects and what was done with them.
    pub stats: ObjStatSum,
    /// Entries of PG logs.
    pub log_size: i64,
    /// Entries of PG logs on disk.
    pub ondisk_log_size: i64,
    /// Members of up sets.
    pub up: usize,
    /// Members of acting sets.
    pub acting: usize,
    /// What the pool takes up on the OSDs.
    pub store: StoreStatfs,
    /// OSDs that reported `store`.
    pub store_count: usize,
}

impl PoolSum {
    /// Adds what another pool has, but for what it takes up on OSDs: [`Digest::sum`] says nothing of that.
    pub(super) fn add_pool(&mut self, other: &Self) {
        self.pg_count += other.pg_count;
        self.stats += &other.stats;
        self.log_size = self.log_size.saturating_add(other.log_size);
        self.ondisk_log_size = self.ondisk_log_size.saturating_add(other.ondisk_log_size);
        self.up += other.up;
        self.acting += other.acting;
    }

    fn add(&mut self, stat: &PgStat) {
        self.pg_count += 1;
        self.stats += &stat.stats.sum;
        self.log_size = self.log_size.saturating_add(stat.log_size);
        self.ondisk_log_size = self.ondisk_log_size.saturating_add(stat.ondisk_log_size);
        self.up += stat.up.len();
        self.acting += stat.acting.len();
    }
}

/// PGs of one OSD.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OsdPgs {
    /// PGs whose up or acting set has it.
    pub members: usize,
    /// PGs whose acting set has it.
    pub acting: usize,
    /// PGs that it leads.
    pub primary: usize,
}

/// Sums over everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Digest {
    /// PGs by state; 0 is unknown.
    pub by_state: BTreeMap<u64, usize>,
    /// PGs that the map has.
    pub pg_count: usize,
    /// PGs that are active.
    pub active_count: usize,
    /// PGs that no OSD has reported yet.
    pub unknown_count: usize,
    /// Sums of each pool that the map has.
    pub pools: BTreeMap<PoolId, PoolSum>,
    /// Sum of all pools.
    pub sum: PoolSum,
    /// Sum of all OSDs.
    pub osd_sum: OsdStat,
    /// PGs of each OSD.
    pub osd_pgs: BTreeMap<OsdId, OsdPgs>,
}

impl PgMap {
    /// Adds everything up.
    #[must_use]
    pub fn digest(&self, map: &OsdMap) -> Digest {
        if let Some(kept) = &self.kept {
            return kept.digest(map);
        }
        let mut digest = Digest::default();
        for (id, pool) in &map.pools {
            digest.pools.insert(*id, PoolSum::default());
            digest.pg_count += usize::try_from(pool.pg_num).unwrap_or(usize::MAX);
        }
        for (pg, stat) in self.pgs(map) {
            digest.add_pg(pg.pool, stat, Self::state_of(stat, map));
        }
        digest.unknown_count = digest.pg_count - digest.sum.pg_count;
        if digest.unknown_count > 0 {
            *digest.by_state.entry(0).or_default() += digest.unknown_count;
        }
        for ((pool, _), store) in &self.stores {
            if let Some(sum) = digest.pools.get_mut(pool) {
                sum.store += store;
                sum.store_count += 1;
            }
        }
        for (_, stat) in self.osds() {
            digest.add_osd(stat);
        }
        digest
    }
}

impl PgMap {
    /// PGs of each pool by state, those that no OSD has reported yet under 0; nothing where only sums are known.
    #[must_use]
    pub fn states_by_pool(&self, map: &OsdMap) -> BTreeMap<PoolId, BTreeMap<u64, usize>> {
        let mut pools: BTreeMap<PoolId, BTreeMap<u64, usize>> = BTreeMap::new();
        if self.kept.is_some() {
            return pools;
        }
        for (pg, stat) in self.pgs(map) {
            *pools.entry(pg.pool).or_default().entry(Self::state_of(stat, map)).or_default() += 1;
        }
        for (id, pool) in &map.pools {
            let states = pools.entry(*id).or_default();
            let all = usize::try_from(pool.pg_num).unwrap_or(usize::MAX);
            let unknown = all.saturating_sub(states.values().sum());
            if unknown > 0 {
                *states.entry(0).or_default() += unknown;
            }
        }
        pools
    }
}

impl Digest {
    fn add_pg(&mut self, pool: PoolId, stat: &PgStat, state: u64) {
        *self.by_state.entry(state).or_default() += 1;
        self.active_count += usize::from(state & pg_state::ACTIVE != 0);
        self.pools.entry(pool).or_default().add(stat);
        self.sum.add(stat);
        let mut members = stat.up.clone();
        members.extend(&stat.acting);
        members.sort_unstable();
        members.dedup();
        for osd in members.into_iter().filter(|osd| *osd >= 0 && *osd != nacre_crush::ITEM_NONE) {
            let pgs = self.osd_pgs.entry(osd).or_default();
            pgs.members += 1;
            pgs.acting += usize::from(stat.acting.contains(&osd));
            pgs.primary += usize::from(stat.acting_primary == osd);
        }
    }

    pub(super) fn add_osd(&mut self, stat: &OsdStat) {
        let sum = &mut self.osd_sum;
        sum.snap_trim_queue_len = sum.snap_trim_queue_len.saturating_add(stat.snap_trim_queue_len);
        sum.num_snap_trimming = sum.num_snap_trimming.saturating_add(stat.num_snap_trimming);
        sum.num_pgs = sum.num_pgs.saturating_add(stat.num_pgs);
        sum.kb_used_data = sum.kb_used_data.saturating_add(stat.kb_used_data);
        sum.kb_used_omap = sum.kb_used_omap.saturating_add(stat.kb_used_omap);
        sum.kb_used_meta = sum.kb_used_meta.saturating_add(stat.kb_used_meta);
        sum.statfs += &stat.statfs;
        sum.num_shards_repaired = sum.num_shards_repaired.saturating_add(stat.num_shards_repaired);
        sum.num_osds = sum.num_osds.saturating_add(stat.num_osds.max(1));
        sum.num_per_pool_osds = sum.num_per_pool_osds.saturating_add(stat.num_per_pool_osds);
        sum.num_per_pool_omap_osds = sum.num_per_pool_omap_osds.saturating_add(stat.num_per_pool_omap_osds);
    }

    /// PGs by name of state, the most frequent first.
    #[must_use]
    pub fn states(&self) -> Vec<(String, usize)> {
        let mut states: Vec<_> =
            self.by_state.iter().map(|(state, count)| (pg_state::text(*state), *count)).collect();
        states.sort_by(|(name, count), (other, other_count)| other_count.cmp(count).then(name.cmp(other)));
        states
    }

    /// PGs by name of state, in the order of the states' bits.
    pub fn states_by_bits(&self) -> impl Iterator<Item = (String, usize)> + '_ {
        self.by_state.iter().map(|(state, count)| (pg_state::text(*state), *count))
    }

    /// PGs in any state that has this bit.
    #[must_use]
    pub fn count_with(&self, bit: u64) -> usize {
        self.by_state.iter().filter(|(state, _)| *state & bit != 0).map(|(_, count)| count).sum()
    }

    /// PGs that the map has and that are not active, those never heard of included.
    #[must_use]
    pub fn inactive_count(&self) -> usize {
        self.pg_count - self.active_count
    }
}
