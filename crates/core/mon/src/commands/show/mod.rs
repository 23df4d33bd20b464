//! The maps as trees and as text, with the keys and words that Ceph's `dump` commands use.

mod crush;
mod fsmap;
mod mgrmap;
mod monmap;
mod osdmap;
mod pool;
mod tree;

pub(super) use crush::{crush_map, crush_rule, tunables};
pub(super) use fsmap::{
    CLIENT_FEATURES, compat, compat_text, file_system, file_system_text, fs_map, fs_map_text, fs_summary,
    fs_summary_text, mds_line, volumes_line,
};
pub(super) use mgrmap::{mgr_map, mgr_modules, services};
pub(super) use monmap::{FEATURE_NAMES, by_rank, feature_names, mon_map, mon_map_text};
pub(super) use nacre_maps::release_name;
pub(super) use osdmap::{fraction, osd_entry, osd_line, osd_map, osd_map_text, text_set};
pub(super) use pool::{
    POOL_OPTIONS, PoolOptionKind, option_node, option_text, pool_line, pool_snap_lines, pool_tree,
};
pub(super) use tree::{TreeItem, tree_children, tree_item_section, tree_items};

use nacre_format::{Node, Section};
use nacre_types::{AddrKind, AddrVec, EntityAddr};

/// The name of an address's protocol.
fn kind_name(kind: AddrKind) -> &'static str {
    match kind {
        AddrKind::None => "none",
        AddrKind::Legacy => "v1",
        AddrKind::Msgr2 => "v2",
        AddrKind::Any => "any",
        AddrKind::Cidr => "cidr",
    }
}

/// One address: protocol, `ip:port`, nonce.
pub(super) fn addr(addr: &EntityAddr) -> Section {
    let socket = addr.socket.map_or_else(|| ":".to_owned(), |socket| socket.to_string());
    Section::new().with("type", kind_name(addr.kind)).with("addr", socket).with("nonce", addr.nonce)
}

/// A list of addresses under the key `addrvec`.
pub(super) fn addr_vec(addrs: &AddrVec) -> Section {
    Section::new().with("addrvec", Node::array("addr", addrs.0.iter().map(addr)))
}

/// The address that clients before Nautilus would use, without its protocol.
pub(super) fn legacy_addr(addrs: &AddrVec) -> String {
    let legacy = addrs.0.iter().find(|addr| addr.kind == AddrKind::Legacy);
    legacy.copied().unwrap_or_else(|| addrs.front()).without_kind()
}
