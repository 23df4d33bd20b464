//! [`Progress`]: how far the recovery under way is, and when it will have ended.
//!
//! What is left is the copies that are missing or not where they belong, weighed by their bytes. What was done meanwhile is what is left
//! less, and what came to it: a second failure makes the way longer, and takes nothing back.

use nacre_msg::stats::PgStat;
use nacre_types::{Stamp, UTime};
use std::collections::VecDeque;
use std::time::Duration;

/// As much as a copy costs beside its bytes.
const COPY_BYTES: u64 = 32 << 10;
/// Samples that are kept.
const SAMPLES_COUNT_MAX: usize = 128;
/// The rate is that of the later half of the time, within these bounds: it follows clients that come and go, but not each report.
const WINDOW: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(120));
/// A rate from less time than that says nothing.
const SPAN_LEAST: Duration = Duration::from_secs(3);
/// Nothing has moved for so long: nobody knows when it will end.
const STALLED_AFTER: Duration = Duration::from_secs(30);
/// Recoveries that are remembered, as many as Ceph's manager keeps.
const ENDED_COUNT_MAX: usize = 50;

/// Copies that are missing or not where they belong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Left {
    /// So many objects' copies or chunks.
    pub copies: u64,
    /// Their bytes, and [`COPY_BYTES`] for each.
    weight: u64,
}

impl Left {
    pub(super) fn of<'a>(pgs: impl Iterator<Item = &'a PgStat>) -> Self {
        pgs.fold(Self::default(), |left, stat| {
            let number = |value: i64| u64::try_from(value).unwrap_or(0);
            let sum = &stat.stats.sum;
            let copies = number(sum.num_objects_degraded).saturating_add(number(sum.num_objects_misplaced));
            let each = number(sum.num_bytes) / number(sum.num_objects).max(1);
            let weight = copies.saturating_mul(each.saturating_add(COPY_BYTES));
            Self { copies: left.copies.saturating_add(copies), weight: left.weight.saturating_add(weight) }
        })
    }
}

/// A recovery that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// When it began.
    pub began_at: UTime,
    /// When it ended.
    pub ended_at: UTime,
}

/// A recovery under way.
#[derive(Debug)]
pub struct Recovery {
    began: Stamp,
    /// When it began.
    pub began_at: UTime,
    /// What is left.
    pub left: Left,
    /// What was to be done since it began.
    total: u64,
    /// What was done by then.
    samples: VecDeque<(Stamp, u64)>,
}

impl Recovery {
    fn begin(now: Stamp, wall: UTime, left: Left) -> Self {
        Self { began: now, began_at: wall, left, total: left.weight, samples: [(now, 0)].into() }
    }

    fn done(&self) -> u64 {
        self.total.saturating_sub(self.left.weight)
    }

    fn sample(&mut self, now: Stamp, left: Left) {
        self.total = self.total.saturating_add(left.weight.saturating_sub(self.left.weight));
        self.left = left;
        let done = self.done();
        if self.samples.back().is_some_and(|(_, before)| *before == done) {
            return;
        }
        if self.samples.len() == SAMPLES_COUNT_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back((now, done));
    }

    /// The share that is done, 0 to 1.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    pub fn share(&self) -> f64 {
        self.done() as f64 / self.total.max(1) as f64
    }

    /// How long it takes already.
    #[must_use]
    pub fn lasts(&self, now: Stamp) -> Duration {
        now.since(self.began)
    }

    /// How long it will take yet; `None` while that cannot be told, as at its beginning, or when nothing moves.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn remaining(&self, now: Stamp) -> Option<Duration> {
        let (newest, done) = *self.samples.back()?;
        let (least, most) = WINDOW;
        let window = (self.lasts(now) / 2).clamp(least, most);
        let (oldest, before) = *self.samples.iter().find(|(at, _)| now.since(*at) <= window)?;
        let span = newest.since(oldest);
        let gained = done.saturating_sub(before);
        if span < SPAN_LEAST || gained == 0 || now.since(newest) > STALLED_AFTER {
            return None;
        }
        let left = span.as_secs_f64() * self.left.weight as f64 / gained as f64;
        let left = Duration::try_from_secs_f64(left).ok()?;
        Some(left.saturating_sub(now.since(newest)))
    }
}

/// The recovery under way, and those before it.
#[derive(Debug, Default)]
pub struct Progress {
    version: u64,
    /// What goes on now.
    pub recovery: Option<Recovery>,
    /// What is over, oldest first.
    pub ended: VecDeque<Ended>,
}

impl Progress {
    /// Notes what is `left` by the reports of this `version`.
    pub(super) fn sample(&mut self, now: Stamp, wall: UTime, version: u64, left: impl FnOnce() -> Left) {
        if version == self.version {
            return;
        }
        self.version = version;
        let left = left();
        match &mut self.recovery {
            Some(recovery) if left.copies > 0 => recovery.sample(now, left),
            None if left.copies > 0 => self.recovery = Some(Recovery::begin(now, wall, left)),
            None => (),
            Some(recovery) => {
                let ended = Ended { began_at: recovery.began_at, ended_at: wall };
                self.recovery = None;
                if self.ended.len() == ENDED_COUNT_MAX {
                    self.ended.pop_front();
                }
                self.ended.push_back(ended);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn at(second: u64) -> Stamp {
        Stamp::default() + Duration::from_secs(1000 + second)
    }

    fn left(mib: u64) -> Left {
        Left { copies: mib, weight: mib * MIB }
    }

    /// What is left at each second, and what is foretold then.
    fn run(of: impl Fn(u64) -> u64, seconds: u64) -> (Progress, Vec<Option<u64>>) {
        let mut progress = Progress::default();
        let mut told = Vec::new();
        for second in 0..seconds {
            progress.sample(at(second), UTime::default(), second + 1, || left(of(second)));
            let recovery = progress.recovery.as_ref();
            told.push(recovery.and_then(|it| it.remaining(at(second))).map(|left| left.as_secs()));
        }
        (progress, told)
    }

    fn is_within(told: Option<u64>, wanted: u64) -> bool {
        told.is_some_and(|told| told * 10 >= wanted * 8 && told * 10 <= wanted * 12)
    }

    #[test]
    fn an_even_recovery_is_foretold() {
        let (progress, told) = run(|second| 1000_u64.saturating_sub(second * 10), 101);
        assert!(told[..3].iter().all(Option::is_none), "nobody knows yet");
        assert!((3..100).all(|second| is_within(told[second], 100 - second as u64)), "{told:?}");
        assert!(progress.recovery.is_none() && progress.ended.len() == 1);
    }

    /// Reports come every five seconds.
    #[test]
    fn reports_in_steps_are_foretold() {
        let (_, told) = run(|second| 1000_u64.saturating_sub(second / 5 * 50), 100);
        assert!((12..95).all(|second| is_within(told[second], 100 - second as u64)), "{told:?}");
    }

    #[test]
    fn a_rate_that_changes_is_followed() {
        // 20 per second for 20 seconds, then 5.
        let of =
            |second: u64| 1000_u64.saturating_sub(if second < 20 { second * 20 } else { 300 + second * 5 });
        let (_, told) = run(of, 120);
        assert!(is_within(told[19], 31), "as it went until then");
        assert!((41..120).all(|second| is_within(told[second], 140 - second as u64)), "{told:?}");
    }

    #[test]
    fn more_to_do_takes_nothing_back() {
        let of = |second: u64| if second < 30 { 1000 - second * 10 } else { 2000 - second * 10 };
        let (progress, told) = run(of, 60);
        let share = progress.recovery.as_ref().map(Recovery::share).expect("under way");
        assert!((share - 0.3).abs() < 0.01, "{share}: 590 of 2000");
        assert!(is_within(told[59], 141), "{told:?}");
    }

    #[test]
    fn what_stands_still_has_no_end() {
        let (_, told) = run(|second| 1000 - second.min(20) * 10, 80);
        assert!(told[20].is_some() && told[60..].iter().all(Option::is_none), "{told:?}");
        let mut progress = Progress::default();
        (0..100).for_each(|n| progress.sample(at(n), UTime::default(), n + 1, || left((n + 1) % 2)));
        assert_eq!(progress.ended.len(), ENDED_COUNT_MAX, "bounded");
    }
}
