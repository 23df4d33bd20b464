//! The free map as a checkpoint left it, read when the store is opened.

use crate::alloc::Alloc;
use crate::error::OpenError;
use crate::free_bitmap::Tally;
use crate::kv_schema::{self, prefix};
use nacre_buf::Bytes;
use nacre_kv::{KvStore, end_of_prefix, read_ahead};
use std::ops::Bound;

/// The map of an area from so many blocks on, a quarter of a terabyte, is read by a thread of its own while what it has read is taken. No
/// store of a simulation is so large: that is a single thread.
const AHEAD_BLOCKS: u64 = 1 << 26;
/// Bytes of the map that are read at a time.
const AHEAD_BYTES: usize = 1 << 20;

/// Loads it into `alloc`, all of whose blocks are free.
pub(super) fn load(kv: &dyn KvStore, alloc: &mut Alloc) -> Result<(), OpenError> {
    let ahead_bytes = (alloc.area().count >= AHEAD_BLOCKS).then_some(AHEAD_BYTES);
    load_ahead(kv, alloc, ahead_bytes)
}

/// The same, with so many bytes read ahead at a time, if any.
fn load_ahead(kv: &dyn KvStore, alloc: &mut Alloc, ahead_bytes: Option<usize>) -> Result<(), OpenError> {
    let (prefix, mut tally) = (&[prefix::FREE][..], Tally::default());
    let mut take = |key: Bytes, value: Bytes| {
        let (nth, shard) = kv_schema::decode_free(key, value)?;
        let outside = |value| OpenError::Inconsistent { what: "block outside the data area", value };
        alloc.load(nth, &shard, &mut tally).map_err(outside)
    };
    if let Some(bytes) = ahead_bytes {
        let end = end_of_prefix(prefix).unwrap_or_default();
        let reader = kv.reader(Bound::Included(prefix), Bound::Excluded(&end))?;
        read_ahead::<OpenError>(reader, bytes, |pairs| {
            pairs.into_iter().try_for_each(|(key, value)| take(key.slice(prefix.len()..), value))
        })?;
    } else {
        kv_schema::scan::<OpenError>(kv, prefix, take)?;
    }
    alloc.loaded(tally);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Run;
    use crate::freemap::{FREE_MAP_SHARD_BLOCKS, FreeMapShard, RefChange};
    use nacre_kv::{Durability, KvBatch, MemoryKv};

    const SHARD: u64 = FREE_MAP_SHARD_BLOCKS as u64;

    fn put(kv: &mut MemoryKv, key: Bytes, used: &[(u32, u32)]) {
        let changes: Vec<_> =
            used.iter().map(|(at, count)| RefChange { at: *at, count: *count, by: 1 }).collect();
        let (mut shard, mut batch) = (FreeMapShard::default(), KvBatch::default());
        shard.apply(&changes).expect("all free");
        batch.put(key, shard.encode().expect("some are used"));
        kv.commit(&batch, Durability::Durable).expect("healthy");
    }

    /// Four shards of which nothing of the third is used; the area begins and ends within one.
    #[test]
    fn what_is_read_ahead_is_what_is_read_at_once() {
        let mut kv = MemoryKv::new();
        put(&mut kv, kv_schema::free_key(0), &[(5000, 100), (32_700, 68)]);
        put(&mut kv, kv_schema::free_key(1), &[(0, 300), (32_767, 1)]);
        put(&mut kv, kv_schema::free_key(3), &[(0, 1), (700, 1), (702, 1)]);
        let area = Run { start: 4099, count: 3 * SHARD };
        let load = |kv: &MemoryKv, ahead_bytes| {
            let mut alloc = Alloc::new(area);
            load_ahead(kv, &mut alloc, ahead_bytes).map(|()| alloc)
        };
        let begins = [4099, 5100, 33_068, 65_536, 98_305, 99_005, 99_007];
        let ends = [5000, 32_700, 65_535, 98_304, 99_004, 99_006, area.end()];
        let runs: Vec<_> =
            begins.into_iter().zip(ends).map(|(start, end)| Run { start, count: end - start }).collect();
        for ahead_bytes in [None, Some(1), Some(5000), Some(1 << 20)] {
            let mut alloc = load(&kv, ahead_bytes).expect("a map");
            let free = alloc.free();
            assert_eq!(free.iter().collect::<Vec<_>>(), runs, "{ahead_bytes:?}");
            let blocks: u64 = runs.iter().map(|run| run.count).sum();
            assert_eq!((free.blocks(), free.long_blocks(), free.runs()), (blocks, blocks - 1, 7));
            // Found by the tree over the edges of segments and shards.
            assert_eq!(alloc.allocate(32_768), Some(vec![Run { start: 65_536, count: 32_768 }]));
        }
        put(&mut kv, kv_schema::free_key(4), &[(0, 1)]);
        for ahead_bytes in [None, Some(1)] {
            let outside = load(&kv, ahead_bytes);
            let is_that = matches!(outside, Err(OpenError::Inconsistent { value, .. }) if value == 4 * SHARD);
            assert!(is_that, "{ahead_bytes:?}");
        }
    }
}
