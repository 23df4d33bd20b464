//! What devices say of their health. Our own series; Ceph leaves them to other programs.

use super::View;
use super::page::{Kind, Page};
use nacre_msg::DeviceHealth;

/// A device at one place, with what it said last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceView {
    /// Its id, as `ceph device ls` has it.
    pub id: String,
    /// The host that it is in.
    pub host: String,
    /// The kernel's name there, such as `nvme0n1`.
    pub name: String,
    /// What it said.
    pub health: DeviceHealth,
}

/// A family: its name, its help, its value where the device has said it.
type Column = (&'static str, &'static str, fn(&DeviceHealth) -> Option<i128>);

const COLUMNS: [Column; 8] = [
    ("ceph_device_smart_passed", "Whether a device's own verdict is that it is well", |health| {
        health.smart_passed.map(i128::from)
    }),
    ("ceph_device_critical_warning", "NVMe's bits of critical warnings", |health| {
        health.critical_warning.map(i128::from)
    }),
    ("ceph_device_wear_percent", "How much of a device's rated life is used", |health| {
        health.percentage_used.map(i128::from)
    }),
    ("ceph_device_spare_percent", "Spare blocks that are left", |health| {
        health.available_spare.map(i128::from)
    }),
    ("ceph_device_media_errors", "Accesses that a device could not set right", |health| {
        health.media_errors.map(i128::from)
    }),
    ("ceph_device_reallocated_sectors", "Sectors that were replaced", |health| {
        health.reallocated.map(i128::from)
    }),
    ("ceph_device_pending_sectors", "Sectors that could not be read and may be replaced", |health| {
        health.pending.map(i128::from)
    }),
    ("ceph_device_temperature_celsius", "How warm a device is", |health| {
        health.temperature_c.map(i128::from)
    }),
];

pub(super) fn write(view: &View, page: &mut Page) {
    for (name, help, value) in COLUMNS {
        page.family(name, Kind::Gauge, help);
        for device in &view.devices {
            let Some(value) = value(&device.health) else { continue };
            let path = format!("/dev/{}", device.name);
            let labels: [(&str, &str); 3] =
                [("devid", &device.id), ("device", &path), ("instance", &device.host)];
            page.sample(name, &labels, value);
        }
    }
}
