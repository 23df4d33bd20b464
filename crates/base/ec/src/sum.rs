//! `linear_sum`: a checksum that commutes with the code: the sum of a parity shard is that parity of the sums.

use crate::field::{Products, power};

/// Powers of the generator that the four bytes of the sum are multiplied with per byte of data. None has a common
/// divisor with 255, so that each runs through all elements; and their ratios differ.
pub(crate) const STEPS: [usize; 4] = [1, 2, 7, 11];

/// Goes on with a linear checksum over `data`; begin with 0. Four polynomials in different elements of the field: a
/// change of any one byte changes all four. Blind to bytes that are exchanged over a multiple of 255.
#[must_use]
pub(crate) fn linear_sum(sum: u32, data: &[u8]) -> u32 {
    let steps = STEPS.map(|step| Products::of(power(step)));
    let mut sums = sum.to_le_bytes();
    for byte in data {
        for (sum, step) in sums.iter_mut().zip(&steps) {
            *sum = step.with(*sum) ^ byte;
        }
    }
    u32::from_le_bytes(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_go_on_and_add_up() {
        let (a, b) = (b"some bytes of one".to_vec(), b"as many of another".to_vec());
        assert_eq!(linear_sum(linear_sum(0, &a[..5]), &a[5..]), linear_sum(0, &a));
        let both: Vec<u8> = a.iter().zip(&b).map(|(a, b)| a ^ b).collect();
        assert_eq!(linear_sum(0, &both), linear_sum(0, &a) ^ linear_sum(0, &b[..a.len()]));
    }
}
