//! Dirty blocks that go into blobs: which are tried, and what comes of it. Why here and nowhere else: `docs/design/0002-compression.md`.

use crate::BLOCK;
use crate::blob::{Blob, Place};
use crate::checkpoint::{Checkpoint, Home, Stage};
use crate::device::{DeviceBlock, Run};
use crate::page::{PAGE_BLOCKS, page_of};
use crate::requests::Io;
use crate::store::BlockStore;
use nacre_buf::{AlignedBuf, Bytes, PAYLOAD_CRC_SEED, crc};
use nacre_env::disk::Durability;
use nacre_types::{Compression, PoolId};
use std::sync::Arc;

/// How blocks of an object are to be compressed.
#[derive(Clone, Copy)]
pub(super) struct Packing {
    pool: PoolId,
    compression: Compression,
}

/// Data of some blocks that got smaller.
struct Packed {
    /// Whole blocks, zeros behind.
    content: Bytes,
    bytes: u32,
}

fn blocks_in(bytes: u32) -> u32 {
    bytes / BLOCK as u32
}

impl BlockStore {
    /// How many of these blocks, from the first on, are to be tried together, and how; `None` when the first is to go home as it is.
    pub(super) fn tried_together(&self, homes: &[Home]) -> Option<(usize, Packing)> {
        let first = homes.first()?;
        let onode = self.table.onodes.frozen.get(&first.object)?.as_ref()?;
        let compression = *self.table.space.compression_of(onode, &onode.meta)?;
        let blob_blocks = blocks_in(compression.blob_bytes_max).clamp(1, PAGE_BLOCKS);
        let part = |index: u32| (page_of(index), index / blob_blocks);
        // What a clone shares since it was placed stays shared: each would have a blob of its own.
        let is_shared = |home: &Home| {
            let placed = home.base.as_ref().and_then(Place::device);
            placed.is_some_and(|device| self.table.space.alloc.shared().extra(device.block) > 0)
        };
        let is_next = |(home, index): &(&Home, u32)| {
            (home.object, home.index) == (first.object, *index)
                && part(*index) == part(first.index)
                && home.dirty.covers(0, BLOCK)
                && !is_shared(home)
        };
        let count = homes.iter().zip(first.index..).take_while(is_next).count();
        let is_enough = count > 1 && count * BLOCK >= compression.blob_bytes_min as usize;
        is_enough.then_some((count, Packing { pool: onode.pool, compression }))
    }

    /// Blocks that go home as they are, up to `count_max` of them, before some that are tried together.
    pub(super) fn not_tried(&self, homes: &[Home], count_max: usize) -> usize {
        let count = homes.len().min(count_max);
        if self.table.space.compresses_nothing() {
            return count;
        }
        let tried = |from: &usize| self.tried_together(homes.get(*from..).unwrap_or_default()).is_some();
        (0..count).find(tried).unwrap_or(count)
    }

    /// Compresses blocks, and begins to write what came of it if it is small enough. Otherwise they go home as they are.
    pub(super) fn pack_homes(
        &mut self,
        checkpoint: &mut Checkpoint,
        next: usize,
        count: usize,
        packing: Packing,
    ) -> bool {
        checkpoint.tried += count;
        let homes = checkpoint.homes.get_mut(next..next + count).unwrap_or_default();
        let Some(packed) = self.packed(homes, &packing.compression) else {
            return self.place_as_they_are(checkpoint, next, count);
        };
        let stored = (packed.content.len() / BLOCK) as u64;
        let Some(runs) = self.table.space.alloc.allocate_homes(stored) else {
            self.fail(format!("no room for {stored} compressed blocks of {count} that were promised room"));
            return false;
        };
        let crcs = packed.content.chunks_exact(BLOCK).map(|block| crc::crc32c(PAYLOAD_CRC_SEED, block));
        let blocks = runs.iter().flat_map(|run| run.blocks());
        let devices = blocks.zip(crcs).map(|(block, crc)| DeviceBlock { block, crc }).collect();
        let made_by = (packing.pool, packing.compression.algorithm);
        let blob = Arc::new(Blob::new(made_by, count as u32, packed.bytes, devices).expect("it was made so"));
        for (home, nth) in homes.iter_mut().zip(0..) {
            home.target = Place::Blob(Arc::clone(&blob), nth);
        }
        self.write_blob(checkpoint, &runs, &packed.content);
        checkpoint.held -= count as u64;
        checkpoint.stage = Stage::Place { next: next + count };
        true
    }

    fn write_blob(&mut self, checkpoint: &mut Checkpoint, runs: &[Run], content: &Bytes) {
        let mut at = 0;
        for run in runs {
            let part = content.slice(at..at + run.count as usize * BLOCK);
            at += part.len();
            checkpoint.writes += 1;
            self.start_write(run.start, part.into(), Durability::Cached, Io::Home);
        }
    }

    /// The blocks compressed, if that saves as much as is required.
    fn packed(&mut self, homes: &[Home], compression: &Compression) -> Option<Packed> {
        let bytes = homes.len() * BLOCK;
        let mut data = AlignedBuf::with_len(bytes);
        for (home, block) in homes.iter().zip(data.chunks_exact_mut(BLOCK)) {
            home.dirty.fill(block, None);
            let crc = crc::crc32c(PAYLOAD_CRC_SEED, block);
            if home.dirty.known_crc().is_some_and(|known| known != crc) {
                tracing::error!(object = home.object, index = home.index, "a block has changed in memory");
                // As it is it has the checksum that it came with, so whoever reads it hears of it.
                return None;
            }
        }
        let required = usize::try_from(compression.required_bytes(bytes as u64)).unwrap_or(bytes);
        let room = required.next_multiple_of(BLOCK).min(bytes - BLOCK);
        let mut out = AlignedBuf::with_len(room);
        let packed = self.codec.pack(compression.algorithm, &data, &mut out)?;
        let mut content = AlignedBuf::with_len(packed.next_multiple_of(BLOCK));
        let (head, behind) = content.split_at_mut(packed);
        head.copy_from_slice(out.get(..packed)?);
        behind.fill(0);
        Some(Packed { content: content.freeze(), bytes: u32::try_from(packed).ok()? })
    }
}
