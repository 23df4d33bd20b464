//! Class `log`: entries ordered by time, as radosgw logs what other zones must see.
//!
//! Formats: Ceph `src/cls/log/cls_log_types.h` and `cls_log_ops.h`; behaviour measured at v16.2.15. Entries lie
//! under `1_<seconds>.<microseconds>_<id>`, the header (newest entry) in the omap header.

use crate::keys::{output, stored};
use crate::method::{Method, done, fail, read, write};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Errno, UTime};

pub(crate) static METHODS: &[Method] =
    &[write("add", add), read("list", list), write("trim", trim), read("info", info)];

pub(crate) const PREFIX: &str = "1_";
/// Entries that one call lists or trims.
pub(crate) const ENTRIES_MAX: usize = 1000;

/// `cls_log_entry`
struct Entry {
    section: ByteStr,
    name: ByteStr,
    timestamp: UTime,
    data: Bytes,
    /// The key; empty from clients that leave it to us.
    id: ByteStr,
}

impl Encode for Entry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.put(&self.section);
            w.put(&self.name);
            w.put(&self.timestamp);
            w.put(&self.data);
            w.put(&self.id);
        });
    }
}

impl Decode for Entry {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_log_entry", 2, |version, r| {
            let (section, name, timestamp, data) = (r.get()?, r.get()?, r.get()?, r.get()?);
            Ok(Self {
                section,
                name,
                timestamp,
                data,
                id: if version >= 2 { r.get()? } else { ByteStr::EMPTY },
            })
        })
    }
}

/// `cls_log_header`
#[derive(Default)]
struct Header {
    marker_max: ByteStr,
    time_max: UTime,
}

impl Encode for Header {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.marker_max);
            w.put(&self.time_max);
        });
    }
}

impl Decode for Header {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_log_header", 1, |_, r| Ok(Self { marker_max: r.get()?, time_max: r.get()? }))
    }
}

fn header(cx: &dyn ClassCx) -> Result<Header, Fault> {
    let bytes = cx.omap_header();
    if bytes.is_empty() { Ok(Header::default()) } else { stored(bytes) }
}

/// The start of all keys at this time.
pub(crate) fn time_key(time: UTime) -> String {
    format!("{PREFIX}{:010}.{:06}_", time.sec, time.nsec / 1000)
}

/// A key of our own: unique on this object, and later calls get later keys.
fn new_key(cx: &mut dyn ClassCx, time: UTime, index: usize) -> ByteStr {
    let (version, unique) = (cx.user_version(), cx.random());
    format!("{}{version:011}.{index}.{unique:016x}", time_key(time)).into()
}

fn add(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (entries, monotonic) = Reader::new(bytes).envelope("cls_log_add_op", 2, |version, r| {
        let entries: Vec<Entry> = r.get()?;
        Ok((entries, if version >= 2 { r.bool()? } else { true }))
    })?;
    let mut header = header(cx)?;
    let mut values = Vec::with_capacity(entries.len());
    for (index, mut entry) in entries.into_iter().enumerate() {
        // A clock that stepped back must not hide entries from readers that go on behind the newest one.
        let time = if monotonic { entry.timestamp.max(header.time_max) } else { entry.timestamp };
        header.time_max = header.time_max.max(time);
        if entry.id.is_empty() {
            entry.id = new_key(cx, time, index);
        }
        if entry.id > header.marker_max {
            header.marker_max = entry.id.clone();
        }
        values.push((entry.id.clone(), entry.to_bytes()));
    }
    cx.omap_set(values);
    cx.omap_set_header(header.to_bytes());
    done()
}

/// Where a listing or trimming begins, ends, and how it goes on. Times bound it unless markers do.
pub(crate) struct Span {
    pub(crate) from: ByteStr,
    pub(crate) to: Option<ByteStr>,
}

/// `key` is behind everything that begins with `bound`, or begins with it itself.
fn reaches(key: &[u8], bound: &[u8]) -> bool {
    &key[..key.len().min(bound.len())] >= bound
}

/// `key` is behind everything that begins with `bound`.
fn is_behind(key: &[u8], bound: &[u8]) -> bool {
    &key[..key.len().min(bound.len())] > bound
}

/// A page of entries: what was found, the last key of it, the key that ended it, and whether more follow.
pub(crate) struct Listed {
    pub(crate) entries: Vec<(ByteStr, Bytes)>,
    pub(crate) last: ByteStr,
    pub(crate) bound: Option<ByteStr>,
    pub(crate) truncated: bool,
}

/// Lists entries behind `span.from` that come before `span.to`.
pub(crate) fn list_span(cx: &dyn ClassCx, span: &Span, count_max: usize) -> Listed {
    let (mut found, mut more) = cx.omap_after(&span.from, PREFIX.as_bytes(), count_max);
    let end = span.to.as_ref().and_then(|to| found.iter().position(|(key, _)| reaches(key, to)));
    let bound = end.map(|index| {
        more = false;
        let (key, _) = found.swap_remove(index);
        found.truncate(index);
        key
    });
    let last = found.last().map(|(key, _)| key.clone()).unwrap_or_default();
    Listed { entries: found, last, bound, truncated: more }
}

/// Removes entries with `prefix` behind `span.from`, up to all that begin with `span.to`.
///
/// # Errors
/// `ENODATA` when there are none: clients call until then.
pub(crate) fn trim_span(cx: &mut dyn ClassCx, span: &Span, prefix: &str) -> MethodResult {
    let (found, _) = cx.omap_after(&span.from, prefix.as_bytes(), ENTRIES_MAX);
    let to = span.to.clone().unwrap_or_default();
    let gone: Vec<ByteStr> =
        found.into_iter().map(|(key, _)| key).take_while(|key| !is_behind(key, &to)).collect();
    if gone.is_empty() {
        return fail(Errno::ENODATA);
    }
    cx.omap_remove(gone);
    done()
}

/// The marker if there is one, else the start of all keys at `time`.
pub(crate) fn marker_or_time(marker: ByteStr, time: UTime) -> ByteStr {
    if marker.is_empty() { time_key(time).into() } else { marker }
}

fn list(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (from, marker, to, count_max) = Reader::new(bytes).envelope("cls_log_list_op", 1, |_, r| {
        Ok((r.get::<UTime>()?, r.str()?, r.get::<UTime>()?, r.i32()?))
    })?;
    let bounded = !from.is_zero() && !to.is_zero() && to >= from;
    let span = Span { from: marker_or_time(marker, from), to: bounded.then(|| time_key(to).into()) };
    let count_max = usize::try_from(count_max).ok().filter(|count| *count > 0);
    let listed = list_span(cx, &span, count_max.map_or(ENTRIES_MAX, |count| count.min(ENTRIES_MAX)));
    output(|w| {
        w.envelope(1, 1, |w| {
            w.count(listed.entries.len());
            listed.entries.iter().for_each(|(_, entry)| w.raw(entry));
            w.put(listed.bound.as_ref().unwrap_or(&listed.last));
            w.bool(listed.truncated);
        });
    })
}

/// `utime from, utime to, str from_marker, str to_marker`, as of class `timeindex`.
pub(crate) fn trim_input(bytes: Bytes) -> Result<Span, Fault> {
    Ok(Reader::new(bytes).envelope("cls_log_trim_op", 2, |_, r| {
        let (from, to): (UTime, UTime) = r.get()?;
        // Clients older than markers end here.
        let (from_marker, to_marker) = if r.is_empty() { Default::default() } else { (r.str()?, r.str()?) };
        Ok(Span { from: marker_or_time(from_marker, from), to: Some(marker_or_time(to_marker, to)) })
    })?)
}

fn trim(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let span = trim_input(bytes)?;
    // Ids that clients gave need not begin as ours do.
    trim_span(cx, &span, "")
}

fn info(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    Reader::new(bytes).envelope("cls_log_info_op", 1, |_, _| Ok(()))?;
    let header = header(cx)?;
    output(|w| w.envelope(1, 1, |w| w.put(&header)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestObject;

    fn entry(sec: u32) -> Entry {
        let timestamp = UTime { sec, nsec: 0 };
        let (section, name) = (ByteStr::from("s"), ByteStr::from("n"));
        Entry { section, name, timestamp, data: Bytes::new(), id: ByteStr::EMPTY }
    }

    #[test]
    fn entries_without_ids_keep_their_order_even_when_the_clock_steps_back() {
        let mut object = TestObject::default();
        let add = output(|w| {
            w.envelope(2, 1, |w| {
                w.put(&vec![entry(7), entry(7), entry(3)]);
                w.bool(true);
            });
        });
        object.call("log", "add", add.expect("encodes")).expect("added");
        let mut w = Writer::new();
        w.envelope(1, 1, |w| {
            w.put(&(UTime::ZERO, ByteStr::EMPTY));
            w.put(&(UTime::ZERO, 0_i32));
        });
        let listed = object.call("log", "list", w.finish()).expect("listed");
        let entries: Vec<Entry> =
            Reader::new(listed).envelope("list", 1, |_, r| r.get()).expect("a list of entries");
        let seconds: Vec<u32> = entries.iter().map(|entry| entry.timestamp.sec).collect();
        assert_eq!(seconds, [7, 7, 3]);
        assert!(entries.iter().all(|entry| entry.id.starts_with(b"1_0000000007.000000_")));
    }
}
