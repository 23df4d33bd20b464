//! [`Alloc`]: which 4 KiB blocks of the data area are free, shared, or freed but still needed after a crash.
//!
//! A block that nothing refers to any more is *pending*: the last durable checkpoint, or a log record behind
//! it, may still refer to it. It becomes free when a checkpoint is durable whose cut came after the release.

use crate::device::Run;
use crate::free_bitmap::{FreeBitmap, Tally};
use crate::freemap::{self, FreeMapShard, RefChange, RefChanges};
use crate::shared_blocks::SharedBlocks;
use std::collections::{BTreeMap, VecDeque};

/// Blocks of a hole that short writes look for: the next ones go there, too.
const NEXT_BLOCKS: u64 = 64;
/// Part of the area that is left to large writes in long runs, if there is as much: homes go into the holes then.
const LONG_RESERVE_DIVISOR: u64 = 8;
/// Blocks released, or taken of long runs, below which nobody hurries to have them back: 32 MiB, or less of a small area.
const RECLAIM_BLOCKS: u64 = 8192;
const RECLAIM_DIVISOR: u64 = 64;
/// Runs that are put in order before they are freed, which takes some 40 us: those side by side are then freed one after the
/// other, or as one.
const SORTED_MAX: usize = 4096;

/// Bytes of a run that waits for a checkpoint, and of a change of references.
const PENDING_BYTES: usize = size_of::<Pending>();
const CHANGE_BYTES: usize = size_of::<RefChange>();

/// Cuts of checkpoints, counted since the store was opened.
pub(crate) type Cuts = u32;

/// Blocks side by side that lost their last reference when so many cuts were made. There may be many, so it is as short as can be.
#[derive(Clone, Copy, Debug)]
struct Pending {
    start: u64,
    count: u32,
    cuts: Cuts,
}

impl Pending {
    fn run(self) -> Run {
        Run { start: self.start, count: self.count.into() }
    }
}

/// Allocation state of the data area. `check` in `check.rs` compares it with the objects.
#[derive(Debug)]
pub(crate) struct Alloc {
    area: Run,
    /// Slabs of a partition, by their first block; `None` where all of the area may be used.
    slabs: Option<BTreeMap<u64, u64>>,
    /// Blocks that may be used, free or not.
    blocks: u64,
    free: FreeBitmap,
    /// Where the next search begins.
    cursor: u64,
    /// Where the last short write that was placed ended, and whether that was in a long run.
    short_cursor: u64,
    is_short_in_long: bool,
    shared: SharedBlocks,
    /// Blocks without references, in the order in which they lost the last one.
    pending: VecDeque<Pending>,
    /// Those of fewer cuts may be freed now.
    durable_cut: Cuts,
    /// What is freed next, in descending order.
    sorted: Vec<Run>,
    /// Blocks in the two.
    pending_count: u64,
    /// Free blocks that the device is discarding: they are in `free` before and after.
    held: Vec<Run>,
    /// Blocks taken since the last cut, but for homes, and between the last two.
    taken: u64,
    taken_before: u64,
    /// Of those since the last cut, what is none of short writes in holes.
    taken_long: u64,
    cuts: Cuts,
    /// Changes of references since the last cut, for the free map in the KV store.
    changes: RefChanges,
}

impl Alloc {
    pub(crate) fn new(area: Run) -> Self {
        Self::of(area, None, FreeBitmap::new(area))
    }

    /// Of a partition that has these slabs and no others.
    pub(crate) fn in_slabs(area: Run, slabs: impl IntoIterator<Item = Run>) -> Self {
        let mut alloc = Self::of(area, Some(BTreeMap::new()), FreeBitmap::none(area));
        slabs.into_iter().for_each(|slab| alloc.gain(slab));
        alloc
    }

    fn of(area: Run, slabs: Option<BTreeMap<u64, u64>>, free: FreeBitmap) -> Self {
        Self {
            area,
            slabs,
            blocks: free.blocks(),
            free,
            cursor: area.start,
            short_cursor: area.start,
            is_short_in_long: true,
            shared: SharedBlocks::default(),
            pending: VecDeque::new(),
            durable_cut: 0,
            sorted: Vec::new(),
            pending_count: 0,
            held: Vec::new(),
            taken: 0,
            taken_before: 0,
            taken_long: 0,
            cuts: 0,
            changes: RefChanges::default(),
        }
    }

    /// The next search begins there.
    #[cfg(test)]
    pub(crate) fn set_cursor(&mut self, block: u64) {
        self.cursor = block;
    }

    pub(crate) fn area(&self) -> Run {
        self.area
    }

    /// Blocks that may be used, free or not: those of the area, or of the partition's slabs.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Blocks that writes which were placed took between the last two cuts, or since.
    pub(crate) fn taken_lately(&self) -> u64 {
        self.taken_before.max(self.taken)
    }

    /// The partition has one slab more. All of it is free.
    pub(crate) fn gain(&mut self, slab: Run) {
        if let Some(slabs) = &mut self.slabs {
            slabs.insert(slab.start, slab.count);
            self.blocks += slab.count;
            self.free.give(slab);
        }
    }

    /// From now on nothing is allocated in this slab of the partition's; false, and nothing changed, unless all of it is free.
    pub(crate) fn withdraw(&mut self, slab: Run) -> bool {
        let Some(slabs) = &mut self.slabs else { return false };
        if !slabs.contains_key(&slab.start) || !self.free.take(slab) {
            return false;
        }
        slabs.remove(&slab.start);
        self.blocks -= slab.count;
        true
    }

    pub(crate) fn free(&self) -> &FreeBitmap {
        &self.free
    }

    pub(crate) fn free_count(&self) -> u64 {
        self.free.blocks()
    }

    pub(crate) fn pending_count(&self) -> u64 {
        self.pending_count
    }

    /// Whether a checkpoint should begin for the blocks that it would free: writers would wait for it before long, or large
    /// writes find only holes.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let least = self.reclaim_blocks();
        let soon_empty = self.pending_count > least && self.pending_count > self.free.blocks() / 4;
        let soon_short = self.taken_long > least && self.taken_long > self.free.long_blocks() / 4;
        soon_empty || soon_short && self.pending_count > 0
    }

    /// So many blocks are nothing that a checkpoint would hurry for.
    pub(crate) fn reclaim_blocks(&self) -> u64 {
        RECLAIM_BLOCKS.min(self.blocks / RECLAIM_DIVISOR)
    }

    /// Takes `count` blocks for a large write, in as few runs as there can be; `None` when there are not as many.
    pub(crate) fn allocate(&mut self, count: u64) -> Option<Vec<Run>> {
        let runs = self.take(count, FreeBitmap::find)?;
        runs.iter().for_each(|run| self.changes.add(*run, 1));
        self.taken += count;
        self.taken_long += count;
        Some(runs)
    }

    /// Takes `count` blocks for a short write, side by side: behind those of the last one if they are free, or else where the next run begins
    /// into which a checkpoint would write.
    pub(crate) fn allocate_next(&mut self, count: u64) -> Option<Run> {
        let mut run = Run { start: self.short_cursor, count };
        let is_roomy = self.is_roomy(count);
        let goes_on = is_roomy || !self.is_short_in_long;
        if !(goes_on && self.free.take(run)) {
            let from = self.short_cursor;
            run.start = if is_roomy {
                self.free.find_long(from)?
            } else {
                self.free.find_hole(NEXT_BLOCKS, from)?.start
            };
            if !self.free.take(run) {
                return None;
            }
            self.is_short_in_long = is_roomy;
        }
        self.short_cursor = run.end();
        self.changes.add(run, 1);
        self.taken += count;
        self.taken_long += if self.is_short_in_long { count } else { 0 };
        Some(run)
    }

    /// Takes `count` blocks for the checkpoint that is under way: it notes the references itself.
    pub(crate) fn allocate_homes(&mut self, count: u64) -> Option<Vec<Run>> {
        self.take(count, if self.is_roomy(count) { FreeBitmap::find } else { FreeBitmap::find_hole })
    }

    /// Long runs have more than what is left to large writes.
    fn is_roomy(&self, count: u64) -> bool {
        self.free.long_blocks() > self.blocks / LONG_RESERVE_DIVISOR + count
    }

    fn take(
        &mut self,
        count: u64,
        find: impl Fn(&mut FreeBitmap, u64, u64) -> Option<Run>,
    ) -> Option<Vec<Run>> {
        if count > self.free.blocks() {
            return None;
        }
        let mut runs = Vec::new();
        let mut left = count;
        while left > 0 {
            let found = find(&mut self.free, left, self.cursor)?;
            let taken = Run { start: found.start, count: found.count.min(left) };
            assert!(self.free.take(taken), "a free run was just found");
            self.cursor = taken.end();
            left -= taken.count;
            runs.push(taken);
        }
        Some(runs)
    }

    /// Takes exactly these blocks, which a record that is replayed has placed; false unless all are free.
    pub(crate) fn replay(&mut self, run: Run) -> bool {
        let was_free = self.free.take(run);
        if was_free {
            self.changes.add(run, 1);
        }
        was_free
    }

    /// Takes what a shard of the free map says, one behind the other; gives a block that is outside of the area, or taken twice.
    /// [`Alloc::loaded`] is due behind the last one.
    pub(crate) fn load(&mut self, nth: u32, shard: &FreeMapShard, tally: &mut Tally) -> Result<(), u64> {
        self.free.load(freemap::first_of(nth), shard.used(), tally)?;
        for (run, extra) in shard.shared(nth) {
            if run.start < self.area.start || run.end() > self.area.end() {
                return Err(run.start);
            }
            self.shared.put(run, extra);
        }
        Ok(())
    }

    /// All shards are loaded.
    pub(crate) fn loaded(&mut self, tally: Tally) {
        self.free.loaded(tally);
    }

    /// Adds a reference to a block that has one.
    pub(crate) fn share(&mut self, block: u64) {
        self.changes.add(Run { start: block, count: 1 }, 1);
        self.shared.add(block);
    }

    /// Drops a reference; the last one makes the block pending.
    pub(crate) fn release(&mut self, block: u64) {
        self.changes.add(Run { start: block, count: 1 }, -1);
        self.release_base(block);
    }

    /// As [`Alloc::release`], for what lay below a block that the checkpoint has written home: the free map that was
    /// committed with it knows already.
    pub(crate) fn release_base(&mut self, block: u64) {
        if !self.shared.release(block) {
            self.await_checkpoint(block);
        }
    }

    fn await_checkpoint(&mut self, block: u64) {
        self.pending_count += 1;
        match self.pending.back_mut() {
            Some(last) if last.cuts == self.cuts && last.run().end() == block && last.count < u32::MAX => {
                last.count += 1;
            }
            _ => self.pending.push_back(Pending { start: block, count: 1, cuts: self.cuts }),
        }
    }

    /// The committed free map took a base for released whose slot was changed since the cut: that change released
    /// it as well, or will.
    pub(crate) fn base_was_released_early(&mut self, block: u64) {
        self.changes.add(Run { start: block, count: 1 }, 1);
    }

    /// Changes of references since the last cut.
    pub(crate) fn take_changes(&mut self) -> RefChanges {
        std::mem::take(&mut self.changes)
    }

    /// About how many bytes this takes.
    pub(crate) fn bytes(&self) -> usize {
        self.free.bytes()
            + self.shared.bytes()
            + PENDING_BYTES * self.pending.len()
            + size_of::<Run>() * self.sorted.len()
            + self.changes.len() * CHANGE_BYTES
    }

    /// Runs of blocks that were taken or released since the last cut.
    pub(crate) fn changes_count(&self) -> usize {
        self.changes.len()
    }

    /// About how many bytes they take, until a checkpoint has noted them: they are changed metadata like any other.
    pub(crate) fn changes_bytes(&self) -> usize {
        self.changes.len() * (CHANGE_BYTES + PENDING_BYTES)
    }

    /// A checkpoint has taken its cut; gives its number.
    pub(crate) fn cut(&mut self) -> Cuts {
        self.cuts += 1;
        self.taken_before = std::mem::take(&mut self.taken);
        self.taken_long = 0;
        self.cuts
    }

    /// The checkpoint of this cut is durable: what was released before it may be freed.
    pub(crate) fn checkpoint_durable(&mut self, cut: Cuts) {
        self.durable_cut = cut;
    }

    /// Runs that may be freed; those that lie side by side count each.
    pub(crate) fn runs_to_free(&self) -> usize {
        // Releases come in the order of cuts.
        self.sorted.len() + self.pending.partition_point(|pending| pending.cuts < self.durable_cut)
    }

    /// Frees up to `count_max` of the runs that may be, and says which blocks; none when all are.
    pub(crate) fn free_some(&mut self, count_max: usize) -> Vec<Run> {
        if self.sorted.is_empty() {
            // Releases come in the order of cuts.
            while self.sorted.len() < SORTED_MAX
                && let Some(pending) = self.pending.pop_front_if(|pending| pending.cuts < self.durable_cut)
            {
                self.sorted.push(pending.run());
            }
            self.sorted.sort_unstable_by_key(|run| std::cmp::Reverse(run.start));
        }
        let kept = self.sorted.len() - count_max.min(self.sorted.len());
        let mut runs: Vec<Run> = Vec::with_capacity(count_max);
        for next in self.sorted.drain(kept..).rev() {
            match runs.last_mut() {
                Some(run) if run.end() == next.start => run.count += next.count,
                _ => runs.push(next),
            }
        }
        for run in &runs {
            self.pending_count -= run.count;
            self.free.give(*run);
        }
        self.free.refresh();
        runs
    }

    /// Keeps free blocks from being taken until they are given back.
    ///
    /// # Panics
    /// When one of them is not free.
    pub(crate) fn hold(&mut self, run: Run) {
        assert!(self.free.take(run), "blocks from {} on are held, and not free", run.start);
        self.held.push(run);
    }

    /// Blocks that were held are free again.
    pub(crate) fn give_back(&mut self, run: Run) {
        if let Some(nth) = self.held.iter().position(|held| *held == run) {
            self.held.swap_remove(nth);
            self.free.give(run);
        }
    }

    /// Blocks that are held: nobody uses them, and nobody may yet.
    pub(crate) fn held_count(&self) -> u64 {
        self.held.iter().map(|run| run.count).sum()
    }

    /// Runs to which nothing refers, and why. For `check`.
    pub(crate) fn unreferenced(&self) -> impl Iterator<Item = (Run, &'static str)> {
        let pending = self.pending.iter().map(|pending| pending.run()).chain(self.sorted.iter().copied());
        let pending = pending.map(|run| (run, "none, waiting for a checkpoint"));
        let held = self.held.iter().map(|run| (*run, "none, being discarded"));
        let others = self.outside().into_iter().map(|run| (run, "none, in no slab of this partition"));
        pending.chain(held).chain(self.free.iter().map(|run| (run, "free"))).chain(others)
    }

    /// What of the area is in none of the partition's slabs.
    fn outside(&self) -> Vec<Run> {
        let (mut outside, mut from) = (Vec::new(), self.area.start);
        let Some(slabs) = &self.slabs else { return outside };
        for (start, count) in slabs.iter().chain([(&self.area.end(), &0)]) {
            if from < *start {
                outside.push(Run { start: from, count: start - from });
            }
            from = start + count;
        }
        outside
    }

    pub(crate) fn shared(&self) -> &SharedBlocks {
        &self.shared
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
        assert_eq!(alloc.free.iter().collect::<Vec<_>>(), [Run { start: 11, count: 2 }]);
    }

    #[test]
    fn held_blocks_are_nobodys_until_they_are_given_back() {
        let mut alloc = Alloc::new(Run { start: 0, count: 8 });
        alloc.hold(Run { start: 2, count: 4 });
        assert_eq!((alloc.free_count(), alloc.held_count()), (4, 4));
        assert_eq!(alloc.allocate(5), None);
        let runs = alloc.allocate(4).expect("four are free");
        assert!(runs.iter().all(|run| run.end() <= 2 || run.start >= 6), "{runs:?}");
        alloc.give_back(Run { start: 2, count: 4 });
        assert_eq!((alloc.free_count(), alloc.held_count()), (4, 0));
        assert_eq!(alloc.allocate(4), Some(vec![Run { start: 2, count: 4 }]));
        assert_eq!(alloc.take_changes().len(), 3, "only what was taken is a change");
    }

    #[test]
    fn a_partition_allocates_in_its_slabs_only() {
        let slab = |nth: u64| Run { start: 10 + 4 * nth, count: 4 };
        let mut alloc = Alloc::in_slabs(Run { start: 10, count: 16 }, [slab(0), slab(2)]);
        assert_eq!((alloc.blocks(), alloc.free_count()), (8, 8));
        assert_eq!(alloc.allocate(9), None);
        assert!(!alloc.replay(Run { start: 14, count: 1 }), "in nobody's slab");
        alloc.gain(slab(1));
        assert_eq!(alloc.allocate(10), Some(vec![Run { start: 10, count: 10 }]));
        assert!(!alloc.withdraw(slab(2)), "two blocks of it are used");
        let of_others: Vec<Run> = alloc.unreferenced().skip(1).map(|(run, _)| run).collect();
        assert_eq!(of_others, [slab(3)]);
        (18..20).for_each(|block| alloc.release(block));
        assert!(!alloc.withdraw(slab(2)), "they wait for a checkpoint");
        let cut = alloc.cut();
        alloc.checkpoint_durable(cut);
        assert_eq!(alloc.free_some(9), [Run { start: 18, count: 2 }]);
        assert!(alloc.withdraw(slab(2)) && !alloc.withdraw(slab(2)));
        assert_eq!((alloc.blocks(), alloc.free_count()), (8, 0));
        let of_others: Vec<Run> = alloc.unreferenced().map(|(run, _)| run).collect();
        assert_eq!(of_others, [Run { start: 18, count: 8 }]);
    }

    #[test]
    fn shared_blocks_need_as_many_releases() {
        let mut alloc = Alloc::new(Run { start: 0, count: 4 });
        assert!(alloc.free.take(Run { start: 1, count: 2 }));
        assert!(!alloc.free.take(Run { start: 2, count: 2 }));
        alloc.share(1);
        alloc.release(1);
        assert_eq!(alloc.pending_count(), 0);
        let unreferenced: Vec<Run> = alloc.unreferenced().map(|(run, _)| run).collect();
        assert_eq!(unreferenced, [Run { start: 0, count: 1 }, Run { start: 3, count: 1 }]);
        alloc.release(1);
        assert_eq!(alloc.pending_count(), 1);
    }

    #[test]
    fn homes_leave_an_eighth_to_large_writes() {
        let mut alloc = Alloc::new(Run { start: 0, count: 8192 });
        assert_eq!(alloc.allocate(8192).map(|runs| runs.len()), Some(1));
        (0..600).for_each(|nth| alloc.release(2 * nth));
        (4096..5400).for_each(|block| alloc.release(block));
        let cut = alloc.cut();
        alloc.checkpoint_durable(cut);
        while !alloc.free_some(7).is_empty() {}
        assert_eq!(alloc.allocate_homes(200), Some(vec![Run { start: 4096, count: 200 }]));
        let homes = alloc.allocate_homes(100).expect("there is room");
        assert!(homes.iter().all(|run| run.count == 1), "{homes:?}");
        assert_eq!(alloc.allocate(1024), Some(vec![Run { start: 4296, count: 1024 }]));
    }

    #[test]
    fn short_writes_lie_side_by_side_and_leave_an_eighth_to_large_ones() {
        let mut alloc = Alloc::new(Run { start: 0, count: 8192 });
        assert_eq!(alloc.allocate(8192).map(|runs| runs.len()), Some(1));
        [5, 7, 8, 9].into_iter().chain(2048..4096).for_each(|block| alloc.release(block));
        let cut = alloc.cut();
        alloc.checkpoint_durable(cut);
        while !alloc.free_some(7).is_empty() {}
        let next = |alloc: &mut Alloc| alloc.allocate_next(1).map(|run| (run.start, run.count));
        for block in 2048..3071 {
            assert_eq!(next(&mut alloc), Some((block, 1)));
        }
        // 1,025 blocks are left in the long run.
        assert_eq!([(); 4].map(|()| next(&mut alloc)), [7, 8, 9, 5].map(|hole| Some((hole, 1))));
        assert_eq!(next(&mut alloc), Some((3071, 1)), "else there is none");
        assert_eq!(alloc.allocate_next(4096), None);
        assert!(alloc.allocate(1024).is_some());
        assert_eq!(alloc.allocate_next(1), None);
    }

    #[test]
    fn a_checkpoint_is_wanted_before_writers_must_wait() {
        let mut alloc = Alloc::new(Run { start: 0, count: 6400 });
        assert_eq!(alloc.allocate(3200).map(|runs| runs.len()), Some(1));
        let cut = alloc.cut();
        alloc.checkpoint_durable(cut);
        (0..500).for_each(|block| alloc.release(block));
        assert!(!alloc.wants_checkpoint(), "plenty is free");
        assert!(alloc.allocate(600).is_some() && !alloc.wants_checkpoint());
        assert!(alloc.allocate(100).is_some() && alloc.wants_checkpoint(), "soon nothing long is left");
        alloc.cut();
        assert!(alloc.allocate(95).is_some() && !alloc.wants_checkpoint());
        (500..700).for_each(|block| alloc.release(block));
        assert!(alloc.wants_checkpoint(), "soon nothing is left");
    }

    #[test]
    fn requests_are_split_when_space_is() {
        let mut alloc = Alloc::new(Run { start: 0, count: 6 });
        assert!(alloc.free.take(Run { start: 2, count: 1 }));
        let runs = alloc.allocate(5).expect("five are free");
        assert_eq!(runs, [Run { start: 3, count: 3 }, Run { start: 0, count: 2 }]);
    }
}
