//! [`Writer`]: appends encodings and patches the lengths of envelopes.

use crate::Encode;
use nacre_buf::{BufList, Bytes};

/// Room that the first write makes.
const ROOM_BYTES_MIN: usize = 64;
/// Values from which on a gathering writer shares them: shorter ones are copied sooner than kept apart.
const SHARED_BYTES_MIN: usize = 16 << 10;

/// An append-only encoder. Lengths above `u32::MAX` are our own mistake and panic.
///
/// Room is made, and filled with zeros, ahead of what is written, so that a number is one comparison and one store.
///
/// ```text
///  written    small ............ [a long value] small ..... [another] small
///  out        small ............                small .....           small    copied
///  shared                         at 18                      at 29             references
/// ```
/// What a gathering writer was given as `Bytes` is not copied where it is long: see [`Writer::gathering`].
#[derive(Debug, Default)]
pub struct Writer {
    /// What is written, but for what is shared, and zeros.
    out: Vec<u8>,
    /// Bytes written there.
    at: usize,
    /// Long values are shared.
    gathers: bool,
    /// Values in order, each with what was written to `out` before it.
    shared: Vec<(usize, Bytes)>,
    /// Bytes of them.
    shared_bytes: usize,
}

impl Writer {
    /// An empty writer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty writer with room for `capacity` bytes.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { out: vec![0; capacity], ..Self::default() }
    }

    /// An empty writer with room for `capacity` bytes beside long values, of which it keeps references: for a caller that takes the encoding
    /// as [`Writer::slices`] or [`Writer::finish_list`].
    #[must_use]
    pub fn gathering(capacity: usize) -> Self {
        Self { out: vec![0; capacity], gathers: true, ..Self::default() }
    }

    /// Bytes written so far.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.at + self.shared_bytes
    }

    /// True when nothing has been written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What has been written so far.
    ///
    /// # Panics
    /// When something of it is shared.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        assert!(self.shared.is_empty(), "it is not in one piece");
        self.own(0, self.at)
    }

    /// Whether something of it is shared.
    #[must_use]
    pub fn shares(&self) -> bool {
        !self.shared.is_empty()
    }

    fn own(&self, from: usize, to: usize) -> &[u8] {
        self.out.get(from..to).unwrap_or_default()
    }

    /// What has been written so far, in pieces.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let befores = std::iter::once(0).chain(self.shared.iter().map(|(at, _)| *at));
        let shared = self.shared.iter().zip(befores);
        let pieces = shared.flat_map(|((at, value), before)| [self.own(before, *at), &value[..]]);
        let last = self.shared.last().map_or(0, |(at, _)| *at);
        pieces.chain(std::iter::once(self.own(last, self.at)))
    }

    /// The finished encoding, in one piece.
    #[must_use]
    pub fn finish(mut self) -> Bytes {
        if !self.shared.is_empty() {
            return self.finish_list().into_bytes();
        }
        self.out.truncate(self.at);
        Bytes::from(self.out)
    }

    /// The finished encoding; what is shared is not copied.
    #[must_use]
    pub fn finish_list(mut self) -> BufList {
        self.out.truncate(self.at);
        let (out, mut list, mut before) = (Bytes::from(self.out), BufList::new(), 0);
        for (at, value) in self.shared {
            list.push(out.slice(before..at));
            list.push(value);
            before = at;
        }
        list.push(out.slice(before..));
        list
    }

    /// Makes room for `count` more bytes.
    #[cold]
    fn grow(&mut self, count: usize) {
        let least = self.at + count;
        self.out.resize(least.max(2 * self.out.len()).max(ROOM_BYTES_MIN), 0);
    }

    #[inline]
    fn reserve(&mut self, count: usize) {
        if count > self.out.len() - self.at {
            self.grow(count);
        }
    }

    /// Bytes of a fixed number.
    #[inline]
    pub(crate) fn array<const N: usize>(&mut self, bytes: [u8; N]) {
        self.reserve(N);
        if let Some(room) = self.out.get_mut(self.at..).and_then(<[u8]>::first_chunk_mut) {
            *room = bytes;
        }
        self.at += N;
    }

    /// Any encodable value.
    #[inline]
    pub fn put<T: Encode + ?Sized>(&mut self, value: &T) {
        value.encode(self);
    }

    /// Raw bytes, no length.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        if let Some(room) = self.out.get_mut(self.at..self.at + bytes.len()) {
            room.copy_from_slice(bytes);
        }
        self.at += bytes.len();
    }

    /// `count` zero bytes.
    pub fn zeros(&mut self, count: usize) {
        self.reserve(count);
        self.at += count;
    }

    /// Appends one byte.
    #[inline]
    pub fn u8(&mut self, value: u8) {
        self.array([value]);
    }

    /// A truth value as one byte.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// Two bytes, little-endian.
    #[inline]
    pub fn u16(&mut self, value: u16) {
        self.array(value.to_le_bytes());
    }

    /// Four bytes, little-endian.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.array(value.to_le_bytes());
    }

    /// Eight bytes, little-endian.
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.array(value.to_le_bytes());
    }

    /// Four bytes, little-endian, signed.
    #[inline]
    pub fn i32(&mut self, value: i32) {
        self.array(value.to_le_bytes());
    }

    /// Eight bytes, little-endian, signed.
    #[inline]
    pub fn i64(&mut self, value: i64) {
        self.array(value.to_le_bytes());
    }

    /// A container's element count.
    ///
    /// # Panics
    /// Above `u32::MAX` elements.
    #[inline]
    pub fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("containers are bounded far below 2^32 elements"));
    }

    /// `u32` length and the bytes (a `bufferlist` or a `std::string`).
    #[inline]
    pub fn blob(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.raw(bytes);
    }

    /// As [`Writer::blob`], of bytes that a gathering writer may share.
    #[inline]
    pub fn blob_of(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARED_BYTES_MIN || !self.gathers {
            return self.blob(bytes);
        }
        self.count(bytes.len());
        self.shared.push((self.at, bytes.clone()));
        self.shared_bytes += bytes.len();
    }

    /// Appends a string behind its length.
    pub fn str(&mut self, text: &str) {
        self.blob(text.as_bytes());
    }

    /// `u32` length and whatever `body` writes: a struct encoded into a nested bufferlist.
    ///
    /// # Panics
    /// When the body is longer than `u32::MAX` bytes.
    #[inline]
    pub fn nested(&mut self, body: impl FnOnce(&mut Self)) {
        let (at, before) = (self.at, self.len() + 4);
        self.u32(0);
        body(self);
        let length = u32::try_from(self.len() - before).expect("a body below 4 GiB");
        self.patch(at, length);
    }

    /// An `ENCODE_START(version, compat)` envelope around whatever `body` writes.
    #[inline]
    pub fn envelope(&mut self, version: u8, compat: u8, body: impl FnOnce(&mut Self)) {
        self.u8(version);
        self.u8(compat);
        self.nested(body);
    }

    /// Overwrites the four bytes at `at`, for lengths and checksums known only afterwards.
    ///
    /// # Panics
    /// When `at` does not name four written bytes, or something is shared: what is written is elsewhere then.
    #[inline]
    pub fn patch_u32(&mut self, at: usize, value: u32) {
        assert!(self.shared.is_empty(), "it is not in one piece");
        self.patch(at, value);
    }

    #[inline]
    fn patch(&mut self, at: usize, value: u32) {
        let written = self.out.get_mut(..self.at).and_then(|written| written.get_mut(at..at + 4));
        written.expect("a place written before").copy_from_slice(&value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(w: &mut Writer, values: &[Bytes]) {
        w.envelope(2, 1, |w| {
            w.u32(7);
            values.iter().for_each(|value| w.put(value));
            w.nested(|w| values.iter().for_each(|value| w.put(value)));
        });
        w.u8(9);
    }

    /// The bytes are the same, and long values are where they were.
    #[test]
    fn a_gathering_writer_shares_long_values() {
        let value = |length: usize| Bytes::from(vec![7; length]);
        let many = [5, 100_000, SHARED_BYTES_MIN, 6, 100_000].map(value);
        for values in [&many[..0], &many[2..3], &many] {
            let (mut plain, mut gathering) = (Writer::new(), Writer::gathering(10));
            write(&mut plain, values);
            write(&mut gathering, values);
            let expected = plain.finish();
            assert_eq!(gathering.len(), expected.len());
            assert_eq!(gathering.slices().collect::<Vec<_>>().concat(), expected);
            let list = gathering.finish_list();
            assert_eq!(list.to_bytes(), expected);
            let own: usize =
                list.slices().iter().map(Bytes::len).filter(|bytes| *bytes < SHARED_BYTES_MIN).sum();
            let shared = list
                .slices()
                .iter()
                .filter(|slice| values.iter().any(|value| value.as_ptr() == slice.as_ptr()));
            assert_eq!(own + shared.map(Bytes::len).sum::<usize>(), expected.len());
            let mut gathering = Writer::gathering(0);
            write(&mut gathering, values);
            assert_eq!(gathering.finish(), expected);
        }
    }
}
