//! [`FreeBitmap`]: the free blocks of the data area, a bit for each, with what finds runs of them by place and by length.
//!
//! A terabyte that is written all over takes 33 MiB, one that is all free or all used 3.
//!
//! Two kinds of writer take from it. Large writes want one long run, so that they are few requests to the device. Dirty
//! blocks that a checkpoint writes home come one by one from all over their objects, and leave as many holes of a block
//! where they were. Were they put into long runs always, then after one pass over the device nothing but holes would be
//! left, and a write of 4 MiB would be a thousand requests. So once long runs become rare, homes go into the holes, the
//! longest first: each then fills as many as it leaves behind, and what is long stays long. Short writes that are placed do
//! the same. Nor does a write of less than 1 MiB otherwise take of a long run while there is a hole for it.

use crate::device::Run;
use crate::run_tree::{Place, RunTree};
use crate::segment_bits::{LONG_BLOCKS, SEGMENT_BLOCKS, SegmentBits, WORD_BITS, hole_or_none};

/// Runs that are looked at for one of which a large write does not leave much.
const PROBES_MAX: usize = 8;
/// Runs as long as this are all the same: 64 MiB.
const ENDLESS_BLOCKS: u64 = 4 * SEGMENT_BLOCKS as u64;
/// The same as a number of blocks of the device.
const SEGMENT: u64 = SEGMENT_BLOCKS as u64;
const LONG: u64 = LONG_BLOCKS as u64;

/// Which blocks are free. Blocks outside of the area are not.
#[derive(Debug)]
pub(crate) struct FreeBitmap {
    /// Where the first segment begins: no later than the area does.
    begin: u64,
    segments: Vec<SegmentBits>,
    /// Behind `segments` by those in `stale`.
    tree: RunTree,
    stale: Vec<u32>,
    /// A bit for each segment that is in `stale`.
    is_stale: Vec<u64>,
    /// Segments with bits of their own.
    mixed: usize,
    blocks: u64,
    runs: u64,
    long_blocks: u64,
}

/// What is free in the first segments of a map that is being loaded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    /// So many segments.
    segments: usize,
    blocks: u64,
    runs: u64,
    long_blocks: u64,
    /// Blocks of the run that goes on behind them.
    open: u64,
}

/// Where in its segment a block is.
const fn within(block: u64) -> u32 {
    (block % SEGMENT) as u32
}

/// What a run counts among the long ones. Of a longer one than [`LONG_BLOCKS`] it does not matter how much: differences are the same.
const fn long(blocks: u64) -> u64 {
    if blocks >= LONG { blocks } else { 0 }
}

impl FreeBitmap {
    /// All of the area is free.
    pub(crate) fn new(area: Run) -> Self {
        let mut map = Self::none(area);
        map.segments.fill(SegmentBits::All);
        let end = map.begin + map.segments.len() as u64 * SEGMENT;
        map.set(Run { start: map.begin, count: area.start - map.begin }, false);
        map.set(Run { start: area.end(), count: end - area.end() }, false);
        (map.blocks, map.runs, map.long_blocks) = (area.count, u64::from(area.count > 0), long(area.count));
        (0..).zip(&map.segments).for_each(|(nth, segment)| map.tree.put(nth, segment.run_lengths()));
        map.join();
        map
    }

    /// The tree has been told of all segments, one by one.
    fn join(&mut self) {
        self.tree.join();
        self.stale = Vec::new();
        self.is_stale.fill(0);
    }

    /// Nothing of the area is free.
    pub(crate) fn none(area: Run) -> Self {
        let begin = area.start - area.start % SEGMENT;
        let count = usize::try_from((area.end() - begin).div_ceil(SEGMENT)).expect("at most 2^32");
        Self {
            begin,
            segments: vec![SegmentBits::None; count],
            tree: RunTree::new(count),
            stale: Vec::new(),
            is_stale: vec![0; count.div_ceil(64)],
            mixed: 0,
            blocks: 0,
            runs: 0,
            long_blocks: 0,
        }
    }

    /// Number of free blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Free blocks in runs of 1 MiB and more.
    pub(crate) fn long_blocks(&self) -> u64 {
        self.long_blocks
    }

    /// How many runs there are.
    pub(crate) fn runs(&self) -> u64 {
        self.runs
    }

    /// About how many bytes this takes.
    pub(crate) fn bytes(&self) -> usize {
        let segments = self.segments.len() * size_of::<SegmentBits>() + self.mixed * SegmentBits::BYTES;
        segments + self.tree.bytes() + self.stale.capacity() * size_of::<u32>() + self.is_stale.len() * 8
    }

    /// All runs, by start.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Run> {
        let run_from = |at: u64| {
            let start = self.next(at)?;
            Some(Run { start, count: self.free_from(start, u64::MAX) })
        };
        std::iter::successors(run_from(self.begin), move |run| run_from(run.end()))
    }

    /// The first free block from `at` on, looked for in segment after segment.
    fn next(&self, at: u64) -> Option<u64> {
        let first = self.segment_of(at);
        let from = |nth: usize| if nth == first { within(at) } else { 0 };
        (first..self.segments.len())
            .find_map(|nth| self.segment(nth).find(1, from(nth)).map(|at| self.block_in(nth, at)))
    }

    /// The number of a block's segment; of a block before the first one, a number that none has.
    fn segment_of(&self, block: u64) -> usize {
        block.checked_sub(self.begin).map_or(usize::MAX, |behind| (behind / SEGMENT) as usize)
    }

    fn block_in(&self, segment: usize, at: u32) -> u64 {
        self.begin + segment as u64 * SEGMENT + u64::from(at)
    }

    fn segment(&self, nth: usize) -> &SegmentBits {
        self.segments.get(nth).unwrap_or(&SegmentBits::None)
    }

    pub(crate) fn is_free(&self, block: u64) -> bool {
        self.free_from(block, 1) > 0
    }

    /// Whether all blocks of `run` are free.
    pub(crate) fn is_all_free(&self, run: Run) -> bool {
        self.free_from(run.start, run.count) >= run.count
    }

    /// The first block of `run` from `at` on that is not free.
    pub(crate) fn next_used(&self, at: u64, run: Run) -> Option<u64> {
        let left = run.end().checked_sub(at)?;
        let free = self.free_from(at, left);
        (free < left).then(|| at + free)
    }

    /// Free blocks from `at` on. Stops at `max`, or less than a segment behind it.
    fn free_from(&self, at: u64, max: u64) -> u64 {
        self.same_from(at, max, SegmentBits::ones)
    }

    /// Blocks from `at` on that are not free, as above.
    fn used_from(&self, at: u64, max: u64) -> u64 {
        self.same_from(at, max, SegmentBits::zeros)
    }

    fn same_from(&self, at: u64, max: u64, in_segment: impl Fn(&SegmentBits, u32) -> u32) -> u64 {
        let mut found = 0;
        while found < max {
            let here = at + found;
            let offset = within(here);
            let same = in_segment(self.segment(self.segment_of(here)), offset);
            found += u64::from(same);
            if offset + same < SEGMENT_BLOCKS {
                break;
            }
        }
        found
    }

    /// Free blocks right before `end`. Stops as above.
    fn free_before(&self, end: u64, max: u64) -> u64 {
        let mut found = 0;
        while found < max && found < end {
            let last = end - found - 1;
            let length = within(last) + 1;
            let ones = self.segment(self.segment_of(last)).ones_before(length);
            found += u64::from(ones);
            if ones < length {
                break;
            }
        }
        found
    }

    /// Free blocks on both sides of a run, as far as it matters whether they are long.
    fn beside(&self, run: Run) -> (u64, u64) {
        (self.free_before(run.start, LONG), self.free_from(run.end(), LONG))
    }

    /// Sets a run free or not, which all was the other.
    fn set(&mut self, run: Run, is_free: bool) {
        let mut left = run;
        while left.count > 0 {
            let (nth, at) = (self.segment_of(left.start), within(left.start));
            let count = left.count.min((SEGMENT_BLOCKS - at).into()) as u32;
            if let Some(segment) = self.segments.get_mut(nth) {
                self.mixed -= usize::from(segment.is_mixed());
                segment.set(at, count, is_free);
                self.mixed += usize::from(segment.is_mixed());
            }
            self.changed(nth);
            let count = u64::from(count);
            left = Run { start: left.start + count, count: left.count - count };
        }
    }

    /// The tree is told when it is asked the next time: until then a segment may change often.
    fn changed(&mut self, nth: usize) {
        let bit = 1 << (nth % 64);
        if let Some(word) = self.is_stale.get_mut(nth / 64)
            && *word & bit == 0
        {
            *word |= bit;
            self.stale.extend(u32::try_from(nth));
        }
    }

    /// Tells the tree what has changed: what is done beforehand keeps no writer waiting.
    pub(crate) fn refresh(&mut self) {
        while let Some(nth) = self.stale.pop().map(|nth| nth as usize) {
            self.is_stale.iter_mut().skip(nth / 64).take(1).for_each(|word| *word &= !(1 << (nth % 64)));
            self.tree.set(nth, self.segment(nth).run_lengths());
        }
    }

    fn tree(&mut self) -> &RunTree {
        self.refresh();
        &self.tree
    }

    /// Takes exactly these blocks; false, and nothing taken, unless all are free.
    pub(crate) fn take(&mut self, run: Run) -> bool {
        if run.count == 0 || self.free_from(run.start, run.count) < run.count {
            return false;
        }
        let (before, behind) = self.beside(run);
        self.set(run, false);
        self.blocks -= run.count;
        self.runs = self.runs - 1 + u64::from(before > 0) + u64::from(behind > 0);
        self.long_blocks = self.long_blocks + long(before) + long(behind) - long(before + run.count + behind);
        true
    }

    /// Gives blocks back.
    ///
    /// # Panics
    /// When one of them is free.
    pub(crate) fn give(&mut self, run: Run) {
        if run.count == 0 {
            return;
        }
        let is_used = self.used_from(run.start, run.count) >= run.count;
        assert!(is_used, "blocks from {} to {} were freed twice", run.start, run.end() - 1);
        let (before, behind) = self.beside(run);
        self.set(run, true);
        self.blocks += run.count;
        self.runs = self.runs + 1 - u64::from(before > 0) - u64::from(behind > 0);
        self.long_blocks = self.long_blocks + long(before + run.count + behind) - long(before) - long(behind);
    }

    /// Takes the blocks from `first` on, the beginning of a segment, of which `used` has a bit; gives one that is not free. What lies
    /// before is loaded already and is counted now, the rest with [`FreeBitmap::loaded`].
    pub(crate) fn load(&mut self, first: u64, used: &[u8], tally: &mut Tally) -> Result<(), u64> {
        self.count_until((first.saturating_sub(self.begin) / SEGMENT) as usize, tally);
        for (nth, used) in (0..).zip(used.chunks(SEGMENT_BLOCKS as usize / 8)) {
            let (begin, nth) = (first + nth * SEGMENT, self.segment_of(first + nth * SEGMENT));
            if used.iter().all(|byte| *byte == 0) {
                continue;
            }
            let mut outside = SegmentBits::None;
            let bits = self.segments.get_mut(nth).unwrap_or(&mut outside);
            self.mixed -= usize::from(bits.is_mixed());
            let taken = bits.take(used);
            self.mixed += usize::from(bits.is_mixed());
            taken.map_err(|at| begin + u64::from(at))?;
        }
        Ok(())
    }

    /// All is loaded.
    pub(crate) fn loaded(&mut self, mut tally: Tally) {
        self.count_until(self.segments.len(), &mut tally);
        let Tally { blocks, runs, long_blocks, open, .. } = tally;
        (self.blocks, self.runs, self.long_blocks) = (blocks, runs, long_blocks + long(open));
        self.join();
    }

    /// Counts what is free in the segments before one, and tells the tree.
    fn count_until(&mut self, end: usize, tally: &mut Tally) {
        let Tally { segments, mut blocks, mut runs, mut long_blocks, mut open } = *tally;
        let end = end.clamp(segments, self.segments.len());
        for (nth, segment) in (segments..).zip(self.segments.get(segments..end).into_iter().flatten()) {
            self.tree.put(nth, segment.run_lengths());
            match segment {
                SegmentBits::None => long_blocks += long(std::mem::take(&mut open)),
                SegmentBits::All => {
                    (blocks, runs) = (blocks + SEGMENT, runs + u64::from(open == 0));
                    open += SEGMENT;
                }
                SegmentBits::Some(words) => {
                    for word in words.iter() {
                        blocks += u64::from(word.count_ones());
                        runs += u64::from((word & !(word << 1 | u64::from(open > 0))).count_ones());
                        if *word == u64::MAX {
                            open += u64::from(WORD_BITS);
                        } else {
                            long_blocks += long(open + u64::from(word.trailing_ones()));
                            // What begins and ends within a word is not long.
                            open = word.leading_ones().into();
                        }
                    }
                }
            }
        }
        *tally = Tally { segments: end, blocks, runs, long_blocks, open };
    }

    /// Where a search from a block on begins: its segment, and its place there.
    fn place_of(&self, block: u64) -> (usize, u32) {
        let from = block.max(self.begin);
        (self.segment_of(from), within(from))
    }

    /// The first free run of at least `count` blocks from `from` on; of the run there, what is behind `from`.
    fn first(&mut self, count: u32, from: u64) -> Option<u64> {
        let (nth, at) = self.place_of(from);
        let here = self.segment(nth);
        if let Some(at) = here.find(count, at) {
            return Some(self.block_in(nth, at));
        }
        let open = here.ones_before(SEGMENT_BLOCKS).min(SEGMENT_BLOCKS - at);
        match self.tree().find(count, nth + 1, open)? {
            Place::Begins(block) => Some(self.begin + block),
            Place::Within(nth) => self.segment(nth).find(count, 0).map(|at| self.block_in(nth, at)),
        }
    }

    /// The first hole of at least `count` blocks that begins at `from` or behind it.
    fn first_hole(&mut self, count: u32, from: u64) -> Option<Run> {
        let (nth, at) = self.place_of(from);
        let here = self.segment(nth);
        // At the beginning of a segment it may be the end of a run of the one before.
        let begins =
            if at == 0 && self.free_before(self.block_in(nth, 0), 1) > 0 { here.ones(0) } else { at };
        if let Some((at, count)) = here.find_hole(count, begins) {
            return Some(Run { start: self.block_in(nth, at), count: count.into() });
        }
        let at_end = here.ones_before(SEGMENT_BLOCKS);
        let is_behind = at_end <= SEGMENT_BLOCKS - begins.min(SEGMENT_BLOCKS);
        let open = if is_behind && at_end < SEGMENT_BLOCKS { at_end.min(LONG_BLOCKS) } else { LONG_BLOCKS };
        let start = match self.tree().find_hole(count, nth + 1, open)? {
            Place::Begins(block) => self.begin + block,
            Place::Within(nth) => {
                let segment = self.segment(nth);
                segment.find_hole(count, segment.ones(0)).map(|(at, _)| self.block_in(nth, at))?
            }
        };
        Some(Run { start, count: self.free_from(start, LONG) })
    }

    /// The next hole of at least `count` blocks, and then from the beginning on.
    fn next_hole(&mut self, count: u32, cursor: u64) -> Option<Run> {
        self.first_hole(count, cursor).or_else(|| self.first_hole(count, 0))
    }

    /// A run for a large write, from `cursor` on: a hole that holds it, if there is one, or else a long run; the longest of all, when none
    /// holds it. Of what is longer than 64 MiB not all is given.
    pub(crate) fn find(&mut self, count: u64, cursor: u64) -> Option<Run> {
        // Nobody looks for more blocks than the tree knows of.
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if count < LONG_BLOCKS
            && let Some(hole) = self.fitting(count, cursor, |map, from| map.first_hole(count, from))
        {
            return Some(hole);
        }
        let fits = count.min(self.tree().all().longest);
        let run_from = |map: &mut Self, from| {
            let start = map.first(fits, from)?;
            Some(Run { start, count: map.free_from(start, ENDLESS_BLOCKS.max(fits.into())) })
        };
        if fits > 0 { self.fitting(fits, cursor, run_from) } else { None }
    }

    /// Where the next long run begins, or goes on behind `cursor`.
    pub(crate) fn find_long(&mut self, cursor: u64) -> Option<u64> {
        self.first(LONG_BLOCKS, cursor).or_else(|| self.first(LONG_BLOCKS, 0))
    }

    /// Of the next few runs that hold `count`, the first that does not hold twice as much, or else the shortest.
    fn fitting(
        &mut self,
        count: u32,
        cursor: u64,
        first: impl Fn(&mut Self, u64) -> Option<Run>,
    ) -> Option<Run> {
        let mut next = first(self, cursor).or_else(|| first(self, 0));
        let mut best: Option<Run> = None;
        for _ in 0..PROBES_MAX {
            let Some(run) = next else { break };
            if best.is_none_or(|best| run.count < best.count) {
                best = Some(run);
            }
            if run.count / 2 < u64::from(count) || run.count >= ENDLESS_BLOCKS {
                break;
            }
            next = first(self, run.end());
        }
        best
    }

    /// A run for blocks that a checkpoint writes home: the next of the longest holes, to within a power of two.
    pub(crate) fn find_hole(&mut self, count: u64, cursor: u64) -> Option<Run> {
        let all = self.tree().all();
        // What lies at the edges of all is within no part.
        let longest = all.hole.max(hole_or_none(all.first)).max(hole_or_none(all.last));
        let longest = longest.min(u32::try_from(count).unwrap_or(u32::MAX));
        let power = longest.checked_ilog2().map_or(0, |power| 1 << power);
        (power > 0).then(|| self.next_hole(power, cursor)).flatten().or_else(|| self.find(count, cursor))
    }
}

#[cfg(test)]
mod tests;
