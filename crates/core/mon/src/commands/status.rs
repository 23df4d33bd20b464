//! `status`, `versions`, `features`, `report` and other questions about everything.

use super::call::{Answer, Call};
use super::daemons::{
    count_values, metadata_section, mon_values, osd_summary, osd_summary_text, osd_values, quorum_age,
    quorum_names, quorum_ranks, remapped_count, seconds_since,
};
use super::health::{health_lines, health_tree};
use super::progress;
use super::services;
use super::show;
use super::table::{Command, command};
use nacre_format::{Format, Node, Section, age, bytes, fixed, si, stamp};
use nacre_maps::OsdMap;
use nacre_mgr::pgmap::{self, Digest, Rate};
use nacre_types::features;
use nacre_types::version::{RELEASE, VERSION_SHORT, VERSION_TEXT};
use std::collections::BTreeMap;

pub(super) const COMMANDS: &[Command] = &[
    command("status", "mon", "r", "Summary of the cluster", status),
    command("fsid", "mon", "r", "Identity of the cluster", fsid),
    command("version", "mon", "r", "Version of this monitor", version),
    command("versions", "mon", "r", "Versions of all running daemons", versions),
    command("features", "mon", "r", "Feature bits of daemons and clients", features_command),
    command(
        "report name=tags,type=CephString,n=N,req=false",
        "mon",
        "r",
        "Everything, for support; extra words are kept as its tag",
        report,
    ),
    command(
        "node ls name=type,type=CephChoices,strings=all|osd|mon|mds|mgr,req=false",
        "mon",
        "r",
        "Hosts and what runs on them",
        node_ls,
    ),
];

/// What clients do, as text; empty when they do nothing.
pub(super) fn client_rate_text(rate: &Rate) -> String {
    let mut parts = Vec::new();
    if rate.read_bytes > 0 {
        parts.push(format!("{}/s rd", bytes(rate.read_bytes)));
    }
    if rate.write_bytes > 0 {
        parts.push(format!("{}/s wr", bytes(rate.write_bytes)));
    }
    if rate.read_ops + rate.write_ops > 0 {
        parts.push(format!("{} op/s rd, {} op/s wr", si(rate.read_ops), si(rate.write_ops)));
    }
    parts.join(", ")
}

/// What recovery does, as text; empty when it does nothing.
pub(super) fn recovery_rate_text(rate: &Rate) -> String {
    if !rate.has_recovery() {
        return String::new();
    }
    let mut text = format!("{}/s", bytes(rate.recovered_bytes));
    if rate.recovered_keys > 0 {
        text.push_str(&format!(", {} keys/s", si(rate.recovered_keys)));
    }
    if rate.recovered_objects > 0 {
        text.push_str(&format!(", {} objects/s", si(rate.recovered_objects)));
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "a share for people")]
fn share(part: i64, whole: i64) -> f64 {
    if whole > 0 { 100.0 * part as f64 / whole as f64 } else { 0.0 }
}

/// Degraded, misplaced and unfound objects: `(words, share key, count, total)`.
fn recovery_sums(digest: &Digest) -> Vec<(&'static str, i64, i64)> {
    let stats = &digest.sum.stats;
    [
        ("degraded", stats.num_objects_degraded, stats.num_object_copies),
        ("misplaced", stats.num_objects_misplaced, stats.num_object_copies),
        ("unfound", stats.num_objects_unfound, stats.num_objects),
    ]
    .into_iter()
    .filter(|(_, count, total)| *count > 0 && *total > 0)
    .collect()
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

fn pgmap_tree(digest: &Digest, rate: &Rate, pool_count: usize) -> Section {
    let states = digest
        .states()
        .into_iter()
        .map(|(name, count)| Section::new().with("state_name", name).with("count", count));
    let statfs = &digest.osd_sum.statfs;
    let mut section = Section::new()
        .with("pgs_by_state", Node::array("pgs_by_state_element", states))
        .with("num_pgs", digest.pg_count)
        .with("num_pools", pool_count)
        .with("num_objects", digest.sum.stats.num_objects)
        .with("data_bytes", digest.sum.stats.num_bytes)
        .with("bytes_used", statfs.used_raw())
        .with("bytes_avail", statfs.available)
        .with("bytes_total", statfs.total);
    if digest.unknown_count > 0 {
        section.put("unknown_pgs_ratio", share(count(digest.unknown_count), count(digest.pg_count)) / 100.0);
    }
    let inactive = digest.inactive_count() - digest.unknown_count;
    if inactive > 0 {
        section.put("inactive_pgs_ratio", share(count(inactive), count(digest.pg_count)) / 100.0);
    }
    for (name, part, total) in recovery_sums(digest) {
        section.put(format!("{name}_objects"), part);
        section.put(format!("{name}_total"), total);
        section.put(format!("{name}_ratio"), share(part, total) / 100.0);
    }
    section.extend(rate_tree(rate));
    section
}

/// Rates under the keys of `status` and `osd pool stats`.
pub(super) fn rate_tree(rate: &Rate) -> Section {
    let mut section = recovery_rate_tree(rate);
    section.extend(client_rate_tree(rate));
    section
}

/// The recovery half of [`rate_tree`].
pub(super) fn recovery_rate_tree(rate: &Rate) -> Section {
    let mut section = Section::new();
    if rate.has_recovery() {
        section.put("recovering_objects_per_sec", rate.recovered_objects);
        section.put("recovering_bytes_per_sec", rate.recovered_bytes);
        section.put("recovering_keys_per_sec", rate.recovered_keys);
    }
    section
}

/// The client half of [`rate_tree`].
pub(super) fn client_rate_tree(rate: &Rate) -> Section {
    let mut section = Section::new();
    if rate.has_client_io() {
        section.put("read_bytes_sec", rate.read_bytes);
        section.put("write_bytes_sec", rate.write_bytes);
        section.put("read_op_per_sec", rate.read_ops);
        section.put("write_op_per_sec", rate.write_ops);
    }
    section
}

fn count(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn pg_lines(digest: &Digest) -> Vec<String> {
    let mut lines = Vec::new();
    let ratio = |part: usize| fixed(share(count(part), count(digest.pg_count)), 3);
    if digest.unknown_count > 0 {
        lines.push(format!("{}% pgs unknown", ratio(digest.unknown_count)));
    }
    let inactive = digest.inactive_count() - digest.unknown_count;
    if inactive > 0 {
        lines.push(format!("{}% pgs not active", ratio(inactive)));
    }
    for (name, part, total) in recovery_sums(digest) {
        lines.push(format!("{part}/{total} objects {name} ({}%)", fixed(share(part, total), 3)));
    }
    let states = digest.states();
    let width = states.iter().map(|(_, count)| count.to_string().len()).max().unwrap_or(0);
    lines.extend(states.into_iter().map(|(name, count)| format!("{count:<width$} {name}")));
    lines
}

fn data_text(digest: &Digest, rate: &Rate, pool_count: usize) -> String {
    let statfs = &digest.osd_sum.statfs;
    let stats = &digest.sum.stats;
    let mut text = format!(
        "    pools:   {pool_count} pools, {} pgs\n    objects: {} objects, {}\n    usage:   {} used, {} / {} avail\n    pgs:     {}\n",
        digest.pg_count,
        si(unsigned(stats.num_objects)),
        bytes(unsigned(stats.num_bytes)),
        bytes(unsigned(statfs.used_raw())),
        bytes(unsigned(statfs.available)),
        bytes(unsigned(statfs.total)),
        pg_lines(digest).join("\n             "),
    );
    let io = [("    client:   ", client_rate_text(rate)), ("    recovery: ", recovery_rate_text(rate))];
    if io.iter().any(|(_, line)| !line.is_empty()) {
        text.push_str(" \n  io:\n");
    }
    for (head, line) in io.into_iter().filter(|(_, line)| !line.is_empty()) {
        text.push_str(&format!("{head}{line}\n"));
    }
    text
}

fn mgr_text(call: &Call<'_>) -> String {
    let map = call.state.mgr.map();
    if map.active_gid == 0 {
        return "no daemons active".to_owned();
    }
    let state = if map.available { "active" } else { "active, starting" };
    let mut text = format!("{}({state}, since {})", map.active_name, seconds_since(call, map.active_change));
    if !map.standbys.is_empty() {
        let names: Vec<&str> = map.standbys.values().map(|standby| standby.name.as_str()).collect();
        text.push_str(&format!(", standbys: {}", names.join(", ")));
    }
    text
}

fn status_text(call: &Call<'_>, map: &OsdMap, digest: &Digest, rate: &Rate) -> String {
    let mons = call.state.mon.map();
    let outside: Vec<&str> = call.state.quorum.outside(mons).map(|(_, name)| name).collect();
    let outside =
        if outside.is_empty() { String::new() } else { format!(", out of quorum: {}", outside.join(", ")) };
    let mons = format!(
        "{} daemons, quorum {} (age {}){outside}",
        mons.ranks.len(),
        quorum_names(call.state).join(","),
        age(quorum_age(call)),
    );
    let servers = show::mds_line(call.state.fs.map()).map(|line| ("mds", line));
    let own = [("mon", mons), ("mgr", mgr_text(call))].into_iter().chain(servers);
    let own = own.chain([("osd", osd_line(call, map))]);
    let services: Vec<(String, String)> =
        own.map(|(name, line)| (name.to_owned(), line)).chain(services::lines(call)).collect();
    let width = services.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 1;
    let services: String =
        services.iter().map(|(name, line)| format!("    {:<width$} {line}\n", format!("{name}:"))).collect();
    let volumes = show::volumes_line(call.state.fs.map());
    let volumes = volumes.map_or_else(String::new, |line| format!("    volumes: {line}\n"));
    format!(
        "  cluster:\n    id:     {}\n    health: {}\n \n  services:\n{services} \n  data:\n{volumes}{}{} \n",
        call.state.fsid,
        health_lines(call.state, false).join("\n            "),
        data_text(digest, rate, map.pools.len()),
        progress::status_text(call),
    )
}

fn osd_line(call: &Call<'_>, map: &OsdMap) -> String {
    let mut line = osd_summary_text(call, map);
    let remapped = remapped_count(call, map);
    if remapped > 0 {
        line.push_str(&format!("; {remapped} remapped pgs"));
    }
    let skip = ["sortbitwise", "recovery_deletes", "purged_snapdirs", "pglog_hardlimit"];
    let names = map.flag_names();
    let flags: Vec<&str> = names.split(',').filter(|name| !name.is_empty() && !skip.contains(name)).collect();
    if !flags.is_empty() {
        line.push_str(&format!("\n         flags {}", flags.join(",")));
    }
    line
}

fn status_tree(call: &Call<'_>, map: &OsdMap, digest: &Digest, rate: &Rate) -> Section {
    let mons = call.state.mon.map();
    let mgr = call.state.mgr.map();
    let fs = call.state.fs.map();
    Section::new()
        .with("fsid", call.state.fsid.to_string())
        .with("health", health_tree(call.state, false))
        .with("election_epoch", call.state.quorum.election_epoch())
        .with("quorum", Node::array("rank", quorum_ranks(call.state)))
        .with("quorum_names", Node::array("id", quorum_names(call.state)))
        .with("quorum_age", quorum_age(call).as_secs())
        .with(
            "monmap",
            Section::new()
                .with("epoch", mons.epoch)
                .with("min_mon_release_name", show::release_name(mons.min_mon_release))
                .with("num_mons", mons.mons.len()),
        )
        .with("osdmap", osd_summary(call, map))
        .with("pgmap", pgmap_tree(digest, rate, map.pools.len()))
        .with("fsmap", show::fs_summary(fs))
        .with(
            "mgrmap",
            Section::new()
                .with("available", mgr.available)
                .with("num_standbys", mgr.standbys.len())
                .with("modules", Node::array("module", mgr.modules.iter()))
                .with("services", show::services(mgr)),
        )
        .with("servicemap", services::map_tree(call))
        .with("progress_events", progress::status_tree(call))
}

fn status(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map().clone();
    let digest = call.state.shown_pgs().digest(&map);
    let rate = call.state.stats.pgs.rate(None);
    if call.is_plain() {
        return call.either("status", status_text(call, &map, &digest, &rate), Section::new());
    }
    call.tree("status", status_tree(call, &map, &digest, &rate))
}

fn fsid(call: &mut Call<'_>) -> Answer {
    let fsid = call.state.fsid.to_string();
    call.either("fsid", format!("{fsid}\n"), Section::new().with("fsid", fsid.as_str()))
}

fn version(call: &mut Call<'_>) -> Answer {
    call.either("version", format!("{VERSION_TEXT}\n"), Section::new().with("version", VERSION_TEXT))
}

fn versions(call: &mut Call<'_>) -> Answer {
    let mons: Vec<String> = mon_values(call, "ceph_version").collect();
    let mgrs = super::mgr::values(call, "ceph_version");
    let osds: Vec<String> = osd_values(call, "ceph_version").collect();
    let servers = super::mds::values(call, "ceph_version");
    let overall = count_values(mons.iter().chain(&mgrs).chain(&osds).chain(&servers).cloned());
    let section = Section::new()
        .with("mon", count_values(mons.into_iter()))
        .with("mgr", count_values(mgrs.into_iter()))
        .with("osd", count_values(osds.iter().cloned()))
        .with("mds", count_values(servers.into_iter()))
        .with("overall", overall);
    call.tree("version", section)
}

fn features_command(call: &mut Call<'_>) -> Answer {
    // Only what is counted: what clients can do is not kept with their sessions.
    let group = |bits: &mut dyn Iterator<Item = u64>| {
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        bits.for_each(|bits| *counts.entry(bits).or_default() += 1);
        let entry = |(bits, number): (u64, usize)| {
            Section::new()
                .with("features", format!("0x{bits:x}"))
                .with("release", "luminous")
                .with("num", number)
        };
        Node::array("group", counts.into_iter().map(entry))
    };
    let (osds, mgrs) = (call.state.osd.map(), call.state.mgr.map());
    let mons = call.state.quorum.members(call.state.mon.map()).count();
    let standbys = mgrs.standbys.values().map(|standby| standby.features);
    let section = Section::new()
        .with("mon", group(&mut std::iter::repeat_n(features::SUPPORTED, mons)))
        .with("osd", group(&mut osds.up_osds().map(|osd| osds.xinfo(osd).features)))
        .with("client", Node::array("group", Vec::<Node>::new()))
        .with("mgr", group(&mut standbys.chain([mgrs.active_mgr_features])));
    call.tree("features", section)
}

fn node_ls(call: &mut Call<'_>) -> Answer {
    let wanted = call.args.text_opt("type").unwrap_or("all").to_owned();
    let mut osds: BTreeMap<String, Vec<Node>> = BTreeMap::new();
    for osd in call.state.osd.map().osds() {
        let host = call.state.osd.metadata(osd).and_then(|metadata| metadata.get("hostname")).cloned();
        osds.entry(host.unwrap_or_default()).or_default().push(osd.into());
    }
    let mut mons: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, host) in call.state.mon.map().ranks.iter().zip(mon_values(call, "hostname")) {
        mons.entry(host).or_default().push(name);
    }
    let mons: Section = mons.into_iter().map(|(host, mons)| (host, Node::array("daemon", mons))).collect();
    let mut mgrs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, mut said) in super::mgr::all_metadata(call) {
        mgrs.entry(said.remove("hostname").unwrap_or_default()).or_default().push(name);
    }
    let mgrs: Section = mgrs.into_iter().map(|(host, mgrs)| (host, Node::array("daemon", mgrs))).collect();
    let osds: Section = osds.into_iter().map(|(host, osds)| (host, Node::array("osd", osds))).collect();
    let mut servers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, mut said) in super::mds::all_metadata(call) {
        servers.entry(said.remove("hostname").unwrap_or_default()).or_default().push(name);
    }
    let has_servers = !servers.is_empty();
    let servers: Section =
        servers.into_iter().map(|(host, servers)| (host, Node::array("daemon", servers))).collect();
    let kinds = [("mon", mons), ("osd", osds), ("mds", servers), ("mgr", mgrs)];
    if wanted == "all" {
        let shown = kinds.into_iter().filter(|(kind, _)| *kind != "mds" || has_servers);
        return call.tree("nodes", shown.collect::<Section>());
    }
    let found = kinds.into_iter().find(|(kind, _)| *kind == wanted).map(|(_, section)| section);
    call.tree("nodes", found.unwrap_or_default())
}

fn report(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map().clone();
    let digest = call.state.shown_pgs().digest(&map);
    let mut section = report_head(call);
    section.extend(report_maps(call, &map));
    section.extend(report_stats(call, &digest));
    section.put("servicemap", services::map_tree(call));
    section.put("paxos", Section::new()); // one monitor proposes nothing to anybody
    let text = Node::from(section).render(call.format.or(Format::JsonPretty), "report");
    let sum = nacre_buf::crc::crc32c(u32::MAX, text.as_bytes());
    Ok(crate::command::Output { text: format!("report {sum}"), ..crate::command::Output::data(text) })
}

fn report_head(call: &Call<'_>) -> Section {
    Section::new()
        .with("cluster_fingerprint", call.state.fsid.to_string())
        .with("version", VERSION_SHORT)
        .with("release", RELEASE)
        .with("commit", concat!("nacre-", env!("CARGO_PKG_VERSION")))
        .with("timestamp", stamp(call.wall))
        .with("tag", call.args.list("tags").join(" "))
        .with("health", health_tree(call.state, true))
}

fn report_maps(call: &Call<'_>, map: &OsdMap) -> Section {
    let mons = call.state.mon.map();
    let metadata = map.osds().map(|osd| metadata_section(call, osd));
    let fs = call.state.fs.map();
    Section::new()
        .with("monmap_first_committed", 1)
        .with("monmap_last_committed", mons.epoch)
        .with("monmap", show::mon_map(mons))
        .with("quorum", Node::array("rank", quorum_ranks(call.state)))
        .with("osdmap", show::osd_map(map))
        .with("osd_metadata", Node::array("osd", metadata))
        .with("osdmap_first_committed", call.state.osd.oldest())
        .with("osdmap_last_committed", map.epoch)
        .with("crushmap", show::crush_map(&map.crush))
        .with("fsmap", show::fs_map(fs))
        .with("mdsmap_first_committed", 1)
        .with("mdsmap_last_committed", fs.epoch)
        .with("auth", Section::new().with("num_secrets", call.state.auth.keys().entities().count()))
}

fn report_stats(call: &Call<'_>, digest: &Digest) -> Section {
    let pools = digest.pools.iter().map(|(id, sum)| pgmap::pool_row(*id, sum));
    let osds =
        call.state.stats.pgs.osds().map(|(osd, stat)| Section::new().with("osd", osd).with("seq", stat.seq));
    let states = digest
        .states()
        .into_iter()
        .map(|(name, count)| Section::new().with("state", name).with("num", count));
    let by_osd = digest.osd_pgs.iter().map(|(osd, pgs)| {
        Section::new()
            .with("osd", *osd)
            .with("num_primary_pg", pgs.primary)
            .with("num_acting_pg", pgs.acting)
            .with("num_up_not_acting_pg", pgs.members - pgs.acting)
    });
    Section::new()
        .with("num_pg", digest.pg_count)
        .with("num_pg_active", digest.active_count)
        .with("num_pg_unknown", digest.unknown_count)
        .with("num_osd", digest.osd_sum.num_osds)
        .with("pool_sum", pgmap::pool_stat(&digest.sum))
        .with("osd_sum", pgmap::osd_stat_body(&digest.osd_sum))
        .with("pool_stats", Node::array("pool", pools))
        .with("osd_stats", Node::array("osd", osds))
        .with("num_pg_by_state", Node::array("state", states))
        .with("num_pg_by_osd", Node::array("osd", by_osd))
}
