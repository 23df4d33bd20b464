//! [`RecentPings`]: how long the quickest ping of the last half minute took, of one peer over one network. Ceph has only whole minutes.

use nacre_types::Stamp;
use std::collections::VecDeque;
use std::time::Duration;

/// Answers in the half minute without which its quickest ping says nothing: one or two of them may be late together.
pub(crate) const ANSWERS_MIN: u32 = 4;
/// Parts of the half minute that are told apart: a second each, which is as often as an OSD pings.
const PARTS_MAX: u32 = 30;

/// Answers that came within a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    /// When the first of them came.
    began: Stamp,
    count: u32,
    min_us: u32,
}

/// Answers of one peer over one network, for as long as `span`: half a minute, but in tests.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecentPings {
    /// Parts of `span`, oldest first.
    parts: VecDeque<Part>,
}

impl RecentPings {
    /// A ping was answered at `now`, after `us` microseconds.
    pub(crate) fn note(&mut self, now: Stamp, us: u32, span: Duration) {
        while self.parts.front().is_some_and(|part| now.since(part.began) >= span) {
            self.parts.pop_front();
        }
        match self.parts.back_mut().filter(|part| now.since(part.began) < span / PARTS_MAX) {
            Some(part) => {
                part.count = part.count.saturating_add(1);
                part.min_us = part.min_us.min(us);
            }
            None => self.parts.push_back(Part { began: now, count: 1, min_us: us }),
        }
    }

    /// Microseconds of the quickest ping of the last `span`; `None` where too few were answered, or none in its first quarter: a peer that
    /// is pinged since a moment ago, or again, may have much to do.
    pub(crate) fn least_us(&self, now: Stamp, span: Duration) -> Option<u32> {
        let recent = || self.parts.iter().filter(|part| now.since(part.began) < span);
        let oldest = recent().next()?;
        let answers = recent().fold(0_u32, |sum, part| sum.saturating_add(part.count));
        let is_known = answers >= ANSWERS_MIN && now.since(oldest.began) >= span * 3 / 4;
        recent().map(|part| part.min_us).min().filter(|_| is_known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Stamp {
        Stamp::default() + Duration::from_secs(seconds)
    }

    /// Pings each `interval` seconds that take 200 us up to the time `slow_at`, and 20 ms from then on: when the quickest is a slow one.
    fn slow_after(interval: u64, slow_at: u64) -> Option<u64> {
        let mut pings = RecentPings::default();
        (0..300).find_map(|second| {
            if second % interval == 0 {
                let us = if second < slow_at { 200 } else { 20_000 };
                pings.note(at(second), us, SPAN);
            }
            let is_slow = pings.least_us(at(second), SPAN) == Some(20_000);
            assert!(pings.parts.len() <= PARTS_MAX as usize, "{}", pings.parts.len());
            is_slow.then(|| second.saturating_sub(slow_at))
        })
    }

    #[test]
    fn the_quickest_is_slow_once_half_a_minute_was() {
        for interval in [1, 2, 6, 7] {
            for slow_at in 100..110 {
                let after = slow_after(interval, slow_at).expect("in the end");
                assert!((30 - interval..=30).contains(&after), "{interval} {slow_at}: {after}");
            }
        }
        assert_eq!(slow_after(10, 100), None, "three pings say nothing");
    }

    #[test]
    fn one_quick_ping_is_enough_and_one_slow_ping_is_nothing() {
        let mut pings = RecentPings::default();
        for second in 0..100 {
            let us = if second == 50 { 200 } else { 20_000 };
            pings.note(at(second), us, SPAN);
            let expected = if (50..80).contains(&second) { 200 } else { 20_000 };
            let known = (second >= 23).then_some(expected);
            assert_eq!(pings.least_us(at(second), SPAN), known, "{second}");
        }
    }

    /// Not of the moment in which a peer begins to answer, nor of one in which it does again.
    #[test]
    fn what_is_known_of_a_moment_says_nothing() {
        let mut pings = RecentPings::default();
        (0..20).for_each(|second| pings.note(at(second), 20_000, SPAN));
        assert_eq!(pings.least_us(at(20), SPAN), None, "for 20 s");
        (20..30).for_each(|second| pings.note(at(second), 20_000, SPAN));
        assert_eq!(pings.least_us(at(30), SPAN), Some(20_000));
        (60..70).for_each(|second| pings.note(at(second), 20_000, SPAN));
        assert_eq!(pings.least_us(at(70), SPAN), None, "after it was silent");
        assert_eq!(pings.least_us(at(200), SPAN), None, "silent since");
    }

    #[test]
    fn pings_of_a_second_are_one_part() {
        let mut pings = RecentPings::default();
        for tenth in 0..1000 {
            pings.note(Stamp(tenth * 100_000_000), 20_000 - u32::try_from(tenth).expect("few"), SPAN);
            assert!(pings.parts.len() <= PARTS_MAX as usize);
        }
        assert_eq!(pings.least_us(at(100), SPAN), Some(19_001));
    }
}
