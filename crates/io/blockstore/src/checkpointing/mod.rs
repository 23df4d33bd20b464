//! What a checkpoint does, a small step at a time: when one begins, which step is next, and the commit. See [`crate::checkpoint`] for
//! their order and why it keeps what was acknowledged.
//!
//! | file | what |
//! | --- | --- |
//! | `homes.rs` | dirty blocks: gathered, given a place, written there |
//! | `packing.rs` | those that are compressed |
//! | `encode.rs` | the batch for the KV store: objects, pairs, logs, free map |
//! | `adopt.rs` | after the commit: slots point home, memory and blocks become free |

mod adopt;
mod encode;
mod homes;
mod packing;

use crate::checkpoint::{Bases, Checkpoint, Left, Stage};
use crate::kv_schema::{self, State};
use crate::options::Planted;
use crate::store::BlockStore;
use crate::throttle::Begins;
use crate::wal::{TxnNumber, WalPosition};
use nacre_kv::{KvBatch, KvError, KvTag};
use std::collections::BTreeSet;

// A step takes some 50 us at most: that is what a completion may have to wait for it. Between two steps writers have
// their turn.

/// Objects looked at in one step at most, and blocks after which no further one is begun.
pub(super) const OBJECTS_PER_STEP: usize = 64;
pub(super) const ENTRIES_PER_STEP: usize = 1024;
/// Small changed values written, and let go of, in one step.
pub(super) const PAIRS_PER_STEP: usize = 256;
pub(super) const CHUNKS_PER_STEP: usize = 16;

impl BlockStore {
    /// Begins a checkpoint if there is reason to.
    pub(crate) fn consider_checkpoint(&mut self) {
        if self.checkpoint.is_some() {
            self.claim_needed_slabs();
            return;
        }
        let slabs_change = self.mind_slabs(false);
        let (size, used) = self.wal.usage();
        let dirty = self.table.space.dirty_bytes();
        let (entries, bytes) = self.table.changed();
        let metadata = bytes + self.table.space.alloc.changes_bytes();
        if used * 100 > size * self.options.wal_percent_max
            || dirty > self.options.overlay_bytes_max
            || entries + self.table.space.alloc.changes_count() > self.options.marks_max
            || metadata > self.options.dirty_metadata_bytes_max
            || dirty + metadata as u64 > self.options.changes_bytes_max
            || self.wal.collecting_bytes() > 0 && self.wal.is_durable_to(TxnNumber::MAX)
            || self.wal.is_stuck()
            || slabs_change
            || self.table.space.alloc.wants_checkpoint()
        {
            self.start_checkpoint();
        }
    }

    /// Takes the cut: all that was submitted so far is in the checkpoint, nothing after it. Takes the same time however
    /// much that is.
    pub(crate) fn start_checkpoint(&mut self) {
        self.note_table_failure();
        if self.failed.is_some() {
            // What was changed by what could not be read is not to be kept.
            return;
        }
        self.mind_slabs(true);
        self.write_all_records();
        let number = self.wal.cut();
        let cut = self.table.space.alloc.cut();
        let wal: WalPosition = self.wal.next_position();
        let state = State {
            id: self.superblock.id,
            wal,
            next_id: self.table.next_id,
            sums: self.table.sums(),
            is_journaled: self.table.is_journaled,
        };
        let mut batch = KvBatch::default();
        std::mem::take(&mut self.table.dead_prefixes)
            .into_iter()
            .for_each(|prefix| batch.delete_prefix(prefix));
        self.cut_leases(&mut batch);
        let period = self.table.freeze();
        self.checkpoint = Some(Checkpoint {
            cut,
            period,
            fill: self.fill(),
            number,
            state,
            batch,
            // All of it at once: to grow it in steps is to touch twice as much memory.
            homes: Vec::with_capacity(usize::try_from(self.table.space.dirty_slots).unwrap_or(0)),
            changes: self.table.space.alloc.take_changes(),
            left_blobs: BTreeSet::new(),
            held: self.table.space.dirty_slots,
            tried: 0,
            stage: Stage::Gather { from: 0 },
            writes: 0,
            reads: 0,
            unreadable: BTreeSet::new(),
            bases: Bases::new(),
            pins: Vec::new(),
            begins: Begins { homes: self.shares.now(), ..Begins::default() },
        });
    }

    /// Takes up to `steps_max` steps, as far as they need not wait for the device. True when the next one need not.
    pub(crate) fn advance_checkpoint(&mut self, steps_max: usize) -> bool {
        for _ in 0..steps_max {
            if self.failed.is_some() {
                return false;
            }
            let Some(mut checkpoint) = self.checkpoint.take() else { return false };
            let before = self.fill();
            let advanced = self.step(&mut checkpoint);
            checkpoint.fill.give_back(&before, &self.fill());
            if matches!(checkpoint.stage, Stage::Done) {
                self.shares.ended(checkpoint.begins);
                return false;
            }
            self.checkpoint = Some(checkpoint);
            if !advanced {
                return false;
            }
        }
        self.checkpoint.is_some()
    }

    /// One step; false when it has to wait.
    fn step(&mut self, checkpoint: &mut Checkpoint) -> bool {
        match &checkpoint.stage {
            Stage::Gather { from } => self.gather(checkpoint, *from),
            Stage::Place { next } => self.place_homes(checkpoint, *next),
            Stage::Write { next } => self.write_home(checkpoint, *next),
            Stage::Settle => {
                if checkpoint.writes > 0 || !self.wal.is_durable_to(checkpoint.number) {
                    return false;
                }
                self.start_flush();
                checkpoint.stage = Stage::Flush { done: false };
                true
            }
            Stage::Flush { done: false } => false,
            Stage::Flush { done: true } => {
                checkpoint.begins.batch = self.shares.now();
                checkpoint.stage = Stage::Objects { from: 0, home: 0 };
                true
            }
            Stage::Objects { from, home } => self.encode_objects(checkpoint, *from, *home),
            Stage::Pairs { last } => self.encode_pairs(checkpoint, last.clone()),
            Stage::Logs { last } => self.encode_logs(checkpoint, *last),
            Stage::Space { home } => self.encode_space(checkpoint, *home),
            Stage::Commit | Stage::Done => false,
            Stage::Adopt(left) => self.adopt(checkpoint, *left),
            Stage::Release => self.release(checkpoint),
            Stage::Free(left) => self.free(checkpoint, *left),
        }
    }

    pub(crate) fn flushed(&mut self) {
        if let Some(Checkpoint { stage: Stage::Flush { done }, .. }) = &mut self.checkpoint {
            *done = true;
        }
    }

    fn commit(&mut self, checkpoint: &mut Checkpoint) {
        self.hear_of_failures();
        if self.failed.is_some() {
            return;
        }
        checkpoint.batch.put(kv_schema::state_key(), checkpoint.state.encode());
        self.table.kv.submit(std::mem::take(&mut checkpoint.batch), KvTag(self.checkpoints));
        checkpoint.stage = Stage::Commit;
        checkpoint.begins.commit = self.shares.now();
        if self.options.planted == Planted::EarlyTrim {
            self.wal.checkpoint_durable(checkpoint.number, checkpoint.state.wal, &mut self.durable);
        }
    }

    /// The KV store has the checkpoint, or failed.
    pub(crate) fn committed(&mut self, result: Result<(), KvError>) {
        if let Err(error) = result {
            return self.fail(error.to_string());
        }
        let before = self.fill();
        let Some(mut checkpoint) = self.checkpoint.take() else { return };
        assert!(checkpoint.is_committing(), "nothing else is submitted to the KV store");
        self.wal.checkpoint_durable(checkpoint.number, checkpoint.state.wal, &mut self.durable);
        checkpoint.begins.adopt = self.shares.now();
        checkpoint.stage = Stage::Adopt(Left::new(checkpoint.homes.len() + self.table.onodes.frozen.len()));
        checkpoint.fill.give_back(&before, &self.fill());
        self.checkpoint = Some(checkpoint);
        self.leases_durable();
    }
}
