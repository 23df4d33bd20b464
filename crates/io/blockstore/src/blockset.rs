//! [`BlockSet`]: numbers of blocks, by bits. Found, put in and taken out in a few nanoseconds each, in order; a tree takes ten
//! times as long for the hundred thousand holes of a store that was written all over.

/// Blocks of a page: one bit of its summary for each word.
const PAGE_BLOCKS: u32 = 64 * 64;
const WORD_BITS: u32 = 64;
/// Pages of a word of the top.
const TOP_BITS: usize = 64;

#[derive(Debug, Clone)]
struct Page {
    /// Which words have bits.
    summary: u64,
    words: [u64; 64],
}

impl Page {
    const EMPTY: Self = Self { summary: 0, words: [0; 64] };

    fn word(&self, nth: u32) -> u64 {
        self.words.get(nth as usize).copied().unwrap_or(0)
    }

    /// The least from `at` on.
    fn next(&self, at: u32) -> Option<u32> {
        let (nth, bit) = (at / WORD_BITS, at % WORD_BITS);
        let here = self.word(nth) & (u64::MAX << bit);
        if here != 0 {
            return Some(nth * WORD_BITS + here.trailing_zeros());
        }
        let later = self.summary & u64::MAX.checked_shl(nth + 1).unwrap_or(0);
        (later != 0).then(|| {
            let nth = later.trailing_zeros();
            nth * WORD_BITS + self.word(nth).trailing_zeros()
        })
    }

    /// The greatest up to `at`.
    fn previous(&self, at: u32) -> Option<u32> {
        let (nth, bit) = (at / WORD_BITS, at % WORD_BITS);
        let last = |word: u64| WORD_BITS - 1 - word.leading_zeros();
        let here = self.word(nth) & (u64::MAX >> (WORD_BITS - 1 - bit));
        if here != 0 {
            return Some(nth * WORD_BITS + last(here));
        }
        let earlier = self.summary & ((1 << nth) - 1);
        (earlier != 0).then(|| {
            let nth = last(earlier);
            nth * WORD_BITS + last(self.word(nth))
        })
    }
}

/// A set of blocks. Its memory is that of the pages that have any, and a word for each up to the highest.
#[derive(Debug, Default)]
pub(crate) struct BlockSet {
    pages: Vec<Option<Box<Page>>>,
    /// Which pages are there: an empty terabyte is 65,536 of them, a thousand words.
    top: Vec<u64>,
    /// Pages that are there.
    used: usize,
    count: usize,
}

const fn page_of(block: u32) -> usize {
    (block / PAGE_BLOCKS) as usize
}

impl BlockSet {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// About how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.used * size_of::<Page>() + self.pages.len() * size_of::<usize>() + self.top.len() * 8
    }

    fn page(&self, block: u32) -> Option<&Page> {
        self.pages.get(page_of(block))?.as_deref()
    }

    pub(crate) fn contains(&self, block: u32) -> bool {
        let at = block % PAGE_BLOCKS;
        self.page(block).is_some_and(|page| page.word(at / WORD_BITS) >> (at % WORD_BITS) & 1 == 1)
    }

    /// Puts a block in that is not there.
    pub(crate) fn insert(&mut self, block: u32) {
        if self.pages.len() <= page_of(block) {
            self.pages.resize_with(page_of(block) + 1, || None);
            self.top.resize(self.pages.len().div_ceil(TOP_BITS), 0);
        }
        if let Some(word) = self.top.get_mut(page_of(block) / TOP_BITS) {
            *word |= 1 << (page_of(block) % TOP_BITS);
        }
        let Some(page) = self.pages.get_mut(page_of(block)) else { return };
        self.used += usize::from(page.is_none());
        let page = page.get_or_insert_with(|| Box::new(Page::EMPTY));
        let at = block % PAGE_BLOCKS;
        page.summary |= 1 << (at / WORD_BITS);
        if let Some(word) = page.words.get_mut((at / WORD_BITS) as usize) {
            debug_assert!(*word >> (at % WORD_BITS) & 1 == 0, "block {block} is in the set");
            *word |= 1 << (at % WORD_BITS);
            self.count += 1;
        }
    }

    /// Takes a block out that is there.
    pub(crate) fn remove(&mut self, block: u32) {
        debug_assert!(self.contains(block), "block {block} is not in the set");
        let Some(place) = self.pages.get_mut(page_of(block)) else { return };
        let Some(page) = place else { return };
        let at = block % PAGE_BLOCKS;
        let Some(word) = page.words.get_mut((at / WORD_BITS) as usize) else { return };
        *word &= !(1 << (at % WORD_BITS));
        self.count -= 1;
        if *word == 0 {
            page.summary &= !(1 << (at / WORD_BITS));
            if page.summary == 0 {
                *place = None;
                self.used -= 1;
                if let Some(word) = self.top.get_mut(page_of(block) / TOP_BITS) {
                    *word &= !(1 << (page_of(block) % TOP_BITS));
                }
            }
        }
    }

    /// The first page that is there from `from` on.
    fn next_page(&self, from: usize) -> Option<usize> {
        let (nth, bit) = (from / TOP_BITS, from % TOP_BITS);
        let here = self.top.get(nth)? & (u64::MAX << bit);
        let first = |nth: usize, word: u64| nth * TOP_BITS + word.trailing_zeros() as usize;
        if here != 0 {
            return Some(first(nth, here));
        }
        let later = self.top.iter().enumerate().skip(nth + 1).find(|(_, word)| **word != 0);
        later.map(|(nth, word)| first(nth, *word))
    }

    /// The last page that is there before `end`.
    fn previous_page(&self, end: usize) -> Option<usize> {
        let end = end.min(self.pages.len());
        let (nth, bit) = (end / TOP_BITS, end % TOP_BITS);
        let last = |nth: usize, word: u64| nth * TOP_BITS + (63 - word.leading_zeros() as usize);
        let here = self.top.get(nth).copied().unwrap_or(0) & ((1 << bit) - 1);
        if here != 0 {
            return Some(last(nth, here));
        }
        let earlier = self.top.iter().enumerate().take(nth).rev().find(|(_, word)| **word != 0);
        earlier.map(|(nth, word)| last(nth, *word))
    }

    /// The least block from `from` on.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        let first = page_of(from);
        let found = |nth: usize, at: u32| {
            let at = self.pages.get(nth)?.as_deref()?.next(at)?;
            Some(u32::try_from(nth).ok()? * PAGE_BLOCKS + at)
        };
        found(first, from % PAGE_BLOCKS).or_else(|| self.next_page(first + 1).and_then(|nth| found(nth, 0)))
    }

    /// The greatest block up to `to`.
    pub(crate) fn previous(&self, to: u32) -> Option<u32> {
        let last = page_of(to);
        let found = |nth: usize, at: u32| {
            let at = self.pages.get(nth)?.as_deref()?.previous(at)?;
            Some(u32::try_from(nth).ok()? * PAGE_BLOCKS + at)
        };
        found(last, to % PAGE_BLOCKS)
            .or_else(|| self.previous_page(last).and_then(|nth| found(nth, PAGE_BLOCKS - 1)))
    }

    /// From `cursor` on, and then from the beginning: each block once.
    pub(crate) fn around(&self, cursor: u32) -> impl Iterator<Item = u32> {
        let first = self.next(cursor).or_else(|| self.next(0));
        let behind = |at: &u32| at.checked_add(1).and_then(|at| self.next(at)).or_else(|| self.next(0));
        std::iter::successors(first, behind).take(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The same as a tree, whatever is done.
    #[test]
    fn is_an_ordered_set() {
        let (mut set, mut model, mut seed) = (BlockSet::default(), BTreeSet::new(), 5_u32);
        let mut next = |bound: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) % bound
        };
        for _ in 0..60_000 {
            // Dense and sparse places, and the edges of words and pages.
            let block = match next(4) {
                0 => next(200),
                1 => 4000 + next(200),
                2 => (1 + next(60)) * 4096 - next(2),
                _ => next(1 << 24),
            };
            if model.insert(block) {
                set.insert(block);
            } else if next(3) > 0 {
                model.remove(&block);
                set.remove(block);
            }
            let at = next(1 << 24) >> next(24);
            assert_eq!(set.next(at), model.range(at..).next().copied());
            assert_eq!(set.previous(at), model.range(..=at).next_back().copied());
            assert_eq!((set.contains(at), set.len()), (model.contains(&at), model.len()));
        }
        let at = 1 << 20;
        assert!(set.around(at).eq(model.range(at..).chain(model.range(..at)).copied()));
        model.iter().for_each(|block| set.remove(*block));
        assert_eq!((set.len(), set.used, set.next(0), set.previous(u32::MAX)), (0, 0, None, None));
        set.insert(u32::MAX);
        assert_eq!((set.next(5), set.previous(u32::MAX)), (Some(u32::MAX), Some(u32::MAX)));
    }
}
