//! [`Tuning`]: what tests and the simulation make otherwise than it is in production.

use crate::LogLimits;
use crate::ops::MessageLimits;
use nacre_msg::peer::PeerVersions;

/// Peers' messages that may wait for a map. More are dropped; with the OSDs that sent them the PG begins anew when it has
/// caught up.
pub const FUTURE_MESSAGES_MAX: usize = 10_000;
/// Objects that one comparison looks at on either side. Ceph's `osd_backfill_scan_max`.
pub(crate) const SCAN_OBJECTS_MAX: usize = 512;

/// A mistake built in on purpose, to prove that the simulation would find it.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Planted {
    /// No mistake is built in.
    #[default]
    Nothing,
    /// A write is answered when it is durable here, not on all members.
    EarlyReply,
    /// A repeated request is executed again.
    NoDuplicateCheck,
    /// Objects that only entries outside of the authoritative log have changed stay as they are.
    DivergentRollbackGenKept,
    /// One copy is enough to serve, whatever the pool says.
    MinSizeIgnored,
    /// A newest map is taken over although maps before it are missing.
    MapGapAccepted,
    /// An OSD that has the log serves before the monitor knows that it lives in its interval.
    UpThruNotAwaited,
    /// An interval that ends is not remembered.
    IntervalForgotten,
    /// Clients are served whatever the other members have promised.
    LeaseIgnored,
    /// A shard that takes a write back leaves the object as the write made it.
    RollbackSkipped,
    /// Of requests only the last few are recognised when they come again.
    DuplicatesTrimmed,
    /// Of what was sent before the cluster was full only what needs room is dropped.
    FullTransitionIgnored,
    /// Clients that the map shuts out are served.
    FencingIgnored,
    /// Some messages to other OSDs say what they cannot read.
    MessagesGarbled,
    /// OSDs say as their sessions begin that they speak versions of messages that the others do not.
    VersionsUnknown,
    /// Watchers are not recalled from the object's record.
    WatchersForgotten,
    /// An interval of which one member is said to be lost is done without, whichever other members are away.
    OneLostForAll,
    /// Erasure-coded: the shortest log is chosen although it ends before what all members had, because its OSD lost the end of it.
    SafeToIgnored,
    /// Erasure-coded: a copy is taken at its word when a log is chosen. What others know of newer activations, and of what all had,
    /// does not count.
    OldCopiesBelieved,
    /// With several shards: of clients' messages that come to another shard than their PG's, some are dropped.
    OtherShardsOpsDropped,
}

/// How much of peers' messages may wait where; what is more is lost, and made up for.
#[derive(Debug, Clone, Copy)]
pub struct QueueLimits {
    /// In a PG, for a map.
    pub future_max: usize,
    /// In a shard, for the map of a PG that it does not have.
    pub held_max: usize,
    /// In a shard, for a connection with one peer.
    pub link_max: usize,
    /// In a connection, messages that the peer has not taken or, if it is an OSD, not acknowledged. As if their bytes were too
    /// many.
    pub conn_max: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self { future_max: FUTURE_MESSAGES_MAX, held_max: 4096, link_max: 65_536, conn_max: 65_536 }
    }
}

/// How a PG behaves beside what the maps say.
#[derive(Debug, Clone, Copy)]
pub struct Tuning {
    /// Limits of the log.
    pub limits: LogLimits,
    /// How long clients' messages and their answers may be.
    pub message_limits: MessageLimits,
    /// Objects that one comparison of a backfill looks at, or one step of a split or merge, if that is less than usual.
    pub scan_objects: usize,
    /// Bounds of queues.
    pub queues: QueueLimits,
    /// Versions of the messages between OSDs that this one says it speaks.
    pub versions: PeerVersions,
    /// [`crate::Pg::check`] runs after every event.
    pub checked: bool,
    #[doc(hidden)]
    pub planted: Planted,
}

impl Default for Tuning {
    fn default() -> Self {
        let (limits, scan_objects) = (LogLimits::default(), SCAN_OBJECTS_MAX);
        Self {
            limits,
            message_limits: MessageLimits::default(),
            scan_objects,
            queues: QueueLimits::default(),
            versions: PeerVersions::OURS,
            checked: false,
            planted: Planted::Nothing,
        }
    }
}
