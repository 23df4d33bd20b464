//! A store of one collection that forgets at a crash what was not durable.

use crate::ops::testing::TestStore;
use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_txn::{ObjectView, OmapPage, Op, ReadError, Token, Transaction};
use nacre_types::{Eversion, HObject, SpgId};
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
    fn apply(&mut self, txn: &Transaction) {
        for op in &txn.ops {
            match op {
                Op::CreateCollection => self.exists = true,
                Op::RemoveCollection => *self = Self::default(),
                Op::LogAppend { version, entry } => {
                    let newest = self.log.last_key_value().map_or(Eversion::ZERO, |(newest, _)| *newest);
                    assert!(*version > newest, "{version} is appended behind {newest}");
                    self.log.insert(*version, entry.clone());
                }
                Op::LogTrim { to } => self.log.retain(|version, _| version > to),
                Op::LogRewind { to } => self.log.retain(|version, _| version <= to),
                Op::Split { child, pg_num, ops } => {
                    let mut state = Self { exists: true, ..Self::default() };
                    let theirs =
                        self.store.objects.extract_if(.., |object, _| object.pg(*pg_num) == child.pg);
                    state.store.objects = theirs.collect();
                    state.apply(&Transaction { collection: *child, ops: ops.clone() });
                    self.children.insert(*child, state);
                }
                Op::Merge { source } => {
                    let ended = self.children.remove(source).unwrap_or_default();
                    self.store.objects.extend(ended.store.objects);
                }
                other => self.store.apply(std::slice::from_ref(other)),
            }
        }
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
    /// Objects whose data cannot be read until something is written to them.
    rotten: BTreeSet<HObject>,
    /// The collection, where it is not the one that all of this is about.
    own: Option<SpgId>,
}

impl Disk {
    pub(crate) fn submit(&mut self, txn: Transaction, token: Token) {
        for op in &txn.ops {
            if let Op::Remove(object) = op {
                self.rotten.remove(object);
            }
        }
        self.visible.apply(&txn);
        self.pending.push_back((token, txn));
    }

    /// Makes the oldest transaction durable.
    pub(crate) fn sync_one(&mut self) -> Option<Token> {
        let (token, txn) = self.pending.pop_front()?;
        self.durable.apply(&txn);
        Some(token)
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// What writes that are not durable yet bring.
    pub(crate) fn pending_data(&self) -> impl Iterator<Item = &BufList> {
        let ops = self.pending.iter().flat_map(|(_, txn)| &txn.ops);
        ops.filter_map(|op| if let Op::Write { data, .. } = op { Some(data) } else { None })
    }

    pub(crate) fn warm_up(&mut self, object: HObject) {
        if self.narrow {
            self.warm.clear();
        }
        self.warm.insert(object);
    }

    /// The device spoils an object's data.
    pub(crate) fn spoil(&mut self, object: HObject) {
        self.rotten.insert(object);
    }

    /// Data of all objects must be fetched again.
    pub(crate) fn cool_down(&mut self) {
        self.warm.clear();
    }

    /// Forgets what is not durable.
    pub(crate) fn crash(&mut self) {
        self.visible = self.durable.clone();
        self.pending.clear();
        self.warm.clear();
    }

    /// Forgets everything: a new disk.
    pub(crate) fn wipe(&mut self) {
        *self = Self { slow: self.slow, narrow: self.narrow, ..Self::default() };
    }

    pub(crate) fn exists(&self) -> bool {
        self.visible.exists
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

    /// All objects with their records and contents.
    pub(crate) fn objects(&self) -> &BTreeMap<HObject, crate::ops::testing::Stored> {
        &self.visible.store.objects
    }
}

impl ObjectView for Disk {
    fn meta(&self, spg: &SpgId, object: &HObject) -> Option<Bytes> {
        self.visible.store.meta(spg, object)
    }

    fn read(&self, spg: &SpgId, object: &HObject, offset: u64, length: u64) -> Result<BufList, ReadError> {
        if self.slow && !self.warm.contains(object) {
            return Err(ReadError::Pending { object: object.clone(), offset, length });
        }
        if self.rotten.contains(object) {
            let reason = "rotten".to_owned();
            return Err(ReadError::Damaged { object: object.clone(), offset, reason });
        }
        self.visible.store.read(spg, object, offset, length)
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
        self.visible.store.omap_page(spg, object, from, entries, bytes)
    }

    fn list(&self, spg: &SpgId, from: &HObject, count_max: usize) -> Vec<HObject> {
        self.visible.store.list(spg, from, count_max)
    }

    fn log(&self, _: &SpgId) -> Vec<Bytes> {
        self.visible.log.values().cloned().collect()
    }

    fn pg_meta(&self, spg: &SpgId, prefix: &[u8]) -> Vec<(ByteStr, Bytes)> {
        match self.visible.children.get(spg) {
            Some(child) => child.store.pg_meta(spg, prefix),
            // One collection and what was split off it is all there is.
            None if *spg == self.own.unwrap_or(super::spg()) => self.visible.store.pg_meta(spg, prefix),
            None => Vec::new(),
        }
    }
}
