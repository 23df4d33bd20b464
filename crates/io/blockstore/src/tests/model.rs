//! What a store should hold, as plain vectors and maps, and random transactions for both. Every transaction carries its
//! number to several places, so that half a transaction shows.

use crate::{BLOCK, BlockStore};
use nacre_buf::{AlignedBuf, BufList, ByteStr, Bytes, PAYLOAD_CRC_SEED, crc};
use nacre_store::{Completion, ObjectStore};
use nacre_txn::{Extents, FetchFrom, ObjectView, Op, ReadError, StoreToken, Transaction};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{Entropy, Eversion, HObject, PgId, SpgId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tokens of fetches, apart from those of transactions.
const FETCH: u64 = 1 << 60;
/// Objects that come and go.
const OBJECTS: u64 = 6;
const KEYS: u64 = 8;
const BLOCK_U64: u64 = BLOCK as u64;

#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct ModelObject {
    pub(super) data: Vec<u8>,
    attrs: BTreeMap<ByteStr, Bytes>,
    omap: BTreeMap<ByteStr, Bytes>,
    header: Bytes,
    meta: Bytes,
}

#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) objects: BTreeMap<HObject, Arc<ModelObject>>,
    log: BTreeMap<Eversion, Bytes>,
    meta: BTreeMap<ByteStr, Bytes>,
}

pub(super) fn pg() -> SpgId {
    SpgId::replicated(PgId::new(3, 1))
}

pub(super) fn object(nth: u64) -> HObject {
    HObject::head(3, ByteStr::EMPTY, ByteStr::EMPTY, format!("o{nth}").into())
}

/// How large the random writes are.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) object_bytes_max: u64,
    pub(super) write_bytes_max: u64,
}

/// A random transaction with the given number.
pub(super) fn random_txn(rng: &mut SeededEntropy, number: u64, sizes: Sizes) -> Transaction {
    let mut txn = Transaction::new(pg());
    let stamp = Bytes::from(number.to_le_bytes().to_vec());
    for _ in 0..rng.u64() % 4 {
        txn.push(random_op(rng, number, sizes));
    }
    let stamped = object(OBJECTS + number % 2);
    txn.push(Op::Write { object: stamped.clone(), offset: rng.u64() % 9000, data: stamp.clone().into() });
    txn.push(Op::OmapSet { object: stamped.clone(), entries: vec![("n".into(), stamp.clone())] });
    txn.push(Op::SetMeta { object: stamped, meta: stamp.clone() });
    txn.push(Op::MetaSet { key: "n".into(), value: stamp.clone() });
    txn.push(Op::LogAppend { version: Eversion::new(1, number), entry: stamp });
    if number.is_multiple_of(5) {
        txn.push(Op::LogTrim { to: Eversion::new(1, number.saturating_sub(20)) });
    }
    txn
}

/// Data that compress well, by half, or not at all.
fn content(seed: u64, length: u64) -> Vec<u8> {
    let mut data: Vec<u8> = (0..length).map(|at| (seed.wrapping_add(at * 7) % 251) as u8).collect();
    let noise_bytes = [0, 2000, BLOCK][(seed % 3) as usize];
    let mut state = seed | 1;
    for block in data.chunks_mut(BLOCK) {
        let room = block.len().min(noise_bytes);
        for bytes in block[..room].chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.copy_from_slice(&state.to_le_bytes()[..bytes.len()]);
        }
    }
    data
}

/// As a client's message brings them: where a device takes them from, and with the checksums of the blocks.
pub(super) fn whole_blocks(seed: u64, count: u64) -> BufList {
    let bytes = content(seed, count * BLOCK_U64);
    let mut buffer = AlignedBuf::with_len(bytes.len());
    buffer.copy_from_slice(&bytes);
    let data = BufList::from(buffer.freeze());
    let crcs = data.block_crcs();
    data.with_block_crcs(crcs)
}

fn random_op(rng: &mut SeededEntropy, number: u64, sizes: Sizes) -> Op {
    let seed = rng.u64();
    let mut pick = |below: u64| rng.u64() % below.max(1);
    let object = object(pick(OBJECTS));
    let align = [1, 512, 4096][usize::try_from(pick(3)).unwrap_or_default()];
    let offset = pick(sizes.object_bytes_max) / align * align;
    let small = pick(3) > 0;
    let length = (1 + pick(if small { 6000 } else { sizes.write_bytes_max }))
        .min(sizes.object_bytes_max - offset)
        .max(1);
    let key = ByteStr::from(format!("k{}", pick(KEYS)));
    let value = Bytes::from(format!("v{number}-{seed}"));
    match pick(20) {
        0 => Op::Touch(object),
        1..=2 => {
            let index = pick(sizes.object_bytes_max / BLOCK_U64);
            let room = sizes.object_bytes_max / BLOCK_U64 - index;
            let count = (1 + pick(if small { 1 } else { sizes.write_bytes_max / BLOCK_U64 })).min(room);
            // Where the object's blocks lie across the data's, what is known of those says nothing.
            let beside = if count < room { pick(4) / 3 * pick(BLOCK_U64) } else { 0 };
            Op::Write { object, offset: index * BLOCK_U64 + beside, data: whole_blocks(seed, count) }
        }
        3..=8 => Op::Write { object, offset, data: BufList::from(content(seed, length)) },
        9 => Op::Zero { object, offset, length },
        10 => Op::Truncate { object, size: offset },
        11 => Op::Remove(object),
        12 => Op::Clone { source: object, target: self::object(pick(OBJECTS)) },
        13 if pick(2) == 0 => {
            let start = pick(sizes.object_bytes_max / BLOCK_U64) * BLOCK_U64;
            let first = (start, (1 + pick(4)) * BLOCK_U64);
            let second = (first.0 + first.1 + pick(3) * BLOCK_U64, (1 + pick(8)) * BLOCK_U64);
            let extents = Extents::new([first, second].into_iter().take(index(pick(3))));
            let extents = extents.expect("whole blocks, ascending");
            Op::CloneExtents { source: object, target: self::object(pick(OBJECTS)), extents }
        }
        13 => Op::Rename { source: object, target: self::object(pick(OBJECTS)) },
        14 => Op::SetAttr { object, name: key, value },
        15 => Op::OmapSet { object, entries: vec![(key, value)] },
        16 => Op::OmapRemoveRange { object, first: "k1".into(), last: key },
        17 => Op::OmapSetHeader { object, header: value },
        18 if pick(20) == 0 => Op::RemoveCollection,
        18 => Op::OmapRemove { object, keys: vec![key] },
        _ => Op::ClearAttrs(object),
    }
}

fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

impl Model {
    pub(super) fn apply(&mut self, txn: &Transaction) {
        txn.ops.iter().for_each(|op| self.apply_op(op));
    }

    fn object(&mut self, name: &HObject) -> &mut ModelObject {
        Arc::make_mut(self.objects.entry(name.clone()).or_default())
    }

    fn apply_op(&mut self, op: &Op) {
        match op {
            Op::RemoveCollection => *self = Self::default(),
            Op::Touch(name) => drop(self.object(name)),
            Op::Write { object, offset, data } => {
                let target = &mut self.object(object).data;
                let (from, to) = (index(*offset), index(*offset) + data.len());
                target.resize(target.len().max(to), 0);
                target[from..to].copy_from_slice(&data.to_bytes());
            }
            Op::Zero { object, offset, length } => {
                let target = &mut self.object(object).data;
                let end = target.len();
                target[index(*offset).min(end)..index(offset + length).min(end)].fill(0);
            }
            Op::Truncate { object, size } => self.object(object).data.resize(index(*size), 0),
            Op::Remove(name) => drop(self.objects.remove(name)),
            Op::Clone { source, target } => {
                let copy = self.objects.get(source).cloned().unwrap_or_default();
                self.objects.insert(target.clone(), copy);
            }
            Op::CloneExtents { source, target, .. } if source == target => drop(self.object(target)),
            Op::CloneExtents { source, target, extents } => {
                let mut copy =
                    self.objects.get(source).map(|source| ModelObject::clone(source)).unwrap_or_default();
                let mut data =
                    self.objects.remove(target).map(|target| target.data.clone()).unwrap_or_default();
                data.resize(copy.data.len(), 0);
                for (offset, length) in extents.iter() {
                    let range = index(offset).min(data.len())..index(offset + length).min(data.len());
                    data[range.clone()].copy_from_slice(&copy.data[range]);
                }
                copy.data = data;
                self.objects.insert(target.clone(), Arc::new(copy));
            }
            Op::Rename { source, target } => {
                let moved = self.objects.remove(source).unwrap_or_default();
                self.objects.insert(target.clone(), moved);
            }
            op => self.apply_small(op),
        }
    }

    fn apply_small(&mut self, op: &Op) {
        match op {
            Op::SetMeta { object, meta } => self.object(object).meta = meta.clone(),
            Op::SetAttr { object, name, value } => {
                self.object(object).attrs.insert(name.clone(), value.clone());
            }
            Op::ClearAttrs(name) => self.object(name).attrs.clear(),
            Op::OmapSet { object, entries } => self.object(object).omap.extend(entries.iter().cloned()),
            Op::OmapRemove { object, keys } => {
                keys.iter().for_each(|key| drop(self.object(object).omap.remove(key)))
            }
            Op::OmapRemoveRange { object, first, last } => {
                self.object(object).omap.retain(|key, _| key < first || key >= last);
            }
            Op::OmapSetHeader { object, header } => self.object(object).header = header.clone(),
            Op::LogAppend { version, entry } => drop(self.log.insert(*version, entry.clone())),
            Op::LogTrim { to } => self.log.retain(|version, _| version > to),
            Op::MetaSet { key, value } => drop(self.meta.insert(key.clone(), value.clone())),
            op => unreachable!("not made by random_op: {op:?}"),
        }
    }

    /// Panics, saying where, unless the store shows exactly this.
    pub(super) fn compare(&self, store: &mut BlockStore, acknowledged: &mut Vec<StoreToken>, context: &str) {
        let names = store.list(&pg(), &HObject::MIN, usize::MAX);
        assert!(names.iter().eq(self.objects.keys()), "{context}: objects differ: {names:?}");
        for (name, expected) in &self.objects {
            let data = read(store, name, 0, u64::MAX, acknowledged);
            let data = data.unwrap_or_else(|error| panic!("{context}: {name}: {error}"));
            let differs = data.iter().zip(&expected.data).position(|(a, b)| a != b);
            let lengths = (data.len(), expected.data.len());
            assert!(
                differs.is_none() && lengths.0 == lengths.1,
                "{context}: {name} differs at {differs:?}, {lengths:?}"
            );
            let omap = store.omap_page(&pg(), name, b"", usize::MAX, usize::MAX).entries;
            assert!(
                omap.iter().map(|(key, value)| (key, value)).eq(&expected.omap),
                "{context}: omap of {name}"
            );
            assert_eq!(store.attrs(&pg(), name), expected.attrs, "{context}: attributes of {name}");
            assert_eq!(store.omap_header(&pg(), name), expected.header, "{context}: omap header of {name}");
            assert_eq!(store.meta(&pg(), name).as_ref(), Some(&expected.meta), "{context}: record of {name}");
        }
        assert!(store.log(&pg()).iter().eq(self.log.values()), "{context}: log differs");
        assert!(
            store.pg_meta(&pg(), b"").iter().map(|(key, value)| (key, value)).eq(&self.meta),
            "{context}: pg meta"
        );
    }
}

/// Splits what completed into tokens of transactions and of fetches.
pub(super) fn drain(store: &mut BlockStore, acknowledged: &mut Vec<StoreToken>) -> Vec<StoreToken> {
    let mut out = Vec::new();
    store.drain(&mut out);
    let mut fetched = Vec::new();
    for completion in out {
        match completion {
            Completion::Durable(token) => acknowledged.push(token),
            Completion::Fetched(token) | Completion::Brought(token, _) => fetched.push(token),
            Completion::Warm(_) => (),
        }
    }
    fetched
}

/// Asks for a range as a reader that looks at it once: the data, if it came with the completion.
pub(super) fn read_once(
    store: &mut BlockStore,
    name: &HObject,
    offset: u64,
    length: u64,
    acknowledged: &mut Vec<StoreToken>,
) -> Option<BufList> {
    let token = StoreToken::without_pg(FETCH - 1);
    store.fetch(&pg(), name, offset, length, FetchFrom::AnywhereOnce, token);
    loop {
        let mut out = Vec::new();
        store.drain(&mut out);
        let mut found = None;
        for completion in out {
            match completion {
                Completion::Durable(token) => acknowledged.push(token),
                Completion::Fetched(done) => found = (done == token).then_some(None).or(found),
                Completion::Brought(done, data) => found = (done == token).then_some(Some(data)).or(found),
                Completion::Warm(_) => (),
            }
        }
        if let Some(data) = found {
            return data;
        }
    }
}

fn checked(data: &BufList, name: &HObject, offset: u64, length: u64) -> Bytes {
    let bytes = data.to_bytes();
    let crc = crc::crc32c(PAYLOAD_CRC_SEED, &bytes);
    assert_eq!(data.crc32c(PAYLOAD_CRC_SEED), crc, "what goes with {name}, {offset}~{length}");
    bytes
}

/// Reads, fetching what is not in memory.
pub(super) fn read(
    store: &mut BlockStore,
    name: &HObject,
    offset: u64,
    length: u64,
    acknowledged: &mut Vec<StoreToken>,
) -> Result<Bytes, ReadError> {
    for attempt in 0..100 {
        match store.read(&pg(), name, offset, length) {
            Ok(data) => return Ok(checked(&data, name, offset, length)),
            Err(ReadError::Pending { .. }) if attempt == 0 => {
                if let Some(data) = read_once(store, name, offset, length, acknowledged) {
                    return Ok(checked(&data, name, offset, length));
                }
            }
            Err(ReadError::Pending { .. }) => {
                let token = StoreToken::without_pg(FETCH + attempt);
                store.fetch(&pg(), name, offset, length, FetchFrom::Anywhere, token);
                while !drain(store, acknowledged).contains(&token) {}
            }
            Err(error) => return Err(error),
        }
    }
    panic!("fetched data of {name} never showed");
}

/// The number of the newest transaction that the store shows; 0 for none.
pub(super) fn newest(store: &BlockStore) -> u64 {
    let found = store.pg_meta(&pg(), b"n");
    found.first().map_or(0, |(_, value)| u64::from_le_bytes(value[..].try_into().expect("eight bytes")))
}
