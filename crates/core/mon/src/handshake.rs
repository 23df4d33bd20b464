//! From a new connection to a session: authentication, the caps that the session has, and what follows when they change.

use crate::auth::AuthDb;
use crate::event::{Effect, Endpoint, SessionId};
use crate::mon::{Cx, HANDSHAKES_COUNT_MAX, Mon, SESSIONS_COUNT_MAX};
use crate::session::{Handshake, Identity, Session, instance};
use nacre_auth::{
    AuthDone, MgrCaps, MonAuthContext, MonCaps, MonServer, Offer, RotatingKeys, ServiceAuthContext,
    ServiceServer, Step, TicketForm,
};
use nacre_buf::Bytes;
use nacre_types::{AddrVec, AuthName, EntityAddr, EntityKind};
use std::net::IpAddr;

impl Mon {
    pub(crate) fn auth_request(
        &mut self,
        cx: &mut Cx<'_>,
        session: SessionId,
        (endpoint, kind): (Endpoint, EntityKind),
        method: u32,
        modes: &[u32],
        payload: Bytes,
    ) {
        if self.handshakes.len() >= HANDSHAKES_COUNT_MAX || self.sessions.len() >= SESSIONS_COUNT_MAX {
            self.close(session);
            return;
        }
        let option = match kind {
            EntityKind::CLIENT => "ms_mon_service_mode",
            _ => "ms_mon_cluster_mode",
        };
        let modes_wanted = self.state.config.of_monitor(option).unwrap_or_default();
        let offer = Offer::secure_first().with_methods(&self.methods).with_modes(modes_wanted);
        let fresh = || match endpoint {
            Endpoint::Mon => Handshake::Mon(MonServer::new(offer)),
            Endpoint::Mgr => {
                let form = TicketForm::under_our_monitor(EntityKind::MGR);
                Handshake::Mgr(ServiceServer::new(EntityKind::MGR, form, offer))
            }
        };
        let (_, mut handshake) = self.handshakes.remove(&session).unwrap_or_else(|| (endpoint, fresh()));
        let step = match &mut handshake {
            Handshake::Mon(server) => server.request(&mut self.mon_auth(cx), method, modes, payload),
            Handshake::Mgr(server) => {
                let keys = self.mgr_keys();
                let mut cx = ServiceAuthContext { keys: &keys, wall: cx.wall, entropy: cx.entropy };
                server.request(&mut cx, method, modes, payload)
            }
        };
        self.step(session, endpoint, handshake, step);
    }

    pub(crate) fn auth_more(&mut self, cx: &mut Cx<'_>, session: SessionId, payload: Bytes) {
        let Some((endpoint, mut handshake)) = self.handshakes.remove(&session) else {
            self.close(session);
            return;
        };
        let step = match &mut handshake {
            Handshake::Mon(server) => server.more(&mut self.mon_auth(cx), payload),
            Handshake::Mgr(server) => {
                let keys = self.mgr_keys();
                let mut cx = ServiceAuthContext { keys: &keys, wall: cx.wall, entropy: cx.entropy };
                server.more(&mut cx, payload)
            }
        };
        self.step(session, endpoint, handshake, step);
    }

    pub(crate) fn mon_auth<'a>(&'a mut self, cx: &'a mut Cx<'_>) -> MonAuthContext<'a> {
        MonAuthContext { keys: self.state.auth.keys_mut(), wall: cx.wall, entropy: cx.entropy }
    }

    fn mgr_keys(&self) -> RotatingKeys {
        let keys = self.state.auth.keys().rotating(EntityKind::MGR).cloned().unwrap_or_default();
        keys.with_void(self.state.auth.void().clone())
    }

    fn step(&mut self, session: SessionId, endpoint: Endpoint, handshake: Handshake, step: Step) {
        match &step {
            Step::Done(done) => {
                let identity = self.identity(done, endpoint);
                let auth = match handshake {
                    Handshake::Mon(server) => server.into_session(),
                    Handshake::Mgr(_) => None,
                };
                self.sessions.insert(session, Session::new(identity, endpoint, auth));
            }
            // A refused peer may come again with another method on the same connection.
            Step::More(_) | Step::Bad(_) => {
                self.handshakes.insert(session, (endpoint, handshake));
            }
        }
        self.hold(Effect::Auth { session, step });
    }

    /// The peer with its caps at the monitor, and at the manager when it came in there.
    fn identity(&self, done: &AuthDone, endpoint: Endpoint) -> Identity {
        let proved = &done.identity;
        let name = proved.name.clone();
        let allows_all = proved.allow_all;
        let (caps, mgr_caps) = if allows_all {
            (MonCaps::allow_all(), (endpoint == Endpoint::Mgr).then(MgrCaps::allow_all))
        } else {
            caps_of(&self.state.auth, &name, endpoint)
        };
        Identity {
            name: instance(&name, done.global_id),
            auth_name: name,
            global_id: done.global_id,
            caps,
            mgr_caps,
            allows_all,
            addr: EntityAddr::NONE,
            seen_at: None,
        }
    }

    pub(crate) fn established(
        &mut self,
        cx: &mut Cx<'_>,
        session: SessionId,
        kind: EntityKind,
        addrs: AddrVec,
        seen_at: Option<IpAddr>,
    ) {
        let Some(entry) = self.sessions.get_mut(&session) else {
            self.close(session);
            return;
        };
        // The secret proves the kind; a peer that claims to be another daemon lies. Every entity may speak as a
        // client: daemons do to fetch the monitors' map and their options, before they are daemons.
        if kind != EntityKind::CLIENT && entry.identity.auth_name.kind != kind {
            self.close(session);
            return;
        }
        entry.kind = kind;
        let addr = addrs.msgr2().unwrap_or_else(|| addrs.front());
        let identity = &mut entry.identity;
        (identity.addr, identity.seen_at) = (addr, seen_at);
        let caps = (std::mem::take(&mut identity.caps), identity.mgr_caps.take());
        identity.set_caps(caps);
        entry.addrs = addrs;
        entry.established = true;
        if let (Some(osd), Endpoint::Mon) = (entry.osd(), entry.endpoint) {
            self.osd_sessions.insert(osd, session);
            self.state.osd.seen(osd, cx.now);
        }
    }

    /// Sessions of entities whose caps are others now go on with these, here and at OSDs. They must not end: librados would come
    /// again with the ticket that it has, until that is to be renewed.
    pub(crate) fn take_over_caps(&mut self, cx: &Cx<'_>) {
        let names = self.state.auth.take_recapped();
        if names.is_empty() {
            return;
        }
        self.state.auth.note_caps(&names, cx.wall);
        for entry in self.sessions.values_mut().filter(|entry| names.contains(&entry.identity.auth_name)) {
            let identity = &mut entry.identity;
            if !identity.allows_all {
                identity.set_caps(caps_of(&self.state.auth, &identity.auth_name, entry.endpoint));
            }
        }
    }
}

/// What an entity may do at the monitor by now, and at the manager if it came in there: what its ticket says may be old. Caps that do
/// not parse allow nothing.
fn caps_of(auth: &AuthDb, name: &AuthName, endpoint: Endpoint) -> (MonCaps, Option<MgrCaps>) {
    let text = |service| auth.keys().caps_of(name, service).unwrap_or_default();
    let caps = match name.kind {
        EntityKind::MON => MonCaps::allow_all(),
        _ => MonCaps::parse(text(EntityKind::MON), name).unwrap_or_default(),
    };
    let mgr_caps = match endpoint {
        Endpoint::Mon => None,
        Endpoint::Mgr => Some(MgrCaps::parse(text(EntityKind::MGR), name).unwrap_or_default()),
    };
    (caps, mgr_caps)
}
