//! [`SharedBlocks`]: which blocks have more than one reference, and how many more.

use crate::device::Run;
use std::collections::BTreeMap;

/// References beyond the first. What clones and snapshots share lies side by side mostly, so runs of blocks that have as many are kept, not
/// blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SharedBlocks {
    /// By first block: how many blocks, and how many references beyond the first each of them has. Neighbours differ in the second.
    /// A run of 2^32 blocks and more is several.
    runs: BTreeMap<u64, (u32, u32)>,
}

impl SharedBlocks {
    /// About how many bytes a run takes: an entry in a node of a B-tree that was filled in order.
    const RUN_BYTES: usize = 36;

    /// About how many bytes this takes.
    pub(crate) fn bytes(&self) -> usize {
        self.runs.len() * Self::RUN_BYTES
    }

    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Runs with their references beyond the first, by start.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Run, u32)> {
        self.runs
            .iter()
            .map(|(start, (count, extra))| (Run { start: *start, count: u64::from(*count) }, *extra))
    }

    fn run_of(&self, block: u64) -> Option<(Run, u32)> {
        let (start, (count, extra)) = self.runs.range(..=block).next_back()?;
        let run = Run { start: *start, count: u64::from(*count) };
        run.blocks().contains(&block).then_some((run, *extra))
    }

    /// References beyond the first.
    pub(crate) fn extra(&self, block: u64) -> u32 {
        self.run_of(block).map_or(0, |(_, extra)| extra)
    }

    /// One more for a block.
    pub(crate) fn add(&mut self, block: u64) {
        let found = self.run_of(block);
        self.replace(block, found, found.map_or(0, |(_, extra)| extra) + 1);
    }

    /// One less for a block; false when it has none beyond the first.
    pub(crate) fn release(&mut self, block: u64) -> bool {
        let Some((run, extra)) = self.run_of(block) else { return false };
        self.replace(block, Some((run, extra)), extra - 1);
        true
    }

    /// Says how many a block has.
    pub(crate) fn set(&mut self, block: u64, extra: u32) {
        let found = self.run_of(block);
        if found.map_or(0, |(_, was)| was) != extra {
            self.replace(block, found, extra);
        }
    }

    /// Gives a block of the run `found` another number.
    fn replace(&mut self, block: u64, found: Option<(Run, u32)>, extra: u32) {
        if let Some((run, was)) = found {
            self.cut_out(run, was, block);
        }
        if extra > 0 {
            self.put(Run { start: block, count: 1 }, extra);
        }
    }

    /// Takes a block out of its run.
    fn cut_out(&mut self, run: Run, extra: u32, block: u64) {
        let part = |count: u64| u32::try_from(count).expect("a part of a run is shorter");
        let (before, behind) = (part(block - run.start), part(run.end() - block - 1));
        if before > 0 {
            self.runs.insert(run.start, (before, extra));
        } else {
            self.runs.remove(&run.start);
        }
        if behind > 0 {
            self.runs.insert(block + 1, (behind, extra));
        }
    }

    /// Adds a run of blocks that have none; it becomes one with its neighbours that have as many.
    pub(crate) fn put(&mut self, run: Run, extra: u32) {
        let mut count = u32::try_from(run.count).expect("a run of a portion, or a block");
        let may_join =
            |found: &(u32, u32), count: u32| found.1 == extra && found.0.checked_add(count).is_some();
        if let Some(behind) = self.runs.get(&run.end()).copied().filter(|behind| may_join(behind, count)) {
            self.runs.remove(&run.end());
            count += behind.0;
        }
        let before = self.runs.range_mut(..run.start).next_back();
        match before
            .filter(|(start, found)| *start + u64::from(found.0) == run.start && may_join(found, count))
        {
            Some((_, (before, _))) => *before += count,
            None => drop(self.runs.insert(run.start, (count, extra))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_count_for_each_block_in_as_few_runs_as_can_be() {
        // On both sides of what 32 bits count.
        const FIRST: u64 = (1 << 32) - 100;
        let (mut shared, mut model, mut seed) = (SharedBlocks::default(), BTreeMap::<u64, u32>::new(), 7_u32);
        let mut next = |bound: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) % bound
        };
        for _ in 0..3000 {
            let (start, count, adds) = (FIRST + u64::from(next(200)), u64::from(1 + next(20)), next(2) == 0);
            for block in start..start + count {
                let had = model.get(&block).copied().unwrap_or(0);
                if adds {
                    shared.add(block);
                    model.insert(block, had + 1);
                } else {
                    assert_eq!(shared.release(block), had > 0);
                    if had > 1 {
                        model.insert(block, had - 1)
                    } else {
                        model.remove(&block)
                    };
                }
            }
            let mut runs: Vec<(Run, u32)> = Vec::new();
            for (block, extra) in &model {
                match runs.last_mut() {
                    Some((run, same)) if run.end() == *block && same == extra => run.count += 1,
                    _ => runs.push((Run { start: *block, count: 1 }, *extra)),
                }
            }
            assert!(shared.iter().eq(runs), "{shared:?}");
            assert_eq!(shared.extra(start), model.get(&start).copied().unwrap_or(0));
        }
    }

    #[test]
    fn a_run_of_more_than_2_32_blocks_is_several() {
        let (mut shared, half) = (SharedBlocks::default(), 1 << 31);
        (0..4).for_each(|nth| shared.put(Run { start: nth * half, count: half }, 1));
        assert_eq!(shared.iter().map(|(run, _)| run.count).sum::<u64>(), 4 * half);
        assert!(shared.iter().all(|(run, extra)| run.count < 1 << 32 && extra == 1));
        assert_eq!([0, 2 * half, 4 * half - 1, 4 * half].map(|block| shared.extra(block)), [1, 1, 1, 0]);
    }
}
