//! After the commit: objects point to the new places of their blocks, and memory and blocks that are not needed any more become free.

use super::{CHUNKS_PER_STEP, PAIRS_PER_STEP};
use crate::alloc::Cuts;
use crate::blob::{Blob, Place};
use crate::blocks::{Blocks, Period};
use crate::checkpoint::{Checkpoint, Home, Left, Stage, blobs_of};
use crate::onode::Onode;
use crate::options::Planted;
use crate::slot::Slot;
use crate::store::BlockStore;
use crate::table::Table;
use std::ops::Range;
use std::sync::Arc;

/// Blocks given their new home in one step.
const ADOPTIONS_PER_STEP: usize = 256;
/// Runs of blocks freed in one step.
const FREES_PER_STEP: usize = 64;

/// The blobs that homes of one object go into, each with those of them that do: they are side by side.
fn in_new_blobs(homes: &[Home]) -> impl Iterator<Item = (Range<usize>, &Arc<Blob>)> {
    let first = |home: &Home| home.new_blob().map(|blob| blob.first());
    let mut behind = 0;
    homes.chunk_by(move |a, b| first(a) == first(b)).filter_map(move |some| {
        let range = behind..behind + some.len();
        behind = range.end;
        Some((range, some.first()?.new_blob()?))
    })
}

impl BlockStore {
    /// Objects of the cut become clean ones, the last one first.
    pub(super) fn adopt(&mut self, checkpoint: &mut Checkpoint, left: Left) -> bool {
        let mut adopted = 0;
        while adopted < ADOPTIONS_PER_STEP {
            let Some((id, onode)) = self.table.onodes.frozen.pop_last() else {
                let early = self.options.planted == Planted::EarlyReuse;
                self.table.space.alloc.checkpoint_durable(if early { Cuts::MAX } else { checkpoint.cut });
                checkpoint.begins.release = self.shares.now();
                checkpoint.stage = Stage::Release;
                return true;
            };
            let first = checkpoint.homes.partition_point(|home| home.object < id);
            let homes = checkpoint.homes.split_off(first);
            adopted += 1 + homes.len();
            if self.table.onodes.is_mutable(&id) {
                // From here on a change of it need not copy any more.
                drop(onode);
                adopted += self.adopt_in_live(id, &homes, checkpoint);
            } else if let Some(onode) = onode {
                adopted += self.adopt_all(id, onode, &homes, checkpoint.period);
            }
        }
        let now = checkpoint.homes.len() + self.table.onodes.frozen.len();
        checkpoint.stage = Stage::Adopt(left.with(now));
        true
    }

    /// The object is as it was at the cut. Gives the number of its pages that are clean now.
    fn adopt_all(&mut self, id: u64, mut onode: Arc<Onode>, homes: &[Home], period: Period) -> usize {
        let mut count = 0;
        let space = &mut self.table.space;
        if !homes.is_empty() || onode.blocks.is_to_settle(period) {
            let blocks = Arc::make_mut(&mut Arc::make_mut(&mut onode).blocks);
            for home in homes {
                blocks.came_home(home.index, home.target.clone());
                space.came_home(home);
            }
            for (_, blob) in blobs_of(homes, Home::new_blob) {
                space.packed.add(blob);
            }
            for (index, blob) in blobs_of(homes, Home::base_blob) {
                if !blocks.uses(index, blob) {
                    space.left_base_blob(blob);
                }
            }
            let clean = blocks.settle(period);
            count = clean.len();
            self.table.keep_pages(id, clean);
        }
        self.table.keep_clean(id, onode);
        count
    }

    /// The object was changed since the cut, or removed: its slots point home if they are still the same. A clone made
    /// since the cut keeps the block in memory until the next checkpoint. Gives the number of its pages that are clean now.
    fn adopt_in_live(&mut self, id: u64, homes: &[Home], checkpoint: &Checkpoint) -> usize {
        let period = checkpoint.period;
        let (Table { onodes, space, .. }, planted) = (&mut self.table, self.options.planted);
        let same =
            |slot: &Slot, home: &Home| matches!(slot, Slot::Memory(dirty) if Arc::ptr_eq(dirty, &home.dirty));
        let (mut clean, bases) = (Vec::new(), blobs_of(homes, Home::base_blob));
        let used = |blocks: &Blocks| bases.iter().map(|(index, blob)| blocks.uses(*index, blob)).collect();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let adopted = onodes.change(&id, |onode| {
            let is_same = |home: &Home| onode.blocks.get(home.index).is_some_and(|slot| same(slot, home));
            let mut adopted: Vec<bool> = homes.iter().map(is_same).collect();
            for (range, blob) in in_new_blobs(homes) {
                let Some(adopted) = adopted.get_mut(range) else { continue };
                if adopted.iter().filter(|adopted| **adopted).count() < blob.stored().len() {
                    // Less is left of the blob than it costs: that stays in memory, for the next checkpoint.
                    adopted.fill(false);
                }
            }
            before = used(&onode.blocks);
            if !homes.is_empty() || onode.blocks.is_to_settle(period) {
                let blocks = Arc::make_mut(&mut Arc::make_mut(onode).blocks);
                for (home, adopted) in homes.iter().zip(&adopted) {
                    if *adopted {
                        blocks.came_home(home.index, home.target.clone());
                    } else if let (Some(dirty), Some(target)) =
                        (blocks.in_memory_mut(home.index, 0), home.target.device())
                    {
                        Arc::make_mut(dirty).set_replaced(target.block);
                    }
                }
                after = used(blocks);
                clean = blocks.settle(period);
                if planted == Planted::ChangedPage {
                    blocks.lose_changed();
                }
            }
            adopted
        });
        let adopted = adopted.unwrap_or_else(|| vec![false; homes.len()]);
        for (home, adopted) in homes.iter().zip(&adopted) {
            if *adopted {
                space.came_home(home);
            } else if !home.stays() {
                let base = home.base.as_ref().and_then(Place::device);
                home.target.device().into_iter().for_each(|target| space.alloc.release(target.block));
                base.into_iter().for_each(|base| space.alloc.base_was_released_early(base.block));
            }
        }
        for (range, blob) in in_new_blobs(homes) {
            // The checkpoint has a reference to it.
            space.packed.add(blob);
            if !adopted.get(range).is_some_and(|adopted| adopted.contains(&true)) {
                space.release_blob(blob);
            }
        }
        for (nth, (_, blob)) in bases.iter().enumerate() {
            let was = |used: &[bool]| used.get(nth).copied().unwrap_or(false);
            let is_left = checkpoint.left_blobs.contains(&(id, blob.first()));
            space.adopt_base_blob(blob, was(&before), was(&after), is_left);
        }
        let count = clean.len();
        self.table.keep_pages(id, clean);
        count
    }

    /// Lets go of the small values that the KV store has now.
    pub(super) fn release(&mut self, checkpoint: &mut Checkpoint) -> bool {
        let Table { pairs, onodes, log, .. } = &mut self.table;
        let more = pairs.release(PAIRS_PER_STEP) | log.release(CHUNKS_PER_STEP) | onodes.release(1);
        if !more {
            checkpoint.stage = Stage::Free(Left::new(self.table.space.alloc.runs_to_free()));
        }
        true
    }

    /// Frees what nothing refers to any more.
    pub(super) fn free(&mut self, checkpoint: &mut Checkpoint, left: Left) -> bool {
        let freed = self.table.space.alloc.free_some(FREES_PER_STEP);
        if freed.is_empty() {
            self.checkpoints += 1;
            checkpoint.stage = Stage::Done;
            return true;
        }
        for run in freed {
            self.cache.forget(run);
            self.unpacked.forget(run);
            self.discards.freed(run);
            let damaged: Vec<u64> = self.damaged.range(run.blocks()).map(|(block, _)| *block).collect();
            damaged.iter().for_each(|block| drop(self.damaged.remove(block)));
        }
        self.frees += 1;
        checkpoint.stage = Stage::Free(left.with(self.table.space.alloc.runs_to_free()));
        true
    }
}
