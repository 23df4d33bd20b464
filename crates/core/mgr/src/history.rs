//! [`History`]: what the cluster did over the last hour, a [`Sample`] every five seconds; for people who look at a page of it.
//!
//! It is the active manager's own and not durable: one that has just begun has nothing to show yet.

use crate::pgmap::Rate;
use nacre_types::{Stamp, UTime};
use std::collections::VecDeque;
use std::time::Duration;

/// Time between two samples: daemons report as often.
pub const SAMPLE_PERIOD: Duration = Duration::from_secs(5);
/// Samples that are kept: an hour of them.
pub const SAMPLES_COUNT_MAX: usize = 720;

/// One moment. What nobody did has no latency.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// When it was taken.
    pub at: UTime,
    /// What clients did and what was recovered, per second, where that was known.
    pub rate: Option<Rate>,
    /// Mean microseconds that clients' reads took on the OSDs.
    pub read_us: Option<u64>,
    /// Mean microseconds that clients' writes took on the OSDs.
    pub write_us: Option<u64>,
    /// Microseconds within which 99 of 100 reads of all devices were done.
    pub device_read_us_p99: Option<u64>,
    /// Microseconds within which 99 of 100 durable writes of all devices were done.
    pub device_write_us_p99: Option<u64>,
}

/// The samples of the last hour, oldest first.
#[derive(Debug, Default)]
pub struct History {
    samples: VecDeque<Sample>,
    next: Option<Stamp>,
}

impl History {
    /// Takes a sample if one is due; expected about once per second.
    pub fn tick(&mut self, now: Stamp, sample: impl FnOnce() -> Sample) {
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        self.next = Some(now + SAMPLE_PERIOD);
        if self.samples.len() == SAMPLES_COUNT_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample());
    }

    /// Those that are newer than the second `after` of the calendar, oldest first.
    pub fn samples(&self, after: u32) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.at.sec > after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_kept_and_each_sample_is_shown_once() {
        let mut history = History::default();
        for second in 0..5000 {
            let at = UTime { sec: second + 1, nsec: 0 };
            let now = Stamp::default() + Duration::from_secs(second.into());
            history.tick(now, || Sample { at, ..Sample::default() });
        }
        let kept: Vec<u32> = history.samples(0).map(|sample| sample.at.sec).collect();
        assert_eq!((kept.len(), kept.first(), kept.last()), (SAMPLES_COUNT_MAX, Some(&1401), Some(&4996)));
        assert!(kept.windows(2).all(|pair| pair[1] - pair[0] == 5));
        let newer: Vec<u32> = history.samples(4986).map(|sample| sample.at.sec).collect();
        assert_eq!(newer, [4991, 4996]);
        assert_eq!(history.samples(4996).count(), 0);
    }
}
