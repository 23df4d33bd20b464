//! [`References`]: how often objects refer to each block, found by a walk over them, to compare with what the allocator believes. As large
//! as the allocator's own record, not as the objects.

use crate::alloc::Alloc;
use crate::device::Run;
use crate::free_bitmap::FreeBitmap;
use crate::shared_blocks::SharedBlocks;
use std::collections::BTreeSet;

/// Contradictions that are told: one damaged record may be as many as it has blocks.
const TOLD_MAX: usize = 1000;

/// See the module's documentation.
pub(crate) struct References {
    area: Run,
    /// Blocks to which nobody refers.
    unreferenced: FreeBitmap,
    shared: SharedBlocks,
    /// Blocks that the area does not have.
    outside: BTreeSet<u64>,
}

impl References {
    pub(crate) fn new(area: Run) -> Self {
        let (unreferenced, shared) = (FreeBitmap::new(area), SharedBlocks::default());
        Self { area, unreferenced, shared, outside: BTreeSet::new() }
    }

    pub(crate) fn add(&mut self, block: u64) {
        if !self.area.blocks().contains(&block) {
            self.outside.insert(block);
        } else if !self.unreferenced.take(Run { start: block, count: 1 }) {
            self.shared.add(block);
        }
    }

    fn count(&self, block: u64) -> u32 {
        if self.unreferenced.is_free(block) { 0 } else { 1 + self.shared.extra(block) }
    }

    /// What the allocator believes and was not found, and the other way round. A block that is allocated without a reference belongs to a
    /// running checkpoint.
    pub(crate) fn contradictions(&self, alloc: &Alloc) -> Vec<String> {
        let mut told = Vec::new();
        let mut tell = |block: u64, believed: &dyn std::fmt::Display| {
            if told.len() < TOLD_MAX {
                told.push(format!("block {block}: {} references, believed {believed}", self.count(block)));
            }
        };
        for (run, what) in alloc.unreferenced() {
            let mut from = run.start;
            while let Some(block) = self.unreferenced.next_used(from, run) {
                tell(block, &what);
                from = block + 1;
            }
        }
        for (run, extra) in alloc.shared().iter() {
            let differs = |block: &u64| self.shared.extra(*block) != extra;
            run.blocks().filter(differs).for_each(|block| tell(block, &(extra + 1)));
        }
        for (run, _) in self.shared.iter() {
            let is_unknown = |block: &u64| alloc.shared().extra(*block) == 0;
            run.blocks().filter(is_unknown).for_each(|block| tell(block, &"one or none"));
        }
        told.extend(
            self.outside.iter().take(TOLD_MAX).map(|block| format!("block {block} is outside the area")),
        );
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_told() {
        let area = Run { start: 10, count: 20_000 };
        let mut alloc = Alloc::new(area);
        let taken = alloc.allocate(8).expect("all is free");
        assert_eq!(taken, [Run { start: 10, count: 8 }]);
        alloc.share(12);
        alloc.release(17);
        let found = |blocks: &[u64]| {
            let mut references = References::new(area);
            blocks.iter().for_each(|block| references.add(*block));
            references.contradictions(&alloc)
        };
        assert_eq!(found(&[10, 11, 12, 12, 13, 14, 15, 16]), [""; 0]);
        assert_eq!(found(&[12, 12]), [""; 0], "a running checkpoint has the others");
        assert_eq!(found(&[10, 12]), ["block 12: 1 references, believed 2"]);
        assert_eq!(found(&[]), ["block 12: 0 references, believed 2"]);
        assert_eq!(found(&[12, 12, 12]), ["block 12: 3 references, believed 2"]);
        assert_eq!(found(&[12, 12, 13, 13]), ["block 13: 2 references, believed one or none"]);
        assert_eq!(found(&[12, 12, 17]), ["block 17: 1 references, believed none, waiting for a checkpoint"]);
        assert_eq!(
            found(&[12, 12, 18, 19_000]),
            ["block 18: 1 references, believed free", "block 19000: 1 references, believed free"]
        );
        assert_eq!(
            found(&[12, 12, 9, 20_010]),
            ["block 9 is outside the area", "block 20010 is outside the area"]
        );
    }
}
