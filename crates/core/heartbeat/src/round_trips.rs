//! [`RoundTrips`]: how long pings of one peer took over one network, in whole minutes; and the quickest of the last half minute, which is
//! ours (`recent_pings`).
//!
//! Source of the numbers: Ceph `src/osd/OSD.cc` at v16.2.15 (`handle_osd_ping`), which fills minutes that have not been yet with the first
//! one; here averages are of what was measured.

use crate::recent_pings::RecentPings;
use nacre_msg::stats::PingWindow;
use nacre_types::Stamp;
use std::collections::VecDeque;
use std::time::Duration;

/// Minutes that the averages look at.
const MINUTES: [usize; 3] = [1, 5, 15];
const MINUTES_MAX: usize = MINUTES[2];

/// Round trips of one minute, microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Minute {
    count: u64,
    sum: u64,
    min: u32,
    max: u32,
}

impl Minute {
    fn plus(self, other: Self) -> Self {
        match (self.count, other.count) {
            (0, _) => other,
            (_, 0) => self,
            _ => Self {
                count: self.count + other.count,
                sum: self.sum + other.sum,
                min: self.min.min(other.min),
                max: self.max.max(other.max),
            },
        }
    }

    fn average(self) -> u32 {
        u32::try_from(self.sum / self.count.max(1)).unwrap_or(u32::MAX)
    }
}

/// Round trips to one peer over one network.
#[derive(Debug, Clone, Default)]
pub(crate) struct RoundTrips {
    /// When the running minute began, and what it has.
    running: Option<(Stamp, Minute)>,
    /// Minutes that have passed, newest first.
    passed: VecDeque<Minute>,
    /// The last round trip of the newest minute, and when it came.
    last: Option<(u32, Stamp)>,
    recent: RecentPings,
}

impl RoundTrips {
    /// A ping was answered at `now`, after `took`. `minute`: how long one is, which tests shorten.
    pub(crate) fn note(&mut self, now: Stamp, took: Duration, minute: Duration) {
        let us = u32::try_from(took.as_micros()).unwrap_or(u32::MAX).max(1);
        self.recent.note(now, us, minute / 2);
        let (began, sum) = self.running.get_or_insert((now, Minute::default()));
        *sum = sum.plus(Minute { count: 1, sum: us.into(), min: us, max: us });
        if now.since(*began) < minute {
            return;
        }
        self.passed.push_front(*sum);
        self.passed.truncate(MINUTES_MAX);
        self.running = Some((now, Minute::default()));
        self.last = Some((us, now));
    }

    /// What is known, once a minute has passed, and when that was.
    pub(crate) fn window(&self) -> Option<(PingWindow, Stamp)> {
        let (last, at) = self.last?;
        let newest =
            |count| self.passed.iter().take(count).fold(Minute::default(), |sum, minute| sum.plus(*minute));
        let sums = MINUTES.map(newest);
        let window = PingWindow {
            average: sums.map(Minute::average),
            min: sums.map(|sum| sum.min),
            max: sums.map(|sum| sum.max),
            last,
        };
        Some((window, at))
    }

    /// Microseconds that the quickest ping of the last half `minute` took; `None` where too few were answered.
    pub(crate) fn least_us(&self, now: Stamp, minute: Duration) -> Option<u32> {
        self.recent.least_us(now, minute / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn averages_are_of_whole_minutes_that_have_passed() {
        let mut trips = RoundTrips::default();
        let at = |seconds| Stamp::default() + Duration::from_secs(seconds);
        let us = Duration::from_micros;
        trips.note(at(10), us(100), MINUTE);
        trips.note(at(40), us(500), MINUTE);
        assert_eq!(trips.window(), None, "no minute has passed");
        trips.note(at(70), us(300), MINUTE);
        let (window, when) = trips.window().expect("one has");
        assert_eq!((window.average, window.min, window.max), ([300; 3], [100; 3], [500; 3]));
        assert_eq!((window.last, when), (300, at(70)));
        trips.note(at(130), us(900), MINUTE);
        let (window, _) = trips.window().expect("two have");
        assert_eq!((window.average, window.min, window.max), ([900, 450, 450], [900, 100, 100], [900; 3]));
        for minute in 0..20 {
            trips.note(at(190 + minute * 60), us(20), MINUTE);
        }
        let (window, _) = trips.window().expect("many have");
        assert_eq!(
            (window.average, window.max, window.last),
            ([20; 3], [20; 3], 20),
            "older ones are forgotten"
        );
        assert_eq!(trips.passed.len(), MINUTES_MAX);
    }
}
