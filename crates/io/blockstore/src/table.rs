//! [`Table`]: all collections and objects in memory, the authority on what the store holds. Transactions are
//! applied here, when they are submitted and again at replay; checkpoints take what is marked dirty.

use crate::BLOCK;
use crate::alloc::{Alloc, Run};
use crate::onode::{Blocks, DeviceBlock, Onode, Slot};
use crate::overlay::{Dirty, ZEROS};
use crate::wal::Placement;
use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_txn::{Op, Transaction};
use nacre_types::{Eversion, HObject, SpgId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const BLOCK_U64: u64 = BLOCK as u64;

/// One placement group's objects, log and metadata.
#[derive(Debug, Default)]
pub(crate) struct Collection {
    pub(crate) objects: BTreeMap<HObject, Arc<Onode>>,
    pub(crate) log: BTreeMap<Eversion, Bytes>,
    pub(crate) meta: BTreeMap<ByteStr, Bytes>,
}

/// A changed object: where it was last seen (it may be gone since), and which omap keys changed.
#[derive(Debug)]
pub(crate) struct ObjectMark {
    pub(crate) at: SpgId,
    pub(crate) name: HObject,
    pub(crate) omap: BTreeSet<ByteStr>,
}

/// Entries of a PG log that the KV store keeps under one key: versions from a multiple of this on.
pub(crate) const LOG_CHUNK: u64 = 64;

/// The chunk that an entry is in, as the least version that could be.
pub(crate) fn log_chunk(version: Eversion) -> Eversion {
    Eversion::new(version.epoch, version.version / LOG_CHUNK * LOG_CHUNK)
}

/// What changed since the last cut. What is marked and no longer there is deleted from the KV store.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    pub(crate) objects: BTreeMap<u64, ObjectMark>,
    pub(crate) collections: BTreeSet<SpgId>,
    /// Chunks of logs, see [`log_chunk`].
    pub(crate) log: BTreeSet<(SpgId, Eversion)>,
    pub(crate) meta: BTreeSet<(SpgId, ByteStr)>,
}

impl Marks {
    fn object(&mut self, id: u64, at: SpgId, name: &HObject) -> &mut ObjectMark {
        self.objects.entry(id).or_insert_with(|| ObjectMark {
            at,
            name: name.detached(),
            omap: BTreeSet::new(),
        })
    }

    /// Entries that a checkpoint will look at.
    pub(crate) fn len(&self) -> usize {
        self.objects.len() + self.log.len() + self.meta.len()
    }
}

/// Device blocks and the counts that follow from the slots.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) alloc: Alloc,
    /// Slots of all objects, at home or not.
    pub(crate) slots: u64,
    /// Slots in memory: each needs a block at the next checkpoint.
    pub(crate) dirty_slots: u64,
}

impl Space {
    fn drop_slot(&mut self, slot: &Slot) {
        self.slots -= 1;
        self.dirty_slots -= u64::from(matches!(slot, Slot::Memory(_)));
        if let Some(device) = slot.device() {
            self.alloc.release(device.block);
        }
    }

    pub(crate) fn add_slot(&mut self, slot: &Slot) {
        self.slots += 1;
        self.dirty_slots += u64::from(matches!(slot, Slot::Memory(_)));
    }

    fn put(&mut self, blocks: &mut Blocks, index: u32, slot: Slot) {
        self.add_slot(&slot);
        if let Some(old) = blocks.insert(index, slot) {
            self.drop_slot(&old);
        }
    }

    /// Removes slots `first ..` up to `end`, `None` for all behind.
    fn punch(&mut self, blocks: &mut Blocks, first: u64, end: Option<u64>) {
        let Ok(first) = u32::try_from(first) else { return };
        let end = end.and_then(|end| u32::try_from(end).ok());
        if end.is_some_and(|end| end <= first) {
            return;
        }
        let mut cut = blocks.split_off(&first);
        if let Some(end) = end {
            blocks.append(&mut cut.split_off(&end));
        }
        cut.values().for_each(|slot| self.drop_slot(slot));
    }

    /// Writes within one block.
    fn write_block(&mut self, blocks: &mut Blocks, index: u32, at: usize, data: Bytes) {
        let hidden = match blocks.get_mut(&index) {
            Some(Slot::Memory(dirty)) => Arc::make_mut(dirty).write(at, data),
            Some(slot @ Slot::Device(_)) => {
                // The slot's reference to the block goes on as that of the base.
                let mut dirty = Dirty::over(slot.device());
                let hidden = dirty.write(at, data);
                *slot = Slot::Memory(Arc::new(dirty));
                self.dirty_slots += 1;
                hidden
            }
            None => {
                let mut dirty = Dirty::over(None);
                let hidden = dirty.write(at, data);
                self.put(blocks, index, Slot::Memory(Arc::new(dirty)));
                hidden
            }
        };
        if let Some(base) = hidden {
            self.alloc.release(base.block);
        }
    }
}

/// Everything the store holds.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) collections: BTreeMap<SpgId, Collection>,
    pub(crate) space: Space,
    pub(crate) marks: Marks,
    pub(crate) next_id: u64,
    pub(crate) omap_bytes: u64,
}

pub(crate) fn index_of(offset: u64) -> u32 {
    u32::try_from(offset / BLOCK_U64).unwrap_or(u32::MAX)
}

pub(crate) fn within(offset: u64) -> usize {
    usize::try_from(offset % BLOCK_U64).expect("less than a block")
}

/// Blocks a write touches, as `(index, first byte, bytes)`.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (u32, usize, usize)> {
    let (mut at, mut left) = (offset, length);
    std::iter::from_fn(move || {
        let start = within(at);
        let take = left.min(BLOCK - start);
        let piece = (take > 0).then(|| (index_of(at), start, take));
        at += take as u64;
        left -= take;
        piece
    })
}

fn omap_size(onode: &Onode) -> u64 {
    let entries: usize = onode.omap.iter().map(|(key, value)| key.len() + value.len()).sum();
    (entries + onode.omap_header.len()) as u64
}

/// Small values must not keep the message alive in which they came.
fn detached(value: &Bytes) -> Bytes {
    Bytes::copy_from_slice(value)
}

impl Table {
    pub(crate) fn new(area: Run) -> Self {
        Self {
            collections: BTreeMap::new(),
            space: Space { alloc: Alloc::new(area), slots: 0, dirty_slots: 0 },
            marks: Marks::default(),
            next_id: 1,
            omap_bytes: 0,
        }
    }

    pub(crate) fn object(&self, at: &SpgId, name: &HObject) -> Option<&Arc<Onode>> {
        self.collections.get(at)?.objects.get(name)
    }

    fn collection(&mut self, at: SpgId) -> &mut Collection {
        let marks = &mut self.marks;
        self.collections.entry(at).or_insert_with(|| {
            marks.collections.insert(at);
            Collection::default()
        })
    }

    /// Runs `change` on the object, made if absent, and marks it.
    fn change(
        &mut self,
        at: SpgId,
        name: &HObject,
        change: impl FnOnce(&mut Onode, &mut Space, &mut ObjectMark),
    ) {
        let next_id = self.next_id;
        let objects = &mut self.collection(at).objects;
        if !objects.contains_key(name) {
            objects.insert(name.detached(), Arc::new(Onode { id: next_id, ..Onode::default() }));
            self.next_id += 1;
        }
        let Some(onode) = self.collections.get_mut(&at).and_then(|c| c.objects.get_mut(name)) else { return };
        let onode = Arc::make_mut(onode);
        change(onode, &mut self.space, self.marks.object(onode.id, at, name));
    }

    fn remove(&mut self, at: SpgId, name: &HObject) {
        let Some(onode) = self.collections.get_mut(&at).and_then(|c| c.objects.remove(name)) else { return };
        onode.blocks.values().for_each(|slot| self.space.drop_slot(slot));
        self.omap_bytes -= omap_size(&onode);
        self.marks.object(onode.id, at, name).omap.extend(onode.omap.keys().cloned());
    }

    /// Puts an object under a name, replacing what has it.
    fn place(&mut self, at: SpgId, name: &HObject, onode: Arc<Onode>) {
        self.remove(at, name);
        let mark = self.marks.object(onode.id, at, name);
        mark.name = name.detached();
        self.collection(at).objects.insert(name.detached(), onode);
    }

    fn fresh(&mut self) -> Onode {
        self.next_id += 1;
        Onode { id: self.next_id - 1, ..Onode::default() }
    }

    fn clone_object(&mut self, at: SpgId, source: &HObject, target: &HObject) {
        let mut copy = self.fresh();
        if let Some(source) = self.object(&at, source) {
            copy = Onode { id: copy.id, ..Onode::clone(source) };
        }
        for slot in copy.blocks.values() {
            self.space.add_slot(slot);
            if let Some(device) = slot.device() {
                self.space.alloc.share(device.block);
            }
        }
        self.omap_bytes += omap_size(&copy);
        self.marks.object(copy.id, at, target).omap.extend(copy.omap.keys().cloned());
        self.place(at, target, Arc::new(copy));
    }

    fn rename_object(&mut self, at: SpgId, source: &HObject, target: &HObject) {
        let taken = self.collections.get_mut(&at).and_then(|c| c.objects.remove(source));
        let moved = taken.unwrap_or_else(|| Arc::new(self.fresh()));
        self.place(at, target, moved);
    }

    fn remove_collection(&mut self, at: SpgId) {
        let Some(collection) = self.collections.get(&at) else { return };
        let names: Vec<HObject> = collection.objects.keys().cloned().collect();
        names.iter().for_each(|name| self.remove(at, name));
        let Some(collection) = self.collections.remove(&at) else { return };
        self.marks.collections.insert(at);
        self.marks.log.extend(collection.log.into_keys().map(|version| (at, log_chunk(version))));
        self.marks.meta.extend(collection.meta.into_keys().map(|key| (at, key)));
    }

    /// Applies a transaction. `placements` say which data of which writes is on the device already.
    pub(crate) fn apply(&mut self, txn: Transaction, placements: &[Placement]) {
        let at = txn.collection;
        let mut placements = placements.iter().peekable();
        for (index, op) in txn.ops.into_iter().enumerate() {
            let placement = placements.next_if(|placement| placement.op == index);
            self.apply_op(at, op, placement);
        }
    }

    fn apply_op(&mut self, at: SpgId, op: Op, placement: Option<&Placement>) {
        match op {
            Op::Write { object, offset, data } => {
                self.change(at, &object, |onode, space, _| write(onode, space, offset, &data, placement));
            }
            Op::Split { child, pg_num, ops } => self.split(at, child, pg_num, ops),
            op => self.apply_data(at, op),
        }
    }

    /// Nothing is copied and nothing allocated: the objects themselves move.
    fn split(&mut self, at: SpgId, child: SpgId, pg_num: u32, ops: Vec<Op>) {
        self.remove_collection(child);
        let parent = self.collections.get_mut(&at).map(|parent| &mut parent.objects);
        let objects: BTreeMap<HObject, Arc<Onode>> = parent
            .map(|objects| objects.extract_if(.., |name, _| name.pg(pg_num) == child.pg).collect())
            .unwrap_or_default();
        for (name, onode) in &objects {
            self.marks.object(onode.id, child, name).at = child;
        }
        self.collection(child).objects = objects;
        ops.into_iter().for_each(|op| self.apply_op(child, op, None));
    }

    fn apply_data(&mut self, at: SpgId, op: Op) {
        match op {
            Op::CreateCollection => drop(self.collection(at)),
            Op::RemoveCollection => self.remove_collection(at),
            Op::Touch(object) => self.change(at, &object, |_, _, _| ()),
            Op::Zero { object, offset, length } => {
                self.change(at, &object, |onode, space, _| zero(onode, space, offset, length));
            }
            Op::Truncate { object, size } => {
                self.change(at, &object, |onode, space, _| truncate(onode, space, size));
            }
            Op::Remove(object) => self.remove(at, &object),
            Op::Clone { source, target } => self.clone_object(at, &source, &target),
            Op::Rename { source, target } => self.rename_object(at, &source, &target),
            Op::SetMeta { object, meta } => {
                self.change(at, &object, |onode, _, _| onode.meta = detached(&meta));
            }
            Op::SetAttr { object, name, value } => self.change(at, &object, |onode, _, _| {
                Arc::make_mut(&mut onode.attrs).insert(name.detached(), detached(&value));
            }),
            Op::RemoveAttr { object, name } => self.change(at, &object, |onode, _, _| {
                Arc::make_mut(&mut onode.attrs).remove(&name);
            }),
            Op::ClearAttrs(object) => self.change(at, &object, |onode, _, _| onode.attrs = Arc::default()),
            op => self.apply_omap(at, op),
        }
    }

    fn apply_omap(&mut self, at: SpgId, op: Op) {
        match op {
            Op::OmapSet { object, entries } => self.change_omap(at, &object, |omap, mark| {
                let mut grown = 0;
                for (key, value) in entries {
                    let key = key.detached();
                    mark.insert(key.clone());
                    let key_bytes = key.len();
                    grown += bytes_of(key_bytes, &value);
                    if let Some(old) = omap.insert(key, detached(&value)) {
                        grown -= bytes_of(key_bytes, &old);
                    }
                }
                grown
            }),
            Op::OmapRemove { object, keys } => {
                self.change_omap(at, &object, |omap, mark| remove_keys(omap, mark, keys));
            }
            Op::OmapRemoveRange { object, first, last } => self.change_omap(at, &object, |omap, mark| {
                if first >= last {
                    return 0;
                }
                let keys = omap.range::<ByteStr, _>(&first..&last).map(|(key, _)| key.clone()).collect();
                remove_keys(omap, mark, keys)
            }),
            Op::OmapSetHeader { object, header } => self.set_omap_header(at, &object, detached(&header)),
            Op::OmapClear(object) => {
                self.change_omap(at, &object, |omap, mark| {
                    let keys = omap.keys().cloned().collect();
                    remove_keys(omap, mark, keys)
                });
                self.set_omap_header(at, &object, Bytes::new());
            }
            op => self.apply_log(at, op),
        }
    }

    /// `change` gives the bytes by which the omap grew.
    fn change_omap(
        &mut self,
        at: SpgId,
        name: &HObject,
        change: impl FnOnce(&mut BTreeMap<ByteStr, Bytes>, &mut BTreeSet<ByteStr>) -> i64,
    ) {
        let mut grown = 0;
        self.change(at, name, |onode, _, mark| {
            grown = change(Arc::make_mut(&mut onode.omap), &mut mark.omap)
        });
        self.omap_bytes = self.omap_bytes.saturating_add_signed(grown);
    }

    fn set_omap_header(&mut self, at: SpgId, name: &HObject, header: Bytes) {
        let (mut before, after) = (0, header.len() as u64);
        self.change(at, name, |onode, _, _| {
            before = onode.omap_header.len() as u64;
            onode.omap_header = header;
        });
        self.omap_bytes = self.omap_bytes - before + after;
    }

    fn apply_log(&mut self, at: SpgId, op: Op) {
        match op {
            Op::LogAppend { version, entry } => {
                self.collection(at).log.insert(version, detached(&entry));
                self.marks.log.insert((at, log_chunk(version)));
            }
            Op::LogTrim { to } => {
                let log = &mut self.collection(at).log;
                let kept = split_above(log, to);
                let gone = std::mem::replace(log, kept);
                self.marks.log.extend(gone.into_keys().map(|version| (at, log_chunk(version))));
            }
            Op::LogRewind { to } => {
                let gone = split_above(&mut self.collection(at).log, to);
                self.marks.log.extend(gone.into_keys().map(|version| (at, log_chunk(version))));
            }
            Op::MetaSet { key, value } => {
                let key = key.detached();
                self.collection(at).meta.insert(key.clone(), detached(&value));
                self.marks.meta.insert((at, key));
            }
            Op::MetaRemove { key } => {
                if self.collection(at).meta.remove(&key).is_some() {
                    self.marks.meta.insert((at, key.detached()));
                }
            }
            op => unreachable!("{op:?} changes an object and was handled before"),
        }
    }
}

fn bytes_of(key_bytes: usize, value: &Bytes) -> i64 {
    i64::try_from(key_bytes + value.len()).unwrap_or(i64::MAX)
}

fn remove_keys(omap: &mut BTreeMap<ByteStr, Bytes>, mark: &mut BTreeSet<ByteStr>, keys: Vec<ByteStr>) -> i64 {
    let mut grown = 0;
    for key in keys {
        if let Some(value) = omap.remove(&key) {
            grown -= bytes_of(key.len(), &value);
            mark.insert(key.detached());
        }
    }
    grown
}

/// Takes the entries above `to` out of `log`.
fn split_above(log: &mut BTreeMap<Eversion, Bytes>, to: Eversion) -> BTreeMap<Eversion, Bytes> {
    log.split_off(&Eversion::new(to.epoch, to.version + 1))
}

fn write(onode: &mut Onode, space: &mut Space, offset: u64, data: &BufList, placement: Option<&Placement>) {
    onode.size = onode.size.max(offset + data.len() as u64);
    let blocks = Arc::make_mut(&mut onode.blocks);
    let Some(placement) = placement else { return write_inline(blocks, space, offset, data) };
    let head = (BLOCK - within(offset)) % BLOCK;
    let placed = placement.crcs.len() * BLOCK;
    write_inline(blocks, space, offset, &data.slice(0, head));
    let first = index_of(offset + head as u64);
    let devices = placement.runs.iter().flat_map(|run| run.blocks()).zip(&placement.crcs);
    for (index, (block, crc)) in (first..).zip(devices) {
        space.put(blocks, index, Slot::Device(DeviceBlock { block, crc: *crc }));
    }
    let tail = head + placed;
    write_inline(blocks, space, offset + tail as u64, &data.slice(tail, data.len() - tail));
}

fn write_inline(blocks: &mut Blocks, space: &mut Space, offset: u64, data: &BufList) {
    let mut at = 0;
    for (index, start, length) in pieces(offset, data.len()) {
        space.write_block(blocks, index, start, data.slice(at, length).to_bytes());
        at += length;
    }
}

fn zero(onode: &mut Onode, space: &mut Space, offset: u64, length: u64) {
    let end = offset.saturating_add(length).min(onode.size);
    if offset >= end {
        return;
    }
    let blocks = Arc::make_mut(&mut onode.blocks);
    let (first_whole, end_whole) = (offset.div_ceil(BLOCK_U64), end / BLOCK_U64);
    // Bytes behind the end of the object are zeros already, so its last block may go as a whole.
    let end_whole = if end == onode.size { end.div_ceil(BLOCK_U64) } else { end_whole };
    if first_whole <= end_whole {
        let head_end = (first_whole * BLOCK_U64).min(end);
        zero_part(blocks, space, offset, head_end);
        space.punch(blocks, first_whole, Some(end_whole));
        zero_part(blocks, space, (end_whole * BLOCK_U64).max(head_end).min(end), end);
    } else {
        zero_part(blocks, space, offset, end);
    }
}

/// Zeros within one block, if it is there.
fn zero_part(blocks: &mut Blocks, space: &mut Space, from: u64, to: u64) {
    if from < to && blocks.contains_key(&index_of(from)) {
        let length = usize::try_from(to - from).expect("within a block");
        space.write_block(blocks, index_of(from), within(from), Bytes::from_static(&ZEROS).slice(..length));
    }
}

fn truncate(onode: &mut Onode, space: &mut Space, size: u64) {
    if size < onode.size {
        let blocks = Arc::make_mut(&mut onode.blocks);
        let whole = size.div_ceil(BLOCK_U64);
        space.punch(blocks, whole, None);
        zero_part(blocks, space, size, whole * BLOCK_U64);
    }
    onode.size = size;
}
