//! [`Reserver`]: which PGs of an OSD may recover at a time.
//!
//! A PG needs a slot at its primary (local) and one at each OSD that is brought up to date (remote). The
//! two kinds are counted apart, and a primary asks for the local one first and then for the remote ones in
//! ascending order of OSDs: so no PGs wait for each other in a circle. Ceph's `AsyncReserver`.

use nacre_types::SpgId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Which of an OSD's two kinds of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Of the primary, for its own work.
    Local,
    /// Of a member that is brought up to date, at its primary's request.
    Remote,
}

/// What the reserver has decided about a PG's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// PG that had asked.
    pub spg: SpgId,
    /// For which kind of slot.
    pub side: Side,
    /// The PG's number of the request.
    pub number: u64,
    /// It has the slot; otherwise it must give it back at once: more urgent work came, and took it.
    pub granted: bool,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    priority: u32,
    /// Position among those of the same priority.
    order: u64,
    number: u64,
}

#[derive(Debug, Default)]
struct Slots {
    held: BTreeMap<SpgId, Request>,
    waiting: BTreeMap<SpgId, Request>,
    /// The waiting ones, best first.
    queue: BTreeSet<(Reverse<u32>, u64, SpgId)>,
}

impl Slots {
    fn forget(&mut self, spg: &SpgId) {
        self.held.remove(spg);
        if let Some(request) = self.waiting.remove(spg) {
            self.queue.remove(&(Reverse(request.priority), request.order, *spg));
        }
    }

    /// The PG that holds a slot with the lowest priority, the youngest of them.
    fn weakest(&self) -> Option<(SpgId, Request)> {
        let all = self.held.iter().map(|(spg, request)| (*spg, *request));
        all.max_by_key(|(_, request)| (Reverse(request.priority), request.order))
    }
}

/// The slots of one shard of an OSD. Per shard, because nothing is shared between shards: an OSD with more
/// than one recovers up to that many times `osd_max_backfills` PGs. The device store has one shard.
#[derive(Debug)]
pub struct Reserver {
    slots_max: usize,
    local: Slots,
    remote: Slots,
    last_order: u64,
    decisions: Vec<Decision>,
}

impl Reserver {
    /// Whether any PG recovers here, as its primary or as a member that is brought up to date.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        !self.local.held.is_empty() || !self.remote.held.is_empty()
    }

    /// With `slots_max` slots of either kind.
    #[must_use]
    pub fn new(slots_max: usize) -> Self {
        Self {
            slots_max,
            local: Slots::default(),
            remote: Slots::default(),
            last_order: 0,
            decisions: Vec::new(),
        }
    }

    /// Changes the number of slots; a PG that holds one keeps it.
    pub fn set_slots(&mut self, slots_max: usize) {
        self.slots_max = slots_max;
        self.decide(Side::Local);
        self.decide(Side::Remote);
    }

    fn slots(&mut self, side: Side) -> &mut Slots {
        match side {
            Side::Local => &mut self.local,
            Side::Remote => &mut self.remote,
        }
    }

    /// A PG wants a slot; an earlier request of the same kind is void.
    pub fn ask(&mut self, spg: SpgId, side: Side, number: u64, priority: u32) {
        self.last_order += 1;
        let request = Request { priority, order: self.last_order, number };
        let slots = self.slots(side);
        slots.forget(&spg);
        slots.waiting.insert(spg, request);
        slots.queue.insert((Reverse(priority), request.order, spg));
        self.decide(side);
    }

    /// A PG wants none any more.
    pub fn give_back(&mut self, spg: &SpgId, side: Side) {
        self.slots(side).forget(spg);
        self.decide(side);
    }

    /// The PG is gone.
    pub fn forget(&mut self, spg: &SpgId) {
        self.give_back(spg, Side::Local);
        self.give_back(spg, Side::Remote);
    }

    fn decide(&mut self, side: Side) {
        let slots_max = self.slots_max;
        loop {
            let slots = self.slots(side);
            let Some((Reverse(priority), order, spg)) = slots.queue.first().copied() else { return };
            if slots.held.len() >= slots_max {
                match slots.weakest() {
                    Some((weakest, held)) if held.priority < priority => {
                        slots.held.remove(&weakest);
                        let number = held.number;
                        self.decisions.push(Decision { spg: weakest, side, number, granted: false });
                        continue;
                    }
                    _ => return,
                }
            }
            slots.queue.remove(&(Reverse(priority), order, spg));
            if let Some(request) = slots.waiting.remove(&spg) {
                slots.held.insert(spg, request);
                self.decisions.push(Decision { spg, side, number: request.number, granted: true });
            }
        }
    }

    /// What was decided since the last call; the PGs are to be told
    /// ([`crate::Event::Reservation`]).
    pub fn take_decisions(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.decisions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::PgId;

    fn pg(seed: u32) -> SpgId {
        SpgId::replicated(PgId::new(1, seed))
    }

    fn decided(reserver: &mut Reserver) -> Vec<(u32, bool)> {
        let all = reserver.take_decisions().into_iter();
        all.map(|decision| (decision.spg.pg.seed, decision.granted)).collect()
    }

    #[test]
    fn slots_go_round_by_priority_and_then_in_order() {
        let mut reserver = Reserver::new(1);
        for (seed, priority) in [(1, 180), (2, 100), (3, 180), (4, 100), (5, 180)] {
            reserver.ask(pg(seed), Side::Local, 1, priority);
        }
        let mut order = Vec::new();
        loop {
            let now = decided(&mut reserver);
            let [(seed, true)] = now[..] else { break };
            order.push(seed);
            reserver.give_back(&pg(seed), Side::Local);
        }
        assert_eq!(order, [1, 3, 5, 2, 4]);
    }

    #[test]
    fn urgent_work_takes_the_slot_of_the_weakest() {
        let mut reserver = Reserver::new(2);
        reserver.ask(pg(1), Side::Remote, 1, 100);
        reserver.ask(pg(2), Side::Remote, 1, 140);
        assert_eq!(decided(&mut reserver), [(1, true), (2, true)]);
        reserver.ask(pg(3), Side::Remote, 1, 140);
        assert_eq!(decided(&mut reserver), [(1, false), (3, true)]);
        reserver.ask(pg(4), Side::Remote, 1, 140);
        assert_eq!(decided(&mut reserver), [], "its equals are left alone");
        reserver.ask(pg(1), Side::Local, 1, 100);
        assert_eq!(decided(&mut reserver), [(1, true)], "the other kind is counted apart");
    }

    #[test]
    fn a_pg_that_is_gone_leaves_no_slot_behind() {
        let mut reserver = Reserver::new(1);
        (1..4).for_each(|seed| reserver.ask(pg(seed), Side::Local, 1, 100));
        assert_eq!(decided(&mut reserver), [(1, true)]);
        reserver.forget(&pg(2));
        reserver.forget(&pg(1));
        assert_eq!(decided(&mut reserver), [(3, true)]);
        reserver.ask(pg(4), Side::Local, 1, 100);
        reserver.set_slots(2);
        assert_eq!(decided(&mut reserver), [(4, true)]);
    }
}
