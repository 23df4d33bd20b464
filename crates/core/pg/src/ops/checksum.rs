//! Checksums of `OP_CHECKSUM`: CRC-32C and xxHash (32 and 64 bits, the algorithm of its public
//! specification, <https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md>).

use nacre_buf::{BufList, Bytes, crc::crc32c};
use nacre_denc::Writer;

/// Which checksum, and what it starts from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Xxhash32(u32),
    Xxhash64(u64),
    Crc32c(u32),
}

/// `u32` count and the values, one per whole chunk; without a chunk size one over everything. Of no data
/// there are none.
pub(super) fn checksums(kind: Kind, data: &BufList, chunk_bytes: usize) -> Bytes {
    let data = data.to_bytes();
    let chunk_bytes = if chunk_bytes == 0 { data.len().max(1) } else { chunk_bytes };
    let mut w = Writer::new();
    w.count(data.len() / chunk_bytes);
    data.chunks_exact(chunk_bytes).for_each(|chunk| put(kind, chunk, &mut w));
    w.finish()
}

fn put(kind: Kind, data: &[u8], w: &mut Writer) {
    match kind {
        Kind::Xxhash32(seed) => w.u32(xxhash32(seed, data)),
        Kind::Xxhash64(seed) => w.u64(xxhash64(seed, data)),
        Kind::Crc32c(seed) => w.u32(crc32c(seed, data)),
    }
}

const P32: [u32; 5] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1];
const P64: [u64; 5] = [
    0x9e37_79b1_85eb_ca87,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
    0x27d4_eb2f_1656_67c5,
];

fn word32(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

fn word64(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

fn round32(lane: u32, word: u32) -> u32 {
    lane.wrapping_add(word.wrapping_mul(P32[1])).rotate_left(13).wrapping_mul(P32[0])
}

fn round64(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(P64[1])).rotate_left(31).wrapping_mul(P64[0])
}

fn xxhash32(seed: u32, data: &[u8]) -> u32 {
    let [a, b, c, d, e] = P32;
    let mut lanes = [seed.wrapping_add(a).wrapping_add(b), seed.wrapping_add(b), seed, seed.wrapping_sub(a)];
    let mut stripes = data.chunks_exact(16);
    for stripe in &mut stripes {
        for (lane, word) in lanes.iter_mut().zip(stripe.chunks_exact(4)) {
            *lane = round32(*lane, word32(word));
        }
    }
    let joined = lanes
        .iter()
        .zip([1, 7, 12, 18])
        .fold(0_u32, |sum, (lane, by)| sum.wrapping_add(lane.rotate_left(by)));
    let start = if data.len() < 16 { seed.wrapping_add(e) } else { joined };
    // The length enters modulo the width, by specification.
    let length = word32(&(data.len() as u64).to_le_bytes());
    let mut words = stripes.remainder().chunks_exact(4);
    let hash = words.by_ref().fold(start.wrapping_add(length), |hash, word| {
        hash.wrapping_add(word32(word).wrapping_mul(c)).rotate_left(17).wrapping_mul(d)
    });
    let hash = words.remainder().iter().fold(hash, |hash, byte| {
        hash.wrapping_add(u32::from(*byte).wrapping_mul(e)).rotate_left(11).wrapping_mul(a)
    });
    let hash = (hash ^ (hash >> 15)).wrapping_mul(b);
    let hash = (hash ^ (hash >> 13)).wrapping_mul(c);
    hash ^ (hash >> 16)
}

fn xxhash64(seed: u64, data: &[u8]) -> u64 {
    let [a, b, c, d, e] = P64;
    let mut lanes = [seed.wrapping_add(a).wrapping_add(b), seed.wrapping_add(b), seed, seed.wrapping_sub(a)];
    let mut stripes = data.chunks_exact(32);
    for stripe in &mut stripes {
        for (lane, word) in lanes.iter_mut().zip(stripe.chunks_exact(8)) {
            *lane = round64(*lane, word64(word));
        }
    }
    let joined = lanes
        .iter()
        .zip([1, 7, 12, 18])
        .fold(0_u64, |sum, (lane, by)| sum.wrapping_add(lane.rotate_left(by)));
    let merge = |hash: u64, lane: &u64| (hash ^ round64(0, *lane)).wrapping_mul(a).wrapping_add(d);
    let start = if data.len() < 32 { seed.wrapping_add(e) } else { lanes.iter().fold(joined, merge) };
    let tail = stripes.remainder();
    let (longs, rest) = tail.split_at(tail.len() / 8 * 8);
    let hash = longs.chunks_exact(8).fold(start.wrapping_add(data.len() as u64), |hash, word| {
        (hash ^ round64(0, word64(word))).rotate_left(27).wrapping_mul(a).wrapping_add(d)
    });
    let (word, bytes) = rest.split_at(rest.len() / 4 * 4);
    let hash = word.chunks_exact(4).fold(hash, |hash, word| {
        (hash ^ u64::from(word32(word)).wrapping_mul(a)).rotate_left(23).wrapping_mul(b).wrapping_add(c)
    });
    let hash = bytes
        .iter()
        .fold(hash, |hash, byte| (hash ^ u64::from(*byte).wrapping_mul(e)).rotate_left(11).wrapping_mul(a));
    let hash = (hash ^ (hash >> 33)).wrapping_mul(b);
    let hash = (hash ^ (hash >> 29)).wrapping_mul(c);
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_values() {
        assert_eq!(xxhash32(0, b""), 0x02cc_5d05);
        assert_eq!(xxhash32(0, b"abc"), 0x32d1_53ff);
        assert_eq!(xxhash32(0, b"Nobody inspects the spammish repetition"), 0xe229_3b2f);
        assert_eq!(xxhash64(0, b""), 0xef46_db37_51d8_e999);
        assert_eq!(xxhash64(0, b"abc"), 0x44bc_2cf5_ad77_0999);
        assert_eq!(xxhash64(0, b"Nobody inspects the spammish repetition"), 0xfbce_a83c_8a37_8bf1);
    }

    #[test]
    fn one_value_per_chunk() {
        let data = BufList::from(b"123456789123456789".to_vec());
        let crc = crc32c(u32::MAX, b"123456789").to_le_bytes();
        let all = checksums(Kind::Crc32c(u32::MAX), &data, 9);
        assert_eq!(&all[..], [&[2, 0, 0, 0][..], &crc, &crc].concat());
        assert_eq!(checksums(Kind::Xxhash64(0), &data, 0).len(), 12);
        assert_eq!(checksums(Kind::Xxhash64(0), &BufList::new(), 0).len(), 4);
    }
}
