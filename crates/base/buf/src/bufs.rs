//! [`BufList`]: an ordered list of shared slices that reads as one run of bytes.

use crate::crc::crc32c;
use bytes::{Bytes, BytesMut};

/// A gather list: slices that together are one run of bytes, passed on without copying.
///
/// Holds no empty slice, so `slices()` can be handed to a vectored write as it is.
#[derive(Clone, Default)]
pub struct BufList {
    slices: Vec<Bytes>,
    len: usize,
}

impl BufList {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { slices: Vec::new(), len: 0 }
    }

    /// Appends `slice`; an empty one is dropped.
    pub fn push(&mut self, slice: Bytes) {
        if !slice.is_empty() {
            self.len += slice.len();
            self.slices.push(slice);
        }
    }

    /// Appends all slices of `other`.
    pub fn append(&mut self, other: Self) {
        self.len += other.len;
        self.slices.extend(other.slices);
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

    /// CRC-32C register over all bytes, started at `seed`.
    #[must_use]
    pub fn crc32c(&self, seed: u32) -> u32 {
        self.slices.iter().fold(seed, |crc, slice| crc32c(crc, slice))
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
}
