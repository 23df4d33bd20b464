//! [`VoidTickets`]: our monitor tells our OSDs which tickets hold no more before they expire. Ceph has nothing like it: there a ticket holds until it expires.

use crate::body::body;
use nacre_types::{AuthName, UTime};
use std::collections::BTreeMap;

/// Tickets that OSDs must not take any more, nor sessions that were opened with them go on. Replaces what was told before.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct VoidTickets {
    /// The moment before which the entity's tickets were made.
    pub of: BTreeMap<AuthName, UTime>,
    /// The same for everybody.
    pub all: UTime,
}
body!(VoidTickets = 0x7100, 1 / 1 [high]; of, all);

impl VoidTickets {
    /// What OSDs subscribe to. Ceph's monitors have nothing of this name, and say nothing.
    pub const TOPIC: &'static str = "nacre_void_tickets";
}
