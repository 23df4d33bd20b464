//! The store's requests to its devices: started, waited for, and what follows when they complete.

use crate::BLOCK;
use crate::checkpoint::Checkpoint;
use crate::fetch::ReadIo;
use crate::options::Planted;
use crate::requests::{AT_DEVICE_MAX, Io, Request};
use crate::store::BlockStore;
use crate::wal::RecordWrite;
use nacre_buf::{AlignedBuf, BufList, Bytes};
use nacre_env::disk::{DiskCompletion, DiskTag, Durability};

impl BlockStore {
    pub(crate) fn tag(&mut self, io: Io) -> DiskTag {
        DiskTag(self.io.insert(io) as u64)
    }

    pub(crate) fn offset(block: u32) -> u64 {
        u64::from(block) * BLOCK as u64
    }

    pub(crate) fn start_write(&mut self, first: u32, data: BufList, durability: Durability, io: Io) {
        let tag = self.tag(io);
        self.disk.write(Self::offset(first), data, durability, tag);
    }

    pub(crate) fn start_flush(&mut self) {
        let tag = self.tag(Io::Flush);
        self.disk.flush(tag);
    }

    pub(crate) fn start_record(&mut self, write: RecordWrite) {
        let tag = self.tag(Io::Record { seq: write.seq });
        self.disk.write(write.offset, write.data.into(), Durability::Durable, tag);
        if self.options.planted == Planted::EarlyAcknowledgement {
            self.wal.written(write.seq);
        }
    }

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
                    let run = read.run;
                    let tag = self.tag(Io::Read(read));
                    let buffer = AlignedBuf::with_len(run.count as usize * BLOCK);
                    self.disk.read(Self::offset(run.start), buffer, tag);
                }
            }
        }
    }

    /// Takes what the device and the KV store have finished.
    pub(crate) fn poll_devices(&mut self) {
        let mut commits = std::mem::take(&mut self.commits);
        self.table.kv.drain(&mut commits);
        commits.drain(..).for_each(|commit| self.committed(commit.result));
        self.commits = commits;
        let mut completions = std::mem::take(&mut self.completions);
        self.disk.drain(&mut completions);
        for completion in completions.drain(..) {
            self.completed(completion);
        }
        self.completions = completions;
        self.start_requests();
    }

    /// Requests that the device has.
    pub(crate) fn at_device(&self) -> usize {
        self.io.len()
    }

    fn completed(&mut self, completion: DiskCompletion) {
        let tag = usize::try_from(completion.tag.0).unwrap_or(usize::MAX);
        let Some(io) = self.io.try_remove(tag) else { return };
        let io = match io {
            Io::Read(read) => return self.read_completed(read, completion),
            io => io,
        };
        if let Err(error) = completion.result {
            return self.fail(error.to_string());
        }
        match io {
            Io::Record { seq } => self.wal.written(seq),
            Io::Placed { number, first } => {
                self.cache.written(first);
                self.wal.placed(number);
            }
            Io::Piece { number, first } => {
                self.cache.written(first);
                self.piece_written(number);
            }
            Io::PiecesFlush { number } => self.wal.placed(number),
            Io::Home => self.home_written(),
            Io::Flush => self.flushed(),
            Io::Read(_) => (),
        }
    }

    /// Waits for what is on its way. While the metadata is being committed, requests to the device end on their own.
    pub(crate) fn wait_for_anything(&mut self) {
        if self.io.is_empty() { self.wait_for_devices() } else { self.disk.wait() }
    }

    /// Waits for what the checkpoint waits for.
    pub(crate) fn wait_for_devices(&mut self) {
        if self.checkpoint.as_ref().is_some_and(Checkpoint::is_committing) {
            self.table.kv.wait();
        } else {
            self.disk.wait();
        }
    }
}
