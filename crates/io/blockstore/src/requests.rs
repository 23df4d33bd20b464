//! Requests for data on their way to the device: how many it has at a time, and what waits for its turn.
//!
//! What clients ask for at a time may be far more than a disk takes (`nacre_env::disk::REQUESTS_MAX`): a thousand reads from
//! each of a hundred connections in one turn, or large writes into free space that lies in single blocks. Log records, the
//! checkpoint's homes and flushes are few, and never wait here.

use crate::BLOCK;
use crate::reads::ReadIo;
use crate::store::{BlockStore, Io};
use nacre_buf::{AlignedBuf, Bytes};
use nacre_env::disk::Durability;
use std::collections::VecDeque;

/// With so many requests at the device, reads and placed data wait.
const AT_DEVICE_MAX: usize = 1024;

/// What waits for its turn.
#[derive(Debug)]
enum Request {
    Read(ReadIo),
    Write { first: u32, data: Bytes, durability: Durability, io: Io },
}

/// See the module's documentation; first come, first served.
#[derive(Debug, Default)]
pub(crate) struct Requests(VecDeque<Request>);

impl BlockStore {
    /// Reads a run. The memory for it is taken when its turn comes.
    pub(crate) fn request_read(&mut self, read: ReadIo) {
        self.request(Request::Read(read));
    }

    /// Writes placed data.
    pub(crate) fn request_write(&mut self, first: u32, data: Bytes, durability: Durability, io: Io) {
        self.request(Request::Write { first, data, durability, io });
    }

    fn request(&mut self, request: Request) {
        self.requests.0.push_back(request);
        self.start_requests();
    }

    /// Starts what waits, as far as the device has room.
    pub(crate) fn start_requests(&mut self) {
        while self.at_device() < AT_DEVICE_MAX
            && let Some(request) = self.requests.0.pop_front()
        {
            match request {
                Request::Write { first, data, durability, io } => {
                    self.start_write(first, data.into(), durability, io);
                }
                Request::Read(read) => {
                    let run = read.run();
                    let tag = self.tag(Io::Read(read));
                    let buffer = AlignedBuf::with_len(run.count as usize * BLOCK);
                    self.disk.read(Self::offset(run.start), buffer, tag);
                }
            }
        }
    }
}
