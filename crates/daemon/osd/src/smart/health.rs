//! What matters of what `smartctl` says of a device, for our monitor.
//!
//! Source of the names: `smartctl --json` of smartmontools 7.3, `json_format_version` 1.0. What a device does not say stays unknown: vendors'
//! attributes of wear (177, 231, 233 and others) mean different things, so wear is known by ATA's device statistics, NVMe's and SCSI's own
//! figure, or what smartmontools 7.4 makes of these.

use nacre_buf::Bytes;
use nacre_msg::{
    DEVICE_ERROR_BYTES_MAX, DEVICE_ID_BYTES_MAX, DEVICE_JSON_BYTES_MAX, DeviceHealth, DeviceHealthReport,
};
use serde_json::{Map, Value};

/// Numbers of ATA's attributes that makers agree on.
mod ata {
    pub(super) const REALLOCATED: u64 = 5;
    pub(super) const REPORTED_UNCORRECT: u64 = 187;
    pub(super) const PENDING: u64 = 197;
    /// Page of device statistics on solid state devices, and where on it the percentage of life that is used stands.
    pub(super) const SOLID_STATE_PAGE: u64 = 7;
    pub(super) const ENDURANCE_OFFSET: u64 = 8;
}

/// Members that say how a device is, or which it is: the last to be left out.
const TELLING: &[&str] = &[
    "device",
    "endurance_used",
    "firmware_version",
    "model_name",
    "nvme_smart_health_information_log",
    "power_on_time",
    "scsi_error_counter_log",
    "scsi_grown_defect_list",
    "scsi_percentage_used_endurance_indicator",
    "serial_number",
    "smart_status",
    "spare_available",
    "temperature",
];

/// The report on a device of which `smartctl` says this.
pub(super) fn report(device: String, mut told: Value) -> DeviceHealthReport {
    let (health, complaints) = (health(&told), complaints(&told));
    if let Some(smartctl) = told.get_mut("smartctl").and_then(Value::as_object_mut) {
        // The same for people once more: `--json=o`.
        smartctl.remove("output");
    }
    let json = told.as_object_mut().map(bounded).unwrap_or_default();
    if health == DeviceHealth::default() {
        let why = complaints.unwrap_or_else(|| "the device says nothing of its health".to_owned());
        return cannot_ask(device, &why);
    }
    DeviceHealthReport { device, health: Some(health), error: String::new(), json }
}

/// The report on one that cannot be asked.
pub(super) fn cannot_ask(mut device: String, why: &str) -> DeviceHealthReport {
    device.truncate(device.floor_char_boundary(DEVICE_ID_BYTES_MAX));
    let mut error = why.split_whitespace().collect::<Vec<_>>().join(" ");
    error.truncate(error.floor_char_boundary(DEVICE_ERROR_BYTES_MAX));
    DeviceHealthReport { device, health: None, error, json: Bytes::new() }
}

/// What `smartctl` complains of, if it printed JSON.
pub(super) fn complaint(text: &str) -> Option<String> {
    complaints(&serde_json::from_str(text).ok()?)
}

fn complaints(told: &Value) -> Option<String> {
    let messages = told["smartctl"]["messages"].as_array()?.iter();
    let messages: Vec<&str> = messages.filter_map(|message| message["string"].as_str()).collect();
    (!messages.is_empty()).then(|| messages.join("; "))
}

fn health(told: &Value) -> DeviceHealth {
    let nvme = &told["nvme_smart_health_information_log"];
    let number = |value: &Value| value.as_u64();
    let byte = |value: &Value| value.as_u64().and_then(|number| u8::try_from(number).ok());
    DeviceHealth {
        smart_passed: told["smart_status"]["passed"].as_bool(),
        critical_warning: byte(&nvme["critical_warning"]),
        available_spare: byte(&nvme["available_spare"])
            .or_else(|| byte(&told["spare_available"]["current_percent"])),
        available_spare_threshold: byte(&nvme["available_spare_threshold"])
            .or_else(|| byte(&told["spare_available"]["threshold_percent"])),
        percentage_used: percentage_used(told),
        media_errors: number(&nvme["media_errors"])
            .or_else(|| scsi_uncorrected(told))
            .or_else(|| ata_raw(told, ata::REPORTED_UNCORRECT)),
        reallocated: number(&told["scsi_grown_defect_list"]).or_else(|| ata_raw(told, ata::REALLOCATED)),
        pending: ata_raw(told, ata::PENDING),
        temperature_c: told["temperature"]["current"]
            .as_i64()
            .and_then(|degrees| i32::try_from(degrees).ok()),
        power_on_hours: number(&told["power_on_time"]["hours"]).or_else(|| number(&nvme["power_on_hours"])),
    }
}

fn percentage_used(told: &Value) -> Option<u32> {
    let said = [
        &told["nvme_smart_health_information_log"]["percentage_used"],
        &told["scsi_percentage_used_endurance_indicator"],
        &told["endurance_used"]["current_percent"],
    ];
    let said = said.into_iter().find_map(Value::as_u64);
    said.or_else(|| ata_endurance(told)).and_then(|percent| u32::try_from(percent).ok())
}

fn ata_endurance(told: &Value) -> Option<u64> {
    let page = row(&told["ata_device_statistics"]["pages"], "number", ata::SOLID_STATE_PAGE)?;
    row(&page["table"], "offset", ata::ENDURANCE_OFFSET)?["value"].as_u64()
}

/// The row of a table that has this number under this name.
fn row<'a>(table: &'a Value, name: &str, number: u64) -> Option<&'a Value> {
    table.as_array()?.iter().find(|row| row[name].as_u64() == Some(number))
}

/// The raw value of an attribute, as a count: some makers keep other things in the bytes above the lowest four.
fn ata_raw(told: &Value, id: u64) -> Option<u64> {
    let row = row(&told["ata_smart_attributes"]["table"], "id", id)?;
    row["raw"]["value"].as_u64().map(|raw| raw & u64::from(u32::MAX))
}

/// Errors that a SCSI device could not correct, of all kinds of access.
fn scsi_uncorrected(told: &Value) -> Option<u64> {
    let log = told["scsi_error_counter_log"].as_object()?;
    let counts = log.values().filter_map(|row| row["total_uncorrected_errors"].as_u64());
    counts.fold(None, |sum: Option<u64>, count| Some(sum.unwrap_or(0).saturating_add(count)))
}

/// The object as JSON of at most [`DEVICE_JSON_BYTES_MAX`] bytes: the largest members are left out, and named in `left_out`.
fn bounded(told: &mut Map<String, Value>) -> Bytes {
    const NAMES_BYTES_MAX: usize = 1024;
    let mut members: Vec<(bool, usize, String)> = told
        .iter()
        .map(|(name, value)| {
            (TELLING.contains(&name.as_str()), name.len() + value.to_string().len(), name.clone())
        })
        .collect();
    let mut bytes: usize = members.iter().map(|(_, bytes, _)| bytes + 4).sum();
    // What tells stands first, and then what is small: the end goes.
    members.sort_by_key(|(tells, bytes, _)| (!tells, *bytes));
    let mut left_out = Vec::new();
    while bytes + NAMES_BYTES_MAX > DEVICE_JSON_BYTES_MAX {
        let Some((_, size, name)) = members.pop() else { break };
        told.remove(&name);
        bytes -= size + 4;
        if left_out.iter().map(String::len).sum::<usize>() + name.len() < NAMES_BYTES_MAX / 2 {
            left_out.push(name);
        }
    }
    if !left_out.is_empty() {
        told.insert("left_out".to_owned(), Value::from(left_out));
    }
    let text = Value::Object(std::mem::take(told)).to_string();
    if text.len() <= DEVICE_JSON_BYTES_MAX { Bytes::from(text) } else { Bytes::new() }
}

#[cfg(test)]
mod tests;
