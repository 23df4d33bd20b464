//! [`Preamble`]: the 32 bytes that announce a frame.
//!
//! Source: Ceph `preamble_block_t` in `src/msg/async/frames_v2.h`, v16.2.15.
//!
//! ```text
//! tag 1 | segments 1 | 4 x (length 4, alignment 2) | flags 1 | 0 | crc 4 of the 28 bytes before, seed 0
//! ```

use super::{
    CONTROL_BYTES_MAX, FRONT_BYTES_MAX, MESSAGE_HEADER_BYTES, MIDDLE_BYTES_MAX, SEGMENT_COUNT_MAX, Tag, pull,
    put,
};
use crate::Fault;
use nacre_buf::crc::crc32c;

/// Alignment that we announce for each segment; a hint that receivers may ignore.
const ALIGNMENTS: [u16; SEGMENT_COUNT_MAX] = [8, 8, 8, 4096];
const CRC_OFFSET: usize = 28;

/// Tag and segment lengths of one frame. Decoded ones are within their limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Preamble {
    pub(crate) tag: Tag,
    /// 1 to 4; trailing empty segments are not counted.
    pub(crate) count: u8,
    pub(crate) lengths: [u32; SEGMENT_COUNT_MAX],
}

impl Preamble {
    pub(crate) const BYTES: usize = 32;

    /// # Panics
    /// When a segment has 4 GiB: our own lengths are far below.
    pub(crate) fn new(tag: Tag, lengths: [usize; SEGMENT_COUNT_MAX]) -> Self {
        let used = lengths.iter().rposition(|length| *length > 0).map_or(1, |last| last + 1);
        Self {
            tag,
            count: u8::try_from(used).expect("at most four segments"),
            lengths: lengths.map(|length| u32::try_from(length).expect("segments below 4 GiB")),
        }
    }

    /// Length of segment `index`.
    pub(crate) fn length(&self, index: usize) -> usize {
        self.lengths.get(index).map_or(0, |length| *length as usize)
    }

    /// True when the frame ends with an epilogue.
    pub(crate) fn has_epilogue(&self) -> bool {
        self.count > 1
    }

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        let mut rest = out.as_mut_slice();
        put(&mut rest, &[self.tag as u8, self.count]);
        let described = self.lengths.iter().zip(ALIGNMENTS).take(self.count.into());
        for (length, alignment) in described {
            put(&mut rest, &length.to_le_bytes());
            put(&mut rest, &alignment.to_le_bytes());
        }
        let (covered, crc) = out.split_at_mut(CRC_OFFSET);
        crc.copy_from_slice(&crc32c(0, covered).to_le_bytes());
        out
    }

    /// # Errors
    /// A [`Fault`] for a wrong checksum, an unknown tag, too many or too long segments.
    pub(crate) fn decode(bytes: &[u8; Self::BYTES]) -> Result<Self, Fault> {
        let (covered, mut crc) = bytes.split_at(CRC_OFFSET);
        let (found, computed) = (u32::from_le_bytes(pull(&mut crc)), crc32c(0, covered));
        if found != computed {
            return Err(Fault::PreambleCrc { found, computed });
        }
        let mut rest = covered;
        let [tag, count] = pull(&mut rest);
        let lengths = std::array::from_fn(|_| {
            let length = u32::from_le_bytes(pull(&mut rest));
            let _alignment: [u8; 2] = pull(&mut rest);
            length
        });
        let preamble = Self { tag: tag_of(tag)?, count, lengths };
        preamble.check_limits()?;
        Ok(preamble)
    }

    fn check_limits(&self) -> Result<(), Fault> {
        let (count_max, length_max) = match self.tag {
            Tag::Message => (SEGMENT_COUNT_MAX, MESSAGE_LIMITS),
            _ => (1, CONTROL_LIMITS),
        };
        if !(1..=count_max).contains(&self.count.into()) {
            return Err(Fault::SegmentCount { tag: self.tag, count: self.count });
        }
        for (segment, (&length, max)) in self.lengths.iter().zip(length_max).enumerate() {
            // An uncounted segment takes no bytes, whatever its descriptor says: refuse the contradiction.
            let max = if segment < self.count.into() { max } else { 0 };
            if length > max {
                return Err(Fault::SegmentLength { tag: self.tag, segment, length, max });
            }
        }
        if self.tag == Tag::Message && self.length(0) != MESSAGE_HEADER_BYTES {
            return Err(Fault::MessageHeader { length: self.length(0) });
        }
        Ok(())
    }
}

/// [`MESSAGE_HEADER_BYTES`] as the wire has it.
const MESSAGE_HEADER_LENGTH: u32 = 41;
const _: () = assert!(MESSAGE_HEADER_LENGTH as usize == MESSAGE_HEADER_BYTES);
/// How much data is taken is for the receiver to say.
const MESSAGE_LIMITS: [u32; SEGMENT_COUNT_MAX] =
    [MESSAGE_HEADER_LENGTH, FRONT_BYTES_MAX, MIDDLE_BYTES_MAX, u32::MAX];
const CONTROL_LIMITS: [u32; SEGMENT_COUNT_MAX] = [CONTROL_BYTES_MAX, 0, 0, 0];

/// The kind of a frame, by the number that a peer sent.
pub(super) fn tag_of(code: u8) -> Result<Tag, Fault> {
    Tag::from_code(code).ok_or(Fault::UnknownTag { tag: code })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_drops_trailing_empty_segments() {
        let preamble = Preamble::new(Tag::Message, [41, 7, 0, 0]);
        assert_eq!(preamble.count, 2);
        assert_eq!(Preamble::decode(&preamble.encode()), Ok(preamble));
        assert_eq!(Preamble::new(Tag::Wait, [0; 4]).count, 1);
    }

    #[test]
    fn each_bit_is_covered_by_the_checksum() {
        let good = Preamble::new(Tag::Message, [41, 7, 0, 9]).encode();
        for bit in 0..good.len() * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Preamble::decode(&bad), Err(Fault::PreambleCrc { .. })), "bit {bit}");
        }
    }

    #[test]
    fn limits_hold() {
        let decode = |preamble: Preamble| Preamble::decode(&preamble.encode()).map(|_| ());
        let long = Preamble::new(Tag::Hello, [CONTROL_BYTES_MAX as usize + 1, 0, 0, 0]);
        assert!(matches!(decode(long), Err(Fault::SegmentLength { segment: 0, .. })));
        let long = Preamble::new(Tag::Message, [41, 0, MIDDLE_BYTES_MAX as usize + 1, 0]);
        assert!(matches!(decode(long), Err(Fault::SegmentLength { segment: 2, .. })));
        let two = Preamble::new(Tag::Hello, [1, 1, 0, 0]);
        assert!(matches!(decode(two), Err(Fault::SegmentCount { count: 2, .. })));
        let none = Preamble { count: 0, ..Preamble::new(Tag::Hello, [0; 4]) };
        assert!(matches!(decode(none), Err(Fault::SegmentCount { count: 0, .. })));
        let short = Preamble::new(Tag::Message, [40, 1, 0, 0]);
        assert!(matches!(decode(short), Err(Fault::MessageHeader { length: 40 })));
    }
}
