//! The hash under every CRUSH decision: Robert Jenkins' 32-bit mix over up to four numbers.
//!
//! Source: Ceph `src/crush/hash.c`, `CRUSH_HASH_RJENKINS1`.

const SEED: u32 = 1_315_423_911;
const X: u32 = 231_232;
const Y: u32 = 1_232;

#[inline(always)]
fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    const SHIFTS: [(u32, u32, u32); 3] = [(13, 8, 13), (12, 16, 5), (3, 10, 15)];
    for (x, y, z) in SHIFTS {
        *a = a.wrapping_sub(*b).wrapping_sub(*c) ^ (*c >> x);
        *b = b.wrapping_sub(*c).wrapping_sub(*a) ^ (*a << y);
        *c = c.wrapping_sub(*a).wrapping_sub(*b) ^ (*b >> z);
    }
}

/// Hash of two numbers. Ceph `crush_hash32_2`.
#[must_use]
#[inline]
pub fn hash2(mut a: u32, mut b: u32) -> u32 {
    let (mut x, mut y) = (X, Y);
    let mut hash = SEED ^ a ^ b;
    mix(&mut a, &mut b, &mut hash);
    mix(&mut x, &mut a, &mut hash);
    mix(&mut b, &mut y, &mut hash);
    hash
}

/// Hash of three numbers. Ceph `crush_hash32_3`.
#[must_use]
#[inline]
pub fn hash3(mut a: u32, mut b: u32, mut c: u32) -> u32 {
    let (mut x, mut y) = (X, Y);
    let mut hash = SEED ^ a ^ b ^ c;
    mix(&mut a, &mut b, &mut hash);
    mix(&mut c, &mut x, &mut hash);
    mix(&mut y, &mut a, &mut hash);
    mix(&mut b, &mut x, &mut hash);
    mix(&mut y, &mut c, &mut hash);
    hash
}

/// Hash of four numbers. Ceph `crush_hash32_4`.
#[must_use]
#[inline]
pub fn hash4(mut a: u32, mut b: u32, mut c: u32, mut d: u32) -> u32 {
    let (mut x, mut y) = (X, Y);
    let mut hash = SEED ^ a ^ b ^ c ^ d;
    mix(&mut a, &mut b, &mut hash);
    mix(&mut c, &mut d, &mut hash);
    mix(&mut a, &mut x, &mut hash);
    mix(&mut y, &mut b, &mut hash);
    mix(&mut c, &mut x, &mut hash);
    mix(&mut y, &mut d, &mut hash);
    hash
}
