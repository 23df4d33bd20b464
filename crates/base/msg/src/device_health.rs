//! [`DeviceHealthWanted`] and [`DeviceHealthReport`]: our monitor asks an OSD of ours what one of its devices says of its own health, and is
//! told. Ceph's manager asks OSDs by the command `smart`; its monitors neither ask nor are told.

use crate::body::{body, fields};
use nacre_buf::Bytes;

/// Bytes of a device's id.
pub const DEVICE_ID_BYTES_MAX: usize = 256;
/// Bytes of [`DeviceHealthReport::error`].
pub const DEVICE_ERROR_BYTES_MAX: usize = 256;
/// Bytes of [`DeviceHealthReport::json`].
pub const DEVICE_JSON_BYTES_MAX: usize = 16 << 10;

/// Our monitor wants an OSD to ask one of its devices now. The answer is a [`DeviceHealthReport`], always.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DeviceHealthWanted {
    /// Id of the device, as `device_ids` of the OSD's metadata has it.
    pub device: String,
}
body!(DeviceHealthWanted = 0x7105, 1 / 1; device);

impl DeviceHealthWanted {
    /// What OSDs subscribe to that can be asked. Ceph's monitors have nothing of this name, and say nothing.
    pub const TOPIC: &'static str = "nacre_device_health";
}

/// What a device says of itself, as far as it says it. Sources: SMART of ATA and SCSI, the health log of NVMe (log page 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DeviceHealth {
    /// Its own verdict: false when it expects to fail, or has a value beyond its maker's threshold.
    pub smart_passed: Option<bool>,
    /// NVMe's bits of the same name: spare, temperature, reliability, read only, backup of volatile memory, persistent memory.
    pub critical_warning: Option<u8>,
    /// Spare blocks that are left, in per cent.
    pub available_spare: Option<u8>,
    /// Below so many per cent its maker wants it replaced.
    pub available_spare_threshold: Option<u8>,
    /// How much of its rated life is used, in per cent; may be above 100.
    pub percentage_used: Option<u32>,
    /// Reads and writes that it could not set right.
    pub media_errors: Option<u64>,
    /// Sectors that were replaced: ATA attribute 5, SCSI's grown defects.
    pub reallocated: Option<u64>,
    /// Sectors that could not be read and may be replaced: ATA attribute 197.
    pub pending: Option<u64>,
    /// How warm it is, in degrees Celsius.
    pub temperature_c: Option<i32>,
    /// Hours that it has been on.
    pub power_on_hours: Option<u64>,
}
fields!(DeviceHealth, "health of a device", 1, 1; smart_passed, critical_warning, available_spare, available_spare_threshold,
    percentage_used, media_errors, reallocated, pending, temperature_c, power_on_hours);

/// What an OSD was told by one of its devices.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DeviceHealthReport {
    /// Id of the device, as in [`DeviceHealthWanted`].
    pub device: String,
    /// What it says; nothing when it could not be asked.
    pub health: Option<DeviceHealth>,
    /// Why it could not be asked, as a sentence without an end; empty when it was.
    pub error: String,
    /// What `smartctl` says, a JSON object without white space; at most [`DEVICE_JSON_BYTES_MAX`] bytes.
    pub json: Bytes,
}
body!(DeviceHealthReport = 0x7106, 1 / 1; device, health, error, json);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;

    #[test]
    fn reports_are_read_as_they_were_written() {
        let health = DeviceHealth {
            smart_passed: Some(false),
            critical_warning: Some(5),
            temperature_c: Some(-40),
            percentage_used: Some(255),
            power_on_hours: Some(u64::MAX),
            ..DeviceHealth::default()
        };
        let told = DeviceHealthReport {
            device: "ACME_1".to_owned(),
            health: Some(health),
            error: String::new(),
            json: Bytes::from_static(b"{}"),
        };
        let cannot = DeviceHealthReport { health: None, error: "no smartctl".to_owned(), ..told.clone() };
        for report in [told, cannot] {
            let raw = Message::from(report.clone()).encode(7);
            assert!(matches!(Message::decode(raw), Ok(Message::DeviceHealthReport(read)) if read == report));
        }
    }
}
