//! The config-key store: blobs under text keys, for tools and modules.

use crate::batch::{Batch, Snapshot};
use nacre_buf::Bytes;
use std::collections::BTreeMap;

const PREFIX: &str = "config-key";

/// Largest value, as `mon_config_key_max_entry_size`.
pub const VALUE_BYTES_MAX: usize = 64 * 1024;

/// All keys and values.
#[derive(Debug, Default)]
pub struct ConfigKeys {
    values: BTreeMap<String, Bytes>,
    changes: Batch,
}

impl ConfigKeys {
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Self {
        Self { values: snapshot.scan(PREFIX).into_iter().collect(), changes: Batch::default() }
    }

    /// The value of `key`.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&Bytes> {
        self.values.get(key)
    }

    /// All pairs whose key begins with `start`.
    pub fn iter_prefix<'a>(&'a self, start: &'a str) -> impl Iterator<Item = (&'a String, &'a Bytes)> {
        self.values.range(start.to_owned()..).take_while(move |(key, _)| key.starts_with(start))
    }

    /// Stores a value; callers check [`VALUE_BYTES_MAX`].
    pub fn set(&mut self, key: &str, value: Bytes) {
        if self.values.get(key) != Some(&value) {
            self.changes.put(PREFIX, key, value.clone());
            self.values.insert(key.to_owned(), value);
        }
    }

    /// Removes a key; false when it was not there.
    pub fn remove(&mut self, key: &str) -> bool {
        let was_there = self.values.remove(key).is_some();
        if was_there {
            self.changes.delete(PREFIX, key);
        }
        was_there
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.changes.is_empty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        batch.append(&mut self.changes);
    }
}
