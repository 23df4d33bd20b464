//! [`Dirty`]: a 4 KiB block of an object with writes that are in the log but not yet at home.

use crate::BLOCK;
use crate::onode::DeviceBlock;
use nacre_buf::{BufList, Bytes};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// Pieces of one block above which they are joined by a copy.
const PIECES_MAX: usize = 16;
/// Shorter pieces are copied, so that a few bytes do not keep the message alive in which they came.
const COPY_BELOW_BYTES: usize = 1024;

/// What holes read as.
pub(crate) static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// Written pieces over what the block held before. Shared between an object, its clones and a checkpoint;
/// changed by copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dirty {
    /// What shows between the pieces; zeros when `None`. Each object block that holds this has a reference to it.
    base: Option<DeviceBlock>,
    /// The device block that holds what the object's block was before; not a reference, but it is not free before the
    /// checkpoint that brings this home.
    replaced: Option<u32>,
    /// Disjoint, ascending. Mostly a single one, the whole block.
    pieces: SmallVec<[(usize, Bytes); 1]>,
    /// Of the block, where one write brought all of it and its checksum.
    crc: Option<u32>,
}

impl Dirty {
    pub(crate) fn over(base: Option<DeviceBlock>) -> Self {
        Self { base, replaced: base.map(|base| base.block), pieces: SmallVec::new(), crc: None }
    }

    pub(crate) fn base(&self) -> Option<DeviceBlock> {
        self.base
    }

    /// Where what was there before lies: who has that in memory will want this.
    pub(crate) fn replaced(&self) -> Option<u32> {
        self.replaced
    }

    /// A checkpoint has brought home what the block was when it began, to `block`.
    pub(crate) fn set_replaced(&mut self, block: u32) {
        self.replaced = Some(block);
    }

    /// As [`Dirty::write`], to a block that a clone or a checkpoint may have too.
    #[must_use]
    pub(crate) fn write_shared(this: &mut Arc<Self>, at: usize, data: BufList) -> Option<DeviceBlock> {
        if data.len() == BLOCK && Arc::get_mut(this).is_none() {
            // A copy would keep nothing of the pieces.
            *this = Arc::new(Self { base: this.base, replaced: this.replaced, ..Self::default() });
        }
        Arc::make_mut(this).write(at, data)
    }

    /// Writes `data` at byte `at` of the block. Gives the base back when nothing of it shows any more.
    #[must_use]
    pub(crate) fn write(&mut self, at: usize, data: BufList) -> Option<DeviceBlock> {
        let end = at + data.len();
        debug_assert!(end <= BLOCK && !data.is_empty());
        self.crc = data.known_crc().filter(|_| data.len() == BLOCK);
        let data = data.into_bytes();
        if data.len() == BLOCK {
            self.pieces = smallvec![(0, data)];
            return self.base.take();
        }
        let data = if data.len() < COPY_BELOW_BYTES { Bytes::copy_from_slice(&data) } else { data };
        let mut pieces = SmallVec::with_capacity(self.pieces.len() + 2);
        for (start, piece) in self.pieces.drain(..) {
            if start < at {
                pieces.push((start, piece.slice(..piece.len().min(at - start))));
            }
            if start + piece.len() > end {
                let cut = end.saturating_sub(start);
                pieces.push((start + cut, piece.slice(cut..)));
            }
        }
        let index = pieces.partition_point(|(start, _)| *start < at);
        pieces.insert(index, (at, data));
        self.pieces = pieces;
        if self.pieces.len() > PIECES_MAX {
            self.join();
        }
        if self.covers(0, BLOCK) { self.base.take() } else { None }
    }

    /// Joins pieces that touch.
    fn join(&mut self) {
        let mut joined: Vec<(usize, Vec<u8>)> = Vec::new();
        for (start, piece) in self.pieces.drain(..) {
            match joined.last_mut() {
                Some((at, bytes)) if *at + bytes.len() == start => bytes.extend_from_slice(&piece),
                _ => joined.push((start, piece.to_vec())),
            }
        }
        self.pieces = joined.into_iter().map(|(at, bytes)| (at, Bytes::from(bytes))).collect();
    }

    /// The block as one write brought it, if it lies in memory as a device takes it.
    pub(crate) fn as_written(&self) -> Option<&Bytes> {
        match self.pieces.as_slice() {
            [(0, whole)] if whole.len() == BLOCK && whole.as_ptr().addr().is_multiple_of(BLOCK) => {
                Some(whole)
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
        for (start, piece) in &self.pieces {
            if *start <= reached {
                reached = reached.max(start + piece.len());
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
        for (start, piece) in &self.pieces {
            let (begin, end) = ((*start).max(at), (start + piece.len()).min(to));
            if begin < end {
                gap(at, begin, out);
                out(piece.slice(begin - start..end - start));
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
        let base = DeviceBlock { block: 7, crc: 1 };
        let below = Bytes::from(vec![1; BLOCK]);
        let mut dirty = Dirty::over(Some(base));
        let mut expected = vec![1; BLOCK];
        for (step, (at, length)) in
            [(10, 20), (5, 10), (12, 3), (0, 4), (4000, 96), (15, 3000)].into_iter().enumerate()
        {
            let fill = 10 + u8::try_from(step).expect("few steps");
            assert_eq!(dirty.write(at, vec![fill; length].into()), None);
            expected[at..at + length].fill(fill);
            assert_eq!(content(&dirty, Some(&below)), expected);
        }
        assert!(dirty.covers(5, 3000) && !dirty.covers(0, 10));
        assert_eq!(dirty.write(0, vec![3; BLOCK].into()), Some(base));
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
        assert_eq!((dirty.write(0, block.clone()), dirty.known_crc()), (None, Some(crc)));
        let (part, _) = with_crc(vec![4; 2000]);
        assert_eq!((dirty.write(0, part), dirty.known_crc()), (None, None));
        assert_eq!((dirty.write(0, vec![5; BLOCK].into()), dirty.known_crc()), (None, None));
        assert_eq!((dirty.write(0, block), dirty.known_crc()), (None, Some(crc)));
    }

    #[test]
    fn many_small_pieces_are_joined() {
        let mut dirty = Dirty::over(None);
        for at in 0..100 {
            assert_eq!(dirty.write(at, Bytes::from_static(b"x").into()), None);
        }
        assert!(dirty.pieces.len() <= PIECES_MAX + 1);
        assert_eq!(content(&dirty, None)[..101], [vec![b'x'; 100], vec![0]].concat());
    }
}
