//! What our OSDs say to each other about one placement group: replication, peering, recovery, scrub.
//!
//! The messages are our own (kinds from 0x7000, far from Ceph's); they keep RADOS's vocabulary. Every one
//! begins with a [`PeerHeader`], so that a receiver can tell at once whether it belongs to the interval it
//! is in. Formats: `docs/formats/peer-messages.md`. Front = one envelope; data = object data of a
//! transaction, by reference.

mod chunk;
mod coded;
mod copy;
mod info;
mod intervals;
mod log;
mod peering;
mod recovery;
mod replication;
mod reserve;
mod scrub;

pub use chunk::{ChunkRead, ChunkReply};
pub use copy::{CopyGet, CopyReply};
pub use info::{Counters, PgHistory, PgInfo};
pub use intervals::{INTERVALS_MAX, PastInterval, PastIntervals};
pub use log::{LogEntry, LogKind, OpOutput};
pub use peering::{Activate, Activated, IntervalId, LogReply, MissingItem, Notify, Query, QueryKind};
pub use recovery::{Progress, Pull, Push, PushReply, Release, Scan, ScanReply, ScannedObject};
pub use replication::{RepOp, RepOpReply};
pub use reserve::{Reserve, ReserveStep};
pub use scrub::{ScrubObject, ScrubReply, ScrubRequest};

use crate::RawMessage;
use nacre_buf::{BufList, Bytes};
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_types::{Epoch, SpgId};

/// First kind of our own messages.
pub const KIND_FIRST: u16 = 0x7000;
/// Last kind kept for our own messages.
pub const KIND_LAST: u16 = 0x70ff;
/// Ceph's `CEPH_MSG_PRIO_HIGH`: peers' messages are never behind a client's bulk data.
const PRIORITY: u16 = 196;

/// Room for the front of a replicated write; most others are shorter.
const FRONT_BYTES_USUAL: usize = 768;

/// Begins every peer message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerHeader {
    /// The placement group.
    pub spg: SpgId,
    /// The sender's map epoch. A receiver with an older map waits for this one; a receiver whose interval
    /// began later drops the message.
    pub epoch: Epoch,
}

coded::coded!(PeerHeader, "peer header", { spg, epoch });

macro_rules! peer_messages {
    ($($name:ident = $kind:literal $text:literal,)*) => {
        /// A message between two members of a placement group.
        #[derive(Debug, Clone, PartialEq)]
        pub enum PeerMessage {
            $(#[doc = $text] $name($name),)*
        }

        impl PeerMessage {
            /// Which placement group, and in which epoch it was sent.
            #[must_use]
            pub fn header(&self) -> &PeerHeader {
                match self { $(Self::$name(message) => &message.header,)* }
            }

            /// The message's kind on the wire.
            #[must_use]
            pub fn kind(&self) -> u16 {
                match self { $(Self::$name(_) => KIND_FIRST + $kind,)* }
            }

            fn encode_parts(&self, w: &mut Writer) -> BufList {
                match self { $(Self::$name(message) => message.encode_parts(w),)* }
            }

            fn decode_parts(kind: u16, r: &mut Reader, data: &BufList) -> Result<Self, DecodeError> {
                match kind.wrapping_sub(KIND_FIRST) {
                    $($kind => $name::decode_parts(r, data).map(Self::$name),)*
                    _ => Err(DecodeError::Invalid { what: "peer message kind", value: kind.into() }),
                }
            }

            /// The message's name, for logs.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self { $(Self::$name(_) => stringify!($name),)* }
            }
        }

        $(impl From<$name> for PeerMessage {
            fn from(message: $name) -> Self {
                Self::$name(message)
            }
        })*
    };
}

peer_messages! {
    RepOp = 0 "Apply this write.",
    RepOpReply = 1 "The write is durable here.",
    Query = 2 "What do you have of this PG?",
    Notify = 3 "This is what I have of it.",
    LogReply = 4 "My log, as asked for.",
    Activate = 5 "This is the authoritative log; take part in the interval.",
    Activated = 6 "I have it durably; these objects I miss.",
    Scan = 7 "Which objects do you have, from here on?",
    ScanReply = 8 "These, in these versions.",
    Pull = 9 "Send me this object.",
    Push = 10 "Here is (a part of) an object, or the order to drop it.",
    PushReply = 11 "It is durable here, or I cannot give it.",
    Progress = 12 "What the primary knows of you now.",
    Release = 13 "The PG is clean without you: drop your copy.",
    ScrubRequest = 14 "List these objects with their checksums.",
    ScrubReply = 15 "Here they are.",
    CopyGet = 16 "Give me a part of this object.",
    CopyReply = 17 "Here it is.",
    Reserve = 18 "About a place for the PG's recovery at a member.",
    ChunkRead = 19 "Read this part of your chunk of an object.",
    ChunkReply = 20 "This is it.",
}

impl PeerMessage {
    /// True when `kind` is one of ours.
    #[must_use]
    pub fn is_kind(kind: u16) -> bool {
        (KIND_FIRST..=KIND_LAST).contains(&kind)
    }

    /// The message as frames carry it; object data is shared, not copied.
    #[must_use]
    pub fn encode(&self, tid: u64) -> RawMessage {
        let mut w = Writer::with_capacity(FRONT_BYTES_USUAL);
        let data = self.encode_parts(&mut w);
        RawMessage {
            tid,
            kind: self.kind(),
            version: 1,
            compat: 1,
            priority: PRIORITY,
            front: w.finish(),
            middle: Bytes::new(),
            data,
        }
    }

    /// Reads what [`PeerMessage::encode`] made.
    ///
    /// # Errors
    /// [`DecodeError`] for a kind that is not ours or a malformed body.
    pub fn decode(raw: &RawMessage) -> Result<Self, DecodeError> {
        Self::decode_parts(raw.kind, &mut Reader::new(raw.front.clone()), &raw.data)
    }
}

#[cfg(test)]
mod tests;
