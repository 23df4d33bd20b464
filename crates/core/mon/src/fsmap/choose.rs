//! Which server in waiting takes a rank.
//!
//! Source: Ceph `FSMap::find_replacement_for` and `get_available_standby` at v16.2.15.

use nacre_maps::{FileSystem, FsMap, MdsInfo, Role};

/// A server in waiting that may serve `fs` and is here: one that prefers it, else one that prefers none, else any.
#[must_use]
pub fn available_standby(map: &FsMap, fs: &FileSystem, is_here: impl Fn(u64) -> bool) -> Option<u64> {
    let may_grow = fs.mds_map.is_upgradeable();
    let fits = |info: &&MdsInfo| {
        let knows_enough = info.compat.can_write(&fs.mds_map.compat);
        let changes_nothing = fs.mds_map.compat.can_write(&info.compat);
        !info.is_laggy() && !info.is_frozen() && knows_enough && (may_grow || changes_nothing)
    };
    let here = map.standby_daemons.values().filter(fits).filter(|info| is_here(info.global_id));
    let rank_of = |info: &&MdsInfo| match info.join_fscid {
        fscid if fscid == fs.fscid => 0,
        -1 => 1,
        _ => 2,
    };
    here.min_by_key(rank_of).map(|info| info.global_id)
}

/// Who could take a rank over: the server that follows it, else one in waiting.
#[must_use]
pub fn replacement_for(map: &FsMap, role: Role, is_here: impl Fn(u64) -> bool) -> Option<u64> {
    let fs = map.file_system(role.fscid)?;
    match fs.mds_map.follower(role.rank) {
        Some(info) if info.is_frozen() => None,
        Some(info) if !info.is_laggy() && is_here(info.global_id) => Some(info.global_id),
        // What follows the rank holds it open for itself only while it is well.
        _ => available_standby(map, fs, is_here),
    }
}
