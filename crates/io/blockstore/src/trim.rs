//! Trimming: the device is told which blocks are not needed any more, so that flash has room to work with and a thin volume, or the file
//! below a loop device, gets back what it lent.
//!
//! ```text
//!  released -> pending -> a checkpoint is durable -> free, marked -> held while it is discarded -> free
//! ```
//!
//! Only what is free is discarded: what could be overwritten at once. A crash brings back the last durable state and the log behind
//! it, and neither refers to such a block. While it is being discarded the allocator does not have it: a write could reach the device
//! before the discard does, and be lost. After a crash it is free again, whatever the device has made of it.
//!
//! Nobody waits for it: it is done where nothing else is, in few requests, as fast as the device bears (`discards/rate.rs`). What is freed
//! is marked in units (`discards/marks.rs`). What a crash, or the end of the process, leaves marked is not trimmed until it is used and
//! freed again.

use crate::BLOCK;
use crate::device::Run;
use crate::discards::Marks;
use crate::options::Planted;
use crate::store::BlockStore;
use nacre_env::DiskError;
use nacre_store::{DiscardPolicy, ObjectStore, StoreError};
use nacre_types::{DeviceWork, Stamp};
use std::time::Duration;

/// Units that are looked at for one batch at most, some 50 us.
const LOOKS_MAX: usize = 4096;
/// Of what is free and promised to nobody, and of the whole area, the part that is discarded at a time at most.
const FREE_DIVISOR: u64 = 4;
const AREA_DIVISOR: u64 = 64;
/// Blocks of a unit at most: regions of devices begin at multiples of 1 MiB.
const UNIT_BLOCKS_MAX: u64 = (1 << 20) / BLOCK as u64;
/// So long after the last batch the next one does not wait for a moment in which the device has nothing to do.
const PATIENCE: Duration = Duration::from_secs(10);
/// The device has nothing to do when none of its requests ended for so long.
const QUIET: Duration = Duration::from_millis(100);

/// What discarding all free space has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrimReport {
    /// Bytes that are free.
    pub free_bytes: u64,
    /// Those of them that were discarded: what lies in pieces of less than 64 KiB is not.
    pub discarded_bytes: u64,
    /// What the device said when it refused to go on.
    pub refused: Option<DiskError>,
}

impl BlockStore {
    /// From now on what is freed is discarded, or not.
    pub(crate) fn follow_policy(&mut self, policy: DiscardPolicy) {
        let info = self.disk.info();
        let is_wanted = policy.covers(info.is_file);
        let was_wanted = std::mem::replace(&mut self.discards.policy, policy).covers(info.is_file);
        if is_wanted == was_wanted {
            return;
        }
        // What is less than the device drops at once would have to be discarded again with what is around it.
        let at_once = info.discard_bytes.div_ceil(BLOCK as u64).min(UNIT_BLOCKS_MAX);
        let unit_blocks = u64::from(self.options.discard_unit_blocks).max(at_once.next_power_of_two());
        self.discards.unit_blocks = unit_blocks;
        self.discards.refused = None;
        self.discards.marks = is_wanted.then(|| Marks::new(self.superblock.data, unit_blocks));
    }

    /// Begins to discard what is marked, if it is time for that.
    pub(crate) fn trim(&mut self) {
        if self.options.planted == Planted::EarlyDiscard {
            return self.discard_early();
        }
        if self.failed.is_some()
            || self.discards.in_flight > 0
            || self.discards.marked() == 0
            || !self.may_trim()
        {
            return;
        }
        let runs = self.discardable();
        let blocks: u64 = runs.iter().map(|run| run.count).sum();
        self.discards.rate.begun(runs.len() as u64, blocks * BLOCK as u64);
        let is_held = self.options.planted != Planted::UnheldDiscard;
        for run in runs {
            if is_held {
                self.table.space.alloc.hold(run);
            }
            self.start_discard(run, is_held);
            self.discards.in_flight += 1;
        }
        self.discards.began = self.shares.now().unwrap_or_default();
        self.start_queued();
    }

    /// The planted mistake: what waits for a checkpoint is discarded.
    fn discard_early(&mut self) {
        let last = self.table.space.alloc.unreferenced().take_while(|(_, why)| *why != "free");
        let runs: Vec<Run> = last.map(|(run, _)| run).collect();
        for run in runs.into_iter().rev().take(1) {
            self.start_discard(run, false);
            self.discards.in_flight += 1;
        }
        self.start_queued();
    }

    /// Whether nobody else wants anything of the device, and it has rested.
    fn may_trim(&mut self) -> bool {
        if !self.options.discards_yield {
            return true;
        }
        let is_free = self.io.is_empty() && self.checkpoint.is_none() && self.wal.collecting_bytes() == 0;
        let Some(now) = self.shares.now() else { return is_free };
        let is_quiet = self.is_quiet(now);
        // Clients who always have something at the device would keep it from being trimmed when it needs it most.
        let may = is_free || now.since(self.discards.began) >= PATIENCE;
        may && self.discards.rate.may_begin(now, is_quiet)
    }

    fn is_quiet(&self, now: Stamp) -> bool {
        DeviceWork::ALL.into_iter().all(|work| now.since(self.latencies.last(work)) >= QUIET)
    }

    /// How many requests, and of how many blocks together, may be begun.
    fn batch_max(&self) -> (usize, u64) {
        let alloc = &self.table.space.alloc;
        let unpromised = alloc.free_count().saturating_sub(self.promised_blocks() + self.reserve_blocks());
        let of_area = alloc.blocks() / AREA_DIVISOR;
        let unit = self.discards.unit_blocks;
        let part = (unpromised / FREE_DIVISOR).min(of_area.max(unit));
        let (mut requests, mut bytes) = (self.options.discards_max, self.options.discard_bytes_max);
        if self.shares.now().is_some() {
            (requests, bytes) = self.discards.rate.batch(requests, bytes);
        }
        (requests, part.min((bytes / BLOCK as u64).max(unit)))
    }

    /// The next runs that are free, in order; their marks go, and those of what is in use.
    fn discardable(&mut self) -> Vec<Run> {
        let (requests_max, mut left) = self.batch_max();
        let unit = self.discards.unit_blocks;
        let free = self.table.space.alloc.free();
        let mut runs: Vec<Run> = Vec::new();
        let Some(marks) = &mut self.discards.marks else { return runs };
        for _ in 0..LOOKS_MAX {
            let Some(nth) = marks.next().filter(|_| left >= unit) else { break };
            let run = Run { start: nth * unit, count: unit };
            let follows = runs.last().is_some_and(|last| last.end() == run.start);
            if !follows && runs.len() >= requests_max {
                break;
            }
            marks.clear(nth);
            if !free.is_all_free(run) {
                // What is used there marks it again when it is freed.
                continue;
            }
            left -= unit;
            match runs.last_mut() {
                Some(last) if follows => last.count += unit,
                _ => runs.push(run),
            }
        }
        runs
    }

    /// The device has discarded a run, or would not.
    pub(crate) fn discarded(&mut self, run: Run, is_held: bool, result: Result<(), DiskError>) {
        self.discards.in_flight -= 1;
        if is_held {
            self.table.space.alloc.give_back(run);
        }
        match result {
            Ok(()) => {
                self.discards.totals.count += 1;
                self.discards.totals.bytes += run.count * BLOCK as u64;
            }
            Err(error) if self.discards.refused.is_none() => {
                tracing::warn!(%error, "the device does not discard: freed space is not trimmed");
                (self.discards.refused, self.discards.marks) = (Some(error), None);
            }
            Err(_as_before) => (),
        }
        let Some(now) = self.shares.now().filter(|_| self.discards.in_flight == 0) else { return };
        let took = now.since(self.discards.began);
        self.discards.totals.spent_ns += now.nanos_since(self.discards.began);
        let is_quiet = self.is_quiet(now);
        self.discards.rate.ended(now, took, is_quiet);
    }

    /// Waits until nothing is being discarded, and all that is free can be had.
    pub(crate) fn end_discards(&mut self) {
        while self.discards.in_flight > 0 && self.failed.is_none() {
            self.poll_devices();
            self.start_queued();
            if self.discards.in_flight > 0 {
                self.disk.wait();
            }
        }
    }

    /// Makes a checkpoint, then discards all that is free, whatever is told of it otherwise. For tools.
    ///
    /// # Errors
    /// [`StoreError::Failed`] when the device or the metadata failed. A device that does not discard is no failure: see
    /// [`TrimReport::refused`].
    pub fn trim_free_space(&mut self) -> Result<TrimReport, StoreError> {
        self.checkpoint_now()?;
        let before = self.discards.totals.bytes;
        // Nobody else is about.
        self.options.discards_yield = false;
        self.follow_policy(DiscardPolicy::DevicesAndFiles);
        let all = self.table.space.alloc.area();
        self.discards.freed(all);
        while self.discards.marked() > 0 {
            let marked = self.discards.marked();
            self.trim();
            self.end_discards();
            // So full that nothing may be held.
            if self.discards.marked() == marked {
                break;
            }
        }
        if let Some(reason) = &self.failed {
            return Err(StoreError::Failed { reason: reason.clone() });
        }
        Ok(TrimReport {
            free_bytes: self.counters().free.bytes,
            discarded_bytes: self.discards.totals.bytes - before,
            refused: self.discards.refused,
        })
    }
}
