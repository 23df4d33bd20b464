//! A module of Ceph's manager as our own manager has it: what the managers' map says of it, so that its options can be set.

use nacre_msg::{ModuleInfo, ModuleOption};
use std::collections::BTreeMap;

/// Numbers of Ceph's `Option::type_t`.
pub(crate) const KIND_UINT: u8 = 0;
pub(crate) const KIND_INT: u8 = 1;
pub(crate) const KIND_STR: u8 = 2;
pub(crate) const KIND_BOOL: u8 = 4;
/// It applies while the manager runs.
const RUNTIME: u32 = 1;

/// An option by its name within the module, without bounds.
pub(crate) fn option(name: &str, kind: u8, default: &str, description: &str) -> ModuleOption {
    ModuleOption {
        name: name.to_owned(),
        kind,
        flags: RUNTIME,
        default: default.to_owned(),
        description: description.to_owned(),
        ..ModuleOption::default()
    }
}

/// A module that can run, with these options.
pub(crate) fn module<const N: usize>(name: &str, options: [ModuleOption; N]) -> ModuleInfo {
    let options = options.map(|option| (option.name.clone(), option));
    ModuleInfo {
        name: name.to_owned(),
        can_run: true,
        error: String::new(),
        options: BTreeMap::from(options),
    }
}
