//! Fixed-point logarithm of the straw2 draw, and its tables.
//!
//! `crush_ln(u)` is 2^44 * log2(u + 1), read from three tables: reciprocals and logarithms of the leading
//! bits (`RH`, `LH`) and logarithms of what remains (`LL`). The tables follow from formulas, except that the
//! shipped `LL` was made by a program with an error: most of its entries are too large by a constant, some
//! are of neighbouring arguments. Every client in the field computes with them, so they are reproduced.

const LH_LAST: i64 = 0x0000_ffff_0000_0000;
const LL_SHIFT: i64 = 0x1_4770_0000;

/// Entries of `LL` that follow neither the formula nor the formula shifted.
const LL_ODD: [(usize, i64); 23] = [
    (56, 0x00a2_b07f_3458),
    (127, 0x016d_f6ca_19bd),
    (134, 0x0182_b07f_3458),
    (181, 0x0209_c06e_6212),
    (184, 0x0212_b07f_3458),
    (188, 0x021d_6a73_a78f),
    (193, 0x022c_2367_9b4e),
    (198, 0x023a_2c3b_0ea4),
    (199, 0x023d_13ee_805b),
    (200, 0x0240_35e9_221f),
    (207, 0x0254_9264_4d65),
    (210, 0x025d_13ee_805b),
    (212, 0x0262_9645_3882),
    (225, 0x0287_bdbf_5255),
    (227, 0x028d_13ee_805b),
    (228, 0x0290_35e9_221f),
    (229, 0x0292_9645_3882),
    (231, 0x0299_02a3_7aab),
    (235, 0x02a4_c760_5d61),
    (236, 0x02a7_bdbf_5255),
    (240, 0x02b2_9645_3882),
    (241, 0x02b5_d022_d80f),
    (247, 0x02c6_1a5e_8f4c),
];

/// Entries of `LL` that follow the formula.
const LL_EXACT: [usize; 21] =
    [0, 1, 203, 216, 222, 233, 237, 238, 239, 243, 244, 245, 246, 248, 249, 250, 251, 252, 253, 254, 255];

/// `(RH, LH)` for each leading part.
static RH_LH: [(u64, i64); 129] = rh_lh();
static LL: [i64; 256] = ll();

const FRACTION_BITS: u32 = 78;

/// ln(1 + numerator / denominator) scaled by 2^78, by the series 2 * artanh(n / (2d + n)).
const fn ln_1p(numerator: u128, denominator: u128) -> u128 {
    let below = 2 * denominator + numerator;
    let mut power = (numerator << FRACTION_BITS) / below;
    let (mut sum, mut odd) = (0, 1);
    while power > 0 {
        sum += power / odd;
        power = power * numerator / below * numerator / below;
        odd += 2;
    }
    2 * sum
}

/// floor(2^48 * log2(1 + numerator / denominator)).
#[allow(clippy::cast_possible_truncation, reason = "the argument is below 2, so the result is at most 2^48")]
const fn log2_1p(numerator: u128, denominator: u128) -> i64 {
    ((ln_1p(numerator, denominator) << 48) / ln_1p(1, 1)) as i64
}

#[allow(clippy::indexing_slicing, reason = "evaluated at compile time")]
const fn rh_lh() -> [(u64, i64); 129] {
    let mut table = [(0, 0); 129];
    let mut k = 0;
    while k < 129 {
        let reciprocal = (1_u64 << 55).div_ceil(128 + k as u64);
        table[k] = (reciprocal, if k == 128 { LH_LAST } else { log2_1p(k as u128, 128) });
        k += 1;
    }
    table
}

#[allow(clippy::indexing_slicing, reason = "evaluated at compile time")]
const fn ll() -> [i64; 256] {
    let mut table = [0; 256];
    let mut j = 0;
    while j < 256 {
        table[j] = log2_1p(j as u128, 32_768) + LL_SHIFT;
        j += 1;
    }
    let mut i = 0;
    while i < LL_EXACT.len() {
        table[LL_EXACT[i]] -= LL_SHIFT;
        i += 1;
    }
    let mut i = 0;
    while i < LL_ODD.len() {
        table[LL_ODD[i].0] = LL_ODD[i].1;
        i += 1;
    }
    table
}

/// 2^44 * log2(u + 1) for a 16-bit `u`, with the errors of the shipped tables.
#[must_use]
#[inline]
#[allow(clippy::indexing_slicing, reason = "k <= 128 and j <= 255 by the shifts and masks")]
pub fn crush_ln(u: u16) -> i64 {
    let x = u32::from(u) + 1;
    // Normalize to 0x8000..=0x10000.
    let shift = if x & 0x1_8000 == 0 { x.leading_zeros() - 16 } else { 0 };
    let x = x << shift;
    let (reciprocal, high) = RH_LH[((x >> 8) - 128) as usize];
    let low = LL[(((u64::from(x) * reciprocal) >> 48) & 0xff) as usize];
    (i64::from(15 - shift) << 44) + ((high + low) >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_the_entries_that_are_known() {
        assert_eq!(RH_LH[0], (1 << 48, 0));
        assert_eq!(RH_LH[128], (1 << 47, LH_LAST));
        assert_eq!(RH_LH[1], (0x0000_fe03_f80f_e040, 0x0000_02df_ca16_dde1));
        assert_eq!(LL[..3], [0, 0x2_e2a6_0a00, 0x7_0cb6_4ec5]);
        assert_eq!(LL[255], 0x02dc_ed24_f814);
    }

    /// FNV-1a over all entries, computed with 60-digit decimals and the same list of exceptions.
    #[test]
    fn tables_have_the_checksum_of_an_independent_computation() {
        let all = RH_LH.iter().map(|(rh, _)| *rh).chain(RH_LH.iter().map(|(_, lh)| lh.cast_unsigned()));
        let all = all.chain(LL.iter().map(|ll| ll.cast_unsigned()));
        let sum = all.fold(0xcbf2_9ce4_8422_2325_u64, |sum, v| (sum ^ v).wrapping_mul(0x100_0000_01b3));
        assert_eq!(sum, 0x206a_a37f_292f_21fc);
    }

    #[test]
    fn is_close_to_the_logarithm() {
        for u in (0..=u16::MAX).step_by(97) {
            let exact = (f64::from(u) + 1.0).log2() * 2_f64.powi(44);
            assert!((crush_ln(u) as f64 - exact).abs() < 2_f64.powi(32), "u = {u}");
        }
    }
}
