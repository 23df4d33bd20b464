//! Sessions as they open: the caps that each has, and what follows when these change.

use crate::auth::AuthDb;
use crate::event::{Endpoint, Peer, SessionId};
use crate::mon::{Cx, Mon};
use crate::session::{Identity, Session, instance};
use nacre_auth::{MgrCaps, MonCaps};
use nacre_types::{AuthName, EntityKind};

impl Mon {
    /// A monitor's front has authenticated a peer. Its caps are those that the entity has here by now.
    pub(crate) fn open_session(&mut self, cx: &Cx<'_>, session: SessionId, peer: Peer) {
        let Peer { endpoint, auth_name, global_id, allows_all, kind, addrs, seen_at } = peer;
        let caps = if allows_all {
            (MonCaps::allow_all(), (endpoint == Endpoint::Mgr).then(MgrCaps::allow_all))
        } else {
            caps_of(&self.state.auth, &auth_name, endpoint)
        };
        let mut identity = Identity {
            name: instance(&auth_name, global_id),
            auth_name,
            global_id,
            caps: MonCaps::default(),
            mgr_caps: None,
            allows_all,
            addr: addrs.msgr2().unwrap_or_else(|| addrs.front()),
            seen_at,
        };
        identity.set_caps(caps);
        let entry = Session::new(identity, endpoint, kind, addrs);
        match (entry.osd(), endpoint) {
            (Some(osd), Endpoint::Mon) => {
                self.osd_sessions.insert(osd, session);
                self.state.osd.seen(osd, cx.now);
            }
            (Some(osd), Endpoint::Mgr) => self.state.stats.orders.connected(osd, session.0),
            (None, _) => (),
        }
        if entry.is_billed() {
            let Identity { name, auth_name, seen_at, .. } = &entry.identity;
            let host = seen_at.map(|host| host.to_string()).unwrap_or_default();
            self.state.stats.bill.learn(*name, auth_name.to_string(), host);
        }
        self.sessions.insert(session, entry);
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
