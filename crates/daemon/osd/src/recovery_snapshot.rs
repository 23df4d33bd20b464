//! [`SnapshotIntake`]: the recovery snapshot that the monitor hands this OSD is kept in its own collection, part by part as it comes.
//!
//! The OSD cannot open it, and does not try. Two places take turns: while a snapshot comes in, the one before stays whole in the other, and
//! one transaction with the last part makes the new one the one that counts. A crash leaves parts that nothing refers to; the next snapshot
//! in that place removes them. Keys: `recovery`, and `recovery-part/<place>/<index>`.

use crate::own_collection::OWN_COLLECTION;
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_msg::RecoverySnapshotPart;
use nacre_store::ObjectStore;
use nacre_txn::{Op, Transaction};

const CURRENT_KEY: ByteStr = ByteStr::from_static("recovery");
const PART_PREFIX: &str = "recovery-part/";
/// Parts that are read at a time where only their number matters.
const PAGE_PARTS: usize = 16;

fn part_key(place: u8, index: u32) -> ByteStr {
    ByteStr::from(format!("{PART_PREFIX}{place}/{index:05}"))
}

/// The snapshot that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Current {
    /// When it was made, in seconds since 1970.
    made: u64,
    /// In which place its parts are.
    place: u8,
    /// How many parts it has.
    count: u32,
}

/// In an envelope (version 1, compat 1), in this order.
impl Encode for Current {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u64(self.made);
            w.u8(self.place);
            w.u32(self.count);
        });
    }
}

impl Decode for Current {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("recovery snapshot's place", 1, |_, r| {
            Ok(Self { made: r.u64()?, place: r.u8()? & 1, count: r.u32()? })
        })
    }
}

fn stored_current(store: &dyn ObjectStore) -> Option<Current> {
    let stored = store.pg_meta_page(&OWN_COLLECTION, &CURRENT_KEY, b"", 1);
    let (_, value) = stored.into_iter().find(|(key, _)| *key == CURRENT_KEY)?;
    Current::from_bytes(value).ok()
}

/// The recovery snapshot that the store of an OSD holds, all of it; `None` where there is none, or not all of it.
#[must_use]
pub fn stored_snapshot(store: &dyn ObjectStore) -> Option<Bytes> {
    let Current { place, count, .. } = stored_current(store)?;
    let mut whole = Vec::new();
    for index in 0..count.min(RecoverySnapshotPart::COUNT_MAX) {
        let wanted = part_key(place, index);
        let (key, value) = store.pg_meta_page(&OWN_COLLECTION, &wanted, b"", 1).pop()?;
        whole.extend_from_slice(&value);
        if key != wanted {
            return None;
        }
    }
    Some(whole.into())
}

/// How many parts a place has at most, whole or not.
fn stored_parts(store: &dyn ObjectStore, place: u8) -> u32 {
    let prefix = format!("{PART_PREFIX}{place}/");
    let (mut from, mut count): (Vec<u8>, u32) = (Vec::new(), 0);
    loop {
        let page = store.pg_meta_page(&OWN_COLLECTION, prefix.as_bytes(), &from, PAGE_PARTS);
        let Some((last, _)) = page.last() else { return count };
        let index = last.as_bytes().get(prefix.len()..).map(String::from_utf8_lossy);
        count =
            index.and_then(|index| index.parse::<u32>().ok()).map_or(count, |index| index.saturating_add(1));
        from = [last.as_bytes(), &[0]].concat();
    }
}

/// A snapshot that is coming in.
#[derive(Debug)]
struct Receiving {
    made: u64,
    count: u32,
    next: u32,
}

/// What became of a part.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// To be stored.
    pub(crate) txn: Option<Transaction>,
    /// The snapshot is whole with it.
    pub(crate) is_whole: bool,
}

/// Parts of a snapshot on their way into the store; none of them stays in memory.
#[derive(Debug, Default)]
pub(crate) struct SnapshotIntake {
    current: Option<Current>,
    receiving: Option<Receiving>,
    /// Parts that an attempt has left in the place that does not count.
    left_over: u32,
}

impl SnapshotIntake {
    /// What the store has.
    pub(crate) fn open(store: &dyn ObjectStore) -> Self {
        let current = stored_current(store);
        let left_over = stored_parts(store, other_place(current)).min(RecoverySnapshotPart::COUNT_MAX);
        Self { current, receiving: None, left_over }
    }

    /// When the snapshot that counts was made, in seconds since 1970.
    pub(crate) fn made(&self) -> Option<u64> {
        self.current.map(|current| current.made)
    }

    /// Takes a part in. One that does not follow the part before makes both of no use, until a snapshot begins.
    pub(crate) fn take(&mut self, part: RecoverySnapshotPart) -> Taken {
        let RecoverySnapshotPart { made, index, count, bytes } = part;
        let is_sound = index < count
            && count <= RecoverySnapshotPart::COUNT_MAX
            && !bytes.is_empty()
            && bytes.len() <= RecoverySnapshotPart::BYTES_MAX;
        let begins = index == 0;
        let follows = self
            .receiving
            .as_ref()
            .is_some_and(|one| (one.made, one.count, one.next) == (made, count, index));
        if !is_sound || !(begins || follows) {
            self.receiving = None;
            return Taken::default();
        }
        let mut txn = Transaction::new(OWN_COLLECTION);
        let place = other_place(self.current);
        if begins {
            for index in 1..self.left_over {
                txn.push(Op::MetaRemove { key: part_key(place, index) });
            }
            self.left_over = 0;
        }
        txn.push(Op::MetaSet { key: part_key(place, index), value: bytes.into_bytes() });
        self.left_over = self.left_over.max(index + 1);
        let is_whole = index + 1 == count;
        self.receiving = (!is_whole).then_some(Receiving { made, count, next: index + 1 });
        if is_whole {
            self.replace(Current { made, place, count }, &mut txn);
        }
        Taken { txn: Some(txn), is_whole }
    }

    fn replace(&mut self, new: Current, txn: &mut Transaction) {
        txn.push(Op::MetaSet { key: CURRENT_KEY, value: new.to_bytes() });
        if let Some(old) = self.current.replace(new) {
            for index in 0..old.count.min(RecoverySnapshotPart::COUNT_MAX) {
                txn.push(Op::MetaRemove { key: part_key(old.place, index) });
            }
        }
        self.left_over = 0;
    }
}

fn other_place(current: Option<Current>) -> u8 {
    current.map_or(0, |current| 1 - current.place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_buf::BufList;
    use nacre_store::MemStore;
    use nacre_txn::{ObjectView, StoreToken};

    fn part(made: u64, index: u32, count: u32, byte: u8) -> RecoverySnapshotPart {
        RecoverySnapshotPart { made, index, count, bytes: BufList::from(Bytes::from(vec![byte; 10])) }
    }

    struct World {
        store: MemStore,
        intake: SnapshotIntake,
    }

    impl World {
        fn new() -> Self {
            let store = MemStore::new(1 << 20);
            let intake = SnapshotIntake::open(&store);
            Self { store, intake }
        }

        fn take(&mut self, part: RecoverySnapshotPart) -> bool {
            let taken = self.intake.take(part);
            if let Some(txn) = taken.txn {
                self.store.submit(txn, StoreToken::without_pg(0)).expect("room");
            }
            taken.is_whole
        }

        fn kept(&self) -> Option<Vec<u8>> {
            stored_snapshot(&self.store).map(|bytes| bytes.to_vec())
        }

        fn keys(&self) -> usize {
            self.store.pg_meta(&OWN_COLLECTION, b"recovery").len()
        }
    }

    fn bytes(parts: &[u8]) -> Option<Vec<u8>> {
        Some(parts.iter().flat_map(|byte| [*byte; 10]).collect())
    }

    #[test]
    fn the_old_one_counts_until_the_new_one_is_whole() {
        let mut world = World::new();
        assert_eq!((world.kept(), world.intake.made()), (None, None));
        assert!(!world.take(part(5, 0, 2, 1)));
        assert_eq!(world.kept(), None);
        assert!(world.take(part(5, 1, 2, 2)));
        assert_eq!((world.kept(), world.intake.made(), world.keys()), (bytes(&[1, 2]), Some(5), 3));
        assert!(!world.take(part(6, 0, 3, 3)) && !world.take(part(6, 1, 3, 4)));
        assert_eq!(world.kept(), bytes(&[1, 2]));
        assert!(world.take(part(6, 2, 3, 5)));
        assert_eq!((world.kept(), world.keys()), (bytes(&[3, 4, 5]), 4), "nothing is left of the old one");
        assert!(world.take(part(7, 0, 1, 6)));
        assert_eq!((world.kept(), world.keys()), (bytes(&[6]), 2));
    }

    #[test]
    fn what_a_crash_leaves_goes_with_the_next_one() {
        let mut world = World::new();
        assert!(world.take(part(5, 0, 1, 1)));
        for index in 0..40 {
            assert!(!world.take(part(6, index, 50, 2)));
        }
        world.intake = SnapshotIntake::open(&world.store);
        assert_eq!((world.intake.made(), world.kept(), world.keys()), (Some(5), bytes(&[1]), 42));
        assert!(!world.take(part(6, 40, 50, 2)), "nobody knows what was before it");
        assert!(!world.take(part(7, 0, 2, 3)) && world.take(part(7, 1, 2, 4)));
        assert_eq!((world.kept(), world.keys()), (bytes(&[3, 4]), 3));
    }

    #[test]
    fn parts_that_make_no_whole_are_not_kept() {
        let mut world = World::new();
        let long = RecoverySnapshotPart {
            bytes: BufList::from(Bytes::from(vec![0; RecoverySnapshotPart::BYTES_MAX + 1])),
            ..part(5, 0, 1, 0)
        };
        let empty = RecoverySnapshotPart { bytes: BufList::new(), ..part(5, 0, 1, 0) };
        for wrong in [part(5, 0, 0, 1), part(5, 1, 1, 1), part(5, 1, 2, 1), part(5, 0, 513, 1), long, empty] {
            assert!(!world.take(wrong));
        }
        assert_eq!(world.keys(), 0);
        assert!(!world.take(part(5, 0, 3, 1)) && !world.take(part(5, 2, 3, 1)), "one is missing");
        assert!(!world.take(part(5, 1, 3, 1)), "it has to begin anew");
        assert!(!world.take(part(5, 0, 2, 1)) && !world.take(part(6, 1, 2, 1)), "of two snapshots");
        assert_eq!(world.kept(), None);
    }
}
