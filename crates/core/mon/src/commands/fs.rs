//! File systems: what there are, and what they are like.

use super::call::{Answer, Call, Failure, fail, refuse};
use super::show;
use super::table::{Command, command};
use crate::command::Output;
use crate::mds_messages::shown_map;
use nacre_format::{Node, Section};
use nacre_maps::{FileSystem, FsMap};
use nacre_types::Errno;

pub(super) const COMMANDS: &[Command] = &[
    command("fs ls", "fs", "r", "File systems", ls),
    command("fs get name=fs_name,type=CephString", "fs", "r", "One file system", get),
    command("fs dump name=epoch,type=CephInt,range=0,req=false", "mds", "r", "The file systems' map", dump),
    command(
        "fs feature ls",
        "mds",
        "r",
        "What clients can do, as required_client_features names it",
        features,
    ),
    command(
        "fs compat show name=fs_name,type=CephString",
        "mds",
        "r",
        "On-disk features that a file system uses",
        compat_show,
    ),
];

/// The map as the caller may see it.
pub(super) fn visible(call: &Call<'_>) -> FsMap {
    shown_map(call.state.fs.map(), |name| call.identity.caps.shows_file_system(name))
}

/// The file system of a name, if the caller may see it.
pub(super) fn find<'a>(call: &'a Call<'_>, name: &str) -> Option<&'a FileSystem> {
    call.state.fs.map().by_name(name).filter(|_| call.identity.caps.shows_file_system(name))
}

/// The file system of a name, that is to be changed.
pub(super) fn found<'a>(call: &'a Call<'_>, name: &str) -> Result<&'a FileSystem, Failure> {
    find(call, name).ok_or_else(|| refuse(Errno::ENOENT, format!("Filesystem not found: '{name}'")))
}

fn ls(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map();
    let name = |pool: i64| map.pool_name(pool).unwrap_or_default().to_owned();
    let filesystems = visible(call).filesystems;
    let tree = filesystems.iter().map(|fs| {
        let mds = &fs.mds_map;
        Section::new()
            .with("name", mds.fs_name.as_str())
            .with("metadata_pool", name(mds.metadata_pool))
            .with("metadata_pool_id", mds.metadata_pool)
            .with("data_pool_ids", Node::array("data_pool_id", mds.data_pools.iter().copied()))
            .with("data_pools", Node::array("data_pool", mds.data_pools.iter().map(|pool| name(*pool))))
    });
    let line = |fs: &FileSystem| {
        let data: String = fs.mds_map.data_pools.iter().map(|pool| format!("{} ", name(*pool))).collect();
        let metadata = name(fs.mds_map.metadata_pool);
        format!("name: {}, metadata pool: {metadata}, data pools: [{data}]\n", fs.mds_map.fs_name)
    };
    let lines: String = filesystems.iter().map(line).collect();
    let plain = if lines.is_empty() { "No filesystems enabled\n".to_owned() } else { lines };
    call.either("filesystems", plain, Node::array("filesystem", tree))
}

fn not_found<T>(name: &str) -> Result<T, Failure> {
    fail(Errno::ENOENT, format!("filesystem '{name}' not found"))
}

fn get(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("fs_name");
    let Some(fs) = find(call, name) else { return not_found(name) };
    call.either("filesystem", show::file_system_text(fs), show::file_system(fs))
}

/// Only the newest map is kept.
fn dump(call: &mut Call<'_>) -> Answer {
    let map = visible(call);
    if let Some(epoch) = call.args.int("epoch").filter(|epoch| *epoch != i64::from(map.epoch)) {
        let text = format!("there is no map of epoch {epoch}: the newest alone is kept, {}", map.epoch);
        return fail(Errno::ENOENT, text);
    }
    let output = call.either("fsmap", show::fs_map_text(&map), show::fs_map(&map))?;
    Ok(Output { text: format!("dumped fsmap epoch {}", map.epoch), ..output })
}

fn features(call: &mut Call<'_>) -> Answer {
    let all = show::CLIENT_FEATURES.iter().enumerate();
    let plain: String = all.clone().map(|(bit, name)| format!("{bit} {name}\n")).collect();
    let tree = all.map(|(bit, name)| Section::new().with("index", bit).with("name", *name));
    call.either("cephfs_features", plain, Node::array("feature", tree))
}

fn compat_show(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("fs_name");
    let Some(fs) = find(call, name) else { return not_found(name) };
    let compat = &fs.mds_map.compat;
    call.either("mds_compat", show::compat_text(compat), show::compat(compat))
}
