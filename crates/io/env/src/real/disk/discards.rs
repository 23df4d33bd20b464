//! [`Discards`]: a thread of its own for discards. The kernel answers a discard of a block device when the device has done it, takes it
//! through a call that io_uring does not have before Linux 6.12, and may take long for it: so they neither go through the ring nor keep
//! the threads from what somebody waits for. One goes to the device at a time.

use super::op::{Op, Progress};
use super::sys::{self, EventFd};
use crate::disk::DiskCompletion;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

#[derive(Default)]
struct Queues {
    waiting: VecDeque<Op>,
    finished: Vec<DiskCompletion>,
    is_stopping: bool,
}

struct Shared {
    queues: Mutex<Queues>,
    work: Condvar,
    progress: Condvar,
    file: File,
    is_device: bool,
    wake: EventFd,
}

impl Shared {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        // It is whole between any two statements.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        let shared = Arc::new(Shared {
            queues: Mutex::default(),
            work: Condvar::new(),
            progress: Condvar::new(),
            file,
            is_device,
            wake: EventFd::of(wake)?,
        });
        Ok(Self { shared, thread: None, in_flight: 0 })
    }

    pub(super) fn submit(&mut self, queued: &mut Vec<Op>) {
        if queued.is_empty() {
            return;
        }
        self.in_flight += queued.len();
        self.shared.queues().waiting.extend(queued.drain(..));
        if self.thread.is_none() {
            let of_thread = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name("disk-discard".to_owned());
            match builder.spawn(move || serve(&of_thread)) {
                Ok(thread) => self.thread = Some(thread),
                Err(_no_more_threads) => return self.refuse_all(),
            }
        }
        self.shared.work.notify_one();
    }

    /// There is nobody to do it.
    fn refuse_all(&self) {
        let mut queues = self.shared.queues();
        while let Some(op) = queues.waiting.pop_front() {
            match op.answered(Err(io::Error::from_raw_os_error(libc::ENOMEM))) {
                Progress::Finished(completion) => queues.finished.push(completion),
                Progress::Again(op) => queues.waiting.push_back(op),
            }
        }
        self.shared.wake.signal();
    }

    pub(super) fn drain(&mut self, out: &mut Vec<DiskCompletion>) {
        if self.in_flight > 0 {
            let before = out.len();
            out.append(&mut self.shared.queues().finished);
            self.in_flight -= out.len() - before;
        }
    }

    /// Whether [`Discards::drain`] has something to give.
    pub(super) fn has_finished(&self) -> bool {
        self.in_flight > 0 && !self.shared.queues().finished.is_empty()
    }

    /// Waits until it has, if anything is in flight.
    pub(super) fn wait(&self) {
        if self.in_flight == 0 {
            return;
        }
        let mut queues = self.shared.queues();
        while queues.finished.is_empty() {
            queues = self.shared.progress.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Lets the one under way finish; what waits behind it is only advice, and is not given any more.
impl Drop for Discards {
    fn drop(&mut self) {
        let mut queues = self.shared.queues();
        queues.waiting.clear();
        queues.is_stopping = true;
        drop(queues);
        self.shared.work.notify_all();
        // A thread that panicked has said so.
        let _panicked = self.thread.take().map(JoinHandle::join);
    }
}

fn serve(shared: &Shared) {
    let mut queues = shared.queues();
    loop {
        let Some(op) = queues.waiting.pop_front() else {
            if queues.is_stopping {
                return;
            }
            queues = shared.work.wait(queues).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(queues);
        let completion = perform(shared, op);
        queues = shared.queues();
        queues.finished.push(completion);
        if queues.finished.len() == 1 {
            shared.progress.notify_one();
            shared.wake.signal();
        }
    }
}

fn perform(shared: &Shared, mut op: Op) -> DiskCompletion {
    loop {
        let outcome = if shared.is_device {
            sys::discard(&shared.file, op.offset, op.length)
        } else {
            sys::punch_hole(&shared.file, op.offset, op.length)
        };
        match op.answered(outcome.map(|()| 0)) {
            Progress::Finished(completion) => return completion,
            Progress::Again(rest) => op = rest,
        }
    }
}
