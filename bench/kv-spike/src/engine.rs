//! Opens the store of each engine, with the same memory.

use crate::args::{Args, EngineKind};
use crate::records::onode_key;
use anyhow::Result;
use nacre_kv::{JournalOptions, JournaledKv, KvBatch, KvOptions, KvStore, RedbKv};
use std::path::Path;

/// Names the store to its journal.
const ID: [u8; 16] = [9; 16];
/// A power of two above what anybody loads.
const OBJECTS_MAX: u64 = 1 << 30;
/// Of each half of the journal: the most that an OSD gives it.
const JOURNAL_HALF_BYTES: usize = 128 << 20;

/// Opens the store in a directory, or makes it.
pub(crate) fn open(args: &Args) -> Result<Box<dyn KvStore>> {
    let (directory, memory_bytes) = (args.directory.as_path(), args.memory_bytes);
    match args.engine {
        EngineKind::Redb => Ok(Box::new(open_redb(directory, memory_bytes)?)),
        EngineKind::RedbJournal => open_journaled(directory, memory_bytes),
        EngineKind::Fjall => open_fjall(directory, memory_bytes),
        EngineKind::Rocksdb => open_rocksdb(directory, memory_bytes),
    }
}

/// How many objects a store has whose loading may have been stopped.
pub(crate) fn objects_in(args: &Args) -> Result<u64> {
    let store = open(args)?;
    let (mut objects, mut step) = (0, OBJECTS_MAX);
    while step > 0 {
        if store.get(&onode_key(objects + step - 1))?.is_some() {
            objects += step;
        }
        step /= 2;
    }
    Ok(objects)
}

fn open_redb(directory: &Path, cache_bytes: usize) -> Result<RedbKv> {
    let options = KvOptions { cache_bytes, ..KvOptions::default() };
    Ok(RedbKv::open_with(&directory.join("meta.redb"), options)?)
}

fn open_journaled(directory: &Path, memory_bytes: usize) -> Result<Box<dyn KvStore>> {
    let half_bytes = JOURNAL_HALF_BYTES.min(memory_bytes / 8);
    let (tree, path) = (open_redb(directory, memory_bytes - 2 * half_bytes)?, directory.join("meta.journal"));
    if nacre_kv::has_journal(&tree)? {
        return Ok(Box::new(JournaledKv::open(tree, nacre_kv::open_file(&path)?, Some(half_bytes as u64))?));
    }
    let options = JournalOptions { id: ID, half_bytes: half_bytes as u64, mark: KvBatch::default() };
    let made = JournaledKv::make(tree, nacre_kv::create_file(&path)?, options);
    Ok(Box::new(made.map_err(|(_, error)| error)?))
}

#[cfg(feature = "fjall")]
fn open_fjall(directory: &Path, memory_bytes: usize) -> Result<Box<dyn KvStore>> {
    let library = crate::fjall_library::FjallLibrary::open(directory, memory_bytes)?;
    Ok(Box::new(crate::library::Threaded::new(library)?))
}

#[cfg(not(feature = "fjall"))]
fn open_fjall(_directory: &Path, _memory_bytes: usize) -> Result<Box<dyn KvStore>> {
    anyhow::bail!("built without fjall")
}

#[cfg(feature = "rocksdb")]
fn open_rocksdb(directory: &Path, memory_bytes: usize) -> Result<Box<dyn KvStore>> {
    let library = crate::rocks_library::RocksLibrary::open(directory, memory_bytes)?;
    Ok(Box::new(crate::library::Threaded::new(library)?))
}

#[cfg(not(feature = "rocksdb"))]
fn open_rocksdb(_directory: &Path, _memory_bytes: usize) -> Result<Box<dyn KvStore>> {
    anyhow::bail!("built without rocksdb")
}
