//! Checks on monitors, by what the leader knows of them (Ceph v16.2.15: `src/mon/HealthMonitor.cc`).

use super::{Check, Severity};
use crate::quorum_view::MonitorView;
use crate::state::State;

/// Seconds that the clocks of monitors may differ: `mon_clock_drift_allowed`, which nobody can set yet.
const CLOCK_DRIFT_MAX_S: f64 = 0.05;
/// Per cent of room below which a monitor's file system is low, and very low: `mon_data_avail_warn` and `mon_data_avail_crit`.
const DISK_AVAIL_LOW: u8 = 30;
const DISK_AVAIL_CRIT: u8 = 5;

pub(super) fn checks(state: &State) -> Vec<Check> {
    let checks = [
        down(state),
        clock_skew(state),
        disk(state, "MON_DISK_CRIT", Severity::Error, "very low", 0..=DISK_AVAIL_CRIT),
        disk(state, "MON_DISK_LOW", Severity::Warn, "low", DISK_AVAIL_CRIT + 1..=DISK_AVAIL_LOW),
    ];
    checks.into_iter().flatten().collect()
}

fn down(state: &State) -> Option<Check> {
    let (map, quorum) = (state.mon.map(), &state.quorum);
    let line = |(rank, name): (usize, &str)| {
        let addrs = map.mons.get(name).map(|mon| mon.addrs.to_string()).unwrap_or_default();
        format!("mon.{name} (rank {rank}) addr {addrs} is down (out of quorum)")
    };
    let lines: Vec<String> = quorum.outside(map).map(line).collect();
    let names: Vec<&str> = quorum.members(map).map(|(_, name)| name).collect();
    let summary = format!("{}/{} mons down, quorum {}", lines.len(), map.ranks.len(), names.join(","));
    (!lines.is_empty()).then(|| Check::new("MON_DOWN", Severity::Warn, summary, lines))
}

/// The quorum's members with what is known of them, in order of rank.
fn known(state: &State) -> impl Iterator<Item = (&str, &MonitorView)> {
    let members = state.quorum.members(state.mon.map());
    members.filter_map(|(_, name)| Some((name, state.quorum.monitors.get(name)?)))
}

fn clock_skew(state: &State) -> Option<Check> {
    let skewed = known(state).filter_map(|(name, monitor)| {
        let skew = monitor.clock_skew_s?.abs();
        (skew > CLOCK_DRIFT_MAX_S).then_some((name, skew, monitor.latency_s))
    });
    let (names, lines): (Vec<String>, Vec<String>) = skewed
        .map(|(name, skew, latency)| {
            let line =
                format!("mon.{name} clock skew {skew}s > max {CLOCK_DRIFT_MAX_S}s (latency {latency}s)");
            (format!("mon.{name}"), line)
        })
        .unzip();
    let summary = format!("clock skew detected on {}", names.join(", "));
    (!lines.is_empty()).then(|| Check::new("MON_CLOCK_SKEW", Severity::Warn, summary, lines))
}

fn disk(
    state: &State,
    code: &'static str,
    severity: Severity,
    how: &str,
    range: std::ops::RangeInclusive<u8>,
) -> Option<Check> {
    let low = known(state).filter_map(|(name, monitor)| Some((name, monitor.disk_avail_percent?)));
    let low: Vec<(&str, u8)> = low.filter(|(_, percent)| range.contains(percent)).collect();
    let names: Vec<&str> = low.iter().map(|(name, _)| *name).collect();
    let (plural, are) = if names.len() == 1 { ("", "is") } else { ("s", "are") };
    let summary = format!("mon{plural} {} {are} {how} on available space", names.join(","));
    let lines = low.iter().map(|(name, percent)| format!("mon.{name} has {percent}% avail")).collect();
    (!names.is_empty()).then(|| Check::new(code, severity, summary, lines))
}
