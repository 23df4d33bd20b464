//! CRC-32C (Castagnoli) as Ceph uses it: a plain register update, no inversion at either end.

use crc_fast::{CrcAlgorithm, Digest};

/// Where checksums of payloads and of their blocks start, on the wire and on devices.
pub const PAYLOAD_CRC_SEED: u32 = u32::MAX;
/// The blocks by which checksums are kept and combined: those of the device store.
pub const BLOCK_BYTES: usize = 4096;
/// Castagnoli's, lowest bit first.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// Of a block of zeros, from [`PAYLOAD_CRC_SEED`].
pub const ZERO_BLOCK_CRC: u32 = behind_block_of_zeros(PAYLOAD_CRC_SEED);

/// Updates the register `seed` with `data`. Ceph's `ceph_crc32c(seed, data)`; there is no final xor.
#[must_use]
pub fn crc32c(seed: u32, data: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(seed));
    digest.update(data);
    // The register of a CRC of 32 bits is in the lower half.
    digest.get_state() as u32
}

/// Updates the register `seed` with blocks of which only the registers are known, each started at [`PAYLOAD_CRC_SEED`].
#[must_use]
pub fn append_blocks(seed: u32, blocks: &[u32]) -> u32 {
    blocks.iter().fold(seed, |crc, block| append_block(crc, *block))
}

/// The same with one block.
///
/// A register is linear in its start and its bytes together (over GF(2), where adding is xor), so
///
/// ```text
/// register(seed, block) = register(PAYLOAD_CRC_SEED, block) ^ register(seed ^ PAYLOAD_CRC_SEED, zeros)
/// ```
///
/// and what 4096 zeros do to a register is one matrix. Mark Adler's `crc32_combine` in zlib (`crc32.c`) works so; here the length is
/// the same always, so the matrix is a table.
const fn append_block(seed: u32, block: u32) -> u32 {
    block ^ behind_block_of_zeros(seed ^ PAYLOAD_CRC_SEED)
}

const fn behind_block_of_zeros(register: u32) -> u32 {
    let [a, b, c, d] = register.to_le_bytes();
    BLOCK_TABLE[0][a as usize]
        ^ BLOCK_TABLE[1][b as usize]
        ^ BLOCK_TABLE[2][c as usize]
        ^ BLOCK_TABLE[3][d as usize]
}

/// What a block of zeros makes of each byte of a register, the lowest first.
static BLOCK_TABLE: [[u32; 256]; 4] = block_table();

/// Column n is what bit n of a register becomes.
type Matrix = [u32; 32];

const fn block_table() -> [[u32; 256]; 4] {
    let matrix = block_matrix();
    let mut table = [[0; 256]; 4];
    let mut n = 0;
    while n < 4 * 256 {
        let (position, byte) = (n / 256, n % 256);
        table[position][byte] = times(&matrix, (byte as u32) << (8 * position));
        n += 1;
    }
    table
}

/// What a block of zeros does: the step of one zero bit, squared until it is that of 8 * 4096.
const fn block_matrix() -> Matrix {
    let mut matrix = zero_bit_matrix();
    let mut bits = 1;
    while bits < 8 * BLOCK_BYTES {
        matrix = squared(&matrix);
        bits *= 2;
    }
    assert!(bits == 8 * BLOCK_BYTES, "squaring reaches only powers of two");
    matrix
}

const fn zero_bit_matrix() -> Matrix {
    let mut matrix = [0; 32];
    matrix[0] = POLYNOMIAL;
    let mut bit = 1;
    while bit < 32 {
        matrix[bit] = 1 << (bit - 1);
        bit += 1;
    }
    matrix
}

const fn squared(matrix: &Matrix) -> Matrix {
    let mut square = [0; 32];
    let mut bit = 0;
    while bit < 32 {
        square[bit] = times(matrix, matrix[bit]);
        bit += 1;
    }
    square
}

const fn times(matrix: &Matrix, register: u32) -> u32 {
    let (mut sum, mut bit) = (0, 0);
    while bit < 32 {
        if register >> bit & 1 == 1 {
            sum ^= matrix[bit];
        }
        bit += 1;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition: one bit at a time, by the reflected polynomial.
    fn bit_by_bit(seed: u32, data: &[u8]) -> u32 {
        data.iter().fold(seed, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (POLYNOMIAL * (crc & 1)))
        })
    }

    #[test]
    fn check_value_of_the_protocol_dossier() {
        assert_eq!(crc32c(0xffff_ffff, b"123456789"), 0x1cf9_6d7c);
    }

    #[test]
    fn is_a_running_register() {
        let whole = crc32c(7, b"abcdef");
        assert_eq!(crc32c(crc32c(7, b"abc"), b"def"), whole);
        assert_eq!(crc32c(7, b""), 7);
    }

    #[test]
    fn every_length_and_alignment_agrees_with_the_definition() {
        let bytes: Vec<u8> = (0..9000_u32).map(|n| (n * 7 + n / 251).to_le_bytes()[0]).collect();
        let lengths = (0..600).chain([1023, 1024, 4095, 4096, 4097, 8192]);
        for (length, start) in lengths.zip((0..64).cycle()) {
            let part = &bytes[start..start + length];
            for seed in [0, 7, u32::MAX] {
                assert_eq!(crc32c(seed, part), bit_by_bit(seed, part), "{length} bytes from {start}");
            }
        }
    }

    #[test]
    fn blocks_are_appended_by_their_registers() {
        let bytes: Vec<u8> = (0..4 * 4096_u32).map(|n| (n * 7 + n / 251).to_le_bytes()[0]).collect();
        for seed in [0, 7, u32::MAX] {
            let own = |block: &[u8]| crc32c(PAYLOAD_CRC_SEED, block);
            let blocks: Vec<u32> = bytes.chunks(BLOCK_BYTES).map(own).collect();
            assert_eq!(append_blocks(seed, &blocks), crc32c(seed, &bytes));
        }
        assert_eq!(ZERO_BLOCK_CRC, crc32c(PAYLOAD_CRC_SEED, &[0; BLOCK_BYTES]));
    }
}
