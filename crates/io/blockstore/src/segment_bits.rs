//! [`SegmentBits`]: 4,096 blocks of the data area, a bit for each that is free.

/// Blocks of a segment: 16 MiB of the device.
pub(crate) const SEGMENT_BLOCKS: u32 = 4096;
pub(crate) const WORD_BITS: u32 = u64::BITS;
const WORDS: usize = (SEGMENT_BLOCKS / WORD_BITS) as usize;

/// The least length of long runs: 1 MiB, what one request writes. What is shorter is a hole.
pub(crate) const LONG_BLOCKS: u32 = 256;

/// Stands for a run of all blocks of a part, where that has as many or more. Any other run of as many blocks counts one less: whole parts can
/// be told, and nobody looks for so long a run. So a length takes 32 bits in parts of any size.
const WHOLE_MAX: u32 = u32::MAX;

/// The length of a run that is all of a part of so many blocks.
pub(crate) fn whole(blocks: u64) -> u32 {
    u32::try_from(blocks).unwrap_or(WHOLE_MAX)
}

/// The free runs of a part of the area, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct FreeRunLengths {
    /// Of the run at the beginning.
    pub(crate) first: u32,
    /// Of the run at the end.
    pub(crate) last: u32,
    pub(crate) longest: u32,
    /// The longest hole that begins and ends within the part.
    pub(crate) hole: u32,
}

/// A run, if it is a hole.
pub(crate) const fn hole_or_none(blocks: u32) -> u32 {
    if blocks < LONG_BLOCKS { blocks } else { 0 }
}

impl FreeRunLengths {
    /// Of two parts side by side, each of so many blocks.
    pub(crate) fn join(left: Self, right: Self, half_blocks: u64) -> Self {
        let whole_half = whole(half_blocks);
        let is_whole = |length: u32| length == whole_half;
        let between = match is_whole(left.last) && is_whole(right.first) {
            true => whole(2 * half_blocks),
            false => left.last.saturating_add(right.first).min(WHOLE_MAX - 1),
        };
        let is_within = !is_whole(left.last) && !is_whole(right.first);
        let hole = if is_within { hole_or_none(between) } else { 0 };
        Self {
            first: if is_whole(left.first) { between } else { left.first },
            last: if is_whole(right.last) { between } else { right.last },
            longest: left.longest.max(right.longest).max(between),
            hole: left.hole.max(right.hole).max(hole),
        }
    }
}

/// Which blocks of a segment are free. All or none of them take no memory beyond this.
#[derive(Debug, Clone, Default)]
pub(crate) enum SegmentBits {
    #[default]
    None,
    All,
    Some(Box<[u64; WORDS]>),
}

/// Bits `at .. at + count` of a word.
const fn mask(at: u32, count: u32) -> u64 {
    (u64::MAX >> (WORD_BITS - count)) << at
}

impl SegmentBits {
    /// Memory of a segment of which some are free.
    pub(crate) const BYTES: usize = WORDS * 8;

    pub(crate) fn word(&self, nth: u32) -> u64 {
        match self {
            Self::None => 0,
            Self::All => u64::MAX,
            Self::Some(words) => words.get(nth as usize).copied().unwrap_or(0),
        }
    }

    /// Whether it takes [`SegmentBits::BYTES`].
    pub(crate) const fn is_mixed(&self) -> bool {
        matches!(self, Self::Some(_))
    }

    /// The words, to be changed; [`SegmentBits::settle`] is due afterwards.
    fn words(&mut self) -> &mut [u64; WORDS] {
        match self {
            Self::None => *self = Self::Some(Box::new([0; WORDS])),
            Self::All => *self = Self::Some(Box::new([u64::MAX; WORDS])),
            Self::Some(_) => {}
        }
        let Self::Some(words) = self else { unreachable!("just made") };
        words
    }

    fn settle(&mut self) {
        let Self::Some(words) = self else { return };
        if words.iter().all(|word| *word == 0) {
            *self = Self::None;
        } else if words.iter().all(|word| *word == u64::MAX) {
            *self = Self::All;
        }
    }

    /// Sets blocks `at .. at + count` of the segment free or not; they all were the other.
    pub(crate) fn set(&mut self, at: u32, count: u32, is_free: bool) {
        if count == SEGMENT_BLOCKS {
            *self = if is_free { Self::All } else { Self::None };
            return;
        }
        let words = self.words();
        let (mut at, end) = (at, at + count);
        let mut last = 0;
        while at < end {
            let bits = mask(at % WORD_BITS, (end - at).min(WORD_BITS - at % WORD_BITS));
            if let Some(word) = words.get_mut((at / WORD_BITS) as usize) {
                *word = if is_free { *word | bits } else { *word & !bits };
                last = *word;
            }
            at += bits.count_ones();
        }
        // Only now can they be all or none.
        if last == if is_free { u64::MAX } else { 0 } {
            self.settle();
        }
    }

    /// Takes the blocks of which `used` has a bit, byte by byte; gives the first that is not free.
    pub(crate) fn take(&mut self, used: &[u8]) -> Result<(), u32> {
        for (nth, (word, used)) in (0..).zip(self.words().iter_mut().zip(used.chunks(8))) {
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(used).for_each(|(byte, used)| *byte = *used);
            let used = u64::from_le_bytes(bytes);
            let wrong = used & !*word;
            if wrong != 0 {
                return Err(nth * WORD_BITS + wrong.trailing_zeros());
            }
            *word &= !used;
        }
        self.settle();
        Ok(())
    }

    /// How long its runs are.
    pub(crate) fn run_lengths(&self) -> FreeRunLengths {
        let words = match self {
            Self::None => return FreeRunLengths::default(),
            Self::All => {
                let all = SEGMENT_BLOCKS;
                return FreeRunLengths { first: all, last: all, longest: all, hole: 0 };
            }
            Self::Some(words) => words,
        };
        let (mut first, mut longest, mut hole, mut open) = (None, 0, 0, 0);
        for word in words.iter() {
            if *word == u64::MAX {
                open += WORD_BITS;
                continue;
            }
            open += word.trailing_ones();
            let within = longest_within(*word, hole);
            longest = longest.max(open).max(within);
            // The first run may have begun in the segment before.
            hole = hole.max(within).max(first.map_or(0, |_| hole_or_none(open)));
            first = first.or(Some(open));
            open = word.leading_ones();
        }
        FreeRunLengths { first: first.unwrap_or(open), last: open, longest: longest.max(open), hole }
    }

    /// The first block from `at` on from which at least `count` are free, to the end of the segment at most.
    pub(crate) fn find(&self, count: u32, at: u32) -> Option<u32> {
        let (first, bit) = (at / WORD_BITS, at % WORD_BITS);
        let mut open = 0;
        for nth in first..WORDS as u32 {
            let word = self.word(nth) & if nth == first { u64::MAX << bit } else { u64::MAX };
            let begin = nth * WORD_BITS;
            if open + word.trailing_ones() >= count {
                return Some(begin - open);
            }
            if let Some(found) = first_within(word, count) {
                return Some(begin + found);
            }
            open = if word == u64::MAX { open + WORD_BITS } else { word.leading_ones() };
        }
        None
    }

    /// The first hole from `at` on of at least `count` blocks, which ends in the segment: its place and length. A run that goes on before
    /// `at` does not count.
    pub(crate) fn find_hole(&self, count: u32, at: u32) -> Option<(u32, u32)> {
        let mut at = at;
        if at > 0 && self.ones_before(at) > 0 {
            at += self.ones(at);
        }
        while at < SEGMENT_BLOCKS {
            at += self.zeros(at);
            let ones = self.ones(at);
            if ones >= count && ones < LONG_BLOCKS && at + ones < SEGMENT_BLOCKS {
                return Some((at, ones));
            }
            at += ones;
        }
        None
    }

    /// Free blocks from `at` on, to the end of the segment at most.
    pub(crate) fn ones(&self, at: u32) -> u32 {
        self.same(at, |word| word)
    }

    /// Blocks from `at` on that are not free, to the end of the segment at most.
    pub(crate) fn zeros(&self, at: u32) -> u32 {
        self.same(at, |word| !word)
    }

    fn same(&self, at: u32, ones: impl Fn(u64) -> u64) -> u32 {
        let mut found = at;
        while found < SEGMENT_BLOCKS {
            let bit = found % WORD_BITS;
            let same = (ones(self.word(found / WORD_BITS)) >> bit).trailing_ones();
            found += same;
            if same < WORD_BITS - bit {
                break;
            }
        }
        found - at
    }

    /// Free blocks right before `end`, from the beginning of the segment at most.
    pub(crate) fn ones_before(&self, end: u32) -> u32 {
        let mut found = end;
        while found > 0 {
            let (nth, bits) = ((found - 1) / WORD_BITS, (found - 1) % WORD_BITS + 1);
            let same = (self.word(nth) << (WORD_BITS - bits)).leading_ones().min(bits);
            found -= same;
            if same < bits {
                break;
            }
        }
        end - found
    }
}

/// The longest run that begins and ends within a word, if it is longer than `least`. Each step makes all runs one bit shorter.
fn longest_within(word: u64, least: u32) -> u32 {
    let inner = word & !run_at_bottom(word) & !run_at_top(word);
    if inner.count_ones() <= least {
        return 0;
    }
    let (mut left, mut length) = (inner, 0);
    while left != 0 {
        left &= left << 1;
        length += 1;
    }
    length
}

const fn run_at_bottom(word: u64) -> u64 {
    word & !word.wrapping_add(1)
}

const fn run_at_top(word: u64) -> u64 {
    match word.leading_ones() {
        0 => 0,
        ones => u64::MAX << (WORD_BITS - ones),
    }
}

/// The lowest bit of a word from which `count` are set in it. Each step halves how much shorter runs have to become.
const fn first_within(word: u64, count: u32) -> Option<u32> {
    if count > word.count_ones() {
        return None;
    }
    let (mut starts, mut shorter) = (word, count - 1);
    let mut step = 1;
    while shorter > 0 {
        let by = if step < shorter { step } else { shorter };
        starts &= starts >> by;
        (shorter, step) = (shorter - by, step * 2);
    }
    if starts == 0 { None } else { Some(starts.trailing_zeros()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_segment_are_measured() {
        let mut bits = SegmentBits::All;
        let lengths = |bits: &SegmentBits| {
            let FreeRunLengths { first, last, longest, hole } = bits.run_lengths();
            (first, last, longest, hole)
        };
        bits.set(100, 1, false);
        assert_eq!(lengths(&bits), (100, 3995, 3995, 0));
        bits.set(101, 3995, false);
        assert_eq!(lengths(&bits), (100, 0, 100, 0));
        bits.set(0, 100, false);
        assert!(matches!(bits, SegmentBits::None), "no memory for nothing");
        bits.set(70, 20, true);
        assert_eq!((lengths(&bits), bits.find(20, 0), bits.find(21, 0)), ((0, 0, 20, 20), Some(70), None));
        bits.set(200, 64, true);
        assert_eq!((lengths(&bits), bits.find(21, 80)), ((0, 0, 64, 64), Some(200)));
        assert_eq!(
            (bits.ones(210), bits.zeros(264), bits.ones_before(264), bits.ones_before(90)),
            (54, 3832, 64, 20)
        );
        bits.set(0, 70, true);
        bits.set(90, 110, true);
        bits.set(264, 3832, true);
        assert!(matches!(bits, SegmentBits::All));
    }
}
