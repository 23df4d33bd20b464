//! A store of one collection that forgets at a crash what was not durable.

use crate::ops::testing::TestStore;
use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_txn::{FetchFrom, ObjectView, OmapPage, Op, ReadError, Token, Transaction};
use nacre_types::{Eversion, HObject, SpgId};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Clone, Default)]
struct State {
    exists: bool,
    store: TestStore,
    log: BTreeMap<Eversion, Bytes>,
    /// What was split off.
    children: BTreeMap<SpgId, Self>,
}

impl State {
    /// The collection `at`, made if absent: this one, `own`, or what was split off it.
    fn at(&mut self, own: SpgId, at: SpgId) -> &mut Self {
        if at == own { self } else { self.children.entry(at).or_default() }
    }

    fn apply(&mut self, own: SpgId, txn: &Transaction) {
        for op in &txn.ops {
            self.apply_op(own, txn.collection, op);
        }
    }

    fn apply_op(&mut self, own: SpgId, at: SpgId, op: &Op) {
        let this = self.at(own, at);
        match op {
            Op::CreateCollection => this.exists = true,
            Op::RemoveCollection if at == own => {
                *self = Self { children: std::mem::take(&mut self.children), ..Self::default() }
            }
            Op::RemoveCollection => drop(self.children.remove(&at)),
            Op::LogAppend { version, entry } => {
                let newest = this.log.last_key_value().map_or(Eversion::ZERO, |(newest, _)| *newest);
                assert!(*version > newest, "{version} is appended behind {newest}");
                this.log.insert(*version, entry.clone());
            }
            Op::LogTrim { to } => this.log.retain(|version, _| version > to),
            Op::LogRewind { to } => this.log.retain(|version, _| version <= to),
            Op::Move { target, pg_num, from, until, ops } => {
                let moved: BTreeMap<_, _> = if from < until {
                    let range = from.clone()..until.clone();
                    this.store
                        .objects
                        .extract_if(range, |object, _| object.pg(*pg_num) == target.pg)
                        .collect()
                } else {
                    BTreeMap::new()
                };
                let there = self.at(own, *target);
                there.exists = true;
                there.store.objects.extend(moved);
                ops.iter().for_each(|op| self.apply_op(own, *target, op));
            }
            Op::Merge { source } => {
                let ended = self.children.remove(source).unwrap_or_default();
                self.store.objects.extend(ended.store.objects);
            }
            other => this.store.apply(std::slice::from_ref(other)),
        }
    }
}

/// What is asked of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Touched {
    /// Objects listed, and records of objects.
    pub(crate) objects: usize,
    /// Entries of the collection, of omaps and of the log.
    pub(crate) keys: usize,
    /// Changes that were submitted to the disk.
    pub(crate) changes: usize,
    /// Bytes of data, omaps and records.
    pub(crate) bytes: usize,
}

impl Touched {
    fn map(self, other: Self, f: impl Fn(usize, usize) -> usize) -> Self {
        Self {
            objects: f(self.objects, other.objects),
            keys: f(self.keys, other.keys),
            changes: f(self.changes, other.changes),
            bytes: f(self.bytes, other.bytes),
        }
    }

    /// The larger one of each.
    pub(crate) fn max(self, other: Self) -> Self {
        self.map(other, usize::max)
    }
}

/// One OSD's disk.
#[derive(Default)]
pub(crate) struct Disk {
    durable: State,
    visible: State,
    pending: VecDeque<(Token, Transaction)>,
    /// Objects whose data is in memory; others must be fetched first when `slow` is set.
    warm: BTreeSet<HObject>,
    pub(crate) slow: bool,
    /// There is memory for the data of one object.
    pub(crate) narrow: bool,
    /// What is asked for once comes with the answer, and is not in memory then.
    pub(crate) brings: bool,
    /// Objects whose data cannot be read until something is written to them.
    rotten: BTreeSet<HObject>,
    /// Objects that are rotten on the device, while memory has them as they were.
    rotten_below: BTreeSet<HObject>,
    /// What was durable before each transaction with a log entry; kept once somebody wants to lose the newest ones.
    before: Vec<State>,
    pub(crate) remembers: bool,
    /// Nothing becomes durable by itself, and no data comes.
    pub(crate) is_stuck: bool,
    /// The collection, where it is not the one that all of this is about.
    own: Option<SpgId>,
    /// Since it was taken last.
    touched: Cell<Touched>,
}

impl Disk {
    pub(crate) fn submit(&mut self, txn: Transaction, token: Token) {
        let inner = |op: &Op| if let Op::Move { ops, .. } = op { ops.len() } else { 0 };
        let changes = txn.ops.len() + txn.ops.iter().map(inner).sum::<usize>();
        self.touch(Touched { changes, ..Touched::default() });
        for op in &txn.ops {
            if let Op::Remove(object) = op {
                self.rotten.remove(object);
                self.rotten_below.remove(object);
            }
        }
        self.visible.apply(self.own(), &txn);
        self.pending.push_back((token, txn));
    }

    fn own(&self) -> SpgId {
        self.own.unwrap_or(super::spg())
    }

    /// What is there of a collection.
    fn store(&self, spg: &SpgId) -> Option<&TestStore> {
        match self.visible.children.get(spg) {
            Some(child) => Some(&child.store),
            // One collection and what was split off it is all there is.
            None => (*spg == self.own()).then_some(&self.visible.store),
        }
    }

    fn touch(&self, more: Touched) {
        self.touched.set(self.touched.get().map(more, usize::saturating_add));
    }

    /// What was asked of the disk since the last call.
    pub(crate) fn take_touched(&self) -> Touched {
        self.touched.take()
    }

    fn touch_entries(&self, entries: &[(ByteStr, Bytes)]) {
        let bytes = entries.iter().map(|(key, value)| key.len() + value.len()).sum();
        self.touch(Touched { keys: entries.len(), bytes, ..Touched::default() });
    }

    /// Makes the oldest transaction durable.
    pub(crate) fn sync_one(&mut self) -> Option<Token> {
        let (token, txn) = self.pending.pop_front()?;
        if self.remembers && txn.ops.iter().any(|op| matches!(op, Op::LogAppend { .. })) {
            self.before.push(self.durable.clone());
        }
        let own = self.own();
        self.durable.apply(own, &txn);
        Some(token)
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.is_stuck && !self.pending.is_empty()
    }

    /// What writes that are not durable yet bring.
    pub(crate) fn pending_data(&self) -> impl Iterator<Item = &BufList> {
        let ops = self.pending.iter().flat_map(|(_, txn)| &txn.ops);
        ops.filter_map(|op| if let Op::Write { data, .. } = op { Some(data) } else { None })
    }

    /// What the device has just now, for a read that asks once.
    pub(crate) fn glimpse(&self, object: &HObject, offset: u64, length: u64) -> Option<BufList> {
        let is_good = self.brings && !self.rotten.contains(object) && !self.rotten_below.contains(object);
        is_good.then(|| self.visible.store.read(&self.own(), object, offset, length).ok()).flatten()
    }

    pub(crate) fn warm_up(&mut self, object: HObject, from: FetchFrom) {
        if self.narrow {
            self.warm.clear();
        }
        if from == FetchFrom::Device && self.rotten_below.remove(&object) {
            self.rotten.insert(object.clone());
        }
        self.warm.insert(object);
    }

    /// The device spoils an object's data.
    pub(crate) fn spoil(&mut self, object: HObject) {
        self.rotten.insert(object);
    }

    /// The device spoils an object's data, which are in memory.
    pub(crate) fn spoil_below(&mut self, object: HObject) {
        self.rotten_below.insert(object);
    }

    /// The device spoils the records of the PG: what it was, its log.
    pub(crate) fn spoil_records(&mut self) {
        for state in [&mut self.durable, &mut self.visible] {
            state.store.forget_pg_meta();
        }
    }

    /// Data of all objects must be fetched again.
    pub(crate) fn cool_down(&mut self) {
        self.warm.clear();
    }

    /// Log entries that can be forgotten.
    pub(crate) fn remembered(&self) -> usize {
        self.before.len()
    }

    /// The newest `count` log entries that were durable are gone, with all behind them, and nobody can tell: the log ends before them.
    /// For a disk that has crashed.
    ///
    /// # Panics
    /// When there are fewer.
    pub(crate) fn forget_last(&mut self, count: usize) {
        let at = self.before.len().checked_sub(count).expect("as many entries");
        self.durable = self.before.drain(at..).next().expect("at least one entry");
        self.crash();
    }

    /// Puts an object there, as if it had always been.
    pub(crate) fn plant(&mut self, object: HObject, stored: crate::ops::testing::Stored) {
        self.durable.store.objects.insert(object.clone(), stored.clone());
        self.visible.store.objects.insert(object, stored);
    }

    /// The same for a value of the collection.
    pub(crate) fn plant_value(&mut self, op: &Op) {
        for state in [&mut self.durable, &mut self.visible] {
            state.store.apply(std::slice::from_ref(op));
        }
    }

    /// Forgets what is not durable.
    pub(crate) fn crash(&mut self) {
        self.visible = self.durable.clone();
        self.pending.clear();
        self.warm.clear();
    }

    /// The store has something of the PG.
    pub(crate) fn has_collection(&self) -> bool {
        self.visible.exists
    }

    /// Forgets everything: a new disk.
    pub(crate) fn wipe(&mut self) {
        *self = Self { slow: self.slow, narrow: self.narrow, brings: self.brings, ..Self::default() };
    }

    /// A disk with nothing but what was split off for `child`.
    pub(crate) fn child(&self, child: &SpgId) -> Option<Self> {
        let state = self.visible.children.get(child)?;
        Some(Self { durable: state.clone(), visible: state.clone(), own: Some(*child), ..Self::default() })
    }

    /// Somebody has lost what was split off.
    pub(crate) fn forget_children(&mut self) {
        self.visible.children.clear();
        self.durable.children.clear();
    }

    /// Exchanges what was split off for `child` with that of another disk.
    pub(crate) fn exchange_child(&mut self, child: &SpgId, other: &mut Self) {
        for (ours, theirs) in
            [(&mut self.durable, &mut other.durable), (&mut self.visible, &mut other.visible)]
        {
            let (own, their) = (ours.children.remove(child), theirs.children.remove(child));
            ours.children.extend(their.map(|copy| (*child, copy)));
            theirs.children.extend(own.map(|copy| (*child, copy)));
        }
    }

    /// Puts a value into the collection of what was split off for `child`, as if it had always been there.
    pub(crate) fn plant_value_of(&mut self, child: &SpgId, op: &Op) {
        for copy in [&mut self.durable, &mut self.visible] {
            copy.children.entry(*child).or_default().store.apply(std::slice::from_ref(op));
        }
    }

    /// All objects with their records and contents.
    pub(crate) fn objects(&self) -> &BTreeMap<HObject, crate::ops::testing::Stored> {
        &self.visible.store.objects
    }
}

impl ObjectView for Disk {
    fn meta(&self, spg: &SpgId, object: &HObject) -> Option<Bytes> {
        let meta = self.store(spg)?.meta(spg, object);
        let bytes = meta.as_ref().map_or(0, Bytes::len);
        self.touch(Touched { objects: 1, bytes, ..Touched::default() });
        meta
    }

    fn read(&self, spg: &SpgId, object: &HObject, offset: u64, length: u64) -> Result<BufList, ReadError> {
        if self.slow && !self.warm.contains(object) {
            return Err(ReadError::Pending { object: object.clone(), offset, length });
        }
        if self.rotten.contains(object) {
            let reason = "rotten".to_owned();
            return Err(ReadError::Damaged { object: object.clone(), offset, reason });
        }
        let data = self.visible.store.read(spg, object, offset, length)?;
        self.touch(Touched { bytes: data.len(), ..Touched::default() });
        Ok(data)
    }

    fn extents(&self, spg: &SpgId, object: &HObject, offset: u64, length: u64) -> Vec<(u64, u64)> {
        self.visible.store.extents(spg, object, offset, length)
    }

    fn attr(&self, spg: &SpgId, object: &HObject, name: &[u8]) -> Option<Bytes> {
        self.visible.store.attr(spg, object, name)
    }

    fn attrs(&self, spg: &SpgId, object: &HObject) -> BTreeMap<ByteStr, Bytes> {
        self.visible.store.attrs(spg, object)
    }

    fn omap_header(&self, spg: &SpgId, object: &HObject) -> Bytes {
        self.visible.store.omap_header(spg, object)
    }

    fn omap_value(&self, spg: &SpgId, object: &HObject, key: &[u8]) -> Option<Bytes> {
        self.visible.store.omap_value(spg, object, key)
    }

    fn omap_page(
        &self,
        spg: &SpgId,
        object: &HObject,
        from: &[u8],
        entries: usize,
        bytes: usize,
    ) -> OmapPage {
        let page = self.visible.store.omap_page(spg, object, from, entries, bytes);
        self.touch_entries(&page.entries);
        page
    }

    fn list(&self, spg: &SpgId, from: &HObject, count_max: usize) -> Vec<HObject> {
        let objects = self.store(spg).map_or_else(Vec::new, |store| store.list(spg, from, count_max));
        self.touch(Touched { objects: objects.len(), ..Touched::default() });
        objects
    }

    fn log(&self, spg: &SpgId) -> Vec<Bytes> {
        let state = self.visible.children.get(spg).unwrap_or(&self.visible);
        state.log.values().cloned().collect()
    }

    fn pg_meta_page(
        &self,
        spg: &SpgId,
        prefix: &[u8],
        from: &[u8],
        count_max: usize,
    ) -> Vec<(ByteStr, Bytes)> {
        let Some(store) = self.store(spg) else { return Vec::new() };
        let entries = store.pg_meta_page(spg, prefix, from, count_max);
        self.touch_entries(&entries);
        entries
    }
}
