//! [`OwnReports`]: what an OSD tells our monitor and not Ceph's: how long its device takes, which requests of clients are slow, and
//! which clients and images it has worked for.

use crate::bill::BillWatch;
use crate::device::DeviceWatch;
use crate::shard_msg::ShardReport;
use crate::slow_requests::SlowWatch;
use nacre_msg::Message;
use nacre_options::Values;
use nacre_osd_core::ControlPlane;
use nacre_types::Stamp;

/// What is to be told.
#[derive(Debug)]
pub(crate) struct OwnReports {
    device: DeviceWatch,
    slow_requests: SlowWatch,
    bill: BillWatch,
}

impl OwnReports {
    /// Of an OSD on this host. Nothing is told under Ceph's monitors.
    pub(crate) fn new(plane: ControlPlane, host: &str) -> Self {
        Self {
            device: DeviceWatch::new(plane),
            slow_requests: SlowWatch::new(plane),
            bill: BillWatch::new(plane, host),
        }
    }

    /// A shard reports; what it has to bill is taken.
    pub(crate) fn note(&mut self, report: &mut ShardReport) {
        self.device.note(&report.latencies);
        self.slow_requests.note(report.shard, &report.slow_requests);
        self.bill.note(report.bill.take());
    }

    /// What is to be told now. Latencies that were measured while there was no monitor to hear of them are told to nobody; what was done for
    /// clients meanwhile is told later.
    pub(crate) fn reports(&mut self, now: Stamp, has_monitor: bool, options: &Values) -> Vec<Message> {
        let device = self.device.report(now).filter(|_| has_monitor).map(Message::from);
        let slow = self.slow_requests.report(now, has_monitor).map(Message::from);
        let bill = has_monitor.then(|| self.bill.report(now, options)).flatten().map(Message::from);
        device.into_iter().chain(slow).chain(bill).collect()
    }
}
