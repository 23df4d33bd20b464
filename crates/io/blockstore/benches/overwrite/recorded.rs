//! What a store asks of its device, counted by kind, and on demand kept one by one: of the data's file as of the files of its metadata.

use nacre_buf::{AlignedBuf, BufList};
use nacre_env::disk::{DiskCompletion, DiskInfo, DiskTag, Durability};
use nacre_env::real::RealDisk;
use nacre_env::{Clock, Disk, File, FileRoom, RealClock};
use nacre_types::Stamp;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

/// Kinds of requests to the data's file, in the order in which they are printed.
pub(crate) const KINDS: [&str; 5] = ["log", "durable beside it", "other writes", "flushes", "reads"];
pub(crate) const LOG: usize = 0;
pub(crate) const DURABLE: usize = 1;
pub(crate) const CACHED: usize = 2;
pub(crate) const FLUSH: usize = 3;
pub(crate) const READ: usize = 4;

/// A request to the data's file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataRequest {
    pub(crate) at: Stamp,
    /// One of [`KINDS`].
    pub(crate) kind: usize,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    pub(crate) done: Option<Stamp>,
    /// Of the log's: clients' writes that were durable when it was done.
    pub(crate) writes: usize,
}

/// What one of the metadata's files is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FileCall {
    Read,
    Write,
    Sync,
    WriteBack,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FileRequest {
    pub(crate) at: Stamp,
    pub(crate) call: FileCall,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) data: Vec<DataRequest>,
    /// By file, and by the thread that asked: calls of one thread come one after the other.
    pub(crate) files: Vec<(&'static str, ThreadId, Vec<FileRequest>)>,
    under_way: BTreeMap<DiskTag, usize>,
    /// Requests of the log that were done since clients' writes last were.
    logs_done: Vec<usize>,
}

/// Shared by all files of one store.
#[derive(Clone, Debug)]
pub(crate) struct Record(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: RealClock,
    counts: [[AtomicU64; 2]; KINDS.len()],
    keeps: AtomicBool,
    kept: Mutex<Kept>,
}

impl Record {
    pub(crate) fn new(clock: RealClock) -> Self {
        let (counts, keeps, kept) = Default::default();
        Self(Arc::new(Shared { clock, counts, keeps, kept }))
    }

    /// Requests and their bytes so far, by kind.
    pub(crate) fn counts(&self) -> [[u64; 2]; KINDS.len()] {
        self.0.counts.each_ref().map(|counts| counts.each_ref().map(|count| count.load(Ordering::Relaxed)))
    }

    /// From now on, or no more, each request is kept.
    pub(crate) fn keep(&self, keeps: bool) {
        self.0.keeps.store(keeps, Ordering::Relaxed);
    }

    pub(crate) fn take(&self) -> Kept {
        std::mem::take(&mut *self.0.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn with(&self, note: impl FnOnce(&mut Kept, Stamp)) {
        if self.0.keeps.load(Ordering::Relaxed) {
            note(&mut self.0.kept.lock().unwrap_or_else(PoisonError::into_inner), self.0.clock.now());
        }
    }

    /// So many clients' writes are durable by what the log's requests did that were done meanwhile.
    pub(crate) fn note_writes(&self, writes: usize) {
        self.with(|kept, _| {
            // Between two turns one request of the log is done, seldom more: all writes count for the newest.
            let newest = kept.logs_done.pop().and_then(|at| kept.data.get_mut(at));
            newest.into_iter().for_each(|request| request.writes += writes);
            kept.logs_done.clear();
        });
    }

    fn note(&self, kind: usize, offset: u64, bytes: usize, tag: DiskTag) {
        if let Some([requests, sum]) = self.0.counts.get(kind) {
            requests.fetch_add(1, Ordering::Relaxed);
            sum.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        self.with(|kept, at| {
            kept.under_way.insert(tag, kept.data.len());
            kept.data.push(DataRequest { at, kind, offset, bytes, done: None, writes: 0 });
        });
    }

    fn note_done(&self, tag: DiskTag) {
        self.with(|kept, now| {
            let Some(at) = kept.under_way.remove(&tag) else { return };
            let Some(request) = kept.data.get_mut(at) else { return };
            request.done = Some(now);
            if request.kind == LOG {
                kept.logs_done.push(at);
            }
        });
    }

    fn note_call(&self, file: &'static str, call: FileCall, offset: u64, bytes: usize) {
        self.with(|kept, at| {
            let (thread, request) = (std::thread::current().id(), FileRequest { at, call, offset, bytes });
            match kept.files.iter_mut().find(|(name, of, _)| *name == file && *of == thread) {
                Some((_, _, calls)) => calls.push(request),
                None => kept.files.push((file, thread, vec![request])),
            }
        });
    }
}

/// The data's file.
pub(crate) struct RecordedDisk {
    pub(crate) disk: RealDisk,
    pub(crate) record: Record,
    /// Where the log's area ends.
    pub(crate) log_end: u64,
}

impl Disk for RecordedDisk {
    fn write(&mut self, offset: u64, data: BufList, durability: Durability, tag: DiskTag) {
        let kind = match durability {
            _ if offset < self.log_end => LOG,
            Durability::Durable => DURABLE,
            Durability::Cached => CACHED,
        };
        self.record.note(kind, offset, data.len(), tag);
        self.disk.write(offset, data, durability, tag);
    }

    fn read(&mut self, offset: u64, into: AlignedBuf, tag: DiskTag) {
        self.record.note(READ, offset, into.len(), tag);
        self.disk.read(offset, into, tag);
    }

    fn flush(&mut self, tag: DiskTag) {
        self.record.note(FLUSH, 0, 0, tag);
        self.disk.flush(tag);
    }

    fn discard(&mut self, offset: u64, length: u64, tag: DiskTag) {
        self.disk.discard(offset, length, tag);
    }

    fn submit(&mut self) {
        self.disk.submit();
    }

    fn drain(&mut self, out: &mut Vec<DiskCompletion>) {
        let before = out.len();
        self.disk.drain(out);
        out.iter().skip(before).for_each(|completion| self.record.note_done(completion.tag));
    }

    fn wait(&mut self) {
        self.disk.wait();
    }

    fn set_wakeups(&mut self, wakeups: bool) {
        self.disk.set_wakeups(wakeups);
    }

    fn info(&self) -> DiskInfo {
        self.disk.info()
    }
}

/// One of the metadata's files.
#[derive(Debug)]
pub(crate) struct RecordedFile {
    pub(crate) file: Arc<dyn File>,
    pub(crate) record: Record,
    pub(crate) name: &'static str,
}

impl File for RecordedFile {
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.record.note_call(self.name, FileCall::Read, offset, out.len());
        self.file.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.record.note_call(self.name, FileCall::Write, offset, data.len());
        self.file.write(offset, data)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_length(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.record.note_call(self.name, FileCall::Sync, 0, 0);
        self.file.sync()
    }

    fn write_back(&self) -> io::Result<()> {
        self.record.note_call(self.name, FileCall::WriteBack, 0, 0);
        self.file.write_back()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.file.reserve(bytes)
    }

    fn room(&self) -> io::Result<FileRoom> {
        self.file.room()
    }
}
