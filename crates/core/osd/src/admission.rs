//! [`AdmissionGate`]: which client's message may go to its PG now. What a PG admits it decides itself (`core/pg/src/pipeline`).
//!
//! ```text
//!   the PG is here      its client holds it ---------------------------> drop, the client sends it again
//!                       others may have taken over from us ------------> await the lease
//!                       else ------------------------------------------> deliver
//!   it is not here      sent with a map that we do not have, or ours ---> hold
//!                       not ours: sent with an older map --------------> push maps, the client sends it to others
//!                                 sent with our map -------------------> drop
//! ```
//! Source of the behaviour: Ceph `src/osd/OSD.cc` at v16.2.15 (`ms_fast_dispatch`, `enqueue_op`, `handle_pg_query_nopg`,
//! `OSDService::check_failsafe_full`, `maybe_share_map`), `src/osd/PeeringState.cc` (`check_prior_readable_down_osds`, leases).

use crate::failsafe_full::{FullPeers, Room, brings_data};
use nacre_heartbeat::Leases;
use nacre_maps::OsdMap;
use nacre_msg::OsdOp;
use nacre_types::{Epoch, OsdId, PgId, Stamp};
use std::sync::Arc;

/// What is known of a PG that lives here.
#[derive(Debug, Clone, Copy)]
pub struct PgFacts<'a> {
    /// We are its primary.
    pub is_primary: bool,
    /// The OSDs that serve it.
    pub acting: &'a [OsdId],
}

/// What is to be done with a client's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateDecision {
    /// Nothing: the client sends it again.
    Drop,
    /// Hand it to the PG.
    Deliver,
    /// Keep it until the others promise again not to take over.
    AwaitLease,
    /// Keep it until the PG, or the map that it was sent with, is here.
    Hold,
    /// Drop it, and hand the client the maps behind this one: it sends it to somebody else.
    PushMaps {
        /// What the client has.
        since: Epoch,
    },
}

/// See the module's documentation.
#[derive(Debug)]
pub struct AdmissionGate {
    osd: OsdId,
    leases: Arc<Leases>,
    /// A mistake built in on purpose: see `nacre_pg::Planted::LeaseIgnored`.
    ignores_leases: bool,
    full_peers: FullPeers,
}

impl AdmissionGate {
    /// The gate of one shard of `osd`, with what others promise to it.
    #[must_use]
    pub fn new(osd: OsdId, leases: Leases, ignores_leases: bool) -> Self {
        Self { osd, leases: Arc::new(leases), ignores_leases, full_peers: FullPeers::default() }
    }

    /// What others promise has changed: what awaits a lease is to be asked about again ([`AdmissionGate::is_leased`]).
    pub fn set_leases(&mut self, leases: Arc<Leases>) {
        self.leases = leases;
    }

    /// A peer did a write of ours and says whether its store is short of room.
    pub fn heard_room(&mut self, peer: OsdId, is_failsafe_full: bool, now: Stamp) {
        self.full_peers.heard(peer, is_failsafe_full, now);
    }

    /// Whether we may serve a PG: others may not have taken over from us without our knowledge. `now` is the clock as it is
    /// when this is asked, not when the turn began.
    #[must_use]
    pub fn is_leased(&self, pg: &PgFacts<'_>, now: Stamp) -> bool {
        if !pg.is_primary || self.ignores_leases {
            return true;
        }
        pg.acting.iter().filter(|osd| **osd != self.osd).all(|osd| self.leases.is_granted(*osd, now))
    }

    /// Whether a message brings data for which we or a member of its PG have no room, as far as is known. `room` is asked for
    /// messages that bring data only. The PG refuses it then: a message that is sent again may be done already.
    pub fn is_beyond_room(
        &mut self,
        op: &OsdOp,
        room: impl FnOnce() -> Room,
        acting: &[OsdId],
        now: Stamp,
    ) -> bool {
        brings_data(op) && (room().is_failsafe_full() || self.full_peers.any_of(acting, now))
    }

    /// A client's message for a PG that lives here. `is_held_by_client`: its client sent it before it learned to hold it.
    #[must_use]
    pub fn admit(&self, pg: &PgFacts<'_>, is_held_by_client: bool, now: Stamp) -> GateDecision {
        if is_held_by_client {
            // Or it could wait for the lease until after the acknowledgement, and overtake others.
            return GateDecision::Drop;
        }
        if self.is_leased(pg, now) { GateDecision::Deliver } else { GateDecision::AwaitLease }
    }

    /// A client's message for a PG that does not live here, sent with the map of epoch `sent`; `map` is the newest that our
    /// PGs may see.
    #[must_use]
    pub fn admit_without_pg(&self, map: &OsdMap, pg: PgId, sent: Epoch) -> GateDecision {
        // Nobody serves a PG that the map does not have.
        let is_ours = || map.pg_to_up_acting(pg).acting.contains(&self.osd);
        if sent > map.epoch || is_ours() {
            return GateDecision::Hold;
        }
        // Not ours by our map: silence. The client resends when it learns of a newer one, which it may lack.
        if sent < map.epoch { GateDecision::PushMaps { since: sent } } else { GateDecision::Drop }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failsafe_full::tests::op;
    use nacre_maps::Pool;
    use nacre_maps::flags::osd::{EXISTS, UP};
    use nacre_msg::osd_op::code;
    use std::collections::BTreeMap;
    use std::time::Duration;

    const ME: OsdId = 0;
    const ROOMY: Room = Room { total_bytes: 1 << 40, available_bytes: 1 << 39 };
    const FULL: Room = Room { total_bytes: 1 << 40, available_bytes: 0 };

    fn at(seconds: u64) -> Stamp {
        Stamp::default() + Duration::from_secs(seconds)
    }

    /// osd.1 promises until 106 s, osd.2 nothing.
    fn gate(ignores_leases: bool) -> AdmissionGate {
        let length = Duration::from_secs(6);
        let mut leases = Leases::new(length, at(0));
        leases.grant(1, at(100), length);
        AdmissionGate::new(ME, leases, ignores_leases)
    }

    fn serving(acting: &[OsdId]) -> PgFacts<'_> {
        PgFacts { is_primary: true, acting }
    }

    #[test]
    fn a_message_is_delivered_while_all_others_promise_and_awaits_the_lease_else() {
        let gate = gate(false);
        assert_eq!(gate.admit(&serving(&[ME, 1]), false, at(105)), GateDecision::Deliver);
        assert_eq!(gate.admit(&serving(&[ME, 1]), false, at(106)), GateDecision::AwaitLease);
        assert_eq!(gate.admit(&serving(&[ME, 1, 2]), false, at(105)), GateDecision::AwaitLease);
        assert_eq!(gate.admit(&serving(&[ME]), false, at(105)), GateDecision::Deliver, "nobody else");
    }

    #[test]
    fn only_a_primary_needs_leases() {
        let pg = PgFacts { is_primary: false, ..serving(&[ME, 2]) };
        assert_eq!(gate(false).admit(&pg, false, at(105)), GateDecision::Deliver);
        assert!(gate(true).is_leased(&serving(&[ME, 2]), at(105)), "the planted mistake");
    }

    #[test]
    fn what_others_promise_anew_counts() {
        let mut gate = gate(false);
        let mut leases = Leases::clone(&gate.leases);
        leases.grant(2, at(104), Duration::from_secs(6));
        gate.set_leases(Arc::new(leases));
        assert_eq!(gate.admit(&serving(&[ME, 1, 2]), false, at(105)), GateDecision::Deliver);
    }

    #[test]
    fn a_message_that_its_client_holds_is_dropped_with_a_lease_and_without() {
        for now in [at(105), at(106)] {
            assert_eq!(gate(false).admit(&serving(&[ME, 1]), true, now), GateDecision::Drop);
        }
    }

    #[test]
    fn data_are_refused_when_we_or_a_member_are_short_of_room() {
        let (mut gate, write, read) = (gate(false), op(code::WRITE, b"data"), op(code::READ, b""));
        assert!(!gate.is_beyond_room(&write, || ROOMY, &[ME, 1], at(0)));
        assert!(gate.is_beyond_room(&write, || FULL, &[ME, 1], at(0)));
        assert!(!gate.is_beyond_room(&read, || FULL, &[ME, 1], at(0)));
        gate.heard_room(1, true, at(0));
        assert!(gate.is_beyond_room(&write, || ROOMY, &[ME, 1], at(1)));
        assert!(!gate.is_beyond_room(&write, || ROOMY, &[ME, 2], at(1)), "no member");
        assert!(!gate.is_beyond_room(&read, || ROOMY, &[ME, 1], at(1)));
        gate.heard_room(1, false, at(1));
        assert!(!gate.is_beyond_room(&write, || ROOMY, &[ME, 1], at(1)));
    }

    /// Pool 1 has 4 PGs; `acting` serves 1.3, by `pg_temp`.
    fn map(acting: Vec<OsdId>) -> OsdMap {
        let pool = Pool { pg_num: 4, pgp_num: 4, size: 2, ..Pool::default() };
        let mut map = OsdMap { epoch: 10, pools: BTreeMap::from([(1, pool)]), ..OsdMap::default() };
        map.set_max_osd(3);
        map.osd_state.fill(EXISTS | UP);
        map.pg_temp.insert(PgId::new(1, 3), acting);
        map
    }

    #[test]
    fn a_message_ahead_of_us_or_for_a_pg_of_ours_is_held() {
        let (gate, pg) = (gate(false), PgId::new(1, 3));
        for sent in [9, 10, 11] {
            assert_eq!(gate.admit_without_pg(&map(vec![1, ME]), pg, sent), GateDecision::Hold);
        }
        assert_eq!(gate.admit_without_pg(&map(vec![1, 2]), pg, 11), GateDecision::Hold);
    }

    #[test]
    fn who_asks_the_wrong_osd_gets_the_maps_that_he_lacks_and_else_silence() {
        let (gate, pg) = (gate(false), PgId::new(1, 3));
        let others = map(vec![1, 2]);
        assert_eq!(gate.admit_without_pg(&others, pg, 9), GateDecision::PushMaps { since: 9 });
        assert_eq!(gate.admit_without_pg(&others, pg, 10), GateDecision::Drop);
        let mut merged = map(vec![ME, 1]);
        merged.pools.get_mut(&1).expect("the pool").pg_num = 3;
        assert_eq!(gate.admit_without_pg(&merged, pg, 10), GateDecision::Drop);
        assert_eq!(gate.admit_without_pg(&map(vec![ME]), PgId::new(2, 3), 10), GateDecision::Drop);
    }
}
