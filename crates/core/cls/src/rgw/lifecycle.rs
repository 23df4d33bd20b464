//! The buckets that have a lifecycle, and how far their processing is.
//! Formats: Ceph `src/cls/rgw/cls_rgw_types.h` and `cls_rgw_ops.h`; behaviour measured at v16.2.15.

use crate::keys::{output, stored, values};
use crate::method::done;
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::Errno;

/// `cls_rgw_lc_entry`
#[derive(Default)]
struct Entry {
    bucket: ByteStr,
    /// Seconds since 1970; when the processing began.
    start: u64,
    status: u32,
}

impl Encode for Entry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.bucket);
            w.u64(self.start);
            w.u32(self.status);
        });
    }
}

impl Decode for Entry {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_rgw_lc_entry", 1, |_, r| {
            Ok(Self { bucket: r.get()?, start: r.u64()?, status: r.u32()? })
        })
    }
}

/// `cls_rgw_lc_obj_head`, in the omap header.
#[derive(Default)]
struct Head {
    /// Seconds since 1970; when the present round began.
    start: u64,
    /// The bucket that is next.
    marker: ByteStr,
}

impl Encode for Head {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u64(self.start);
            w.put(&self.marker);
        });
    }
}

impl Decode for Head {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_rgw_lc_obj_head", 1, |_, r| Ok(Self { start: r.u64()?, marker: r.get()? }))
    }
}

/// An entry, or a pair of bucket and status from clients older than Ceph 16.
fn entry_input(bytes: Bytes) -> Result<Entry, Fault> {
    Ok(Reader::new(bytes).envelope("cls_rgw_lc_set_entry_op", 2, |version, r| {
        if version >= 2 { r.get() } else { Ok(Entry { bucket: r.get()?, start: 0, status: r.u32()? }) }
    })?)
}

fn name_input(bytes: Bytes) -> Result<ByteStr, Fault> {
    Ok(Reader::new(bytes).envelope("cls_rgw_lc_get_entry_op", 1, |_, r| r.str())?)
}

pub(super) fn set_entry(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let entry = entry_input(bytes)?;
    let value = entry.to_bytes();
    cx.omap_set(vec![(entry.bucket, value)]);
    done()
}

pub(super) fn remove_entry(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let entry = entry_input(bytes)?;
    if !cx.exists() {
        return Err(Fault::Errno(Errno::ENOENT));
    }
    cx.omap_remove(vec![entry.bucket]);
    done()
}

/// `str bucket`
pub(super) fn get_entry(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let bucket = name_input(bytes)?;
    let entry: Entry = stored(cx.omap_value(&bucket).ok_or(Fault::Errno(Errno::ENOENT))?)?;
    output(|w| w.envelope(1, 1, |w| w.put(&entry)))
}

/// `str after`: the next entry, or an empty one.
pub(super) fn get_next_entry(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let after = name_input(bytes)?;
    let (found, _) = values(cx, &after, b"", 1);
    let entry: Entry =
        found.into_iter().next().map_or_else(|| Ok(Entry::default()), |(_, value)| stored(value))?;
    output(|w| w.envelope(2, 2, |w| w.put(&entry)))
}

/// `str after, u32 max`. Clients older than Ceph 16 get pairs.
pub(super) fn list_entries(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (client, after, count_max) =
        Reader::new(bytes)
            .envelope("cls_rgw_lc_list_entries_op", 3, |version, r| Ok((version, r.str()?, r.u32()?)))?;
    let (found, more) = values(cx, &after, b"", count_max.into());
    let entries: Vec<Entry> = found.into_iter().map(|(_, value)| stored(value)).collect::<Result<_, _>>()?;
    output(|w| {
        w.envelope(client, 1, |w| {
            if client >= 3 {
                w.put(&entries);
            } else {
                w.count(entries.len());
                for entry in &entries {
                    w.put(&entry.bucket);
                    w.u32(entry.status);
                }
            }
            w.bool(more);
        });
    })
}

pub(super) fn put_head(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let head: Head = Reader::new(bytes).envelope("cls_rgw_lc_put_head_op", 1, |_, r| r.get())?;
    cx.omap_set_header(head.to_bytes());
    done()
}

pub(super) fn get_head(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let header = cx.omap_header();
    let head = if header.is_empty() {
        Head::default()
    } else {
        Head::from_bytes(header).map_err(|_| Fault::Errno(Errno::EINVAL))?
    };
    output(|w| w.envelope(1, 1, |w| w.put(&head)))
}
