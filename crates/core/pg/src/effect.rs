//! What a PG wants done: [`Effect`], collected in [`Effects`].

use crate::{MergeState, SessionId, Side, Trace};
use nacre_buf::ByteStr;
use nacre_maps::OsdMap;
use nacre_msg::peer::PeerMessage;
use nacre_msg::{OsdBackoff, OsdOpReply, RawMessage, WatchNotify};
use nacre_txn::{FetchFrom, Token, Transaction};
use nacre_types::{Epoch, HObject, IntervalSet, OsdId, PgId, SnapId, SpgId};
use smallvec::SmallVec;
use std::sync::Arc;

/// An order to the driver. Orders of one event are carried out front to back.
#[allow(clippy::large_enum_variant, reason = "moved once or twice; a box would be an allocation per message")]
#[derive(Debug)]
pub enum Effect {
    /// Answer a client's message. Everything that the answer implies is durable on all members already.
    Reply {
        /// Session of the client.
        session: SessionId,
        /// The message's transaction number.
        tid: u64,
        /// The answer to send.
        message: Box<OsdOpReply>,
        /// The stages that the message went through.
        trace: Trace,
        /// Namespace of the object.
        namespace: ByteStr,
        /// The snapshot that was asked for, or the head.
        snap: SnapId,
    },
    /// Tell a watcher or notifier something, under tid 0.
    Watch {
        /// Session of the client.
        session: SessionId,
        /// The notification, or that its watch has ended.
        message: Box<WatchNotify>,
    },
    /// Tell a client to hold its messages on some objects, or to go on, under tid 0. What it acknowledges comes back
    /// as [`crate::Event::BackoffAck`], in order with its messages.
    Backoff {
        /// Session of the client.
        session: SessionId,
        /// What to hold back, or to send again.
        message: Box<OsdBackoff>,
    },
    /// Send the session the maps behind `since`: its operations are computed with an older one.
    PushMaps {
        /// Session of the client.
        session: SessionId,
        /// The epoch that it has.
        since: Epoch,
    },
    /// Send to a peer, behind everything sent to it before. The peer may be this OSD itself (a copy between
    /// two of its PGs): hand the message to the PG in its header then.
    Peer {
        /// Number of the OSD.
        osd: OsdId,
        /// The message to send.
        message: PeerMessage,
    },
    /// Send the same to several peers, none of them this OSD, likewise.
    Peers {
        /// Numbers of the OSDs.
        osds: SmallVec<[OsdId; 4]>,
        /// What, as messages carry it: encoded once, before what it says goes to the store.
        message: RawMessage,
    },
    /// Hand the transaction to the store; answer with [`crate::Event::Durable`] when it survives a crash.
    Submit {
        /// The changes, all or none of which are made.
        txn: Transaction,
        /// Names it; ascending within one PG.
        token: Token,
    },
    /// Bring data from the device to where the view reads it; answer with [`crate::Event::Fetched`]. What is asked for once may come
    /// with the answer: [`crate::Event::Brought`].
    Fetch {
        /// Name of the object that it is about.
        object: HObject,
        /// Offset of the first byte within the object.
        offset: u64,
        /// Length in bytes.
        length: u64,
        /// Whether memory will do.
        from: FetchFrom,
        /// Names the request.
        token: Token,
    },
    /// The PG wants a place for recovery: hand it to the [`crate::Reserver`].
    Reserve {
        /// Of the primary or of a member.
        side: Side,
        /// The PG's number of the request.
        number: u64,
        /// Higher goes first.
        priority: u32,
    },
    /// It wants none any more.
    Unreserve {
        /// Of the primary or of a member.
        side: Side,
    },
    /// The monitor must record that this OSD is alive in `epoch` (`MOSDAlive`) before the PG may serve.
    WantUpThru {
        /// At least this epoch.
        epoch: Epoch,
    },
    /// Ask the monitor to let `acting` serve the PG for now (`MOSDPGTemp`); empty: as CRUSH says again.
    WantPgTemp {
        /// The PG whose acting set it is.
        pg: PgId,
        /// The OSDs that should serve.
        acting: Vec<OsdId>,
    },
    /// The PG has served for the first time (`MOSDPGCreated`).
    Created(PgId),
    /// These snapshots have no clones in this PG any more.
    Purged {
        /// The PG that was created.
        pg: PgId,
        /// Ids of the snapshots that were purged.
        snaps: IntervalSet,
    },
    /// The PG has split, and the child's records are in the store with what was submitted just now: load it
    /// ([`crate::Pg::load`], with the map `before`) and hand it [`crate::Event::Map`] with each of `maps` at once, before any
    /// message can find that it does not exist. No map may be left out: in one of them it may itself split, or end.
    Split {
        /// The new PG.
        child: SpgId,
        /// The last map in which it was part of this one.
        before: Arc<OsdMap>,
        /// All maps behind that which this PG was handed, oldest first.
        maps: Vec<Arc<OsdMap>>,
    },
    /// There is more to do, but what was submitted just now must show in the view first: once all orders of
    /// this event are carried out, hand in [`crate::Event::Resume`] (from a loop: it may ask for another).
    /// Always the last order.
    Resume,
    /// How far this PG, which is to be merged with another, is; repeated on each tick. Once both are clean, tell the
    /// monitor (`MOSDPGReadyToMerge`); if one is not, tell it as well.
    Merge(MergeState),
    /// The PG's copy is not needed here any more and its removal has been submitted: drop the `Pg` once
    /// the last token is durable.
    Removed,
}

/// A reused list of effects.
#[derive(Debug, Default)]
pub struct Effects {
    list: Vec<Effect>,
}

impl Effects {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { list: Vec::new() }
    }

    /// Adds an order behind the others.
    pub fn push(&mut self, effect: Effect) {
        self.list.push(effect);
    }

    /// Takes the orders out, front to back; the memory is kept for the next event.
    pub fn drain(&mut self) -> impl Iterator<Item = Effect> + '_ {
        self.list.drain(..)
    }

    /// The orders so far.
    #[must_use]
    pub fn as_slice(&self) -> &[Effect] {
        &self.list
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
