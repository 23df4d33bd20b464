//! SECURE mode: AES-128-GCM, two sealed parts per frame, one counter per direction.
//!
//! Source: Ceph `src/msg/async/crypto_onwire.cc` and `frames_v2.cc`, v16.2.15. The connection secret is
//! `key 16 | nonce 12 | nonce 12 | unused 24`; the server sends with the first nonce. A nonce is
//! `u32 fixed | u64 counter`, and the counter moves by one with each sealed part.

use super::{Preamble, pull};
use crate::Fault;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// Bytes of a connection secret that are used.
pub(crate) const SECRET_BYTES: usize = 16 + 12 + 12;
/// Bytes that sealing adds to each part.
pub(super) const SEAL_BYTES: usize = 16;
/// Segments and epilogue are padded to a multiple of this.
pub(super) const BLOCK_BYTES: usize = 16;
/// Bytes of segment 0 that travel with the preamble.
pub(super) const INLINE_BYTES: usize = 48;
/// Sealed preamble and inline bytes.
pub(super) const FIRST_PART_BYTES: usize = Preamble::BYTES + INLINE_BYTES + SEAL_BYTES;

/// Length of `length` bytes with their padding.
pub(super) fn padded(length: usize) -> usize {
    length.next_multiple_of(BLOCK_BYTES)
}

/// Where the segments of a frame lie within its second sealed part.
pub(super) struct Layout {
    /// Padded bytes of segment 0 behind the inline ones.
    pub(super) tail: usize,
    /// Padded bytes before the data segment: the rest of segment 0, front, middle.
    pub(super) data_offset: usize,
    /// All sealed bytes with their tag; 0 when the frame has no second part.
    pub(super) sealed: usize,
}

impl Layout {
    pub(super) fn of(preamble: &Preamble) -> Self {
        let tail = padded(preamble.length(0).saturating_sub(INLINE_BYTES));
        let data_offset = tail + padded(preamble.length(1)) + padded(preamble.length(2));
        let epilogue = if preamble.has_epilogue() { BLOCK_BYTES } else { 0 };
        let open = data_offset + padded(preamble.length(3)) + epilogue;
        Self { tail, data_offset, sealed: if open == 0 { 0 } else { open + SEAL_BYTES } }
    }
}

/// One direction of a secure connection.
pub(crate) struct Cipher {
    key: LessSafeKey,
    fixed: [u8; 4],
    counter: u64,
}

impl Cipher {
    fn new(key: &[u8; 16], nonce: [u8; 12]) -> Self {
        let key = UnboundKey::new(&AES_128_GCM, key).expect("the key has the length of the cipher");
        let mut rest = nonce.as_slice();
        let fixed = pull(&mut rest);
        Self { key: LessSafeKey::new(key), fixed, counter: u64::from_le_bytes(pull(&mut rest)) }
    }

    fn next_nonce(&mut self) -> Nonce {
        let mut nonce = [0; 12];
        let (fixed, counter) = nonce.split_at_mut(4);
        fixed.copy_from_slice(&self.fixed);
        counter.copy_from_slice(&self.counter.to_le_bytes());
        self.counter = self.counter.wrapping_add(1);
        Nonce::assume_unique_for_key(nonce)
    }

    /// Seals `out[from..]` in place and appends the tag.
    pub(super) fn seal(&mut self, out: &mut Vec<u8>, from: usize) {
        let nonce = self.next_nonce();
        let open = out.get_mut(from..).expect("a part that was just written");
        let sealed = self.key.seal_in_place_separate_tag(nonce, Aad::empty(), open);
        out.extend_from_slice(sealed.expect("parts are far below the cipher's limit").as_ref());
    }

    /// Opens `part` in place; the plain bytes stand at its start, [`SEAL_BYTES`] shorter.
    pub(super) fn open(&mut self, part: &mut [u8]) -> Result<(), Fault> {
        let (nonce, bytes) = (self.next_nonce(), part.len());
        self.key.open_in_place(nonce, Aad::empty(), part).map(|_| ()).map_err(|_| Fault::Sealed { bytes })
    }
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cipher(counter {})", self.counter)
    }
}

/// Both directions of a secure connection.
pub(crate) struct Keys {
    pub(crate) send: Cipher,
    pub(crate) receive: Cipher,
}

impl Keys {
    /// Splits a connection secret; `server` says which side we are.
    pub(crate) fn new(secret: &[u8], server: bool) -> Result<Self, Fault> {
        let Some(secret) = secret.first_chunk::<SECRET_BYTES>() else {
            return Err(Fault::Secret { length: secret.len(), wanted: SECRET_BYTES });
        };
        let mut rest = secret.as_slice();
        let key: [u8; 16] = pull(&mut rest);
        let from_server = Cipher::new(&key, pull(&mut rest));
        let from_client = Cipher::new(&key, pull(&mut rest));
        Ok(match server {
            true => Self { send: from_server, receive: from_client },
            false => Self { send: from_client, receive: from_server },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_agree_and_nonces_move() {
        let secret: Vec<u8> = (0..64).collect();
        let mut server = Keys::new(&secret, true).expect("long enough");
        let mut client = Keys::new(&secret, false).expect("long enough");
        let mut sealed = [b"plain".to_vec(), b"plain".to_vec()];
        for part in &mut sealed {
            server.send.seal(part, 0);
        }
        assert_ne!(sealed[0], sealed[1]);
        for part in &mut sealed {
            client.receive.open(part).expect("sealed by the other side");
            assert_eq!(&part[..5], b"plain");
        }
        assert_eq!(client.receive.open(&mut sealed[0]), Err(Fault::Sealed { bytes: 21 }));
    }

    #[test]
    fn a_short_secret_is_refused() {
        assert!(matches!(Keys::new(&[0; 39], true), Err(Fault::Secret { length: 39, wanted: 40 })));
    }
}
