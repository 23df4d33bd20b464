//! Writes to an object that is being pushed to a copy which need not have it to serve: the push gives way, the write does not wait.
//!
//! A client's write would wait until all of the object has arrived: 4 MiB at the rate that recovery may have, some 50 ms. Instead what
//! is on its way is given up: the copy gets the write's log entry alone, as if the object's turn had not come yet, and later the object
//! from the beginning. Ceph's clients wait (`PrimaryLogPG::is_degraded_or_backfilling_object`).

use super::{Recovery, Work};
use crate::state::PgState;
use nacre_types::{HObject, OsdId};

impl Recovery {
    /// A message whose turn has come is to wait until its object is recovered. One that need not goes before what is on its way.
    pub(crate) fn holds_back(&mut self, state: &PgState, head: &HObject, may_write: bool) -> bool {
        if may_write {
            self.give_way(state, head);
        }
        self.must_recover(state, head, may_write)
    }

    /// A write to `head` is next: what is on its way of the object and its clones begins again later, unless it did so before.
    fn give_way(&mut self, state: &PgState, head: &HObject) {
        if !self.holds(head) || state.peers.values().any(|peer| peer.needs_first(head)) {
            return;
        }
        let objects: Vec<HObject> = self.held(head).cloned().collect();
        if !objects.iter().all(|object| self.may_begin_again(state, object)) {
            return;
        }
        for object in objects {
            self.active.remove(&object);
            self.draining.remove(&object);
            self.parts.retain(|part| *part != object);
            self.look_again_at(&object);
            self.gave_way.insert(object);
        }
    }

    /// Whether the object, which is on its way or next in turn, may be sent from the beginning later. Not once its last part is on its
    /// way: a copy that has that no longer lacks the object.
    fn may_begin_again(&self, state: &PgState, object: &HObject) -> bool {
        let is_later =
            |osd: &OsdId| state.peers.get(osd).is_some_and(|peer| peer.deferred_by_backfill(object));
        let may = match self.active.get(object) {
            Some(Work::Pushing(pushing)) => pushing.has_more() && pushing.targets().all(is_later),
            Some(_) => false,
            None => state.missing.need(object).is_none() && state.peers_without(object).iter().all(is_later),
        };
        may && !self.gave_way.contains(object)
    }
}
