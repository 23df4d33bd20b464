//! Handshakes: from a new connection to one that has proved who it is.

use super::{Front, FrontCx, FrontEffect, HANDSHAKES_COUNT_MAX, SESSIONS_COUNT_MAX, Session};
use crate::event::{Endpoint, Peer, SessionId};
use nacre_auth::{MonAuthContext, MonServer, Offer, ServiceAuthContext, ServiceServer, Step, TicketForm};
use nacre_buf::Bytes;
use nacre_types::{AddrVec, EntityKind};

/// A handshake that is not finished.
#[derive(Debug)]
pub(super) struct Handshake {
    server: Server,
    endpoint: Endpoint,
    /// What the peer says it is.
    kind: EntityKind,
}

/// The accepting side.
#[derive(Debug)]
enum Server {
    /// At the monitor's address, with the entity's own key.
    Mon(MonServer),
    /// At the manager's address, with a ticket.
    Mgr(ServiceServer),
}

/// What a peer says in its handshake.
#[derive(Debug)]
pub(super) enum Input {
    Request { method: u32, modes: Vec<u32>, payload: Bytes },
    More { payload: Bytes },
}

impl Input {
    /// Bytes that it takes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Request { modes, payload, .. } => size_of_val(modes.as_slice()) + payload.len(),
            Self::More { payload } => payload.len(),
        }
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
            self.handshakes.insert(session, Handshake { server, endpoint, kind });
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
        let is_known = self.handshakes.contains_key(&session);
        if is_known && self.is_serving() {
            self.take_step(cx, session, input);
        } else if !is_known || !self.holds.handshake(session, cx.now, input) {
            self.close(session);
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
        let step = match &mut handshake.server {
            Server::Mon(server) => {
                let (keys, ids) = (self.view.keys(), &mut self.ids);
                let mut cx = MonAuthContext { keys, ids, wall: cx.wall, entropy: cx.entropy };
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
            && let Some(Handshake { server, endpoint, kind }) = self.handshakes.remove(&session)
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
            let entry = Session { peer, auth, is_open: false, revoked_at: None };
            self.sessions.insert(session, entry);
        }
        self.effects.push(FrontEffect::Auth { session, step });
    }
}
