//! [`Blob`]: blocks of an object that are compressed together, and [`Place`]: where the content of a block is on the device.
//!
//! A blob never changes. All blocks that are in it are of one page, at the same places in each object that has them, so a page of an object
//! refers to a blob once: it has one reference to each of the blob's blocks on the device as long as any of its own blocks is in the blob, or
//! is in memory above one that is. Why so: `docs/design/0002-compression.md`.

use crate::device::{DeviceBlock, Run};
use crate::{BLOCK, PAGE_BLOCKS};
use nacre_denc::DecodeError;
use nacre_types::{CompressionAlgorithm, PoolId};
use smallvec::SmallVec;
use std::sync::Arc;

/// Blocks of one page at most, compressed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Blob {
    /// To which it counts.
    pub(crate) pool: PoolId,
    pub(crate) algorithm: CompressionAlgorithm,
    /// Compressed; behind them are zeros up to the end of the last block.
    bytes: u32,
    /// Of the object, which it holds.
    blocks: u8,
    /// Of the device, in order; fewer than those, and at least one.
    stored: Box<[DeviceBlock]>,
}

impl Blob {
    /// A blob of `blocks` blocks of an object, compressed to `bytes` in the blocks `stored`.
    ///
    /// # Errors
    /// When there can be none of these numbers.
    pub(crate) fn new(
        (pool, algorithm): (PoolId, CompressionAlgorithm),
        blocks: u32,
        bytes: u32,
        stored: Vec<DeviceBlock>,
    ) -> Result<Self, DecodeError> {
        let has_room =
            stored.len() == (bytes as usize).div_ceil(BLOCK) && (stored.len() as u64) < blocks.into();
        let mut numbers: SmallVec<[u64; PAGE_BLOCKS as usize]> =
            stored.iter().map(|device| device.block).collect();
        numbers.sort_unstable();
        let is_once = numbers.windows(2).all(|pair| pair.first() != pair.last());
        match u8::try_from(blocks) {
            Ok(small) if blocks <= PAGE_BLOCKS && bytes > 0 && has_room && is_once => {
                Ok(Self { pool, algorithm, bytes, blocks: small, stored: stored.into() })
            }
            _ => Err(DecodeError::Invalid { what: "compressed bytes of a blob", value: bytes.into() }),
        }
    }

    /// Its first block on the device, which is no other blob's: by this one blob is told from others.
    pub(crate) fn first(&self) -> u64 {
        self.stored.first().map_or(0, |first| first.block)
    }

    pub(crate) const fn bytes(&self) -> u32 {
        self.bytes
    }

    pub(crate) const fn blocks(&self) -> u32 {
        self.blocks as u32
    }

    pub(crate) fn stored(&self) -> &[DeviceBlock] {
        &self.stored
    }

    /// Those of its blocks that the area does not have.
    pub(crate) fn block_outside(&self, area: Run) -> Option<u64> {
        self.stored.iter().map(|device| device.block).find(|block| !area.blocks().contains(block))
    }

    /// About the bytes of memory that it takes.
    pub(crate) const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + 16 + self.stored.len() * size_of::<DeviceBlock>()
    }
}

/// Where the content of a block of an object is on the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// In a block by itself.
    Block(DeviceBlock),
    /// In a blob; which of the blocks that it holds.
    Blob(Arc<Blob>, u8),
}

impl Place {
    /// The block that has it by itself.
    pub(crate) const fn device(&self) -> Option<DeviceBlock> {
        match self {
            Self::Block(device) => Some(*device),
            Self::Blob(..) => None,
        }
    }
}

impl From<DeviceBlock> for Place {
    fn from(device: DeviceBlock) -> Self {
        Self::Block(device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_saves_blocks_and_holds_no_more_than_a_page() {
        let of = |blocks: u32, bytes: u32, stored: u32| {
            let stored = (0..stored).map(|nth| DeviceBlock { block: 7 + u64::from(nth), crc: nth }).collect();
            Blob::new((1, CompressionAlgorithm::Lz4), blocks, bytes, stored)
        };
        let block = BLOCK as u32;
        let good = of(3, block + 1, 2).expect("two instead of three");
        assert_eq!((good.first(), good.blocks(), good.bytes()), (7, 3, block + 1));
        for (blocks, bytes, stored) in [
            (2, block + 1, 2),
            (3, block, 2),
            (3, block + 1, 1),
            (3, 0, 0),
            (3, 0, 1),
            (PAGE_BLOCKS + 1, 9, 1),
            (300, 9, 1),
        ] {
            assert!(of(blocks, bytes, stored).is_err(), "{blocks} of {bytes} bytes in {stored}");
        }
        let twice = vec![DeviceBlock { block: 7, crc: 1 }; 2];
        assert!(Blob::new((1, CompressionAlgorithm::Lz4), 3, block + 1, twice).is_err());
        assert_eq!(good.block_outside(Run { start: 7, count: 2 }), None);
        assert_eq!(good.block_outside(Run { start: 7, count: 1 }), Some(8));
    }
}
