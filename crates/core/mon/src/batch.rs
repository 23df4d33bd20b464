//! [`Batch`]: durable changes as data, and [`Snapshot`]: durable state as it is read back at start.
//!
//! The state of every service is a table of `(prefix, key) -> value`, prefixes naming the service. A driver
//! writes a batch atomically and durably (today into a key-value store, later through a replicated log).

use nacre_buf::Bytes;

/// Puts and deletes that take effect together or not at all, later ones over earlier ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    ops: Vec<BatchOp>,
}

/// One change within a [`Batch`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchOp {
    /// Name of the service's table.
    pub prefix: &'static str,
    /// Key within the table.
    pub key: String,
    /// The new value, or `None` to delete.
    pub value: Option<Bytes>,
}

impl Batch {
    /// Stores `value`.
    pub fn put(&mut self, prefix: &'static str, key: impl Into<String>, value: impl Into<Bytes>) {
        self.ops.push(BatchOp { prefix, key: key.into(), value: Some(value.into()) });
    }

    /// Deletes a key, whether it is there or not.
    pub fn delete(&mut self, prefix: &'static str, key: impl Into<String>) {
        self.ops.push(BatchOp { prefix, key: key.into(), value: None });
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
    }
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
            let key = (op.prefix.to_owned(), op.key.clone());
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
