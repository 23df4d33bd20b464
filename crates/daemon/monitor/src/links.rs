//! [`Links`]: the connections between this monitor and the others.
//!
//! Every monitor dials every other one and speaks on the connection that it dialled; on those that come in it listens. They are lossy: what
//! was under way when one ended is lost, which the log's algorithm expects, and sessions that went over it end ([`LinkEvent::Lost`]). Both
//! sides have proved that they know the key of `mon.` and which member of the log they are; where another member is reached follows from the
//! monitors' map, or, as long as our tables do not know of it, from its own word.

use crate::link_msg::{Facts, Greeting, LinkMsg};
use nacre_auth::{Authorizer, CryptoKey, MonLinkAuth, MonLinkInput, Step, dial_monitor};
use nacre_msg::RawMessage;
use nacre_msgr::{Config, Event, Peer, Target};
use nacre_quorum::NodeId;
use nacre_service::{ConnId, Messenger, answer_auth};
use nacre_types::{EntityAddr, EntityKind, Entropy, Stamp, UTime};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A handshake between monitors that takes longer is given up.
const HANDSHAKE_MAX: Duration = Duration::from_secs(2);
/// Pause before another try after one that failed, at first; doubled each time. A connection that was open is dialled again at once.
const REDIAL_DELAY: Duration = Duration::from_millis(20);
/// And at last.
const REDIAL_DELAY_MAX: Duration = Duration::from_secs(1);
/// A monitor that has said nothing for so long although it is connected is dialled anew: the wire may be cut without a word.
const SILENT_MAX: Duration = Duration::from_secs(5);
/// Bytes that may wait for one monitor; what is more is not sent. One message of the largest kind always finds room.
const QUEUED_BYTES_MAX: usize = 64 << 20;
const _: () = assert!(2 * nacre_mon::RESUME_BYTES_MAX <= QUEUED_BYTES_MAX, "all sessions are told at once");
/// Time between two lines in the log about monitors that cannot prove that they are of this cluster.
const STRANGERS_APART: Duration = Duration::from_secs(600);
/// Handshakes of monitors at a time.
const ACCEPTING_MAX: usize = 64;

/// What came over links.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// Both directions are open.
    Up(NodeId),
    /// A monitor said something.
    Said(NodeId, Box<LinkMsg>),
    /// What was under way from or to a monitor is lost.
    Lost(NodeId),
    /// Nobody listens at a monitor's address: its process has ended.
    Refused(NodeId),
    /// The cluster was made anew from another monitor's store, and is of this incarnation now.
    Outdated(u64),
}

/// Where another monitor is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Name of the monitor, such as `b`.
    pub(crate) name: String,
    /// Where it listens.
    pub(crate) addr: EntityAddr,
}

/// What is at hand where links work.
pub(crate) struct LinkCx<'a> {
    pub(crate) now: Stamp,
    pub(crate) wall: UTime,
    pub(crate) entropy: &'a mut dyn Entropy,
    pub(crate) messenger: &'a mut Messenger,
    /// Key of `mon.`, as our tables have it.
    pub(crate) key: Option<&'a CryptoKey>,
}

/// The way to one other monitor, and from it.
#[derive(Debug)]
struct Link {
    place: Place,
    /// Our tables name it.
    is_named: bool,
    /// Where it says that it listens, which differs from the place while one of us does not know that it has moved.
    says: Option<EntityAddr>,
    /// The connection that we dialled.
    dialled: Option<ConnId>,
    authorizer: Option<Authorizer>,
    /// The one that we dialled takes messages.
    is_open: bool,
    redial_at: Stamp,
    failures: u32,
    /// The connection that came in.
    accepted: Option<ConnId>,
    /// It has said Hello on that one.
    is_greeted: bool,
    /// It has, since we lost it last: it is dialled at once then.
    has_met: bool,
    /// The log says what is wrong with it; once is enough until it is one of ours, for it comes again every second.
    is_told: bool,
    heard_at: Stamp,
}

impl Link {
    fn new(place: Place, now: Stamp) -> Self {
        Self {
            place,
            is_named: false,
            says: None,
            dialled: None,
            authorizer: None,
            is_open: false,
            redial_at: now,
            failures: 0,
            accepted: None,
            is_greeted: false,
            has_met: false,
            is_told: false,
            heard_at: now,
        }
    }

    /// Where to dial: in turn where our tables have it and where it says that it is.
    fn addr(&self) -> EntityAddr {
        self.says.filter(|_| !self.failures.is_multiple_of(2)).unwrap_or(self.place.addr)
    }

    /// True when the log is to say what is wrong with it.
    fn is_to_be_told(&mut self) -> bool {
        !std::mem::replace(&mut self.is_told, true)
    }

    /// Nobody needs the way to it any more.
    fn is_over(&self) -> bool {
        !self.is_named && self.accepted.is_none()
    }

    fn is_up(&self) -> bool {
        self.is_open && self.is_greeted
    }
}

/// All of them.
pub(crate) struct Links {
    own: NodeId,
    name: String,
    greeting: Greeting,
    /// What this monitor says of itself.
    facts: Facts,
    config: Arc<Config>,
    links: BTreeMap<NodeId, Link>,
    accepting: BTreeMap<ConnId, MonLinkAuth>,
    /// Connections that came in and have proved themselves, until they are established.
    proved: BTreeMap<ConnId, (NodeId, String)>,
    /// When a stranger was last told of in the log: it comes again every second.
    stranger_at: Option<Stamp>,
    events: Vec<LinkEvent>,
}

impl Links {
    /// Those of the monitor `name`, which dials as `config` says and greets the others so; to nobody yet.
    pub(crate) fn new(own: NodeId, name: &str, greeting: Greeting, facts: Facts, config: &Config) -> Self {
        let config = Config { handshake_timeout: HANDSHAKE_MAX, ..config.clone() };
        Self {
            own,
            name: name.to_owned(),
            greeting,
            facts,
            config: Arc::new(config),
            links: BTreeMap::new(),
            accepting: BTreeMap::new(),
            proved: BTreeMap::new(),
            stranger_at: None,
            events: Vec::new(),
        }
    }

    /// The other monitors are these by now. Links to others end, but for those that are in use: our tables may be old.
    pub(crate) fn follow(&mut self, places: &BTreeMap<NodeId, Place>, now: Stamp, messenger: &mut Messenger) {
        for (id, place) in places.iter().filter(|(id, _)| **id != self.own) {
            let link = self.links.entry(*id).or_insert_with(|| Link::new(place.clone(), now));
            if link.place != *place {
                link.place = place.clone();
                // By the open one it hears that it has moved: it may listen nowhere else yet.
                if !link.is_open {
                    link.dialled.take().into_iter().for_each(|conn| messenger.close(conn));
                    link.redial_at = now;
                }
            }
        }
        for (id, link) in &mut self.links {
            link.is_named = places.contains_key(id);
        }
        self.drop_those_that_are_over(messenger);
    }

    fn drop_those_that_are_over(&mut self, messenger: &mut Messenger) {
        for (_, link) in self.links.extract_if(.., |_, link| link.is_over()) {
            link.dialled.into_iter().for_each(|conn| messenger.close(conn));
        }
    }

    /// True when there are other monitors.
    pub(crate) fn has_any(&self) -> bool {
        !self.links.is_empty()
    }

    /// The other monitors that are known.
    pub(crate) fn members(&self) -> Vec<NodeId> {
        self.links.keys().copied().collect()
    }

    /// True when no connection with a monitor is open, in either direction.
    pub(crate) fn is_cut(&self, id: NodeId) -> bool {
        self.links.get(&id).is_none_or(|link| !link.is_open && link.accepted.is_none())
    }

    /// True when both directions are open.
    pub(crate) fn is_up(&self, id: NodeId) -> bool {
        self.links.get(&id).is_some_and(Link::is_up)
    }

    /// What happened since the last look.
    pub(crate) fn take_events(&mut self) -> Vec<LinkEvent> {
        std::mem::take(&mut self.events)
    }

    /// True when the connection is between monitors.
    pub(crate) fn has(&self, conn: ConnId) -> bool {
        let is_links = |link: &Link| link.dialled == Some(conn) || link.accepted == Some(conn);
        self.accepting.contains_key(&conn)
            || self.proved.contains_key(&conn)
            || self.links.values().any(is_links)
    }

    /// When something is due by itself.
    pub(crate) fn next_deadline(&self) -> Option<Stamp> {
        let waiting = self.links.values().filter(|link| link.dialled.is_none());
        let silent = self.links.values().filter(|link| link.is_open).map(|link| link.heard_at + SILENT_MAX);
        waiting.map(|link| link.redial_at).chain(silent).min()
    }

    /// Dials those that are due, and anew those that are silent.
    pub(crate) fn tick(&mut self, cx: &mut LinkCx<'_>) {
        for id in self.members() {
            let Some(link) = self.links.get_mut(&id) else { continue };
            if link.is_open && cx.now.since(link.heard_at) >= SILENT_MAX {
                tracing::info!(mon = link.place.name, "a monitor is silent; it is dialled anew");
                link.heard_at = cx.now;
                let ended = [link.dialled, link.accepted];
                ended.into_iter().flatten().for_each(|conn| self.end(conn, cx));
            }
            let Some(link) = self.links.get_mut(&id) else { continue };
            if link.dialled.is_none() && cx.now >= link.redial_at {
                self.dial(id, cx);
            }
        }
    }

    fn dial(&mut self, id: NodeId, cx: &mut LinkCx<'_>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let target = Target { addr: link.addr(), kind: EntityKind::MON, gid: self.config.gid };
        match cx.messenger.connect(Arc::clone(&self.config), target, None, cx.now, cx.entropy) {
            Ok(conn) => link.dialled = Some(conn),
            Err(error) => {
                tracing::warn!(mon = link.place.name, %error, "a monitor cannot be dialled");
                link.redial_at = cx.now + REDIAL_DELAY_MAX;
            }
        }
    }

    /// Sends to a monitor; false when it is not connected, or too much waits for it already.
    pub(crate) fn send(&mut self, id: NodeId, message: LinkMsg, messenger: &mut Messenger) -> bool {
        let Some(conn) = self.links.get(&id).filter(|link| link.is_open).and_then(|link| link.dialled) else {
            return false;
        };
        messenger.queued_bytes(conn) <= QUEUED_BYTES_MAX && messenger.send(conn, message.encode())
    }

    /// Bytes that wait for a monitor.
    pub(crate) fn queued_bytes(&self, id: NodeId, messenger: &Messenger) -> usize {
        let conn = self.links.get(&id).and_then(|link| link.dialled);
        conn.map_or(0, |conn| messenger.queued_bytes(conn))
    }

    /// Begins anew with a monitor to which something was lost although it is connected.
    pub(crate) fn reset(&mut self, id: NodeId, cx: &mut LinkCx<'_>) {
        if let Some(conn) = self.links.get(&id).and_then(|link| link.dialled) {
            self.end(conn, cx);
        }
    }

    /// Ends a connection from our side.
    fn end(&mut self, conn: ConnId, cx: &mut LinkCx<'_>) {
        cx.messenger.close(conn);
        self.closed(conn, false, cx);
    }

    /// A monitor that dials us opens its authentication.
    pub(crate) fn accept(&mut self, conn: ConnId, input: MonLinkInput, cx: &mut LinkCx<'_>) {
        let has_room = self.accepting.len() < ACCEPTING_MAX || self.accepting.contains_key(&conn);
        let Some(key) = cx.key.filter(|_| has_room) else {
            cx.messenger.close(conn);
            return;
        };
        let step = self.accepting.entry(conn).or_default().step(key, cx.wall, cx.entropy, input);
        match &step {
            Step::More(_) => (),
            Step::Done(done) => {
                let identity = &done.identity;
                self.accepting.remove(&conn);
                self.proved.insert(conn, (NodeId(identity.global_id), identity.name.id.clone()));
                cx.messenger.set_proved(conn, identity.name.clone());
            }
            Step::Bad(refusal) if self.stranger_at.is_none_or(|at| cx.now.since(at) >= STRANGERS_APART) => {
                self.stranger_at = Some(cx.now);
                tracing::warn!(
                    reason = %refusal.reason,
                    ours = %self.greeting.fsid,
                    "a monitor with another key of mon. dials this one and is refused: it is of another cluster, or its folder is an \
                     old copy; stop it, or give it a folder of this cluster"
                );
            }
            Step::Bad(_) => (),
        }
        cx.messenger.drive(conn, |connection| answer_auth(connection, step));
    }

    /// Takes in what a connection between monitors brings.
    pub(crate) fn connection_event(&mut self, conn: ConnId, event: Event, cx: &mut LinkCx<'_>) {
        let going_on = match event {
            Event::AuthRequest { .. } => false, // has its own way
            Event::AuthMore { payload } => {
                self.accept(conn, MonLinkInput::More(payload), cx);
                true
            }
            Event::Hello { .. } => self.introduce(conn, cx),
            Event::AuthReplyMore { payload } => {
                let more = |authorizer: &mut Authorizer| authorizer.more(&payload).ok();
                let answer = self.authorizer_of(conn).and_then(more);
                answer.is_some_and(|answer| cx.messenger.drive(conn, |c| c.auth_request_more(&answer)))
            }
            Event::AuthDone { mode, payload, .. } => {
                let keys = self.authorizer_of(conn).and_then(|it| it.done(mode, payload).ok());
                keys.is_some_and(|keys| {
                    cx.messenger.drive(conn, |c| c.auth_finish(&keys.session_key, &keys.connection_secret))
                })
            }
            Event::AuthBad { .. } => {
                let link = self.links.values_mut().find(|link| link.dialled == Some(conn));
                if let Some(link) = link
                    && link.is_to_be_told()
                {
                    tracing::warn!(
                        mon = link.place.name,
                        addr = %link.place.addr,
                        ours = %self.greeting.fsid,
                        "the monitor at this address does not accept our key of mon.: one of another cluster listens there, or its folder or ours \
                         is an old copy; stop it, or give it a folder of this cluster"
                    );
                }
                false
            }
            Event::Established(peer) => self.established(conn, &peer, cx),
            Event::Message(raw) => match LinkMsg::decode(raw) {
                Ok(message) => self.said(conn, message, cx.now),
                Err(error) => {
                    tracing::warn!(%error, "a message of another monitor does not decode");
                    false
                }
            },
            Event::SessionRequest(_) | Event::SessionReset { .. } | Event::KeepaliveAck(_) => true,
        };
        if !going_on {
            self.end(conn, cx);
        }
    }

    fn hello(&self) -> RawMessage {
        LinkMsg::Hello(self.greeting, self.facts.clone()).encode()
    }

    fn authorizer_of(&mut self, conn: ConnId) -> Option<&mut Authorizer> {
        self.links.values_mut().find(|link| link.dialled == Some(conn))?.authorizer.as_mut()
    }

    fn introduce(&mut self, conn: ConnId, cx: &mut LinkCx<'_>) -> bool {
        let Some(key) = cx.key else { return false };
        let Some(link) = self.links.values_mut().find(|link| link.dialled == Some(conn)) else {
            return true; // it dialled us
        };
        let authorizer = dial_monitor(key, &self.name, self.own.0, cx.wall, cx.entropy);
        let start = authorizer.start();
        link.authorizer = Some(authorizer);
        cx.messenger.drive(conn, |c| c.auth_start(start.method, &start.modes, &start.payload))
    }

    fn established(&mut self, conn: ConnId, peer: &Peer, cx: &mut LinkCx<'_>) -> bool {
        if let Some((id, link)) = self.links.iter_mut().find(|(_, link)| link.dialled == Some(conn)) {
            (link.is_open, link.heard_at, link.authorizer) = (true, cx.now, None);
            self.events.extend(link.is_up().then_some(LinkEvent::Up(*id)));
            return cx.messenger.send(conn, self.hello());
        }
        let Some((id, name)) = self.proved.remove(&conn) else { return false };
        if id == self.own {
            tracing::error!(
                mon = name,
                "another process runs on a copy of this monitor's folder; stop one of the two"
            );
            return false;
        }
        let Some(addr) = peer.addrs.msgr2().filter(|_| peer.kind == EntityKind::MON) else { return false };
        let link = self.links.entry(id).or_insert_with(|| Link::new(Place { name, addr }, cx.now));
        let before = link.accepted.replace(conn);
        (link.is_greeted, link.says) = (false, Some(addr));
        // It is there: no use to wait for the end of a pause.
        link.redial_at = cx.now;
        if let Some(before) = before {
            cx.messenger.close(before);
            self.events.push(LinkEvent::Lost(id));
        }
        true
    }

    /// A message on a connection that came in; a monitor says nothing on one that we dialled.
    fn said(&mut self, conn: ConnId, message: LinkMsg, now: Stamp) -> bool {
        let Some((id, link)) = self.links.iter_mut().find(|(_, link)| link.accepted == Some(conn)) else {
            return false;
        };
        link.heard_at = now;
        match message {
            LinkMsg::Hello(theirs, facts) => match meet(&self.greeting, &theirs) {
                Meeting::Fits => {
                    (link.is_greeted, link.has_met, link.failures) = (true, true, 0);
                    link.is_told = false;
                    self.events.push(LinkEvent::Said(*id, Box::new(LinkMsg::Hello(theirs, facts))));
                    self.events.extend(link.is_up().then_some(LinkEvent::Up(*id)));
                    true
                }
                Meeting::WeAreOutdated => {
                    self.events.push(LinkEvent::Outdated(theirs.incarnation));
                    true
                }
                // Our own greeting tells it.
                Meeting::ItIsOutdated => true,
                Meeting::Stranger(what) => {
                    if link.is_to_be_told() {
                        tracing::error!(mon = link.place.name, addr = %link.place.addr, ?theirs, "{what}");
                    }
                    false
                }
            },
            _ if !link.is_greeted => false,
            message => {
                self.events.push(LinkEvent::Said(*id, Box::new(message)));
                true
            }
        }
    }

    /// A connection has ended. `refused`: nobody listened where we dialled.
    pub(crate) fn closed(&mut self, conn: ConnId, refused: bool, cx: &mut LinkCx<'_>) {
        self.accepting.remove(&conn);
        self.proved.remove(&conn);
        let is_of = |link: &Link| link.dialled == Some(conn) || link.accepted == Some(conn);
        let Some((id, link)) = self.links.iter_mut().find(|(_, link)| is_of(link)) else { return };
        if link.accepted == Some(conn) {
            (link.accepted, link.is_greeted) = (None, false);
            self.events.push(LinkEvent::Lost(*id));
            self.drop_those_that_are_over(cx.messenger);
            return;
        }
        let was_open = std::mem::take(&mut link.is_open);
        (link.dialled, link.authorizer) = (None, None);
        if was_open {
            self.events.push(LinkEvent::Lost(*id));
        }
        if was_open && std::mem::take(&mut link.has_met) {
            link.redial_at = cx.now;
        } else {
            let delay = REDIAL_DELAY.saturating_mul(2_u32.saturating_pow(link.failures));
            link.redial_at = cx.now + delay.min(REDIAL_DELAY_MAX);
            link.failures = link.failures.saturating_add(1);
        }
        self.events.extend(refused.then_some(LinkEvent::Refused(*id)));
    }
}

/// What comes of another monitor's greeting.
#[derive(Debug, PartialEq, Eq)]
enum Meeting {
    /// Both are of one cluster.
    Fits,
    /// The cluster was made anew since our store was written.
    WeAreOutdated,
    /// And since that of the other.
    ItIsOutdated,
    /// It is none of ours; what an operator is told.
    Stranger(&'static str),
}

fn meet(ours: &Greeting, theirs: &Greeting) -> Meeting {
    if ours.fsid != theirs.fsid {
        return Meeting::Stranger("a monitor of another cluster; its folder or its address is the wrong one");
    }
    if theirs.version < ours.version_min {
        return Meeting::Stranger(
            "a monitor of a program that is too old for this one; install on its machine what runs here",
        );
    }
    if theirs.version_min > ours.version {
        return Meeting::Stranger(
            "a monitor of a program that this one is too old for; install here what runs on its machine",
        );
    }
    match theirs.incarnation.cmp(&ours.incarnation) {
        std::cmp::Ordering::Equal => Meeting::Fits,
        std::cmp::Ordering::Greater => Meeting::WeAreOutdated,
        std::cmp::Ordering::Less => Meeting::ItIsOutdated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::Uuid;

    #[test]
    fn monitors_of_another_cluster_program_or_incarnation_do_not_meet() {
        let ours = Greeting { version: 5, version_min: 4, ..Greeting::new(Uuid::from_random([7; 16]), 1) };
        assert_eq!(meet(&ours, &ours), Meeting::Fits);
        let with = |version, version_min| meet(&ours, &Greeting { version, version_min, ..ours });
        assert_eq!((with(4, 1), with(9, 5)), (Meeting::Fits, Meeting::Fits));
        assert!(matches!(with(3, 1), Meeting::Stranger(what) if what.contains("too old for this one")));
        assert!(matches!(with(9, 6), Meeting::Stranger(what) if what.contains("install here")));
        let of = |incarnation| meet(&ours, &Greeting { incarnation, ..ours });
        assert_eq!((of(0), of(2)), (Meeting::ItIsOutdated, Meeting::WeAreOutdated));
        // Whatever another cluster's monitor says besides.
        let other = Greeting { fsid: Uuid::from_random([8; 16]), incarnation: 9, ..ours };
        assert!(matches!(meet(&ours, &other), Meeting::Stranger(what) if what.contains("another cluster")));
    }
}
