//! [`PackedSums`]: what the pages of all objects refer to of blobs, counted by pool: all that a blob takes for each page that needs it, and
//! of what it holds the blocks that are still in it. So what clones share counts for each.

use crate::BLOCK;
use crate::blob::Blob;
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_store::PackedUsage;
use nacre_types::PoolId;
use std::collections::BTreeMap;

/// See the module. No pool without blobs is in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PackedSums(BTreeMap<PoolId, Sum>);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Sum {
    /// Blocks of objects that are in blobs; not those in memory above one, which come home elsewhere.
    blocks: u64,
    /// Blocks of the device that they take.
    stored: u64,
    /// Bytes that came of compressing them, without the zeros behind.
    bytes: u64,
}

impl PackedSums {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn has(&self, pool: PoolId) -> bool {
        self.0.contains_key(&pool)
    }

    /// One page more needs the blob.
    pub(crate) fn add(&mut self, blob: &Blob) {
        let sum = self.0.entry(blob.pool).or_default();
        sum.stored = sum.stored.saturating_add(blob.stored().len() as u64);
        sum.bytes = sum.bytes.saturating_add(blob.bytes().into());
    }

    /// One page less.
    pub(crate) fn remove(&mut self, blob: &Blob) {
        self.take(
            blob.pool,
            Sum { blocks: 0, stored: blob.stored().len() as u64, bytes: blob.bytes().into() },
        );
    }

    /// One block more of an object is in the blob.
    pub(crate) fn add_block(&mut self, blob: &Blob) {
        let sum = self.0.entry(blob.pool).or_default();
        sum.blocks = sum.blocks.saturating_add(1);
    }

    /// One block less.
    pub(crate) fn remove_block(&mut self, blob: &Blob) {
        self.take(blob.pool, Sum { blocks: 1, ..Sum::default() });
    }

    fn take(&mut self, pool: PoolId, less: Sum) {
        let Some(sum) = self.0.get_mut(&pool) else { return };
        // What is counted wrong is found by a check.
        sum.blocks = sum.blocks.saturating_sub(less.blocks);
        sum.stored = sum.stored.saturating_sub(less.stored);
        sum.bytes = sum.bytes.saturating_sub(less.bytes);
        if *sum == Sum::default() {
            self.0.remove(&pool);
        }
    }

    /// In bytes, of each pool.
    pub(crate) fn by_pool(&self) -> impl Iterator<Item = (PoolId, PackedUsage)> {
        let bytes = |blocks: u64| blocks.saturating_mul(BLOCK as u64);
        self.0.iter().map(move |(pool, sum)| {
            let (original_bytes, allocated_bytes) = (bytes(sum.blocks), bytes(sum.stored));
            (*pool, PackedUsage { original_bytes, allocated_bytes, packed_bytes: sum.bytes })
        })
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        w.count(self.0.len());
        for (pool, sum) in &self.0 {
            w.u64(pool.cast_unsigned());
            [sum.blocks, sum.stored, sum.bytes].into_iter().for_each(|number| w.u64(number));
        }
    }

    pub(crate) fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let sums = (0..r.count(32)?).map(|_| {
            let pool = r.u64()?.cast_signed();
            Ok((pool, Sum { blocks: r.u64()?, stored: r.u64()?, bytes: r.u64()? }))
        });
        sums.collect::<Result<_, DecodeError>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceBlock;
    use nacre_types::CompressionAlgorithm;

    fn blob(pool: PoolId) -> Blob {
        let stored = vec![DeviceBlock { block: 1, crc: 2 }];
        Blob::new((pool, CompressionAlgorithm::Zstd), 3, 1000, stored).expect("a blob")
    }

    #[test]
    fn pools_count_by_themselves_and_go_with_their_last_blob() {
        let mut sums = PackedSums::default();
        for pool in [2, 5, 2] {
            sums.add(&blob(pool));
            (0..3).for_each(|_| sums.add_block(&blob(pool)));
        }
        let usage = |original_bytes, allocated_bytes, packed_bytes| PackedUsage {
            original_bytes,
            allocated_bytes,
            packed_bytes,
        };
        assert_eq!(
            sums.by_pool().collect::<Vec<_>>(),
            [(2, usage(24_576, 8192, 2000)), (5, usage(12_288, 4096, 1000))]
        );
        let mut w = Writer::new();
        sums.encode(&mut w);
        assert_eq!(PackedSums::decode(&mut Reader::new(w.finish())), Ok(sums.clone()));
        sums.remove_block(&blob(5));
        assert_eq!(sums.by_pool().last(), Some((5, usage(8192, 4096, 1000))), "one was overwritten");
        for (pool, blocks) in [(2, 6), (5, 2)] {
            (0..blocks).for_each(|_| sums.remove_block(&blob(pool)));
        }
        [2, 5, 2].into_iter().for_each(|pool| sums.remove(&blob(pool)));
        assert!(sums.is_empty());
    }
}
