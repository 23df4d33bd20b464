//! [`GlobalIds`]: numbers for new instances of clients, none of them used twice in the cluster's life.
//!
//! The monitors' leader grants ranges and stores where the next one begins before it does; a monitor hands out what it was granted. What
//! is left of a range when its monitor ends is lost.

use std::collections::VecDeque;
use std::ops::Range;

/// Ids of one range; Ceph `mon_globalid_prealloc`.
pub const GLOBAL_IDS_PER_GRANT: u64 = 10_000;

/// Ranges that are kept; what is granted beyond is lost.
const RANGES_MAX: usize = 4;

/// Ids that one monitor may hand out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GlobalIds {
    granted: VecDeque<Range<u64>>,
}

impl GlobalIds {
    /// Nobody else hands out the ids of `range`.
    pub fn grant(&mut self, range: Range<u64>) {
        if !range.is_empty() && self.granted.len() < RANGES_MAX {
            self.granted.push_back(range);
        }
    }

    /// How many can be handed out.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.granted.iter().map(|range| range.end - range.start).sum()
    }

    /// A fresh id; `None` when there is none left.
    pub fn take(&mut self) -> Option<u64> {
        let range = self.granted.front_mut()?;
        let id = range.start;
        range.start += 1;
        if range.is_empty() {
            self.granted.pop_front();
        }
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_from_granted_ranges_in_their_order_and_end_with_them() {
        let mut ids = GlobalIds::default();
        assert_eq!((ids.take(), ids.left()), (None, 0));
        ids.grant(5..5);
        ids.grant(1..3);
        ids.grant(7..8);
        assert_eq!(ids.left(), 3);
        let taken: Vec<_> = std::iter::from_fn(|| ids.take()).collect();
        assert_eq!(taken, [1, 2, 7]);
        (0..100).for_each(|at| ids.grant(at * 10..at * 10 + 10));
        assert_eq!(ids.left(), 40, "what is granted beyond the bound is lost");
    }
}
