//! Answers in the format of `smartctl` 7.3, written by hand: `testdata/smart`.

use super::*;
use serde_json::json;

fn told(name: &str) -> Value {
    let path = format!("{}/../../../testdata/smart/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).expect("JSON")
}

fn reported(told: Value) -> (DeviceHealth, Value) {
    let report = report("ACME_1".to_owned(), told);
    assert_eq!((report.device.as_str(), report.error.as_str()), ("ACME_1", ""));
    assert!(report.json.len() <= DEVICE_JSON_BYTES_MAX);
    (report.health.expect("it says how it is"), serde_json::from_slice(&report.json).expect("JSON"))
}

#[test]
fn a_sata_ssd_says_how_it_is() {
    let healthy = DeviceHealth {
        smart_passed: Some(true),
        percentage_used: Some(6),
        media_errors: Some(0),
        reallocated: Some(0),
        pending: Some(0),
        temperature_c: Some(29),
        power_on_hours: Some(17_312),
        ..DeviceHealth::default()
    };
    assert_eq!(reported(told("sata-healthy")).0, healthy);
    let failing = DeviceHealth {
        smart_passed: Some(false),
        media_errors: Some(12),
        reallocated: Some(1872),
        pending: Some(3),
        ..healthy
    };
    assert_eq!(reported(told("sata-failing")).0, failing);
}

#[test]
fn a_sas_ssd_says_how_it_is() {
    let healthy = DeviceHealth {
        smart_passed: Some(true),
        percentage_used: Some(4),
        media_errors: Some(0),
        reallocated: Some(0),
        temperature_c: Some(34),
        power_on_hours: Some(9120),
        ..DeviceHealth::default()
    };
    assert_eq!(reported(told("sas-healthy")).0, healthy);
    let failing = DeviceHealth {
        smart_passed: Some(false),
        percentage_used: Some(101),
        media_errors: Some(3),
        reallocated: Some(3),
        ..healthy
    };
    assert_eq!(reported(told("sas-failing")).0, failing);
}

#[test]
fn an_nvme_device_says_how_it_is() {
    let healthy = DeviceHealth {
        smart_passed: Some(true),
        critical_warning: Some(0),
        available_spare: Some(100),
        available_spare_threshold: Some(10),
        percentage_used: Some(2),
        media_errors: Some(0),
        temperature_c: Some(31),
        power_on_hours: Some(21_050),
        ..DeviceHealth::default()
    };
    let (health, json) = reported(told("nvme-healthy"));
    assert_eq!(health, healthy);
    assert_eq!(json["nvme_smart_health_information_log"]["data_units_written"], 98_765_432);
    assert_eq!(json["smartctl"]["output"], Value::Null, "the same for people is not kept");
    let failing = DeviceHealth {
        smart_passed: Some(false),
        critical_warning: Some(9),
        available_spare: Some(4),
        percentage_used: Some(117),
        media_errors: Some(7),
        ..healthy
    };
    assert_eq!(reported(told("nvme-failing")).0, failing);
}

#[test]
fn wear_and_spare_are_known_by_the_words_of_newer_smartmontools() {
    let told = json!({ "endurance_used": { "current_percent": 61 },
        "spare_available": { "current_percent": 40, "threshold_percent": 5 } });
    let (health, _) = reported(told);
    assert_eq!(health.percentage_used, Some(61));
    assert_eq!((health.available_spare, health.available_spare_threshold), (Some(40), Some(5)));
}

#[test]
fn what_a_device_says_in_other_forms_is_not_believed() {
    let told = json!({
        "smart_status": { "passed": "yes" },
        "temperature": { "current": 1_u64 << 60 },
        "power_on_time": { "hours": -3 },
        "nvme_smart_health_information_log": { "critical_warning": 256, "available_spare": [1], "percentage_used": u64::MAX },
        "ata_smart_attributes": { "table": [7, { "id": 5 }, { "id": 197, "raw": { "value": 0x0005_0000_0002_u64 } }] },
        "ata_device_statistics": { "pages": { "number": 7 } },
        "scsi_error_counter_log": { "read": { "total_uncorrected_errors": u64::MAX }, "write": { "total_uncorrected_errors": 1 } },
    });
    let expected = DeviceHealth { pending: Some(2), media_errors: Some(u64::MAX), ..DeviceHealth::default() };
    assert_eq!(reported(told).0, expected);
}

#[test]
fn a_device_that_says_nothing_of_its_health_is_reported_so() {
    let silent = report("ACME_1".to_owned(), json!({ "device": { "name": "/dev/vda" } }));
    assert_eq!((silent.health, silent.error.as_str()), (None, "the device says nothing of its health"));
    let complaining =
        json!({ "smartctl": { "messages": [{ "string": "no SMART" }, { "string": "at all" }] } });
    assert_eq!(report("ACME_1".to_owned(), complaining).error, "no SMART; at all");
    let long = cannot_ask("\u{e9}".repeat(4000), &"many\nwords ".repeat(4000));
    assert!(long.device.len() <= DEVICE_ID_BYTES_MAX && long.error.len() <= DEVICE_ERROR_BYTES_MAX);
    assert!(long.error.starts_with("many words many"), "one line");
}

#[test]
fn of_a_device_that_says_much_the_largest_is_left_out_and_named() {
    let mut much = told("nvme-healthy");
    much["nvme_error_information_log"] = json!({ "table": vec!["an error"; 4000] });
    much["a_log_of_moderate_size"] = Value::from("x".repeat(5000));
    much["another_log"] = Value::from("x".repeat(9000));
    let (health, json) = reported(much);
    assert_eq!(health.percentage_used, Some(2));
    assert_eq!(json["left_out"], json!(["nvme_error_information_log", "another_log"]));
    assert_eq!(json["smart_status"]["passed"], true);
    assert_eq!(json["a_log_of_moderate_size"].as_str().map(str::len), Some(5000));
    // Not even that which tells must fill the monitors, nor the names of what is left out.
    let mut hostile = told("nvme-healthy");
    hostile["model_name"] = Value::from("x".repeat(100_000));
    (0..500).for_each(|nth| hostile[format!("{nth:0500}")] = Value::from(nth));
    let (health, json) = reported(hostile);
    assert_eq!((health.percentage_used, &json["model_name"]), (Some(2), &Value::Null));
    assert_eq!(json["smart_status"]["passed"], true);
}
