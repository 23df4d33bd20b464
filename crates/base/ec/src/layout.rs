//! [`Layout`]: which byte of an object is in which shard.
//!
//! ```text
//!   object   | unit 0 | unit 1 | unit 2 | unit 3 | unit 4 ...      k = 2: a stripe is two units
//!   shard 0  | unit 0 | unit 2 | unit 4 ...
//!   shard 1  | unit 1 | unit 3 | ...
//!   shard 2  | parity | parity | ...                                of the units of the same stripe
//! ```
//! The last stripe is filled up with zeros, so all chunks of an object are equally long.

use nacre_buf::{BufList, Bytes};

/// How data is dealt out to the data shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Number of data shards.
    pub k: u8,
    /// Bytes of one shard in one stripe.
    pub unit_bytes: u32,
}

impl Layout {
    /// Bytes of data in a stripe.
    #[must_use]
    pub fn stripe_bytes(&self) -> u64 {
        u64::from(self.k) * u64::from(self.unit_bytes)
    }

    /// Bytes of each chunk of an object of `size` bytes.
    #[must_use]
    pub fn chunk_bytes(&self, size: u64) -> u64 {
        size.div_ceil(self.stripe_bytes()) * u64::from(self.unit_bytes)
    }

    /// The whole stripes around a range of the object: first and number of bytes.
    #[must_use]
    pub fn around(&self, offset: u64, length: u64) -> (u64, u64) {
        let stripe = self.stripe_bytes();
        let first = offset / stripe * stripe;
        let end = offset.saturating_add(length).div_ceil(stripe).saturating_mul(stripe);
        (first, end - first)
    }

    /// Where in each chunk a whole stripe at `offset` of the object is.
    #[must_use]
    pub fn in_chunk(&self, offset: u64) -> u64 {
        offset / u64::from(self.k)
    }

    /// The data shards that hold a range of the object.
    pub fn shards_of(&self, offset: u64, length: u64) -> impl Iterator<Item = u8> + use<> {
        let (k, unit) = (u64::from(self.k), u64::from(self.unit_bytes));
        let first = offset / unit;
        let count = offset.saturating_add(length).div_ceil(unit).saturating_sub(first).min(k);
        (first..first + count).map(move |at| u8::try_from(at % k).unwrap_or(u8::MAX))
    }

    /// Deals whole stripes out; what is left of the last one is filled up with zeros.
    #[must_use]
    pub fn split(&self, data: &BufList) -> Vec<BufList> {
        let (k, unit) = (usize::from(self.k), self.unit_bytes as usize);
        let mut shards = vec![BufList::new(); k];
        let units = data.len().div_ceil(unit).next_multiple_of(k);
        for at in 0..units {
            let start = (at * unit).min(data.len());
            let there = unit.min(data.len() - start);
            let shard = &mut shards[at % k];
            if there > 0 {
                shard.append(data.slice(start, there));
            }
            if there < unit {
                shard.push(Bytes::from(vec![0; unit - there]));
            }
        }
        shards
    }

    /// Puts together what [`Layout::split`] dealt out.
    #[must_use]
    pub fn join(&self, shards: &[BufList]) -> BufList {
        let unit = self.unit_bytes as usize;
        let mut data = BufList::new();
        let stripes = shards.first().map_or(0, BufList::len) / unit;
        for stripe in 0..stripes {
            shards.iter().for_each(|shard| data.append(shard.slice(stripe * unit, unit)));
        }
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { k: 3, unit_bytes: 4 };

    #[test]
    fn data_is_dealt_out_and_put_together() {
        for length in 0..40 {
            let bytes: Vec<u8> = (1..).take(length).collect();
            let shards = LAYOUT.split(&Bytes::from(bytes.clone()).into());
            assert!(shards.iter().all(|shard| shard.len() as u64 == LAYOUT.chunk_bytes(length as u64)));
            let joined = LAYOUT.join(&shards).to_bytes();
            assert_eq!(joined[..length], bytes);
            assert!(joined[length..].iter().all(|byte| *byte == 0) && joined.len() < length + 12);
        }
    }

    #[test]
    fn ranges_are_found_in_chunks() {
        assert_eq!(LAYOUT.around(13, 2), (12, 12));
        assert_eq!(LAYOUT.around(11, 2), (0, 24));
        assert_eq!(LAYOUT.in_chunk(24), 8);
        let shards = |offset, length| LAYOUT.shards_of(offset, length).collect::<Vec<u8>>();
        assert_eq!(shards(13, 2), [0]);
        assert_eq!(shards(11, 2), [2, 0]);
        assert_eq!(shards(4, 100), [1, 2, 0]);
        assert_eq!(shards(4, 0), []);
    }
}
