//! What several commands say of daemons: how many of them there are, since when, and what they say of themselves.

use super::call::Call;
use crate::state::State;
use nacre_format::{Section, age};
use nacre_maps::OsdMap;
use nacre_types::{OsdId, UTime};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the quorum has been what it is.
pub(super) fn quorum_age(call: &Call<'_>) -> Duration {
    call.wall.since(call.state.quorum.since)
}

/// Ranks of the quorum's members.
pub(super) fn quorum_ranks(state: &State) -> Vec<usize> {
    state.quorum.members(state.mon.map()).map(|(rank, _)| rank).collect()
}

/// Their names, in order of rank.
pub(super) fn quorum_names(state: &State) -> Vec<&str> {
    state.quorum.members(state.mon.map()).map(|(_, name)| name).collect()
}

pub(super) fn seconds_since(call: &Call<'_>, time: UTime) -> String {
    age(call.wall.since(time))
}

/// `, since 16m` style remarks of the OSD map.
fn osd_times(call: &Call<'_>, map: &OsdMap) -> (String, String) {
    let remark = |time: UTime| {
        if time.is_zero() { String::new() } else { format!(" (since {})", seconds_since(call, time)) }
    };
    (remark(map.last_up_change), remark(map.last_in_change))
}

/// PGs whose acting set is not their up set.
pub(super) fn remapped_count(call: &Call<'_>, map: &OsdMap) -> usize {
    call.state.stats.pgs.pgs(map).filter(|(_, stat)| stat.up != stat.acting).count()
}

/// `osd stat` as a tree.
pub(super) fn osd_summary(call: &Call<'_>, map: &OsdMap) -> Section {
    Section::new()
        .with("epoch", map.epoch)
        .with("num_osds", map.osd_count())
        .with("num_up_osds", map.up_count())
        .with("osd_up_since", map.last_up_change.sec)
        .with("num_in_osds", map.in_count())
        .with("osd_in_since", map.last_in_change.sec)
        .with("num_remapped_pgs", remapped_count(call, map))
}

/// `osd stat` as text, without the epoch.
pub(super) fn osd_summary_text(call: &Call<'_>, map: &OsdMap) -> String {
    let (up, inside) = osd_times(call, map);
    let count = map.osd_count();
    format!("{count} osds: {} up{up}, {} in{inside}", map.up_count(), map.in_count())
}

/// Counts equal values of a metadata key.
pub(super) fn count_values(values: impl Iterator<Item = String>) -> Section {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    counts.into_iter().collect()
}

/// A metadata key of every OSD that exists; `unknown` where it is not known.
pub(super) fn osd_values<'a>(call: &'a Call<'_>, key: &'a str) -> impl Iterator<Item = String> + 'a {
    let map = call.state.osd.map();
    map.osds().map(move |osd| {
        let metadata = call.state.osd.metadata(osd);
        metadata.and_then(|metadata| metadata.get(key)).cloned().unwrap_or_else(|| "unknown".to_owned())
    })
}

/// A fact about every monitor of the map; `unknown` where it has never been connected with the leader.
pub(super) fn mon_values<'a>(call: &'a Call<'_>, key: &'a str) -> impl Iterator<Item = String> + 'a {
    call.state.mon.map().ranks.iter().map(move |name| {
        let facts = call.state.monitor_facts.get(name);
        facts.and_then(|facts| facts.get(key)).cloned().unwrap_or_else(|| "unknown".to_owned())
    })
}

/// The machine that this monitor runs on, as it was told; "unknown" when it was not told.
pub(super) fn host_name(call: &Call<'_>) -> String {
    call.state.host.clone().unwrap_or_else(|| "unknown".to_owned())
}

/// What an OSD says of itself, with its number.
pub(super) fn metadata_section(call: &Call<'_>, osd: OsdId) -> Section {
    let mut section = Section::new().with("id", osd);
    for (key, value) in call.state.osd.metadata(osd).into_iter().flatten() {
        section.put(key.clone(), value);
    }
    section
}
