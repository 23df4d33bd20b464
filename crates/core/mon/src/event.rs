//! What happens to the monitor ([`Event`]) and what it orders ([`Effect`]).

use crate::batch::Batch;
use crate::recovery::{SealedSnapshot, SnapshotError};
use nacre_msg::Message;
use nacre_types::{AddrVec, AuthName, EntityKind};
use std::net::IpAddr;
use std::ops::Range;

/// One connection to one of the monitors, numbered by their drivers; never used twice while the leader leads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SessionId(pub u64);

/// Names one commit or confirmation; tokens grow by one, and one is under way at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Token(pub u64);

/// Which of a monitor's two listening addresses a connection came in on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Endpoint {
    /// The monitor's: peers authenticate with their own keys.
    Mon,
    /// The active manager's: peers bring a ticket for service `mgr`.
    Mgr,
}

/// The peer of a session: what it has proved, and what it says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Where it came in.
    pub endpoint: Endpoint,
    /// The entity of its key, such as `client.admin` or `osd.3`.
    pub auth_name: AuthName,
    /// Unique number of this instance.
    pub global_id: u64,
    /// It proved nothing and needs no caps: authentication is off.
    pub allows_all: bool,
    /// What it says it is: what its key is of, or a client.
    pub kind: EntityKind,
    /// Its addresses of record, by its own word: those it listens on, for daemons; of a client, the instance.
    pub addrs: AddrVec,
    /// Where its socket is.
    pub seen_at: Option<IpAddr>,
}

/// What happens to the machine.
#[derive(Debug)]
pub enum Event {
    /// A session is open: a monitor's front has authenticated its peer.
    Open {
        /// Number of the session that it is about.
        session: SessionId,
        /// The peer, as it has proved its identity.
        peer: Box<Peer>,
    },
    /// A message of an open session.
    Message {
        /// Number of the session that it is about.
        session: SessionId,
        /// The peer's transaction number, echoed by the reply.
        tid: u64,
        /// The message as it was decoded.
        message: Box<Message>,
    },
    /// The session is gone.
    Closed {
        /// Number of the session that it is about.
        session: SessionId,
    },
    /// The way to another monitor's front is lost; of each session there [`Event::Closed`] tells.
    FrontLost,
    /// The batch of this token is durable.
    Committed(Token),
    /// No other monitor led when [`Effect::Confirm`] came, or since.
    Confirmed(Token),
    /// A monitor's front needs global ids.
    WantGlobalIds {
        /// Which monitor's: its id, for [`Effect::GlobalIds`].
        front: u64,
    },
    /// What came of [`Effect::TakeSnapshot`]: the snapshot, or none where there is no key to seal it with.
    SnapshotTaken(Result<Option<Box<SealedSnapshot>>, SnapshotError>),
    /// Time passed; expected about once per second.
    Tick,
}

/// How far a subscription of a session was served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// What was subscribed to, such as `osdmap`.
    pub what: String,
    /// Its version that the subscriber has now.
    pub version: u64,
}

/// What the driver must do, in this order.
#[derive(Debug)]
pub enum Effect {
    /// Send a message; dropped when the session is gone.
    Send {
        /// Number of the session that it is about.
        session: SessionId,
        /// Transaction number: the request's for replies, 0 for pushes.
        tid: u64,
        /// The message as it was decoded.
        message: Box<Message>,
        /// The subscription that it serves, if it does: for the session's front ([`crate::Front::sent`]).
        served: Option<Served>,
    },
    /// End a session that broke the rules, or whose key was revoked.
    Close {
        /// Number of the session that it is about.
        session: SessionId,
    },
    /// Make `batch` durable, then report [`Event::Committed`].
    Commit {
        /// Keys that change, all or none.
        batch: Batch,
        /// Names the commit.
        token: Token,
    },
    /// Make sure that no other monitor leads, then report [`Event::Confirmed`].
    Confirm {
        /// Names the question.
        token: Token,
    },
    /// Seal what of the tables OSDs are to keep ([`crate::recovery::take_snapshot`]), then report [`Event::SnapshotTaken`].
    TakeSnapshot,
    /// Tell a monitor's front that these global ids are its own to hand out ([`crate::Front::granted`]).
    GlobalIds {
        /// Number of the monitor whose front it is.
        front: u64,
        /// Global ids that it may give out.
        ids: Range<u64>,
    },
}
