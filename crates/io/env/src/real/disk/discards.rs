//! [`Discards`]: a thread of its own for discards. The kernel answers a discard of a block device when the device has done it, takes it
//! through a call that io_uring does not have before Linux 6.12, and may take long for it: so they neither go through the ring nor keep
//! the threads from what somebody waits for. One goes to the device at a time.

use super::op::Op;
use super::sys::{self, EventFd};
use super::work_queue::WorkQueue;
use crate::disk::DiskCompletion;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

struct Shared {
    queue: WorkQueue<DiskCompletion>,
    file: File,
    is_device: bool,
}

/// The thread, and what it has to do and has done.
pub(super) struct Discards {
    shared: Arc<Shared>,
    /// `None` until there is something to discard.
    thread: Option<JoinHandle<()>>,
    in_flight: usize,
}

impl Discards {
    /// Discards of a file or block device. What finishes makes `wake` readable.
    pub(super) fn of(file: File, is_device: bool, wake: BorrowedFd<'_>) -> io::Result<Self> {
        let shared = Arc::new(Shared { queue: WorkQueue::new(EventFd::of(wake)?), file, is_device });
        Ok(Self { shared, thread: None, in_flight: 0 })
    }

    pub(super) fn submit(&mut self, queued: &mut Vec<Op>) {
        if queued.is_empty() {
            return;
        }
        self.in_flight += queued.len();
        self.shared.queue.submit(queued, 1);
        if self.thread.is_none() {
            let of_thread = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name("disk-discard".to_owned());
            let serve = move || of_thread.queue.serve(|op| discard(&of_thread, op));
            match builder.spawn(serve) {
                Ok(thread) => self.thread = Some(thread),
                Err(_no_more_threads) => self.refuse_all(),
            }
        }
    }

    /// There is nobody to do it.
    fn refuse_all(&self) {
        let no_memory = |_: &mut Op| Err(io::Error::from_raw_os_error(libc::ENOMEM));
        self.shared.queue.end_waiting(|op| op.perform(no_memory));
    }

    pub(super) fn drain(&mut self, out: &mut Vec<DiskCompletion>) {
        if self.in_flight > 0 {
            let before = out.len();
            self.shared.queue.drain(out);
            self.in_flight -= out.len() - before;
        }
    }

    /// Whether [`Discards::drain`] has something to give.
    pub(super) fn has_finished(&self) -> bool {
        self.in_flight > 0 && self.shared.queue.has_finished()
    }

    /// Waits until it has, if anything is in flight.
    pub(super) fn wait(&self) {
        if self.in_flight > 0 {
            self.shared.queue.wait();
        }
    }
}

/// Lets the one under way finish; what waits behind it is only advice, and is not given any more.
impl Drop for Discards {
    fn drop(&mut self) {
        self.shared.queue.forget_waiting();
        self.shared.queue.stop();
        // A thread that panicked has said so.
        let _panicked = self.thread.take().map(JoinHandle::join);
    }
}

fn discard(shared: &Shared, op: Op) -> DiskCompletion {
    op.perform(|op| {
        let discarded = if shared.is_device {
            sys::discard(&shared.file, op.offset, op.length)
        } else {
            sys::punch_hole(&shared.file, op.offset, op.length)
        };
        discarded.map(|()| 0)
    })
}
