//! The managers, and what modules of our own answer.

use super::call::{Answer, Call, done, fail};
use super::daemons::count_values;
use super::show;
use super::table::{Command, command};
use crate::command::Output;
use nacre_format::{Node, Section, bytes};
use nacre_maps::MgrMap;
use nacre_types::Errno;
use nacre_types::version::{RELEASE, VERSION_SHORT, VERSION_TEXT};
use std::collections::BTreeMap;

/// Modules that can be enabled, and bytes of the longest name.
const MODULES_COUNT_MAX: usize = 256;
const MODULE_BYTES_MAX: usize = 128;
/// Characters that a line of `iostat` has at least, also where its client does not say how wide its terminal is, and at most.
const LINE_COLUMNS_MIN: usize = 80;
const LINE_COLUMNS_MAX: usize = 1000;

pub(super) const COMMANDS: &[Command] = &[
    command("mgr stat", "mgr", "r", "Summary of the managers", stat),
    command("mgr dump name=epoch,type=CephInt,range=0,req=false", "mgr", "r", "The managers' map", dump),
    command("mgr services", "mgr", "r", "Services that the manager offers", services),
    command("mgr module ls", "mgr", "r", "Modules of the manager", module_ls),
    command(
        "mgr module enable name=module,type=CephString name=force,type=CephChoices,strings=--force,req=false",
        "mgr",
        "rw",
        "Let managers run a module",
        module_enable,
    ),
    command(
        "mgr module disable name=module,type=CephString",
        "mgr",
        "rw",
        "Let managers run a module no more",
        module_disable,
    ),
    command(
        "mgr fail name=who,type=CephString,req=false",
        "mgr",
        "rw",
        "Give up a manager, the active one when none is named",
        fail_manager,
    ),
    command(
        "mgr metadata name=who,type=CephString,req=false",
        "mgr",
        "r",
        "What managers say of themselves",
        metadata,
    ),
    command(
        "mgr count-metadata name=property,type=CephString",
        "mgr",
        "r",
        "Managers by value of one metadata key",
        count_metadata,
    ),
    command("mgr versions", "mgr", "r", "Versions of managers", versions),
    command(
        "iostat name=width,type=CephInt,req=false name=print_header,type=CephBool,req=false",
        "mgr",
        "r",
        "What clients read and write a second, line by line",
        iostat,
    ),
];

fn stat(call: &mut Call<'_>) -> Answer {
    let map = call.state.mgr.map();
    let tree = Section::new()
        .with("epoch", map.epoch)
        .with("available", map.available)
        .with("active_name", map.active_name.as_str())
        .with("num_standby", map.standbys.len());
    call.tree("mgr_stat", tree)
}

fn dump(call: &mut Call<'_>) -> Answer {
    let map = call.state.mgr.map();
    match call.args.int("epoch") {
        Some(epoch) if epoch != 0 && epoch != i64::from(map.epoch) => {
            fail(Errno::ENOENT, format!("there is no map for epoch {epoch}"))
        }
        _ => call.tree("mgrmap", show::mgr_map(map)),
    }
}

fn services(call: &mut Call<'_>) -> Answer {
    call.tree("services", show::services(call.state.mgr.map()))
}

fn module_ls(call: &mut Call<'_>) -> Answer {
    call.tree("modules", show::mgr_modules(&call.state.mgr))
}

/// Why managers that are there could not run a module.
fn cannot_run(map: &MgrMap, module: &str) -> Option<String> {
    let standbys = map.standbys.values().map(|standby| (&standby.name, &standby.available_modules));
    let managers = standbys.chain([(&map.active_name, &map.available_modules)]);
    for (name, modules) in managers {
        match modules.iter().find(|at| at.name == module) {
            None => return Some(format!("mgr.{name} has no module '{module}'")),
            Some(at) if !at.can_run => return Some(format!("mgr.{name} cannot run it: {}", at.error)),
            Some(_) => (),
        }
    }
    None
}

fn module_enable(call: &mut Call<'_>) -> Answer {
    let module = call.args.text("module").to_owned();
    let map = call.state.mgr.map();
    if call.state.mgr.is_always_on(&module) {
        return done(format!("module '{module}' is already enabled (always-on)"));
    }
    if map.modules.contains(&module) {
        return done(format!("module '{module}' is already enabled"));
    }
    if call.args.text_opt("force").is_none()
        && let Some(reason) = cannot_run(map, &module)
    {
        let own = if call.state.mgr.own_is_active() {
            " (the monitor's own manager is active; modules run in a ceph-mgr)"
        } else {
            ""
        };
        return fail(Errno::ENOENT, format!("{reason}{own}; pass --force to enable it all the same"));
    }
    if map.modules.len() >= MODULES_COUNT_MAX || module.len() > MODULE_BYTES_MAX {
        let text = format!("{MODULES_COUNT_MAX} modules of {MODULE_BYTES_MAX} bytes can be enabled at most");
        return fail(Errno::EINVAL, text);
    }
    call.state.mgr.set_module(&module, true, call.now);
    done("")
}

fn module_disable(call: &mut Call<'_>) -> Answer {
    let module = call.args.text("module").to_owned();
    let map = call.state.mgr.map();
    if call.state.mgr.is_always_on(&module) {
        return fail(Errno::EINVAL, format!("module '{module}' cannot be disabled (always-on)"));
    }
    if !map.modules.contains(&module) {
        return done(format!("module '{module}' is already disabled"));
    }
    call.state.mgr.set_module(&module, false, call.now);
    done("")
}

/// By name or by gid. One that is not there may have been given up by an earlier try.
fn fail_manager(call: &mut Call<'_>) -> Answer {
    let map = call.state.mgr.map();
    let who = call.args.text_opt("who").unwrap_or(&map.active_name).to_owned();
    let is_meant = |gid: u64, name: &str| name == who || gid.to_string() == who;
    if is_meant(map.active_gid, &map.active_name) {
        if call.state.mgr.own_is_active() {
            return fail(
                Errno::EOPNOTSUPP,
                "the monitor that leads is the active manager itself: it steps back as soon as a ceph-mgr runs",
            );
        }
        call.state.mgr.wish_gone(map.active_gid);
        return done("");
    }
    let standby = map.standbys.values().find(|standby| is_meant(standby.gid, &standby.name));
    match standby.map(|standby| standby.gid) {
        Some(gid) => {
            call.state.mgr.wish_gone(gid);
            done("")
        }
        None => done(format!("Daemon not found '{who}', already failed?")),
    }
}

/// What our own manager says of itself.
fn own_metadata(call: &Call<'_>) -> BTreeMap<String, String> {
    let map = call.state.mgr.map();
    let facts = [
        ("addr", show::legacy_addr(&map.active_addrs)),
        ("addrs", map.active_addrs.to_string()),
        ("arch", std::env::consts::ARCH.to_owned()),
        ("ceph_release", RELEASE.to_owned()),
        ("ceph_version", VERSION_TEXT.to_owned()),
        ("ceph_version_short", VERSION_SHORT.to_owned()),
        ("hostname", super::daemons::host_name(call)),
        ("os", "Linux".to_owned()),
    ];
    facts.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// What all managers that are there say of themselves, by name: ours, or stock ones.
pub(super) fn all_metadata(call: &Call<'_>) -> Vec<(String, BTreeMap<String, String>)> {
    let own = call.state.mgr.own_is_active();
    let own = own.then(|| (call.state.mgr.map().active_name.clone(), own_metadata(call)));
    let stock = call.state.mgr.metadata().map(|(name, metadata)| (name.clone(), metadata.clone()));
    own.into_iter().chain(stock).collect()
}

/// One key of the managers' metadata, of each of them.
pub(super) fn values(call: &Call<'_>, key: &str) -> Vec<String> {
    let all = all_metadata(call).into_iter();
    all.map(|(_, mut said)| said.remove(key).unwrap_or_else(|| "unknown".to_owned())).collect()
}

fn metadata(call: &mut Call<'_>) -> Answer {
    let named = |(name, metadata): (String, BTreeMap<String, String>)| {
        let mut section = Section::new().with("name", name);
        section.extend(metadata.into_iter().collect());
        section
    };
    let all = all_metadata(call);
    match call.args.text_opt("who") {
        Some(who) => match all.into_iter().find(|(name, _)| name == who) {
            Some(found) => call.tree("mgr_metadata", named(found)),
            None => fail(Errno::ENOENT, format!("mgr.{who} not found")),
        },
        None => call.tree("mgr_metadata", Node::array("mgr", all.into_iter().map(named))),
    }
}

fn count_metadata(call: &mut Call<'_>) -> Answer {
    let counts = count_values(values(call, call.args.text("property")).into_iter());
    call.tree("mgr", counts)
}

fn versions(call: &mut Call<'_>) -> Answer {
    call.tree("mgr", count_values(values(call, "ceph_version").into_iter()))
}

fn iostat(call: &mut Call<'_>) -> Answer {
    let rate = call.state.stats.pgs.rate(None);
    let values = [
        format!("{}/s", bytes(rate.read_bytes)),
        format!("{}/s", bytes(rate.write_bytes)),
        format!("{}/s", bytes(rate.read_bytes + rate.write_bytes)),
        rate.read_ops.to_string(),
        rate.write_ops.to_string(),
        (rate.read_ops + rate.write_ops).to_string(),
    ];
    let width = call.args.int("width").and_then(|width| usize::try_from(width).ok());
    let column = width.unwrap_or(LINE_COLUMNS_MIN).clamp(LINE_COLUMNS_MIN, LINE_COLUMNS_MAX) / values.len();
    let row = |cells: [&str; 6]| -> String {
        let cells = cells.map(|cell| format!(" {cell:>width$} |", width = column - 3));
        format!("|{}", cells.concat())
    };
    let values = row(values.each_ref().map(String::as_str));
    if !call.args.flag("print_header") {
        return Ok(Output::data(values));
    }
    let titles = row(["Read", "Write", "Total", "Read IOPS", "Write IOPS", "Total IOPS"]);
    let rule = format!("+{}", ("-".repeat(column - 1) + "+").repeat(6));
    // The tool ends the last line.
    Ok(Output::data(format!("{rule}\n{titles}\n{rule}\n{values}")))
}
