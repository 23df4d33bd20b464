//! [`Dirty`]: a 4 KiB block of an object with writes that are in the log but not yet at home.

use crate::BLOCK;
use crate::blob::Place;
use crate::device::DeviceBlock;
use crate::held::{Share, Source};
use nacre_buf::{AlignedBuf, BufList, Bytes};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// Pieces of one block above which they are joined by a copy.
const PIECES_MAX: usize = 16;

/// What holes read as.
pub(crate) static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// Written pieces over what the block held before. Shared between an object, its clones and a checkpoint;
/// changed by copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dirty {
    /// What shows between the pieces; zeros when `None`. Each object block that holds this has a reference to it,
    /// or its page to the blob that it is in.
    base: Option<Place>,
    /// The device block that holds what the object's block was before; not a reference, but it is not free before the
    /// checkpoint that brings this home.
    replaced: Option<u64>,
    /// Disjoint, ascending. Mostly a single one, the whole block.
    pieces: SmallVec<[Piece; 1]>,
    /// Of a whole block in the memory of a message with more in it.
    share: Option<Share>,
    /// Of the block, where one write brought all of it and its checksum.
    crc: Option<u32>,
}

/// What one write brought, or what others have left of it. Less than a block of it has memory of its own, of which most shows:
/// a head of 2 KiB in the message's memory would keep all of the 4 MiB alive that came with it.
#[derive(Clone, Debug)]
struct Piece {
    /// Byte of the block.
    start: u32,
    /// Bytes of its memory; zero when that is a message's.
    memory: u32,
    bytes: Bytes,
}

const fn small(bytes: usize) -> u32 {
    assert!(bytes <= BLOCK);
    bytes as u32
}

impl Piece {
    fn own(start: usize, bytes: Bytes) -> Self {
        Self { start: small(start), memory: small(bytes.len()), bytes }
    }

    fn start(&self) -> usize {
        self.start as usize
    }

    fn end(&self) -> usize {
        self.start() + self.bytes.len()
    }

    /// What lies in `from..to` of it.
    fn part(&self, from: usize, to: usize) -> Self {
        let bytes = self.bytes.slice(from..to);
        if bytes.len() * 2 >= self.memory as usize && self.memory > 0 {
            Self { start: self.start + small(from), memory: self.memory, bytes }
        } else {
            Self::own(self.start() + from, Bytes::copy_from_slice(&bytes))
        }
    }
}

/// As a device takes it.
fn aligned(data: &BufList) -> Bytes {
    let mut copy = AlignedBuf::with_len(data.len());
    crate::gather(&mut copy, data.slices());
    copy.freeze()
}

impl Dirty {
    pub(crate) fn over(base: Option<Place>) -> Self {
        let replaced = base.as_ref().and_then(Place::device).map(|device| device.block);
        Self { base, replaced, ..Self::default() }
    }

    /// A whole block that is on the device already, and may get another place there.
    pub(crate) fn placed(device: DeviceBlock, data: BufList, source: &Source) -> Self {
        let mut dirty = Self::default();
        let _nothing_was_below = dirty.write(0, data, source);
        Self { base: Some(device.into()), replaced: Some(device.block), crc: Some(device.crc), ..dirty }
    }

    pub(crate) fn base(&self) -> Option<&Place> {
        self.base.as_ref()
    }

    /// Where what was there before lies: a cache that has that will want this.
    pub(crate) fn replaced(&self) -> Option<u64> {
        self.replaced
    }

    /// A checkpoint has brought home what the block was when it began, to `block`.
    pub(crate) fn set_replaced(&mut self, block: u64) {
        self.replaced = Some(block);
    }

    /// As [`Dirty::write`], to a block that a clone or a checkpoint may have too.
    #[must_use]
    pub(crate) fn write_shared(
        this: &mut Arc<Self>,
        at: usize,
        data: BufList,
        source: &Source,
    ) -> Option<Place> {
        if data.len() == BLOCK && Arc::get_mut(this).is_none() {
            // A copy would keep nothing of the pieces.
            *this = Arc::new(Self { base: this.base.clone(), replaced: this.replaced, ..Self::default() });
        }
        Arc::make_mut(this).write(at, data, source)
    }

    /// Writes `data` at byte `at` of the block. Gives the base back when nothing of it shows any more.
    #[must_use]
    pub(crate) fn write(&mut self, at: usize, data: BufList, source: &Source) -> Option<Place> {
        let end = at + data.len();
        debug_assert!(end <= BLOCK && !data.is_empty());
        self.crc = data.known_crc().filter(|_| data.len() == BLOCK);
        if data.len() == BLOCK {
            let piece = match source {
                Source::Copy => Piece::own(0, aligned(&data)),
                Source::Share(_) => Piece { start: 0, memory: 0, bytes: data.into_bytes() },
            };
            (self.pieces, self.share) = (smallvec![piece], source.share());
            return self.base.take();
        }
        let mut pieces = SmallVec::with_capacity(self.pieces.len() + 2);
        for piece in self.pieces.drain(..) {
            let (start, length) = (piece.start(), piece.bytes.len());
            if start < at {
                pieces.push(piece.part(0, length.min(at - start)));
            }
            if piece.end() > end {
                pieces.push(piece.part(end.saturating_sub(start), length));
            }
        }
        self.share = None;
        let bytes = match data.slices() {
            [one] => Bytes::copy_from_slice(one),
            _ => data.into_bytes(),
        };
        let index = pieces.partition_point(|piece: &Piece| piece.start() < at);
        pieces.insert(index, Piece::own(at, bytes));
        self.pieces = pieces;
        if self.pieces.len() > PIECES_MAX {
            self.join();
        }
        if self.covers(0, BLOCK) { self.base.take() } else { None }
    }

    /// Joins pieces that touch.
    fn join(&mut self) {
        let mut joined: Vec<(usize, Vec<u8>)> = Vec::new();
        for piece in self.pieces.drain(..) {
            match joined.last_mut() {
                Some((at, bytes)) if *at + bytes.len() == piece.start() => {
                    bytes.extend_from_slice(&piece.bytes)
                }
                _ => joined.push((piece.start(), piece.bytes.to_vec())),
            }
        }
        // Of the length that it has, not of what it has grown through.
        let exact = |bytes: Vec<u8>| Bytes::from(bytes.into_boxed_slice());
        self.pieces = joined.into_iter().map(|(at, bytes)| Piece::own(at, exact(bytes))).collect();
    }

    /// The block as one write brought it, if it lies in memory as a device takes it.
    pub(crate) fn as_written(&self) -> Option<&Bytes> {
        match self.pieces.as_slice() {
            [Piece { bytes, .. }] if bytes.len() == BLOCK && bytes.as_ptr().addr().is_multiple_of(BLOCK) => {
                Some(bytes)
            }
            _ => None,
        }
    }

    /// Its checksum, if that came with it: the register from [`nacre_buf::PAYLOAD_CRC_SEED`] over the block.
    pub(crate) const fn known_crc(&self) -> Option<u32> {
        self.crc
    }

    /// Whether the pieces hide the base in `from..to`.
    pub(crate) fn covers(&self, from: usize, to: usize) -> bool {
        let mut reached = from;
        for piece in &self.pieces {
            if piece.start() <= reached {
                reached = reached.max(piece.end());
            }
        }
        reached >= to
    }

    /// Hands the bytes `from..to` to `out`, slice by slice; `base` is the content of the base.
    pub(crate) fn read(&self, from: usize, to: usize, base: Option<&Bytes>, out: &mut impl FnMut(Bytes)) {
        let gap = |from: usize, to: usize, out: &mut dyn FnMut(Bytes)| {
            if from < to {
                out(base.map_or(Bytes::from_static(&ZEROS), Clone::clone).slice(from..to));
            }
        };
        let mut at = from;
        for piece in &self.pieces {
            let (start, begin, end) = (piece.start(), piece.start().max(at), piece.end().min(to));
            if begin < end {
                gap(at, begin, out);
                out(piece.bytes.slice(begin - start..end - start));
                at = end;
            }
        }
        gap(at, to, out);
    }

    /// Writes the whole block into `block`; `base` as in [`Dirty::read`].
    pub(crate) fn fill(&self, block: &mut [u8], base: Option<&Bytes>) {
        let mut at = 0;
        self.read(0, BLOCK, base, &mut |bytes| {
            if let Some(part) = block.get_mut(at..at + bytes.len()) {
                part.copy_from_slice(&bytes);
            }
            at += bytes.len();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_buf::PAYLOAD_CRC_SEED;

    fn content(dirty: &Dirty, base: Option<&Bytes>) -> Vec<u8> {
        let mut block = vec![9; BLOCK];
        dirty.fill(&mut block, base);
        block
    }

    #[test]
    fn pieces_cut_each_other_and_hide_the_base() {
        let base = Place::Block(DeviceBlock { block: 7, crc: 1 });
        let below = Bytes::from(vec![1; BLOCK]);
        let mut dirty = Dirty::over(Some(base.clone()));
        let mut expected = vec![1; BLOCK];
        for (step, (at, length)) in
            [(10, 20), (5, 10), (12, 3), (0, 4), (4000, 96), (15, 3000)].into_iter().enumerate()
        {
            let fill = 10 + u8::try_from(step).expect("few steps");
            assert_eq!(dirty.write(at, vec![fill; length].into(), &Source::Copy), None);
            expected[at..at + length].fill(fill);
            assert_eq!(content(&dirty, Some(&below)), expected);
        }
        assert!(dirty.covers(5, 3000) && !dirty.covers(0, 10));
        assert_eq!(dirty.write(0, vec![3; BLOCK].into(), &Source::Copy), Some(base));
        assert_eq!(content(&dirty, None), vec![3; BLOCK]);
    }

    #[test]
    fn a_checksum_is_known_while_the_block_is_as_it_came() {
        let with_crc = |bytes: Vec<u8>| {
            let list = BufList::from(bytes);
            let crc = list.crc32c(PAYLOAD_CRC_SEED);
            (list.with_crc(crc), crc)
        };
        let (block, crc) = with_crc(vec![3; BLOCK]);
        let mut dirty = Dirty::over(None);
        assert_eq!((dirty.write(0, block.clone(), &Source::Copy), dirty.known_crc()), (None, Some(crc)));
        let (part, _) = with_crc(vec![4; 2000]);
        assert_eq!((dirty.write(0, part, &Source::Copy), dirty.known_crc()), (None, None));
        assert_eq!((dirty.write(0, vec![5; BLOCK].into(), &Source::Copy), dirty.known_crc()), (None, None));
        assert_eq!((dirty.write(0, block, &Source::Share(None)), dirty.known_crc()), (None, Some(crc)));
    }

    #[test]
    fn many_small_pieces_are_joined() {
        let mut dirty = Dirty::over(None);
        for at in 0..100 {
            assert_eq!(dirty.write(at, Bytes::from_static(b"x").into(), &Source::Copy), None);
        }
        assert!(dirty.pieces.len() <= PIECES_MAX + 1);
        assert_eq!(content(&dirty, None)[..101], [vec![b'x'; 100], vec![0]].concat());
    }

    /// Each write leaves a byte of the one before.
    #[test]
    fn what_is_left_of_a_piece_does_not_keep_all_of_it() {
        let mut dirty = Dirty::over(None);
        for at in 0..10 {
            assert_eq!(dirty.write(at, vec![7; 4000].into(), &Source::Copy), None);
        }
        let memory: u32 = dirty.pieces.iter().map(|piece| piece.memory).sum();
        assert!(
            dirty.pieces.len() == 10 && memory == 4009,
            "{memory} bytes in {} pieces",
            dirty.pieces.len()
        );
    }
}
