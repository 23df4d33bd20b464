//! Keys and values in the KV store. Drawn in `docs/formats/blockstore.md`.

use crate::alloc::Run;
use crate::error::OpenError;
use crate::onode::{Onode, Slot};
use crate::superblock::Superblock;
use crate::table::{LOG_CHUNK, Space, Table};
use crate::wal::WalPosition;
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_kv::{KvStore, Pair, end_of_prefix};
use nacre_types::{Eversion, HObject, SpgId};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

const VERSION: u8 = 1;
/// Pairs read at once when a store is opened.
const PAGE_PAIRS: usize = 4096;

pub(crate) mod prefix {
    pub(crate) const STATE: u8 = b's';
    pub(crate) const COLLECTION: u8 = b'c';
    pub(crate) const LOG: u8 = b'l';
    pub(crate) const META: u8 = b'm';
    pub(crate) const OBJECT: u8 = b'o';
    pub(crate) const OMAP: u8 = b'v';
}

/// What a checkpoint says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct State {
    pub(crate) id: [u8; 16],
    /// Where replay begins.
    pub(crate) wal: WalPosition,
    pub(crate) next_id: u64,
}

impl State {
    pub(crate) fn encode(&self) -> Bytes {
        let mut w = Writer::new();
        w.envelope(VERSION, 1, |w| {
            w.raw(&self.id);
            w.u64(self.wal.position);
            w.u64(self.wal.seq);
            w.u64(self.wal.mount);
            w.u64(self.next_id);
        });
        w.finish()
    }

    fn decode(value: Bytes) -> Result<Self, DecodeError> {
        Reader::new(value).envelope("store state", VERSION, |_, r| {
            let id = r.array()?;
            let wal = WalPosition { position: r.u64()?, seq: r.u64()?, mount: r.u64()? };
            Ok(Self { id, wal, next_id: r.u64()? })
        })
    }

    pub(crate) fn load(kv: &dyn KvStore, superblock: &Superblock) -> Result<Self, OpenError> {
        let value = kv.get(&state_key())?.ok_or(OpenError::ForeignMetadata)?;
        let state = Self::decode(value)?;
        if state.id == superblock.id { Ok(state) } else { Err(OpenError::ForeignMetadata) }
    }
}

fn key(prefix: u8, body: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::with_capacity(64);
    w.u8(prefix);
    body(&mut w);
    w.finish()
}

/// A number, most significant byte first, so that keys sort by it.
fn ascending(w: &mut Writer, number: u64) {
    w.u64(number.swap_bytes());
}

pub(crate) fn read_ascending(r: &mut Reader) -> Result<u64, DecodeError> {
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

/// The entries of a chunk; `None` when there are none.
pub(crate) fn encode_log(log: &BTreeMap<Eversion, Bytes>, chunk: Eversion) -> Option<Bytes> {
    let last = Eversion::new(chunk.epoch, chunk.version.saturating_add(LOG_CHUNK - 1));
    let entries: Vec<(&Eversion, &Bytes)> = log.range(chunk..=last).collect();
    if entries.is_empty() {
        return None;
    }
    let mut w = Writer::new();
    w.envelope(VERSION, 1, |w| {
        w.count(entries.len());
        for (version, entry) in entries {
            w.u64(version.version);
            w.blob(entry);
        }
    });
    Some(w.finish())
}

fn decode_log(epoch: u32, value: Bytes, log: &mut BTreeMap<Eversion, Bytes>) -> Result<(), DecodeError> {
    Reader::new(value).envelope("log chunk", VERSION, |_, r| {
        for _ in 0..r.count(12)? {
            log.insert(Eversion::new(epoch, r.u64()?), r.blob()?);
        }
        Ok(())
    })
}

/// Whether a chunk of a log can be understood; the key is without its prefix.
pub(crate) fn check_log_pair(key: Bytes, value: Bytes) -> Result<(), DecodeError> {
    let mut r = Reader::new(key);
    let (_at, epoch) = (r.get::<SpgId>()?, read_ascending(&mut r)?);
    let epoch = u32::try_from(epoch).map_err(|_| DecodeError::Invalid { what: "log epoch", value: epoch })?;
    decode_log(epoch, value, &mut BTreeMap::new())
}

pub(crate) fn meta_key(at: &SpgId, name: &ByteStr) -> Bytes {
    key(prefix::META, |w| {
        w.put(at);
        w.raw(name);
    })
}

pub(crate) fn object_key(id: u64) -> Bytes {
    key(prefix::OBJECT, |w| ascending(w, id))
}

pub(crate) fn omap_key(id: u64, name: &ByteStr) -> Bytes {
    key(prefix::OMAP, |w| {
        ascending(w, id);
        w.raw(name);
    })
}

/// Calls `visit` with every pair under a prefix, the key without it.
pub(crate) fn scan(
    kv: &dyn KvStore,
    prefix: u8,
    mut visit: impl FnMut(Bytes, Bytes) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    let end = end_of_prefix(&[prefix]).unwrap_or_default();
    let mut last: Option<Bytes> = None;
    loop {
        let start = last.as_deref().map_or(Bound::Included(std::slice::from_ref(&prefix)), Bound::Excluded);
        let page: Vec<Pair> = kv.scan(start, Bound::Excluded(&end), PAGE_PAIRS)?;
        let full = page.len() == PAGE_PAIRS;
        last = page.last().map(|(key, _)| key.clone());
        for (key, value) in page {
            visit(key.slice(1..), value)?;
        }
        if !full {
            return Ok(());
        }
    }
}

/// Reads everything a checkpoint wrote. In this version all of it lives in memory while the store is open.
pub(crate) fn load(kv: &dyn KvStore, area: Run, next_id: u64) -> Result<Table, OpenError> {
    let mut table = Table::new(area);
    table.next_id = next_id;
    scan(kv, prefix::COLLECTION, |key, _| {
        table.collections.entry(Reader::new(key).get::<SpgId>()?).or_default();
        Ok(())
    })?;
    load_logs(kv, &mut table)?;
    load_objects(kv, &mut table)?;
    Ok(table)
}

fn load_logs(kv: &dyn KvStore, table: &mut Table) -> Result<(), OpenError> {
    scan(kv, prefix::LOG, |key, value| {
        let mut r = Reader::new(key);
        let (at, epoch) = (r.get::<SpgId>()?, read_ascending(&mut r)?);
        let epoch =
            u32::try_from(epoch).map_err(|_| OpenError::Inconsistent { what: "log epoch", value: epoch })?;
        Ok(decode_log(epoch, value, &mut table.collections.entry(at).or_default().log)?)
    })?;
    scan(kv, prefix::META, |key, value| {
        let mut r = Reader::new(key);
        let at = r.get::<SpgId>()?;
        table.collections.entry(at).or_default().meta.insert(r.rest().into(), value);
        Ok(())
    })
}

fn load_objects(kv: &dyn KvStore, table: &mut Table) -> Result<(), OpenError> {
    let mut omaps = load_omaps(kv)?;
    let next_id = table.next_id;
    scan(kv, prefix::OBJECT, |key, value| {
        let id = read_ascending(&mut Reader::new(key))?;
        let (at, name, mut onode) = Onode::decode(id, value)?;
        if id >= next_id {
            return Err(OpenError::Inconsistent { what: "object number", value: id });
        }
        onode.omap = Arc::new(omaps.remove(&id).unwrap_or_default());
        adopt(table, at, name, onode)
    })?;
    match omaps.first_key_value() {
        Some((id, _)) => Err(OpenError::Inconsistent { what: "omap of no object", value: *id }),
        None => Ok(()),
    }
}

type Omaps = BTreeMap<u64, BTreeMap<ByteStr, Bytes>>;

fn load_omaps(kv: &dyn KvStore) -> Result<Omaps, OpenError> {
    let mut omaps = Omaps::new();
    scan(kv, prefix::OMAP, |key, value| {
        let mut r = Reader::new(key);
        let id = read_ascending(&mut r)?;
        omaps.entry(id).or_default().insert(r.rest().into(), value);
        Ok(())
    })?;
    Ok(omaps)
}

fn adopt(table: &mut Table, at: SpgId, name: HObject, onode: Onode) -> Result<(), OpenError> {
    for slot in onode.blocks.values() {
        adopt_slot(&mut table.space, slot)?;
    }
    let entries: usize = onode.omap.iter().map(|(key, value)| key.len() + value.len()).sum();
    table.omap_bytes += (entries + onode.omap_header.len()) as u64;
    let id = onode.id;
    match table.collections.entry(at).or_default().objects.insert(name, Arc::new(onode)) {
        Some(_) => Err(OpenError::Inconsistent { what: "two objects of one name, the second", value: id }),
        None => Ok(()),
    }
}

fn adopt_slot(space: &mut Space, slot: &Slot) -> Result<(), OpenError> {
    space.add_slot(slot);
    let Some(device) = slot.device() else { return Ok(()) };
    let (area, block) = (space.alloc.area(), device.block);
    if !area.blocks().contains(&block) {
        return Err(OpenError::Inconsistent { what: "block outside the data area", value: block.into() });
    }
    if !space.alloc.reserve(Run { start: block, count: 1 }) {
        space.alloc.share(block);
    }
    Ok(())
}
