//! [`SimKv`]: a process's hold on a key-value store that outlives it.

use nacre_kv::{Durability, Follow, KvBatch, KvCompletion, KvError, KvStore, KvTag, MemoryKv, Pair, Warmed};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct Inner {
    kv: MemoryKv,
    /// Batches submitted and not stepped, at most.
    submitted: usize,
    /// Looks that were waited for.
    looks: u64,
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
        if self.waits_for_device() {
            copy.set_cold();
        }
        copy
    }

    /// From now on looks take time, which [`SimKv::step`] ends.
    pub fn set_cold(&self) {
        self.inner().kv.set_cold();
    }

    /// Looks that took time so far.
    pub fn looks(&self) -> u64 {
        self.inner().looks
    }

    /// True while batches or looks wait for [`SimKv::step`].
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let inner = self.inner();
        inner.submitted > 0 || inner.kv.is_warming()
    }

    /// The oldest look ends or, if there is none, one submitted batch becomes durable.
    pub fn step(&self) {
        let mut inner = self.inner();
        if inner.kv.step_warm() {
            return;
        }
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

    fn waits_for_device(&self) -> bool {
        self.inner().kv.waits_for_device()
    }

    fn warm(&mut self, keys: Vec<nacre_buf::Bytes>, follow: Option<Follow>, tag: KvTag) -> bool {
        let mut inner = self.inner();
        let takes_time = inner.kv.warm(keys, follow, tag);
        inner.looks += u64::from(takes_time);
        takes_time
    }

    fn drain_warm(&mut self, out: &mut Vec<Warmed>) {
        self.inner().kv.drain_warm(out);
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
