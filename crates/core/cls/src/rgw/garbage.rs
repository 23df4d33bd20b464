//! Garbage: chains of objects that are to be removed some time after their last reader may have begun. These methods keep
//! them in the omap, as radosgw did before class `rgw_gc`; it still looks there.
//! Formats: Ceph `src/cls/rgw/cls_rgw_types.h` and `cls_rgw_ops.h`; behaviour measured at v16.2.15.
//!
//! Each chain lies under two keys: `0_<tag>` and `1_<seconds>.<nanoseconds>` of its time.

use super::entry::Key;
use crate::keys::{input, output, stored, values};
use crate::method::done;
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Errno, UTime};
use std::time::Duration;

const TAG_PREFIX: &[u8] = b"0_";
const TIME_PREFIX: &[u8] = b"1_";
/// Chains that one call lists, unless the client says otherwise.
pub(crate) const LISTED_USUAL: u32 = 128;

/// `cls_rgw_obj`
#[derive(Clone)]
struct Object {
    pool: ByteStr,
    locator: ByteStr,
    key: Key,
}

impl Encode for Object {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.put(&self.pool);
            w.put(&self.key.name);
            w.put(&self.locator);
            w.put(&self.key);
        });
    }
}

impl Decode for Object {
    const MIN_BYTES: usize = 18;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_rgw_obj", 2, |version, r| {
            let (pool, name, locator) = (r.get()?, r.get()?, r.get()?);
            let key = if version >= 2 { r.get()? } else { Key::plain(name) };
            Ok(Self { pool, locator, key })
        })
    }
}

/// `cls_rgw_gc_obj_info`
#[derive(Clone)]
pub(crate) struct Chain {
    pub(crate) tag: ByteStr,
    objects: Vec<Object>,
    /// When they may be removed.
    pub(crate) time: UTime,
}

impl Encode for Chain {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.tag);
            w.envelope(1, 1, |w| w.put(&self.objects));
            w.put(&self.time);
        });
    }
}

impl Decode for Chain {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_rgw_gc_obj_info", 1, |_, r| {
            let tag = r.get()?;
            let objects = r.envelope("cls_rgw_obj_chain", 1, |_, r| r.get())?;
            Ok(Self { tag, objects, time: r.get()? })
        })
    }
}

/// `u32 seconds, chain`: the chain, with the time after so many seconds from now.
pub(crate) fn chain_input(cx: &dyn ClassCx, bytes: Bytes) -> Result<Chain, Fault> {
    let (delay_s, mut chain) = Reader::new(bytes)
        .envelope("cls_rgw_gc_set_entry_op", 1, |_, r| Ok((r.u32()?, r.get::<Chain>()?)))?;
    chain.time = cx.now().after(Duration::from_secs(delay_s.into()));
    Ok(chain)
}

/// `str after, u32 max, bool expired_only` of both ways to keep chains.
pub(crate) struct ListOp {
    pub(crate) after: ByteStr,
    pub(crate) count_max: u32,
    pub(crate) expired_only: bool,
}

impl Decode for ListOp {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_rgw_gc_list_op", 2, |version, r| {
            let (after, count_max) = (r.get()?, r.u32()?);
            let expired_only = if version >= 2 { r.bool()? } else { true };
            let count_max = if count_max == 0 { LISTED_USUAL } else { count_max };
            Ok(Self { after, count_max, expired_only })
        })
    }
}

/// `cls_rgw_gc_list_ret`
pub(crate) fn list_output(chains: &[Chain], marker: &ByteStr, more: bool) -> MethodResult {
    output(|w| {
        w.envelope(2, 1, |w| {
            w.put(chains);
            w.put(marker);
            w.bool(more);
        });
    })
}

fn tag_key(tag: &[u8]) -> ByteStr {
    ByteStr::from([TAG_PREFIX, tag].concat())
}

fn time_key(time: UTime) -> ByteStr {
    let text = format!("{:011}.{:09}", time.sec, time.nsec);
    ByteStr::from([TIME_PREFIX, text.as_bytes()].concat())
}

fn find(cx: &dyn ClassCx, tag: &ByteStr) -> Result<Option<Chain>, Fault> {
    cx.omap_value(&tag_key(tag)).map(stored).transpose()
}

fn store(cx: &mut dyn ClassCx, chain: &Chain) {
    if let Ok(Some(old)) = find(cx, &chain.tag) {
        cx.omap_remove(vec![time_key(old.time)]);
    }
    let value = chain.to_bytes();
    cx.omap_set(vec![(tag_key(&chain.tag), value.clone())]);
    cx.omap_set(vec![(time_key(chain.time), value)]);
}

pub(super) fn set_entry(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let chain = chain_input(cx, bytes)?;
    store(cx, &chain);
    done()
}

/// `u32 seconds, str tag`: puts a chain off, for a reader that still needs it.
pub(super) fn defer_entry(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (delay_s, tag) =
        Reader::new(bytes).envelope("cls_rgw_gc_defer_entry_op", 1, |_, r| Ok((r.u32()?, r.str()?)))?;
    let mut chain = find(cx, &tag)?.ok_or(Fault::Errno(Errno::ENOENT))?;
    chain.time = cx.now().after(Duration::from_secs(delay_s.into()));
    store(cx, &chain);
    done()
}

pub(super) fn list(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let op: ListOp = input(bytes)?;
    let after = if op.after.is_empty() { ByteStr::from(TIME_PREFIX) } else { op.after };
    let end = time_key(cx.now());
    let (page, mut more) = values(cx, &after, b"", op.count_max.into());
    let mut chains = Vec::new();
    let mut marker = ByteStr::EMPTY;
    for (key, value) in page {
        if (op.expired_only && key >= end) || !key.starts_with(TIME_PREFIX) {
            more = false;
            break;
        }
        chains.push(stored(value)?);
        marker = key;
    }
    let marker = if more { marker } else { ByteStr::EMPTY };
    list_output(&chains, &marker, more)
}

/// `list<str tag>`
pub(super) fn remove(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let tags: Vec<ByteStr> = Reader::new(bytes).envelope("cls_rgw_gc_remove_op", 1, |_, r| r.get())?;
    for tag in tags {
        if let Some(chain) = find(cx, &tag)? {
            cx.omap_remove(vec![time_key(chain.time), tag_key(&tag)]);
        }
    }
    done()
}
