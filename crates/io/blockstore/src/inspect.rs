//! Looking at a store that is not open, part by part, and mending what can be mended without guessing.
//!
//! Opening wants everything whole; this says what is not. Only two things are ever changed: a superblock copy is
//! written again from the other, and metadata that cannot be understood is removed, when the caller asks for it.

use crate::alloc::Run;
use crate::error::OpenError;
use crate::metadata::{self, State, prefix};
use crate::offline::Layout;
use crate::onode::Onode;
use crate::store::BlockStore;
use crate::superblock::{COPIES, Superblock};
use crate::{BLOCK, mount};
use nacre_buf::Bytes;
use nacre_denc::Reader;
use nacre_env::disk::{Disk, Durability, blocking};
use nacre_kv::{KvBatch, KvStore};
use nacre_types::{HObject, SpgId};
use std::collections::BTreeSet;

/// Bad records listed at most; more are counted by nobody, the store is beyond mending by hand.
const BAD_RECORDS_MAX: usize = 100_000;

/// What the copies of the superblock say, in order.
pub fn superblock_copies(disk: &mut dyn Disk) -> Vec<Result<Layout, OpenError>> {
    let size_bytes = disk.info().size_bytes;
    let read = |copy: u32| {
        if size_bytes < u64::from(COPIES) * BLOCK as u64 {
            return Err(OpenError::Size { size_bytes });
        }
        let block = blocking::read(disk, BlockStore::offset(copy), BLOCK)?;
        Superblock::decode(&block.freeze(), size_bytes).map(Layout::from)
    };
    (0..COPIES).map(read).collect()
}

/// Writes each copy of the superblock that is not whole again from one that is; gives their numbers.
///
/// # Errors
/// [`OpenError`] when no copy is whole, or the device fails.
pub fn restore_superblocks(disk: &mut dyn Disk) -> Result<Vec<u32>, OpenError> {
    let good = mount::read_superblock(disk)?;
    let copies = superblock_copies(disk);
    let bad: Vec<u32> =
        (0..COPIES).zip(copies).filter(|(_, copy)| copy.is_err()).map(|(nth, _)| nth).collect();
    for copy in &bad {
        let block = good.encode().into();
        blocking::write(disk, BlockStore::offset(*copy), block, Durability::Durable)?;
    }
    Ok(bad)
}

/// A pair of the metadata that cannot be understood, or contradicts the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadRecord {
    /// Its key in the KV store.
    pub key: Bytes,
    /// What it should be.
    pub kind: &'static str,
    /// The object that it is about, as far as it can be read.
    pub object: Option<(SpgId, HObject)>,
    /// What is wrong.
    pub reason: String,
    /// Whether the store is whole without it, but for that object.
    pub removable: bool,
}

/// Reads all of the metadata and says what is wrong with it. Empty: the store opens, unless its log is damaged.
///
/// # Errors
/// [`OpenError`] when the KV store fails, or has no state of this store.
pub fn bad_metadata(disk: &mut dyn Disk, kv: &dyn KvStore) -> Result<Vec<BadRecord>, OpenError> {
    let superblock = mount::read_superblock(disk)?;
    let state = State::load(kv, &superblock)?;
    let mut audit = Audit { area: superblock.data, next_id: state.next_id, ..Audit::default() };
    metadata::scan(kv, prefix::COLLECTION, |key, _| {
        let read = Reader::new(key.clone()).get::<SpgId>().err().map(|error| error.to_string());
        audit.note(prefix::COLLECTION, &key, "collection", read);
        Ok(())
    })?;
    metadata::scan(kv, prefix::LOG, |key, value| {
        let read = metadata::check_log_pair(key.clone(), value).err().map(|error| error.to_string());
        audit.note(prefix::LOG, &key, "log", read);
        Ok(())
    })?;
    metadata::scan(kv, prefix::META, |key, _| {
        let read = Reader::new(key.clone()).get::<SpgId>().err().map(|error| error.to_string());
        audit.note(prefix::META, &key, "group metadata", read);
        Ok(())
    })?;
    metadata::scan(kv, prefix::OBJECT, |key, value| {
        audit.object(&key, value);
        Ok(())
    })?;
    metadata::scan(kv, prefix::OMAP, |key, _| {
        audit.omap(&key);
        Ok(())
    })?;
    Ok(audit.bad)
}

/// Removes records that [`bad_metadata`] found, with all omap values of the objects among them, as one batch.
/// Gives the number of keys removed.
///
/// # Errors
/// [`OpenError`] when the KV store fails.
pub fn remove_metadata(kv: &mut dyn KvStore, records: &[BadRecord]) -> Result<usize, OpenError> {
    let mut keys: BTreeSet<Bytes> = BTreeSet::new();
    for record in records.iter().filter(|record| record.removable) {
        keys.insert(record.key.clone());
        if record.key.first() == Some(&prefix::OBJECT) {
            let omap = [&[prefix::OMAP], record.key.get(1..).unwrap_or_default()].concat();
            keys.extend(kv.scan_prefix(&omap)?.into_iter().map(|(key, _)| key));
        }
    }
    let mut batch = KvBatch::default();
    let count = keys.len();
    keys.into_iter().for_each(|key| batch.delete(key));
    kv.commit(&batch, nacre_kv::Durability::Durable)?;
    Ok(count)
}

struct Audit {
    area: Run,
    next_id: u64,
    /// Of objects, bad ones among them: those are reported once, not for each omap value.
    numbers: BTreeSet<u64>,
    names: BTreeSet<(SpgId, HObject)>,
    bad: Vec<BadRecord>,
}

impl Default for Audit {
    fn default() -> Self {
        let area = Run { start: 0, count: 0 };
        Self { area, next_id: 0, numbers: BTreeSet::new(), names: BTreeSet::new(), bad: Vec::new() }
    }
}

impl Audit {
    fn push(&mut self, record: BadRecord) {
        if self.bad.len() < BAD_RECORDS_MAX {
            self.bad.push(record);
        }
    }

    fn note(&mut self, prefix: u8, key: &Bytes, kind: &'static str, reason: Option<String>) {
        if let Some(reason) = reason {
            self.push(BadRecord { key: whole(prefix, key), kind, object: None, reason, removable: false });
        }
    }

    fn object(&mut self, key: &Bytes, value: Bytes) {
        let number = metadata::read_ascending(&mut Reader::new(key.clone()));
        let named = Onode::decode_name(value.clone()).ok();
        self.numbers.extend(number.as_ref().ok());
        let verdict = number.map_err(|error| error.to_string()).and_then(|id| self.judge(id, value));
        match verdict {
            Ok(()) => self.names.extend(named),
            Err(reason) => self.push(BadRecord {
                key: whole(prefix::OBJECT, key),
                kind: "object",
                object: named,
                reason,
                removable: true,
            }),
        }
    }

    fn judge(&self, id: u64, value: Bytes) -> Result<(), String> {
        let (at, name, onode) = Onode::decode(id, value).map_err(|error| error.to_string())?;
        if id >= self.next_id {
            return Err(format!("its number {id} was never given out"));
        }
        let mut devices = onode.blocks.values().filter_map(|slot| slot.device());
        if let Some(outside) = devices.find(|device| !self.area.blocks().contains(&device.block)) {
            return Err(format!("its block {} is outside the data area", outside.block));
        }
        if self.names.contains(&(at, name)) {
            return Err("another object has its name".to_owned());
        }
        Ok(())
    }

    fn omap(&mut self, key: &Bytes) {
        let owner = metadata::read_ascending(&mut Reader::new(key.clone()));
        let reason = match owner {
            Ok(id) if self.numbers.contains(&id) => return,
            Ok(id) => format!("there is no object {id}"),
            Err(error) => error.to_string(),
        };
        let key = whole(prefix::OMAP, key);
        self.push(BadRecord { key, kind: "omap", object: None, reason, removable: true });
    }
}

fn whole(prefix: u8, key: &Bytes) -> Bytes {
    [&[prefix], &key[..]].concat().into()
}
