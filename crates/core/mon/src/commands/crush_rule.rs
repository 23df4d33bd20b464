//! `ceph osd crush rule ...`, and what of the CRUSH map is only shown: rules by root, type and class, or by an erasure-code profile.

use super::call::{Answer, Call, Failure, done, fail, refuse};
use super::erasure_code_profile::check_profile;
use super::show;
use super::table::{Command, command};
use nacre_crush::{CrushMap, EditError, Rule, RuleKind, RuleMode, SimpleRule};
use nacre_format::{Node, Section};
use nacre_types::Errno;

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
];

/// Copies that a new rule is meant for.
const RULE_SIZES: (u8, u8) = (1, 10);

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
