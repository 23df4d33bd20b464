//! The store's requests to its devices: started, waited for, and what follows when they complete.

use crate::BLOCK;
use crate::checkpoint::Checkpoint;
use crate::device::Run;
use crate::fetch::ReadIo;
use crate::latencies::NOT_STARTED;
use crate::options::Planted;
use crate::requests::{AT_DEVICE_MAX, Io, PlacedPiece, Request, UnderWay};
use crate::store::BlockStore;
use crate::superblock::Superblock;
use crate::wal::RecordWrite;
use nacre_buf::{AlignedBuf, BufList, Bytes};
use nacre_env::disk::{DiskCompletion, DiskTag, Durability};
use nacre_store::{DiscardPolicy, MeasuredDevice};
use nacre_types::{DeviceLatencies, DeviceWork, RequestClass, Stamp};
use std::time::Duration;

impl BlockStore {
    pub(crate) fn tag(&mut self, io: Io, work: DeviceWork, bytes: usize) -> DiskTag {
        let class = RequestClass::of(work, self.io.len() - self.discards.in_flight, bytes as u64);
        let key = self.io.insert(UnderWay { io, class: Some(class), started: NOT_STARTED });
        self.latencies.queued.push(key);
        DiskTag(key as u64)
    }

    /// Gives the device what is queued for it.
    pub(crate) fn start_queued(&mut self) {
        self.requests.put_together();
        self.start_requests();
        if !self.latencies.queued.is_empty() {
            let now = self.shares.now().unwrap_or(NOT_STARTED);
            self.latencies.started(now);
            for key in self.latencies.queued.drain(..) {
                if let Some(under_way) = self.io.get_mut(key) {
                    under_way.started = now;
                }
            }
        }
        self.disk.submit();
    }

    pub(crate) fn offset(block: u64) -> u64 {
        block * BLOCK as u64
    }

    pub(crate) fn start_write(&mut self, first: u64, data: BufList, durability: Durability, io: Io) {
        let work = match durability {
            Durability::Cached => DeviceWork::CachedWrite,
            Durability::Durable => DeviceWork::DurableWrite,
        };
        let tag = self.tag(io, work, data.len());
        self.disk.write(Self::offset(first), data, durability, tag);
    }

    pub(crate) fn start_flush(&mut self) {
        let tag = self.tag(Io::Flush, DeviceWork::Flush, 0);
        self.disk.flush(tag);
    }

    /// Queues a discard of free blocks.
    pub(crate) fn start_discard(&mut self, run: Run, is_held: bool) {
        let io = Io::Discard { run, is_held };
        let key = self.io.insert(UnderWay { io, class: None, started: NOT_STARTED });
        let bytes = run.count * BLOCK as u64;
        self.disk.discard(Self::offset(run.start), bytes, DiskTag(key as u64));
    }

    pub(crate) fn start_record(&mut self, write: RecordWrite) {
        let tag = self.tag(Io::Record { seq: write.seq }, DeviceWork::DurableWrite, write.data.len());
        self.disk.write(write.offset, write.data.into(), Durability::Durable, tag);
        if self.options.planted == Planted::EarlyAcknowledgement {
            self.wal.written(write.seq);
        }
    }

    /// Reads a run. The memory for it is taken when its turn comes.
    pub(crate) fn request_read(&mut self, read: ReadIo) {
        self.request(Request::Read(read));
    }

    /// Writes a piece of placed data that is flushed with others.
    pub(crate) fn request_piece(&mut self, piece: PlacedPiece, data: Bytes) {
        let (first, data, durability) = (piece.first, data.into(), Durability::Cached);
        self.request(Request::Write { first, data, durability, io: Io::Piece(piece) });
    }

    fn request(&mut self, request: Request) {
        self.requests.waiting.push_back(request);
        self.start_requests();
    }

    /// Starts what waits, as far as the device has room.
    pub(crate) fn start_requests(&mut self) {
        while self.at_device() < AT_DEVICE_MAX
            && let Some(request) = self.requests.waiting.pop_front()
        {
            match request {
                Request::Write { first, data, durability, io } => {
                    self.start_write(first, data, durability, io);
                }
                Request::Read(read) => {
                    let run = read.run;
                    let bytes = run.count as usize * BLOCK;
                    let tag = self.tag(Io::Read(read), DeviceWork::Read, bytes);
                    let buffer = AlignedBuf::with_len(bytes);
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
        self.drain_warm();
        let mut completions = std::mem::take(&mut self.completions);
        self.disk.drain(&mut completions);
        let now = if completions.is_empty() { None } else { self.shares.now() };
        for completion in completions.drain(..) {
            self.completed(completion, now.unwrap_or(NOT_STARTED));
        }
        self.completions = completions;
        self.start_requests();
    }

    /// Requests that the device has.
    pub(crate) fn at_device(&self) -> usize {
        self.io.len()
    }

    fn completed(&mut self, completion: DiskCompletion, now: Stamp) {
        let tag = usize::try_from(completion.tag.0).unwrap_or(usize::MAX);
        let Some(UnderWay { io, class, started }) = self.io.try_remove(tag) else { return };
        if let Some(class) = class {
            self.latencies.note(class, started, now);
        }
        let io = match io {
            Io::Read(read) => return self.read_completed(read, completion),
            Io::Probe => return self.probed(completion),
            Io::Discard { run, is_held } => return self.discarded(run, is_held, completion.result),
            io => io,
        };
        if let Err(error) = completion.result {
            return self.fail(error.to_string());
        }
        match io {
            Io::Record { seq } => self.wal.written(seq),
            Io::Placed(pieces) => {
                for PlacedPiece { number, first } in pieces {
                    self.cache.written(first);
                    self.wal.placed(number);
                }
            }
            Io::Piece(PlacedPiece { number, first }) => {
                self.cache.written(first);
                self.piece_written(number);
            }
            Io::PiecesFlush { number } => self.wal.placed(number),
            Io::Home => self.home_written(),
            Io::Flush => self.flushed(),
            Io::Read(_) | Io::Probe | Io::Discard { .. } => (),
        }
    }

    /// A probe is done. A copy that is not whole must stay as it is.
    fn probed(&mut self, completion: DiskCompletion) {
        match (completion.result, completion.buffer) {
            (Ok(()), Some(buffer)) => {
                let copy = buffer.freeze();
                let is_whole = Superblock::decode(&copy, u64::MAX).is_ok_and(|read| read == self.superblock);
                self.latencies.probed = is_whole.then_some(copy);
            }
            (Err(error), None) => self.fail(error.to_string()),
            (Ok(()), None) | (Err(_), Some(_)) => (),
        }
    }

    /// Reads a superblock and waits for that.
    pub(crate) fn look_at_device(&mut self) {
        let tag = self.tag(Io::Probe, DeviceWork::Read, BLOCK);
        self.disk.read(Self::offset(PROBED_COPY), AlignedBuf::with_len(BLOCK), tag);
        let key = usize::try_from(tag.0).unwrap_or(usize::MAX);
        // What is begun when it is done, such as a flush, may get its key, and is still to be given to the device.
        while matches!(self.io.get(key), Some(UnderWay { io: Io::Probe, .. })) {
            self.start_queued();
            self.disk.wait();
            self.poll_devices();
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

/// The second copy of the superblock is what a probe reads and writes again as it is: whatever becomes of it, the content is the same.
const PROBED_COPY: u64 = 1;

impl MeasuredDevice for BlockStore {
    fn take_latencies(&mut self) -> DeviceLatencies {
        self.latencies.take()
    }

    fn probe(&mut self, idle: Duration) {
        let Some(now) = self.shares.now().filter(|_| self.failed.is_none()) else { return };
        let is_idle = |work| now.since(self.latencies.last(work)) >= idle;
        let is_probed = self.io.iter().any(|(_, under_way)| matches!(under_way.io, Io::Probe));
        let (reads, writes) = (is_idle(DeviceWork::Read), is_idle(DeviceWork::DurableWrite));
        if is_probed || self.at_device() >= AT_DEVICE_MAX {
            return;
        }
        let copy = self.latencies.probed.clone();
        if reads || (writes && copy.is_none()) {
            let tag = self.tag(Io::Probe, DeviceWork::Read, BLOCK);
            self.disk.read(Self::offset(PROBED_COPY), AlignedBuf::with_len(BLOCK), tag);
        }
        if let Some(copy) = copy.filter(|_| writes) {
            self.start_write(PROBED_COPY, copy.into(), Durability::Durable, Io::Probe);
        }
    }

    fn set_discards(&mut self, policy: DiscardPolicy) {
        self.follow_policy(policy);
    }

    fn delay(&mut self, each: Duration) -> std::io::Result<()> {
        self.disk.delay(each)
    }
}
