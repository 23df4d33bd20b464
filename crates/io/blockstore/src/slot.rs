//! [`Slot`]: where one block of an object is, on the device or in memory.

use crate::blob::{Blob, Place};
use crate::device::DeviceBlock;
use crate::dirty::Dirty;
use std::sync::Arc;

/// Where one 4 KiB block of an object is.
#[derive(Clone, Debug)]
pub(crate) enum Slot {
    /// The block on the device that has the data.
    Device(DeviceBlock),
    /// In a blob on the device; which of the blocks that it holds. Not in a struct, which would make all slots larger.
    Blob(Arc<Blob>, u8),
    /// In memory, until a checkpoint writes it home.
    Memory(Arc<Dirty>),
}

impl Slot {
    /// What on the device this slot refers to.
    pub(crate) fn place(&self) -> Option<Place> {
        match self {
            Self::Device(device) => Some(Place::Block(*device)),
            Self::Blob(blob, nth) => Some(Place::Blob(Arc::clone(blob), *nth)),
            Self::Memory(dirty) => dirty.base().cloned(),
        }
    }

    /// The device block that this slot has a reference to by itself.
    pub(crate) fn device(&self) -> Option<DeviceBlock> {
        match self {
            Self::Device(device) => Some(*device),
            Self::Blob(..) => None,
            Self::Memory(dirty) => dirty.base().and_then(Place::device),
        }
    }

    /// Where what it shows, or showed before what is in memory, lies by itself: a cache that has that will want what comes in its place.
    pub(crate) fn cached_at(&self) -> Option<u64> {
        match self {
            Self::Device(device) => Some(device.block),
            Self::Blob(..) => None,
            Self::Memory(dirty) => dirty.replaced(),
        }
    }

    /// The blob that it needs, which its page refers to.
    pub(crate) fn blob(&self) -> Option<&Arc<Blob>> {
        match self {
            Self::Device(_) => None,
            Self::Blob(blob, _) => Some(blob),
            Self::Memory(dirty) => match dirty.base() {
                Some(Place::Blob(blob, _)) => Some(blob),
                _ => None,
            },
        }
    }
}

impl From<Place> for Slot {
    fn from(place: Place) -> Self {
        match place {
            Place::Block(device) => Self::Device(device),
            Place::Blob(blob, nth) => Self::Blob(blob, nth),
        }
    }
}
