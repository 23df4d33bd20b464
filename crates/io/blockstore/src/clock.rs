//! [`Clock`]: clean values out of the KV store, within a limit.
//!
//! There are as many as memory has room for, and most lookups are of one that nobody asked for in a while: so a value and
//! its key lie in one place, found by a table of hashes, and are not searched for from node to node of a tree.

use crate::layer::Weigh;
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

/// Where a value is: its number among the slots, and part of its key's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    hash: u32,
    slot: u32,
}

const NOWHERE: Place = Place { hash: 0, slot: u32::MAX };

/// Clean values within a byte limit; the least used go first, nearly.
#[derive(Debug)]
pub(crate) struct Clock<K, V> {
    slots: Vec<Option<Kept<K, V>>>,
    free: Vec<u32>,
    /// A power of two of places, never full. A value's is the first free one from that which its hash names on.
    places: Vec<Place>,
    /// The slot at which the hand comes by next.
    hand: usize,
    bytes: usize,
    bytes_max: usize,
}

/// Bytes that a value takes beside itself and its key: its place, with free ones, and what a slot adds.
const ENTRY_BYTES: usize = 40;
const PLACES_MIN: usize = 16;

/// Without a secret, so that a run can be repeated: what clients choose for names costs lookups at worst.
fn hash_of<Q: Hash + ?Sized>(key: &Q) -> u32 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    (hasher.finish() >> 32) as u32
}

impl<K: Hash + Eq + Weigh, V: Clone + Weigh> Clock<K, V> {
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), places: Vec::new(), hand: 0, bytes: 0, bytes_max }
    }

    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let kept = self.slot(self.find(key)?)?;
        kept.used.set(true);
        Some(kept.value.clone())
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        let bytes = u32::try_from(key.weight() + value.weight() + ENTRY_BYTES).unwrap_or(u32::MAX);
        self.remove(&key);
        self.grow();
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
        self.put(Place { hash, slot });
        self.bytes += bytes as usize;
        self.evict();
    }

    pub(crate) fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if let Some(at) = self.find(key) {
            self.remove_at(at);
        }
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn place(&self, at: usize) -> Place {
        self.places.get(at).copied().unwrap_or(NOWHERE)
    }

    fn slot(&self, at: usize) -> Option<&Kept<K, V>> {
        self.slots.get(self.place(at).slot as usize)?.as_ref()
    }

    /// The place at which the search for a hash begins, and the one after a place.
    fn first(&self, hash: u32) -> usize {
        hash as usize & (self.places.len() - 1)
    }

    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.places.len() - 1)
    }

    fn find<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
    {
        if self.places.is_empty() {
            return None;
        }
        let hash = hash_of(key);
        let mut at = self.first(hash);
        loop {
            let place = self.place(at);
            if place == NOWHERE {
                return None;
            }
            if place.hash == hash && self.slot(at).is_some_and(|kept| kept.key.borrow() == key) {
                return Some(at);
            }
            at = self.next(at);
        }
    }

    fn put(&mut self, place: Place) {
        let mut at = self.first(place.hash);
        while self.place(at) != NOWHERE {
            at = self.next(at);
        }
        self.set(at, place);
    }

    fn set(&mut self, at: usize, place: Place) {
        self.places.get_mut(at).into_iter().for_each(|old| *old = place);
    }

    /// Keeps a quarter of the places free.
    fn grow(&mut self) {
        if (self.len() + 1) * 4 <= self.places.len() * 3 {
            return;
        }
        let count = (self.places.len() * 2).max(PLACES_MIN);
        let old = std::mem::replace(&mut self.places, vec![NOWHERE; count]);
        old.into_iter().filter(|place| *place != NOWHERE).for_each(|place| self.put(place));
    }

    fn remove_at(&mut self, mut at: usize) {
        let slot = self.place(at).slot;
        let Some(kept) = self.slots.get_mut(slot as usize).and_then(Option::take) else { return };
        self.bytes -= kept.bytes as usize;
        self.free.push(slot);
        // What was pushed on by this one moves up, so that no search ends before it.
        let mut next = self.next(at);
        while self.place(next) != NOWHERE {
            let first = self.first(self.place(next).hash);
            let mask = self.places.len() - 1;
            if (next.wrapping_sub(first) & mask) >= (next.wrapping_sub(at) & mask) {
                self.set(at, self.place(next));
                at = next;
            }
            next = self.next(next);
        }
        self.set(at, NOWHERE);
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
            let (hash, slot) = (hash_of(&kept.key), self.hand as u64);
            let mut at = self.first(hash);
            while u64::from(self.place(at).slot) != slot {
                at = self.next(at);
            }
            self.remove_at(at);
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
        assert_eq!((clock.bytes(), clock.len()), (4 * WEIGHT, 4));
        clock.insert(5, 6);
        assert_eq!((clock.get(&5), clock.len()), (Some(6), 4));
    }

    #[test]
    fn what_is_used_more_often_than_the_hand_comes_by_stays() {
        let mut clock: Clock<u32, u32> = Clock::new(100 * WEIGHT);
        for key in 0..10_000 {
            clock.insert(key, key);
            assert_eq!(clock.get(&0), Some(0));
            clock.get(&key.wrapping_sub(95));
        }
        assert_eq!(clock.len(), 100);
        assert!(clock.slots.len() <= 102 && clock.places.len() <= 256);
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
            assert_eq!(clock.len(), model.len());
        }
        assert!((0..3000).all(|key| clock.get(&key) == model.get(&key).copied()));
        assert_eq!(clock.bytes(), model.len() * WEIGHT);
    }
}
