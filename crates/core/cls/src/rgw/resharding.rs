//! Resharding of buckets: the mark in a shard that its bucket gets another number of shards, and the queue of buckets that
//! wait for that. Formats: Ceph `src/cls/rgw/cls_rgw_types.h` and `cls_rgw_ops.h`; behaviour measured at v16.2.15.

use super::bucket_log::empty_input;
use super::header::{Header, Resharding};
use crate::keys::{input, output, stored, values};
use crate::method::{done, fail};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Errno, UTime};

/// Entries that one call lists.
const ENTRIES_MAX: u32 = 1000;

/// Sets the mark.
pub(super) fn set(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let resharding = Reader::new(bytes).envelope("cls_rgw_set_bucket_resharding_op", 1, |_, r| r.get())?;
    Header { resharding, ..Header::load(cx)? }.save(cx);
    done()
}

/// Removes the mark. The number of shards stays.
pub(super) fn clear(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    empty_input(bytes)?;
    let header = Header::load(cx)?;
    let resharding = Resharding { shards: header.resharding.shards, ..Resharding::default() };
    Header { resharding, ..header }.save(cx);
    done()
}

/// `s32 result`: fails with that while the mark is set; stands before changes of the index in their messages.
pub(super) fn guard(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let result = Reader::new(bytes).envelope("cls_rgw_guard_bucket_resharding_op", 1, |_, r| r.i32())?;
    if Header::load(cx)?.resharding.status == 0 {
        return done();
    }
    if result < 0 {
        return fail(Errno(result.wrapping_neg()));
    }
    cx.set_result(result);
    done()
}

/// The mark, with the new instance and its shards.
pub(super) fn get(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    empty_input(bytes)?;
    let header = Header::load(cx)?;
    output(|w| w.envelope(1, 1, |w| w.put(&header.resharding)))
}

/// `cls_rgw_reshard_entry`: a bucket in the queue.
struct Entry {
    time: UTime,
    tenant: ByteStr,
    bucket: ByteStr,
    bucket_id: ByteStr,
    new_instance: ByteStr,
    shards: u32,
    new_shards: u32,
}

impl Encode for Entry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.time);
            w.put(&self.tenant);
            w.put(&self.bucket);
            w.put(&self.bucket_id);
            w.put(&self.new_instance);
            w.u32(self.shards);
            w.u32(self.new_shards);
        });
    }
}

impl Decode for Entry {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_rgw_reshard_entry", 1, |_, r| {
            Ok(Self {
                time: r.get()?,
                tenant: r.get()?,
                bucket: r.get()?,
                bucket_id: r.get()?,
                new_instance: r.get()?,
                shards: r.u32()?,
                new_shards: r.u32()?,
            })
        })
    }
}

fn entry_key(tenant: &ByteStr, bucket: &ByteStr) -> ByteStr {
    ByteStr::from([tenant.as_bytes(), b":", bucket.as_bytes()].concat())
}

fn find(cx: &dyn ClassCx, key: &ByteStr) -> Result<Entry, Fault> {
    stored(cx.omap_value(key).ok_or(Fault::Errno(Errno::ENOENT))?)
}

/// Puts a bucket into the queue, or replaces what stands there of it.
pub(super) fn add(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let entry: Entry = Reader::new(bytes).envelope("cls_rgw_reshard_add_op", 1, |_, r| r.get())?;
    cx.omap_set(vec![(entry_key(&entry.tenant, &entry.bucket), entry.to_bytes())]);
    done()
}

/// `u32 max, str after`
pub(super) fn list(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (count_max, after) =
        Reader::new(bytes).envelope("cls_rgw_reshard_list_op", 1, |_, r| Ok((r.u32()?, r.str()?)))?;
    let page_max = if count_max == 0 { ENTRIES_MAX } else { count_max.min(ENTRIES_MAX) };
    let (found, more) = values(cx, &after, b"", page_max.into());
    let shown = found.into_iter().take(count_max as usize);
    let entries: Vec<Entry> = shown.map(|(_, value)| stored(value)).collect::<Result<_, _>>()?;
    output(|w| {
        w.envelope(1, 1, |w| {
            w.put(&entries);
            w.bool(more);
        });
    })
}

/// An entry of which tenant and bucket are given.
pub(super) fn get_entry(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let asked: Entry = Reader::new(bytes).envelope("cls_rgw_reshard_get_op", 1, |_, r| r.get())?;
    let entry = find(cx, &entry_key(&asked.tenant, &asked.bucket))?;
    output(|w| w.envelope(1, 1, |w| w.put(&entry)))
}

/// `cls_rgw_reshard_remove_op`
struct RemoveOp {
    tenant: ByteStr,
    bucket: ByteStr,
    /// Only of this bucket instance; empty for any.
    bucket_id: ByteStr,
}

impl Decode for RemoveOp {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_rgw_reshard_remove_op", 1, |_, r| {
            Ok(Self { tenant: r.get()?, bucket: r.get()?, bucket_id: r.get()? })
        })
    }
}

pub(super) fn remove(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let op: RemoveOp = input(bytes)?;
    let key = entry_key(&op.tenant, &op.bucket);
    let entry = find(cx, &key)?;
    if op.bucket_id.is_empty() || op.bucket_id == entry.bucket_id {
        cx.omap_remove(vec![key]);
    }
    done()
}
