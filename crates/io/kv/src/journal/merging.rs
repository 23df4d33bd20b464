//! Merging a frozen half into the store below: in parts, at the pace of what comes meanwhile.
//!
//! The completion of a commit waits until the frozen half is merged as far, in shares, as the half that is being written was full before
//! it: so the first one of a half does not wait for a merge that has only begun. The last one waits until it is merged as far as the other
//! one is full with it. As long as the merge is well ahead, nobody waits for it, and it leaves the device to others most of the time.

use super::{JournaledKv, Kind, PART_TAG, Under};
use crate::journal::work::Job;
use crate::{COMMITTED, KvCompletion, KvError, KvStore, KvTag};

/// Of [`COMMITTED`], what is done when the journal has a batch whose completion waits for the merge.
pub(super) const APPENDED: u64 = COMMITTED / 4;
/// Of the frozen half. Finer than [`COMMITTED`], since the parts are small.
pub(super) const MERGED: u64 = 1 << 20;

/// A frozen half on its way to the store below.
#[derive(Debug, Default)]
pub(super) struct Merge {
    pub(super) all_bytes: u64,
    pub(super) done_bytes: u64,
    /// What the store below commits now.
    pub(super) part: Option<(u64, bool)>,
}

/// A batch in the journal whose completion waits until so much is merged.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) tag: KvTag,
    pub(super) since: u64,
    pub(super) needed: u64,
}

impl<S: KvStore> JournaledKv<S> {
    pub(super) fn consider_merge(&mut self) {
        if self.merge.is_some() || self.failed.is_some() {
            return;
        }
        if matches!(self.under, Under::Direct(..)) && self.core.view().frozen.is_none() {
            self.freeze();
        }
        if let Some(frozen) = &self.core.view().frozen {
            let all_bytes = frozen.content_bytes();
            self.merge = Some(Merge { all_bytes, ..Merge::default() });
            self.start(Kind::Part, Job::Part);
        }
    }

    pub(super) fn prepared(&mut self, result: Result<(), KvError>) {
        let part = match (result, self.core.take_part()) {
            (Ok(()), Some(part)) => part,
            (Err(error), _) => return self.merge_failed(&error),
            (Ok(()), None) => return self.merge_failed(&KvError::Fenced),
        };
        if let Some(merge) = &mut self.merge {
            merge.part = Some((part.bytes, part.is_last));
            self.below.submit(part.batch, PART_TAG);
        }
    }

    pub(super) fn merged(&mut self, result: Result<(), KvError>) {
        if let Err(error) = result {
            return self.merge_failed(&error);
        }
        let Some(merge) = &mut self.merge else { return };
        let Some((bytes, is_last)) = merge.part.take() else { return };
        merge.done_bytes += bytes;
        if is_last {
            self.start(Kind::Release, Job::Release);
        } else {
            self.start(Kind::Part, Job::Part);
        }
    }

    pub(super) fn released(&mut self, result: Result<(), KvError>) {
        match result {
            Ok(()) => self.merge = None,
            Err(error) => self.merge_failed(&error),
        }
    }

    /// What waits for the merge waits in vain. Batches in the journal are durable nevertheless.
    fn merge_failed(&mut self, error: &KvError) {
        self.fence(error);
        self.merge = None;
    }

    /// Of [`MERGED`].
    pub(super) fn merged_so_far(&self) -> u64 {
        let Some(merge) = &self.merge else {
            return if self.core.view().frozen.is_some() { 0 } else { MERGED };
        };
        let part =
            merge.part.map_or(0, |(bytes, _)| bytes * self.below.progress().min(COMMITTED) / COMMITTED);
        (merge.done_bytes + part).saturating_mul(MERGED) / merge.all_bytes.max(1)
    }

    /// Of [`MERGED`], what so many bytes are of the active half: so much has to be merged while it has these.
    fn share(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(MERGED) / self.core.half_bytes()
    }

    /// Of [`MERGED`], what has to be merged for the batch that came last: as much as the half had before it. If the next one as long has no
    /// room in the half, as much as it has now, so that the next one does not wait for nearly all of the merge.
    pub(super) fn needed(&self) -> u64 {
        let is_last_of_half = self.used_bytes + self.last_bytes > self.core.half_bytes();
        self.share(if is_last_of_half { self.used_bytes } else { self.used_bytes - self.last_bytes })
    }

    /// Of [`COMMITTED`], the part of the append in the batch that is being appended.
    pub(super) fn append_part(&self) -> u64 {
        // It may be the first one of a half.
        let before = if self.core.view().active.is_empty() { 0 } else { self.used_bytes };
        if self.merged_so_far() >= self.share(before) { COMMITTED } else { APPENDED }
    }

    /// Says below whether somebody waits for the merge: now, or if two more batches as long as the last one came, or if the next one has no
    /// room before the merge gives some back, or for the room that the store below has.
    fn pace(&self, merged: u64) {
        let is_idle = matches!(self.under, Under::Nothing | Under::Append(_)) && self.waiting.is_empty();
        let is_ahead = merged >= self.share(self.used_bytes + self.last_bytes);
        let has_room = || self.room().is_none_or(|room| room.available_bytes > self.core.half_bytes());
        let is_unhurried = self.merge.is_some() && !self.is_awaited && is_idle && is_ahead && has_room();
        self.below.set_hurried(!is_unhurried);
    }

    /// Completes batches for which enough is merged; wants to be roused when it is for the next one.
    pub(super) fn let_go(&mut self) {
        let merged = self.merged_so_far();
        let is_over = self.failed.is_some() || (self.merge.is_none() && self.core.view().frozen.is_none());
        while let Some(first) = self.waiting.pop_front_if(|first| is_over || first.needed <= merged) {
            self.ready.push(KvCompletion { tag: first.tag, result: Ok(()) });
        }
        self.arm(merged);
        self.pace(merged);
    }

    /// Has the store below rouse us when the merge is as far as somebody wants it.
    pub(super) fn arm(&self, merged: u64) {
        let (Some(first), Some(merge)) = (self.waiting.front(), &self.merge) else { return };
        let Some((part_bytes, _)) = merge.part else { return };
        let mut wanted = first.needed;
        if self.asked_at.get() <= COMMITTED {
            let behind = self.asked_at.get().saturating_sub(APPENDED);
            let asked =
                first.since + first.needed.saturating_sub(first.since) * behind / (COMMITTED - APPENDED);
            if asked > merged {
                wanted = wanted.min(asked);
            } else {
                self.asked_at.set(u64::MAX);
            }
        }
        let bytes = (wanted.saturating_mul(merge.all_bytes) / MERGED).saturating_sub(merge.done_bytes);
        // One more, since less than one is not counted.
        let progress = bytes * COMMITTED / part_bytes.max(1) + 1;
        if progress <= COMMITTED {
            self.below.wake_at(progress);
        }
    }

    /// Waits until the frozen half is merged.
    pub(super) fn finish_merge(&mut self) {
        self.is_awaited = true;
        self.advance();
        while self.merge.is_some() && self.failed.is_none() {
            self.wait_once();
            self.advance();
        }
        self.is_awaited = false;
    }
}
