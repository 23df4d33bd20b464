//! Whether a group may be served: what the others promise, and who waits for that.

use super::Shard;
use nacre_heartbeat::Leases;
use nacre_pg::Pg;
use nacre_types::SpgId;
use std::sync::Arc;

impl Shard {
    pub(super) fn set_leases(&mut self, leases: Arc<Leases>) {
        self.leases = leases;
        self.retry_unleased();
    }

    /// Whether we may serve a group: others may not have taken over from us without our knowledge.
    pub(super) fn is_leased(&self, group: &Pg) -> bool {
        let mut others = group.acting().iter().filter(|osd| **osd != self.config.id);
        !group.is_primary() || others.all(|osd| self.leases.is_granted(*osd, self.now))
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
