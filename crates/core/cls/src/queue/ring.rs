//! [`Ring`]: a queue in an object's data: a head, and behind it entries that go round in the rest.
//! Formats: Ceph `src/cls/queue/cls_queue_types.h` and `cls_queue_src.cc`; behaviour measured at v16.2.15.
//!
//! ```text
//! offset 0   u16 0xdead, u64 length, head (cls_queue_head)      up to head.head_bytes
//! then       u16 0xbeef, u64 length, data                       up to head.end, on at head.head_bytes
//! ```
//! Places are told to clients as markers, `generation/offset`; the generation counts the times that the end was passed.

use crate::method::fail;
use crate::{ClassCx, Fault};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::Errno;

/// Room for the head, without what the user of the queue keeps in it.
const HEAD_BYTES: u64 = 1024;
const HEAD_START: u16 = 0xdead;
const ENTRY_START: u16 = 0xbeef;
/// What stands before the head and before each entry.
pub(super) const OVERHEAD_BYTES: u64 = 10;
/// Data is read in pieces of so many bytes.
const PIECE_BYTES: u64 = 64 << 10;

/// `cls_queue_marker`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Marker {
    generation: u64,
    offset: u64,
}

impl Marker {
    /// As far as it is one: the rest counts as 0.
    fn parse(text: &[u8]) -> Self {
        let (generation, rest) = number(text);
        let offset = rest.strip_prefix(b"/").map_or(0, |rest| number(rest).0);
        Self { generation, offset }
    }

    pub(super) fn to_text(self) -> ByteStr {
        format!("{}/{}", self.generation, self.offset).into()
    }
}

/// A number in decimal digits, and what is behind it.
fn number(text: &[u8]) -> (u64, &[u8]) {
    let (digits, rest) = text.split_at(text.iter().take_while(|byte| byte.is_ascii_digit()).count());
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    (digits.iter().fold(0, add), rest)
}

impl Encode for Marker {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u64(self.generation);
            w.u64(self.offset);
        });
    }
}

impl Decode for Marker {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_queue_marker", 1, |_, r| Ok(Self { generation: r.u64()?, offset: r.u64()? }))
    }
}

/// `cls_queue_head`
pub(super) struct Ring {
    head_bytes: u64,
    /// The oldest entry.
    front: Marker,
    /// Where the next one goes.
    tail: Marker,
    /// End of the room for entries, a byte offset of the object.
    end: u64,
    /// Bytes that the user may keep in the head, ...
    pub(super) user_bytes_max: u64,
    /// ... and what it keeps there.
    pub(super) user_data: Bytes,
}

impl Encode for Ring {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u64(self.head_bytes);
            w.put(&self.front);
            w.put(&self.tail);
            w.u64(self.end);
            w.u64(self.user_bytes_max);
            w.put(&self.user_data);
        });
    }
}

impl Decode for Ring {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_queue_head", 1, |_, r| {
            Ok(Self {
                head_bytes: r.u64()?,
                front: r.get()?,
                tail: r.get()?,
                end: r.u64()?,
                user_bytes_max: r.u64()?,
                user_data: r.get()?,
            })
        })
    }
}

/// One entry, and where it is.
pub(super) struct Entry {
    pub(super) data: Bytes,
    pub(super) marker: Marker,
}

/// A page of entries.
pub(super) struct Page {
    pub(super) entries: Vec<Entry>,
    /// Where to go on.
    pub(super) next: Marker,
    pub(super) more: bool,
}

impl Ring {
    /// The queue of an object.
    ///
    /// # Errors
    /// `EINVAL` when the object holds none.
    pub(super) fn load(cx: &dyn ClassCx) -> Result<Self, Fault> {
        if !cx.exists() {
            return fail(Errno::EINVAL);
        }
        let mut r = Reader::new(cx.read(0, HEAD_BYTES)?);
        if r.u16()? != HEAD_START {
            return fail(Errno::EINVAL);
        }
        let length = r.u64()?;
        let mut head = r.rest();
        if length > head.len() as u64 {
            let left = length.min(cx.size());
            head = cx.read(OVERHEAD_BYTES, left)?;
        }
        let ring = Self::from_bytes(head)?;
        // Otherwise nothing that follows would hold.
        let is_inside = |marker: &Marker| (ring.head_bytes..=ring.end).contains(&marker.offset);
        if is_inside(&ring.front) && is_inside(&ring.tail) { Ok(ring) } else { fail(Errno::EINVAL) }
    }

    /// Makes a queue for `bytes` of entries with what is before each of them.
    ///
    /// # Errors
    /// `EEXIST` when there is one.
    pub(super) fn create(
        cx: &mut dyn ClassCx,
        bytes: u64,
        user_bytes_max: u64,
        user_data: Bytes,
    ) -> Result<(), Fault> {
        match Self::load(cx) {
            Ok(_) => return fail(Errno::EEXIST),
            Err(Fault::Errno(Errno::EINVAL)) => {}
            Err(fault) => return Err(fault),
        }
        let head_bytes = HEAD_BYTES.saturating_add(user_bytes_max);
        let front = Marker { generation: 0, offset: head_bytes };
        let end = head_bytes.saturating_add(bytes);
        Self { head_bytes, front, tail: front, end, user_bytes_max, user_data }.save(cx);
        Ok(())
    }

    pub(super) fn save(&self, cx: &mut dyn ClassCx) {
        let head = self.to_bytes();
        let mut w = Writer::new();
        w.u16(HEAD_START);
        w.u64(head.len() as u64);
        w.raw(&head);
        cx.write(0, w.finish().into());
    }

    /// Bytes for entries and what is before them.
    pub(super) fn capacity(&self) -> u64 {
        self.end - self.head_bytes
    }

    fn is_full(&self) -> bool {
        self.front.offset == self.tail.offset && self.tail.generation != self.front.generation
    }

    /// Bytes of it that are free.
    pub(super) fn free(&self) -> u64 {
        if self.tail.offset >= self.front.offset {
            (self.end - self.tail.offset) + (self.front.offset - self.head_bytes)
        } else {
            self.front.offset - self.tail.offset
        }
    }

    /// Appends entries. The head is not saved.
    ///
    /// # Errors
    /// `ENOSPC` when they do not fit.
    pub(super) fn enqueue(&mut self, cx: &mut dyn ClassCx, entries: Vec<Bytes>) -> Result<(), Fault> {
        for data in entries {
            let mut w = Writer::new();
            w.u16(ENTRY_START);
            w.u64(data.len() as u64);
            w.raw(&data);
            let mut entry = w.finish();
            if self.is_full() || entry.len() as u64 > self.free() {
                return fail(Errno::ENOSPC);
            }
            let to_end = usize::try_from(self.end - self.tail.offset).unwrap_or(usize::MAX);
            if self.tail.offset >= self.front.offset && entry.len() > to_end {
                let first = entry.split_to(to_end);
                if !first.is_empty() {
                    cx.write(self.tail.offset, first.into());
                }
                self.tail = self.passed(self.tail);
            }
            let bytes = entry.len() as u64;
            cx.write(self.tail.offset, entry.into());
            self.tail.offset += bytes;
            self.tail = self.wrapped(self.tail);
        }
        Ok(())
    }

    /// The start of the room, once more round.
    fn passed(&self, marker: Marker) -> Marker {
        Marker { generation: marker.generation.wrapping_add(1), offset: self.head_bytes }
    }

    fn wrapped(&self, marker: Marker) -> Marker {
        if marker.offset == self.end { self.passed(marker) } else { marker }
    }

    /// Up to `count_max` entries from a place on; from the oldest one if the place has no offset.
    ///
    /// # Errors
    /// `EINVAL` when no entry begins there.
    pub(super) fn list(&self, cx: &dyn ClassCx, from: &[u8], count_max: u64) -> Result<Page, Fault> {
        let mut page = Page { entries: Vec::new(), next: self.tail, more: false };
        if self.front == self.tail {
            return Ok(page);
        }
        let from = Marker::parse(from);
        let mut walk = Walk::new(cx, self, if from.offset == 0 { self.front } else { from })?;
        while (page.entries.len() as u64) < count_max {
            let Some(entry) = walk.next()? else { return Ok(page) };
            page.entries.push(entry);
        }
        page.next = self.wrapped(walk.at);
        page.more = page.next != self.tail;
        Ok(page)
    }

    /// Whether a place lies behind the front and not behind the tail. A real OSD does not look at the tail, and takes apart
    /// a queue whose user is wrong about it.
    fn holds(&self, place: Marker) -> bool {
        let rounds = |marker: Marker| marker.generation.wrapping_sub(self.front.generation);
        let order = |marker: Marker| (rounds(marker), marker.offset);
        let is_inside = (self.head_bytes..=self.end).contains(&place.offset);
        is_inside && order(place) > order(self.front) && order(self.wrapped(place)) <= order(self.tail)
    }

    /// Removes all entries before a place. The head is not saved.
    ///
    /// # Errors
    /// `EINVAL` when that is not in the queue.
    pub(super) fn remove(&mut self, cx: &mut dyn ClassCx, end: &[u8]) -> Result<(), Fault> {
        if self.front == self.tail {
            return Ok(());
        }
        let (front, end) = (self.front, Marker::parse(end));
        if end == front {
            return Ok(());
        }
        if !self.holds(end) {
            return fail(Errno::EINVAL);
        }
        if end.generation == front.generation {
            cx.zero(front.offset, end.offset - front.offset);
        } else {
            cx.zero(front.offset, self.end - front.offset);
            cx.zero(self.head_bytes, end.offset - self.head_bytes);
        }
        self.front = self.wrapped(end);
        Ok(())
    }
}

/// A walk over entries, which reads the data piece by piece.
struct Walk<'a> {
    cx: &'a dyn ClassCx,
    ring: &'a Ring,
    /// Where the next entry begins.
    at: Marker,
    /// Bytes from there to the tail.
    left: u64,
    /// What was read from there on, as far as the end of the room.
    piece: Bytes,
}

impl<'a> Walk<'a> {
    fn new(cx: &'a dyn ClassCx, ring: &'a Ring, at: Marker) -> Result<Self, Fault> {
        let (front, tail) = (ring.front.offset, ring.tail.offset);
        let left = if tail > front || at.offset < front {
            // In the first case nothing is beyond the tail, in the second only what was removed.
            tail.checked_sub(at.offset)
        } else {
            ring.end.checked_sub(at.offset).map(|to_end| to_end + (tail - ring.head_bytes))
        };
        match left {
            Some(left) if at.offset >= ring.head_bytes => {
                Ok(Self { cx, ring, at, left, piece: Bytes::new() })
            }
            None if tail <= front => Ok(Self { cx, ring, at, left: 0, piece: Bytes::new() }),
            _ => fail(Errno::EINVAL),
        }
    }

    /// The next entry; none at the tail.
    fn next(&mut self) -> Result<Option<Entry>, Fault> {
        self.at = self.ring.wrapped(self.at);
        let marker = self.at;
        if self.left < OVERHEAD_BYTES {
            return Ok(None);
        }
        let mut r = Reader::new(self.take(OVERHEAD_BYTES)?);
        if r.u16()? != ENTRY_START {
            return fail(Errno::EINVAL);
        }
        let bytes = r.u64()?;
        if bytes > self.left {
            return Ok(None);
        }
        Ok(Some(Entry { data: self.take(bytes)?, marker }))
    }

    /// The next bytes, which are there.
    fn take(&mut self, bytes: u64) -> Result<Bytes, Fault> {
        let mut taken = Vec::new();
        let mut wanted = bytes;
        while wanted > 0 {
            self.at = self.ring.wrapped(self.at);
            if self.piece.is_empty() {
                let to_end = self.ring.end - self.at.offset;
                let length = PIECE_BYTES.max(wanted).min(self.left).min(to_end);
                self.piece = self.cx.read(self.at.offset, length)?;
            }
            let length = (self.piece.len() as u64).min(wanted);
            if length == 0 {
                return fail(Errno::EINVAL); // the object is shorter than its head says
            }
            taken.push(self.piece.split_to(usize::try_from(length).unwrap_or(usize::MAX)));
            self.at.offset += length;
            self.left -= length;
            wanted -= length;
        }
        Ok(if let [only] = &taken[..] { only.clone() } else { taken.concat().into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestObject;

    fn entries(ring: &Ring, cx: &TestObject, from: &[u8], count_max: u64) -> (Vec<u8>, ByteStr, bool) {
        let page = ring.list(cx, from, count_max).expect("a queue");
        (page.entries.iter().map(|entry| entry.data[0]).collect(), page.next.to_text(), page.more)
    }

    /// Entries of 90 bytes in room for ten of a hundred, over and over: they come out as they went in.
    #[test]
    fn entries_go_round() {
        let mut object = TestObject::existing();
        object.message(|cx| Ring::create(cx, 1050, 0, Bytes::new())).expect("created");
        let mut ring = Ring::load(&object).expect("a queue");
        let mut expected = std::collections::VecDeque::new();
        for number in 0..100_u8 {
            while let Err(fault) = object.message(|cx| ring.enqueue(cx, vec![vec![number; 90].into()])) {
                assert_eq!(fault, Fault::Errno(Errno::ENOSPC));
                assert_eq!(expected.len(), 10);
                let (_, next, _) = entries(&ring, &object, b"", 3);
                object.message(|cx| ring.remove(cx, &next)).expect("removed");
                drop(expected.drain(..3));
            }
            expected.push_back(number);
            let (found, next, more) = entries(&ring, &object, b"", 100);
            assert_eq!((found, more), (expected.iter().copied().collect(), false));
            assert_eq!(next, ring.tail.to_text());
            let (first, next, _) = entries(&ring, &object, b"", 1);
            let (rest, _, _) = entries(&ring, &object, &next, 100);
            assert_eq!([first, rest].concat(), expected.iter().copied().collect::<Vec<_>>());
        }
    }

    #[test]
    fn markers_that_are_none_count_as_the_front() {
        assert_eq!(Marker::parse(b"12/345"), Marker { generation: 12, offset: 345 });
        assert_eq!(Marker::parse(b"x"), Marker::default());
        assert_eq!(Marker::parse(b"7"), Marker { generation: 7, offset: 0 });
    }
}
