//! [`MemoryKv`]: the store in memory, with a crash that can be had at will.

use crate::warming::{Found, Wanted};
use crate::{Durability, Follow, KvBatch, KvCompletion, KvError, KvStore, KvTag, Pair, Warmed, check};
use bytes::Bytes;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::ops::Bound;

/// A store in memory. Remembers what is durable, so that [`MemoryKv::crash`] can lose the rest.
///
/// A submitted batch is carried out when it is drained; after [`MemoryKv::hold`], when [`MemoryKv::step`] says so.
#[derive(Debug, Default)]
pub struct MemoryKv {
    visible: BTreeMap<Bytes, Bytes>,
    durable: BTreeMap<Bytes, Bytes>,
    /// Batches since the last durable one.
    buffered: Vec<KvBatch>,
    submitted: VecDeque<(KvTag, KvBatch)>,
    finished: Vec<KvCompletion>,
    held: bool,
    fenced: bool,
    /// Commits so far.
    commits: u64,
    /// Durable commits until one fails, if one is to.
    fail_after: Option<usize>,
    cold: Option<Box<Cold>>,
    unhurried: Cell<bool>,
}

/// Looks that take time.
#[derive(Debug, Default)]
struct Cold {
    under_way: VecDeque<(KvTag, Wanted)>,
    done: Vec<(KvTag, Found)>,
}

fn apply(map: &mut BTreeMap<Bytes, Bytes>, batch: &KvBatch) {
    for prefix in batch.prefixes() {
        let behind = map.split_off(prefix);
        map.extend(behind.into_iter().filter(|(key, _)| !key.starts_with(prefix)));
    }
    for (key, value) in batch.ops() {
        match value {
            Some(value) => map.insert(key.clone(), value.clone()),
            None => map.remove(key),
        };
    }
}

impl MemoryKv {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What a restart after a power failure finds: the durable batches and the first `survivors` of the others,
    /// buffered or submitted, which reached the device by chance.
    #[must_use]
    pub fn crash(mut self, survivors: usize) -> Self {
        let submitted = self.submitted.iter().map(|(_, batch)| batch);
        for batch in self.buffered.iter().chain(submitted).take(survivors) {
            apply(&mut self.durable, batch);
        }
        let (held, cold) = (self.held, self.cold.map(|_| Box::default()));
        Self { visible: self.durable.clone(), durable: self.durable, held, cold, ..Self::default() }
    }

    /// From now on submitted batches are carried out by [`MemoryKv::step`] only, or when somebody waits for them.
    pub fn hold(&mut self) {
        self.held = true;
    }

    /// Carries out the oldest submitted batch; its completion can be drained then.
    pub fn step(&mut self) {
        if let Some((tag, batch)) = self.submitted.pop_front() {
            let result = self.commit_now(&batch, Durability::Durable);
            self.finished.push(KvCompletion { tag, result });
        }
    }

    /// Looks are said to wait for a device from now on; keys are warm when [`MemoryKv::step_warm`] says so.
    pub fn set_cold(&mut self) {
        self.cold = Some(Box::default());
    }

    /// The oldest keys that were to be read are; their tag can be drained then. False when there are none.
    pub fn step_warm(&mut self) -> bool {
        let Some(cold) = &mut self.cold else { return false };
        let Some((tag, wanted)) = cold.under_way.pop_front() else { return false };
        let Ok(pairs) = wanted.read(|key| Ok::<_, Infallible>(self.visible.get(key).cloned()));
        cold.done.push((tag, Found { pairs, commits: self.commits }));
        true
    }

    /// Whether [`MemoryKv::step_warm`] has something to do.
    #[must_use]
    pub fn is_warming(&self) -> bool {
        self.cold.as_ref().is_some_and(|cold| !cold.under_way.is_empty())
    }

    fn commit_now(&mut self, batch: &KvBatch, durability: Durability) -> Result<(), KvError> {
        check(batch)?;
        if self.fenced {
            return Err(KvError::Fenced);
        }
        self.take_failure()?;
        apply(&mut self.visible, batch);
        self.commits += 1;
        self.buffered.push(batch.clone());
        if durability == Durability::Durable {
            for batch in self.buffered.drain(..) {
                apply(&mut self.durable, &batch);
            }
        }
        Ok(())
    }

    /// Whether somebody waits for what is submitted, as [`KvStore::set_hurried`] was told last.
    #[must_use]
    pub const fn is_hurried(&self) -> bool {
        !self.unhurried.get()
    }

    /// Lets `commits` more commits succeed and then one fail.
    pub fn fail_after(&mut self, commits: usize) {
        self.fail_after = Some(commits);
    }

    fn take_failure(&mut self) -> Result<(), KvError> {
        match &mut self.fail_after {
            Some(0) => {
                self.fenced = true;
                Err(KvError::Device(std::io::Error::other("planted failure")))
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl KvStore for MemoryKv {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        Ok(self.visible.get(key).cloned())
    }

    fn scan(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, count_max: usize) -> Result<Vec<Pair>, KvError> {
        if is_empty(start, end) {
            return Ok(Vec::new());
        }
        let pairs = self.visible.range::<[u8], _>((start, end)).take(count_max);
        Ok(pairs.map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn waits_for_device(&self) -> bool {
        self.cold.is_some()
    }

    fn warm(&mut self, keys: Vec<Bytes>, follow: Option<Follow>, tag: KvTag) -> bool {
        self.cold.as_mut().map(|cold| cold.under_way.push_back((tag, Wanted { keys, follow }))).is_some()
    }

    fn drain_warm(&mut self, out: &mut Vec<Warmed>) {
        let done = self.cold.iter_mut().flat_map(|cold| cold.done.drain(..));
        out.extend(done.map(|(tag, found)| found.warmed(tag, self.commits)));
    }

    fn commit(&mut self, batch: &KvBatch, durability: Durability) -> Result<(), KvError> {
        while !self.submitted.is_empty() {
            self.step();
        }
        self.commit_now(batch, durability)
    }

    fn submit(&mut self, batch: KvBatch, tag: KvTag) {
        self.submitted.push_back((tag, batch));
    }

    fn drain(&mut self, out: &mut Vec<KvCompletion>) {
        while !self.held && !self.submitted.is_empty() {
            self.step();
        }
        out.append(&mut self.finished);
    }

    fn set_hurried(&self, hurried: bool) {
        self.unhurried.set(!hurried);
    }

    fn wait(&mut self) {
        if self.finished.is_empty() {
            self.step();
        }
    }
}

/// True for ranges without keys, which the standard maps refuse by a panic.
pub(crate) fn is_empty(start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
    let (Bound::Included(from) | Bound::Excluded(from)) = start else { return false };
    match end {
        Bound::Included(to) => from > to || (from == to && matches!(start, Bound::Excluded(_))),
        Bound::Excluded(to) => from >= to,
        Bound::Unbounded => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conforms() {
        crate::conformance::check(&mut MemoryKv::new);
    }

    #[test]
    fn a_crash_keeps_durable_batches_and_a_run_of_buffered_ones() {
        let filled = || {
            let mut kv = MemoryKv::new();
            for (key, durability) in
                [("a", Durability::Durable), ("b", Durability::Buffered), ("c", Durability::Buffered)]
            {
                let mut batch = KvBatch::default();
                batch.put(key, "x");
                kv.commit(&batch, durability).expect("memory does not fail");
            }
            kv
        };
        let keys = |kv: &MemoryKv| kv.scan_prefix(b"").expect("memory does not fail").len();
        assert_eq!(keys(&filled()), 3);
        assert_eq!(keys(&filled().crash(0)), 1);
        assert_eq!(keys(&filled().crash(1)), 2);
        assert_eq!(keys(&filled().crash(9)), 3);
    }

    #[test]
    fn a_submitted_batch_is_there_after_a_crash_or_not() {
        let submitted = || {
            let mut kv = MemoryKv::new();
            kv.hold();
            let mut batch = KvBatch::default();
            batch.put("a", "x");
            batch.put("b", "x");
            kv.submit(batch, KvTag(1));
            kv
        };
        let keys = |kv: &MemoryKv| kv.scan_prefix(b"").expect("memory does not fail").len();
        assert_eq!((keys(&submitted()), keys(&submitted().crash(0)), keys(&submitted().crash(1))), (0, 0, 2));
        let mut kv = submitted();
        kv.step();
        assert_eq!((keys(&kv), keys(&kv.crash(0))), (2, 2), "done before anybody was told");
    }

    #[test]
    fn a_failed_commit_fences_the_store() {
        let mut kv = MemoryKv::new();
        kv.fail_after(0);
        let mut batch = KvBatch::default();
        batch.put("a", "x");
        assert!(matches!(kv.commit(&batch, Durability::Durable), Err(KvError::Device(_))));
        assert!(matches!(kv.commit(&batch, Durability::Durable), Err(KvError::Fenced)));
        assert_eq!(kv.get(b"a").expect("memory does not fail"), None);
    }
}
