//! [`Codec`]: a systematic Reed-Solomon code. Shards `0..k` hold the data as it is, shards `k..k + m` hold parity;
//! any `k` of them give all others.
//!
//! The parity rows are a Cauchy matrix, `1 / (x_i + y_j)` with all `x_i` and `y_j` distinct, of which every square
//! part can be inverted: that is what makes every set of `k` shards sufficient. Each column is divided by its first
//! element, which keeps that and makes the first row all ones: with `m = 1` the parity is the sum (XOR) of the data.
//! Ceph's plugins give data and the first parity shard the same bytes, but not the others; nothing but this code ever reads them.

use crate::field::{add_product, inverse, multiply};
use std::collections::BTreeMap;

/// Most shards of a code.
pub const SHARDS_MAX: usize = 64;

/// A shard and its share of some bytes.
pub type Shards<'a> = BTreeMap<u8, &'a [u8]>;

/// Shards as rows of the code and as bytes.
type Picked<'a> = (Vec<Vec<u8>>, Vec<&'a [u8]>);

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
    parity: Vec<Vec<u8>>,
}

impl Codec {
    /// The code; `None` unless there are data and parity shards, and no more than [`SHARDS_MAX`] of both.
    #[must_use]
    pub fn new(k: u8, m: u8) -> Option<Self> {
        if !Self::exists(k, m) {
            return None;
        }
        let element = |row: u8, column: u8| inverse((k + row) ^ column);
        let row = |row: u8| {
            (0..k).map(|column| multiply(element(row, column), inverse(element(0, column)))).collect()
        };
        Some(Self { k: usize::from(k), parity: (0..m).map(row).collect() })
    }

    /// Whether there is a code of so many shards.
    #[must_use]
    pub fn exists(k: u8, m: u8) -> bool {
        k > 0 && m > 0 && usize::from(k) + usize::from(m) <= SHARDS_MAX
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

    /// The factors with which the data shards add up to `shard`.
    fn row(&self, shard: usize) -> Vec<u8> {
        match shard.checked_sub(self.k).and_then(|at| self.parity.get(at)) {
            Some(row) => row.clone(),
            None => (0..self.k).map(|column| u8::from(column == shard)).collect(),
        }
    }

    /// The parity of `data`, `k` slices of the same length.
    ///
    /// # Panics
    /// When they are not.
    #[must_use]
    pub fn encode(&self, data: &[&[u8]]) -> Vec<Vec<u8>> {
        assert_eq!(data.len(), self.k, "one slice per data shard");
        self.parity.iter().map(|row| sum(row, data)).collect()
    }

    /// Shard `want`, from any `k` others, which are equally long.
    ///
    /// # Errors
    /// [`TooFewShards`].
    pub fn recover(&self, have: &Shards<'_>, want: u8) -> Result<Vec<u8>, TooFewShards> {
        let (rows, slices) = self.pick(have)?;
        let factors = self.factors(rows, usize::from(want));
        Ok(sum(&factors, &slices))
    }

    /// `k` of the shards that are there, as rows of the code and as bytes; those of data first: they cost the least.
    fn pick<'a>(&self, have: &Shards<'a>) -> Result<Picked<'a>, TooFewShards> {
        let usable = have.iter().filter(|(shard, _)| usize::from(**shard) < self.shards());
        let (rows, slices): (Vec<_>, Vec<_>) =
            usable.take(self.k).map(|(shard, bytes)| (self.row(usize::from(*shard)), *bytes)).unzip();
        if rows.len() < self.k {
            return Err(TooFewShards { have: rows.len(), need: self.k });
        }
        Ok((rows, slices))
    }

    /// With which factors the shards of `rows` add up to `want`.
    fn factors(&self, rows: Vec<Vec<u8>>, want: usize) -> Vec<u8> {
        let to_data = invert(rows);
        let wanted = self.row(want);
        let factor = |column: usize| {
            let terms = wanted.iter().zip(&to_data).map(|(factor, row)| multiply(*factor, row[column]));
            terms.fold(0, |sum, term| sum ^ term)
        };
        (0..self.k).map(factor).collect()
    }

    /// True when linear sums of all shards ([`crate::linear_sum`]) are those of one stripe. `sums` has one per shard.
    #[must_use]
    pub fn is_consistent(&self, sums: &[u32]) -> bool {
        let bytes: Vec<[u8; 4]> = sums.iter().map(|sum| sum.to_le_bytes()).collect();
        let Some((data, parity)) = bytes.split_at_checked(self.k) else { return false };
        let data: Vec<&[u8]> = data.iter().map(|sum| &sum[..]).collect();
        parity.len() == self.parity.len()
            && self.encode(&data).iter().zip(parity).all(|(made, found)| *made == *found)
    }
}

fn sum(factors: &[u8], slices: &[&[u8]]) -> Vec<u8> {
    let mut sum = vec![0; slices.first().map_or(0, |slice| slice.len())];
    factors.iter().zip(slices).for_each(|(factor, slice)| add_product(&mut sum, *factor, slice));
    sum
}

/// The inverse matrix (Gauss-Jordan).
///
/// # Panics
/// When there is none: every `k` rows of the code have one.
fn invert(mut rows: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let size = rows.len();
    for (at, row) in rows.iter_mut().enumerate() {
        row.extend((0..size).map(|column| u8::from(column == at)));
    }
    for at in 0..size {
        let pivot = (at..size).find(|row| rows[*row][at] != 0).expect("the rows are independent");
        rows.swap(at, pivot);
        let scale = inverse(rows[at][at]);
        rows[at].iter_mut().for_each(|value| *value = multiply(*value, scale));
        let pivot = rows[at].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(other, _)| *other != at) {
            let factor = row[at];
            add_product(row, factor, &pivot);
        }
    }
    rows.into_iter().map(|mut row| row.split_off(size)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear_sum;

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

    #[test]
    fn any_k_shards_give_every_other_one() {
        for (k, m) in [(1, 1), (1, 3), (2, 1), (2, 2), (3, 2), (4, 2), (5, 3), (6, 3), (8, 3), (8, 4)] {
            let codec = Codec::new(k, m).expect("a code");
            let all = shards(&codec, 33);
            for lost in (0_u32..1 << codec.shards()).filter(|lost| lost.count_ones() == u32::from(m)) {
                let is_lost = |shard: &u8| lost >> shard & 1 == 1;
                let have: Shards<'_> =
                    (0..).zip(&all).map(|(shard, bytes)| (shard, bytes.as_slice())).collect();
                let have: Shards<'_> = have.into_iter().filter(|(shard, _)| !is_lost(shard)).collect();
                for want in (0..k + m).filter(is_lost) {
                    let found = codec.recover(&have, want).expect("k shards");
                    assert_eq!(found, all[usize::from(want)], "{k}+{m} without {lost:b}");
                }
            }
        }
    }

    #[test]
    fn one_parity_shard_is_the_sum() {
        let codec = Codec::new(3, 1).expect("a code");
        let all = shards(&codec, 9);
        let sum: Vec<u8> = (0..9).map(|at| all[0][at] ^ all[1][at] ^ all[2][at]).collect();
        assert_eq!(all[3], sum);
    }

    #[test]
    fn too_few_shards_are_an_error() {
        let codec = Codec::new(4, 2).expect("a code");
        let bytes = [1, 2];
        let have: Shards<'_> = [(0, &bytes[..]), (4, &bytes[..]), (5, &bytes[..])].into();
        assert_eq!(codec.recover(&have, 1), Err(TooFewShards { have: 3, need: 4 }));
        for (k, m) in [(0, 1), (2, 0), (60, 5), (255, 255)] {
            assert_eq!(Codec::new(k, m), None);
        }
    }

    #[test]
    fn sums_tell_whether_shards_belong_together() {
        for (k, m) in [(2, 1), (4, 2), (6, 3)] {
            let codec = Codec::new(k, m).expect("a code");
            let mut all = shards(&codec, 5000);
            let sums =
                |all: &[Vec<u8>]| -> Vec<u32> { all.iter().map(|shard| linear_sum(0, shard)).collect() };
            assert!(codec.is_consistent(&sums(&all)));
            for shard in 0..codec.shards() {
                for at in [0, 17, 4999] {
                    all[shard][at] ^= 0x40;
                    assert!(!codec.is_consistent(&sums(&all)), "{k}+{m}: byte {at} of {shard}");
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
