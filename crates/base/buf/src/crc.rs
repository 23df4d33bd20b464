//! CRC-32C (Castagnoli) as Ceph uses it: a plain register update, no inversion at either end.

use crc_fast::{CrcAlgorithm, Digest};

/// Updates the register `seed` with `data`. Ceph's `ceph_crc32c(seed, data)`; there is no final xor.
#[must_use]
pub fn crc32c(seed: u32, data: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(seed));
    digest.update(data);
    // The register of a CRC of 32 bits is in the lower half.
    digest.get_state() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition: one bit at a time, by the reflected polynomial 0x1edc6f41.
    fn bit_by_bit(seed: u32, data: &[u8]) -> u32 {
        data.iter().fold(seed, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1)))
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
}
