//! The usage log: what users sent, received and asked for, by hour and bucket.
//! Formats: Ceph `src/cls/rgw/cls_rgw_types.h` and `cls_rgw_ops.h`; behaviour measured at v16.2.15.
//!
//! Each record lies under two keys: by time (`<hour>_<user>_<bucket>`) and by user (`<user>_<hour>_<bucket>`).

use crate::keys::{input, output, values};
use crate::method::{done, fail};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::Errno;
use std::collections::BTreeMap;

/// Records that one call reads, unless the client says otherwise, and trims.
const READ_MAX: u32 = 1000;
const TRIMMED_MAX: u32 = 1000;

/// `rgw_usage_data`
#[derive(Clone, Copy, Default)]
struct Counts {
    bytes_sent: u64,
    bytes_received: u64,
    ops: u64,
    ops_succeeded: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.bytes_sent = self.bytes_sent.wrapping_add(other.bytes_sent);
        self.bytes_received = self.bytes_received.wrapping_add(other.bytes_received);
        self.ops = self.ops.wrapping_add(other.ops);
        self.ops_succeeded = self.ops_succeeded.wrapping_add(other.ops_succeeded);
    }

    fn put(&self, w: &mut Writer) {
        w.u64(self.bytes_sent);
        w.u64(self.bytes_received);
        w.u64(self.ops);
        w.u64(self.ops_succeeded);
    }

    fn get(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { bytes_sent: r.u64()?, bytes_received: r.u64()?, ops: r.u64()?, ops_succeeded: r.u64()? })
    }
}

impl Encode for Counts {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| self.put(w));
    }
}

impl Decode for Counts {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rgw_usage_data", 1, |_, r| Self::get(r))
    }
}

/// `rgw_usage_log_entry`
#[derive(Default)]
struct Record {
    owner: ByteStr,
    /// Who is charged; empty when the owner is.
    payer: ByteStr,
    bucket: ByteStr,
    /// Start of the hour, seconds since 1970.
    time_s: u64,
    total: Counts,
    by_category: BTreeMap<ByteStr, Counts>,
}

impl Record {
    fn user(&self) -> &ByteStr {
        if self.payer.is_empty() { &self.owner } else { &self.payer }
    }

    /// Adds what another record counts; an empty one becomes it.
    fn add(&mut self, other: &Self) {
        if self.owner.is_empty() {
            self.owner = other.owner.clone();
            self.bucket = other.bucket.clone();
            self.time_s = other.time_s;
            self.payer = other.payer.clone();
        }
        for (category, counts) in &other.by_category {
            self.by_category.entry(category.clone()).or_default().add(counts);
            self.total.add(counts);
        }
    }
}

impl Encode for Record {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 1, |w| {
            w.put(&self.owner);
            w.put(&self.bucket);
            w.u64(self.time_s);
            self.total.put(w);
            w.put(&self.by_category);
            w.put(&self.payer);
        });
    }
}

impl Decode for Record {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rgw_usage_log_entry", 3, |version, r| {
            let (owner, bucket, time_s, total) = (r.get()?, r.get()?, r.u64()?, Counts::get(r)?);
            let by_category = if version >= 2 { r.get()? } else { BTreeMap::from([(ByteStr::EMPTY, total)]) };
            let payer = if version >= 3 { r.get()? } else { ByteStr::EMPTY };
            Ok(Self { owner, payer, bucket, time_s, total, by_category })
        })
    }
}

fn time_key(time_s: u64, user: &ByteStr, bucket: &ByteStr) -> ByteStr {
    let hour = format!("{time_s:011}_");
    ByteStr::from([hour.as_bytes(), user.as_bytes(), b"_", bucket.as_bytes()].concat())
}

fn user_key(user: &ByteStr, time_s: u64, bucket: &[u8]) -> ByteStr {
    let hour = format!("_{time_s:011}_");
    ByteStr::from([user.as_bytes(), hour.as_bytes(), bucket].concat())
}

/// `list<record>` in an envelope of its own, `str user`
pub(super) fn add(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let records: Vec<Record> = Reader::new(bytes).envelope("rgw_cls_usage_log_add_op", 2, |_, r| {
        r.envelope("rgw_usage_log_info", 1, |_, r| r.get())
    })?;
    for mut record in records {
        let key = time_key(record.time_s, record.user(), &record.bucket);
        if let Some(value) = cx.omap_value(&key) {
            record.add(&input(value)?);
        }
        let value = record.to_bytes();
        let by_user = user_key(record.user(), record.time_s, &record.bucket);
        cx.omap_set(vec![(key, value.clone())]);
        cx.omap_set(vec![(by_user, value)]);
    }
    done()
}

/// Which records are meant.
struct Range {
    from_s: u64,
    to_s: u64,
    /// Empty for all.
    user: ByteStr,
    /// Empty for all.
    bucket: ByteStr,
}

/// Records of a range behind a key.
struct Found {
    records: Vec<Record>,
    /// The last key that was looked at.
    last: ByteStr,
    more: bool,
}

impl Range {
    fn find(&self, cx: &dyn ClassCx, after: ByteStr, count_max: u32) -> Result<Found, Fault> {
        let of_user = [self.user.as_bytes(), b"_"].concat();
        let end = format!("{:011}", self.to_s);
        let is_outside = |key: &[u8]| {
            if self.user.is_empty() { key >= end.as_bytes() } else { !key.starts_with(&of_user) }
        };
        let start = match (after.is_empty(), self.user.is_empty()) {
            (false, _) => after.clone(),
            (true, true) => format!("{:011}", self.from_s).into(),
            (true, false) => user_key(&self.user, self.from_s, b""),
        };
        let (page, more) = values(cx, &start, b"", count_max.into());
        let mut found = Found { records: Vec::new(), last: after, more };
        for (key, value) in page {
            found.last = key;
            if is_outside(&found.last) {
                found.more = false;
                break;
            }
            let record: Record = input(value)?;
            if (!self.bucket.is_empty() && record.bucket != self.bucket) || record.time_s < self.from_s {
                continue;
            }
            if record.time_s >= self.to_s {
                found.more = false;
                break;
            }
            found.records.push(record);
        }
        Ok(found)
    }
}

/// `u64 from, u64 to, str user, str after, u32 max, str bucket`: sums by user and bucket.
pub(super) fn read(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (range, after, count_max) =
        Reader::new(bytes).envelope("rgw_cls_usage_log_read_op", 2, |version, r| {
            let (from_s, to_s, user, after, count_max) = (r.u64()?, r.u64()?, r.get()?, r.str()?, r.u32()?);
            let bucket = if version >= 2 { r.get()? } else { ByteStr::EMPTY };
            Ok((Range { from_s, to_s, user, bucket }, after, count_max))
        })?;
    let found = range.find(cx, after, if count_max == 0 { READ_MAX } else { count_max })?;
    let mut sums: BTreeMap<(ByteStr, ByteStr), Record> = BTreeMap::new();
    for record in &found.records {
        sums.entry((record.user().clone(), record.bucket.clone())).or_default().add(record);
    }
    let last = if found.more { found.last } else { ByteStr::EMPTY };
    output(|w| {
        w.envelope(1, 1, |w| {
            w.count(sums.len());
            for (user_and_bucket, record) in &sums {
                w.envelope(1, 1, |w| w.put(user_and_bucket));
                w.put(record);
            }
            w.bool(found.more);
            w.put(&last);
        });
    })
}

/// `u64 from, u64 to, str user, str bucket`: removes records; clients call until there are none.
pub(super) fn trim(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    if !cx.exists() {
        return fail(Errno::ENOENT);
    }
    let range = Reader::new(bytes).envelope("rgw_cls_usage_log_trim_op", 3, |version, r| {
        let (from_s, to_s, user) = (r.u64()?, r.u64()?, r.get()?);
        let bucket = if version >= 3 { r.get()? } else { ByteStr::EMPTY };
        Ok(Range { from_s, to_s, user, bucket })
    })?;
    let found = range.find(cx, ByteStr::EMPTY, TRIMMED_MAX)?;
    if found.records.is_empty() && !found.more {
        return fail(Errno::ENODATA);
    }
    for Record { owner, time_s, bucket, .. } in found.records {
        cx.omap_remove(vec![time_key(time_s, &owner, &bucket), user_key(&owner, time_s, &bucket)]);
    }
    done()
}

pub(super) fn clear(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    if cx.exists() {
        cx.omap_clear();
    }
    done()
}
