//! Sessions between fronts and the leader: what a front has for the leader, wherever that is, and what the leader has for a front.

use crate::driver::{Driver, conn_of};
use crate::driver_error::DriverError;
use crate::link_msg::{LinkMsg, ToFront, ToLeader};
use crate::planted::Planted;
use crate::uplink::Leader;
use nacre_auth::Step;
use nacre_mon::{Effect, Event, FrontEffect, SessionId};
use nacre_msg::Answer;
use nacre_quorum::NodeId;
use nacre_service::{ConnId, answer_auth};
use std::ops::Range;

/// What fronts hand out that have [`Planted::IdsReused`].
const REUSED_IDS: Range<u64> = 1_000_000..1_100_000;

impl Driver {
    /// Executes what the front and the leader want. True when there was anything.
    pub(crate) fn route(&mut self) -> Result<bool, DriverError> {
        let (mut of_front, mut effects) = (Vec::new(), Vec::new());
        let (now, wall) = (self.clock.now(), self.clock.wall());
        if let Some(lead) = &self.lead {
            self.front.set_active_mgr(lead.mon.state().mgr.own_is_active());
        }
        self.front.drain(now, wall, self.entropy.as_mut(), &mut of_front);
        if let Some(lead) = &mut self.lead {
            lead.mon.drain(&mut effects);
        }
        let is_busy = !of_front.is_empty() || !effects.is_empty();
        for effect in of_front {
            self.execute_front_effect(effect)?;
        }
        for effect in effects {
            self.execute_effect(effect)?;
        }
        Ok(is_busy)
    }

    fn execute_front_effect(&mut self, effect: FrontEffect) -> Result<(), DriverError> {
        match effect {
            FrontEffect::Auth { session, step } => {
                let conn = conn_of(session);
                match &step {
                    Step::More(_) => (),
                    Step::Done(done) => self.messenger.set_proved(conn, done.identity.name.clone()),
                    Step::Bad(refusal) => tracing::debug!(reason = %refusal.reason, "authentication refused"),
                }
                self.messenger.drive(conn, |connection| answer_auth(connection, step));
            }
            FrontEffect::Send { session, tid, message } => {
                self.messenger.send(conn_of(session), message.encode(tid));
            }
            FrontEffect::Close { session } => self.messenger.close(conn_of(session)),
            FrontEffect::Open { session, peer } => {
                self.tell_leader(ToLeader::Open { session: session.0, peer })?;
            }
            FrontEffect::Message { session, tid, message } => {
                self.tell_leader(ToLeader::Message { session: session.0, tid, message })?;
            }
            FrontEffect::Tell { session, tid, command } => {
                let own = self.own_view();
                self.front.tell(&own, session, tid, *command);
            }
            FrontEffect::Closed { session } => self.tell_leader(ToLeader::Closed { session: session.0 })?,
            FrontEffect::WantGlobalIds => self.tell_leader(ToLeader::WantGlobalIds)?,
        }
        Ok(())
    }

    /// A front, perhaps our own, has something for the leader of `term`. Where that is not us, nobody waits for it: the front
    /// says it again when it learns who leads.
    pub(crate) fn handle_from_front(
        &mut self,
        at: NodeId,
        term: u64,
        what: ToLeader,
    ) -> Result<(), DriverError> {
        let Some(lead) = self.lead.as_mut().filter(|lead| lead.term == term) else { return Ok(()) };
        match what {
            ToLeader::Open { session, peer } => {
                let (session, before) = lead.sessions.open(at, session);
                before.into_iter().for_each(|session| self.mon_event(Event::Closed { session }));
                self.mon_event(Event::Open { session, peer });
            }
            ToLeader::Message { session: number, tid, message } => match lead.sessions.find(at, number) {
                Some(session) => self.mon_event(Event::Message { session, tid, message }),
                None => self.tell_front(at, term, ToFront::Close { session: number }),
            },
            ToLeader::Closed { session } => {
                if let Some(session) = lead.sessions.find(at, session) {
                    lead.sessions.close(session);
                    self.mon_event(Event::Closed { session });
                }
            }
            ToLeader::WantGlobalIds => self.mon_event(Event::WantGlobalIds { front: at.0 }),
        }
        Ok(())
    }

    fn execute_effect(&mut self, effect: Effect) -> Result<(), DriverError> {
        let Some(lead) = &mut self.lead else { return Ok(()) };
        let term = lead.term;
        match effect {
            Effect::Commit { batch, token } => self.replica.commit(&batch, token)?,
            Effect::Confirm { token } => self.replica.confirm(token),
            Effect::Send { session, tid, message, served } => {
                if let Some((at, session)) = lead.sessions.place_of(session) {
                    let raw = message.encode(tid);
                    self.tell_front(at, term, ToFront::Send { session, raw, served });
                }
            }
            Effect::Close { session } => {
                if let Some((at, number)) = lead.sessions.place_of(session) {
                    lead.sessions.close(session);
                    self.tell_front(at, term, ToFront::Close { session: number });
                }
            }
            Effect::TakeSnapshot => self.take_snapshot()?,
            Effect::GlobalIds { front, ids } => {
                self.tell_front(NodeId(front), term, ToFront::GlobalIds(ids));
            }
        }
        Ok(())
    }

    /// The leader, which we are, has something for a front, perhaps our own.
    fn tell_front(&mut self, at: NodeId, term: u64, what: ToFront) {
        if at == self.replica.quorum().id() {
            self.at_front(what);
        } else if !self.links.send(at, LinkMsg::ToFront { term, what }, &mut self.messenger) {
            self.with_links(|links, cx| links.reset(at, cx));
        }
    }

    /// A leader has something for our front. One whose time is over has nothing to say.
    pub(crate) fn handle_from_leader(&mut self, leader: Leader, what: ToFront) {
        if self.uplink.leader() == Some(leader) {
            self.at_front(what);
        }
    }

    fn at_front(&mut self, what: ToFront) {
        match what {
            ToFront::Send { session, raw, served } => {
                let answer = Answer { kind: raw.kind, tid: raw.tid };
                self.front.sent(SessionId(session), answer, served.as_ref());
                self.messenger.send(ConnId(session), raw);
            }
            ToFront::Close { session } => self.end_session(ConnId(session)),
            ToFront::GlobalIds(_) if self.planted == Planted::IdsReused => self.front.granted(REUSED_IDS),
            ToFront::GlobalIds(ids) => self.front.granted(ids),
        }
    }

    /// What was on its way between a front and us is lost: its sessions end here.
    pub(crate) fn sessions_lost(&mut self, at: NodeId) {
        let Some(lead) = &mut self.lead else { return };
        let lost = lead.sessions.close_all(at);
        if !lost.is_empty() {
            self.mon_event(Event::FrontLost);
        }
        for session in lost {
            self.mon_event(Event::Closed { session });
        }
    }
}
