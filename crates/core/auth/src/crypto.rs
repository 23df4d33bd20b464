//! [`CryptoKey`]: an AES-128 key, its text form, and the sealed envelopes of cephx.
//!
//! Source: Ceph `src/auth/Crypto.cc` (`CryptoAESKeyHandler`) and `encode_encrypt_enc_bl` in
//! `src/auth/cephx/CephxProtocol.h`. AES-128-CBC with one fixed IV and PKCS#7 padding; there is no MAC, only
//! a magic number inside. So an envelope does not show that it was changed: on a connection, signatures and GCM keep an
//! attacker out who can change bytes; what a peer carries for others, its tickets, has a form of its own ([`crate::TicketForm`]).

use aes::Aes128;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit};
use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Entropy, UTime};
use std::fmt;
use zeroize::Zeroize;

/// Length of a key.
pub const KEY_BYTES: usize = 16;

/// `CEPH_AES_IV`.
const IV: [u8; 16] = *b"cephsageyudagreg";
/// `AUTH_ENC_MAGIC`.
const MAGIC: u64 = 0xff00_9cad_8826_aa55;
/// `CEPH_CRYPTO_AES`.
const KEY_TYPE_AES: u16 = 1;

/// Why a key or an envelope was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CryptoError {
    /// The text is not base64.
    #[error("key is not base64")]
    Base64,
    /// Decryption failed: another key, or changed bytes.
    #[error("decryption failed")]
    Decrypt,
    /// Decrypted, but not to an envelope of ours: almost always another key.
    #[error("bad magic in decrypted data")]
    Magic,
    /// The inside does not decode.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// An AES-128 key with the moment it was made. Ceph `CryptoKey`. Its bytes are overwritten when it is dropped, and so are the plain
/// texts that pass through [`CryptoKey::seal`]: they hold other keys.
#[derive(Clone, PartialEq, Eq)]
pub struct CryptoKey {
    created: UTime,
    secret: [u8; KEY_BYTES],
}

impl CryptoKey {
    /// A new key from 16 random bytes.
    #[must_use]
    pub fn generate(entropy: &mut dyn Entropy, wall: UTime) -> Self {
        let mut secret = [0; KEY_BYTES];
        entropy.fill(&mut secret);
        Self { created: wall, secret }
    }

    /// A key of known bytes.
    #[must_use]
    pub const fn from_parts(secret: [u8; KEY_BYTES], created: UTime) -> Self {
        Self { created, secret }
    }

    /// Reads the text of a keyring.
    ///
    /// # Errors
    /// [`CryptoError::Base64`], or [`CryptoError::Decode`] for a key of another type or length.
    pub fn parse(text: &str) -> Result<Self, CryptoError> {
        let bytes = BASE64.decode(text.trim()).map_err(|_| CryptoError::Base64)?;
        Ok(Self::from_bytes(bytes.into())?)
    }

    /// The text of a keyring: base64 of the encoding.
    #[must_use]
    pub fn to_text(&self) -> String {
        BASE64.encode(self.to_bytes())
    }

    /// The bare 16 bytes, the key of the frame signatures.
    #[must_use]
    pub const fn secret(&self) -> &[u8; KEY_BYTES] {
        &self.secret
    }

    /// Whether both have the same secret; how long it takes does not tell how much of it is the same.
    #[must_use]
    pub fn has_secret_of(&self, other: &Self) -> bool {
        let differs = self.secret.iter().zip(&other.secret).fold(0, |sum, (a, b)| sum | (a ^ b));
        std::hint::black_box(differs) == 0
    }

    /// When it was made.
    #[must_use]
    pub const fn created(&self) -> UTime {
        self.created
    }

    /// AES-128-CBC with the fixed IV; adds 1 to 16 bytes of padding.
    #[must_use]
    pub fn encrypt(&self, plain: &[u8]) -> Vec<u8> {
        cbc::Encryptor::<Aes128>::new(&self.secret.into(), &IV.into()).encrypt_padded_vec::<Pkcs7>(plain)
    }

    /// The reverse of [`CryptoKey::encrypt`].
    ///
    /// # Errors
    /// [`CryptoError::Decrypt`] when length or padding is wrong.
    pub fn decrypt(&self, sealed: &[u8]) -> Result<Vec<u8>, CryptoError> {
        cbc::Decryptor::<Aes128>::new(&self.secret.into(), &IV.into())
            .decrypt_padded_vec::<Pkcs7>(sealed)
            .map_err(|_| CryptoError::Decrypt)
    }

    /// Encrypts what `body` writes, behind version and magic.
    #[must_use]
    pub fn seal(&self, body: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut w = Writer::new();
        w.u8(1);
        w.u64(MAGIC);
        body(&mut w);
        let mut plain = Vec::from(w.finish());
        let sealed = self.encrypt(&plain);
        plain.zeroize();
        sealed
    }

    /// [`CryptoKey::seal`] with the length in front, as most places have it.
    pub fn seal_into(&self, w: &mut Writer, body: impl FnOnce(&mut Writer)) {
        w.blob(&self.seal(body));
    }

    /// Decrypts an envelope and reads its inside.
    ///
    /// # Errors
    /// [`CryptoError`].
    pub fn open<T>(
        &self,
        sealed: &[u8],
        body: impl FnOnce(&mut Reader) -> Result<T, DecodeError>,
    ) -> Result<T, CryptoError> {
        let mut r = Reader::new(self.decrypt(sealed)?.into());
        r.u8()?;
        if r.u64()? != MAGIC {
            return Err(CryptoError::Magic);
        }
        Ok(body(&mut r)?)
    }
}

impl Drop for CryptoKey {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

/// Shows nothing of the secret: keys must not reach logs.
impl fmt::Debug for CryptoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CryptoKey(..)")
    }
}

impl Encode for CryptoKey {
    fn encode(&self, w: &mut Writer) {
        w.u16(KEY_TYPE_AES);
        w.put(&self.created);
        w.u16(16);
        w.raw(&self.secret);
    }
}

impl Decode for CryptoKey {
    const MIN_BYTES: usize = 12 + KEY_BYTES;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let kind = r.u16()?;
        if kind != KEY_TYPE_AES {
            return Err(DecodeError::Invalid { what: "CryptoKey.type", value: kind.into() });
        }
        let created = r.get()?;
        let length = r.u16()?;
        if usize::from(length) != KEY_BYTES {
            return Err(DecodeError::Invalid { what: "CryptoKey.len", value: length.into() });
        }
        let mut secret = r.array()?;
        let key = Self { created, secret };
        secret.zeroize();
        Ok(key)
    }
}

/// The key as the bytes that sign frames.
impl From<&CryptoKey> for Bytes {
    fn from(key: &CryptoKey) -> Self {
        Self::copy_from_slice(&key.secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::entropy::SeededEntropy;

    #[test]
    fn a_key_has_the_text_form_of_a_keyring() {
        let text = "AQBAAAAAAAAAABAAAAECAwQFBgcICQoLDA0ODw==";
        let key = CryptoKey::parse(text).expect("a valid key");
        assert_eq!(
            key,
            CryptoKey::from_parts([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], key.created())
        );
        assert_eq!(key.created(), UTime { sec: 64, nsec: 0 });
        assert_eq!(key.to_text(), text);
    }

    /// Computed by openssl from the description at the head of this file.
    #[test]
    fn an_envelope_has_the_bytes_of_another_implementation() {
        let key = CryptoKey::from_parts([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], UTime::ZERO);
        let sealed = key.seal(|w| w.u64(0x1122_3344_5566_7788));
        let want = [
            0x5e, 0x4c, 0x58, 0xeb, 0xa0, 0xea, 0x93, 0x1c, 0x02, 0xef, 0x66, 0x28, 0x53, 0xed, 0xc6, 0xc2,
            0x43, 0x6f, 0xd8, 0x1c, 0xb2, 0xdc, 0x92, 0x81, 0xad, 0x93, 0x1d, 0xa0, 0x55, 0x65, 0xec, 0x32,
        ];
        assert_eq!(sealed, want);
    }

    #[test]
    fn keys_are_the_same_by_their_secrets() {
        let key = |last| {
            let mut secret = [7; KEY_BYTES];
            secret[KEY_BYTES - 1] = last;
            CryptoKey::from_parts(secret, UTime { sec: last.into(), nsec: 0 })
        };
        assert!(key(7).has_secret_of(&CryptoKey::from_parts([7; KEY_BYTES], UTime::default())));
        assert!(!key(7).has_secret_of(&key(8)));
    }

    #[test]
    fn damaged_key_text_is_refused() {
        for text in [
            "",
            "AQ==",
            "!",
            "AgBAAAAAAAAAABAAAAECAwQFBgcICQoLDA0ODw==",
            "AQBAAAAAAAAAABAAAAECAwQFBgcICQoLDA0O",
        ] {
            assert!(CryptoKey::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_envelope_opens_only_with_its_key() {
        let mut entropy = SeededEntropy(1);
        let key = CryptoKey::generate(&mut entropy, UTime::ZERO);
        let other = CryptoKey::generate(&mut entropy, UTime::ZERO);
        let sealed = key.seal(|w| w.u64(7));
        assert_eq!(sealed.len(), 32, "17 bytes and their padding");
        assert_eq!(key.open(&sealed, Reader::u64), Ok(7));
        assert!(other.open(&sealed, Reader::u64).is_err());
        for length in 0..sealed.len() {
            assert!(key.open(&sealed[..length], Reader::u64).is_err());
        }
    }
}
