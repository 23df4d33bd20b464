//! [`Table`]: all collections and objects, the authority on what the store holds: the KV store as of the last checkpoint,
//! what was changed since above it ([`crate::memtable`]), and a bounded part of the rest in memory. Transactions are
//! applied here, when they are submitted and again at replay.
//!
//! Reads of the KV store happen on the shard's thread: a point read takes 3 to 10 us out of its cache or the page cache.
//! One that fails is remembered ([`Table::failure`]): the store then acknowledges nothing more, and what it said
//! since must not leave the shard.

mod copies;
mod data;
mod free_map;
mod objects;
mod omap;
mod pglog;
mod recent;
mod removal;
mod scan;
mod space;
mod unread;

use crate::BLOCK;
use crate::alloc::Alloc;
use crate::blocks::Period;
use crate::clean_records::CleanRecords;
use crate::clock_cache::Clock;
use crate::error::OpenError;
use crate::failure::Failure;
use crate::held::Source;
use crate::kv_schema::{self, Keyspace, LogChunk, State, Sums};
use crate::memtable::Memtable;
use crate::onode::Onode;
use crate::options::{Options, Planted};
use crate::wal::Placement;
use copies::Copies;
use data::{copy_extents, truncate, write, zero};
use nacre_buf::Bytes;
use nacre_kv::KvStore;
use nacre_txn::{Extents, Op, Transaction};
use nacre_types::{Eversion, HObject, SpgId};
use recent::Recent;
use removal::Removals;
use space::Space;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
pub(crate) use unread::{BlockRange, Step};

const BLOCK_U64: u64 = BLOCK as u64;

/// The objects of one PG.
#[derive(Debug, Default)]
pub(crate) struct Collection {
    /// Entries up to here are trimmed.
    log_tail: Eversion,
    /// Number of the space that its names and values are in.
    space: u64,
    /// Keys of the chunks of its log, ascending, once they were asked for.
    chunks: RefCell<Option<VecDeque<Eversion>>>,
}

/// Everything the store holds.
pub(crate) struct Table {
    pub(crate) kv: Box<dyn KvStore + Send>,
    /// There is a journal in that, as every state says.
    pub(crate) is_journaled: bool,
    pub(crate) collections: BTreeMap<SpgId, Collection>,
    /// Names, omap entries, values of collections and collections themselves, as the KV store has them.
    pub(crate) pairs: Memtable<Bytes, Bytes>,
    pub(crate) onodes: Memtable<u64, Arc<Onode>>,
    pub(crate) log: Memtable<(SpgId, Eversion), LogChunk>,
    /// Spaces of removed collections that may still hold something.
    removals: Removals,
    /// Large omaps that were cloned, and whose entries are being copied.
    pub(crate) copies: Copies,
    /// Bytes of an omap from which on a clone of it is such a copy.
    omap_bytes_shared_min: u64,
    planted: Planted,
    /// Prefixes of pairs that the next checkpoint deletes: of omaps that nothing refers to any more, and of objects with several records.
    pub(crate) dead_prefixes: Vec<Bytes>,
    clean: RefCell<CleanRecords>,
    /// Numbers of objects by key of the name; `None` where there is no object.
    clean_names: RefCell<Clock<Box<[u8]>, Option<u64>>>,
    recent: RefCell<Recent>,
    /// Records of objects and of pages of their blocks that were found in memory, and those that were read.
    pub(crate) looked_up: (Cell<u64>, Cell<u64>),
    pub(crate) space: Space,
    pub(crate) next_id: u64,
    /// Objects of this number and above were made since the freeze: neither it nor the KV store has anything of them.
    first_unfrozen: u64,
    pub(crate) objects: u64,
    pub(crate) omap_bytes: u64,
    failure: Failure,
}

/// An object, and the record that an operation gives it.
fn meta_in(op: &Op) -> Option<(HObject, Bytes)> {
    match op {
        Op::SetMeta { object, meta } => Some((object.clone(), meta.clone())),
        _ => None,
    }
}

pub(crate) fn index_of(offset: u64) -> u32 {
    u32::try_from(offset / BLOCK_U64).unwrap_or(u32::MAX)
}

pub(crate) fn within(offset: u64) -> usize {
    usize::try_from(offset % BLOCK_U64).expect("less than a block")
}

/// A value that is half of what a client's message may have, or more: it keeps not much more alive than it has itself.
const SHARED_VALUE_BYTES_MIN: usize = 48 << 20;

/// Small values must not keep the message alive in which they came.
fn detached(value: &Bytes) -> Bytes {
    if value.len() >= SHARED_VALUE_BYTES_MIN { value.clone() } else { Bytes::copy_from_slice(value) }
}

/// Bytes of an object's omap, header included.
fn omap_size(onode: &Onode) -> u64 {
    onode.omap_bytes + onode.omap_header.len() as u64
}

/// Bytes for records of objects and for their names, of what there is for clean metadata. Free space is metadata that is always in memory.
fn clean_shares(metadata_bytes_max: usize, alloc: &Alloc) -> (usize, usize) {
    let bytes = metadata_bytes_max.saturating_sub(alloc.bytes()).max(metadata_bytes_max / 4);
    // As much as goes with the records of small objects.
    let names = bytes / 10 * 3;
    (bytes - names, names)
}

impl Table {
    /// What a checkpoint left.
    pub(crate) fn load(
        kv: Box<dyn KvStore + Send>,
        mut alloc: Alloc,
        state: &State,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let mut collections = BTreeMap::new();
        kv_schema::scan::<OpenError>(kv.as_ref(), &[kv_schema::prefix::COLLECTION], |key, value| {
            let (log_tail, space) = kv_schema::decode_collection(value)?;
            let at = kv_schema::decode_spg(key)?;
            collections.insert(at, Collection { log_tail, space, chunks: RefCell::default() });
            Ok(())
        })?;
        let removals = Removals::load(kv.as_ref())?;
        let copies = Copies::load(kv.as_ref(), options.omap_step_entries_max)?;
        free_map::load(kv.as_ref(), &mut alloc)?;
        let (records_bytes_max, names_bytes_max) = clean_shares(options.metadata_bytes_max, &alloc);
        Ok(Self {
            kv,
            is_journaled: state.is_journaled,
            collections,
            pairs: Memtable::default(),
            onodes: Memtable::default(),
            log: Memtable::default(),
            removals,
            copies,
            omap_bytes_shared_min: options.omap_bytes_shared_min,
            planted: options.planted,
            dead_prefixes: Vec::new(),
            clean: RefCell::new(CleanRecords::new(records_bytes_max)),
            clean_names: RefCell::new(Clock::new(names_bytes_max)),
            recent: RefCell::default(),
            looked_up: Default::default(),
            space: Space {
                alloc,
                slots: state.sums.slots,
                dirty_slots: 0,
                held: Arc::default(),
                period: 1,
                is_replaying: false,
                packed: state.sums.packed.clone(),
                replaced: Vec::new(),
                compression: BTreeMap::new(),
            },
            next_id: state.next_id,
            first_unfrozen: state.next_id,
            objects: state.sums.objects,
            omap_bytes: state.sums.omap_bytes,
            failure: Failure::default(),
        })
    }

    pub(crate) fn sums(&self) -> Sums {
        let (slots, packed) = (self.space.slots, self.space.packed.clone());
        Sums { objects: self.objects, slots, omap_bytes: self.omap_bytes, packed }
    }

    /// Why the KV store could not be read, if so.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.reason()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_there()
    }

    fn note<T, E: std::fmt::Display>(&self, outcome: Result<T, E>) -> Option<T> {
        outcome.map_err(|error| self.failure.note(&error)).ok()
    }

    /// Entries changed since the cut, and about their bytes.
    pub(crate) fn changed(&self) -> (usize, usize) {
        let entries = self.pairs.mutable().len() + self.onodes.mutable().len() + self.log.mutable().len();
        let entries = entries + self.dead_prefixes.len();
        (entries, self.pairs.bytes().0 + self.onodes.bytes().0 + self.log.bytes().0)
    }

    /// About how many bytes of memory all of this takes, but for data.
    pub(crate) fn bytes(&self) -> usize {
        let both = |(live, cut): (usize, usize)| live + cut;
        let layers = both(self.pairs.bytes()) + both(self.onodes.bytes()) + both(self.log.bytes());
        layers + self.clean_bytes() + self.space.alloc.bytes() + Recent::BYTES
    }

    /// About how many of them are of what could be read again.
    pub(crate) fn clean_bytes(&self) -> usize {
        self.clean.borrow().bytes() + self.clean_names.borrow().bytes()
    }

    /// Keeps at most so many bytes of what could be read again from now on; see [`Table::tidy_clean`].
    pub(crate) fn limit_clean(&self, bytes_max: usize) {
        let (records_bytes_max, names_bytes_max) = clean_shares(bytes_max, &self.space.alloc);
        self.clean.borrow_mut().set_bytes_max(records_bytes_max);
        self.clean_names.borrow_mut().set_bytes_max(names_bytes_max);
    }

    /// Takes a step towards the limit, if it was lowered.
    pub(crate) fn tidy_clean(&self) {
        self.clean.borrow_mut().tidy();
        self.clean_names.borrow_mut().tidy(|_, _| ());
    }

    /// What was changed so far is the checkpoint's. Gives the period that ends.
    pub(crate) fn freeze(&mut self) -> Period {
        self.pairs.freeze();
        self.onodes.freeze();
        self.log.freeze();
        self.first_unfrozen = self.next_id;
        self.space.period += 1;
        self.space.period - 1
    }

    /// Value of a pair as of now.
    pub(crate) fn pair(&self, key: &[u8]) -> Option<Bytes> {
        match self.pairs.get(key) {
            Some(value) => value.cloned(),
            None => self.note(self.kv.get(key)).flatten(),
        }
    }

    fn decode_id(&self, value: &Bytes) -> Option<u64> {
        self.note(kv_schema::decode_name_id(value))
    }

    /// The number of the object with the name under this key, if there is one, as far as memory knows.
    fn id_in_memory(&self, key: &Bytes) -> Option<Option<u64>> {
        // A name that was changed is not among the clean ones: so these may be asked first, which is the quicker look.
        let clean = self.clean_names.borrow().get(key.as_ref());
        clean.or_else(|| Some(self.pairs.get(key.as_ref())?.and_then(|value| self.decode_id(value))))
    }

    fn id_at(&self, key: &Bytes) -> Option<u64> {
        if let Some(id) = self.id_in_memory(key) {
            return id;
        }
        let id = self.note(self.kv.get(key))?.as_ref().and_then(|value| self.decode_id(value));
        self.clean_names.borrow_mut().insert(key.as_ref().into(), id, |_, _| ());
        id
    }

    fn id(&self, at: &SpgId, name: &HObject) -> Option<u64> {
        if let Some(id) = self.recent.borrow().find(at, name) {
            return Some(id);
        }
        let id = self.id_at(&kv_schema::name_key(&self.keyspace_of(at)?, name))?;
        self.recent.borrow_mut().keep(at, name, id);
        Some(id)
    }

    /// Where the names and values of a collection are; `None` when it does not exist.
    pub(crate) fn keyspace_of(&self, at: &SpgId) -> Option<Keyspace> {
        self.collections.get(at).map(|collection| Keyspace { at: *at, number: collection.space })
    }

    /// The collection must exist.
    fn set_name(&mut self, at: SpgId, name: &HObject, id: u64) {
        let key = kv_schema::name_key(&self.keyspace(at), name);
        self.recent.borrow_mut().forget(name);
        self.clean_names.borrow_mut().remove(key.as_ref());
        self.pairs.put(key, kv_schema::encode_name(id, name));
    }

    fn delete_name(&mut self, at: SpgId, name: &HObject) {
        let Some(space) = self.keyspace_of(&at) else { return };
        let key = kv_schema::name_key(&space, name);
        self.recent.borrow_mut().forget(name);
        self.clean_names.borrow_mut().remove(key.as_ref());
        self.pairs.delete(key);
    }

    /// Makes the collection if it is absent; where its names and values are.
    fn keyspace(&mut self, at: SpgId) -> Keyspace {
        if let Some(space) = self.keyspace_of(&at) {
            return space;
        }
        let number = if self.removals.has(&at) { self.fresh_id() } else { 0 };
        let (log_tail, chunks) = (Eversion::ZERO, RefCell::new(Some(VecDeque::new())));
        self.pairs.put(kv_schema::collection_key(&at), kv_schema::encode_collection(log_tail, number));
        self.collections.insert(at, Collection { log_tail, space: number, chunks });
        Keyspace { at, number }
    }

    fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    fn clone_object(&mut self, at: SpgId, source: &HObject, target: &HObject) {
        self.keyspace(at);
        let source = self.object(&at, source).unwrap_or_default();
        let id = self.fresh_id();
        let omap = if source.omap == 0 { 0 } else { self.clone_omap(source.omap, source.omap_bytes) };
        let blocks = Arc::new(self.pages_of(source.id).copied(&source.blocks));
        let copy = Onode { id, omap, blocks, pool: at.pg.pool, ..Onode::clone(&source) };
        drop(source);
        for (_, slot) in copy.blocks.here() {
            self.space.add_slot(slot);
            if let Some(device) = slot.device() {
                self.space.alloc.share(device.block);
            }
        }
        for (_, page) in copy.blocks.pages(0, u32::MAX) {
            page.blobs().iter().for_each(|blob| self.space.share_blob(blob));
        }
        self.omap_bytes += omap_size(&copy);
        self.objects += 1;
        self.remove(at, target);
        self.set_name(at, target, id);
        self.onodes.put(id, Arc::new(copy));
    }

    fn clone_extents(&mut self, at: SpgId, source: &HObject, target: &HObject, extents: &Extents) {
        if source == target {
            self.touch(at, target);
            return;
        }
        self.keyspace(at);
        let source = self.object(&at, source).unwrap_or_default();
        let omap = if source.omap == 0 { 0 } else { self.clone_omap(source.omap, source.omap_bytes) };
        let replaced = self.change(at, target, |(onode, space, pages)| {
            let replaced = (onode.omap, omap_size(onode));
            copy_extents((onode, space, pages), &source, extents);
            (onode.omap, onode.omap_bytes) = (omap, source.omap_bytes);
            onode.omap_header = source.omap_header.clone();
            (onode.meta, onode.attrs) = (source.meta.clone(), Arc::clone(&source.attrs));
            replaced
        });
        let (buried, bytes) = replaced.unwrap_or_default();
        self.omap_bytes = self.omap_bytes + omap_size(&source) - bytes;
        self.bury_omap(buried);
    }

    fn rename_object(&mut self, at: SpgId, source: &HObject, target: &HObject) {
        self.keyspace(at);
        let id = match self.id(&at, source) {
            Some(id) => id,
            None => self.touch(at, source),
        };
        self.delete_name(at, source);
        self.remove(at, target);
        self.set_name(at, target, id);
    }

    /// Applies a transaction. `placements` say which data of which writes is on the device already.
    pub(crate) fn apply(&mut self, txn: Transaction, placements: &[Placement], source: &Source) {
        let at = txn.collection;
        let mut placements = placements.iter().peekable();
        // Of an object that is written, the record comes behind.
        let metas: Vec<(HObject, Bytes)> = match placements.peek() {
            Some(_) if !self.space.compresses_nothing() => txn.ops.iter().filter_map(meta_in).collect(),
            _ => Vec::new(),
        };
        for (index, op) in txn.ops.into_iter().enumerate() {
            let placement = placements.next_if(|placement| placement.op == index);
            match (op, placement) {
                (Op::Write { object, offset, data }, Some(placement)) => {
                    let meta = metas.iter().find(|(name, _)| *name == object).map(|(_, meta)| meta);
                    let placed = (Some(placement), meta);
                    self.change(at, &object, |target| write(target, offset, &data, placed, source));
                }
                (op, _) => self.apply_op(at, op, source),
            }
        }
    }

    fn apply_op(&mut self, at: SpgId, op: Op, source: &Source) {
        match op {
            Op::Write { object, offset, data } => {
                self.change(at, &object, |target| write(target, offset, &data, (None, None), source));
            }
            Op::Split { child, pg_num, ops } => self.split(at, child, pg_num, ops, source),
            Op::Move { target, pg_num, from, until, ops } => {
                self.keyspace(target);
                self.move_range(at, target, pg_num, (&from, &until));
                ops.into_iter().for_each(|op| self.apply_op(target, op, source));
            }
            Op::Merge { source } => self.merge(at, source),
            op => self.apply_data(at, op),
        }
    }

    /// Nothing is copied and nothing allocated: only names move.
    fn split(&mut self, at: SpgId, child: SpgId, pg_num: u32, ops: Vec<Op>, source: &Source) {
        self.remove_collection(child);
        self.keyspace(child);
        for (id, name) in self.names(&at) {
            if name.pg(pg_num) == child.pg {
                self.delete_name(at, &name);
                self.set_name(child, &name, id);
            }
        }
        ops.into_iter().for_each(|op| self.apply_op(child, op, source));
    }

    /// A part of that.
    fn move_range(&mut self, at: SpgId, target: SpgId, pg_num: u32, (from, until): (&HObject, &HObject)) {
        if at == target {
            return;
        }
        for (id, name) in self.names_between(&at, from, until) {
            if name.pg(pg_num) == target.pg {
                self.delete_name(at, &name);
                self.remove(target, &name);
                self.set_name(target, &name, id);
            }
        }
    }

    /// The same the other way.
    fn merge(&mut self, at: SpgId, source: SpgId) {
        if at == source {
            return;
        }
        self.keyspace(at);
        for (id, name) in self.names(&source) {
            self.delete_name(source, &name);
            self.remove(at, &name);
            self.set_name(at, &name, id);
        }
        self.remove_collection(source);
    }

    fn apply_data(&mut self, at: SpgId, op: Op) {
        match op {
            Op::CreateCollection => drop(self.keyspace(at)),
            Op::RemoveCollection => self.remove_collection(at),
            Op::Touch(object) => drop(self.touch(at, &object)),
            Op::Zero { object, offset, length } => {
                self.change(at, &object, |target| zero(target, offset, length));
            }
            Op::Truncate { object, size } => {
                self.change(at, &object, |target| truncate(target, size));
            }
            Op::Remove(object) => self.remove(at, &object),
            Op::Clone { source, target } => self.clone_object(at, &source, &target),
            Op::CloneExtents { source, target, extents } => {
                self.clone_extents(at, &source, &target, &extents);
            }
            Op::Rename { source, target } => self.rename_object(at, &source, &target),
            Op::SetMeta { object, meta } => {
                self.change(at, &object, |(onode, ..)| onode.meta = detached(&meta));
            }
            Op::SetAttr { object, name, value } => {
                let (name, value) = (name.detached(), detached(&value));
                self.change(at, &object, |(onode, ..)| Arc::make_mut(&mut onode.attrs).insert(name, value));
            }
            Op::RemoveAttr { object, name } => {
                self.change(at, &object, |(onode, ..)| Arc::make_mut(&mut onode.attrs).remove(&name));
            }
            Op::ClearAttrs(object) => {
                self.change(at, &object, |(onode, ..)| onode.attrs = Arc::default());
            }
            op => self.apply_omap(at, op),
        }
    }

    fn apply_meta(&mut self, at: SpgId, op: Op) {
        let space = self.keyspace(at);
        match op {
            Op::MetaSet { key, value } => self.pairs.put(kv_schema::meta_key(&space, &key), detached(&value)),
            Op::MetaRemove { key } => self.pairs.delete(kv_schema::meta_key(&space, &key)),
            op => self.apply_log(at, op),
        }
    }
}
