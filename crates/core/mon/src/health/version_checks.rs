//! The check on daemons that were left behind by an upgrade.
//!
//! Source: Ceph `src/mon/HealthMonitor.cc: check_for_older_version` at v16.2.15. Ours are compared by their own version: the release of
//! Ceph whose protocols they speak says nothing of their age.

use super::{Check, Severity};
use crate::state::State;
use std::collections::BTreeMap;

/// A version in an order in which 0.10 follows 0.9, with its text.
type Version = (Vec<u64>, String);

fn version(text: &str) -> Version {
    let numbers = text.split(['.', '-', '+']).map_while(|part| part.parse().ok());
    (numbers.collect(), text.to_owned())
}

/// Monitors of the quorum and OSDs that are up, by their versions; daemons of other programs are left out.
fn daemons(state: &State) -> BTreeMap<Version, Vec<String>> {
    let map = state.osd.map();
    let osds = map.up_osds().filter_map(|osd| Some((format!("osd.{osd}"), state.osd.metadata(osd)?)));
    let mons = state.quorum.members(state.mon.map());
    let mons = mons.filter_map(|(_, name)| Some((format!("mon.{name}"), state.monitor_facts.get(name)?)));
    let mut found: BTreeMap<Version, Vec<String>> = BTreeMap::new();
    for (name, facts) in mons.chain(osds) {
        if let Some(text) = facts.get("nacre_version") {
            found.entry(version(text)).or_default().push(name);
        }
    }
    found
}

/// Whether there are several versions just now.
pub(crate) fn differ(state: &State) -> bool {
    daemons(state).len() > 1
}

pub(super) fn check(state: &State) -> Option<Check> {
    let since = state.versions_differ_since?;
    let delay = state.config.number_of_monitor("mon_warn_older_version_delay", 604_800.0);
    let is_upgrade = state.wall.since(since) <= nacre_types::seconds(delay);
    if is_upgrade || !state.config.flag_of_monitor("mon_warn_on_older_version") {
        return None;
    }
    let mut found = daemons(state);
    found.pop_last()?;
    let count: usize = found.values().map(Vec::len).sum();
    let (are, severity, versions) = match (count, found.len()) {
        (0, _) => return None,
        (1, _) => ("is a daemon", Severity::Warn, "an older version"),
        (_, 1) => ("are daemons", Severity::Warn, "an older version"),
        _ => ("are daemons", Severity::Error, "multiple old versions"),
    };
    let line = |((_, text), names): (&Version, &Vec<String>)| {
        let are = if names.len() == 1 { "is" } else { "are" };
        format!("{} {are} running an older version of nacre: {text}", names.join(" "))
    };
    let lines = found.iter().map(line).collect();
    Some(Check::new(
        "DAEMON_OLD_VERSION",
        severity,
        format!("There {are} running {versions} of nacre"),
        lines,
    ))
}
