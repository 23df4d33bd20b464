//! The string hash that maps an object name to its PG.

fn mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32, u32) {
    const SHIFTS: [(u32, u32, u32); 3] = [(13, 8, 13), (12, 16, 5), (3, 10, 15)];
    for (x, y, z) in SHIFTS {
        a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> x);
        b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << y);
        c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> z);
    }
    (a, b, c)
}

fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| (word << 8) | u32::from(*byte))
}

/// Robert Jenkins' string hash, Ceph's `ceph_str_hash_rjenkins` (`object_hash` 2, the only one in use).
#[must_use]
pub fn rjenkins(text: &[u8]) -> u32 {
    let (mut a, mut b, mut c) = (0x9e37_79b9_u32, 0x9e37_79b9_u32, 0_u32);
    let mut blocks = text.chunks_exact(12);
    for block in &mut blocks {
        let (first, rest) = block.split_at(4);
        let (second, third) = rest.split_at(4);
        (a, b, c) =
            mix(a.wrapping_add(word(first)), b.wrapping_add(word(second)), c.wrapping_add(word(third)));
    }
    let tail = blocks.remainder();
    let part = |from: usize, to: usize| word(tail.get(from..to.min(tail.len())).unwrap_or_default());
    #[allow(clippy::cast_possible_truncation, reason = "the hash is defined over 32-bit lengths")]
    let length = text.len() as u32;
    // The low byte of c keeps the length, so the third word enters one byte higher.
    mix(
        a.wrapping_add(part(0, 4)),
        b.wrapping_add(part(4, 8)),
        c.wrapping_add(length).wrapping_add(part(8, 11) << 8),
    )
    .2
}

/// Hash of an object in a namespace: over `namespace 0x1f name`, or the name alone without a namespace.
/// `name` is the locator key where there is one.
#[must_use]
pub fn object_hash(namespace: &[u8], name: &[u8]) -> u32 {
    if namespace.is_empty() {
        return rjenkins(name);
    }
    let mut joined = Vec::with_capacity(namespace.len() + 1 + name.len());
    joined.extend_from_slice(namespace);
    joined.push(0x1f);
    joined.extend_from_slice(name);
    rjenkins(&joined)
}

/// Ceph's `ceph_stable_mod`: as `pg_num` grows from one power of two to the next, only the objects of
/// split PGs move.
#[must_use]
pub fn stable_mod(hash: u32, pg_num: u32) -> u32 {
    let mask = pg_num.max(1).next_power_of_two() - 1;
    if hash & mask < pg_num { hash & mask } else { hash & (mask >> 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_real_cluster() {
        assert_eq!(rjenkins(b"obj1"), 0x6cf8_deff);
        assert_eq!(rjenkins(b"obj2"), 0x3f1e_e208);
        assert_eq!(rjenkins(b""), 0xbd49_d10d);
        assert_eq!(rjenkins(b"benchmark_last_metadata"), 0x8e7a_861d);
        assert_eq!(rjenkins(b"rbd_header.111b65eb63d7"), 0x30bb_24ec);
        assert_eq!(object_hash(b"myns", b"obj1"), 0xfceb_d438);
    }

    #[test]
    fn stable_mod_splits_in_place() {
        assert_eq!(stable_mod(13, 12), 5);
        assert_eq!(stable_mod(11, 12), 11);
        assert_eq!(stable_mod(u32::MAX, 1), 0);
    }
}
