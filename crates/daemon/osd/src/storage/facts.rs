//! What is known of the devices of a store when it is opened, by the names that `osd metadata` has.

use super::parts::{Parts, device_bytes, disks_of, real};
use super::{BLOCK_FILE, LOG_FILE};
use nacre_blockstore::{KnownDevices, Options};
use nacre_env::disk::{DeviceReport, Disk};
use nacre_env::real::SystemDevice;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// How the names of facts begin that are of the device with the data, that with the log, and that with the metadata.
const DATA: &str = "nacre_bdev";
const LOG: &str = "nacre_log";
const METADATA: &str = "nacre_meta";

/// All that is known, by name.
pub(super) fn facts(
    parts: &Parts,
    folder: &Path,
    known: &KnownDevices,
    options: &Options,
) -> BTreeMap<String, String> {
    let at = |path: &Path| SystemDevice::at(Path::new("/"), path);
    let data = at(&folder.join(BLOCK_FILE));
    let of_log = known.log.as_ref().map(|log| {
        let device = at(&folder.join(LOG_FILE));
        role_facts(LOG, &device, log.report.as_ref())
    });
    let of_roles = [
        role_facts(DATA, &data, known.data.report.as_ref()),
        of_log.unwrap_or_default(),
        role_facts(METADATA, &at(parts.first.metadata.path()), None),
    ];
    let of_store = store_facts(parts, options).into_iter().chain(place_facts(parts, folder));
    let of_store = of_store.map(|(name, value)| (name.to_owned(), value));
    let of_disks = disk_facts("", &disks_of(parts));
    of_store.chain(of_disks).chain(of_roles.into_iter().flatten()).collect()
}

fn store_facts(parts: &Parts, options: &Options) -> Vec<(&'static str, String)> {
    let disk = real(&parts.first.data);
    let info = disk.info();
    let rotational = disk.rotational().unwrap_or(false);
    vec![
        ("nacre_bdev_access_mode", if disk.is_block_device() { "blk" } else { "file" }.to_owned()),
        ("nacre_bdev_block_size", info.block_bytes.to_string()),
        ("nacre_bdev_direct", u8::from(disk.is_direct()).to_string()),
        ("nacre_bdev_encrypted", u8::from(parts.first.data.is_encrypted()).to_string()),
        ("nacre_bdev_driver", info.driver.to_owned()),
        ("nacre_bdev_size", info.size_bytes.to_string()),
        ("nacre_bdev_type", if rotational { "hdd" } else { "ssd" }.to_owned()),
        ("nacre_commit", options.commit_text()),
        ("rotational", u8::from(rotational).to_string()),
    ]
}

/// The disks of a device, and what is printed on them: as Ceph names them, behind `prefix`.
fn disk_facts(prefix: &str, disks: &BTreeMap<String, Option<String>>) -> Vec<(String, String)> {
    let names: Vec<&str> = disks.keys().map(String::as_str).collect();
    let named = disks.iter().filter_map(|(name, id)| Some(format!("{name}={}", id.as_ref()?)));
    let ids: Vec<String> = named.collect();
    let facts = [("devices", names.join(",")), ("device_ids", ids.join(","))];
    let told = facts.into_iter().filter(|(_, value)| !value.is_empty());
    told.map(|(name, value)| (format!("{prefix}{name}"), value)).collect()
}

/// What a device is, as the system tells, and what it costs, if that was measured.
fn role_facts(role: &str, device: &SystemDevice, report: Option<&DeviceReport>) -> Vec<(String, String)> {
    let known = |value: Option<bool>| value.map_or("unknown", |yes| if yes { "1" } else { "0" }).to_owned();
    let all = |words: &BTreeSet<String>| words.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let mut facts = vec![
        ("firmware", all(&device.firmware)),
        ("model", all(&device.models)),
        ("rotational", known(device.rotational)),
        ("volatile_cache", known(device.volatile_cache)),
    ];
    if let Some(report) = report {
        let flush = if report.flush_is_expensive() { "expensive" } else { "cheap" };
        facts.extend([
            ("cached_write_us", report.cached_write.median.as_micros().to_string()),
            ("durable_write_us", report.durable_write.median.as_micros().to_string()),
            ("flush", flush.to_owned()),
            ("flush_us", report.flush.median.as_micros().to_string()),
            ("read_us", report.read.median.as_micros().to_string()),
        ]);
    }
    let told = facts.into_iter().filter(|(_, value)| !value.is_empty());
    let told = told.map(|(name, value)| (format!("{role}_{name}"), value));
    told.chain(disk_facts(&format!("{role}_"), &device.disks)).collect()
}

/// What of a store is where, and how large that is.
fn place_facts(parts: &Parts, folder: &Path) -> Vec<(&'static str, String)> {
    let log = parts.first.log.as_ref();
    let log_rotational =
        log.map_or_else(|| real(&parts.first.data).rotational(), |log| real(log).rotational());
    let mut facts = vec![
        ("journal_rotational", u8::from(log_rotational.unwrap_or(false)).to_string()),
        ("nacre_log_apart", u8::from(log.is_some()).to_string()),
    ];
    if parts.labels.is_empty() {
        return facts;
    }
    let node = |link: &Path| link.canonicalize().unwrap_or_default().display().to_string();
    facts.push(("nacre_bdev_dev_node", node(&folder.join(BLOCK_FILE))));
    if let Some(log) = log {
        facts.push(("nacre_log_dev_node", node(&folder.join(LOG_FILE))));
        facts.push(("nacre_log_size", device_bytes(log).to_string()));
    }
    facts.push((
        "nacre_meta_apart",
        u8::from(parts.first.metadata.path() != folder.join(BLOCK_FILE)).to_string(),
    ));
    facts.push(("nacre_meta_dev_node", node(parts.first.metadata.path())));
    let count = parts.partitions() as u64;
    let meta_bytes = parts.first.metadata.region_bytes();
    facts.extend(meta_bytes.map(|bytes| ("nacre_meta_size", (count * bytes).to_string())));
    let journal_bytes = parts.first.metadata.journal_region_bytes().map(|bytes| count * bytes);
    facts.extend(journal_bytes.map(|bytes| ("nacre_meta_journal_size", bytes.to_string())));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_env::disk::Cost;
    use std::time::Duration;

    #[test]
    fn each_role_has_names_of_its_own_for_what_its_device_is() {
        let cost = |us| Cost { median: Duration::from_micros(us), best: Duration::from_micros(us / 2) };
        let report = DeviceReport {
            driver: "simulated",
            size_bytes: 0,
            durable_write: cost(60),
            cached_write: cost(40),
            flush: cost(30),
            read: cost(80),
        };
        let disk = |name: &str, id: Option<&str>| (name.to_owned(), id.map(str::to_owned));
        let flash = SystemDevice {
            disks: [disk("nvme0n1", Some("FAST_4000_N1")), disk("nvme1n1", None)].into(),
            models: ["FAST 4000".to_owned()].into(),
            firmware: ["1.2".to_owned(), "1.3".to_owned()].into(),
            volatile_cache: Some(false),
            rotational: Some(false),
        };
        let told = |role, device: &SystemDevice, report| {
            let facts = BTreeMap::from_iter(role_facts(role, device, report));
            facts.into_iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>()
        };
        let of_log = [
            "nacre_log_cached_write_us 40",
            "nacre_log_device_ids nvme0n1=FAST_4000_N1",
            "nacre_log_devices nvme0n1,nvme1n1",
            "nacre_log_durable_write_us 60",
            "nacre_log_firmware 1.2, 1.3",
            "nacre_log_flush cheap",
            "nacre_log_flush_us 30",
            "nacre_log_model FAST 4000",
            "nacre_log_read_us 80",
            "nacre_log_rotational 0",
            "nacre_log_volatile_cache 0",
        ];
        assert_eq!(told(LOG, &flash, Some(&report)), of_log);
        let of_metadata = ["nacre_meta_rotational unknown", "nacre_meta_volatile_cache unknown"];
        assert_eq!(told(METADATA, &SystemDevice::default(), None), of_metadata);
    }
}
