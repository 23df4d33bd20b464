//! Capacity of a store.
//!
//! Source: Ceph `store_statfs_t` in `src/osd/osd_types.h`, v16.2.15.

use crate::body::fields;
use std::ops::{AddAssign, SubAssign};

/// Bytes of a store, or of a pool within it. Ceph `store_statfs_t`, version 1, compat 1.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StoreStatfs {
    /// Bytes of the device.
    pub total: i64,
    /// Bytes that are free for data.
    pub available: i64,
    /// Set aside for the store itself.
    pub internally_reserved: i64,
    /// Allocated for data.
    pub allocated: i64,
    /// Of data, as users count.
    pub data_stored: i64,
    /// Of compressed data.
    pub data_compressed: i64,
    /// Allocated for compressed data.
    pub data_compressed_allocated: i64,
    /// Of that data before compression.
    pub data_compressed_original: i64,
    /// Allocated for omap.
    pub omap_allocated: i64,
    /// Of the store's own metadata.
    pub internal_metadata: i64,
}
fields!(StoreStatfs, "store_statfs_t", 1, 1;
    total, available, internally_reserved, allocated, data_stored, data_compressed,
    data_compressed_allocated, data_compressed_original, omap_allocated, internal_metadata);

impl StoreStatfs {
    /// Bytes not available, reserved ones included.
    #[must_use]
    pub fn used_raw(&self) -> i64 {
        self.total.wrapping_sub(self.available).wrapping_sub(self.internally_reserved)
    }

    /// Makes each number one that can be: not less than nothing, and no more than `most`.
    pub fn bound(&mut self, most: i64) {
        self.each(&Self::default(), |own, _| own.clamp(0, most.max(0)));
    }

    fn each(&mut self, other: &Self, apply: impl Fn(i64, i64) -> i64) {
        self.total = apply(self.total, other.total);
        self.available = apply(self.available, other.available);
        self.internally_reserved = apply(self.internally_reserved, other.internally_reserved);
        self.allocated = apply(self.allocated, other.allocated);
        self.data_stored = apply(self.data_stored, other.data_stored);
        self.data_compressed = apply(self.data_compressed, other.data_compressed);
        self.data_compressed_allocated =
            apply(self.data_compressed_allocated, other.data_compressed_allocated);
        self.data_compressed_original = apply(self.data_compressed_original, other.data_compressed_original);
        self.omap_allocated = apply(self.omap_allocated, other.omap_allocated);
        self.internal_metadata = apply(self.internal_metadata, other.internal_metadata);
    }
}

/// Wraps: a sum that overflows is a peer's nonsense, not our crash.
impl AddAssign<&Self> for StoreStatfs {
    fn add_assign(&mut self, other: &Self) {
        self.each(other, i64::wrapping_add);
    }
}

impl SubAssign<&Self> for StoreStatfs {
    fn sub_assign(&mut self, other: &Self) {
        self.each(other, i64::wrapping_sub);
    }
}
