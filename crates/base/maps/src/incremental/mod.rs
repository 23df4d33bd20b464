//! [`Incremental`]: what turns the OSD map of one epoch into the next.

mod codec;

use crate::{Pool, XInfo};
use nacre_buf::Bytes;
use nacre_types::{AddrVec, EntityAddr, Epoch, IntervalSet, OsdId, PgId, PoolId, UTime, Uuid};
use std::collections::{BTreeMap, BTreeSet};

/// A change of the OSD map. Ceph `OSDMap::Incremental`; written as envelope 8, client section 8, OSD section 9,
/// or 11 with ranges of blocklisted addresses.
///
/// [`Incremental::new`] is the empty change: fields that keep the old value by a marker hold that marker.
#[derive(Debug, Clone, PartialEq)]
pub struct Incremental {
    /// Id of the cluster.
    pub fsid: Uuid,
    /// Epoch of the map it makes: one more than the map it applies to.
    pub epoch: Epoch,
    /// When it was made.
    pub modified: UTime,
    /// New `pool_max`, or -1.
    pub new_pool_max: i64,
    /// New flags, or -1.
    pub new_flags: i32,
    /// A complete encoded map that replaces everything, or empty.
    pub fullmap: Bytes,
    /// A new encoded CRUSH map, or empty.
    pub crush: Bytes,
    /// New `max_osd`, or -1.
    pub new_max_osd: i32,
    /// Pools made or changed.
    pub new_pools: BTreeMap<PoolId, Pool>,
    /// Names of pools that are new or renamed.
    pub new_pool_names: BTreeMap<PoolId, String>,
    /// Ids of pools that are deleted.
    pub old_pools: BTreeSet<PoolId>,
    /// OSDs that came up, with their client addresses.
    pub new_up_client: BTreeMap<OsdId, AddrVec>,
    /// State bits to flip; 0 means [`crate::flags::osd::UP`].
    pub new_state: BTreeMap<OsdId, u32>,
    /// Weights of OSDs, in 1/65536 of full.
    pub new_weight: BTreeMap<OsdId, u32>,
    /// New acting sets; empty removes.
    pub new_pg_temp: BTreeMap<PgId, Vec<OsdId>>,
    /// New primaries; -1 removes.
    pub new_primary_temp: BTreeMap<PgId, OsdId>,
    /// New primary affinities.
    pub new_primary_affinity: BTreeMap<OsdId, u32>,
    /// Erasure-code profiles set.
    pub new_erasure_code_profiles: BTreeMap<String, BTreeMap<String, String>>,
    /// Erasure-code profiles deleted.
    pub old_erasure_code_profiles: Vec<String>,
    /// Whole-set exceptions set.
    pub new_pg_upmap: BTreeMap<PgId, Vec<OsdId>>,
    /// Whole-set exceptions deleted.
    pub old_pg_upmap: BTreeSet<PgId>,
    /// Item exceptions set.
    pub new_pg_upmap_items: BTreeMap<PgId, Vec<(OsdId, OsdId)>>,
    /// Item exceptions deleted.
    pub old_pg_upmap_items: BTreeSet<PgId>,
    /// Ids of snapshots removed in this epoch, by pool.
    pub new_removed_snaps: BTreeMap<PoolId, IntervalSet>,
    /// Snapshots fully trimmed.
    pub new_purged_snaps: BTreeMap<PoolId, IntervalSet>,
    /// New `last_up_change`, or zero.
    pub new_last_up_change: UTime,
    /// New `last_in_change`, or zero.
    pub new_last_in_change: UTime,
    /// Heartbeat addresses (cluster network) of OSDs that came up.
    pub new_hb_back_up: BTreeMap<OsdId, AddrVec>,
    /// New values of `OsdInfo::up_thru`, by OSD.
    pub new_up_thru: BTreeMap<OsdId, Epoch>,
    /// New last clean interval: (begin, end).
    pub new_last_clean_interval: BTreeMap<OsdId, (Epoch, Epoch)>,
    /// New values of `OsdInfo::lost_at`, by OSD.
    pub new_lost: BTreeMap<OsdId, Epoch>,
    /// Clients shut out.
    pub new_blocklist: BTreeMap<EntityAddr, UTime>,
    /// Clients let in again.
    pub old_blocklist: Vec<EntityAddr>,
    /// Ranges of addresses shut out.
    pub new_range_blocklist: BTreeMap<EntityAddr, UTime>,
    /// Ranges of addresses let in again.
    pub old_range_blocklist: Vec<EntityAddr>,
    /// Cluster addresses of OSDs that came up.
    pub new_up_cluster: BTreeMap<OsdId, AddrVec>,
    /// New store identities.
    pub new_uuid: BTreeMap<OsdId, Uuid>,
    /// New [`XInfo`]s, by OSD.
    pub new_xinfo: BTreeMap<OsdId, XInfo>,
    /// Heartbeat addresses (public network) of OSDs that came up.
    pub new_hb_front_up: BTreeMap<OsdId, AddrVec>,
    /// Feature bits that the full map's encoding assumes.
    pub encode_features: u64,
    /// New ratio, or negative.
    pub new_nearfull_ratio: f32,
    /// New ratio, or negative.
    pub new_full_ratio: f32,
    /// New ratio, or negative.
    pub new_backfillfull_ratio: f32,
    /// New oldest client release, or 255.
    pub new_require_min_compat_client: u8,
    /// New oldest OSD release, or 255.
    pub new_require_osd_release: u8,
    /// CRUSH node flags; 0 removes.
    pub new_crush_node_flags: BTreeMap<i32, u32>,
    /// Device class flags; 0 removes.
    pub new_device_class_flags: BTreeMap<i32, u32>,
    /// `crc` of the full map that results; the maker sets it from that map's encoding.
    pub full_crc: u32,
}

impl Incremental {
    /// The change to `epoch` that changes nothing.
    #[must_use]
    pub fn new(fsid: Uuid, epoch: Epoch) -> Self {
        Self {
            fsid,
            epoch,
            modified: UTime::ZERO,
            new_pool_max: -1,
            new_flags: -1,
            fullmap: Bytes::new(),
            crush: Bytes::new(),
            new_max_osd: -1,
            new_pools: BTreeMap::new(),
            new_pool_names: BTreeMap::new(),
            old_pools: BTreeSet::new(),
            new_up_client: BTreeMap::new(),
            new_state: BTreeMap::new(),
            new_weight: BTreeMap::new(),
            new_pg_temp: BTreeMap::new(),
            new_primary_temp: BTreeMap::new(),
            new_primary_affinity: BTreeMap::new(),
            new_erasure_code_profiles: BTreeMap::new(),
            old_erasure_code_profiles: Vec::new(),
            new_pg_upmap: BTreeMap::new(),
            old_pg_upmap: BTreeSet::new(),
            new_pg_upmap_items: BTreeMap::new(),
            old_pg_upmap_items: BTreeSet::new(),
            new_removed_snaps: BTreeMap::new(),
            new_purged_snaps: BTreeMap::new(),
            new_last_up_change: UTime::ZERO,
            new_last_in_change: UTime::ZERO,
            new_hb_back_up: BTreeMap::new(),
            new_up_thru: BTreeMap::new(),
            new_last_clean_interval: BTreeMap::new(),
            new_lost: BTreeMap::new(),
            new_blocklist: BTreeMap::new(),
            old_blocklist: Vec::new(),
            new_range_blocklist: BTreeMap::new(),
            old_range_blocklist: Vec::new(),
            new_up_cluster: BTreeMap::new(),
            new_uuid: BTreeMap::new(),
            new_xinfo: BTreeMap::new(),
            new_hb_front_up: BTreeMap::new(),
            encode_features: nacre_types::features::SUPPORTED,
            new_nearfull_ratio: -1.0,
            new_full_ratio: -1.0,
            new_backfillfull_ratio: -1.0,
            new_require_min_compat_client: 255,
            new_require_osd_release: 255,
            new_crush_node_flags: BTreeMap::new(),
            new_device_class_flags: BTreeMap::new(),
            full_crc: 0,
        }
    }
}
