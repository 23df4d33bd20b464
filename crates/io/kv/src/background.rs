//! [`Background`]: a thread that carries out batches in the order in which they came, or several that carry out what has no order.

use crate::{KvBatch, KvCompletion, KvError, KvTag};
use nacre_env::real::EventFd;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

struct Queues<J, V> {
    waiting: VecDeque<(KvTag, J)>,
    /// Threads that are at one.
    busy: usize,
    /// Threads that wait for one.
    idle: usize,
    finished: Vec<KvCompletion<V>>,
    /// Threads that wait for a completion.
    awaiting: usize,
    /// The thread that waits for a completion is to look at something else.
    is_roused: bool,
    /// How many times memory was to be given back, and by what a thread gives back what its heap has of free memory.
    gives_back: (u64, fn()),
    stopping: bool,
}

/// What both threads see.
pub(crate) struct Shared<J = KvBatch, V = ()> {
    queues: Mutex<Queues<J, V>>,
    work: Condvar,
    progress: Condvar,
    wake: EventFd,
}

impl<J, V> Shared<J, V> {
    /// Wakes the thread that waits for a completion, without one.
    pub(crate) fn rouse(&self) {
        self.queues().is_roused = true;
        self.progress.notify_all();
        self.wake.signal();
    }

    fn queues(&self) -> MutexGuard<'_, Queues<J, V>> {
        // Nothing panics while holding it; were it to, the queues are whole between any two statements.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something has finished, or the thread is roused.
    fn await_progress<'a>(&self, mut queues: MutexGuard<'a, Queues<J, V>>) -> MutexGuard<'a, Queues<J, V>> {
        queues.awaiting += 1;
        queues = self.progress.wait(queues).unwrap_or_else(PoisonError::into_inner);
        queues.awaiting -= 1;
        queues
    }
}

/// A thread begins when a batch comes that none has time for: a store that only commits in the call never has any. What carries a batch out
/// gives `V`.
pub(crate) struct Background<J: Send + 'static = KvBatch, V: Send + 'static = ()> {
    shared: Arc<Shared<J, V>>,
    /// What the threads are called.
    name: &'static str,
    threads: Vec<JoinHandle<()>>,
    threads_max: usize,
    under_way: usize,
}

impl<J: Send + 'static, V: Send + 'static> Background<J, V> {
    /// With one thread, which keeps the order of batches.
    pub(crate) fn new() -> io::Result<Self> {
        Self::with_threads("kv-commit", 1)
    }

    /// So many, which take what comes as they have time.
    pub(crate) fn with_threads(name: &'static str, threads_max: usize) -> io::Result<Self> {
        let shared = Shared {
            queues: Mutex::new(Queues {
                waiting: VecDeque::new(),
                busy: 0,
                idle: 0,
                finished: Vec::new(),
                awaiting: 0,
                is_roused: false,
                gives_back: (0, || ()),
                stopping: false,
            }),
            work: Condvar::new(),
            progress: Condvar::new(),
            wake: EventFd::new()?,
        };
        Ok(Self { shared: Arc::new(shared), name, threads: Vec::new(), threads_max, under_way: 0 })
    }

    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }

    pub(crate) fn shared(&self) -> Arc<Shared<J, V>> {
        Arc::clone(&self.shared)
    }

    /// Queues a batch for `commit`, which is that of the call that began the thread for all that it takes.
    pub(crate) fn submit<F>(&mut self, batch: J, tag: KvTag, commit: impl FnOnce() -> F)
    where
        F: Fn(&J) -> Result<V, KvError> + Send + 'static,
    {
        self.under_way += 1;
        if self.threads.len() < self.threads_max.min(self.under_way) {
            let (shared, commit) = (Arc::clone(&self.shared), commit());
            let builder = std::thread::Builder::new().name(self.name.to_owned());
            match builder.spawn(move || serve(&shared, &commit)) {
                Ok(thread) => self.threads.push(thread),
                // Those that there are have more to do.
                Err(_) if !self.threads.is_empty() => (),
                Err(error) => return self.refuse(tag, error),
            }
        }
        let mut queues = self.shared.queues();
        queues.waiting.push_back((tag, batch));
        let wakes = queues.idle > 0;
        drop(queues);
        // One that is at another takes it when that is done.
        if wakes {
            self.shared.work.notify_one();
        }
    }

    fn refuse(&self, tag: KvTag, error: io::Error) {
        self.shared.queues().finished.push(KvCompletion { tag, result: Err(KvError::Device(error)) });
        self.shared.wake.signal();
    }

    pub(crate) fn drain(&mut self, out: &mut Vec<KvCompletion<V>>) {
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
            queues = self.shared.await_progress(queues);
        }
        queues.is_roused = false;
    }

    /// Waits until no batch is left to be carried out.
    pub(crate) fn settle(&self) {
        let mut queues = self.shared.queues();
        while queues.busy > 0 || !queues.waiting.is_empty() {
            queues = self.shared.await_progress(queues);
        }
    }
}

impl<J: Send + 'static, V: Send + 'static> Background<J, V> {
    /// Lets each thread call `give_back` once, when nothing waits for the thread: what its heap has of free memory it alone can give back.
    pub(crate) fn give_back(&self, give_back: fn()) {
        let mut queues = self.shared.queues();
        queues.gives_back = (queues.gives_back.0 + 1, give_back);
        drop(queues);
        self.shared.work.notify_all();
    }

    /// Lets what was submitted finish; the next batch begins a thread anew.
    pub(crate) fn end_threads(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        self.shared.queues().stopping = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _panicked = thread.join();
        }
        self.shared.queues().stopping = false;
    }
}

impl<J: Send + 'static, V: Send + 'static> Drop for Background<J, V> {
    fn drop(&mut self) {
        self.end_threads();
    }
}

fn serve<J, V>(shared: &Shared<J, V>, commit: &impl Fn(&J) -> Result<V, KvError>) {
    let mut queues = shared.queues();
    let mut given_back = queues.gives_back.0;
    loop {
        let Some((tag, batch)) = queues.waiting.pop_front() else {
            if queues.stopping {
                return;
            }
            let (count, give_back) = queues.gives_back;
            if count > given_back {
                given_back = count;
                drop(queues);
                give_back();
                queues = shared.queues();
                continue;
            }
            queues.idle += 1;
            queues = shared.work.wait(queues).unwrap_or_else(PoisonError::into_inner);
            queues.idle -= 1;
            continue;
        };
        queues.busy += 1;
        drop(queues);
        let result = commit(&batch);
        // A large batch is freed here, not on the thread that must not wait.
        drop(batch);
        queues = shared.queues();
        queues.busy -= 1;
        // To wake somebody is a call of the system, also where nobody sleeps. Who drains takes all that there is.
        let is_first = queues.finished.is_empty();
        queues.finished.push(KvCompletion { tag, result });
        if queues.awaiting > 0 {
            shared.progress.notify_all();
        }
        if is_first {
            shared.wake.signal();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};

    static GIVEN_BACK: AtomicU32 = AtomicU32::new(0);

    fn give_back() {
        GIVEN_BACK.fetch_add(1, Ordering::AcqRel);
    }

    fn await_given_back(times: u32) {
        while GIVEN_BACK.load(Ordering::Acquire) < times {
            std::thread::yield_now();
        }
    }

    #[test]
    fn threads_give_memory_back_when_nothing_waits_for_them() {
        let mut background = Background::<bool, u32>::new().expect("a descriptor");
        let gate = Arc::new(Barrier::new(2));
        // Each says how many times memory was given back before its end.
        let submit = |background: &mut Background<bool, u32>, tag, waits: bool| {
            let gate = Arc::clone(&gate);
            background.submit(waits, KvTag(tag), || {
                move |waits: &bool| {
                    if *waits {
                        gate.wait();
                        gate.wait();
                    }
                    Ok(GIVEN_BACK.load(Ordering::Acquire))
                }
            });
        };
        background.give_back(give_back);
        submit(&mut background, 1, false);
        background.wait();
        // The one that began then has nothing of before.
        background.give_back(give_back);
        await_given_back(1);
        // It is at one, and another waits.
        submit(&mut background, 2, true);
        gate.wait();
        background.give_back(give_back);
        submit(&mut background, 3, true);
        for _ in 0..3 {
            gate.wait();
        }
        await_given_back(2);
        let mut done = Vec::new();
        while done.len() < 3 {
            background.wait();
            background.drain(&mut done);
        }
        let before: Vec<u32> = done.into_iter().filter_map(|done| done.result.ok()).collect();
        assert_eq!(before, [0, 1, 1]);
        background.end_threads();
        assert_eq!(GIVEN_BACK.load(Ordering::Acquire), 2);
    }
}
