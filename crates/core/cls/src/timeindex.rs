//! Class `timeindex`: values under a time and a name, as radosgw keeps hints of what expires when.
//! Formats: Ceph `src/cls/timeindex/cls_timeindex_types.h` and `_ops.h`; behaviour measured at v16.2.15.

use crate::keys::output;
use crate::log::{ENTRIES_MAX, PREFIX, Span, list_span, marker_or_time, time_key, trim_input, trim_span};
use crate::method::{Method, done, read, write};
use crate::{ClassCx, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Reader, Writer};
use nacre_types::UTime;

pub(crate) static METHODS: &[Method] = &[write("add", add), read("list", list), write("trim", trim)];

/// Bytes of a name that a listing gives back.
const NAME_BYTES_MAX: usize = 255;

/// `cls_timeindex_entry`
struct Entry {
    time: UTime,
    name: ByteStr,
    value: Bytes,
}

impl Decode for Entry {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_timeindex_entry", 1, |_, r| {
            Ok(Self { time: r.get()?, name: r.get()?, value: r.get()? })
        })
    }
}

fn add(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let entries: Vec<Entry> = Reader::new(bytes).envelope("cls_timeindex_add_op", 1, |_, r| r.get())?;
    let values = entries.into_iter().map(|entry| {
        let key = [time_key(entry.time).as_bytes(), entry.name.as_bytes()].concat();
        (ByteStr::from(key), entry.value)
    });
    cx.omap_set(values.collect());
    done()
}

/// Time and name of a key. Ceph reads the microseconds back as nanoseconds and the name up to the first
/// blank; clients have seen no other answer, so we do the same.
fn parse_key(key: &[u8]) -> Option<(UTime, &[u8])> {
    let rest = key.strip_prefix(PREFIX.as_bytes())?;
    let dot = rest.iter().position(|byte| *byte == b'.')?;
    let bar = rest.iter().position(|byte| *byte == b'_')?;
    let number = |digits: Option<&[u8]>| std::str::from_utf8(digits?).ok()?.parse().ok();
    let time = UTime { sec: number(rest.get(..dot))?, nsec: number(rest.get(dot + 1..bar))? };
    let name = rest.get(bar + 1..)?;
    let end = name.iter().position(u8::is_ascii_whitespace).unwrap_or(name.len());
    Some((time, &name[..end.min(NAME_BYTES_MAX)]))
}

fn write_entry(w: &mut Writer, key: &[u8], value: &[u8]) {
    let (time, name) = parse_key(key).unwrap_or_default();
    w.envelope(1, 1, |w| {
        w.put(&time);
        w.blob(name);
        w.blob(value);
    });
}

fn list(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (from, marker, to, count_max) = Reader::new(bytes).envelope("cls_timeindex_list_op", 1, |_, r| {
        Ok((r.get::<UTime>()?, r.str()?, r.get::<UTime>()?, r.i32()?))
    })?;
    let span = Span { from: marker_or_time(marker, from), to: (to >= from).then(|| time_key(to).into()) };
    let count_max = usize::try_from(count_max).unwrap_or(ENTRIES_MAX).min(ENTRIES_MAX);
    let listed = list_span(cx, &span, count_max);
    output(|w| {
        w.envelope(1, 1, |w| {
            w.count(listed.entries.len());
            listed.entries.iter().for_each(|(key, value)| write_entry(w, key, value));
            w.put(&listed.last);
            w.bool(listed.truncated);
        });
    })
}

fn trim(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let span = trim_input(bytes)?;
    trim_span(cx, &span, PREFIX)
}
