//! PGs that an operator has made anew, because no OSD has a copy of them any more: `osd force-create-pg`.

use super::OsdMaps;
use crate::batch::{Batch, Snapshot};
use nacre_denc::{Decode, DecodeError, Encode};
use nacre_types::{Epoch, PgId, UTime};
use std::collections::BTreeMap;

const PREFIX: &str = "osd-recreating";
const KEY: &str = "groups";

/// PGs that are to begin anew, with the epoch and the time of the order.
pub(super) type Recreating = BTreeMap<PgId, (Epoch, UTime)>;

pub(super) fn read(snapshot: &dyn Snapshot) -> Result<Recreating, DecodeError> {
    snapshot.get(PREFIX, KEY).map_or_else(|| Ok(Recreating::new()), Recreating::from_bytes)
}

fn write(pgs: &Recreating, changes: &mut Batch) {
    if pgs.is_empty() {
        changes.delete(PREFIX, KEY);
    } else {
        changes.put(PREFIX, KEY, pgs.to_bytes());
    }
}

impl OsdMaps {
    /// Has the primary of `pg` make it anew and empty, whatever it or others have of it. Yields the epoch of its creation.
    pub(crate) fn recreate(&mut self, pg: PgId, wall: UTime) -> Option<Epoch> {
        let epoch = self.pending().incremental.epoch;
        // An epoch of its own tells it from what was before. It begins in that one, with the same members perhaps, so clients see no
        // change: they have to be told to send what is in flight again, which it does not take from before.
        let pool = self.change_pool(pg.pool)?;
        pool.last_force_op_resend = epoch;
        pool.last_force_op_resend_prenautilus = epoch;
        pool.last_force_op_resend_preluminous = epoch;
        self.recreating.insert(pg, (epoch, wall));
        write(&self.recreating, &mut self.changes);
        Some(epoch)
    }

    /// It serves, or its pool is gone.
    pub(super) fn forget_recreating(&mut self, which: impl Fn(PgId) -> bool) {
        let before = self.recreating.len();
        self.recreating.retain(|pg, _| !which(*pg));
        if self.recreating.len() < before {
            write(&self.recreating, &mut self.changes);
        }
    }
}
