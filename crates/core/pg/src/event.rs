//! What happens to a PG: [`Event`], and what it sees when it does: [`Cx`].

use crate::{Decision, Effects, Permit, RecoveryThrottle, Session, SessionId, Trace};
use nacre_buf::BufList;
use nacre_maps::OsdMap;
use nacre_msg::OsdOp;
use nacre_msg::peer::PeerMessage;
use nacre_txn::{ObjectView, Token};
use nacre_types::{Entropy, OsdId, Stamp, UTime};
use std::sync::Arc;

/// One client message on its way through the PG.
#[derive(Debug)]
pub struct ClientOp {
    /// The session that it came in.
    pub session: Arc<Session>,
    /// Its transaction number.
    pub tid: u64,
    /// The message as it was decoded.
    pub op: Box<OsdOp>,
    /// When it reached which stage.
    pub trace: Trace,
    /// Its part of the memory that messages may take up.
    pub permit: Permit,
    /// It brings data, and a member had no room for any when it came: only what was done already is answered.
    pub is_beyond_room: bool,
}

/// The two ways to bring a copy up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryKind {
    /// The log tells what the copy lacks.
    Recovery,
    /// Only a comparison of all objects does: a new copy, or one that was away for too long.
    Backfill,
}

/// What becomes of objects that no copy has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The version before, where the primary has one; nothing, where the object was new.
    Revert,
    /// Forget that the object was there.
    Delete,
}

/// What happens to a PG.
#[allow(clippy::large_enum_variant, reason = "moved once or twice; a box would be an allocation per message")]
#[derive(Debug)]
pub enum Event {
    /// A client's message for this PG arrived.
    ClientOp(ClientOp),
    /// The client holds its messages, as [`crate::Effect::Backoff`] asked for.
    BackoffAck {
        /// Session that is gone.
        session: SessionId,
        /// The backoff's name.
        id: u64,
    },
    /// The session is gone: its operations get no reply, its watches begin to time out.
    SessionClosed(SessionId),
    /// A peer's message for this PG arrived.
    Peer {
        /// Number of the OSD that sent it.
        from: OsdId,
        /// The message as it was decoded.
        message: PeerMessage,
    },
    /// A transaction given out as [`crate::Effect::Submit`] is durable. Comes in order of submission.
    Durable(Token),
    /// Data asked for by [`crate::Effect::Fetch`] can be read now.
    Fetched(Token),
    /// Data that was asked for with [`nacre_txn::FetchFrom::AnywhereOnce`].
    Brought(Token, BufList),
    /// The connection to a peer was lost with messages in it, although both daemons live on. Not needed where
    /// sessions between OSDs are resumed without loss.
    PeerReset(OsdId),
    /// The OSD's [`crate::Reserver`] has decided about a place that this PG asked for.
    Reservation(Decision),
    /// [`Cx::map`] has moved on, by one epoch at a time for as long as the driver has the maps between.
    Map,
    /// All orders of the event before are carried out, as [`crate::Effect::Resume`] asked for.
    Resume,
    /// [`crate::Pg::next_deadline`] has passed, or about a second.
    Tick,
    /// An operator wants the PG's recovery done before others', or in turn again.
    Force {
        /// What the log tells, or what only a comparison does.
        kind: RecoveryKind,
        /// False: in turn again.
        forced: bool,
    },
    /// An operator gives up the objects that no copy has, as far as [`crate::Pg::can_mark_lost`] says that it can be done.
    MarkLost(Lost),
    /// An operator has the PG made anew: this copy goes.
    GiveUp,
    /// An operator, or the schedule, asks for a scrub.
    Scrub {
        /// Read and compare data, not only metadata.
        deep: bool,
        /// Repair what differs.
        repair: bool,
    },
}

/// The room of this OSD's store, as far as it concerns a PG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoreRoom {
    /// Enough for what clients write.
    #[default]
    Ample,
    /// None for what brings data (failsafe full): the primaries of our copies hear of it with each write that is done.
    FailsafeFull,
}

/// What a PG sees while it handles an event.
pub struct Cx<'a> {
    /// The monotonic clock.
    pub now: Stamp,
    /// The calendar clock.
    pub wall: UTime,
    /// The OSD map; never older than at the event before.
    pub map: &'a Arc<OsdMap>,
    /// This OSD's objects.
    pub view: &'a dyn ObjectView,
    /// The room that its store had when it last completed something.
    pub room: StoreRoom,
    /// Randomness for object classes.
    pub entropy: &'a mut dyn Entropy,
    /// How fast recovery may go.
    pub throttle: &'a mut RecoveryThrottle,
    /// Where orders go.
    pub effects: &'a mut Effects,
}
