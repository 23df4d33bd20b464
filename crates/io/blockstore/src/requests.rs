//! [`Io`]: what a request to the device is for; and [`Requests`] for data, which wait here while the device has many.
//!
//! What clients ask for at a time may be far more than a disk takes (`nacre_env::disk::REQUESTS_MAX`): a thousand reads from
//! each of a hundred connections in one turn, or large writes into free space that lies in single blocks. Log records, the
//! checkpoint's homes and flushes are few, and never wait here.

use crate::device::Run;
use crate::fetch::ReadIo;
use crate::wal::TxnNumber;
use nacre_buf::Bytes;
use nacre_env::disk::Durability;
use nacre_types::{RequestClass, Stamp};
use std::collections::VecDeque;

/// What a request to the device was for.
#[derive(Debug)]
pub(crate) enum Io {
    Record {
        seq: u64,
    },
    Placed {
        number: TxnNumber,
        first: u64,
    },
    Piece {
        number: TxnNumber,
        first: u64,
    },
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

/// A request that waits.
#[derive(Debug)]
pub(crate) enum Request {
    Read(ReadIo),
    Write { first: u64, data: Bytes, durability: Durability, io: Io },
}

/// What waits for its turn, first come, first served.
#[derive(Debug, Default)]
pub(crate) struct Requests(pub(crate) VecDeque<Request>);
