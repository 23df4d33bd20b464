//! [`MemStore`]: everything in memory, durable at once, gone with the process.

use crate::{Completion, ExtentMap, ObjectStore, StoreError, StoreState, StoreUsage, WarmToken};
use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_txn::{Extents, FetchFrom, ObjectView, OmapPage, Op, ReadError, StoreToken, Transaction};
use nacre_types::{Eversion, HObject, SpgId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Bound, Range};

/// Objects and values of removed collections that one call of `drain` lets go of.
const REMOVED_AT_ONCE_MAX: usize = 512;

#[derive(Clone, Debug, Default)]
struct Object {
    meta: Bytes,
    data: ExtentMap,
    attrs: BTreeMap<ByteStr, Bytes>,
    omap: BTreeMap<ByteStr, Bytes>,
    omap_header: Bytes,
}

impl Object {
    fn omap_bytes(&self) -> u64 {
        let entries = self.omap.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        (entries + self.omap_header.len()) as u64
    }
}

#[derive(Debug, Default)]
struct Collection {
    objects: BTreeMap<HObject, Object>,
    log: BTreeMap<Eversion, Bytes>,
    meta: BTreeMap<ByteStr, Bytes>,
}

/// The in-memory store. Capacity is a limit on object data, so that "full" can be lived through in tests.
#[derive(Debug)]
pub struct MemStore {
    collections: BTreeMap<SpgId, Collection>,
    /// Nobody finds them any more.
    removed: VecDeque<Collection>,
    completed: Vec<Completion>,
    capacity_bytes: u64,
    allocated_bytes: u64,
    omap_bytes: u64,
    /// Objects that have been asked for, where metadata are said to be on a device.
    warm: Option<BTreeSet<(SpgId, HObject)>>,
}

impl MemStore {
    /// An empty store that takes up to `capacity_bytes` of object data.
    #[must_use]
    pub fn new(capacity_bytes: u64) -> Self {
        Self {
            collections: BTreeMap::new(),
            removed: VecDeque::new(),
            completed: Vec::new(),
            capacity_bytes,
            allocated_bytes: 0,
            omap_bytes: 0,
            warm: None,
        }
    }

    /// As it is, but from now on objects are said to be on a device until [`ObjectStore::warm`] was asked for them and the store drained:
    /// for tests of who waits.
    #[must_use]
    pub fn cold(self) -> Self {
        Self { warm: Some(BTreeSet::new()), ..self }
    }

    fn object(&self, collection: &SpgId, object: &HObject) -> Option<&Object> {
        self.collections.get(collection)?.objects.get(object)
    }

    /// Runs `change` on the object, made if absent, and keeps the counts of bytes right.
    fn change(&mut self, collection: SpgId, object: &HObject, change: impl FnOnce(&mut Object)) {
        let objects = &mut self.collections.entry(collection).or_default().objects;
        if !objects.contains_key(object) {
            objects.insert(object.detached(), Object::default());
        }
        let Some(object) = objects.get_mut(object) else { return };
        self.allocated_bytes -= object.data.allocated_bytes();
        change(object);
        self.allocated_bytes += object.data.allocated_bytes();
    }

    /// As [`Self::change`] for changes of the omap.
    fn change_omap(&mut self, collection: SpgId, object: &HObject, change: impl FnOnce(&mut Object)) {
        let (mut before, mut after) = (0, 0);
        self.change(collection, object, |object| {
            before = object.omap_bytes();
            change(object);
            after = object.omap_bytes();
        });
        self.omap_bytes = self.omap_bytes - before + after;
    }

    fn take(&mut self, collection: SpgId, object: &HObject) -> Option<Object> {
        let taken = self.collections.get_mut(&collection)?.objects.remove(object)?;
        self.allocated_bytes -= taken.data.allocated_bytes();
        self.omap_bytes -= taken.omap_bytes();
        Some(taken)
    }

    fn place(&mut self, collection: SpgId, target: &HObject, object: Object) {
        self.take(collection, target);
        self.allocated_bytes += object.data.allocated_bytes();
        self.omap_bytes += object.omap_bytes();
        self.collections.entry(collection).or_default().objects.insert(target.detached(), object);
    }

    fn remove_collection(&mut self, collection: SpgId) {
        self.removed.extend(self.collections.remove(&collection));
    }

    /// Lets go of some of what removed collections held: there may be millions of objects.
    fn remove_some(&mut self) {
        let mut left = REMOVED_AT_ONCE_MAX;
        while let Some(removed) = self.removed.front_mut().filter(|_| left > 0) {
            left -= 1;
            if let Some((_, object)) = removed.objects.pop_first() {
                self.allocated_bytes -= object.data.allocated_bytes();
                self.omap_bytes -= object.omap_bytes();
            } else if removed.log.pop_first().is_none() && removed.meta.pop_first().is_none() {
                self.removed.pop_front();
            }
        }
    }

    fn apply(&mut self, at: SpgId, op: Op) {
        match op {
            Op::CreateCollection => {
                self.collections.entry(at).or_default();
            }
            Op::RemoveCollection => self.remove_collection(at),
            Op::Touch(object) => self.change(at, &object, |_| ()),
            Op::Write { object, offset, data } => self.change(at, &object, |o| o.data.write(offset, &data)),
            Op::Zero { object, offset, length } => self.change(at, &object, |o| o.data.punch(offset, length)),
            Op::Truncate { object, size } => self.change(at, &object, |o| o.data.truncate(size)),
            Op::Remove(object) => {
                self.take(at, &object);
            }
            Op::Clone { source, target } => {
                let copy = self.object(&at, &source).cloned().unwrap_or_default();
                self.place(at, &target, copy);
            }
            Op::CloneExtents { source, target, extents } => {
                self.clone_extents(at, &source, &target, &extents);
            }
            Op::Rename { source, target } => {
                let moved = self.take(at, &source).unwrap_or_default();
                self.place(at, &target, moved);
            }
            Op::SetMeta { object, meta } => self.change(at, &object, |o| o.meta = meta),
            Op::SetAttr { object, name, value } => self.change(at, &object, |o| {
                o.attrs.insert(name.detached(), detached(&value));
            }),
            Op::RemoveAttr { object, name } => self.change(at, &object, |o| {
                o.attrs.remove(&name);
            }),
            Op::ClearAttrs(object) => self.change(at, &object, |o| o.attrs.clear()),
            Op::Split { child, pg_num, ops } => self.split(at, child, pg_num, ops),
            Op::Move { target, pg_num, from, until, ops } => {
                self.move_range(at, target, pg_num, from..until);
                ops.into_iter().for_each(|op| self.apply(target, op));
            }
            Op::Merge { source } => self.merge(at, source),
            op => self.apply_omap_or_log(at, op),
        }
    }

    fn clone_extents(&mut self, at: SpgId, source: &HObject, target: &HObject, extents: &Extents) {
        if source == target {
            return self.change(at, target, |_| ());
        }
        let copy = self.object(&at, source).cloned().unwrap_or_default();
        let mut data = self.take(at, target).unwrap_or_default().data;
        data.truncate(copy.data.len());
        for (offset, length) in extents.iter() {
            data.take_from(&copy.data, offset, length);
        }
        self.place(at, target, Object { data, ..copy });
    }

    /// Nothing is copied and nothing allocated: the objects themselves move.
    fn split(&mut self, at: SpgId, child: SpgId, pg_num: u32, ops: Vec<Op>) {
        self.remove_collection(child);
        let objects = match self.collections.get_mut(&at) {
            Some(parent) => {
                parent.objects.extract_if(.., |object, _| object.pg(pg_num) == child.pg).collect()
            }
            None => BTreeMap::new(),
        };
        self.collections.insert(child, Collection { objects, ..Collection::default() });
        ops.into_iter().for_each(|op| self.apply(child, op));
    }

    fn move_range(&mut self, at: SpgId, target: SpgId, pg_num: u32, range: Range<HObject>) {
        self.collections.entry(target).or_default();
        let Some(source) = self.collections.get_mut(&at).filter(|_| at != target && range.start < range.end)
        else {
            return;
        };
        let moved: Vec<(HObject, Object)> =
            source.objects.extract_if(range, |object, _| object.pg(pg_num) == target.pg).collect();
        for (object, state) in moved {
            self.take(target, &object);
            self.collections.entry(target).or_default().objects.insert(object, state);
        }
    }

    fn merge(&mut self, at: SpgId, source: SpgId) {
        let Some(ended) = (at != source).then(|| self.collections.remove(&source)).flatten() else { return };
        for (object, state) in ended.objects {
            self.take(at, &object);
            self.collections.entry(at).or_default().objects.insert(object, state);
        }
    }

    fn apply_omap_or_log(&mut self, at: SpgId, op: Op) {
        match op {
            Op::OmapSet { object, entries } => self.change_omap(at, &object, |o| {
                o.omap.extend(entries.iter().map(|(key, value)| (key.detached(), detached(value))));
            }),
            Op::OmapRemove { object, keys } => self.change_omap(at, &object, |o| {
                keys.iter().for_each(|key| drop(o.omap.remove(key)));
            }),
            Op::OmapRemoveRange { object, first, last } => self.change_omap(at, &object, |o| {
                o.omap.retain(|key, _| *key < first || *key >= last);
            }),
            Op::OmapSetHeader { object, header } => {
                self.change_omap(at, &object, |o| o.omap_header = detached(&header));
            }
            Op::OmapClear(object) => self.change_omap(at, &object, |o| {
                o.omap.clear();
                o.omap_header = Bytes::new();
            }),
            op => Self::apply_log(self.collections.entry(at).or_default(), op),
        }
    }

    fn apply_log(collection: &mut Collection, op: Op) {
        match op {
            Op::LogAppend { version, entry } => drop(collection.log.insert(version, entry)),
            Op::LogTrim { to } => collection.log = split_above(&mut collection.log, to),
            Op::LogRewind { to } => drop(split_above(&mut collection.log, to)),
            Op::MetaSet { key, value } => drop(collection.meta.insert(key.detached(), detached(&value))),
            Op::MetaRemove { key } => drop(collection.meta.remove(&key)),
            op => unreachable!("{op:?} changes an object and was handled before"),
        }
    }
}

/// Takes the entries above `to` out of `log`.
fn split_above(log: &mut BTreeMap<Eversion, Bytes>, to: Eversion) -> BTreeMap<Eversion, Bytes> {
    log.split_off(&Eversion::new(to.epoch, to.version + 1))
}

/// Small values must not keep the frame alive in which they came.
fn detached(value: &Bytes) -> Bytes {
    Bytes::copy_from_slice(value)
}

impl ObjectView for MemStore {
    fn meta(&self, collection: &SpgId, object: &HObject) -> Option<Bytes> {
        self.object(collection, object).map(|object| object.meta.clone())
    }

    fn read(
        &self,
        collection: &SpgId,
        object: &HObject,
        offset: u64,
        length: u64,
    ) -> Result<BufList, ReadError> {
        Ok(self.object(collection, object).map(|object| object.data.read(offset, length)).unwrap_or_default())
    }

    fn extents(&self, collection: &SpgId, object: &HObject, offset: u64, length: u64) -> Vec<(u64, u64)> {
        self.object(collection, object)
            .map(|object| object.data.allocated(offset, length))
            .unwrap_or_default()
    }

    fn attr(&self, collection: &SpgId, object: &HObject, name: &[u8]) -> Option<Bytes> {
        self.object(collection, object)?.attrs.get(name).cloned()
    }

    fn attrs(&self, collection: &SpgId, object: &HObject) -> BTreeMap<ByteStr, Bytes> {
        self.object(collection, object).map(|object| object.attrs.clone()).unwrap_or_default()
    }

    fn omap_header(&self, collection: &SpgId, object: &HObject) -> Bytes {
        self.object(collection, object).map(|object| object.omap_header.clone()).unwrap_or_default()
    }

    fn omap_value(&self, collection: &SpgId, object: &HObject, key: &[u8]) -> Option<Bytes> {
        self.object(collection, object)?.omap.get(key).cloned()
    }

    fn omap_page(
        &self,
        collection: &SpgId,
        object: &HObject,
        from: &[u8],
        entries_max: usize,
        bytes_max: usize,
    ) -> OmapPage {
        let mut page = OmapPage::default();
        let Some(object) = self.object(collection, object) else { return page };
        let mut bytes = 0;
        for (key, value) in object.omap.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)) {
            if page.entries.len() >= entries_max || bytes >= bytes_max {
                page.more = true;
                break;
            }
            bytes += key.len() + value.len();
            page.entries.push((key.clone(), value.clone()));
        }
        page
    }

    fn list(&self, collection: &SpgId, from: &HObject, count_max: usize) -> Vec<HObject> {
        let Some(collection) = self.collections.get(collection) else { return Vec::new() };
        collection.objects.range(from..).take(count_max).map(|(object, _)| object.clone()).collect()
    }

    fn log(&self, collection: &SpgId) -> Vec<Bytes> {
        self.collections.get(collection).map(|c| c.log.values().cloned().collect()).unwrap_or_default()
    }

    fn pg_meta_page(
        &self,
        collection: &SpgId,
        prefix: &[u8],
        from: &[u8],
        count_max: usize,
    ) -> Vec<(ByteStr, Bytes)> {
        let Some(collection) = self.collections.get(collection) else { return Vec::new() };
        collection
            .meta
            .range::<[u8], _>((Bound::Included(prefix.max(from)), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .take(count_max)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }
}

impl ObjectStore for MemStore {
    fn submit(&mut self, txn: Transaction, token: StoreToken) -> Result<(), StoreError> {
        let wanted_bytes = txn.data_bytes() as u64;
        let free_bytes = self.capacity_bytes.saturating_sub(self.allocated_bytes);
        if wanted_bytes > 0 && wanted_bytes > free_bytes {
            return Err(StoreError::Full { wanted_bytes, free_bytes });
        }
        for op in txn.ops {
            self.apply(txn.collection, op);
        }
        self.completed.push(Completion::Durable(token));
        Ok(())
    }

    fn fetch(&mut self, _: &SpgId, _: &HObject, _: u64, _: u64, _: FetchFrom, token: StoreToken) {
        self.completed.push(Completion::Fetched(token));
    }

    fn waits_for_metadata(&self) -> bool {
        self.warm.is_some()
    }

    fn warm(&mut self, collection: &SpgId, object: &HObject, _: Range<u64>, token: WarmToken) -> bool {
        let Some(warm) = &mut self.warm else { return true };
        let is_cold = warm.insert((*collection, object.detached()));
        self.completed.extend(is_cold.then_some(Completion::Warm(token)));
        !is_cold
    }

    fn drain(&mut self, out: &mut Vec<Completion>) {
        self.remove_some();
        out.append(&mut self.completed);
    }

    fn state(&self) -> StoreState {
        if self.removed.is_empty() { StoreState::Idle } else { StoreState::HasWork }
    }

    fn data_bytes(&self, collection: &SpgId, object: &HObject) -> Option<u64> {
        Some(self.object(collection, object)?.data.len())
    }

    fn collections(&self) -> Vec<SpgId> {
        self.collections.keys().copied().collect()
    }

    fn usage(&self) -> StoreUsage {
        StoreUsage {
            total_bytes: self.capacity_bytes,
            available_bytes: self.capacity_bytes.saturating_sub(self.allocated_bytes),
            stored_bytes: self.allocated_bytes,
            allocated_bytes: self.allocated_bytes,
            omap_bytes: self.omap_bytes,
            metadata_bytes: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::PgId;

    #[test]
    fn conforms() {
        crate::conformance::run(|| MemStore::new(1 << 30));
    }

    #[test]
    fn a_full_store_refuses_whole_transactions_and_still_deletes() {
        let at = SpgId::replicated(PgId::new(1, 0));
        let object = HObject::head(1, "".into(), "".into(), "a".into());
        let mut store = MemStore::new(8);
        let mut txn = Transaction::new(at);
        txn.push(Op::Write {
            object: object.clone(),
            offset: 0,
            data: Bytes::from_static(b"12345678").into(),
        });
        assert_eq!(store.submit(txn.clone(), StoreToken::without_pg(1)), Ok(()));
        txn.push(Op::SetMeta { object: object.clone(), meta: Bytes::from_static(b"m") });
        assert_eq!(
            store.submit(txn, StoreToken::without_pg(2)),
            Err(StoreError::Full { wanted_bytes: 8, free_bytes: 0 })
        );
        assert_eq!(store.meta(&at, &object), Some(Bytes::new()));
        let mut txn = Transaction::new(at);
        txn.push(Op::Remove(object));
        assert_eq!(store.submit(txn, StoreToken::without_pg(3)), Ok(()));
        assert_eq!(store.usage().available_bytes, 8);
    }
}
