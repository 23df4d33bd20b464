//! [`Background`]: one thread that carries out batches in the order in which they came.

use crate::{KvBatch, KvCompletion, KvError, KvTag};
use nacre_env::real::EventFd;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

struct Queues<J> {
    waiting: VecDeque<(KvTag, J)>,
    is_busy: bool,
    finished: Vec<KvCompletion>,
    /// The thread that waits for a completion is to look at something else.
    is_roused: bool,
    stopping: bool,
}

/// What both threads see.
pub(crate) struct Shared<J = KvBatch> {
    queues: Mutex<Queues<J>>,
    work: Condvar,
    progress: Condvar,
    wake: EventFd,
}

impl<J> Shared<J> {
    /// Wakes the thread that waits for a completion, without one.
    pub(crate) fn rouse(&self) {
        self.queues().is_roused = true;
        self.progress.notify_all();
        self.wake.signal();
    }

    fn queues(&self) -> MutexGuard<'_, Queues<J>> {
        // Nothing panics while holding it; were it to, the queues are whole between any two statements.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread begins with the first batch: a store that only commits in the call never has it.
pub(crate) struct Background<J: Send + 'static = KvBatch> {
    shared: Arc<Shared<J>>,
    thread: Option<JoinHandle<()>>,
    under_way: usize,
}

impl<J: Send + 'static> Background<J> {
    pub(crate) fn new() -> io::Result<Self> {
        let shared = Shared {
            queues: Mutex::new(Queues {
                waiting: VecDeque::new(),
                is_busy: false,
                finished: Vec::new(),
                is_roused: false,
                stopping: false,
            }),
            work: Condvar::new(),
            progress: Condvar::new(),
            wake: EventFd::new()?,
        };
        Ok(Self { shared: Arc::new(shared), thread: None, under_way: 0 })
    }

    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }

    pub(crate) fn shared(&self) -> Arc<Shared<J>> {
        Arc::clone(&self.shared)
    }

    /// Queues a batch for `commit`, which is that of the first call for all of them.
    pub(crate) fn submit<F>(&mut self, batch: J, tag: KvTag, commit: impl FnOnce() -> F)
    where
        F: Fn(&J) -> Result<(), KvError> + Send + 'static,
    {
        self.under_way += 1;
        if self.thread.is_none() {
            let (shared, commit) = (Arc::clone(&self.shared), commit());
            let builder = std::thread::Builder::new().name("kv-commit".to_owned());
            match builder.spawn(move || serve(&shared, &commit)) {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => return self.refuse(tag, error),
            }
        }
        self.shared.queues().waiting.push_back((tag, batch));
        self.shared.work.notify_one();
    }

    fn refuse(&self, tag: KvTag, error: io::Error) {
        self.shared.queues().finished.push(KvCompletion { tag, result: Err(KvError::Device(error)) });
        self.shared.wake.signal();
    }

    pub(crate) fn drain(&mut self, out: &mut Vec<KvCompletion>) {
        if self.under_way > 0 {
            let before = out.len();
            out.append(&mut self.shared.queues().finished);
            self.under_way -= out.len() - before;
        }
    }

    /// Nothing was submitted that has not been drained.
    pub(crate) const fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    /// Waits for a completion, or to be roused.
    pub(crate) fn wait(&self) {
        let mut queues = self.shared.queues();
        while self.under_way > 0 && queues.finished.is_empty() && !queues.is_roused {
            queues = self.shared.progress.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
        queues.is_roused = false;
    }

    /// Waits until no batch is left to be carried out.
    pub(crate) fn settle(&self) {
        let mut queues = self.shared.queues();
        while queues.is_busy || !queues.waiting.is_empty() {
            queues = self.shared.progress.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<J: Send + 'static> Background<J> {
    /// Lets what was submitted finish; the next batch begins the thread anew.
    pub(crate) fn end_thread(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.queues().stopping = true;
        self.shared.work.notify_all();
        // A thread that panicked has said so.
        let _panicked = thread.join();
        self.shared.queues().stopping = false;
    }
}

impl<J: Send + 'static> Drop for Background<J> {
    fn drop(&mut self) {
        self.end_thread();
    }
}

fn serve<J>(shared: &Shared<J>, commit: &impl Fn(&J) -> Result<(), KvError>) {
    let mut queues = shared.queues();
    loop {
        let Some((tag, batch)) = queues.waiting.pop_front() else {
            if queues.stopping {
                return;
            }
            queues = shared.work.wait(queues).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        queues.is_busy = true;
        drop(queues);
        let result = commit(&batch);
        // A large batch is freed here, not on the thread that must not wait.
        drop(batch);
        queues = shared.queues();
        queues.is_busy = false;
        queues.finished.push(KvCompletion { tag, result });
        shared.progress.notify_all();
        shared.wake.signal();
    }
}
