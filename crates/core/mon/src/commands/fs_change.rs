//! File systems come, go, and change their pools.

use super::call::{Answer, Call, Failure, done, fail, must_be_warm, refuse};
use super::fs::{find, found};
use super::mds::truth;
use super::show;
use super::table::{Command, command};
use crate::fsmap::{DATA_POOLS_COUNT_MAX, FILE_SYSTEMS_COUNT_MAX, FS_NAME_BYTES_MAX, NewFs};
use nacre_maps::{Compat, Pool, PoolKind, PoolOption, flags, fs_flag};
use nacre_types::{Errno, PoolId};
use std::collections::BTreeMap;

pub(super) const COMMANDS: &[Command] = &[
    command(
        "fs new name=fs_name,type=CephString,goodchars=[A-Za-z0-9-_.] name=metadata,type=CephString name=data,type=CephString name=force,type=CephBool,req=false name=allow_dangerous_metadata_overlay,type=CephBool,req=false name=fscid,type=CephInt,range=0,req=false name=recover,type=CephBool,req=false",
        "fs",
        "rw",
        "Make a file system of two pools",
        new,
    ),
    command(
        "fs fail name=fs_name,type=CephString",
        "fs",
        "rw",
        "Give up all metadata servers of a file system, and let none take over",
        fail_file_system,
    ),
    command(
        "fs rm name=fs_name,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false",
        "fs",
        "rw",
        "Forget a file system; its pools stay",
        rm,
    ),
    command(
        "fs reset name=fs_name,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false",
        "fs",
        "rw",
        "Bring a file system back to one rank, after its metadata was repaired",
        reset,
    ),
    command(
        "fs flag set name=flag_name,type=CephChoices,strings=enable_multiple name=val,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false",
        "fs",
        "rw",
        "Change a setting of all file systems",
        flag_set,
    ),
    command(
        "fs set-default name=fs_name,type=CephString",
        "fs",
        "rw",
        "File system of clients that name none",
        set_default,
    ),
    command(
        "fs set_default name=fs_name,type=CephString",
        "fs",
        "rw",
        "Old name of fs set-default",
        set_default,
    ),
    command(
        "fs add_data_pool name=fs_name,type=CephString name=pool,type=CephString",
        "mds",
        "rw",
        "Let a file system keep data in one more pool",
        add_data_pool,
    ),
    command(
        "fs rm_data_pool name=fs_name,type=CephString name=pool,type=CephString",
        "mds",
        "rw",
        "Take a data pool from a file system",
        rm_data_pool,
    ),
    command(
        "fs compat name=fs_name,type=CephString name=subop,type=CephChoices,strings=rm_compat|rm_incompat|add_compat|add_incompat name=feature,type=CephInt name=feature_str,type=CephString,req=false",
        "fs",
        "rw",
        "Change the on-disk features of a file system that is down",
        compat,
    ),
    command(
        "fs required_client_features name=fs_name,type=CephString name=subop,type=CephChoices,strings=add|rm name=val,type=CephString",
        "mds",
        "rw",
        "Change what clients must be able to do",
        required_client_features,
    ),
];

/// The application that pools of file systems are tagged with.
const APPLICATION: &str = "cephfs";
/// Most bytes of a feature's name.
const FEATURE_BYTES_MAX: usize = 128;

/// What a pool is to a file system.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Metadata,
    /// The first data pool: it keeps something of every file.
    FirstData,
    MoreData,
}

fn pool_of(call: &mut Call<'_>, name: &str) -> Result<PoolId, Failure> {
    let found = call.state.osd.upcoming().pool_by_name(name);
    found.ok_or_else(|| refuse(Errno::ENOENT, format!("pool '{name}' does not exist")))
}

/// By name or by number.
fn pool_or_id(call: &mut Call<'_>, text: &str) -> Result<PoolId, Failure> {
    match text.parse().ok().filter(|id: &PoolId| *id >= 0) {
        Some(id) if call.state.osd.upcoming().pool_by_name(text).is_none() => Ok(id),
        _ => pool_of(call, text),
    }
}

/// Whether a pool can serve a file system so.
fn check_pool(call: &mut Call<'_>, id: PoolId, pool_use: Use, force: bool) -> Result<(), Failure> {
    let map = call.state.osd.upcoming();
    let name = map.pool_name(id).unwrap_or_default().to_owned();
    let Some(pool) = map.pool(id) else {
        return fail(Errno::ENOENT, format!("pool id '{id}' does not exist"));
    };
    let is_erasure = pool.kind == PoolKind::Erasure;
    let foreign =
        !pool.application_metadata.is_empty() && !pool.application_metadata.contains_key(APPLICATION);
    let reason = if !pool.snaps.is_empty() {
        let text = format!("pool '{name}' has snapshots of its own: no file system can use it");
        return fail(Errno::EOPNOTSUPP, text);
    } else if is_erasure && pool_use == Use::Metadata {
        "is an erasure-coded pool, which keeps no omap: no file system can have its metadata there"
    } else if is_erasure && pool_use == Use::FirstData && !force {
        "is an erasure-coded pool, and the first data pool keeps a small object of every file: use a replicated one, and add this one with fs add_data_pool, or pass --force"
    } else if is_erasure && !pool.has_flag(flags::pool::EC_OVERWRITES) {
        "is an erasure-coded pool without overwrites: set allow_ec_overwrites"
    } else if foreign && !force {
        "is used by another application; pass --force to use it all the same"
    } else {
        return Ok(());
    };
    fail(Errno::EINVAL, format!("pool '{name}' (id '{id}') {reason}"))
}

/// The metadata pool must be empty, as far as its OSDs have reported.
fn check_empty(call: &Call<'_>, id: PoolId, name: &str) -> Result<(), Failure> {
    must_be_warm(call)?;
    let digest = call.state.stats.pgs.digest(call.state.osd.map());
    let objects = digest.pools.get(&id).map_or(0, |sum| sum.stats.num_objects);
    if objects > 0 {
        let text =
            format!("pool '{name}' holds {objects} objects already: use an empty pool, or pass --force");
        return fail(Errno::EINVAL, text);
    }
    Ok(())
}

/// Says in the pool that a file system uses it; caps like `tag cephfs data=NAME` go by that.
fn tag_pool(pool: &mut Pool, key: &str, fs_name: &str) {
    let values = pool.application_metadata.entry(APPLICATION.to_owned()).or_default();
    values.insert(key.to_owned(), fs_name.to_owned());
}

/// Metadata are recovered first, and spread over more PGs than their bytes would need.
fn tune_metadata_pool(pool: &mut Pool) {
    let values = [
        ("recovery_priority", PoolOption::Int(5)),
        ("pg_num_min", PoolOption::Int(16)),
        ("pg_autoscale_bias", PoolOption::Float(4.0)),
    ];
    let values: BTreeMap<&str, PoolOption> = values.into();
    for (name, key, _) in show::POOL_OPTIONS {
        if let Some(value) = values.get(name) {
            pool.options.insert(*key, value.clone());
        }
    }
}

fn check_name(name: &str) -> Result<(), Failure> {
    if name.is_empty() || name.len() > FS_NAME_BYTES_MAX {
        return fail(Errno::EINVAL, format!("a file system's name has 1 to {FS_NAME_BYTES_MAX} bytes"));
    }
    Ok(())
}

/// What the map says against a further file system with these pools.
fn check_room(call: &Call<'_>, new: &NewFs) -> Result<(), Failure> {
    let map = call.state.fs.map();
    if !map.filesystems.is_empty() && !map.enable_multiple {
        return fail(
            Errno::EINVAL,
            "there is a file system already, and several are not allowed: 'ceph fs flag set enable_multiple true' allows them",
        );
    }
    if map.filesystems.len() >= FILE_SYSTEMS_COUNT_MAX {
        return fail(
            Errno::EINVAL,
            format!("there are {FILE_SYSTEMS_COUNT_MAX} file systems, which is the most"),
        );
    }
    let user = [new.metadata_pool, new.data_pool].into_iter().find_map(|pool| map.user_of_pool(pool));
    if let Some(user) = user.filter(|_| !call.args.flag("allow_dangerous_metadata_overlay")) {
        let text = format!(
            "file system '{}' uses one of these pools already; two that share one overwrite each other's objects. To recover from a disaster, pass --allow-dangerous-metadata-overlay",
            user.mds_map.fs_name
        );
        return fail(Errno::EEXIST, text);
    }
    match new.fscid {
        Some(_) if !call.args.flag("force") => {
            fail(Errno::EINVAL, "pass --force to choose the file system's id")
        }
        Some(id) if map.file_system(id).is_some() => {
            fail(Errno::EINVAL, format!("a file system has the id {id} already"))
        }
        _ => Ok(()),
    }
}

fn new(call: &mut Call<'_>) -> Answer {
    let [name, metadata, data] = ["fs_name", "metadata", "data"].map(|key| call.args.text(key).to_owned());
    let (metadata_pool, data_pool) = (pool_of(call, &metadata)?, pool_of(call, &data)?);
    check_name(&name)?;
    if let Some(fs) = call.state.fs.map().by_name(&name) {
        let (data, metadata) = (fs.mds_map.data_pools.first(), fs.mds_map.metadata_pool);
        if (data, metadata) == (Some(&data_pool), metadata_pool) {
            return done(format!("filesystem '{name}' already exists"));
        }
        return fail(Errno::EINVAL, format!("filesystem already exists with name '{name}'"));
    }
    let force = call.args.flag("force");
    if !force {
        check_empty(call, metadata_pool, &metadata)?;
    }
    let fscid = call.args.int("fscid").map(i32::try_from).transpose();
    let fscid = fscid.map_err(|_| refuse(Errno::EINVAL, "a file system's id is at most 2147483647"))?;
    let new =
        NewFs { name: name.clone(), metadata_pool, data_pool, fscid, recover: call.args.flag("recover") };
    check_room(call, &new)?;
    check_pool(call, data_pool, Use::FirstData, force)?;
    check_pool(call, metadata_pool, Use::Metadata, force)?;
    if let Some(pool) = call.state.osd.change_pool(data_pool) {
        tag_pool(pool, "data", &name);
    }
    if let Some(pool) = call.state.osd.change_pool(metadata_pool) {
        tag_pool(pool, "metadata", &name);
        tune_metadata_pool(pool);
    }
    call.state.fs.update(call.wall, |change| change.create(new));
    done(format!("new fs with metadata pool {metadata_pool} and data pool {data_pool}"))
}

/// Gives up the servers of a file system that `are_meant`.
pub(super) fn give_up_servers(
    call: &mut Call<'_>,
    fscid: i32,
    are_meant: impl Fn(&nacre_maps::MdsInfo) -> bool,
) {
    let fs = call.state.fs.map().file_system(fscid);
    let all = fs.into_iter().flat_map(|fs| fs.mds_map.mds_info.values());
    let meant: Vec<u64> = all.filter(|info| are_meant(info)).map(|info| info.global_id).collect();
    for gid in meant {
        call.state.give_up_mds(gid, call.wall);
    }
}

fn fail_file_system(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("fs_name").to_owned();
    let fscid = found(call, &name)?.fscid;
    call.state.fs.update(call.wall, |change| change.fs(fscid, |fs| fs.set_flag(fs_flag::NOT_JOINABLE, true)));
    give_up_servers(call, fscid, |_| true);
    done(format!("{name} marked not joinable; MDS cannot join the cluster. All MDS ranks marked failed."))
}

/// The file system's id, if none of its ranks is held and the caller means it.
fn must_be_down(call: &Call<'_>, name: &str, danger: &str) -> Result<i32, Failure> {
    let fs = found(call, name)?;
    if !fs.mds_map.up.is_empty() {
        return fail(
            Errno::EINVAL,
            format!("filesystem '{name}' has metadata servers: 'ceph fs fail {name}' gives them up"),
        );
    }
    if !call.args.flag("yes_i_really_mean_it") {
        return fail(Errno::EPERM, format!("{danger} To do it, pass --yes-i-really-mean-it."));
    }
    Ok(fs.fscid)
}

fn rm(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("fs_name").to_owned();
    if find(call, &name).is_none() {
        return done(format!("filesystem '{name}' does not exist"));
    }
    let danger = "Nobody can reach the files of this file system any more, though its pools stay.";
    let fscid = must_be_down(call, &name, danger)?;
    give_up_servers(call, fscid, |_| true);
    call.state.fs.update(call.wall, |change| change.remove(fscid));
    done("")
}

fn reset(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("fs_name").to_owned();
    let danger = "This is for the recovery from a disaster, once all metadata were written home and the journals reset; else it loses what they hold.";
    let fscid = must_be_down(call, &name, danger)?;
    give_up_servers(call, fscid, |_| true);
    call.state.fs.update(call.wall, |change| change.reset(fscid));
    done("")
}

/// The one flag there is.
fn flag_set(call: &mut Call<'_>) -> Answer {
    let on = truth(call.args.text("val"))?;
    let map = call.state.fs.map();
    if map.enable_multiple != on {
        call.state.fs.update(call.wall, |change| {
            change.map.enable_multiple = on;
            change.map.ever_enabled_multiple |= on;
        });
    }
    done("")
}

fn set_default(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("fs_name").to_owned();
    let fscid = found(call, &name)?.fscid;
    if call.state.fs.map().legacy_client_fscid != fscid {
        call.state.fs.update(call.wall, |change| change.map.legacy_client_fscid = fscid);
    }
    done("")
}

fn add_data_pool(call: &mut Call<'_>) -> Answer {
    let [name, pool] = ["fs_name", "pool"].map(|key| call.args.text(key).to_owned());
    let fs = found(call, &name)?;
    let (fscid, pools) = (fs.fscid, fs.mds_map.data_pools.clone());
    let id = pool_or_id(call, &pool)?;
    check_pool(call, id, Use::MoreData, false)?;
    if pools.contains(&id) {
        return done(format!("data pool {id} is already on fs {name}"));
    }
    if pools.len() >= DATA_POOLS_COUNT_MAX {
        return fail(Errno::EINVAL, format!("a file system has {DATA_POOLS_COUNT_MAX} data pools at most"));
    }
    if let Some(pool) = call.state.osd.change_pool(id) {
        tag_pool(pool, "data", &name);
    }
    call.state.fs.update(call.wall, |change| change.fs(fscid, |fs| fs.data_pools.push(id)));
    done(format!("added data pool {id} to fsmap"))
}

fn rm_data_pool(call: &mut Call<'_>) -> Answer {
    let [name, pool] = ["fs_name", "pool"].map(|key| call.args.text(key).to_owned());
    let fs = found(call, &name)?;
    let (fscid, pools) = (fs.fscid, fs.mds_map.data_pools.clone());
    let id = pool_or_id(call, &pool)?;
    if pools.first() == Some(&id) {
        return fail(Errno::EINVAL, "cannot remove default data pool");
    }
    // It may have been removed by an earlier try.
    if !pools.contains(&id) {
        return done("");
    }
    call.state.fs.update(call.wall, |change| change.fs(fscid, |fs| fs.data_pools.retain(|pool| *pool != id)));
    done(format!("removed data pool {id} from fsmap"))
}

fn compat(call: &mut Call<'_>) -> Answer {
    let [name, order, title] = ["fs_name", "subop", "feature_str"].map(|key| call.args.text(key).to_owned());
    let fs = found(call, &name)?;
    let (fscid, mut compat) = (fs.fscid, fs.mds_map.compat.clone());
    let feature = call.args.int("feature").and_then(|feature| u64::try_from(feature).ok());
    let Some(feature) = feature.filter(|feature| (1..64).contains(feature)) else {
        return fail(Errno::EINVAL, "a feature has a number from 1 to 63");
    };
    if !fs.mds_map.up.is_empty() {
        let text = format!("filesystem '{name}' has metadata servers: 'ceph fs fail {name}' gives them up");
        return fail(Errno::EBUSY, text);
    }
    let said = change_compat(&mut compat, &order, feature, title)?;
    call.state.fs.update(call.wall, |change| change.fs(fscid, |fs| fs.compat = compat));
    done(said)
}

fn change_compat(compat: &mut Compat, order: &str, feature: u64, title: String) -> Result<String, Failure> {
    let (verb, kind) = order.split_once('_').unwrap_or((order, ""));
    let held = if kind == "incompat" { &mut compat.incompat } else { &mut compat.compat };
    if verb == "rm" {
        let was = if held.remove(&feature).is_some() { "removed" } else { "already removed" };
        return Ok(format!("{was} {kind} feature {feature}"));
    }
    if title.is_empty() || title.len() > FEATURE_BYTES_MAX {
        return fail(
            Errno::EINVAL,
            format!("a feature to be added has a name of 1 to {FEATURE_BYTES_MAX} bytes"),
        );
    }
    match held.get(&feature) {
        Some(known) if *known == title => Ok("feature already exists".to_owned()),
        Some(known) => fail(Errno::EEXIST, format!("feature {feature} is named '{known}' there")),
        None => {
            held.insert(feature, title.clone());
            Ok(format!("added {kind} feature {feature} '{title}'"))
        }
    }
}

/// The bit of a client feature, by its name or its number.
fn feature_bit(text: &str) -> Result<usize, Failure> {
    let named = |name: &str| name == text && name != "reserved";
    if let Some(bit) = show::CLIENT_FEATURES.iter().position(|name| named(name)) {
        return Ok(bit);
    }
    match text.parse::<usize>() {
        Ok(bit) if bit < show::CLIENT_FEATURES.len() => Ok(bit),
        Ok(bit) => fail(Errno::EINVAL, format!("Invalid feature id: {bit}")),
        Err(_) => fail(Errno::EINVAL, format!("Invalid feature name: {text}")),
    }
}

/// Sets or clears a bit in whole words, as Ceph's `feature_bitset_t` is kept; false when it was so already.
fn set_bit(bytes: &mut Vec<u8>, bit: usize, on: bool) -> bool {
    const WORD_BYTES: usize = 8;
    let (at, mask) = (bit / 8, 1_u8 << (bit % 8));
    let was_on = bytes.get(at).is_some_and(|byte| byte & mask != 0);
    if on {
        let words = bytes.len().max(at + 1).div_ceil(WORD_BYTES);
        bytes.resize(words * WORD_BYTES, 0);
    }
    if let Some(byte) = bytes.get_mut(at) {
        *byte = if on { *byte | mask } else { *byte & !mask };
    }
    while bytes.len() >= WORD_BYTES && bytes.iter().rev().take(WORD_BYTES).all(|byte| *byte == 0) {
        bytes.truncate(bytes.len() - WORD_BYTES);
    }
    was_on != on
}

/// The bytes of a map that requires these client features.
pub(super) fn feature_bytes(bits: &[usize]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for bit in bits {
        set_bit(&mut bytes, *bit, true);
    }
    bytes
}

fn required_client_features(call: &mut Call<'_>) -> Answer {
    let [name, order, value] = ["fs_name", "subop", "val"].map(|key| call.args.text(key).to_owned());
    let fs = found(call, &name)?;
    let (fscid, mut bytes) = (fs.fscid, fs.mds_map.required_client_features.clone());
    let bit = feature_bit(&value)?;
    let feature = show::CLIENT_FEATURES.get(bit).copied().unwrap_or_default();
    let on = order == "add";
    if !set_bit(&mut bytes, bit, on) {
        let state = if on { "set" } else { "unset" };
        return done(format!("feature '{feature}' is already {state}"));
    }
    call.state.fs.update(call.wall, |change| change.fs(fscid, |fs| fs.required_client_features = bytes));
    let (did, where_) = if on { ("added", "to") } else { ("removed", "from") };
    done(format!("{did} feature '{feature}' {where_} required_client_features"))
}
