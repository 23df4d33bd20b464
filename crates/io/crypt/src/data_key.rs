//! [`DataKey`]: what a store's data are encrypted with, and [`WrappingKey`]: what that key is encrypted with where it lies.
//!
//! The data key is made with the store and never changes. The wrapping key comes from a text that the monitors keep, and can be changed
//! without touching the data; who forgets it has erased them. Neither is ever written: the data key lies on the device as
//! AES-256-GCM makes it, with the store's identity as what must fit.

use crate::xts::{XTS_KEY_BYTES, Xts};
use nacre_types::dmcrypt::{KeyTextError, key_in};
use nacre_types::{Entropy, Uuid};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use std::fmt;
use std::sync::Arc;
use zeroize::{Zeroize, Zeroizing};

const DATA_KEY_BYTES: usize = 64;
const WRAPPING_KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 16;
/// Bytes of a wrapped data key: a nonce, the key encrypted, a tag.
pub const WRAPPED_BYTES: usize = NONCE_LEN + DATA_KEY_BYTES + TAG_BYTES;

const DATA_SALT: &[u8] = b"nacre data key 1";
const WRAPPING_SALT: &[u8] = b"nacre wrapping key 1";
const CONTEXT: &[u8] = b"nacre wrapped data key 1";

/// What has a cipher of its own: the same content at the same place of two parts is not to look the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Objects' data, with superblocks and the log that is not elsewhere.
    Data,
    /// A log that has a device of its own.
    Log,
    /// The metadata's database.
    Metadata,
    /// The journal before it.
    Journal,
}

impl Part {
    const fn name(self) -> &'static [u8] {
        match self {
            Self::Data => b"data",
            Self::Log => b"log",
            Self::Metadata => b"metadata",
            Self::Journal => b"journal",
        }
    }
}

/// A length for [`ring::hkdf`].
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-SHA256 of `secret`, for one purpose.
fn derive<const N: usize>(salt: &[u8], secret: &[u8], purpose: &[u8]) -> Zeroizing<[u8; N]> {
    let mut key = Zeroizing::new([0; N]);
    let filled = Salt::new(HKDF_SHA256, salt)
        .extract(secret)
        .expand(&[purpose], Length(N))
        .and_then(|material| material.fill(key.as_mut_slice()));
    filled.expect("far below what the function can give");
    key
}

/// 512 random bits. Overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct DataKey(Zeroizing<[u8; DATA_KEY_BYTES]>);

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey(..)")
    }
}

impl DataKey {
    /// A new key.
    #[must_use]
    pub fn generate(entropy: &mut dyn Entropy) -> Self {
        let mut key = Self(Zeroizing::new([0; DATA_KEY_BYTES]));
        entropy.fill(key.0.as_mut_slice());
        key
    }

    /// The cipher of a part.
    #[must_use]
    pub fn cipher(&self, part: Part) -> Arc<Xts> {
        let key = derive::<XTS_KEY_BYTES>(DATA_SALT, self.0.as_slice(), part.name());
        Arc::new(Xts::new(&key))
    }

    /// The key as it may lie on the device of that store.
    ///
    /// # Panics
    /// Never: the cipher takes far more.
    #[must_use]
    pub fn wrap(&self, with: &WrappingKey, store: Uuid, entropy: &mut dyn Entropy) -> [u8; WRAPPED_BYTES] {
        let mut nonce = [0; NONCE_LEN];
        entropy.fill(&mut nonce);
        let mut sealed = self.0.clone();
        let at = Nonce::assume_unique_for_key(nonce);
        let tag = with.cipher().seal_in_place_separate_tag(at, context(store), sealed.as_mut_slice());
        let tag = tag.expect("far below the cipher's limit");
        let mut wrapped = [0; WRAPPED_BYTES];
        let bytes = nonce.iter().chain(sealed.iter()).chain(tag.as_ref());
        wrapped.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        wrapped
    }

    /// The reverse; `None` with another wrapping key, or when what lies there was changed.
    #[must_use]
    pub fn unwrap(wrapped: &[u8; WRAPPED_BYTES], with: &WrappingKey, store: Uuid) -> Option<Self> {
        let (nonce, sealed) = wrapped.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = Zeroizing::new(sealed.to_vec());
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let key = with.cipher().open_in_place(nonce, context(store), &mut sealed).ok()?;
        Some(Self(Zeroizing::new(key.try_into().ok()?)))
    }
}

fn context(store: Uuid) -> Aad<Vec<u8>> {
    Aad::from([CONTEXT, &store.0].concat())
}

/// The key that opens a store: what the monitors keep under `dm-crypt/osd/UUID/luks`. Overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct WrappingKey([u8; WRAPPING_KEY_BYTES]);

impl Drop for WrappingKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for WrappingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WrappingKey(..)")
    }
}

impl WrappingKey {
    /// By the text, of which white space at either end does not count.
    ///
    /// # Errors
    /// [`KeyTextError`].
    pub fn from_text(text: &str) -> Result<Self, KeyTextError> {
        let text = key_in(text)?;
        Ok(Self(*derive(WRAPPING_SALT, text.as_bytes(), b"wrap")))
    }

    fn cipher(&self) -> LessSafeKey {
        let key = UnboundKey::new(&AES_256_GCM, &self.0);
        LessSafeKey::new(key.expect("the key has the length of the cipher"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::entropy::SeededEntropy;

    fn text(nth: u32) -> String {
        format!("{nth:0>40}")
    }

    #[test]
    fn a_wrapped_key_opens_with_its_key_and_for_its_store_only() {
        let mut entropy = SeededEntropy(1);
        let (key, with) = (DataKey::generate(&mut entropy), WrappingKey::from_text(&text(1)).expect("long"));
        let store = Uuid([3; 16]);
        let wrapped = key.wrap(&with, store, &mut entropy);
        assert_eq!(DataKey::unwrap(&wrapped, &with, store), Some(key.clone()));
        let padded = WrappingKey::from_text(&format!(" {}\n", text(1))).expect("long");
        assert_eq!(DataKey::unwrap(&wrapped, &padded, store), Some(key.clone()));
        let other = WrappingKey::from_text(&text(2)).expect("long");
        assert_eq!(DataKey::unwrap(&wrapped, &other, store), None);
        assert_eq!(DataKey::unwrap(&wrapped, &with, Uuid([4; 16])), None);
        for at in 0..WRAPPED_BYTES {
            let mut spoilt = wrapped;
            spoilt[at] ^= 1;
            assert_eq!(DataKey::unwrap(&spoilt, &with, store), None, "byte {at}");
        }
        let again = key.wrap(&with, store, &mut entropy);
        assert_ne!(again, wrapped, "each has a nonce of its own");
        assert!(!wrapped.windows(16).any(|bytes| key.0.windows(16).any(|of_key| of_key == bytes)));
    }

    #[test]
    fn parts_have_ciphers_of_their_own() {
        let key = DataKey::generate(&mut SeededEntropy(1));
        let parts = [Part::Data, Part::Log, Part::Metadata, Part::Journal];
        let mut seen: Vec<Vec<u8>> = Vec::new();
        for part in parts {
            let mut sector = vec![5; 512];
            key.cipher(part).encrypt(0, &mut sector);
            assert!(!seen.contains(&sector), "{part:?}");
            seen.push(sector);
        }
    }

    #[test]
    fn short_texts_are_refused_and_nothing_shows_a_key() {
        assert_eq!(WrappingKey::from_text("  sesame\n"), Err(KeyTextError::Short { chars: 6 }));
        assert_eq!(WrappingKey::from_text(&"x".repeat(70_000)), Err(KeyTextError::Long));
        let key = WrappingKey::from_text(&text(1)).expect("long");
        assert_eq!(format!("{key:?}"), "WrappingKey(..)");
    }
}
