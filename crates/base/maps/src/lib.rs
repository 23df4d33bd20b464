//! The cluster maps: OSD map, its incrementals and placement; monitor, manager and file-system maps.
//!
//! Source of the formats: Ceph `src/osd/OSDMap.{h,cc}`, `src/osd/osd_types.{h,cc}`, `src/mon/MonMap.{h,cc}`,
//! `src/mon/MgrMap.h`, `src/mds/{FSMap,MDSMap}.{h,cc}` at v16.2.15. Golden bytes of a real cluster stand in
//! `testdata/maps/`; placement is compared with `osdmaptool` by `tests/placement_oracle.rs`. Layer: base;
//! uses buf, denc, types, crush, ec, and msg for the message that brings maps.
#![warn(clippy::indexing_slicing, clippy::cast_possible_truncation)]

mod code;
mod compression;
pub mod flags;
mod fresh;
mod fsmap;
mod incremental;
mod mgrmap;
mod monmap;
mod next_map;
mod osd_info;
mod osdmap;
mod placement;
mod pool;
mod pool_codec;
mod wire;

pub use fsmap::{Compat, FileSystem, FsMap, MdsInfo, MdsMap, Role, RoleError, fs_flag, mds_flag};
pub use incremental::Incremental;
pub use mgrmap::{MgrMap, StandbyMgr};
pub use monmap::{MON_FEATURES, MonInfo, MonMap, STRATEGY_CLASSIC, STRATEGY_DISALLOW};
pub use next_map::{MapError, NextMap, newer_maps};
pub use osd_info::{OsdInfo, XInfo};
pub use osdmap::{ApplyError, OsdMap};
pub use placement::{UpActing, full_hash, wants_to_lead};
pub use pool::{AutoscaleMode, PgMerge, Pool, PoolKind, PoolOption, PoolSnap};

/// OSDs that a map may describe; bounds `max_osd` of a peer.
pub const OSDS_MAX: usize = 1 << 16;
/// PGs of one pool; Ceph's `mon_max_pool_pg_num`.
pub const POOL_PGS_MAX: u32 = 65_536;
/// Copies or shards of one PG that a pool may ask for.
pub const POOL_SIZE_MAX: u8 = 255;
/// `require_osd_release`, `min_mon_release`: Pacific.
pub const RELEASE_PACIFIC: u8 = 16;
/// `require_min_compat_client`: Luminous.
pub const RELEASE_LUMINOUS: u8 = 12;
/// Weight 1.0 (fully "in"), affinity 1.0: 16.16 fixed point.
pub const WEIGHT_ONE: u32 = 0x1_0000;

/// CRUSH weight of so many bytes, as Ceph weighs devices: 1.0 is a TiB.
#[must_use]
pub fn weight_of(bytes: u64) -> u32 {
    u32::try_from(bytes >> 24).unwrap_or(u32::MAX).max(1)
}

/// No OSD: primary of an empty set.
pub const OSD_NONE: nacre_types::OsdId = -1;

/// Name of a Ceph release by its number.
#[must_use]
pub fn release_name(release: u8) -> &'static str {
    const NAMES: [&str; 17] = [
        "unknown",
        "argonaut",
        "bobtail",
        "cuttlefish",
        "dumpling",
        "emperor",
        "firefly",
        "giant",
        "hammer",
        "infernalis",
        "jewel",
        "kraken",
        "luminous",
        "mimic",
        "nautilus",
        "octopus",
        "pacific",
    ];
    NAMES.get(usize::from(release)).copied().unwrap_or("unknown")
}
