//! [`ObjStatSum`]: counters over the objects of a PG or a pool. Ceph `object_stat_sum_t`.
//!
//! Source: Ceph `object_stat_sum_t`, `object_stat_collection_t` in `src/osd/osd_types.h`, v16.2.15.

use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use std::ops::{AddAssign, SubAssign};

macro_rules! sums {
    ($(#[doc = $doc:literal] $field:ident: $type:ty,)*) => {
        /// Sums over the objects of a PG or pool. Ceph `object_stat_sum_t`, version 20, compat 14.
        #[derive(Clone, Debug, PartialEq, Eq, Default)]
        pub struct ObjStatSum {
            $(#[doc = $doc] pub $field: $type,)*
        }

        impl Encode for ObjStatSum {
            fn encode(&self, w: &mut Writer) {
                w.envelope(20, 14, |w| { $(w.put(&self.$field);)* });
            }
        }

        impl ObjStatSum {
            fn decode_fields(r: &mut Reader) -> Result<Self, DecodeError> {
                Ok(Self { $($field: r.get()?,)* })
            }
        }

        /// Wraps: a sum that overflows is a peer's nonsense, not our crash.
        impl ObjStatSum {
            /// Makes each sum one that can be: not less than nothing, and no more than `most`.
            pub fn bound(&mut self, most: i64) {
                $(self.$field = self.$field.clamp(0, <$type>::try_from(most).unwrap_or(<$type>::MAX));)*
            }
        }

        impl AddAssign<&Self> for ObjStatSum {
            fn add_assign(&mut self, other: &Self) {
                $(self.$field = self.$field.wrapping_add(other.$field);)*
            }
        }

        impl SubAssign<&Self> for ObjStatSum {
            fn sub_assign(&mut self, other: &Self) {
                $(self.$field = self.$field.wrapping_sub(other.$field);)*
            }
        }
    };
}

sums! {
    #[doc = "Bytes of data."] num_bytes: i64,
    #[doc = "Objects, clones included."] num_objects: i64,
    #[doc = "Clones."] num_object_clones: i64,
    #[doc = "Objects times copies wanted."] num_object_copies: i64,
    #[doc = "Objects that the primary lacks."] num_objects_missing_on_primary: i64,
    #[doc = "Copies that are missing."] num_objects_degraded: i64,
    #[doc = "Objects that nobody seems to have."] num_objects_unfound: i64,
    #[doc = "Reads."] num_rd: i64,
    #[doc = "KiB read."] num_rd_kb: i64,
    #[doc = "Writes."] num_wr: i64,
    #[doc = "KiB written."] num_wr_kb: i64,
    #[doc = "Errors found by scrubbing."] num_scrub_errors: i64,
    #[doc = "Objects recovered."] num_objects_recovered: i64,
    #[doc = "Bytes recovered."] num_bytes_recovered: i64,
    #[doc = "Omap keys recovered."] num_keys_recovered: i64,
    #[doc = "Errors found by shallow scrubbing."] num_shallow_scrub_errors: i64,
    #[doc = "Errors found by deep scrubbing."] num_deep_scrub_errors: i64,
    #[doc = "Dirty objects of a cache tier (all, elsewhere)."] num_objects_dirty: i64,
    #[doc = "Whiteouts."] num_whiteouts: i64,
    #[doc = "Objects with omap."] num_objects_omap: i64,
    #[doc = "Hit set objects."] num_objects_hit_set_archive: i64,
    #[doc = "Copies in the wrong place."] num_objects_misplaced: i64,
    #[doc = "Bytes of hit sets."] num_bytes_hit_set_archive: i64,
    #[doc = "Cache tier: flushes."] num_flush: i64,
    #[doc = "Cache tier: KiB flushed."] num_flush_kb: i64,
    #[doc = "Cache tier: evictions."] num_evict: i64,
    #[doc = "Cache tier: KiB evicted."] num_evict_kb: i64,
    #[doc = "Cache tier: promotions."] num_promote: i64,
    #[doc = "Cache tier: PGs flushing at high speed."] num_flush_mode_high: i32,
    #[doc = "Cache tier: PGs flushing at low speed."] num_flush_mode_low: i32,
    #[doc = "Cache tier: PGs evicting some."] num_evict_mode_some: i32,
    #[doc = "Cache tier: PGs evicting all."] num_evict_mode_full: i32,
    #[doc = "Pinned objects."] num_objects_pinned: i64,
    #[doc = "Objects missing anywhere."] num_objects_missing: i64,
    #[doc = "Snap sets of an old format."] num_legacy_snapsets: i64,
    #[doc = "Objects with too much omap."] num_large_omap_objects: i64,
    #[doc = "Manifest objects."] num_objects_manifest: i64,
    #[doc = "Bytes of omap."] num_omap_bytes: i64,
    #[doc = "Keys of omap."] num_omap_keys: i64,
    #[doc = "Objects repaired."] num_objects_repaired: i64,
}

impl Decode for ObjStatSum {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("object_stat_sum_t", 20, |version, r| match version {
            0..20 => Err(DecodeError::Invalid { what: "object_stat_sum_t version", value: version.into() }),
            _ => Self::decode_fields(r),
        })
    }
}

/// Sums, and sums by category that nobody uses. Ceph `object_stat_collection_t`, version 2, compat 2.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ObjStatColl {
    /// Sums over all objects.
    pub sum: ObjStatSum,
}

impl Encode for ObjStatColl {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            w.put(&self.sum);
            w.u32(0); // sums by category
        });
    }
}

impl Decode for ObjStatColl {
    const MIN_BYTES: usize = 12;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("object_stat_collection_t", 2, |_, r| Ok(Self { sum: r.get()? }))
    }
}
