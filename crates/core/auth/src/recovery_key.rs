//! [`RecoveryKey`]: the key that seals what OSDs keep of the monitors' tables, its text form, and the sealing itself.
//!
//! ChaCha20-Poly1305 (RFC 8439) with random nonces of 96 bits: a leader seals every ten minutes at most, so that a key comes nowhere near
//! the 2^32 messages up to which random nonces are safe. The text is Base32 in Crockford's alphabet, which leaves out the letters that
//! are mistaken for digits: 32 bytes of key and 3 of checksum are 56 characters, in groups of four.

use nacre_buf::crc;
use nacre_types::Entropy;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest;
use std::fmt;
use zeroize::{Zeroize, Zeroizing};

/// Length of a recovery key.
pub const RECOVERY_KEY_BYTES: usize = 32;
/// Bytes that sealing adds: the nonce in front and the tag behind.
pub const SEAL_OVERHEAD_BYTES: usize = NONCE_LEN + 16;

const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const CHECKSUM_BYTES: usize = 3;
const TEXT_BYTES: usize = RECOVERY_KEY_BYTES + CHECKSUM_BYTES;
const TEXT_CHARS: usize = TEXT_BYTES * 8 / 5;
const GROUP_CHARS: usize = 4;
/// A checksum of another kind of text does not fit.
const CHECKSUM_DOMAIN: &[u8] = b"nacre recovery key 1";
const ID_DOMAIN: &[u8] = b"nacre recovery key id 1";

const _: () = assert!(TEXT_BYTES * 8 == TEXT_CHARS * 5, "the text has no bits to spare");
const _: () = assert!(TEXT_CHARS.is_multiple_of(GROUP_CHARS), "all groups are full");

/// Why a text is no recovery key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryKeyError {
    /// It has a character that no key has.
    #[error("a recovery key has digits and letters in groups of four, and no '{0}'")]
    Character(char),
    /// Characters are missing, or there are too many.
    #[error("a recovery key has {TEXT_CHARS} characters besides the dashes, and this has {0}")]
    Length(usize),
    /// The checksum at its end is that of another key.
    #[error("the recovery key is mistyped: its checksum does not fit")]
    Checksum,
}

/// Why sealed bytes do not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("sealed with another key, or damaged")]
pub struct Unsealable;

/// A symmetric key of 256 bits. Its bytes are overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct RecoveryKey([u8; RECOVERY_KEY_BYTES]);

impl RecoveryKey {
    /// A new key.
    #[must_use]
    pub fn generate(entropy: &mut dyn Entropy) -> Self {
        let mut key = Self([0; RECOVERY_KEY_BYTES]);
        entropy.fill(&mut key.0);
        key
    }

    /// A key of known bytes.
    #[must_use]
    pub const fn from_secret(secret: [u8; RECOVERY_KEY_BYTES]) -> Self {
        Self(secret)
    }

    /// The bare bytes.
    #[must_use]
    pub const fn secret(&self) -> &[u8; RECOVERY_KEY_BYTES] {
        &self.0
    }

    /// Tells keys apart, and nothing about them.
    #[must_use]
    pub fn id(&self) -> [u8; 8] {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(ID_DOMAIN);
        context.update(&self.0);
        let hash = context.finish();
        hash.as_ref().first_chunk().copied().unwrap_or_default() // a hash has 32 bytes
    }

    /// Reads the text that people keep; capital or not, with or without dashes and spaces.
    ///
    /// # Errors
    /// [`RecoveryKeyError`].
    pub fn parse(text: &str) -> Result<Self, RecoveryKeyError> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(TEXT_BYTES));
        let (mut bits, mut bit_count, mut chars) = (0_u32, 0, 0);
        for ch in text.chars().filter(|ch| *ch != '-' && !ch.is_whitespace()) {
            bits = bits << 5 | value_of(ch)?;
            bit_count += 5;
            chars += 1;
            if bit_count >= 8 {
                bit_count -= 8;
                let [.., byte] = (bits >> bit_count).to_be_bytes();
                if bytes.len() < TEXT_BYTES {
                    bytes.push(byte);
                }
                bits &= (1 << bit_count) - 1;
            }
        }
        let (secret, checksum) = bytes.split_first_chunk().ok_or(RecoveryKeyError::Length(chars))?;
        if chars != TEXT_CHARS {
            return Err(RecoveryKeyError::Length(chars));
        }
        let key = Self(*secret);
        if checksum == key.checksum() { Ok(key) } else { Err(RecoveryKeyError::Checksum) }
    }

    /// The text that people keep.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::with_capacity(TEXT_CHARS + TEXT_CHARS / GROUP_CHARS);
        let checksum = self.checksum();
        let (mut bits, mut bit_count, mut chars) = (0_u32, 0, 0);
        for byte in self.0.iter().chain(&checksum) {
            bits = bits << 8 | u32::from(*byte);
            bit_count += 8;
            while bit_count >= 5 {
                bit_count -= 5;
                if chars > 0 && chars % GROUP_CHARS == 0 {
                    text.push('-');
                }
                // There is one for each value of five bits.
                text.extend(ALPHABET.get((bits >> bit_count) as usize & 31).copied().map(char::from));
                chars += 1;
                bits &= (1 << bit_count) - 1;
            }
        }
        text
    }

    fn checksum(&self) -> [u8; CHECKSUM_BYTES] {
        let [checksum @ .., _] = crc::crc32c(crc::crc32c(u32::MAX, CHECKSUM_DOMAIN), &self.0).to_le_bytes();
        checksum
    }

    fn cipher(&self) -> LessSafeKey {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &self.0);
        LessSafeKey::new(key.expect("the key has the length of the cipher"))
    }

    /// Encrypts `plain`, which is overwritten: nonce, what it becomes, tag. Nothing opens it with another `context`.
    ///
    /// # Panics
    /// When `plain` is longer than the cipher's limit, 256 GiB.
    #[must_use]
    pub fn seal(&self, context: &[u8], mut plain: Vec<u8>, entropy: &mut dyn Entropy) -> Vec<u8> {
        let mut nonce = [0; NONCE_LEN];
        entropy.fill(&mut nonce);
        let at = Nonce::assume_unique_for_key(nonce);
        let tag = self.cipher().seal_in_place_separate_tag(at, Aad::from(context), &mut plain);
        let tag = tag.expect("far below the cipher's limit");
        [&nonce, plain.as_slice(), tag.as_ref()].concat()
    }

    /// The reverse of [`RecoveryKey::seal`].
    ///
    /// # Errors
    /// [`Unsealable`].
    pub fn open(&self, context: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Unsealable> {
        let (nonce, sealed) = sealed.split_first_chunk().ok_or(Unsealable)?;
        let mut plain = Zeroizing::new(sealed.to_vec());
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.cipher().open_in_place(nonce, Aad::from(context), &mut plain);
        let length = opened.map_err(|_| Unsealable)?.len();
        plain.truncate(length);
        Ok(plain)
    }
}

/// The digit that a character stands for; letters that look like digits stand for these.
fn value_of(ch: char) -> Result<u32, RecoveryKeyError> {
    let upper = match ch.to_ascii_uppercase() {
        'I' | 'L' => '1',
        'O' => '0',
        other => other,
    };
    let found = ALPHABET.iter().position(|known| char::from(*known) == upper);
    found.and_then(|at| u32::try_from(at).ok()).ok_or(RecoveryKeyError::Character(ch))
}

impl Drop for RecoveryKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// Shows nothing of the secret: keys must not reach logs.
impl fmt::Debug for RecoveryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecoveryKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::entropy::SeededEntropy;

    #[test]
    fn a_key_is_read_as_it_was_written_and_as_people_type_it() {
        let key = RecoveryKey::generate(&mut SeededEntropy(7));
        let text = key.to_text();
        assert_eq!((text.len(), text.split('-').count()), (69, 14), "{text}");
        assert_eq!(RecoveryKey::parse(&text), Ok(key.clone()));
        let sloppy =
            format!(" {} ", text.to_lowercase().replace('-', " ").replace('1', "l").replace('0', "o"));
        assert_eq!(RecoveryKey::parse(&sloppy), Ok(key));
        let known = RecoveryKey::from_secret(std::array::from_fn(|at| u8::try_from(at).expect("small")));
        assert_eq!(known.to_text(), KNOWN);
    }

    /// The text of the bytes 0 to 31, computed by another program. It is in the hands of administrators: it must not change.
    const KNOWN: &str = "000G-40R4-0M30-E209-185G-R38E-1W81-24GK-2GAH-C5RR-34D1-P70X-3RFT-0X1G";

    #[test]
    fn each_wrong_character_is_noticed() {
        let text = RecoveryKey::generate(&mut SeededEntropy(8)).to_text();
        for (at, ch) in text.char_indices().filter(|(_, ch)| *ch != '-') {
            let other = if ch == 'Z' { 'Y' } else { 'Z' };
            let mut wrong = text.clone();
            wrong.replace_range(at..=at, &other.to_string());
            assert_eq!(RecoveryKey::parse(&wrong), Err(RecoveryKeyError::Checksum), "{wrong}");
        }
        assert_eq!(RecoveryKey::parse(&text[1..]), Err(RecoveryKeyError::Length(55)));
        assert_eq!(RecoveryKey::parse(&text.repeat(3)), Err(RecoveryKeyError::Length(168)));
        assert_eq!(RecoveryKey::parse(""), Err(RecoveryKeyError::Length(0)));
        assert_eq!(RecoveryKey::parse("AQB=="), Err(RecoveryKeyError::Character('=')));
        assert_eq!(RecoveryKey::parse("ключ"), Err(RecoveryKeyError::Character('к')));
    }

    #[test]
    fn what_is_sealed_opens_with_the_same_key_and_context_only() {
        let mut entropy = SeededEntropy(9);
        let (key, other) = (RecoveryKey::generate(&mut entropy), RecoveryKey::generate(&mut entropy));
        assert_ne!(key.id(), other.id());
        let sealed = key.seal(b"here", b"secret tables".to_vec(), &mut entropy);
        assert_eq!(sealed.len(), 13 + SEAL_OVERHEAD_BYTES);
        assert_eq!(
            key.open(b"here", &sealed).as_ref().map(|plain| plain.as_slice()),
            Ok(&b"secret tables"[..])
        );
        assert_eq!(other.open(b"here", &sealed), Err(Unsealable));
        assert_eq!(key.open(b"there", &sealed), Err(Unsealable));
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.open(b"here", &flipped), Err(Unsealable), "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert_eq!(key.open(b"here", &sealed[..length]), Err(Unsealable), "{length} bytes");
        }
        let again = key.seal(b"here", b"secret tables".to_vec(), &mut entropy);
        assert_ne!(again, sealed, "another nonce");
    }
}
