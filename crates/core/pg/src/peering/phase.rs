//! [`Phase`]: how far this copy is in its interval, and what a primary knows of the other copies.

use crate::log::Missing;
use crate::recovery::Backfill;
use nacre_msg::peer::PgInfo;
use nacre_types::{Epoch, Eversion, HObject, OsdId};
use std::collections::BTreeSet;

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
    /// Primary that cannot lead, for the log does not tell what it lacks: the monitor is to let others serve.
    WaitActingChange {
        /// Who can.
        wanted: Vec<OsdId>,
    },
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

/// How a copy is brought to the authoritative log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    /// It holds this entry; what is above suffices.
    From(Eversion),
    /// Its log overlaps but is divergent: it needs all entries to find the common point.
    Whole,
    /// Its log does not reach ours: compared object by object, from the first one on.
    Backfill,
}

/// What a primary knows of another copy.
#[derive(Debug)]
pub(crate) struct Peer {
    /// As it said itself.
    pub(crate) info: PgInfo,
    /// What it lacks, as far as it was compared; true once it is activated.
    pub(crate) missing: Missing,
    /// It is compared object by object. What it lacks behind `info.last_backfill` is known to this primary alone.
    pub(crate) backfill: Option<Backfill>,
    /// It has confirmed the authoritative log.
    pub(crate) activated: bool,
    /// It was told that it misses nothing any more.
    pub(crate) told_complete: bool,
}

impl Peer {
    /// A copy that said `info`.
    pub(crate) fn new(info: PgInfo) -> Self {
        Self { info, missing: Missing::default(), backfill: None, activated: false, told_complete: false }
    }

    /// Active, and nothing is missing.
    pub(crate) fn is_complete(&self) -> bool {
        self.activated && self.missing.is_empty() && self.is_compared()
    }

    /// It has `object` as the log demands, for all that is known.
    pub(crate) fn has(&self, object: &HObject) -> bool {
        self.missing.need(object).is_none() && self.knows(object)
    }

    /// It has `head` and its clones as the log demands, for all that is known.
    pub(crate) fn has_family(&self, head: &HObject) -> bool {
        !self.missing.has_family(head) && self.knows(head)
    }

    /// What it lacks of `object` is known.
    pub(crate) fn knows(&self, object: &HObject) -> bool {
        self.backfill.as_ref().is_none_or(|backfill| *object < backfill.compared)
    }

    /// It lacks `head` or a clone of it, and counts as having it: writes to the object wait until it does.
    pub(crate) fn needs_first(&self, head: &HObject) -> bool {
        self.activated && self.info.covers(head) && self.missing.has_family(head)
    }

    /// Of a write to `head` it gets the log entry alone, for the comparison has not come to the object, or what it found
    /// missing is not there yet. Ceph's `should_send_op`, turned round.
    pub(crate) fn deferred_by_backfill(&self, head: &HObject) -> bool {
        self.backfill.is_some() && !self.has_family(head)
    }

    /// Counts for `min_size`: it has the log, and what it misses the log can tell.
    pub(crate) fn counts(&self) -> bool {
        self.activated && self.backfill.is_none()
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
            Self::WaitActingChange { .. } => "Started/Primary/WaitActingChange",
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
            (Self::GetInfo { .. }, Self::WaitActingChange { .. }) => true,
            (Self::GetInfo { .. } | Self::GetLog { .. }, Self::WaitUpThru) => true,
            (Self::WaitUpThru, Self::Activating { .. }) => true,
            (Self::Activating { .. }, Self::Active { .. }) => true,
            _ => false,
        }
    }
}
