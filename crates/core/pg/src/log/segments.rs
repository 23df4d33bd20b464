//! [`Segments`]: a queue in pieces of some kilobytes each. A log grows for as long as a copy is away, and an OSD has hundreds: one that grew by
//! doubling would have up to as much memory for nothing, and leave as much again behind.
//!
//! ```text
//!   [  ..x x x ]  [ x x x x x ]  [ x x x x x ]  [ x x        ]
//!      first         full           full           last
//! ```

use std::collections::VecDeque;

/// Bytes of a segment: some seventy entries of a log, so that the two that are not full are little of it, and a power of two.
const SEGMENT_BYTES: usize = 8 << 10;

/// Entries in order, which come at the end and go at either.
#[derive(Debug)]
pub(super) struct Segments<T> {
    /// None is empty, and all but the first and the last are full.
    segments: VecDeque<VecDeque<T>>,
    len: usize,
}

impl<T> Default for Segments<T> {
    fn default() -> Self {
        Self { segments: VecDeque::new(), len: 0 }
    }
}

impl<T> Segments<T> {
    /// Entries of a full segment.
    const FULL: usize = SEGMENT_BYTES / size_of::<T>();

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, at: usize) -> Option<&T> {
        let first = self.segments.front()?;
        match at.checked_sub(first.len()) {
            None => first.get(at),
            Some(behind) => self.segments.get(1 + behind / Self::FULL)?.get(behind % Self::FULL),
        }
    }

    pub(super) fn back(&self) -> Option<&T> {
        self.segments.back()?.back()
    }

    pub(super) fn push_back(&mut self, entry: T) {
        if self.segments.back().is_none_or(|last| last.len() == Self::FULL) {
            self.segments.push_back(VecDeque::with_capacity(Self::FULL));
        }
        self.segments.back_mut().expect("it has room").push_back(entry);
        self.len += 1;
    }

    pub(super) fn pop_front_if(&mut self, is_to_go: impl FnOnce(&mut T) -> bool) -> Option<T> {
        let first = self.segments.front_mut()?;
        let entry = first.pop_front_if(is_to_go)?;
        if first.is_empty() {
            self.segments.pop_front();
        }
        self.len -= 1;
        Some(entry)
    }

    /// Takes all from that place on out, in order.
    pub(super) fn split_off(&mut self, at: usize) -> Vec<T> {
        let mut gone = Vec::with_capacity(self.len.saturating_sub(at));
        while self.len > at
            && let Some(last) = self.segments.back_mut()
        {
            gone.extend(last.pop_back());
            if last.is_empty() {
                self.segments.pop_back();
            }
            self.len -= 1;
        }
        gone.reverse();
        gone
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.segments.iter().flatten()
    }

    /// Those from that place on.
    pub(super) fn from(&self, at: usize) -> impl DoubleEndedIterator<Item = &T> {
        (at..self.len).filter_map(|at| self.get(at))
    }

    /// Those before that place.
    pub(super) fn until(&self, at: usize) -> impl DoubleEndedIterator<Item = &T> {
        (0..at.min(self.len)).filter_map(|at| self.get(at))
    }

    /// The place of the first for which `is_before` does not hold, as it does for all before it.
    pub(super) fn partition_point(&self, is_before: impl Fn(&T) -> bool) -> usize {
        let ends_before = |segment: &VecDeque<T>| segment.back().is_some_and(&is_before);
        let nth = self.segments.partition_point(ends_before);
        let Some(segment) = self.segments.get(nth) else { return self.len };
        let before = match nth.checked_sub(1) {
            None => 0,
            Some(full) => self.segments.front().map_or(0, VecDeque::len) + full * Self::FULL,
        };
        before + segment.partition_point(is_before)
    }

    /// Bytes of memory that it takes, without what entries have elsewhere.
    pub(super) fn bytes(&self) -> usize {
        self.segments.len() * SEGMENT_BYTES + self.segments.capacity() * size_of::<VecDeque<T>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::Entropy;
    use nacre_types::entropy::SeededEntropy;

    /// Some forty to a segment.
    type Entry = [u64; 25];

    fn of(number: u64) -> Entry {
        [number; 25]
    }

    #[test]
    fn it_is_as_a_queue_in_one_piece() {
        let mut rng = SeededEntropy(5);
        let (mut log, mut model, mut next) = (Segments::<Entry>::default(), VecDeque::new(), 0);
        for _ in 0..3000 {
            match rng.u64() % 8 {
                0..5 => {
                    for _ in 0..rng.u64() % 60 {
                        log.push_back(of(next));
                        model.push_back(of(next));
                        next += 1;
                    }
                }
                5..7 => {
                    let to = model.front().map_or(0, |first: &Entry| first[0]) + rng.u64() % 120;
                    while let Some(gone) = log.pop_front_if(|entry| entry[0] < to) {
                        assert_eq!(Some(gone), model.pop_front());
                    }
                    assert!(model.front().is_none_or(|first| first[0] >= to));
                }
                _ => {
                    let at =
                        model.len() - usize::try_from(rng.u64()).expect("64 bits") % (model.len() + 1) / 8;
                    assert_eq!(log.split_off(at), Vec::from(model.split_off(at)));
                    next = model.back().map_or(next, |last| last[0] + 1);
                }
            }
            assert!(log.len() == model.len() && log.back() == model.back());
            assert!(log.segments.iter().all(|segment| !segment.is_empty()));
            let at = usize::try_from(rng.u64()).expect("64 bits") % (model.len() + 3);
            assert_eq!(log.get(at), model.get(at));
            let number = at as u64 + model.front().map_or(0, |first| first[0]);
            let is_before = |entry: &Entry| entry[0] < number;
            assert_eq!(log.partition_point(is_before), model.partition_point(is_before));
            assert!(log.from(at).eq(model.range(at.min(model.len())..)));
            assert!(log.until(at).rev().eq(model.range(..at.min(model.len())).rev()));
        }
        assert!(next > 10_000 && log.iter().eq(&model) && log.iter().rev().eq(model.iter().rev()));
    }

    #[test]
    fn it_takes_little_more_than_its_entries() {
        let mut log = Segments::<Entry>::default();
        (0..6000).for_each(|number| log.push_back(of(number)));
        assert!(log.bytes() < 6000 * size_of::<Entry>() * 11 / 10, "{}", log.bytes());
    }
}
