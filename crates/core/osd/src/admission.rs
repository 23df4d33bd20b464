//! [`AdmissionGate`]: which message of a client or of another OSD may go to its PG now. What a PG admits it decides itself
//! (`core/pg/src/pipeline`).
//!
//! ```text
//! a client's:
//!   the PG is here      its client holds it ---------------------------> drop, the client sends it again
//!                       others may have taken over from us ------------> await the lease
//!                       else ------------------------------------------> deliver
//!   it is not here      sent with a map that we do not have, or ours ---> hold
//!                       not ours: sent with an older map --------------> push maps, the client sends it to others
//!                                 sent with our map -------------------> drop
//!
//! another OSD's:
//!   the PG is here      it asks for what a client will see, and others may have taken over from us --> drop, it asks again
//!                       else ------------------------------------------------------------------------> deliver
//!   it is not here      sent with a map that we do not have, or the PG is about to be ---------------> hold
//!                       calls for a copy -------------------------------------------------------------> create
//!                       else ------------------------------------------------------------------------> answer without a PG
//! ```
//! Source of the behaviour: Ceph `src/osd/OSD.cc` at v16.2.15 (`ms_fast_dispatch`, `enqueue_op`, `handle_pg_query_nopg`,
//! `OSDService::check_failsafe_full`, `maybe_share_map`), `src/osd/PeeringState.cc` (`check_prior_readable_down_osds`, leases).

use crate::failsafe_full::{FullPeers, Room, brings_data};
use nacre_heartbeat::Leases;
use nacre_maps::OsdMap;
use nacre_msg::OsdOp;
use nacre_msg::peer::PeerMessage;
use nacre_pg::PgCreateInfo;
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
    Deliver {
        /// It brings data for which we or a member of its PG have no room, as far as is known. The PG refuses it: a message that
        /// is sent again may be done already.
        is_beyond_room: bool,
    },
    /// Keep it until the others promise again not to take over.
    AwaitLease,
    /// Keep it until the PG, or the map that it was sent with, is here.
    Hold,
    /// Drop it, and hand the client the maps behind this one: it sends it to another OSD.
    PushMaps {
        /// What the client has.
        since: Epoch,
    },
}

/// What is to be done with another OSD's message.
#[derive(Debug, Clone)]
pub enum PeerDecision {
    /// Nothing: the other one asks again.
    Drop,
    /// Hand it to the PG.
    Deliver,
    /// Keep it until the PG, or the map that it was sent with, is here.
    Hold,
    /// Make a copy first, if [`crate::decide_create`] says so, and hand it the message.
    Create(Box<PgCreateInfo>),
    /// Answer it for a PG of which we have no copy.
    AnswerWithoutPg,
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

    /// What others promise has changed: what awaits a lease is to be asked about again ([`AdmissionGate::ends_wait`]).
    pub fn set_leases(&mut self, leases: Arc<Leases>) {
        self.leases = leases;
    }

    /// Whether messages that await a lease for a PG are to be looked at again: it can be served, or is not here any more.
    #[must_use]
    pub fn ends_wait(&self, pg: Option<&PgFacts<'_>>, now: Stamp) -> bool {
        pg.is_none_or(|pg| self.is_leased(pg, now))
    }

    /// Whether we may serve a PG: others may not have taken over from us without our knowledge. `now` is the clock as it is
    /// when this is asked, not when the turn began.
    fn is_leased(&self, pg: &PgFacts<'_>, now: Stamp) -> bool {
        if !pg.is_primary || self.ignores_leases {
            return true;
        }
        pg.acting.iter().filter(|osd| **osd != self.osd).all(|osd| self.leases.is_granted(*osd, now))
    }

    fn is_beyond_room(
        &mut self,
        op: &OsdOp,
        room: impl FnOnce() -> Room,
        acting: &[OsdId],
        now: Stamp,
    ) -> bool {
        brings_data(op) && (room().is_failsafe_full() || self.full_peers.any_of(acting, now))
    }

    /// A client's message for a PG that lives here. `is_held_by_client`: its client sent it before it learned to hold it.
    /// `room`, of our store, is asked for messages that bring data only. `now` is the clock as it is: by one that was read before the
    /// sockets, what a client asked since would be answered by a lease that ran out meanwhile.
    pub fn admit(
        &mut self,
        pg: &PgFacts<'_>,
        op: &OsdOp,
        is_held_by_client: bool,
        room: impl FnOnce() -> Room,
        now: Stamp,
    ) -> GateDecision {
        if is_held_by_client {
            // Or it could wait for the lease until after the acknowledgement, and overtake others.
            return GateDecision::Drop;
        }
        if !self.is_leased(pg, now) {
            return GateDecision::AwaitLease;
        }
        GateDecision::Deliver { is_beyond_room: self.is_beyond_room(op, room, pg.acting, now) }
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

    /// A message of the OSD `from`. `pg`: what is known of its PG, if that lives here. `epoch` is that of the newest map that our
    /// PGs may see. `is_to_come` is asked for PGs that do not live here: one is about to be split off another, or its records are
    /// damaged and it is not known yet which OSDs served it. `clock` is asked where a lease counts.
    pub fn admit_peer(
        &mut self,
        from: OsdId,
        message: &PeerMessage,
        pg: Option<&PgFacts<'_>>,
        epoch: Epoch,
        is_to_come: impl FnOnce() -> bool,
        clock: impl Fn() -> Stamp,
    ) -> PeerDecision {
        match (message, pg) {
            (PeerMessage::RepOpReply(reply), _) => {
                self.full_peers.heard(from, reply.is_failsafe_full, &clock);
            }
            (PeerMessage::CopyGet(_), Some(pg)) if !self.is_leased(pg, clock()) => return PeerDecision::Drop,
            _ => (),
        }
        if pg.is_some() {
            return PeerDecision::Deliver;
        }
        if message.header().epoch > epoch || is_to_come() {
            return PeerDecision::Hold;
        }
        match PgCreateInfo::called_for(message) {
            Some(create_info) => PeerDecision::Create(Box::new(create_info)),
            None => PeerDecision::AnswerWithoutPg,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failsafe_full::tests::op;
    use nacre_maps::Pool;
    use nacre_maps::flags::osd::{EXISTS, UP};
    use nacre_msg::osd_op::code;
    use nacre_msg::peer::{
        CopyGet, IntervalId, Notify, PastIntervals, PeerHeader, PgHistory, PgInfo, RepOpReply,
    };
    use nacre_types::{Eversion, HObject, SpgId};
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

    const DELIVER: GateDecision = GateDecision::Deliver { is_beyond_room: false };

    /// What becomes of a read, in a store with room.
    fn admit(mut gate: AdmissionGate, pg: &PgFacts<'_>, is_held_by_client: bool, now: Stamp) -> GateDecision {
        gate.admit(pg, &op(code::READ, b""), is_held_by_client, || ROOMY, now)
    }

    #[test]
    fn a_message_is_delivered_while_all_others_promise_and_awaits_the_lease_else() {
        assert_eq!(admit(gate(false), &serving(&[ME, 1]), false, at(105)), DELIVER);
        assert_eq!(admit(gate(false), &serving(&[ME, 1]), false, at(106)), GateDecision::AwaitLease);
        assert_eq!(admit(gate(false), &serving(&[ME, 1, 2]), false, at(105)), GateDecision::AwaitLease);
        assert_eq!(admit(gate(false), &serving(&[ME]), false, at(105)), DELIVER, "nobody else");
    }

    #[test]
    fn only_a_primary_needs_leases() {
        let pg = PgFacts { is_primary: false, ..serving(&[ME, 2]) };
        assert_eq!(admit(gate(false), &pg, false, at(105)), DELIVER);
        assert!(gate(true).is_leased(&serving(&[ME, 2]), at(105)), "the planted mistake");
    }

    #[test]
    fn what_others_promise_anew_counts() {
        let mut gate = gate(false);
        let mut leases = Leases::clone(&gate.leases);
        leases.grant(2, at(104), Duration::from_secs(6));
        gate.set_leases(Arc::new(leases));
        assert!(gate.ends_wait(Some(&serving(&[ME, 1, 2])), at(105)));
        assert!(!gate.ends_wait(Some(&serving(&[ME, 1, 2])), at(106)), "osd.1 does not");
        assert!(gate.ends_wait(None, at(106)), "the PG is gone");
        assert_eq!(admit(gate, &serving(&[ME, 1, 2]), false, at(105)), DELIVER);
    }

    #[test]
    fn a_message_that_its_client_holds_is_dropped_with_a_lease_and_without() {
        for now in [at(105), at(106)] {
            assert_eq!(admit(gate(false), &serving(&[ME, 1]), true, now), GateDecision::Drop);
        }
    }

    fn header(epoch: Epoch) -> PeerHeader {
        PeerHeader { spg: SpgId::replicated(PgId::new(1, 3)), epoch }
    }

    fn write_done(is_failsafe_full: bool) -> PeerMessage {
        RepOpReply { header: header(10), tid: 1, last_complete: Eversion::ZERO, is_failsafe_full }.into()
    }

    #[test]
    fn data_are_refused_when_we_or_a_member_are_short_of_room() {
        let (mut gate, write, read) = (gate(false), op(code::WRITE, b"data"), op(code::READ, b""));
        let refused = |gate: &mut AdmissionGate, op, room, acting: &[OsdId], now| {
            let pg = PgFacts { is_primary: false, acting };
            gate.admit(&pg, op, false, || room, now) == GateDecision::Deliver { is_beyond_room: true }
        };
        let hear = |gate: &mut AdmissionGate, from, is_full, now| {
            let pg = serving(&[ME, 1]);
            let _ = gate.admit_peer(from, &write_done(is_full), Some(&pg), 10, || false, || now);
        };
        assert!(!refused(&mut gate, &write, ROOMY, &[ME, 1], at(0)));
        assert!(refused(&mut gate, &write, FULL, &[ME, 1], at(0)));
        assert!(!refused(&mut gate, &read, FULL, &[ME, 1], at(0)));
        hear(&mut gate, 1, true, at(0));
        assert!(refused(&mut gate, &write, ROOMY, &[ME, 1], at(1)));
        assert!(!refused(&mut gate, &write, ROOMY, &[ME, 2], at(1)), "no member");
        assert!(!refused(&mut gate, &read, ROOMY, &[ME, 1], at(1)));
        hear(&mut gate, 1, false, at(1));
        assert!(!refused(&mut gate, &write, ROOMY, &[ME, 1], at(1)));
    }

    #[test]
    fn a_peer_reads_what_a_client_will_see_only_while_we_may_serve() {
        let (object, cursor) = (HObject::MIN, nacre_buf::Bytes::new());
        let read: PeerMessage =
            CopyGet { header: header(10), reply_to: header(10).spg, tid: 1, object, cursor }.into();
        let decide = |message: &PeerMessage, acting: &[OsdId], now| {
            gate(false).admit_peer(1, message, Some(&serving(acting)), 10, || false, || now)
        };
        assert!(matches!(decide(&read, &[ME, 1], at(105)), PeerDecision::Deliver));
        assert!(matches!(decide(&read, &[ME, 1], at(106)), PeerDecision::Drop));
        assert!(matches!(decide(&write_done(false), &[ME, 1], at(106)), PeerDecision::Deliver), "no read");
    }

    #[test]
    fn a_peers_message_for_a_pg_that_is_not_here_is_held_makes_a_copy_or_is_answered() {
        let news = |nonce| -> PeerMessage {
            let (info, past) = (PgInfo::empty(PgHistory::default()), PastIntervals::default());
            Notify { header: header(10), nonce, interval: IntervalId::default(), info, past }.into()
        };
        let decide = |message: &PeerMessage, epoch, is_to_come| {
            gate(false).admit_peer(1, message, None, epoch, || is_to_come, || at(105))
        };
        assert!(matches!(decide(&news(0), 9, false), PeerDecision::Hold), "its map is not here");
        assert!(matches!(decide(&news(0), 10, true), PeerDecision::Hold), "the PG is to come");
        assert!(matches!(decide(&news(0), 10, false), PeerDecision::Create(info) if info.epoch == 10));
        assert!(matches!(decide(&news(7), 10, false), PeerDecision::AnswerWithoutPg), "an answer");
        assert!(matches!(decide(&write_done(false), 10, false), PeerDecision::AnswerWithoutPg));
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
