//! The OSD map that a new cluster starts with. Ceph `OSDMap::build_simple` with the options of a 16.2 monitor.

use crate::{OsdMap, RELEASE_LUMINOUS, RELEASE_PACIFIC, flags};
use nacre_crush::CrushMap;
use nacre_ec::{PARITY_CEPH, PARITY_KEY, Profile};
use nacre_types::{UTime, Uuid};
use std::sync::Arc;

/// Epoch of the first map.
const FIRST_EPOCH: u32 = 1;

impl OsdMap {
    /// Epoch 1 of cluster `fsid`: no OSDs, no pools, a root `default` and the rule `replicated_rule` that spreads
    /// over `failure_domain` (`host`, or `osd` for a cluster on one machine).
    #[must_use]
    pub fn fresh(fsid: Uuid, now: UTime, failure_domain: &str) -> Self {
        Self {
            fsid,
            epoch: FIRST_EPOCH,
            created: now,
            modified: now,
            pool_max: 0,
            flags: flags::osdmap::FRESH,
            crush: Arc::new(CrushMap::fresh(failure_domain)),
            crush_version: 1,
            erasure_code_profiles: [("default".to_owned(), default_profile())].into(),
            nearfull_ratio: 0.85,
            full_ratio: 0.95,
            backfillfull_ratio: 0.90,
            require_min_compat_client: RELEASE_LUMINOUS,
            require_osd_release: RELEASE_PACIFIC,
            last_up_change: UTime::ZERO,
            last_in_change: UTime::ZERO,
            ..Self::default()
        }
    }
}

/// Ceph's `osd_pool_default_erasure_code_profile`, with the bytes of its plugin.
fn default_profile() -> Profile {
    [("k", "2"), ("m", "2"), ("plugin", "jerasure"), ("technique", "reed_sol_van"), (PARITY_KEY, PARITY_CEPH)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}
