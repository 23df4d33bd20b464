//! What happens to the monitor ([`Event`]) and what it orders ([`Effect`]).

use crate::batch::Batch;
use nacre_auth::Step;
use nacre_buf::Bytes;
use nacre_msg::Message;
use nacre_types::{AddrVec, EntityKind};
use std::net::IpAddr;

/// One connection, numbered by the driver; never used twice while the process lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SessionId(pub u64);

/// Names one commit; tokens grow by one and commits complete in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Token(pub u64);

/// Which of our two listening addresses a connection came in on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Endpoint {
    /// The monitor's: peers authenticate with their own keys.
    Mon,
    /// The active manager's: peers bring a ticket for service `mgr`.
    Mgr,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A connection opened its authentication.
    AuthRequest {
        /// The connection.
        session: SessionId,
        /// Where it came in.
        endpoint: Endpoint,
        /// What the peer says it is; it says the same in [`Event::Established`].
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
        /// The connection.
        session: SessionId,
        /// Payload of the method.
        payload: Bytes,
    },
    /// The handshake is complete; messages may follow.
    Established {
        /// The connection.
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
        /// The connection.
        session: SessionId,
        /// The peer's transaction number, echoed by the reply.
        tid: u64,
        /// The message.
        message: Box<Message>,
    },
    /// The connection is gone.
    Closed {
        /// The connection.
        session: SessionId,
    },
    /// The batch of this token is durable.
    Committed(Token),
    /// Time passed; expected about once per second.
    Tick,
}

/// What the driver must do, in this order.
#[derive(Debug)]
pub enum Effect {
    /// Answer a running authentication.
    Auth {
        /// The connection.
        session: SessionId,
        /// The answer.
        step: Step,
    },
    /// Send a message; dropped when the connection is gone.
    Send {
        /// The connection.
        session: SessionId,
        /// Transaction number: the request's for replies, 0 for pushes.
        tid: u64,
        /// The message.
        message: Box<Message>,
    },
    /// Close a connection that broke the rules.
    Close {
        /// The connection.
        session: SessionId,
    },
    /// Make `batch` durable, then report [`Event::Committed`].
    Commit {
        /// The changes.
        batch: Batch,
        /// Names the commit.
        token: Token,
    },
}
