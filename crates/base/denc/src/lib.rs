//! The codec under every Ceph message and map: a bounded reader, a writer, and versioned envelopes.
//!
//! Source of the format: Ceph `src/include/encoding.h` and `src/include/denc.h` at v16.2.15. Integers are
//! little-endian; a container is a `u32` count and its elements; `(version, compat, length)` envelopes let
//! an older reader skip what a newer writer added. Layer: base; uses buf.
#![warn(clippy::indexing_slicing, clippy::cast_possible_truncation)]

mod impls;
mod reader;
mod writer;

pub use reader::{DecodeError, Reader};
pub use writer::Writer;

use nacre_buf::Bytes;

/// Room for a value that is encoded on its own: growing to it byte by byte costs more.
const BYTES_USUAL: usize = 64;

/// Has an encoding; see the type's documentation for the Ceph struct it follows.
pub trait Encode {
    /// Appends the encoding of `self`.
    fn encode(&self, w: &mut Writer);

    /// The encoding on its own.
    fn to_bytes(&self) -> Bytes {
        let mut w = Writer::with_capacity(BYTES_USUAL);
        self.encode(&mut w);
        w.finish()
    }
}

/// Can be decoded from bytes that are not to be trusted.
pub trait Decode: Sized {
    /// Reads one value and leaves the reader behind it.
    ///
    /// # Errors
    /// [`DecodeError`] when the bytes end early, a count or length exceeds what is left, or a version is
    /// one we cannot read.
    fn decode(r: &mut Reader) -> Result<Self, DecodeError>;

    /// Decodes a value that must fill `bytes` exactly up to unknown trailing data, which is ignored.
    ///
    /// # Errors
    /// As [`Decode::decode`].
    fn from_bytes(bytes: Bytes) -> Result<Self, DecodeError> {
        Self::decode(&mut Reader::new(bytes))
    }

    /// Fewest bytes one value can take; bounds a peer's element count before memory is reserved.
    const MIN_BYTES: usize = 1;
}
