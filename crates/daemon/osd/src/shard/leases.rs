//! Whether a group may be served: what the others promise, and who waits for that.

use super::Shard;
use nacre_heartbeat::Leases;
use nacre_msg::peer::PeerMessage;
use nacre_pg::{Pg, Planted};
use nacre_types::SpgId;
use std::sync::Arc;

impl Shard {
    pub(super) fn set_leases(&mut self, leases: Arc<Leases>) {
        self.leases = leases;
        self.retry_unleased();
    }

    /// Whether we may serve a group: others may not have taken over from us without our knowledge. By the clock as it is
    /// now: the turn's was read before the sockets, and had we been stopped in between, what a client asked since would be
    /// answered by a lease that ran out meanwhile. What is stopped behind this answers with what was true here.
    pub(super) fn is_leased(&self, group: &Pg) -> bool {
        if !group.is_primary() || self.planted == Planted::LeaseIgnored {
            return true;
        }
        let now = self.clock.now();
        group
            .acting()
            .iter()
            .filter(|osd| **osd != self.config.id)
            .all(|osd| self.leases.is_granted(*osd, now))
    }

    /// Whether a peer's message asks for what a client will see, of a group that we may not serve just now. Who asks tries again.
    pub(super) fn is_unleased_read(&self, message: &PeerMessage) -> bool {
        let PeerMessage::CopyGet(get) = message else { return false };
        self.groups.get(&get.header.spg).is_some_and(|group| !self.is_leased(group))
    }

    /// Messages that waited for leases go on.
    pub(super) fn retry_unleased(&mut self) {
        let is_ready = |spg: &&SpgId| self.groups.get(spg).is_none_or(|group| self.is_leased(group));
        let ready: Vec<SpgId> = self.unleased.keys().filter(is_ready).copied().collect();
        for spg in ready {
            for op in self.unleased.remove(&spg).into_iter().flatten() {
                self.client_op(spg, op);
            }
        }
    }
}
