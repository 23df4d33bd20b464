//! [`Extents`]: parts of an object's data in whole blocks; and [`span`] of two ranges of bytes.

use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use std::ops::Range;

/// What offsets and lengths of [`Extents`] are multiples of, in bytes. Stores share blocks of this size between objects, so that no
/// data is read or written for a copy.
pub const EXTENT_BYTES: u64 = 4096;

/// `(offset, length)` in bytes of parts of an object's data: ascending, disjoint, none empty, and multiples of [`EXTENT_BYTES`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Extents(Vec<(u64, u64)>);

impl Extents {
    /// These parts; the first one that is not as an extent must be, if there is one.
    ///
    /// # Errors
    /// That part: it overlaps the one before it, is empty, does not end below 2^64, or is not in whole blocks.
    pub fn new(ranges: impl IntoIterator<Item = (u64, u64)>) -> Result<Self, (u64, u64)> {
        let mut end = 0;
        let ranges = ranges.into_iter().map(|(offset, length)| {
            let whole = offset.is_multiple_of(EXTENT_BYTES) && length.is_multiple_of(EXTENT_BYTES);
            let behind = offset.checked_add(length).filter(|behind| *behind > offset);
            end = behind.filter(|_| whole && offset >= end).ok_or((offset, length))?;
            Ok((offset, length))
        });
        ranges.collect::<Result<_, _>>().map(Self)
    }

    /// `(offset, length)` of each, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Blocks of [`EXTENT_BYTES`] in all of them.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.iter().map(|(_, length)| length / EXTENT_BYTES).sum()
    }
}

impl Encode for Extents {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.0);
    }
}

impl Decode for Extents {
    const MIN_BYTES: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let ranges: Vec<(u64, u64)> = r.get()?;
        Self::new(ranges).map_err(|(offset, _)| DecodeError::Invalid { what: "extent", value: offset })
    }
}

/// The least range with all of both; an empty one has nothing.
#[must_use]
pub fn span(one: Range<u64>, other: Range<u64>) -> Range<u64> {
    match (one.is_empty(), other.is_empty()) {
        (true, _) => other,
        (_, true) => one,
        _ => one.start.min(other.start)..one.end.max(other.end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_whole_blocks_in_order() {
        let good = [(0, 4096), (4096, 8192), (1 << 40, 4096)];
        let extents = Extents::new(good).expect("in order");
        assert!(extents.iter().eq(good));
        assert_eq!((extents.count(), extents.blocks()), (3, 4));
        assert_eq!(Extents::from_bytes(extents.to_bytes()), Ok(extents));
        let last = u64::MAX - 4095;
        for bad in [(0, 0), (1, 4096), (4096, 4095), (last, 4096), (last - 4096, 8192)] {
            assert_eq!(Extents::new([bad]), Err(bad));
            assert!(Extents::from_bytes(vec![bad].to_bytes()).is_err());
        }
        assert_eq!(Extents::new([(4096, 8192), (8192, 4096)]), Err((8192, 4096)), "twice");
        assert_eq!(Extents::new([(4096, 4096), (0, 4096)]), Err((0, 4096)), "descending");
    }
}
