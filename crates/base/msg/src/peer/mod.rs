//! What our OSDs say to each other about one PG: replication, peering, recovery, scrub.
//!
//! The messages are our own (kinds from 0x7000, far from Ceph's); they keep RADOS's vocabulary. Every one
//! begins with a [`PeerHeader`], so that a receiver can tell at once whether it belongs to the interval it
//! is in. Formats: `docs/formats/peer-messages.md`. Front = one envelope; data = object data of a
//! transaction, by reference. An envelope that is too long for a front travels at the head of the data.

mod chunk;
mod chunk_mapping;
mod coded;
mod copy;
mod greeting;
mod info;
mod intervals;
mod log;
mod peering;
mod recovery;
mod replication;
mod reserve;
mod scrub;
mod sound;

pub use chunk::{ChunkRead, ChunkReply};
pub use chunk_mapping::{ChunkMapping, Shards};
pub use copy::{CopyGet, CopyReply};
pub use greeting::{PeerGreeting, ShardPorts};
pub use info::{Counters, PgHistory, PgInfo};
pub use intervals::{INTERVALS_MAX, PastInterval, PastIntervals};
pub use log::{LogEntry, LogKind, OpOutput};
pub use peering::{Activate, Activated, IntervalId, LogReply, MissingItem, Notify, Query, QueryKind};
pub use recovery::{PartCursor, Progress, Pull, Push, PushReply, Release, Scan, ScanReply, ScannedObject};
pub use replication::{RepOp, RepOpReply};
pub use reserve::{Reserve, ReserveStep};
pub use scrub::{ScrubObject, ScrubReply, ScrubRequest};

use crate::RawMessage;
use crate::size::{FRONT_BYTES_MAX, PEER_BYTES_MAX};
use nacre_buf::{BufList, Bytes};
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_types::{Epoch, SpgId};

/// First kind of our own messages.
pub const KIND_FIRST: u16 = 0x7000;
/// Last kind kept for our own messages; [`PeerGreeting`].
pub const KIND_LAST: u16 = 0x70ff;
/// Ceph's `CEPH_MSG_PRIO_HIGH`: peers' messages are never behind a client's bulk data.
const PRIORITY: u16 = 196;

/// The envelope is the front.
const VERSION: u16 = 1;
/// The front is the envelope's length as a `u64`, and the envelope stands at the head of the data.
const VERSION_LONG: u16 = 2;

/// Room for the front of a replicated write; most others are shorter.
const FRONT_BYTES_USUAL: usize = 768;
/// Room for that of its acknowledgement.
const REPLY_BYTES_USUAL: usize = 64;

/// Versions of our own messages that an OSD can speak with others, both included. The newest is raised when a message changes so
/// that programs which know the old one only cannot read it; the oldest, when no program writes and reads the old one any more. Two speak the
/// newest version that both know. A cluster is upgraded one OSD after the other as long as each program knows a version that the
/// one before it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerVersions {
    /// Oldest version that is understood.
    pub oldest: u32,
    /// Newest version that is understood.
    pub newest: u32,
}

impl PeerVersions {
    /// What this code speaks.
    pub const OURS: Self = Self { oldest: 5, newest: 7 };
    /// From this version on the chunks of erasure-coded objects may be those of Ceph's plugins. No message changed.
    pub const CODES_OF_PLUGINS: u32 = 6;
    /// From this version on PGs of erasure-coded pools may be merged: [`PgInfo::mapping`].
    pub const MERGES_OF_CODED_PGS: u32 = 7;
    /// The key of an OSD's metadata, as it boots, that holds its [`PeerVersions`]. Ceph's OSDs do not have it: they speak other
    /// messages.
    pub const METADATA_KEY: &'static str = "nacre_peer_versions";

    /// The version that two speak with each other; `None` when there is none that both know.
    #[must_use]
    pub fn agree(&self, other: &Self) -> Option<u32> {
        let version = self.newest.min(other.newest);
        (version >= self.oldest.max(other.oldest)).then_some(version)
    }

    /// Reads what `Display` writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (oldest, newest) = text.split_once('-')?;
        let (oldest, newest) = (oldest.parse().ok()?, newest.parse().ok()?);
        (oldest <= newest).then_some(Self { oldest, newest })
    }
}

/// `oldest-newest`.
impl std::fmt::Display for PeerVersions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.oldest, self.newest)
    }
}

/// Begins every peer message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerHeader {
    /// The PG that it is for, with the shard of its receiver.
    pub spg: SpgId,
    /// The sender's map epoch. A receiver with an older map waits for this one; a receiver whose interval
    /// began later drops the message.
    pub epoch: Epoch,
}

coded::coded!(PeerHeader, "peer header", { spg, epoch });

macro_rules! peer_messages {
    ($($name:ident = $kind:literal $text:literal in $held:ty,)*) => {
        /// A message between two members of a PG. Those of each write are held in place, all others in a
        /// box: they are many times larger, and would make every message as large.
        #[derive(Debug, Clone, PartialEq)]
        pub enum PeerMessage {
            $(#[doc = $text] $name($held),)*
        }

        impl PeerMessage {
            /// Which PG, and in which epoch it was sent.
            #[must_use]
            pub fn header(&self) -> &PeerHeader {
                match self { $(Self::$name(message) => &message.header,)* }
            }

            /// The message's kind on the wire.
            #[must_use]
            pub fn kind(&self) -> u16 {
                match self { $(Self::$name(_) => $name::KIND,)* }
            }

            fn encode_parts(&self, w: &mut Writer) -> BufList {
                match self { $(Self::$name(message) => message.encode_parts(w),)* }
            }

            fn decode_parts(kind: u16, r: &mut Reader, data: &BufList) -> Result<Self, DecodeError> {
                match kind.wrapping_sub(KIND_FIRST) {
                    $($kind => $name::decode_parts(r, data).map(Self::from),)*
                    _ => Err(DecodeError::Invalid { what: "peer message kind", value: kind.into() }),
                }
            }

            /// The message's name, for logs.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self { $(Self::$name(_) => stringify!($name),)* }
            }
        }

        $(impl $name {
            /// The message's kind on the wire.
            pub const KIND: u16 = KIND_FIRST + $kind;
        })*

        $(impl From<$name> for PeerMessage {
            fn from(message: $name) -> Self {
                Self::$name(message.into())
            }
        })*
    };
}

peer_messages! {
    RepOp = 0 "Apply this write." in RepOp,
    RepOpReply = 1 "The write is durable here." in RepOpReply,
    Query = 2 "What do you have of this PG?" in Box<Query>,
    Notify = 3 "This is what I have of it." in Box<Notify>,
    LogReply = 4 "My log, as asked for." in Box<LogReply>,
    Activate = 5 "This is the authoritative log; take part in the interval." in Box<Activate>,
    Activated = 6 "I have it durably; these objects I miss." in Box<Activated>,
    Scan = 7 "Which objects do you have, from here on?" in Box<Scan>,
    ScanReply = 8 "These, in these versions." in Box<ScanReply>,
    Pull = 9 "Send me this object." in Box<Pull>,
    Push = 10 "Here is (a part of) an object, or the order to drop it." in Box<Push>,
    PushReply = 11 "It is durable here, or I cannot give it." in Box<PushReply>,
    Progress = 12 "What the primary knows of you now." in Box<Progress>,
    Release = 13 "The PG is clean without you: drop your copy." in Box<Release>,
    ScrubRequest = 14 "List these objects with their checksums." in Box<ScrubRequest>,
    ScrubReply = 15 "Here they are." in Box<ScrubReply>,
    CopyGet = 16 "Give me a part of this object." in Box<CopyGet>,
    CopyReply = 17 "Here it is." in Box<CopyReply>,
    Reserve = 18 "About a place for the PG's recovery at a member." in Box<Reserve>,
    ChunkRead = 19 "Read this part of your chunk of an object." in Box<ChunkRead>,
    ChunkReply = 20 "This is it." in Box<ChunkReply>,
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
        let room = if let Self::RepOpReply(_) = self { REPLY_BYTES_USUAL } else { FRONT_BYTES_USUAL };
        raw(self.kind(), tid, room, |w| self.encode_parts(w))
    }

    /// Reads what [`PeerMessage::encode`] made.
    ///
    /// # Errors
    /// [`DecodeError`] for a kind that is not ours, a form that we do not know, a malformed body, one longer than
    /// [`PEER_BYTES_MAX`], or a log that cannot be.
    pub fn decode(raw: RawMessage) -> Result<Self, DecodeError> {
        if raw.data.len() > PEER_BYTES_MAX as usize {
            return Err(DecodeError::Invalid {
                what: "length of a peer's message",
                value: raw.data.len() as u64,
            });
        }
        let message = Self::decode_form(raw)?;
        message.check()?;
        Ok(message)
    }

    fn decode_form(raw: RawMessage) -> Result<Self, DecodeError> {
        match raw.version {
            VERSION => Self::decode_parts(raw.kind, &mut Reader::new(raw.front), &raw.data),
            VERSION_LONG => {
                let length = Reader::new(raw.front).u64()?;
                let here = usize::try_from(length).ok().filter(|length| *length <= raw.data.len());
                let here =
                    here.ok_or(DecodeError::Invalid { what: "length of a long front", value: length })?;
                let front = raw.data.slice(0, here).to_bytes();
                let data = raw.data.slice(here, raw.data.len() - here);
                Self::decode_parts(raw.kind, &mut Reader::new(front), &data)
            }
            version => Err(DecodeError::Invalid { what: "form of a peer's message", value: version.into() }),
        }
    }
}

impl RepOp {
    /// As [`PeerMessage::encode`], under transaction number 0, for a caller that needs the parts afterwards.
    #[must_use]
    pub fn encode(&self) -> RawMessage {
        raw(Self::KIND, 0, FRONT_BYTES_USUAL, |w| self.encode_parts(w))
    }
}

fn raw(kind: u16, tid: u64, front_bytes: usize, encode: impl FnOnce(&mut Writer) -> BufList) -> RawMessage {
    let mut w = Writer::gathering(front_bytes);
    let data = encode(&mut w);
    let message = |version, front, data| RawMessage {
        tid,
        kind,
        version,
        compat: if version == VERSION { 1 } else { version },
        priority: PRIORITY,
        front,
        middle: Bytes::new(),
        data,
    };
    // Behind a front, an object's data would not lie in its page any more when it comes.
    let is_shared = w.shares() && data.is_empty();
    if w.len() <= FRONT_BYTES_MAX as usize && !is_shared {
        return message(VERSION, w.finish(), data);
    }
    // With the front at the head of the data: what a write or a log says may be longer than any front, and is not copied there.
    let front = Bytes::copy_from_slice(&(w.len() as u64).to_le_bytes());
    let mut long = w.finish_list();
    long.append(data);
    message(VERSION_LONG, front, long)
}

const _: () = assert!(size_of::<PeerMessage>() <= 192, "moved several times for each write");

#[cfg(test)]
mod tests;
