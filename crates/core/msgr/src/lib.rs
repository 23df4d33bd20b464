//! Messenger v2, revision 1, as a sans-I/O machine: bytes in, events out; messages in, slices out.
//!
//! [`Connection`] is one side of one socket, server or client. It knows the banner, the frames in CRC and
//! SECURE mode, the handshake and the sessions, but nothing of authentication: AUTH frames are events, and
//! the authenticator answers with payloads and keys. Source of the formats: Ceph
//! `doc/dev/msgr2.rst` and `src/msg/async` at v16.2.15, and what real daemons send (`tests/golden.rs`).
//!
//! A driver's turn with a readable socket:
//!
//! ```text
//!   n = read(socket, connection.recv_space());     connection.received(now, n)?;
//!   while let Some(event) = connection.next_event() { .. connection.send(reply)? .. }
//!   n = writev(socket, connection.out_slices(..)); connection.sent(n);
//!   sleep until connection.next_deadline();        connection.tick(now)?;
//! ```
//!
//! Layer: core; uses buf, denc, types and msg.
#![warn(clippy::indexing_slicing, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

mod connection;
mod control;
mod fault;
mod frame;
mod policy;
mod session;
mod tag;

pub use connection::{Connection, Event, Opening, Peer, Target};
pub use fault::Fault;
pub use frame::{
    CONTROL_BYTES_MAX, DATA_BYTES_MAX, FRONT_BYTES_MAX, MIDDLE_BYTES_MAX, PEER_BYTES_MAX, Workspace,
};
pub use nacre_msg::RawMessage;
pub use policy::{Config, HANDSHAKE_TIMEOUT, IDLE_TIMEOUT, PeerPolicy};
pub use session::{Session, SessionAnswer, SessionRequest, incoming_wins};
pub use tag::Tag;

/// Bytes of a handshake, for each direction, that are remembered for its signature. A longer one is refused.
pub const HANDSHAKE_BYTES_MAX: usize = 96 << 10;
/// Requests that a peer may make before its session is open: authentication rounds, identifications, retries.
pub const ROUNDS_MAX: u32 = 32;
/// Bytes of answers to keepalives that may wait for a peer that does not read.
pub const ANSWERS_BYTES_MAX: usize = 64 << 10;
/// Connection modes. Ceph `CEPH_CON_MODE_*`.
pub mod mode {
    /// Checksums only: frames are readable.
    pub const CRC: u32 = 1;
    /// AES-128-GCM: frames are sealed.
    pub const SECURE: u32 = 2;
}
