//! RocksDB, with its write-ahead log. One column family has all records.

use crate::library::{Library, failed};
use bytes::Bytes;
use nacre_kv::{Durability, KvError, Pair};
use rocksdb::{BlockBasedOptions, Cache, DB, DBCompressionType, Direction, IteratorMode, Options};
use rocksdb::{ReadOptions, WriteBatch, WriteOptions};
use std::ops::Bound;
use std::path::Path;

const MEMTABLE_BYTES: usize = 64 << 20;
/// The one that is filled, and three that wait to be written.
const MEMTABLES: usize = 4;

/// See the module's documentation.
pub(crate) struct RocksLibrary {
    database: DB,
}

impl RocksLibrary {
    pub(crate) fn open(directory: &Path, memory_bytes: usize) -> Result<Self, KvError> {
        let cache =
            Cache::new_lru_cache(memory_bytes.saturating_sub(MEMTABLE_BYTES * MEMTABLES)).map_err(failed)?;
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&cache);
        blocks.set_bloom_filter(10.0, false);
        // Otherwise they are memory beside the budget, which grows with the store.
        blocks.set_cache_index_and_filter_blocks(true);
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&blocks);
        options.set_compression_type(DBCompressionType::None);
        options.set_write_buffer_size(MEMTABLE_BYTES);
        options.set_max_write_buffer_number(MEMTABLES.try_into().unwrap_or(i32::MAX));
        options.set_max_background_jobs(2);
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_bytes_per_sync(1 << 20);
        Ok(Self { database: DB::open(&options, directory).map_err(failed)? })
    }
}

impl Library for RocksLibrary {
    fn write(&self, ops: &[(Bytes, Option<Bytes>)], durability: Durability) -> Result<(), KvError> {
        let mut changes = WriteBatch::default();
        for (key, value) in ops {
            match value {
                Some(value) => changes.put(key, value),
                None => changes.delete(key),
            }
        }
        let mut options = WriteOptions::default();
        options.set_sync(durability == Durability::Durable);
        self.database.write_opt(changes, &options).map_err(failed)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        let found = self.database.get_pinned(key).map_err(failed)?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, count_max: usize) -> Result<Vec<Pair>, KvError> {
        let mut options = ReadOptions::default();
        match end {
            Bound::Excluded(end) => options.set_iterate_upper_bound(end),
            Bound::Included(end) => options.set_iterate_upper_bound([end, &[0]].concat()),
            Bound::Unbounded => {}
        }
        let (first, skipped) = match start {
            Bound::Included(start) => (start, None),
            Bound::Excluded(start) => (start, Some(start)),
            Bound::Unbounded => (&[][..], None),
        };
        let pairs = self.database.iterator_opt(IteratorMode::From(first, Direction::Forward), options);
        let wanted = pairs.filter(|pair| match (pair, skipped) {
            (Ok((key, _)), Some(skipped)) => key.as_ref() != skipped,
            _ => true,
        });
        let owned = wanted.take(count_max).map(|pair| {
            let (key, value) = pair.map_err(failed)?;
            Ok((Bytes::from(key), Bytes::from(value)))
        });
        owned.collect()
    }
}
