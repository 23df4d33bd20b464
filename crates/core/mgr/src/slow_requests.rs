//! [`SlowRequests`]: requests of clients that OSDs have had for too long, as they reported last.

use nacre_msg::SlowRequest;
use nacre_types::{OsdId, Stamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// OSDs report every five seconds while they have something to tell; of one that has been silent for so long nobody knows how it is now.
pub(crate) const FORGOTTEN_AFTER: Duration = Duration::from_secs(16);

/// The slowest requests of each OSD that has any.
#[derive(Debug, Default)]
pub struct SlowRequests {
    of: BTreeMap<OsdId, (Stamp, Vec<SlowRequest>)>,
}

impl SlowRequests {
    /// What an OSD has at the moment, at most [`nacre_msg::SLOW_REQUESTS_COUNT_MAX`].
    pub fn report(&mut self, osd: OsdId, requests: Vec<SlowRequest>, now: Stamp) {
        if requests.is_empty() {
            self.of.remove(&osd);
        } else {
            self.of.insert(osd, (now, requests));
        }
    }

    /// Forgets what is not true any more.
    pub fn tick(&mut self, now: Stamp, is_up: impl Fn(OsdId) -> bool) {
        self.of.retain(|osd, (at, _)| is_up(*osd) && now.since(*at) < FORGOTTEN_AFTER);
    }

    /// The `count` oldest, with the OSD that has each.
    #[must_use]
    pub fn oldest(&self, count: usize) -> Vec<(OsdId, &SlowRequest)> {
        let all = self.of.iter().flat_map(|(osd, (_, requests))| requests.iter().map(|one| (*osd, one)));
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|(osd, one)| (std::cmp::Reverse(one.age_ms), *osd));
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(age_ms: u64) -> SlowRequest {
        SlowRequest { age_ms, ..SlowRequest::default() }
    }

    #[test]
    fn the_oldest_come_first_and_the_last_report_counts() {
        let at = |s| Stamp::default() + Duration::from_secs(s);
        let mut all = SlowRequests::default();
        all.report(1, vec![request(40_000), request(60_000)], at(0));
        all.report(2, vec![request(50_000)], at(10));
        let ages = |all: &SlowRequests| {
            all.oldest(2).into_iter().map(|(osd, one)| (osd, one.age_ms)).collect::<Vec<_>>()
        };
        assert_eq!(ages(&all), [(1, 60_000), (2, 50_000)]);
        all.tick(at(20), |_| true);
        assert_eq!(ages(&all), [(2, 50_000)], "nobody has said so of osd.1 for a while");
        all.report(2, Vec::new(), at(20));
        assert_eq!(ages(&all), []);
        all.report(3, vec![request(1)], at(20));
        all.tick(at(21), |osd| osd != 3);
        assert_eq!(ages(&all), [], "down");
    }
}
