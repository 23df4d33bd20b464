//! [`FreeMapShard`]: how often each block of a part of the data area is referred to, as checkpoints keep it in the KV store, so
//! that opening a store need not look at its objects. Drawn in `docs/formats/blockstore.md`.

use crate::device::Run;
use nacre_buf::Bytes;
use nacre_denc::{DecodeError, Reader, Writer};
use std::collections::BTreeMap;

const VERSION: u8 = 1;
/// Blocks of one shard: 128 MiB of the device, 4 KiB of bits.
pub(crate) const FREE_MAP_SHARD_BLOCKS: u32 = 32_768;
const MAP_BYTES: usize = FREE_MAP_SHARD_BLOCKS as usize / 8;

/// The shard that a block is in.
pub(crate) const fn shard_of(block: u32) -> u32 {
    block / FREE_MAP_SHARD_BLOCKS
}

/// Changes of references, by shard; a run has one entry in each shard that it touches.
#[derive(Debug, Default)]
pub(crate) struct RefChanges {
    shards: BTreeMap<u32, Vec<(Run, i32)>>,
    /// Runs in all of them.
    count: usize,
}

impl RefChanges {
    pub(crate) fn add(&mut self, run: Run, by: i32) {
        let mut left = run;
        while left.count > 0 {
            let shard = shard_of(left.start);
            // Counted from the end of the shard: no overflow in the last one.
            let count = left.count.min(FREE_MAP_SHARD_BLOCKS - left.start % FREE_MAP_SHARD_BLOCKS);
            let changes = self.shards.entry(shard).or_default();
            match changes.last_mut() {
                // A large write takes and releases its blocks one after the other.
                Some((run, same)) if *same == by && run.end() == left.start => run.count += count,
                _ => {
                    changes.push((Run { start: left.start, count }, by));
                    self.count += 1;
                }
            }
            left = Run { start: left.start.wrapping_add(count), count: left.count - count };
        }
    }

    pub(crate) fn pop(&mut self) -> Option<(u32, Vec<(Run, i32)>)> {
        let popped = self.shards.pop_first();
        self.count -= popped.as_ref().map_or(0, |(_, changes)| changes.len());
        popped
    }

    /// Number of runs.
    pub(crate) const fn len(&self) -> usize {
        self.count
    }
}

/// References to the blocks of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FreeMapShard {
    /// A bit for each block that is referred to.
    used: Vec<u8>,
    /// References beyond the first, by block within the shard.
    shared: BTreeMap<u32, u32>,
}

impl Default for FreeMapShard {
    fn default() -> Self {
        Self { used: vec![0; MAP_BYTES], shared: BTreeMap::new() }
    }
}

impl FreeMapShard {
    fn is_used(&self, at: u32) -> bool {
        self.used.get(at as usize / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1)
    }

    fn mark(&mut self, at: u32, used: bool) {
        if let Some(byte) = self.used.get_mut(at as usize / 8) {
            let bit = 1 << (at % 8);
            *byte = if used { *byte | bit } else { *byte & !bit };
        }
    }

    fn set(&mut self, at: u32, references: u32) {
        self.mark(at, references > 0);
        match references.saturating_sub(1) {
            0 => drop(self.shared.remove(&at)),
            extra => drop(self.shared.insert(at, extra)),
        }
    }

    pub(crate) fn references(&self, at: u32) -> u32 {
        let extra = self.shared.get(&at).copied().unwrap_or(0);
        u32::from(self.is_used(at)) + extra
    }

    /// Applies changes of one shard, in any order: only their sums count. Gives a block that would be referred to less than never.
    pub(crate) fn apply(&mut self, changes: &[(Run, i32)]) -> Result<(), u32> {
        let mut sums = vec![0_i32; FREE_MAP_SHARD_BLOCKS as usize];
        let (mut first, mut end) = (sums.len(), 0);
        for (run, by) in changes {
            let at = (run.start % FREE_MAP_SHARD_BLOCKS) as usize;
            let behind = at + run.count as usize;
            (first, end) = (first.min(at), end.max(behind));
            sums.get_mut(at..behind).unwrap_or_default().iter_mut().for_each(|sum| *sum += by);
        }
        let shard = changes.first().map_or(0, |(run, _)| shard_of(run.start) * FREE_MAP_SHARD_BLOCKS);
        for (at, by) in (0..).zip(sums).take(end).skip(first).filter(|(_, by)| *by != 0) {
            let references = self.references(at).checked_add_signed(by).ok_or(shard + at)?;
            self.set(at, references);
        }
        Ok(())
    }

    /// Used blocks as runs, of the shard's number `nth`.
    pub(crate) fn runs(&self, nth: u32) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let first = nth * FREE_MAP_SHARD_BLOCKS; // callers bound `nth`
        for (at, byte) in (0..).step_by(8).zip(&self.used).filter(|(_, byte)| **byte != 0) {
            for block in (at..at + 8).filter(|at| byte >> (at % 8) & 1 == 1).map(|at: u32| first + at) {
                match runs.last_mut() {
                    Some(run) if run.end() == block => run.count += 1,
                    _ => runs.push(Run { start: block, count: 1 }),
                }
            }
        }
        runs
    }

    /// Blocks with more than one reference, and how many more, of the shard's number `nth`.
    pub(crate) fn shared(&self, nth: u32) -> impl Iterator<Item = (u32, u32)> {
        self.shared.iter().map(move |(at, extra)| (nth * FREE_MAP_SHARD_BLOCKS + at, *extra))
    }

    /// `None` when nothing is used.
    pub(crate) fn encode(&self) -> Option<Bytes> {
        if self.used.iter().all(|byte| *byte == 0) {
            return None;
        }
        let mut shared: Vec<(Run, u32)> = Vec::new();
        for (at, extra) in &self.shared {
            match shared.last_mut() {
                Some((run, same)) if run.end() == *at && same == extra => run.count += 1,
                _ => shared.push((Run { start: *at, count: 1 }, *extra)),
            }
        }
        let mut w = Writer::with_capacity(MAP_BYTES + 16);
        w.envelope(VERSION, 1, |w| {
            w.raw(&self.used);
            w.count(shared.len());
            for (run, extra) in shared {
                w.u32(run.start);
                w.u32(run.count);
                w.u32(extra);
            }
        });
        Some(w.finish())
    }

    pub(crate) fn decode(value: Bytes) -> Result<Self, DecodeError> {
        Reader::new(value).envelope("free map", VERSION, |_, r| {
            let used = r.take(MAP_BYTES)?.to_vec();
            let mut shard = Self { used, shared: BTreeMap::new() };
            for _ in 0..r.count(12)? {
                let (start, count, extra) = (r.u32()?, r.u32()?, r.u32()?);
                let end = start.checked_add(count).filter(|end| *end <= FREE_MAP_SHARD_BLOCKS);
                let end = end.ok_or(DecodeError::Invalid { what: "shared blocks", value: start.into() })?;
                shard.shared.extend((start..end).map(|at| (at, extra)));
            }
            Ok(shard)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u32, count: u32) -> Run {
        Run { start, count }
    }

    #[test]
    fn sums_of_changes_are_kept_and_read_back() {
        let mut shard = FreeMapShard::default();
        let changes = [(run(7, 3), 1), (run(8, 1), -1), (run(8, 2), 1), (run(9, 1), 2)];
        assert_eq!(shard.apply(&changes), Ok(()));
        let references: Vec<u32> = (6..11).map(|at| shard.references(at)).collect();
        assert_eq!(references, [0, 1, 1, 4, 0]);
        assert_eq!(shard.apply(&[(run(6, 1), -1)]), Err(6));
        let back = FreeMapShard::decode(shard.encode().expect("something is used")).expect("our own bytes");
        assert_eq!(back, shard);
        assert_eq!(back.runs(2), [run(2 * FREE_MAP_SHARD_BLOCKS + 7, 3)]);
        assert_eq!(back.shared(2).collect::<Vec<_>>(), [(2 * FREE_MAP_SHARD_BLOCKS + 9, 3)]);
        assert_eq!(shard.apply(&[(run(7, 2), -1), (run(9, 1), -4)]), Ok(()));
        assert_eq!(shard.encode(), None);
    }

    #[test]
    fn a_run_over_a_border_is_two() {
        let mut changes = RefChanges::default();
        changes.add(run(FREE_MAP_SHARD_BLOCKS - 1, 2), 1);
        assert_eq!(changes.pop(), Some((0, vec![(run(FREE_MAP_SHARD_BLOCKS - 1, 1), 1)])));
        assert_eq!(changes.pop(), Some((1, vec![(run(FREE_MAP_SHARD_BLOCKS, 1), 1)])));
        assert_eq!(changes.pop(), None);
    }
}
