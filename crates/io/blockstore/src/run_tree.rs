//! [`RunTree`]: in which of many segments a free run of some length is.
//!
//! A segment tree: each node knows of its part how long the free run at its beginning is, the one at its end, and the longest of all, so that
//! runs over the edges of segments are found like others. Linux keeps the same three of each of its blocks of per-CPU memory.

use crate::segment_bits::{FreeRunLengths, LONG_BLOCKS, SEGMENT_BLOCKS, whole};

/// Where a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// It begins at this block, counted from the first segment's beginning.
    Begins(u64),
    /// Somewhere within this segment.
    Within(usize),
}

/// Segments of a bitmap by their free runs. Blocks behind the last segment are not free.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq))]
pub(crate) struct RunTree {
    /// From 1 on: the root, its two halves, and so on. The segments are the second half of it, as far as there are some.
    nodes: Vec<FreeRunLengths>,
    /// Segments that there is room for: a power of two.
    leaves: usize,
}

impl RunTree {
    /// Of so many segments without a free block.
    pub(crate) fn new(segments: usize) -> Self {
        let leaves = segments.next_power_of_two();
        Self { nodes: vec![FreeRunLengths::default(); leaves + segments], leaves }
    }

    fn node(&self, nth: usize) -> FreeRunLengths {
        self.nodes.get(nth).copied().unwrap_or_default()
    }

    /// What a node has by the two below it.
    fn joined(&self, nth: usize) -> FreeRunLengths {
        FreeRunLengths::join(self.node(2 * nth), self.node(2 * nth + 1), self.blocks_of(2 * nth))
    }

    /// Blocks of a node's part.
    fn blocks_of(&self, nth: usize) -> u64 {
        let segments = self.leaves >> nth.ilog2();
        segments as u64 * u64::from(SEGMENT_BLOCKS)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.nodes.len() * size_of::<FreeRunLengths>()
    }

    /// Of all segments together.
    pub(crate) fn all(&self) -> FreeRunLengths {
        self.node(1)
    }

    /// A segment has changed.
    pub(crate) fn set(&mut self, segment: usize, runs: FreeRunLengths) {
        let (mut nth, mut runs) = (self.leaves + segment, runs);
        loop {
            match self.nodes.get_mut(nth) {
                Some(node) if *node != runs => *node = runs,
                _ => return,
            }
            nth /= 2;
            if nth == 0 {
                return;
            }
            runs = self.joined(nth);
        }
    }

    /// What a segment has, of which the nodes above hear with [`RunTree::join`].
    pub(crate) fn put(&mut self, segment: usize, runs: FreeRunLengths) {
        if let Some(node) = self.nodes.get_mut(self.leaves + segment) {
            *node = runs;
        }
    }

    /// All segments have been put.
    pub(crate) fn join(&mut self) {
        for nth in (1..self.leaves).rev() {
            let runs = self.joined(nth);
            if let Some(node) = self.nodes.get_mut(nth) {
                *node = runs;
            }
        }
    }

    /// The first free run of at least `count` blocks from the segment `from` on. `open` blocks right before that segment are free too.
    pub(crate) fn find(&self, count: u32, from: usize, open: u32) -> Option<Place> {
        if from >= self.leaves {
            return None;
        }
        let (mut nth, mut open, count) = (self.leaves + from, u64::from(open), u64::from(count));
        loop {
            // The part begins where the open run ends.
            let (runs, blocks) = (self.node(nth), self.blocks_of(nth));
            if open + u64::from(runs.first) >= count {
                let begin = (nth as u64 * blocks) - (u64::from(SEGMENT_BLOCKS) * self.leaves as u64);
                return Some(Place::Begins(begin - open));
            }
            if u64::from(runs.longest) >= count {
                if nth >= self.leaves {
                    return Some(Place::Within(nth - self.leaves));
                }
                nth *= 2;
                continue;
            }
            open = if runs.first == whole(blocks) { open + blocks } else { runs.last.into() };
            nth = next_part(nth)?;
        }
    }

    /// The first hole of at least `count` blocks that ends behind the beginning of the segment `from`. `open` blocks right before that segment
    /// are free too; [`LONG_BLOCKS`] stands for more, and for a run that is not wanted.
    pub(crate) fn find_hole(&self, count: u32, from: usize, open: u32) -> Option<Place> {
        let (mut nth, mut open) = (self.leaves + from, u64::from(open));
        let is_hole = |blocks: u64| blocks >= u64::from(count) && blocks < u64::from(LONG_BLOCKS);
        let end = 2 * self.leaves as u64 * u64::from(SEGMENT_BLOCKS);
        let begin_of = |nth: usize, blocks: u64| nth as u64 * blocks - end / 2;
        if from >= self.leaves {
            return None;
        }
        loop {
            let (runs, blocks) = (self.node(nth), self.blocks_of(nth));
            if runs.first == whole(blocks) {
                open += blocks;
            } else {
                let ending = open + u64::from(runs.first);
                if is_hole(ending) {
                    return Some(Place::Begins(begin_of(nth, blocks) - open));
                }
                if runs.hole >= count {
                    if nth >= self.leaves {
                        return Some(Place::Within(nth - self.leaves));
                    }
                    nth *= 2;
                    continue;
                }
                open = runs.last.into();
            }
            let Some(next) = next_part(nth) else {
                // What is free up to the very end ends there.
                return is_hole(open).then(|| Place::Begins(end / 2 - open));
            };
            nth = next;
        }
    }
}

/// The part behind that of a node: the right half of the first one above of which it is in the left.
fn next_part(nth: usize) -> Option<usize> {
    let left = nth >> nth.trailing_ones();
    (left > 0).then_some(left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment_bits::hole_or_none;

    fn runs(first: u32, last: u32, longest: u32) -> FreeRunLengths {
        FreeRunLengths { first, last, longest, hole: hole_or_none(longest) }
    }

    #[test]
    fn runs_over_the_edges_of_segments_are_found() {
        let mut tree = RunTree::new(5);
        assert_eq!((tree.all().longest, tree.find(1, 0, 0)), (0, None));
        let all = runs(SEGMENT_BLOCKS, SEGMENT_BLOCKS, SEGMENT_BLOCKS);
        tree.set(0, runs(0, 10, 70));
        tree.set(1, all);
        tree.set(2, all);
        tree.set(3, runs(5, 0, 9));
        assert_eq!(tree.all().longest, 2 * SEGMENT_BLOCKS + 15);
        assert_eq!(tree.find(70, 0, 0), Some(Place::Within(0)));
        assert_eq!(tree.find(71, 0, 0), Some(Place::Begins(u64::from(SEGMENT_BLOCKS) - 10)));
        assert_eq!(
            tree.find(2 * SEGMENT_BLOCKS + 15, 0, 0),
            Some(Place::Begins(u64::from(SEGMENT_BLOCKS) - 10))
        );
        assert_eq!(tree.find(2 * SEGMENT_BLOCKS + 16, 0, 0), None);
        assert_eq!(tree.find(1, 1, 0), Some(Place::Begins(SEGMENT_BLOCKS.into())));
        assert_eq!(
            tree.find(SEGMENT_BLOCKS + 9, 2, 4),
            Some(Place::Begins(2 * u64::from(SEGMENT_BLOCKS) - 4))
        );
        assert_eq!(tree.find(6, 3, 0), Some(Place::Within(3)));
        assert_eq!((tree.find(1, 4, 0), tree.find(1, 8, 0)), (None, None));
        tree.set(1, runs(0, 0, 0));
        assert_eq!(
            (tree.all().longest, tree.find(71, 0, 0)),
            (SEGMENT_BLOCKS + 5, Some(Place::Begins(2 * u64::from(SEGMENT_BLOCKS))))
        );
    }

    /// From 16 TiB on a run may have more blocks than its length says.
    #[test]
    fn runs_of_more_than_2_32_blocks_are_found() {
        let (all, segments) = (runs(SEGMENT_BLOCKS, SEGMENT_BLOCKS, SEGMENT_BLOCKS), 5 << 18);
        let mut tree = RunTree::new(segments);
        tree.set(segments - 1, runs(0, 7, 7));
        assert_eq!((tree.find(7, 0, 0), tree.find(8, 0, 0)), (Some(Place::Within(segments - 1)), None));
        // All of 20 TiB are free; then none of a segment in the first of its quarters, and then all again.
        (0..segments).for_each(|nth| tree.set(nth, all));
        let (long, at) =
            (u32::MAX - 1, |segment: u64| Some(Place::Begins(segment * u64::from(SEGMENT_BLOCKS))));
        assert_eq!([0, 1, 1 << 18].map(|from| tree.find(long, from, 0)), [at(0), at(1), at(1 << 18)]);
        assert_eq!(tree.find(long, (1 << 18) + 1, 0), None, "a segment less than that");
        tree.set(1 << 17, FreeRunLengths::default());
        assert_eq!((tree.find(long, 0, 0), tree.find(1 << 29, 0, 0)), (at((1 << 17) + 1), at(0)));
        tree.set(1 << 17, all);
        assert_eq!((tree.find(long, 0, 0), tree.all().hole, tree.find_hole(1, 0, 0)), (at(0), 0, None));
    }
}
