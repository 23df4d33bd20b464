//! Checks on monitors, by what the leader knows of them (Ceph v16.2.15: `src/mon/HealthMonitor.cc`).

use super::{Check, Severity};
use crate::quorum_view::MonitorView;
use crate::state::State;

/// `mon_data_avail_crit` of a monitor without a usable value.
const DISK_AVAIL_CRIT: u8 = 5;
/// And `mon_data_avail_warn`.
const DISK_AVAIL_LOW: u8 = 30;

pub(super) fn checks(state: &State) -> Vec<Check> {
    let checks = [
        down(state),
        clock_skew(state),
        disk(state, "MON_DISK_CRIT", Severity::Error, "very low"),
        disk(state, "MON_DISK_LOW", Severity::Warn, "low"),
        recovery_snapshot(state),
    ];
    checks.into_iter().flatten().collect()
}

/// Our own check: Ceph's OSDs keep nothing for their monitors.
fn recovery_snapshot(state: &State) -> Option<Check> {
    let why = state.recovery.failure.as_ref()?;
    let lines = [
        why.clone(),
        "Should all monitors be lost, what changed since the OSDs' last snapshot is lost with them ('ceph mon recovery-status' says of \
         when these are). A new one is tried every 10 minutes."
            .to_owned(),
    ];
    let summary = "no recovery snapshot can be made for OSDs to keep".to_owned();
    Some(Check::new("MON_RECOVERY_SNAPSHOT", Severity::Warn, summary, lines.to_vec()))
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
        let (skew, latency) = (monitor.clock_skew_s?.abs(), monitor.latency_s);
        let allowed: f64 = state.config.of_other_monitor("mon_clock_drift_allowed", name)?.parse().ok()?;
        let line = || format!("mon.{name} clock skew {skew}s > max {allowed}s (latency {latency}s)");
        (skew > allowed).then(|| (format!("mon.{name}"), line()))
    });
    let (names, lines): (Vec<String>, Vec<String>) = skewed.unzip();
    let summary = format!("clock skew detected on {}", names.join(", "));
    (!lines.is_empty()).then(|| Check::new("MON_CLOCK_SKEW", Severity::Warn, summary, lines))
}

/// How bad it is that a monitor has so much room, by its own options.
fn severity_of_room(state: &State, name: &str, percent: u8) -> Severity {
    let config = &state.config;
    let of = |text: Option<&str>, fallback| text.and_then(|text| text.parse().ok()).unwrap_or(fallback);
    let crit: u8 = of(config.of_other_monitor("mon_data_avail_crit", name), DISK_AVAIL_CRIT);
    let warn: u8 = of(config.of_other_monitor("mon_data_avail_warn", name), DISK_AVAIL_LOW);
    match percent {
        _ if percent <= crit => Severity::Error,
        _ if percent <= warn => Severity::Warn,
        _ => Severity::Ok,
    }
}

fn disk(state: &State, code: &'static str, severity: Severity, how: &str) -> Option<Check> {
    let room = known(state).filter_map(|(name, monitor)| Some((name, monitor.disk_avail_percent?)));
    let low: Vec<(&str, u8)> =
        room.filter(|(name, percent)| severity_of_room(state, name, *percent) == severity).collect();
    let names: Vec<&str> = low.iter().map(|(name, _)| *name).collect();
    let (plural, are) = if names.len() == 1 { ("", "is") } else { ("s", "are") };
    let summary = format!("mon{plural} {} {are} {how} on available space", names.join(","));
    let lines = low.iter().map(|(name, percent)| format!("mon.{name} has {percent}% avail")).collect();
    (!names.is_empty()).then(|| Check::new(code, severity, summary, lines))
}
