//! Whether a PG may be served: what the others promise, and who waits for that.

use super::Shard;
use nacre_heartbeat::Leases;
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

    /// Messages that waited for leases go on.
    pub(super) fn retry_awaiting_lease(&mut self) {
        let is_ready =
            |spg: &&SpgId| self.gate.ends_wait(self.pgs.get(spg).map(facts).as_ref(), self.clock.now());
        let ready: Vec<SpgId> = self.ops_awaiting_lease.keys().filter(is_ready).copied().collect();
        for spg in ready {
            for op in self.ops_awaiting_lease.remove(&spg).into_iter().flatten() {
                self.client_op(spg, op);
            }
        }
    }
}
