//! Looking at a store that is not open, part by part, and repairing what can be repaired without guessing.
//!
//! Opening wants everything whole; this says what is not. Only three things are ever changed: a superblock copy is
//! written again from the other, the free map is made anew from the objects, and metadata that cannot be understood is
//! removed, when the caller asks for it.

use crate::device::Run;
use crate::error::OpenError;
use crate::kv_schema::{self, Keyspace, OmapCopy, State, StoredState, prefix};
use crate::objects::{self, Records};
use crate::offline::Layout;
use crate::onode::Onode;
use crate::store::BlockStore;
use crate::superblock::{COPIES, Division, Superblock};
use crate::{BLOCK, mount};
use nacre_buf::Bytes;
use nacre_denc::DecodeError;
use nacre_env::disk::{Disk, Durability, blocking};
use nacre_kv::{KvBatch, KvStore};
use nacre_types::{HObject, SpgId};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Bad records listed at most; more are counted by nobody, the store is beyond repairing by hand.
const BAD_RECORDS_MAX: usize = 100_000;

/// What the copies of the superblock say, in order.
pub fn superblock_copies(disk: &mut dyn Disk) -> Vec<Result<Layout, OpenError>> {
    let size_bytes = disk.info().size_bytes;
    let read = |copy: u32| {
        if size_bytes < u64::from(COPIES) * BLOCK as u64 {
            return Err(OpenError::Size { size_bytes });
        }
        let block = blocking::read_patiently(disk, BlockStore::offset(copy.into()), BLOCK)?;
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
        blocking::write(disk, BlockStore::offset((*copy).into()), block, Durability::Durable)?;
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
    /// Of an object, and of a name without one: the key of the name, and whether its collection is there still. In one that was made again
    /// another object may have the name.
    pub name: Option<(Bytes, bool)>,
}

/// Reads all of the metadata and says what is wrong with it. Empty: the store opens, unless its log is damaged. `partition` is the number
/// of the one that the metadata should be of, 0 in a store that is not divided.
///
/// # Errors
/// [`OpenError`] when the KV store fails, or has no state of this store, or of another partition.
pub fn bad_metadata(
    disk: &mut dyn Disk,
    kv: &dyn KvStore,
    partition: u32,
) -> Result<Vec<BadRecord>, OpenError> {
    let superblock = mount::read_superblock(disk)?;
    let record = kv_schema::PartitionRecord::load(kv)?;
    let found = record.map(|record| (record.number, record.partitions));
    let Division { partitions, .. } = superblock.division;
    if found != (partitions > 1).then_some((partition, partitions)) {
        return Err(OpenError::ForeignMetadata);
    }
    let StoredState { state, is_version_1 } = State::load(kv, &superblock)?;
    let mut audit = Audit::new(superblock.data, state.next_id, is_version_1);
    scan(kv, prefix::COLLECTION, |key, value| {
        let read = kv_schema::decode_spg(key.clone())
            .and_then(|at| Ok(Keyspace { at, number: kv_schema::decode_collection(value)?.1 }));
        let live = audit.note(prefix::COLLECTION, &key, "collection", read);
        audit.live.extend(live);
    })?;
    scan(kv, prefix::LOG, |key, value| {
        audit.note(prefix::LOG, &key, "log", kv_schema::check_log_pair(key.clone(), value));
    })?;
    for prefix in [prefix::META, prefix::SPACE_META] {
        scan(kv, prefix, |key, _| {
            audit.note(prefix, &key, "PG metadata", Keyspace::decode(prefix, key.clone()));
        })?;
    }
    scan(kv, prefix::DEAD, |key, _| {
        audit.note(prefix::DEAD, &key, "removed PG", Keyspace::decode(prefix::DEAD, key.clone()));
    })?;
    scan(kv, prefix::FREE, |key, value| {
        let read = kv_schema::decode_free(key.clone(), value);
        audit.note(prefix::FREE, &key, "free map", read);
        // It can be made anew from the objects.
        audit.bad.last_mut().into_iter().for_each(|record| record.removable |= record.kind == "free map");
    })?;
    for prefix in [prefix::NAME, prefix::SPACE_NAME] {
        scan(kv, prefix, |key, value| audit.name(prefix, &key, value))?;
    }
    objects::each::<OpenError>(kv, |records| {
        audit.object(&records);
        Ok(())
    })?;
    audit.names_without_object();
    let mut copies = BTreeMap::new();
    scan(kv, prefix::COPY, |key, value| {
        let read =
            kv_schema::decode_number(key.clone()).and_then(|copy| Ok((copy, OmapCopy::decode(value)?)));
        copies.extend(audit.note(prefix::COPY, &key, "copy of an omap", read));
    })?;
    audit.copies(&copies);
    scan(kv, prefix::OMAP, |key, _| audit.omap(&key))?;
    scan(kv, prefix::HIDDEN, |key, _| audit.hidden(&key, &copies))?;
    Ok(audit.bad)
}

fn scan(kv: &dyn KvStore, prefix: u8, mut visit: impl FnMut(Bytes, Bytes)) -> Result<(), OpenError> {
    kv_schema::scan(kv, &[prefix], |key, value| {
        visit(key, value);
        Ok(())
    })
}

/// What goes into the metadata in one with the sign that they have a journal, so that programs that know of none refuse them; and the
/// store's id. `None` of format 1: opening it for the first time makes it one that can have a journal.
///
/// # Errors
/// [`OpenError`] when the KV store fails, or has no state of a store.
pub fn journal_mark(kv: &dyn KvStore) -> Result<Option<([u8; 16], KvBatch)>, OpenError> {
    let value = kv.get(&kv_schema::state_key())?.ok_or(OpenError::ForeignMetadata)?;
    let StoredState { state, is_version_1 } = State::decode(value)?;
    let mut batch = KvBatch::default();
    batch.put(kv_schema::state_key(), State { is_journaled: true, ..state }.encode());
    Ok((!is_version_1).then_some((state.id, batch)))
}

/// Counts what the objects of a closed store refer to, and writes the free map and the sums anew when they say something
/// else. True when they did. All of the metadata must be readable.
///
/// # Errors
/// [`OpenError`] when an object cannot be understood, or the KV store fails.
pub fn recount_free_space(kv: &mut dyn KvStore) -> Result<bool, OpenError> {
    crate::upgrade::recount(kv)
}

/// Removes records that [`bad_metadata`] found, with names and omap values of the objects among them, as one batch, and
/// then makes the free map anew. Gives the number of keys removed.
///
/// # Errors
/// [`OpenError`] when the KV store fails.
pub fn remove_metadata(kv: &mut dyn KvStore, records: &[BadRecord]) -> Result<usize, OpenError> {
    let mut keys: BTreeSet<Bytes> = BTreeSet::new();
    let mut batch = KvBatch::default();
    let removed: BTreeSet<&[u8]> = records.iter().map(|record| record.key.as_ref()).collect();
    // What a damaged record says is its omap may be another object's.
    let mut omaps_of_others = BTreeSet::new();
    objects::each::<OpenError>(kv, |found| {
        if !removed.contains(whole(prefix::OBJECT, &found.key).as_ref())
            && let Ok(object) = found.decode()
        {
            omaps_of_others.insert(object.onode.omap);
        }
        Ok(())
    })?;
    for record in records.iter().filter(|record| record.removable) {
        keys.insert(record.key.clone());
        if record.key.first() != Some(&prefix::OBJECT) {
            continue;
        }
        keys.extend(record.name.iter().map(|(key, _)| key.clone()));
        if kv_schema::is_object_key(&record.key) {
            // With the pages of its blocks.
            keys.extend(kv.scan_prefix(&record.key)?.into_iter().map(|(key, _)| key));
        }
        if let (Ok(id), Some(value)) = (kv_schema::decode_number(record.key.slice(1..)), kv.get(&record.key)?)
            && let Ok((_, omap)) = Onode::claimed(id, value)
            && omap != 0
            && !omaps_of_others.contains(&omap)
        {
            keys.extend(omap_keys(kv, omap, &mut batch)?);
        }
    }
    let count = keys.len();
    keys.into_iter().for_each(|key| batch.delete(key));
    kv.commit(&batch, nacre_kv::Durability::Durable)?;
    crate::upgrade::recount(kv)?;
    Ok(count)
}

/// Keys that go with an omap whose object is removed: none when a copy is being made from it, which then has it removed at its end.
fn omap_keys(kv: &dyn KvStore, omap: u64, batch: &mut KvBatch) -> Result<Vec<Bytes>, OpenError> {
    for (key, value) in kv.scan_prefix(&[prefix::COPY])? {
        if let Ok(copy) = OmapCopy::decode(value)
            && copy.source == omap
        {
            batch.put(key, OmapCopy { source_is_dead: true, ..copy }.encode());
            return Ok(Vec::new());
        }
    }
    let mut keys = Vec::new();
    for prefix in [kv_schema::omap_prefix(omap), kv_schema::hidden_prefix(omap), kv_schema::copy_key(omap)] {
        keys.extend(kv.scan_prefix(&prefix)?.into_iter().map(|(key, _)| key));
    }
    Ok(keys)
}

struct Audit {
    area: Run,
    next_id: u64,
    is_version_1: bool,
    /// Keyspaces of the collections that are there.
    live: BTreeSet<Keyspace>,
    /// By number, with the key of the name; each is taken out when its object is seen.
    named: BTreeMap<u64, (Bytes, (SpgId, HObject))>,
    names: BTreeSet<(SpgId, HObject)>,
    /// Of objects, bad ones among them: those are reported once, not for each omap value.
    omaps: BTreeSet<u64>,
    bad: Vec<BadRecord>,
}

impl Audit {
    fn new(area: Run, next_id: u64, is_version_1: bool) -> Self {
        let (named, names, omaps) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { area, next_id, is_version_1, live: BTreeSet::new(), named, names, omaps, bad: Vec::new() }
    }

    fn push(&mut self, record: BadRecord) {
        if self.bad.len() < BAD_RECORDS_MAX {
            self.bad.push(record);
        }
    }

    fn note<T>(
        &mut self,
        prefix: u8,
        key: &Bytes,
        kind: &'static str,
        read: Result<T, DecodeError>,
    ) -> Option<T> {
        let noted = read.map_err(|error| {
            let (key, reason) = (whole(prefix, key), error.to_string());
            self.push(BadRecord { key, kind, object: None, reason, removable: false, name: None });
        });
        noted.ok()
    }

    fn name(&mut self, prefix: u8, key: &Bytes, value: Bytes) {
        let whole = whole(prefix, key);
        let read = Keyspace::decode(prefix, key.clone())
            .and_then(|keyspace| kv_schema::decode_name(value).map(|(id, name)| (id, keyspace, name)));
        let (object, reason) = match read {
            Err(error) => (None, error.to_string()),
            Ok((id, keyspace, name)) => {
                let misplaced = kv_schema::name_key(&keyspace, &name) != whole;
                let object = (keyspace.at, name);
                match self.named.entry(id) {
                    _ if misplaced => (Some(object), "it is under another name's key".to_owned()),
                    Entry::Occupied(_) => (Some(object), "another name has its object".to_owned()),
                    Entry::Vacant(entry) => {
                        entry.insert((whole, object));
                        return;
                    }
                }
            }
        };
        self.push(BadRecord { key: whole, kind: "name", object, reason, removable: true, name: None });
    }

    fn names_without_object(&mut self) {
        for (id, (key, object)) in std::mem::take(&mut self.named) {
            let reason = format!("there is no object {id}");
            let name = Some((key.clone(), self.is_live(&key)));
            let object = Some(object);
            self.push(BadRecord { key, kind: "name", object, reason, removable: true, name });
        }
    }

    fn object(&mut self, records: &Records) {
        let number = records.number();
        let claimed =
            number.clone().and_then(|id| Onode::claimed(id, records.own.clone().unwrap_or_default())).ok();
        let (mut name_key, mut named) = number.as_ref().ok().and_then(|id| self.named.remove(id)).unzip();
        if let Some((name, omap)) = claimed {
            if let (None, Some((at, name))) = (&named, &name) {
                // Of format 1, which has no names beside the objects.
                name_key = Some(kv_schema::name_key(&Keyspace::from(*at), name));
            }
            named = named.or(name);
            self.omaps.insert(omap);
        }
        let verdict =
            number.map_err(|error| error.to_string()).and_then(|id| self.judge(id, records, named.as_ref()));
        match verdict {
            Ok(()) => self.names.extend(named),
            Err(reason) => self.push(BadRecord {
                key: whole(prefix::OBJECT, &records.key),
                kind: "object",
                object: named,
                reason,
                removable: true,
                name: name_key.map(|key| (key.clone(), self.is_live(&key))),
            }),
        }
    }

    /// Whether a name is one of a collection that is there.
    fn is_live(&self, name_key: &Bytes) -> bool {
        let prefix = name_key.first().copied().unwrap_or_default();
        Keyspace::decode(prefix, name_key.slice(1..)).is_ok_and(|space| self.live.contains(&space))
    }

    fn judge(&self, id: u64, records: &Records, named: Option<&(SpgId, HObject)>) -> Result<(), String> {
        let onode = records.decode().map_err(|error| error.to_string())?.onode;
        if id >= self.next_id {
            return Err(format!("its number {id} was never given out"));
        }
        if let Some(block) = onode.block_outside(self.area) {
            return Err(format!("its block {block} is outside the data area"));
        }
        match named {
            None => Err("it has no name".to_owned()),
            Some(named) if self.is_version_1 && self.names.contains(named) => {
                Err("another object has its name".to_owned())
            }
            Some(_) => Ok(()),
        }
    }

    fn omap(&mut self, key: &Bytes) {
        let reason = match kv_schema::decode_number(key.clone()) {
            Ok(omap) if self.omaps.contains(&omap) => return,
            Ok(omap) => format!("no object has the omap {omap}"),
            Err(error) => error.to_string(),
        };
        let key = whole(prefix::OMAP, key);
        self.push(BadRecord { key, kind: "omap", object: None, reason, removable: true, name: None });
    }

    /// Omaps without an object are there for copies that are made from them, and each copy is for an object in the end.
    fn copies(&mut self, copies: &BTreeMap<u64, OmapCopy>) {
        for copy in copies.values().filter(|copy| copy.source_is_dead) {
            self.omaps.insert(copy.source);
        }
        for (target, copy) in copies {
            let reason = match [target, &copy.source].into_iter().find(|omap| !self.omaps.contains(omap)) {
                Some(omap) => format!("no object has the omap {omap}"),
                None => continue,
            };
            let key = kv_schema::copy_key(*target);
            self.push(BadRecord {
                key,
                kind: "copy of an omap",
                object: None,
                reason,
                removable: false,
                name: None,
            });
        }
    }

    fn hidden(&mut self, key: &Bytes, copies: &BTreeMap<u64, OmapCopy>) {
        let reason = match kv_schema::decode_number(key.clone()) {
            Ok(omap) if copies.contains_key(&omap) => return,
            Ok(omap) => format!("the omap {omap} is not being copied"),
            Err(error) => error.to_string(),
        };
        let key = whole(prefix::HIDDEN, key);
        self.push(BadRecord { key, kind: "hidden key", object: None, reason, removable: true, name: None });
    }
}

fn whole(prefix: u8, key: &Bytes) -> Bytes {
    [&[prefix], &key[..]].concat().into()
}
