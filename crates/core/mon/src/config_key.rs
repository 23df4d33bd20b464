//! The config-key store: blobs under text keys, for tools and modules.

use crate::batch::{Batch, Snapshot};
use nacre_buf::Bytes;
use std::collections::{BTreeMap, BTreeSet};

const PREFIX: &str = "config-key";

/// What the keys of reports of crashes begin with; the crash's id follows.
pub const CRASH_REPORTS: &str = "mgr/crash/crash/";

/// Largest value, as `mon_config_key_max_entry_size`.
pub const VALUE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the longest key.
pub const KEY_BYTES_MAX: usize = 4096;
/// Keys that are kept at most.
pub const KEYS_COUNT_MAX: usize = 100_000;
/// Bytes of all keys and values.
pub const STORE_BYTES_MAX: usize = 256 << 20;

/// All keys and values.
#[derive(Debug, Default)]
pub struct ConfigKeys {
    values: BTreeMap<String, Bytes>,
    /// Bytes of them.
    bytes: usize,
    changes: Batch,
    /// Grows with every change since the start.
    version: u64,
    /// The same of reports of crashes.
    crash_reports_version: u64,
    /// Keys that have changed since subscribers were told last.
    changed: BTreeSet<String>,
}

impl ConfigKeys {
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Self {
        let values: BTreeMap<String, Bytes> = snapshot.scan(PREFIX).into_iter().collect();
        let bytes = values.iter().map(|(key, value)| key.len() + value.len()).sum();
        Self { values, bytes, version: 1, ..Self::default() }
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

    /// Whether there is room for a value of that many bytes under `key`.
    #[must_use]
    pub fn has_room(&self, key: &str, value_bytes: usize) -> bool {
        let held = self.values.get(key).map(|value| key.len() + value.len());
        key.len() <= KEY_BYTES_MAX
            && value_bytes <= VALUE_BYTES_MAX
            && (held.is_some() || self.values.len() < KEYS_COUNT_MAX)
            && self.bytes - held.unwrap_or(0) + key.len() + value_bytes <= STORE_BYTES_MAX
    }

    /// Stores a value; callers check [`ConfigKeys::has_room`].
    pub fn set(&mut self, key: &str, value: Bytes) {
        if self.values.get(key) != Some(&value) {
            self.bytes += key.len() + value.len();
            self.bytes -= self.values.get(key).map_or(0, |held| key.len() + held.len());
            self.changes.put(PREFIX, key, value.clone());
            self.note(key);
            self.values.insert(key.to_owned(), value);
        }
    }

    /// Removes a key; false when it was not there.
    pub fn remove(&mut self, key: &str) -> bool {
        let held = self.values.remove(key);
        let was_there = held.is_some();
        if let Some(held) = held {
            self.bytes -= key.len() + held.len();
            self.changes.delete(PREFIX, key);
            self.note(key);
        }
        was_there
    }

    /// Bytes that wait to be committed.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.changes.bytes()
    }

    fn note(&mut self, key: &str) {
        self.version += 1;
        self.crash_reports_version += u64::from(key.starts_with(CRASH_REPORTS));
        self.changed.insert(key.to_owned());
    }

    /// Grows with every change since the start.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Grows with every change of a report of a crash since the start.
    pub(crate) fn crash_reports_version(&self) -> u64 {
        self.crash_reports_version
    }

    /// Keys that have changed since the last call.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.changed)
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.changes.is_empty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        batch.append(&mut self.changes);
    }
}
