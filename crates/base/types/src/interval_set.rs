//! [`IntervalSet`]: a set of integers as disjoint, non-adjacent ranges. Ceph `interval_set<u64>`.

use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

/// Sorted, disjoint, non-adjacent `[start, start + length)` ranges.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct IntervalSet {
    ranges: BTreeMap<u64, u64>,
}

impl IntervalSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { ranges: BTreeMap::new() }
    }

    /// The set of one range.
    #[must_use]
    pub fn of(start: u64, length: u64) -> Self {
        let mut set = Self::new();
        set.insert(start, length);
        set
    }

    /// `(start, length)` of each range, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(start, length)| (*start, *length))
    }

    /// True when nothing is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Number of ranges.
    #[must_use]
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// Sum of the lengths.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.ranges.values().sum()
    }

    /// True when `value` is in the set.
    #[must_use]
    pub fn contains(&self, value: u64) -> bool {
        self.ranges.range(..=value).next_back().is_some_and(|(start, length)| value - start < *length)
    }

    /// True when all of `[start, start + length)` is in the set.
    #[must_use]
    pub fn contains_range(&self, start: u64, length: u64) -> bool {
        length == 0
            || self
                .ranges
                .range(..=start)
                .next_back()
                .is_some_and(|(from, span)| start - from < *span && length <= span - (start - from))
    }

    /// Adds a range, merging what it touches; ranges past `u64::MAX` are cut there.
    pub fn insert(&mut self, start: u64, length: u64) {
        let (mut from, mut to) = (start, start.saturating_add(length));
        if from == to {
            return;
        }
        let touched: Vec<u64> = self
            .ranges
            .range(..=to)
            .rev()
            .take_while(|(at, span)| *at + *span >= from)
            .map(|(at, _)| *at)
            .collect();
        for at in touched {
            let span = self.ranges.remove(&at).unwrap_or_default();
            from = from.min(at);
            to = to.max(at + span);
        }
        self.ranges.insert(from, to - from);
    }

    /// Removes a range; parts that are not in the set do not matter.
    pub fn remove(&mut self, start: u64, length: u64) {
        if length == 0 {
            return;
        }
        let end = start.saturating_add(length);
        let touched: Vec<(u64, u64)> = self
            .ranges
            .range(..end)
            .rev()
            .take_while(|(at, span)| *at + *span > start)
            .map(|(at, span)| (*at, *span))
            .collect();
        for (at, span) in touched {
            self.ranges.remove(&at);
            if at < start {
                self.ranges.insert(at, start - at);
            }
            if at + span > end {
                self.ranges.insert(end, at + span - end);
            }
        }
    }

    /// Adds every range of `other`.
    pub fn union_with(&mut self, other: &Self) {
        other.iter().for_each(|(start, length)| self.insert(start, length));
    }

    /// Removes every range of `other`.
    pub fn subtract(&mut self, other: &Self) {
        other.iter().for_each(|(start, length)| self.remove(start, length));
    }

    /// What both sets hold.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut out = self.clone();
        let mut outside = self.clone();
        outside.subtract(other);
        out.subtract(&outside);
        out
    }
}

impl FromIterator<(u64, u64)> for IntervalSet {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(ranges: I) -> Self {
        let mut set = Self::new();
        ranges.into_iter().for_each(|(start, length)| set.insert(start, length));
        set
    }
}

impl Encode for IntervalSet {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.ranges);
    }
}

impl Decode for IntervalSet {
    const MIN_BYTES: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(r.get::<Vec<(u64, u64)>>()?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(set: &IntervalSet) -> Vec<(u64, u64)> {
        set.iter().collect()
    }

    #[test]
    fn insert_merges_what_touches() {
        let mut set: IntervalSet = [(0, 2), (4, 2), (10, 1)].into_iter().collect();
        set.insert(2, 2);
        assert_eq!(ranges(&set), [(0, 6), (10, 1)]);
        set.insert(5, 20);
        assert_eq!(ranges(&set), [(0, 25)]);
    }

    #[test]
    fn remove_cuts_holes() {
        let mut set = IntervalSet::of(0, 10);
        set.remove(3, 2);
        set.remove(8, 100);
        assert_eq!(ranges(&set), [(0, 3), (5, 3)]);
        assert!(set.contains(5) && !set.contains(3));
        assert!(set.contains_range(5, 3) && !set.contains_range(2, 2));
    }

    #[test]
    fn intersection_keeps_what_both_hold() {
        let both = IntervalSet::of(0, 10).intersection(&[(5, 2), (8, 10)].into_iter().collect());
        assert_eq!(ranges(&both), [(5, 2), (8, 2)]);
    }
}
