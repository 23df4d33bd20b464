//! [`LeastPings`]: how long the quickest pings between OSDs took in the last half minute, as OSDs reported last.

use crate::slow_requests::FORGOTTEN_AFTER;
use nacre_msg::LeastPing;
use nacre_types::{OsdId, Stamp};
use std::collections::BTreeMap;

/// The quickest pings of each OSD that tells them: one of an older version, or that pings less often than each seven seconds, does not.
#[derive(Debug, Default)]
pub struct LeastPings {
    of: BTreeMap<OsdId, (Stamp, BTreeMap<OsdId, LeastPing>)>,
}

impl LeastPings {
    /// What an OSD says of its peers now, at most [`nacre_msg::LEAST_PINGS_COUNT_MAX`] of them; what it said before holds no more.
    pub fn report(&mut self, from: OsdId, pings: Vec<LeastPing>, now: Stamp) {
        if pings.is_empty() {
            self.of.remove(&from);
        } else {
            let by_peer = pings.into_iter().map(|ping| (ping.osd, ping)).collect();
            self.of.insert(from, (now, by_peer));
        }
    }

    /// Forgets what may not be true any more.
    pub fn tick(&mut self, now: Stamp, is_up: impl Fn(OsdId) -> bool) {
        self.of.retain(|osd, (at, _)| is_up(*osd) && now.since(*at) < FORGOTTEN_AFTER);
    }

    /// All pings, each with the OSD that has measured it.
    pub fn iter(&self) -> impl Iterator<Item = (OsdId, &LeastPing)> {
        self.of.iter().flat_map(|(from, (_, pings))| pings.values().map(move |ping| (*from, ping)))
    }

    /// What one OSD has measured to another.
    #[must_use]
    pub fn find(&self, from: OsdId, to: OsdId) -> Option<&LeastPing> {
        self.of.get(&from)?.1.get(&to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_last_report_counts_for_as_long_as_others_would_have_come() {
        let at = |s| Stamp::default() + Duration::from_secs(s);
        let ping = |osd, us| LeastPing { osd, back_us: us, front_us: 0 };
        let mut all = LeastPings::default();
        all.report(1, vec![ping(2, 200), ping(3, 300)], at(0));
        all.report(2, vec![ping(1, 250)], at(10));
        all.report(3, vec![ping(1, 350)], at(10));
        all.report(1, vec![ping(2, 900)], at(5));
        assert_eq!((all.find(1, 2), all.find(1, 3)), (Some(&ping(2, 900)), None));
        all.tick(at(20), |osd| osd != 3);
        assert_eq!(all.iter().collect::<Vec<_>>(), [(1, &ping(2, 900)), (2, &ping(1, 250))]);
        all.tick(at(21), |_| true);
        assert_eq!(all.iter().collect::<Vec<_>>(), [(2, &ping(1, 250))]);
        all.report(2, Vec::new(), at(22));
        assert_eq!(all.iter().count(), 0, "it tells of none any more");
    }
}
