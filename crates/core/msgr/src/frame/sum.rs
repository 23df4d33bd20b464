//! [`DataSum`]: the checksums of a data segment, computed while its bytes come in.

use super::SEGMENT_CRC_SEED;
use nacre_buf::BufList;
use nacre_buf::crc::{BLOCK_BYTES, append_blocks, crc32c};

/// A segment of several whole blocks is summed block by block, and its own checksum is put together from theirs: the store wants
/// those of the blocks, and would have to look at all bytes again.
pub(super) struct DataSum {
    /// Registers of the blocks that are complete.
    blocks: Vec<u32>,
    /// Register of the block that is coming in; of the segment, where that is not summed by blocks.
    open: u32,
    /// Bytes that the open block still lacks; 0 where the segment is not summed by blocks.
    lacking: usize,
}

impl DataSum {
    /// For a segment of `length` bytes, which is bounded.
    pub(super) fn of(length: usize) -> Self {
        match length.is_multiple_of(BLOCK_BYTES) && length > BLOCK_BYTES {
            true => Self {
                blocks: Vec::with_capacity(length / BLOCK_BYTES),
                open: SEGMENT_CRC_SEED,
                lacking: BLOCK_BYTES,
            },
            false => Self { blocks: Vec::new(), open: SEGMENT_CRC_SEED, lacking: 0 },
        }
    }

    /// Takes the next bytes.
    pub(super) fn add(&mut self, mut bytes: &[u8]) {
        while self.lacking > 0
            && let Some((of_block, behind)) = bytes.split_at_checked(self.lacking)
        {
            self.blocks.push(crc32c(self.open, of_block));
            (self.open, self.lacking) = (SEGMENT_CRC_SEED, BLOCK_BYTES);
            bytes = behind;
        }
        self.open = crc32c(self.open, bytes);
        self.lacking = self.lacking.saturating_sub(bytes.len());
    }

    /// The register over all bytes that were added; of a segment summed by blocks when it is complete.
    pub(super) fn crc(&self) -> u32 {
        match self.blocks.as_slice() {
            [] => self.open,
            blocks => append_blocks(SEGMENT_CRC_SEED, blocks),
        }
    }

    /// The segment's bytes with what is known of them now.
    pub(super) fn tell(self, data: BufList) -> BufList {
        match self.blocks.is_empty() {
            true => data.with_crc(self.open),
            false => data.with_block_crcs(self.blocks),
        }
    }
}
