//! [`Library`]: a foreign store that many threads may use, and [`Threaded`], which makes a [`KvStore`] of it: a thread commits, as in ours.

use nacre_kv::{Durability, KvBatch, KvCompletion, KvError, KvStore, KvTag, Pair};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

/// What is needed of a foreign store.
pub(crate) trait Library: Send + Sync + 'static {
    /// Puts and deletes all of these keys or none, and waits until that is durable if it is to be.
    fn write(&self, ops: &[(bytes::Bytes, Option<bytes::Bytes>)], durability: Durability) -> Result<(), KvError>;
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<bytes::Bytes>, KvError>;
    /// Pairs in the order of keys.
    fn scan(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, count_max: usize) -> Result<Vec<Pair>, KvError>;
}

/// Applies all of a batch or nothing.
fn write(library: &impl Library, batch: &KvBatch, durability: Durability) -> Result<(), KvError> {
    if !batch.prefixes().is_empty() {
        return Err(KvError::Misuse("prefixes are not deleted here".to_owned()));
    }
    library.write(batch.ops(), durability)
}

/// What a library's error is to us.
pub(crate) fn failed(error: impl std::error::Error + Send + Sync + 'static) -> KvError {
    KvError::Device(std::io::Error::other(error))
}

/// A library with a thread that commits what was submitted.
pub(crate) struct Threaded<L: Library> {
    library: Arc<L>,
    /// `None` once it is being dropped.
    jobs: Option<Sender<(KvTag, KvBatch)>>,
    done: Receiver<KvCompletion>,
    ready: Vec<KvCompletion>,
    under_way: usize,
    thread: Option<JoinHandle<()>>,
}

impl<L: Library> Threaded<L> {
    pub(crate) fn new(library: L) -> std::io::Result<Self> {
        let library = Arc::new(library);
        let (jobs, asked) = mpsc::channel::<(KvTag, KvBatch)>();
        let (finished, done) = mpsc::channel();
        let used = Arc::clone(&library);
        let serve = move || {
            for (tag, batch) in asked {
                let result = write(used.as_ref(), &batch, Durability::Durable);
                if finished.send(KvCompletion { tag, result }).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("kv-commit".to_owned()).spawn(serve)?;
        Ok(Self { library, jobs: Some(jobs), done, ready: Vec::new(), under_way: 0, thread: Some(thread) })
    }

    fn take(&mut self, completion: KvCompletion) {
        self.under_way -= 1;
        self.ready.push(completion);
    }
}

impl<L: Library> Drop for Threaded<L> {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _panicked = thread.join();
        }
    }
}

impl<L: Library> KvStore for Threaded<L> {
    fn get(&self, key: &[u8]) -> Result<Option<bytes::Bytes>, KvError> {
        self.library.get(key)
    }

    fn scan(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, count_max: usize) -> Result<Vec<Pair>, KvError> {
        self.library.scan(start, end, count_max)
    }

    fn commit(&mut self, batch: &KvBatch, durability: Durability) -> Result<(), KvError> {
        while self.under_way > 0
            && let Ok(completion) = self.done.recv()
        {
            self.take(completion);
        }
        write(self.library.as_ref(), batch, durability)
    }

    fn submit(&mut self, batch: KvBatch, tag: KvTag) {
        self.under_way += 1;
        if self.jobs.as_ref().is_none_or(|jobs| jobs.send((tag, batch)).is_err()) {
            self.take(KvCompletion { tag, result: Err(KvError::Fenced) });
        }
    }

    fn drain(&mut self, out: &mut Vec<KvCompletion>) {
        while let Ok(completion) = self.done.try_recv() {
            self.take(completion);
        }
        out.append(&mut self.ready);
    }

    fn wait(&mut self) {
        if self.ready.is_empty()
            && self.under_way > 0
            && let Ok(completion) = self.done.recv()
        {
            self.take(completion);
        }
    }
}
