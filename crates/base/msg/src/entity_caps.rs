//! [`EntityCaps`]: our monitor tells our OSDs whose caps have changed since tickets were made. Ceph has nothing like it: there a session has the caps of its ticket until it ends.

use crate::body::body;
use nacre_types::{AuthName, UTime};
use std::collections::BTreeMap;

/// What entities may do at OSDs, whose valid tickets may say otherwise. Replaces what was told before; a session keeps what it has
/// taken over.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EntityCaps {
    /// The moment up to which tickets of the entity may say otherwise, and its caps.
    pub of: BTreeMap<AuthName, (UTime, String)>,
}
body!(EntityCaps = 0x7101, 1 / 1 [high]; of);

impl EntityCaps {
    /// What OSDs subscribe to. Ceph's monitors have nothing of this name, and say nothing.
    pub const TOPIC: &'static str = "nacre_entity_caps";
}
