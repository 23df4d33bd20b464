//! [`Xts`]: AES-256 in XTS mode (IEEE 1619), for whole sectors.
//!
//! The tweak counts units of 4096 bytes, as dm-crypt's sectors of that size do. Block `n` of a unit is
//! `E1(plain ^ T) ^ T` with `T = E2(number of the unit) * a^n` in GF(2^128), so any run of whole blocks of a unit can be written and read
//! alone, without what is around it. Units are whole multiples of the cipher's block: there is no ciphertext stealing.
//!
//! The crate `xts-mode` encrypts one block at a time; here a sector at a time goes to the cipher, which has 8 and more of its blocks under
//! way at once.

use aes::Aes256;
use aes::cipher::array::Array;
use aes::cipher::consts::U16;
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use nacre_env::disk::{BLOCK_BYTES, SECTOR_BYTES};
use std::fmt;

/// Bytes of a block of the cipher.
const CIPHER_BYTES: usize = 16;
/// Blocks of a sector.
const SECTOR_BLOCKS: usize = SECTOR_BYTES / CIPHER_BYTES;
/// Bytes that one tweak is computed for.
const UNIT_BYTES: u64 = BLOCK_BYTES as u64;
/// Sectors of a unit.
const UNIT_SECTORS: u64 = UNIT_BYTES / SECTOR_BYTES as u64;

const _: () =
    assert!(SECTOR_BYTES.is_multiple_of(CIPHER_BYTES), "a torn write leaves whole blocks of the cipher");
const _: () = assert!(BLOCK_BYTES.is_multiple_of(SECTOR_BYTES), "a sector lies in one unit");

/// Two keys of AES-256.
pub(crate) const XTS_KEY_BYTES: usize = 64;

type Block = Array<u8, U16>;

/// What is done to the blocks of a sector.
#[derive(Clone, Copy)]
enum Direction {
    Encrypt,
    Decrypt,
}

/// A cipher. Its keys are overwritten when it is dropped.
pub struct Xts {
    data: Aes256,
    tweak: Aes256,
}

impl fmt::Debug for Xts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Xts(..)")
    }
}

impl Xts {
    /// By a key for the data and, behind it, one for the tweak.
    ///
    /// # Panics
    /// Never: half of a key has the cipher's length.
    #[must_use]
    pub fn new(key: &[u8; XTS_KEY_BYTES]) -> Self {
        let (data, tweak) = key.split_at(XTS_KEY_BYTES / 2);
        let cipher = |half: &[u8]| Aes256::new_from_slice(half).expect("half of the bytes is a key's length");
        Self { data: cipher(data), tweak: cipher(tweak) }
    }

    /// Encrypts what is to lie at byte `offset` of what this cipher is for.
    ///
    /// # Panics
    /// Unless offset and length are multiples of [`SECTOR_BYTES`].
    pub fn encrypt(&self, offset: u64, bytes: &mut [u8]) {
        self.run(offset, bytes, Direction::Encrypt);
    }

    /// The reverse. A sector of zeros stays one: it was never written, or was discarded. What [`Xts::encrypt`] makes of any sector is all
    /// zeros once in 2^4096 times.
    ///
    /// # Panics
    /// As [`Xts::encrypt`].
    pub fn decrypt(&self, offset: u64, bytes: &mut [u8]) {
        self.run(offset, bytes, Direction::Decrypt);
    }

    fn run(&self, offset: u64, bytes: &mut [u8], direction: Direction) {
        const SECTOR: u64 = SECTOR_BYTES as u64;
        assert!(
            offset.is_multiple_of(SECTOR) && bytes.len().is_multiple_of(SECTOR_BYTES),
            "{offset}~{} is not in whole sectors",
            bytes.len()
        );
        let first = offset / SECTOR;
        let mut tweak = self.first_tweak(first / UNIT_SECTORS);
        for _ in 0..first % UNIT_SECTORS {
            tweak = (0..SECTOR_BLOCKS).fold(tweak, |tweak, _| next(tweak));
        }
        for (sector, bytes) in (first..).zip(bytes.chunks_exact_mut(SECTOR_BYTES)) {
            if sector != first && sector.is_multiple_of(UNIT_SECTORS) {
                tweak = self.first_tweak(sector / UNIT_SECTORS);
            }
            let mut tweaks = [0_u128; SECTOR_BLOCKS];
            for slot in &mut tweaks {
                *slot = tweak;
                tweak = next(tweak);
            }
            self.run_sector(&tweaks, bytes, direction);
        }
    }

    fn run_sector(&self, tweaks: &[u128; SECTOR_BLOCKS], bytes: &mut [u8], direction: Direction) {
        if matches!(direction, Direction::Decrypt) && is_zero(bytes) {
            return;
        }
        mask(tweaks, bytes);
        let (blocks, _rest) = Block::slice_as_chunks_mut(bytes);
        match direction {
            Direction::Encrypt => self.data.encrypt_blocks(blocks),
            Direction::Decrypt => self.data.decrypt_blocks(blocks),
        }
        mask(tweaks, bytes);
    }

    /// The tweak of the first block of a unit.
    fn first_tweak(&self, unit: u64) -> u128 {
        let mut block = Block::from(u128::from(unit).to_le_bytes());
        self.tweak.encrypt_block(&mut block);
        u128::from_le_bytes(block.into())
    }
}

/// Times `a` in GF(2^128).
const fn next(tweak: u128) -> u128 {
    (tweak << 1) ^ ((tweak >> 127) * 0x87)
}

fn mask(tweaks: &[u128; SECTOR_BLOCKS], bytes: &mut [u8]) {
    let (blocks, _rest) = bytes.as_chunks_mut::<CIPHER_BYTES>();
    for (block, tweak) in blocks.iter_mut().zip(tweaks) {
        *block = (u128::from_le_bytes(*block) ^ tweak).to_le_bytes();
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    let (blocks, _rest) = bytes.as_chunks::<CIPHER_BYTES>();
    blocks.iter().all(|block| u128::from_le_bytes(*block) == 0)
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "digits and patterns of bytes")]
mod tests {
    use super::*;
    use nacre_env::{Clock, RealClock};

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> =
            text.bytes().filter_map(|ch| char::from(ch).to_digit(16)).map(|d| d as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    fn of_key(key: &[u8]) -> Xts {
        Xts::new(key.try_into().expect("64 bytes"))
    }

    /// IEEE 1619-2007, vector 10: AES-256, unit 0xff, the bytes 0 to 255 twice.
    #[test]
    fn it_is_the_standard_s_mode() {
        let key = hex("2718281828459045235360287471352662497757247093699959574966967627\
             3141592653589793238462643383279502884197169399375105820974944592");
        let plain: Vec<u8> = (0..512).map(|at| at as u8).collect();
        let mut bytes = plain.clone();
        let xts = of_key(&key);
        xts.encrypt(0xff * 4096, &mut bytes);
        let begin = hex("1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b");
        assert_eq!(bytes.get(..32), Some(begin.as_slice()));
        let end = hex("c4f36ffda9fcea70b9c6e693e148c151");
        assert_eq!(bytes.get(496..), Some(end.as_slice()));
        xts.decrypt(0xff * 4096, &mut bytes);
        assert_eq!(bytes, plain);
    }

    #[test]
    fn a_sector_depends_on_its_place_and_on_nothing_around_it() {
        let xts = of_key(&(0..64).collect::<Vec<u8>>());
        let plain: Vec<u8> = (0..3 * 4096).map(|at| (at % 251) as u8).collect();
        let mut whole = plain.clone();
        xts.encrypt(8192, &mut whole);
        for (at, sector) in (0..).step_by(512).zip(plain.chunks(512)) {
            let mut alone = sector.to_vec();
            xts.encrypt(8192 + at as u64, &mut alone);
            assert_eq!(whole.get(at..at + 512), Some(alone.as_slice()), "sector at {at}");
        }
        let (mut here, mut there) = (vec![7; 512], vec![7; 512]);
        xts.encrypt(0, &mut here);
        xts.encrypt(512, &mut there);
        assert_ne!(here, there);
    }

    #[test]
    fn what_was_never_written_reads_as_zeros_and_written_zeros_do_not_show() {
        let xts = of_key(&[9; 64]);
        let mut hole = vec![0; 4096];
        xts.decrypt(4096, &mut hole);
        assert_eq!(hole, vec![0; 4096]);
        let mut zeros = vec![0; 4096];
        xts.encrypt(4096, &mut zeros);
        assert!(!zeros.chunks(16).any(|block| block.iter().all(|byte| *byte == 0)));
        xts.decrypt(4096, &mut zeros);
        assert_eq!(zeros, vec![0; 4096]);
    }

    #[test]
    #[should_panic(expected = "whole sectors")]
    fn less_than_a_sector_is_a_mistake() {
        of_key(&[9; 64]).encrypt(16, &mut [0; 16]);
    }

    #[test]
    #[ignore = "a measurement: cargo test -p nacre-crypt --release --lib -- --ignored --nocapture"]
    #[allow(clippy::print_stdout, reason = "it measures, for people")]
    fn how_fast_it_is() {
        let clock = RealClock::start();
        let xts = of_key(&(0..64).collect::<Vec<u8>>());
        let mut bytes = vec![1; 4 << 20];
        for (name, direction) in [("encrypt", Direction::Encrypt), ("decrypt", Direction::Decrypt)] {
            let start = clock.now();
            (0..64).for_each(|_| xts.run(0, &mut bytes, direction));
            let seconds = clock.now().since(start).as_secs_f64();
            println!("{name}: {:.2} GB/s", (64 * bytes.len()) as f64 / seconds / 1e9);
        }
    }
}
