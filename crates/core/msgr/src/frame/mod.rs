//! Frames: what both codecs share.
//!
//! Source: Ceph `src/msg/async/frames_v2.h` at v16.2.15, revision 1 of the protocol.
//!
//! ```text
//! CRC      preamble 32 | segment 0 | crc | segments 1, 2, 3 | epilogue 13 (if more than one segment)
//! SECURE   GCM(preamble 32 | first 48 of segment 0) | GCM(rest, each segment padded to 16 | epilogue 16)
//! ```

mod preamble;
mod receiver;
mod secure;
mod sender;
mod sum;
mod workspace;

use preamble::Preamble;
pub(crate) use receiver::{Inbound, Receiver};
pub(crate) use secure::Keys;
pub(crate) use sender::Sender;
pub use workspace::Workspace;

pub(crate) use crate::tag::Tag;
use crate::{Fault, RawMessage};
pub use nacre_msg::size::{DATA_BYTES_MAX, FRONT_BYTES_MAX, MIDDLE_BYTES_MAX, PEER_BYTES_MAX};

/// Segments of a frame: header, front, middle, data.
pub(crate) const SEGMENT_COUNT_MAX: usize = 4;
/// Longest control frame. Before a session is open nothing longer is accepted, so a stranger never makes us
/// hold more than this and [`crate::HANDSHAKE_BYTES_MAX`].
pub const CONTROL_BYTES_MAX: u32 = 64 << 10;
/// Length of a MESSAGE frame's segment 0. Ceph `ceph_msg_header2`.
pub(crate) const MESSAGE_HEADER_BYTES: usize = 41;
/// Register at the start of a segment's checksum.
const SEGMENT_CRC_SEED: u32 = nacre_buf::PAYLOAD_CRC_SEED;
/// `late_status` (low half) of a frame that its sender completed.
const LATE_COMPLETE: u8 = 0x0e;
/// `late_status` (low half) of a frame that its sender gave up.
const LATE_ABORTED: u8 = 0x01;
/// `late_status` byte and the checksums of segments 1, 2 and 3.
const EPILOGUE_BYTES: usize = 13;

/// Header of a MESSAGE frame. Ceph `ceph_msg_header2`, 41 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MessageHeader {
    pub(crate) seq: u64,
    pub(crate) tid: u64,
    pub(crate) kind: u16,
    pub(crate) priority: u16,
    pub(crate) version: u16,
    pub(crate) compat: u16,
    pub(crate) ack_seq: u64,
}

/// The header flags that real daemons send: "complete" and "checksums are the frame's business".
const MESSAGE_FLAGS: u8 = 3;

impl MessageHeader {
    pub(crate) fn encode(&self) -> [u8; MESSAGE_HEADER_BYTES] {
        let mut out = [0; MESSAGE_HEADER_BYTES];
        let mut rest = out.as_mut_slice();
        put(&mut rest, &self.seq.to_le_bytes());
        put(&mut rest, &self.tid.to_le_bytes());
        put(&mut rest, &self.kind.to_le_bytes());
        put(&mut rest, &self.priority.to_le_bytes());
        put(&mut rest, &self.version.to_le_bytes());
        put(&mut rest, &[0; 6]); // data_pre_padding_len, data_off
        put(&mut rest, &self.ack_seq.to_le_bytes());
        put(&mut rest, &[MESSAGE_FLAGS]);
        put(&mut rest, &self.compat.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        let whole: &[u8; MESSAGE_HEADER_BYTES] =
            bytes.try_into().map_err(|_| Fault::MessageHeader { length: bytes.len() })?;
        let mut rest = whole.as_slice();
        let seq = u64::from_le_bytes(pull(&mut rest));
        let tid = u64::from_le_bytes(pull(&mut rest));
        let kind = u16::from_le_bytes(pull(&mut rest));
        let priority = u16::from_le_bytes(pull(&mut rest));
        let version = u16::from_le_bytes(pull(&mut rest));
        let _padding_and_offset: [u8; 6] = pull(&mut rest);
        let ack_seq = u64::from_le_bytes(pull(&mut rest));
        let _flags: [u8; 1] = pull(&mut rest);
        let compat = u16::from_le_bytes(pull(&mut rest));
        Ok(Self { seq, tid, kind, priority, version, compat, ack_seq })
    }
}

/// Verifies that no segment of `message` is longer than a receiver accepts. Clients take answers of any length: a read may
/// be as long as an object. A peer with a lossless session takes no more than [`PEER_BYTES_MAX`].
pub(crate) fn check_lengths(message: &RawMessage, lossy: bool) -> Result<(), Fault> {
    let lengths = [message.front.len(), message.middle.len(), message.data.len()];
    let limits = [FRONT_BYTES_MAX, MIDDLE_BYTES_MAX, if lossy { u32::MAX } else { PEER_BYTES_MAX }];
    for (index, (length, max)) in lengths.into_iter().zip(limits).enumerate() {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        if length > max {
            return Err(Fault::SegmentLength { tag: Tag::Message, segment: index + 1, length, max });
        }
    }
    Ok(())
}

/// Takes the first `N` bytes of `rest`; zeros when a caller misjudged the layout of a fixed-size struct.
#[inline]
fn pull<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    debug_assert!(rest.len() >= N, "a field beyond the end of its struct");
    let Some((first, behind)) = rest.split_first_chunk::<N>() else { return [0; N] };
    *rest = behind;
    *first
}

/// Writes `bytes` at the start of `rest` and moves on.
#[inline]
fn put<const N: usize>(rest: &mut &mut [u8], bytes: &[u8; N]) {
    debug_assert!(rest.len() >= N, "a field beyond the end of its struct");
    if let Some((first, behind)) = std::mem::take(rest).split_first_chunk_mut::<N>() {
        *first = *bytes;
        *rest = behind;
    }
}

#[cfg(test)]
pub(crate) mod tests;
