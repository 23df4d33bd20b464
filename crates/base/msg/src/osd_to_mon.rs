//! Small messages from OSDs to the monitor: failures, `up_thru`, `pg_temp`, beacons, how full they are, leave.
//!
//! Source: Ceph `MOSDFailure.h`, `MOSDAlive.h`, `MOSDMarkMeDown.h`, `MOSDPGTemp.h`, `MOSDBeacon.h`,
//! `MOSDPGCreated.h`, `MOSDFull.h`, `MOSDMarkMeDead.h`, v16.2.15.

use crate::body::body;
use nacre_types::{AddrVec, Epoch, OsdId, PgId, UTime, Uuid};
use std::collections::BTreeMap;

/// Bits of [`OsdFailure::flags`].
pub mod failure_flag {
    /// Without it the peer is alive again.
    pub const FAILED: u8 = 1;
    /// The peer refuses connections: its process is gone, no need to wait.
    pub const IMMEDIATE: u8 = 2;
}

/// `MOSDFailure`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OsdFailure {
    /// Epoch of the sender's map.
    pub version: u64,
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// The OSD that it is about.
    pub target: OsdId,
    /// Which instance of it.
    pub target_addrs: AddrVec,
    /// Epoch of the sender's map.
    pub epoch: Epoch,
    /// See [`failure_flag`].
    pub flags: u8,
    /// Seconds since it last answered.
    pub failed_for_s: i32,
}
body!(OsdFailure = 72, 4 / 4; @version; fsid, target, target_addrs, epoch, flags, failed_for_s);

/// `MOSDAlive`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OsdAlive {
    /// Epoch of the sender's map.
    pub version: u64,
    /// Epoch that `up_thru` must reach.
    pub want: Epoch,
}
body!(OsdAlive = 73, 1 / 1; @version; want);

/// `MOSDMarkMeDown`; echoed by the monitor when an answer is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MarkMeDown {
    /// Epoch of the sender's map.
    pub version: u64,
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// The OSD that goes down.
    pub osd: OsdId,
    /// Which instance of it.
    pub addrs: AddrVec,
    /// Epoch of the sender's map.
    pub epoch: Epoch,
    /// Asks for an answer.
    pub request_ack: bool,
    /// Also mark it dead: others need not wait for its last words.
    pub down_and_dead: bool,
}
body!(MarkMeDown = 74, 4 / 3; @version; fsid, osd, addrs, epoch, request_ack, down_and_dead);

/// `MOSDMarkMeDead`, from an OSD that finds itself down in the map: it serves nobody any more.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MarkMeDead {
    /// Epoch of the sender's map.
    pub version: u64,
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// The OSD that is dead.
    pub osd: OsdId,
    /// Epoch of the sender's map, in which it is down.
    pub epoch: Epoch,
}
body!(MarkMeDead = 123, 1 / 1; @version; fsid, osd, epoch);

/// `MOSDFull`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OsdFull {
    /// Epoch of the sender's map.
    pub version: u64,
    /// Epoch of the sender's map.
    pub map_epoch: Epoch,
    /// The bits of the OSD's state in the map that say how full it is, as they are to be; 0 clears them all.
    pub state: u32,
}
body!(OsdFull = 75, 1 / 1; @version; map_epoch, state);

/// `MOSDPGTemp`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OsdPgTemp {
    /// Epoch of the sender's map.
    pub version: u64,
    /// Epoch of the sender's map.
    pub map_epoch: Epoch,
    /// Acting set to use for now; empty to go back to the up set.
    pub pg_temp: BTreeMap<PgId, Vec<OsdId>>,
    /// Take it though the sets equal what the map already says.
    pub forced: bool,
}
body!(OsdPgTemp = 78, 2 / 1; @version; map_epoch, pg_temp, forced);

/// `MOSDBeacon`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OsdBeacon {
    /// Epoch of the sender's map.
    pub version: u64,
    /// PGs whose `last_epoch_clean` bounds the maps that the cluster must keep.
    pub pgs: Vec<PgId>,
    /// Least of those.
    pub min_last_epoch_clean: Epoch,
    /// When it last checked for leftovers of purged snapshots.
    pub last_purged_snaps_scrub: UTime,
    /// Seconds between beacons.
    pub interval_s: u32,
}
body!(OsdBeacon = 79, 3 / 1; @version; pgs, min_last_epoch_clean, last_purged_snaps_scrub, interval_s);

/// `MOSDPGCreated`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OsdPgCreated {
    /// Version that the sender knows.
    pub version: u64,
    /// PG that was created.
    pub pg: PgId,
}
body!(OsdPgCreated = 116, 1 / 1; @version; pg);
