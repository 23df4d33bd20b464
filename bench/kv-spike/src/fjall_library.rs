//! fjall: a log-structured merge tree in Rust. One keyspace has all records, as one table of ours does.

use crate::library::{Library, failed};
use bytes::Bytes;
use fjall::config::CompressionPolicy;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use nacre_kv::{Durability, KvError, Pair};
use std::ops::Bound;
use std::path::Path;

/// Of one memtable. Up to four are sealed and wait to be written before writers are held up.
const MEMTABLE_BYTES: u64 = 64 << 20;
/// Set apart for memtables: the one that is filled and three more.
const MEMTABLES: usize = 4;

/// See the module's documentation.
pub(crate) struct FjallLibrary {
    database: Database,
    records: Keyspace,
}

impl FjallLibrary {
    pub(crate) fn open(directory: &Path, memory_bytes: usize) -> Result<Self, KvError> {
        let cache_bytes = (memory_bytes as u64).saturating_sub(MEMTABLE_BYTES * MEMTABLES as u64);
        let database =
            Database::builder(directory).cache_size(cache_bytes).worker_threads(2).open().map_err(failed)?;
        let options = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(MEMTABLE_BYTES)
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
        };
        let records = database.keyspace("records", options).map_err(failed)?;
        Ok(Self { database, records })
    }
}

impl Library for FjallLibrary {
    fn write(&self, ops: &[(Bytes, Option<Bytes>)], durability: Durability) -> Result<(), KvError> {
        let mode = (durability == Durability::Durable).then_some(PersistMode::SyncData);
        let mut changes = self.database.batch().durability(mode);
        for (key, value) in ops {
            match value {
                Some(value) => changes.insert(&self.records, key.as_ref(), value.as_ref()),
                None => changes.remove(&self.records, key.as_ref()),
            }
        }
        changes.commit().map_err(failed)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        let found = self.records.get(key).map_err(failed)?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, count_max: usize) -> Result<Vec<Pair>, KvError> {
        let pairs = self.records.range::<&[u8], _>((start, end)).take(count_max);
        let copied = pairs.map(|pair| {
            let (key, value) = pair.into_inner().map_err(failed)?;
            Ok((Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&value)))
        });
        copied.collect()
    }
}
