//! [`Threads`]: where io_uring is forbidden, a few threads make the blocking calls.

use super::file::DeviceFile;
use super::op::{Op, Work};
use super::sys::{self, EventFd};
use super::work_queue::WorkQueue;
use crate::disk::{DiskCompletion, REQUESTS_MAX};
use nacre_buf::BufList;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Calls that the device sees at once. Two group commits keep a log busy, two more serve reads meanwhile.
const THREADS: usize = 4;
/// Slices per call, as Linux limits them.
const SLICES_MAX: usize = 1024;

struct Finished {
    completion: DiskCompletion,
    /// Goes back with it, so that memory returns to the pool of the thread that it came from.
    _data: Option<BufList>,
}

struct Shared {
    queue: WorkQueue<Finished>,
    file: File,
}

pub(super) struct Threads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    in_flight: usize,
    taken: Vec<Finished>,
}

impl Threads {
    pub(super) fn start(file: DeviceFile) -> io::Result<Self> {
        let shared = Arc::new(Shared { queue: WorkQueue::new(EventFd::new()?), file: file.file });
        let mut threads = Self { shared, threads: Vec::new(), in_flight: 0, taken: Vec::new() };
        for index in 0..THREADS {
            let shared = Arc::clone(&threads.shared);
            let builder = std::thread::Builder::new().name(format!("disk-{index}"));
            threads.threads.push(builder.spawn(move || shared.queue.serve(|op| perform(&shared.file, op)))?);
        }
        Ok(threads)
    }

    pub(super) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.shared.queue.wake_fd()
    }

    pub(super) fn submit(&mut self, queued: &mut Vec<Op>) {
        self.in_flight += queued.len();
        assert!(self.in_flight <= REQUESTS_MAX, "{} requests to one disk", self.in_flight);
        self.shared.queue.submit(queued, THREADS);
    }

    pub(super) fn drain(&mut self, out: &mut Vec<DiskCompletion>) {
        self.shared.queue.drain(&mut self.taken);
        self.in_flight -= self.taken.len();
        out.extend(self.taken.drain(..).map(|finished| finished.completion));
    }

    pub(super) fn wait(&self) {
        if self.in_flight > 0 {
            self.shared.queue.wait();
        }
    }
}

/// Lets what was submitted finish.
impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.queue.stop();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _panicked = thread.join();
        }
    }
}

fn perform(file: &File, op: Op) -> Finished {
    let data = match &op.work {
        Work::Write { data, .. } => Some(data.clone()),
        _ => None,
    };
    Finished { completion: op.perform(|op| call(file, op)), _data: data }
}

/// One system call for what is left of an op.
fn call(file: &File, op: &mut Op) -> io::Result<usize> {
    let offset = op.offset + op.done as u64;
    let (flags, is_to_sync) = (if op.takes_flag() { libc::RWF_DSYNC } else { 0 }, op.is_to_sync());
    let is_plain = op.syncs_behind();
    match &mut op.work {
        Work::Write { .. } if is_to_sync => file.sync_data().map(|()| 0),
        // Where io_uring is forbidden, the sandbox may not know the call either that takes the flag.
        Work::Write { data, .. } if is_plain => write_plain(file, offset, data, op.done),
        Work::Write { data, .. } => write(file, offset, data, op.done, flags),
        Work::Read { into } => file.read_at(&mut into[op.done..], offset),
        Work::Flush => file.sync_data().map(|()| 0),
        Work::Discard => unreachable!("discards have a thread of their own"),
    }
}

fn write(file: &File, offset: u64, data: &BufList, done: usize, flags: libc::c_int) -> io::Result<usize> {
    let left = data.slice(done, data.len() - done);
    let slices: Vec<IoSlice<'_>> =
        left.slices().iter().take(SLICES_MAX).map(|slice| IoSlice::new(slice)).collect();
    sys::write_at(file, offset, &slices, flags)
}

/// The first slice that is left, by the oldest call there is.
fn write_plain(file: &File, offset: u64, data: &BufList, done: usize) -> io::Result<usize> {
    let left = data.slice(done, data.len() - done);
    file.write_at(left.slices().first().map_or(&[][..], |slice| slice), offset)
}
