//! [`BufList`]: an ordered list of shared slices that reads as one run of bytes.

use crate::crc::{BLOCK_BYTES, PAYLOAD_CRC_SEED, append_blocks, crc32c};
use crate::known::Known;
use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

/// A gather list: slices that together are one run of bytes, passed on without copying.
///
/// Holds no empty slice, so `slices()` can be handed to a vectored write as it is. Knows checksums where they have been computed
/// them, of all bytes or of blocks of 4 KiB: what came with a message, or was verified when it was read, is sent on and
/// stored without computing it again.
#[derive(Clone, Default)]
pub struct BufList {
    slices: SmallVec<[Bytes; 1]>,
    len: usize,
    known: Known,
}

impl BufList {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, with what its checksum is known to be: the register over all bytes, started at [`PAYLOAD_CRC_SEED`].
    #[must_use]
    pub fn with_crc(self, crc: u32) -> Self {
        debug_assert_eq!(crc, self.crc32c(PAYLOAD_CRC_SEED), "a wrong checksum would be sent on");
        Self { known: Known::Whole(crc), ..self }
    }

    /// The same, with what the checksums of its first blocks of 4 KiB are known to be: the register over each, started at
    /// [`PAYLOAD_CRC_SEED`]. All of them, or fewer; what follows them is summed when it is asked for.
    ///
    /// # Panics
    /// When there are more checksums than whole blocks.
    #[must_use]
    pub fn with_block_crcs(self, crcs: Vec<u32>) -> Self {
        assert!(crcs.len() <= self.len / BLOCK_BYTES, "{} blocks of {} bytes", crcs.len(), self.len);
        debug_assert_eq!(crcs, self.computed_block_crcs(crcs.len()), "wrong checksums would be stored");
        Self { known: Known::blocks(crcs, self.len), ..self }
    }

    /// Appends `slice`; an empty one is dropped.
    pub fn push(&mut self, slice: Bytes) {
        if !slice.is_empty() {
            self.known = std::mem::take(&mut self.known).followed_by(self.len, Known::Nothing);
            self.len += slice.len();
            self.slices.push(slice);
        }
    }

    /// Appends all slices of `other`.
    pub fn append(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
        } else if !other.is_empty() {
            self.known = std::mem::take(&mut self.known).followed_by(self.len, other.known);
            self.len += other.len;
            self.slices.extend(other.slices);
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
        out.known = self.known.slice(start, length);
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

    /// As [`BufList::to_bytes`], of a list that is not needed any more.
    #[must_use]
    pub fn into_bytes(mut self) -> Bytes {
        if self.slices.len() > 1 { self.to_bytes() } else { self.slices.pop().unwrap_or_default() }
    }

    /// The register over all bytes, started at [`PAYLOAD_CRC_SEED`], if it is known without looking at them.
    #[must_use]
    pub fn known_crc(&self) -> Option<u32> {
        match (&self.known, self.known.run(self.len)) {
            (Known::Whole(crc), _) => Some(*crc),
            (_, Some((0, crcs))) if crcs.len() * BLOCK_BYTES == self.len => {
                Some(append_blocks(PAYLOAD_CRC_SEED, crcs))
            }
            _ => None,
        }
    }

    /// CRC-32C register over all bytes, started at `seed`. Blocks that are known are not looked at.
    #[must_use]
    pub fn crc32c(&self, seed: u32) -> u32 {
        let crc = match (&self.known, self.known.run(self.len)) {
            (Known::Whole(crc), _) if seed == PAYLOAD_CRC_SEED => return *crc,
            (_, Some((at, crcs))) => {
                let behind = at + crcs.len() * BLOCK_BYTES;
                let crc = append_blocks(self.slice(0, at).summed(seed), crcs);
                self.slice(behind, self.len - behind).summed(crc)
            }
            _ => self.summed(seed),
        };
        debug_assert_eq!(crc, self.summed(seed), "wrong checksums are known");
        crc
    }

    fn summed(&self, seed: u32) -> u32 {
        self.slices.iter().fold(seed, |crc, slice| crc32c(crc, slice))
    }

    /// The register over each whole block of 4 KiB, started at [`PAYLOAD_CRC_SEED`]: as it is known, or computed.
    #[must_use]
    pub fn block_crcs(&self) -> Vec<u32> {
        let count = self.len / BLOCK_BYTES;
        match self.known.run(self.len) {
            Some((0, crcs)) if crcs.len() == count => crcs.to_vec(),
            _ => self.computed_block_crcs(count),
        }
    }

    fn computed_block_crcs(&self, count: usize) -> Vec<u32> {
        if let [one] = self.slices.as_slice() {
            let blocks = one.chunks_exact(BLOCK_BYTES).take(count);
            return blocks.map(|block| crc32c(PAYLOAD_CRC_SEED, block)).collect();
        }
        let block = |nth: usize| self.slice(nth * BLOCK_BYTES, BLOCK_BYTES);
        (0..count).map(|nth| block(nth).summed(PAYLOAD_CRC_SEED)).collect()
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
        assert_eq!([&known, &known.clone(), &known.slice(0, 6)].map(BufList::known_crc), [Some(crc); 3]);
        assert_eq!([known.slice(0, 5), known.slice(6, 0)].map(|part| part.known_crc()), [None, None]);
        let mut joined = BufList::new();
        joined.append(known.clone());
        joined.append(BufList::new());
        joined.push(Bytes::new());
        assert_eq!(joined.known_crc(), Some(crc));
        joined.append(known.clone());
        assert_eq!(joined.crc32c(PAYLOAD_CRC_SEED), list(&[b"abcdefabcdef"]).crc32c(PAYLOAD_CRC_SEED));
        assert_eq!(known.crc32c(7), list(&[b"abcdef"]).crc32c(7));
    }

    /// Bytes that differ from block to block, cut anywhere.
    fn blocks(bytes: usize) -> BufList {
        let bytes: Vec<u8> = (0..bytes).map(|at| (at * 7 + at / 300).to_le_bytes()[0]).collect();
        bytes.chunks(10_000).map(Bytes::copy_from_slice).collect()
    }

    /// What the list knows of its blocks, beginning where.
    fn known_blocks(list: &BufList) -> Option<(usize, Vec<u32>)> {
        list.known.run(list.len).map(|(at, crcs)| (at, crcs.to_vec()))
    }

    /// That every checksum is what it is without anything known.
    fn verify(list: &BufList) {
        let plain: BufList = list.slices().iter().cloned().collect();
        for seed in [0, 7, PAYLOAD_CRC_SEED] {
            assert_eq!(list.crc32c(seed), plain.summed(seed));
        }
        assert_eq!(list.block_crcs(), plain.computed_block_crcs(plain.len / BLOCK_BYTES));
        assert!(list.known_crc().is_none_or(|crc| crc == plain.summed(PAYLOAD_CRC_SEED)));
    }

    #[test]
    fn known_blocks_go_with_whole_blocks() {
        let plain = blocks(5 * BLOCK_BYTES);
        let crcs = plain.block_crcs();
        let known = plain.with_block_crcs(crcs.clone());
        assert_eq!(known.known_crc(), Some(known.summed(PAYLOAD_CRC_SEED)));
        assert_eq!(known_blocks(&known), Some((0, crcs.clone())));
        let slice = |start: usize, length: usize| {
            let part = known.slice(start, length);
            verify(&part);
            known_blocks(&part.slice(0, part.len())).map(|(at, crcs)| (at, crcs.len(), crcs.first().copied()))
        };
        assert_eq!(slice(0, 5 * 4096), Some((0, 5, Some(crcs[0]))));
        assert_eq!(slice(4096, 3 * 4096), Some((0, 3, Some(crcs[1]))));
        assert_eq!(slice(3 * 4096, 4096), Some((0, 1, Some(crcs[3]))));
        assert_eq!(slice(3 * 4096, 8000), Some((0, 1, Some(crcs[3]))), "a part of the last");
        assert_eq!([slice(4096, 4095), slice(512, 4096), slice(512, 9000), slice(4096, 0)], [None; 4]);
        let one = known.slice(4096, 3 * 4096).slice(2 * 4096, 4096);
        assert_eq!(one.known_crc(), Some(crcs[3]));
    }

    #[test]
    fn known_blocks_keep_their_place_beside_others() {
        let plain = blocks(3 * BLOCK_BYTES);
        let crcs = plain.block_crcs();
        let known = plain.with_block_crcs(crcs.clone());
        let joined = |parts: [BufList; 3]| {
            let mut list = BufList::new();
            parts.into_iter().for_each(|part| list.append(part));
            verify(&list);
            verify(&list.slice(30, list.len() - 40));
            known_blocks(&list)
        };
        let other = || list(&[b"header"]);
        assert_eq!(joined([other(), known.clone(), other()]), Some((6, crcs.clone())));
        assert_eq!(joined([known.clone(), other(), known.clone()]), Some((0, crcs.clone())));
        assert_eq!(joined([known.clone(), known.clone(), known.clone()]), Some((0, crcs.clone())));
        // Of a slice less is known than its checksums could tell: what comes behind must not be taken for more of it.
        let part = || known.slice(0, 2 * BLOCK_BYTES);
        assert_eq!(joined([BufList::new(), part(), blocks(BLOCK_BYTES)]), None);
        assert_eq!(joined([other(), part(), BufList::new()]), Some((6, crcs[..2].to_vec())));
        assert_eq!(joined([part(), other(), known.clone()]), Some((2 * 4096 + 6, crcs.clone())));
        let mut pushed = known.slice(BLOCK_BYTES, 2 * BLOCK_BYTES);
        pushed.push(Bytes::from_static(b"tail"));
        assert_eq!((known_blocks(&pushed), pushed.known_crc()), (Some((0, crcs[1..].to_vec())), None));
        verify(&pushed);
    }

    #[test]
    fn the_first_blocks_may_be_known_alone() {
        let plain = blocks(3 * BLOCK_BYTES + 100);
        let mut crcs = plain.block_crcs();
        for count in [3, 2, 1, 0] {
            crcs.truncate(count);
            let known = plain.clone().with_block_crcs(crcs.clone());
            verify(&known);
            assert_eq!(
                (known.known_crc(), known_blocks(&known).map_or(0, |(_, crcs)| crcs.len())),
                (None, count)
            );
            verify(&known.slice(BLOCK_BYTES, 2 * BLOCK_BYTES + 100));
        }
    }
}
