//! [`Reader`]: a cursor over shared bytes that never reads past its end and never allocates by a peer's word.

use crate::Decode;
use nacre_buf::{ByteStr, Bytes};

/// Why bytes could not be decoded. The peer or the disk is at fault, never the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The input ended inside a value.
    #[error("input ends early: {wanted} bytes wanted at offset {offset}, {left} left")]
    Short {
        /// Offset of the value within the reader's input.
        offset: usize,
        /// Bytes that the value needs.
        wanted: usize,
        /// Bytes that are there.
        left: usize,
    },
    /// An element count that the rest of the input cannot hold.
    #[error("count {count} at offset {offset} cannot fit in the {left} bytes left")]
    Count {
        /// Offset just behind the count.
        offset: usize,
        /// The count that was read.
        count: u32,
        /// Bytes behind it.
        left: usize,
    },
    /// The writer says that readers of our version cannot understand this struct.
    #[error("{what}: needs a reader of version {compat}, this one reads up to {supported}")]
    Incompatible {
        /// Name of the struct.
        what: &'static str,
        /// Oldest version that may read it.
        compat: u8,
        /// Newest version that we know.
        supported: u8,
    },
    /// A value outside of what its field may hold.
    #[error("{what}: invalid value {value}")]
    Invalid {
        /// Name of the field.
        what: &'static str,
        /// The value, widened.
        value: u64,
    },
    /// A checksum that does not match.
    #[error("{what}: checksum {found:#010x}, computed {computed:#010x}")]
    Checksum {
        /// What the checksum covers.
        what: &'static str,
        /// The value that was read.
        found: u32,
        /// Value of the bytes that are there.
        computed: u32,
    },
}

/// A cursor over one shared slice. Sub-slices that it hands out share the memory of the input.
#[derive(Debug, Clone)]
pub struct Reader {
    input: Bytes,
    /// Where the innermost open envelope, or the input, begins, ...
    start: usize,
    /// ... where the next value does, ...
    at: usize,
    /// ... and where the envelope ends.
    end: usize,
}

impl Reader {
    /// Starts at the first byte of `input`.
    #[must_use]
    pub fn new(input: Bytes) -> Self {
        let end = input.len();
        Self { input, start: 0, at: 0, end }
    }

    /// Bytes not yet read.
    #[inline]
    #[must_use]
    pub fn left(&self) -> usize {
        self.end - self.at
    }

    /// Bytes read so far; within an envelope, of its body.
    #[inline]
    #[must_use]
    pub fn offset(&self) -> usize {
        self.at - self.start
    }

    /// True when everything has been read.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left() == 0
    }

    /// What is left, without moving on.
    #[must_use]
    pub fn rest(&self) -> Bytes {
        self.input.slice(self.at..self.end)
    }

    #[cold]
    fn short(&self, wanted: usize) -> DecodeError {
        DecodeError::Short { offset: self.offset(), wanted, left: self.left() }
    }

    /// The next `length` bytes, sharing memory with the input.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    #[inline]
    pub fn take(&mut self, length: usize) -> Result<Bytes, DecodeError> {
        if length > self.left() {
            return Err(self.short(length));
        }
        let out = self.input.slice(self.at..self.at + length);
        self.at += length;
        Ok(out)
    }

    /// Moves on by `length` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    #[inline]
    pub fn skip(&mut self, length: usize) -> Result<(), DecodeError> {
        if length > self.left() {
            return Err(self.short(length));
        }
        self.at += length;
        Ok(())
    }

    /// The next `N` bytes by value.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let bytes = self
            .input
            .get(self.at..self.end)
            .and_then(|rest| rest.first_chunk::<N>())
            .ok_or_else(|| self.short(N))?;
        self.at += N;
        Ok(*bytes)
    }

    /// Reads any decodable value; the type is usually inferred.
    ///
    /// # Errors
    /// As the value's decoder.
    #[inline]
    pub fn get<T: Decode>(&mut self) -> Result<T, DecodeError> {
        T::decode(self)
    }

    /// One byte.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    #[inline]
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// Two bytes, little-endian.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    #[inline]
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Four bytes, little-endian.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    #[inline]
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes, little-endian.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    #[inline]
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Four bytes, little-endian, signed.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    #[inline]
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    /// Eight bytes, little-endian, signed.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    #[inline]
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// One byte as a truth value: anything but zero is true, as in Ceph.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    #[inline]
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.u8()? != 0)
    }

    /// `u32` length and that many bytes (a `bufferlist`).
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    #[inline]
    pub fn blob(&mut self) -> Result<Bytes, DecodeError> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    /// `u32` length and that many bytes (a `std::string`, which may hold any bytes).
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    #[inline]
    pub fn str(&mut self) -> Result<ByteStr, DecodeError> {
        self.blob().map(ByteStr::from)
    }

    /// A string for people, invalid UTF-8 replaced.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn text(&mut self) -> Result<String, DecodeError> {
        Ok(self.str()?.to_text())
    }

    /// An element count, proven to fit in what is left when each element takes `element_bytes_min`.
    ///
    /// # Errors
    /// [`DecodeError::Count`]: so no peer can make us reserve more than a small multiple of what it sent.
    #[inline]
    pub fn count(&mut self, element_bytes_min: usize) -> Result<usize, DecodeError> {
        let count = self.u32()?;
        let needed = (count as usize).checked_mul(element_bytes_min.max(1));
        if needed.is_none_or(|needed| needed > self.left()) {
            return Err(DecodeError::Count { offset: self.offset(), count, left: self.left() });
        }
        Ok(count as usize)
    }

    /// Reads an `ENCODE_START` envelope: calls `body(version, self)` with the reader's end where the
    /// envelope's is, then moves behind the envelope whatever the body left unread.
    ///
    /// # Errors
    /// [`DecodeError::Incompatible`] when the writer's compat is above `supported`; else the body's.
    #[inline]
    pub fn envelope<T>(
        &mut self,
        what: &'static str,
        supported: u8,
        body: impl FnOnce(u8, &mut Self) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let version = self.u8()?;
        let compat = self.u8()?;
        let length = self.u32()? as usize;
        if length > self.left() {
            return Err(self.short(length));
        }
        let (start, end, behind) = (self.start, self.end, self.at + length);
        if compat > supported {
            self.at = behind;
            return Err(DecodeError::Incompatible { what, compat, supported });
        }
        // The same reader within narrower bounds: another would take a share of the input for each envelope.
        (self.start, self.end) = (self.at, behind);
        let body = body(version, self);
        (self.start, self.at, self.end) = (start, behind, end);
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Writer;

    #[test]
    fn an_envelope_skips_a_newer_tail_and_stops_at_its_end() {
        let mut w = Writer::new();
        w.envelope(9, 1, |w| {
            w.u32(7);
            w.u64(99); // a field of version 9 that we do not know
        });
        w.u8(0x5a);
        let mut r = Reader::new(w.finish());
        assert_eq!(r.envelope("test", 2, |version, r| Ok((version, r.u32()?))), Ok((9, 7)));
        assert_eq!(r.u8(), Ok(0x5a));

        let mut w = Writer::new();
        w.envelope(1, 1, |w| w.u8(1));
        w.u64(0);
        let mut r = Reader::new(w.finish());
        assert!(matches!(
            r.envelope("test", 1, |_, r| r.u64()),
            Err(DecodeError::Short { wanted: 8, left: 1, .. })
        ));
    }

    #[test]
    fn a_writer_that_demands_a_newer_reader_is_refused() {
        let mut w = Writer::new();
        w.envelope(5, 4, |_| ());
        let found = Reader::new(w.finish()).envelope("test", 3, |_, _| Ok(()));
        assert_eq!(found, Err(DecodeError::Incompatible { what: "test", compat: 4, supported: 3 }));
    }

    #[test]
    fn a_huge_count_is_refused_before_anything_is_reserved() {
        let mut w = Writer::new();
        w.u32(u32::MAX);
        w.u64(0);
        assert!(matches!(
            Vec::<u64>::from_bytes(w.finish()),
            Err(DecodeError::Count { count: u32::MAX, .. })
        ));
    }
}
