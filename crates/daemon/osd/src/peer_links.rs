//! [`PeerLinks`]: the lossless connections of a shard with the other OSDs, one with each of ours that is up.
//!
//! The first shards of two OSDs are always connected, and say first how many shards they have ([`PeerGreeting`]). Where both have as many, of
//! stores with as many partitions, each further shard has a connection with its counterpart, and most PGs are on the same shard of both: what
//! they say to each other crosses no thread. (A PG that was split off, or that an OSD met when its pool had more or fewer, may be on another
//! one; there it is handed on.) Elsewhere further shards go through the first ones. Which of the two it is does not change as long as both
//! processes live under the same names, and until it is known messages wait: so all of them go one way, in order.

use crate::links::Link;
use nacre_maps::OsdMap;
use nacre_msg::RawMessage;
use nacre_msg::peer::{PeerGreeting, PeerVersions, ShardPorts};
use nacre_msgr::{Config as MsgrConfig, Peer, Session};
use nacre_osd_core::{ControlPlane, ends_connection, peer_targets};
use nacre_pg::{Planted, Tuning};
use nacre_service::{ConnId, Messenger};
use nacre_types::{AddrVec, EntityKind, OsdId, Stamp};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One link for each OSD of ours that the map has up, dialled by either side.
pub(crate) struct PeerLinks {
    osd: OsdId,
    plane: ControlPlane,
    links: BTreeMap<OsdId, PeerLink>,
    /// Messages that may wait for each.
    link_max: usize,
    /// What a session between first shards begins with; `None` on the others.
    greeting: Option<RawMessage>,
    /// On the first of several shards: how the others are reached, as the greeting says.
    ports: Option<ShardPorts>,
    /// On a shard that is not the first: what that has heard of each OSD. It may be ahead of this shard's map.
    counterparts: BTreeMap<OsdId, Counterpart>,
    /// OSDs to which another shard, which had the map first, wanted to send by a link that was not there yet.
    missed: BTreeSet<OsdId>,
    /// When one is to be dialled; `None` when that may have changed since it was last asked.
    due: Cell<Option<Option<Stamp>>>,
}

/// The way to the same shard of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counterpart {
    /// The process, as the map has it.
    pub(crate) addrs: AddrVec,
    /// Where that shard listens; `None` where PGs are on other shards there.
    pub(crate) port: Option<u16>,
}

/// A link, and whether messages take it.
struct PeerLink {
    link: Link,
    route: Route,
    /// It is ours to dial.
    dials: bool,
}

/// How messages of this shard reach an OSD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    /// By the link.
    Direct,
    /// Nobody has said yet; they wait in the link.
    Unknown,
    /// By that of the first shard.
    ByFirst,
}

/// What waited for a link that there will not be.
#[derive(Debug, Default)]
pub(crate) struct Waited {
    pub(crate) messages: Vec<RawMessage>,
    /// Some found no room.
    pub(crate) is_incomplete: bool,
}

impl PeerLink {
    /// It is known how the peer is reached.
    fn go_by(&mut self, port: Option<u16>, as_whom: &Arc<MsgrConfig>) -> Waited {
        let Some(port) = port else {
            self.route = Route::ByFirst;
            let (waiting, is_incomplete) = self.link.take_waiting();
            return Waited { messages: waiting.into(), is_incomplete };
        };
        self.route = Route::Direct;
        if self.dials {
            self.link.dial_at(Arc::clone(as_whom), port);
        }
        Waited::default()
    }
}

impl PeerLinks {
    /// Of the first shard of `osd`, with nobody yet. Other shards are reached as `ports` says, if there are any.
    pub(crate) fn new(
        (osd, plane): (OsdId, ControlPlane),
        tuning: &Tuning,
        ports: Option<ShardPorts>,
    ) -> Self {
        let greeting = PeerGreeting { versions: versions(tuning), shards: ports.clone() }.encode();
        Self { greeting: Some(greeting), ports, ..Self::of_further_shard((osd, plane), tuning) }
    }

    /// Of another shard, with nobody yet.
    pub(crate) fn of_further_shard((osd, plane): (OsdId, ControlPlane), tuning: &Tuning) -> Self {
        Self {
            osd,
            plane,
            links: BTreeMap::new(),
            link_max: tuning.queues.link_max,
            greeting: None,
            ports: None,
            counterparts: BTreeMap::new(),
            missed: BTreeSet::new(),
            due: Cell::new(None),
        }
    }

    /// Links follow the map: those to instances that are gone end, new ones wait to be dialled. `as_whom` is the name under which we
    /// dial.
    pub(crate) fn follow(&mut self, map: &OsdMap, as_whom: &Arc<MsgrConfig>, messenger: &mut Messenger) {
        self.due.take();
        let is_gone = |osd: &OsdId, peer: &mut PeerLink| ends_connection(map, *osd, peer.link.addrs());
        self.links.extract_if(.., is_gone).for_each(|(_, peer)| peer.link.end(messenger));
        for target in peer_targets(map, self.osd, self.plane) {
            if self.links.contains_key(&target.osd) {
                continue;
            }
            let (addrs, dials) = (target.addrs.clone(), target.dials);
            let mut peer = match &self.greeting {
                Some(greeting) => {
                    let as_whom = dials.then(|| Arc::clone(as_whom));
                    let link = Link::new(EntityKind::OSD, addrs, as_whom, self.link_max);
                    PeerLink { link: link.with_greeting(greeting.clone()), route: Route::Direct, dials }
                }
                None => {
                    let link = Link::new(EntityKind::OSD, addrs, None, self.link_max);
                    let mut peer = PeerLink { link, route: Route::Unknown, dials };
                    let known = self.counterparts.get(&target.osd);
                    if let Some(known) = known.filter(|known| known.addrs == *target.addrs) {
                        // Nothing waits in it yet.
                        let _: Waited = peer.go_by(known.port, as_whom);
                    }
                    peer
                }
            };
            if self.missed.remove(&target.osd) {
                peer.link.note_loss();
            }
            self.links.insert(target.osd, peer);
        }
    }

    /// The first shard has heard how the same shard of `osd` is reached. Yields what is to go another way.
    pub(crate) fn learn_counterpart(
        &mut self,
        osd: OsdId,
        counterpart: Counterpart,
        as_whom: &Arc<MsgrConfig>,
    ) -> Waited {
        self.due.take();
        let port = counterpart.port;
        let peer = self.links.get_mut(&osd).filter(|peer| *peer.link.addrs() == counterpart.addrs);
        let waited = match peer {
            Some(peer) if peer.route == Route::Unknown => peer.go_by(port, as_whom),
            _ => Waited::default(),
        };
        self.counterparts.insert(osd, counterpart);
        waited
    }

    /// Ends all; the next [`PeerLinks::follow`] begins them anew.
    pub(crate) fn hang_up(&mut self, messenger: &mut Messenger) {
        self.due.take();
        std::mem::take(&mut self.links).into_values().for_each(|peer| peer.link.end(messenger));
    }

    /// The connections there are, and the OSD at the other end of each.
    pub(crate) fn conns(&self) -> impl Iterator<Item = (OsdId, ConnId)> {
        self.links.iter().filter_map(|(osd, peer)| Some((*osd, peer.link.conn()?)))
    }

    /// Those of them by which messages come. A connection that was open stays so until its end.
    pub(crate) fn open_conns(&self) -> impl Iterator<Item = ConnId> {
        self.links.values().filter(|peer| peer.link.is_open()).filter_map(|peer| peer.link.conn())
    }

    /// When one is to be dialled.
    pub(crate) fn next_deadline(&self) -> Option<Stamp> {
        let due = self.due.get();
        let due =
            due.unwrap_or_else(|| self.links.values().filter_map(|peer| peer.link.next_deadline()).min());
        self.due.set(Some(due));
        due
    }

    pub(crate) fn links(&mut self) -> impl Iterator<Item = &mut Link> {
        self.due.take();
        self.links.values_mut().map(|peer| &mut peer.link)
    }

    /// The link that has this connection.
    pub(crate) fn link_of(&mut self, conn: ConnId) -> Option<&mut Link> {
        self.links().find(|link| link.conn() == Some(conn))
    }

    /// Queues a message, or gives it back where it is to go through the first shard. A peer without a link is down, or a stranger that would
    /// not understand it: the interval that the message belongs to is over, or will be with the next map.
    pub(crate) fn send(
        &mut self,
        osd: OsdId,
        message: RawMessage,
        messenger: &mut Messenger,
    ) -> Option<RawMessage> {
        let peer = self.links.get_mut(&osd)?;
        if peer.route == Route::ByFirst {
            return Some(message);
        }
        peer.link.send(messenger, message);
        None
    }

    /// Another shard, whose map may be ahead, sends to `osd`: where there is no link yet, PGs hear of the loss once there is one.
    pub(crate) fn note_missed(&mut self, osd: OsdId) {
        if !self.links.contains_key(&osd) {
            self.missed.insert(osd);
        }
    }

    /// Which peer a connection that is in use leads to.
    pub(crate) fn peer_of(&self, conn: ConnId) -> Option<OsdId> {
        self.links.iter().find(|(_, peer)| peer.link.conn() == Some(conn)).map(|(osd, _)| *osd)
    }

    /// What each further shard is to hear of its counterpart in `osd`, which has said `theirs` on this connection. A process that is gone says
    /// nothing of its successor.
    pub(crate) fn counterparts(
        &self,
        osd: OsdId,
        conn: ConnId,
        theirs: Option<&ShardPorts>,
    ) -> Vec<(usize, Counterpart)> {
        let link = self.links.get(&osd).map(|peer| &peer.link).filter(|link| link.conn() == Some(conn));
        let (Some(ours), Some(link)) = (&self.ports, link) else { return Vec::new() };
        let theirs = theirs.filter(|theirs| ours.pair_with(theirs));
        let port = |nth: usize| theirs.and_then(|theirs| theirs.ports.get(nth).copied());
        let of = |nth| (nth + 1, Counterpart { addrs: link.addrs().clone(), port: port(nth) });
        (0..ours.ports.len()).map(of).collect()
    }

    /// A peer that dials us is connected, by its own word from `peer.addrs`.
    pub(crate) fn connected(&mut self, osd: OsdId, peer: &Peer, conn: ConnId, messenger: &mut Messenger) {
        self.due.take();
        match self.links.get_mut(&osd) {
            Some(PeerLink { link, route, .. }) if link.is_to(&peer.addrs) && *route != Route::ByFirst => {
                // It knows that shards have links of their own, so it is.
                *route = Route::Direct;
                if !peer.resumed {
                    link.greet(conn, messenger);
                }
                link.opened(conn, messenger);
            }
            // Not in our map yet: it dials again when it finds the connection closed. Or not any more: what a process that is
            // gone had sent came late, and must not take the place of its successor's connection.
            _ => messenger.end(conn, "not the process that the map has".to_owned()),
        }
    }

    /// The connection with a peer is gone, and left `session` for the next one.
    pub(crate) fn conn_closed(&mut self, osd: OsdId, session: Option<Box<Session>>, now: Stamp) {
        self.due.take();
        if let Some(peer) = self.links.get_mut(&osd) {
            peer.link.closed(session, now);
        }
    }

    /// The session of a connection that we dialled began anew: what was said in it did not arrive.
    pub(crate) fn greet_again(&mut self, conn: ConnId, messenger: &mut Messenger) {
        if let Some(link) = self.link_of(conn) {
            link.greet(conn, messenger);
        }
    }

    /// A peer said what we cannot read: the session must not be taken up again where it was.
    pub(crate) fn pause(&mut self, osd: OsdId, conn: ConnId, now: Stamp) {
        self.due.take();
        if let Some(peer) = self.links.get_mut(&osd).filter(|peer| peer.link.conn() == Some(conn)) {
            peer.link.pause(now);
        }
    }

    /// Peers to which messages were lost, although neither side has ended, and which take some again.
    pub(crate) fn take_lost(&mut self) -> Vec<OsdId> {
        self.links.iter_mut().filter_map(|(osd, peer)| peer.link.take_lost().then_some(*osd)).collect()
    }
}

/// The versions of messages that we say we speak.
fn versions(tuning: &Tuning) -> PeerVersions {
    let next = tuning.versions.newest + 1;
    if tuning.planted == Planted::VersionsUnknown {
        PeerVersions { oldest: next, newest: next }
    } else {
        tuning.versions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_env::real::RealNet;
    use nacre_maps::flags::osd::{EXISTS, UP};
    use nacre_types::EntityAddr;

    fn addrs(nonce: u32) -> AddrVec {
        AddrVec::of(EntityAddr::msgr2("10.0.0.1:6800".parse().expect("an address"), nonce))
    }

    /// osd.0, which is this one, and osd.1, whose process has this nonce.
    fn map(nonce: u32) -> OsdMap {
        let mut map = OsdMap::default();
        map.set_max_osd(2);
        for number in 0..2 {
            map.osd_state[number] = EXISTS | UP;
            map.cluster_addrs[number] = addrs(nonce);
        }
        map
    }

    /// The second shard of osd.0, and what it sends with.
    struct Second {
        peers: PeerLinks,
        messenger: Messenger,
        as_whom: Arc<MsgrConfig>,
    }

    impl Second {
        fn new() -> Self {
            Self {
                peers: PeerLinks::of_further_shard((0, ControlPlane::Nacre), &Tuning::default()),
                messenger: Messenger::new(Box::new(RealNet::new().expect("an epoll")), 1),
                as_whom: Arc::new(MsgrConfig::osd(addrs(7), 0)),
            }
        }

        fn follow(&mut self, nonce: u32) {
            self.peers.follow(&map(nonce), &self.as_whom, &mut self.messenger);
        }

        /// Sends a message with this number; true when it goes through the first shard.
        fn send(&mut self, tid: u64) -> bool {
            let greeting = PeerGreeting { versions: PeerVersions::OURS, shards: None };
            let message = RawMessage { tid, ..greeting.encode() };
            self.peers.send(1, message, &mut self.messenger).is_some()
        }

        /// Hears of the counterpart; the numbers of messages that go another way.
        fn learn(&mut self, nonce: u32, port: Option<u16>) -> Vec<u64> {
            let counterpart = Counterpart { addrs: addrs(nonce), port };
            let waited = self.peers.learn_counterpart(1, counterpart, &self.as_whom);
            assert!(!waited.is_incomplete);
            waited.messages.iter().map(|message| message.tid).collect()
        }
    }

    #[test]
    fn messages_wait_until_it_is_known_which_way_they_go_and_all_go_that_way() {
        let mut second = Second::new();
        second.follow(1);
        assert!(!second.send(1) && !second.send(2));
        assert_eq!(second.peers.next_deadline(), None, "nobody knows where to dial");
        assert_eq!(second.learn(1, None), [1, 2], "to the first shard, in order");
        assert!(second.send(3), "and so does what comes behind them");
        assert_eq!(second.learn(1, Some(6810)), [0; 0], "which never changes");
        assert!(second.send(4));
        // Another process of the OSD; it is heard of before the map that has it.
        assert_eq!(second.learn(2, Some(6810)), [0; 0]);
        assert!(second.send(5), "still to the one that the map has");
        second.follow(2);
        assert!(!second.send(6) && second.peers.next_deadline().is_some());
    }

    #[test]
    fn a_process_that_is_gone_says_nothing_of_its_successor() {
        let mut second = Second::new();
        second.follow(1);
        assert_eq!(second.learn(1, None), [0; 0]);
        second.follow(2);
        assert!(!second.send(1), "it waits");
        assert_eq!(second.learn(1, None), [0; 0], "late");
        assert_eq!(second.learn(2, None), [1]);
    }

    #[test]
    fn what_another_shard_sends_before_there_is_a_link_is_told_as_lost() {
        let mut second = Second::new();
        let greeting = PeerGreeting { versions: PeerVersions::OURS, shards: None };
        second.peers.note_missed(1);
        assert!(second.peers.send(1, greeting.encode(), &mut second.messenger).is_none());
        second.follow(1);
        let counterpart = Counterpart { addrs: addrs(1), port: None };
        assert!(second.peers.learn_counterpart(1, counterpart, &second.as_whom).is_incomplete);
    }

    #[test]
    fn what_finds_no_room_while_it_waits_is_told() {
        let mut second = Second::new();
        second.peers.link_max = 2;
        second.follow(1);
        (0..3).for_each(|tid| assert!(!second.send(tid)));
        let counterpart = Counterpart { addrs: addrs(1), port: None };
        assert!(second.peers.learn_counterpart(1, counterpart, &second.as_whom).is_incomplete);
    }
}
