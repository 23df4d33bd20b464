//! What happens to the front of a monitor ([`FrontEvent`]) and what it orders ([`FrontEffect`]).

use crate::event::{Endpoint, Peer, SessionId};
use nacre_auth::Step;
use nacre_buf::Bytes;
use nacre_msg::{Command, Message};
use nacre_types::{AddrVec, EntityKind};
use std::net::IpAddr;

/// What happens to the machine.
#[derive(Debug)]
pub enum FrontEvent {
    /// A connection opened its authentication.
    AuthRequest {
        /// Number of the connection, and of the session that it becomes.
        session: SessionId,
        /// Where it came in.
        endpoint: Endpoint,
        /// What the peer says it is; it says the same in [`FrontEvent::Established`].
        kind: EntityKind,
        /// `CEPH_AUTH_*`: 1 none, 2 cephx.
        method: u32,
        /// Connection modes that the peer offers, in its order: 1 CRC, 2 secure.
        modes: Vec<u32>,
        /// First payload of the method.
        payload: Bytes,
    },
    /// The next payload of a running authentication.
    AuthMore {
        /// Number of the connection, and of the session that it becomes.
        session: SessionId,
        /// Payload of the method.
        payload: Bytes,
    },
    /// The handshake is complete; messages may follow.
    Established {
        /// Number of the connection, and of the session that it becomes.
        session: SessionId,
        /// What the peer says it is; must agree with the identity that it proved.
        kind: EntityKind,
        /// The peer's addresses of record, by its own word: those it listens on, for daemons; of a client, the instance.
        addrs: AddrVec,
        /// Where its socket is.
        seen_at: Option<IpAddr>,
    },
    /// A message of an established connection.
    Message {
        /// Number of the connection, and of the session that it becomes.
        session: SessionId,
        /// The peer's transaction number, echoed by the reply.
        tid: u64,
        /// The message as it was decoded.
        message: Box<Message>,
    },
    /// The connection is gone, or the leader ended the session.
    Closed {
        /// Number of the connection, and of the session that it becomes.
        session: SessionId,
    },
    /// Time passed: once per second, and when [`crate::Front::next_deadline`] has come.
    Tick,
}

/// What the driver must do, in this order.
#[derive(Debug)]
pub enum FrontEffect {
    /// Answer a running authentication.
    Auth {
        /// Number of the connection, and of the session that it becomes.
        session: SessionId,
        /// Next step of the handshake.
        step: Step,
    },
    /// Tell the leader's [`crate::Mon`] of a session that is open, see [`crate::Event::Open`].
    Open {
        /// Number of the connection, and of the session that it becomes.
        session: SessionId,
        /// The peer, as it has proved its identity.
        peer: Box<Peer>,
    },
    /// Hand a message of an open session to the leader.
    Message {
        /// Number of the connection, and of the session that it becomes.
        session: SessionId,
        /// The peer's transaction number.
        tid: u64,
        /// The message as it was decoded.
        message: Box<Message>,
    },
    /// Answer what this monitor is asked itself, by [`crate::Front::tell`] with what is known of it.
    Tell {
        /// Number of the connection, and of the session that it becomes.
        session: SessionId,
        /// The peer's transaction number.
        tid: u64,
        /// The message as it was decoded.
        command: Box<Command>,
    },
    /// Tell the leader that an open session is gone.
    Closed {
        /// Number of the connection, and of the session that it becomes.
        session: SessionId,
    },
    /// Send a message; dropped when the connection is gone.
    Send {
        /// Number of the connection, and of the session that it becomes.
        session: SessionId,
        /// Transaction number of the request.
        tid: u64,
        /// The message as it was decoded.
        message: Box<Message>,
    },
    /// Close a connection.
    Close {
        /// Number of the connection, and of the session that it becomes.
        session: SessionId,
    },
    /// Ask the leader for global ids, see [`crate::Event::WantGlobalIds`]; they come by [`crate::Front::granted`]. Asked again when they do not.
    WantGlobalIds,
}
