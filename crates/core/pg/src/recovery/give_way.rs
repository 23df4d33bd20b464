//! Writes to objects that are on their way to copies which can do without them for a while.
//!
//! A client's write would wait until all of the object has arrived: 4 MiB at the rate that recovery may have, some 50 ms. Instead what
//! is on its way is given up: the copy gets the write's log entry alone, as if the object's turn had not come yet, and later the object
//! from the beginning. Ceph's clients wait (`PrimaryLogPG::is_degraded_or_backfilling_object`).

use super::Work;
use crate::Pg;
use nacre_types::{HObject, OsdId};

impl Pg {
    /// A write to `head` is next: what is on its way of the object and its clones begins again later, unless it did so before.
    pub(crate) fn give_way(&mut self, head: &HObject) {
        if !self.recovery.holds(head) || self.state.peers.values().any(|peer| peer.needs_first(head)) {
            return;
        }
        let objects: Vec<HObject> = self.recovery.held(head).cloned().collect();
        if !objects.iter().all(|object| self.may_begin_again(object)) {
            return;
        }
        for object in objects {
            self.recovery.active.remove(&object);
            self.recovery.draining.remove(&object);
            self.recovery.parts.retain(|part| *part != object);
            self.recovery.look_again_at(&object);
            self.recovery.gave_way.insert(object);
        }
    }

    /// Whether the object, which is on its way or next in turn, may be sent from the beginning later. Not once its last part is on its
    /// way: a copy that has that no longer lacks the object.
    fn may_begin_again(&self, object: &HObject) -> bool {
        let is_later =
            |osd: &OsdId| self.state.peers.get(osd).is_some_and(|peer| peer.deferred_by_backfill(object));
        let may = match self.recovery.active.get(object) {
            Some(Work::Pushing(pushing)) => pushing.has_more() && pushing.targets().all(is_later),
            Some(_) => false,
            None => {
                self.state.missing.need(object).is_none()
                    && self.state.peers_without(object).iter().all(is_later)
            }
        };
        may && !self.recovery.gave_way.contains(object)
    }
}
