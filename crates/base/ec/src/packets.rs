//! Codes over packets: jerasure's bit matrices, with 8 bits per element.
//!
//! ```text
//!   chunk   | packet 0 | packet 1 | ... | packet 7 | packet 0 | ...
//!               bit 0      bit 1            bit 7      of the next elements
//! ```
//! Bit `b` of byte `p` of eight packets is one element of the field. Multiplying it by a factor adds packets up: which ones, the bits of
//! the factor's products with the powers of two say. So a code over packets is the code of its matrix over these elements.

use crate::field::{Products, multiply, power};
use crate::sum::STEPS;

/// Packets of an element.
pub(crate) const PACKETS: usize = 8;

/// For each row the sum of all sources, each multiplied by its factor, like [`crate::kernel::sums_of_products`].
///
/// # Panics
/// When sources are not of equal length, or not whole elements.
pub(crate) fn sums_of_products(rows: &[&[u8]], sources: &[&[u8]], packet_bytes: usize) -> Vec<Vec<u8>> {
    let length = sources.first().map_or(0, |source| source.len());
    assert!(sources.iter().all(|source| source.len() == length), "sources are equally long");
    assert!(
        length.is_multiple_of(PACKETS * packet_bytes),
        "whole elements of {PACKETS} packets of {packet_bytes} bytes"
    );
    let sum_of = |row: &&[u8]| {
        let mut sum = vec![0; length];
        row.iter()
            .zip(sources)
            .for_each(|(factor, source)| add_product(&mut sum, *factor, source, packet_bytes));
        sum
    };
    rows.iter().map(sum_of).collect()
}

fn add_product(sum: &mut [u8], factor: u8, source: &[u8], packet_bytes: usize) {
    let elements = PACKETS * packet_bytes;
    for (sum, source) in sum.chunks_exact_mut(elements).zip(source.chunks_exact(elements)) {
        for (bit, packet) in source.chunks_exact(packet_bytes).enumerate() {
            let product = multiply(factor, 1 << bit);
            for (_, sum) in
                sum.chunks_exact_mut(packet_bytes).enumerate().filter(|(bit, _)| product >> bit & 1 == 1)
            {
                sum.iter_mut().zip(packet).for_each(|(sum, byte)| *sum ^= byte);
            }
        }
    }
}

/// Goes on with the linear checksum of a chunk, whose bytes from `offset` on `data` are; begin with 0. Four polynomials over the elements,
/// like [`crate::sum::linear_sum`]: element `8 * n + b`, of bit `b` of the `n`th bytes of packets, times that power of each of the steps.
pub(crate) fn linear_sum(sum: u32, offset: u64, data: &[u8], packet_bytes: usize) -> u32 {
    let tables = STEPS.map(|step| (Products::of(power(8 * step)), bits_table(step)));
    let mut sums = sum.to_le_bytes();
    let (mut at, mut rest) = (offset, data);
    while !rest.is_empty() {
        let packet = packet_bytes as u64;
        let (number, within) = (at / packet, at % packet);
        let length = rest.len().min(packet_bytes - usize::try_from(within).unwrap_or(0));
        let (run, behind) = rest.split_at(length);
        let (elements, bit) = (number / PACKETS as u64, number % PACKETS as u64);
        // The powers repeat, so remainders will do.
        let first = (elements % ORDER * (packet % ORDER) + within) % ORDER;
        for ((sum, step), (next, bits)) in sums.iter_mut().zip(STEPS).zip(&tables) {
            let value = run.iter().rev().fold(0, |value, byte| next.with(value) ^ bits[usize::from(*byte)]);
            let exponent = bit + 8 * step as u64 % ORDER * first;
            *sum ^= multiply(value, power(usize::try_from(exponent % ORDER).unwrap_or(0)));
        }
        (at, rest) = (at + length as u64, behind);
    }
    u32::from_le_bytes(sums)
}

/// Powers before they repeat.
const ORDER: u64 = 255;

/// What each byte adds: its bits, times the powers of the step.
fn bits_table(step: usize) -> [u8; 256] {
    let of = |byte: usize| {
        let powers = (0..8).filter(|bit| byte >> bit & 1 == 1).map(|bit| power(step * bit));
        powers.fold(0, |sum, power| sum ^ power)
    };
    std::array::from_fn(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(length: usize, seed: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 97 + seed * 131 + at * at / 7).to_le_bytes()[0]).collect()
    }

    /// The elements of packets one after the other.
    fn elements(data: &[u8], packet: usize) -> Vec<u8> {
        let mut elements = Vec::new();
        for packets in data.chunks_exact(PACKETS * packet) {
            for at in 0..packet {
                for bit in 0..8 {
                    let of = |number: usize| (packets[number * packet + at] >> bit & 1) << number;
                    elements.push((0..PACKETS).map(of).fold(0, |sum, term| sum | term));
                }
            }
        }
        elements
    }

    #[test]
    fn sums_are_those_of_the_elements() {
        let packet = 16;
        let sources = [noise(512, 1), noise(512, 2)];
        let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
        for factors in [[0, 1], [1, 1], [7, 142], [255, 29]] {
            let sum = &sums_of_products(&[&factors], &sources, packet)[0];
            let (a, b) = (elements(sources[0], packet), elements(sources[1], packet));
            let by_hand: Vec<u8> =
                a.iter().zip(&b).map(|(a, b)| multiply(*a, factors[0]) ^ multiply(*b, factors[1])).collect();
            assert_eq!(elements(sum, packet), by_hand, "{factors:?}");
        }
    }

    #[test]
    fn checksums_are_sums_over_the_elements_and_notice_every_byte() {
        let packet = 16;
        let mut data = noise(3 * PACKETS * packet, 5);
        let whole = linear_sum(0, 0, &data, packet);
        let elements = elements(&data, packet);
        let by_hand = STEPS.map(|step| {
            let terms = elements.iter().enumerate().map(|(at, element)| multiply(*element, power(step * at)));
            terms.fold(0, |sum, term| sum ^ term)
        });
        assert_eq!(whole.to_le_bytes(), by_hand);
        for cut in [1, 15, 16, 100, 128, 300] {
            let first = linear_sum(0, 0, &data[..cut], packet);
            assert_eq!(
                linear_sum(first, cut as u64, &data[cut..], packet),
                whole,
                "in two parts, cut at {cut}"
            );
        }
        for at in 0..data.len() {
            data[at] ^= 0x41;
            let changed = linear_sum(0, 0, &data, packet).to_le_bytes();
            assert!(changed.iter().zip(whole.to_le_bytes()).all(|(now, before)| *now != before), "byte {at}");
            data[at] ^= 0x41;
        }
    }
}
