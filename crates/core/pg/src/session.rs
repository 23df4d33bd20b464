//! Clients as a placement group knows them: [`Session`], and the trace that each of their messages carries.

use nacre_auth::OsdCaps;
use nacre_types::{EntityAddr, EntityName, Stamp};

/// Names a client's session at this OSD; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// A client's session. Shared by reference: made when the connection is established, never changed.
#[derive(Debug, Clone)]
pub struct Session {
    /// Its name.
    pub id: SessionId,
    /// The client instance, `client.<global id>`.
    pub name: EntityName,
    /// Its address with nonce, of kind `Any`: what blocklists and watchers record.
    pub addr: EntityAddr,
    /// What it may do.
    pub caps: OsdCaps,
    /// It holds messages back when told to (`RADOS_BACKOFF`).
    pub backs_off: bool,
}

/// When a message reached which stage, on the monotonic clock; zero for stages not reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Trace {
    /// All bytes were read from the socket.
    pub received: Stamp,
    /// The group got it.
    pub dispatched: Stamp,
    /// It was executed into a transaction, or read.
    pub executed: Stamp,
    /// The local store has it durably.
    pub logged: Stamp,
    /// All members have it durably.
    pub replicated: Stamp,
    /// The reply was made.
    pub replied: Stamp,
}
