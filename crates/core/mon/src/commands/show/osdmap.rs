//! The OSD map as a tree and as text.

use super::{addr_vec, legacy_addr, pool_line, pool_snap_lines, pool_tree};
use nacre_format::{Node, Section, general, stamp};
use nacre_maps::{OsdMap, WEIGHT_ONE, XInfo, flags, release_name};
use nacre_types::{AddrVec, IntervalSet, OsdId, PoolId};
use std::collections::BTreeMap;

/// `[0,1,2]`; holes print as Ceph prints them.
pub(in crate::commands) fn text_set(osds: &[OsdId]) -> String {
    let osds: Vec<String> = osds.iter().map(ToString::to_string).collect();
    format!("[{}]", osds.join(","))
}

/// A 16.16 fraction as a number.
pub(in crate::commands) fn fraction(fixed: u32) -> f64 {
    f64::from(fixed) / f64::from(WEIGHT_ONE)
}

/// The oldest client release that could read the map.
fn min_compat_client(map: &OsdMap) -> &'static str {
    if map.pg_upmap.is_empty() && map.pg_upmap_items.is_empty() { "jewel" } else { "luminous" }
}

fn osd_addrs(map: &OsdMap, osd: OsdId) -> [(&'static str, &'static str, AddrVec); 4] {
    let (back, front) =
        map.heartbeat_addrs(osd).map(|(back, front)| (back.clone(), front.clone())).unwrap_or_default();
    [
        ("public_addrs", "public_addr", map.client_addr(osd).cloned().unwrap_or_default()),
        ("cluster_addrs", "cluster_addr", map.cluster_addr(osd).cloned().unwrap_or_default()),
        ("heartbeat_back_addrs", "heartbeat_back_addr", back),
        ("heartbeat_front_addrs", "heartbeat_front_addr", front),
    ]
}

fn store_uuid(map: &OsdMap, osd: OsdId) -> String {
    usize::try_from(osd).ok().and_then(|at| map.osd_uuid.get(at)).copied().unwrap_or_default().to_string()
}

fn state_words(map: &OsdMap, osd: OsdId) -> Vec<&'static str> {
    let state = map.state(osd);
    flags::osd::NAMES.iter().filter(|(bit, _)| state & bit != 0).map(|(_, name)| *name).collect()
}

/// One OSD of `osd dump` and `osd info`.
pub(in crate::commands) fn osd_entry(map: &OsdMap, osd: OsdId) -> Section {
    let info = map.info(osd);
    let mut section = Section::new()
        .with("osd", osd)
        .with("uuid", store_uuid(map, osd))
        .with("up", u32::from(map.is_up(osd)))
        .with("in", u32::from(map.is_in(osd)))
        .with("weight", fraction(map.weight(osd)))
        .with("primary_affinity", fraction(map.primary_affinity(osd)))
        .with("last_clean_begin", info.last_clean_begin)
        .with("last_clean_end", info.last_clean_end)
        .with("up_from", info.up_from)
        .with("up_thru", info.up_thru)
        .with("down_at", info.down_at)
        .with("lost_at", info.lost_at);
    let addrs = osd_addrs(map, osd);
    for (name, _, addrs) in &addrs {
        section.put(*name, addr_vec(addrs));
    }
    for (_, name, addrs) in &addrs {
        section.put(*name, legacy_addr(addrs));
    }
    section.with("state", Node::array("state", state_words(map, osd)))
}

/// One OSD of `osd dump` as text.
pub(in crate::commands) fn osd_line(map: &OsdMap, osd: OsdId) -> String {
    let info = map.info(osd);
    let mut line = format!(
        "osd.{osd} {} {} weight {}",
        if map.is_up(osd) { "up  " } else { "down" },
        if map.is_in(osd) { "in " } else { "out" },
        general(fraction(map.weight(osd)), 6),
    );
    if map.primary_affinity(osd) != WEIGHT_ONE {
        line.push_str(&format!(" primary_affinity {}", general(fraction(map.primary_affinity(osd)), 6)));
    }
    line.push_str(&format!(
        " up_from {} up_thru {} down_at {} last_clean_interval [{},{})",
        info.up_from, info.up_thru, info.down_at, info.last_clean_begin, info.last_clean_end
    ));
    let [client, cluster, ..] = osd_addrs(map, osd);
    line.push_str(&format!(
        " {} {} {} {}",
        client.2,
        cluster.2,
        state_words(map, osd).join(","),
        store_uuid(map, osd)
    ));
    line
}

fn xinfo(osd: OsdId, info: &XInfo) -> Section {
    Section::new()
        .with("osd", osd)
        .with("down_stamp", stamp(info.down_stamp))
        .with("laggy_probability", fraction(info.laggy_probability))
        .with("laggy_interval", info.laggy_interval)
        .with("features", info.features)
        .with("old_weight", info.old_weight)
        .with("last_purged_snaps_scrub", stamp(info.last_purged_snaps_scrub))
        .with("dead_epoch", info.dead_epoch)
}

fn osds(osds: &[OsdId]) -> Node {
    Node::array("osd", osds.iter().copied())
}

fn snap_sets(sets: &BTreeMap<PoolId, IntervalSet>) -> Node {
    let intervals = |set: &IntervalSet| {
        let all: Vec<_> = set.iter().collect();
        Node::array(
            "interval",
            all.into_iter().map(|(begin, length)| Section::new().with("begin", begin).with("length", length)),
        )
    };
    Node::array(
        "pool",
        sets.iter().map(|(pool, set)| Section::new().with("pool", *pool).with("snaps", intervals(set))),
    )
}

fn head(map: &OsdMap) -> Section {
    let mut names: Vec<&str> =
        flags::osdmap::NAMES.iter().filter(|(bit, _)| map.flags & bit != 0).map(|(_, name)| *name).collect();
    names.sort_unstable();
    Section::new()
        .with("epoch", map.epoch)
        .with("fsid", map.fsid.to_string())
        .with("created", stamp(map.created))
        .with("modified", stamp(map.modified))
        .with("last_up_change", stamp(map.last_up_change))
        .with("last_in_change", stamp(map.last_in_change))
        .with("flags", map.flag_names())
        .with("flags_num", map.flags)
        .with("flags_set", Node::array("flag", names))
        .with("crush_version", map.crush_version)
        .with("full_ratio", map.full_ratio)
        .with("backfillfull_ratio", map.backfillfull_ratio)
        .with("nearfull_ratio", map.nearfull_ratio)
        .with("cluster_snapshot", "")
        .with("pool_max", map.pool_max)
        .with("max_osd", map.max_osd())
        .with("require_min_compat_client", release_name(map.require_min_compat_client))
        .with("min_compat_client", min_compat_client(map))
        .with("require_osd_release", release_name(map.require_osd_release))
}

fn exceptions(map: &OsdMap) -> Section {
    let pair = |(from, to): &(OsdId, OsdId)| Section::new().with("from", *from).with("to", *to);
    let upmaps = map
        .pg_upmap
        .iter()
        .map(|(pg, set)| Section::new().with("pgid", pg.to_string()).with("osds", osds(set)));
    let items = map.pg_upmap_items.iter().map(|(pg, pairs)| {
        Section::new()
            .with("pgid", pg.to_string())
            .with("mappings", Node::array("mapping", pairs.iter().map(pair)))
    });
    let temps = map
        .pg_temp
        .iter()
        .map(|(pg, set)| Section::new().with("pgid", pg.to_string()).with("osds", osds(set)));
    let primaries = map
        .primary_temp
        .iter()
        .map(|(pg, osd)| Section::new().with("pgid", pg.to_string()).with("osd", *osd));
    let blocklist = map.blocklist.iter().map(|(addr, until)| (addr.without_kind(), stamp(*until)));
    let ranges = map.range_blocklist.iter().map(|(range, until)| (range.to_string(), stamp(*until)));
    Section::new()
        .with("pg_upmap", Node::array("mapping", upmaps))
        .with("pg_upmap_items", Node::array("mapping", items))
        .with("pg_temp", Node::array("mapping", temps))
        .with("primary_temp", Node::array("mapping", primaries))
        .with("blocklist", Section::from_iter(blocklist))
        .with("range_blocklist", Section::from_iter(ranges))
}

fn tail(map: &OsdMap) -> Section {
    let profile = |profile: &BTreeMap<String, String>| -> Section {
        profile.iter().map(|(key, value)| (key.clone(), value.as_str())).collect()
    };
    let profiles = map.erasure_code_profiles.iter().map(|(name, keys)| (name.clone(), profile(keys)));
    let flag_words = |bits: u32| {
        Node::array(
            "flag",
            flags::osd::NAMES.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name),
        )
    };
    let node_flags = map.crush_node_flags.iter().map(|(node, bits)| {
        (map.crush.item_name(*node).map_or_else(|| node.to_string(), str::to_owned), flag_words(*bits))
    });
    let class_flags = map.device_class_flags.iter().map(|(class, bits)| {
        (map.crush.class_names.get(class).cloned().unwrap_or_else(|| class.to_string()), flag_words(*bits))
    });
    Section::new()
        .with("erasure_code_profiles", Section::from_iter(profiles))
        .with("removed_snaps_queue", snap_sets(&map.removed_snaps_queue))
        .with("new_removed_snaps", snap_sets(&map.new_removed_snaps))
        .with("new_purged_snaps", snap_sets(&map.new_purged_snaps))
        .with("crush_node_flags", Section::from_iter(node_flags))
        .with("device_class_flags", Section::from_iter(class_flags))
        .with(
            "stretch_mode",
            Section::new()
                .with("stretch_mode_enabled", false)
                .with("stretch_bucket_count", 0)
                .with("degraded_stretch_mode", 0)
                .with("recovering_stretch_mode", 0)
                .with("stretch_mode_bucket", 0),
        )
}

/// `osd dump` as a tree.
pub(in crate::commands) fn osd_map(map: &OsdMap) -> Section {
    let pools = map.pools.iter().map(|(id, pool)| {
        let mut section =
            Section::new().with("pool", *id).with("pool_name", map.pool_name(*id).unwrap_or_default());
        section.extend(pool_tree(pool));
        section
    });
    let mut section = head(map)
        .with("pools", Node::array("pool", pools))
        .with("osds", Node::array("osd_info", map.osds().map(|osd| osd_entry(map, osd))))
        .with("osd_xinfo", Node::array("xinfo", map.osds().map(|osd| xinfo(osd, &map.xinfo(osd)))));
    section.extend(exceptions(map));
    section.extend(tail(map));
    section
}

/// `osd dump` as text.
pub(in crate::commands) fn osd_map_text(map: &OsdMap) -> String {
    let ratio = |ratio: f32| general(f64::from(ratio), 6);
    let mut lines = vec![
        format!("epoch {}", map.epoch),
        format!("fsid {}", map.fsid),
        format!("created {}", map.created),
        format!("modified {}", map.modified),
        format!("flags {}", map.flag_names()),
        format!("crush_version {}", map.crush_version),
        format!("full_ratio {}", ratio(map.full_ratio)),
        format!("backfillfull_ratio {}", ratio(map.backfillfull_ratio)),
        format!("nearfull_ratio {}", ratio(map.nearfull_ratio)),
        format!("require_min_compat_client {}", release_name(map.require_min_compat_client)),
        format!("min_compat_client {}", min_compat_client(map)),
        format!("require_osd_release {}", release_name(map.require_osd_release)),
        "stretch_mode_enabled false".to_owned(),
    ];
    for (id, pool) in &map.pools {
        lines.push(pool_line(*id, map.pool_name(*id).unwrap_or_default(), pool));
        lines.extend(pool_snap_lines(pool));
    }
    lines.push(format!("max_osd {}", map.max_osd()));
    lines.extend(map.osds().map(|osd| osd_line(map, osd)));
    lines.extend(map.pg_upmap.iter().map(|(pg, set)| format!("pg_upmap {pg} {}", text_set(set))));
    lines.extend(map.pg_upmap_items.iter().map(|(pg, pairs)| {
        let flat: Vec<OsdId> = pairs.iter().flat_map(|(from, to)| [*from, *to]).collect();
        format!("pg_upmap_items {pg} {}", text_set(&flat))
    }));
    lines.extend(map.pg_temp.iter().map(|(pg, set)| format!("pg_temp {pg} {}", text_set(set))));
    lines.extend(map.primary_temp.iter().map(|(pg, osd)| format!("primary_temp {pg} {osd}")));
    lines.extend(
        map.blocklist
            .iter()
            .map(|(addr, until)| format!("blocklist {} expires {until}", addr.without_kind())),
    );
    let ranges = map.range_blocklist.iter();
    lines.extend(ranges.map(|(range, until)| format!("range blocklist {range} expires {until}")));
    lines.push(String::new());
    lines.join("\n")
}
