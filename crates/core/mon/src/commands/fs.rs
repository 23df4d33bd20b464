//! File systems: what there is to say while there are none.

use super::call::{Answer, Call, fail};
use super::show;
use super::table::{Command, command};
use crate::command::Output;
use nacre_format::{Node, Section};
use nacre_types::Errno;

pub(super) const COMMANDS: &[Command] = &[
    command("fs ls", "fs", "r", "File systems", ls),
    command("fs dump name=epoch,type=CephInt,range=0,req=false", "mds", "r", "The file systems' map", dump),
    command(
        "mds metadata name=who,type=CephString,req=false",
        "mds",
        "r",
        "What metadata servers say of themselves",
        mds_metadata,
    ),
    command("mds stat", "mds", "r", "Summary of the metadata servers", mds_stat),
];

fn ls(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map();
    let name = |pool: i64| map.pool_name(pool).unwrap_or_default().to_owned();
    let filesystems = &call.state.fs.map().filesystems;
    let tree = filesystems.iter().map(|fs| {
        let mds = &fs.mds_map;
        Section::new()
            .with("name", mds.fs_name.as_str())
            .with("metadata_pool", name(mds.metadata_pool))
            .with("metadata_pool_id", mds.metadata_pool)
            .with("data_pool_ids", Node::array("pool", mds.data_pools.iter().copied()))
            .with("data_pools", Node::array("pool", mds.data_pools.iter().map(|pool| name(*pool))))
    });
    let lines: Vec<String> = filesystems
        .iter()
        .map(|fs| {
            let data: Vec<String> = fs.mds_map.data_pools.iter().map(|pool| name(*pool)).collect();
            let metadata = name(fs.mds_map.metadata_pool);
            format!(
                "name: {}, metadata pool: {metadata}, data pools: [{} ]\n",
                fs.mds_map.fs_name,
                data.join(" ")
            )
        })
        .collect();
    let plain = if lines.is_empty() { "No filesystems enabled\n".to_owned() } else { lines.concat() };
    call.either("filesystems", plain, Node::array("filesystem", tree))
}

fn dump(call: &mut Call<'_>) -> Answer {
    let map = call.state.fs.map();
    let output = call.either("fsmap", show::fs_map_text(map), show::fs_map(map))?;
    Ok(Output { text: format!("dumped fsmap epoch {}", map.epoch), ..output })
}

/// There are no metadata servers yet.
fn mds_metadata(call: &mut Call<'_>) -> Answer {
    match call.args.text_opt("who") {
        Some(who) => fail(Errno::EINVAL, format!("MDS named '{who}' does not exist, or is not up")),
        None => call.tree("mds_metadata", Node::array("mds", Vec::<Node>::new())),
    }
}

fn mds_stat(call: &mut Call<'_>) -> Answer {
    let map = call.state.fs.map();
    let tree = Section::new()
        .with("fsmap", show::fs_map(map))
        .with("mdsmap_first_committed", 1)
        .with("mdsmap_last_committed", map.epoch);
    call.either("mds_stat", "\n", tree)
}
