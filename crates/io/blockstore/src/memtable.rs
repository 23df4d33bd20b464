//! [`Memtable`]: what was changed and is not in the KV store yet.
//!
//! ```text
//!  reads look at    mutable -> frozen ->  clean  ->  KV store
//!                   since     of the   may be     as of the last
//!                   the freeze   running  evicted    checkpoint
//!                             checkpoint
//! ```
//!
//! Changes go to `mutable` only. Freezing makes `mutable` the new `frozen`, in no time; the checkpoint writes `frozen` to the KV store as it
//! is, and lets go of it when the KV store has it. So `frozen` may be looked at a piece at a time while writers go on.

use nacre_buf::Bytes;
use nacre_types::{Eversion, SpgId};
use std::borrow::Borrow;
use std::collections::BTreeMap;

/// About how many bytes a key or value takes in memory.
pub(crate) trait Weigh {
    fn weight(&self) -> usize;
}

impl Weigh for Bytes {
    fn weight(&self) -> usize {
        self.len() + 32
    }
}

impl Weigh for Box<[u8]> {
    fn weight(&self) -> usize {
        self.len() + size_of::<Self>()
    }
}

impl Weigh for u64 {
    fn weight(&self) -> usize {
        8
    }
}

impl<T: Weigh> Weigh for Option<T> {
    fn weight(&self) -> usize {
        8 + self.as_ref().map_or(0, Weigh::weight)
    }
}

impl Weigh for (SpgId, Eversion) {
    fn weight(&self) -> usize {
        48
    }
}

/// Bytes that an entry of a map takes beside key and value.
const ENTRY_BYTES: usize = 48;

/// Changed values by key; `None` for a deleted one.
#[derive(Debug)]
pub(crate) struct Memtable<K, V> {
    mutable: BTreeMap<K, Option<V>>,
    pub(crate) frozen: BTreeMap<K, Option<V>>,
    mutable_bytes: usize,
    frozen_bytes: usize,
}

impl<K, V> Default for Memtable<K, V> {
    fn default() -> Self {
        Self { mutable: BTreeMap::new(), frozen: BTreeMap::new(), mutable_bytes: 0, frozen_bytes: 0 }
    }
}

fn weight<V: Weigh>(value: Option<&V>) -> usize {
    value.map_or(0, Weigh::weight)
}

impl<K: Ord + Clone + Weigh, V: Weigh> Memtable<K, V> {
    /// The value as of now; `None` when the KV store has the newest.
    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<Option<&V>>
    where
        K: Borrow<Q>,
    {
        self.mutable.get(key).or_else(|| self.frozen.get(key)).map(Option::as_ref)
    }

    /// Whether it was changed since the freeze.
    pub(crate) fn is_mutable(&self, key: &K) -> bool {
        self.mutable.contains_key(key)
    }

    /// What was changed since the freeze.
    pub(crate) const fn mutable(&self) -> &BTreeMap<K, Option<V>> {
        &self.mutable
    }

    pub(crate) fn put(&mut self, key: K, value: V) {
        self.set(key, Some(value));
    }

    pub(crate) fn delete(&mut self, key: K) {
        self.set(key, None);
    }

    fn set(&mut self, key: K, value: Option<V>) {
        self.mutable_bytes += key.weight() + ENTRY_BYTES + weight(value.as_ref());
        let key_bytes = key.weight() + ENTRY_BYTES;
        if let Some(old) = self.mutable.insert(key, value) {
            self.mutable_bytes -= key_bytes + weight(old.as_ref());
        }
    }

    /// Changes a value that was put since the freeze.
    pub(crate) fn change<R>(&mut self, key: &K, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        let value = self.mutable.get_mut(key)?.as_mut()?;
        let before = value.weight();
        let out = change(value);
        self.mutable_bytes = self.mutable_bytes + value.weight() - before;
        Some(out)
    }

    /// Takes a change back: the KV store's value, if any, must not matter any more.
    pub(crate) fn forget(&mut self, key: &K) {
        if let Some(old) = self.mutable.remove(key) {
            self.mutable_bytes -= key.weight() + ENTRY_BYTES + weight(old.as_ref());
        }
    }

    /// What was changed so far is the next checkpoint's.
    pub(crate) fn freeze(&mut self) {
        assert!(self.frozen.is_empty(), "one checkpoint at a time");
        self.frozen = std::mem::take(&mut self.mutable);
        self.frozen_bytes = std::mem::take(&mut self.mutable_bytes);
    }

    /// Lets go of up to `count_max` values of the freeze, which the KV store has now; the last ones first.
    pub(crate) fn release(&mut self, count_max: usize) -> bool {
        for _ in 0..count_max {
            if self.frozen.pop_last().is_none() {
                self.frozen_bytes = 0;
                return false;
            }
        }
        true
    }

    /// Bytes of what was changed since the freeze, and of the freeze.
    pub(crate) const fn bytes(&self) -> (usize, usize) {
        (self.mutable_bytes, self.frozen_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Weigh for u32 {
        fn weight(&self) -> usize {
            100
        }
    }

    #[test]
    fn a_cut_stays_as_it_was_while_newer_changes_hide_it() {
        let mut memtable: Memtable<u32, u32> = Memtable::default();
        memtable.put(1, 10);
        memtable.put(2, 20);
        memtable.freeze();
        memtable.delete(1);
        memtable.put(3, 30);
        assert_eq!(
            (memtable.get(&1), memtable.get(&2), memtable.get(&3), memtable.get(&4)),
            (Some(None), Some(Some(&20)), Some(Some(&30)), None)
        );
        assert_eq!(memtable.frozen.get(&1), Some(&Some(10)));
        assert!(memtable.release(1) && memtable.release(1) && !memtable.release(1));
        assert_eq!((memtable.get(&1), memtable.get(&2)), (Some(None), None));
        let entry = 100 + ENTRY_BYTES;
        assert_eq!(memtable.bytes(), (2 * entry + 100, 0));
        memtable.forget(&3);
        assert_eq!(memtable.bytes(), (entry, 0));
    }
}
