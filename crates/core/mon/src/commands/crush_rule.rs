//! CRUSH rules and the erasure-code profiles that make them.

use super::call::{Answer, Call, Failure, done, fail, refuse};
use super::show;
use super::table::{Command, command};
use nacre_crush::{CrushMap, EditError, Rule, RuleKind, RuleMode, SimpleRule};
use nacre_format::{Node, Section};
use nacre_types::Errno;
use std::collections::BTreeMap;

pub(super) const COMMANDS: &[Command] = &[
    command("osd crush dump", "osd", "r", "The CRUSH map", dump),
    command(
        "osd crush ls name=node,type=CephString,goodchars=[A-Za-z0-9-_.]",
        "osd",
        "r",
        "What hangs below a bucket",
        ls,
    ),
    command("osd crush show-tunables", "osd", "r", "Tunables in use", show_tunables),
    command("osd crush rule ls", "osd", "r", "Names of the rules", rule_ls),
    command("osd crush rule list", "osd", "r", "Names of the rules", rule_ls),
    command(
        "osd crush rule dump name=name,type=CephString,goodchars=[A-Za-z0-9-_.],req=false",
        "osd",
        "r",
        "One rule, or all",
        rule_dump,
    ),
    command(
        "osd crush rule create-replicated name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=root,type=CephString,goodchars=[A-Za-z0-9-_.] name=type,type=CephString,goodchars=[A-Za-z0-9-_.] name=class,type=CephString,goodchars=[A-Za-z0-9-_.],req=false",
        "osd",
        "rw",
        "Make a rule for replicated pools",
        create_replicated,
    ),
    command(
        "osd crush rule create-simple name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=root,type=CephString,goodchars=[A-Za-z0-9-_.] name=type,type=CephString,goodchars=[A-Za-z0-9-_.] name=mode,type=CephChoices,strings=firstn|indep,req=false",
        "osd",
        "rw",
        "Make a rule by root, type and mode",
        create_simple,
    ),
    command(
        "osd crush rule create-erasure name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=profile,type=CephString,goodchars=[A-Za-z0-9-_.=],req=false",
        "osd",
        "rw",
        "Make a rule for erasure-coded pools of a profile",
        create_erasure,
    ),
    command(
        "osd crush rule rm name=name,type=CephString,goodchars=[A-Za-z0-9-_.]",
        "osd",
        "rw",
        "Remove a rule that no pool uses",
        rule_rm,
    ),
    command(
        "osd crush rule rename name=srcname,type=CephString,goodchars=[A-Za-z0-9-_.] name=dstname,type=CephString,goodchars=[A-Za-z0-9-_.]",
        "osd",
        "rw",
        "Give a rule another name",
        rule_rename,
    ),
    command("osd crush weight-set ls", "osd", "r", "Names of the weight sets", weight_set_ls),
    command("osd crush weight-set dump", "osd", "r", "The weight sets", weight_set_dump),
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

/// Copies that a new rule is meant for.
const RULE_SIZES: (u8, u8) = (1, 10);
/// Keys of one profile.
const PROFILE_KEYS_MAX: usize = 64;
/// Profiles kept.
const PROFILES_MAX: usize = 1024;

fn dump(call: &mut Call<'_>) -> Answer {
    call.tree("crush_map", show::crush_map(&call.state.osd.map().crush))
}

fn ls(call: &mut Call<'_>) -> Answer {
    let crush = &call.state.osd.map().crush;
    let name = call.args.text("node");
    let Some(id) = crush.item_by_name(name) else {
        return fail(Errno::ENOENT, format!("node '{name}' does not exist"));
    };
    let items = crush.bucket(id).map_or_else(|| vec![id], |bucket| bucket.items.clone());
    let names: Vec<String> = items
        .into_iter()
        .map(|item| crush.item_name(item).map_or_else(|| format!("osd.{item}"), str::to_owned))
        .collect();
    let plain: String = names.iter().map(|name| format!("{name}\n")).collect();
    call.either("items", plain, Node::array("item", names))
}

fn show_tunables(call: &mut Call<'_>) -> Answer {
    call.tree("crush_tunables", show::tunables(&call.state.osd.map().crush))
}

fn rules(crush: &CrushMap) -> impl Iterator<Item = (i32, &Rule)> {
    (0..).zip(&crush.rules).filter_map(|(id, rule)| Some((id, rule.as_ref()?)))
}

fn rule_ls(call: &mut Call<'_>) -> Answer {
    let crush = &call.state.osd.map().crush;
    let names: Vec<&String> = rules(crush).filter_map(|(id, _)| crush.rule_names.get(&id)).collect();
    let plain: String = names.iter().map(|name| format!("{name}\n")).collect();
    call.either("rules", plain, Node::array("rule", names))
}

fn rule_dump(call: &mut Call<'_>) -> Answer {
    let crush = &call.state.osd.map().crush;
    let Some(name) = call.args.text_opt("name") else {
        return call.tree(
            "rules",
            Node::array("rule", rules(crush).map(|(id, rule)| show::crush_rule(crush, id, rule))),
        );
    };
    let found = crush.rule_by_name(name).and_then(|id| Some((id, crush.rule(id)?)));
    match found {
        Some((id, rule)) => call.tree("rule", show::crush_rule(crush, id, rule)),
        None => fail(Errno::ENOENT, format!("unknown crush rule '{name}'")),
    }
}

fn create_rule(call: &mut Call<'_>, mode: RuleMode) -> Answer {
    let name = call.args.text("name").to_owned();
    let crush = &call.state.osd.upcoming().crush;
    if crush.rule_by_name(&name).is_some() {
        return done(format!("rule {name} already exists"));
    }
    let text = |name| call.args.text_opt(name).unwrap_or_default().to_owned();
    let (root, domain, class) = (text("root"), text("type"), text("class"));
    let kind = if mode == RuleMode::Indep { RuleKind::ERASURE } else { RuleKind::REPLICATED };
    let rule = SimpleRule {
        name: &name,
        root: &root,
        failure_domain: &domain,
        device_class: &class,
        mode,
        kind,
        sizes: RULE_SIZES,
    };
    make_rule(call, &rule)?;
    done("")
}

/// Adds the rule, and says its id.
fn make_rule(call: &mut Call<'_>, rule: &SimpleRule<'_>) -> Result<u8, Failure> {
    // Rules of erasure-coded pools have the pool's name, which may have other characters.
    if rule.name.is_empty() {
        return fail(Errno::EINVAL, EditError::BadName(String::new()).to_string());
    }
    let SimpleRule { root, device_class, .. } = *rule;
    call.state.osd.edit_crush(|crush| crush.add_simple_rule(rule)).map_err(|error| match error {
        EditError::NoSuchItem(item) if item == root => {
            refuse(Errno::ENOENT, format!("root item {root} does not exist"))
        }
        EditError::NoSuchItem(_) => {
            refuse(Errno::EINVAL, format!("root {root} has no devices with class {device_class}"))
        }
        EditError::NoSuchClass(class) => {
            refuse(Errno::EINVAL, format!("device class {class} does not exist"))
        }
        EditError::NoSuchType(level) => refuse(Errno::EINVAL, format!("unknown type {level}")),
        EditError::TooMany(_) => refuse(Errno::ENOSPC, "no free rule id"),
        error => refuse(Errno::EINVAL, error.to_string()),
    })
}

fn create_erasure(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("name").to_owned();
    if call.state.osd.upcoming().crush.rule_by_name(&name).is_some() {
        return done(format!("rule {name} already exists"));
    }
    let profile =
        call.args.text_opt("profile").filter(|name| !name.is_empty()).unwrap_or("default").to_owned();
    let id = erasure_rule(call, &name, &profile)?;
    done(format!("created rule {name} at {id}"))
}

/// The rule of this name, made for the profile if it is not there. As Ceph's `crush_rule_create_erasure`.
pub(super) fn erasure_rule(call: &mut Call<'_>, name: &str, profile: &str) -> Result<u8, Failure> {
    let map = call.state.osd.upcoming();
    if let Some(id) = map.crush.rule_by_name(name).and_then(|id| u8::try_from(id).ok()) {
        return Ok(id);
    }
    let Some(profile) = map.erasure_code_profiles.get(profile).cloned() else {
        return fail(Errno::ENOENT, format!("unknown erasure code profile '{profile}'"));
    };
    check_profile(&profile)?;
    let value = |key: &str, usual| profile.get(key).map_or(usual, String::as_str);
    let shards = |key| value(key, "0").parse::<u8>().unwrap_or(0);
    let rule = SimpleRule {
        name,
        root: value("crush-root", "default"),
        failure_domain: value("crush-failure-domain", "host"),
        device_class: value("crush-device-class", ""),
        mode: RuleMode::Indep,
        kind: RuleKind::ERASURE,
        sizes: (ERASURE_SIZE_MIN, shards("k").saturating_add(shards("m"))),
    };
    make_rule(call, &rule)
}

fn create_replicated(call: &mut Call<'_>) -> Answer {
    create_rule(call, RuleMode::FirstN)
}

fn create_simple(call: &mut Call<'_>) -> Answer {
    let indep = call.args.text_opt("mode") == Some("indep");
    create_rule(call, if indep { RuleMode::Indep } else { RuleMode::FirstN })
}

fn rule_rm(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("name").to_owned();
    let map = call.state.osd.upcoming();
    let Some(id) = map.crush.rule_by_name(&name) else {
        return done(format!("rule {name} does not exist"));
    };
    if map.pools.values().any(|pool| i32::from(pool.crush_rule) == id) {
        return fail(Errno::EBUSY, format!("crush ruleset {name} {id} is in use"));
    }
    match call.state.osd.edit_crush(|crush| crush.remove_rule(&name)) {
        Ok(()) => done(""),
        Err(error) => fail(Errno::EINVAL, error.to_string()),
    }
}

fn rule_rename(call: &mut Call<'_>) -> Answer {
    let (source, target) = (call.args.text("srcname").to_owned(), call.args.text("dstname").to_owned());
    let crush = &call.state.osd.upcoming().crush;
    match (crush.rule_by_name(&source), crush.rule_by_name(&target)) {
        (None, Some(_)) => done(format!("already renamed to '{target}'")),
        (None, None) => fail(Errno::ENOENT, format!("srcname '{source}' does not exist")),
        (Some(_), Some(_)) => fail(Errno::EEXIST, format!("dstname '{target}' already exists")),
        (Some(_), None) => match call.state.osd.edit_crush(|crush| crush.rename_rule(&source, &target)) {
            Ok(()) => done(""),
            Err(error) => fail(Errno::EINVAL, error.to_string()),
        },
    }
}

fn weight_set_ls(call: &mut Call<'_>) -> Answer {
    call.either("weight_sets", "", Node::array("pool", Vec::<Node>::new()))
}

fn weight_set_dump(call: &mut Call<'_>) -> Answer {
    call.tree("weight_sets", Section::new())
}

/// Least size of an erasure-coded pool, as Ceph's rules for them say.
const ERASURE_SIZE_MIN: u8 = 3;

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
