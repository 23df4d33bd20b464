//! The entries of a bucket index as they are stored: to copy them to other shards, and to count them anew.
//! Formats: Ceph `src/cls/rgw/cls_rgw_ops.h`; behaviour measured at v16.2.15.

use super::entry::{DirEntry, Key};
use super::header::Header;
use super::index_keys::{
    INSTANCE_PREFIX, LOG_PREFIX, OLH_PREFIX, SPECIAL, instance_key, is_special, object_key, olh_key,
};
use super::olh::Olh;
use crate::keys::{output, stored, values};
use crate::method::{done, fail};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::Errno;

/// Entries that one call lists.
const ENTRIES_MAX: u32 = 1000;

/// `BIIndexType`
mod kind {
    pub(super) const PLAIN: u8 = 1;
    pub(super) const INSTANCE: u8 = 2;
    pub(super) const OLH: u8 = 3;
}

/// `rgw_cls_bi_entry`
struct RawEntry {
    kind: u8,
    place: ByteStr,
    value: Bytes,
}

impl Encode for RawEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u8(self.kind);
            w.put(&self.place);
            w.put(&self.value);
        });
    }
}

impl Decode for RawEntry {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rgw_cls_bi_entry", 1, |_, r| Ok(Self { kind: r.u8()?, place: r.get()?, value: r.get()? }))
    }
}

/// `key, u8 kind`
pub(super) fn get(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (key, kind) =
        Reader::new(bytes).envelope("rgw_cls_bi_get_op", 1, |_, r| Ok((r.get::<Key>()?, r.u8()?)))?;
    let place = match kind {
        kind::PLAIN => key.name,
        kind::INSTANCE => object_key(&key),
        kind::OLH => olh_key(&key.name),
        _ => return fail(Errno::EINVAL),
    };
    let value = cx.omap_value(&place).ok_or(Fault::Errno(Errno::ENOENT))?;
    output(|w| w.envelope(1, 1, |w| w.put(&RawEntry { kind, place, value })))
}

/// Stores an entry as it comes, under whatever key it names.
pub(super) fn put(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let entry: RawEntry = Reader::new(bytes).envelope("rgw_cls_bi_put_op", 1, |_, r| r.get())?;
    cx.omap_set(vec![(entry.place, entry.value)]);
    done()
}

/// What is being listed: all entries or those of one object, behind a marker.
struct RawListing {
    name: ByteStr,
    marker: ByteStr,
    entries: Vec<RawEntry>,
    more: bool,
}

impl RawListing {
    fn new(name: ByteStr, marker: ByteStr) -> Self {
        Self { name, marker, entries: Vec::new(), more: false }
    }

    fn is_other(&self, key: &Key) -> bool {
        !self.name.is_empty() && key.name != self.name
    }

    /// Entries under plain names: those in ASCII, which come before the special keys, ...
    fn list_low(&mut self, cx: &dyn ClassCx, count_max: u32) -> Result<(), Fault> {
        if is_special(&self.marker) || self.marker.as_bytes() >= LOG_PREFIX {
            self.more = false;
            return Ok(());
        }
        let (found, more) = values(cx, &self.marker.clone(), &self.name.clone(), count_max.into());
        self.take_plain(found, more, Some(SPECIAL))
    }

    /// ... and others, which come behind them.
    fn list_high(&mut self, cx: &dyn ClassCx, count_max: u32) -> Result<(), Fault> {
        let from = self.marker.clone().max(ByteStr::from(&[SPECIAL + 1][..]));
        let (found, more) = values(cx, &from, &self.name.clone(), count_max.into());
        self.take_plain(found, more, None)
    }

    fn take_plain(&mut self, found: Vec<(ByteStr, Bytes)>, more: bool, end: Option<u8>) -> Result<(), Fault> {
        self.more = more;
        for (place, value) in found {
            let is_beyond = end.is_some_and(|end| place.first().is_some_and(|byte| *byte >= end));
            if is_beyond || self.is_other(&stored::<DirEntry>(value.clone())?.key) {
                self.more = false;
                break;
            }
            self.entries.push(RawEntry { kind: kind::PLAIN, place, value });
        }
        Ok(())
    }

    /// Entries under special keys that begin with `first`, which is one itself when one object is meant.
    fn list_special(
        &mut self,
        cx: &dyn ClassCx,
        kind: u8,
        first: &ByteStr,
        count_max: u32,
    ) -> Result<(), Fault> {
        let after = if is_behind(&self.marker, first) { self.marker.clone() } else { first.clone() };
        let mut left = count_max;
        let mut found = Vec::new();
        if let Some(value) = cx.omap_value(&after).filter(|_| after != self.marker) {
            found.push((after.clone(), value));
            left = left.wrapping_sub(1);
        }
        if left > 0 {
            let (rest, more) = values(cx, &after, b"", left.into());
            self.more = more;
            found.extend(rest);
        }
        for (place, value) in found {
            if !place.starts_with(first) || self.is_other(&key_of(kind, value.clone())?) {
                self.more = false;
                break;
            }
            self.entries.push(RawEntry { kind, place, value });
        }
        Ok(())
    }

    fn left(&self, count_max: u32) -> u32 {
        count_max.wrapping_sub(u32::try_from(self.entries.len()).unwrap_or(u32::MAX))
    }
}

/// The object that an entry is about.
fn key_of(kind: u8, value: Bytes) -> Result<Key, Fault> {
    Ok(if kind == kind::OLH { stored::<Olh>(value)?.key } else { stored::<DirEntry>(value)?.key })
}

/// In which part of the index a key lies; -1 in none.
fn part(key: &[u8]) -> i8 {
    let special: [(&[u8], i8); 4] =
        [(LOG_PREFIX, 1), (INSTANCE_PREFIX, 2), (OLH_PREFIX, 3), (b"\x809999_", 4)];
    if !is_special(key) {
        return 0;
    }
    special.iter().find(|(prefix, _)| key.starts_with(prefix)).map_or(-1, |(_, part)| *part)
}

/// By part, then by key.
fn is_behind(key: &[u8], other: &[u8]) -> bool {
    (part(key), key) > (part(other), other)
}

/// The start of an object's entries under special keys; of all objects' without a name.
fn first_key(kind: u8, name: &ByteStr) -> ByteStr {
    match (kind, name.is_empty()) {
        (kind::OLH, _) => olh_key(name),
        (_, true) => ByteStr::from(INSTANCE_PREFIX),
        (_, false) => instance_key(&Key::plain(name.clone()), false),
    }
}

/// `u32 max, str name, str after`
pub(super) fn list(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (count_max, name, marker) =
        Reader::new(bytes).envelope("rgw_cls_bi_list_op", 1, |_, r| Ok((r.u32()?, r.str()?, r.str()?)))?;
    let count_max = count_max.min(ENTRIES_MAX);
    let mut listing = RawListing::new(name, marker);
    listing.list_low(cx, count_max)?;
    for kind in [kind::INSTANCE, kind::OLH] {
        if !listing.more {
            let first = first_key(kind, &listing.name);
            listing.list_special(cx, kind, &first, listing.left(count_max))?;
        }
    }
    if !listing.more {
        listing.list_high(cx, listing.left(count_max))?;
    }
    let truncated = listing.entries.len() > count_max as usize || listing.more;
    listing.entries.truncate(count_max as usize);
    output(|w| {
        w.envelope(1, 1, |w| {
            w.count(listing.entries.len());
            listing.entries.iter().for_each(|entry| w.put(entry));
            w.bool(truncated);
        });
    })
}

/// Counts all objects, in as many turns as it takes.
fn recount(cx: &dyn ClassCx, header: &Header) -> Result<Header, Fault> {
    let begin = || Header {
        tag_timeout_s: header.tag_timeout_s,
        version: header.version,
        log_stopped: header.log_stopped,
        ..Header::default()
    };
    let (mut after, mut counted) = match cx.progress() {
        Some(progress) => {
            let mut r = Reader::new(progress);
            (r.str()?, r.get()?)
        }
        None => (ByteStr::EMPTY, begin()),
    };
    loop {
        let (page, more) = values(cx, &after, b"", ENTRIES_MAX.into());
        let Some((last, _)) = page.last() else { return Ok(counted) };
        after = last.clone();
        for (place, value) in page {
            let part = part(&place);
            if part != 0 && part != 2 {
                continue;
            }
            let entry: DirEntry = stored(value)?;
            // Versions are counted where writers find them.
            if entry.exists && (part == 2 || entry.flags == 0) {
                counted.account(&entry.meta);
            }
        }
        if !more {
            return Ok(counted);
        }
        if cx.is_turn_spent() {
            let mut w = Writer::new();
            w.put(&after);
            w.put(&counted);
            return Err(Fault::Paused { progress: w.finish() });
        }
    }
}

/// What is counted, and what should be.
pub(super) fn check_index(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let header = Header::load(cx)?;
    let counted = recount(cx, &header)?;
    output(|w| {
        w.envelope(1, 1, |w| {
            w.put(&header);
            w.put(&counted);
        });
    })
}

/// Replaces what the header counts by what there is.
pub(super) fn rebuild_index(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let header = Header::load(cx)?;
    recount(cx, &header)?.save(cx);
    done()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestObject;

    /// An index of so many objects, each of 7 bytes, whose header counts none.
    fn index(objects: u64) -> TestObject {
        let mut index = TestObject::existing();
        let mut entry = DirEntry { exists: true, ..DirEntry::default() };
        (entry.meta.category, entry.meta.size, entry.meta.accounted_size) = (1, 7, 7);
        for number in 0..objects {
            entry.key = Key::plain(format!("object-{number:06}").as_str().into());
            index.set_omap(entry.key.name.clone(), entry.to_bytes());
        }
        index
    }

    /// Objects and bytes by the index's header, and by a new count.
    fn check(index: &mut TestObject) -> [(u64, u64); 2] {
        let out = index.call("rgw", "bucket_check_index", Bytes::new()).expect("an answer");
        let headers =
            Reader::new(out).envelope("rgw_cls_check_index_ret", 1, |_, r| Ok([r.get()?, r.get()?]));
        let headers: [Header; 2] = headers.expect("two headers");
        headers.map(|header| header.stats.get(&1).map_or((0, 0), |stats| (stats.entries, stats.bytes)))
    }

    #[test]
    fn objects_are_counted_in_as_many_turns_as_it_takes() {
        for (turn_ops, pauses) in [(u64::MAX, 0), (4, 3), (2, 10), (1, 10)] {
            let mut index = index(10_010);
            index.turn_ops = turn_ops;
            assert_eq!(check(&mut index), [(0, 0), (10_010, 70_070)]);
            assert_eq!(index.pauses, pauses, "turns of {turn_ops} looks");
            index.call("rgw", "bucket_rebuild_index", Bytes::new()).expect("done");
            assert_eq!(index.pauses, pauses);
            index.turn_ops = u64::MAX;
            assert_eq!(check(&mut index), [(10_010, 70_070); 2]);
        }
    }

    #[test]
    fn keys_sort_by_their_part_of_the_index() {
        assert!(is_behind(b"\x801000_a", b"zzz") && is_behind(b"\x801001_a", b"\x801000_b"));
        assert!(!is_behind(b"\x81", b"\x800_1"), "names beyond ASCII count as names");
    }
}
