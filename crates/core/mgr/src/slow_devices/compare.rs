//! How long a device takes beside its peers: like is compared with like, requests of one [`RequestClass`].

use nacre_types::{DeviceLatencies, DeviceWork, LatencyHistogram, OsdId, RequestClass};
use std::collections::BTreeMap;

/// Requests of a class from which on its median says something.
const CLASS_MIN: u64 = 5;
/// The same for its tail.
const CLASS_TAIL_MIN: u64 = 40;
/// Requests of a kind from which on a device is judged by them.
const WORK_MIN: u64 = 12;
/// Other devices that there must be: with one alone nobody could say which of the two is slow.
const PEERS_MIN: usize = 2;
/// A median is slow only if it is later than the peers' by so much: nobody feels less.
const EXCESS_MIN_US: f64 = 1_000.0;
/// A tail is: it varies more, so more is asked of it.
const TAIL_EXCESS_MIN_US: f64 = 20_000.0;
/// As many times the ratio of medians from which on one is slow, tails must differ.
const TAIL_FACTOR: f64 = 3.0;

const MEDIAN: u32 = 500;
const TAIL: u32 = 950;

/// What was measured of a device, and of its peers beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// What was asked of the devices.
    pub work: DeviceWork,
    /// How many times the peers' time it takes: by the median, or by the 95th percentile where only that is slow.
    pub ratio: f64,
    /// Whether it is the tail that is slow, not the median.
    pub is_tail: bool,
    /// Its median, microseconds.
    pub median_us: f64,
    /// Its 99th percentile.
    pub p99_us: f64,
    /// Median of the peers, all their requests together.
    pub peers_median_us: f64,
    /// Their 99th percentile.
    pub peers_p99_us: f64,
    /// How many requests of that kind it did.
    pub requests: u64,
    /// Devices that it was compared with.
    pub peers: usize,
    /// Seconds in which that was.
    pub window_s: u64,
}

/// What the requests of some time say of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    Slow(Finding),
    /// It is about as fast as the others.
    Well,
    /// Slower, and not so much that anybody should be told.
    Doubtful,
}

/// The devices of one class of CRUSH, by what each did in the same time.
pub(super) struct Peers<'a> {
    devices: BTreeMap<OsdId, &'a DeviceLatencies>,
    medians: BTreeMap<RequestClass, Vec<f64>>,
    tails: BTreeMap<RequestClass, Vec<f64>>,
    window_s: u64,
}

/// Values of all devices, ascending, for each class of which one has at least `count_min` requests.
fn quantiles(
    devices: &BTreeMap<OsdId, &DeviceLatencies>,
    permille: u32,
    count_min: u64,
) -> BTreeMap<RequestClass, Vec<f64>> {
    let mut all: BTreeMap<RequestClass, Vec<f64>> = BTreeMap::new();
    for (class, histogram) in devices.values().flat_map(|device| device.iter()) {
        if let Some(value) = histogram.quantile_us(permille).filter(|_| histogram.total() >= count_min) {
            all.entry(class).or_default().push(value);
        }
    }
    all.values_mut().for_each(|values| values.sort_by(f64::total_cmp));
    all
}

/// The middle one of the values but `mine`, which is one of them or not; of two in the middle the greater one, so that a device is
/// rather taken for well.
fn middle_of_others(values: &[f64], mine: Option<f64>) -> Option<f64> {
    let own = mine.and_then(|mine| values.iter().position(|value| *value >= mine));
    let others = values.len() - usize::from(own.is_some());
    let middle = others / 2;
    let index = if own.is_some_and(|own| own <= middle) { middle + 1 } else { middle };
    values.get(index).copied().filter(|_| others >= PEERS_MIN)
}

/// What of one kind of requests is compared: the sums over its classes.
#[derive(Default)]
struct Compared {
    count: u64,
    log_ratio: f64,
    excess_us: f64,
}

impl Compared {
    fn note(&mut self, count: u64, mine_us: f64, expected_us: f64) {
        let weight = count as f64;
        self.count += count;
        self.log_ratio += weight * (mine_us.max(1.0) / expected_us.max(1.0)).log2();
        self.excess_us += weight * (mine_us - expected_us);
    }

    /// The mean ratio and the mean excess; `None` where too little was compared.
    fn means(&self, count_min: u64) -> Option<(f64, f64)> {
        let weight = self.count as f64;
        (self.count >= count_min).then(|| ((self.log_ratio / weight).exp2(), self.excess_us / weight))
    }
}

impl<'a> Peers<'a> {
    /// `devices`: what each did in the last `window_s` seconds.
    pub(super) fn new(devices: BTreeMap<OsdId, &'a DeviceLatencies>, window_s: u64) -> Self {
        let medians = quantiles(&devices, MEDIAN, CLASS_MIN);
        let tails = quantiles(&devices, TAIL, CLASS_TAIL_MIN);
        Self { devices, medians, tails, window_s }
    }

    /// What others would take for a request of that class. Where they had none: what they take at less depth, as if a device did one request
    /// after the other; else what they take at more.
    fn expected(
        all: &BTreeMap<RequestClass, Vec<f64>>,
        class: RequestClass,
        mine: impl Fn(RequestClass) -> Option<f64>,
    ) -> Option<f64> {
        let at = |depth: u32| {
            let class = class.at_depth(depth)?;
            middle_of_others(all.get(&class)?, mine(class))
        };
        let depth = class.depth_log2();
        let shallower = || (0..depth).rev().find_map(|less| Some(at(less)? * f64::from(1 << (depth - less))));
        let deeper = || (depth + 1..).take_while(|more| class.at_depth(*more).is_some()).find_map(at);
        at(depth).or_else(shallower).or_else(deeper)
    }

    fn compare(&self, osd: OsdId, work: DeviceWork, is_tail: bool) -> Option<(f64, f64)> {
        let device = self.devices.get(&osd)?;
        let (all, permille, count_min) =
            if is_tail { (&self.tails, TAIL, CLASS_TAIL_MIN) } else { (&self.medians, MEDIAN, CLASS_MIN) };
        let mine = |class| {
            let histogram = device.class(class).filter(|histogram| histogram.total() >= count_min)?;
            histogram.quantile_us(permille)
        };
        let mut compared = Compared::default();
        for (class, histogram) in device.iter().filter(|(class, _)| class.work() == work) {
            if let Some(own) = mine(class)
                && let Some(expected) = Self::expected(all, class, mine)
            {
                compared.note(histogram.total(), own, expected);
            }
        }
        compared.means(if is_tail { CLASS_TAIL_MIN } else { WORK_MIN })
    }

    /// What people are told of a kind of requests.
    fn finding(&self, osd: OsdId, work: DeviceWork, ratio: f64, is_tail: bool) -> Finding {
        let (mut own, mut others, mut peers) = (LatencyHistogram::default(), LatencyHistogram::default(), 0);
        for (other, device) in &self.devices {
            let histogram = device.of(work);
            if *other == osd {
                own = histogram;
            } else if histogram.total() > 0 {
                others.add(&histogram);
                peers += 1;
            }
        }
        let us = |histogram: &LatencyHistogram, permille| histogram.quantile_us(permille).unwrap_or(0.0);
        Finding {
            work,
            ratio,
            is_tail,
            median_us: us(&own, MEDIAN),
            p99_us: us(&own, 990),
            peers_median_us: us(&others, MEDIAN),
            peers_p99_us: us(&others, 990),
            requests: own.total(),
            peers,
            window_s: self.window_s,
        }
    }

    /// Judges a device by its kinds of requests: slow from `ratio` times what others take on. `None` where none can be compared, or not the
    /// one that `needed` names.
    pub(super) fn judge(&self, osd: OsdId, ratio: f64, needed: Option<DeviceWork>) -> Option<Verdict> {
        let (mut worst, mut is_doubtful, mut judged): (Option<Finding>, bool, Vec<DeviceWork>) =
            (None, false, Vec::new());
        let doubt = 1.0 + (ratio - 1.0) / 3.0;
        for work in DeviceWork::ALL {
            for is_tail in [false, true] {
                let Some((factor, excess_us)) = self.compare(osd, work, is_tail) else { continue };
                judged.push(work);
                let (slow, excess_min_us) =
                    if is_tail { (ratio * TAIL_FACTOR, TAIL_EXCESS_MIN_US) } else { (ratio, EXCESS_MIN_US) };
                let is_late = excess_us >= excess_min_us;
                if factor >= slow && is_late && worst.is_none_or(|worst| factor > worst.ratio) {
                    worst = Some(self.finding(osd, work, factor, is_tail));
                }
                is_doubtful |= factor >= doubt * slow / ratio && is_late;
            }
        }
        let is_judged = needed.map_or(!judged.is_empty(), |needed| judged.contains(&needed));
        match worst {
            Some(finding) => Some(Verdict::Slow(finding)),
            None if !is_judged => None,
            None => Some(if is_doubtful { Verdict::Doubtful } else { Verdict::Well }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_the_others_leaves_the_own_value_out() {
        let values = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(middle_of_others(&values, None), Some(3.0));
        assert_eq!(middle_of_others(&values, Some(4.0)), Some(2.0));
        assert_eq!(middle_of_others(&values, Some(1.0)), Some(3.0));
        assert_eq!(middle_of_others(&values, Some(2.0)), Some(3.0));
        assert_eq!(middle_of_others(&values[..3], Some(3.0)), Some(2.0), "the greater one of two");
        assert_eq!(middle_of_others(&values[..2], Some(2.0)), None, "one other says nothing");
        assert_eq!(middle_of_others(&values[..1], None), None);
    }
}
