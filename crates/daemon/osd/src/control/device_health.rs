//! What a device says of its health, on its way to our monitor.

use super::OsdControl;
use nacre_msg::DeviceHealthReport;

impl OsdControl {
    /// A device was asked, or could not be. The operator hears of it once, not each time that the monitor asks again.
    pub(crate) fn device_health(&mut self, report: DeviceHealthReport) {
        if self.told.is_news_of_device(&report) {
            let (osd, device, error) = (self.config.id, &report.device, &report.error);
            tracing::info!(osd, device, error, "nothing is known of a device's health");
        }
        self.mon.send(report.into());
    }
}
