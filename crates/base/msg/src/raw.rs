//! [`RawMessage`]: what the messenger delivers, before anybody looks inside.

use nacre_buf::{BufList, Bytes};

/// Priorities of the message header. Ceph `CEPH_MSG_PRIO_*`.
pub mod priority {
    /// Clients' operations (`osd_client_op_priority`).
    pub const CLIENT: u16 = 63;
    /// Priority of bulk work, such as recovery.
    pub const LOW: u16 = 64;
    /// Everything without a reason for another.
    pub const DEFAULT: u16 = 127;
    /// A monitor's answers and what others wait for.
    pub const HIGH: u16 = 196;
    /// What must overtake everything.
    pub const HIGHEST: u16 = 255;
}

/// One message as the messenger carries it: the header fields that matter above it, and three segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawMessage {
    /// Transaction number; a reply copies the request's.
    pub tid: u64,
    /// Type of the message, `CEPH_MSG_*` or `MSG_*`.
    pub kind: u16,
    /// Version of the encoding in the segments.
    pub version: u16,
    /// Oldest reader that understands it.
    pub compat: u16,
    /// See [`priority`].
    pub priority: u16,
    /// The fixed part.
    pub front: Bytes,
    /// Unused by the messages that we know.
    pub middle: Bytes,
    /// Payload that is not decoded with the message.
    pub data: BufList,
}
