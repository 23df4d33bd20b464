//! [`Slot`]: where one block of an object is, on the device or in memory.

use crate::device::DeviceBlock;
use crate::dirty::Dirty;
use std::sync::Arc;

/// Where one 4 KiB block of an object is.
#[derive(Clone, Debug)]
pub(crate) enum Slot {
    /// The block on the device that has the data.
    Device(DeviceBlock),
    /// In memory, until a checkpoint writes it home.
    Memory(Arc<Dirty>),
}

impl Slot {
    /// The device block that this slot has a reference to.
    pub(crate) fn device(&self) -> Option<DeviceBlock> {
        match self {
            Self::Device(device) => Some(*device),
            Self::Memory(dirty) => dirty.base(),
        }
    }
}
