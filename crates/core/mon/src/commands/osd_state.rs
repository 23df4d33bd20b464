//! The state of OSDs and of the whole map: out, in, down, weights, flags.

use super::call::{Answer, Call, Failure, done, fail, refuse};
use super::osd_read::existing;
use super::show::{fraction, release_name};
use super::signature::osd_id;
use super::table::{Command, command};
use nacre_format::general;
use nacre_maps::{OsdMap, WEIGHT_ONE, flags};
use nacre_types::{Errno, OsdId, features};

pub(super) const COMMANDS: &[Command] = &[
    command("osd out name=ids,type=CephString,n=N", "osd", "rw", "Take OSDs out: their data moves away", out),
    command("osd in name=ids,type=CephString,n=N", "osd", "rw", "Take OSDs in again", put_in),
    command(
        "osd down name=ids,type=CephString,n=N name=definitely_dead,type=CephBool,req=false",
        "osd",
        "rw",
        "Mark OSDs down",
        down,
    ),
    command(
        "osd reweight name=id,type=CephOsdName name=weight,type=CephFloat,range=0.0|1.0",
        "osd",
        "rw",
        "Give an OSD a share of its data, 0 to 1",
        reweight,
    ),
    command(
        "osd primary-affinity name=id,type=CephOsdName name=weight,type=CephFloat,range=0.0|1.0",
        "osd",
        "rw",
        "Give an OSD a share of the primaries, 0 to 1",
        primary_affinity,
    ),
    command(
        "osd set name=key,type=CephChoices,strings=full|pause|noup|nodown|noout|noin|nobackfill|norebalance|norecover|noscrub|nodeep-scrub|notieragent|nosnaptrim|pglog_hardlimit name=yes_i_really_mean_it,type=CephBool,req=false",
        "osd",
        "rw",
        "Set a flag of the map",
        set,
    ),
    command(
        "osd unset name=key,type=CephChoices,strings=full|pause|noup|nodown|noout|noin|nobackfill|norebalance|norecover|noscrub|nodeep-scrub|notieragent|nosnaptrim",
        "osd",
        "rw",
        "Clear a flag of the map",
        unset,
    ),
    command("osd pause", "osd", "rw", "Stop client I/O", pause),
    command("osd unpause", "osd", "rw", "Let client I/O go on", unpause),
    command(
        "osd set-group name=flags,type=CephString name=who,type=CephString,n=N",
        "osd",
        "rw",
        "Set flags of OSDs, buckets or device classes",
        set_group,
    ),
    command(
        "osd unset-group name=flags,type=CephString name=who,type=CephString,n=N",
        "osd",
        "rw",
        "Clear flags of OSDs, buckets or device classes",
        unset_group,
    ),
    command(
        "osd set-full-ratio name=ratio,type=CephFloat,range=0.0|1.0",
        "osd",
        "rw",
        "Share of use from which OSDs are full",
        full_ratio,
    ),
    command(
        "osd set-backfillfull-ratio name=ratio,type=CephFloat,range=0.0|1.0",
        "osd",
        "rw",
        "Share of use from which OSDs take no backfill",
        backfillfull_ratio,
    ),
    command(
        "osd set-nearfull-ratio name=ratio,type=CephFloat,range=0.0|1.0",
        "osd",
        "rw",
        "Share of use from which OSDs are nearly full",
        nearfull_ratio,
    ),
    command(
        "osd require-osd-release name=release,type=CephChoices,strings=luminous|mimic|nautilus|octopus|pacific name=yes_i_really_mean_it,type=CephBool,req=false",
        "osd",
        "rw",
        "Oldest release of OSDs that may boot",
        require_osd_release,
    ),
    command(
        "osd set-require-min-compat-client name=version,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false",
        "osd",
        "rw",
        "Oldest client release that may connect",
        require_min_compat_client,
    ),
];

/// The OSDs that the words name; `all` and its like stand for every one.
pub(super) fn named_osds(map: &OsdMap, words: &[String]) -> Result<Vec<OsdId>, Failure> {
    if words.iter().any(|word| ["any", "all", "*"].contains(&word.as_str())) {
        return Ok(map.osds().collect());
    }
    let parse = |word: &String| {
        let wrong = || format!("'{word}' names no OSD: a number or osd.N is wanted");
        osd_id(word).ok_or_else(|| refuse(Errno::EINVAL, wrong()))
    };
    words.iter().map(parse).collect()
}

/// Does `act` for each OSD named; it returns what was done, or `None` when that already was so.
fn each(
    call: &mut Call<'_>,
    already: &str,
    mut act: impl FnMut(&mut Call<'_>, OsdId) -> Option<String>,
) -> Answer {
    let words = call.args.list("ids").to_vec();
    let mut text = String::new();
    for osd in named_osds(call.state.osd.upcoming(), &words)? {
        if !call.state.osd.upcoming().exists(osd) {
            text.push_str(&format!("osd.{osd} does not exist. "));
            continue;
        }
        match act(call, osd) {
            Some(done) => text.push_str(&format!("{done} osd.{osd}. ")),
            None => text.push_str(&format!("osd.{osd} is already {already}. ")),
        }
    }
    done(text)
}

/// Sets or clears state bits of an OSD in the next epoch.
pub(super) fn set_state(call: &mut Call<'_>, osd: OsdId, bits: u32, on: bool) {
    let held = call.state.osd.upcoming().state(osd) & bits;
    let flip = if on { bits & !held } else { held };
    if flip != 0 {
        *call.state.osd.change().new_state.entry(osd).or_default() ^= flip;
    }
}

fn out(call: &mut Call<'_>) -> Answer {
    each(call, "out", |call, osd| {
        call.state.slow_osds.operator_put_out(osd);
        let map = call.state.osd.upcoming();
        if !map.is_in(osd) {
            return None;
        }
        let (weight, mut xinfo) = (map.weight(osd), map.xinfo(osd));
        let change = call.state.osd.change();
        change.new_weight.insert(osd, 0);
        if weight != WEIGHT_ONE {
            xinfo.old_weight = weight;
            change.new_xinfo.insert(osd, xinfo);
        }
        Some("marked out".to_owned())
    })
}

fn put_in(call: &mut Call<'_>) -> Answer {
    each(call, "in", |call, osd| {
        let map = call.state.osd.upcoming();
        if map.is_in(osd) {
            return None;
        }
        let mut xinfo = map.xinfo(osd);
        let weight = if xinfo.old_weight > 0 { xinfo.old_weight } else { WEIGHT_ONE };
        let remembered = std::mem::take(&mut xinfo.old_weight) > 0;
        let change = call.state.osd.change();
        change.new_weight.insert(osd, weight);
        if remembered {
            change.new_xinfo.insert(osd, xinfo);
        }
        set_state(call, osd, flags::osd::AUTOOUT | flags::osd::NEW, false);
        Some("marked in".to_owned())
    })
}

/// With the flag the operator vouches for it that the processes are gone: their leases are not waited for.
fn down(call: &mut Call<'_>) -> Answer {
    let dead = call.args.flag("definitely_dead");
    each(call, "down", move |call, osd| {
        let wall = call.wall;
        if !call.state.osd.upcoming().is_up(osd) {
            return None;
        }
        call.state.osd.mark_down(osd, wall);
        if dead {
            call.state.osd.mark_dead(osd);
        }
        Some(if dead { "marked down, and dead" } else { "marked down" }.to_owned())
    })
}

/// A share of 0 to 1 as the map keeps it.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the argument's range is 0 to 1")]
fn fixed_point(share: f64) -> u32 {
    (share.clamp(0.0, 1.0) * f64::from(WEIGHT_ONE)) as u32
}

fn reweight(call: &mut Call<'_>) -> Answer {
    let share = call.args.float("weight").unwrap_or(1.0);
    let id = call.args.int("id");
    let osd = existing(call.state.osd.upcoming(), id)?;
    let weight = fixed_point(share);
    if weight == 0 {
        call.state.slow_osds.operator_put_out(osd);
    }
    if call.state.osd.upcoming().weight(osd) != weight {
        call.state.osd.change().new_weight.insert(osd, weight);
    }
    done(format!("reweighted osd.{osd} to {} ({weight:x})", general(share, 6)))
}

fn primary_affinity(call: &mut Call<'_>) -> Answer {
    let share = call.args.float("weight").unwrap_or(1.0);
    let id = call.args.int("id");
    let osd = existing(call.state.osd.upcoming(), id)?;
    let affinity = fixed_point(share);
    if call.state.osd.upcoming().primary_affinity(osd) != affinity {
        call.state.osd.change().new_primary_affinity.insert(osd, affinity);
    }
    call.state.slow_osds.operator_has_set(osd, call.wall);
    call.state.primaries.operator_has_set(osd);
    done(format!("set osd.{osd} primary-affinity to {} ({affinity:x})", general(fraction(affinity), 6)))
}

/// The bits of a flag that `osd set` takes.
fn flag_bits(key: &str) -> Result<u32, Failure> {
    if key == "pause" {
        return Ok(flags::osdmap::PAUSE_READ | flags::osdmap::PAUSE_WRITE);
    }
    let found = flags::osdmap::NAMES.iter().find(|(_, name)| *name == key).map(|(bit, _)| *bit);
    found.ok_or_else(|| refuse(Errno::EINVAL, format!("unrecognized flag '{key}'")))
}

fn change_flag(call: &mut Call<'_>, key: &str, on: bool) -> Answer {
    let bits = flag_bits(key)?;
    let held = call.state.osd.upcoming().flags;
    let wanted = if on { held | bits } else { held & !bits };
    if wanted != held {
        call.state.osd.change().new_flags = wanted.cast_signed();
    }
    let names = flags::join(bits, flags::osdmap::NAMES);
    done(format!("{names} is {}", if on { "set" } else { "unset" }))
}

fn set(call: &mut Call<'_>) -> Answer {
    let key = call.args.text("key").to_owned();
    change_flag(call, &key, true)
}

fn unset(call: &mut Call<'_>) -> Answer {
    let key = call.args.text("key").to_owned();
    change_flag(call, &key, false)
}

fn pause(call: &mut Call<'_>) -> Answer {
    change_flag(call, "pause", true)
}

fn unpause(call: &mut Call<'_>) -> Answer {
    change_flag(call, "pause", false)
}

fn group_bits(text: &str) -> Result<u32, Failure> {
    let names = [
        ("noup", flags::osd::NOUP),
        ("nodown", flags::osd::NODOWN),
        ("noin", flags::osd::NOIN),
        ("noout", flags::osd::NOOUT),
    ];
    text.split([',', ' ']).filter(|word| !word.is_empty()).try_fold(0, |bits, word| {
        let found = names.iter().find(|(name, _)| *name == word).map(|(_, bit)| bits | bit);
        let text = format!("unrecognized flag '{word}', must be one of {{noup,nodown,noin,noout}}");
        found.ok_or_else(|| refuse(Errno::EINVAL, text))
    })
}

fn toggled(held: u32, bits: u32, on: bool) -> u32 {
    if on { held | bits } else { held & !bits }
}

fn change_group(call: &mut Call<'_>, on: bool) -> Answer {
    let bits = group_bits(call.args.text("flags"))?;
    let mut text = String::new();
    for who in call.args.list("who").to_vec() {
        let map = call.state.osd.upcoming();
        let class = map.crush.class_by_name(&who);
        let node = map.crush.item_by_name(&who).filter(|id| *id < 0);
        if let Some(node) = node {
            let held = map.crush_node_flags.get(&node).copied().unwrap_or(0);
            call.state.osd.change().new_crush_node_flags.insert(node, toggled(held, bits, on));
        } else if let Some(class) = class {
            let held = map.device_class_flags.get(&class).copied().unwrap_or(0);
            call.state.osd.change().new_device_class_flags.insert(class, toggled(held, bits, on));
        } else {
            for osd in named_osds(map, std::slice::from_ref(&who))? {
                if call.state.osd.upcoming().exists(osd) {
                    set_state(call, osd, bits, on);
                } else {
                    text.push_str(&format!("osd.{osd} does not exist. "));
                }
            }
        }
    }
    done(text)
}

fn set_group(call: &mut Call<'_>) -> Answer {
    change_group(call, true)
}

fn unset_group(call: &mut Call<'_>) -> Answer {
    change_group(call, false)
}

#[expect(clippy::cast_possible_truncation, reason = "the map keeps ratios as 32-bit floats")]
fn ratio(call: &Call<'_>) -> f32 {
    call.args.float("ratio").unwrap_or(1.0) as f32
}

fn full_ratio(call: &mut Call<'_>) -> Answer {
    let ratio = ratio(call);
    call.state.osd.change().new_full_ratio = ratio;
    done(format!("osd set-full-ratio {}", general(f64::from(ratio), 6)))
}

fn backfillfull_ratio(call: &mut Call<'_>) -> Answer {
    let ratio = ratio(call);
    call.state.osd.change().new_backfillfull_ratio = ratio;
    done(format!("osd set-backfillfull-ratio {}", general(f64::from(ratio), 6)))
}

fn nearfull_ratio(call: &mut Call<'_>) -> Answer {
    let ratio = ratio(call);
    call.state.osd.change().new_nearfull_ratio = ratio;
    done(format!("osd set-nearfull-ratio {}", general(f64::from(ratio), 6)))
}

/// Number of a release by its name.
fn release(name: &str) -> Option<u8> {
    (1..=nacre_maps::RELEASE_PACIFIC).find(|release| release_name(*release) == name)
}

fn require_osd_release(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("release").to_owned();
    let held = call.state.osd.upcoming().require_osd_release;
    match release(&name) {
        Some(release) if release < held => fail(Errno::EPERM, "require_osd_release only goes up"),
        Some(release) if release == held => done(""),
        Some(release) => {
            let sure = call.args.flag("yes_i_really_mean_it");
            let map = call.state.osd.upcoming();
            if !sure && map.up_count() == 0 {
                let text = "no OSD is up, so none shows that it is of that release; --yes-i-really-mean-it sets it nevertheless";
                return fail(Errno::EPERM, text);
            }
            let wanted = features::of_release(release).unwrap_or(0);
            let older = map.up_osds().find(|osd| map.xinfo(*osd).features & wanted != wanted);
            if let Some(osd) = older.filter(|_| !sure) {
                let text = format!(
                    "osd.{osd} is up and lacks the features of {name}; --yes-i-really-mean-it sets it nevertheless"
                );
                return fail(Errno::EPERM, text);
            }
            call.state.osd.change().new_require_osd_release = release;
            done("")
        }
        None => fail(Errno::EINVAL, format!("not supported for this release {name}")),
    }
}

fn require_min_compat_client(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("version").to_owned();
    let Some(release) = release(&name) else {
        return fail(Errno::EINVAL, format!("version {name} is not recognized"));
    };
    if call.state.osd.upcoming().require_min_compat_client != release {
        call.state.osd.change().new_require_min_compat_client = release;
    }
    done(format!("set require_min_compat_client to {name}"))
}
