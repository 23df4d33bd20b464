//! [`Phase`]: how far a copy is in its interval. The edges are drawn at the head of `peering`.

use nacre_types::{Epoch, OsdId};
use std::collections::BTreeSet;

/// How far this copy is in its interval.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Not primary; the primary has not called for this copy (and may never).
    Stray,
    /// Not primary; takes writes.
    Replica,
    /// Primary: asks all OSDs that may know something.
    GetInfo {
        /// OSDs that have not answered.
        waiting: BTreeSet<OsdId>,
    },
    /// Primary: fetches the authoritative log.
    GetLog {
        /// The OSD that has it.
        from: OsdId,
    },
    /// Primary that cannot lead, for the log does not tell what it lacks: the monitor is to let others serve.
    WaitActingChange {
        /// Those that can lead or serve.
        wanted: Vec<OsdId>,
    },
    /// Primary: ready but for the monitor's word that it lives in this interval.
    WaitUpThru,
    /// Primary: all members take over the log.
    Activating {
        /// Epoch that becomes `last_epoch_started`.
        epoch: Epoch,
        /// Enough copies are whole to serve clients.
        is_enough: bool,
        /// OSDs that have not got it durably, this one among them.
        waiting: BTreeSet<OsdId>,
    },
    /// Primary: all members have the log.
    Active {
        /// Clients are served: enough copies are complete.
        serving: bool,
    },
    /// Primary: an earlier interval may hold writes that no OSD that is up has.
    Down {
        /// Any of these would help.
        blocked_by: Vec<OsdId>,
    },
    /// Primary: no copy can be trusted to have all acknowledged writes.
    Incomplete,
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
