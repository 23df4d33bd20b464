//! What this monitor knows of itself, for those that ask it and not the cluster (`ceph tell mon.b`).

use crate::driver::Driver;
use crate::uplink::Leader;
use nacre_mon::{MonitorPhase, OwnView};
use nacre_quorum::NodeId;
use nacre_service::{AdminRequest, Mailbox};

impl Driver {
    /// The leader that this monitor hears and can reach.
    pub(crate) fn heard_leader(&self) -> Option<Leader> {
        let quorum = self.replica.quorum();
        let is_here = |id: &NodeId| {
            crate::quorum_view::is_heard(quorum, *id) && (*id == quorum.id() || self.links.is_up(*id))
        };
        quorum.leader().filter(is_here).map(|id| Leader { term: quorum.term(), id })
    }

    fn phase(&self) -> MonitorPhase {
        let quorum = self.replica.quorum();
        let leader = self.heard_leader();
        if self.lead.is_some() {
            return MonitorPhase::Leader;
        }
        if self.transfers.has_incoming() {
            return MonitorPhase::Synchronizing;
        }
        if leader.is_some_and(|leader| leader.id != quorum.id()) {
            return MonitorPhase::Peon;
        }
        let voters = quorum.members().voters;
        let here = voters.iter().filter(|id| **id == quorum.id() || self.links.is_up(**id)).count();
        if here > voters.len() / 2 { MonitorPhase::Electing } else { MonitorPhase::Probing }
    }

    /// Notes what this monitor is doing.
    pub(crate) fn note_phase(&mut self) {
        let quorum = self.replica.quorum();
        let (term, knows_leader) = (quorum.term(), quorum.leader().is_some());
        let phase = self.phase();
        self.vitals.note_phase(phase, term, knows_leader, self.clock.now());
    }

    /// Answers what is asked at the admin socket: also while nobody leads.
    pub(crate) fn answer_admin(&mut self) {
        let requests: Vec<AdminRequest> = self.admin.iter().flat_map(Mailbox::take).collect();
        for request in requests {
            let own = self.own_view();
            let reply = self.front.tell_admin(&own, request.text());
            request.answer(reply);
        }
    }

    /// What it is asked for by `tell`.
    pub fn own_view(&mut self) -> OwnView {
        self.note_phase();
        let quorum = self.replica.quorum();
        let (phase, term) = (self.phase(), quorum.term());
        let leader = self.heard_leader().filter(|_| phase.is_led()).map(|leader| leader.id);
        let name_of = |id: NodeId| self.monitors.name_of(id).map(str::to_owned);
        let map = &self.monitors.map;
        let names: Vec<String> = match (&self.lead, leader) {
            (Some(lead), _) => {
                let state = lead.mon.state();
                state.quorum.members(map).map(|(_, name)| name.to_owned()).collect()
            }
            // What the leader said last; it says so once per second.
            (None, Some(leader)) => {
                let said = self.vitals.of(leader).map(|vitals| vitals.quorum.clone()).unwrap_or_default();
                let has = |name: &&String| self.monitors.id_of(name).is_some_and(|id| said.contains(&id));
                map.ranks.iter().filter(has).cloned().collect()
            }
            (None, None) => Vec::new(),
        };
        OwnView {
            name: self.presence.name.clone(),
            phase,
            term,
            term_had_leader: self.vitals.had_leader(term),
            leader: leader.and_then(name_of),
            quorum: names,
            since: self.clock.now().since(self.vitals.phase_since()),
            map: map.clone(),
        }
    }
}
