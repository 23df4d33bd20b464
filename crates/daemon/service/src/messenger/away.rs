//! [`AwaySessions`]: lossless sessions of peers that dialled us and have no connection now.

use nacre_msgr::Session;
use nacre_types::{AddrVec, AuthName};
use std::collections::BTreeMap;

/// Sessions kept in all; more are forgotten, lowest name first.
const SESSIONS_MAX: usize = 1024;
/// How many of them one peer may have, under several addresses: none crowds out the others'.
const SESSIONS_PER_PEER_MAX: usize = 4;

/// The sessions, by the entity that a peer has proved to be and the addresses that it names.
#[derive(Debug, Default)]
pub(super) struct AwaySessions(BTreeMap<(AuthName, AddrVec), Session>);

impl AwaySessions {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Keeps the session of a peer whose connection has ended.
    pub(super) fn keep(&mut self, name: AuthName, peer: AddrVec, session: Session) {
        self.0.insert((name.clone(), peer.clone()), session);
        let from = self.0.range((name.clone(), AddrVec::default())..);
        let held: Vec<_> =
            from.map(|(key, _)| key).take_while(|(owner, _)| *owner == name).cloned().collect();
        if held.len() > SESSIONS_PER_PEER_MAX
            && let Some(other) = held.into_iter().find(|(_, addrs)| *addrs != peer)
        {
            self.0.remove(&other);
        }
        if self.0.len() > SESSIONS_MAX {
            self.0.pop_first();
        }
    }

    /// The session that a peer goes on with.
    pub(super) fn take(&mut self, name: &AuthName, peer: &AddrVec) -> Option<Session> {
        self.0.remove(&(name.clone(), peer.clone()))
    }

    /// Forgets the sessions of these addresses.
    pub(super) fn forget(&mut self, peer: &AddrVec) {
        self.0.retain(|(_, addrs), _| addrs != peer);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_msgr::{Config, Connection, Opening, Target};
    use nacre_types::{EntityAddr, EntityKind, Stamp};
    use std::net::SocketAddr;
    use std::sync::Arc;

    #[test]
    fn one_peer_does_not_crowd_out_the_sessions_of_others() {
        let osd = |id: &str| AuthName::new(EntityKind::OSD, id);
        let addrs = |port: u16| AddrVec::of(EntityAddr::msgr2(SocketAddr::from(([127, 0, 0, 1], port)), 5));
        let session = || {
            let target = Target { addr: addrs(1).front(), kind: EntityKind::OSD, gid: 1 };
            let opening = Opening { now: Stamp(1), global_seq: 1, cookie: 1 };
            let connection = Connection::connect(Arc::new(Config::osd(addrs(2), 1)), target, opening);
            connection.into_session().expect("lossless")
        };
        let mut away = AwaySessions::default();
        away.keep(osd("0"), addrs(1), session());
        (0..5000).for_each(|port| away.keep(osd("9"), addrs(port), session()));
        assert_eq!(away.len(), 1 + SESSIONS_PER_PEER_MAX);
        assert!(away.take(&osd("0"), &addrs(1)).is_some());
    }
}
