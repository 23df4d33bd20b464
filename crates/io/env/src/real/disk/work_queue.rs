//! [`WorkQueue`]: requests on their way to threads that make blocking calls, and what has become of them.

use super::op::Op;
use super::sys::EventFd;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

struct Queues<D> {
    waiting: VecDeque<Op>,
    finished: Vec<D>,
    is_stopping: bool,
}

/// Between one thread that submits and drains, and those that [`WorkQueue::serve`]. What is done is a `D`.
pub(super) struct WorkQueue<D> {
    queues: Mutex<Queues<D>>,
    work: Condvar,
    progress: Condvar,
    wake: EventFd,
}

impl<D> WorkQueue<D> {
    /// What finishes makes `wake` readable.
    pub(super) fn new(wake: EventFd) -> Self {
        let queues = Queues { waiting: VecDeque::new(), finished: Vec::new(), is_stopping: false };
        Self { queues: Mutex::new(queues), work: Condvar::new(), progress: Condvar::new(), wake }
    }

    pub(super) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn queues(&self) -> MutexGuard<'_, Queues<D>> {
        // Nothing panics while holding it; were it to, the queues are whole between any two statements.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands requests over to so many threads.
    pub(super) fn submit(&self, queued: &mut Vec<Op>, threads: usize) {
        let count = queued.len();
        self.queues().waiting.extend(queued.drain(..));
        for _ in 0..count.min(threads) {
            self.work.notify_one();
        }
    }

    /// Moves what has finished to the end of `out`.
    pub(super) fn drain(&self, out: &mut Vec<D>) {
        out.append(&mut self.queues().finished);
    }

    /// Whether [`WorkQueue::drain`] has something to give.
    pub(super) fn has_finished(&self) -> bool {
        !self.queues().finished.is_empty()
    }

    /// Waits until it has: something must be in flight.
    pub(super) fn wait(&self) {
        let mut queues = self.queues();
        while queues.finished.is_empty() {
            queues = self.progress.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends what no thread has begun, in the call.
    pub(super) fn end_waiting(&self, mut end: impl FnMut(Op) -> D) {
        let mut queues = self.queues();
        let waiting = std::mem::take(&mut queues.waiting);
        queues.finished.extend(waiting.into_iter().map(&mut end));
        self.wake.signal();
    }

    /// Forgets what no thread has begun.
    pub(super) fn forget_waiting(&self) {
        self.queues().waiting.clear();
    }

    /// Has the threads end once nothing is waiting.
    pub(super) fn stop(&self) {
        self.queues().is_stopping = true;
        self.work.notify_all();
    }

    /// One thread: takes requests until told to stop and none is left.
    pub(super) fn serve(&self, perform: impl Fn(Op) -> D) {
        let mut queues = self.queues();
        loop {
            let Some(op) = queues.waiting.pop_front() else {
                if queues.is_stopping {
                    return;
                }
                queues = self.work.wait(queues).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(queues);
            let done = perform(op);
            queues = self.queues();
            queues.finished.push(done);
            if queues.finished.len() == 1 {
                self.progress.notify_one();
                self.wake.signal();
            }
        }
    }
}
