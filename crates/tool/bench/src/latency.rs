//! [`Latencies`]: how long operations took, in buckets of at most 1.6 % width, as fio has them.

use std::collections::BTreeMap;

/// Buckets of one power of two: 2^6.
const FINE_BITS: u32 = 6;

/// See the module's documentation.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Latencies {
    /// Counts by the lower end of the bucket, ns.
    buckets: BTreeMap<u64, u64>,
    count: u64,
    sum_ns: f64,
    max_ns: u64,
}

/// Width of the bucket that holds `ns`.
fn width(ns: u64) -> u64 {
    let power = ns.max(1).ilog2();
    1 << power.saturating_sub(FINE_BITS)
}

impl Latencies {
    /// One operation took `ns`.
    pub(crate) fn add(&mut self, ns: u64) {
        self.add_bucket(ns, 1);
        self.sum_ns += ns as f64;
        self.max_ns = self.max_ns.max(ns);
    }

    /// `count` operations took about `ns`. Their sum and maximum come by [`Latencies::add_summary`].
    pub(crate) fn add_bucket(&mut self, ns: u64, count: u64) {
        *self.buckets.entry(ns - ns % width(ns)).or_default() += count;
        self.count += count;
    }

    /// What the operations of [`Latencies::add_bucket`] took altogether, and the longest of them.
    pub(crate) fn add_summary(&mut self, sum_ns: f64, max_ns: u64) {
        self.sum_ns += sum_ns;
        self.max_ns = self.max_ns.max(max_ns);
    }

    /// Takes in the figures of another.
    pub(crate) fn merge(&mut self, other: &Self) {
        other.buckets.iter().for_each(|(ns, count)| self.add_bucket(*ns, *count));
        self.add_summary(other.sum_ns, other.max_ns);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn mean_ns(&self) -> f64 {
        self.sum_ns / self.count.max(1) as f64
    }

    pub(crate) fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The time that `share` of the operations did not exceed, ns. Within a bucket they count as spread evenly: without
    /// that a percentile would move in steps of 1.6 %.
    pub(crate) fn percentile_ns(&self, share: f64) -> f64 {
        let rank = share * self.count as f64;
        let mut below = 0.0;
        for (lower, count) in &self.buckets {
            let count = *count as f64;
            if below + count >= rank {
                let part = ((rank - below) / count).clamp(0.0, 1.0);
                let value = *lower as f64 + width(*lower) as f64 * part;
                return value.min(self.max_ns as f64);
            }
            below += count;
        }
        self.max_ns as f64
    }

    /// Counts by power of two: `n` for at least 2^n and less than 2^(n+1) ns.
    pub(crate) fn powers_of_two(&self) -> BTreeMap<u32, u64> {
        let mut powers = BTreeMap::new();
        for (lower, count) in &self.buckets {
            *powers.entry((*lower).max(1).ilog2()).or_default() += count;
        }
        powers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_bucket_of_the_truth() {
        let mut latencies = Latencies::default();
        (1..=100_000).for_each(|ns| latencies.add(ns));
        for share in [0.5, 0.95, 0.99, 0.999] {
            let (found, truth) = (latencies.percentile_ns(share), share * 100_000.0);
            assert!((found / truth - 1.0).abs() < 0.002, "{share}: {found}");
        }
        assert_eq!((latencies.count(), latencies.max_ns()), (100_000, 100_000));
        assert!((latencies.mean_ns() - 50_000.5).abs() < 0.01);
        assert!(latencies.percentile_ns(1.0) <= 100_000.0);
    }

    #[test]
    fn powers_of_two_count_everything() {
        let mut latencies = Latencies::default();
        [0, 1, 2, 3, 4, 1023, 1024].into_iter().for_each(|ns| latencies.add(ns));
        let powers = latencies.powers_of_two();
        assert_eq!(powers, BTreeMap::from([(0, 2), (1, 2), (2, 1), (9, 1), (10, 1)]));
        assert_eq!(Latencies::default().percentile_ns(0.5), 0.0);
    }
}
