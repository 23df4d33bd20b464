//! The file systems' map as a tree and as text.

use super::{addr_vec, legacy_addr};
use nacre_format::{Node, Section, stamp};
use nacre_maps::{Compat, FileSystem, FsMap, MdsInfo, MdsMap};
use nacre_msg::mds_state;
use std::collections::BTreeMap;

/// What clients can do, by bit; those that required features are named by. Ceph `src/mds/cephfs_features.cc`.
pub(in crate::commands) const CLIENT_FEATURES: [&str; 19] = [
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "jewel",
    "kraken",
    "luminous",
    "mimic",
    "reply_encoding",
    "reclaim_client",
    "lazy_caps_wanted",
    "multi_reconnect",
    "deleg_ino",
    "metric_collect",
    "alternate_name",
    "notify_session_state",
    "op_getvxattr",
    "32bits_retry_fwd",
];

/// The client features that are set in the bytes of a map, with their names.
fn client_features(bytes: &[u8]) -> Vec<(usize, &'static str)> {
    let is_set = |bit: &usize| bytes.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 != 0);
    let name = |bit: usize| (bit, CLIENT_FEATURES.get(bit).copied().unwrap_or("unknown"));
    (0..bytes.len().saturating_mul(8)).filter(is_set).map(name).collect()
}

fn features(features: &BTreeMap<u64, String>) -> Section {
    features.iter().map(|(bit, name)| (format!("feature_{bit}"), name.as_str())).collect()
}

/// On-disk features as a tree.
pub(in crate::commands) fn compat(compat: &Compat) -> Section {
    Section::new()
        .with("compat", features(&compat.compat))
        .with("ro_compat", features(&compat.ro_compat))
        .with("incompat", features(&compat.incompat))
}

/// On-disk features as text.
pub(in crate::commands) fn compat_text(compat: &Compat) -> String {
    let list = |features: &BTreeMap<u64, String>| {
        let all: Vec<String> = features.iter().map(|(bit, name)| format!("{bit}={name}")).collect();
        all.join(",")
    };
    let [one, two, three] = [&compat.compat, &compat.ro_compat, &compat.incompat].map(list);
    format!("compat={{{one}}},rocompat={{{two}}},incompat={{{three}}}")
}

/// On-disk features as their bits; the lowest says that there are names.
fn compat_bits(compat: &Compat) -> String {
    let mask = |features: &BTreeMap<u64, String>| {
        features.keys().filter(|bit| **bit < 64).fold(1, |mask, bit| mask | 1_u64 << bit)
    };
    let [c, r, i] = [&compat.compat, &compat.ro_compat, &compat.incompat].map(mask);
    format!("{{c=[{c:x}],r=[{r:x}],i=[{i:x}]}}")
}

fn server(info: &MdsInfo) -> Section {
    let mut section = Section::new()
        .with("gid", info.global_id)
        .with("name", info.name.as_str())
        .with("rank", info.rank)
        .with("incarnation", info.inc)
        .with("state", mds_state::name(info.state))
        .with("state_seq", info.state_seq)
        .with("addr", legacy_addr(&info.addrs))
        .with("addrs", addr_vec(&info.addrs))
        .with("join_fscid", info.join_fscid);
    if info.is_laggy() {
        section.put("laggy_since", stamp(info.laggy_since));
    }
    section
        .with("export_targets", Node::array("mds", info.export_targets.iter().copied()))
        .with("features", info.mds_features)
        .with("flags", info.flags)
        .with("compat", compat(&info.compat))
}

fn server_text(info: &MdsInfo) -> String {
    let mut text = format!(
        "[mds.{}{{{}:{}}} state {} seq {}",
        info.name,
        info.rank,
        info.global_id,
        mds_state::name(info.state),
        info.state_seq
    );
    if info.is_laggy() {
        text.push_str(&format!(" laggy since {}", stamp(info.laggy_since)));
    }
    if !info.export_targets.is_empty() {
        text.push_str(&format!(" export targets {}", list(&info.export_targets)));
    }
    if info.is_frozen() {
        text.push_str(" frozen");
    }
    if info.join_fscid != -1 {
        text.push_str(&format!(" join_fscid={}", info.join_fscid));
    }
    text.push_str(&format!(" addr {} compat {}]\n", info.addrs, compat_bits(&info.compat)));
    text
}

fn list<'a>(ranks: impl IntoIterator<Item = &'a i32>) -> String {
    let all: Vec<String> = ranks.into_iter().map(ToString::to_string).collect();
    all.join(",")
}

fn mds_map(map: &MdsMap) -> Section {
    let ranks = |ranks: &std::collections::BTreeSet<i32>| Node::array("mds", ranks.iter().copied());
    let required = client_features(&map.required_client_features);
    let required: Section =
        required.into_iter().map(|(bit, name)| (format!("feature_{bit}"), name)).collect();
    let up: Section = map.up.iter().map(|(rank, gid)| (format!("mds_{rank}"), *gid)).collect();
    let info: Section = map.mds_info.iter().map(|(gid, info)| (format!("gid_{gid}"), server(info))).collect();
    Section::new()
        .with("epoch", map.epoch)
        .with("flags", map.flags)
        .with("ever_allowed_features", map.ever_allowed_features)
        .with("explicitly_allowed_features", map.explicitly_allowed_features)
        .with("created", stamp(map.created))
        .with("modified", stamp(map.modified))
        .with("tableserver", map.tableserver)
        .with("root", map.root)
        .with("session_timeout", map.session_timeout)
        .with("session_autoclose", map.session_autoclose)
        .with("required_client_features", required)
        .with("max_file_size", map.max_file_size)
        .with("last_failure", map.last_failure)
        .with("last_failure_osd_epoch", map.last_failure_osd_epoch)
        .with("compat", compat(&map.compat))
        .with("max_mds", map.max_mds)
        .with("in", ranks(&map.in_ranks))
        .with("up", up)
        .with("failed", ranks(&map.failed))
        .with("damaged", ranks(&map.damaged))
        .with("stopped", ranks(&map.stopped))
        .with("info", info)
        .with("data_pools", Node::array("pool", map.data_pools.iter().copied()))
        .with("metadata_pool", map.metadata_pool)
        .with("enabled", map.enabled)
        .with("fs_name", map.fs_name.as_str())
        .with("balancer", map.balancer.as_str())
        .with("standby_count_wanted", map.standby_count_wanted.max(0))
}

/// `fs get` as a tree.
pub(in crate::commands) fn file_system(fs: &FileSystem) -> Section {
    Section::new().with("mdsmap", mds_map(&fs.mds_map)).with("id", fs.fscid)
}

fn mds_map_text(map: &MdsMap) -> String {
    let required = client_features(&map.required_client_features);
    let required: Vec<String> = required.into_iter().map(|(bit, name)| format!("{bit}={name}")).collect();
    let up: Vec<String> = map.up.iter().map(|(rank, gid)| format!("{rank}={gid}")).collect();
    let pools: Vec<String> = map.data_pools.iter().map(ToString::to_string).collect();
    let rows = [
        ("fs_name", map.fs_name.clone()),
        ("epoch", map.epoch.to_string()),
        ("flags", format!("{:x}", map.flags)),
        ("created", stamp(map.created)),
        ("modified", stamp(map.modified)),
        ("tableserver", map.tableserver.to_string()),
        ("root", map.root.to_string()),
        ("session_timeout", map.session_timeout.to_string()),
        ("session_autoclose", map.session_autoclose.to_string()),
        ("max_file_size", map.max_file_size.to_string()),
        ("required_client_features", format!("{{{}}}", required.join(","))),
        ("last_failure", map.last_failure.to_string()),
        ("last_failure_osd_epoch", map.last_failure_osd_epoch.to_string()),
        ("compat", compat_text(&map.compat)),
        ("max_mds", map.max_mds.to_string()),
        ("in", list(&map.in_ranks)),
        ("up", format!("{{{}}}", up.join(","))),
        ("failed", list(&map.failed)),
        ("damaged", list(&map.damaged)),
        ("stopped", list(&map.stopped)),
        ("data_pools", format!("[{}]", pools.join(","))),
        ("metadata_pool", map.metadata_pool.to_string()),
        ("inline_data", if map.inline_data_enabled { "enabled" } else { "disabled" }.to_owned()),
        ("balancer", map.balancer.clone()),
        ("standby_count_wanted", map.standby_count_wanted.max(0).to_string()),
    ];
    let mut text: String = rows.into_iter().map(|(key, value)| format!("{key}\t{value}\n")).collect();
    let mut servers: Vec<&MdsInfo> = map.mds_info.values().collect();
    // Who holds a rank stands before who follows it, whose incarnation is 0.
    servers.sort_by_key(|info| (info.rank, info.inc.wrapping_sub(1).cast_unsigned()));
    text.extend(servers.into_iter().map(server_text));
    text
}

/// `fs get` as text.
pub(in crate::commands) fn file_system_text(fs: &FileSystem) -> String {
    format!("Filesystem '{}' ({})\n{}", fs.mds_map.fs_name, fs.fscid, mds_map_text(&fs.mds_map))
}

/// `fs dump` as a tree.
pub(in crate::commands) fn fs_map(map: &FsMap) -> Section {
    let standby = |info: &MdsInfo| {
        let epoch = map.standby_epochs.get(&info.global_id).copied().unwrap_or_default();
        server(info).with("epoch", epoch)
    };
    Section::new()
        .with("epoch", map.epoch)
        .with("default_fscid", map.legacy_client_fscid)
        .with("compat", compat(&map.default_compat))
        .with(
            "feature_flags",
            Section::new()
                .with("enable_multiple", map.enable_multiple)
                .with("ever_enabled_multiple", map.ever_enabled_multiple),
        )
        .with("standbys", Node::array("info", map.standby_daemons.values().map(standby)))
        .with("filesystems", Node::array("filesystem", map.filesystems.iter().map(file_system)))
}

/// `fs dump` as text.
pub(in crate::commands) fn fs_map_text(map: &FsMap) -> String {
    let mut out = format!(
        "e{}\nenable_multiple, ever_enabled_multiple: {},{}\ndefault compat: {}\nlegacy client fscid: {}\n \n",
        map.epoch,
        u8::from(map.enable_multiple),
        u8::from(map.ever_enabled_multiple),
        compat_text(&map.default_compat),
        map.legacy_client_fscid,
    );
    if map.filesystems.is_empty() {
        out.push_str("No filesystems configured\n");
    }
    out.extend(map.filesystems.iter().map(|fs| format!("{} \n \n", file_system_text(fs))));
    if !map.standby_daemons.is_empty() {
        out.push_str("Standby daemons:\n \n");
    }
    out.extend(map.standby_daemons.values().map(server_text));
    out
}

/// State of a server in a summary.
fn status(info: &MdsInfo) -> String {
    let laggy = if info.is_laggy() { "(laggy or crashed)" } else { "" };
    format!("{}{laggy}", mds_state::name(info.state))
}

fn sum(map: &FsMap, of: impl Fn(&MdsMap) -> usize) -> usize {
    map.filesystems.iter().map(|fs| of(&fs.mds_map)).sum()
}

/// The map's part of `status` as a tree.
pub(in crate::commands) fn fs_summary(map: &FsMap) -> Section {
    let mut section = Section::new().with("epoch", map.epoch);
    for fs in &map.filesystems {
        section.put("id", fs.fscid);
        section.put("up", fs.mds_map.up.len());
        section.put("in", fs.mds_map.in_ranks.len());
        section.put("max", fs.mds_map.max_mds);
    }
    let by_rank = map.mds_roles.iter().filter_map(|(gid, fscid)| {
        let info = map.file_system(*fscid)?.mds_map.mds_info.get(gid)?;
        Some(
            Section::new()
                .with("filesystem_id", *fscid)
                .with("rank", info.rank)
                .with("name", info.name.as_str())
                .with("status", status(info))
                .with("gid", *gid),
        )
    });
    section.put("by_rank", Node::array("mds", by_rank));
    section.put("up:standby", map.standby_daemons.len());
    let troubles = [("failed", sum(map, |fs| fs.failed.len())), ("damaged", sum(map, |fs| fs.damaged.len()))];
    for (name, count) in troubles.into_iter().filter(|(_, count)| *count > 0) {
        section.put(name, count);
    }
    section
}

/// Ranks of each file system, or how many of those there are.
fn ranks_text(map: &FsMap) -> String {
    let one = |fs: &FileSystem| {
        let (name, up, all) = (&fs.mds_map.fs_name, fs.mds_map.up.len(), fs.mds_map.in_ranks.len());
        if fs.mds_map.is_degraded() { format!("{name}:{up}/{all}") } else { format!("{name}:{all}") }
    };
    if map.filesystems.len() <= 3 {
        return map.filesystems.iter().map(one).collect::<Vec<_>>().join(" ");
    }
    let degraded = map.filesystems.iter().filter(|fs| fs.mds_map.is_degraded());
    let degraded: Vec<String> = degraded.map(one).collect();
    let shown = match degraded.len() {
        0 => String::new(),
        1..=3 => format!(" (degraded: {})", degraded.join(" ")),
        count => format!(" (degraded: {count} fs)"),
    };
    format!("{} fs{shown}", map.filesystems.len())
}

/// `mds stat` as text.
pub(in crate::commands) fn fs_summary_text(map: &FsMap) -> String {
    let mut by_state: BTreeMap<i32, usize> = BTreeMap::new();
    by_state.insert(mds_state::STANDBY, map.standby_daemons.len());
    let mut by_rank = Vec::new();
    for fs in &map.filesystems {
        for info in fs.mds_map.mds_info.values() {
            *by_state.entry(info.state).or_default() += 1;
            if info.holds_rank() {
                by_rank.push(((fs.fscid, info.rank), fs.mds_map.fs_name.as_str(), info));
            }
        }
    }
    by_rank.sort_by_key(|(role, ..)| *role);
    let mut text = ranks_text(map);
    if (1..5).contains(&by_rank.len()) {
        let several = map.filesystems.len() > 1;
        let shown: Vec<String> = by_rank
            .iter()
            .map(|((_, rank), name, info)| {
                let role = if several { format!("{name}:{rank}") } else { rank.to_string() };
                format!("{role}={}={}", info.name, status(info))
            })
            .collect();
        text.push_str(&format!(" {{{}}}", shown.join(",")));
        by_rank.iter().for_each(|(.., info)| *by_state.entry(info.state).or_default() -= 1);
    }
    for (state, count) in by_state.into_iter().filter(|(_, count)| *count > 0) {
        text.push_str(&format!(" {count} {}", mds_state::name(state)));
    }
    let troubles = [("failed", sum(map, |fs| fs.failed.len())), ("damaged", sum(map, |fs| fs.damaged.len()))];
    for (name, count) in troubles.into_iter().filter(|(_, count)| *count > 0) {
        text.push_str(&format!(", {count} {name}"));
    }
    text
}

/// The servers' line of `status`; none where there are neither servers nor file systems.
pub(in crate::commands) fn mds_line(map: &FsMap) -> Option<String> {
    if map.filesystems.is_empty() && map.standby_daemons.is_empty() {
        return None;
    }
    let (up, all) = (sum(map, |fs| fs.up.len()), sum(map, |fs| fs.in_ranks.len()));
    let mut line = format!("{up}/{all} daemons up");
    let failed = sum(map, |fs| fs.failed.len());
    if failed > 0 {
        line.push_str(&format!(" ({failed} failed)"));
    }
    let others =
        [("standby", map.standby_daemons.len()), ("hot standby", sum(map, |fs| fs.followers().count()))];
    for (name, count) in others.into_iter().filter(|(_, count)| *count > 0) {
        line.push_str(&format!(", {count} {name}"));
    }
    Some(line)
}

/// The file systems' line of `status`; none where there are none.
pub(in crate::commands) fn volumes_line(map: &FsMap) -> Option<String> {
    let (mut healthy, mut recovering, mut failed, mut stopped, mut damaged) = (0, 0, 0, 0, 0);
    for fs in map.filesystems.iter().map(|fs| &fs.mds_map) {
        damaged += usize::from(!fs.damaged.is_empty());
        let count = match () {
            () if !fs.failed.is_empty() => &mut failed,
            () if fs.is_degraded() => &mut recovering,
            () if fs.max_mds == 0 => &mut stopped,
            () => &mut healthy,
        };
        *count += 1;
    }
    let mut line = format!("{healthy}/{} healthy", map.filesystems.len());
    let others = [("recovering", recovering), ("failed", failed), ("stopped", stopped)];
    for (name, count) in others.into_iter().filter(|(_, count)| *count > 0) {
        line.push_str(&format!(", {count} {name}"));
    }
    if damaged > 0 {
        line.push_str(&format!("; {damaged} damaged"));
    }
    (!map.filesystems.is_empty()).then_some(line)
}
