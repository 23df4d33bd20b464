//! The checks on devices that are expected to fail: because they say so themselves, or because somebody has said so of them.
//!
//! Codes and summaries are those of Ceph's manager module `devicehealth`, which knows life expectancies only. What a device says of itself is
//! the same news for whoever has an alert on it. A device leaves `DEVICE_HEALTH` when its OSDs are out: it is being done without then.

use super::{Check, Severity};
use crate::device_asking;
use crate::device_faults::faults;
use crate::devices::{self, Device};
use crate::state::State;
use nacre_types::OsdId;
use std::collections::{BTreeMap, BTreeSet};

/// What is wrong with devices by their own word, by id.
fn by_themselves(state: &State) -> BTreeMap<&str, String> {
    let newest = state.device_samples.iter().map(|(device, newest)| (device, newest, faults(&newest.health)));
    let faulty = newest.filter(|(.., faults)| !faults.is_empty());
    faulty
        .map(|(device, newest, faults)| (device, format!("it says at {}: {}", newest.at, faults.join(", "))))
        .collect()
}

/// Devices whose life expectancy ends soon, by id.
fn by_expectancy(state: &State) -> BTreeMap<&str, String> {
    let threshold = device_asking::warn_threshold(state);
    let soon = state.life_expectancies.iter().filter(|(_, life)| life.ends_within(threshold, state.wall));
    soon.map(|(device, life)| (device, format!("life expectancy {}", life.moments()))).collect()
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
    let (by_themselves, by_expectancy) = (by_themselves(state), by_expectancy(state));
    if by_themselves.is_empty() && by_expectancy.is_empty() {
        return Vec::new();
    }
    let mut failing = Vec::new();
    let mut in_use = BTreeSet::new();
    for (id, device) in devices::devices(state) {
        let said = by_themselves.get(id.as_str()).filter(|_| device.ambiguity().is_none());
        let why: Vec<&str> =
            said.into_iter().chain(by_expectancy.get(id.as_str())).map(String::as_str).collect();
        if why.is_empty() {
            continue;
        }
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
