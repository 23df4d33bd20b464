//! CRC-32C 256 bytes at a time, by multiplication without carries (VPCLMULQDQ on AVX-512).
//!
//! A register of 128 bits stands for the polynomial of the bytes so far, whatever multiple of the generator was added to
//! it. Moving it `D` bits on, over the next bytes, is a multiplication by x^D; its two halves are multiplied by x^(D+32)
//! and x^(D-32) modulo the generator, which yields 96 bits each, and both are added to what stands there. Bits are
//! mirrored: the first bit of the data is the highest power. V. Gopal and others, "Fast CRC Computation for Generic
//! Polynomials Using PCLMULQDQ Instruction" (Intel, 2009).
//!
//! ```text
//!   |<- 64 bytes, 4 registers ->|  a  |  b  |  c  |  d  |      each moves 256 bytes on
//!                                  a --> b --> c --> d         then 64, into one another
//!                                        4 lanes of d          then 16, into one; the rest is the narrow way's
//! ```

#![allow(unsafe_code, reason = "vector loads, and a function for processors that were asked first")]

use std::arch::x86_64::{
    __m128i, __m512i, _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi128_si64,
    _mm_set_epi64x, _mm_unpackhi_epi64, _mm_xor_si128, _mm512_broadcast_i32x4, _mm512_clmulepi64_epi128,
    _mm512_extracti32x4_epi32, _mm512_loadu_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
    _mm512_zextsi128_si512,
};

/// The generator without its highest power.
const GENERATOR: u32 = 0x1edc_6f41;
/// Below it, filling the registers costs more than it saves.
const BYTES_MIN: usize = STRIDE_BYTES;
const VECTOR_BYTES: usize = 64;
const STRIDE_BYTES: usize = 4 * VECTOR_BYTES;

/// x^`power` modulo the generator, mirrored, in the place where a product of mirrored factors is one bit short.
const fn factor(power: u32) -> i64 {
    let (mut rest, mut at) = (1_u32, 0);
    while at < power {
        rest = (rest << 1) ^ if rest >> 31 == 1 { GENERATOR } else { 0 };
        at += 1;
    }
    (rest.reverse_bits() as i64) << 1
}

/// Factors that move both halves of a register `bits` on: for the first half, for the second.
const fn factors(bits: u32) -> [i64; 2] {
    [factor(bits + 32), factor(bits - 32)]
}

const BY_STRIDE: [i64; 2] = factors(8 * 256);
const BY_VECTOR: [i64; 2] = factors(8 * 64);
const BY_LANE: [i64; 2] = factors(8 * 16);

/// `None` when the processor cannot, or it is not worth it.
pub(super) fn crc32c(seed: u32, data: &[u8]) -> Option<u32> {
    let able = data.len() >= BYTES_MIN
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("sse4.2");
    // SAFETY: the processor has what the function is made for.
    able.then(|| unsafe { fold(seed, data) })
}

#[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
fn fold(seed: u32, data: &[u8]) -> u32 {
    let (strides, rest) = data.as_chunks::<STRIDE_BYTES>();
    let (vectors, tail) = rest.as_chunks::<VECTOR_BYTES>();
    let Some((first, strides)) = strides.split_first() else { return super::narrow(seed, data) };
    let mut sums = load(first);
    sums[0] = _mm512_xor_si512(sums[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(seed.cast_signed())));
    let by_stride = _mm512_broadcast_i32x4(pair(BY_STRIDE));
    for stride in strides {
        let next = load(stride);
        for (sum, next) in sums.iter_mut().zip(next) {
            *sum = moved(*sum, by_stride, next);
        }
    }
    let by_vector = _mm512_broadcast_i32x4(pair(BY_VECTOR));
    let [mut sum, behind @ ..] = sums;
    for next in behind.into_iter().chain(vectors.iter().map(|vector| load_one(vector))) {
        sum = moved(sum, by_vector, next);
    }
    let lanes = [
        _mm512_extracti32x4_epi32::<1>(sum),
        _mm512_extracti32x4_epi32::<2>(sum),
        _mm512_extracti32x4_epi32::<3>(sum),
    ];
    let by_lane = pair(BY_LANE);
    let mut lane = _mm512_extracti32x4_epi32::<0>(sum);
    for next in lanes {
        let first = _mm_clmulepi64_si128::<0x00>(lane, by_lane);
        let second = _mm_clmulepi64_si128::<0x11>(lane, by_lane);
        lane = _mm_xor_si128(_mm_xor_si128(first, second), next);
    }
    // The processor's own instruction takes the last 128 bits as if they were data.
    let first = _mm_crc32_u64(0, _mm_cvtsi128_si64(lane).cast_unsigned());
    let both = _mm_crc32_u64(first, _mm_cvtsi128_si64(_mm_unpackhi_epi64(lane, lane)).cast_unsigned());
    super::narrow(u32::try_from(both).unwrap_or_default(), tail)
}

#[target_feature(enable = "avx512f")]
fn load(stride: &[u8; STRIDE_BYTES]) -> [__m512i; 4] {
    let (vectors, _none) = stride.as_chunks::<VECTOR_BYTES>();
    [load_one(&vectors[0]), load_one(&vectors[1]), load_one(&vectors[2]), load_one(&vectors[3])]
}

#[target_feature(enable = "avx512f")]
fn load_one(vector: &[u8; VECTOR_BYTES]) -> __m512i {
    // SAFETY: 64 bytes are there, and the load asks for no alignment.
    unsafe { _mm512_loadu_si512(vector.as_ptr().cast()) }
}

#[target_feature(enable = "sse2")]
fn pair([first, second]: [i64; 2]) -> __m128i {
    _mm_set_epi64x(second, first)
}

/// `sum` moved on over the bytes of `next`.
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn moved(sum: __m512i, by: __m512i, next: __m512i) -> __m512i {
    let first = _mm512_clmulepi64_epi128::<0x00>(sum, by);
    let second = _mm512_clmulepi64_epi128::<0x11>(sum, by);
    // All three, exclusively or'ed.
    _mm512_ternarylogic_epi64::<0x96>(first, second, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_used_where_the_processor_can() {
        let data = [0x5a; 4096];
        let able = is_x86_feature_detected!("vpclmulqdq") && is_x86_feature_detected!("avx512f");
        assert_eq!(crc32c(1, &data).is_some(), able);
        assert_eq!(crc32c(1, &data[..BYTES_MIN - 1]), None);
    }
}
