//! Places on the device: a [`Run`] of blocks, and a [`DeviceBlock`] with its checksum.

/// A run of device blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Run {
    pub(crate) start: u32,
    pub(crate) count: u32,
}

impl Run {
    pub(crate) fn end(self) -> u32 {
        self.start + self.count
    }

    /// The blocks in order.
    pub(crate) fn blocks(self) -> std::ops::Range<u32> {
        self.start..self.end()
    }
}

/// A block on the device and the CRC-32C of its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DeviceBlock {
    pub(crate) block: u32,
    pub(crate) crc: u32,
}
