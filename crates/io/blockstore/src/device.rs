//! Places on the device: a [`Run`] of blocks, and a [`DeviceBlock`] with its checksum; and how the number of a block is stored.
//!
//! A block's number has 48 bits in records and 64 in memory. Most records have it as 32 bits and 16 more; those of stores whose device is
//! shorter than that needs say so by 16 zeros, or do not have them: see [`Numbers`].

use nacre_denc::{DecodeError, Reader, Writer};

/// Blocks of a device at most: 64 PiB. The format has room for 16 times as many; segments of the free bitmap are numbered by 32 bits.
pub(crate) const DEVICE_BLOCKS_MAX: u64 = 1 << 44;
/// Blocks that stores of the older formats may have: their numbers, and the one behind the last, have 32 bits.
pub(crate) const NARROW_BLOCKS_MAX: u64 = u32::MAX as u64;

/// A run of device blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) count: u64,
}

impl Run {
    pub(crate) fn end(self) -> u64 {
        self.start + self.count
    }

    /// The blocks in order.
    pub(crate) fn blocks(self) -> std::ops::Range<u64> {
        self.start..self.end()
    }
}

/// A block on the device and the CRC-32C of its content. Packed: each mapped block of an object that is in memory has one, and with four
/// bytes more for the number the slot around it is as large as with a number of 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, packed(4))]
pub(crate) struct DeviceBlock {
    pub(crate) block: u64,
    pub(crate) crc: u32,
}

/// How a store's log has numbers of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Numbers {
    /// 32 bits, as all programs know them.
    Narrow,
    /// 48 bits, of a device that needs them.
    Wide,
}

impl Numbers {
    /// Those of a store with so many blocks.
    pub(crate) const fn of(blocks: u64) -> Self {
        if blocks > NARROW_BLOCKS_MAX { Self::Wide } else { Self::Narrow }
    }

    /// Bytes of a number.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Narrow => 4,
            Self::Wide => 6,
        }
    }

    /// # Panics
    /// When the number has more bits. There is no device with so many blocks in a store of this kind.
    pub(crate) fn write(self, w: &mut Writer, block: u64) {
        match self {
            Self::Narrow => w.u32(u32::try_from(block).expect("the device has fewer than 2^32 blocks")),
            Self::Wide => {
                w.u32((block & u64::from(u32::MAX)) as u32);
                w.u16(u16::try_from(block >> 32).expect("the device has fewer than 2^48 blocks"));
            }
        }
    }

    pub(crate) fn read(self, r: &mut Reader) -> Result<u64, DecodeError> {
        let low = u64::from(r.u32()?);
        Ok(match self {
            Self::Narrow => low,
            Self::Wide => low | u64::from(r.u16()?) << 32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_wide_as_the_device_needs() {
        assert_eq!((Numbers::of((1 << 32) - 1), Numbers::of(1 << 32)), (Numbers::Narrow, Numbers::Wide));
        for (numbers, block, bytes) in [
            (Numbers::Narrow, 0x8765_4321_u64, vec![0x21, 0x43, 0x65, 0x87]),
            (Numbers::Wide, 0x8765_4321, vec![0x21, 0x43, 0x65, 0x87, 0, 0]),
            (Numbers::Wide, 0xfedc_8765_4321, vec![0x21, 0x43, 0x65, 0x87, 0xdc, 0xfe]),
        ] {
            let mut w = Writer::new();
            numbers.write(&mut w, block);
            let written = w.finish();
            assert_eq!((written.to_vec(), numbers.bytes()), (bytes.clone(), bytes.len()));
            assert_eq!(numbers.read(&mut Reader::new(written.clone())), Ok(block));
            assert!(numbers.read(&mut Reader::new(written.slice(..bytes.len() - 1))).is_err());
        }
    }

    /// Each block of an object whose page is in memory takes one: it must not become larger unseen.
    #[test]
    fn a_mapped_block_takes_sixteen_bytes_of_memory() {
        assert_eq!((size_of::<DeviceBlock>(), size_of::<Option<crate::slot::Slot>>()), (12, 16));
    }
}
