//! [`Leases`]: the slabs of one partition of a divided store, and when it takes and gives some.
//!
//! ```text
//!  nobody's --take--> asked --cut--> coming --durable--> held: allocated in
//!                                                         |   wholly free, and more than is needed
//!  nobody's <--durable-- going <--cut-- leaving <---------+
//! ```
//!
//! A slab is allocated in only while the durable state says that it is the partition's, and is nobody's only when no durable state says so
//! any more. So whatever a crash leaves, no two partitions have the same slab, and what a state or a log record refers to lies in slabs of
//! its partition: records behind a cut can place data only in slabs that an earlier checkpoint has made durable, and those that replay
//! begins with know nothing of slabs that left before.
//!
//! All of it rides on checkpoints. They begin for it when a slab was asked for, or is leaving and another partition is short of one:
//! `leasing.rs`.

use crate::alloc::Alloc;
use crate::device::Run;
use crate::error::OpenError;
use crate::kv_schema::PartitionRecord;
use crate::slabs::SlabLedger;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// Slabs that are looked at at a time, whether they are empty.
pub(crate) const LOOKS_MAX: usize = 64;

/// Slabs of one partition, for people and for tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlabCounts {
    /// It allocates in so many.
    pub held: u64,
    /// So many were taken or are given back, and that is not durable yet.
    pub on_their_way: u64,
    /// Taken since the store was opened.
    pub taken: u64,
    /// Given back since then.
    pub given: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Leases {
    ledger: Arc<SlabLedger>,
    number: u32,
    held: BTreeSet<u32>,
    asked: BTreeSet<u32>,
    coming: BTreeSet<u32>,
    leaving: BTreeSet<u32>,
    going: BTreeSet<u32>,
    /// What the newest batch says.
    recorded: Vec<u32>,
    /// Where the search for empty slabs goes on.
    look_at: u32,
    /// How many of them are to be looked at, and how often blocks were freed when that was counted. One that comes later is empty as well,
    /// and makes all of them to be looked at again.
    looks: (usize, u64),
    taken: u64,
    given: u64,
}

impl Leases {
    /// Of the partition that has this record. The ledger has all that it says.
    pub(crate) fn new(ledger: Arc<SlabLedger>, record: &PartitionRecord) -> Self {
        let none = BTreeSet::new;
        Self {
            ledger,
            number: record.number,
            held: record.slabs.iter().copied().collect(),
            asked: none(),
            coming: none(),
            leaving: none(),
            going: none(),
            recorded: record.slabs.clone(),
            look_at: 0,
            looks: (0, u64::MAX),
            taken: 0,
            given: 0,
        }
    }

    /// The blocks of the slabs in which the partition allocates.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> {
        self.held.iter().map(|slab| self.ledger.slabs().run(*slab))
    }

    pub(crate) fn partitions(&self) -> u32 {
        self.ledger.partitions()
    }

    fn blocks_of<'a>(&self, slabs: impl IntoIterator<Item = &'a u32>) -> u64 {
        slabs.into_iter().map(|slab| self.ledger.slabs().run(*slab).count).sum()
    }

    /// Blocks that the partition will have.
    pub(crate) fn expected_blocks(&self) -> u64 {
        self.blocks_of(self.asked.iter().chain(&self.coming))
    }

    /// Blocks of slabs that the running checkpoint gives back: until it ends nobody has them.
    pub(crate) fn going_blocks(&self) -> u64 {
        self.blocks_of(&self.going)
    }

    /// The partition's share of all blocks.
    pub(crate) fn share_blocks(&self) -> u64 {
        self.share_of(self.ledger.slabs().area().count)
    }

    /// Of so many blocks.
    fn share_of(&self, blocks: u64) -> u64 {
        let partitions = u64::from(self.partitions());
        blocks / partitions + if self.number == 0 { blocks % partitions } else { 0 }
    }

    /// Blocks that nobody allocates in: they come or go, or are the partition's part of those that are nobody's.
    pub(crate) fn spare_blocks(&self) -> u64 {
        let on_their_way = self.expected_blocks() + self.blocks_of(self.leaving.iter().chain(&self.going));
        on_their_way + self.share_of(self.ledger.free_blocks())
    }

    pub(crate) fn ledger(&self) -> &SlabLedger {
        &self.ledger
    }

    /// All slabs that others must not have.
    #[cfg(test)]
    pub(crate) fn all(&self) -> impl Iterator<Item = u32> {
        [&self.held, &self.asked, &self.coming, &self.leaving, &self.going].into_iter().flatten().copied()
    }

    /// All are to be looked at again.
    pub(crate) fn look_again(&mut self) {
        self.looks.0 = self.held.len();
    }

    /// The next one to be looked at, whether it is empty: each once, until blocks are freed again or slabs come.
    fn next_look(&mut self, frees: u64) -> Option<u32> {
        if self.looks.1 != frees {
            self.looks = (self.held.len(), frees);
        }
        self.looks.0 = self.looks.0.checked_sub(1)?;
        let behind = (Bound::Excluded(self.look_at), Bound::Unbounded);
        let next = self.held.range(behind).next().or_else(|| self.held.first()).copied()?;
        self.look_at = next;
        Some(next)
    }

    /// It allocates in one more, which is to be looked at, too.
    fn hold(&mut self, slab: u32, alloc: &mut Alloc) {
        self.held.insert(slab);
        self.looks.0 = self.held.len();
        alloc.gain(self.ledger.slabs().run(slab));
    }

    /// Whether something is to become durable by a checkpoint: a slab that was asked for, or one that leaves.
    pub(crate) fn wait(&self) -> (bool, bool) {
        (!self.asked.is_empty(), !self.leaving.is_empty())
    }

    /// Asks for slabs with so many blocks, as far as there are; false when there are too few. `at_once` is the planted mistake.
    pub(crate) fn ask(&mut self, alloc: &mut Alloc, blocks: u64, at_once: bool) -> bool {
        let mut missing = blocks;
        while missing > 0 {
            let kept = self.leaving.pop_last();
            let Some(slab) = kept.or_else(|| self.ledger.take(self.number)) else { return false };
            missing = missing.saturating_sub(self.ledger.slabs().run(slab).count);
            self.taken += u64::from(kept.is_none());
            // What was to leave is the partition's still, as every durable state says.
            if kept.is_some() || at_once {
                self.hold(slab, alloc);
            } else {
                self.asked.insert(slab);
            }
        }
        true
    }

    /// Withdraws slabs that are empty, as long as so many blocks stay free. `frees` says how often blocks were freed so far; looks at so many
    /// slabs at most.
    pub(crate) fn withdraw(&mut self, alloc: &mut Alloc, keep: u64, frees: u64, looks_max: usize) {
        let slab_blocks = u64::from(self.ledger.slabs().blocks());
        for _ in 0..looks_max {
            // The last one stays: what there is can always be deleted.
            if alloc.free_count() < keep + slab_blocks || self.held.len() <= 1 {
                return;
            }
            let Some(slab) = self.next_look(frees) else { return };
            if alloc.withdraw(self.ledger.slabs().run(slab)) {
                self.held.remove(&slab);
                self.leaving.insert(slab);
            }
        }
    }

    /// A checkpoint takes its cut: what its batch is to say, unless that is there.
    pub(crate) fn cut(&mut self) -> Option<PartitionRecord> {
        assert!(self.coming.is_empty() && self.going.is_empty(), "the last checkpoint has ended");
        self.coming = std::mem::take(&mut self.asked);
        self.going = std::mem::take(&mut self.leaving);
        let slabs: Vec<u32> = self.held.union(&self.coming).copied().collect();
        if slabs == self.recorded {
            return None;
        }
        self.recorded.clone_from(&slabs);
        Some(PartitionRecord { number: self.number, partitions: self.partitions(), slabs })
    }

    /// Slabs that went are anybody's.
    pub(crate) fn give(&mut self) {
        for slab in std::mem::take(&mut self.going) {
            self.ledger.give(slab, self.number);
            self.given += 1;
        }
    }

    /// That checkpoint is durable.
    pub(crate) fn durable(&mut self, alloc: &mut Alloc) {
        self.give();
        for slab in std::mem::take(&mut self.coming) {
            self.hold(slab, alloc);
        }
    }

    pub(crate) fn counts(&self) -> SlabCounts {
        let on_their_way = self.asked.len() + self.coming.len() + self.leaving.len() + self.going.len();
        SlabCounts {
            held: self.held.len() as u64,
            on_their_way: on_their_way as u64,
            taken: self.taken,
            given: self.given,
        }
    }
}

/// Takes the record of a partition, as the store's ledger knows it.
pub(crate) fn leases_of(
    ledger: &Arc<SlabLedger>,
    number: u32,
    record: Option<PartitionRecord>,
) -> Result<Leases, OpenError> {
    let is_known = |record: &PartitionRecord| {
        let is_own = |slab: &u32| ledger.holder(*slab) == Some(number);
        (record.number, record.partitions) == (number, ledger.partitions()) && record.slabs.iter().all(is_own)
    };
    let record = record.filter(is_known).ok_or(OpenError::ForeignMetadata)?;
    Ok(Leases::new(Arc::clone(ledger), &record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slabs::Slabs;

    #[test]
    fn a_slab_that_comes_when_all_were_looked_at_is_looked_at_and_given_back() {
        let area = Run { start: 0, count: 64 };
        let ledger = Arc::new(SlabLedger::new(Slabs::new(area, 8), 2));
        assert_eq!([0, 1].map(|slab| ledger.adopt(slab, 0)), [Ok(()), Ok(())]);
        let record = PartitionRecord { number: 0, partitions: 2, slabs: vec![0, 1] };
        let mut leases = leases_of(&ledger, 0, Some(record)).expect("its record");
        let mut alloc = Alloc::in_slabs(area, leases.runs());
        assert!(
            [0, 8].into_iter().all(|start| alloc.replay(Run { start, count: 1 })),
            "a block of each is used"
        );
        let gives = |leases: &mut Leases, alloc: &mut Alloc| {
            leases.withdraw(alloc, 0, 7, LOOKS_MAX);
            leases.wait().1
        };
        assert!(!gives(&mut leases, &mut alloc), "none is empty");
        assert!(leases.ask(&mut alloc, 8, false));
        assert!(leases.cut().is_some());
        leases.durable(&mut alloc);
        assert!(gives(&mut leases, &mut alloc), "one that came is");
        assert!(leases.ask(&mut alloc, 8, false) && !leases.wait().1, "it stays");
        assert!(gives(&mut leases, &mut alloc), "and is empty still");
    }
}
