//! The device store's own metadata and superblock, changed under a stopped store.

use crate::input::Input;
use nacre_blockstore::{BlockStore, Options, Partitions, bad_metadata};
use nacre_buf::{AlignedBuf, BufList, Bytes};
use nacre_env::disk::{Disk, DiskTag, Durability};
use nacre_kv::{KvBatch, KvCompletion, KvError, KvStore, KvTag, MemoryKv, Pair};
use nacre_simdisk::{SimConfig, SimDevice};
use nacre_store::ObjectStore;
use nacre_txn::{FetchFrom, ObjectView, Op, ReadError, StoreToken, Transaction};
use nacre_types::{Eversion, HObject, PgId, SnapId, SpgId};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

const DEVICE_BYTES: u64 = 4 << 20;
const BLOCK_BYTES: usize = 4096;
const COLLECTION: SpgId = SpgId::replicated(PgId::new(2, 0x1f));

/// Metadata that survives the store above it.
#[derive(Clone, Default)]
struct SharedKv(Arc<Mutex<MemoryKv>>);

impl SharedKv {
    fn with(pairs: &[Pair]) -> Self {
        let mut batch = KvBatch::default();
        pairs.iter().for_each(|(key, value)| batch.put(key.clone(), value.clone()));
        let mut kv = Self::default();
        kv.commit(&batch, nacre_kv::Durability::Durable).expect("memory does not fail");
        kv
    }

    fn lock(&self) -> MutexGuard<'_, MemoryKv> {
        self.0.lock().expect("nothing panics while it holds this")
    }
}

impl KvStore for SharedKv {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        self.lock().get(key)
    }

    fn scan(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, count_max: usize) -> Result<Vec<Pair>, KvError> {
        self.lock().scan(start, end, count_max)
    }

    fn commit(&mut self, batch: &KvBatch, durability: nacre_kv::Durability) -> Result<(), KvError> {
        self.lock().commit(batch, durability)
    }

    fn submit(&mut self, batch: KvBatch, tag: KvTag) {
        self.lock().submit(batch, tag);
    }

    fn drain(&mut self, out: &mut Vec<KvCompletion>) {
        self.lock().drain(out);
    }

    fn wait(&mut self) {
        self.lock().wait();
    }
}

fn device() -> SimDevice {
    SimDevice::new(SimConfig::new(DEVICE_BYTES, 1))
}

fn object(name: &str) -> HObject {
    HObject::head(2, "".into(), "".into(), name.into())
}

/// Something of everything that has a record of its own.
fn content() -> Transaction {
    let (large, mut txn) = (object("large"), Transaction::new(COLLECTION));
    txn.push(Op::CreateCollection);
    txn.push(Op::Write { object: large.clone(), offset: 7, data: BufList::from(vec![1; 50_000]) });
    txn.push(Op::SetMeta { object: large.clone(), meta: Bytes::from_static(b"record") });
    txn.push(Op::SetAttr {
        object: large.clone(),
        name: "colour".into(),
        value: Bytes::from_static(b"blue"),
    });
    txn.push(Op::OmapSetHeader { object: large.clone(), header: Bytes::from_static(b"header") });
    let entries = (0..5).map(|nth| (format!("key-{nth}").as_str().into(), Bytes::from_static(b"value")));
    txn.push(Op::OmapSet { object: large.clone(), entries: entries.collect() });
    txn.push(Op::Clone { source: large.clone(), target: large.with_snap(SnapId(4)) });
    txn.push(Op::Write { object: object("small"), offset: 0, data: BufList::from(vec![2; 100]) });
    txn.push(Op::LogAppend { version: Eversion::new(3, 1), entry: Bytes::from_static(b"entry") });
    txn.push(Op::MetaSet { key: "info".into(), value: Bytes::from_static(b"value") });
    txn
}

/// The metadata and the superblock of a stopped store that has it all written home.
fn made() -> (SimDevice, Vec<Pair>) {
    let (device, kv, options) = (device(), SharedKv::default(), Options::tiny());
    BlockStore::mkfs(&mut device.open(), &mut kv.clone(), [5; 16], &options).expect("a store can be made");
    let (mut store, _) =
        BlockStore::open(Box::new(device.open()), Box::new(kv.clone()), options).expect("the store opens");
    store.submit(content(), StoreToken::without_pg(0)).expect("there is room");
    store.settle().expect("a healthy device");
    store.checkpoint_now().expect("a healthy device");
    drop(store);
    let pairs = kv.scan_prefix(b"").expect("memory does not fail");
    (device, pairs)
}

/// Seeds of [`store_metadata`]: each record as it is, and the superblock.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let (device, pairs) = made();
    let records = pairs.iter().map(|(key, value)| [&[1][..], &crate::seeds::chunk(key), value].concat());
    let superblock = read_block(&device);
    let (divided, [_, of_second]) = made_divided();
    let shared = of_second.iter().map(|(key, value)| [&[2][..], &crate::seeds::chunk(key), value].concat());
    let superblocks = [[&[0][..], &superblock].concat(), [&[3][..], &read_block(&divided)].concat()];
    records.chain(shared).chain(superblocks).collect()
}

/// A store of two partitions in which nothing was written.
fn made_divided() -> (SimDevice, [Vec<Pair>; 2]) {
    let (device, mut metadata) = (device(), [SharedKv::default(), SharedKv::default()]);
    let [first, second] = &mut metadata;
    Partitions::mkfs(&mut device.open(), &mut [first, second], [5; 16], &Options::tiny())
        .expect("a store can be made");
    (device, metadata.map(|kv| kv.scan_prefix(b"").expect("memory does not fail")))
}

/// The second partition of a divided store is opened, if what was changed lets it.
fn open_divided(device: &SimDevice, pairs: &[Vec<Pair>; 2]) {
    let [first, second] = pairs.each_ref().map(|pairs| SharedKv::with(pairs));
    drop(Partitions::count(&mut device.open()));
    let Ok(mut partitions) = Partitions::read(&mut device.open(), &[&first, &second]) else { return };
    let opened = partitions.open(1, Box::new(device.open()), Box::new(second), Options::tiny());
    let Ok((mut store, _)) = opened else { return };
    // Of a smaller area there may be too little.
    drop(store.submit(content(), StoreToken::without_pg(0)));
    drop(store.settle());
}

fn read_block(device: &SimDevice) -> Vec<u8> {
    let mut disk = device.open();
    disk.read(0, AlignedBuf::with_len(BLOCK_BYTES), DiskTag(1));
    disk.submit();
    device.settle();
    let mut done = Vec::new();
    disk.drain(&mut done);
    done.pop().and_then(|read| read.buffer).expect("a healthy device").freeze().to_vec()
}

fn write_block(device: &SimDevice, block: &[u8]) {
    let mut disk = device.open();
    let mut aligned = AlignedBuf::with_len(BLOCK_BYTES);
    aligned.fill(0);
    let count = block.len().min(BLOCK_BYTES);
    aligned[..count].copy_from_slice(&block[..count]);
    disk.write(0, aligned.freeze().into(), Durability::Durable, DiskTag(1));
    disk.submit();
    device.settle();
}

fn replace(pairs: &mut Vec<Pair>, mut input: Input<'_>) {
    let (key, value) = (Bytes::copy_from_slice(input.chunk()), Bytes::copy_from_slice(input.rest()));
    pairs.retain(|(other, _)| *other != key);
    pairs.push((key, value));
}

/// First byte 0: the rest is the first superblock. 3: the same of a divided store, 2: a record of its second partition. Else: a record, its
/// key as a chunk and its value. The store with it is audited, opened and, if it opens, read.
pub fn store_metadata(input: &[u8]) {
    let mut input = Input::new(input);
    let kind = input.u8();
    if matches!(kind, 2 | 3) {
        let (device, mut pairs) = made_divided();
        match kind {
            2 => replace(&mut pairs[1], input),
            _ => write_block(&device, input.rest()),
        }
        return open_divided(&device, &pairs);
    }
    let (device, mut pairs) = made();
    match kind {
        0 => write_block(&device, input.rest()),
        _ => replace(&mut pairs, input),
    }
    let kv = SharedKv::with(&pairs);
    drop(bad_metadata(&mut device.open(), &kv, 0));
    let Ok((mut store, _)) = BlockStore::open(Box::new(device.open()), Box::new(kv), Options::tiny()) else {
        return;
    };
    for object in [object("large"), object("large").with_snap(SnapId(4)), object("small")] {
        read_all(&mut store, &object);
    }
}

/// Reads what there is; what is damaged gives an error.
fn read_all(store: &mut BlockStore, object: &HObject) {
    drop(store.omap_header(&COLLECTION, object));
    drop(store.attrs(&COLLECTION, object));
    if matches!(store.read(&COLLECTION, object, 0, 60_000), Err(ReadError::Pending { .. })) {
        store.fetch(&COLLECTION, object, 0, 60_000, FetchFrom::Anywhere, StoreToken::without_pg(1));
        drop(store.settle());
        drop(store.read(&COLLECTION, object, 0, 60_000));
    }
}
