//! [`OsdMap`]: pools, OSDs, CRUSH and the exceptions from it, at one epoch.

mod apply;
mod codec;
mod query;

pub use apply::ApplyError;

use crate::{OsdInfo, Pool, XInfo};
use nacre_crush::CrushMap;
use nacre_types::{AddrVec, EntityAddr, Epoch, IntervalSet, OsdId, PgId, PoolId, UTime, Uuid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The OSD map. Ceph `OSDMap`; written as envelope 8 with client section 9 and OSD section 9, or 11 with ranges of
/// blocklisted addresses.
///
/// All vectors over OSDs have [`OsdMap::max_osd`] elements, except `osd_primary_affinity`, which may be empty.
#[derive(Debug, Clone, PartialEq)]
pub struct OsdMap {
    /// Id of the cluster.
    pub fsid: Uuid,
    /// Version of this map.
    pub epoch: Epoch,
    /// When the cluster was made.
    pub created: UTime,
    /// When this version was made.
    pub modified: UTime,
    /// Pools by id.
    pub pools: BTreeMap<PoolId, Pool>,
    /// Pool names by id.
    pub pool_names: BTreeMap<PoolId, String>,
    /// Largest pool id ever used; -1 before the first.
    pub pool_max: i32,
    /// [`crate::flags::osdmap`] bits.
    pub flags: u32,
    /// [`crate::flags::osd`] bits.
    pub osd_state: Vec<u32>,
    /// 0 = out, 0x10000 = in, between = partly (`reweight`).
    pub osd_weight: Vec<u32>,
    /// Addresses for clients.
    pub client_addrs: Vec<AddrVec>,
    /// Acting sets that differ from up for the time of recovery.
    pub pg_temp: BTreeMap<PgId, Vec<OsdId>>,
    /// Primaries that differ.
    pub primary_temp: BTreeMap<PgId, OsdId>,
    /// Probability of being primary, 16.16; empty when all are 1.0.
    pub osd_primary_affinity: Vec<u32>,
    /// The hierarchy and its rules.
    pub crush: Arc<CrushMap>,
    /// Erasure-code profiles by name.
    pub erasure_code_profiles: BTreeMap<String, BTreeMap<String, String>>,
    /// Whole-set exceptions from CRUSH.
    pub pg_upmap: BTreeMap<PgId, Vec<OsdId>>,
    /// Item exceptions from CRUSH: (from, to).
    pub pg_upmap_items: BTreeMap<PgId, Vec<(OsdId, OsdId)>>,
    /// Number of CRUSH changes.
    pub crush_version: i32,
    /// Snapshots removed in this epoch.
    pub new_removed_snaps: BTreeMap<PoolId, IntervalSet>,
    /// Snapshots fully trimmed as of this epoch.
    pub new_purged_snaps: BTreeMap<PoolId, IntervalSet>,
    /// When an OSD last went up or down.
    pub last_up_change: UTime,
    /// When an OSD last went in or out.
    pub last_in_change: UTime,
    /// Heartbeat addresses, cluster network.
    pub hb_back_addrs: Vec<AddrVec>,
    /// Epochs of each OSD's life.
    pub osd_info: Vec<OsdInfo>,
    /// Clients shut out, and until when.
    pub blocklist: BTreeMap<EntityAddr, UTime>,
    /// Ranges of addresses shut out ([`nacre_types::AddrKind::Cidr`]), and until when.
    pub range_blocklist: BTreeMap<EntityAddr, UTime>,
    /// Addresses for other OSDs.
    pub cluster_addrs: Vec<AddrVec>,
    /// Identity of each OSD's store.
    pub osd_uuid: Vec<Uuid>,
    /// More of each OSD's life.
    pub osd_xinfo: Vec<XInfo>,
    /// Heartbeat addresses, public network.
    pub hb_front_addrs: Vec<AddrVec>,
    /// Fraction from which an OSD is near full.
    pub nearfull_ratio: f32,
    /// Fraction from which an OSD is full.
    pub full_ratio: f32,
    /// Fraction from which an OSD takes no backfill.
    pub backfillfull_ratio: f32,
    /// Oldest client release allowed.
    pub require_min_compat_client: u8,
    /// Oldest OSD release allowed.
    pub require_osd_release: u8,
    /// Snapshots removed and not yet trimmed.
    pub removed_snaps_queue: BTreeMap<PoolId, IntervalSet>,
    /// [`crate::flags::osd`] bits (noup and so on) of CRUSH nodes.
    pub crush_node_flags: BTreeMap<i32, u32>,
    /// The same of device classes.
    pub device_class_flags: BTreeMap<i32, u32>,
}

impl Default for OsdMap {
    /// No cluster yet: epoch 0, nothing in it.
    fn default() -> Self {
        Self {
            fsid: Uuid::NIL,
            epoch: 0,
            created: UTime::ZERO,
            modified: UTime::ZERO,
            pools: BTreeMap::new(),
            pool_names: BTreeMap::new(),
            pool_max: -1,
            flags: 0,
            osd_state: Vec::new(),
            osd_weight: Vec::new(),
            client_addrs: Vec::new(),
            pg_temp: BTreeMap::new(),
            primary_temp: BTreeMap::new(),
            osd_primary_affinity: Vec::new(),
            crush: Arc::default(),
            erasure_code_profiles: BTreeMap::new(),
            pg_upmap: BTreeMap::new(),
            pg_upmap_items: BTreeMap::new(),
            crush_version: 1,
            new_removed_snaps: BTreeMap::new(),
            new_purged_snaps: BTreeMap::new(),
            last_up_change: UTime::ZERO,
            last_in_change: UTime::ZERO,
            hb_back_addrs: Vec::new(),
            osd_info: Vec::new(),
            blocklist: BTreeMap::new(),
            range_blocklist: BTreeMap::new(),
            cluster_addrs: Vec::new(),
            osd_uuid: Vec::new(),
            osd_xinfo: Vec::new(),
            hb_front_addrs: Vec::new(),
            nearfull_ratio: 0.0,
            full_ratio: 0.0,
            backfillfull_ratio: 0.0,
            require_min_compat_client: 0,
            require_osd_release: 0,
            removed_snaps_queue: BTreeMap::new(),
            crush_node_flags: BTreeMap::new(),
            device_class_flags: BTreeMap::new(),
        }
    }
}

impl OsdMap {
    /// Number of OSD slots; ids are below it.
    #[must_use]
    pub fn max_osd(&self) -> usize {
        self.osd_state.len()
    }
}
