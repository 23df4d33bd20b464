//! [`Marks`]: in which parts of the device something was freed since they were looked at last.

use crate::device::Run;

/// A bit for each unit of so many blocks: 2 MiB of memory for a terabyte in units of 64 KiB.
pub(crate) struct Marks {
    unit_blocks: u64,
    /// The first unit of the area, and of the words.
    first: u64,
    words: Vec<u64>,
    /// Bits that are set.
    count: u64,
    /// The word at which the next search begins.
    from: usize,
}

impl Marks {
    /// Of an area in which nothing was freed.
    pub(crate) fn new(area: Run, unit_blocks: u64) -> Self {
        let first = area.start / unit_blocks;
        let units = area.end().div_ceil(unit_blocks) - first;
        let words = usize::try_from(units.div_ceil(u64::BITS.into())).expect("at most 2^38");
        Self { unit_blocks, first, words: vec![0; words], count: 0, from: 0 }
    }

    /// Something was freed in each unit that the run touches.
    pub(crate) fn add(&mut self, run: Run) {
        let Some(last) = run.count.checked_sub(1).map(|more| run.start + more) else { return };
        for unit in run.start / self.unit_blocks..=last / self.unit_blocks {
            if let Some((word, bit)) = self.bit(unit) {
                let is_new = *word & bit == 0;
                *word |= bit;
                self.count += u64::from(is_new);
            }
        }
    }

    /// The number of the next unit that is marked, from where the one before was.
    pub(crate) fn next(&mut self) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let is_marked = |word: &u64| *word != 0;
        let behind = self.words.iter().skip(self.from).position(is_marked).map(|nth| self.from + nth);
        self.from = behind.or_else(|| self.words.iter().position(is_marked))?;
        let word = self.words.get(self.from)?;
        Some(self.first + self.from as u64 * u64::from(u64::BITS) + u64::from(word.trailing_zeros()))
    }

    /// That unit is looked at.
    pub(crate) fn clear(&mut self, unit: u64) {
        if let Some((word, bit)) = self.bit(unit) {
            let was_set = *word & bit != 0;
            *word &= !bit;
            self.count -= u64::from(was_set);
        }
    }

    /// The word of a unit, and its bit there.
    fn bit(&mut self, unit: u64) -> Option<(&mut u64, u64)> {
        let (nth, bits) = (unit.checked_sub(self.first)?, u64::from(u64::BITS));
        self.words.get_mut((nth / bits) as usize).map(|word| (word, 1 << (nth % bits)))
    }

    /// How many units are marked.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of memory that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.words.len() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(marks: &mut Marks) -> Vec<u64> {
        std::iter::from_fn(|| marks.next().inspect(|unit| marks.clear(*unit))).collect()
    }

    #[test]
    fn units_that_a_run_touches_are_marked_once() {
        let mut marks = Marks::new(Run { start: 5, count: 16 * 200 }, 16);
        assert_eq!(all(&mut marks), []);
        marks.add(Run { start: 31, count: 2 });
        marks.add(Run { start: 32, count: 16 });
        marks.add(Run { start: 16 * 130, count: 1 });
        marks.add(Run { start: 16 * 199, count: 21 });
        marks.add(Run { start: 7, count: 0 });
        assert_eq!(marks.count(), 5);
        assert_eq!(all(&mut marks), [1, 2, 130, 199, 200]);
        assert_eq!((marks.count(), marks.bytes()), (0, 4 * 8));
    }

    #[test]
    fn the_search_goes_on_where_it_was_and_then_from_the_beginning() {
        let mut marks = Marks::new(Run { start: 0, count: 16 * 256 }, 16);
        marks.add(Run { start: 16 * 100, count: 16 });
        assert_eq!(marks.next(), Some(100));
        marks.clear(100);
        marks.add(Run { start: 0, count: 16 });
        marks.add(Run { start: 16 * 250, count: 16 });
        assert_eq!(all(&mut marks), [250, 0]);
    }
}
