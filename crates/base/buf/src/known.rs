//! [`Known`]: what is known of a list's checksums without looking at its bytes.

use crate::crc::BLOCK_BYTES;
use std::sync::Arc;

/// Registers started at [`PAYLOAD_CRC_SEED`](crate::PAYLOAD_CRC_SEED). What a list knows is true of its bytes as they are.
#[derive(Clone, Default)]
pub(crate) enum Known {
    #[default]
    Nothing,
    /// Of all bytes together.
    Whole(u32),
    /// Of blocks from byte `at` of the list on, each by itself: `crcs` from `first` on, as far as the list reaches.
    ///
    /// ```text
    /// list    | at bytes | block | block | block | the rest |
    /// crcs  ..  ..         first   first+1 first+2   (..)
    /// ```
    Blocks { crcs: Arc<Vec<u32>>, first: u32, at: u32 },
}

impl Known {
    /// Of the first blocks of a list of `len` bytes.
    pub(crate) fn blocks(crcs: Vec<u32>, len: usize) -> Self {
        match crcs.as_slice() {
            [] => Self::Nothing,
            [one] if len == BLOCK_BYTES => Self::Whole(*one),
            _ => Self::Blocks { crcs: Arc::new(crcs), first: 0, at: 0 },
        }
    }

    /// Where in a list of `len` bytes blocks begin that are known, and their registers.
    pub(crate) fn run(&self, len: usize) -> Option<(usize, &[u32])> {
        match self {
            Self::Nothing => None,
            Self::Whole(crc) => (len == BLOCK_BYTES).then_some((0, std::slice::from_ref(crc))),
            Self::Blocks { crcs, first, at } => {
                let (left, at) = (crcs.get(*first as usize..)?, *at as usize);
                let count = left.len().min(len.checked_sub(at)? / BLOCK_BYTES);
                Some((at, &left[..count]))
            }
        }
    }

    /// Of `length` bytes from `start` on, which are not the whole list.
    pub(crate) fn slice(&self, start: usize, length: usize) -> Self {
        let Self::Blocks { crcs, first, at } = self else { return Self::Nothing };
        let Some(skipped) = start.checked_sub(*at as usize).filter(|bytes| bytes.is_multiple_of(BLOCK_BYTES))
        else {
            return Self::Nothing;
        };
        let nth = *first as usize + skipped / BLOCK_BYTES;
        match (crcs.get(nth), u32::try_from(nth)) {
            (Some(crc), _) if length == BLOCK_BYTES => Self::Whole(*crc),
            (Some(_), Ok(first)) if length > BLOCK_BYTES => Self::Blocks { crcs: crcs.clone(), first, at: 0 },
            _ => Self::Nothing,
        }
    }

    /// Of a list of `len` bytes, when other bytes with what is `known` of them come behind.
    pub(crate) fn followed_by(self, len: usize, known: Self) -> Self {
        if self.ends_within(len) {
            return self;
        }
        let Self::Blocks { crcs, first, at } = known else { return Self::Nothing };
        match u32::try_from(at as usize + len) {
            Ok(at) => Self::Blocks { crcs, first, at },
            Err(_) => Self::Nothing,
        }
    }

    /// Whether all blocks from `first` on are of a list of `len` bytes: others may not be taken for them.
    fn ends_within(&self, len: usize) -> bool {
        match self {
            Self::Blocks { crcs, first, .. } => {
                self.run(len).is_some_and(|(_, run)| run.len() == crcs.len() - *first as usize)
            }
            _ => false,
        }
    }
}
