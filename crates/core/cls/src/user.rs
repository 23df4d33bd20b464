//! Class `user`: the buckets of a radosgw user, and what they hold in total.
//! Formats: Ceph `src/cls/user/cls_user_types.h` and `cls_user_ops.h`; behaviour measured at v16.2.15.

use crate::keys::{all, output, stored};
use crate::method::{Method, done, fail, read, write};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Errno, UTime};

pub(crate) static METHODS: &[Method] = &[
    write("set_buckets_info", set_buckets_info),
    write("complete_stats_sync", complete_stats_sync),
    write("remove_bucket", remove_bucket),
    read("list_buckets", list_buckets),
    read("get_header", get_header),
    write("reset_user_stats", reset_user_stats),
    write("reset_user_stats2", reset_user_stats2),
];

/// Entries that one call lists or counts.
const ENTRIES_MAX: usize = 1000;

/// `cls_user_stats`
#[derive(Clone, Copy, Default)]
struct Stats {
    entries: u64,
    bytes: u64,
    bytes_rounded: u64,
}

impl Stats {
    fn add(&mut self, other: Self) {
        self.entries = self.entries.wrapping_add(other.entries);
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.bytes_rounded = self.bytes_rounded.wrapping_add(other.bytes_rounded);
    }

    fn subtract(&mut self, other: Self) {
        self.entries = self.entries.wrapping_sub(other.entries);
        self.bytes = self.bytes.wrapping_sub(other.bytes);
        self.bytes_rounded = self.bytes_rounded.wrapping_sub(other.bytes_rounded);
    }
}

impl Encode for Stats {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u64(self.entries);
            w.u64(self.bytes);
            w.u64(self.bytes_rounded);
        });
    }
}

impl Decode for Stats {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_user_stats", 1, |_, r| {
            Ok(Self { entries: r.u64()?, bytes: r.u64()?, bytes_rounded: r.u64()? })
        })
    }
}

/// `cls_user_header`, in the omap header.
#[derive(Default)]
struct Header {
    stats: Stats,
    synced: UTime,
    updated: UTime,
}

impl Encode for Header {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.stats);
            w.put(&self.synced);
            w.put(&self.updated);
        });
    }
}

impl Decode for Header {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_user_header", 1, |_, r| {
            Ok(Self { stats: r.get()?, synced: r.get()?, updated: r.get()? })
        })
    }
}

impl Header {
    fn load(cx: &dyn ClassCx) -> Result<Self, Fault> {
        let bytes = cx.omap_header();
        if bytes.is_empty() { Ok(Self::default()) } else { stored(bytes) }
    }

    fn save(&self, cx: &mut dyn ClassCx) {
        cx.omap_set_header(self.to_bytes());
    }
}

/// `cls_user_bucket`: its name, and all of it as it came.
#[derive(Clone)]
struct Bucket {
    name: ByteStr,
    whole: Bytes,
}

impl Decode for Bucket {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let (before, left) = (r.rest(), r.left());
        let name = r.envelope("cls_user_bucket", 9, |_, r| r.str())?;
        Ok(Self { name, whole: before.slice(..left - r.left()) })
    }
}

/// `cls_user_bucket_entry`
#[derive(Clone)]
struct Entry {
    bucket: Bucket,
    stats: Stats,
    /// The header's total counts it.
    synced: bool,
    created: UTime,
}

impl Encode for Entry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(9, 5, |w| {
            w.str("");
            w.u64(self.stats.bytes);
            w.u32(self.created.sec);
            w.u64(self.stats.entries);
            w.raw(&self.bucket.whole);
            w.u64(self.stats.bytes_rounded);
            w.bool(self.synced);
            w.put(&self.created);
        });
    }
}

impl Decode for Entry {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_user_bucket_entry", 9, |version, r| {
            r.str()?;
            let (bytes, created_sec, entries) = (r.u64()?, r.u32()?, r.u64()?);
            let (bucket, bytes_rounded) = (r.get()?, r.u64()?);
            let synced = version >= 6 && r.bool()?;
            let created = if version >= 7 { r.get()? } else { UTime { sec: created_sec, nsec: 0 } };
            Ok(Self { bucket, stats: Stats { entries, bytes, bytes_rounded }, synced, created })
        })
    }
}

fn find(cx: &dyn ClassCx, name: &ByteStr) -> Result<Option<Entry>, Fault> {
    if name.is_empty() {
        return fail(Errno::EINVAL);
    }
    cx.omap_value(name).map(stored).transpose()
}

/// `list<entry>, bool add, utime`: adds buckets, or updates what those that are there hold.
fn set_buckets_info(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (entries, add, time) = Reader::new(bytes).envelope("cls_user_set_buckets_op", 1, |_, r| {
        Ok((r.get::<Vec<Entry>>()?, r.bool()?, r.get::<UTime>()?))
    })?;
    let mut header = Header::load(cx)?;
    for update in entries {
        let (mut entry, stats) = match find(cx, &update.bucket.name)? {
            None if !add => continue, // removed in between
            None => (update.clone(), update.stats),
            // Made again: it still holds what it held.
            Some(old) if add => (Entry { created: update.created, ..old.clone() }, old.stats),
            Some(old) => (old, update.stats),
        };
        if entry.synced {
            header.stats.subtract(entry.stats);
        }
        entry.stats = stats;
        entry.synced = true;
        header.stats.add(entry.stats);
        cx.omap_set(vec![(update.bucket.name, entry.to_bytes())]);
    }
    header.updated = header.updated.max(time);
    header.save(cx);
    done()
}

fn time_input(bytes: Bytes) -> Result<UTime, Fault> {
    Ok(Reader::new(bytes).envelope("cls_user_complete_stats_sync_op", 1, |_, r| r.get())?)
}

fn complete_stats_sync(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let time = time_input(bytes)?;
    let mut header = Header::load(cx)?;
    header.synced = header.synced.max(time);
    header.save(cx);
    done()
}

fn remove_bucket(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let bucket: Bucket = Reader::new(bytes).envelope("cls_user_remove_bucket_op", 1, |_, r| r.get())?;
    let mut header = Header::load(cx)?;
    let Some(entry) = find(cx, &bucket.name)? else { return done() };
    if entry.synced {
        header.stats.subtract(entry.stats);
    }
    cx.omap_remove(vec![bucket.name]);
    header.save(cx);
    done()
}

/// `str after, s32 max, str end`
fn list_buckets(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (after, count_max, end) =
        Reader::new(bytes).envelope("cls_user_list_buckets_op", 2, |version, r| {
            Ok((r.str()?, r.i32()?, if version >= 2 { r.str()? } else { ByteStr::EMPTY }))
        })?;
    let count_max = usize::try_from(count_max).unwrap_or(ENTRIES_MAX).min(ENTRIES_MAX);
    let (mut found, mut more) = cx.omap_after(&after, b"", count_max);
    let marker = found.last().map(|(name, _)| name.clone()).unwrap_or_default();
    let bound = found.iter().position(|(name, _)| !end.is_empty() && *name >= end);
    if let Some(index) = bound {
        found.truncate(index);
        more = false;
    }
    let marker = if more { marker } else { ByteStr::EMPTY };
    output(|w| {
        w.envelope(1, 1, |w| {
            w.count(found.len());
            found.iter().for_each(|(_, entry)| w.raw(entry));
            w.put(&marker);
            w.bool(more);
        });
    })
}

fn get_header(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    Reader::new(bytes).envelope("cls_user_get_header_op", 1, |_, _| Ok(()))?;
    let header = Header::load(cx)?;
    output(|w| w.envelope(1, 1, |w| w.put(&header)))
}

/// Counts all entries anew.
fn reset_user_stats(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let updated = time_input(bytes)?;
    let mut header = Header { updated, ..Header::default() };
    for (_, entry) in all(cx, "") {
        header.stats.add(stored::<Entry>(entry)?.stats);
    }
    header.save(cx);
    done()
}

/// The same in steps: `utime, str after, stats so far` -> `str marker, stats so far, bool truncated`.
fn reset_user_stats2(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (updated, after, mut stats) =
        Reader::new(bytes).envelope("cls_user_reset_stats2_op", 1, |_, r| {
            Ok((r.get::<UTime>()?, r.str()?, r.get::<Stats>()?))
        })?;
    let (found, truncated) = cx.omap_after(&after, b"", ENTRIES_MAX);
    let marker = found.last().map(|(name, _)| name.clone()).unwrap_or_default();
    for (_, entry) in found {
        stats.add(stored::<Entry>(entry)?.stats);
    }
    if !truncated {
        Header { stats, updated, ..Header::default() }.save(cx);
    }
    output(|w| {
        w.envelope(1, 1, |w| {
            w.put(&marker);
            w.put(&stats);
            w.bool(truncated);
        });
    })
}
