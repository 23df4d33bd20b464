//! The recovery snapshot that the monitor hands us: what we ask for, and what is stored.

use super::{ControlCx, OsdControl};
use crate::control_event::ControlEvent;
use crate::recovery_snapshot::SnapshotIntake;
use nacre_msg::RecoverySnapshotPart;

impl OsdControl {
    /// Goes on behind the recovery snapshot that the store has. Ceph's monitors are asked for none.
    pub(crate) fn with_snapshots(mut self, snapshots: SnapshotIntake) -> Self {
        if self.ceph.is_none() {
            self.mon.has_snapshot(snapshots.made());
        }
        Self { snapshots, ..self }
    }

    /// A full store keeps the snapshot that it has; the monitor offers another one later.
    pub(super) fn keep_snapshot(&mut self, cx: &mut ControlCx<'_>, part: RecoverySnapshotPart) {
        if !self.mgr.room().has_room_for_own() {
            return;
        }
        let taken = self.snapshots.take(part);
        cx.events.extend(taken.txn.map(ControlEvent::Keep));
        if taken.is_whole {
            self.mon.has_snapshot(self.snapshots.made());
        }
    }
}
