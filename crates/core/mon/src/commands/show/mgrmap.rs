//! The managers' map as a tree.

use super::{addr, addr_vec, legacy_addr, release_name};
use crate::managers::MgrMaps;
use nacre_format::{Node, Section, stamp};
use nacre_maps::MgrMap;
use nacre_msg::{ModuleInfo, ModuleOption};
use std::collections::BTreeSet;

fn names(names: &BTreeSet<String>) -> Node {
    Node::array("module", names.iter())
}

/// Ceph's words for the type and the level of an option (`src/common/options.h`), by their numbers.
const OPTION_TYPES: [&str; 11] =
    ["uint", "int", "str", "float", "bool", "addr", "addrvec", "uuid", "size", "secs", "millisecs"];
const OPTION_LEVELS: [&str; 3] = ["basic", "advanced", "dev"];

fn option(option: &ModuleOption) -> Section {
    let word =
        |words: &[&'static str], number: u8| words.get(usize::from(number)).copied().unwrap_or("unknown");
    Section::new()
        .with("name", option.name.as_str())
        .with("type", word(&OPTION_TYPES, option.kind))
        .with("level", word(&OPTION_LEVELS, option.level))
        .with("flags", option.flags)
        .with("default_value", option.default.as_str())
        .with("min", option.min.as_str())
        .with("max", option.max.as_str())
        .with("enum_allowed", Node::array("allowed", option.enum_allowed.iter()))
        .with("desc", option.description.as_str())
        .with("long_desc", option.long_description.as_str())
        .with("tags", Node::array("tag", option.tags.iter()))
        .with("see_also", Node::array("option", option.see_also.iter()))
}

fn module(module: &ModuleInfo) -> Section {
    let options = module.options.iter().map(|(name, at)| (name.clone(), option(at)));
    Section::new()
        .with("name", module.name.as_str())
        .with("can_run", module.can_run)
        .with("error_string", module.error.as_str())
        .with("module_options", options.collect::<Section>())
}

/// `mgr dump`.
pub(in crate::commands) fn mgr_map(map: &MgrMap) -> Section {
    let standbys = map.standbys.values().map(|standby| {
        Section::new()
            .with("gid", standby.gid)
            .with("name", standby.name.as_str())
            .with("mgr_features", standby.features)
            .with("available_modules", Node::array("module", standby.available_modules.iter().map(module)))
    });
    let always_on = map
        .always_on_modules
        .iter()
        .map(|(release, modules)| (release_name(u8::try_from(*release).unwrap_or(0)), names(modules)));
    let clients = map.client_names.iter().zip(&map.clients).map(|(name, addrs)| {
        Section::new()
            .with("name", name.as_str())
            .with("addrvec", Node::array("addr", addrs.0.iter().map(addr)))
    });
    Section::new()
        .with("epoch", map.epoch)
        .with("active_gid", map.active_gid)
        .with("active_name", map.active_name.as_str())
        .with("active_addrs", addr_vec(&map.active_addrs))
        .with("active_addr", legacy_addr(&map.active_addrs))
        .with("active_change", stamp(map.active_change))
        .with("active_mgr_features", map.active_mgr_features)
        .with("available", map.available)
        .with("standbys", Node::array("standby", standbys))
        .with("modules", names(&map.modules))
        .with("available_modules", Node::array("module", map.available_modules.iter().map(module)))
        .with("services", services(map))
        .with("always_on_modules", Section::from_iter(always_on))
        .with("last_failure_osd_epoch", map.last_failure_osd_epoch)
        .with("active_clients", Node::array("client", clients))
}

/// Services and where they listen.
pub(in crate::commands) fn services(map: &MgrMap) -> Section {
    map.services.iter().map(|(name, url)| (name.clone(), url.as_str())).collect()
}

/// `mgr module ls`. Our own manager runs none of those that are always on.
pub(in crate::commands) fn mgr_modules(managers: &MgrMaps) -> Section {
    let map = managers.map();
    let mut always_on = map.always_on_modules.values().next_back().cloned().unwrap_or_default();
    if managers.own_is_active() {
        // The map says what a `ceph-mgr` would run; our own has some of it, and what is its own.
        let available = map.available_modules.iter().map(|at| &at.name);
        always_on = available.filter(|name| managers.is_always_on(name)).cloned().collect();
    }
    let disabled = map
        .available_modules
        .iter()
        .filter(|at| !map.modules.contains(&at.name) && !always_on.contains(&at.name));
    Section::new()
        .with("always_on_modules", names(&always_on))
        .with("enabled_modules", names(&map.modules))
        .with("disabled_modules", Node::array("module", disabled.map(module)))
}
