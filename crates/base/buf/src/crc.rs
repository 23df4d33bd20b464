//! CRC-32C (Castagnoli) as Ceph uses it: a plain register update, no inversion at either end.

/// Updates the register `seed` with `data`. Ceph's `ceph_crc32c(seed, data)`; there is no final xor.
#[must_use]
pub fn crc32c(seed: u32, data: &[u8]) -> u32 {
    if data.is_empty() { seed } else { !crc32c::crc32c_append(!seed, data) }
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
}
