//! A store in a map and a one-object client over it, for the tests of execution, snapshots and listings.

use super::{
    Change, Copied, Env, Fullness, Outcome, PoolFacts, Request, Suspend, check_limits, classify, execute,
};
use crate::object::ObjectContext;
use crate::ops::MessageLimits;
use crate::snap::mapper;
use crate::snaptrim::trim_object;
use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_cls::Caller;
use nacre_msg::peer::{Counters, LogEntry};
use nacre_msg::{OsdOp, SubOp};
use nacre_txn::{ObjectView, OmapPage, Op, ReadError};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{
    EntityAddr, EntityName, Errno, Eversion, HObject, IntervalSet, ObjectLocator, PgId, ReqId, SnapId, SpgId,
    UTime,
};
use std::collections::BTreeMap;

pub(crate) const POOL: i64 = 3;

#[derive(Clone, Default, Debug, PartialEq)]
pub(crate) struct Stored {
    pub(crate) meta: Bytes,
    pub(crate) data: Vec<u8>,
    pub(crate) attrs: BTreeMap<ByteStr, Bytes>,
    pub(crate) omap: BTreeMap<ByteStr, Bytes>,
    pub(crate) header: Bytes,
}

fn index(value: u64) -> usize {
    usize::try_from(value).expect("small in tests")
}

/// A store of one collection.
#[derive(Clone, Default, Debug)]
pub(crate) struct TestStore {
    pub(crate) objects: BTreeMap<HObject, Stored>,
    meta: BTreeMap<ByteStr, Bytes>,
    /// Reads of data wait while this is set.
    pub(crate) cold: bool,
}

impl TestStore {
    pub(crate) fn forget_pg_meta(&mut self) {
        self.meta.clear();
    }

    fn touch(&mut self, object: &HObject) -> &mut Stored {
        self.objects.entry(object.clone()).or_default()
    }

    pub(crate) fn apply(&mut self, ops: &[Op]) {
        ops.iter().for_each(|op| self.apply_one(op));
    }

    fn apply_one(&mut self, op: &Op) {
        match op.clone() {
            Op::Touch(object) => drop(self.touch(&object)),
            Op::Write { object, offset, data } => {
                let (start, end) = (index(offset), index(offset) + data.len());
                let stored = self.touch(&object);
                stored.data.resize(stored.data.len().max(end), 0);
                stored.data[start..end].copy_from_slice(&data.to_bytes());
            }
            Op::Zero { object, offset, length } => {
                let stored = self.touch(&object);
                let (start, end) = (index(offset), index(offset + length).min(stored.data.len()));
                stored.data[start.min(end)..end].fill(0);
            }
            Op::Truncate { object, size } => self.touch(&object).data.resize(index(size), 0),
            Op::Remove(object) => drop(self.objects.remove(&object)),
            Op::Clone { source, target } => {
                let copy = self.touch(&source).clone();
                self.objects.insert(target, copy);
            }
            Op::CloneExtents { source, target, extents } => {
                let mut copy = self.touch(&source).clone();
                let mut data = std::mem::take(&mut self.touch(&target).data);
                data.resize(copy.data.len(), 0);
                for (offset, length) in extents.iter() {
                    let range = index(offset).min(data.len())..index(offset + length).min(data.len());
                    data[range.clone()].copy_from_slice(&copy.data[range]);
                }
                copy.data = data;
                self.objects.insert(target, copy);
            }
            Op::Rename { source, target } => {
                let moved = self.objects.remove(&source).unwrap_or_default();
                self.objects.insert(target, moved);
            }
            Op::SetMeta { object, meta } => self.touch(&object).meta = meta,
            Op::SetAttr { object, name, value } => drop(self.touch(&object).attrs.insert(name, value)),
            Op::RemoveAttr { object, name } => drop(self.touch(&object).attrs.remove(&name)),
            Op::OmapSet { object, entries } => self.touch(&object).omap.extend(entries),
            Op::OmapRemove { object, keys } => {
                keys.iter().for_each(|key| drop(self.touch(&object).omap.remove(key)));
            }
            Op::OmapRemoveRange { object, first, last } => {
                self.touch(&object).omap.retain(|key, _| *key < first || *key >= last);
            }
            Op::OmapSetHeader { object, header } => self.touch(&object).header = header,
            Op::OmapClear(object) => {
                let stored = self.touch(&object);
                (stored.omap, stored.header) = (BTreeMap::new(), Bytes::new());
            }
            Op::MetaSet { key, value } => drop(self.meta.insert(key, value)),
            Op::MetaRemove { key } => drop(self.meta.remove(&key)),
            other => unreachable!("execution does not make {other:?}"),
        }
    }
}

impl ObjectView for TestStore {
    fn meta(&self, _: &SpgId, object: &HObject) -> Option<Bytes> {
        self.objects.get(object).map(|stored| stored.meta.clone())
    }

    fn read(&self, _: &SpgId, object: &HObject, offset: u64, length: u64) -> Result<BufList, ReadError> {
        if self.cold {
            return Err(ReadError::Pending { object: object.clone(), offset, length });
        }
        let Some(stored) = self.objects.get(object) else { return Ok(BufList::new()) };
        let end = index(offset.saturating_add(length).min(stored.data.len() as u64));
        Ok(stored.data[index(offset).min(end)..end].to_vec().into())
    }

    fn extents(&self, _: &SpgId, object: &HObject, offset: u64, length: u64) -> Vec<(u64, u64)> {
        let size = self.objects.get(object).map_or(0, |stored| stored.data.len() as u64);
        let end = offset.saturating_add(length).min(size);
        if offset < end { vec![(offset, end - offset)] } else { Vec::new() }
    }

    fn attr(&self, _: &SpgId, object: &HObject, name: &[u8]) -> Option<Bytes> {
        self.objects.get(object)?.attrs.get(name).cloned()
    }

    fn attrs(&self, _: &SpgId, object: &HObject) -> BTreeMap<ByteStr, Bytes> {
        self.objects.get(object).map(|stored| stored.attrs.clone()).unwrap_or_default()
    }

    fn omap_header(&self, _: &SpgId, object: &HObject) -> Bytes {
        self.objects.get(object).map(|stored| stored.header.clone()).unwrap_or_default()
    }

    fn omap_value(&self, _: &SpgId, object: &HObject, key: &[u8]) -> Option<Bytes> {
        self.objects.get(object)?.omap.get(key).cloned()
    }

    fn omap_page(
        &self,
        _: &SpgId,
        object: &HObject,
        from: &[u8],
        entries_max: usize,
        bytes_max: usize,
    ) -> OmapPage {
        let Some(stored) = self.objects.get(object) else { return OmapPage::default() };
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for (key, value) in stored.omap.range(ByteStr::from(from)..) {
            if entries.len() == entries_max || bytes >= bytes_max {
                return OmapPage { entries, more: true };
            }
            bytes += key.len() + value.len();
            entries.push((key.clone(), value.clone()));
        }
        OmapPage { entries, more: false }
    }

    fn list(&self, _: &SpgId, from: &HObject, count_max: usize) -> Vec<HObject> {
        self.objects.range(from..).take(count_max).map(|(object, _)| object.clone()).collect()
    }

    fn log(&self, _: &SpgId) -> Vec<Bytes> {
        Vec::new()
    }

    fn pg_meta_page(&self, _: &SpgId, prefix: &[u8], from: &[u8], count_max: usize) -> Vec<(ByteStr, Bytes)> {
        let found = self.meta.range(ByteStr::from(prefix.max(from))..);
        let found = found.take_while(|(key, _)| key.starts_with(prefix)).take(count_max);
        found.map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

/// A client of one object in a PG of its own. Checks after each message what holds for all of them.
pub(crate) struct Client {
    pub(crate) store: TestStore,
    pub(crate) pool: PoolFacts,
    pub(crate) head: HObject,
    pub(crate) name: EntityName,
    pub(crate) version: u64,
    pub(crate) last_user_version: u64,
    pub(crate) snap_seq: SnapId,
    pub(crate) snaps: Vec<SnapId>,
    pub(crate) flags: u32,
    pub(crate) copied: Vec<Copied>,
    /// How far class calls came that have paused, as the PG hands it in.
    pub(crate) progress: BTreeMap<usize, Bytes>,
    pub(crate) counters: Counters,
    pub(crate) entries: Vec<LogEntry>,
    pub(crate) entropy: SeededEntropy,
    /// Work of the last message.
    pub(crate) work: u64,
    pub(crate) limits: MessageLimits,
}

impl Default for Client {
    fn default() -> Self {
        Self {
            store: TestStore::default(),
            pool: PoolFacts { id: POOL, pg_num: 1, fullness: Fullness::Room, ..PoolFacts::default() },
            head: HObject::head(POOL, "".into(), "".into(), "object".into()),
            name: EntityName::client(4100),
            version: 0,
            last_user_version: 0,
            snap_seq: SnapId(0),
            snaps: Vec::new(),
            flags: 0,
            copied: Vec::new(),
            progress: BTreeMap::new(),
            counters: Counters::default(),
            entries: Vec::new(),
            entropy: SeededEntropy(7),
            work: 0,
            limits: MessageLimits::default(),
        }
    }
}

pub(crate) fn collection() -> SpgId {
    SpgId::replicated(PgId::new(POOL, 0))
}

impl Client {
    /// A client of an object with data, attribute `k` and omap key `k`, all of value `old`.
    pub(crate) fn with_old() -> Self {
        let mut client = Self::default();
        let ops = vec![
            SubOp::write_full("old".as_bytes().to_vec().into()),
            set_attr("k", "old"),
            omap_set("k", "old"),
        ];
        assert_eq!(client.send(ops).result, 0);
        client
    }

    pub(crate) fn message(&self, ops: Vec<SubOp>) -> OsdOp {
        OsdOp {
            spg: collection(),
            hash: self.head.hash,
            epoch: 1,
            flags: self.flags,
            reqid: ReqId::default(),
            client_inc: 0,
            mtime: UTime { sec: 100 + u32::try_from(self.version).expect("small"), nsec: 0 },
            locator: ObjectLocator::in_pool(POOL),
            name: self.head.name.clone(),
            ops,
            snap: SnapId::HEAD,
            snap_seq: self.snap_seq,
            snaps: self.snaps.clone(),
            retry_attempt: 0,
            features: 0,
        }
    }

    pub(crate) fn send(&mut self, ops: Vec<SubOp>) -> Outcome {
        let message = self.message(ops);
        self.try_send(&message).expect("all data is at hand")
    }

    /// Reads as of `snap`.
    pub(crate) fn send_at(&mut self, snap: SnapId, ops: Vec<SubOp>) -> Outcome {
        let message = OsdOp { snap, ..self.message(ops) };
        self.try_send(&message).expect("all data is at hand")
    }

    pub(crate) fn context(&self) -> ObjectContext {
        ObjectContext::load(&self.store, &collection(), &self.head).expect("a record of our own")
    }

    /// Runs a message, applies its outcome, and checks what always holds.
    pub(crate) fn try_send(&mut self, message: &OsdOp) -> Result<Outcome, Suspend> {
        let context = self.context();
        let intent = match classify(message)
            .and_then(|intent| check_limits(message, &intent, self.limits).map(|()| intent))
        {
            Ok(intent) => intent,
            Err(errno) => return Ok(failed(errno)),
        };
        let mut env = Env {
            view: &self.store,
            collection: collection(),
            pool: &self.pool,
            epoch: 1,
            now: UTime { sec: 99, nsec: 0 },
            at_version: Eversion::new(1, self.version + 1),
            last_user_version: self.last_user_version,
            notify_id: 1 << 32,
            entropy: &mut self.entropy,
            limits: self.limits,
            work: 0,
        };
        let request = Request {
            op: message,
            intent: &intent,
            head: &self.head,
            reqid: ReqId { name: self.name, tid: self.version, incarnation: 0 },
            caller: &Caller { name: self.name, addr: EntityAddr::NONE },
            copied: &self.copied,
            progress: &self.progress,
        };
        let outcome = execute(&mut env, &request, &context);
        self.work = env.work;
        let outcome = outcome?;
        assert!(intent.may_write() || matches!(outcome.change, Change::None), "a read changes nothing");
        assert_eq!(outcome.ops.len(), message.ops.len());
        match &outcome.change {
            Change::None | Change::Dropped => {}
            Change::Log(entry) => self.append(std::slice::from_ref(entry)),
            Change::Write(write) => {
                self.store.apply(&write.ops);
                self.append(&write.entries);
                assert_eq!(self.context(), write.object);
                assert_eq!(write.entries.last().map(|entry| entry.delta), Some(outcome.counters));
            }
        }
        self.check();
        Ok(outcome)
    }

    fn append(&mut self, entries: &[LogEntry]) {
        for entry in entries {
            self.version += 1;
            assert_eq!(entry.version, Eversion::new(1, self.version));
            self.last_user_version = self.last_user_version.max(entry.user_version);
            self.counters.add(&entry.delta);
            self.entries.push(entry.clone());
        }
    }

    /// Trims all clones of `snap`, as the PG does in the background, and forgets it.
    pub(crate) fn trim(&mut self, snap: SnapId) {
        self.pool.removed_snaps.insert(snap.0, 1);
        for clone in mapper::clones(&self.store, &collection(), snap, usize::MAX) {
            let context = self.context();
            let env = Env {
                view: &self.store,
                collection: collection(),
                pool: &self.pool,
                epoch: 1,
                now: UTime { sec: 99, nsec: 0 },
                at_version: Eversion::new(1, self.version + 1),
                last_user_version: self.last_user_version,
                notify_id: 0,
                entropy: &mut self.entropy,
                limits: MessageLimits::default(),
                work: 0,
            };
            let trim = trim_object(&env, &self.head, &context, clone.snap, snap).expect("a known clone");
            self.store.apply(&trim.ops);
            self.append(&trim.entries);
            assert_eq!(self.context(), trim.object);
            self.check();
        }
        assert_eq!(mapper::clones(&self.store, &collection(), snap, 1), []);
    }

    /// Sums, records, snapshot set, mapper and store agree.
    pub(crate) fn check(&self) {
        let context = self.context();
        let count = |count: usize| i64::try_from(count).expect("small");
        let bytes =
            context.info.size + context.snaps.clones.iter().map(|clone| clone.own_bytes()).sum::<u64>();
        assert_eq!(self.counters.bytes, count(index(bytes)), "bytes of {context:?}");
        assert_eq!(self.counters.objects, count(self.store.objects.len()));
        assert_eq!(self.counters.clones, count(context.snaps.clones.len()));
        assert_eq!(self.counters.whiteouts, i64::from(context.info.whiteout));
        assert!(context.snaps.clones.is_sorted_by(|older, newer| older.id < newer.id));
        let mut mapped = Vec::new();
        for (object, stored) in &self.store.objects {
            let found = ObjectContext::from_record(stored.meta.clone()).expect("a good record");
            assert_eq!(found.info.size, stored.data.len() as u64, "size of {object}");
            assert!(found.info.has_omap || (stored.omap.is_empty() && stored.header.is_empty()));
            if let Some(clone) = context.snaps.clone_of(object.snap) {
                assert_eq!(clone.size, found.info.size);
                mapped.extend(clone.snaps.iter().map(|snap| (*snap, object.clone())));
            }
        }
        mapped.sort();
        let mut found = mapper::all(&self.store, &collection());
        found.sort();
        assert_eq!(found, mapped);
        self.check_overlaps(&context);
    }

    /// What a clone claims to share with the next version is the same there.
    fn check_overlaps(&self, context: &ObjectContext) {
        let ids: Vec<SnapId> = context.snaps.clones.iter().map(|clone| clone.id).collect();
        let newer = ids.iter().skip(1).copied().chain([SnapId::HEAD]);
        for (clone, newer) in context.snaps.clones.iter().zip(newer) {
            let data =
                |snap| self.store.objects.get(&self.head.with_snap(snap)).map(|stored| &stored.data[..]);
            let (own, other) = (data(clone.id).expect("a clone"), data(newer).unwrap_or_default());
            for (start, length) in clone.overlap.iter() {
                let range = index(start)..index(start + length);
                assert_eq!(
                    own.get(range.clone()),
                    other.get(range),
                    "overlap of {:?} with {newer:?}",
                    clone.id
                );
            }
        }
    }

    pub(crate) fn stored(&self) -> Stored {
        self.store.objects.get(&self.head).cloned().unwrap_or_default()
    }
}

fn failed(errno: Errno) -> Outcome {
    Outcome {
        result: errno.negated(),
        ops: Vec::new(),
        user_version: 0,
        change: Change::None,
        watches: Vec::new(),
        notifies: Vec::new(),
        acks: Vec::new(),
        counters: Counters::default(),
    }
}

pub(crate) fn removed(snaps: &[u64]) -> IntervalSet {
    snaps.iter().map(|snap| (*snap, 1)).collect()
}

pub(crate) fn set_attr(name: &str, value: &str) -> SubOp {
    SubOp::with_xattr(nacre_msg::osd_op::code::SETXATTR, name.as_bytes(), value.as_bytes(), 0, 0)
}

pub(crate) fn omap_set(key: &str, value: &str) -> SubOp {
    use nacre_denc::Encode;
    let entries = vec![(ByteStr::from(key), ByteStr::from(value))];
    SubOp::new(nacre_msg::osd_op::code::OMAPSETVALS).with_indata(entries.to_bytes().into())
}
