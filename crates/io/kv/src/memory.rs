//! [`MemoryKv`]: the store in memory, with a crash that can be had at will.

use crate::{Durability, KvBatch, KvError, KvStore, Pair, check};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;

/// A store in memory. Remembers what is durable, so that [`MemoryKv::crash`] can lose the rest.
#[derive(Debug, Clone, Default)]
pub struct MemoryKv {
    visible: BTreeMap<Bytes, Bytes>,
    durable: BTreeMap<Bytes, Bytes>,
    /// Batches since the last durable one.
    buffered: Vec<KvBatch>,
    fenced: bool,
    /// Durable commits until one fails, if one is to.
    fail_after: Option<usize>,
}

fn apply(map: &mut BTreeMap<Bytes, Bytes>, batch: &KvBatch) {
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

    /// What a restart after a power failure finds: the durable batches and the first `survivors` of the
    /// buffered ones, which reached the device by chance.
    #[must_use]
    pub fn crash(mut self, survivors: usize) -> Self {
        for batch in self.buffered.iter().take(survivors) {
            apply(&mut self.durable, batch);
        }
        Self { visible: self.durable.clone(), durable: self.durable, ..Self::default() }
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

    fn commit(&mut self, batch: &KvBatch, durability: Durability) -> Result<(), KvError> {
        check(batch)?;
        if self.fenced {
            return Err(KvError::Fenced);
        }
        self.take_failure()?;
        apply(&mut self.visible, batch);
        self.buffered.push(batch.clone());
        if durability == Durability::Durable {
            for batch in self.buffered.drain(..) {
                apply(&mut self.durable, &batch);
            }
        }
        Ok(())
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
        let mut kv = MemoryKv::new();
        for (key, durability) in
            [("a", Durability::Durable), ("b", Durability::Buffered), ("c", Durability::Buffered)]
        {
            let mut batch = KvBatch::default();
            batch.put(key, "x");
            kv.commit(&batch, durability).expect("memory does not fail");
        }
        let keys = |kv: &MemoryKv| kv.scan_prefix(b"").expect("memory does not fail").len();
        assert_eq!(keys(&kv), 3);
        assert_eq!(keys(&kv.clone().crash(0)), 1);
        assert_eq!(keys(&kv.clone().crash(1)), 2);
        assert_eq!(keys(&kv.crash(9)), 3);
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
