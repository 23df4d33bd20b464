//! How much of clients' messages a turn executes: what is beyond waits for the next one, PGs in turn.

use super::Shard;
use nacre_pg::{Event, TURN_WORK_MAX};
use nacre_store::StoreState;
use nacre_types::SpgId;

impl Shard {
    /// A turn begins: PGs that were put off go first, or new messages of others would keep them waiting.
    pub(super) fn begin_work(&mut self) {
        self.throttle.turn.begin(TURN_WORK_MAX);
        for _ in 0..self.put_off.len() {
            let Some(spg) = self.put_off.pop_front() else { return };
            self.deliver(spg, Event::Resume);
        }
    }

    /// Whether a turn is due although nothing happens.
    pub(super) fn has_work(&self) -> bool {
        self.store.state() == StoreState::HasWork || !self.put_off.is_empty()
    }

    pub(super) fn put_off(&mut self, spg: SpgId) {
        if !self.put_off.contains(&spg) {
            self.put_off.push_back(spg);
        }
    }
}
