//! Handshakes: from a new connection to one that has proved who it is.

use super::holds::HELD_MAX;
use super::input::Input;
use super::resume::Resume;
use super::{Front, FrontCx, FrontEffect, HANDSHAKES_COUNT_MAX, SESSIONS_COUNT_MAX, Session};
use crate::event::{Endpoint, Peer, SessionId};
use nacre_auth::{
    GlobalIds, MonAuthContext, MonServer, Offer, ServiceAuthContext, ServiceServer, ServiceTickets, Step,
    TicketForm,
};
use nacre_types::{AddrVec, EntityKind, Stamp};

/// Global ids from here on are those of clients that were let in while nobody led, drawn at random: a leader grants smaller ones.
const UNLED_IDS: u64 = 1 << 62;

/// A handshake that is not finished.
#[derive(Debug)]
pub(super) struct Handshake {
    server: Server,
    endpoint: Endpoint,
    /// What the peer says it is.
    kind: EntityKind,
    /// It goes on for `tell` although nobody leads, up to this moment.
    tell_until: Option<Stamp>,
}

/// The accepting side.
#[derive(Debug)]
enum Server {
    /// At the monitor's address, with the entity's own key.
    Mon(MonServer),
    /// At the manager's address, with a ticket.
    Mgr(ServiceServer),
}

impl Handshake {
    /// True when it may go on although nobody leads: that of a client that is new. One that has been let in before keeps its tickets and its
    /// number, which only a monitor that serves can give it anew.
    fn may_tell(&self, input: &Input) -> bool {
        let is_new = match input {
            Input::Request { payload, .. } => MonServer::is_new_instance(payload),
            Input::More { .. } => false,
        };
        self.endpoint == Endpoint::Mon && self.kind == EntityKind::CLIENT && is_new
    }
}

impl Front {
    pub(super) fn auth_request(
        &mut self,
        cx: &mut FrontCx<'_>,
        session: SessionId,
        (endpoint, kind): (Endpoint, EntityKind),
        input: Input,
    ) {
        if !self.handshakes.contains_key(&session) {
            if !self.accepts(endpoint) {
                self.close(session);
                return;
            }
            let server = self.server_of(endpoint, kind);
            self.handshakes.insert(session, Handshake { server, endpoint, kind, tell_until: None });
        }
        self.auth_input(cx, session, input);
    }

    /// The manager is served where it is active.
    fn accepts(&self, endpoint: Endpoint) -> bool {
        let has_room =
            self.handshakes.len() < HANDSHAKES_COUNT_MAX && self.sessions.len() < SESSIONS_COUNT_MAX;
        has_room && (endpoint == Endpoint::Mon || self.mgr_is_active)
    }

    fn server_of(&self, endpoint: Endpoint, kind: EntityKind) -> Server {
        let option = match kind {
            EntityKind::CLIENT => "ms_mon_service_mode",
            _ => "ms_mon_cluster_mode",
        };
        let modes = self.view.option(option).unwrap_or_default();
        let offer = Offer::secure_first().with_methods(&self.methods).with_modes(modes);
        match endpoint {
            Endpoint::Mon => Server::Mon(MonServer::new(offer)),
            Endpoint::Mgr => {
                let form = TicketForm::under_our_monitor(EntityKind::MGR);
                Server::Mgr(ServiceServer::new(EntityKind::MGR, form, offer))
            }
        }
    }

    /// Takes in what a peer says in its handshake, or keeps it until it can be served.
    pub(super) fn auth_input(&mut self, cx: &mut FrontCx<'_>, session: SessionId, input: Input) {
        let Some(handshake) = self.handshakes.get(&session) else { return self.close(session) };
        let for_tell = handshake.may_tell(&input) && self.view.has_secrets();
        if self.is_serving() || handshake.tell_until.is_some() {
            self.take_step(cx, session, input);
        } else if !self.holds.handshake(session, cx.now, input, for_tell) {
            self.close(session);
        }
    }

    /// Lets those go on for `tell` that have waited for it, and closes what did not come to its end.
    pub(super) fn go_on_for_tell(&mut self, cx: &mut FrontCx<'_>) {
        while !self.is_serving()
            && let Some((session, since, input)) = self.holds.next_for_tell(cx.now)
        {
            if let Some(handshake) = self.handshakes.get_mut(&session) {
                handshake.tell_until = Some(since + HELD_MAX);
                self.tells.insert((since + HELD_MAX, session));
            }
            self.take_step(cx, session, input);
        }
        while let Some((until, session)) = self.tells.first().copied()
            && until <= cx.now
        {
            self.tells.pop_first();
            if self.handshakes.get(&session).is_some_and(|handshake| handshake.tell_until.is_some()) {
                self.close(session);
            }
        }
    }

    /// A leader is heard: what went on without one goes on as any other.
    pub(super) fn end_tells(&mut self) {
        for (_, session) in std::mem::take(&mut self.tells) {
            if let Some(handshake) = self.handshakes.get_mut(&session) {
                handshake.tell_until = None;
            }
        }
    }

    /// Goes on with what has waited, as far as it can be served.
    pub(super) fn go_on(&mut self, cx: &mut FrontCx<'_>) {
        while self.is_serving()
            && let Some((session, input)) = self.holds.next_handshake()
        {
            self.take_step(cx, session, input);
        }
        while self.is_serving()
            && let Some((session, tid, auth)) = self.holds.next_renewal()
        {
            self.answer(cx, session, tid, auth);
        }
    }

    fn take_step(&mut self, cx: &mut FrontCx<'_>, session: SessionId, input: Input) {
        let Some(handshake) = self.handshakes.get_mut(&session) else { return };
        let for_tell = handshake.tell_until.is_some();
        let step = match &mut handshake.server {
            Server::Mon(server) => {
                let mut unled = GlobalIds::default();
                let (ids, tickets) = if for_tell {
                    let id = UNLED_IDS | cx.entropy.u64() >> 2;
                    unled.grant(id..id + 1);
                    (&mut unled, ServiceTickets::Unusable)
                } else {
                    (&mut self.ids, ServiceTickets::Usable)
                };
                let keys = self.view.keys();
                let mut cx = MonAuthContext { keys, ids, wall: cx.wall, entropy: cx.entropy, tickets };
                match input {
                    Input::Request { method, modes, payload } => {
                        server.request(&mut cx, method, &modes, payload)
                    }
                    Input::More { payload } => server.more(&mut cx, payload),
                }
            }
            Server::Mgr(server) => {
                let keys = self.view.mgr_keys();
                let mut cx = ServiceAuthContext { keys: &keys, wall: cx.wall, entropy: cx.entropy };
                match input {
                    Input::Request { method, modes, payload } => {
                        server.request(&mut cx, method, &modes, payload)
                    }
                    Input::More { payload } => server.more(&mut cx, payload),
                }
            }
        };
        // A refused peer may come again with another method on the same connection.
        if let Step::Done(done) = &step
            && let Some(Handshake { server, endpoint, kind, .. }) = self.handshakes.remove(&session)
        {
            let proved = &done.identity;
            let peer = Peer {
                endpoint,
                auth_name: proved.name.clone(),
                global_id: done.global_id,
                allows_all: proved.allow_all,
                kind,
                addrs: AddrVec::default(),
                seen_at: None,
            };
            let auth = match server {
                Server::Mon(server) => server.into_session(),
                Server::Mgr(_) => None,
            };
            let resume = Resume::default();
            let entry = Session { peer, auth, is_open: false, for_tell, revoked_at: None, resume };
            self.sessions.insert(session, entry);
        }
        self.effects.push(FrontEffect::Auth { session, step });
    }
}
