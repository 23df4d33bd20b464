//! `fs set`: the settings of one file system.

use super::call::{Answer, Call, Failure, done, fail, refuse};
use super::fs::found;
use super::fs_change::{feature_bytes, give_up_servers};
use super::mds::truth;
use super::table::{Command, command};
use crate::fsmap::RANKS_COUNT_MAX;
use nacre_maps::{MdsMap, fs_flag};
use nacre_msg::mds_state;
use nacre_types::Errno;

pub(super) const COMMANDS: &[Command] = &[command(
    "fs set name=fs_name,type=CephString name=var,type=CephChoices,strings=max_mds|max_file_size|allow_new_snaps|inline_data|cluster_down|allow_dirfrags|balancer|standby_count_wanted|session_timeout|session_autoclose|allow_standby_replay|down|joinable|min_compat_client name=val,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false name=yes_i_really_really_mean_it,type=CephBool,req=false",
    "mds",
    "rw",
    "Change a setting of a file system",
    set,
)];

/// Least size of the largest file.
const FILE_BYTES_MIN: u64 = 65_536;
/// Least time that a silent client keeps its session.
const SESSION_S_MIN: u32 = 30;
/// Longest name of a balancer's object.
const BALANCER_BYTES_MAX: usize = 1024;

/// A change of the map, and what is said of it.
type Edit = (Box<dyn FnOnce(&mut MdsMap)>, String);

fn edit(edit: impl FnOnce(&mut MdsMap) + 'static, text: impl Into<String>) -> Result<Edit, Failure> {
    Ok((Box::new(edit), text.into()))
}

fn number<T: std::str::FromStr>(var: &str, value: &str) -> Result<T, Failure> {
    value.parse().map_err(|_| refuse(Errno::EINVAL, format!("{var} is a whole number, not '{value}'")))
}

fn set(call: &mut Call<'_>) -> Answer {
    let [name, var, value] = ["fs_name", "var", "val"].map(|key| call.args.text(key).to_owned());
    let fs = found(call, &name)?;
    let (fscid, map) = (fs.fscid, fs.mds_map.clone());
    let (edit, text) = match var.as_str() {
        "max_mds" => max_mds(&value)?,
        "inline_data" => inline_data(&value, call.args.flag("yes_i_really_really_mean_it"))?,
        "balancer" => balancer(value)?,
        "max_file_size" => max_file_size(&value)?,
        "allow_new_snaps" => new_snaps(truth(&value)?)?,
        "allow_dirfrags" => return done("directories are always split into fragments as they grow"),
        "down" => down(&map, truth(&value)?)?,
        "joinable" => joinable(&name, truth(&value)?)?,
        "cluster_down" => joinable(&name, !truth(&value)?)?,
        "standby_count_wanted" => standbys_wanted(&value)?,
        "session_timeout" | "session_autoclose" => session_time(var.clone(), &value)?,
        "allow_standby_replay" => standby_replay(call, fscid, truth(&value)?)?,
        _ => min_compat_client(&value)?,
    };
    call.state.fs.update(call.wall, |change| change.fs(fscid, edit));
    done(text)
}

fn max_mds(value: &str) -> Result<Edit, Failure> {
    let count: i32 = number("max_mds", value)?;
    if !(1..=RANKS_COUNT_MAX).contains(&count) {
        return fail(Errno::EINVAL, format!("a file system has 1 to {RANKS_COUNT_MAX} ranks"));
    }
    edit(
        move |fs| {
            fs.set_flag(fs_flag::NOT_JOINABLE, false);
            fs.max_mds = count;
        },
        "",
    )
}

fn inline_data(value: &str, sure: bool) -> Result<Edit, Failure> {
    let on = truth(value)?;
    if on && !sure {
        return fail(
            Errno::EPERM,
            "later releases do not keep data in inodes any more; pass --yes-i-really-really-mean-it to do it all the same",
        );
    }
    edit(
        move |fs| fs.inline_data_enabled = on,
        format!("inline data {}", if on { "enabled" } else { "disabled" }),
    )
}

fn balancer(value: String) -> Result<Edit, Failure> {
    if value.len() > BALANCER_BYTES_MAX {
        return fail(
            Errno::EINVAL,
            format!("the balancer's object has a name of {BALANCER_BYTES_MAX} bytes at most"),
        );
    }
    let text = match value.as_str() {
        "" => "unsetting the metadata load balancer".to_owned(),
        name => format!("setting the metadata load balancer to {name}"),
    };
    edit(move |fs| fs.balancer = value, text)
}

fn max_file_size(value: &str) -> Result<Edit, Failure> {
    let bytes: u64 = number("max_file_size", value)?;
    if bytes < FILE_BYTES_MIN {
        return fail(Errno::ERANGE, format!("max_file_size is at least {FILE_BYTES_MIN}"));
    }
    edit(move |fs| fs.max_file_size = bytes, "")
}

/// Marks that were kept of times when snapshots were not ready. The low bits of the flags fit.
fn mark_allowed(fs: &mut MdsMap, flag: u32) {
    let mark = u8::try_from(flag).unwrap_or(0);
    fs.ever_allowed_features |= mark;
    fs.explicitly_allowed_features |= mark;
}

fn new_snaps(on: bool) -> Result<Edit, Failure> {
    edit(
        move |fs| {
            fs.set_flag(fs_flag::ALLOW_SNAPS, on);
            if on {
                mark_allowed(fs, fs_flag::ALLOW_SNAPS);
            }
        },
        format!("{} new snapshots", if on { "enabled" } else { "disabled" }),
    )
}

fn down(map: &MdsMap, is_down: bool) -> Result<Edit, Failure> {
    let name = &map.fs_name;
    if is_down {
        return edit(
            |fs| {
                if fs.max_mds > 0 {
                    fs.old_max_mds = std::mem::take(&mut fs.max_mds);
                }
            },
            format!("{name} marked down. "),
        );
    }
    let count = map.old_max_mds.max(1);
    edit(move |fs| fs.max_mds = count, format!("{name} marked up, max_mds = {count}"))
}

fn joinable(name: &str, on: bool) -> Result<Edit, Failure> {
    let text = match on {
        true => format!("{name} marked joinable; MDS may join as newly active."),
        false => format!("{name} marked not joinable; MDS cannot join as newly active."),
    };
    edit(move |fs| fs.set_flag(fs_flag::NOT_JOINABLE, !on), text)
}

fn standbys_wanted(value: &str) -> Result<Edit, Failure> {
    let count: i32 = number("standby_count_wanted", value)?;
    if count < 0 {
        return fail(Errno::ERANGE, "standby_count_wanted is at least 0");
    }
    edit(move |fs| fs.standby_count_wanted = count, "")
}

fn session_time(var: String, value: &str) -> Result<Edit, Failure> {
    let seconds: u32 = number(&var, value)?;
    if seconds < SESSION_S_MIN {
        return fail(Errno::ERANGE, format!("{var} is at least {SESSION_S_MIN} seconds"));
    }
    edit(
        move |fs| match var.as_str() {
            "session_timeout" => fs.session_timeout = seconds,
            _ => fs.session_autoclose = seconds,
        },
        "",
    )
}

/// Servers that follow a rank wait again, or are started anew to do so, when they may not any more.
fn standby_replay(call: &mut Call<'_>, fscid: i32, on: bool) -> Result<Edit, Failure> {
    if !on {
        give_up_servers(call, fscid, |info| info.state == mds_state::STANDBY_REPLAY);
    }
    edit(
        move |fs| {
            fs.set_flag(fs_flag::ALLOW_STANDBY_REPLAY, on);
            if on {
                mark_allowed(fs, fs_flag::ALLOW_STANDBY_REPLAY);
            }
        },
        "",
    )
}

/// Releases by name, and the bit of the newest client feature that each has; none for those before Jewel.
fn min_compat_client(value: &str) -> Result<Edit, Failure> {
    let bits: &[usize] = match value {
        "argonaut" | "bobtail" | "cuttlefish" | "dumpling" | "emperor" | "firefly" | "giant" | "hammer"
        | "infernalis" => &[],
        "jewel" => &[5],
        "kraken" => &[6],
        "luminous" => &[7],
        "mimic" => &[8],
        "nautilus" => &[12],
        "octopus" | "pacific" => &[13],
        _ => return fail(Errno::EINVAL, format!("version {value} is not recognized")),
    };
    edit(
        move |fs| fs.required_client_features = feature_bytes(bits),
        "min_compat_client knows releases up to octopus: 'ceph fs required_client_features' names features one by one",
    )
}
