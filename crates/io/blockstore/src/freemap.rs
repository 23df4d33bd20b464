//! [`FreeMapShard`]: how often each block of a part of the data area is referred to, as checkpoints keep it in the KV store, so
//! that opening a store need not look at its objects. Drawn in `docs/formats/blockstore.md`.

use crate::device::{DEVICE_BLOCKS_MAX, Run};
use crate::shared_blocks::SharedBlocks;
use nacre_buf::Bytes;
use nacre_denc::{DecodeError, Reader, Writer};
use std::collections::BTreeMap;
use std::ops::Range;

const VERSION: u8 = 1;
/// Blocks of one shard: 128 MiB of the device, 4 KiB of bits.
pub(crate) const FREE_MAP_SHARD_BLOCKS: u32 = 32_768;
const MAP_BYTES: usize = FREE_MAP_SHARD_BLOCKS as usize / 8;

/// The shard that a block is in. There are fewer than 2^32, see [`DEVICE_BLOCKS_MAX`].
fn shard_of(block: u64) -> u32 {
    u32::try_from(block / u64::from(FREE_MAP_SHARD_BLOCKS)).expect("no device has so many blocks")
}

const _: () = assert!(DEVICE_BLOCKS_MAX / FREE_MAP_SHARD_BLOCKS as u64 <= u32::MAX as u64);

/// The first block of a shard.
pub(crate) fn first_of(shard: u32) -> u64 {
    u64::from(shard) * u64::from(FREE_MAP_SHARD_BLOCKS)
}

/// So many references more, or less, to each of some blocks of a shard, which are counted from its beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RefChange {
    pub(crate) at: u32,
    pub(crate) count: u32,
    pub(crate) by: i32,
}

/// Changes of references, by shard; a run has one entry in each shard that it touches.
#[derive(Debug, Default)]
pub(crate) struct RefChanges {
    shards: BTreeMap<u32, Vec<RefChange>>,
    /// Runs in all of them.
    count: usize,
}

impl RefChanges {
    pub(crate) fn add(&mut self, run: Run, by: i32) {
        let mut left = run;
        while left.count > 0 {
            let shard = shard_of(left.start);
            let at = (left.start - first_of(shard)) as u32;
            let count = left.count.min((FREE_MAP_SHARD_BLOCKS - at).into()) as u32;
            let changes = self.shards.entry(shard).or_default();
            match changes.last_mut() {
                // A large write takes and releases its blocks one after the other.
                Some(last) if last.by == by && last.at + last.count == at => last.count += count,
                _ => {
                    changes.push(RefChange { at, count, by });
                    self.count += 1;
                }
            }
            left = Run { start: left.start + u64::from(count), count: left.count - u64::from(count) };
        }
    }

    pub(crate) fn pop(&mut self) -> Option<(u32, Vec<RefChange>)> {
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
    /// Blocks within the shard.
    shared: SharedBlocks,
}

impl Default for FreeMapShard {
    fn default() -> Self {
        Self { used: vec![0; MAP_BYTES], shared: SharedBlocks::default() }
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
        self.shared.set(at.into(), references.saturating_sub(1));
    }

    pub(crate) fn references(&self, at: u32) -> u32 {
        u32::from(self.is_used(at)) + self.shared.extra(at.into())
    }

    /// Applies changes of the shard, in any order: only their sums count. Gives a block, counted as they are, that would be referred to less
    /// than never.
    pub(crate) fn apply(&mut self, changes: &[RefChange]) -> Result<(), u32> {
        // Where sums change, and by how much.
        let mut edges: Vec<(u32, i64)> = Vec::with_capacity(2 * changes.len());
        for RefChange { at, count, by } in changes {
            edges.extend([(*at, i64::from(*by)), (at + count, -i64::from(*by))]);
        }
        edges.sort_unstable_by_key(|(at, _)| *at);
        let (mut sum, mut from) = (0_i64, 0);
        for (at, by) in edges {
            if sum != 0 {
                self.add(from..at, sum)?;
            }
            (sum, from) = (sum + by, at);
        }
        Ok(())
    }

    fn add(&mut self, blocks: Range<u32>, by: i64) -> Result<(), u32> {
        for at in blocks {
            let references = i64::from(self.references(at)) + by;
            self.set(at, u32::try_from(references).map_err(|_| at)?);
        }
        Ok(())
    }

    /// A bit for each block that is referred to.
    pub(crate) fn used(&self) -> &[u8] {
        &self.used
    }

    /// Blocks with more than one reference, and how many more, of the shard's number `nth`.
    pub(crate) fn shared(&self, nth: u32) -> impl Iterator<Item = (Run, u32)> {
        let first = first_of(nth);
        self.shared.iter().map(move |(run, extra)| (Run { start: first + run.start, ..run }, extra))
    }

    /// `None` when nothing is used.
    pub(crate) fn encode(&self) -> Option<Bytes> {
        if self.used.iter().all(|byte| *byte == 0) {
            return None;
        }
        let mut w = Writer::with_capacity(MAP_BYTES + 16);
        w.envelope(VERSION, 1, |w| {
            w.raw(&self.used);
            w.count(self.shared.len());
            for (run, extra) in self.shared.iter() {
                // Within the shard.
                w.u32(run.start as u32);
                w.u32(run.count as u32);
                w.u32(extra);
            }
        });
        Some(w.finish())
    }

    pub(crate) fn decode(value: Bytes) -> Result<Self, DecodeError> {
        Reader::new(value).envelope("free map", VERSION, |_, r| {
            let used = r.take(MAP_BYTES)?.to_vec();
            let mut shard = Self { used, shared: SharedBlocks::default() };
            let mut free_from = 0;
            for _ in 0..r.count(12)? {
                let (start, count, extra) = (r.u32()?, r.u32()?, r.u32()?);
                let end = start.checked_add(count).filter(|end| *end <= FREE_MAP_SHARD_BLOCKS);
                // In the order in which they are written, none empty.
                if end.is_none() || count == 0 || extra == 0 || start < free_from {
                    return Err(DecodeError::Invalid { what: "shared blocks", value: start.into() });
                }
                free_from = start + count;
                shard.shared.put(Run { start: start.into(), count: count.into() }, extra);
            }
            Ok(shard)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(at: u32, count: u32, by: i32) -> RefChange {
        RefChange { at, count, by }
    }

    #[test]
    fn sums_of_changes_are_kept_and_read_back() {
        let mut shard = FreeMapShard::default();
        let changes = [change(7, 3, 1), change(8, 1, -1), change(8, 2, 1), change(9, 1, 2)];
        assert_eq!(shard.apply(&changes), Ok(()));
        let references: Vec<u32> = (6..11).map(|at| shard.references(at)).collect();
        assert_eq!(references, [0, 1, 1, 4, 0]);
        assert_eq!(shard.apply(&[change(6, 1, -1)]), Err(6));
        let back = FreeMapShard::decode(shard.encode().expect("something is used")).expect("our own bytes");
        assert_eq!(back, shard);
        assert_eq!(back.used().get(..2), Some(&[0b1000_0000, 0b11][..]));
        for nth in [2, (1 << 29) - 1] {
            let start = u64::from(FREE_MAP_SHARD_BLOCKS) * u64::from(nth) + 9;
            assert_eq!(back.shared(nth).collect::<Vec<_>>(), [(Run { start, count: 1 }, 3)]);
        }
        assert_eq!(shard.apply(&[change(7, 2, -1), change(9, 1, -4)]), Ok(()));
        assert_eq!(shard.encode(), None);
    }

    /// Whatever overlaps: as if each block had been counted by itself.
    #[test]
    fn changes_add_up_in_any_order() {
        let mut seed = 3_u32;
        let mut next = |bound: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) % bound
        };
        let (mut shard, mut model) = (FreeMapShard::default(), vec![0_i64; 300]);
        for _ in 0..300 {
            let mut changes = Vec::new();
            for _ in 0..1 + next(20) {
                let (start, count) = (next(250), 1 + next(50));
                changes.push(change(start, count, 1));
                // What goes is given by others of the same changes, or was there.
                changes.push(change(start + next(count), 1, -1));
                if next(2) == 0 {
                    changes.reverse();
                }
            }
            for RefChange { at, count, by } in &changes {
                (*at..at + count).for_each(|at| model[at as usize] += i64::from(*by));
            }
            assert_eq!(shard.apply(&changes), Ok(()));
            assert!(model.iter().zip(0..).all(|(count, at)| i64::from(shard.references(at)) == *count));
        }
    }

    #[test]
    fn damaged_shared_runs_are_refused() {
        let mut shard = FreeMapShard::default();
        shard.apply(&[change(0, 10, 1)]).expect("all free");
        let with = |shared: &[(u32, u32, u32)]| {
            let mut w = Writer::new();
            w.envelope(VERSION, 1, |w| {
                w.raw(shard.used());
                w.count(shared.len());
                shared.iter().for_each(|(start, count, extra)| {
                    [*start, *count, *extra].map(|word| w.u32(word)).into_iter().collect()
                });
            });
            FreeMapShard::decode(w.finish())
        };
        assert!(with(&[(0, 2, 1), (3, 7, 2)]).is_ok());
        for wrong in [(0, 0, 1), (0, 1, 0), (u32::MAX, 2, 1), (FREE_MAP_SHARD_BLOCKS - 1, 2, 1)] {
            assert!(with(&[wrong]).is_err(), "{wrong:?}");
        }
        assert!(with(&[(3, 2, 1), (4, 1, 1)]).is_err(), "twice");
    }

    #[test]
    fn a_run_over_a_border_is_two() {
        let last = FREE_MAP_SHARD_BLOCKS - 1;
        // Of the first two shards, and on both sides of what 32 bits count.
        for behind in [1, 1 << 17] {
            let mut changes = RefChanges::default();
            changes.add(Run { start: first_of(behind) - 1, count: 2 }, 1);
            assert_eq!(changes.pop(), Some((behind - 1, vec![change(last, 1, 1)])));
            assert_eq!(changes.pop(), Some((behind, vec![change(0, 1, 1)])));
            assert_eq!(changes.pop(), None);
        }
    }
}
