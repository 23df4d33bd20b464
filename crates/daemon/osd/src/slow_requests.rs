//! [`SlowWatch`]: what our monitor hears of requests of clients that this OSD has had for too long.

use nacre_msg::{SLOW_REQUESTS_COUNT_MAX, SlowRequest, SlowRequests};
use nacre_osd_core::ControlPlane;
use nacre_types::Stamp;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// Our monitor hears of them this often, while there are any.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// The oldest of each shard, and what was told.
#[derive(Debug)]
pub(crate) struct SlowWatch {
    plane: ControlPlane,
    of_shards: BTreeMap<usize, Vec<SlowRequest>>,
    told_at: Option<Stamp>,
}

impl SlowWatch {
    /// Ceph's monitors are told nothing.
    pub(crate) fn new(plane: ControlPlane) -> Self {
        Self { plane, of_shards: BTreeMap::new(), told_at: None }
    }

    /// A shard reports what it has now.
    pub(crate) fn note(&mut self, shard: usize, requests: &[SlowRequest]) {
        if self.plane != ControlPlane::Nacre {
            return;
        }
        if requests.is_empty() {
            self.of_shards.remove(&shard);
        } else {
            self.of_shards.insert(shard, requests.to_vec());
        }
    }

    /// What is to be told now, if it is time: those that there are, and once that there are none any more.
    pub(crate) fn report(&mut self, now: Stamp, has_monitor: bool) -> Option<SlowRequests> {
        let is_due = match self.told_at {
            Some(told_at) => self.of_shards.is_empty() || now.since(told_at) >= REPORT_INTERVAL,
            None => !self.of_shards.is_empty(),
        };
        if !is_due || !has_monitor {
            return None;
        }
        let mut requests: Vec<SlowRequest> = self.of_shards.values().flatten().cloned().collect();
        self.told_at = (!requests.is_empty()).then_some(now);
        requests.sort_by_key(|request| Reverse(request.age_ms));
        requests.truncate(SLOW_REQUESTS_COUNT_MAX);
        Some(SlowRequests { requests })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(ages_ms: &[u64]) -> Vec<SlowRequest> {
        ages_ms.iter().map(|age_ms| SlowRequest { age_ms: *age_ms, ..SlowRequest::default() }).collect()
    }

    #[test]
    fn the_oldest_of_all_shards_are_told_and_once_that_there_are_none() {
        let at = |s| Stamp::default() + Duration::from_secs(s);
        let mut watch = SlowWatch::new(ControlPlane::Nacre);
        assert_eq!(watch.report(at(1), true), None);
        watch.note(0, &requests(&[31_000; SLOW_REQUESTS_COUNT_MAX]));
        watch.note(1, &requests(&[32_000]));
        assert_eq!(watch.report(at(2), false), None, "nobody to tell");
        let told = watch.report(at(2), true).expect("there are some").requests;
        assert_eq!((told.len(), told[0].age_ms), (SLOW_REQUESTS_COUNT_MAX, 32_000));
        assert_eq!(watch.report(at(3), true), None, "a moment ago");
        assert!(watch.report(at(7), true).is_some());
        watch.note(0, &[]);
        watch.note(1, &[]);
        assert_eq!(watch.report(at(8), true), Some(SlowRequests::default()));
        assert_eq!(watch.report(at(20), true), None);
        let mut watch = SlowWatch::new(ControlPlane::Ceph);
        watch.note(0, &requests(&[31_000]));
        assert_eq!(watch.report(at(2), true), None);
    }
}
