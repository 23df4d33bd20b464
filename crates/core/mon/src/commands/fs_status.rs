//! `fs status` of our own manager: ranks, what their servers do, and the pools. A stock manager's module `status` has the same.

use super::call::{Answer, Call, fail};
use super::fs::visible;
use super::table::{Command, command};
use nacre_format::{Align, Node, Section, Table, bytes};
use nacre_maps::{FileSystem, FsMap, MdsInfo};
use nacre_mgr::pgmap::pool_usage;
use nacre_msg::mds_state;
use nacre_types::{Errno, PoolId};
use std::collections::BTreeMap;

pub(super) const COMMANDS: &[Command] = &[command(
    "fs status name=fs,type=CephString,req=false",
    "mgr",
    "r",
    "Ranks of file systems, their servers and pools",
    status,
)];

/// Counters that are shown, with their names in JSON.
const COUNTERS: [(&str, &str); 4] =
    [("dns", "mds_mem.dn"), ("inos", "mds_mem.ino"), ("dirs", "mds_mem.dir"), ("caps", "mds_mem.cap")];
const REQUESTS: &str = "mds_server.handle_client_request";
const REPLAYED: &str = "mds_log.replayed";
const SESSIONS: &str = "mds_sessions.session_count";

fn status(call: &mut Call<'_>) -> Answer {
    let mut map = visible(call);
    if let Some(name) = call.args.text_opt("fs") {
        map.filesystems.retain(|fs| fs.mds_map.fs_name == name);
        if map.filesystems.is_empty() {
            return fail(Errno::EINVAL, format!("Filesystem not found: {name}"));
        }
    }
    let plain: String = map.filesystems.iter().map(|fs| text(call, fs)).collect();
    let standbys: String = map.standby_daemons.values().map(|info| format!("    {}\n", info.name)).collect();
    let standbys = if standbys.is_empty() { standbys } else { format!("STANDBY MDS\n{standbys}") };
    let versions: String =
        by_version(call, &map).into_keys().map(|version| format!("MDS version: {version}\n")).collect();
    call.either("fs_status", format!("{plain}{standbys}{versions}"), tree(call, &map))
}

/// Names of servers by their versions.
fn by_version(call: &Call<'_>, map: &FsMap) -> BTreeMap<String, Vec<String>> {
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for info in map.servers() {
        let version = call.state.fs.metadata(info.global_id).and_then(|said| said.get("ceph_version"));
        versions
            .entry(version.cloned().unwrap_or_else(|| "unknown".to_owned()))
            .or_default()
            .push(info.name.clone());
    }
    versions
}

/// Clients of a file system, by its first rank's word; 0 while that has not reported.
fn clients(call: &Call<'_>, fs: &FileSystem) -> u64 {
    let first = fs.mds_map.holder(0);
    first.and_then(|info| call.state.stats.counters.value(&daemon(info), SESSIONS)).unwrap_or(0)
}

/// Under which name it reports its counters.
fn daemon(info: &MdsInfo) -> String {
    format!("mds.{}", info.name)
}

fn state_of(info: &MdsInfo) -> &'static str {
    let name = mds_state::name(info.state);
    name.split_once(':').map_or(name, |(_, state)| state)
}

/// Who holds ranks, and behind them who follows.
fn servers(fs: &FileSystem) -> impl Iterator<Item = &MdsInfo> {
    let holders = fs.mds_map.up.keys().filter_map(|rank| fs.mds_map.holder(*rank));
    holders.chain(fs.mds_map.followers())
}

fn pools(fs: &FileSystem) -> impl Iterator<Item = (PoolId, &'static str)> {
    let data = fs.mds_map.data_pools.iter().map(|pool| (*pool, "data"));
    [(fs.mds_map.metadata_pool, "metadata")].into_iter().chain(data)
}

/// Bytes used and left of a pool.
fn room(call: &Call<'_>, id: PoolId) -> (u64, u64) {
    let (map, pgs) = (call.state.osd.map(), call.state.shown_pgs());
    let digest = pgs.digest(map);
    let usage = map.pool(id).zip(digest.pools.get(&id)).map(|(pool, sum)| pool_usage(pgs, map, pool, sum));
    usage.map_or((0, 0), |usage| (usage.used(), usage.max_avail))
}

fn pool_name(call: &Call<'_>, id: PoolId) -> String {
    call.state.osd.map().pool_name(id).unwrap_or_default().to_owned()
}

fn tree(call: &Call<'_>, map: &FsMap) -> Section {
    let counters = &call.state.stats.counters;
    let mut rows = Vec::new();
    for fs in &map.filesystems {
        for info in servers(fs) {
            let value = |path: &str| counters.value(&daemon(info), path).unwrap_or(0);
            let mut row = Section::new().with("rank", info.rank).with("name", info.name.as_str());
            row.put("state", state_of(info));
            let activity = if info.holds_rank() { ("rate", REQUESTS) } else { ("events", REPLAYED) };
            row.put(activity.0, counters.rate(&daemon(info), activity.1).unwrap_or(0));
            COUNTERS.iter().for_each(|(key, path)| row.put(*key, value(path)));
            rows.push(row);
        }
        for rank in &fs.mds_map.failed {
            rows.push(Section::new().with("rank", *rank).with("state", "failed"));
        }
    }
    let standby = |info: &MdsInfo| Section::new().with("name", info.name.as_str()).with("state", "standby");
    rows.extend(map.standby_daemons.values().map(standby));
    let used = map.filesystems.iter().flat_map(pools).map(|(id, kind)| {
        let (used, avail) = room(call, id);
        let name = pool_name(call, id);
        Section::new()
            .with("avail", avail)
            .with("id", id)
            .with("name", name)
            .with("type", kind)
            .with("used", used)
    });
    let clients = map
        .filesystems
        .iter()
        .map(|fs| Section::new().with("clients", clients(call, fs)).with("fs", fs.mds_map.fs_name.as_str()));
    let versions = by_version(call, map);
    let version: Node = match versions.len() {
        1 => versions.into_keys().next().unwrap_or_default().into(),
        _ => Node::array(
            "version",
            versions.into_iter().map(|(version, names)| {
                Section::new().with("version", version).with("daemon", Node::array("name", names))
            }),
        ),
    };
    Section::new()
        .with("clients", Node::array("fs", clients))
        .with("mds_version", version)
        .with("mdsmap", Node::array("mds", rows))
        .with("pools", Node::array("pool", used))
}

fn text(call: &Call<'_>, fs: &FileSystem) -> String {
    let counters = &call.state.stats.counters;
    let name = &fs.mds_map.fs_name;
    let (left, right) = (Align::Left, Align::Right);
    let mut ranks = Table::aligned(&[
        ("RANK", left),
        ("STATE", left),
        ("MDS", left),
        ("ACTIVITY", left),
        ("DNS", right),
        ("INOS", right),
        ("DIRS", right),
        ("CAPS", right),
    ]);
    for info in servers(fs) {
        let holds = info.holds_rank();
        let (word, path) = if holds { ("Reqs", REQUESTS) } else { ("Evts", REPLAYED) };
        let rank = format!("{}{}", info.rank, if holds { "" } else { "-s" });
        let activity = format!("{word}: {:>4} /s", counters.rate(&daemon(info), path).unwrap_or(0));
        let head = [rank, state_of(info).to_owned(), info.name.clone(), activity];
        let tail =
            COUNTERS.iter().map(|(_, path)| counters.value(&daemon(info), path).unwrap_or(0).to_string());
        ranks.row(head.into_iter().chain(tail));
    }
    for rank in &fs.mds_map.failed {
        ranks.row([rank.to_string(), "failed".to_owned()]);
    }
    let mut room_table = Table::aligned(&[("POOL", left), ("TYPE", left), ("USED", right), ("AVAIL", right)]);
    for (id, kind) in pools(fs) {
        let (used, avail) = room(call, id);
        room_table.row([pool_name(call, id), kind.to_owned(), bytes(used), bytes(avail)]);
    }
    let count = clients(call, fs);
    let line = "=".repeat(name.chars().count());
    format!("{name} - {count} clients\n{line}\n{}{}", ranks.render(), room_table.render())
}
