//! Where the monitors are, as files say it and people read it.

use crate::files::{Folder, Identity};
use anyhow::Result;
use nacre_env::outln;
use nacre_maps::MonMap;
use nacre_types::EntityAddr;

/// The folder's own files name the monitors as the map does.
pub(crate) fn write_files(
    folder: &Folder,
    identity: &Identity,
    map: &MonMap,
    admin_keyring: Option<&str>,
) -> Result<()> {
    let identity = Identity { monitors: addrs_of(map), ..identity.clone() };
    folder.write_identity(&identity)?;
    folder.write_client_files(&identity, admin_keyring)
}

/// Where the monitors of a map listen, in order of rank.
pub(crate) fn addrs_of(map: &MonMap) -> Vec<EntityAddr> {
    map.ranks.iter().filter_map(|name| map.mons.get(name)?.addrs.msgr2()).collect()
}

pub(crate) fn print_monitors(map: &MonMap) {
    for mon in map.ranks.iter().filter_map(|name| map.mons.get(name)) {
        outln!("  mon.{} {}", mon.name, mon.addrs);
    }
}
