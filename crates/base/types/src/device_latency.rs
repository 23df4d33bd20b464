//! [`DeviceLatencies`]: how long requests to a device took, as histograms in powers of two, one for each [`RequestClass`]. What an OSD
//! counts, reports to our monitor and is compared by with others; Ceph has nothing like it.

use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

/// Buckets of a histogram: the first for less than 1 us, the one numbered `k` for less than 2^k us, the last for all that took longer.
pub const LATENCY_BUCKETS: usize = 24;

/// What a request asks of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DeviceWork {
    /// A read, of whatever length.
    Read,
    /// A write that need not be durable.
    CachedWrite,
    /// A write that is done when it is durable.
    DurableWrite,
    /// A flush of the device's volatile cache.
    Flush,
}

impl DeviceWork {
    /// All of them, in order of their numbers.
    pub const ALL: [Self; 4] = [Self::Read, Self::CachedWrite, Self::DurableWrite, Self::Flush];

    /// What people call it: `reads`, `durable writes`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::CachedWrite => "cached writes",
            Self::DurableWrite => "durable writes",
            Self::Flush => "flushes",
        }
    }

    /// As part of a counter's name: `read`, `durable_write`.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::CachedWrite => "cached_write",
            Self::DurableWrite => "durable_write",
            Self::Flush => "flush",
        }
    }
}

/// Requests that may be compared with each other: of one kind, of about one size, made while about as many others were at the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestClass(u8);

/// Requests at the device, the new one included: 1, 2 to 3, 4 to 7, 8 to 15, 16 to 31, more.
const DEPTHS: u8 = 6;
/// Up to 32 KiB, up to 256 KiB, more.
const SIZES: u8 = 3;
const SMALL_BYTES_MAX: u64 = 32 << 10;
const MIDDLE_BYTES_MAX: u64 = 256 << 10;

impl RequestClass {
    /// How many there are.
    pub const COUNT: usize = 4 * DEPTHS as usize * SIZES as usize;

    /// Of a request of `bytes` that is made while `others` are at the device.
    #[inline]
    #[must_use]
    pub const fn of(work: DeviceWork, others: usize, bytes: u64) -> Self {
        let depth = (others as u64 + 1).ilog2();
        let depth = if depth < DEPTHS as u32 { depth as u8 } else { DEPTHS - 1 };
        let size = (bytes > SMALL_BYTES_MAX) as u8 + (bytes > MIDDLE_BYTES_MAX) as u8;
        Self((work as u8 * DEPTHS + depth) * SIZES + size)
    }

    /// Its number, less than [`RequestClass::COUNT`].
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The one of that number, if there is one.
    #[must_use]
    pub const fn from_index(index: usize) -> Option<Self> {
        if index < Self::COUNT { Some(Self(index as u8)) } else { None }
    }

    /// What its requests ask for.
    #[must_use]
    pub const fn work(self) -> DeviceWork {
        DeviceWork::ALL[(self.0 / SIZES / DEPTHS) as usize]
    }

    /// How many requests were at the device, as a power of two.
    #[must_use]
    pub const fn depth_log2(self) -> u32 {
        (self.0 / SIZES % DEPTHS) as u32
    }

    /// The class of the same kind and size at another depth, if there is one.
    #[must_use]
    pub const fn at_depth(self, depth_log2: u32) -> Option<Self> {
        if depth_log2 >= DEPTHS as u32 {
            return None;
        }
        Some(Self(self.0 - (self.0 / SIZES % DEPTHS) * SIZES + depth_log2 as u8 * SIZES))
    }
}

/// How many requests took how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LatencyHistogram {
    counts: [u32; LATENCY_BUCKETS],
}

impl From<[u32; LATENCY_BUCKETS]> for LatencyHistogram {
    fn from(counts: [u32; LATENCY_BUCKETS]) -> Self {
        Self { counts }
    }
}

impl LatencyHistogram {
    /// Counts a request that took `ns` nanoseconds.
    #[inline]
    pub fn note(&mut self, ns: u64) {
        let bits = u64::BITS - (ns / 1000).leading_zeros();
        let count = &mut self.counts[(bits as usize).min(LATENCY_BUCKETS - 1)];
        *count = count.saturating_add(1);
    }

    /// Counts what another one has.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.counts.iter_mut().zip(other.counts) {
            *sum = sum.saturating_add(more);
        }
    }

    /// The number of each bucket.
    #[must_use]
    pub const fn counts(&self) -> &[u32; LATENCY_BUCKETS] {
        &self.counts
    }

    /// Requests in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// Microseconds within which `permille` of 1000 requests were done, as if those of a bucket were spread evenly over it. `None` where
    /// there were none.
    #[must_use]
    pub fn quantile_us(&self, permille: u32) -> Option<f64> {
        let total = self.total();
        if total == 0 {
            return None;
        }
        let wanted = f64::from(permille) / 1000.0 * total as f64;
        let mut before = 0.0;
        for (bucket, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = f64::from(*count);
            if before + count >= wanted {
                let (low, high) = bounds_us(bucket);
                return Some(low + (high - low) * ((wanted - before) / count).clamp(0.0, 1.0));
            }
            before += count;
        }
        None
    }
}

fn bounds_us(bucket: usize) -> (f64, f64) {
    let high = (1_u64 << bucket) as f64;
    (if bucket == 0 { 0.0 } else { high / 2.0 }, high)
}

/// The requests of some time, by class.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceLatencies(BTreeMap<RequestClass, LatencyHistogram>);

impl DeviceLatencies {
    /// The histogram of a class, to count in.
    pub fn class_mut(&mut self, class: RequestClass) -> &mut LatencyHistogram {
        self.0.entry(class).or_default()
    }

    /// The requests of a class, if there were any.
    #[must_use]
    pub fn class(&self, class: RequestClass) -> Option<&LatencyHistogram> {
        self.0.get(&class)
    }

    /// The classes of which there were requests.
    pub fn iter(&self) -> impl Iterator<Item = (RequestClass, &LatencyHistogram)> {
        self.0.iter().map(|(class, histogram)| (*class, histogram))
    }

    /// Counts what others have.
    pub fn add(&mut self, other: &Self) {
        for (class, histogram) in &other.0 {
            self.0.entry(*class).or_default().add(histogram);
        }
    }

    /// All requests that ask for the same, whatever their size.
    #[must_use]
    pub fn of(&self, work: DeviceWork) -> LatencyHistogram {
        let mut sum = LatencyHistogram::default();
        self.iter().filter(|(class, _)| class.work() == work).for_each(|(_, one)| sum.add(one));
        sum
    }

    /// True when there were no requests.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A class's number, how many buckets are written, and their counts; what is behind the last one that is not zero is left out.
impl Encode for DeviceLatencies {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u8(u8::try_from(self.0.len()).expect("at most RequestClass::COUNT"));
            for (class, histogram) in &self.0 {
                let used = histogram.counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
                w.u8(class.0);
                w.u8(u8::try_from(used).expect("at most LATENCY_BUCKETS"));
                histogram.counts.iter().take(used).for_each(|count| w.u32(*count));
            }
        });
    }
}

impl Decode for DeviceLatencies {
    const MIN_BYTES: usize = 7;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("device latencies", 1, |_, r| {
            let invalid = |what, value: u8| DecodeError::Invalid { what, value: value.into() };
            let mut classes = BTreeMap::new();
            for _ in 0..r.u8()? {
                let (number, used) = (r.u8()?, r.u8()?);
                let class = RequestClass::from_index(number.into());
                let class = class.ok_or_else(|| invalid("class of device requests", number))?;
                let mut histogram = LatencyHistogram::default();
                let counts = histogram.counts.get_mut(..used.into());
                for count in counts.ok_or_else(|| invalid("buckets of device latencies", used))? {
                    *count = r.u32()?;
                }
                classes.insert(class, histogram);
            }
            Ok(Self(classes))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_has_a_class_that_says_what_it_was() {
        for work in DeviceWork::ALL {
            for (others, depth) in [(0, 0), (1, 1), (2, 1), (3, 2), (7, 3), (30, 4), (31, 5), (5000, 5)] {
                let sizes = [0, 4096, 32 << 10, (32 << 10) + 1, 1 << 20];
                let classes = sizes.map(|bytes| RequestClass::of(work, others, bytes));
                for class in classes {
                    assert_eq!((class.work(), class.depth_log2()), (work, depth));
                    assert_eq!(RequestClass::from_index(class.index()), Some(class));
                    assert_eq!(class.at_depth(depth), Some(class));
                    assert_eq!(class.at_depth(0).map(RequestClass::depth_log2), Some(0));
                }
                assert!(classes[0] == classes[2] && classes[2] < classes[3] && classes[3] < classes[4]);
            }
        }
        assert_eq!(RequestClass::from_index(RequestClass::COUNT), None);
        assert_eq!(RequestClass::of(DeviceWork::Read, 0, 0).at_depth(6), None);
    }

    #[test]
    fn quantiles_lie_within_the_bucket() {
        let mut histogram = LatencyHistogram::default();
        assert_eq!(histogram.quantile_us(500), None);
        (0..90).for_each(|_| histogram.note(300_000));
        (0..10).for_each(|_| histogram.note(5_000_000));
        let [median, p99] = [500, 990].map(|permille| histogram.quantile_us(permille).expect("some"));
        assert!((256.0..512.0).contains(&median), "{median}");
        assert!((4096.0..8192.0).contains(&p99), "{p99}");
        histogram.note(u64::MAX);
        assert_eq!(histogram.counts()[LATENCY_BUCKETS - 1], 1);
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let mut latencies = DeviceLatencies::default();
        for (nth, work) in DeviceWork::ALL.into_iter().enumerate() {
            (0..=nth).for_each(|others| {
                latencies.class_mut(RequestClass::of(work, others, 4096)).note(1000 << others);
            });
        }
        let bytes = latencies.to_bytes();
        assert_eq!(DeviceLatencies::from_bytes(bytes.clone()).expect("as written"), latencies);
        let mut wrong = bytes.to_vec();
        wrong[7] = 200;
        assert!(DeviceLatencies::from_bytes(wrong.into()).is_err(), "no such class");
        let mut wrong = bytes.to_vec();
        wrong[8] = 25;
        assert!(DeviceLatencies::from_bytes(wrong.into()).is_err(), "no such bucket");
        let none = DeviceLatencies::default();
        assert!(DeviceLatencies::from_bytes(none.to_bytes()).is_ok_and(|read| read.is_empty()));
    }
}
