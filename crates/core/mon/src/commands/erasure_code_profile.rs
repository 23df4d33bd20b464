//! `ceph osd erasure-code-profile ...`: the profiles that pools and CRUSH rules are made by, and which of them are supported.

use super::call::{Answer, Call, Failure, done, fail};
use super::table::{Command, command};
use nacre_ec::{Code, PARITY_CEPH, PARITY_KEY, Profile, is_marked};
use nacre_format::{Node, Section};
use nacre_maps::OsdMap;
use nacre_types::Errno;

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
const PROFILE_KEYS: [&str; 12] = [
    "crush-device-class",
    "crush-failure-domain",
    "crush-root",
    "jerasure-per-chunk-alignment",
    "k",
    "m",
    PARITY_KEY,
    "packetsize",
    "plugin",
    "stripe_unit",
    "technique",
    "w",
];

/// What a profile says when its owner leaves something out.
const PROFILE_DEFAULTS: [(&str, &str); 5] = [
    ("crush-device-class", ""),
    ("crush-failure-domain", "host"),
    ("crush-root", "default"),
    ("plugin", "jerasure"),
    ("technique", "reed_sol_van"),
];
/// Likewise with plugin `jerasure`.
const JERASURE_DEFAULTS: [(&str, &str); 4] =
    [("jerasure-per-chunk-alignment", "false"), ("k", "2"), ("m", "1"), ("w", "8")];
/// Likewise with its technique `cauchy_good`.
const CAUCHY_GOOD_DEFAULTS: [(&str, &str); 1] = [("packetsize", "2048")];
/// Likewise with plugin `isa`.
const ISA_DEFAULTS: [(&str, &str); 2] = [("k", "7"), ("m", "3")];
/// Stripe units that are no multiple of this need `--force`.
const GOOD_UNIT_BYTES: u32 = 4096;

/// Adds what the words do not say.
fn with_defaults(words: &[String]) -> Profile {
    let mut profile = Profile::new();
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        profile.insert(key.to_owned(), value.to_owned());
    }
    let mut add = |defaults: &[(&str, &str)]| {
        for (key, value) in defaults {
            profile.entry((*key).to_owned()).or_insert_with(|| (*value).to_owned());
        }
        (profile["plugin"].clone(), profile["technique"].clone())
    };
    let (plugin, technique) = add(&PROFILE_DEFAULTS);
    add(&[(PARITY_KEY, PARITY_CEPH)]);
    add(if plugin == "isa" { &ISA_DEFAULTS[..] } else { &JERASURE_DEFAULTS[..] });
    if technique == "cauchy_good" {
        add(&CAUCHY_GOOD_DEFAULTS);
    }
    profile
}

fn profile_text(profile: &Profile) -> String {
    let pairs: Vec<String> = profile.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("{{{}}}", pairs.join(","))
}

/// The code that a profile makes, if that is built.
pub(super) fn check_profile(profile: &Profile) -> Result<Code, Failure> {
    if let Some(key) = profile.keys().find(|key| !PROFILE_KEYS.contains(&key.as_str())) {
        return fail(Errno::EINVAL, format!("{key} is not supported in an erasure code profile"));
    }
    if profile.contains_key("packetsize") && profile.get("technique").is_none_or(|name| name != "cauchy_good")
    {
        return fail(Errno::EINVAL, "packetsize means nothing without technique=cauchy_good");
    }
    Code::of_profile(profile).or_else(|error| fail(Errno::EINVAL, error.to_string()))
}

fn profile_set(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("name").to_owned();
    let mut words = call.args.list("profile").to_vec();
    let force = call.args.flag("force") || words.iter().any(|word| word == "--force");
    words.retain(|word| word != "--force");
    if words.len() > PROFILE_KEYS_MAX {
        return fail(Errno::ENOSPC, format!("a profile has at most {PROFILE_KEYS_MAX} keys"));
    }
    let mut profile = with_defaults(&words);
    let code = check_profile(&profile)?;
    if !code.layout().unit_bytes.is_multiple_of(GOOD_UNIT_BYTES) && !force {
        let text = format!(
            "stripe_unit should be a multiple of {GOOD_UNIT_BYTES} bytes, or changes cost more; --force does without"
        );
        return fail(Errno::EINVAL, text);
    }
    let map = call.state.osd.upcoming();
    if let Some(held) = map.erasure_code_profiles.get(&name) {
        if map.pools.values().any(|pool| pool.erasure_code_profile == name) && !is_marked(held) {
            profile.remove(PARITY_KEY); // of pools that an older program made
        }
        if *held == profile {
            return done("");
        }
        may_override(map, &name, &profile, force)?;
    } else if map.erasure_code_profiles.len() >= PROFILES_MAX {
        return fail(Errno::ENOSPC, format!("a cluster has at most {PROFILES_MAX} profiles"));
    }
    let change = call.state.osd.change();
    change.old_erasure_code_profiles.retain(|old| *old != name);
    change.new_erasure_code_profiles.insert(name, profile);
    done("")
}

/// Whether `profile` may take the place of the one of this name. How pools are coded never changes; where a new rule places may.
fn may_override(map: &OsdMap, name: &str, profile: &Profile, force: bool) -> Result<(), Failure> {
    let Some(held) = map.erasure_code_profiles.get(name) else { return Ok(()) };
    if !force {
        let (held, wanted) = (profile_text(held), profile_text(profile));
        let text = format!(
            "will not override erasure code profile {name} because the existing profile {held} is different from the proposed profile {wanted}"
        );
        return fail(Errno::EPERM, text);
    }
    let user = map.pools.iter().find(|(_, pool)| pool.erasure_code_profile == name);
    match user {
        Some((id, _)) if Code::of_profile(held) != Code::of_profile(profile) => {
            let pool = map.pool_name(*id).unwrap_or_default();
            let text = format!(
                "pool '{pool}' is coded as erasure code profile {name} says, which only its crush- keys may change"
            );
            fail(Errno::EBUSY, text)
        }
        _ => Ok(()),
    }
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
