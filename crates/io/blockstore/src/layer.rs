//! [`Layer`]: what was changed and is not in the KV store yet.
//!
//! ```text
//!  reads look at    live  ->  cut  ->  clean  ->  KV store
//!                   since     of the   may be     as of the last
//!                   the cut   running  evicted    checkpoint
//!                             checkpoint
//! ```
//!
//! Changes go to `live` only. A cut makes `live` the new `cut`, in no time; the checkpoint writes `cut` to the KV store as it
//! is, and lets go of it when the KV store has it. So `cut` may be looked at a piece at a time while writers go on.

use std::borrow::Borrow;
use std::collections::BTreeMap;

/// About how many bytes a key or value takes in memory.
pub(crate) trait Weigh {
    fn weight(&self) -> usize;
}

/// Bytes that an entry of a map takes beside key and value.
const ENTRY_BYTES: usize = 48;

/// Changed values by key; `None` for a deleted one.
#[derive(Debug)]
pub(crate) struct Layer<K, V> {
    live: BTreeMap<K, Option<V>>,
    pub(crate) cut: BTreeMap<K, Option<V>>,
    live_bytes: usize,
    cut_bytes: usize,
}

impl<K, V> Default for Layer<K, V> {
    fn default() -> Self {
        Self { live: BTreeMap::new(), cut: BTreeMap::new(), live_bytes: 0, cut_bytes: 0 }
    }
}

fn weight<V: Weigh>(value: Option<&V>) -> usize {
    value.map_or(0, Weigh::weight)
}

impl<K: Ord + Clone + Weigh, V: Weigh> Layer<K, V> {
    /// The value as of now; `None` when the KV store has the newest.
    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<Option<&V>>
    where
        K: Borrow<Q>,
    {
        self.live.get(key).or_else(|| self.cut.get(key)).map(Option::as_ref)
    }

    /// Whether it was changed since the cut.
    pub(crate) fn is_live(&self, key: &K) -> bool {
        self.live.contains_key(key)
    }

    /// What was changed since the cut.
    pub(crate) const fn live(&self) -> &BTreeMap<K, Option<V>> {
        &self.live
    }

    pub(crate) fn put(&mut self, key: K, value: V) {
        self.set(key, Some(value));
    }

    pub(crate) fn delete(&mut self, key: K) {
        self.set(key, None);
    }

    fn set(&mut self, key: K, value: Option<V>) {
        self.live_bytes += key.weight() + ENTRY_BYTES + weight(value.as_ref());
        let key_bytes = key.weight() + ENTRY_BYTES;
        if let Some(old) = self.live.insert(key, value) {
            self.live_bytes -= key_bytes + weight(old.as_ref());
        }
    }

    /// Changes a value that was put since the cut.
    pub(crate) fn change<R>(&mut self, key: &K, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        let value = self.live.get_mut(key)?.as_mut()?;
        let before = value.weight();
        let out = change(value);
        self.live_bytes = self.live_bytes + value.weight() - before;
        Some(out)
    }

    /// Takes a change back: the KV store's value, if any, must not matter any more.
    pub(crate) fn forget(&mut self, key: &K) {
        if let Some(old) = self.live.remove(key) {
            self.live_bytes -= key.weight() + ENTRY_BYTES + weight(old.as_ref());
        }
    }

    /// What was changed so far is the next checkpoint's.
    pub(crate) fn start_cut(&mut self) {
        assert!(self.cut.is_empty(), "one checkpoint at a time");
        self.cut = std::mem::take(&mut self.live);
        self.cut_bytes = std::mem::take(&mut self.live_bytes);
    }

    /// Lets go of up to `count_max` values of the cut, which the KV store has now; the last ones first.
    pub(crate) fn let_go(&mut self, count_max: usize) -> bool {
        for _ in 0..count_max {
            if self.cut.pop_last().is_none() {
                self.cut_bytes = 0;
                return false;
            }
        }
        true
    }

    /// Bytes of what was changed since the cut, and of the cut.
    pub(crate) const fn bytes(&self) -> (usize, usize) {
        (self.live_bytes, self.cut_bytes)
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
        let mut layer: Layer<u32, u32> = Layer::default();
        layer.put(1, 10);
        layer.put(2, 20);
        layer.start_cut();
        layer.delete(1);
        layer.put(3, 30);
        assert_eq!(
            (layer.get(&1), layer.get(&2), layer.get(&3), layer.get(&4)),
            (Some(None), Some(Some(&20)), Some(Some(&30)), None)
        );
        assert_eq!(layer.cut.get(&1), Some(&Some(10)));
        assert!(layer.let_go(1) && layer.let_go(1) && !layer.let_go(1));
        assert_eq!((layer.get(&1), layer.get(&2)), (Some(None), None));
        let entry = 100 + ENTRY_BYTES;
        assert_eq!(layer.bytes(), (2 * entry + 100, 0));
        layer.forget(&3);
        assert_eq!(layer.bytes(), (entry, 0));
    }
}
