//! [`Clock`]: clean values out of the KV store, within a limit.
//!
//! There are as many as memory has room for, and most lookups are of one that nobody asked for in a while: so a value and
//! its key lie in one place, found by a table of hashes, and are not searched for from node to node of a tree.

use crate::memtable::Weigh;
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
///
/// There may be millions, and nothing that is done here is done for all of them at once: the table of hashes consists of parts
/// that grow one by one, and the hand stops after [`LOOKS_MAX`]. With one table, the lookup that made it grow took half a second
/// at a million values.
#[derive(Debug)]
pub(crate) struct Clock<K, V> {
    slots: Slots<K, V>,
    free: Vec<u32>,
    /// Slots by their keys' hashes.
    parts: Box<[HashTable<Place>]>,
    /// The slot at which the hand comes by next.
    hand: usize,
    bytes: usize,
    bytes_max: usize,
    /// Most places that one call has moved, and most slots that it has looked at.
    #[cfg(test)]
    most: (usize, usize),
}

/// Where a value is, and the hash of its key: a part that grows need not look at the keys, which lie all over the memory.
#[derive(Debug, Clone, Copy)]
struct Place {
    slot: u32,
    hash: u32,
}

impl Place {
    /// For the table, which tells its entries apart by the upper bits.
    const fn spread(hash: u32) -> u64 {
        (hash as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Values in pieces, so that more of them need not be moved to make room.
#[derive(Debug)]
struct Slots<K, V>(Vec<Vec<Option<Kept<K, V>>>>);

/// Parts of the table of hashes, by the upper bits of the hash; all but the lower ones grow at other times.
const PARTS: usize = 256;
/// Values in a piece.
const PIECE_SLOTS: usize = 1024;
/// Slots that the hand comes by in one call before a value goes although it was used since. After as many again it goes on with
/// the next call.
const LOOKS_MAX: usize = 1024;

/// Bytes that a value takes beside itself and its key: its place, with free ones, and what a slot adds.
const ENTRY_BYTES: usize = 48;

/// Without a secret, so that a run can be repeated: what clients choose for names costs lookups at worst.
fn hash_of<Q: Hash + ?Sized>(key: &Q) -> u32 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    (hasher.finish() >> u32::BITS) as u32
}

fn part_of(hash: u32) -> usize {
    (hash >> (u32::BITS - PARTS.ilog2())) as usize
}

impl<K, V> Slots<K, V> {
    fn len(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * PIECE_SLOTS + last.len())
    }

    fn get(&self, slot: usize) -> Option<&Kept<K, V>> {
        self.0.get(slot / PIECE_SLOTS)?.get(slot % PIECE_SLOTS)?.as_ref()
    }

    fn get_mut(&mut self, slot: usize) -> Option<&mut Option<Kept<K, V>>> {
        self.0.get_mut(slot / PIECE_SLOTS)?.get_mut(slot % PIECE_SLOTS)
    }

    fn push(&mut self, kept: Kept<K, V>) {
        match self.0.last_mut().filter(|last| last.len() < PIECE_SLOTS) {
            Some(last) => last.push(Some(kept)),
            None => self.0.push(vec![Some(kept)]),
        }
    }
}

/// Whether a place is that of the value with that key.
fn has<K: Borrow<Q>, V, Q: Eq + ?Sized>(slots: &Slots<K, V>, hash: u32, key: &Q) -> impl Fn(&Place) -> bool {
    move |place| {
        place.hash == hash && slots.get(place.slot as usize).is_some_and(|kept| kept.key.borrow() == key)
    }
}

impl<K: Hash + Eq + Weigh, V: Clone + Weigh> Clock<K, V> {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            slots: Slots(Vec::new()),
            free: Vec::new(),
            parts: (0..PARTS).map(|_| HashTable::new()).collect(),
            hand: 0,
            bytes: 0,
            bytes_max,
            #[cfg(test)]
            most: (0, 0),
        }
    }

    fn find<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&Kept<K, V>>
    where
        K: Borrow<Q>,
    {
        let hash = hash_of(key);
        let part = self.parts.get(part_of(hash))?;
        self.slots.get(part.find(Place::spread(hash), has(&self.slots, hash, key))?.slot as usize)
    }

    /// Whether there is a value; no use of it.
    pub(crate) fn has<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_some()
    }

    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let kept = self.find(key)?;
        kept.used.set(true);
        Some(kept.value.clone())
    }

    /// Keeps a value in place of what had its key; `evicted` gets those that go for lack of room, which may be itself.
    pub(crate) fn insert(&mut self, key: K, value: V, evicted: impl FnMut(K, V)) {
        let bytes = u32::try_from(key.weight() + value.weight() + ENTRY_BYTES).unwrap_or(u32::MAX);
        self.remove(&key);
        let hash = hash_of(&key);
        let kept = Kept { key, value, bytes, used: Cell::new(false) };
        let slot = match self.free.pop().and_then(|slot| Some((slot, self.slots.get_mut(slot as usize)?))) {
            Some((slot, free)) => {
                *free = Some(kept);
                slot
            }
            None => {
                self.slots.push(kept);
                u32::try_from(self.slots.len() - 1).expect("4 billion values do not fit into memory")
            }
        };
        self.settle(Place { slot, hash });
        self.bytes += bytes as usize;
        self.evict(evicted);
    }

    fn settle(&mut self, place: Place) {
        let Some(part) = self.parts.get_mut(part_of(place.hash)) else { return };
        #[cfg(test)]
        let room = part.capacity();
        part.insert_unique(Place::spread(place.hash), place, |place| Place::spread(place.hash));
        #[cfg(test)]
        if part.capacity() != room {
            self.most.0 = self.most.0.max(part.len());
        }
    }

    pub(crate) fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let hash = hash_of(key);
        let part = self.parts.get_mut(part_of(hash))?;
        let place = part.find_entry(Place::spread(hash), has(&self.slots, hash, key)).ok()?;
        let (place, _) = place.remove();
        Some(self.vacate(place.slot)?.value)
    }

    /// All of it, in no order; no use of it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.slots.0.iter().flatten().flatten().map(|kept| (&kept.key, &kept.value))
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the limit. What is above goes with the next calls of [`Clock::tidy`] and [`Clock::insert`], some of it with each.
    pub(crate) const fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Takes a step towards the limit, if it was lowered.
    pub(crate) fn tidy(&mut self, evicted: impl FnMut(K, V)) {
        self.evict(evicted);
    }

    /// Frees a slot that nothing refers to any more.
    fn vacate(&mut self, slot: u32) -> Option<Kept<K, V>> {
        let kept = self.slots.get_mut(slot as usize)?.take()?;
        self.bytes -= kept.bytes as usize;
        self.free.push(slot);
        Some(kept)
    }

    fn evict(&mut self, mut evicted: impl FnMut(K, V)) {
        // The hand may have to come by twice: first it finds what is used.
        let mut looks = 0;
        while self.bytes > self.bytes_max && looks < (2 * self.slots.len()).min(2 * LOOKS_MAX) {
            looks += 1;
            self.hand = if self.hand + 1 < self.slots.len() { self.hand + 1 } else { 0 };
            let Some(kept) = self.slots.get(self.hand) else { continue };
            if kept.used.replace(false) && looks < LOOKS_MAX {
                continue;
            }
            let (hash, slot) = (hash_of(&kept.key), self.hand as u32);
            if let Some(part) = self.parts.get_mut(part_of(hash))
                && let Ok(place) = part.find_entry(Place::spread(hash), |place| place.slot == slot)
            {
                place.remove();
            }
            if let Some(kept) = self.vacate(slot) {
                evicted(kept.key, kept.value);
            }
        }
        #[cfg(test)]
        {
            self.most.1 = self.most.1.max(looks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const WEIGHT: usize = 200 + ENTRY_BYTES;

    impl<K, V> Clock<K, V> {
        fn len(&self) -> usize {
            self.parts.iter().map(HashTable::len).sum()
        }
    }

    /// A turn of the shard asks for some thousand values: none of them may cost what all of them do.
    #[test]
    fn no_call_grows_with_the_number_of_values() {
        let mut clock: Clock<u32, u32> = Clock::new(400_000 * WEIGHT);
        for key in 0..400_000 {
            clock.insert(key, key, |_, _| ());
        }
        assert_eq!(clock.most.1, 0);
        // All of them are used when the hand begins.
        assert!((0..400_000).all(|key| clock.get(&key) == Some(key)));
        for key in 400_000..410_000 {
            clock.insert(key, key, |_, _| ());
        }
        assert_eq!(clock.len(), 400_000);
        let (moved, looked) = clock.most;
        assert!(moved > 0 && moved <= 4096, "{moved} places moved by one call");
        assert!(looked > 0 && looked <= 2 * LOOKS_MAX, "{looked} slots looked at by one call");
    }

    #[test]
    fn keeps_its_limit_and_what_is_used() {
        let mut clock: Clock<u32, u32> = Clock::new(5 * WEIGHT);
        for key in 0..5 {
            clock.insert(key, key, |_, _| ());
        }
        assert_eq!(clock.get(&1), Some(1));
        clock.insert(5, 5, |_, _| ());
        assert_eq!((clock.get(&1), clock.get(&2), clock.get(&5)), (Some(1), None, Some(5)));
        clock.remove(&1);
        assert_eq!((clock.bytes(), clock.len()), (4 * WEIGHT, 4));
        clock.insert(5, 6, |_, _| ());
        assert_eq!((clock.get(&5), clock.len()), (Some(6), 4));
    }

    #[test]
    fn a_lower_limit_is_reached_step_by_step() {
        let mut clock: Clock<u32, u32> = Clock::new(10_000 * WEIGHT);
        for key in 0..10_000 {
            clock.insert(key, key, |_, _| ());
        }
        clock.set_bytes_max(100 * WEIGHT);
        let mut steps = 0;
        while clock.bytes() > 100 * WEIGHT {
            let before = clock.len();
            clock.tidy(|_, _| ());
            assert!(clock.len() < before && before - clock.len() <= 2 * LOOKS_MAX);
            steps += 1;
        }
        assert!((5..20).contains(&steps), "{steps} steps");
        clock.set_bytes_max(200 * WEIGHT);
        (0..1000).for_each(|key| clock.insert(key, key, |_, _| ()));
        assert_eq!(clock.len(), 200);
    }

    #[test]
    fn what_is_used_more_often_than_the_hand_comes_by_stays() {
        let mut clock: Clock<u32, u32> = Clock::new(100 * WEIGHT);
        for key in 0..10_000 {
            clock.insert(key, key, |_, _| ());
            assert_eq!(clock.get(&0), Some(0));
            clock.get(&key.wrapping_sub(95));
        }
        assert_eq!(clock.len(), 100);
        assert!(clock.slots.len() <= 102 && clock.parts.iter().all(|part| part.capacity() <= 14));
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
                clock.insert(key, step, |_, _| ());
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
