//! [`Io`]: what a request to the device is for; and [`Requests`] for data, which wait here while the device has many.
//!
//! What clients ask for at a time may be far more than a disk takes (`nacre_env::disk::REQUESTS_MAX`): a thousand reads from
//! each of a hundred connections in one turn, or large writes into free space that lies in single blocks. Log records, the
//! checkpoint's homes and flushes are few, and never wait here.
//!
//! Placed data are gathered until the turn starts what is queued: pieces that lie side by side, of whichever transactions, are one request.

use crate::BLOCK;
use crate::device::Run;
use crate::fetch::ReadIo;
use crate::wal::TxnNumber;
use nacre_buf::BufList;
use nacre_env::disk::Durability;
use nacre_types::{RequestClass, Stamp};
use smallvec::{SmallVec, smallvec};
use std::collections::VecDeque;

/// What a request to the device was for.
#[derive(Debug)]
pub(crate) enum Io {
    Record {
        seq: u64,
    },
    Placed(PlacedPieces),
    Piece(PlacedPiece),
    PiecesFlush {
        number: TxnNumber,
    },
    Read(ReadIo),
    Home,
    Flush,
    /// Of free blocks; the allocator does not have them meanwhile when they are held.
    Discard {
        run: Run,
        is_held: bool,
    },
    /// Nothing but a look at how long it takes.
    Probe,
}

/// A request that the device has, or is about to get.
#[derive(Debug)]
pub(crate) struct UnderWay {
    pub(crate) io: Io,
    /// `None` of a discard, which nobody compares with another device's.
    pub(crate) class: Option<RequestClass>,
    /// When the device got it; `crate::latencies::NOT_STARTED` until then.
    pub(crate) started: Stamp,
}

/// With so many requests at the device, reads and placed data wait.
pub(crate) const AT_DEVICE_MAX: usize = 1024;

/// Blocks of a request that is put together of several pieces at most: it takes hardly longer than one of them.
const TOGETHER_BLOCKS_MAX: usize = 64;

/// A piece of the data that transaction `number` has placed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedPiece {
    pub(crate) number: TxnNumber,
    pub(crate) first: u64,
}

/// The pieces that one request writes, ascending.
pub(crate) type PlacedPieces = SmallVec<[PlacedPiece; 1]>;

/// A request that waits.
#[derive(Debug)]
pub(crate) enum Request {
    Read(ReadIo),
    Write { first: u64, data: BufList, durability: Durability, io: Io },
}

/// What waits for its turn, first come, first served.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub(crate) waiting: VecDeque<Request>,
    /// Placed data that are to be durable each, where they begin and whose they are.
    placed: Vec<(u64, BufList, PlacedPieces)>,
}

impl Requests {
    /// Takes a piece of placed data. It goes with that before it when it lies behind it, and they are short.
    pub(crate) fn gather(&mut self, piece: PlacedPiece, data: BufList) {
        if let Some((first, before, pieces)) = self.placed.last_mut()
            && first.saturating_add((before.len() / BLOCK) as u64) == piece.first
            && before.len() + data.len() <= TOGETHER_BLOCKS_MAX * BLOCK
        {
            before.append(data);
            pieces.push(piece);
        } else {
            self.placed.push((piece.first, data, smallvec![piece]));
        }
    }

    /// Requests that are gathered for several transactions.
    #[cfg(test)]
    pub(crate) fn gathered(&self) -> usize {
        self.placed.iter().filter(|(_, _, pieces)| pieces.len() > 1).count()
    }

    /// What was gathered waits from now on as requests.
    pub(crate) fn put_together(&mut self) {
        self.waiting.extend(self.placed.drain(..).map(|(first, data, pieces)| Request::Write {
            first,
            data,
            durability: Durability::Durable,
            io: Io::Placed(pieces),
        }));
    }
}
