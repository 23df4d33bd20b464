//! [`Fetch`]: data that was asked for and is being read; [`ReadIo`]: one read of the device for it, or for a checkpoint; and the
//! [`Damage`] that a read finds.

use crate::BLOCK;
use crate::device::Run;
use nacre_buf::{Bytes, crc};
use nacre_txn::{FetchFrom, StoreToken};
use nacre_types::{HObject, SpgId, Stamp};
use smallvec::{SmallVec, smallvec};

/// Why a block has no content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    pub(crate) reason: String,
    pub(crate) kind: DamageKind,
}

/// What is wrong with a damaged block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DamageKind {
    /// It holds something else than was written: until it is written again.
    Lost,
    /// The device answered with an error, each time. It may hold what was written, and is asked again later.
    Unreadable {
        /// When that was, where there is a clock.
        since: Option<Stamp>,
    },
}

/// A read of a run of blocks with known checksums.
#[derive(Debug)]
pub(crate) struct ReadIo {
    pub(crate) run: Run,
    pub(crate) crcs: SmallVec<[u32; 2]>,
    /// Which fetch waits for it; `None` for the checkpoint.
    pub(crate) fetch: Option<usize>,
    /// Frees so far: when there were more since, the blocks may hold something else by now.
    pub(crate) frees: u64,
    /// Times that it was tried before.
    pub(crate) attempt: u32,
}

impl ReadIo {
    /// Whether every block is what it should be.
    pub(crate) fn is_good(&self, bytes: &Bytes) -> bool {
        let mut blocks = bytes.chunks_exact(BLOCK).zip(&self.crcs);
        blocks.len() == self.crcs.len() && blocks.all(|(block, crc)| crc::crc32c(u32::MAX, block) == *crc)
    }

    /// One block of it by itself.
    pub(crate) fn single(&self, block: u64, crc: u32, attempt: u32) -> Self {
        let run = Run { start: block, count: 1 };
        Self { run, crcs: smallvec![crc], fetch: self.fetch, frees: self.frees, attempt }
    }
}

/// What of a run that is read goes to the reader past the cache: of a range whose blocks all lie at the device, one behind the
/// other, none of them in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hand {
    pub(crate) run: Run,
    /// First byte of the run that was asked for.
    pub(crate) from: usize,
    pub(crate) bytes: usize,
}

#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) at: SpgId,
    pub(crate) object: HObject,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    /// Where what it asks for now may come from; once the device has given everything, memory will do.
    pub(crate) from: FetchFrom,
    pub(crate) token: StoreToken,
    pub(crate) reads_left: usize,
    /// One read brings all that it asks for: when that is good there is nothing left to look at.
    pub(crate) is_single: bool,
    /// That read brings just the range, for the reader: see [`Hand`].
    pub(crate) hand: Option<Hand>,
    /// Blocks were freed during a read: what it brought was not looked at.
    pub(crate) is_stale: bool,
    /// Runs in the cache that it brought.
    pub(crate) pins: Vec<u64>,
    /// Blobs that were decompressed for it, by their first blocks.
    pub(crate) unpacked: Vec<u64>,
}

impl Fetch {
    pub(crate) fn new(
        at: SpgId,
        object: HObject,
        offset: u64,
        length: u64,
        from: FetchFrom,
        token: StoreToken,
    ) -> Self {
        Self {
            at,
            object,
            offset,
            length,
            from,
            token,
            reads_left: 0,
            is_single: false,
            hand: None,
            is_stale: false,
            pins: Vec::new(),
            unpacked: Vec::new(),
        }
    }

    /// All reads are back: the device was asked for everything, unless they have to be made again.
    pub(crate) fn all_back(&mut self) {
        if !std::mem::take(&mut self.is_stale) {
            self.from = FetchFrom::Anywhere;
        }
    }
}
