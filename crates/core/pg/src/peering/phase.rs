//! [`Phase`]: how far this copy is in its interval, and what a primary knows of the other copies.

use crate::log::Missing;
use nacre_msg::peer::PgInfo;
use nacre_types::{Epoch, Eversion, HObject, OsdId};
use std::collections::{BTreeMap, BTreeSet};

/// How far this copy is in its interval.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Not primary; the primary has not called for this copy (and may never).
    Stray,
    /// Not primary; takes writes.
    Replica,
    /// Primary: asks everybody who may know something.
    GetInfo {
        /// Who has not answered.
        waiting: BTreeSet<OsdId>,
    },
    /// Primary: fetches the authoritative log.
    GetLog {
        /// From whom.
        from: OsdId,
    },
    /// Primary: lists copies whose log does not reach the authoritative one.
    Scanning(Scanning),
    /// Primary: ready but for the monitor's word that it lives in this interval.
    WaitUpThru,
    /// Primary: everybody takes over the log.
    Activating {
        /// Becomes `last_epoch_started`.
        epoch: Epoch,
        /// Who has not got it durably, this OSD included.
        waiting: BTreeSet<OsdId>,
    },
    /// Primary: all members have the log.
    Active {
        /// Clients are served: enough copies are complete.
        serving: bool,
    },
    /// Primary: an earlier interval may hold writes that nobody who is up has.
    Down {
        /// Any of these would help.
        blocked_by: Vec<OsdId>,
    },
    /// Primary: no copy can be trusted to have all acknowledged writes.
    Incomplete,
}

/// Lists of whole copies, collected chunk by chunk.
#[derive(Debug, Default)]
pub(crate) struct Scanning {
    /// The copy whose objects count, when this one's do not.
    pub(crate) authority: Option<OsdId>,
    /// Who is being listed, and from where on.
    pub(crate) cursors: BTreeMap<OsdId, HObject>,
    /// What was listed so far.
    pub(crate) lists: BTreeMap<OsdId, BTreeMap<HObject, Eversion>>,
}

/// How a copy is brought to the authoritative log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    /// It holds this entry; what is above suffices.
    From(Eversion),
    /// Its log overlaps but is divergent: it needs all entries to find the common point.
    Whole,
    /// Its log does not reach ours: compared object by object.
    Rebuild,
}

/// What a primary knows of another copy.
#[derive(Debug)]
pub(crate) struct Peer {
    /// As it said itself.
    pub(crate) info: PgInfo,
    /// What it lacks; true once it is activated.
    pub(crate) missing: Missing,
    /// Its missing objects are known to this primary alone.
    pub(crate) rebuilding: bool,
    /// It has confirmed the authoritative log.
    pub(crate) activated: bool,
    /// It was told that it misses nothing any more.
    pub(crate) told_complete: bool,
}

impl Peer {
    /// A copy that said `info`.
    pub(crate) fn new(info: PgInfo) -> Self {
        Self { info, missing: Missing::default(), rebuilding: false, activated: false, told_complete: false }
    }

    /// Active, and nothing is missing.
    pub(crate) fn is_complete(&self) -> bool {
        self.activated && self.missing.is_empty()
    }

    /// Counts for `min_size`: it has the log, and what it misses the log can tell.
    pub(crate) fn counts(&self) -> bool {
        self.activated && !self.rebuilding
    }
}

impl Phase {
    /// Ceph's name of the state, as `pg query` shows it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Stray => "Started/Stray",
            Self::Replica => "Started/ReplicaActive",
            Self::GetInfo { .. } => "Started/Primary/Peering/GetInfo",
            Self::GetLog { .. } => "Started/Primary/Peering/GetLog",
            Self::Scanning(_) => "Started/Primary/Peering/GetMissing",
            Self::WaitUpThru => "Started/Primary/Peering/WaitUpThru",
            Self::Activating { .. } => "Started/Primary/Active/Activating",
            Self::Active { .. } => "Started/Primary/Active",
            Self::Down { .. } => "Started/Primary/Peering/Down",
            Self::Incomplete => "Started/Primary/Peering/Incomplete",
        }
    }

    /// True for a primary that serves clients.
    pub(crate) fn is_serving(&self) -> bool {
        matches!(self, Self::Active { serving: true })
    }

    /// True when `next` may follow within one interval; a new interval may follow anything.
    pub(crate) fn allows(&self, next: &Self) -> bool {
        match (self, next) {
            (Self::Stray, Self::Replica) | (Self::Replica, Self::Replica) => true,
            // A member or source that died, or a copy that became complete: peering begins anew.
            (Self::Stray | Self::Replica, _) => false,
            (_, Self::GetInfo { .. }) => true,
            (Self::GetInfo { .. }, Self::Down { .. } | Self::Incomplete | Self::GetLog { .. }) => true,
            (Self::GetInfo { .. } | Self::GetLog { .. }, Self::Scanning(_)) => true,
            (Self::GetInfo { .. } | Self::GetLog { .. } | Self::Scanning(_), Self::WaitUpThru) => true,
            (Self::WaitUpThru, Self::Activating { .. }) => true,
            (Self::Activating { .. }, Self::Active { .. }) => true,
            _ => false,
        }
    }
}
