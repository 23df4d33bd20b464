//! [`sums_of_products`]: what encoding and decoding spend their time on, with the instructions that the processor has.
//!
//! Multiplying by one element is linear in bits: with GFNI and AVX-512 it is one instruction for 64 bytes, a matrix of 8 by 8 bits; with
//! AVX2 two look-ups of 16 entries, one per half of a byte. Each block of the sources is read once for up to [`BATCH`] sums.

use crate::field::add_product;

/// Sums that are computed side by side: as many as leave the registers room.
const BATCH: usize = 4;

/// For each row the sum of all sources, each multiplied by its factor in the row. All sources are equally long, and each row has a factor
/// for each of them.
///
/// # Panics
/// When they are not, or have not.
pub(crate) fn sums_of_products(rows: &[&[u8]], sources: &[&[u8]]) -> Vec<Vec<u8>> {
    let length = sources.first().map_or(0, |source| source.len());
    assert!(sources.iter().all(|source| source.len() == length), "sources are equally long");
    assert!(rows.iter().all(|row| row.len() == sources.len()), "one factor per source");
    let mut sums = vec![vec![0; length]; rows.len()];
    for (rows, sums) in rows.chunks(BATCH).zip(sums.chunks_mut(BATCH)) {
        let done = fast(rows, sources, sums);
        for (row, sum) in rows.iter().zip(sums) {
            let rest = row.iter().zip(sources);
            rest.for_each(|(factor, source)| add_product(&mut sum[done..], *factor, &source[done..]));
        }
    }
    sums
}

/// As much from the start of the sums as whole blocks hold; yields how much.
#[cfg(target_arch = "x86_64")]
fn fast(rows: &[&[u8]], sources: &[&[u8]], sums: &mut [Vec<u8>]) -> usize {
    x86::Instructions::best().map_or(0, |instructions| match sums.len() {
        1 => x86::run::<1>(instructions, rows, sources, sums),
        2 => x86::run::<2>(instructions, rows, sources, sums),
        3 => x86::run::<3>(instructions, rows, sources, sums),
        _ => x86::run::<BATCH>(instructions, rows, sources, sums),
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn fast(_: &[&[u8]], _: &[&[u8]], _: &mut [Vec<u8>]) -> usize {
    0
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #![expect(unsafe_code, reason = "vector instructions")]

    use crate::field::multiply;
    use std::arch::x86_64::*;
    use std::sync::LazyLock;

    /// Bytes of all vectors of one sum that are computed in one round.
    const BLOCK: usize = 128;
    /// Bytes of a vector of AVX2.
    const VECTOR: usize = 32;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Instructions {
        Gfni,
        Avx2,
    }

    impl Instructions {
        pub(super) fn best() -> Option<Self> {
            [Self::Gfni, Self::Avx2].into_iter().find(|instructions| instructions.are_there())
        }

        pub(super) fn are_there(self) -> bool {
            match self {
                Self::Gfni => is_x86_feature_detected!("gfni") && is_x86_feature_detected!("avx512f"),
                Self::Avx2 => is_x86_feature_detected!("avx2"),
            }
        }
    }

    /// Whole blocks of `N` sums; yields their bytes.
    ///
    /// # Panics
    /// When the processor has not got these instructions, or there are not `N` sums.
    pub(super) fn run<const N: usize>(
        instructions: Instructions,
        rows: &[&[u8]],
        sources: &[&[u8]],
        sums: &mut [Vec<u8>],
    ) -> usize {
        assert!(instructions.are_there(), "the processor has {instructions:?}");
        let sums: &mut [Vec<u8>; N] = sums.try_into().expect("as many sums");
        let done = sums[0].len() / BLOCK * BLOCK;
        match instructions {
            Instructions::Gfni => {
                let factors: Vec<[i64; N]> =
                    of_each_source(rows, sources.len(), |factor| BIT_MATRICES[usize::from(factor)]);
                // SAFETY: the processor has the instructions, as was asserted.
                unsafe { gfni(&factors, sources, sums) }
            }
            Instructions::Avx2 => {
                let factors: Vec<[Halves; N]> = of_each_source(rows, sources.len(), halves);
                // SAFETY: likewise.
                unsafe { avx2(&factors, sources, sums) }
            }
        }
        done
    }

    fn of_each_source<T, const N: usize>(rows: &[&[u8]], count: usize, of: impl Fn(u8) -> T) -> Vec<[T; N]> {
        (0..count).map(|source| std::array::from_fn(|row| of(rows[row][source]))).collect()
    }

    /// Of each factor: short sums take less time than making these.
    static BIT_MATRICES: LazyLock<[i64; 256]> =
        LazyLock::new(|| std::array::from_fn(|factor| bit_matrix(u8::try_from(factor).expect("a byte"))));

    /// The matrix that multiplies by `factor`, as `gf2p8affineqb` takes it: bit `i` of a product is the parity of what byte `7 - i` of the
    /// matrix picks out.
    fn bit_matrix(factor: u8) -> i64 {
        let mut bytes = [0_u8; 8];
        for column in 0..8 {
            let product = multiply(factor, 1 << column);
            (0..8).for_each(|bit| bytes[7 - bit] |= (product >> bit & 1) << column);
        }
        i64::from_le_bytes(bytes)
    }

    /// Products with the lower and with the upper half of a byte.
    type Halves = [[u8; 16]; 2];

    fn halves(factor: u8) -> Halves {
        let product = |shift: u32| {
            std::array::from_fn(|at| multiply(factor, u8::try_from(at << shift).expect("a byte")))
        };
        [product(0), product(4)]
    }

    #[target_feature(enable = "gfni,avx512f")]
    fn gfni<const N: usize>(factors: &[[i64; N]], sources: &[&[u8]], sums: &mut [Vec<u8>; N]) {
        let blocks = sums[0].len() / BLOCK;
        for block in 0..blocks {
            let at = block * BLOCK;
            let mut totals = [[_mm512_setzero_si512(); 2]; N];
            for (factors, source) in factors.iter().zip(sources) {
                let (head, tail) = (load_512(source, at), load_512(source, at + BLOCK / 2));
                for (total, factor) in totals.iter_mut().zip(factors) {
                    let matrix = _mm512_set1_epi64(*factor);
                    total[0] = _mm512_xor_si512(total[0], _mm512_gf2p8affine_epi64_epi8::<0>(head, matrix));
                    total[1] = _mm512_xor_si512(total[1], _mm512_gf2p8affine_epi64_epi8::<0>(tail, matrix));
                }
            }
            for (total, sum) in totals.iter().zip(sums.iter_mut()) {
                store_512(sum, at, total[0]);
                store_512(sum, at + BLOCK / 2, total[1]);
            }
        }
    }

    #[target_feature(enable = "avx2")]
    fn avx2<const N: usize>(factors: &[[Halves; N]], sources: &[&[u8]], sums: &mut [Vec<u8>; N]) {
        let low_bits = _mm256_set1_epi8(0xf);
        let vectors = sums[0].len() / BLOCK * (BLOCK / VECTOR);
        for vector in 0..vectors {
            let at = vector * VECTOR;
            let mut totals = [_mm256_setzero_si256(); N];
            for (factors, source) in factors.iter().zip(sources) {
                let bytes = load_256(source, at);
                let low = _mm256_and_si256(bytes, low_bits);
                let high = _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), low_bits);
                for (total, [of_low, of_high]) in totals.iter_mut().zip(factors) {
                    let low = _mm256_shuffle_epi8(twice(of_low), low);
                    let high = _mm256_shuffle_epi8(twice(of_high), high);
                    *total = _mm256_xor_si256(*total, _mm256_xor_si256(low, high));
                }
            }
            totals.iter().zip(sums.iter_mut()).for_each(|(total, sum)| store_256(sum, at, *total));
        }
    }

    #[target_feature(enable = "avx2")]
    fn twice(table: &[u8; 16]) -> __m256i {
        // SAFETY: the table has the 16 bytes that are read.
        _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
    }

    #[target_feature(enable = "avx512f")]
    fn load_512(source: &[u8], at: usize) -> __m512i {
        let bytes: &[u8; 64] = source[at..].first_chunk().expect("a whole block");
        // SAFETY: there are the 64 bytes that are read.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx512f")]
    fn store_512(sum: &mut [u8], at: usize, total: __m512i) {
        let bytes: &mut [u8; 64] = sum[at..].first_chunk_mut().expect("a whole block");
        // SAFETY: there are the 64 bytes that are written.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), total) }
    }

    #[target_feature(enable = "avx2")]
    fn load_256(source: &[u8], at: usize) -> __m256i {
        let bytes: &[u8; VECTOR] = source[at..].first_chunk().expect("a whole vector");
        // SAFETY: there are the 32 bytes that are read.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    fn store_256(sum: &mut [u8], at: usize, total: __m256i) {
        let bytes: &mut [u8; VECTOR] = sum[at..].first_chunk_mut().expect("a whole vector");
        // SAFETY: there are the 32 bytes that are written.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), total) }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn all_instructions_compute_the_same() {
            let source = |seed: usize| {
                (0..512).map(|at| (at * 7 + seed * 31 + at / 256).to_le_bytes()[0]).collect::<Vec<u8>>()
            };
            let sources: Vec<Vec<u8>> = (0..3).map(source).collect();
            let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
            for instructions in [Instructions::Gfni, Instructions::Avx2] {
                if !instructions.are_there() {
                    continue;
                }
                for first in 0..=u8::MAX {
                    let rows = [[first, 1, 29], [0, first, 255]];
                    let rows: Vec<&[u8]> = rows.iter().map(|row| &row[..]).collect();
                    let mut sums = vec![vec![0; 512]; 2];
                    assert_eq!(run::<2>(instructions, &rows, &sources, &mut sums), 512);
                    for (row, sum) in rows.iter().zip(&sums) {
                        for at in 0..512 {
                            let terms = row
                                .iter()
                                .zip(&sources)
                                .map(|(factor, source)| multiply(*factor, source[at]));
                            assert_eq!(
                                sum[at],
                                terms.fold(0, |sum, term| sum ^ term),
                                "{instructions:?} {row:?}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::multiply;

    #[test]
    fn sums_of_any_length_and_number_are_those_of_their_bytes() {
        for length in [0, 1, 127, 128, 129, 300] {
            let source = |seed: usize| {
                (0..length).map(|at| (at * 11 + seed * 71).to_le_bytes()[0]).collect::<Vec<u8>>()
            };
            let sources: Vec<Vec<u8>> = (0..5).map(source).collect();
            let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
            for count in 0..=9 {
                let rows: Vec<Vec<u8>> = (0..count).map(|row| vec![row, 0, 1, 200 - row, 77]).collect();
                let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
                let sums = sums_of_products(&rows, &sources);
                assert_eq!(sums.len(), usize::from(count));
                for (row, sum) in rows.iter().zip(&sums) {
                    let by_hand = |at: usize| {
                        let terms =
                            row.iter().zip(&sources).map(|(factor, source)| multiply(*factor, source[at]));
                        terms.fold(0, |sum, term| sum ^ term)
                    };
                    assert_eq!(*sum, (0..length).map(by_hand).collect::<Vec<u8>>());
                }
            }
        }
    }
}
