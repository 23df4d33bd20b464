//! Whether a PG may be served: what the others promise, and who waits for that.

use super::Shard;
use nacre_heartbeat::Leases;
use nacre_msg::peer::PeerMessage;
use nacre_osd_core::PgFacts;
use nacre_pg::Pg;
use nacre_types::SpgId;
use std::sync::Arc;

/// What the gate wants to know of a PG.
pub(super) fn facts(pg: &Pg) -> PgFacts<'_> {
    PgFacts { is_primary: pg.is_primary(), acting: pg.acting() }
}

impl Shard {
    pub(super) fn set_leases(&mut self, leases: Arc<Leases>) {
        self.gate.set_leases(leases);
        self.retry_awaiting_lease();
    }

    /// Whether we may serve a PG. By the clock as it is now: the turn's was read before the sockets, and had we been stopped
    /// in between, what a client asked since would be answered by a lease that ran out meanwhile. What is stopped behind this
    /// answers with what was true here.
    pub(super) fn is_leased(&self, pg: &Pg) -> bool {
        self.gate.is_leased(&facts(pg), self.clock.now())
    }

    /// Whether a peer's message asks for what a client will see, of a PG that we may not serve just now. Who asks tries again.
    pub(super) fn is_read_without_lease(&self, message: &PeerMessage) -> bool {
        let PeerMessage::CopyGet(get) = message else { return false };
        self.pgs.get(&get.header.spg).is_some_and(|pg| !self.is_leased(pg))
    }

    /// Messages that waited for leases go on.
    pub(super) fn retry_awaiting_lease(&mut self) {
        let is_ready = |spg: &&SpgId| self.pgs.get(spg).is_none_or(|pg| self.is_leased(pg));
        let ready: Vec<SpgId> = self.ops_awaiting_lease.keys().filter(is_ready).copied().collect();
        for spg in ready {
            for op in self.ops_awaiting_lease.remove(&spg).into_iter().flatten() {
                self.client_op(spg, op);
            }
        }
    }
}
