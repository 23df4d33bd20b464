//! [`PeerLinks`]: the lossless connections with the other OSDs, one with each of ours that is up. Messages of all shards' PGs go out through them.

use crate::links::Link;
use nacre_maps::OsdMap;
use nacre_msg::RawMessage;
use nacre_msg::peer::PeerVersions;
use nacre_msgr::{Config as MsgrConfig, Peer, Session};
use nacre_osd_core::{ControlPlane, ends_connection, peer_targets};
use nacre_pg::{Planted, Tuning};
use nacre_service::{ConnId, Messenger};
use nacre_types::{EntityKind, OsdId, Stamp};
use std::collections::BTreeMap;
use std::collections::btree_map::ValuesMut;
use std::sync::Arc;

/// One link for each OSD of ours that the map has up, dialled by either side.
pub(crate) struct PeerLinks {
    osd: OsdId,
    plane: ControlPlane,
    links: BTreeMap<OsdId, Link>,
    /// Messages that may wait for each.
    link_max: usize,
    /// What a session with a peer begins with.
    greeting: RawMessage,
}

impl PeerLinks {
    /// Of `osd`, with nobody yet.
    pub(crate) fn new((osd, plane): (OsdId, ControlPlane), tuning: &Tuning) -> Self {
        let greeting = greeting(tuning).encode();
        Self { osd, plane, links: BTreeMap::new(), link_max: tuning.queues.link_max, greeting }
    }

    /// Links follow the map: those to instances that are gone end, new ones wait to be dialled. `as_whom` is the name under which we
    /// dial.
    pub(crate) fn follow(&mut self, map: &OsdMap, as_whom: &Arc<MsgrConfig>, messenger: &mut Messenger) {
        let (link_max, greeting) = (self.link_max, &self.greeting);
        let is_gone = |osd: &OsdId, link: &mut Link| ends_connection(map, *osd, link.addrs());
        self.links.extract_if(.., is_gone).for_each(|(_, link)| link.end(messenger));
        for target in peer_targets(map, self.osd, self.plane) {
            let dials = target.dials.then(|| Arc::clone(as_whom));
            let link = || Link::new(EntityKind::OSD, target.addrs.clone(), dials, link_max);
            self.links.entry(target.osd).or_insert_with(|| link().with_greeting(greeting.clone()));
        }
    }

    /// Ends all; the next [`PeerLinks::follow`] begins them anew.
    pub(crate) fn hang_up(&mut self, messenger: &mut Messenger) {
        std::mem::take(&mut self.links).into_values().for_each(|link| link.end(messenger));
    }

    /// The connections there are, and the OSD at the other end of each.
    pub(crate) fn conns(&self) -> impl Iterator<Item = (OsdId, ConnId)> {
        self.links.iter().filter_map(|(osd, link)| Some((*osd, link.conn()?)))
    }

    /// When one is to be dialled.
    pub(crate) fn next_deadline(&self) -> Option<Stamp> {
        self.links.values().filter_map(Link::next_deadline).min()
    }

    pub(crate) fn links(&mut self) -> ValuesMut<'_, OsdId, Link> {
        self.links.values_mut()
    }

    /// Queues a message. A peer without a link is down, or a stranger that would not understand it: the interval that the message belongs to is over, or will be with the next map.
    pub(crate) fn send(&mut self, osd: OsdId, message: RawMessage, messenger: &mut Messenger) {
        if let Some(link) = self.links.get_mut(&osd) {
            link.send(messenger, message);
        }
    }

    /// Which peer a connection that is in use leads to.
    pub(crate) fn peer_of(&self, conn: ConnId) -> Option<OsdId> {
        self.links.iter().find(|(_, link)| link.conn() == Some(conn)).map(|(osd, _)| *osd)
    }

    /// A peer that dials us is connected, by its own word from `peer.addrs`.
    pub(crate) fn connected(&mut self, osd: OsdId, peer: &Peer, conn: ConnId, messenger: &mut Messenger) {
        match self.links.get_mut(&osd) {
            Some(link) if link.is_to(&peer.addrs) => {
                if !peer.resumed {
                    link.greet(conn, messenger);
                }
                link.opened(conn, messenger);
            }
            // Not in our map yet: it dials again when it finds the connection closed. Or not any more: what a process that is
            // gone had sent came late, and must not take the place of its successor's connection.
            _ => messenger.close(conn),
        }
    }

    /// The connection with a peer is gone, and left `session` for the next one.
    pub(crate) fn conn_closed(&mut self, osd: OsdId, session: Option<Box<Session>>, now: Stamp) {
        if let Some(link) = self.links.get_mut(&osd) {
            link.closed(session, now);
        }
    }

    /// The session of a connection that we dialled began anew: what was said in it did not arrive.
    pub(crate) fn greet_again(&mut self, conn: ConnId, messenger: &mut Messenger) {
        if let Some(link) = self.links.values_mut().find(|link| link.conn() == Some(conn)) {
            link.greet(conn, messenger);
        }
    }

    /// A peer said what we cannot read: the session must not be taken up again where it was.
    pub(crate) fn pause(&mut self, osd: OsdId, conn: ConnId, now: Stamp) {
        if let Some(link) = self.links.get_mut(&osd).filter(|link| link.conn() == Some(conn)) {
            link.pause(now);
        }
    }

    /// Peers to which messages were lost, although neither side has ended, and which take some again.
    pub(crate) fn take_lost(&mut self) -> Vec<OsdId> {
        self.links.iter_mut().filter_map(|(osd, link)| link.take_lost().then_some(*osd)).collect()
    }
}

/// The versions of messages that we say we speak.
fn greeting(tuning: &Tuning) -> PeerVersions {
    let next = tuning.versions.newest + 1;
    if tuning.planted == Planted::VersionsUnknown {
        PeerVersions { oldest: next, newest: next }
    } else {
        tuning.versions
    }
}
