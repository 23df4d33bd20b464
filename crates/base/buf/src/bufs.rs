//! [`BufList`]: an ordered list of shared slices that reads as one run of bytes.

use crate::crc::crc32c;
use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

/// Where checksums of whole payloads start, on the wire: the register of [`BufList::with_crc`].
pub const PAYLOAD_CRC_SEED: u32 = u32::MAX;

/// A gather list: slices that together are one run of bytes, passed on without copying.
///
/// Holds no empty slice, so `slices()` can be handed to a vectored write as it is. Knows its checksum where somebody has
/// computed it, as long as it stays as it is: what came with a message is sent on without computing it again.
#[derive(Clone, Default)]
pub struct BufList {
    slices: SmallVec<[Bytes; 1]>,
    len: usize,
    /// From [`PAYLOAD_CRC_SEED`].
    crc: Option<u32>,
}

impl BufList {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self { slices: SmallVec::new(), len: 0, crc: None }
    }

    /// The same, with what its checksum is known to be: the register over all bytes, started at [`PAYLOAD_CRC_SEED`].
    #[must_use]
    pub fn with_crc(self, crc: u32) -> Self {
        debug_assert_eq!(crc, self.crc32c(PAYLOAD_CRC_SEED), "a wrong checksum would be sent on");
        Self { crc: Some(crc), ..self }
    }

    /// Appends `slice`; an empty one is dropped.
    pub fn push(&mut self, slice: Bytes) {
        if !slice.is_empty() {
            self.len += slice.len();
            self.slices.push(slice);
            self.crc = None;
        }
    }

    /// Appends all slices of `other`.
    pub fn append(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
        } else if !other.is_empty() {
            self.len += other.len;
            self.slices.extend(other.slices);
            self.crc = None;
        }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The slices in order, none of them empty.
    #[must_use]
    pub fn slices(&self) -> &[Bytes] {
        &self.slices
    }

    /// Bytes `start .. start + length` as a list over the same memory.
    ///
    /// # Panics
    /// When the range does not lie within the list: callers check lengths where bytes come in.
    #[must_use]
    pub fn slice(&self, start: usize, length: usize) -> Self {
        assert!(start + length <= self.len, "slice {start}~{length} of {} bytes", self.len);
        if length == self.len {
            return self.clone();
        }
        let mut out = Self::new();
        let (mut skip, mut left) = (start, length);
        for slice in &self.slices {
            if left == 0 {
                break;
            }
            if skip >= slice.len() {
                skip -= slice.len();
                continue;
            }
            let take = left.min(slice.len() - skip);
            out.push(slice.slice(skip..skip + take));
            skip = 0;
            left -= take;
        }
        out
    }

    /// One contiguous slice: shared when the list has a single slice, else a copy.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match self.slices.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => {
                let mut out = BytesMut::with_capacity(self.len);
                many.iter().for_each(|slice| out.extend_from_slice(slice));
                out.freeze()
            }
        }
    }

    /// The register over all bytes, started at [`PAYLOAD_CRC_SEED`], if somebody has computed it.
    #[must_use]
    pub const fn known_crc(&self) -> Option<u32> {
        self.crc
    }

    /// CRC-32C register over all bytes, started at `seed`.
    #[must_use]
    pub fn crc32c(&self, seed: u32) -> u32 {
        match self.crc {
            Some(crc) if seed == PAYLOAD_CRC_SEED => crc,
            _ => self.slices.iter().fold(seed, |crc, slice| crc32c(crc, slice)),
        }
    }
}

impl From<Bytes> for BufList {
    fn from(slice: Bytes) -> Self {
        let mut list = Self::new();
        list.push(slice);
        list
    }
}

impl From<Vec<u8>> for BufList {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl FromIterator<Bytes> for BufList {
    fn from_iter<I: IntoIterator<Item = Bytes>>(slices: I) -> Self {
        let mut list = Self::new();
        slices.into_iter().for_each(|slice| list.push(slice));
        list
    }
}

/// Equal when the bytes are, however they are cut.
impl PartialEq for BufList {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len
            && self.slices.iter().flat_map(|s| s.iter()).eq(other.slices.iter().flat_map(|s| s.iter()))
    }
}

impl Eq for BufList {}

impl std::fmt::Debug for BufList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BufList({} bytes in {} slices)", self.len, self.slices.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(parts: &[&'static [u8]]) -> BufList {
        parts.iter().map(|part| Bytes::from_static(part)).collect()
    }

    #[test]
    fn slicing_crosses_slices_without_copying() {
        let all = list(&[b"abc", b"", b"defg", b"h"]);
        assert_eq!(all.len(), 8);
        assert_eq!(all.slices().len(), 3);
        assert_eq!(&all.slice(2, 4).to_bytes()[..], b"cdef");
        assert!(all.slice(8, 0).is_empty());
    }

    #[test]
    fn equality_and_crc_ignore_the_cuts() {
        let (one, two) = (list(&[b"abcdef"]), list(&[b"ab", b"cdef"]));
        assert_eq!(one, two);
        assert_eq!(one.crc32c(9), two.crc32c(9));
    }

    #[test]
    fn a_known_checksum_goes_with_the_bytes_and_with_no_others() {
        let plain = list(&[b"ab", b"cdef"]);
        let crc = plain.crc32c(PAYLOAD_CRC_SEED);
        let known = plain.with_crc(crc);
        assert_eq!((known.crc, known.clone().crc, known.slice(0, 6).crc), (Some(crc), Some(crc), Some(crc)));
        assert_eq!((known.slice(0, 5).crc, known.slice(6, 0).crc), (None, None));
        let mut joined = BufList::new();
        joined.append(known.clone());
        joined.append(BufList::new());
        joined.push(Bytes::new());
        assert_eq!(joined.crc, Some(crc));
        joined.append(known.clone());
        assert_eq!(joined.crc32c(PAYLOAD_CRC_SEED), list(&[b"abcdefabcdef"]).crc32c(PAYLOAD_CRC_SEED));
        assert_eq!(known.crc32c(7), list(&[b"abcdef"]).crc32c(7));
    }
}
