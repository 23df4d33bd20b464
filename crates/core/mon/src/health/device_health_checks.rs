//! The checks on devices that are expected to fail: because they say so themselves, or because somebody has said so of them.
//!
//! Codes and summaries are those of Ceph's manager module `devicehealth`, which knows life expectancies only. What a device says of itself is
//! the same news for whoever has an alert on it. A device leaves `DEVICE_HEALTH` when its OSDs are out: it is being done without then.

use super::{Check, Severity};
use crate::device_asking;
use crate::devices::{self, Device};
use crate::state::State;
use nacre_msg::DeviceHealth;
use nacre_types::OsdId;
use std::collections::{BTreeMap, BTreeSet};

/// What NVMe's bits of `critical_warning` mean, from the lowest on.
const WARNINGS: [&str; 6] = [
    "spare blocks are below its limit",
    "its temperature is beyond its limits",
    "it is unreliable because of errors",
    "it takes no more writes",
    "the backup of its volatile memory has failed",
    "its persistent memory region is unreliable",
];

/// What a device says that means that it is to be replaced.
pub(crate) fn faults(health: &DeviceHealth) -> Vec<String> {
    let mut faults = Vec::new();
    if health.smart_passed == Some(false) {
        faults.push("its own verdict (SMART) is that it fails".to_owned());
    }
    let warnings = health.critical_warning.unwrap_or(0);
    let spare = health.available_spare.zip(health.available_spare_threshold);
    let low_spare = spare.filter(|(spare, threshold)| spare < threshold);
    if let Some((spare, threshold)) = low_spare {
        faults.push(format!("{spare} % of its spare blocks are left, below its limit of {threshold} %"));
    }
    for (bit, meaning) in WARNINGS.into_iter().enumerate() {
        let is_said = bit == 0 && low_spare.is_some();
        if warnings & (1 << bit) != 0 && !is_said {
            faults.push(meaning.to_owned());
        }
    }
    if let Some(used) = health.percentage_used.filter(|used| *used >= 100) {
        faults.push(format!("{used} % of its rated life is used"));
    }
    faults
}

/// Why devices are expected to fail, by id.
fn expected(state: &State) -> BTreeMap<String, Vec<String>> {
    let mut why: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (device, newest) in state.device_samples.iter() {
        let faults = faults(&newest.health);
        if !faults.is_empty() {
            let said = format!("it says at {}: {}", newest.at, faults.join(", "));
            why.entry(device.to_owned()).or_default().push(said);
        }
    }
    let threshold = device_asking::warn_threshold(state);
    for (device, life) in state.life_expectancies.iter() {
        if life.ends_within(threshold, state.wall) {
            why.entry(device.to_owned()).or_default().push(format!("life expectancy {}", life.moments()));
        }
    }
    why
}

/// The OSDs that are out, and still have PGs by their own word.
fn out_with_pgs(state: &State, device: &Device) -> Vec<(OsdId, u32)> {
    let map = state.osd.map();
    let out = device.osds.iter().copied().filter(|osd| !map.is_in(*osd) && map.is_up(*osd));
    let with_pgs = out.filter_map(|osd| Some((osd, state.stats.pgs.osd(osd)?.num_pgs)));
    with_pgs.filter(|(_, pgs)| *pgs > 0).collect()
}

/// Nothing while nobody is to look at devices.
pub(super) fn checks(state: &State) -> Vec<Check> {
    if !device_asking::is_enabled(state) {
        return Vec::new();
    }
    let mut expected = expected(state);
    if expected.is_empty() {
        return Vec::new();
    }
    let mut failing = Vec::new();
    let mut in_use = BTreeSet::new();
    for (id, device) in devices::devices(state) {
        let Some(why) = expected.remove(&id) else { continue };
        if device.osds.iter().any(|osd| state.osd.map().is_in(*osd)) {
            let (places, daemons) = (device.places_text(), device.daemons().join(","));
            failing.push(format!("{id} ({places}); daemons {daemons}; {}", why.join("; ")));
        }
        in_use.extend(out_with_pgs(state, &device));
    }
    let in_use: Vec<String> = in_use
        .into_iter()
        .map(|(osd, pgs)| format!("osd.{osd} is marked out but still has {pgs} PG(s)"))
        .collect();
    let failing_summary = format!("{} device(s) expected to fail soon", failing.len());
    let in_use_summary = format!("{} daemon(s) expected to fail soon and still contain data", in_use.len());
    let found =
        [("DEVICE_HEALTH", failing_summary, failing), ("DEVICE_HEALTH_IN_USE", in_use_summary, in_use)];
    let found = found.into_iter().filter(|(.., lines)| !lines.is_empty());
    found.map(|(code, summary, lines)| Check::new(code, Severity::Warn, summary, lines)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_taken_at_its_word() {
        let well = DeviceHealth {
            smart_passed: Some(true),
            critical_warning: Some(0),
            available_spare: Some(10),
            available_spare_threshold: Some(10),
            percentage_used: Some(99),
            media_errors: Some(70),
            reallocated: Some(12),
            pending: Some(1),
            temperature_c: Some(70),
            power_on_hours: Some(1),
        };
        assert_eq!((faults(&well), faults(&DeviceHealth::default())), (Vec::new(), Vec::new()));
        let told = |health: DeviceHealth| faults(&health).join("; ");
        assert!(told(DeviceHealth { smart_passed: Some(false), ..well }).contains("SMART"));
        assert_eq!(
            told(DeviceHealth { percentage_used: Some(100), ..well }),
            "100 % of its rated life is used"
        );
        let spare = DeviceHealth { critical_warning: Some(0b1001), available_spare: Some(4), ..well };
        assert_eq!(
            told(spare),
            "4 % of its spare blocks are left, below its limit of 10 %; it takes no more writes"
        );
        let bits = DeviceHealth { critical_warning: Some(255), ..well };
        assert_eq!(faults(&bits).len(), WARNINGS.len(), "bits that nobody knows are none");
    }
}
