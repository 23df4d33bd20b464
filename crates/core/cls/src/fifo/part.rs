//! One part of a queue: a header, and entries behind each other until it is full.

use super::{ENTRY_OVERHEAD_BYTES, HEADER_BYTES, Params};
use crate::keys::{input, output};
use crate::method::{done, fail};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Errno, UTime};

/// Entries that one call lists.
const ENTRIES_MAX: usize = 512;
/// Data is read in pieces of so many bytes.
const PIECE_BYTES: u64 = 128 << 10;
/// Bytes of what stands before the header of an entry, and of that header.
const PRELUDE_BYTES: u64 = 44;
const ENTRY_HEADER_BYTES: u64 = 14;

/// What a push of nothing gets.
const EFAULT: Errno = Errno(14);

const _: () = assert!(PRELUDE_BYTES + ENTRY_HEADER_BYTES == ENTRY_OVERHEAD_BYTES);

/// `rados::cls::fifo::part_header`
struct Part {
    params: Params,
    /// Random; stands before each entry.
    magic: u64,
    /// Offset of the oldest entry, ...
    first: u64,
    /// ... of the newest one, ...
    last: u64,
    /// ... and of where the next one goes.
    next: u64,
    index_min: u64,
    index_max: u64,
    /// When the newest one came.
    time_max: UTime,
}

impl Encode for Part {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.str(""); // a tag once
            w.put(&self.params);
            w.u64(self.magic);
            w.u64(self.first);
            w.u64(self.last);
            w.u64(self.next);
            w.u64(self.index_min);
            w.u64(self.index_max);
            w.put(&self.time_max);
        });
    }
}

impl Decode for Part {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("fifo::part_header", 1, |_, r| {
            r.str()?;
            Ok(Self {
                params: r.get()?,
                magic: r.u64()?,
                first: r.u64()?,
                last: r.u64()?,
                next: r.u64()?,
                index_min: r.u64()?,
                index_max: r.u64()?,
                time_max: r.get()?,
            })
        })
    }
}

impl Part {
    fn load(cx: &dyn ClassCx) -> Result<Self, Fault> {
        let header = if cx.exists() { cx.read(0, HEADER_BYTES)? } else { Bytes::new() };
        Self::from_bytes(header).map_err(|_| Fault::Errno(Errno::EIO))
    }

    fn save(&self, cx: &mut dyn ClassCx) {
        cx.write(0, self.to_bytes().into());
    }

    fn is_full(&self) -> bool {
        self.next > self.params.full_bytes
    }
}

/// `str tag, params`: makes a part; one that is as described may be there already.
pub(super) fn init(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let params: Params = Reader::new(bytes).envelope("fifo::op::init_part", 1, |_, r| {
        r.str()?;
        r.get()
    })?;
    if cx.exists() && cx.size() > 0 {
        return if Part::load(cx)?.params == params { done() } else { fail(Errno::EEXIST) };
    }
    let (magic, time_max) = (cx.random(), cx.now());
    Part {
        params,
        magic,
        first: HEADER_BYTES,
        last: 0,
        next: HEADER_BYTES,
        index_min: 0,
        index_max: 0,
        time_max,
    }
    .save(cx);
    done()
}

/// `str tag, list<blob>, u64 bytes`: appends as many entries as fit, and returns how many.
pub(super) fn push(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (entries, total) = Reader::new(bytes).envelope("fifo::op::push_part", 1, |_, r| {
        r.str()?;
        Ok((r.get::<Vec<Bytes>>()?, r.u64()?))
    })?;
    let mut part = Part::load(cx)?;
    let overhead = ENTRY_OVERHEAD_BYTES.saturating_mul(entries.len() as u64);
    if total.saturating_add(overhead) > part.params.part_bytes_max {
        return fail(Errno::EINVAL);
    }
    if part.is_full() {
        return fail(Errno::ERANGE);
    }
    if entries.iter().map(|entry| entry.len() as u64).sum::<u64>() != total {
        return fail(Errno::EINVAL);
    }
    if entries.is_empty() {
        return fail(EFAULT);
    }
    let (now, start) = (cx.now(), part.next);
    let mut w = Writer::new();
    let mut pushed = 0;
    for data in &entries {
        w.u64(part.magic);
        w.u64(PRELUDE_BYTES);
        w.u64(ENTRY_HEADER_BYTES);
        w.u64(data.len() as u64);
        w.u64(part.index_max);
        w.u32(0);
        w.envelope(1, 1, |w| w.put(&now));
        w.raw(data);
        part.last = part.next;
        part.next += ENTRY_OVERHEAD_BYTES + data.len() as u64;
        part.index_max += 1;
        pushed += 1;
        if part.is_full() {
            break;
        }
    }
    part.time_max = now;
    cx.write(start, w.finish().into());
    part.save(cx);
    cx.set_result(pushed);
    done()
}

/// An entry as it is listed: its offset is that in the part.
struct Entry {
    data: Bytes,
    offset: u64,
    time: UTime,
}

impl Encode for Entry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.data);
            w.u64(self.offset);
            w.put(&self.time);
        });
    }
}

/// A walk over entries, which reads the data piece by piece.
struct Walk<'a> {
    cx: &'a dyn ClassCx,
    part: &'a Part,
    at: u64,
    /// What was read from there on.
    piece: Bytes,
}

impl<'a> Walk<'a> {
    fn new(cx: &'a dyn ClassCx, part: &'a Part, offset: u64) -> Self {
        Self { cx, part, at: offset.max(part.first), piece: Bytes::new() }
    }

    fn is_at_end(&self) -> bool {
        self.at >= self.part.next
    }

    /// The next bytes, which are not passed.
    fn peek(&mut self, bytes: u64) -> Result<Bytes, Fault> {
        if (self.piece.len() as u64) < bytes {
            let wanted = bytes.max(PIECE_BYTES).min(self.cx.size().saturating_sub(self.at));
            self.piece = self.cx.read(self.at, wanted)?;
        }
        match usize::try_from(bytes) {
            Ok(bytes) if bytes <= self.piece.len() => Ok(self.piece.slice(..bytes)),
            _ => fail(Errno::ERANGE),
        }
    }

    fn take(&mut self, bytes: u64) -> Result<Bytes, Fault> {
        let taken = self.peek(bytes)?;
        self.piece = self.piece.slice(taken.len()..);
        self.at += bytes;
        Ok(taken)
    }

    /// Bytes before the header, of the header and of the data, and the index of the next entry.
    fn peek_prelude(&mut self) -> Result<[u64; 4], Fault> {
        if self.is_at_end() {
            return fail(Errno::ENOENT);
        }
        let mut r = Reader::new(self.peek(PRELUDE_BYTES)?);
        let (magic, prelude, header, data, index) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?, r.u64()?);
        if magic != self.part.magic { fail(Errno::ERANGE) } else { Ok([prelude, header, data, index]) }
    }

    fn next(&mut self) -> Result<Entry, Fault> {
        let [prelude, header, data, _] = self.peek_prelude()?;
        let offset = self.at;
        self.take(prelude)?;
        let header = self.take(header)?;
        let time = Reader::new(header).envelope("fifo::entry_header", 1, |_, r| r.get());
        let time = time.map_err(|_| Fault::Errno(Errno::EIO))?;
        Ok(Entry { data: self.take(data)?, offset, time })
    }
}

/// `opt<str> tag, u64 offset, bool exclusive`: removes the entries up to an offset, with the one there unless `exclusive`. A
/// full part of which all are removed goes as a whole.
pub(super) fn trim(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (_, offset, exclusive): (Option<ByteStr>, u64, bool) =
        Reader::new(bytes).envelope("fifo::op::trim_part", 1, |_, r| Ok((r.get()?, r.u64()?, r.bool()?)))?;
    let mut part = Part::load(cx)?;
    if offset < part.first || (exclusive && offset == part.first) {
        return done();
    }
    if offset >= part.next {
        if part.is_full() {
            cx.remove();
            return done();
        }
        (part.first, part.index_min) = (part.next, part.index_max);
    } else {
        let mut walk = Walk::new(cx, &part, offset);
        let [.., index] = walk.peek_prelude()?;
        if !exclusive {
            walk.next()?;
        }
        let index_min = if exclusive { index } else { index.wrapping_add(1) };
        (part.first, part.index_min) = (walk.at, index_min);
    }
    part.save(cx);
    done()
}

/// `opt<str> tag, u64 offset, s32 max`: entries behind the one at an offset, or from the oldest one on.
pub(super) fn list(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (_, offset, count_max): (Option<ByteStr>, u64, i32) =
        Reader::new(bytes).envelope("fifo::op::list_part", 1, |_, r| Ok((r.get()?, r.u64()?, r.i32()?)))?;
    let part = Part::load(cx)?;
    let mut walk = Walk::new(cx, &part, offset);
    if offset >= part.first && !walk.is_at_end() {
        walk.next()?;
    }
    let count_max = usize::try_from(count_max).unwrap_or(0).min(ENTRIES_MAX);
    let mut entries = Vec::new();
    while entries.len() < count_max && !walk.is_at_end() {
        entries.push(walk.next()?);
    }
    let more = !walk.is_at_end();
    output(|w| {
        w.envelope(1, 1, |w| {
            w.str(""); // a tag once
            w.put(&entries);
            w.bool(more);
            w.bool(part.is_full());
        });
    })
}

/// The header of a part, as it is stored.
pub(super) fn info(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    struct Nothing;
    impl Decode for Nothing {
        fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
            r.envelope("fifo::op::get_part_info", 1, |_, _| Ok(Self))
        }
    }
    let Nothing = input(bytes)?;
    let part = Part::load(cx)?;
    output(|w| w.envelope(1, 1, |w| w.put(&part)))
}
