//! Arithmetic in the field of 256 elements that Reed-Solomon codes compute in: polynomials over GF(2) modulo
//! `x^8 + x^4 + x^3 + x^2 + 1` (0x11d), of which `x` is a generator. Jerasure and ISA-L use the same one.

const POLYNOMIAL: u16 = 0x11d;
/// Powers of the generator before they repeat.
const ORDER: usize = 255;

/// `EXP[n]` is the generator to the power of `n`; twice over, so that sums of two logarithms need no remainder.
const EXP: [u8; 2 * ORDER] = powers();
/// `LOG[EXP[n]]` is `n`; that of 0 means nothing.
const LOG: [u8; 256] = logarithms();

#[expect(clippy::cast_possible_truncation, reason = "reduced below 256")]
const fn powers() -> [u8; 2 * ORDER] {
    let mut table = [0; 2 * ORDER];
    let (mut value, mut at) = (1_u16, 0);
    while at < 2 * ORDER {
        table[at] = value as u8;
        value <<= 1;
        if value >= 256 {
            value ^= POLYNOMIAL;
        }
        at += 1;
    }
    table
}

#[expect(clippy::cast_possible_truncation, reason = "below 255")]
const fn logarithms() -> [u8; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < ORDER {
        table[EXP[at] as usize] = at as u8;
        at += 1;
    }
    table
}

/// The product of two elements of the field.
pub(crate) fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[usize::from(LOG[usize::from(a)]) + usize::from(LOG[usize::from(b)])]
}

/// What gives 1 with `a`.
///
/// # Panics
/// For 0.
pub(crate) fn inverse(a: u8) -> u8 {
    assert!(a != 0, "0 has no inverse");
    EXP[ORDER - usize::from(LOG[usize::from(a)])]
}

/// `generator` to the power of `n`.
pub(crate) fn power(n: usize) -> u8 {
    EXP[n % ORDER]
}

/// All products with one factor.
pub(crate) struct Products([u8; 256]);

impl Products {
    /// The products of `factor` with every element.
    pub(crate) fn of(factor: u8) -> Self {
        let mut table = [0; 256];
        for (product, b) in table.iter_mut().zip(0..=u8::MAX) {
            *product = multiply(factor, b);
        }
        Self(table)
    }

    /// The product with `b`.
    pub(crate) fn with(&self, b: u8) -> u8 {
        self.0[usize::from(b)]
    }
}

/// Adds `factor` times `source` to `sum`, byte by byte; they are equally long. For much of it there is [`crate::kernel`].
pub(crate) fn add_product(sum: &mut [u8], factor: u8, source: &[u8]) {
    debug_assert_eq!(sum.len(), source.len(), "equally long");
    match factor {
        0 => (),
        1 => sum.iter_mut().zip(source).for_each(|(sum, byte)| *sum ^= byte),
        _ => {
            let products = Products::of(factor);
            sum.iter_mut().zip(source).for_each(|(sum, byte)| *sum ^= products.with(*byte));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplication as on paper.
    fn by_hand(a: u8, b: u8) -> u8 {
        let mut product =
            (0..8).filter(|bit| b >> bit & 1 == 1).fold(0_u16, |sum, bit| sum ^ u16::from(a) << bit);
        for bit in (8..16).rev().filter(|bit| *bit >= 8) {
            if product >> bit & 1 == 1 {
                product ^= POLYNOMIAL << (bit - 8);
            }
        }
        u8::try_from(product).expect("reduced")
    }

    #[test]
    fn products_are_those_of_the_polynomials() {
        for a in 0..=u8::MAX {
            let products = Products::of(a);
            for b in 0..=u8::MAX {
                assert_eq!(multiply(a, b), by_hand(a, b));
                assert_eq!(products.with(b), by_hand(a, b));
            }
        }
    }

    #[test]
    fn everything_but_zero_has_an_inverse() {
        for a in 1..=u8::MAX {
            assert_eq!(multiply(a, inverse(a)), 1);
        }
        let powers: std::collections::BTreeSet<u8> = (0..ORDER).map(power).collect();
        assert_eq!(powers.len(), ORDER, "the generator makes all elements");
    }
}
