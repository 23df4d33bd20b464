//! [`Slabs`]: the pieces into which the data area of a divided store falls; [`SlabLedger`]: which partition has which.
//!
//! The ledger is all that partitions share: also that one of them has failed. It is asked when a partition needs a slab or has one too many,
//! and once a turn, never on the way of a write, and has no lock: each slab is a number of its own. It is not stored. Each partition's metadata say which slabs are its own, and the ledger of
//! an opened store begins with what all of them say: see `leases.rs`.

use crate::device::Run;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Nobody's slab. Others have one more than the number of their partition.
const NOBODY: u32 = 0;

/// Pieces of the data area, all of the same size but for the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slabs {
    area: Run,
    blocks: u32,
}

impl Slabs {
    /// # Panics
    /// When a slab has no blocks: superblocks that say so are refused.
    pub(crate) fn new(area: Run, blocks: u32) -> Self {
        assert!(blocks > 0, "slabs without blocks");
        Self { area, blocks }
    }

    pub(crate) fn area(&self) -> Run {
        self.area
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.area.count.div_ceil(self.blocks.into()))
            .expect("superblocks bound the number of slabs")
    }

    /// Blocks of a slab, but for the last one.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The blocks of a slab.
    ///
    /// # Panics
    /// When there is no such slab.
    pub(crate) fn run(&self, slab: u32) -> Run {
        assert!(slab < self.count(), "slab {slab} of {}", self.count());
        let (from, blocks) = (u64::from(slab) * u64::from(self.blocks), u64::from(self.blocks));
        Run { start: self.area.start + from, count: blocks.min(self.area.count - from) }
    }
}

/// See the module's documentation. Shared by the partitions of an open store.
#[derive(Debug)]
pub(crate) struct SlabLedger {
    slabs: Slabs,
    partitions: u32,
    holders: Box<[AtomicU32]>,
    free_blocks: AtomicU64,
    /// A partition found none that it needed.
    is_short: AtomicBool,
    /// Why a partition acknowledges nothing any more. They share the device: what it had in its cache for one may be lost when it refuses
    /// another one's flush, and nobody else may hear of that.
    failed: OnceLock<String>,
}

impl SlabLedger {
    /// All slabs are nobody's.
    pub(crate) fn new(slabs: Slabs, partitions: u32) -> Self {
        Self {
            slabs,
            partitions,
            holders: (0..slabs.count()).map(|_| AtomicU32::new(NOBODY)).collect(),
            free_blocks: AtomicU64::new(slabs.area.count),
            is_short: AtomicBool::new(false),
            failed: OnceLock::new(),
        }
    }

    /// A partition has failed, and so have all; the first reason counts.
    pub(crate) fn note_failed(&self, reason: &str) {
        self.failed.get_or_init(|| reason.to_owned());
    }

    /// Why one of them has failed, if one has.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }

    pub(crate) fn slabs(&self) -> Slabs {
        self.slabs
    }

    pub(crate) fn partitions(&self) -> u32 {
        self.partitions
    }

    /// Blocks of slabs that are nobody's.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.free_blocks.load(Ordering::Relaxed)
    }

    /// Somebody needs a slab, and there is none.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed) && self.free_blocks() == 0
    }

    /// A partition needs more than there are.
    pub(crate) fn note_short(&self) {
        // In every turn of a partition that is short; others read this in each of theirs.
        if !self.is_short.load(Ordering::Relaxed) {
            self.is_short.store(true, Ordering::Relaxed);
        }
    }

    fn claim(&self, slab: u32, partition: u32) -> Result<(), u32> {
        let Some(holder) = self.holders.get(slab as usize) else { return Err(NOBODY) };
        holder.compare_exchange(NOBODY, partition + 1, Ordering::AcqRel, Ordering::Acquire)?;
        self.free_blocks.fetch_sub(self.slabs.run(slab).count, Ordering::Relaxed);
        Ok(())
    }

    /// A slab that was nobody's: the first one behind the partition's share of the area, where its others are, or else any.
    pub(crate) fn take(&self, partition: u32) -> Option<u32> {
        if self.free_blocks() == 0 {
            return None;
        }
        let count = self.slabs.count();
        let first = u64::from(partition) * u64::from(count) / u64::from(self.partitions);
        let first = u32::try_from(first).expect("less than all slabs");
        let taken = (first..count).chain(0..first).find(|slab| self.claim(*slab, partition).is_ok());
        if taken.is_some() {
            self.is_short.store(false, Ordering::Relaxed);
        }
        taken
    }

    /// A slab belongs to a partition, as its metadata say.
    ///
    /// # Errors
    /// The number of the partition that has it, or `None` when there is no such slab.
    pub(crate) fn adopt(&self, slab: u32, partition: u32) -> Result<(), Option<u32>> {
        self.claim(slab, partition).map_err(|holder| holder.checked_sub(1))
    }

    /// Which partition has a slab.
    pub(crate) fn holder(&self, slab: u32) -> Option<u32> {
        self.holders.get(slab as usize)?.load(Ordering::Acquire).checked_sub(1)
    }

    /// A partition does not need a slab any more, and no durable state of it says that it has it.
    ///
    /// # Panics
    /// When it is not that partition's.
    pub(crate) fn give(&self, slab: u32, partition: u32) {
        // Counted first: whoever takes it at once must find it counted.
        self.free_blocks.fetch_add(self.slabs.run(slab).count, Ordering::Relaxed);
        let given = self.holders.get(slab as usize).is_some_and(|holder| {
            let (own, relaxed) = (partition + 1, Ordering::Relaxed);
            holder.compare_exchange(own, NOBODY, Ordering::AcqRel, relaxed).is_ok()
        });
        assert!(given, "slab {slab} is given back by partition {partition}, which does not have it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn ledger(partitions: u32) -> SlabLedger {
        SlabLedger::new(Slabs::new(Run { start: 10, count: 34 }, 8), partitions)
    }

    #[test]
    fn slabs_cover_the_area() {
        let slabs = ledger(2).slabs();
        let runs: Vec<Run> = (0..slabs.count()).map(|slab| slabs.run(slab)).collect();
        let starts = [10, 18, 26, 34].map(|start| Run { start, count: 8 });
        assert_eq!(runs, [&starts[..], &[Run { start: 42, count: 2 }]].concat());
    }

    #[test]
    fn a_slab_is_one_partitions_until_it_is_given_back() {
        let ledger = ledger(2);
        assert_eq!(
            (ledger.adopt(0, 0), ledger.adopt(0, 1), ledger.adopt(5, 1)),
            (Ok(()), Err(Some(0)), Err(None))
        );
        assert_eq!([1, 0, 0].map(|partition| ledger.take(partition)), [Some(2), Some(1), Some(3)]);
        assert_eq!((ledger.free_blocks(), ledger.is_short()), (2, false));
        ledger.note_short();
        assert!(!ledger.is_short(), "there is one");
        assert_eq!((ledger.take(1), ledger.take(0)), (Some(4), None));
        assert!(!ledger.is_short(), "nobody said that he needed it");
        ledger.note_short();
        assert!(ledger.is_short());
        ledger.give(2, 1);
        assert_eq!((ledger.free_blocks(), ledger.holder(2), ledger.holder(3)), (8, None, Some(0)));
        assert_eq!(ledger.take(0), Some(2));
        assert_eq!((ledger.free_blocks(), ledger.is_short()), (0, false));
    }

    #[test]
    #[should_panic(expected = "which does not have it")]
    fn a_slab_of_another_partition_cannot_be_given_back() {
        let ledger = ledger(2);
        assert_eq!(ledger.take(1), Some(2));
        ledger.give(2, 0);
    }

    /// Threads that take and give all the time: none ever has what another one has.
    #[test]
    fn two_threads_never_get_the_same_slab() {
        let ledger = Arc::new(ledger(3));
        let marks: Arc<Vec<AtomicU32>> = Arc::new((0..5).map(|_| AtomicU32::new(0)).collect());
        let work = |partition: u32| {
            let (ledger, marks) = (Arc::clone(&ledger), Arc::clone(&marks));
            move || {
                for _ in 0..20_000 {
                    let Some(slab) = ledger.take(partition) else { continue };
                    let mark = &marks[slab as usize];
                    assert_eq!(mark.fetch_add(1, Ordering::AcqRel), 0, "slab {slab} is somebody's");
                    mark.fetch_sub(1, Ordering::AcqRel);
                    ledger.give(slab, partition);
                }
            }
        };
        std::thread::scope(|scope| (0..3).for_each(|partition| drop(scope.spawn(work(partition)))));
        assert_eq!(ledger.free_blocks(), 34);
    }
}
