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
        self.change_pool(pg.pool)?; // for an epoch of its own, by which it is told from what was before
        let epoch = self.pending().incremental.epoch;
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
