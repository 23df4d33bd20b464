//! Facts about monitors and their machines, as `mon metadata` shows them.

use nacre_types::version::{RELEASE, VERSION_SHORT, VERSION_TEXT};
use std::collections::BTreeMap;

/// Facts about one monitor, by name.
pub type MonitorFacts = BTreeMap<String, String>;

/// What this program knows of itself, on the machine `host`, under Ceph's names; where the monitor is found stands in the monitors' map.
#[must_use]
pub fn of_program(host: &str) -> MonitorFacts {
    let facts = [
        ("arch", std::env::consts::ARCH),
        ("ceph_release", RELEASE),
        ("ceph_version", VERSION_TEXT),
        ("ceph_version_short", VERSION_SHORT),
        ("hostname", if host.is_empty() { "unknown" } else { host }),
        ("nacre_version", env!("CARGO_PKG_VERSION")),
        ("os", "Linux"),
    ];
    facts.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
