//! [`BitVector`]: two bits per object of an image. Format: Ceph `src/common/bit_vector.hpp`, v16.2.15.
//!
//! ```text
//! blob { ENV(1,1) { u64 count } }   header
//! ceil(count / 4) bytes             entries, the first in the two highest bits of a byte
//! blob { footer }                   checksums on disk, empty in calls
//! ```

use crate::{ClassCx, Fault};
use nacre_buf::crc::crc32c;
use nacre_buf::{BufList, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::Errno;

/// Object there, changed since the last snapshot.
pub(super) const EXISTS: u8 = 1;
/// Object there and as the last snapshot has it.
pub(super) const EXISTS_CLEAN: u8 = 3;
/// Objects that a map may describe: an image of 2^63 bytes would need more, one of 16 PiB does not.
pub(super) const COUNT_MAX: u64 = 256_000_000;
const ENTRIES_PER_BYTE: u64 = 4;
const BLOCK_BYTES: usize = 4096;
/// The lower bit of each entry of a byte.
const EACH: u8 = 0b0101_0101;

/// States of an image's objects.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct BitVector {
    count: u64,
    packed: Vec<u8>,
}

fn bytes_for(count: u64) -> usize {
    usize::try_from(count.div_ceil(ENTRIES_PER_BYTE)).unwrap_or(usize::MAX)
}

impl BitVector {
    pub(super) fn new() -> Self {
        Self { count: 0, packed: Vec::new() }
    }

    pub(super) fn len(&self) -> u64 {
        self.count
    }

    fn place(index: u64) -> (usize, u32) {
        let shift = 6 - 2 * (index % ENTRIES_PER_BYTE);
        (bytes_for(index + 1) - 1, u32::try_from(shift).unwrap_or_default())
    }

    /// State of object `index`, which must be below [`BitVector::len`].
    pub(super) fn state(&self, index: u64) -> u8 {
        let (byte, shift) = Self::place(index);
        self.packed[byte] >> shift & 3
    }

    /// Sets the state of object `index`, of which two bits are kept.
    pub(super) fn set_state(&mut self, index: u64, state: u8) {
        let (byte, shift) = Self::place(index);
        self.packed[byte] = self.packed[byte] & !(3 << shift) | (state & 3) << shift;
    }

    /// Cuts to `count`, or extends with `fill`.
    pub(super) fn resize(&mut self, count: u64, fill: u8) {
        let old = self.count;
        if self.packed.is_empty() {
            // Zeros are not written.
            self.packed = vec![(fill & 3) * EACH; bytes_for(count)];
        }
        self.packed.resize(bytes_for(count), (fill & 3) * EACH);
        self.count = count;
        (old..count.min(old.next_multiple_of(ENTRIES_PER_BYTE)))
            .for_each(|index| self.set_state(index, fill));
        // Bits behind the last entry are zero, whatever was there before.
        (count..bytes_for(count) as u64 * ENTRIES_PER_BYTE).for_each(|index| self.set_state(index, 0));
    }

    /// True when all entries from `from` on have this state.
    pub(super) fn all_from(&self, from: u64, state: u8) -> bool {
        let whole = from.next_multiple_of(ENTRIES_PER_BYTE).min(self.count);
        let end = (self.count - self.count % ENTRIES_PER_BYTE).max(whole);
        let bytes = self.packed.get(bytes_for(whole)..bytes_for(end)).unwrap_or_default();
        (from..whole).chain(end..self.count).all(|index| self.state(index) == state)
            && bytes.iter().all(|byte| state <= 3 && *byte == state * EACH)
    }

    /// Gives each entry of a range, which must be within the map, the state that `change` makes of its own; true when
    /// one has another than before. Byte by byte: there may be hundreds of millions.
    pub(super) fn change(&mut self, start: u64, end: u64, change: impl Fn(u8) -> u8) -> bool {
        let one = |map: &mut Self, index: u64| {
            let (before, after) = (map.state(index), change(map.state(index)));
            map.set_state(index, after);
            before != after
        };
        let whole = start.next_multiple_of(ENTRIES_PER_BYTE).min(end);
        let tail = (end - end % ENTRIES_PER_BYTE).max(whole);
        let mut changed = false;
        for index in (start..whole).chain(tail..end) {
            changed |= one(self, index);
        }
        let of_byte =
            |byte: u8| (0..4).fold(0, |all, nth| all | (change(byte >> (2 * nth) & 3) & 3) << (2 * nth));
        let table: [u8; 256] = std::array::from_fn(|byte| of_byte(byte.to_le_bytes()[0]));
        for byte in self.packed.get_mut(bytes_for(whole)..bytes_for(tail)).unwrap_or_default() {
            let after = table[usize::from(*byte)];
            changed |= *byte != after;
            *byte = after;
        }
        changed
    }

    /// Entries that are clean here, and that `other` has as existing or does not have, become existing.
    pub(super) fn unclean(&mut self, other: &Self) {
        let (whole, rest) = (other.count / ENTRIES_PER_BYTE, other.count % ENTRIES_PER_BYTE);
        // What `other` does not have counts as existing.
        let behind = EACH >> (2 * rest);
        for (at, byte) in (0_u64..).zip(&mut self.packed) {
            let found = usize::try_from(at).ok().and_then(|at| other.packed.get(at)).copied();
            let theirs = match found {
                Some(theirs) if at < whole => theirs,
                Some(theirs) if at == whole => theirs & !(behind | behind << 1) | behind,
                _ => EACH,
            };
            let exists = theirs & !(theirs >> 1) & EACH;
            let is_clean = *byte & (*byte >> 1) & EACH;
            *byte &= !((is_clean & exists) << 1);
        }
    }

    fn header(&self) -> Bytes {
        let mut w = Writer::new();
        w.envelope(1, 1, |w| w.u64(self.count));
        w.finish()
    }

    /// With the checksums that the object on disk carries. The entries are not copied.
    pub(super) fn into_disk(self) -> BufList {
        let header = self.header();
        let (mut head, mut footer) = (Writer::new(), Writer::new());
        head.blob(&header);
        footer.nested(|w| {
            w.u32(crc32c(0, &header));
            let blocks: Vec<u32> = self.packed.chunks(BLOCK_BYTES).map(|block| crc32c(0, block)).collect();
            w.put(&blocks);
        });
        [head.finish(), self.packed.into(), footer.finish()].into_iter().collect()
    }

    /// Reads the object on disk and checks it.
    ///
    /// # Errors
    /// `EINVAL` when it is not an object map or a checksum is wrong, as from Ceph: librbd then rebuilds it.
    pub(super) fn from_disk(bytes: Bytes) -> Result<Self, Fault> {
        let damaged = |_: DecodeError| Fault::Errno(Errno::EINVAL);
        let mut r = Reader::new(bytes);
        let header = r.clone().blob().map_err(damaged)?;
        let vector = Self::decode_entries(&mut r).map_err(damaged)?;
        let mut footer = Reader::new(r.blob().map_err(damaged)?);
        let header_crc = footer.u32().map_err(damaged)?;
        let blocks: Vec<u32> = footer.get().map_err(damaged)?;
        let found = vector.packed.chunks(BLOCK_BYTES).map(|block| crc32c(0, block));
        if header_crc != crc32c(0, &header) || !found.eq(blocks.iter().copied()) {
            return Err(Errno::EINVAL.into());
        }
        Ok(vector)
    }

    fn decode_entries(r: &mut Reader) -> Result<Self, DecodeError> {
        let count = Reader::new(r.blob()?).envelope("BitVector", 1, |_, r| r.u64())?;
        if count > COUNT_MAX {
            return Err(DecodeError::Invalid { what: "BitVector size", value: count });
        }
        Ok(Self { count, packed: r.take(bytes_for(count))?.to_vec() })
    }
}

/// Consecutive blocks of a map on disk, with their checksums: what a change of few entries needs of it.
pub(super) struct Blocks {
    entries: BitVector,
    /// Entries of the whole map.
    count: u64,
    /// Number of the first block.
    first: usize,
}

/// Entries of one block.
const BLOCK_ENTRIES: u64 = BLOCK_BYTES as u64 * ENTRIES_PER_BYTE;
/// Length of the header with its own length.
const HEADER_BYTES: usize = 4 + 6 + 8;
/// Of the footer: its length, the header's checksum, and the number of the others.
const FOOTER_HEAD_BYTES: usize = 12;

impl Blocks {
    /// Reads those that hold the entries from `start` to `end`, to be written back, and checks them.
    ///
    /// # Errors
    /// `ERANGE` when there are no such entries, `E2BIG` when they are too many for one message (librbd updates 256 Ki at a time), else as [`BitVector::from_disk`].
    pub(super) fn read(cx: &dyn ClassCx, start: u64, end: u64) -> Result<Self, Fault> {
        let damaged = |_: DecodeError| Fault::Errno(Errno::EINVAL);
        let mut r = Reader::new(cx.read(0, HEADER_BYTES as u64)?);
        let header = r.blob().map_err(damaged)?;
        let count = Reader::new(header.clone()).envelope("BitVector", 1, |_, r| r.u64()).map_err(damaged)?;
        if count > COUNT_MAX || header.len() + 4 != HEADER_BYTES {
            return Err(Errno::EINVAL.into());
        }
        if start >= end || end > count {
            return Err(Errno::ERANGE.into());
        }
        let first = usize::try_from(start / BLOCK_ENTRIES).unwrap_or(usize::MAX);
        let entries_end = end.next_multiple_of(BLOCK_ENTRIES).min(count);
        let entries_count = entries_end - first as u64 * BLOCK_ENTRIES;
        let mut blocks = Self { entries: BitVector::new(), count, first };
        cx.afford(2 * bytes_for(entries_count) as u64)?;
        let mut footer = Reader::new(cx.read(blocks.footer_at(), FOOTER_HEAD_BYTES as u64)?);
        let (_length, header_crc, crcs) =
            (footer.u32().map_err(damaged)?, footer.u32().map_err(damaged)?, footer.u32().map_err(damaged)?);
        let packed = cx.read(blocks.data_at(), bytes_for(entries_count) as u64)?;
        let wanted = packed.len().div_ceil(BLOCK_BYTES);
        let mut kept = Reader::new(cx.read(blocks.crcs_at(), 4 * wanted as u64)?);
        let sound = header_crc == crc32c(0, &header)
            && crcs as usize == bytes_for(count).div_ceil(BLOCK_BYTES)
            && packed.len() == bytes_for(entries_count)
            && packed.chunks(BLOCK_BYTES).all(|block| kept.u32() == Ok(crc32c(0, block)));
        if !sound {
            return Err(Errno::EINVAL.into());
        }
        blocks.entries = BitVector { count: entries_count, packed: packed.to_vec() };
        Ok(blocks)
    }

    /// As [`BitVector::change`], by the numbers that the whole map gives its entries.
    pub(super) fn change(&mut self, start: u64, end: u64, change: impl Fn(u8) -> u8) -> bool {
        let before = self.first as u64 * BLOCK_ENTRIES;
        self.entries.change(start - before, end - before, change)
    }

    /// Writes them back with their checksums.
    pub(super) fn write(self, cx: &mut dyn ClassCx) {
        let mut crcs = Writer::with_capacity(4 * self.entries.packed.len().div_ceil(BLOCK_BYTES));
        self.entries.packed.chunks(BLOCK_BYTES).for_each(|block| crcs.u32(crc32c(0, block)));
        let (data_at, crcs_at) = (self.data_at(), self.crcs_at());
        cx.write(data_at, Bytes::from(self.entries.packed).into());
        cx.write(crcs_at, crcs.finish().into());
    }

    fn data_at(&self) -> u64 {
        (HEADER_BYTES + self.first * BLOCK_BYTES) as u64
    }

    fn footer_at(&self) -> u64 {
        (HEADER_BYTES + bytes_for(self.count)) as u64
    }

    fn crcs_at(&self) -> u64 {
        self.footer_at() + (FOOTER_HEAD_BYTES + 4 * self.first) as u64
    }
}

/// As calls carry it: with an empty footer.
impl Encode for BitVector {
    fn encode(&self, w: &mut Writer) {
        w.blob(&self.header());
        w.raw(&self.packed);
        w.blob(b"");
    }
}

impl Decode for BitVector {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let vector = Self::decode_entries(r)?;
        r.blob()?;
        Ok(vector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON_DISK: [u8; 37] = [
        0x0e, 0, 0, 0, 1, 1, 8, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0x0f, 0, 0, 0x0c, 0, 0, 0, 0xaf, 0xc3, 0xb0,
        0xe1, 1, 0, 0, 0, 0xac, 0x5a, 0xa1, 0x4c,
    ];

    #[test]
    fn matches_the_bytes_of_a_real_object_map() {
        let vector = BitVector::from_disk(Bytes::from_static(&ON_DISK)).expect("a valid map");
        assert_eq!(vector.len(), 9);
        assert_eq!((0..9).map(|index| vector.state(index)).collect::<Vec<_>>(), [0, 0, 3, 3, 0, 0, 0, 0, 0]);
        assert_eq!(&vector.clone().into_disk().to_bytes()[..], ON_DISK);
        assert_eq!(&vector.to_bytes()[..], [&ON_DISK[..21], &[0; 4]].concat());
    }

    #[test]
    fn a_flipped_bit_is_found() {
        for at in 0..ON_DISK.len() {
            let mut bytes = ON_DISK.to_vec();
            bytes[at] ^= 1;
            assert!(BitVector::from_disk(bytes.into()).is_err(), "byte {at}");
        }
    }

    /// What is done byte by byte is what would be done entry by entry.
    #[test]
    fn ranges_change_as_their_entries_would() {
        let state = |nth: u64| u8::try_from(nth * nth % 7 % 4).expect("small");
        for count in [0_u64, 1, 3, 4, 5, 8, 13, 40] {
            let mut map = BitVector::new();
            map.resize(count, 0);
            (0..count).for_each(|index| map.set_state(index, state(index)));
            for start in 0..=count {
                for end in start..=count {
                    let (mut changed, mut expected) = (map.clone(), map.clone());
                    let turn = |state: u8| if state == EXISTS { EXISTS_CLEAN } else { state };
                    (start..end).for_each(|index| expected.set_state(index, turn(map.state(index))));
                    assert_eq!(changed.change(start, end, turn), map != expected);
                    assert_eq!(changed, expected, "{start} to {end} of {count}");
                }
                let same = (start..count).all(|index| map.state(index) == map.state(start));
                assert_eq!(
                    start == count || map.all_from(start, map.state(start)),
                    same,
                    "from {start} of {count}"
                );
                let mut longer = map.clone();
                longer.resize(count + start, 0xfe); // of which two bits are kept
                assert!((0..count).all(|index| longer.state(index) == map.state(index)));
                assert!(longer.all_from(count, 2) && (start < 4 || !longer.all_from(count, 0xfe)));

                let (mut other, mut uncleaned) = (BitVector::new(), map.clone());
                other.resize(start, 0);
                (0..start).for_each(|index| other.set_state(index, state(index + 1)));
                uncleaned.unclean(&other);
                for index in 0..count {
                    let exists = index >= start || other.state(index) == EXISTS;
                    let becomes = exists && map.state(index) == EXISTS_CLEAN;
                    let want = if becomes { EXISTS } else { map.state(index) };
                    assert_eq!(uncleaned.state(index), want, "{index} of {count}, the other has {start}");
                }
            }
        }
    }

    #[test]
    fn resizing_fills_and_leaves_no_bits_behind() {
        let mut vector = BitVector::new();
        vector.resize(3, EXISTS);
        vector.resize(2, 0);
        vector.resize(5, 0);
        assert_eq!((0..5).map(|index| vector.state(index)).collect::<Vec<_>>(), [1, 1, 0, 0, 0]);
    }
}
