//! What writers may have while a checkpoint runs: when they wait for it, and when so much has come that it came without waiting.

use crate::checkpoint::Checkpoint;
use crate::store::BlockStore;
use crate::throttle::fill::{Fill, Limit};

/// Of `nacre_kv::COMMITTED`, the part of a commit after which writers that wait for it are looked at: 3 ms of one of 1.5 s.
const COMMIT_STEP: u64 = 2;

impl BlockStore {
    /// What of the room for changes is in use.
    pub(crate) fn fill(&self) -> Fill {
        Fill {
            log_blocks: self.wal.usage().1,
            dirty_bytes: self.table.space.dirty_bytes(),
            metadata_bytes: (self.table.changed().1 + self.table.space.alloc.changes_bytes()) as u64,
        }
    }

    /// How much of that there may be while a checkpoint runs.
    fn limit(&self) -> Limit {
        Limit {
            log_blocks: self.wal.usage().0,
            dirty_bytes: 2 * self.options.overlay_bytes_max,
            metadata_bytes: 2 * self.options.dirty_metadata_bytes_max as u64,
            changes_bytes: 2 * self.options.changes_bytes_max,
        }
    }

    /// How far the checkpoint has come, and its commit.
    fn progress_of(&self, checkpoint: &Checkpoint) -> (u64, u64) {
        let committed = if checkpoint.is_committing() { self.table.kv.progress() } else { 0 };
        (checkpoint.progress(self.shares.ends(), committed), committed)
    }

    /// So much changes that acknowledgements wait for the running checkpoint.
    pub(crate) fn outruns_checkpoint(&self) -> bool {
        let Some(checkpoint) = &self.checkpoint else { return false };
        let (progress, committed) = self.progress_of(checkpoint);
        let outruns = self.fill().outruns(checkpoint.fill(), &self.limit(), progress);
        if outruns && checkpoint.is_committing() && self.wal.collecting_bytes() > 0 {
            // Nothing else may happen until the commit ends: no request is under way, and clients wait.
            self.table.kv.wake_at(committed + COMMIT_STEP);
        }
        outruns
    }

    /// As [`nacre_store::ObjectStore::is_overrun`].
    pub(crate) fn far_outruns_checkpoint(&self) -> bool {
        self.checkpoint.as_ref().is_some_and(|checkpoint| {
            let (progress, _) = self.progress_of(checkpoint);
            self.fill().far_outruns(checkpoint.fill(), &self.limit(), progress)
        })
    }
}
