//! Monitors come, go and move: what this one does about it, as the leader and as the one that it is about.

use crate::driver::Driver;
use crate::driver_error::DriverError;
use crate::link_msg::LinkMsg;
use crate::members::Monitors;
use crate::monitor::mon_config;
use crate::replica::ReplicaError;
use nacre_quorum::{Members, MembersStep, NodeId};
use nacre_types::{AddrVec, EntityAddr};
use std::sync::Arc;

impl Driver {
    /// A leader brings the members of the log closer to those that the tables name.
    pub(crate) fn step_members(&mut self) {
        let Some(lead) = &mut self.lead else { return };
        let monitors = &self.monitors;
        match lead.membership.next(&monitors.wanted(), |id| monitors.may_lead(id), self.replica.quorum()) {
            Some(MembersStep::Change(change)) => self.replica.change_members(&change),
            Some(MembersStep::HandOver(to)) => self.replica.hand_over(to),
            None => (),
        }
    }

    /// Ends when this monitor was removed, or made anew elsewhere, and has left the log: until then its vote may be needed.
    pub(crate) fn check_membership(&mut self) -> Result<(), DriverError> {
        let id = self.replica.quorum().id();
        if !self.is_gone && (!self.monitors.is_gone(id) || self.is_in_log(id)) {
            return Ok(());
        }
        self.replica.note_gone().map_err(ReplicaError::from)?;
        Err(DriverError::Removed(self.presence.name.clone()))
    }

    fn is_in_log(&self, id: NodeId) -> bool {
        let Members { voters, learners, voters_outgoing, .. } = self.replica.quorum().members();
        [voters, learners, voters_outgoing].iter().any(|ids| ids.contains(&id))
    }

    /// A sign of life, how this monitor is, and a question: what does your clock show? One that has left the log hears of that: it may not have got the entry.
    pub(crate) fn ping(&mut self) {
        let (sent, vitals) = (self.clock.now(), self.own_vitals());
        for id in self.links.members() {
            let has_left = self.monitors.is_gone(id) && !self.is_in_log(id);
            let message =
                if has_left { LinkMsg::Gone } else { LinkMsg::Ping { sent, vitals: vitals.clone() } };
            self.links.send(id, message, &mut self.messenger);
        }
    }

    /// The tables name other monitors now, or have them elsewhere.
    pub(crate) fn follow_tables(&mut self) -> Result<(), DriverError> {
        self.monitors = Monitors::read(self.replica.tables()?)?;
        self.addresses.set(&self.monitors);
        let id = self.replica.quorum().id();
        if let Some(turn) = self.monitors.turn_of(id) {
            self.replica.set_turn(turn, !self.monitors.may_lead(id));
        }
        let places = self.monitors.places();
        self.links.follow(&places, self.clock.now(), &mut self.messenger);
        self.move_to(self.monitors.addr_of(&self.presence.name));
        Ok(())
    }

    /// Listens where the map has this monitor by now, and where it was before as well, until its next start: peers may not know yet.
    fn move_to(&mut self, addr: Option<EntityAddr>) {
        let Some((addr, socket)) = addr.and_then(|addr| Some((addr, addr.socket?))) else { return };
        let addrs = AddrVec::of(addr);
        if addrs == self.presence.mon_addrs {
            return;
        }
        match self.messenger.listen(socket, false) {
            Ok((listener, _)) => {
                let rank = self.monitors.map.rank_of(&self.presence.name);
                self.messenger.serve(listener, Arc::new(mon_config(addr, rank)));
                tracing::info!(mon = self.presence.name, %addr, "this monitor listens at its new address as well");
                self.presence.mon_addrs = addrs;
            }
            Err(error) => tracing::warn!(
                mon = self.presence.name,
                %addr,
                %error,
                "cannot listen at the new address of this monitor; if it is another machine's, stop it, copy its folder there and start it"
            ),
        }
    }
}
