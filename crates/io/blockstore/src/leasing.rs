//! When a partition takes slabs and when it gives some back. What becomes of them is in `leases.rs`.

use crate::BLOCK;
use crate::kv_schema;
use crate::leases::{LOOKS_MAX, Leases, SlabCounts};
use crate::options::Planted;
use crate::store::BlockStore;
use nacre_kv::KvBatch;

/// Of what a partition has, the part that it wants free as long as there are slabs that nobody needs: the less is free, the more often a
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

    /// Blocks that a partition has free for itself, whatever others do, when nothing is promised.
    fn own_blocks(&self, leases: &Leases) -> u64 {
        let ready = self.options.ready_bytes / BLOCK as u64;
        self.reserve_blocks() + ready + u64::from(leases.ledger().slabs().blocks()) / 2
    }

    /// Takes slabs or withdraws empty ones, as is needed; whether a checkpoint should begin for that. `at_cut`: one begins anyhow.
    pub(crate) fn mind_slabs(&mut self, at_cut: bool) -> bool {
        let Some(leases) = &self.leases else { return false };
        let (own, ledger) = (self.own_blocks(leases), leases.ledger());
        let (is_short, slab) = (ledger.is_short(), u64::from(ledger.slabs().blocks()));
        // What every other one may need is left to it.
        let anybodys =
            ledger.free_blocks().saturating_sub(own * u64::from(leases.partitions() - 1)) / slab * slab;
        let need = self.promised_blocks() + own;
        let comfort = if at_cut { self.comfort_blocks() } else { 0 };
        let wanted = need + 2 * self.table.space.alloc.taken_lately() + comfort;
        let free = self.table.space.alloc.free_count() + leases.expected_blocks();
        if free < need {
            self.need_slabs(need - free);
        } else if is_short {
            self.withdraw_slabs(need + slab, LOOKS_MAX);
        } else if free < wanted && anybodys > 0 {
            // That this is not to be had makes nobody short.
            self.ask_for_slabs((wanted - free).min(anybodys));
        } else if at_cut {
            self.withdraw_slabs(wanted + SPARE_SLABS * slab, LOOKS_MAX);
        }
        let (are_asked, are_leaving) = self.leases.as_ref().map(Leases::wait).unwrap_or_default();
        are_asked || is_short && are_leaving
    }

    /// While a checkpoint is under way others may take what this one counts on: claims what is needed for the next.
    pub(crate) fn claim_needed_slabs(&mut self) {
        let Some(leases) = &self.leases else { return };
        let need = self.promised_blocks() + self.own_blocks(leases);
        let free = self.table.space.alloc.free_count() + leases.expected_blocks();
        if free < need {
            self.need_slabs(need - free);
        }
    }

    /// As [`nacre_store::ObjectStore::spare_room`].
    pub(crate) fn spare_slabs(&mut self) {
        self.end_checkpoint();
        // The first checkpoint gives what is free already, and frees what was released; the second gives that.
        for _ in 0..2 {
            self.end_discards();
            let Some(leases) = &mut self.leases else { return };
            // Those that discards held when they were looked at may be empty by now.
            leases.look_again();
            let Some(leases) = &self.leases else { return };
            let slab = u64::from(leases.ledger().slabs().blocks());
            let need = self.promised_blocks() + self.own_blocks(leases);
            self.withdraw_slabs(need + slab, usize::MAX);
            let are_leaving = self.leases.as_ref().is_some_and(|leases| leases.wait().1);
            let alloc = &self.table.space.alloc;
            let will_spare = alloc.free_count() + alloc.pending_count() >= need + 2 * slab;
            if self.failed.is_some() || !are_leaving && (alloc.pending_count() == 0 || !will_spare) {
                return;
            }
            self.finish_checkpoint();
        }
    }

    fn comfort_blocks(&self) -> u64 {
        self.table.space.alloc.blocks() / COMFORT_DIVISOR
    }

    /// Nobody uses the store: withdraws all empty slabs that are not wanted. The last checkpoint looked before it freed anything. True when
    /// there are some, which leave by a further one.
    pub(crate) fn withdraw_unwanted(&mut self) -> bool {
        let Some(leases) = &self.leases else { return false };
        let slab = u64::from(leases.ledger().slabs().blocks());
        let wanted = self.promised_blocks() + self.own_blocks(leases) + self.comfort_blocks();
        self.withdraw_slabs(wanted + SPARE_SLABS * slab, usize::MAX);
        self.leases.as_ref().is_some_and(|leases| leases.wait().1)
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

    fn withdraw_slabs(&mut self, keep: u64, looks_max: usize) {
        if let Some(leases) = &mut self.leases {
            leases.withdraw(&mut self.table.space.alloc, keep, self.frees, looks_max);
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
