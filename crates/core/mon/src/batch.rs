//! [`Batch`]: durable changes as data, and [`Snapshot`]: durable state as it is read back at start.
//!
//! The state of every service is a table of `(prefix, key) -> value`, prefixes naming the service. A batch is one entry of the monitors'
//! log: durable with that, then applied to the tables in the order of the log.

use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use std::borrow::Cow;

/// A key that sorts as its number does.
pub(crate) fn numbered_key(number: u64) -> String {
    format!("{number:020}")
}

/// Puts and deletes that take effect together or not at all, later ones over earlier ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    ops: Vec<BatchOp>,
    /// Bytes that they take in the log.
    bytes: usize,
}

/// Bytes that a batch takes in the log beside its changes.
const HEAD_BYTES: usize = 10;

/// One change within a [`Batch`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchOp {
    /// Name of the service's table.
    pub prefix: Cow<'static, str>,
    /// Key within the table.
    pub key: String,
    /// The new value, or `None` to delete.
    pub value: Option<Bytes>,
}

impl Batch {
    /// Stores `value`.
    pub fn put(&mut self, prefix: &'static str, key: impl Into<String>, value: impl Into<Bytes>) {
        self.push(BatchOp { prefix: prefix.into(), key: key.into(), value: Some(value.into()) });
    }

    /// Deletes a key, whether it is there or not.
    pub fn delete(&mut self, prefix: &'static str, key: impl Into<String>) {
        self.push(BatchOp { prefix: prefix.into(), key: key.into(), value: None });
    }

    fn push(&mut self, op: BatchOp) {
        self.bytes += op.bytes();
        self.ops.push(op);
    }

    /// Bytes that it takes in the log.
    #[must_use]
    pub fn bytes(&self) -> usize {
        HEAD_BYTES + self.bytes
    }

    /// The changes in order.
    #[must_use]
    pub fn ops(&self) -> &[BatchOp] {
        &self.ops
    }

    /// True when nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Moves the changes of `other` behind those of `self`.
    pub fn append(&mut self, other: &mut Self) {
        self.ops.append(&mut other.ops);
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl BatchOp {
    /// Bytes that it takes in the log.
    fn bytes(&self) -> usize {
        Self::MIN_BYTES
            + self.prefix.len()
            + self.key.len()
            + self.value.as_ref().map_or(0, |value| 4 + value.len())
    }
}

/// In an envelope (version 1, compat 1): the count of changes; of each the table's name, the key, whether there is a value, and that.
impl Encode for Batch {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.count(self.ops.len());
            for op in &self.ops {
                w.str(&op.prefix);
                w.str(&op.key);
                w.bool(op.value.is_some());
                op.value.iter().for_each(|value| w.blob_of(value));
            }
        });
    }
}

impl Decode for Batch {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let ops: Vec<BatchOp> = r.envelope("Batch", 1, |_, r| r.get())?;
        Ok(Self { bytes: ops.iter().map(BatchOp::bytes).sum(), ops })
    }
}

impl Decode for BatchOp {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let (prefix, key) = (Cow::Owned(r.text()?), r.text()?);
        let value = if r.bool()? { Some(r.blob()?) } else { None };
        Ok(Self { prefix, key, value })
    }
    const MIN_BYTES: usize = 9;
}

/// Durable state as the last committed batch left it.
pub trait Snapshot {
    /// The value of one key.
    fn get(&self, prefix: &str, key: &str) -> Option<Bytes>;

    /// All pairs of one table in ascending order of keys.
    fn scan(&self, prefix: &str) -> Vec<(String, Bytes)>;
}

/// Durable state in memory: what tests and `Mon::mkfs` write into.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemorySnapshot {
    tables: std::collections::BTreeMap<(String, String), Bytes>,
}

impl MemorySnapshot {
    /// Applies a batch.
    pub fn apply(&mut self, batch: &Batch) {
        for op in batch.ops() {
            let key = (op.prefix.clone().into_owned(), op.key.clone());
            match &op.value {
                Some(value) => self.tables.insert(key, value.clone()),
                None => self.tables.remove(&key),
            };
        }
    }
}

impl Snapshot for MemorySnapshot {
    fn get(&self, prefix: &str, key: &str) -> Option<Bytes> {
        self.tables.get(&(prefix.to_owned(), key.to_owned())).cloned()
    }

    fn scan(&self, prefix: &str) -> Vec<(String, Bytes)> {
        let from = (prefix.to_owned(), String::new());
        let pairs = self.tables.range(from..).take_while(|((table, _), _)| table == prefix);
        pairs.map(|((_, key), value)| (key.clone(), value.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_the_same_when_it_was_an_entry_of_the_log() {
        let mut batch = Batch::default();
        batch.put("osd", "full_1", "map");
        batch.put("config", "empty", "");
        batch.delete("osd", "1");
        let bytes = batch.to_bytes();
        assert_eq!(bytes.len(), batch.bytes());
        assert_eq!(Batch::from_bytes(bytes.clone()).expect("its own encoding"), batch);
        for length in 0..bytes.len() {
            assert!(Batch::from_bytes(bytes.slice(..length)).is_err(), "{length} of {} bytes", bytes.len());
        }
    }
}
