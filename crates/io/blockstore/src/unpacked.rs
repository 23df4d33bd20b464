//! [`Unpacked`]: what blobs hold, decompressed, for those who are about to read it or did so lately; within a byte limit.

use crate::blob::Blob;
use crate::device::Run;
use nacre_buf::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Blobs decompressed in one turn at most, of some 100 us each.
pub(crate) const UNPACKED_PER_TURN: usize = 4;

#[derive(Debug)]
struct Entry {
    blob: Arc<Blob>,
    bytes: Bytes,
    /// In the order of insertion, never used again.
    number: u64,
    /// The turn in which it came or was unpinned. It stays for the next one as well: a fetch that found all it needs between two turns is
    /// told so in that.
    turn: u64,
    /// Fetches that wait for more.
    pins: u32,
}

impl Entry {
    /// Metadata that contradict each other may have several blobs with one first block.
    fn is_of(&self, blob: &Blob) -> bool {
        std::ptr::eq(self.blob.as_ref(), blob) || *self.blob == *blob
    }
}

/// See the module. By the first block of the blob on the device.
#[derive(Debug, Default)]
pub(crate) struct Unpacked {
    entries: BTreeMap<u64, Entry>,
    /// The oldest first; some may be gone.
    order: VecDeque<(u64, u64)>,
    next_number: u64,
    bytes: usize,
    turn: u64,
}

impl Unpacked {
    /// Memory that it keeps alive.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&self, blob: &Blob) -> Option<&Bytes> {
        self.entries.get(&blob.first()).filter(|entry| entry.is_of(blob)).map(|entry| &entry.bytes)
    }

    /// Takes what a blob holds, pinned once.
    pub(crate) fn insert(&mut self, blob: &Arc<Blob>, bytes: Bytes) {
        let (number, first) = (self.next_number, blob.first());
        self.next_number += 1;
        self.bytes += bytes.len();
        let entry = Entry { blob: Arc::clone(blob), bytes, number, turn: self.turn, pins: 1 };
        if let Some(old) = self.entries.insert(first, entry) {
            self.bytes -= old.bytes.len();
        }
        self.order.push_back((first, number));
    }

    /// It stays until it is unpinned as often. False when it is not here.
    pub(crate) fn pin(&mut self, blob: &Blob) -> bool {
        let entry = self.entries.get_mut(&blob.first()).filter(|entry| entry.is_of(blob));
        entry.map(|entry| entry.pins += 1).is_some()
    }

    pub(crate) fn unpin(&mut self, first: u64) {
        if let Some(entry) = self.entries.get_mut(&first) {
            entry.pins = entry.pins.saturating_sub(1);
            entry.turn = self.turn;
        }
    }

    /// What began in this run is free, and may be another blob's soon.
    pub(crate) fn forget(&mut self, run: Run) {
        while let Some((first, _)) = self.entries.range(run.blocks()).next() {
            let first = *first;
            self.remove(first);
        }
    }

    /// The device has something else in this block than it should.
    pub(crate) fn forget_damaged(&mut self, block: u64) {
        let has = |entry: &Entry| entry.blob.stored().iter().any(|device| device.block == block);
        let damaged = self.entries.iter().find(|(_, entry)| has(entry)).map(|(first, _)| *first);
        damaged.into_iter().for_each(|first| self.remove(first));
    }

    fn remove(&mut self, first: u64) {
        if let Some(entry) = self.entries.remove(&first) {
            self.bytes -= entry.bytes.len();
        }
    }

    /// A new turn: what came in earlier ones goes, the oldest first, until there is no more than this.
    pub(crate) fn next_turn(&mut self, bytes_max: usize) {
        self.turn += 1;
        let mut steps = self.order.len();
        while steps > 0
            && (self.bytes > bytes_max || self.order.len() > 2 * self.entries.len() + 64)
            && let Some((first, number)) = self.order.pop_front()
        {
            steps -= 1;
            let Some(entry) = self.entries.get(&first).filter(|entry| entry.number == number) else {
                continue;
            };
            let is_new = entry.turn + 1 >= self.turn;
            if entry.pins > 0 || is_new || self.bytes <= bytes_max {
                self.order.push_back((first, number));
            } else {
                self.remove(first);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BLOCK;
    use crate::device::DeviceBlock;
    use nacre_types::CompressionAlgorithm;

    fn blob(first: u64) -> Arc<Blob> {
        let stored = (first..first + 2).map(|block| DeviceBlock { block, crc: 0 }).collect();
        Arc::new(Blob::new((1, CompressionAlgorithm::Lz4), 3, 8000, stored).expect("a blob"))
    }

    fn holding(firsts: &[u64]) -> Unpacked {
        let mut unpacked = Unpacked::default();
        firsts.iter().for_each(|first| unpacked.insert(&blob(*first), vec![1; 3 * BLOCK].into()));
        unpacked
    }

    #[test]
    fn what_is_pinned_stays_and_the_oldest_goes_first() {
        let mut unpacked = holding(&[10, 20, 30]);
        assert!(unpacked.pin(&blob(10)) && !unpacked.pin(&blob(40)));
        [10, 20, 30].into_iter().for_each(|first| unpacked.unpin(first));
        unpacked.next_turn(0);
        assert_eq!(unpacked.bytes(), 9 * BLOCK, "somebody is told in this turn that it is here");
        unpacked.next_turn(6 * BLOCK);
        let here = [10, 20, 30].map(|first| unpacked.get(&blob(first)).is_some());
        assert_eq!((here, unpacked.bytes()), ([true, false, true], 6 * BLOCK));
        unpacked.unpin(10);
        (0..2).for_each(|_| unpacked.next_turn(0));
        assert_eq!((unpacked.bytes(), unpacked.entries.len(), unpacked.order.len()), (0, 0, 0));
    }

    #[test]
    fn free_and_damaged_blocks_are_forgotten() {
        let mut unpacked = holding(&[10, 20, 30]);
        unpacked.forget(Run { start: 11, count: 10 });
        assert!(unpacked.get(&blob(20)).is_none() && unpacked.get(&blob(10)).is_some());
        unpacked.forget_damaged(31);
        unpacked.forget_damaged(12);
        assert!(unpacked.get(&blob(30)).is_none() && unpacked.get(&blob(10)).is_some());
        assert_eq!(unpacked.bytes(), 3 * BLOCK);
    }

    #[test]
    fn another_blob_that_begins_in_the_same_block_has_other_data() {
        let mut unpacked = holding(&[10]);
        let stored = [10, 11, 12].map(|block| DeviceBlock { block, crc: 0 }).to_vec();
        let other = Blob::new((1, CompressionAlgorithm::Lz4), 32.min(crate::PAGE_BLOCKS), 12_000, stored);
        let other = other.expect("a blob");
        assert!(unpacked.get(&other).is_none() && !unpacked.pin(&other));
        assert!(unpacked.get(&blob(10)).is_some());
    }

    #[test]
    fn numbers_of_what_is_gone_do_not_pile_up() {
        let mut unpacked = Unpacked::default();
        for _ in 0..1000 {
            unpacked.insert(&blob(10), vec![1; 3 * BLOCK].into());
            unpacked.next_turn(usize::MAX);
        }
        assert!(unpacked.order.len() < 100 && unpacked.bytes() == 3 * BLOCK);
    }
}
