//! The monitor's tables in a key-value store.
//!
//! A key of the store is the table's name, a zero byte and the key within the table; names have no zero byte.

use nacre_buf::Bytes;
use nacre_kv::{KvBatch, KvError, KvStore};
use nacre_mon::{Batch, Snapshot};
use std::cell::RefCell;

fn full_key(prefix: &str, key: &str) -> Vec<u8> {
    [prefix.as_bytes(), &[0], key.as_bytes()].concat()
}

/// Adds the changes of a batch to those of the store.
pub(crate) fn collect(batch: &Batch, out: &mut KvBatch) {
    for op in batch.ops() {
        let key = full_key(&op.prefix, &op.key);
        match &op.value {
            Some(value) => out.put(key, value.clone()),
            None => out.delete(key),
        }
    }
}

/// What `read` makes of the tables.
///
/// # Errors
/// The first read of the store that failed: what `read` made of nothing is not to be used then.
pub(crate) fn read<T>(tables: &dyn KvStore, read: impl FnOnce(&dyn Snapshot) -> T) -> Result<T, KvError> {
    let snapshot = StoreSnapshot { store: tables, failure: RefCell::new(None) };
    let value = read(&snapshot);
    snapshot.failure.into_inner().map_or(Ok(value), Err)
}

/// The store as tables. A read that fails yields nothing and is remembered.
struct StoreSnapshot<'a> {
    store: &'a dyn KvStore,
    failure: RefCell<Option<KvError>>,
}

impl StoreSnapshot<'_> {
    fn keep<T: Default>(&self, outcome: Result<T, KvError>) -> T {
        outcome.unwrap_or_else(|error| {
            self.failure.borrow_mut().get_or_insert(error);
            T::default()
        })
    }
}

impl Snapshot for StoreSnapshot<'_> {
    fn get(&self, prefix: &str, key: &str) -> Option<Bytes> {
        self.keep(self.store.get(&full_key(prefix, key)))
    }

    fn scan(&self, prefix: &str) -> Vec<(String, Bytes)> {
        let start = full_key(prefix, "");
        let pairs = self.keep(self.store.scan_prefix(&start)).into_iter();
        let short =
            |key: Bytes| String::from_utf8_lossy(key.get(start.len()..).unwrap_or_default()).into_owned();
        pairs.map(|(key, value)| (short(key), value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_kv::{Durability, MemoryKv};

    #[test]
    fn tables_do_not_mix() {
        let mut kv = MemoryKv::new();
        let mut batch = Batch::default();
        batch.put("osd", "1", "a");
        batch.put("osd-map", "1", "b");
        batch.put("osd", "2", "c");
        batch.delete("osd", "2");
        let mut out = KvBatch::default();
        collect(&batch, &mut out);
        kv.commit(&out, Durability::Durable).expect("memory does not fail");
        let outcome = read(&kv, |snapshot| {
            assert_eq!(snapshot.scan("osd"), [("1".to_owned(), Bytes::from("a"))]);
            assert_eq!(snapshot.get("osd-map", "1"), Some(Bytes::from("b")));
            assert_eq!(snapshot.get("osd", "2"), None);
        });
        assert!(outcome.is_ok());
    }
}
