//! `ceph osd erasure-code-profile ...`: the profiles that pools and CRUSH rules are made by, and which of them are supported.

use super::call::{Answer, Call, Failure, done, fail};
use super::table::{Command, command};
use nacre_format::{Node, Section};
use nacre_types::Errno;
use std::collections::BTreeMap;

pub(super) const COMMANDS: &[Command] = &[
    command(
        "osd erasure-code-profile set name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=profile,type=CephString,n=N,req=false name=force,type=CephBool,req=false",
        "osd",
        "rw",
        "Keep an erasure-code profile",
        profile_set,
    ),
    command(
        "osd erasure-code-profile get name=name,type=CephString,goodchars=[A-Za-z0-9-_.]",
        "osd",
        "r",
        "One erasure-code profile",
        profile_get,
    ),
    command("osd erasure-code-profile ls", "osd", "r", "Names of the erasure-code profiles", profile_ls),
    command(
        "osd erasure-code-profile rm name=name,type=CephString,goodchars=[A-Za-z0-9-_.]",
        "osd",
        "rw",
        "Remove an erasure-code profile",
        profile_rm,
    ),
];

/// Keys of one profile.
const PROFILE_KEYS_MAX: usize = 64;
/// Profiles of a cluster.
const PROFILES_MAX: usize = 1024;

/// What a profile may say.
const PROFILE_KEYS: [&str; 10] = [
    "crush-device-class",
    "crush-failure-domain",
    "crush-root",
    "jerasure-per-chunk-alignment",
    "k",
    "m",
    "plugin",
    "stripe_unit",
    "technique",
    "w",
];

/// What a profile says when its owner leaves something out.
const PROFILE_DEFAULTS: [(&str, &str); 9] = [
    ("crush-device-class", ""),
    ("crush-failure-domain", "host"),
    ("crush-root", "default"),
    ("jerasure-per-chunk-alignment", "false"),
    ("k", "2"),
    ("m", "1"),
    ("plugin", "jerasure"),
    ("technique", "reed_sol_van"),
    ("w", "8"),
];

fn profile_text(profile: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = profile.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("{{{}}}", pairs.join(","))
}

/// Checks the parts of a profile that decide a pool's shape.
pub(super) fn check_profile(profile: &BTreeMap<String, String>) -> Result<(), Failure> {
    for (key, least) in [("k", 2), ("m", 1)] {
        let value = profile.get(key).map_or("", String::as_str);
        match value.parse::<u32>() {
            Err(_) => return fail(Errno::EINVAL, format!("could not convert {key}={value} to int")),
            Ok(number) if number < least || number > 32 => {
                return fail(Errno::EINVAL, format!("{key}={number} must be >= {least}"));
            }
            Ok(_) => {}
        }
    }
    let plugin = profile.get("plugin").map_or("", String::as_str);
    if !["jerasure", "isa"].contains(&plugin) {
        return fail(
            Errno::EINVAL,
            format!("erasure code plugin '{plugin}' is not supported, must be one of jerasure, isa"),
        );
    }
    let known = |key: &&String| PROFILE_KEYS.contains(&key.as_str());
    if let Some(key) = profile.keys().find(|key| !known(key)) {
        return fail(Errno::EINVAL, format!("{key} is not supported in an erasure code profile"));
    }
    for (key, only) in [("technique", "reed_sol_van"), ("w", "8"), ("jerasure-per-chunk-alignment", "false")]
    {
        if let Some(value) = profile.get(key).filter(|value| *value != only) {
            return fail(Errno::EINVAL, format!("{key}={value} is not supported, only {key}={only}"));
        }
    }
    let unit = profile.get("stripe_unit").map(|text| text.trim_end_matches('B'));
    let stripe_unit = nacre_maps::STRIPE_UNIT_BYTES.to_string();
    if unit.is_some_and(|unit| unit != stripe_unit && unit != "4K") {
        return fail(Errno::EINVAL, format!("stripe_unit must be {stripe_unit}"));
    }
    Ok(())
}

fn profile_set(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("name").to_owned();
    let words = call.args.list("profile").to_vec();
    let force = call.args.flag("force") || words.iter().any(|word| word == "--force");
    let mut profile: BTreeMap<String, String> =
        PROFILE_DEFAULTS.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    for word in words.iter().filter(|word| *word != "--force") {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        profile.insert(key.to_owned(), value.to_owned());
    }
    let profiles = &call.state.osd.upcoming().erasure_code_profiles;
    if profile.len() > PROFILE_KEYS_MAX || profiles.len() >= PROFILES_MAX {
        return fail(Errno::ENOSPC, "too many profiles or keys");
    }
    check_profile(&profile)?;
    match profiles.get(&name) {
        Some(held) if *held == profile => return done(""),
        Some(held) if !force => {
            let (held, wanted) = (profile_text(held), profile_text(&profile));
            let text = format!(
                "will not override erasure code profile {name} because the existing profile {held} is different from the proposed profile {wanted}"
            );
            return fail(Errno::EPERM, text);
        }
        _ => {}
    }
    let change = call.state.osd.change();
    change.old_erasure_code_profiles.retain(|old| *old != name);
    change.new_erasure_code_profiles.insert(name, profile);
    done("")
}

fn profile_get(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("name");
    let Some(profile) = call.state.osd.map().erasure_code_profiles.get(name) else {
        return fail(Errno::ENOENT, format!("unknown erasure code profile '{name}'"));
    };
    let plain: String = profile.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
    let tree: Section = profile.iter().map(|(key, value)| (key.clone(), value.as_str())).collect();
    call.either("profile", plain, tree)
}

fn profile_ls(call: &mut Call<'_>) -> Answer {
    let profiles = &call.state.osd.map().erasure_code_profiles;
    let plain: String = profiles.keys().map(|name| format!("{name}\n")).collect();
    call.either("erasure-code-profiles", plain, Node::array("profile", profiles.keys()))
}

fn profile_rm(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("name").to_owned();
    let map = call.state.osd.upcoming();
    if let Some((id, _)) = map.pools.iter().find(|(_, pool)| pool.erasure_code_profile == name) {
        let pool = map.pool_name(*id).unwrap_or_default();
        return fail(Errno::EBUSY, format!("pool '{pool}' uses the erasure code profile '{name}'"));
    }
    if !map.erasure_code_profiles.contains_key(&name) {
        return done(format!("erasure-code-profile {name} does not exist"));
    }
    let change = call.state.osd.change();
    change.new_erasure_code_profiles.remove(&name);
    change.old_erasure_code_profiles.push(name);
    done("")
}
