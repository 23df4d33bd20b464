//! The check on devices that fail slowly.

use super::{Check, Severity};
use crate::slow_osds::{MarkedOut, describe, share};
use crate::state::State;
use nacre_mgr::slow_devices::SlowDevice;
use nacre_types::OsdId;

/// The OSD with its host and the devices below it, as far as it has said.
pub(crate) fn place(state: &State, osd: OsdId) -> String {
    let facts = state.osd.metadata(osd);
    let fact = |name: &str| facts.and_then(|facts| facts.get(name)).filter(|text| !text.is_empty());
    let host = fact("hostname").map(|host| format!("host {host}"));
    let devices = fact("devices").map(|devices| format!("device {devices}"));
    let known: Vec<String> = host.into_iter().chain(devices).collect();
    if known.is_empty() { format!("osd.{osd}") } else { format!("osd.{osd} ({})", known.join(", ")) }
}

/// OSDs whose devices are slow, and what was done about each. Our own check: Ceph compares no devices.
pub(super) fn check(state: &State) -> Option<Check> {
    let map = state.osd.map();
    let slow = state.slow_osds.found.slow().filter(|(osd, _)| map.is_up(*osd));
    let line = |(osd, slow): (OsdId, &SlowDevice)| {
        let measure = state.slow_osds.measure(osd);
        let found = slow.finding.as_ref().map(describe);
        let found = found.or_else(|| Some(measure?.text.clone())).unwrap_or_default();
        let mut done = match measure.map(|measure| measure.affinity_before) {
            Some(Some(before)) => {
                let before = share(before);
                format!(
                    "it leads no PGs while that lasts: its primary affinity is 0 and will be {before} again"
                )
            }
            Some(None) => "its primary affinity was set by hand and is left alone".to_owned(),
            None => "it keeps its PGs for now".to_owned(),
        };
        if let Some(MarkedOut::ByUs(weight)) = measure.map(|measure| measure.out) {
            let weight = share(weight);
            done.push_str(&format!("; it is out, and will be in again with weight {weight}"));
        }
        if let Some((_, reason)) = state.slow_osds.kept_in.as_ref().filter(|(kept, _)| *kept == osd) {
            done.push_str(&format!("; it is not marked out: {reason}"));
        }
        format!("{}: {found}; {done}", place(state, osd))
    };
    let lines: Vec<String> = slow.map(line).collect();
    let what = if lines.len() == 1 { "OSD has a slow device" } else { "OSDs have slow devices" };
    let summary = format!("{} {what}", lines.len());
    (!lines.is_empty()).then(|| Check::new("OSD_SLOW_DEVICE", Severity::Warn, summary, lines))
}
