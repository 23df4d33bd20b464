//! [`Delay`]: a fault for tests. Completions are kept for a while before the owner gets them, as if the device were slow.

use super::sys::EventFd;
use crate::disk::DiskCompletion;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// When the owner is to be woken next, or that nobody is to be woken any more.
#[derive(Default)]
struct Alarm {
    at: Option<Instant>,
    is_over: bool,
}

#[derive(Default)]
struct Shared {
    alarm: Mutex<Alarm>,
    changed: Condvar,
}

impl Shared {
    fn alarm(&self) -> MutexGuard<'_, Alarm> {
        // It is whole between any two statements.
        self.alarm.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Completions that wait. At most as many as there are requests in flight.
pub(super) struct Delay {
    each: Duration,
    waiting: VecDeque<(Instant, DiskCompletion)>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Delay {
    /// Of nothing yet. A thread makes `wake` readable when something is due.
    pub(super) fn start(wake: BorrowedFd<'_>) -> io::Result<Self> {
        let (shared, wake) = (Arc::<Shared>::default(), EventFd::of(wake)?);
        let of_thread = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("disk-delay".to_owned());
        let thread = builder.spawn(move || serve(&of_thread, &wake))?;
        Ok(Self { each: Duration::ZERO, waiting: VecDeque::new(), shared, thread: Some(thread) })
    }

    /// How long each completion waits from now on; those that wait already do not change.
    pub(super) fn set(&mut self, each: Duration) {
        self.each = each;
    }

    /// Whether nothing waits, and nothing will.
    pub(super) fn is_over(&self) -> bool {
        self.each.is_zero() && self.waiting.is_empty()
    }

    /// Whether something waits.
    pub(super) fn holds(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Keeps what the device has finished.
    pub(super) fn keep(&mut self, finished: Vec<DiskCompletion>) {
        let due = Instant::now() + self.each;
        self.waiting.extend(finished.into_iter().map(|completion| (due, completion)));
    }

    /// Gives what is due.
    pub(super) fn release(&mut self, out: &mut Vec<DiskCompletion>) {
        let now = Instant::now();
        // Whatever was set meanwhile, they are given in the order in which they came.
        while let Some((_, completion)) = self.waiting.pop_front_if(|(due, _)| *due <= now) {
            out.push(completion);
        }
        let next = self.waiting.front().map(|(due, _)| *due);
        if next.is_some() {
            self.shared.alarm().at = next;
            self.shared.changed.notify_one();
        }
    }

    /// Sleeps until something is due.
    pub(super) fn wait(&self) {
        if let Some((due, _)) = self.waiting.front() {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.shared.alarm().is_over = true;
        self.shared.changed.notify_one();
        // A thread that panicked has said so.
        let _panicked = self.thread.take().map(JoinHandle::join);
    }
}

fn serve(shared: &Shared, wake: &EventFd) {
    let mut alarm = shared.alarm();
    while !alarm.is_over {
        let now = Instant::now();
        alarm = match alarm.at {
            Some(at) if at <= now => {
                alarm.at = None;
                wake.signal();
                alarm
            }
            Some(at) => {
                let waited = shared.changed.wait_timeout(alarm, at - now);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => shared.changed.wait(alarm).unwrap_or_else(PoisonError::into_inner),
        };
    }
}
