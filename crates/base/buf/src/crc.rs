//! CRC-32C (Castagnoli) as Ceph uses it: a plain register update, no inversion at either end.

#[cfg(target_arch = "x86_64")]
mod wide;

/// Updates the register `seed` with `data`. Ceph's `ceph_crc32c(seed, data)`; there is no final xor.
#[must_use]
pub fn crc32c(seed: u32, data: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(register) = wide::crc32c(seed, data) {
        return register;
    }
    narrow(seed, data)
}

/// The same with the processor's own instruction for it, or with tables where there is none.
fn narrow(seed: u32, data: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, data)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn both_ways_agree_for_each_length_and_place() {
        let data: Vec<u8> = (0..5000_u32).map(|at| at.wrapping_mul(0x9e37_79b9).to_be_bytes()[1]).collect();
        for seed in [0, 1, 0x8000_0000, u32::MAX] {
            for length in (0..1600).chain([4095, 4096, 4097, 4900]) {
                let part = &data[length % 64..][..length];
                assert_eq!(crc32c(seed, part), narrow(seed, part), "{length} bytes from {seed:#x}");
            }
        }
    }
}
