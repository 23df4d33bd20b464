//! [`OsdForceRecovery`]: the manager wants PGs recovered or backfilled before others, or in turn again.
//!
//! Source: Ceph `MOSDForceRecovery.h`, v16.2.15; type 151, header version 2, compat 2.

use crate::body::body;
use nacre_types::{SpgId, Uuid};

/// Bits of [`OsdForceRecovery::options`].
pub mod force_option {
    /// Recovery by log.
    pub const RECOVERY: u8 = 1;
    /// The order is about backfill.
    pub const BACKFILL: u8 = 2;
    /// Takes the order back.
    pub const CANCEL: u8 = 4;
}

/// `MOSDForceRecovery`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct OsdForceRecovery {
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// PGs that it is about.
    pub pgs: Vec<SpgId>,
    /// See [`force_option`].
    pub options: u8,
}
body!(OsdForceRecovery = 151, 2 / 2; fsid, pgs, options);
