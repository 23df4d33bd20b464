//! [`SimKv`]: a process's hold on a key-value store that outlives it.

use nacre_kv::{Durability, KvBatch, KvCompletion, KvError, KvStore, KvTag, MemoryKv, Pair};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct Inner {
    kv: MemoryKv,
    /// Batches submitted and not stepped, at most.
    submitted: usize,
}

/// A store in memory. Copies are the same store.
#[derive(Debug, Clone, Default)]
pub struct SimKv(Arc<Mutex<Inner>>);

impl SimKv {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on submitted batches become durable by [`SimKv::step`].
    pub fn hold(&self) {
        self.inner().kv.hold();
    }

    /// Another store with the same content.
    ///
    /// # Panics
    /// When the store cannot be read, which memory can.
    #[must_use]
    pub fn copy(&self) -> Self {
        let pairs =
            self.inner().kv.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).expect("memory can be read");
        let mut batch = KvBatch::default();
        pairs.into_iter().for_each(|(key, value)| batch.put(key, value));
        let mut copy = Self::default();
        copy.commit(&batch, Durability::Durable).expect("memory can be written");
        copy
    }

    /// True while batches wait for [`SimKv::step`].
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.inner().submitted > 0
    }

    /// One submitted batch becomes durable.
    pub fn step(&self) {
        let mut inner = self.inner();
        inner.submitted = inner.submitted.saturating_sub(1);
        inner.kv.step();
    }

    /// The process ends. What was submitted becomes durable, unless the power goes with it: then what was not
    /// durable is lost, but for the first `survivors` batches of it.
    pub fn stop(&self, power: bool, survivors: usize) {
        let mut inner = self.inner();
        while !power && inner.submitted > 0 {
            inner.submitted -= 1;
            inner.kv.step();
        }
        inner.submitted = 0;
        let survivors = if power { survivors } else { usize::MAX };
        inner.kv = std::mem::take(&mut inner.kv).crash(survivors);
    }
}

impl KvStore for SimKv {
    fn get(&self, key: &[u8]) -> Result<Option<nacre_buf::Bytes>, KvError> {
        self.inner().kv.get(key)
    }

    fn scan(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, count_max: usize) -> Result<Vec<Pair>, KvError> {
        self.inner().kv.scan(start, end, count_max)
    }

    fn commit(&mut self, batch: &KvBatch, durability: Durability) -> Result<(), KvError> {
        self.inner().kv.commit(batch, durability)
    }

    fn submit(&mut self, batch: KvBatch, tag: KvTag) {
        let mut inner = self.inner();
        inner.submitted += 1;
        inner.kv.submit(batch, tag);
    }

    fn drain(&mut self, out: &mut Vec<KvCompletion>) {
        self.inner().kv.drain(out);
    }

    fn wait(&mut self) {
        self.inner().kv.wait();
    }
}
