//! A store with something of everything in it, the same each time.

use crate::target::{Target, each_object, read};
use nacre_blockstore::BlockStore;
use nacre_buf::{BufList, Bytes};
use nacre_denc::{Encode, Writer};
use nacre_maps::{OsdMap, Pool};
use nacre_msg::peer::{Counters, LogEntry, LogKind, PgHistory, PgInfo};
use nacre_osd::storage;
use nacre_store::ObjectStore;
use nacre_txn::{ObjectView, Op, StoreToken, Transaction};
use nacre_types::{Eversion, HObject, PgId, ReqId, SnapId, SpgId, UTime, Uuid};
use std::path::Path;
use tempfile::TempDir;

pub(super) const PG: SpgId = SpgId::replicated(PgId::new(2, 0x1f));
pub(super) const FSID: [u8; 16] = [3; 16];
const STORE: [u8; 16] = [5; 16];
const EPOCH: u32 = 30;
const DEVICE_BYTES: u64 = 4 << 20;
const SMALL: u32 = 24;
/// Small ones, the large one and its clone.
pub(super) const OBJECTS: u64 = SMALL as u64 + 2;
pub(super) const LARGE_BYTES: u64 = 120_000 + 7;

/// The folder of a store, removed with the test.
pub(super) struct Folder(TempDir);

impl Folder {
    /// With an empty store in it.
    pub(super) fn new(name: &str) -> Self {
        Self::with_device_dirs(name, &storage::DeviceDirs::default())
    }

    pub(super) fn with_device_dirs(name: &str, device_dirs: &storage::DeviceDirs) -> Self {
        let folder = Self::empty(name);
        storage::mkfs(folder.path(), Uuid(STORE), DEVICE_BYTES, device_dirs, None)
            .expect("a store can be made");
        folder
    }

    pub(super) fn empty(name: &str) -> Self {
        let prefix = format!("nacre-tool-{name}");
        Self(TempDir::with_prefix(prefix).expect("a writable temporary folder"))
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn target(&self) -> Target {
        Target::new(self.path().to_owned(), Vec::new())
    }
}

pub(super) fn small(nth: u32) -> HObject {
    HObject::head(2, "".into(), "".into(), format!("small.{:03}", nth % SMALL).into())
}

pub(super) fn large() -> HObject {
    HObject::head(2, "space".into(), "".into(), "large".into())
}

/// Mostly zeros, so that images are small, and different in every block.
fn noise(seed: u32, bytes: usize) -> Vec<u8> {
    let byte = |nth: u32| if nth % 2048 < 48 { (nth ^ seed).wrapping_mul(0x9e37_79b9) >> 24 } else { 0 };
    (0..u32::try_from(bytes).expect("small")).map(|nth| byte(nth) as u8).collect()
}

pub(super) fn submit(store: &mut BlockStore, txn: Transaction) {
    store.submit(txn, StoreToken::without_pg(0)).expect("there is room");
    store.settle().expect("a healthy device");
}

fn entry(version: u64, object: &HObject) -> Op {
    let version = Eversion::new(EPOCH, version);
    let entry = LogEntry {
        kind: LogKind::Modify,
        object: object.clone(),
        version,
        prior_version: Eversion::ZERO,
        user_version: version.version,
        reqid: ReqId::default(),
        mtime: UTime::default(),
        result: 0,
        outputs: Vec::new(),
        snaps: Vec::new(),
        delta: Counters::default(),
        committed_to: Eversion::ZERO,
        modified: None,
    };
    Op::LogAppend { version, entry: entry.to_bytes() }
}

/// Gives the store a map and nothing else.
pub(super) fn only_map(folder: &Folder) {
    map(folder, FSID, EPOCH);
}

pub(super) fn map(folder: &Folder, fsid: [u8; 16], epoch: u32) {
    let (mut store, _) = folder.target().open().expect("the store opens");
    put_map(&mut store, fsid, epoch);
}

fn put_map(store: &mut BlockStore, fsid: [u8; 16], epoch: u32) {
    let mut map = OsdMap { fsid: Uuid(fsid), epoch, ..OsdMap::default() };
    map.pools.insert(2, Pool::default());
    let key = format!("osdmap/{epoch:010}").into();
    let ops = vec![Op::MetaSet { key, value: map.to_bytes() }];
    submit(store, Transaction { collection: storage::OWN_COLLECTION, ops });
}

/// Fills an empty store with a record of the log for each of a few changes, each one block long.
pub(super) fn fill_one_by_one(folder: &Folder) {
    let (mut store, _) = folder.target().open().expect("the store opens");
    put_map(&mut store, FSID, EPOCH);
    for nth in 0..8_u8 {
        let ops =
            vec![Op::CreateCollection, Op::MetaSet { key: "info".into(), value: vec![nth; 200].into() }];
        submit(&mut store, Transaction { collection: PG, ops });
    }
}

/// Fills an empty store: the first half is written home, the second only in the log.
pub(super) fn fill(folder: &Folder) {
    fill_at(&folder.target());
}

/// The same of a store that may need a key.
pub(super) fn fill_at(target: &Target) {
    let (mut store, _) = target.open().expect("the store opens");
    put_map(&mut store, FSID, EPOCH);
    let mut info = Writer::new();
    info.put(&PgInfo { last_update: Eversion::new(EPOCH, 1), ..PgInfo::empty(PgHistory::default()) });
    info.u32(EPOCH);
    let mut txn = Transaction::new(PG);
    txn.push(Op::CreateCollection);
    txn.push(Op::MetaSet { key: "info".into(), value: info.finish() });
    txn.push(Op::MetaSet { key: "interval".into(), value: Bytes::from_static(b"opaque to the store") });
    submit(&mut store, txn);
    put_large(&mut store);
    for nth in 0..SMALL {
        if nth == SMALL / 2 {
            store.checkpoint_now().expect("a healthy device");
        }
        put_small(&mut store, nth);
    }
}

fn put_large(store: &mut BlockStore) {
    let (object, mut txn) = (large(), Transaction::new(PG));
    txn.push(Op::Write { object: object.clone(), offset: 7, data: BufList::from(noise(1, 50_000)) });
    // A hole between the two.
    txn.push(Op::Write {
        object: object.clone(),
        offset: LARGE_BYTES - 20_000,
        data: BufList::from(noise(2, 20_000)),
    });
    txn.push(Op::SetMeta { object: object.clone(), meta: Bytes::from_static(b"record") });
    txn.push(Op::SetAttr {
        object: object.clone(),
        name: "colour".into(),
        value: Bytes::from_static(b"blue\xff"),
    });
    txn.push(Op::OmapSetHeader { object: object.clone(), header: Bytes::from_static(b"header") });
    let entries =
        (0..150).map(|nth| (format!("key-{nth:03}").into(), format!("value {nth}").into())).collect();
    txn.push(Op::OmapSet { object: object.clone(), entries });
    txn.push(entry(1, &object));
    submit(store, txn);
    let mut txn = Transaction::new(PG);
    txn.push(Op::Clone { source: object.clone(), target: object.with_snap(SnapId(4)) });
    txn.push(Op::Write { object: object.clone(), offset: 30_000, data: BufList::from(noise(3, 5000)) });
    txn.push(entry(2, &object));
    submit(store, txn);
}

/// Changes the large object in its midst and far behind its end, its clone, and some small ones.
pub(super) fn change(folder: &Folder) {
    change_at(&folder.target());
}

pub(super) fn change_at(target: &Target) {
    let (mut store, _) = target.open().expect("the store opens");
    let (object, mut txn) = (large(), Transaction::new(PG));
    for offset in [9000, 400_000, 900_000] {
        txn.push(Op::Write { object: object.clone(), offset, data: BufList::from(noise(9, 9000)) });
    }
    txn.push(Op::Truncate { object: object.with_snap(SnapId(4)), size: 40_000 });
    txn.push(Op::Write { object: small(3), offset: 300_000, data: BufList::from(noise(8, 700)) });
    submit(&mut store, txn);
    store.checkpoint_now().expect("a healthy device");
    let mut txn = Transaction::new(PG);
    txn.push(Op::Truncate { object, size: 500_000 });
    txn.push(Op::Write { object: small(3), offset: 0, data: BufList::from(noise(7, 5000)) });
    submit(&mut store, txn);
    store.checkpoint_now().expect("a healthy device");
}

fn put_small(store: &mut BlockStore, nth: u32) {
    let (object, mut txn) = (small(nth), Transaction::new(PG));
    let bytes = (nth as usize * 331) % 5000;
    txn.push(Op::Write { object: object.clone(), offset: 0, data: BufList::from(noise(nth, bytes)) });
    txn.push(Op::SetMeta { object: object.clone(), meta: Bytes::from(nth.to_le_bytes().to_vec()) });
    txn.push(entry(u64::from(nth) + 3, &object));
    submit(store, txn);
}

/// Panics unless both stores hold the same PG.
pub(super) fn same(one: &mut BlockStore, other: &mut BlockStore) {
    let mut names = [Vec::new(), Vec::new()];
    for (store, names) in [&mut *one, &mut *other].into_iter().zip(&mut names) {
        let listed = each_object(store, &PG, |_, name| {
            names.push(name.clone());
            Ok(())
        });
        listed.expect("a list");
    }
    assert_eq!(names[0], names[1]);
    assert_eq!(names[0].len() as u64, OBJECTS);
    for name in &names[0] {
        let data = [&mut *one, &mut *other].map(|store| read(store, &PG, name, 0, u64::MAX).expect("data"));
        assert!(data[0] == data[1], "{name} differs");
        let about = [&*one, &*other].map(|store| {
            let omap = store.omap_page(&PG, name, b"", usize::MAX, usize::MAX).entries;
            let header = store.omap_header(&PG, name);
            let extents = store.extents(&PG, name, 0, u64::MAX);
            (store.meta(&PG, name), store.attrs(&PG, name), header, omap, extents)
        });
        assert_eq!(about[0], about[1], "{name}");
    }
    assert_eq!(one.log_entries(&PG), other.log_entries(&PG));
    assert_eq!(one.pg_meta(&PG, b""), other.pg_meta(&PG, b""));
}

/// What a store with the same content is compared with.
pub(super) fn twin() -> Folder {
    let folder = Folder::new("twin");
    fill(&folder);
    change(&folder);
    folder
}

pub(super) fn is_twin(target: &Target, twin: &Folder) {
    let (mut one, _) = target.look().expect("the store opens");
    let (mut other, _) = twin.target().look().expect("the store opens");
    same(&mut one, &mut other);
}
