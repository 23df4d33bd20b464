//! [`SegmentBits`]: 4,096 blocks of the data area, a bit for each that is free.

/// Blocks of a segment: 16 MiB of the device.
pub(crate) const SEGMENT_BLOCKS: u32 = 4096;
pub(crate) const WORD_BITS: u32 = u64::BITS;
const WORDS: usize = (SEGMENT_BLOCKS / WORD_BITS) as usize;

/// The free runs of a part of the area, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct FreeRunLengths {
    /// Of the run at the beginning.
    pub(crate) first: u32,
    /// Of the run at the end.
    pub(crate) last: u32,
    pub(crate) longest: u32,
}

impl FreeRunLengths {
    /// Of two parts side by side, each of so many blocks.
    pub(crate) fn join(left: Self, right: Self, half_blocks: u64) -> Self {
        let is_whole = |length: u32| u64::from(length) == half_blocks;
        Self {
            first: if is_whole(left.first) { left.first + right.first } else { left.first },
            last: if is_whole(right.last) { left.last + right.last } else { right.last },
            longest: left.longest.max(right.longest).max(left.last + right.first),
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
                return FreeRunLengths {
                    first: SEGMENT_BLOCKS,
                    last: SEGMENT_BLOCKS,
                    longest: SEGMENT_BLOCKS,
                };
            }
            Self::Some(words) => words,
        };
        let (mut first, mut longest, mut open) = (None, 0, 0);
        for word in words.iter() {
            if *word == u64::MAX {
                open += WORD_BITS;
                continue;
            }
            open += word.trailing_ones();
            first = first.or(Some(open));
            longest = open.max(longest).max(longest_within(*word, longest));
            open = word.leading_ones();
        }
        FreeRunLengths { first: first.unwrap_or(open), last: open, longest: longest.max(open) }
    }

    /// The first block from `at` on at which a run of at least `count` begins that ends in the segment.
    pub(crate) fn find(&self, count: u32, at: u32) -> Option<u32> {
        let mut at = at;
        while at < SEGMENT_BLOCKS {
            at += self.zeros(at);
            let ones = self.ones(at);
            if ones >= count {
                return Some(at);
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

/// The longest run within a word, if it is longer than `least`: each step makes all runs one bit shorter.
fn longest_within(word: u64, least: u32) -> u32 {
    if least >= WORD_BITS {
        return 0;
    }
    let (mut left, mut length) = (word, 0);
    while left != 0 {
        left &= left << 1;
        length += 1;
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_segment_are_measured() {
        let mut bits = SegmentBits::All;
        let lengths = |bits: &SegmentBits| {
            let FreeRunLengths { first, last, longest } = bits.run_lengths();
            (first, last, longest)
        };
        bits.set(100, 1, false);
        assert_eq!(lengths(&bits), (100, 3995, 3995));
        bits.set(101, 3995, false);
        assert_eq!(lengths(&bits), (100, 0, 100));
        bits.set(0, 100, false);
        assert!(matches!(bits, SegmentBits::None), "no memory for nothing");
        bits.set(70, 20, true);
        assert_eq!((lengths(&bits), bits.find(20, 0), bits.find(21, 0)), ((0, 0, 20), Some(70), None));
        bits.set(200, 64, true);
        assert_eq!((lengths(&bits), bits.find(21, 80)), ((0, 0, 64), Some(200)));
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
