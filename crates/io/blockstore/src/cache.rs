//! [`Cache`]: clean content of device blocks, by runs as they were read or written, within a byte limit.

use crate::BLOCK;
use crate::alloc::Run;
use nacre_buf::Bytes;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};

/// Why a run must stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pin {
    /// It may go.
    None,
    /// Its write is in flight: the device does not have it yet.
    Write,
    /// This fetch is not complete yet.
    Fetch(u64),
    /// The checkpoint reads what shows between written pieces.
    Checkpoint,
}

#[derive(Debug)]
struct Entry {
    bytes: Bytes,
    /// Length of the buffer that `bytes` keeps alive.
    backing_bytes: usize,
    /// Set by a read, cleared by the hand of the clock.
    used: Cell<bool>,
    pin: Pin,
    /// The turn in which it came; not evicted in that one, so that who asked for it finds it.
    turn: u64,
}

/// Runs by first block, never overlapping.
#[derive(Debug)]
pub(crate) struct Cache {
    entries: BTreeMap<u32, Entry>,
    /// The clock: first blocks in order of insertion; some may be gone.
    clock: VecDeque<u32>,
    bytes: usize,
    bytes_max: usize,
    turn: u64,
}

impl Cache {
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { entries: BTreeMap::new(), clock: VecDeque::new(), bytes: 0, bytes_max, turn: 0 }
    }

    /// Content of one block: the run that has it and the block's byte in the run.
    pub(crate) fn find(&self, block: u32) -> Option<(&Bytes, usize)> {
        let (first, entry) = self.entries.range(..=block).next_back()?;
        let at = (block - first) as usize * BLOCK;
        (at < entry.bytes.len()).then(|| {
            entry.used.set(true);
            (&entry.bytes, at)
        })
    }

    /// Content of one block by itself.
    pub(crate) fn block(&self, block: u32) -> Option<Bytes> {
        self.find(block).map(|(bytes, at)| bytes.slice(at..at + BLOCK))
    }

    /// Takes the content of the run at `first`; older content of its blocks is forgotten.
    pub(crate) fn insert(&mut self, first: u32, bytes: Bytes, pin: Pin) {
        let count = u32::try_from(bytes.len() / BLOCK).expect("runs are far below 2^32 blocks");
        self.forget(Run { start: first, count });
        let backing_bytes = bytes.len();
        self.put(first, bytes, backing_bytes, pin);
        self.evict();
    }

    fn put(&mut self, first: u32, bytes: Bytes, backing_bytes: usize, pin: Pin) {
        self.bytes += bytes.len();
        self.entries
            .insert(first, Entry { bytes, backing_bytes, used: Cell::new(false), pin, turn: self.turn });
        self.clock.push_back(first);
    }

    /// Puts back what is left of a run.
    fn put_back(&mut self, first: u32, bytes: Bytes, backing_bytes: usize) {
        if bytes.is_empty() {
            // An entry without blocks would hide one that begins before it.
            return;
        }
        // A small rest must not keep a large buffer alive.
        if bytes.len() * 2 < backing_bytes {
            self.put(first, Bytes::copy_from_slice(&bytes), bytes.len(), Pin::None);
        } else {
            self.put(first, bytes, backing_bytes, Pin::None);
        }
    }

    /// The run at `first` need not stay any more for this reason; it does until the end of the turn.
    pub(crate) fn unpin(&mut self, first: u32, pin: Pin) {
        let turn = self.turn;
        if let Some(entry) = self.entries.get_mut(&first).filter(|entry| entry.pin == pin) {
            (entry.pin, entry.turn) = (Pin::None, turn);
        }
    }

    /// Forgets what overlaps `run`.
    pub(crate) fn forget(&mut self, run: Run) {
        let before = self.entries.range(..run.start).next_back().map(|(first, _)| *first);
        let inside = self.entries.range(run.blocks()).map(|(first, _)| *first);
        let candidates: Vec<u32> = before.into_iter().chain(inside).collect();
        for first in candidates {
            let bytes_to = |block: u32| block.saturating_sub(first) as usize * BLOCK;
            let reaches = |entry: &Entry| entry.bytes.len() > bytes_to(run.start);
            if !self.entries.get(&first).is_some_and(reaches) {
                continue;
            }
            let Some(Entry { bytes, backing_bytes, pin, .. }) = self.remove(first) else { continue };
            debug_assert!(pin != Pin::Write, "block {first} is written and given to somebody else");
            self.put_back(first, bytes.slice(..bytes_to(run.start)), backing_bytes);
            if bytes.len() > bytes_to(run.end()) {
                self.put_back(run.end(), bytes.slice(bytes_to(run.end())..), backing_bytes);
            }
        }
    }

    fn remove(&mut self, first: u32) -> Option<Entry> {
        let entry = self.entries.remove(&first)?;
        self.bytes -= entry.bytes.len();
        Some(entry)
    }

    /// A new turn: what came in earlier ones may be evicted.
    pub(crate) fn next_turn(&mut self) {
        self.turn += 1;
        self.evict();
    }

    fn evict(&mut self) {
        let mut steps = 2 * self.clock.len();
        while self.bytes > self.bytes_max && steps > 0 {
            steps -= 1;
            let Some(first) = self.clock.pop_front() else { return };
            let Some(entry) = self.entries.get(&first) else { continue };
            if entry.pin != Pin::None || entry.turn == self.turn || entry.used.replace(false) {
                self.clock.push_back(first);
            } else {
                drop(self.remove(first));
            }
        }
        // Runs that were forgotten leave their numbers behind.
        if self.clock.len() > 2 * self.entries.len() + 64 {
            self.clock = self.entries.keys().copied().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(fill: u8, blocks: usize) -> Bytes {
        vec![fill; blocks * BLOCK].into()
    }

    #[test]
    fn newer_content_hides_older() {
        let mut cache = Cache::new(100 * BLOCK);
        cache.insert(4, run(1, 4), Pin::None);
        cache.insert(6, run(2, 1), Pin::None);
        let content: Vec<_> = (3..9).map(|block| cache.block(block).map(|bytes| bytes[0])).collect();
        assert_eq!(content, [None, Some(1), Some(1), Some(2), Some(1), None]);
        assert_eq!(cache.bytes, 4 * BLOCK);
    }

    #[test]
    fn what_was_forgotten_hides_nothing() {
        let mut cache = Cache::new(100 * BLOCK);
        cache.insert(4, run(1, 2), Pin::None);
        cache.forget(Run { start: 4, count: 2 });
        cache.insert(3, run(2, 3), Pin::None);
        assert!((3..6).all(|block| cache.block(block).is_some_and(|bytes| bytes[0] == 2)));
        assert_eq!((cache.entries.len(), cache.bytes), (1, 3 * BLOCK));
    }

    #[test]
    fn the_limit_is_kept_but_for_pinned_and_fresh_runs() {
        let mut cache = Cache::new(2 * BLOCK);
        cache.insert(0, run(0, 1), Pin::Write);
        (1..6).for_each(|block| cache.insert(block, run(1, 1), Pin::None));
        assert_eq!(cache.bytes, 6 * BLOCK);
        cache.next_turn();
        assert_eq!(cache.bytes, 2 * BLOCK);
        assert!(cache.find(0).is_some());
    }
}
