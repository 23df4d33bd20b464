//! [`OwnReports`]: what an OSD tells our monitor and not Ceph's: how long its device and pings take, which requests of clients are slow,
//! and which clients and images it has worked for.

use crate::bill::BillWatch;
use crate::device::DeviceWatch;
use crate::shard_msg::ShardReport;
use crate::slow_requests::SlowWatch;
use nacre_msg::{DeviceHealthReport, LeastPing, Message};
use nacre_options::Values;
use nacre_osd_core::ControlPlane;
use nacre_types::Stamp;
use std::collections::BTreeMap;

/// Devices of which it is remembered why they could not be asked: an OSD is on few.
const REMEMBERED_COUNT_MAX: usize = 16;

/// What is to be told.
#[derive(Debug)]
pub(crate) struct OwnReports {
    device: DeviceWatch,
    slow_requests: SlowWatch,
    bill: BillWatch,
    /// Why devices could not be asked how they are, by their ids.
    device_errors: BTreeMap<String, String>,
}

impl OwnReports {
    /// Of an OSD on this host. Nothing is told under Ceph's monitors.
    pub(crate) fn new(plane: ControlPlane, host: &str) -> Self {
        Self {
            device: DeviceWatch::new(plane),
            slow_requests: SlowWatch::new(plane),
            bill: BillWatch::new(plane, host),
            device_errors: BTreeMap::new(),
        }
    }

    /// Whether a device cannot be asked for another reason than the last time.
    pub(crate) fn is_news_of_device(&mut self, report: &DeviceHealthReport) -> bool {
        let (device, error) = (&report.device, &report.error);
        if error.is_empty() {
            self.device_errors.remove(device);
            return false;
        }
        let has_room =
            self.device_errors.len() < REMEMBERED_COUNT_MAX || self.device_errors.contains_key(device);
        has_room && self.device_errors.insert(device.clone(), error.clone()).as_ref() != Some(error)
    }

    /// A shard reports; what it has to bill is taken.
    pub(crate) fn note(&mut self, report: &mut ShardReport) {
        self.device.note(&report.latencies);
        self.slow_requests.note(report.shard, &report.slow_requests);
        self.bill.note(report.bill.take());
    }

    /// What is to be told now. Latencies that were measured while there was no monitor to hear of them are told to nobody; what was done for
    /// clients meanwhile is told later. `pings`: what is known of pings of other OSDs.
    pub(crate) fn reports(
        &mut self,
        now: Stamp,
        pings: impl FnOnce() -> Vec<LeastPing>,
        (options, has_monitor): (&Values, bool),
    ) -> Vec<Message> {
        let device = self.device.report(now, pings).filter(|_| has_monitor).map(Message::from);
        let slow = self.slow_requests.report(now, has_monitor).map(Message::from);
        let bill = has_monitor.then(|| self.bill.report(now, options)).flatten().map(Message::from);
        device.into_iter().chain(slow).chain(bill).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_device_cannot_be_asked_is_said_once() {
        let mut told = OwnReports::new(ControlPlane::Nacre, "host");
        let report = |device: &str, error: &str| DeviceHealthReport {
            device: device.to_owned(),
            error: error.to_owned(),
            ..DeviceHealthReport::default()
        };
        assert!(told.is_news_of_device(&report("a", "no smartctl")));
        assert!(told.is_news_of_device(&report("b", "no smartctl")));
        assert!(!told.is_news_of_device(&report("a", "no smartctl")));
        assert!(told.is_news_of_device(&report("a", "it took too long")), "another reason");
        assert!(!told.is_news_of_device(&report("a", "")), "it can be asked");
        assert!(told.is_news_of_device(&report("a", "it took too long")), "and again it cannot");
        let many = (0..100).filter(|nth| told.is_news_of_device(&report(&nth.to_string(), "no smartctl")));
        assert_eq!(many.count(), REMEMBERED_COUNT_MAX - 2);
    }
}
