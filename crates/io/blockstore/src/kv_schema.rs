//! Keys and values in the KV store. Drawn in `docs/formats/blockstore.md`.

use crate::device::DEVICE_BLOCKS_MAX;
use crate::error::OpenError;
use crate::freemap::{FREE_MAP_SHARD_BLOCKS, FreeMapShard};
use crate::memtable::Weigh;
use crate::packed_sums::PackedSums;
use crate::superblock::Superblock;
use crate::wal::WalPosition;
use nacre_buf::Bytes;
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_kv::{KvError, KvStore, Pair, end_of_prefix};
use nacre_types::{Eversion, HObject, SpgId};
use std::ops::Bound;

/// Of the state, and the newest that is read. Programs that know version 3 would take objects for smaller than they are: their blocks were
/// all in one record. Version 3 was that of a store with copies of omaps under way, 2 that of others.
const STATE_VERSION: u8 = 4;
/// Of a state of metadata that have a journal before them. Programs that do not know of journals would take what has not come out of it
/// into the tree for lost.
const JOURNALED_VERSION: u8 = 5;
/// Of a state of objects with compressed blocks, which other programs do not know.
const PACKED_VERSION: u8 = 6;
const VERSION: u8 = 1;
/// Of a collection in a numbered space.
const COLLECTION_VERSION: u8 = 2;
/// Pairs read at once when a store is opened.
const PAGE_PAIRS: usize = 1024;

pub(crate) mod prefix {
    pub(crate) const STATE: u8 = b's';
    pub(crate) const COLLECTION: u8 = b'c';
    pub(crate) const LOG: u8 = b'l';
    pub(crate) const META: u8 = b'm';
    pub(crate) const NAME: u8 = b'n';
    pub(crate) const FREE: u8 = b'f';
    pub(crate) const OBJECT: u8 = b'o';
    pub(crate) const OMAP: u8 = b'v';
    /// Names and values in numbered spaces.
    pub(crate) const SPACE_NAME: u8 = b'N';
    pub(crate) const SPACE_META: u8 = b'M';
    /// Spaces of removed collections.
    pub(crate) const DEAD: u8 = b'd';
    /// Omaps that are being copied.
    pub(crate) const COPY: u8 = b'w';
    /// Keys that such a copy does not have, whatever its source has.
    pub(crate) const HIDDEN: u8 = b'x';
    /// Which partition of a divided store this is.
    pub(crate) const PARTITION: u8 = b'p';
}

/// Where the names and values of a collection are. One that is made again while the former one of its name is still being
/// removed gets a number of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Keyspace {
    pub(crate) at: SpgId,
    /// 0 but for such a one.
    pub(crate) number: u64,
}

impl From<SpgId> for Keyspace {
    fn from(at: SpgId) -> Self {
        Self { at, number: 0 }
    }
}

impl Keyspace {
    /// Begins a key: under one prefix without a number, under another with one.
    fn begin(&self, capacity: usize, (plain, numbered): (u8, u8), body: impl FnOnce(&mut Writer)) -> Bytes {
        key_of(capacity, if self.number == 0 { plain } else { numbered }, |w| {
            w.put(&self.at);
            if self.number > 0 {
                ascending(w, self.number);
            }
            body(w);
        })
    }

    /// The space that a key is in, by the rest behind its prefix.
    pub(crate) fn decode(prefix: u8, rest: Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::new(rest);
        let at = r.get()?;
        let number = if matches!(prefix, prefix::NAME | prefix::META) { 0 } else { read_ascending(&mut r)? };
        Ok(Self { at, number })
    }
}

/// Says that what is in a space is to be removed.
pub(crate) fn dead_key(space: &Keyspace) -> Bytes {
    key(prefix::DEAD, |w| {
        w.put(&space.at);
        ascending(w, space.number);
    })
}

/// What a checkpoint says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct State {
    pub(crate) id: [u8; 16],
    /// Where replay begins.
    pub(crate) wal: WalPosition,
    pub(crate) next_id: u64,
    pub(crate) sums: Sums,
    /// The metadata have a journal before them.
    pub(crate) is_journaled: bool,
}

/// An omap under way: it has the entries of another one, of which it has got some.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OmapCopy {
    /// Number of the other omap.
    pub(crate) source: u64,
    /// No object has that any more: it goes when the copy is complete.
    pub(crate) source_is_dead: bool,
    /// The last key up to which the copy has all itself; `None` when it has just begun.
    pub(crate) reached: Option<Bytes>,
}

impl OmapCopy {
    pub(crate) fn encode(&self) -> Bytes {
        let mut w = Writer::new();
        w.envelope(VERSION, VERSION, |w| {
            w.u64(self.source);
            w.bool(self.source_is_dead);
            w.bool(self.reached.is_some());
            w.blob(self.reached.as_deref().unwrap_or_default());
        });
        w.finish()
    }

    pub(crate) fn decode(value: Bytes) -> Result<Self, DecodeError> {
        Reader::new(value).envelope("copy of an omap", VERSION, |_, r| {
            let (source, source_is_dead, has_begun) = (r.u64()?, r.bool()?, r.bool()?);
            let reached = r.blob()?;
            // It stays in memory.
            let reached = has_begun.then(|| Bytes::copy_from_slice(&reached));
            Ok(Self { source, source_is_dead, reached })
        })
    }
}

/// What a walk over all objects would count.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) objects: u64,
    /// Slots of all objects, at home or not.
    pub(crate) slots: u64,
    pub(crate) omap_bytes: u64,
    pub(crate) packed: PackedSums,
}

/// A state, and whether the names and the free map that belong to it have to be made first.
pub(crate) struct StoredState {
    pub(crate) state: State,
    pub(crate) is_version_1: bool,
}

impl State {
    pub(crate) fn encode(&self) -> Bytes {
        let mut w = Writer::new();
        let version = match self.is_journaled {
            _ if !self.sums.packed.is_empty() => PACKED_VERSION,
            true => JOURNALED_VERSION,
            false => STATE_VERSION,
        };
        w.envelope(version, version, |w| {
            w.raw(&self.id);
            w.u64(self.wal.position);
            w.u64(self.wal.seq);
            w.u64(self.wal.mount);
            w.u64(self.next_id);
            w.u64(self.sums.objects);
            w.u64(self.sums.slots);
            w.u64(self.sums.omap_bytes);
            if version == PACKED_VERSION {
                w.bool(self.is_journaled);
                self.sums.packed.encode(w);
            }
        });
        w.finish()
    }

    pub(crate) fn decode(value: Bytes) -> Result<StoredState, DecodeError> {
        Reader::new(value).envelope("store state", PACKED_VERSION, |version, r| {
            let id = r.array()?;
            let wal = WalPosition { position: r.u64()?, seq: r.u64()?, mount: r.u64()? };
            let is_journaled = version == JOURNALED_VERSION;
            let mut state = Self { id, wal, next_id: r.u64()?, sums: Sums::default(), is_journaled };
            if version >= 2 {
                let (objects, slots, omap_bytes) = (r.u64()?, r.u64()?, r.u64()?);
                state.sums = Sums { objects, slots, omap_bytes, ..Sums::default() };
            }
            if version >= PACKED_VERSION {
                state.is_journaled = r.bool()?;
                state.sums.packed = PackedSums::decode(r)?;
            }
            Ok(StoredState { state, is_version_1: version < 2 })
        })
    }

    pub(crate) fn load(kv: &dyn KvStore, superblock: &Superblock) -> Result<StoredState, OpenError> {
        let value = kv.get(&state_key())?.ok_or(OpenError::ForeignMetadata)?;
        let stored = Self::decode(value)?;
        if stored.state.id == superblock.id { Ok(stored) } else { Err(OpenError::ForeignMetadata) }
    }
}

/// Which partition of a divided store has these metadata, and in which slabs it allocates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PartitionRecord {
    pub(crate) number: u32,
    pub(crate) partitions: u32,
    /// Their numbers, ascending.
    pub(crate) slabs: Vec<u32>,
}

impl PartitionRecord {
    pub(crate) fn encode(&self) -> Bytes {
        let mut w = Writer::new();
        w.envelope(VERSION, VERSION, |w| {
            w.u32(self.number);
            w.u32(self.partitions);
            w.count(self.slabs.len());
            self.slabs.iter().for_each(|slab| w.u32(*slab));
        });
        w.finish()
    }

    pub(crate) fn decode(value: Bytes) -> Result<Self, DecodeError> {
        Reader::new(value).envelope("partition", VERSION, |_, r| {
            let (number, partitions) = (r.u32()?, r.u32()?);
            let slabs = (0..r.count(4)?).map(|_| r.u32()).collect::<Result<Vec<u32>, _>>()?;
            match slabs.is_sorted_by(|a, b| a < b) {
                true => Ok(Self { number, partitions, slabs }),
                false => Err(DecodeError::Invalid { what: "order of slabs", value: slabs.len() as u64 }),
            }
        })
    }

    pub(crate) fn load(kv: &dyn KvStore) -> Result<Option<Self>, OpenError> {
        let value = kv.get(&partition_key())?;
        Ok(value.map(Self::decode).transpose()?)
    }
}

pub(crate) fn partition_key() -> Bytes {
    key(prefix::PARTITION, |_| ())
}

fn key(prefix: u8, body: impl FnOnce(&mut Writer)) -> Bytes {
    key_of(64, prefix, body)
}

/// A key of about so many bytes.
fn key_of(capacity: usize, prefix: u8, body: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::with_capacity(capacity);
    w.u8(prefix);
    body(&mut w);
    w.finish()
}

/// A number, most significant byte first, so that keys sort by it.
fn ascending(w: &mut Writer, number: u64) {
    w.u64(number.swap_bytes());
}

fn read_ascending(r: &mut Reader) -> Result<u64, DecodeError> {
    Ok(r.u64()?.swap_bytes())
}

pub(crate) fn state_key() -> Bytes {
    key(prefix::STATE, |_| ())
}

pub(crate) fn collection_key(at: &SpgId) -> Bytes {
    key(prefix::COLLECTION, |w| w.put(at))
}

/// Key of a chunk of a PG log, named by its least version.
pub(crate) fn log_key(at: &SpgId, chunk: Eversion) -> Bytes {
    key(prefix::LOG, |w| {
        w.put(at);
        ascending(w, chunk.epoch.into());
        ascending(w, chunk.version);
    })
}

/// Where the chunks of a PG log begin, and the version in a key that begins so.
pub(crate) fn log_prefix(at: &SpgId) -> Bytes {
    key(prefix::LOG, |w| w.put(at))
}

pub(crate) fn decode_log_key(rest: Bytes) -> Result<Eversion, DecodeError> {
    let mut r = Reader::new(rest);
    let epoch = read_ascending(&mut r)?;
    let epoch = u32::try_from(epoch).map_err(|_| DecodeError::Invalid { what: "log epoch", value: epoch })?;
    Ok(Eversion::new(epoch, read_ascending(&mut r)?))
}

/// Entries of a chunk of a PG log, all of one epoch, as the KV store has them: one buffer, for an entry comes with each write.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogChunk {
    count: usize,
    /// Version, length and bytes of each entry.
    encoded: Vec<u8>,
}

impl LogChunk {
    /// Number of entries.
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// Bytes of memory that the entries take.
    pub(crate) const fn bytes(&self) -> usize {
        self.encoded.capacity()
    }

    /// Adds an entry behind the others.
    pub(crate) fn push(&mut self, version: u64, entry: &[u8]) {
        let length = u32::try_from(entry.len()).expect("an entry came in a message, which is bounded");
        self.count += 1;
        self.encoded.extend_from_slice(&version.to_le_bytes());
        self.encoded.extend_from_slice(&length.to_le_bytes());
        self.encoded.extend_from_slice(entry);
    }

    /// The entries with their versions, in order.
    pub(crate) fn entries(&self) -> Vec<(u64, Bytes)> {
        let mut r = Reader::new(Bytes::copy_from_slice(&self.encoded));
        let mut entry = || Ok::<_, DecodeError>((r.u64()?, r.blob()?));
        (0..self.count).map(|_| entry().expect("was encoded here or decoded before")).collect()
    }
}

impl Weigh for LogChunk {
    fn weight(&self) -> usize {
        self.bytes() + size_of::<Self>()
    }
}

impl FromIterator<(u64, Bytes)> for LogChunk {
    fn from_iter<I: IntoIterator<Item = (u64, Bytes)>>(entries: I) -> Self {
        let mut chunk = Self::default();
        entries.into_iter().for_each(|(version, entry)| chunk.push(version, &entry));
        chunk
    }
}

pub(crate) fn encode_log(chunk: &LogChunk) -> Bytes {
    // Head and count.
    let mut w = Writer::with_capacity(10 + chunk.encoded.len());
    w.envelope(VERSION, 1, |w| {
        w.count(chunk.count);
        w.raw(&chunk.encoded);
    });
    w.finish()
}

pub(crate) fn decode_log(value: Bytes) -> Result<LogChunk, DecodeError> {
    Reader::new(value)
        .envelope("log chunk", VERSION, |_, r| (0..r.count(12)?).map(|_| Ok((r.u64()?, r.blob()?))).collect())
}

/// What a collection says of itself: the last entry of its log that was trimmed, and the number of its space, if it has one; a
/// program that does not know of those cannot open the store. Version 1 of the state said nothing.
pub(crate) fn encode_collection(log_tail: Eversion, space: u64) -> Bytes {
    let mut w = Writer::new();
    if space == 0 {
        w.envelope(VERSION, 1, |w| w.put(&log_tail));
    } else {
        w.envelope(COLLECTION_VERSION, COLLECTION_VERSION, |w| {
            w.put(&log_tail);
            w.u64(space);
        });
    }
    w.finish()
}

pub(crate) fn decode_collection(value: Bytes) -> Result<(Eversion, u64), DecodeError> {
    if value.is_empty() {
        return Ok((Eversion::ZERO, 0));
    }
    Reader::new(value).envelope("collection", COLLECTION_VERSION, |version, r| {
        Ok((r.get()?, if version >= COLLECTION_VERSION { r.u64()? } else { 0 }))
    })
}

/// Whether a chunk of a log can be understood; the key is without its prefix.
pub(crate) fn check_log_pair(key: Bytes, value: Bytes) -> Result<(), DecodeError> {
    let mut r = Reader::new(key);
    r.get::<SpgId>()?;
    decode_log_key(r.rest())?;
    decode_log(value).map(drop)
}

pub(crate) fn meta_key(space: &Keyspace, name: &[u8]) -> Bytes {
    space.begin(64, (prefix::META, prefix::SPACE_META), |w| w.raw(name))
}

pub(crate) fn object_key(id: u64) -> Bytes {
    key(prefix::OBJECT, |w| ascending(w, id))
}

/// Whether it is what [`object_key`] gives: those of the object's pages begin with it.
pub(crate) fn is_object_key(key: &[u8]) -> bool {
    key.len() == 1 + size_of::<u64>() && key.first() == Some(&prefix::OBJECT)
}

/// Of a page of an object's blocks: behind the object's own.
pub(crate) fn page_key(id: u64, number: u32) -> Bytes {
    key(prefix::OBJECT, |w| {
        ascending(w, id);
        w.u32(number.swap_bytes());
    })
}

/// The object's key, without its prefix, and the number of the page; an error of what is no key of a page.
pub(crate) fn decode_page_key(rest: Bytes) -> Result<(Bytes, u32), DecodeError> {
    let mut r = Reader::new(rest.clone());
    r.skip(size_of::<u64>())?;
    let number = r.u32()?.swap_bytes();
    match r.rest().is_empty() {
        true => Ok((rest.slice(..size_of::<u64>()), number)),
        false => Err(DecodeError::Invalid { what: "bytes of a page's key", value: rest.len() as u64 }),
    }
}

/// A number, and behind it a name of up to any length.
fn named(prefix: u8, id: u64, name: &[u8]) -> Bytes {
    key_of(1 + size_of::<u64>() + name.len(), prefix, |w| {
        ascending(w, id);
        w.raw(name);
    })
}

pub(crate) fn omap_key(id: u64, name: &[u8]) -> Bytes {
    named(prefix::OMAP, id, name)
}

/// Where the entries of an omap begin.
pub(crate) fn omap_prefix(omap: u64) -> Bytes {
    named(prefix::OMAP, omap, b"")
}

/// Says that a copy does not have this key.
pub(crate) fn hidden_key(copy: u64, name: &[u8]) -> Bytes {
    named(prefix::HIDDEN, copy, name)
}

/// Where the hidden keys of a copy begin.
pub(crate) fn hidden_prefix(copy: u64) -> Bytes {
    named(prefix::HIDDEN, copy, b"")
}

/// Of the omap that is the copy.
pub(crate) fn copy_key(copy: u64) -> Bytes {
    named(prefix::COPY, copy, b"")
}

pub(crate) fn free_key(shard: u32) -> Bytes {
    key(prefix::FREE, |w| ascending(w, shard.into()))
}

pub(crate) fn name_prefix(space: &Keyspace) -> Bytes {
    space.begin(64, (prefix::NAME, prefix::SPACE_NAME), |_| ())
}

/// A string followed by an end, so that strings sort as themselves and none is the beginning of another.
fn ordered(w: &mut Writer, text: &[u8]) {
    // The end of each piece but the last is a zero of the text.
    let mut pieces = text.split(|byte| *byte == 0);
    w.raw(pieces.next().unwrap_or_default());
    for piece in pieces {
        w.raw(&[0, 1]);
        w.raw(piece);
    }
    w.raw(&[0, 0]);
}

/// Key of an object's name: names of a collection sort as [`HObject`]s do.
pub(crate) fn name_key(space: &Keyspace, name: &HObject) -> Bytes {
    let text = name.namespace.len() + name.name.len().max(name.key.len()) + name.name.len();
    space.begin(64 + text, (prefix::NAME, prefix::SPACE_NAME), |w| {
        w.u8(u8::from(name.max));
        // The sign inverted: negative pools first.
        ascending(w, name.pool.cast_unsigned() ^ (1 << 63));
        ascending(w, u64::from(name.bitwise_key()));
        ordered(w, &name.namespace);
        ordered(w, if name.key.is_empty() { &name.name } else { &name.key });
        ordered(w, &name.name);
        ascending(w, name.snap.0);
    })
}

pub(crate) fn encode_name(id: u64, name: &HObject) -> Bytes {
    let mut w = Writer::with_capacity(64);
    w.u64(id);
    w.put(name);
    w.finish()
}

pub(crate) fn decode_name(value: Bytes) -> Result<(u64, HObject), DecodeError> {
    let mut r = Reader::new(value);
    Ok((r.u64()?, r.get()?))
}

/// The number in a name's value.
pub(crate) fn decode_name_id(value: &Bytes) -> Result<u64, DecodeError> {
    Reader::new(value.clone()).u64()
}

/// Calls `visit` with every pair under a prefix, the key without it.
pub(crate) fn scan<E: From<KvError>>(
    kv: &dyn KvStore,
    prefix: &[u8],
    mut visit: impl FnMut(Bytes, Bytes) -> Result<(), E>,
) -> Result<(), E> {
    let end = end_of_prefix(prefix).unwrap_or_default();
    let mut last: Option<Bytes> = None;
    loop {
        let start = last.as_deref().map_or(Bound::Included(prefix), Bound::Excluded);
        let page: Vec<Pair> = kv.scan(start, Bound::Excluded(&end), PAGE_PAIRS)?;
        let full = page.len() == PAGE_PAIRS;
        last = page.last().map(|(key, _)| key.clone());
        for (key, value) in page {
            visit(key.slice(prefix.len()..), value)?;
        }
        if !full {
            return Ok(());
        }
    }
}

/// A collection as it is in keys.
pub(crate) fn decode_spg(rest: Bytes) -> Result<SpgId, DecodeError> {
    Reader::new(rest).get()
}

/// A shard of the free map and its number.
pub(crate) fn decode_free(rest: Bytes, value: Bytes) -> Result<(u32, FreeMapShard), DecodeError> {
    let nth = decode_number(rest)?;
    let end = DEVICE_BLOCKS_MAX / u64::from(FREE_MAP_SHARD_BLOCKS);
    let bounded = u32::try_from(nth).ok().filter(|nth| u64::from(*nth) < end);
    let nth = bounded.ok_or(DecodeError::Invalid { what: "shard of the free map", value: nth })?;
    Ok((nth, FreeMapShard::decode(value)?))
}

/// A number as it is in keys.
pub(crate) fn decode_number(rest: Bytes) -> Result<u64, DecodeError> {
    read_ascending(&mut Reader::new(rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{PgId, SnapId};

    #[test]
    fn a_partition_is_read_back_and_damage_noticed() {
        let record = |slabs: &[u32]| PartitionRecord { number: 1, partitions: 3, slabs: slabs.to_vec() };
        let bytes = record(&[0, 2, 7]).encode();
        assert_eq!(PartitionRecord::decode(bytes.clone()), Ok(record(&[0, 2, 7])));
        assert!(PartitionRecord::decode(bytes.slice(..bytes.len() - 1)).is_err());
        for damaged in [&[2, 0][..], &[2, 2]] {
            assert!(PartitionRecord::decode(record(damaged).encode()).is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn names_sort_as_objects_do() {
        let mut objects = vec![HObject::MIN, HObject::max_value()];
        for text in ["", "a", "a\0", "a\0b", "ab", "b"] {
            for key in ["", "k", "k\0"] {
                for namespace in ["", "n", "n\0\0"] {
                    for (pool, hash) in [(-2, 1), (1, 1), (1, 0x8000_0000), (7, 2)] {
                        let head = HObject::head(pool, namespace.into(), key.into(), text.into());
                        let head = HObject { hash, ..head };
                        objects.extend([head.with_snap(SnapId(4)), head]);
                    }
                }
            }
        }
        objects.sort();
        let at = SpgId::replicated(PgId::new(3, 1));
        let keys: Vec<Bytes> = objects.iter().map(|object| name_key(&at.into(), object)).collect();
        assert!(keys.is_sorted());
        let numbered: Vec<Bytes> =
            objects.iter().map(|object| name_key(&Keyspace { at, number: 7 }, object)).collect();
        assert!(numbered.is_sorted() && numbered.iter().all(|key| !keys.contains(key)));
        let rest = numbered[0].slice(1..);
        assert_eq!(Keyspace::decode(prefix::SPACE_NAME, rest), Ok(Keyspace { at, number: 7 }));
        let pairs = objects.windows(2).zip(keys.windows(2));
        assert!(pairs.into_iter().all(|(objects, keys)| (objects[0] == objects[1]) == (keys[0] == keys[1])));
        let (id, back) = decode_name(encode_name(9, &objects[5])).expect("our own bytes");
        assert_eq!((id, &back), (9, &objects[5]));
    }
}
