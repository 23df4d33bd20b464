//! [`Alloc`]: which 4 KiB blocks of the data area are free, shared, or freed but still needed after a crash.
//!
//! A block that nothing refers to any more is *pending*: the last durable checkpoint, or a log record behind
//! it, may still refer to it. It becomes free when a checkpoint is durable whose cut came after the release.

use crate::freemap::{Portion, RefChanges};
use std::collections::BTreeMap;

/// Free runs looked at for one that holds the whole request before it is split over several.
const PROBES_MAX: usize = 64;

/// A run of device blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Run {
    pub(crate) start: u32,
    pub(crate) count: u32,
}

impl Run {
    pub(crate) fn end(self) -> u32 {
        self.start + self.count
    }

    /// The blocks in order.
    pub(crate) fn blocks(self) -> std::ops::Range<u32> {
        self.start..self.end()
    }
}

/// Allocation state of the data area. `check` in `check.rs` compares it with the objects.
#[derive(Debug)]
pub(crate) struct Alloc {
    area: Run,
    /// Start and length of free runs, neighbours merged.
    free: BTreeMap<u32, u32>,
    free_count: u64,
    /// Where the next search begins.
    cursor: u32,
    /// References beyond the first, of blocks that have more than one.
    shared: BTreeMap<u32, u32>,
    /// Blocks without references, with the number of cuts made when they lost the last one.
    pending: Vec<(u64, u32)>,
    /// Blocks that may be freed now, in descending order.
    freeing: Vec<u32>,
    cuts: u64,
    /// Changes of references since the last cut, for the free map in the KV store.
    changes: RefChanges,
}

impl Alloc {
    pub(crate) fn new(area: Run) -> Self {
        let free = BTreeMap::from([(area.start, area.count)]);
        Self {
            area,
            free,
            free_count: area.count.into(),
            cursor: area.start,
            shared: BTreeMap::new(),
            pending: Vec::new(),
            freeing: Vec::new(),
            cuts: 0,
            changes: RefChanges::default(),
        }
    }

    pub(crate) fn area(&self) -> Run {
        self.area
    }

    pub(crate) fn free_count(&self) -> u64 {
        self.free_count
    }

    pub(crate) fn pending_count(&self) -> u64 {
        (self.pending.len() + self.freeing.len()) as u64
    }

    /// Takes `count` blocks, in as few runs as a short search finds; `None` when there are not as many.
    pub(crate) fn allocate(&mut self, count: u32) -> Option<Vec<Run>> {
        let runs = self.allocate_homes(count)?;
        runs.iter().for_each(|run| self.changes.add(*run, 1));
        Some(runs)
    }

    /// As [`Alloc::allocate`], for the checkpoint that is under way: it notes the references itself.
    pub(crate) fn allocate_homes(&mut self, count: u32) -> Option<Vec<Run>> {
        if u64::from(count) > self.free_count {
            return None;
        }
        let mut runs = Vec::new();
        let mut left = count;
        while left > 0 {
            let found = self.find(left)?;
            let taken = Run { start: found.start, count: found.count.min(left) };
            assert!(self.reserve(taken), "a free run was just found");
            self.cursor = taken.end();
            left -= taken.count;
            runs.push(taken);
        }
        Some(runs)
    }

    /// A free run from the cursor on that holds `count`, or the longest of those looked at.
    fn find(&self, count: u32) -> Option<Run> {
        let ahead = self.free.range(self.cursor..).chain(self.free.range(..self.cursor));
        let mut best: Option<Run> = None;
        for (&start, &length) in ahead.take(PROBES_MAX) {
            if best.is_none_or(|best| length > best.count) {
                best = Some(Run { start, count: length });
            }
            if length >= count {
                break;
            }
        }
        best
    }

    /// As [`Alloc::reserve`], for a record that is replayed.
    pub(crate) fn replay(&mut self, run: Run) -> bool {
        let was_free = self.reserve(run);
        if was_free {
            self.changes.add(run, 1);
        }
        was_free
    }

    /// Takes what a portion of the free map says; gives a run that is outside of the area.
    pub(crate) fn load(&mut self, nth: u32, portion: &Portion) -> Result<(), Run> {
        portion
            .runs(nth)
            .into_iter()
            .try_for_each(|run| if self.reserve(run) { Ok(()) } else { Err(run) })?;
        self.shared.extend(portion.shared(nth));
        Ok(())
    }

    /// Takes exactly these blocks; false, and nothing taken, unless all are free.
    fn reserve(&mut self, run: Run) -> bool {
        let Some((&start, &count)) = self.free.range(..=run.start).next_back() else { return false };
        let (end, wanted_end) =
            (u64::from(start) + u64::from(count), u64::from(run.start) + u64::from(run.count));
        if run.count == 0 || wanted_end > end {
            return false;
        }
        self.free.remove(&start);
        if start < run.start {
            self.free.insert(start, run.start - start);
        }
        if wanted_end < end {
            self.free.insert(run.end(), start + count - run.end());
        }
        self.free_count -= u64::from(run.count);
        true
    }

    /// Adds a reference to a block that has one.
    pub(crate) fn share(&mut self, block: u32) {
        self.changes.add(Run { start: block, count: 1 }, 1);
        *self.shared.entry(block).or_default() += 1;
    }

    /// Drops a reference; the last one makes the block pending.
    pub(crate) fn release(&mut self, block: u32) {
        self.changes.add(Run { start: block, count: 1 }, -1);
        self.release_base(block);
    }

    /// As [`Alloc::release`], for what lay below a block that the checkpoint has written home: the free map that was
    /// committed with it knows already.
    pub(crate) fn release_base(&mut self, block: u32) {
        match self.shared.get_mut(&block) {
            None => self.pending.push((self.cuts, block)),
            Some(1) => drop(self.shared.remove(&block)),
            Some(more) => *more -= 1,
        }
    }

    /// The committed free map took a base for released whose slot was changed since the cut: who changed it released
    /// it as well, or will.
    pub(crate) fn base_was_released_early(&mut self, block: u32) {
        self.changes.add(Run { start: block, count: 1 }, 1);
    }

    /// Changes of references since the last cut.
    pub(crate) fn take_changes(&mut self) -> RefChanges {
        std::mem::take(&mut self.changes)
    }

    /// About how many bytes this takes.
    pub(crate) fn bytes(&self) -> usize {
        16 * (self.free.len() + self.shared.len() + self.pending.len()) + 4 * self.freeing.len()
    }

    /// A checkpoint has taken its cut; gives its number.
    pub(crate) fn cut(&mut self) -> u64 {
        self.cuts += 1;
        self.cuts
    }

    /// The checkpoint of this cut is durable: what was released before it may be freed.
    pub(crate) fn checkpoint_durable(&mut self, cut: u64) {
        // Releases come in the order of cuts.
        let kept = self.pending.split_off(self.pending.partition_point(|(at, _)| *at < cut));
        let freeing = std::mem::replace(&mut self.pending, kept);
        self.freeing.extend(freeing.into_iter().map(|(_, block)| block));
        self.freeing.sort_unstable_by_key(|block| std::cmp::Reverse(*block));
    }

    /// Frees up to `count_max` of the blocks that may be, and says which runs; none when all are.
    pub(crate) fn free_some(&mut self, count_max: usize) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for block in self.freeing.split_off(self.freeing.len().saturating_sub(count_max)).into_iter().rev() {
            match runs.last_mut() {
                Some(run) if run.end() == block => run.count += 1,
                _ => runs.push(Run { start: block, count: 1 }),
            }
        }
        runs.iter().for_each(|run| self.free_run(*run));
        runs
    }

    fn free_run(&mut self, run: Run) {
        let (mut start, mut end) = (run.start, run.end());
        if let Some((&before, &count)) = self.free.range(..start).next_back() {
            assert!(before + count <= start, "block {start} was freed twice");
            if before + count == start {
                start = before;
            }
        }
        if let Some((&after, &count)) = self.free.range(run.start..).next() {
            assert!(after >= end, "block {after} was freed twice");
            if after == end {
                self.free.remove(&after);
                end += count;
            }
        }
        self.free.insert(start, end - start);
        self.free_count += u64::from(run.count);
    }

    /// What the allocator believes of every block: references, or `None` for a free one. For `check`.
    pub(crate) fn references(&self) -> Vec<Option<u32>> {
        let mut all = vec![Some(1); self.area.count as usize];
        let mut set = |block: u32, to: Option<u32>| {
            if let Some(entry) = all.get_mut((block - self.area.start) as usize) {
                *entry = to;
            }
        };
        self.shared.iter().for_each(|(block, extra)| set(*block, Some(extra + 1)));
        let pending = self.pending.iter().map(|(_, block)| block).chain(&self.freeing);
        pending.for_each(|block| set(*block, Some(0)));
        for (&start, &count) in &self.free {
            (start..start + count).for_each(|block| set(block, None));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_blocks_wait_for_the_checkpoint_that_frees_them() {
        let mut alloc = Alloc::new(Run { start: 10, count: 8 });
        assert_eq!(alloc.allocate(8), Some(vec![Run { start: 10, count: 8 }]));
        assert_eq!(alloc.allocate(1), None);
        alloc.release(11);
        let cut = alloc.cut();
        alloc.release(12);
        alloc.checkpoint_durable(cut);
        assert_eq!((alloc.free_count(), alloc.pending_count()), (0, 2));
        assert_eq!(alloc.free_some(10), [Run { start: 11, count: 1 }]);
        assert_eq!((alloc.free_count(), alloc.pending_count()), (1, 1));
        let cut = alloc.cut();
        alloc.checkpoint_durable(cut);
        assert_eq!(alloc.free_some(10), [Run { start: 12, count: 1 }]);
        assert!(alloc.free_some(10).is_empty());
        assert_eq!(alloc.free, BTreeMap::from([(11, 2)]));
    }

    #[test]
    fn shared_blocks_need_as_many_releases() {
        let mut alloc = Alloc::new(Run { start: 0, count: 4 });
        assert!(alloc.reserve(Run { start: 1, count: 2 }));
        assert!(!alloc.reserve(Run { start: 2, count: 2 }));
        alloc.share(1);
        alloc.release(1);
        assert_eq!(alloc.pending_count(), 0);
        assert_eq!(alloc.references(), [None, Some(1), Some(1), None]);
        alloc.release(1);
        assert_eq!(alloc.pending_count(), 1);
    }

    #[test]
    fn requests_are_split_when_space_is() {
        let mut alloc = Alloc::new(Run { start: 0, count: 6 });
        assert!(alloc.reserve(Run { start: 2, count: 1 }));
        let runs = alloc.allocate(5).expect("five are free");
        assert_eq!(runs, [Run { start: 3, count: 3 }, Run { start: 0, count: 2 }]);
    }
}
