//! [`OsdScrub2`]: the manager orders an OSD to compare the copies of PGs that it leads.
//!
//! Source: Ceph `MOSDScrub2.h`, v16.2.15; type 121, header version 1, compat 1.

use crate::body::body;
use nacre_types::{Epoch, SpgId, Uuid};

/// `MOSDScrub2`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OsdScrub2 {
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// Epoch of the map that the sender looked at.
    pub epoch: Epoch,
    /// PGs that are to be scrubbed.
    pub pgs: Vec<SpgId>,
    /// Repair what differs.
    pub repair: bool,
    /// Compare data as well.
    pub deep: bool,
}
body!(OsdScrub2 = 121, 1 / 1; fsid, epoch, pgs, repair, deep);
