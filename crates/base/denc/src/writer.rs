//! [`Writer`]: appends encodings and patches the lengths of envelopes.

use crate::Encode;
use nacre_buf::Bytes;

/// Room that the first write makes.
const ROOM_BYTES_MIN: usize = 64;

/// An append-only encoder. Lengths above `u32::MAX` are our own mistake and panic.
///
/// Room is made, and filled with zeros, ahead of what is written, so that a number is one comparison and one store.
#[derive(Debug, Default)]
pub struct Writer {
    /// What is written, and zeros.
    out: Vec<u8>,
    /// Bytes written.
    at: usize,
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
        Self { out: vec![0; capacity], at: 0 }
    }

    /// Bytes written so far.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.at
    }

    /// True when nothing has been written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.at == 0
    }

    /// What has been written so far.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.out.get(..self.at).unwrap_or_default()
    }

    /// The finished encoding.
    #[must_use]
    pub fn finish(mut self) -> Bytes {
        self.out.truncate(self.at);
        Bytes::from(self.out)
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

    /// One byte.
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

    /// A string.
    pub fn str(&mut self, text: &str) {
        self.blob(text.as_bytes());
    }

    /// `u32` length and whatever `body` writes: a struct encoded into a nested bufferlist.
    ///
    /// # Panics
    /// When the body is longer than `u32::MAX` bytes.
    #[inline]
    pub fn nested(&mut self, body: impl FnOnce(&mut Self)) {
        let at = self.at;
        self.u32(0);
        body(self);
        let length = u32::try_from(self.at - at - 4).expect("a body below 4 GiB");
        self.patch_u32(at, length);
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
    /// When `at` does not name four written bytes.
    #[inline]
    pub fn patch_u32(&mut self, at: usize, value: u32) {
        let written = self.out.get_mut(..self.at).and_then(|written| written.get_mut(at..at + 4));
        written.expect("a place written before").copy_from_slice(&value.to_le_bytes());
    }
}
