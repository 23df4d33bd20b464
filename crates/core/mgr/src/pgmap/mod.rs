//! [`PgMap`]: the newest report of every PG and OSD, and [`Digest`]: what they add up to.
//!
//! Ceph's namesake is `src/mon/PGMap.{h,cc}` at v16.2.15. Unlike there, sums are not kept along: a command
//! that needs them adds up the reports that the OSD map still knows, which cannot drift.

mod avail;
mod digest;
mod dump;
mod kept;
mod progress;
mod rates;

pub use avail::{PoolUsage, pool_usage, pool_usages, rule_avail_bytes};
pub use digest::{Digest, OsdPgs, PoolSum};
pub use dump::{
    osd_stat, osd_stat_body, pg_brief, pg_stat, pg_stat_body, pool_row, pool_stat, stat_sum, statfs,
};
pub use kept::KeptDigest;
use progress::Left;
pub use progress::{Ended, Progress, Recovery};
pub use rates::Rate;

use nacre_maps::{OsdMap, flags};
use nacre_msg::PgStats;
use nacre_msg::stats::{OsdStat, PgStat, StoreStatfs, pg_state};
use nacre_types::{OsdId, PgId, PoolId, Stamp, UTime};
use rates::Rates;
use std::collections::BTreeMap;

/// Reports of PGs that are kept; more than any cluster of ours has.
pub const PGS_COUNT_MAX: usize = 4_000_000;

/// More bytes than any OSD has: what says more is nonsense, whoever says it.
const OSD_BYTES_MAX: i64 = 1 << 56;
/// More bytes, objects, or whatever else is summed up, than any PG has.
const PG_SUM_MAX: i64 = 1 << 50;

/// The newest reports.
#[derive(Debug, Default)]
pub struct PgMap {
    /// Grows with every report.
    pub version: u64,
    /// When the newest report came in.
    pub stamp: UTime,
    pgs: BTreeMap<PgId, PgStat>,
    osds: BTreeMap<OsdId, OsdStat>,
    stores: BTreeMap<(PoolId, OsdId), StoreStatfs>,
    rates: Rates,
    /// How far recovery is.
    pub progress: Progress,
    /// Instead of reports of PGs: what an earlier leader had.
    kept: Option<KeptDigest>,
}

/// True when the map knows this OSD and says that it runs.
pub(crate) fn is_up(map: &OsdMap, osd: OsdId) -> bool {
    let wanted = flags::osd::EXISTS | flags::osd::UP;
    usize::try_from(osd)
        .ok()
        .and_then(|at| map.osd_state.get(at))
        .is_some_and(|state| state & wanted == wanted)
}

/// True when the map has this PG.
fn has_pg(map: &OsdMap, pg: PgId) -> bool {
    map.pools.get(&pg.pool).is_some_and(|pool| pg.seed < pool.pg_num)
}

impl PgMap {
    /// Takes in the report of an OSD. A PG's report replaces an older one, by epoch and sequence number.
    pub fn report(&mut self, from: OsdId, report: PgStats, wall: UTime) {
        self.version += 1;
        self.stamp = wall;
        let mut stat = report.osd_stat;
        stat.statfs.bound(OSD_BYTES_MAX);
        for kib in [&mut stat.kb_used_data, &mut stat.kb_used_omap, &mut stat.kb_used_meta] {
            *kib = (*kib).clamp(0, OSD_BYTES_MAX >> 10);
        }
        let room = stat.statfs.total;
        self.osds.insert(from, stat);
        self.stores.retain(|(_, osd), _| *osd != from);
        for (pool, mut store) in report.pool_stat {
            // No more of a pool is there than the store can hold, and no less than nothing.
            store.bound(room);
            self.stores.insert((pool, from), store);
        }
        for (pg, mut stat) in report.pg_stat {
            stat.stats.sum.bound(PG_SUM_MAX);
            for entries in [&mut stat.log_size, &mut stat.ondisk_log_size] {
                *entries = (*entries).clamp(0, PG_SUM_MAX);
            }
            let held = self.pgs.get(&pg).map(|held| (held.reported_epoch, held.reported_seq));
            let is_new = held.is_none_or(|held| held <= (stat.reported_epoch, stat.reported_seq));
            if is_new && (held.is_some() || self.pgs.len() < PGS_COUNT_MAX) {
                self.pgs.insert(pg, stat);
            }
        }
    }

    /// Notes the sums for the rates; call it every second or so.
    pub fn sample(&mut self, now: Stamp) {
        self.rates.sample(now, self.version, &self.pgs);
        let left = || Left::of(self.pgs.values());
        self.progress.sample(now, self.stamp, self.version, left);
    }

    /// Forgets what the map no longer has.
    pub fn prune(&mut self, map: &OsdMap) {
        self.pgs.retain(|pg, _| has_pg(map, *pg));
        self.osds.retain(|osd, _| {
            let state = usize::try_from(*osd).ok().and_then(|at| map.osd_state.get(at));
            state.is_some_and(|state| state & flags::osd::EXISTS != 0)
        });
        let osds = &self.osds;
        self.stores.retain(|(pool, osd), _| map.pools.contains_key(pool) && osds.contains_key(osd));
        self.rates.prune(map);
    }

    /// The report of one PG.
    #[must_use]
    pub fn pg(&self, pg: PgId) -> Option<&PgStat> {
        self.pgs.get(&pg)
    }

    /// Reports of the PGs that the map has.
    pub fn pgs<'a>(&'a self, map: &'a OsdMap) -> impl Iterator<Item = (PgId, &'a PgStat)> {
        self.pgs.iter().filter(|(pg, _)| has_pg(map, **pg)).map(|(pg, stat)| (*pg, stat))
    }

    /// The report of one OSD.
    #[must_use]
    pub fn osd(&self, osd: OsdId) -> Option<&OsdStat> {
        self.osds.get(&osd)
    }

    /// Reports of all OSDs.
    pub fn osds(&self) -> impl DoubleEndedIterator<Item = (OsdId, &OsdStat)> {
        self.osds.iter().map(|(osd, stat)| (*osd, stat))
    }

    /// What went on in a pool over the last seconds; of all pools without one.
    #[must_use]
    pub fn rate(&self, pool: Option<PoolId>) -> Rate {
        self.known_rate(pool).unwrap_or_default()
    }

    /// The same; `None` until there were two reports to compare.
    #[must_use]
    pub fn known_rate(&self, pool: Option<PoolId>) -> Option<Rate> {
        self.rates.rate(pool)
    }

    /// A PG's state: as reported, and stale once its primary is down.
    #[must_use]
    pub fn state_of(stat: &PgStat, map: &OsdMap) -> u64 {
        let stale = if is_up(map, stat.acting_primary) { 0 } else { pg_state::STALE };
        stat.state | stale
    }
}
