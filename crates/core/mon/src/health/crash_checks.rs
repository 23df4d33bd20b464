//! The check on crashes that nobody has looked at.

use super::{Check, Severity};
use crate::crashes::{WARN_RECENT_INTERVAL, WARN_RECENT_S};
use crate::state::State;
use std::time::Duration;

/// As Ceph's module `crash` says it. A stock manager says it itself.
pub(super) fn check(state: &State) -> Option<Check> {
    if !state.mgr.own_is_active() {
        return None;
    }
    let interval = state.option_of_managers(WARN_RECENT_INTERVAL).and_then(|text| text.parse().ok());
    let interval = Duration::from_secs(interval.unwrap_or(WARN_RECENT_S));
    let is_recent = |at| state.wall.since(at) < interval;
    let recent = state.crashes.iter().filter(|(_, crash)| !crash.is_archived && is_recent(crash.at));
    let line = |(_, crash): (&str, &crate::crashes::Crash)| {
        format!("{} crashed on host {} at {}", crash.entity, crash.host, crash.timestamp)
    };
    let lines: Vec<String> = recent.map(line).collect();
    let summary = format!("{} daemons have recently crashed", lines.len());
    (!lines.is_empty()).then(|| Check::new("RECENT_CRASH", Severity::Warn, summary, lines))
}
