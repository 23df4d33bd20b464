//! [`Mutation`]: the object as the message leaves it so far, and the changes that make it so.
//!
//! Changes compose because the store applies them in order: a `Remove` and a later `Write` give an object
//! that is empty but for what was written. Reads of the same message do not look here, except for existence,
//! size and [`Mutation::omap_seen`].

use crate::object::{ObjectContext, ObjectInfo, Watcher};
use crate::storage;
use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_txn::Op;
use nacre_types::{HObject, UTime};
use smallvec::SmallVec;

/// The object as the message leaves it so far.
#[derive(Debug)]
pub(super) struct Mutation {
    /// The record; versions, mtime and whiteout are settled at the end.
    pub(super) info: ObjectInfo,
    /// Clients see an object.
    pub(super) exists: bool,
    /// Reads of this message look at the omap. Deleting the object leaves it set, as on a real OSD, where
    /// `[DELETE, CREATE, read omap]` shows what was there before.
    pub(super) omap_seen: bool,
    /// Changes so far.
    pub(super) ops: Vec<Op>,
    /// About their length in bytes, see [`Op::size_bytes`].
    pub(super) bytes: usize,
    /// `(offset, length)` of data that may differ from before.
    pub(super) modified: SmallVec<[(u64, u64); 2]>,
    /// The record must be written even without [`Mutation::ops`].
    pub(super) changed: bool,
    /// The change is one that users count.
    pub(super) user_modify: bool,
    /// Becomes the mtime instead of the client's clock: a copy keeps its source's.
    pub(super) mtime: Option<UTime>,
    head: HObject,
}

impl Mutation {
    pub(super) fn new(head: &HObject, base: &ObjectContext) -> Self {
        Self {
            info: base.info.clone(),
            exists: base.is_visible(),
            omap_seen: base.info.has_omap,
            ops: Vec::new(),
            bytes: 0,
            modified: SmallVec::new(),
            changed: false,
            user_modify: false,
            mtime: None,
            head: head.clone(),
        }
    }

    /// The user sees a change of the object.
    fn touch(&mut self) {
        self.exists = true;
        self.changed = true;
    }

    fn push(&mut self, op: Op) {
        self.touch();
        self.bytes += op.size_bytes();
        self.ops.push(op);
    }

    fn modify(&mut self, offset: u64, length: u64) {
        self.info.data_digest = None;
        if length > 0 {
            self.modified.push((offset, length));
        }
    }

    /// The object exists from here on.
    pub(super) fn create(&mut self) {
        self.touch();
    }

    pub(super) fn write(&mut self, offset: u64, data: BufList) {
        let length = data.len() as u64;
        if length == 0 {
            // A write of nothing behind the end still extends the object.
            if offset > self.info.size {
                self.truncate(offset);
            }
            return self.touch();
        }
        self.modify(offset, length);
        self.info.size = self.info.size.max(offset + length);
        self.push(Op::Write { object: self.head.clone(), offset, data });
    }

    pub(super) fn write_full(&mut self, data: BufList) {
        let length = data.len() as u64;
        if length == 0 && self.exists && self.info.size == 0 {
            return; // as on a real OSD no change: the version stays
        }
        if length < self.info.size {
            self.truncate(length);
        }
        self.write(0, data);
    }

    pub(super) fn truncate(&mut self, size: u64) {
        let (low, high) = (size.min(self.info.size), size.max(self.info.size));
        self.modify(low, high - low);
        self.info.size = size;
        self.push(Op::Truncate { object: self.head.clone(), size });
    }

    /// Makes a range within the object read as zeros.
    pub(super) fn zero(&mut self, offset: u64, length: u64) {
        self.modify(offset, length);
        self.push(Op::Zero { object: self.head.clone(), offset, length });
    }

    /// Removes the object; the watchers are given back.
    pub(super) fn delete(&mut self) -> impl Iterator<Item = crate::object::WatchKey> + use<> {
        self.modify(0, self.info.size);
        self.info.size = 0;
        self.info.has_omap = false;
        self.push(Op::Remove(self.head.clone()));
        self.exists = false;
        std::mem::take(&mut self.info.watchers).into_keys()
    }

    /// Replaces the object by `source`, a clone of it, whose record is `info`. `changed` are the ranges that
    /// differ from before.
    pub(super) fn roll_back(&mut self, source: HObject, info: &ObjectInfo, changed: &[(u64, u64)]) {
        self.push(Op::Clone { source, target: self.head.clone() });
        self.modified.extend_from_slice(changed);
        self.info.size = info.size;
        self.info.data_digest = info.data_digest;
        self.info.has_omap = info.has_omap;
        self.omap_seen = info.has_omap;
    }

    /// Empties the object for what is to be copied into it; watchers stay.
    pub(super) fn replace(&mut self) {
        self.modify(0, self.info.size);
        self.info.size = 0;
        self.info.has_omap = false;
        self.push(Op::Remove(self.head.clone()));
    }

    /// Gives an emptied object what was collected in `staged`, which is no more then.
    pub(super) fn take_staged(&mut self, staged: &HObject, size: u64, has_omap: bool) {
        self.modify(0, size);
        self.push(Op::Rename { source: staged.clone(), target: self.head.clone() });
        self.push(storage::forget_staged(staged));
        self.info.has_omap |= has_omap;
        self.omap_seen |= has_omap;
    }

    pub(super) fn set_attr(&mut self, name: ByteStr, value: Bytes) {
        self.push(Op::SetAttr { object: self.head.clone(), name, value });
    }

    pub(super) fn remove_attr(&mut self, name: ByteStr) {
        self.push(Op::RemoveAttr { object: self.head.clone(), name });
    }

    fn push_omap(&mut self, op: Op) {
        self.info.has_omap = true;
        self.omap_seen = true;
        self.push(op);
    }

    pub(super) fn omap_set(&mut self, entries: Vec<(ByteStr, Bytes)>) {
        self.push_omap(Op::OmapSet { object: self.head.clone(), entries });
    }

    pub(super) fn omap_set_header(&mut self, header: Bytes) {
        self.push_omap(Op::OmapSetHeader { object: self.head.clone(), header });
    }

    pub(super) fn omap_remove(&mut self, keys: Vec<ByteStr>) {
        self.push(Op::OmapRemove { object: self.head.clone(), keys });
    }

    pub(super) fn omap_remove_range(&mut self, first: ByteStr, last: ByteStr) {
        self.push(Op::OmapRemoveRange { object: self.head.clone(), first, last });
    }

    pub(super) fn omap_clear(&mut self) {
        self.info.has_omap = false;
        self.omap_seen = false;
        self.push(Op::OmapClear(self.head.clone()));
    }

    pub(super) fn watch(&mut self, key: crate::object::WatchKey, watcher: Watcher) {
        self.info.watchers.insert(key, watcher);
        self.touch();
    }

    /// True when there was such a watch.
    pub(super) fn unwatch(&mut self, key: &crate::object::WatchKey) -> bool {
        let found = self.info.watchers.remove(key).is_some();
        self.changed |= found;
        found
    }
}
