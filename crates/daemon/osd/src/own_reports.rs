//! [`OwnReports`]: what an OSD tells our monitor and not Ceph's: how long its device takes, and which requests of clients are slow.

use crate::device::DeviceWatch;
use crate::shard_msg::ShardReport;
use crate::slow_requests::SlowWatch;
use nacre_msg::Message;
use nacre_osd_core::ControlPlane;
use nacre_types::Stamp;

/// What is to be told.
#[derive(Debug)]
pub(crate) struct OwnReports {
    device: DeviceWatch,
    slow_requests: SlowWatch,
}

impl OwnReports {
    /// Nothing is told under Ceph's monitors.
    pub(crate) fn new(plane: ControlPlane) -> Self {
        Self { device: DeviceWatch::new(plane), slow_requests: SlowWatch::new(plane) }
    }

    /// A shard reports.
    pub(crate) fn note(&mut self, report: &ShardReport) {
        self.device.note(&report.latencies);
        self.slow_requests.note(report.shard, &report.slow_requests);
    }

    /// What is to be told now; what was measured while there was no monitor to hear it is told to nobody.
    pub(crate) fn reports(&mut self, now: Stamp, has_monitor: bool) -> Vec<Message> {
        let device = self.device.report(now).filter(|_| has_monitor).map(Message::from);
        let slow = self.slow_requests.report(now, has_monitor).map(Message::from);
        device.into_iter().chain(slow).collect()
    }
}
