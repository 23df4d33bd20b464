//! [`BitVector`]: two bits per object of an image. Format: Ceph `src/common/bit_vector.hpp`, v16.2.15.
//!
//! ```text
//! blob { ENV(1,1) { u64 count } }   header
//! ceil(count / 4) bytes             entries, the first in the two highest bits of a byte
//! blob { footer }                   checksums on disk, empty in calls
//! ```

use crate::Fault;
use nacre_buf::Bytes;
use nacre_buf::crc::crc32c;
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
        self.packed.resize(bytes_for(count), 0);
        self.count = count;
        (old..count).for_each(|index| self.set_state(index, fill));
        // Bits behind the last entry are zero, whatever was there before.
        (count..bytes_for(count) as u64 * ENTRIES_PER_BYTE).for_each(|index| self.set_state(index, 0));
    }

    fn header(&self) -> Bytes {
        let mut w = Writer::new();
        w.envelope(1, 1, |w| w.u64(self.count));
        w.finish()
    }

    /// With the checksums that the object on disk carries.
    pub(super) fn to_disk(&self) -> Bytes {
        let header = self.header();
        let mut w = Writer::with_capacity(self.packed.len() + 64);
        w.blob(&header);
        w.raw(&self.packed);
        w.nested(|w| {
            w.u32(crc32c(0, &header));
            let blocks: Vec<u32> = self.packed.chunks(BLOCK_BYTES).map(|block| crc32c(0, block)).collect();
            w.put(&blocks);
        });
        w.finish()
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
        assert_eq!(&vector.to_disk()[..], ON_DISK);
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

    #[test]
    fn resizing_fills_and_leaves_no_bits_behind() {
        let mut vector = BitVector::new();
        vector.resize(3, EXISTS);
        vector.resize(2, 0);
        vector.resize(5, 0);
        assert_eq!((0..5).map(|index| vector.state(index)).collect::<Vec<_>>(), [1, 1, 0, 0, 0]);
    }
}
