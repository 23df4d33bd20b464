//! [`Progress`]: how far the recovery under way is, and when it will have ended.
//!
//! What is left is the copies that are missing or not where they belong, weighed by their bytes. What was done meanwhile is what is left
//! less, and what came to it: a second failure makes the way longer, and takes nothing back.

use nacre_msg::stats::{PgStat, RECOVERY_RATE_MIN};
use nacre_types::{OsdId, Stamp, UTime};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// As much as a copy costs beside its bytes.
const COPY_BYTES: u64 = 32 << 10;
/// Samples that are kept.
const SAMPLES_COUNT_MAX: usize = 128;
/// The rate is that of the last quarter of the time, within these bounds: it follows clients that come and go, and recovery that grows
/// beside them, but not each report.
const WINDOW: (Duration, Duration) = (Duration::from_secs(8), Duration::from_secs(120));
/// What an OSD that is done leaves free goes to those that are not: slots, links and clients' patience are the same for all. None becomes
/// more than so many times as fast by that (docs/experiments/0003).
const FASTER_MAX: f64 = 1.5;
/// OSDs whose rates are less than this on average, in bytes per second, are at the floor: beside their clients they would be slower still if
/// that were allowed, and will not be faster when others are done. What [`COPY_BYTES`] adds for small objects hides that.
const FLOOR_RATE: f64 = 2.0 * RECOVERY_RATE_MIN as f64;
/// A rate from less time than that says nothing.
const SPAN_LEAST: Duration = Duration::from_secs(3);
/// Nothing has moved for so long: nobody knows when it will end.
const STALLED_AFTER: Duration = Duration::from_secs(30);
/// OSDs that are told apart: reports may name any.
const PRIMARIES_COUNT_MAX: usize = 4096;
/// Recoveries that are remembered, as many as Ceph's manager keeps.
const ENDED_COUNT_MAX: usize = 50;

/// Copies that are missing or not where they belong.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// So many objects' copies or chunks.
    copies: u64,
    /// Their bytes, and [`COPY_BYTES`] for each.
    weight: u64,
    /// The same by the OSD that leads the PG, which is who moves them.
    primaries: BTreeMap<OsdId, u64>,
}

impl Left {
    pub(super) fn of<'a>(pgs: impl Iterator<Item = &'a PgStat>) -> Self {
        let mut left = Self::default();
        for stat in pgs {
            let number = |value: i64| u64::try_from(value).unwrap_or(0);
            let sum = &stat.stats.sum;
            let copies = number(sum.num_objects_degraded).saturating_add(number(sum.num_objects_misplaced));
            if copies == 0 {
                continue;
            }
            let each = number(sum.num_bytes) / number(sum.num_objects).max(1);
            let weight = copies.saturating_mul(each.saturating_add(COPY_BYTES));
            left.copies = left.copies.saturating_add(copies);
            left.weight = left.weight.saturating_add(weight);
            let primary = stat.acting_primary;
            if left.primaries.len() < PRIMARIES_COUNT_MAX || left.primaries.contains_key(&primary) {
                let of_primary = left.primaries.entry(primary).or_default();
                *of_primary = of_primary.saturating_add(weight);
            }
        }
        left
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

/// Something that becomes less, and how much of it was done when.
#[derive(Debug)]
struct Way {
    left: u64,
    /// What was to be done since it began.
    total: u64,
    /// What was done by then.
    samples: VecDeque<(Stamp, u64)>,
}

impl Way {
    fn begin(now: Stamp, left: u64) -> Self {
        Self { left, total: left, samples: [(now, 0)].into() }
    }

    fn done(&self) -> u64 {
        self.total.saturating_sub(self.left)
    }

    fn sample(&mut self, now: Stamp, left: u64) {
        self.total = self.total.saturating_add(left.saturating_sub(self.left));
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

    /// What was done in a second of the last `window` before the newest sample, and until when that is known; `None` when that cannot be told.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn rate(&self, now: Stamp, window: Duration) -> Option<(f64, Stamp)> {
        let (newest, done) = *self.samples.back()?;
        let (oldest, before) = *self.samples.iter().find(|(at, _)| newest.since(*at) <= window)?;
        let (span, gained) = (newest.since(oldest), done.saturating_sub(before));
        let is_known = span >= SPAN_LEAST && gained > 0 && now.since(newest) <= STALLED_AFTER;
        is_known.then(|| (gained as f64 / span.as_secs_f64(), newest))
    }
}

/// A recovery under way.
#[derive(Debug)]
pub struct Recovery {
    began: Stamp,
    /// When it began.
    pub began_at: UTime,
    /// So many copies or chunks are missing or not where they belong.
    pub copies_left: u64,
    all: Way,
    /// What each OSD has to move.
    primaries: BTreeMap<OsdId, Way>,
}

impl Recovery {
    fn begin(now: Stamp, wall: UTime, left: Left) -> Self {
        let all = Way::begin(now, left.weight);
        let mut recovery =
            Self { began: now, began_at: wall, copies_left: 0, all, primaries: BTreeMap::new() };
        recovery.sample(now, left);
        recovery
    }

    fn sample(&mut self, now: Stamp, left: Left) {
        self.all.sample(now, left.weight);
        self.primaries.retain(|osd, _| left.primaries.contains_key(osd));
        for (osd, weight) in &left.primaries {
            self.primaries.entry(*osd).or_insert_with(|| Way::begin(now, *weight)).sample(now, *weight);
        }
        self.copies_left = left.copies;
    }

    /// The share that is done, 0 to 1.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    pub fn share(&self) -> f64 {
        self.all.done() as f64 / self.all.total.max(1) as f64
    }

    /// How long it takes already.
    #[must_use]
    pub fn lasts(&self, now: Stamp) -> Duration {
        now.since(self.began)
    }

    /// How long it will take yet; `None` while that cannot be told, as at its beginning, or when nothing moves.
    ///
    /// It ends with the OSD that has the most to move by its rate; each that is done before makes the others faster, unless they go as
    /// slowly as they may. One that waits for others will not do so for ever: it is to be as fast as the mean of all that have something to
    /// move.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn remaining(&self, now: Stamp) -> Option<Duration> {
        let (least, most) = WINDOW;
        let window = (self.lasts(now) / 4).clamp(least, most);
        let (rate, newest) = self.all.rate(now, window)?;
        let mean = rate / self.primaries.len().max(1) as f64;
        let own = |way: &Way| (way.left as f64, way.rate(now, window).map(|(own, _)| own));
        let ways: Vec<_> = self.primaries.values().map(own).collect();
        let above_floor: f64 = ways.iter().filter_map(|(_, own)| *own).map(|own| own - FLOOR_RATE).sum();
        let faster_max = if above_floor < 0.0 { 1.0 } else { FASTER_MAX };
        let ways = ways.into_iter().map(|(left, own)| (left, own.unwrap_or(mean)));
        let by_all = self.all.left as f64 / rate;
        let left = Duration::try_from_secs_f64(by_all.max(until_all_are_done(ways, faster_max))).ok()?;
        Some(left.saturating_sub(now.since(newest)))
    }
}

/// Seconds until the last one is done of those that have so much left at such a rate, when the rate of each that is done goes to those that
/// are not, which become so many times as fast at most.
fn until_all_are_done(ways: impl Iterator<Item = (f64, f64)>, faster_max: f64) -> f64 {
    let mut ways: Vec<_> = ways.collect();
    ways.sort_by(|one, other| (one.0 / one.1).total_cmp(&(other.0 / other.1)));
    let mut rates: f64 = ways.iter().map(|(_, rate)| rate).sum();
    // By how much all that are left are faster than now, and how far they are: in seconds at the rates of now.
    let (mut faster, mut at, mut seconds) = (1.0_f64, 0.0, 0.0);
    for (left, rate) in ways {
        let alone = left / rate;
        seconds += (alone - at) / faster;
        at = alone;
        rates -= rate;
        if rates > 0.0 {
            faster = (faster * (1.0 + rate / rates)).min(faster_max);
        }
    }
    seconds
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

    fn left(mib: impl IntoIterator<Item = (OsdId, u64)>) -> Left {
        let mib = mib.into_iter().filter(|(_, mib)| *mib > 0);
        let primaries: BTreeMap<OsdId, u64> = mib.map(|(osd, mib)| (osd, mib * MIB)).collect();
        let weight: u64 = primaries.values().sum();
        Left { copies: weight / MIB, weight, primaries }
    }

    /// What is left of each OSD at each second, and what is foretold then.
    fn run_osds<const N: usize>(
        of: impl Fn(u64) -> [(OsdId, u64); N],
        seconds: u64,
    ) -> (Progress, Vec<Option<u64>>) {
        let mut progress = Progress::default();
        let mut told = Vec::new();
        for second in 0..seconds {
            progress.sample(at(second), UTime::default(), second + 1, || left(of(second)));
            let recovery = progress.recovery.as_ref();
            told.push(recovery.and_then(|it| it.remaining(at(second))).map(|left| left.as_secs()));
        }
        (progress, told)
    }

    /// The same of a single one.
    fn run(of: impl Fn(u64) -> u64, seconds: u64) -> (Progress, Vec<Option<u64>>) {
        run_osds(|second| [(0, of(second))], seconds)
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

    /// Three OSDs with 20 a second each; one has three times as much as the others, and is half as fast again when these are done.
    #[test]
    fn it_ends_with_the_osd_that_has_the_most() {
        let (_, told) =
            run_osds(|second| [(0, 800), (1, 800), (2, 2400)].map(|(osd, all)| (osd, all - second * 20)), 30);
        assert!(
            is_within(told[29], 11 + 53),
            "{told:?}: by the sum it would be 38, and 91 if it became no faster"
        );
    }

    /// One that waits for others goes at their mean, and faster once they are done, unless that is as slow as recovery goes at all.
    #[test]
    fn one_that_waits_will_not_do_so_for_ever() {
        for (each_second, wanted) in [(60, 40), (12, 60)] {
            let all = each_second * 30;
            let (_, told) = run_osds(|second| [(0, all - second * each_second), (1, all)], 30);
            assert!(is_within(told[29], wanted), "{told:?} at {each_second}");
        }
    }

    /// Four OSDs with 8 MiB/s each, two of which end: the others do not go faster for that.
    #[test]
    fn at_the_floor_nobody_takes_over() {
        let of = |second| {
            [(0, 200_u64), (1, 200), (2, 800), (3, 1600)]
                .map(|(osd, all)| (osd, all.saturating_sub(second * 8)))
        };
        let (_, told) = run_osds(of, 30);
        assert!((5..30).all(|second| is_within(told[second], 200 - second as u64)), "{told:?}");
    }

    /// None is ever more than half as fast again for that others are done, however many those are.
    #[test]
    fn what_others_leave_is_not_taken_without_end() {
        let alone = |ways: &[(f64, f64)]| until_all_are_done(ways.iter().copied(), FASTER_MAX);
        assert!((alone(&[(600.0, 20.0)]) - 30.0).abs() < 1e-6);
        assert!((alone(&[(20.0, 20.0), (600.0, 20.0)]) - (1.0 + 29.0 / 1.5)).abs() < 1e-6);
        let many: Vec<_> = (0..1000).map(|_| (20.0, 20.0)).chain([(600.0, 20.0)]).collect();
        assert!((alone(&many) - (1.0 + 29.0 / 1.5)).abs() < 1e-6, "{}", alone(&many));
        assert!(alone(&[]).abs() < 1e-6);
        assert!((until_all_are_done(many.iter().copied(), 1.0) - 30.0).abs() < 1e-6);
    }

    /// As a rate does that begins low and grows by a twentieth each second.
    #[test]
    fn a_rate_that_grows_is_followed_closely() {
        let done = |second: u64| {
            let (sum, _) = (0..second).fold((0_u64, 40_000), |(sum, rate), _| (sum + rate, rate + rate / 20));
            sum / 1000
        };
        let total = done(40);
        let (_, told) = run(|second| total.saturating_sub(done(second)), 40);
        let late = |second: usize| told[second].map(|told| told as f64 / (40 - second) as f64);
        assert!((30..37).all(|second| late(second).is_some_and(|late| late < 1.6)), "{told:?}");
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
        (0..100).for_each(|n| progress.sample(at(n), UTime::default(), n + 1, || left([(0, (n + 1) % 2)])));
        assert_eq!(progress.ended.len(), ENDED_COUNT_MAX, "bounded");
    }
}
