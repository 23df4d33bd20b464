//! [`Latencies`]: how long the device takes for requests, from when it is given one until its completion is taken.
//!
//! The clock is read once for all requests that start together and once for all completions that are taken together: this is the way of
//! every write.

use nacre_buf::Bytes;
use nacre_store::DeviceTotals;
use nacre_types::{DeviceLatencies, DeviceWork, LatencyHistogram, RequestClass, Stamp};

/// When a request was given to the device: not yet, or nobody can tell how long it takes.
pub(crate) const NOT_STARTED: Stamp = Stamp(0);

pub(crate) struct Latencies {
    /// Since they were taken last, by [`RequestClass::index`].
    window: Box<[LatencyHistogram; RequestClass::COUNT]>,
    /// Since the store was opened, by [`DeviceWork`].
    totals: [DeviceTotals; DeviceWork::ALL.len()],
    /// When a request of that kind was last made.
    last: [Stamp; DeviceWork::ALL.len()],
    /// Requests that are queued for the device, by tag.
    pub(crate) queued: Vec<usize>,
    /// When requests were started last.
    started_at: Stamp,
    /// Of requests that were started until then nobody is told when they end.
    unwatched_until: Stamp,
    /// The block that probes read, as it was when it was read: they write it again as it is.
    pub(crate) probed: Option<Bytes>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            window: Box::new([LatencyHistogram::default(); RequestClass::COUNT]),
            totals: <[DeviceTotals; DeviceWork::ALL.len()]>::default(),
            last: [NOT_STARTED; DeviceWork::ALL.len()],
            queued: Vec::new(),
            started_at: NOT_STARTED,
            unwatched_until: NOT_STARTED,
            probed: None,
        }
    }
}

impl Latencies {
    /// What is queued starts now.
    pub(crate) fn started(&mut self, now: Stamp) {
        self.started_at = now;
    }

    /// Nobody is woken for what is under way: it ends before somebody looks.
    pub(crate) fn unwatch(&mut self) {
        self.unwatched_until = self.started_at;
    }

    /// A request that was `started` then is done `now`.
    #[inline]
    pub(crate) fn note(&mut self, class: RequestClass, started: Stamp, now: Stamp) {
        let work = class.work() as usize;
        if let Some(last) = self.last.get_mut(work) {
            *last = now;
        }
        if started <= self.unwatched_until {
            return;
        }
        let ns = now.nanos_since(started);
        if let Some(histogram) = self.window.get_mut(class.index()) {
            histogram.note(ns);
        }
        if let Some(total) = self.totals.get_mut(work) {
            total.count += 1;
            total.spent_ns += ns;
        }
    }

    /// What was counted since the last call.
    pub(crate) fn take(&mut self) -> DeviceLatencies {
        let mut taken = DeviceLatencies::default();
        for (index, histogram) in self.window.iter_mut().enumerate() {
            let Some(class) = RequestClass::from_index(index).filter(|_| histogram.total() > 0) else {
                continue;
            };
            let histogram = std::mem::take(histogram);
            self.totals.get_mut(class.work() as usize).into_iter().for_each(|total| total.add(&histogram));
            taken.class_mut(class).add(&histogram);
        }
        taken
    }

    /// What was counted since the store was opened.
    pub(crate) fn totals(&self) -> [DeviceTotals; DeviceWork::ALL.len()] {
        let mut totals = self.totals;
        for (index, histogram) in self.window.iter().enumerate() {
            let work = RequestClass::from_index(index).map(|class| class.work() as usize);
            let total = work.and_then(|work| totals.get_mut(work));
            total.into_iter().for_each(|total| total.add(histogram));
        }
        totals
    }

    /// When a request of that kind was last done.
    pub(crate) fn last(&self, work: DeviceWork) -> Stamp {
        self.last.get(work as usize).copied().unwrap_or(NOT_STARTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS: RequestClass = RequestClass::of(DeviceWork::DurableWrite, 0, 4096);

    #[test]
    fn what_was_taken_still_counts_in_the_totals() {
        let mut latencies = Latencies::default();
        latencies.note(CLASS, Stamp(1_000), Stamp(301_000));
        let taken = latencies.take();
        assert_eq!(taken.class(CLASS).map(LatencyHistogram::total), Some(1));
        assert!(latencies.take().is_empty());
        latencies.note(CLASS, Stamp(1_000), Stamp(601_000));
        let total = latencies.totals()[DeviceWork::DurableWrite as usize];
        assert_eq!((total.count, total.spent_ns), (2, 900_000));
        assert_eq!(total.counts.iter().sum::<u64>(), 2);
        assert_eq!(latencies.totals()[DeviceWork::Read as usize].count, 0);
    }

    /// Who is not woken looks when something else comes: that is no time of the device's.
    #[test]
    fn requests_that_nobody_watched_do_not_count() {
        let mut latencies = Latencies::default();
        latencies.started(Stamp(10));
        latencies.unwatch();
        latencies.started(Stamp(20));
        latencies.note(CLASS, Stamp(10), Stamp(9_000_000));
        latencies.note(CLASS, Stamp(20), Stamp(9_000_000));
        assert_eq!(latencies.take().class(CLASS).map(LatencyHistogram::total), Some(1));
        assert_eq!(latencies.last(DeviceWork::DurableWrite), Stamp(9_000_000));
    }
}
