//! [`FreeRuns`]: the free blocks of the data area as runs, found by place and by length.
//!
//! Two kinds of writer take from it. Large writes want one long run, so that they are few requests to the device. Dirty
//! blocks that a checkpoint writes home come one by one from all over their objects, and leave as many holes of a block
//! where they were. Were they put into long runs always, then after one pass over the device nothing but holes would be
//! left, and a write of 4 MiB would be a thousand requests. So once long runs become rare, homes go into the holes:
//! each then fills as many as it leaves behind, and what is long stays long.

use crate::blockset::BlockSet;
use crate::device::Run;

/// Classes of lengths: 2^n to 2^(n+1) - 1 blocks.
const CLASSES: usize = 32;
/// The least class of long runs: 1 MiB, what one request writes.
const LONG_CLASS: usize = 8;
/// Runs of the longest class that are looked at for the longest one.
const PROBES_MAX: usize = 16;
/// Disjoint runs, neighbours merged.
#[derive(Debug)]
pub(crate) struct FreeRuns {
    /// First and last blocks of the runs.
    starts: BlockSet,
    lasts: BlockSet,
    /// First blocks by class.
    classes: [BlockSet; CLASSES],
    blocks: u64,
    long_blocks: u64,
}

fn class_of(count: u32) -> usize {
    count.max(1).ilog2() as usize
}

impl FreeRuns {
    pub(crate) fn new(all: Run) -> Self {
        let mut runs = Self {
            starts: BlockSet::default(),
            lasts: BlockSet::default(),
            classes: std::array::from_fn(|_| BlockSet::default()),
            blocks: 0,
            long_blocks: 0,
        };
        runs.put(all);
        runs
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
    pub(crate) fn pieces(&self) -> usize {
        self.starts.len()
    }

    /// About how many bytes this takes.
    pub(crate) fn bytes(&self) -> usize {
        let classes: usize = self.classes.iter().map(BlockSet::bytes).sum();
        self.starts.bytes() + self.lasts.bytes() + classes
    }

    /// All runs, by start.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Run> {
        self.starts.around(0).filter_map(|start| self.run_at(start))
    }

    fn put(&mut self, run: Run) {
        if run.count == 0 {
            return;
        }
        let class = class_of(run.count);
        self.starts.insert(run.start);
        self.lasts.insert(run.end() - 1);
        self.classes.get_mut(class).expect("a class for each length").insert(run.start);
        self.blocks += u64::from(run.count);
        self.long_blocks += if class >= LONG_CLASS { u64::from(run.count) } else { 0 };
    }

    fn drop_run(&mut self, run: Run) {
        let class = class_of(run.count);
        self.starts.remove(run.start);
        self.lasts.remove(run.end() - 1);
        self.classes.get_mut(class).expect("a class for each length").remove(run.start);
        self.blocks -= u64::from(run.count);
        self.long_blocks -= if class >= LONG_CLASS { u64::from(run.count) } else { 0 };
    }

    /// Takes exactly these blocks; false, and nothing taken, unless all are free.
    pub(crate) fn take(&mut self, run: Run) -> bool {
        let Some(found) = self.starts.previous(run.start).and_then(|start| self.run_at(start)) else {
            return false;
        };
        let Run { start, count } = found;
        // In 64 bits: a run that a damaged log names may end beyond 2^32.
        let wanted_end = u64::from(run.start) + u64::from(run.count);
        if run.count == 0 || wanted_end > u64::from(start) + u64::from(count) {
            return false;
        }
        self.drop_run(found);
        self.put(Run { start, count: run.start - start });
        self.put(Run { start: run.end(), count: found.end() - run.end() });
        true
    }

    /// Gives blocks back.
    ///
    /// # Panics
    /// When one of them is free.
    pub(crate) fn give(&mut self, run: Run) {
        let (mut start, mut end) = (run.start, run.end());
        let last = end - 1;
        // Whatever overlaps it begins or ends in it, or begins before it and ends behind it.
        let begins = self.starts.previous(last);
        let is_free = begins.is_some_and(|begins| self.lasts.next(begins).is_some_and(|last| last >= start));
        assert!(!is_free, "blocks from {start} to {last} were freed twice");
        if let Some(before) = begins.filter(|_| start > 0 && self.lasts.contains(start - 1)) {
            self.drop_run(Run { start: before, count: start - before });
            start = before;
        }
        if self.starts.contains(end)
            && let Some(after) = self.run_at(end)
        {
            self.drop_run(after);
            end = after.end();
        }
        self.put(Run { start, count: end - start });
    }

    /// A run for a large write: one of the shortest that hold `count` for certain, from `cursor` on; the longest, when
    /// none does.
    pub(crate) fn find(&self, count: u32, cursor: u32) -> Option<Run> {
        let fits = class_of(count) + usize::from(!count.is_power_of_two());
        let class = self.classes.iter().skip(fits).find(|class| !class.is_empty());
        class.and_then(|class| self.nearest(class, cursor)).or_else(|| self.longest(&self.classes, cursor))
    }

    /// A run for blocks that a checkpoint writes home: out of the holes.
    pub(crate) fn find_hole(&self, count: u32, cursor: u32) -> Option<Run> {
        let (holes, _long) = self.classes.split_at(LONG_CLASS);
        self.longest(holes, cursor).or_else(|| self.find(count, cursor))
    }

    /// The run that begins at `start`.
    fn run_at(&self, start: u32) -> Option<Run> {
        self.lasts.next(start).map(|last| Run { start, count: last - start + 1 })
    }

    fn nearest(&self, class: &BlockSet, cursor: u32) -> Option<Run> {
        class.around(cursor).next().and_then(|start| self.run_at(start))
    }

    /// The longest of a few in the highest class that has any.
    fn longest(&self, classes: &[BlockSet], cursor: u32) -> Option<Run> {
        let (nth, class) = classes.iter().enumerate().rev().find(|(_, class)| !class.is_empty())?;
        if nth == 0 {
            // None is longer than one block.
            return self.nearest(class, cursor);
        }
        let around = class.around(cursor).take(PROBES_MAX).filter_map(|start| self.run_at(start));
        around.reduce(|best, run| if run.count > best.count { run } else { best })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u32, count: u32) -> Run {
        Run { start, count }
    }

    /// Holes of one block from 0 on, then 300 blocks from 1000 on.
    fn mixed() -> FreeRuns {
        let mut free = FreeRuns::new(run(1000, 300));
        (0..10).for_each(|nth| free.give(run(2 * nth, 1)));
        free
    }

    #[test]
    fn large_writes_find_long_runs_and_homes_find_holes() {
        let free = mixed();
        assert_eq!((free.blocks(), free.long_blocks()), (310, 300));
        assert_eq!(free.find(256, 0), Some(run(1000, 300)));
        assert_eq!(free.find(1, 5), Some(run(6, 1)), "what is short is used up first");
        assert_eq!(free.find(2, 0), Some(run(1000, 300)));
        assert_eq!(free.find(5000, 0), Some(run(1000, 300)), "the longest, when none is long enough");
        assert_eq!(free.find_hole(100, 7), Some(run(8, 1)));
        assert_eq!(free.find_hole(100, 50), Some(run(0, 1)), "and begins anew at the end");
        assert_eq!(FreeRuns::new(run(0, 512)).find_hole(4, 0), Some(run(0, 512)));
    }

    #[test]
    fn what_is_given_back_grows_together() {
        let mut free = mixed();
        assert!(!free.take(run(4, 2)) && !free.take(run(u32::MAX, 2)) && !free.take(run(4, 0)));
        assert!(free.take(run(1100, 10)));
        assert_eq!((free.blocks(), free.long_blocks()), (300, 0), "neither part is long any more");
        free.give(run(1100, 10));
        assert_eq!((free.blocks(), free.long_blocks()), (310, 300));
        free.give(run(1, 1));
        assert_eq!(free.iter().next(), Some(run(0, 3)));
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn what_is_free_cannot_be_given_back() {
        mixed().give(run(1299, 2));
    }
}
