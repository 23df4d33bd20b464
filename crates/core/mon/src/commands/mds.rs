//! Metadata servers: what they are, and orders about them.

use super::call::{Answer, Call, Failure, done, fail, refuse};
use super::daemons::count_values;
use super::fs::visible;
use super::show;
use super::table::{Command, command};
use nacre_format::{Node, Section};
use nacre_maps::{FsMap, RoleError, mds_flag};
use nacre_msg::LogPriority;
use nacre_types::Errno;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const COMMANDS: &[Command] = &[
    command("mds stat", "mds", "r", "Summary of the metadata servers", stat),
    command(
        "mds metadata name=who,type=CephString,req=false",
        "mds",
        "r",
        "What metadata servers say of themselves",
        metadata,
    ),
    command(
        "mds count-metadata name=property,type=CephString",
        "mds",
        "r",
        "Metadata servers by value of one metadata key",
        count_metadata,
    ),
    command("mds versions", "mds", "r", "Versions of metadata servers", versions),
    command(
        "mds ok-to-stop name=ids,type=CephString,n=N",
        "mds",
        "r",
        "Whether others can take over when these metadata servers stop",
        ok_to_stop,
    ),
    command(
        "mds fail name=role_or_gid,type=CephString",
        "mds",
        "rw",
        "Give up a metadata server, by rank, gid or name",
        fail_server,
    ),
    command(
        "mds repaired name=role,type=CephString",
        "mds",
        "rw",
        "Say that a rank can be used again",
        repaired,
    ),
    command(
        "mds rm name=gid,type=CephInt,range=0",
        "mds",
        "rw",
        "Remove a metadata server without a rank",
        rm,
    ),
    command(
        "mds rmfailed name=role,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false",
        "mds",
        "rw",
        "Forget that a rank has failed",
        rm_failed,
    ),
    command(
        "mds freeze name=role_or_gid,type=CephString name=val,type=CephString",
        "mds",
        "rw",
        "Keep a metadata server from being replaced and promoted",
        freeze,
    ),
    command("mds compat show", "mds", "r", "On-disk features of new file systems", compat_show),
    command(
        "mds compat rm_compat name=feature,type=CephInt,range=0",
        "mds",
        "rw",
        "Take a compatible feature from new file systems",
        rm_compat,
    ),
    command(
        "mds compat rm_incompat name=feature,type=CephInt,range=0",
        "mds",
        "rw",
        "Take an incompatible feature from new file systems",
        rm_incompat,
    ),
];

/// Reads one of the words that say yes or no.
pub(super) fn truth(text: &str) -> Result<bool, Failure> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "1" => Ok(true),
        "false" | "no" | "0" => Ok(false),
        _ => fail(Errno::EINVAL, format!("'{text}' is no truth value: write false|no|0 or true|yes|1")),
    }
}

fn stat(call: &mut Call<'_>) -> Answer {
    let map = visible(call);
    let tree = Section::new()
        .with("fsmap", show::fs_map(&map))
        .with("mdsmap_first_committed", map.epoch)
        .with("mdsmap_last_committed", map.epoch);
    call.either("mds_stat", show::fs_summary_text(&map), tree)
}

/// The server that is meant by a rank, a gid or a name.
fn server_of(map: &FsMap, text: &str) -> Option<u64> {
    let by_role = map
        .role(text)
        .ok()
        .and_then(|role| map.file_system(role.fscid)?.mds_map.holder(role.rank).map(|info| info.global_id));
    let by_gid = || text.parse().ok().filter(|gid| map.server(*gid).is_some());
    let by_name = || map.server_by_name(text).map(|info| info.global_id);
    by_role.or_else(by_gid).or_else(by_name)
}

/// What all servers say of themselves, by name.
pub(super) fn all_metadata(call: &Call<'_>) -> Vec<(String, BTreeMap<String, String>)> {
    let said = |gid: u64| call.state.fs.metadata(gid).cloned().unwrap_or_default();
    visible(call).servers().map(|info| (info.name.clone(), said(info.global_id))).collect()
}

/// One key of the servers' metadata, of each of them.
pub(super) fn values(call: &Call<'_>, key: &str) -> Vec<String> {
    let all = all_metadata(call).into_iter();
    all.map(|(_, mut said)| said.remove(key).unwrap_or_else(|| "unknown".to_owned())).collect()
}

fn metadata(call: &mut Call<'_>) -> Answer {
    if let Some(who) = call.args.text_opt("who") {
        let map = visible(call);
        let Some(gid) = server_of(&map, who) else {
            return fail(Errno::EINVAL, format!("MDS named '{who}' does not exist, or is not up"));
        };
        let said = call.state.fs.metadata(gid).cloned();
        let said =
            said.ok_or_else(|| refuse(Errno::ENOENT, format!("mds '{who}' has said nothing of itself")));
        return call.tree("mds_metadata", said?.into_iter().collect::<Section>());
    }
    let named = |(name, said): (String, BTreeMap<String, String>)| {
        let mut section = Section::new().with("name", name);
        section.extend(said.into_iter().collect());
        section
    };
    call.tree("mds_metadata", Node::array("mds", all_metadata(call).into_iter().map(named)))
}

fn count_metadata(call: &mut Call<'_>) -> Answer {
    let property = call.args.text("property").to_owned();
    call.tree(&property, count_values(values(call, &property).into_iter()))
}

fn versions(call: &mut Call<'_>) -> Answer {
    call.tree("ceph_version", count_values(values(call, "ceph_version").into_iter()))
}

fn ok_to_stop(call: &mut Call<'_>) -> Answer {
    let map = visible(call);
    if map.is_any_degraded() {
        return fail(Errno::EBUSY, "one or more filesystems is currently degraded");
    }
    // One that is not there is missed by nobody.
    let ids = call.args.list("ids");
    let stopping: BTreeSet<u64> = ids.iter().filter_map(|id| server_of(&map, id)).collect();
    let mut active = BTreeSet::new();
    let mut standby = BTreeSet::new();
    for info in stopping.iter().filter_map(|gid| map.server(*gid)) {
        if info.rank < 0 {
            standby.insert(info.global_id);
        } else if info.holds_rank() {
            let follower = map.file_system_of(info.global_id).and_then(|fs| fs.mds_map.follower(info.rank));
            if follower.is_none_or(|follower| stopping.contains(&follower.global_id)) {
                active.insert(info.global_id);
            }
        }
    }
    if map.standby_daemons.len() - standby.len() < active.len() {
        let shown = |gids: &BTreeSet<u64>| gids.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let text = format!(
            "too few standbys are left to take over: of those that would stop {} hold ranks (gids {}) and {} wait (gids {})",
            active.len(),
            shown(&active),
            standby.len(),
            shown(&standby)
        );
        return fail(Errno::EBUSY, text);
    }
    done(format!("should be safe to stop [{}]", ids.join(",")))
}

/// One that is not there may have been given up by an earlier try.
fn fail_server(call: &mut Call<'_>) -> Answer {
    let who = call.args.text("role_or_gid").to_owned();
    let Some(gid) = server_of(&visible(call), &who) else {
        return done(format!("there is no MDS '{who}', already failed?"));
    };
    let name = call.state.fs.map().server(gid).map(|info| info.name.clone()).unwrap_or_default();
    call.state.give_up_mds(gid, call.wall);
    let text = format!("daemon mds.{name} marked failed by {}", call.identity.auth_name);
    call.state.clog(LogPriority::INFO, call.wall, text);
    done(format!("failed mds gid {gid}"))
}

fn role_failure(error: &RoleError) -> Failure {
    let errno = match error {
        RoleError::Rank(_) => Errno::EINVAL,
        RoleError::NoDefault | RoleError::FileSystem | RoleError::NoRank(_) => Errno::ENOENT,
    };
    refuse(errno, error.to_string())
}

fn repaired(call: &mut Call<'_>) -> Answer {
    let role = visible(call).role(call.args.text("role")).map_err(|error| role_failure(&error))?;
    let is_damaged =
        call.state.fs.map().file_system(role.fscid).is_some_and(|fs| fs.mds_map.damaged.contains(&role.rank));
    if !is_damaged {
        return done("nothing to do: rank is not damaged");
    }
    call.state.fs.update(call.wall, |change| change.repair(role));
    done(format!("repaired: restoring rank {}:{}", role.fscid, role.rank))
}

fn rm(call: &mut Call<'_>) -> Answer {
    let gid = call.args.int("gid").and_then(|gid| u64::try_from(gid).ok()).unwrap_or(0);
    let map = visible(call);
    let Some(info) = map.server(gid) else { return done(format!("mds gid {gid} does not exist")) };
    if info.state > 0 {
        return fail(
            Errno::EBUSY,
            format!("mds.{} holds rank {}: 'ceph mds fail {gid}' gives it up", info.name, info.rank),
        );
    }
    call.state.give_up_mds(gid, call.wall);
    done(format!("removed mds gid {gid}"))
}

fn rm_failed(call: &mut Call<'_>) -> Answer {
    if !call.args.flag("yes_i_really_mean_it") {
        return fail(
            Errno::EPERM,
            "the file system may become inaccessible by that; pass --yes-i-really-mean-it to forget the failed rank",
        );
    }
    let text = call.args.text("role").to_owned();
    let role = visible(call).role(&text);
    let role = role.map_err(|error| refuse(Errno::EINVAL, format!("invalid role '{text}': {error}")))?;
    call.state.fs.update(call.wall, |change| {
        change.fs(role.fscid, |fs| {
            fs.failed.remove(&role.rank);
        });
    });
    done(format!("removed failed mds.{}:{}", role.fscid, role.rank))
}

fn freeze(call: &mut Call<'_>) -> Answer {
    let who = call.args.text("role_or_gid").to_owned();
    let Some(gid) = server_of(&visible(call), &who) else {
        return fail(Errno::EINVAL, format!("MDS named '{who}' does not exist, or is not up"));
    };
    let on = truth(call.args.text("val"))?;
    call.state.fs.update(call.wall, |change| {
        change.server(gid, |info| match on {
            true => info.flags |= mds_flag::FROZEN,
            false => info.flags &= !mds_flag::FROZEN,
        });
    });
    done(format!("{} mds.{gid}", if on { "freezing" } else { "unfreezing" }))
}

fn compat_show(call: &mut Call<'_>) -> Answer {
    let compat = &call.state.fs.map().default_compat;
    call.either("mds_compat", show::compat_text(compat), show::compat(compat))
}

fn rm_compat(call: &mut Call<'_>) -> Answer {
    rm_feature(call, false)
}

fn rm_incompat(call: &mut Call<'_>) -> Answer {
    rm_feature(call, true)
}

fn rm_feature(call: &mut Call<'_>, is_incompat: bool) -> Answer {
    let feature = call.args.int("feature").and_then(|feature| u64::try_from(feature).ok()).unwrap_or(0);
    let kind = if is_incompat { "incompat" } else { "compat" };
    let compat = &call.state.fs.map().default_compat;
    let held = if is_incompat { &compat.incompat } else { &compat.compat };
    if !held.contains_key(&feature) {
        return done(format!("{kind} feature {feature} not present in {}", show::compat_text(compat)));
    }
    call.state.fs.update(call.wall, |change| {
        let compat = &mut change.map.default_compat;
        let held = if is_incompat { &mut compat.incompat } else { &mut compat.compat };
        held.remove(&feature);
    });
    done(format!("removing {kind} feature {feature}"))
}
