//! The monitors' map as a tree and as text.

use super::{addr_vec, legacy_addr, release_name};
use nacre_format::{Node, Section};
use nacre_maps::{MonInfo, MonMap};
use nacre_types::UTime;

/// Features of monitors, lowest bit first. Ceph `ceph::features::mon`.
pub(in crate::commands) const FEATURE_NAMES: [&str; 8] =
    ["kraken", "luminous", "mimic", "osdmap-prune", "nautilus", "octopus", "pacific", "elector-pinging"];

/// Names of the monitor features set in `bits`.
pub(in crate::commands) fn feature_names(bits: u64) -> Vec<&'static str> {
    FEATURE_NAMES.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 != 0).map(|(_, name)| *name).collect()
}

/// The monmap's JSON has its stamps with a Z.
fn zulu(time: UTime) -> String {
    time.to_string().replace("+0000", "Z")
}

/// The monitors in order of rank.
pub(in crate::commands) fn by_rank(map: &MonMap) -> Vec<&MonInfo> {
    map.ranks.iter().filter_map(|name| map.mons.get(name)).collect()
}

fn mon(rank: usize, mon: &MonInfo) -> Section {
    Section::new()
        .with("rank", rank)
        .with("name", mon.name.as_str())
        .with("public_addrs", addr_vec(&mon.addrs))
        .with("addr", legacy_addr(&mon.addrs))
        .with("public_addr", legacy_addr(&mon.addrs))
        .with("priority", mon.priority)
        .with("weight", mon.weight)
        .with("crush_location", "{}")
}

/// `mon dump` as a tree.
pub(in crate::commands) fn mon_map(map: &MonMap) -> Section {
    let features = Section::new()
        .with("persistent", Node::array("feature", feature_names(map.persistent_features)))
        .with("optional", Node::array("feature", feature_names(map.optional_features)));
    Section::new()
        .with("epoch", map.epoch)
        .with("fsid", map.fsid.to_string())
        .with("modified", zulu(map.last_changed))
        .with("created", zulu(map.created))
        .with("min_mon_release", map.min_mon_release)
        .with("min_mon_release_name", release_name(map.min_mon_release))
        .with("election_strategy", map.strategy)
        .with("disallowed_leaders: ", disallowed(map))
        .with("stretch_mode", map.stretch_mode_enabled)
        .with("tiebreaker_mon", map.tiebreaker_mon.as_str())
        .with("removed_ranks: ", "")
        .with("features", features)
        .with(
            "mons",
            Node::array("mon", by_rank(map).into_iter().enumerate().map(|(rank, info)| mon(rank, info))),
        )
}

fn disallowed(map: &MonMap) -> String {
    map.disallowed_leaders.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

/// `mon dump` as text.
pub(in crate::commands) fn mon_map_text(map: &MonMap) -> String {
    let mut out = format!(
        "epoch {}\nfsid {}\nlast_changed {}\ncreated {}\nmin_mon_release {} ({})\nelection_strategy: {}\n",
        map.epoch,
        map.fsid,
        map.last_changed,
        map.created,
        map.min_mon_release,
        release_name(map.min_mon_release),
        map.strategy,
    );
    if !map.disallowed_leaders.is_empty() {
        out.push_str(&format!("disallowed_leaders {}\n", disallowed(map)));
    }
    for (rank, mon) in by_rank(map).into_iter().enumerate() {
        out.push_str(&format!("{rank}: {} mon.{}\n", mon.addrs, mon.name));
    }
    out
}
