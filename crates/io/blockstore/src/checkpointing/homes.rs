//! Dirty blocks of the cut: which there are, where each goes, and writing them there.

use super::{ENTRIES_PER_STEP, OBJECTS_PER_STEP};
use crate::BLOCK;
use crate::cache::Pin;
use crate::checkpoint::{Checkpoint, Home, Stage};
use crate::device::{DeviceBlock, Run};
use crate::fetch::DamageKind;
use crate::requests::Io;
use crate::store::BlockStore;
use nacre_buf::{AlignedBuf, BufList, Bytes, PAYLOAD_CRC_SEED, crc};
use nacre_env::disk::Durability;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Blocks written in one step.
const BLOCKS_PER_STEP: usize = 16;
/// Writes of dirty blocks in flight above which no more are begun, so that log writes do not queue behind many: with
/// 256 KiB of them a record waits for little more than for another record.
const WRITES_MAX: usize = 8;
/// Blocks that find a home in one step: among holes each is a search of its own.
const HOMES_PER_STEP: usize = 64;

impl BlockStore {
    pub(super) fn gather(&mut self, checkpoint: &mut Checkpoint, from: u64) -> bool {
        let (mut looked_at, mut next) = (0, None);
        for (nth, (id, onode)) in self.table.onodes.frozen.range(from..).enumerate() {
            if nth == OBJECTS_PER_STEP || looked_at >= ENTRIES_PER_STEP {
                next = Some(*id);
                break;
            }
            let Some(onode) = onode else { continue };
            looked_at += onode.blocks.pages_count();
            for (index, dirty) in onode.blocks.in_memory() {
                looked_at += 1;
                let (target, base) = (DeviceBlock { block: 0, crc: 0 }, dirty.base());
                checkpoint.homes.push(Home { object: *id, index, dirty: Arc::clone(dirty), base, target });
            }
        }
        checkpoint.stage = next.map_or(Stage::Place { next: 0 }, |from| Stage::Gather { from });
        true
    }

    pub(super) fn place_homes(&mut self, checkpoint: &mut Checkpoint, next: usize) -> bool {
        let end = checkpoint.homes.len().min(next + HOMES_PER_STEP);
        let homes = checkpoint.homes.get_mut(next..end).unwrap_or_default();
        let count = homes.len() as u64;
        let Some(runs) = self.table.space.alloc.allocate_homes(count) else {
            self.fail(format!("no room for {count} dirty blocks that were promised room"));
            return false;
        };
        let targets = runs.into_iter().flat_map(Run::blocks);
        homes.iter_mut().zip(targets).for_each(|(home, block)| home.target.block = block);
        checkpoint.held -= count;
        checkpoint.stage = Stage::Place { next: end };
        if end == checkpoint.homes.len() {
            assert_eq!(checkpoint.held, 0, "each block that was dirty at the cut has a home now");
            checkpoint.stage = Stage::Write { next: 0 };
        }
        true
    }

    pub(super) fn write_home(&mut self, checkpoint: &mut Checkpoint, next: usize) -> bool {
        if checkpoint.writes >= WRITES_MAX || checkpoint.reads > 0 {
            return false;
        }
        let end = checkpoint.homes.len().min(next + BLOCKS_PER_STEP);
        let window = checkpoint.homes.get_mut(next..end).unwrap_or_default();
        let bases = match self.bases(window, &checkpoint.unreadable) {
            Ok(bases) => bases,
            Err(mut absent) => {
                absent.sort_unstable_by_key(|device| device.block);
                absent.dedup_by_key(|device| device.block);
                checkpoint.reads = self.start_reads(&absent, None);
                return true;
            }
        };
        checkpoint.pins.drain(..).for_each(|first| self.cache.unpin(first, Pin::Checkpoint));
        let mut rest = window;
        while !rest.is_empty() {
            let follows = |pair: &[Home]| matches!(pair, [a, b] if a.target.block + 1 == b.target.block);
            let length = 1 + rest.windows(2).take_while(|pair| follows(pair)).count();
            let (group, behind) = rest.split_at_mut(length);
            rest = behind;
            let Some(first) = group.first().map(|home| home.target.block) else { break };
            checkpoint.writes += 1;
            let content = fill_homes(group, &bases);
            self.keep_cached(group, &content);
            self.start_write(first, content, Durability::Cached, Io::Home);
        }
        checkpoint.stage =
            if end == checkpoint.homes.len() { Stage::Settle } else { Stage::Write { next: end } };
        true
    }

    /// What replaces cached content is cached: somebody reads these blocks, and nobody reads from replicas.
    fn keep_cached(&mut self, group: &[Home], content: &BufList) {
        let blocks = content.slices().iter().flat_map(|slice| slice.chunks_exact(BLOCK));
        for (home, block) in group.iter().zip(blocks) {
            if home.dirty.replaced().is_some_and(|replaced| self.cache.holds(replaced)) {
                let mut copy = AlignedBuf::with_len(BLOCK);
                copy.copy_from_slice(block);
                self.cache.insert(home.target.block, copy.freeze(), Pin::None);
            }
        }
    }

    /// Contents of the blocks that show between the written pieces: `None` for a damaged one. Or which of them must
    /// be read first.
    fn bases(&self, window: &[Home], unreadable: &BTreeSet<u64>) -> Result<Bases, Vec<DeviceBlock>> {
        // That somebody could not read a block some time ago is no reason to lose it.
        let is_lost = |block: &u64| match self.damaged.get(block) {
            Some(damage) => damage.kind == DamageKind::Lost || unreadable.contains(block),
            None => false,
        };
        let (mut bases, mut absent) = (Bases::new(), Vec::new());
        for device in window.iter().filter_map(|home| home.base) {
            match self.cache.block(device.block) {
                Some(bytes) => drop(bases.insert(device.block, Some(bytes))),
                None if is_lost(&{ device.block }) => drop(bases.insert(device.block, None)),
                None => absent.push(device),
            }
        }
        if absent.is_empty() { Ok(bases) } else { Err(absent) }
    }

    pub(crate) fn home_written(&mut self) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.writes -= 1;
        }
    }

    pub(crate) fn base_pinned(&mut self, first: u64) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.pins.push(first);
        }
    }

    pub(crate) fn base_unreadable(&mut self, block: u64) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.unreadable.insert(block);
        }
    }

    /// In place of one read there are `count` now.
    pub(crate) fn bases_split(&mut self, count: usize) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.reads += count - 1;
        }
    }

    pub(crate) fn base_read(&mut self) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.reads -= 1;
        }
    }
}

type Bases = BTreeMap<u64, Option<Bytes>>;

/// Puts the blocks of one write together, and notes their checksums. Blocks that came whole go as they came, with the
/// checksums that clients and primaries sent with them.
fn fill_homes(group: &mut [Home], bases: &Bases) -> BufList {
    let as_written = |home: &mut Home| {
        let whole = home.dirty.as_written()?.clone();
        let compute = || crc::crc32c(PAYLOAD_CRC_SEED, &whole);
        home.target.crc = home.dirty.known_crc().unwrap_or_else(compute);
        debug_assert_eq!(home.target.crc, compute(), "what came with the block is not its checksum");
        Some(whole)
    };
    if group.iter().all(|home| home.dirty.as_written().is_some()) {
        return group.iter_mut().filter_map(as_written).collect();
    }
    let mut buffer = AlignedBuf::with_len(group.len() * BLOCK);
    for (home, block) in group.iter_mut().zip(buffer.chunks_exact_mut(BLOCK)) {
        let base = home.base.and_then(|device| bases.get(&{ device.block }));
        home.dirty.fill(block, base.and_then(Option::as_ref));
        let crc = crc::crc32c(PAYLOAD_CRC_SEED, block);
        // What lay below the pieces is lost: the block must stay damaged, not become good zeros.
        let lost = matches!(base, Some(None));
        home.target.crc = if lost { !crc } else { crc };
    }
    buffer.freeze().into()
}
