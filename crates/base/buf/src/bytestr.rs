//! [`ByteStr`]: a cheap-to-clone string of arbitrary bytes, because names on the wire need not be UTF-8.

use bytes::Bytes;
use std::borrow::Borrow;
use std::fmt;

/// An immutable string of any bytes, ordered bytewise: object names, keys, attribute and omap names.
///
/// May share the frame it was decoded from; a holder that outlives the request calls
/// [`ByteStr::detached`] so that a 20-byte name does not keep a whole frame in memory.
#[derive(Clone, Default, Eq, PartialOrd, Ord)]
pub struct ByteStr(Bytes);

/// As slices compare, by words: names are short, and a call of memcmp takes longer than the rest of what is done with most of them.
impl PartialEq for ByteStr {
    fn eq(&self, other: &Self) -> bool {
        let ((words, rest), (other_words, other_rest)) = (self.0.as_chunks::<8>(), other.0.as_chunks::<8>());
        self.len() == other.len()
            && words.iter().zip(other_words).all(|(a, b)| a == b)
            && rest.iter().zip(other_rest).all(|(a, b)| a == b)
    }
}

impl std::hash::Hash for ByteStr {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl ByteStr {
    /// The empty string.
    pub const EMPTY: Self = Self(Bytes::new());

    /// A string over static bytes, without allocation.
    #[must_use]
    pub const fn from_static(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// A copy that owns exactly its own bytes.
    #[must_use]
    pub fn detached(&self) -> Self {
        if self.is_empty() { Self::EMPTY } else { Self(Bytes::copy_from_slice(&self.0)) }
    }

    /// The bytes, which need not be UTF-8.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes as a shared slice.
    #[must_use]
    pub fn to_shared(&self) -> Bytes {
        self.0.clone()
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True for the empty string.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text with invalid UTF-8 replaced, for people.
    #[must_use]
    pub fn to_text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl std::ops::Deref for ByteStr {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for ByteStr {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Lets maps keyed by `ByteStr` be searched with a plain slice; order and hash agree with `[u8]`.
impl Borrow<[u8]> for ByteStr {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for ByteStr {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for ByteStr {
    fn from(text: String) -> Self {
        Self(Bytes::from(text))
    }
}

impl From<&[u8]> for ByteStr {
    fn from(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }
}

impl From<Vec<u8>> for ByteStr {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Bytes::from(bytes))
    }
}

impl From<Bytes> for ByteStr {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl PartialEq<str> for ByteStr {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialEq<&str> for ByteStr {
    fn eq(&self, other: &&str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl fmt::Display for ByteStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for ByteStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_to_the_last_byte() {
        for text in ["", "a", "1234567", "12345678", "123456789", "1234567812345678x"] {
            let name = ByteStr::from(text);
            assert_eq!(name, ByteStr::from(text));
            for at in 0..text.len() {
                let mut other = text.as_bytes().to_vec();
                other[at] ^= 1;
                assert_ne!(name, ByteStr::from(other), "{text} at {at}");
            }
            assert_ne!(name, ByteStr::from(format!("{text}x")));
        }
    }
}
