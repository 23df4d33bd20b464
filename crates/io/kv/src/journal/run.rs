//! [`Run`]: changes of one or several batches in the order of their keys. Keys and values are parts of the journal's records.

use crate::journal::filter::{Filter, KeyHash};
use bytes::Bytes;

/// In place of the length of a value: there is none.
pub(crate) const DELETED: u32 = u32::MAX;

/// Where a key and its value are: 16 bytes for a change, however long they are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) buffer: u32,
    /// Of the key; the value follows it.
    pub(crate) offset: u32,
    pub(crate) key_bytes: u32,
    /// [`DELETED`] where the key is.
    pub(crate) value_bytes: u32,
}

impl Entry {
    fn value_length(self) -> usize {
        if self.value_bytes == DELETED { 0 } else { self.value_bytes as usize }
    }

    /// Of key and value.
    pub(crate) fn bytes(self) -> usize {
        self.key_bytes as usize + self.value_length()
    }
}

/// What some batches change, without what later ones of them changed again. First everything with one of the prefixes goes, then
/// the entries hold.
#[derive(Debug, Default)]
pub(crate) struct Run {
    buffers: Vec<Bytes>,
    /// Ascending, each key once.
    entries: Vec<Entry>,
    /// Ascending, none begins with another.
    prefixes: Vec<Bytes>,
    /// Of keys and values.
    content_bytes: u64,
    filter: Filter,
}

/// Without those that begin with another one, ascending.
fn least(mut prefixes: Vec<Bytes>) -> Vec<Bytes> {
    prefixes.sort_unstable();
    prefixes.dedup_by(|later, earlier| later.starts_with(earlier));
    prefixes
}

impl Run {
    /// Of one record, with its changes as they come: the last one of a key holds.
    pub(crate) fn new(record: Bytes, entries: Vec<Entry>, prefixes: Vec<Bytes>) -> Self {
        let mut run = Self { buffers: vec![record], prefixes: least(prefixes), ..Self::default() };
        let mut sorted = entries;
        // Stable, and quick where most is in order.
        sorted.sort_by(|left, right| run.key(left).cmp(run.key(right)));
        for (nth, entry) in sorted.iter().enumerate() {
            if sorted.get(nth + 1).is_none_or(|next| run.key(next) != run.key(entry)) {
                run.entries.push(*entry);
            }
        }
        run.entries.shrink_to_fit();
        run.counted()
    }

    fn counted(mut self) -> Self {
        self.filter = Filter::of(self.entries.len(), self.entries.iter().map(|entry| self.key(entry)));
        self.content_bytes = self.entries.iter().map(|entry| entry.bytes() as u64).sum();
        self
    }

    /// Bytes of keys and values.
    pub(crate) const fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn prefixes(&self) -> &[Bytes] {
        &self.prefixes
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.buffers.iter().map(Bytes::len).sum::<usize>()
            + self.entries.capacity() * size_of::<Entry>()
            + self.filter.bytes()
    }

    fn part(&self, entry: &Entry, skip: usize, length: usize) -> Option<(&Bytes, usize, usize)> {
        let begin = entry.offset as usize + skip;
        Some((self.buffers.get(entry.buffer as usize)?, begin, begin + length))
    }

    fn key(&self, entry: &Entry) -> &[u8] {
        let part = self.part(entry, 0, entry.key_bytes as usize);
        part.and_then(|(buffer, begin, end)| buffer.get(begin..end))
            .expect("checked when the record was read")
    }

    /// The key of the entry at that place, if there is one.
    pub(crate) fn key_at(&self, at: usize) -> Option<&[u8]> {
        self.entries.get(at).map(|entry| self.key(entry))
    }

    /// The change at that place: key and value, or `None` where it is deleted. Shares the record.
    pub(crate) fn change_at(&self, at: usize) -> Option<(Bytes, Option<Bytes>)> {
        let entry = self.entries.get(at)?;
        let key_bytes = entry.key_bytes as usize;
        let (buffer, begin, end) = self.part(entry, 0, key_bytes)?;
        let value = (entry.value_bytes != DELETED).then(|| buffer.slice(end..end + entry.value_length()));
        Some((buffer.slice(begin..end), value))
    }

    /// Bytes of key and value at that place.
    pub(crate) fn bytes_at(&self, at: usize) -> usize {
        self.entries.get(at).map_or(0, |entry| entry.bytes())
    }

    /// How many keys come before this one, which counts if `with_it`.
    pub(crate) fn rank(&self, key: &[u8], with_it: bool) -> usize {
        self.entries
            .partition_point(|entry| if with_it { self.key(entry) <= key } else { self.key(entry) < key })
    }

    /// What the run made of a key; `None` when it did not change it, but may have deleted it with a prefix.
    pub(crate) fn find(&self, key: &[u8], hash: KeyHash) -> Option<Option<Bytes>> {
        if !self.filter.may_have(hash) {
            return None;
        }
        let at = self.entries.binary_search_by(|entry| self.key(entry).cmp(key)).ok()?;
        self.change_at(at).map(|(_, value)| value)
    }

    /// Whether the run deletes what was under this key before it.
    pub(crate) fn hides(&self, key: &[u8]) -> bool {
        // What lies between a prefix and a key with it begins with the prefix: only the last one before the key can be it.
        let before = self.prefixes.partition_point(|prefix| prefix.as_ref() <= key);
        let last = before.checked_sub(1).and_then(|last| self.prefixes.get(last));
        last.is_some_and(|prefix| key.starts_with(prefix))
    }

    /// Both as one: this one came later.
    pub(crate) fn over(&self, older: &Self) -> Self {
        let mut buffers = older.buffers.clone();
        let first = buffers.len() as u32;
        buffers.extend(self.buffers.iter().cloned());
        let mut entries = Vec::with_capacity(self.len() + older.len());
        let mut left = older.entries.iter().filter(|entry| !self.hides(older.key(entry))).peekable();
        for entry in &self.entries {
            let key = self.key(entry);
            while let Some(earlier) = left.next_if(|earlier| older.key(earlier) < key) {
                entries.push(*earlier);
            }
            left.next_if(|earlier| older.key(earlier) == key);
            entries.push(Entry { buffer: entry.buffer + first, ..*entry });
        }
        entries.extend(left);
        entries.shrink_to_fit();
        let prefixes = least(older.prefixes.iter().chain(&self.prefixes).cloned().collect());
        Self { buffers, entries, prefixes, ..Self::default() }.counted()
    }
}
