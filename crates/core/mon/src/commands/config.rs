//! Options that the cluster keeps for its daemons and clients.

use super::call::{Answer, Call, Failure, done, fail, refuse};
use super::table::{Command, command};
use crate::command::Output;
use crate::config::{MODULES, Target, Who};
use crate::osd::view;
use nacre_format::{Align, Node, Section, Table, stamp};
use nacre_maps::MgrMap;
use nacre_msg::ModuleOption;
use nacre_options::{self as options, OptionInfo};
use nacre_types::{AuthName, EntityKind, Errno};
use std::collections::BTreeMap;

pub(super) const COMMANDS: &[Command] = &[
    command(
        "config set name=who,type=CephString name=name,type=CephString name=value,type=CephString name=force,type=CephBool,req=false",
        "config",
        "rw",
        "Keep an option for a section",
        set,
    ),
    command(
        "config rm name=who,type=CephString name=name,type=CephString",
        "config",
        "rw",
        "Forget an option of a section",
        rm,
    ),
    command(
        "config get name=who,type=CephString name=key,type=CephString,req=False",
        "config",
        "r",
        "Options of an entity, or the value of one",
        get,
    ),
    command("config dump", "mon", "r", "All options kept", dump),
    command("config help name=key,type=CephString", "config", "r", "What an option means", help),
    command("config ls", "config", "r", "Names of the options", ls),
    command("config log name=num,type=CephInt,req=False", "config", "r", "Changes of the options", log),
    command(
        "config show name=who,type=CephString name=key,type=CephString,req=False",
        "mgr",
        "r",
        "Options that a daemon runs with",
        show,
    ),
    command(
        "config show-with-defaults name=who,type=CephString",
        "mgr",
        "r",
        "All options that a daemon runs with",
        show_with_defaults,
    ),
    command(
        "config assimilate-conf",
        "config",
        "rw",
        "Take options over from a configuration file",
        assimilate,
    ),
    command(
        "config generate-minimal-conf",
        "config",
        "r",
        "Least configuration file that a client needs",
        minimal_conf,
    ),
];

/// Largest configuration file that is read.
const FILE_BYTES_MAX: usize = 1 << 20;

fn section_of(text: &str) -> Result<Who, Failure> {
    Who::parse(text).ok_or_else(|| refuse(Errno::EINVAL, format!("unrecognized config target '{text}'")))
}

fn set(call: &mut Call<'_>) -> Answer {
    let who = section_of(call.args.text("who"))?;
    let (name, value) = (call.args.text("name").to_owned(), call.args.text("value").to_owned());
    let force = call.args.flag("force");
    must_be_read(call, &who, &name, force)?;
    let stored = match module_option(call.state.mgr.map(), &name) {
        Some(option) => {
            let value = check_module_option(option, &value)?;
            if call.state.mgr.own_is_active() {
                let checked = crate::metrics_module::check_option(&name, &value)
                    .and_then(|()| crate::dashboard_module::check_option(&name, &value));
                checked.map_err(|why| refuse(Errno::EINVAL, format!("error parsing value: {why}")))?;
            }
            call.state.config.set_of_module(&who, &name, value)
        }
        None => match crate::device_module::refused(&name) {
            Some(why) => {
                return fail(Errno::EOPNOTSUPP, format!("{name} has no effect: {why}"));
            }
            None => call.state.config.set(&who, &name, &value, force),
        },
    };
    stored.map_err(|error| refuse(Errno::from(&error), error.to_string()))?;
    done("")
}

/// Our own manager reads little of the section `mgr`; a `ceph-mgr` reads more.
fn must_be_read(call: &Call<'_>, who: &Who, name: &str, force: bool) -> Result<(), Failure> {
    let is_for_managers = who.section().split('.').next() == Some("mgr");
    let is_read =
        |option: &&OptionInfo| option.missing().is_none() && !options::FOR_OWN_MANAGER.contains(&option.name);
    let option = options::find(name).filter(is_read);
    match option.filter(|_| is_for_managers && call.state.mgr.own_is_active() && !force) {
        Some(option) => {
            let readers = option.readers().join(" and ");
            let text =
                format!("{name} has no effect for {who}: it is read by {readers}, and no ceph-mgr is active");
            fail(Errno::EOPNOTSUPP, text)
        }
        None => Ok(()),
    }
}

/// What a manager that is there says of `mgr/MODULE/OPTION`, or `mgr/MODULE/INSTANCE/OPTION`.
fn module_option<'a>(map: &'a MgrMap, name: &str) -> Option<&'a ModuleOption> {
    let (module, rest) = name.strip_prefix(MODULES)?.split_once('/')?;
    let option = rest.rsplit('/').next()?;
    let standbys = map.standbys.values().flat_map(|standby| &standby.available_modules);
    let modules = map.available_modules.iter().chain(standbys);
    modules.filter(|at| at.name == module).find_map(|at| at.options.get(option))
}

/// The value in its normal form, if the option can have it. Kinds are Ceph's `Option::type_t`, by their numbers.
fn check_module_option(option: &ModuleOption, value: &str) -> Result<String, Failure> {
    let wrong = |why: String| refuse(Errno::EINVAL, format!("error parsing value: {why}"));
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    let (is_number, normal) = match option.kind {
        0 | 1 | 8..=10 => match value.trim().parse::<i64>() {
            Ok(number) if number >= 0 || option.kind == 1 => (true, number.to_string()),
            _ => return Err(wrong(format!("{} wants a whole number, not '{value}'", option.name))),
        },
        3 => match number(value) {
            Some(_) => (true, value.trim().to_owned()),
            None => return Err(wrong(format!("{} wants a number, not '{value}'", option.name))),
        },
        4 => match value.trim().to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => (false, "true".to_owned()),
            "false" | "0" | "no" | "off" => (false, "false".to_owned()),
            _ => return Err(wrong(format!("{} is true or false, not '{value}'", option.name))),
        },
        _ => (false, value.to_owned()),
    };
    let allowed = &option.enum_allowed;
    if !allowed.is_empty() && !allowed.contains(&normal) {
        let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
        return Err(wrong(format!("'{value}' is none of {}", allowed.join(", "))));
    }
    if let Some(given) = number(&normal).filter(|_| is_number) {
        let below = number(&option.min).is_some_and(|min| given < min);
        let above = number(&option.max).is_some_and(|max| given > max);
        if below || above {
            let (min, max) = (&option.min, &option.max);
            return Err(wrong(format!("{} is from {min} to {max}, not {value}", option.name)));
        }
    }
    Ok(normal)
}

fn rm(call: &mut Call<'_>) -> Answer {
    let who = section_of(call.args.text("who"))?;
    let name = call.args.text("name").to_owned();
    call.state.config.remove(&who, &name);
    done("")
}

fn table_columns() -> Table {
    Table::aligned(&["WHO", "MASK", "LEVEL", "OPTION", "VALUE", "RO"].map(|name| (name, Align::Left)))
}

fn level(name: &str) -> &'static str {
    options::find(name).map_or("unknown", |option| option.level.as_str())
}

fn is_runtime(name: &str) -> bool {
    options::find(name).is_none_or(|option| option.runtime)
}

fn row(indent: usize, who: &Who, name: &str, value: &str) -> [String; 6] {
    let fixed = if is_runtime(name) { "" } else { "*" };
    let section = format!("{}{}", " ".repeat(indent), who.section());
    [section, who.mask(), level(name).to_owned(), name.to_owned(), value.to_owned(), fixed.to_owned()]
}

fn dump(call: &mut Call<'_>) -> Answer {
    let mut table = table_columns();
    let mut tree = Vec::new();
    for (who, name, value) in call.state.config.iter() {
        let section = who.section();
        let depth = if section == "global" {
            0
        } else if section.contains('.') {
            4
        } else {
            2
        };
        table.row(row(depth, who, name, value));
        let entry = Section::new()
            .with("section", section)
            .with("name", name)
            .with("value", value)
            .with("level", level(name))
            .with("can_update_at_runtime", is_runtime(name))
            .with("mask", who.mask());
        tree.push(entry);
    }
    call.either("config", table.render(), Node::array("option", tree))
}

/// The entity that a `who` argument names: a daemon, or all of a kind.
fn entity(text: &str) -> Result<AuthName, Failure> {
    let whole = if text.contains('.') { text.to_owned() } else { format!("{text}.") };
    AuthName::parse(&whole).ok_or_else(|| refuse(Errno::EINVAL, format!("unrecognized entity '{text}'")))
}

/// The values that concern an entity: option to section and value.
fn effective(call: &Call<'_>, name: &AuthName) -> BTreeMap<String, (Who, String)> {
    let crush = &call.state.osd.map().crush;
    let osd = (name.kind == EntityKind::OSD).then(|| name.id.parse().ok()).flatten();
    let location = osd.map(|osd| view::location(crush, osd)).unwrap_or_default();
    let class = osd.and_then(|osd| crush.item_class_name(osd)).map(str::to_owned);
    let target = Target { name, device_class: class.as_ref(), location: &location };
    let found = call.state.config.effective(&target);
    found
        .into_iter()
        .map(|(option, (who, value))| (option.to_owned(), (who.clone(), value.to_owned())))
        .collect()
}

fn get(call: &mut Call<'_>) -> Answer {
    let who = entity(call.args.text("who"))?;
    let values = effective(call, &who);
    if let Some(key) = call.args.text_opt("key") {
        let option = options::find(key);
        let name = option.map_or(key, |option| option.name);
        let held = values.get(name).map(|(_, value)| value.clone());
        return match held
            .or_else(|| special(call, name))
            .or_else(|| option.map(|option| option.default.to_owned()))
        {
            Some(value) => Ok(Output::data(format!("{value}\n"))),
            None => fail(Errno::ENOENT, format!("unrecognized key '{key}'")),
        };
    }
    let mut table = table_columns();
    let mut tree = Section::new();
    for (name, (section, value)) in &values {
        table.row(row(0, section, name, value));
        let mask =
            section.mask_parts().map(|(kind, name)| (kind.to_owned(), name)).into_iter().collect::<Section>();
        let entry = Section::new()
            .with("value", value)
            .with("section", section.section())
            .with("mask", mask)
            .with("can_update_at_runtime", is_runtime(name));
        tree.put(name.clone(), entry);
    }
    call.either("config", table.render(), tree)
}

/// Options whose value is the cluster's, not the table's.
fn special(call: &Call<'_>, name: &str) -> Option<String> {
    (name == "fsid").then(|| call.state.fsid.to_string())
}

fn value_node(option: &OptionInfo, text: &str) -> Node {
    use options::Kind::{Bool, Float, Int, Uint};
    match option.kind {
        Uint | Int | Float if text.parse().is_ok_and(f64::is_finite) => Node::Raw(text.to_owned()),
        Bool => Node::Bool(text == "true"),
        _ => text.into(),
    }
}

fn help_tree(option: &OptionInfo) -> Section {
    let none = || Node::array("name", Vec::<Node>::new());
    let bound = |bound: Option<&str>| bound.map_or_else(|| Node::from(""), |text| value_node(option, text));
    let mut tree = Section::new()
        .with("name", option.name)
        .with("type", option.kind.as_str())
        .with("level", option.level.as_str())
        .with("desc", option.text)
        .with("long_desc", "")
        .with("default", value_node(option, option.default))
        .with("daemon_default", "")
        .with("tags", none())
        .with("services", Node::array("service", option.services.iter().copied()))
        .with("see_also", none());
    if option.kind.as_str() == "str" {
        tree.put("enum_values", Node::array("value", option.choices.iter().copied()));
    }
    tree.with("min", bound(option.min))
        .with("max", bound(option.max))
        .with("can_update_at_runtime", option.runtime)
        .with("flags", Node::array("flag", option.runtime.then_some("runtime")))
        .with("read_by", Node::array("reader", option.readers()))
        .with("not_read_because", option.missing().unwrap_or_default())
}

fn help_text(option: &OptionInfo) -> String {
    let mut out = format!(
        "{} - {}\n  ({}, {})\n  Default: {}\n",
        option.name,
        option.text,
        option.kind.as_str(),
        option.level.as_str(),
        option.default
    );
    if option.min.is_some() || option.max.is_some() {
        let (min, max) = (option.min.unwrap_or_default(), option.max.unwrap_or_default());
        out.push_str(&format!("  Minimum: {min}\n  Maximum: {max}\n"));
    }
    if !option.choices.is_empty() {
        out.push_str(&format!("  Possible values: {}\n", option.choices.join(", ")));
    }
    out.push_str(&format!("  Can update at runtime: {}\n", option.runtime));
    if !option.services.is_empty() {
        out.push_str(&format!("  Services: [{}]\n", option.services.join(",")));
    }
    match option.missing() {
        Some(reason) => out.push_str(&format!("  Not read here: {reason}\n")),
        None => out.push_str(&format!("  Read by: {}\n", option.readers().join(", "))),
    }
    out
}

fn help(call: &mut Call<'_>) -> Answer {
    let key = call.args.text("key");
    match options::find(key) {
        Some(option) => call.either("option", help_text(option), help_tree(option)),
        None => fail(Errno::ENOENT, format!("configuration option '{key}' not recognized")),
    }
}

fn ls(call: &mut Call<'_>) -> Answer {
    let mut names: Vec<&str> = options::all().map(|option| option.name).collect();
    names.sort_unstable();
    let plain: String = names.iter().map(|name| format!("{name}\n")).collect();
    call.either("options", plain, Node::array("option", names))
}

/// The newest changes, newest first.
fn log(call: &mut Call<'_>) -> Answer {
    let wanted = call.args.int("num").map_or(LOG_COUNT, |num| usize::try_from(num).unwrap_or(0));
    let (mut plain, mut tree) = (String::new(), Vec::new());
    for (number, set) in call.state.config.history().iter().rev().take(wanted) {
        plain.push_str(&format!("--- {number} --- {} ---\n", stamp(set.stamp)));
        let mut changes = Vec::new();
        for change in &set.changes {
            let mut entry = Section::new().with("name", change.name.as_str());
            for (sign, key, value) in [("-", "previous_value", &change.old), ("+", "new_value", &change.new)]
            {
                if let Some(value) = value {
                    plain.push_str(&format!("{sign} {} = {value}\n", change.name));
                    entry.put(key, value.as_str());
                }
            }
            changes.push(entry);
        }
        tree.push(
            Section::new()
                .with("version", *number)
                .with("timestamp", stamp(set.stamp))
                .with("name", "")
                .with("changes", Node::array("change", changes)),
        );
    }
    call.either("changesets", plain, Node::array("changeset", tree))
}

/// Changes that `config log` shows when no number is given.
const LOG_COUNT: usize = 10;

fn daemon(call: &Call<'_>) -> Result<AuthName, Failure> {
    let text = call.args.text("who");
    let name = AuthName::parse(text)
        .ok_or_else(|| refuse(Errno::EINVAL, format!("Invalid daemon name '{text}'")))?;
    let known = match name.kind {
        EntityKind::OSD => name.id.parse().is_ok_and(|osd| call.state.osd.map().exists(osd)),
        EntityKind::MON => call.state.mon.map().mons.contains_key(&name.id),
        _ => call.state.mgr.map().active_name == name.id,
    };
    if known { Ok(name) } else { fail(Errno::ENOENT, format!("no config state for daemon {text}")) }
}

fn show(call: &mut Call<'_>) -> Answer {
    show_daemon(call, |option| option.name == "rbd_default_features")
}

fn show_with_defaults(call: &mut Call<'_>) -> Answer {
    show_daemon(call, |_| true)
}

/// Values kept for a daemon, and the defaults of the options that `with_default` picks.
fn show_daemon(call: &Call<'_>, with_default: fn(&OptionInfo) -> bool) -> Answer {
    let name = daemon(call)?;
    let held = effective(call, &name);
    let mut values: BTreeMap<String, (String, &str)> = BTreeMap::new();
    for option in options::all().filter(|option| with_default(option)) {
        values.insert(option.name.to_owned(), (option.default.to_owned(), "default"));
    }
    values.insert("fsid".to_owned(), (call.state.fsid.to_string(), "file"));
    values.extend(held.into_iter().map(|(option, (_, value))| (option, (value, "mon"))));
    if let Some(key) = call.args.text_opt("key") {
        let default = options::find(key).map(|option| option.default.to_owned());
        return match values.get(key).map(|(value, _)| value.clone()).or(default) {
            Some(value) => Ok(Output::data(format!("{value}\n"))),
            None => fail(Errno::ENOENT, ""),
        };
    }
    let mut table =
        Table::aligned(&["NAME", "VALUE", "SOURCE", "OVERRIDES", "IGNORES"].map(|name| (name, Align::Left)));
    let mut tree = Vec::new();
    for (option, (value, source)) in values {
        table.row([option.clone(), value.clone(), source.to_owned()]);
        tree.push(Section::new().with("name", option).with("value", value).with("source", source));
    }
    call.either("config", table.render(), Node::array("option", tree))
}

/// Takes over what it can and prints the rest. Only sections that daemons know are understood.
fn assimilate(call: &mut Call<'_>) -> Answer {
    if call.data.len() > FILE_BYTES_MAX {
        return fail(Errno::EINVAL, "the file is too large");
    }
    let text = String::from_utf8_lossy(call.data).into_owned();
    let mut section = "global".to_owned();
    let mut left: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines().map(|line| line.split(['#', ';']).next().unwrap_or_default().trim()) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.trim().clone_into(&mut section);
        } else if let Some((name, value)) = line.split_once('=') {
            let (name, value) = (name.trim().replace([' ', '-'], "_"), value.trim());
            let stored = Who::parse(&section)
                .is_some_and(|who| call.state.config.set(&who, &name, value, false).is_ok());
            if !stored {
                left.entry(section.clone()).or_default().push(format!("\t{name} = {value}\n"));
            }
        }
    }
    let rest: String =
        left.into_iter().map(|(section, lines)| format!("\n[{section}]\n{}", lines.concat())).collect();
    Ok(Output::data(rest))
}

fn minimal_conf(call: &mut Call<'_>) -> Answer {
    let fsid = call.state.fsid;
    let mons: Vec<String> =
        super::show::by_rank(call.state.mon.map()).iter().map(|mon| mon.addrs.to_string()).collect();
    let hosts = mons.join(" ");
    Ok(Output::data(format!(
        "# minimal ceph.conf for {fsid}\n[global]\n\tfsid = {fsid}\n\tmon_host = {hosts}\n"
    )))
}
