//! [`HostLatency`]: how long a synchronous write takes as each host of clients sees it, by `nacre probe` there.

use nacre_types::{PoolId, Stamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// Hosts and pools that are told apart; reports of more are refused.
pub const HOSTS_MAX: usize = 1000;
/// A host that has not reported for so long is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// Upper bounds of the histogram's buckets in microseconds; what takes longer is in none of them.
pub const LATENCY_BOUNDS_US: [u64; 16] = [
    100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000, 10_000_000,
];

/// What a host has measured of a pool since its report before; or all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostProbe {
    /// Writes that were answered.
    pub count: u64,
    /// Microseconds that they took together.
    pub sum_us: u64,
    /// How many took at most as long as each of [`LATENCY_BOUNDS_US`] and longer than the one before.
    pub buckets: [u64; LATENCY_BOUNDS_US.len()],
    /// Writes that were not answered in time, or refused.
    pub failed: u64,
}

impl HostProbe {
    /// A write was answered after this time.
    pub fn note(&mut self, took_us: u64) {
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(took_us);
        if let Some(at) = LATENCY_BOUNDS_US.iter().position(|bound| took_us <= *bound) {
            self.buckets[at] += 1;
        }
    }

    /// Adds another one up.
    pub fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        self.failed = self.failed.saturating_add(other.failed);
        for (sum, more) in self.buckets.iter_mut().zip(other.buckets) {
            *sum = sum.saturating_add(more);
        }
    }

    /// The bound of the bucket in which the write is that is slower than `share` per cent; `None` beyond the last one, and without writes.
    #[must_use]
    pub fn percentile_us(&self, share: u64) -> Option<u64> {
        let rank = (self.count.saturating_mul(share)).div_ceil(100).max(1);
        let mut seen = 0_u64;
        let of = self.buckets.iter().zip(LATENCY_BOUNDS_US).find(|(count, _)| {
            seen = seen.saturating_add(**count);
            seen >= rank
        });
        of.map(|(_, bound)| bound).filter(|_| self.count > 0)
    }
}

/// By host and pool.
#[derive(Debug, Default)]
pub struct HostLatency {
    of: BTreeMap<(String, PoolId), (HostProbe, Stamp)>,
}

impl HostLatency {
    /// A host reports. False when there is no room for another one.
    pub fn report(&mut self, host: &str, pool: PoolId, probe: &HostProbe, now: Stamp) -> bool {
        self.forget_silent(now);
        let key = (host.to_owned(), pool);
        let has_room = self.of.len() < HOSTS_MAX || self.of.contains_key(&key);
        if has_room {
            let (sum, at) = self.of.entry(key).or_default();
            sum.add(probe);
            *at = now;
        }
        has_room
    }

    pub(super) fn forget_silent(&mut self, now: Stamp) {
        self.of.retain(|_, (_, at)| now.since(*at) < FORGOTTEN_AFTER);
    }

    pub(super) fn retain(&mut self, is_there: impl Fn(PoolId) -> bool) {
        self.of.retain(|(_, pool), _| is_there(*pool));
    }

    /// Host, pool, and what it has measured since this manager began, of hosts that still report.
    pub fn all(&self) -> impl Iterator<Item = (&str, PoolId, &HostProbe)> {
        self.of.iter().map(|((host, pool), (probe, _))| (host.as_str(), *pool, probe))
    }
}
