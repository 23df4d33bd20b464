//! [`Cache`]: clean content of device blocks, by runs as they were read, within a byte limit; and what is being written.
//!
//! What a read brings is young, and the first to go when room is wanted: a scan of everything leaves what is read again and again
//! where it is, and takes the same few buffers over and over. A buffer that is read once more while it is here, or soon after it
//! went, stays with the others until the hand of a clock finds it unused twice (Yang et al., FIFO queues are all you need for cache
//! eviction, SOSP 2023).
//!
//! ```text
//!   read --> young ----- read again -------> clock, evicted when unused for a round
//!              | \                             ^
//!              |  '-- evicted --> ghost -- read again
//!           room wanted
//! ```
//!
//! What goes straight to the reader is young as well while there is room, and a ghost at once when something would have to go for
//! it ([`Cache::passed`]): a scan moves nothing then.

mod ghosts;

use crate::BLOCK;
use crate::device::Run;
use ghosts::Ghosts;
use nacre_buf::{AlignedBuf, Bytes};
use slab::Slab;
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
    Fetch(usize),
    /// The checkpoint reads what shows between written pieces.
    Checkpoint,
}

/// Young buffers take at least so much when room is wanted: memory that a processor's cache holds.
const YOUNG_BYTES_MAX: usize = 8 << 20;
/// A part of a buffer.
#[derive(Clone, Debug)]
struct Entry {
    bytes: Bytes,
    /// Which buffer it keeps alive: its key.
    buffer: usize,
    /// Set by a read, cleared by the hand of the clock.
    used: Cell<bool>,
    /// The turn in which it was read for somebody, whose use of it does not count.
    fresh_in: Option<u64>,
}

/// What came as one run: it takes its memory until the last of its blocks is forgotten.
#[derive(Debug)]
struct Buffer {
    /// In the order of insertion, never used again.
    number: u64,
    /// The blocks it came with.
    run: Run,
    /// The first block that it showed, by which it is unpinned.
    first: u64,
    /// Bytes of it that entries still show.
    shown: usize,
    pin: Pin,
    /// Among those that go first.
    is_young: bool,
    /// The turn in which it came; not evicted in that one, so that the reader that asked for it finds it.
    turn: u64,
}

impl Buffer {
    const fn bytes(&self) -> usize {
        AlignedBuf::memory_bytes(self.run.count as usize * BLOCK)
    }

    /// Most of its memory holds what was forgotten.
    const fn is_sparse(&self) -> bool {
        self.shown * 2 < self.bytes()
    }
}

/// Content by first block, never overlapping.
///
/// Forgetting a block cuts the entry that has it in two, which share the buffer: to copy what is left of a write of 4 MiB
/// for each block of it that is overwritten would cost far more than the overwriting itself. So a buffer counts with all
/// of its memory and is evicted as a whole, until less than half of it shows: then what does is copied, once.
#[derive(Debug)]
pub(crate) struct Cache {
    entries: BTreeMap<u64, Entry>,
    buffers: Slab<Buffer>,
    /// The clock: keys and numbers of buffers; some may be gone, and their keys others'.
    clock: VecDeque<(usize, u64)>,
    /// The young ones, in the order in which they came, likewise.
    young: VecDeque<(usize, u64)>,
    ghosts: Ghosts,
    next_buffer: u64,
    /// Of all buffers.
    bytes: usize,
    bytes_max: usize,
    /// Of those that are young.
    young_bytes: usize,
    turn: u64,
}

impl Cache {
    /// Memory that the cache keeps alive.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            buffers: Slab::new(),
            clock: VecDeque::new(),
            young: VecDeque::new(),
            ghosts: Ghosts::new(),
            next_buffer: 0,
            bytes: 0,
            bytes_max,
            young_bytes: 0,
            turn: 0,
        }
    }

    /// Content of one block: the run that has it and the block's byte in the run.
    pub(crate) fn find(&self, block: u64) -> Option<(&Bytes, usize)> {
        let (entry, at) = self.entry_of(block)?;
        if entry.fresh_in != Some(self.turn) {
            entry.used.set(true);
        }
        Some((&entry.bytes, at))
    }

    /// Whether content of the block is here; that does not count as a read.
    pub(crate) fn holds(&self, block: u64) -> bool {
        self.entry_of(block).is_some()
    }

    /// Whether the block's write is in flight.
    pub(crate) fn is_being_written(&self, block: u64) -> bool {
        self.pin_of(block) == Some(Pin::Write)
    }

    fn pin_of(&self, block: u64) -> Option<Pin> {
        let (entry, _) = self.entry_of(block)?;
        self.buffers.get(entry.buffer).map(|buffer| buffer.pin)
    }

    /// Forgets a block, unless it must stay for a write or the checkpoint: false then.
    pub(crate) fn forget_clean(&mut self, block: u64) -> bool {
        if matches!(self.pin_of(block), Some(Pin::Write | Pin::Checkpoint)) {
            return false;
        }
        self.forget(Run { start: block, count: 1 });
        true
    }

    /// The entry that has a block, and the block's byte in it.
    fn entry_of(&self, block: u64) -> Option<(&Entry, usize)> {
        let (first, entry) = self.entries.range(..=block).next_back()?;
        let at = (block - first) as usize * BLOCK;
        (at < entry.bytes.len()).then_some((entry, at))
    }

    /// Content of one block by itself.
    pub(crate) fn block(&self, block: u64) -> Option<Bytes> {
        self.find(block).map(|(bytes, at)| bytes.slice(at..at + BLOCK))
    }

    /// Takes the content of the run at `first`; older content of its blocks is forgotten.
    pub(crate) fn insert(&mut self, first: u64, bytes: Bytes, pin: Pin) {
        let count = (bytes.len() / BLOCK) as u64;
        let run = Run { start: first, count };
        self.forget(run);
        if count == 0 {
            // An entry without blocks would hide one that begins before it.
            return;
        }
        self.insert_parts(run, &bytes, &[run], pin);
    }

    /// Takes those `parts` of the run's content, ascending and one at least, that nothing overlaps here yet. The memory of
    /// all of it stays as long as one of them does. It is unpinned by the first block of the first part.
    pub(crate) fn insert_parts(&mut self, run: Run, bytes: &Bytes, parts: &[Run], pin: Pin) {
        let is_read = matches!(pin, Pin::Fetch(_) | Pin::Checkpoint);
        let is_young = is_read && !self.ghosts.take(run.start);
        self.take_parts(run, bytes, parts, pin, is_young);
    }

    fn take_parts(&mut self, run: Run, bytes: &Bytes, parts: &[Run], pin: Pin, is_young: bool) {
        let Some(Run { start: first, .. }) = parts.first().copied() else { return };
        let shown = parts.iter().map(|part| part.count as usize * BLOCK).sum();
        // The reader that asked for it looks for it here, which is no use of it.
        let fresh_in = matches!(pin, Pin::Fetch(_) | Pin::Checkpoint).then_some(self.turn);
        let key = self.keep((run, first, shown), pin, self.turn, is_young);
        for part in parts {
            let (from, to) = ((part.start - run.start) as usize, (part.end() - run.start) as usize);
            let bytes = bytes.slice(from * BLOCK..to * BLOCK);
            let used = Cell::new(false);
            self.entries.insert(part.start, Entry { bytes, buffer: key, used, fresh_in });
        }
        self.evict();
    }

    /// A run was read for a reader that does not look for it here. It stays while there is room; without, only if it went by before, and
    /// not long ago: what is read once in a long time makes nothing go, and the buffers of such reads are the same few all the time.
    pub(crate) fn passed(&mut self, run: Run, bytes: &Bytes) {
        let is_young = !self.ghosts.take(run.start);
        let wanted = AlignedBuf::memory_bytes(run.count as usize * BLOCK);
        if is_young && self.bytes + wanted > self.bytes_max {
            return self.ghosts.add(run.start, self.bytes_max);
        }
        // Another read may have brought some of it meanwhile.
        if run.blocks().all(|block| !self.holds(block)) {
            self.take_parts(run, bytes, &[run], Pin::None, is_young);
        }
    }

    /// The run at `first` need not stay any more for this reason; it does until the end of the turn.
    pub(crate) fn unpin(&mut self, first: u64, pin: Pin) {
        let turn = self.turn;
        let buffer = self.entries.get(&first).and_then(|entry| self.buffers.get_mut(entry.buffer));
        if let Some(buffer) = buffer.filter(|buffer| buffer.first == first && buffer.pin == pin) {
            (buffer.pin, buffer.turn) = (Pin::None, turn);
        }
    }

    /// A write that is under way to `placed` takes the place of what is in `left`: if somebody has read that, it is kept.
    pub(crate) fn replaced(&mut self, left: u64, placed: u64) {
        let Some((entry, _)) = self.entry_of(left) else { return };
        let Some(pin) = self.buffers.get(entry.buffer).map(|buffer| buffer.pin) else { return };
        if pin == Pin::Write && !entry.used.get() {
            return;
        }
        if pin == Pin::Write && entry.bytes.len() == BLOCK {
            entry.used.set(false);
        }
        self.find(placed);
        // What somebody waits for stays until the clock comes by.
        if pin == Pin::None {
            self.forget(Run { start: left, count: 1 });
        }
    }

    /// The run at `first` is written. What is only written is not kept: most of it lies on copies that nobody reads from.
    pub(crate) fn written(&mut self, first: u64) {
        let Some(key) = self.entries.get(&first).map(|entry| entry.buffer) else { return };
        let Some(buffer) = self.buffers.get(key).filter(|buffer| buffer.pin == Pin::Write) else {
            return;
        };
        if self.entries_of(key, buffer.run).any(|(_, entry)| entry.used.get()) {
            self.unpin(first, Pin::Write);
            // Its memory is a message's, with what else was in that.
            self.copy_out(key);
        } else {
            self.drop_buffer(key);
        }
    }

    /// The entries of a buffer.
    fn entries_of(&self, key: usize, run: Run) -> impl Iterator<Item = (&u64, &Entry)> {
        self.entries.range(run.blocks()).filter(move |(_, entry)| entry.buffer == key)
    }

    /// Forgets what overlaps `run`.
    pub(crate) fn forget(&mut self, run: Run) {
        let mut cut = Vec::new();
        if let Some((first, entry)) = self.entries.range(..run.start).next_back()
            && entry.bytes.len() > (run.start - first) as usize * BLOCK
        {
            let (first, buffer) = (*first, entry.buffer);
            self.cut(first, run);
            cut.push(buffer);
        }
        while let Some((first, entry)) = self.entries.range(run.blocks()).next() {
            let (first, buffer) = (*first, entry.buffer);
            self.cut(first, run);
            if cut.last() != Some(&buffer) {
                cut.push(buffer);
            }
        }
        cut.into_iter().for_each(|key| self.shrink(key));
    }

    /// Gives the entries of a sparse buffer memory of their own.
    fn shrink(&mut self, key: usize) {
        if self.buffers.get(key).is_some_and(Buffer::is_sparse) {
            self.copy_out(key);
        }
    }

    /// Gives the entries of a buffer memory of their own.
    fn copy_out(&mut self, key: usize) {
        let Some(buffer) = self.buffers.get(key) else { return };
        let (turn, is_young) = (buffer.turn, buffer.is_young);
        let firsts: Vec<u64> = self.entries_of(key, buffer.run).map(|(first, _)| *first).collect();
        self.remove_buffer(key);
        for first in firsts {
            let Some(entry) = self.entries.get(&first) else { continue };
            let mut copy = AlignedBuf::with_len(entry.bytes.len());
            copy.copy_from_slice(&entry.bytes);
            let run = Run { start: first, count: (copy.len() / BLOCK) as u64 };
            let key = self.keep((run, first, copy.len()), Pin::None, turn, is_young);
            let Some(entry) = self.entries.get_mut(&first) else { continue };
            (entry.bytes, entry.buffer) = (copy.freeze(), key);
        }
    }

    /// Takes note of a buffer, of whose run so many bytes show from the block `first` on; gives its key.
    fn keep(&mut self, (run, first, shown): (Run, u64, usize), pin: Pin, turn: u64, is_young: bool) -> usize {
        let number = self.next_buffer;
        self.next_buffer += 1;
        let buffer = Buffer { number, run, first, shown, pin, is_young, turn };
        self.bytes += buffer.bytes();
        self.young_bytes += if is_young { buffer.bytes() } else { 0 };
        let key = self.buffers.insert(buffer);
        if is_young {
            self.young.push_back((key, number))
        } else {
            self.clock.push_back((key, number))
        }
        key
    }

    /// Takes no more note of it.
    fn remove_buffer(&mut self, key: usize) -> Option<Buffer> {
        let buffer = self.buffers.try_remove(key)?;
        self.bytes -= buffer.bytes();
        self.young_bytes -= if buffer.is_young { buffer.bytes() } else { 0 };
        Some(buffer)
    }

    /// Takes the blocks of `run` out of the entry at `first`, which overlaps it.
    fn cut(&mut self, first: u64, run: Run) {
        let Some(entry) = self.entries.remove(&first) else { return };
        let bytes_to = |block: u64| block.saturating_sub(first) as usize * BLOCK;
        let length = entry.bytes.len();
        let (from, to) = (bytes_to(run.start), bytes_to(run.end()).min(length));
        // Neither part may be empty: it would hide an entry that begins before it.
        if from > 0 {
            self.entries.insert(first, Entry { bytes: entry.bytes.slice(..from), ..entry.clone() });
        }
        if to < length {
            self.entries.insert(run.end(), Entry { bytes: entry.bytes.slice(to..), ..entry });
        }
        let Some(buffer) = self.buffers.get_mut(entry.buffer) else { return };
        debug_assert!(buffer.pin != Pin::Write, "block {first} is written and given to somebody else");
        buffer.shown -= to - from;
        // It is unpinned by its first block, which may be the one that is gone.
        (buffer.pin, buffer.turn) = (Pin::None, self.turn);
        if buffer.shown == 0 {
            self.remove_buffer(entry.buffer);
        }
    }

    /// A new turn, with so much memory from now on: what came in earlier ones may be evicted.
    pub(crate) fn next_turn(&mut self, bytes_max: usize) {
        self.turn += 1;
        self.bytes_max = bytes_max;
        self.evict();
    }

    fn evict(&mut self) {
        self.evict_young(YOUNG_BYTES_MAX.min(self.bytes_max / 8));
        let mut steps = 2 * self.clock.len();
        while self.bytes > self.bytes_max && steps > 0 {
            steps -= 1;
            let Some((key, number)) = self.clock.pop_front() else { break };
            let Some(buffer) = self.buffers.get(key).filter(|buffer| buffer.number == number) else {
                continue;
            };
            if self.must_stay(buffer) || self.is_kept_once_more(key, buffer) {
                self.clock.push_back((key, number));
            } else {
                self.drop_buffer(key);
            }
        }
        self.evict_young(0);
        // Buffers that were forgotten leave their numbers behind.
        if self.clock.len() + self.young.len() > 2 * self.buffers.len() + 64 {
            let is_there = |key, number| self.buffers.get(key).is_some_and(|buffer| buffer.number == number);
            self.clock.retain(|(key, number)| is_there(*key, *number));
            self.young.retain(|(key, number)| is_there(*key, *number));
        }
    }

    /// Makes room of young buffers, until `left` bytes of them are left.
    fn evict_young(&mut self, left: usize) {
        let mut steps = self.young.len();
        while self.bytes > self.bytes_max && self.young_bytes > left && steps > 0 {
            steps -= 1;
            let Some((key, number)) = self.young.pop_front() else { return };
            let Some(buffer) = self.buffers.get(key).filter(|buffer| buffer.number == number) else {
                continue;
            };
            let start = buffer.run.start;
            if self.must_stay(buffer) {
                self.young.push_back((key, number));
            } else if self.is_kept_once_more(key, buffer) {
                self.grow_old(key, number);
            } else {
                self.drop_buffer(key);
                self.ghosts.add(start, self.bytes_max);
            }
        }
    }

    fn grow_old(&mut self, key: usize, number: u64) {
        let Some(buffer) = self.buffers.get_mut(key) else { return };
        buffer.is_young = false;
        self.young_bytes -= buffer.bytes();
        self.clock.push_back((key, number));
    }

    /// Somebody needs it, or has just come by it.
    fn must_stay(&self, buffer: &Buffer) -> bool {
        buffer.pin != Pin::None || buffer.turn == self.turn
    }

    /// Whether a buffer was read since the clock's hand last came by. A sparse one goes even then: its few blocks are better
    /// read again, into memory of their size.
    fn is_kept_once_more(&self, key: usize, buffer: &Buffer) -> bool {
        if buffer.run.count == 1 {
            return self.entries.get(&buffer.first).is_some_and(|entry| entry.used.replace(false));
        }
        let entries = self.entries_of(key, buffer.run);
        let used = entries.fold(false, |used, (_, entry)| entry.used.replace(false) || used);
        used && !buffer.is_sparse()
    }

    fn drop_buffer(&mut self, key: usize) {
        let Some(buffer) = self.remove_buffer(key) else { return };
        if buffer.run.count == 1 {
            self.entries.remove(&buffer.first);
            return;
        }
        let firsts: Vec<u64> = self.entries_of(key, buffer.run).map(|(first, _)| *first).collect();
        firsts.iter().for_each(|first| drop(self.entries.remove(first)));
    }
}

#[cfg(test)]
mod tests;
