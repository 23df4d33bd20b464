//! [`KeptDigest`]: what all reports added up to a moment ago, as a leader keeps it for the next one, which has no reports yet.

use super::{Digest, OsdPgs, PgMap, PoolSum};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_maps::OsdMap;
use nacre_msg::stats::OsdStat;
use nacre_types::{OsdId, PoolId};
use std::collections::BTreeMap;

/// Sums and the OSDs' room. It is for people to look at: nothing may be decided by it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptDigest {
    by_state: BTreeMap<u64, u64>,
    active_count: u64,
    pools: BTreeMap<PoolId, PoolSum>,
    osd_pgs: BTreeMap<OsdId, OsdPgs>,
    /// Of each OSD what does not change with every report: how large and how full it is.
    osds: BTreeMap<OsdId, OsdStat>,
}

impl PgMap {
    /// What the next leader shows until it has reports itself.
    #[must_use]
    pub fn to_keep(&self, map: &OsdMap) -> KeptDigest {
        let digest = self.digest(map);
        let room = |(osd, stat): (OsdId, &OsdStat)| {
            let room = OsdStat {
                num_pgs: stat.num_pgs,
                kb_used_data: stat.kb_used_data,
                kb_used_omap: stat.kb_used_omap,
                kb_used_meta: stat.kb_used_meta,
                statfs: stat.statfs.clone(),
                num_osds: stat.num_osds,
                num_per_pool_osds: stat.num_per_pool_osds,
                num_per_pool_omap_osds: stat.num_per_pool_omap_osds,
                ..OsdStat::default()
            };
            (osd, room)
        };
        KeptDigest {
            by_state: digest.by_state.iter().map(|(state, count)| (*state, *count as u64)).collect(),
            active_count: digest.active_count as u64,
            pools: digest.pools,
            osd_pgs: digest.osd_pgs,
            osds: self.osds().map(room).collect(),
        }
    }

    /// As if these reports had come in; of single PGs nothing is known.
    #[must_use]
    pub fn from_kept(kept: KeptDigest) -> Self {
        Self { osds: kept.osds.clone(), kept: Some(kept), ..Self::default() }
    }
}

impl KeptDigest {
    /// The sums under a map, which may have other pools by now.
    pub(super) fn digest(&self, map: &OsdMap) -> Digest {
        let mut digest = Digest { osd_pgs: self.osd_pgs.clone(), ..Digest::default() };
        for (id, pool) in &map.pools {
            let sum = self.pools.get(id).cloned().unwrap_or_default();
            digest.sum.add_pool(&sum);
            digest.pools.insert(*id, sum);
            digest.pg_count += usize::try_from(pool.pg_num).unwrap_or(usize::MAX);
        }
        let whole = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let known = self.by_state.iter().filter(|(state, _)| **state != 0);
        digest.by_state = known.map(|(state, count)| (*state, whole(*count))).collect();
        let known_count: usize = digest.by_state.values().sum();
        digest.active_count = whole(self.active_count).min(digest.pg_count);
        digest.unknown_count = digest.pg_count.saturating_sub(known_count);
        if digest.unknown_count > 0 {
            digest.by_state.insert(0, digest.unknown_count);
        }
        self.osds.values().for_each(|stat| digest.add_osd(stat));
        digest
    }
}

/// In an envelope (version 1, compat 1): PGs by state, how many are active, pools, PGs by OSD, OSDs.
impl Encode for KeptDigest {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.by_state);
            w.u64(self.active_count);
            w.count(self.pools.len());
            for (id, sum) in &self.pools {
                w.put(id);
                encode_sum(sum, w);
            }
            w.count(self.osd_pgs.len());
            for (osd, pgs) in &self.osd_pgs {
                w.put(osd);
                [pgs.members, pgs.acting, pgs.primary].iter().for_each(|count| w.u64(*count as u64));
            }
            w.put(&self.osds);
        });
    }
}

impl Decode for KeptDigest {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("KeptDigest", 1, |_, r| {
            let (by_state, active_count) = (r.get()?, r.u64()?);
            let count = r.count(8)?;
            let pools = (0..count).map(|_| Ok((r.get()?, decode_sum(r)?)));
            let pools = pools.collect::<Result<_, DecodeError>>()?;
            let count = r.count(4 + 3 * 8)?;
            let osd_pgs = (0..count).map(|_| {
                let osd = r.get()?;
                Ok((osd, OsdPgs { members: size(r)?, acting: size(r)?, primary: size(r)? }))
            });
            let osd_pgs = osd_pgs.collect::<Result<_, DecodeError>>()?;
            Ok(Self { by_state, active_count, pools, osd_pgs, osds: r.get()? })
        })
    }
}

fn size(r: &mut Reader) -> Result<usize, DecodeError> {
    let value = r.u64()?;
    usize::try_from(value).map_err(|_| DecodeError::Invalid { what: "count of PGs", value })
}

fn encode_sum(sum: &PoolSum, w: &mut Writer) {
    w.u64(sum.pg_count as u64);
    w.put(&sum.stats);
    w.i64(sum.log_size);
    w.i64(sum.ondisk_log_size);
    w.u64(sum.up as u64);
    w.u64(sum.acting as u64);
    w.put(&sum.store);
    w.u64(sum.store_count as u64);
}

fn decode_sum(r: &mut Reader) -> Result<PoolSum, DecodeError> {
    Ok(PoolSum {
        pg_count: size(r)?,
        stats: r.get()?,
        log_size: r.i64()?,
        ondisk_log_size: r.i64()?,
        up: size(r)?,
        acting: size(r)?,
        store: r.get()?,
        store_count: size(r)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_maps::Pool;
    use nacre_msg::PgStats;
    use nacre_msg::stats::{PgStat, StoreStatfs, pg_state};
    use nacre_types::{PgId, UTime};

    fn map() -> OsdMap {
        let mut map = OsdMap::default();
        for (id, pg_num) in [(1, 4), (2, 8)] {
            map.pools.insert(id, Pool { pg_num, ..Pool::default() });
        }
        map
    }

    /// Two OSDs have reported: three PGs of pool 1, and all of pool 2.
    fn reported() -> PgMap {
        let mut pgs = PgMap::default();
        for osd in 0..2 {
            let mut report = PgStats::default();
            let of_pool = |pool, count| (0..count).map(move |seed| PgId::new(pool, seed));
            for pg in of_pool(1, 3).chain(of_pool(2, 8)) {
                let mut stat = PgStat { state: pg_state::ACTIVE | pg_state::CLEAN, ..PgStat::default() };
                (stat.up, stat.acting, stat.acting_primary) = (vec![0, 1], vec![0, 1], 0);
                (stat.stats.sum.num_objects, stat.stats.sum.num_bytes) = (5, 5000);
                report.pg_stat.insert(pg, stat);
            }
            report.osd_stat.statfs = StoreStatfs { total: 1000, available: 900, ..StoreStatfs::default() };
            report.osd_stat.seq = 77;
            pgs.report(osd, report, UTime::default());
        }
        pgs
    }

    fn kept() -> KeptDigest {
        reported().to_keep(&map())
    }

    #[test]
    fn it_is_the_same_from_its_bytes_and_shows_the_same() {
        let bytes = kept().to_bytes();
        assert_eq!(KeptDigest::from_bytes(bytes.clone()).expect("its own encoding"), kept());
        for length in 0..bytes.len() {
            assert!(KeptDigest::from_bytes(bytes.slice(..length)).is_err(), "{length} of {}", bytes.len());
        }
        let (live, shown) = (reported().digest(&map()), PgMap::from_kept(kept()).digest(&map()));
        assert_eq!(shown, live);
        assert_eq!(live.unknown_count, 1);
    }

    #[test]
    fn what_every_report_changes_is_not_kept() {
        let mut later = reported();
        let mut report = PgStats::default();
        report.osd_stat.statfs = StoreStatfs { total: 1000, available: 900, ..StoreStatfs::default() };
        report.osd_stat.seq = 78;
        later.report(0, report, UTime::default());
        assert_eq!(later.to_keep(&map()), kept());
    }

    #[test]
    fn pools_that_came_and_went_meanwhile_do_not_confuse_it() {
        let mut other = map();
        other.pools.remove(&2);
        let shown = PgMap::from_kept(kept()).digest(&other);
        assert_eq!((shown.pg_count, shown.unknown_count, shown.sum.stats.num_objects), (4, 0, 15));
        assert!(shown.inactive_count() >= shown.unknown_count);
        other.pools.insert(3, Pool { pg_num: 64, ..Pool::default() });
        let shown = PgMap::from_kept(kept()).digest(&other);
        assert_eq!((shown.pg_count, shown.unknown_count), (68, 68 - 11));
        assert!(shown.inactive_count() >= shown.unknown_count);
    }
}
