//! [`OsdPgReadyToMerge`]: an OSD tells the monitor that a PG which is to be merged takes no writes any more.
//!
//! Source: Ceph `MOSDPGReadyToMerge.h`, v16.2.15; type 122, header version 1.

use crate::body::body;
use nacre_types::{Epoch, Eversion, PgId};

/// `MOSDPGReadyToMerge`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OsdPgReadyToMerge {
    /// Epoch of the sender's map.
    pub version: u64,
    /// The PG that ends.
    pub pg: PgId,
    /// Its newest change.
    pub source_version: Eversion,
    /// The newest change of the PG that takes it in.
    pub target_version: Eversion,
    /// `last_epoch_started` of the PG that is ready.
    pub last_epoch_started: Epoch,
    /// `last_epoch_clean` of the PG that is ready.
    pub last_epoch_clean: Epoch,
    /// False: they cannot be merged now, and are to go on as they are.
    pub ready: bool,
}
body!(OsdPgReadyToMerge = 122, 1 / 1; @version; pg, source_version, target_version, last_epoch_started, last_epoch_clean, ready);
