//! How long a device takes beside its peers: like is compared with like, requests of one [`RequestClass`].

use nacre_types::{DeviceLatencies, DeviceWork, LatencyHistogram, OsdId, RequestClass};
use std::collections::BTreeMap;

/// Requests of a class from which on its median says something.
const CLASS_MIN: u64 = 5;
/// The same for its tail.
const CLASS_TAIL_MIN: u64 = 40;
/// Requests of a kind from which on a device is judged by them.
const WORK_MIN: u64 = 16;
/// Requests of a kind below which chance has its part in a median: a few probes of a device may all meet something that the machine does at the
/// same moments.
const FEW: u64 = 100;
/// Other devices that there must be: with one alone nobody could say which of the two is slow.
const PEERS_MIN: usize = 2;
/// A median is slow only if it is later than the peers' by so much: nobody feels less.
const EXCESS_MIN_US: f64 = 1_000.0;
/// A tail is: it varies more, so more is asked of it.
const TAIL_EXCESS_MIN_US: f64 = 20_000.0;
/// As many times the ratio of medians from which on one is slow, tails must differ.
const TAIL_FACTOR: f64 = 3.0;

/// What devices are judged by: what clients wait for, which comes one by one. Cached writes and flushes are those of checkpoints, and come
/// at once: what fifty of them took is one event, and medians of it differ by eight times between devices that are all well.
const JUDGED: [DeviceWork; 2] = [DeviceWork::Read, DeviceWork::DurableWrite];

const LOWER: u32 = 250;
const MEDIAN: u32 = 500;
const UPPER: u32 = 750;
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

impl Finding {
    /// Few requests, and others had slower ones: a device that takes longer for each would have had the slowest, too.
    fn may_be_chance(&self) -> bool {
        self.requests < FEW && self.p99_us < self.peers_p99_us
    }
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

/// What one comparison says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Slow,
    Doubtful,
    Well,
}

/// The devices of one class of CRUSH, by what each did in the same time.
pub(super) struct Peers<'a> {
    devices: BTreeMap<OsdId, &'a DeviceLatencies>,
    medians: Quantiles,
    uppers: Quantiles,
    tails: Quantiles,
    window_s: u64,
}

/// A quantile of all devices, ascending, for each class of which one has at least `count_min` requests.
struct Quantiles {
    permille: u32,
    count_min: u64,
    values: BTreeMap<RequestClass, Vec<f64>>,
}

impl Quantiles {
    fn new(devices: &BTreeMap<OsdId, &DeviceLatencies>, permille: u32, count_min: u64) -> Self {
        let mut all = Self { permille, count_min, values: BTreeMap::new() };
        for (class, histogram) in devices.values().flat_map(|device| device.iter()) {
            if let Some(value) = all.of(histogram, permille) {
                all.values.entry(class).or_default().push(value);
            }
        }
        all.values.values_mut().for_each(|values| values.sort_by(f64::total_cmp));
        all
    }

    /// Of one device, where that is enough to say something.
    fn of(&self, histogram: &LatencyHistogram, permille: u32) -> Option<f64> {
        histogram.quantile_us(permille).filter(|_| histogram.total() >= self.count_min)
    }

    /// What devices but `own` would take for a request of that class. Where they had none: what they take at less depth, as if a device did
    /// one request after the other; else what they take at more.
    fn expected(&self, class: RequestClass, own: &DeviceLatencies) -> Option<f64> {
        let at = |depth: u32| {
            let class = class.at_depth(depth)?;
            let mine = own.class(class).and_then(|histogram| self.of(histogram, self.permille));
            middle_of_others(self.values.get(&class)?, mine)
        };
        let depth = class.depth_log2();
        let shallower = || (0..depth).rev().find_map(|less| Some(at(less)? * f64::from(1 << (depth - less))));
        let deeper = || (depth + 1..).take_while(|more| class.at_depth(*more).is_some()).find_map(at);
        at(depth).or_else(shallower).or_else(deeper)
    }

    /// The `permille` of a device's requests beside this quantile of the others: how many times as much, and how much more, microseconds.
    fn compare(&self, own: &DeviceLatencies, work: DeviceWork, permille: u32) -> Option<(f64, f64)> {
        let mut compared = Compared::default();
        for (class, histogram) in own.iter().filter(|(class, _)| class.work() == work) {
            if let Some(mine) = self.of(histogram, permille)
                && let Some(expected) = self.expected(class, own)
            {
                compared.note(histogram.total(), mine, expected);
            }
        }
        compared.means(self.count_min.max(WORK_MIN))
    }
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
        Self {
            medians: Quantiles::new(&devices, MEDIAN, CLASS_MIN),
            uppers: Quantiles::new(&devices, UPPER, CLASS_MIN),
            tails: Quantiles::new(&devices, TAIL, CLASS_TAIL_MIN),
            devices,
            window_s,
        }
    }

    /// Judges a device by its median, and how many times the others' it is. Few requests have any median: so that it is slow, three quarters
    /// of them must have taken longer than three quarters of the others'.
    fn by_median(&self, own: &DeviceLatencies, work: DeviceWork, ratio: f64) -> Option<(Outcome, f64)> {
        let (factor, excess_us) = self.medians.compare(own, work, MEDIAN)?;
        let is_beyond =
            |others: &Quantiles| others.compare(own, work, LOWER).is_some_and(|(by, _)| by >= 1.0);
        let doubt = 1.0 + (ratio - 1.0) / 3.0;
        let outcome = if excess_us < EXCESS_MIN_US {
            Outcome::Well
        } else if factor >= ratio && is_beyond(&self.uppers) {
            Outcome::Slow
        } else if factor >= doubt && is_beyond(&self.medians) {
            Outcome::Doubtful
        } else {
            Outcome::Well
        };
        Some((outcome, factor))
    }

    /// Judges a device by the slowest twentieth of its requests.
    fn by_tail(&self, own: &DeviceLatencies, work: DeviceWork, ratio: f64) -> Option<(Outcome, f64)> {
        let (factor, excess_us) = self.tails.compare(own, work, TAIL)?;
        let is_slow = factor >= ratio * TAIL_FACTOR && excess_us >= TAIL_EXCESS_MIN_US;
        Some((if is_slow { Outcome::Slow } else { Outcome::Well }, factor))
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
    /// one that `needed` names: a kind of requests, by the median or by the tail.
    pub(super) fn judge(
        &self,
        osd: OsdId,
        ratio: f64,
        needed: Option<(DeviceWork, bool)>,
    ) -> Option<Verdict> {
        let own = self.devices.get(&osd)?;
        let (mut worst, mut is_doubtful, mut judged): (Option<Finding>, bool, Vec<(DeviceWork, bool)>) =
            (None, false, Vec::new());
        for work in JUDGED {
            let outcomes = [self.by_median(own, work, ratio), self.by_tail(own, work, ratio)];
            for (is_tail, outcome) in [false, true].into_iter().zip(outcomes) {
                let Some((outcome, factor)) = outcome else { continue };
                judged.push((work, is_tail));
                is_doubtful |= outcome == Outcome::Doubtful;
                if outcome != Outcome::Slow {
                    continue;
                }
                let finding = self.finding(osd, work, factor, is_tail);
                if finding.may_be_chance() {
                    is_doubtful = true;
                } else if worst.is_none_or(|worst| factor > worst.ratio) {
                    worst = Some(finding);
                }
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
