//! What a user of the journal and the store below sees: one store.

use super::{IDLE_DIVISOR, JournaledKv, MARKER, SCAN_PAIRS, Under};
use crate::journal::merging::APPENDED;
use crate::journal::view::{Cursor, Reader};
use crate::reader::KvReader;
use crate::{
    COMMITTED, Durability, Follow, KvBatch, KvCompletion, KvError, KvStore, KvTag, Pair, Warmed, check,
};
use bytes::Bytes;
use nacre_env::FileRoom;
use std::ops::Bound;
use std::os::fd::BorrowedFd;

impl<S: KvStore> KvStore for JournaledKv<S> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        match self.core.view().find(key) {
            Some(found) => Ok(found),
            None if key == MARKER => Ok(None),
            None => self.below.get(key),
        }
    }

    fn scan(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, count_max: usize) -> Result<Vec<Pair>, KvError> {
        let mut cursor = Cursor::new(&self.core.view(), start, end, MARKER);
        let mut next = start.map(Bytes::copy_from_slice);
        let mut more = || {
            let from = next.as_ref().map(Bytes::as_ref);
            let pairs = self.below.scan(from, end, count_max.clamp(1, SCAN_PAIRS))?;
            if let Some((last, _)) = pairs.last() {
                next = Bound::Excluded(last.clone());
            }
            Ok(pairs)
        };
        let mut pairs = Vec::new();
        while pairs.len() < count_max
            && let Some(pair) = cursor.next(&mut more)?
        {
            pairs.push(pair);
        }
        Ok(pairs)
    }

    fn reader(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Result<Box<dyn KvReader + Send>, KvError> {
        let cursor = Cursor::new(&self.core.view(), start, end, MARKER);
        Ok(Box::new(Reader { cursor, below: self.below.reader(start, end)? }))
    }

    fn waits_for_device(&self) -> bool {
        self.below.waits_for_device()
    }

    /// Of keys that the journal knows none is read, nor what they lead to.
    fn warm(&mut self, mut keys: Vec<Bytes>, follow: Option<Follow>, tag: KvTag) -> bool {
        let view = self.core.view();
        keys.retain(|key| !view.knows(key));
        drop(view);
        !keys.is_empty() && self.below.warm(keys, follow, tag)
    }

    fn drain_warm(&mut self, out: &mut Vec<Warmed>) {
        let before = out.len();
        self.below.drain_warm(out);
        if out.len() > before {
            // A merge takes a key out of the journal when the store below has committed it, and what that had found before is gone by then.
            let view = self.core.view();
            let read = out.iter_mut().skip(before);
            read.for_each(|warmed| warmed.found.retain(|(key, _)| !view.knows(key)));
        }
    }

    fn commit(&mut self, batch: &KvBatch, durability: Durability) -> Result<(), KvError> {
        check(batch)?;
        self.settle();
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        let outcome = self.commit_now(batch, durability);
        if let Err(error) = &outcome
            && !matches!(error, KvError::Misuse(_))
        {
            self.fence(error);
        }
        self.advance();
        outcome
    }

    fn submit(&mut self, batch: KvBatch, tag: KvTag) {
        self.pending.push_back((tag, batch));
        self.advance();
    }

    fn drain(&mut self, out: &mut Vec<KvCompletion>) {
        self.advance();
        out.append(&mut self.ready);
    }

    fn wait(&mut self) {
        self.advance();
        while self.ready.is_empty()
            && !(self.is_settled() && self.waiting.is_empty())
            && self.wait_for_threads()
        {
            self.wait_once();
            self.advance();
            if self.asked_at.get() <= self.progress() {
                self.asked_at.set(u64::MAX);
                return;
            }
        }
    }

    fn progress(&self) -> u64 {
        match (self.waiting.front(), &self.under) {
            (Some(first), _) => {
                let (done, all) = (
                    self.merged_so_far().saturating_sub(first.since),
                    first.needed.saturating_sub(first.since),
                );
                APPENDED + (COMMITTED - APPENDED) * done.min(all) / all.max(1)
            }
            (None, Under::Append(_)) => self.core.append_so_far() * self.append_part() / COMMITTED,
            (None, Under::Below(_)) => self.below.progress(),
            (None, _) => 0,
        }
    }

    fn wake_at(&self, progress: u64) {
        self.asked_at.set(progress);
        match (self.waiting.front(), &self.under) {
            (Some(_), _) => self.arm(self.merged_so_far()),
            (None, Under::Append(_)) => {
                self.core.rouse_at(progress.saturating_mul(COMMITTED) / self.append_part())
            }
            (None, _) => self.below.wake_at(progress),
        }
    }

    /// What the journal holds is to come into the store below, which is not to grow beyond its room by that.
    fn room(&self) -> Option<FileRoom> {
        let room = self.below.room()?;
        // Pages of the tree are two thirds full.
        let to_come = self.core.view().content_bytes() / 2 * 3;
        let available_bytes = room.available_bytes.saturating_sub(to_come);
        Some(FileRoom { used_bytes: room.used_bytes + to_come, available_bytes, ..room })
    }

    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = self.below.wake_fds();
        fds.push(self.background.wake_fd());
        fds
    }

    fn cached_bytes(&self) -> usize {
        self.below.cached_bytes() + self.journal_bytes()
    }

    fn give_back(&mut self, give_back: fn()) {
        self.background.give_back(give_back);
        self.below.give_back(give_back);
    }

    fn idle_trim(&mut self) -> Result<bool, KvError> {
        self.advance();
        if self.is_settled()
            && self.merge.is_none()
            && self.used_bytes > self.core.half_bytes() / IDLE_DIVISOR
        {
            self.freeze();
            self.advance();
        }
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        // A merge may take minutes on a spindle.
        if !self.is_settled() || self.merge.is_some() {
            return Ok(true);
        }
        self.background.end_threads();
        self.below.idle_trim()
    }
}
