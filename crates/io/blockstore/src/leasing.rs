//! When a partition takes slabs and when it gives some back. What becomes of them is in `leases.rs`.

use crate::kv_schema;
use crate::leases::{Leases, SlabCounts};
use crate::options::Planted;
use crate::store::BlockStore;
use nacre_kv::KvBatch;

/// Of what a partition has, the part that it wants free as long as there are slabs for everybody: the less is free, the more often a
/// checkpoint must bring back what was released.
const COMFORT_DIVISOR: u64 = 16;
/// Empty slabs that are kept beyond what is wanted, while nobody is short of one.
const SPARE_SLABS: u64 = 2;

impl BlockStore {
    /// Slabs of the partition that this is; `None` of a store that is not divided.
    #[must_use]
    pub fn slabs(&self) -> Option<SlabCounts> {
        self.leases.as_ref().map(Leases::counts)
    }

    /// Blocks that a partition needs free now.
    fn slab_need(&self, leases: &Leases) -> u64 {
        let ahead =
            u64::from(leases.ledger().slabs().blocks()) / 2 + 2 * self.table.space.alloc.taken_lately();
        self.promised_blocks() + self.reserve_blocks() + ahead
    }

    /// Takes slabs or withdraws empty ones, as is needed; whether a checkpoint should begin for that. `at_cut`: one begins anyhow.
    pub(crate) fn mind_slabs(&mut self, at_cut: bool) -> bool {
        let Some(leases) = &self.leases else { return false };
        let (need, is_short) = (self.slab_need(leases), leases.ledger().is_short());
        let slab = u64::from(leases.ledger().slabs().blocks());
        let comfort = self.table.space.alloc.blocks() / COMFORT_DIVISOR;
        let free = self.table.space.alloc.free_count() + leases.expected_blocks();
        if free < need {
            self.need_slabs(need - free);
        } else if at_cut && free < need + comfort && leases.ledger().free_blocks() > 0 {
            // That this is not to be had makes nobody short, and no checkpoint begins for it.
            self.ask_for_slabs(need + comfort - free);
        } else if is_short {
            self.withdraw_slabs(need + slab);
        } else if at_cut {
            self.withdraw_slabs(need + comfort + SPARE_SLABS * slab);
        }
        let (are_asked, are_leaving) = self.leases.as_ref().map(Leases::wait).unwrap_or_default();
        are_asked || is_short && are_leaving
    }

    /// Asks for slabs with so many blocks. If there are too few, others are told that they are needed.
    pub(crate) fn need_slabs(&mut self, blocks: u64) {
        if !self.ask_for_slabs(blocks)
            && let Some(leases) = &self.leases
        {
            leases.ledger().note_short();
        }
    }

    /// Asks for slabs with so many blocks, as far as there are; false when there are too few.
    fn ask_for_slabs(&mut self, blocks: u64) -> bool {
        let Some(leases) = &mut self.leases else { return true };
        let at_once = self.options.planted == Planted::EarlyLease;
        leases.ask(&mut self.table.space.alloc, blocks, at_once)
    }

    fn withdraw_slabs(&mut self, keep: u64) {
        if let Some(leases) = &mut self.leases {
            leases.withdraw(&mut self.table.space.alloc, keep, self.frees);
        }
    }

    /// A checkpoint has taken its cut: its batch says which slabs are the partition's.
    pub(crate) fn cut_leases(&mut self, batch: &mut KvBatch) {
        let Some(leases) = &mut self.leases else { return };
        if let Some(record) = leases.cut() {
            batch.put(kv_schema::partition_key(), record.encode());
        }
        if self.options.planted == Planted::EarlyReturn {
            leases.give();
        }
    }

    /// That checkpoint is durable.
    pub(crate) fn leases_durable(&mut self) {
        if let Some(leases) = &mut self.leases {
            leases.durable(&mut self.table.space.alloc);
        }
    }
}
