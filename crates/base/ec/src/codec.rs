//! [`Codec`]: a systematic Reed-Solomon code. Shards `0..k` hold the data as it is, shards `k..k + m` hold parity;
//! any `k` of them give all others.

use crate::code::{Code, Technique};
use crate::field::multiply;
use crate::matrix::{Row, invert, parity_rows};
use crate::{kernel, packets, sum};
use std::collections::BTreeMap;

/// A shard and its share of some bytes.
pub type Shards<'a> = BTreeMap<u8, &'a [u8]>;

/// Too few shards to compute another one from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{have} shards, where {need} are needed")]
pub struct TooFewShards {
    /// So many are there.
    pub have: usize,
    /// So many are needed.
    pub need: usize,
}

/// A code of `k` data and `m` parity shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Codec {
    k: usize,
    /// One row of `k` factors per parity shard.
    parity: Vec<Row>,
    /// In a code over packets, the bytes of one.
    packet_bytes: Option<usize>,
}

impl Codec {
    /// The codec of `code`.
    #[must_use]
    pub fn new(code: &Code) -> Self {
        let packet_bytes = match code.technique() {
            Technique::JerasureCauchyGood { packet_bytes } => Some(packet_bytes as usize),
            _ => None,
        };
        let parity = parity_rows(code.technique(), code.k(), code.m());
        Self { k: usize::from(code.k()), parity, packet_bytes }
    }

    /// Number of data shards.
    #[must_use]
    pub fn data_shards(&self) -> usize {
        self.k
    }

    /// Number of shards.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.k + self.parity.len()
    }

    /// The parity of `data`, `k` slices of the same length, which are whole stripes.
    ///
    /// # Panics
    /// When they are not.
    #[must_use]
    pub fn encode(&self, data: &[&[u8]]) -> Vec<Vec<u8>> {
        assert_eq!(data.len(), self.k, "one slice per data shard");
        self.sums(&self.parity, data)
    }

    fn sums(&self, rows: &[Row], sources: &[&[u8]]) -> Vec<Vec<u8>> {
        let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        match self.packet_bytes {
            None => kernel::sums_of_products(&rows, sources),
            Some(bytes) => packets::sums_of_products(&rows, sources, bytes),
        }
    }

    /// Shards `wanted`, in this order, from any `k` others, which are equally long and whole stripes.
    ///
    /// # Errors
    /// [`TooFewShards`].
    pub fn recover(&self, have: &Shards<'_>, wanted: &[u8]) -> Result<Vec<Vec<u8>>, TooFewShards> {
        // Those of data first: they cost the least.
        let usable = have.iter().filter(|(shard, _)| usize::from(**shard) < self.shards());
        let (shards, slices): (Vec<usize>, Vec<&[u8]>) =
            usable.take(self.k).map(|(shard, bytes)| (usize::from(*shard), *bytes)).unzip();
        if shards.len() < self.k {
            return Err(TooFewShards { have: shards.len(), need: self.k });
        }
        let wanted: Vec<usize> = wanted.iter().map(|shard| usize::from(*shard)).collect();
        Ok(self.sums(&self.factors(&shards, &wanted), &slices))
    }

    /// With which factors `shards`, `k` in ascending order, add up to each of those that are wanted.
    ///
    /// What parity shards hold beside the data that is there is a sum of the data that is lost alone: as many equations as are
    /// unknown, which one small inverse solves.
    fn factors(&self, shards: &[usize], wanted: &[usize]) -> Vec<Row> {
        let there = shards.partition_point(|shard| *shard < self.k);
        let lost: Vec<usize> = (0..self.k).filter(|shard| !shards[..there].contains(shard)).collect();
        let equations: Vec<&Row> = shards[there..].iter().map(|shard| &self.parity[shard - self.k]).collect();
        let solved =
            invert(equations.iter().map(|row| lost.iter().map(|shard| row[*shard]).collect()).collect());
        let of_lost = |number: usize| -> Row {
            let parity = &solved[number];
            let of_data = |shard: &usize| add_up(parity, equations.iter().map(|row| row[*shard]));
            shards[..there].iter().map(of_data).chain(parity.iter().copied()).collect()
        };
        let lost_rows: Vec<Row> = (0..lost.len()).map(of_lost).collect();
        let of_wanted = |want: &usize| -> Row {
            let weights: Row = match want.checked_sub(self.k) {
                Some(parity) => self.parity[parity].clone(),
                None => (0..self.k).map(|column| u8::from(column == *want)).collect(),
            };
            let lost_weights: Row = lost.iter().map(|shard| weights[*shard]).collect();
            let of_shard = |(at, shard): (usize, &usize)| {
                let direct = if at < there { weights[*shard] } else { 0 };
                direct ^ add_up(&lost_weights, lost_rows.iter().map(|row| row[at]))
            };
            shards.iter().enumerate().map(of_shard).collect()
        };
        wanted.iter().map(of_wanted).collect()
    }

    /// Goes on with the linear checksum of a chunk, whose bytes from `offset` on `data` are; begin with 0. It commutes with the code: the
    /// sum of a parity shard is that parity of the sums.
    #[must_use]
    pub fn linear_sum(&self, sum: u32, offset: u64, data: &[u8]) -> u32 {
        match self.packet_bytes {
            None => sum::linear_sum(sum, data),
            Some(bytes) => packets::linear_sum(sum, offset, data, bytes),
        }
    }

    /// True when the linear checksums of all shards are those of one stripe. `sums` has one per shard.
    #[must_use]
    pub fn is_consistent(&self, sums: &[u32]) -> bool {
        let bytes: Vec<[u8; 4]> = sums.iter().map(|sum| sum.to_le_bytes()).collect();
        let Some((data, parity)) = bytes.split_at_checked(self.k) else { return false };
        let of_row =
            |row: &Row| -> [u8; 4] { std::array::from_fn(|at| add_up(row, data.iter().map(|sum| sum[at]))) };
        parity.len() == self.parity.len()
            && self.parity.iter().zip(parity).all(|(row, found)| *found == of_row(row))
    }
}

/// The sum of elements, each multiplied by its factor.
fn add_up(factors: &[u8], elements: impl Iterator<Item = u8>) -> u8 {
    factors.iter().zip(elements).fold(0, |sum, (factor, element)| sum ^ multiply(*factor, element))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u32, length: usize) -> Vec<u8> {
        let mut state = seed.wrapping_mul(2_654_435_761) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state.to_le_bytes()[1]
        };
        (0..length).map(|_| next()).collect()
    }

    fn shards(codec: &Codec, length: usize) -> Vec<Vec<u8>> {
        let mut all: Vec<Vec<u8>> = (0..).take(codec.data_shards()).map(|seed| noise(seed, length)).collect();
        let data: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        let parity = codec.encode(&data);
        all.extend(parity);
        all
    }

    const TECHNIQUES: [Technique; 5] = [
        Technique::Own,
        Technique::JerasureReedSolVan,
        Technique::JerasureCauchyGood { packet_bytes: 8 },
        Technique::IsaReedSolVan,
        Technique::IsaCauchy,
    ];

    fn codec(technique: Technique, k: u8, m: u8) -> Codec {
        Codec::new(&Code::new(technique, k, m, 4096).expect("a code"))
    }

    #[test]
    fn any_k_shards_give_every_other_one() {
        for technique in TECHNIQUES {
            for (k, m) in [(2, 1), (2, 2), (3, 2), (4, 2), (5, 3), (6, 3), (8, 3), (8, 4)] {
                let codec = codec(technique, k, m);
                let all = shards(&codec, 192);
                for lost in (0_u32..1 << codec.shards()).filter(|lost| lost.count_ones() == u32::from(m)) {
                    let is_lost = |shard: &u8| lost >> shard & 1 == 1;
                    let have: Shards<'_> =
                        (0..).zip(&all).map(|(shard, bytes)| (shard, bytes.as_slice())).collect();
                    let have: Shards<'_> = have.into_iter().filter(|(shard, _)| !is_lost(shard)).collect();
                    let wanted: Vec<u8> = (0..k + m).filter(is_lost).collect();
                    let found = codec.recover(&have, &wanted).expect("k shards");
                    let right: Vec<&Vec<u8>> = wanted.iter().map(|shard| &all[usize::from(*shard)]).collect();
                    assert!(found.iter().eq(right), "{technique:?} {k}+{m} without {lost:b}");
                }
            }
        }
    }

    #[test]
    fn shards_that_are_there_can_be_had_as_well() {
        let codec = codec(Technique::JerasureReedSolVan, 3, 2);
        let all = shards(&codec, 40);
        let have: Shards<'_> = [1, 3, 4].map(|shard| (shard, all[usize::from(shard)].as_slice())).into();
        let found = codec.recover(&have, &[4, 1, 0]).expect("k shards");
        assert_eq!(found, [all[4].clone(), all[1].clone(), all[0].clone()]);
    }

    #[test]
    fn one_parity_shard_is_the_sum() {
        for technique in TECHNIQUES {
            let all = shards(&codec(technique, 3, 1), 64);
            let sum: Vec<u8> = (0..64).map(|at| all[0][at] ^ all[1][at] ^ all[2][at]).collect();
            assert_eq!(all[3], sum, "{technique:?}");
        }
    }

    #[test]
    fn too_few_shards_are_an_error() {
        let codec = codec(Technique::Own, 4, 2);
        let bytes = [1, 2];
        let have: Shards<'_> = [(0, &bytes[..]), (4, &bytes[..]), (5, &bytes[..])].into();
        assert_eq!(codec.recover(&have, &[1]), Err(TooFewShards { have: 3, need: 4 }));
    }

    #[test]
    fn sums_tell_whether_shards_belong_together() {
        for technique in TECHNIQUES {
            for (k, m) in [(2, 1), (4, 2), (6, 3)] {
                let codec = codec(technique, k, m);
                let mut all = shards(&codec, 4992);
                let sums = |all: &[Vec<u8>]| -> Vec<u32> {
                    all.iter().map(|shard| codec.linear_sum(0, 0, shard)).collect()
                };
                assert!(codec.is_consistent(&sums(&all)));
                for shard in 0..codec.shards() {
                    for at in [0, 17, 4991] {
                        all[shard][at] ^= 0x40;
                        assert!(
                            !codec.is_consistent(&sums(&all)),
                            "{technique:?} {k}+{m}: byte {at} of {shard}"
                        );
                        all[shard][at] ^= 0x40;
                    }
                    let other = (4..200).find(|at| all[shard][*at] != all[shard][3]).expect("noise");
                    all[shard].swap(3, other);
                    assert!(!codec.is_consistent(&sums(&all)), "swapped bytes");
                    all[shard].swap(3, other);
                }
                assert!(!codec.is_consistent(&sums(&all)[1..]));
            }
        }
    }
}
