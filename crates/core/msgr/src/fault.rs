//! [`Fault`]: why a connection cannot go on. Every fault ends the connection; a lossless session outlives it.

use crate::tag::Tag;
use nacre_denc::DecodeError;
use nacre_types::{AddrVec, EntityAddr, EntityKind};

/// What ended a connection. Except where a variant says otherwise the peer or the network is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The first bytes are not a messenger v2 banner.
    #[error("the peer does not speak messenger v2: it began with {found:02x?}")]
    Banner {
        /// The bytes that should have been the banner.
        found: [u8; 8],
    },
    /// The banner's payload has a length that no release sends.
    #[error("banner payload of {length} bytes")]
    BannerLength {
        /// The announced length.
        length: u16,
    },
    /// The peer is too old (no revision 1) or asks for protocol features that we do not have.
    #[error("protocol features: peer supports {supported:#x}, requires {required:#x}")]
    Revision {
        /// Protocol features that the peer has.
        supported: u64,
        /// Protocol features that it insists on.
        required: u64,
    },
    /// A preamble's checksum does not match.
    #[error("preamble checksum {found:#010x}, computed {computed:#010x}")]
    PreambleCrc {
        /// The checksum that came.
        found: u32,
        /// The checksum of the bytes that came.
        computed: u32,
    },
    /// A segment's checksum does not match.
    #[error("segment {segment} checksum {found:#010x}, computed {computed:#010x}")]
    SegmentCrc {
        /// 0 header, 1 front, 2 middle, 3 data.
        segment: usize,
        /// The checksum that came.
        found: u32,
        /// The checksum of the bytes that came.
        computed: u32,
    },
    /// A secure frame fails authentication: bytes were changed, or the keys differ.
    #[error("a secure frame fails authentication ({bytes} bytes)")]
    Sealed {
        /// Length of the sealed part.
        bytes: usize,
    },
    /// A tag that no frame has.
    #[error("unknown frame tag {tag}")]
    UnknownTag {
        /// Number of the frame's kind, which is not known.
        tag: u8,
    },
    /// A known frame that has no place here.
    #[error("frame {tag:?} while {phase}")]
    Unexpected {
        /// Kind of the frame that it came in.
        tag: Tag,
        /// What the connection was waiting for.
        phase: &'static str,
    },
    /// A frame with no or too many segments.
    #[error("frame {tag:?} with {count} segments")]
    SegmentCount {
        /// Kind of the frame that it came in.
        tag: Tag,
        /// Its number of segments.
        count: u8,
    },
    /// A segment longer than its limit.
    #[error("frame {tag:?}: segment {segment} of {length} bytes, at most {max} allowed")]
    SegmentLength {
        /// Kind of the frame that it came in.
        tag: Tag,
        /// 0 header or control payload, 1 front, 2 middle, 3 data.
        segment: usize,
        /// The announced length.
        length: u32,
        /// Most that is allowed.
        max: u32,
    },
    /// The byte that ends a frame is neither "complete" nor "aborted".
    #[error("late status {status:#04x} of frame {tag:?}")]
    LateStatus {
        /// Kind of the frame that it came in.
        tag: Tag,
        /// The byte, which says neither "complete" nor "aborted".
        status: u8,
    },
    /// A control frame's payload cannot be decoded.
    #[error("frame {tag:?}: {error}")]
    Payload {
        /// Kind of the frame that it came in.
        tag: Tag,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// More bytes before authentication than any honest handshake needs.
    #[error("handshake of more than {max} bytes")]
    HandshakeBytes {
        /// The limit, for each direction.
        max: usize,
    },
    /// More authentication rounds, identifications or retries than any honest peer needs.
    #[error("more than {max} requests during the handshake")]
    Rounds {
        /// Most that is allowed.
        max: u32,
    },
    /// The server chose a connection mode that does not exist.
    #[error("connection mode {mode}")]
    Mode {
        /// Number of the mode that was chosen.
        mode: u32,
    },
    /// The connection secret is too short for the chosen mode: the authenticator's mistake, or the server's.
    #[error("connection secret of {length} bytes, {wanted} wanted")]
    Secret {
        /// Bytes there are.
        length: usize,
        /// Bytes the mode needs.
        wanted: usize,
    },
    /// The signature over the handshake does not match: it was changed on its way, or the keys differ.
    #[error("handshake signature does not match")]
    Signature,
    /// The peer is not what we dialled.
    #[error("dialled a {expected:?}, a {found:?} answered")]
    PeerKind {
        /// What we dialled.
        expected: EntityKind,
        /// What it says it is.
        found: EntityKind,
    },
    /// The peer names no address of its own.
    #[error("the peer has no address")]
    NoAddress,
    /// The peer wants to speak to another daemon, perhaps to an earlier instance of us.
    #[error("the peer dialled {target}, we are {ours}")]
    NotForUs {
        /// Addresses that it wants to speak to.
        target: EntityAddr,
        /// Our own addresses.
        ours: AddrVec,
    },
    /// Another instance than the one we dialled answers at its address.
    #[error("dialled {target}, {found} answered")]
    WrongPeer {
        /// Addresses that we dialled.
        target: EntityAddr,
        /// Addresses of the peer that answered.
        found: AddrVec,
    },
    /// One side lacks features that the other insists on.
    #[error("missing features {missing:#x}")]
    Features {
        /// Features that the peer lacks, one bit each.
        missing: u64,
    },
    /// An identification older than one already seen from the same peer: a leftover of an earlier attempt.
    #[error("stale attempt {global_seq}, {known} already seen")]
    Stale {
        /// The peer's number for its attempt to connect.
        global_seq: u64,
        /// The newest number seen.
        known: u64,
    },
    /// The server connects to us at this moment and tells us to wait for that; see [`crate::Session`].
    #[error("the peer's own attempt has precedence")]
    Wait,
    /// A message's header segment has the wrong length.
    #[error("message header of {length} bytes")]
    MessageHeader {
        /// Length in bytes.
        length: usize,
    },
    /// A message is missing between two received ones.
    #[error("message {found} after message {last}")]
    Gap {
        /// The newest message before.
        last: u64,
        /// The message that came.
        found: u64,
    },
    /// The peer acknowledges a message that was never sent.
    #[error("message {acked} acknowledged, {sent} sent")]
    Ack {
        /// What it acknowledges.
        acked: u64,
        /// The newest message sent.
        sent: u64,
    },
    /// The peer asks and asks and does not read the answers.
    #[error("{queued} bytes of answers wait for a peer that does not read")]
    NotReading {
        /// Bytes of control frames that wait.
        queued: usize,
    },
    /// We sent faster than the peer takes: the caller ignored the back-pressure.
    #[error("{bytes} bytes in {count} messages wait to be sent or acknowledged")]
    QueueFull {
        /// Bytes that wait.
        bytes: usize,
        /// Messages that wait.
        count: usize,
    },
    /// The peer was silent for too long.
    #[error("timed out while {phase}")]
    Timeout {
        /// What the connection was waiting for.
        phase: &'static str,
    },
    /// The server has nobody to send to yet: our own mistake.
    #[error("no session yet")]
    NoSession,
    /// The connection has ended before.
    #[error("the connection is closed")]
    Closed,
}
