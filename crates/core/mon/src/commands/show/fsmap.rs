//! The file systems' map as a tree.

use nacre_format::{Node, Section};
use nacre_maps::{Compat, FsMap};
use std::collections::BTreeMap;

fn features(features: &BTreeMap<u64, String>) -> Section {
    features.iter().map(|(bit, name)| (format!("feature_{bit}"), name.as_str())).collect()
}

fn compat(compat: &Compat) -> Section {
    Section::new()
        .with("compat", features(&compat.compat))
        .with("ro_compat", features(&compat.ro_compat))
        .with("incompat", features(&compat.incompat))
}

fn compat_text(compat: &Compat) -> String {
    let list = |features: &BTreeMap<u64, String>| {
        let all: Vec<String> = features.iter().map(|(bit, name)| format!("{bit}={name}")).collect();
        all.join(",")
    };
    let [one, two, three] = [&compat.compat, &compat.ro_compat, &compat.incompat].map(list);
    format!("compat={{{one}}},rocompat={{{two}}},incompat={{{three}}}")
}

/// `fs dump` as a tree.
pub(in crate::commands) fn fs_map(map: &FsMap) -> Section {
    let standbys = map.standby_daemons.values().map(|mds| {
        Section::new().with("gid", mds.global_id).with("name", mds.name.as_str()).with("rank", mds.rank)
    });
    let filesystems = map.filesystems.iter().map(|fs| {
        Section::new()
            .with(
                "mdsmap",
                Section::new()
                    .with("epoch", fs.mds_map.epoch)
                    .with("fs_name", fs.mds_map.fs_name.as_str())
                    .with("max_mds", fs.mds_map.max_mds)
                    .with("data_pools", Node::array("pool", fs.mds_map.data_pools.iter().copied()))
                    .with("metadata_pool", fs.mds_map.metadata_pool),
            )
            .with("id", fs.fscid)
    });
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
        .with("standbys", Node::array("standby", standbys))
        .with("filesystems", Node::array("filesystem", filesystems))
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
    for fs in &map.filesystems {
        out.push_str(&format!("Filesystem '{}' ({})\n", fs.mds_map.fs_name, fs.fscid));
    }
    out
}
