//! [`Clock`]: clean values out of the KV store, within a limit.
//!
//! There are as many as memory has room for, and most lookups are of one that nobody asked for in a while: so a value and
//! its key lie in one place, found by a table of hashes, and are not searched for from node to node of a tree.

use crate::layer::Weigh;
use hashbrown::HashTable;
use std::borrow::Borrow;
use std::cell::Cell;
use std::hash::{DefaultHasher, Hash, Hasher};

#[derive(Debug)]
struct Kept<K, V> {
    key: K,
    value: V,
    bytes: u32,
    /// Set by a read, cleared by the hand of the clock.
    used: Cell<bool>,
}

/// Clean values within a byte limit; the least used go first, nearly.
#[derive(Debug)]
pub(crate) struct Clock<K, V> {
    slots: Vec<Option<Kept<K, V>>>,
    free: Vec<u32>,
    /// Slots by their keys' hashes.
    places: HashTable<u32>,
    /// The slot at which the hand comes by next.
    hand: usize,
    bytes: usize,
    bytes_max: usize,
}

/// Bytes that a value takes beside itself and its key: its place, with free ones, and what a slot adds.
const ENTRY_BYTES: usize = 40;

/// Without a secret, so that a run can be repeated: what clients choose for names costs lookups at worst.
fn hash_of<Q: Hash + ?Sized>(key: &Q) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

fn at<K, V>(slots: &[Option<Kept<K, V>>], slot: u32) -> Option<&Kept<K, V>> {
    slots.get(slot as usize)?.as_ref()
}

/// Whether a slot has that key.
fn has<K: Borrow<Q>, V, Q: Eq + ?Sized>(slots: &[Option<Kept<K, V>>], key: &Q) -> impl Fn(&u32) -> bool {
    move |slot| at(slots, *slot).is_some_and(|kept| kept.key.borrow() == key)
}

impl<K: Hash + Eq + Weigh, V: Clone + Weigh> Clock<K, V> {
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), places: HashTable::new(), hand: 0, bytes: 0, bytes_max }
    }

    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let kept = at(&self.slots, *self.places.find(hash_of(key), has(&self.slots, key))?)?;
        kept.used.set(true);
        Some(kept.value.clone())
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        let bytes = u32::try_from(key.weight() + value.weight() + ENTRY_BYTES).unwrap_or(u32::MAX);
        self.remove(&key);
        let hash = hash_of(&key);
        let kept = Some(Kept { key, value, bytes, used: Cell::new(false) });
        let slot = match self.free.pop().and_then(|slot| Some((slot, self.slots.get_mut(slot as usize)?))) {
            Some((slot, free)) => {
                *free = kept;
                slot
            }
            None => {
                self.slots.push(kept);
                u32::try_from(self.slots.len() - 1).expect("4 billion values do not fit into memory")
            }
        };
        let slots = &self.slots;
        self.places.insert_unique(hash, slot, |slot| at(slots, *slot).map_or(0, |kept| hash_of(&kept.key)));
        self.bytes += bytes as usize;
        self.evict();
    }

    pub(crate) fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if let Ok(place) = self.places.find_entry(hash_of(key), has(&self.slots, key)) {
            let (slot, _) = place.remove();
            self.vacate(slot);
        }
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Frees a slot that nothing refers to any more.
    fn vacate(&mut self, slot: u32) {
        let Some(kept) = self.slots.get_mut(slot as usize).and_then(Option::take) else { return };
        self.bytes -= kept.bytes as usize;
        self.free.push(slot);
    }

    fn evict(&mut self) {
        // The hand may have to come by twice: first it finds what is used.
        let mut steps = 2 * self.slots.len();
        while self.bytes > self.bytes_max && steps > 0 {
            steps -= 1;
            self.hand = if self.hand + 1 < self.slots.len() { self.hand + 1 } else { 0 };
            let Some(Some(kept)) = self.slots.get(self.hand) else { continue };
            if kept.used.replace(false) {
                continue;
            }
            let (hash, slot) = (hash_of(&kept.key), self.hand as u32);
            if let Ok(place) = self.places.find_entry(hash, |other| *other == slot) {
                place.remove();
            }
            self.vacate(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const WEIGHT: usize = 200 + ENTRY_BYTES;

    #[test]
    fn keeps_its_limit_and_what_is_used() {
        let mut clock: Clock<u32, u32> = Clock::new(5 * WEIGHT);
        for key in 0..5 {
            clock.insert(key, key);
        }
        assert_eq!(clock.get(&1), Some(1));
        clock.insert(5, 5);
        assert_eq!((clock.get(&1), clock.get(&2), clock.get(&5)), (Some(1), None, Some(5)));
        clock.remove(&1);
        assert_eq!((clock.bytes(), clock.places.len()), (4 * WEIGHT, 4));
        clock.insert(5, 6);
        assert_eq!((clock.get(&5), clock.places.len()), (Some(6), 4));
    }

    #[test]
    fn what_is_used_more_often_than_the_hand_comes_by_stays() {
        let mut clock: Clock<u32, u32> = Clock::new(100 * WEIGHT);
        for key in 0..10_000 {
            clock.insert(key, key);
            assert_eq!(clock.get(&0), Some(0));
            clock.get(&key.wrapping_sub(95));
        }
        assert_eq!(clock.places.len(), 100);
        assert!(clock.slots.len() <= 102 && clock.places.capacity() <= 256);
    }

    /// The same as a map, for keys whose places collide much.
    #[test]
    fn finds_what_a_map_finds() {
        let (mut clock, mut model, mut seed) = (Clock::<u32, u32>::new(usize::MAX), BTreeMap::new(), 3_u32);
        for step in 0..60_000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = (seed >> 16) % if step < 30_000 { 3000 } else { 40 };
            if (seed >> 8).is_multiple_of(3) {
                clock.remove(&key);
                model.remove(&key);
            } else {
                clock.insert(key, step);
                model.insert(key, step);
            }
            let asked = key ^ 1;
            assert_eq!(clock.get(&asked), model.get(&asked).copied());
            assert_eq!(clock.places.len(), model.len());
        }
        assert!((0..3000).all(|key| clock.get(&key) == model.get(&key).copied()));
        assert_eq!(clock.bytes(), model.len() * WEIGHT);
    }
}
