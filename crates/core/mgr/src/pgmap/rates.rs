//! [`Rates`]: what went on over the last seconds, from the growth of the PGs' counters.

use nacre_maps::OsdMap;
use nacre_msg::stats::{ObjStatSum, PgStat};
use nacre_types::{PgId, PoolId, Stamp};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Samples kept: reports come every five seconds, so they span half a minute.
const SAMPLES_COUNT_MAX: usize = 6;
/// Without a new report for this long the rates are zero.
const QUIET_AFTER: Duration = Duration::from_secs(30);

/// What went on per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rate {
    /// Bytes that clients read, per second.
    pub read_bytes: u64,
    /// Bytes that clients write, per second.
    pub write_bytes: u64,
    /// Operations per second that read.
    pub read_ops: u64,
    /// Operations per second that write.
    pub write_ops: u64,
    /// Objects recovered per second.
    pub recovered_objects: u64,
    /// Bytes recovered per second.
    pub recovered_bytes: u64,
    /// Omap keys recovered.
    pub recovered_keys: u64,
}

impl Rate {
    /// True when clients read or wrote.
    #[must_use]
    pub fn has_client_io(&self) -> bool {
        self.read_bytes | self.write_bytes | self.read_ops | self.write_ops > 0
    }

    /// True when something was recovered.
    #[must_use]
    pub fn has_recovery(&self) -> bool {
        self.recovered_objects | self.recovered_bytes | self.recovered_keys > 0
    }

    fn between(old: &ObjStatSum, new: &ObjStatSum, span: Duration) -> Self {
        let per_second = |old: i64, new: i64, scale: u64| {
            let grown =
                u128::from(u64::try_from(new.saturating_sub(old)).unwrap_or(0)) * u128::from(scale) * 1000;
            u64::try_from(grown / span.as_millis().max(1)).unwrap_or(u64::MAX)
        };
        Self {
            read_bytes: per_second(old.num_rd_kb, new.num_rd_kb, 1024),
            write_bytes: per_second(old.num_wr_kb, new.num_wr_kb, 1024),
            read_ops: per_second(old.num_rd, new.num_rd, 1),
            write_ops: per_second(old.num_wr, new.num_wr, 1),
            recovered_objects: per_second(old.num_objects_recovered, new.num_objects_recovered, 1),
            recovered_bytes: per_second(old.num_bytes_recovered, new.num_bytes_recovered, 1),
            recovered_keys: per_second(old.num_keys_recovered, new.num_keys_recovered, 1),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            read_bytes: self.read_bytes.saturating_add(other.read_bytes),
            write_bytes: self.write_bytes.saturating_add(other.write_bytes),
            read_ops: self.read_ops.saturating_add(other.read_ops),
            write_ops: self.write_ops.saturating_add(other.write_ops),
            recovered_objects: self.recovered_objects.saturating_add(other.recovered_objects),
            recovered_bytes: self.recovered_bytes.saturating_add(other.recovered_bytes),
            recovered_keys: self.recovered_keys.saturating_add(other.recovered_keys),
        }
    }
}

#[derive(Debug)]
struct Sample {
    at: Stamp,
    /// What the PGs of each pool have grown by since the monitor began to lead.
    pools: BTreeMap<PoolId, ObjStatSum>,
}

/// The last samples of what every pool's counters have grown by.
///
/// Growth is counted PG by PG: a PG that is reported for the first time comes with a past, and what only its primary's memory counts
/// (what was recovered) begins anew with another primary.
#[derive(Debug, Default)]
pub(super) struct Rates {
    samples: VecDeque<Sample>,
    version: u64,
    now: Stamp,
    /// Each PG's counters as they were reported last.
    pgs: BTreeMap<PgId, ObjStatSum>,
}

/// What counters of a PG have grown by from `old` to `new`; one that is less than it was has begun anew.
fn growth(old: &ObjStatSum, new: &ObjStatSum) -> ObjStatSum {
    let grown =
        |of: fn(&ObjStatSum) -> i64| if of(new) >= of(old) { of(new) - of(old) } else { of(new).max(0) };
    ObjStatSum {
        num_rd: grown(|sum| sum.num_rd),
        num_rd_kb: grown(|sum| sum.num_rd_kb),
        num_wr: grown(|sum| sum.num_wr),
        num_wr_kb: grown(|sum| sum.num_wr_kb),
        num_objects_recovered: grown(|sum| sum.num_objects_recovered),
        num_bytes_recovered: grown(|sum| sum.num_bytes_recovered),
        num_keys_recovered: grown(|sum| sum.num_keys_recovered),
        ..ObjStatSum::default()
    }
}

impl Rates {
    /// Notes the counters when a report has come in since the last time.
    pub(super) fn sample(&mut self, now: Stamp, version: u64, pgs: &BTreeMap<PgId, PgStat>) {
        self.now = now;
        if version == self.version && !self.samples.is_empty() {
            return;
        }
        self.version = version;
        let mut pools = self.samples.back().map(|sample| sample.pools.clone()).unwrap_or_default();
        for (pg, stat) in pgs {
            let pool: &mut ObjStatSum = pools.entry(pg.pool).or_default();
            if let Some(old) = self.pgs.insert(*pg, stat.stats.sum.clone()) {
                *pool += &growth(&old, &stat.stats.sum);
            }
        }
        self.pgs.retain(|pg, _| pgs.contains_key(pg));
        self.samples.push_back(Sample { at: now, pools });
        if self.samples.len() > SAMPLES_COUNT_MAX {
            self.samples.pop_front();
        }
    }

    pub(super) fn prune(&mut self, map: &OsdMap) {
        for sample in &mut self.samples {
            sample.pools.retain(|pool, _| map.pools.contains_key(pool));
        }
    }

    pub(super) fn rate(&self, pool: Option<PoolId>) -> Option<Rate> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        let span = last.at.since(first.at);
        let is_known = match pool {
            Some(pool) => first.pools.contains_key(&pool) && last.pools.contains_key(&pool),
            None => !first.pools.is_empty() || last.pools.is_empty(),
        };
        if span.is_zero() || !is_known {
            return None;
        }
        if self.now.since(last.at) > QUIET_AFTER {
            return Some(Rate::default());
        }
        let of_pool =
            |(id, new): (&PoolId, &ObjStatSum)| Some(Rate::between(first.pools.get(id)?, new, span));
        let wanted = last.pools.iter().filter(|(id, _)| pool.is_none_or(|pool| pool == **id));
        Some(wanted.filter_map(of_pool).fold(Rate::default(), Rate::plus))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_known_by_two_reports() {
        let mut rates = Rates::default();
        let at = |second| Stamp::default() + Duration::from_secs(second);
        let pgs = |reads: i64| {
            let mut stat = PgStat::default();
            stat.stats.sum.num_rd = reads;
            BTreeMap::from([(PgId { pool: 1, seed: 0 }, stat)])
        };
        rates.sample(at(1), 0, &BTreeMap::new());
        assert_eq!(rates.rate(None), None);
        rates.sample(at(2), 1, &pgs(1000));
        assert_eq!((rates.rate(None), rates.rate(Some(1))), (None, None), "its past is no rate");
        let mut rates = Rates::default();
        rates.sample(at(2), 1, &pgs(1000));
        rates.sample(at(4), 2, &pgs(1020));
        assert_eq!(rates.rate(None).map(|rate| rate.read_ops), Some(10));
        assert_eq!(rates.rate(Some(1)).map(|rate| rate.read_ops), Some(10));
        assert_eq!(rates.rate(Some(2)), None);
        rates.sample(at(60), 2, &pgs(1020));
        assert_eq!(rates.rate(None), Some(Rate::default()), "nobody reports any more");
    }

    #[test]
    fn the_past_of_a_pg_is_no_rate_and_a_new_primary_takes_nothing_back() {
        let mut rates = Rates::default();
        let at = |second| Stamp::default() + Duration::from_secs(second);
        let stat = |seed, writes, recovered| {
            let mut stat = PgStat::default();
            (stat.stats.sum.num_wr, stat.stats.sum.num_bytes_recovered) = (writes, recovered);
            (PgId { pool: 1, seed }, stat)
        };
        rates.sample(at(1), 1, &[stat(0, 100, 5_000_000)].into());
        // Another PG of the pool is reported for the first time since this monitor leads.
        rates.sample(at(2), 2, &[stat(0, 110, 5_000_000), stat(1, 1_000_000_000, 0)].into());
        // The first one has another primary, which has recovered some of it already.
        rates.sample(at(3), 3, &[stat(0, 120, 4_000), stat(1, 1_000_000_004, 0)].into());
        let rate = rates.rate(Some(1)).expect("three reports");
        assert_eq!((rate.write_ops, rate.recovered_bytes), (12, 2000));
    }
}
