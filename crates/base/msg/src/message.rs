//! [`Message`]: the sum of all messages, and the way between it and the messenger's bytes.

use crate::body::Body;
use crate::*;
use nacre_buf::Bytes;
use nacre_denc::{DecodeError, Reader, Writer};

/// Room reserved for the front of an outgoing message; most are smaller.
const FRONT_BYTES_USUAL: usize = 256;

fn read<T: Body>(raw: RawMessage) -> Result<T, DecodeError> {
    let narrow = |version: u16| u8::try_from(version).unwrap_or(u8::MAX);
    if raw.compat > T::VERSION {
        let (compat, supported) = (narrow(raw.compat), narrow(T::VERSION));
        return Err(DecodeError::Incompatible { what: T::NAME, compat, supported });
    }
    if raw.version < T::OLDEST {
        return Err(DecodeError::Invalid { what: T::NAME, value: raw.version.into() });
    }
    T::read(raw.version, &mut Reader::new(raw.front), raw.data)
}

fn write<T: Body>(message: T, tid: u64) -> RawMessage {
    let mut w = Writer::with_capacity(FRONT_BYTES_USUAL);
    let data = message.write(&mut w);
    RawMessage {
        tid,
        kind: T::KIND,
        version: T::VERSION,
        compat: T::COMPAT,
        priority: T::PRIORITY,
        front: w.finish(),
        middle: Bytes::new(),
        data,
    }
}

macro_rules! messages {
    ($($name:ident: $doc:literal,)*) => {
        /// Every message that we read or write. `tid` travels beside it.
        #[allow(clippy::large_enum_variant, reason = "moved once or twice; a box would be an allocation per message")]
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum Message {
            $(#[doc = $doc] $name($name),)*
            /// One of our own, between our OSDs.
            Peer(peer::PeerMessage),
            /// A type that we do not know, as it came.
            Unknown(RawMessage),
        }

        impl Message {
            /// Interprets what the messenger delivered.
            ///
            /// # Errors
            /// When the segments do not hold what the header promises. A type that we do not know is no
            /// error but [`Message::Unknown`].
            pub fn decode(raw: RawMessage) -> Result<Self, DecodeError> {
                match raw.kind {
                    $($name::KIND => read::<$name>(raw).map(Self::$name),)*
                    kind if peer::PeerMessage::is_kind(kind) => peer::PeerMessage::decode(raw).map(Self::Peer),
                    _ => Ok(Self::Unknown(raw)),
                }
            }

            /// The bytes for the messenger, under transaction number `tid`.
            #[must_use]
            pub fn encode(self, tid: u64) -> RawMessage {
                match self {
                    $(Self::$name(message) => write(message, tid),)*
                    Self::Peer(message) => message.encode(tid),
                    Self::Unknown(raw) => RawMessage { tid, ..raw },
                }
            }

            /// The type in the header.
            #[must_use]
            pub fn kind(&self) -> u16 {
                match self {
                    $(Self::$name(_) => $name::KIND,)*
                    Self::Peer(message) => message.kind(),
                    Self::Unknown(raw) => raw.kind,
                }
            }

            /// Name of the type, for logs.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => $name::NAME,)*
                    Self::Peer(message) => message.name(),
                    Self::Unknown(_) => "Unknown",
                }
            }
        }

        $(impl From<$name> for Message {
            fn from(message: $name) -> Self {
                Self::$name(message)
            }
        })*
    };
}

messages! {
    OsdOp: "Client to OSD: operations on one object.",
    OsdOpReply: "OSD to client: their results.",
    MOsdMap: "Maps of the OSDs, full and incremental.",
    WatchNotify: "OSD to watcher or notifier.",
    OsdBackoff: "OSD to client and back: hold operations on a range.",
    OsdPing: "OSD to OSD: heartbeat.",
    Ping: "A sign of life; a monitor answers it.",
    MMonMap: "The map of the monitors.",
    MonGetMap: "Asks for it.",
    MonGetOsdMap: "Asks for epochs of the OSDs' map by number.",
    Statfs: "Asks for the cluster's or a pool's capacity.",
    StatfsReply: "Answers it.",
    MonSubscribe: "Asks for maps and their successors.",
    MonSubscribeAck: "Confirms that to clients older than we serve.",
    Auth: "Authentication after the handshake: tickets and rotating keys.",
    AuthReply: "Answers it.",
    MonGetVersion: "Asks for the newest version of a map.",
    MonGetVersionReply: "Answers it.",
    MMdsMap: "One file system's map.",
    MFsMap: "All file systems' map.",
    MFsMapUser: "Names of the file systems.",
    PoolOp: "Creates and deletes pools and snapshots.",
    PoolOpReply: "Answers it.",
    MonCommand: "A command to the monitor.",
    MonCommandAck: "Its outcome.",
    VoidTickets: "Our monitor to our OSDs: tickets that hold no more.",
    EntityCaps: "Our monitor to our OSDs: caps that tickets say otherwise.",
    PgStatsWanted: "Our monitor to our OSDs: whether it wants their statistics, too.",
    RecoverySnapshotPart: "Our monitor to our OSDs: a part of what a cluster can be begun anew from.",
    Log: "Entries of the cluster log.",
    LogAck: "Confirms them.",
    GetPoolStats: "Asks for pools' usage.",
    GetPoolStatsReply: "Answers it.",
    Config: "Options for the receiver.",
    KvData: "Keys and values for a manager.",
    RemoveSnaps: "Snapshots that a file system removes.",
    Command: "A command to a daemon that is no monitor, or by `tell`.",
    CommandReply: "Its outcome.",
    MdsBeacon: "A metadata server's sign of life, echoed by the monitor.",
    MdsLoadTargets: "A metadata server's word on which ranks it hands directories to.",
    MMgrMap: "The map of the managers.",
    MgrDigest: "Monitor to manager: status and health as JSON.",
    MgrOpen: "Daemon to manager: here I am.",
    MgrConfigure: "Manager to daemon: how often to report.",
    MgrReport: "Daemon to manager: counters.",
    MgrBeacon: "Manager to monitor: sign of life.",
    MgrClose: "Daemon to manager: good bye.",
    MonMgrReport: "Manager to monitor: health and usage.",
    ServiceMap: "Services beside the cluster's own daemons.",
    MgrCommand: "A command to the manager.",
    MgrCommandReply: "Its outcome.",
    OsdBoot: "OSD to monitor: mark me up.",
    OsdFailure: "OSD to monitor: a peer does not answer, or does again.",
    OsdAlive: "OSD to monitor: raise my `up_thru`.",
    MarkMeDown: "OSD to monitor and back: I am going down.",
    MarkMeDead: "OSD to monitor: I am down, and serve nobody.",
    OsdFull: "OSD to monitor: how full I am.",
    OsdPgTemp: "OSD to monitor: acting sets to use for now.",
    OsdBeacon: "OSD to monitor: sign of life.",
    PgStats: "OSD to manager: usage and state of its PGs.",
    DeviceReport: "Our OSD to our monitor: how long its device takes, and pings.",
    DeviceHealthWanted: "Our monitor to our OSD: ask a device how it is.",
    DeviceHealthReport: "Our OSD to our monitor: what the device says of its health.",
    BillReport: "Our OSD to our monitor: for whom it has worked.",
    SlowRequests: "Our OSD to our monitor: which requests of clients take too long.",
    OsdPgCreated: "OSD to monitor: a PG exists now.",
    OsdPgReadyToMerge: "OSD to monitor: two PGs may become one.",
    OsdPgCreate2: "Monitor to OSD: create these PGs.",
    OsdScrub2: "Manager to OSD: compare the copies of these PGs.",
    OsdForceRecovery: "Manager to OSD: recover these PGs before others.",
}
