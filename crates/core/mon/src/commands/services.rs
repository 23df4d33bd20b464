//! Services beside the cluster's own daemons, as `status` and `service` show them.

use super::call::{Answer, Call};
use super::table::{Command, command};
use nacre_format::{Section, stamp};
use nacre_msg::{ServiceDaemon, ServiceEntry};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const COMMANDS: &[Command] = &[
    command("service dump", "service", "r", "Registered services", dump),
    command("service status", "service", "r", "Condition of registered services", status),
];

/// What is no service, whatever a manager puts into the map.
const OWN_KINDS: [&str; 5] = ["client", "mds", "mgr", "mon", "osd"];

fn texts(map: &BTreeMap<String, String>) -> Section {
    map.iter().map(|(key, value)| (key.clone(), value.as_str())).collect()
}

fn daemon_tree(daemon: &ServiceDaemon) -> Section {
    Section::new()
        .with("start_epoch", daemon.start_epoch)
        .with("start_stamp", stamp(daemon.start_stamp))
        .with("gid", daemon.gid)
        .with("addr", daemon.addr.without_kind())
        .with("metadata", texts(&daemon.metadata))
        .with("task_status", texts(&daemon.task_status))
}

fn entry_tree(entry: &ServiceEntry) -> Section {
    let daemons = entry.daemons.iter().map(|(id, daemon)| (id.clone(), daemon_tree(daemon)));
    let mut section = Section::new().with("summary", entry.summary.as_str());
    section.extend(daemons.collect());
    Section::new().with("daemons", section)
}

/// The service map.
pub(super) fn map_tree(call: &Call<'_>) -> Section {
    let map = call.state.services.map();
    let services: Section =
        map.services.iter().map(|(name, entry)| (name.clone(), entry_tree(entry))).collect();
    Section::new().with("epoch", map.epoch).with("modified", stamp(map.modified)).with("services", services)
}

/// One line about a service: `2 gateways active (1 hosts, 1 zones)`.
fn summary(entry: &ServiceEntry) -> String {
    if !entry.summary.is_empty() {
        return entry.summary.clone();
    }
    if entry.daemons.is_empty() {
        return "no daemons active".to_owned();
    }
    let said = |key: &'static str| entry.daemons.values().filter_map(move |daemon| daemon.metadata.get(key));
    let kind = said("daemon_type").next_back().map_or("daemon", String::as_str);
    let count = entry.daemons.len();
    let plural = if count > 1 { "s" } else { "" };
    let groups = [("hosts", "hostname"), ("zones", "zone_id")];
    let groups = groups.map(|(name, key)| (name, said(key).collect::<BTreeSet<_>>().len()));
    let groups: Vec<String> = groups
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    let groups = if groups.is_empty() { String::new() } else { format!(" ({})", groups.join(", ")) };
    format!("{count} {kind}{plural} active{groups}")
}

/// Name and line of each service, for the list in `status`.
pub(super) fn lines(call: &Call<'_>) -> Vec<(String, String)> {
    let services = call.state.services.map().services.iter();
    let foreign = services.filter(|(name, _)| !OWN_KINDS.contains(&name.as_str()));
    foreign.map(|(name, entry)| (name.clone(), summary(entry))).collect()
}

fn dump(call: &mut Call<'_>) -> Answer {
    call.tree("service_map", map_tree(call))
}

fn status(call: &mut Call<'_>) -> Answer {
    let mut services: BTreeMap<String, Section> = BTreeMap::new();
    for ((service, name), daemon) in call.state.stats.services.daemons() {
        let said = Section::new().with("status", texts(&daemon.status));
        services.entry(service.clone()).or_default().put(name.clone(), said);
    }
    call.tree("service_status", services.into_iter().collect::<Section>())
}
