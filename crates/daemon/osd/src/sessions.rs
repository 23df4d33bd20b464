//! [`Sessions`]: the connections that came in on a shard (handshakes under way, clients, other OSDs), and which clients are not read
//! because they have too much under way.

use crate::awaiting_memory::{AwaitingMemory, Room};
use crate::client_limits::{Limits, Taken};
use crate::shard_msg::session_id;
use nacre_auth::{
    AuthMethod, CapsError, ChangedCaps, Identity, Offer, OsdCaps, ServiceAuthContext, ServiceServer, Step,
    TicketForm, VoidTickets,
};
use nacre_buf::Bytes;
use nacre_msgr::Peer;
use nacre_pg::{Budget, Permit, Session, SessionId};
use nacre_service::{ConnId, Messenger, answer_auth};
use nacre_types::{AddrKind, AuthName, EntityAddr, EntityKind, EntityName, OsdId, UTime, features};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// Messages of one client that may be under way in PGs; with more its socket is not read.
pub(crate) const CLIENT_OPS_MAX: usize = 1024;

/// What a connection that came in has turned out to be.
#[derive(Debug)]
pub(crate) enum InboundPeer {
    /// Still proving its identity.
    Handshake(Box<ServiceServer>, Option<Identity>),
    /// A client, or a daemon acting as one (metadata server, manager), with what its messages hold.
    Client(Arc<Session>, Budget),
    /// Another OSD, whose PGs speak with ours.
    Peer(OsdId),
    /// Another OSD, at our listeners for heartbeats.
    HeartbeatPeer(OsdId),
}

/// What a peer sends to prove its identity.
#[derive(Debug)]
pub(crate) enum AuthFrame {
    /// Begins with a method.
    Request { method: u32, modes: Vec<u32>, payload: Bytes },
    /// A further frame of the method that was begun.
    More { payload: Bytes },
}

/// Connections that came in on one shard.
#[derive(Debug)]
pub(crate) struct Sessions {
    shard: usize,
    /// Methods of authentication that are accepted.
    methods: Vec<AuthMethod>,
    /// How the tickets are sealed that peers show.
    form: TicketForm,
    count: u64,
    inbound_peers: BTreeMap<ConnId, InboundPeer>,
    conns: BTreeMap<SessionId, ConnId>,
    /// Whose ticket a connection was opened with, and when that was made.
    tickets: BTreeMap<ConnId, (AuthName, UTime)>,
    /// Clients whose sockets are not read for now.
    paused: BTreeSet<ConnId>,
    /// The client whose message took the last room: those behind it are read first when there is some again.
    last: ConnId,
    /// What the messages of all clients of this shard hold; each client has a part of it.
    budget: Budget,
    limits: Limits,
    /// Times that all clients had to wait for messages to be answered, and for memory.
    waits: (u64, u64),
}

impl Sessions {
    pub(crate) fn new(shard: usize, methods: Vec<AuthMethod>, form: TicketForm) -> Self {
        Self {
            shard,
            methods,
            form,
            count: 0,
            inbound_peers: BTreeMap::new(),
            conns: BTreeMap::new(),
            tickets: BTreeMap::new(),
            paused: BTreeSet::new(),
            last: ConnId::default(),
            budget: Budget::default(),
            limits: Limits::default(),
            waits: (0, 0),
        }
    }

    /// Sets how much of all clients may be under way, and how much of what each leaves lying counts for others.
    pub(crate) fn set_limits(&mut self, limits: Limits, messenger: &mut Messenger) {
        self.limits = limits;
        messenger.share_unsent(limits.share());
    }

    pub(crate) fn conn(&self, session: SessionId) -> Option<ConnId> {
        self.conns.get(&session).copied()
    }

    pub(crate) fn inbound_peer(&self, conn: ConnId) -> Option<&InboundPeer> {
        self.inbound_peers.get(&conn)
    }

    /// One authentication frame of a connection that came in; the answer goes out at once. A new one gets `offer`'s modes.
    pub(crate) fn authenticate(
        &mut self,
        conn: ConnId,
        frame: AuthFrame,
        offer: Offer,
        cx: &mut ServiceAuthContext<'_>,
        messenger: &mut Messenger,
    ) {
        let fresh = || {
            let offer = offer.with_methods(&self.methods);
            InboundPeer::Handshake(Box::new(ServiceServer::new(EntityKind::OSD, self.form, offer)), None)
        };
        let InboundPeer::Handshake(server, identity) = self.inbound_peers.entry(conn).or_insert_with(fresh)
        else {
            return messenger.close(conn);
        };
        let step = match frame {
            AuthFrame::Request { method, modes, payload } => server.request(cx, method, &modes, payload),
            AuthFrame::More { payload } => server.more(cx, payload),
        };
        if let Step::Done(done) = &step {
            *identity = Some(done.identity.clone());
            messenger.set_proved(conn, done.identity.name.clone());
        }
        if let Step::Bad(refusal) = &step {
            tracing::info!(?conn, reason = %refusal.reason, "authorizer refused");
        }
        messenger.drive(conn, |connection| answer_auth(connection, step));
    }

    /// The OSD that has proved itself on a connection whose handshake is not complete yet.
    pub(crate) fn peer_in_handshake(&self, conn: ConnId) -> Option<OsdId> {
        match self.inbound_peers.get(&conn)? {
            InboundPeer::Handshake(_, Some(identity)) if identity.name.kind == EntityKind::OSD => {
                identity.name.id.parse().ok()
            }
            _ => None,
        }
    }

    /// A handshake is complete. What the peer says it is must be what it has proved to be.
    pub(crate) fn established(&mut self, conn: ConnId, peer: &Peer, pings: bool) -> Result<(), &'static str> {
        let Some(InboundPeer::Handshake(_, Some(identity))) = self.inbound_peers.remove(&conn) else {
            return Err("no identity was proved");
        };
        // Modules of Ceph's manager are clients with a manager's ticket.
        let is_client = peer.kind == EntityKind::CLIENT && identity.name.kind != EntityKind::OSD;
        if identity.name.kind != peer.kind && !is_client {
            return Err("is of another kind than its ticket says");
        }
        if let Some(created) = identity.created {
            self.tickets.insert(conn, (identity.name.clone(), created));
        }
        let inbound_peer = match peer.kind {
            EntityKind::OSD => {
                let claimed = OsdId::try_from(peer.gid).map_err(|_| "OSD number out of range")?;
                if identity.name.id != claimed.to_string() {
                    return Err("is another OSD than its ticket says");
                }
                if pings { InboundPeer::HeartbeatPeer(claimed) } else { InboundPeer::Peer(claimed) }
            }
            _ if pings => return Err("only OSDs send heartbeats"),
            _ => InboundPeer::Client(self.open(conn, peer, &identity)?, self.budget.part()),
        };
        self.inbound_peers.insert(conn, inbound_peer);
        Ok(())
    }

    fn open(&mut self, conn: ConnId, peer: &Peer, identity: &Identity) -> Result<Arc<Session>, &'static str> {
        self.count += 1;
        let id = session_id::make(self.shard, self.count);
        let addr = peer.addrs.front().with_kind(AddrKind::Any);
        let name = EntityName { kind: peer.kind, number: identity.global_id.cast_signed() };
        let seen_at = EntityAddr { socket: peer.seen_at.socket, ..addr };
        let caps = caps_at(identity.osd_caps(), &identity.caps, &identity.name, &seen_at);
        self.conns.insert(id, conn);
        let backs_off = peer.features & features::RADOS_BACKOFF == features::RADOS_BACKOFF;
        Ok(Arc::new(Session { id, name, addr, seen_at, caps, backs_off }))
    }

    /// Whose session it is, while it lasts.
    pub(crate) fn client(&self, session: SessionId) -> Option<&Session> {
        match self.inbound_peers.get(self.conns.get(&session)?)? {
            InboundPeer::Client(session, _) => Some(session),
            _ => None,
        }
    }

    /// The sessions of all clients.
    pub(crate) fn clients(&self) -> Vec<SessionId> {
        self.conns.keys().copied().collect()
    }

    /// Connections of other OSDs.
    pub(crate) fn of_osds(&self) -> Vec<ConnId> {
        let of_osd = |inbound_peer: &InboundPeer| {
            matches!(inbound_peer, InboundPeer::Peer(_) | InboundPeer::HeartbeatPeer(_))
        };
        self.inbound_peers
            .iter()
            .filter(|(_, inbound_peer)| of_osd(inbound_peer))
            .map(|(conn, _)| *conn)
            .collect()
    }

    /// Connections that were opened with tickets that hold no more.
    pub(crate) fn with_void_tickets(&self, void: &VoidTickets) -> Vec<ConnId> {
        let is_void = |(_, (name, created)): &(&ConnId, &(AuthName, UTime))| void.has(name, *created);
        self.tickets.iter().filter(is_void).map(|(conn, _)| *conn).collect()
    }

    /// Sessions go on with the caps that their entities have by now, from the next message on: those under way hold the session as
    /// it was when they came.
    pub(crate) fn take_over_caps(&mut self, changed: &ChangedCaps) {
        for (conn, (name, created)) in &self.tickets {
            let Some(text) = changed.of(name, *created) else { continue };
            let Some(InboundPeer::Client(session, _)) = self.inbound_peers.get_mut(conn) else { continue };
            let caps = caps_at(OsdCaps::parse(text), text, name, &session.seen_at);
            if caps != session.caps {
                tracing::info!(client = %session.name, entity = %name, "its session goes on with other caps");
                *session = Arc::new(Session { caps, ..Session::clone(session) });
            }
        }
    }

    /// Forgets a connection and yields what it was.
    pub(crate) fn close(&mut self, conn: ConnId) -> Option<InboundPeer> {
        let inbound_peer = self.inbound_peers.remove(&conn);
        self.tickets.remove(&conn);
        if let Some(InboundPeer::Client(session, _)) = &inbound_peer {
            self.conns.remove(&session.id);
        }
        self.paused.remove(&conn);
        inbound_peer
    }

    /// Whether a message of a client may come to take so many `bytes` more. What messages bring is not asked about: they have that memory
    /// already.
    pub(crate) fn room(&self, session: SessionId, bytes: usize, messenger: &Messenger) -> Room {
        if bytes == 0 {
            return Room::There;
        }
        let conn = self.conns.get(&session).copied();
        let own = match conn.and_then(|conn| self.inbound_peers.get(&conn)) {
            Some(InboundPeer::Client(_, budget)) => budget.expected_bytes(),
            _ => 0,
        };
        let own_unsent = conn.map_or(0, |conn| messenger.queued_bytes(conn));
        self.limits.room(bytes, own.saturating_add(own_unsent), self.taken(messenger))
    }

    /// Whether there are answers that the client has not taken.
    pub(crate) fn owes(&self, session: SessionId, messenger: &Messenger) -> bool {
        self.conns.get(&session).is_some_and(|conn| messenger.queued_bytes(*conn) > 0)
    }

    /// What a message of so many bytes counts for by itself.
    pub(crate) fn own_cost(&self, bytes: usize) -> usize {
        self.limits.own_cost(bytes)
    }

    /// What a message counts for that may come to take so many bytes.
    pub(crate) fn cost(&self, bytes: usize) -> usize {
        self.limits.cost(bytes)
    }

    /// Whether messages that waited for memory may go on, as far as their number is concerned; so many wait.
    pub(crate) fn takes_more(&self, waiting: usize) -> bool {
        self.budget.held_messages().saturating_sub(waiting) < self.limits.messages
    }

    /// A client's message came and holds `permit`: stops reading the client if it has too much under way, and all of them if they
    /// have together, those not counted that wait for memory. A client whose message `waits` for that is not read, either; `waiting` of
    /// all clients do.
    pub(crate) fn throttle(
        &mut self,
        conn: ConnId,
        permit: &Permit,
        (waits, waiting): (bool, usize),
        messenger: &mut Messenger,
    ) {
        if (waits || permit.held_messages() >= CLIENT_OPS_MAX) && self.paused.insert(conn) {
            messenger.set_paused(conn, true);
        }
        let under_way = self.budget.held_messages().saturating_sub(waiting);
        let many = under_way >= self.limits.messages;
        let large = self.limits.is_too_much(self.budget.held_bytes(), self.taken(messenger));
        if many || large {
            self.last = conn;
            self.waits.0 += u64::from(many);
            self.waits.1 += u64::from(large);
            for conn in self.conns.values() {
                if self.paused.insert(*conn) {
                    messenger.set_paused(*conn, true);
                }
            }
        }
    }

    /// What clients take beside their messages themselves.
    fn taken(&self, messenger: &Messenger) -> Taken {
        Taken {
            expected: self.budget.expected_bytes(),
            unsent: messenger.unsent_client_bytes(),
            shared: messenger.shared_unsent_bytes(),
        }
    }

    /// Whether several clients are not read, and would be if answers had been taken.
    pub(crate) fn is_full_of_unsent(&self, messenger: &Messenger) -> bool {
        let own = self.budget.held_bytes();
        self.conns.len() > 1 && self.limits.is_full_of_unsent(own, self.taken(messenger))
    }

    /// Messages of clients that are under way, in PGs or on the way to them.
    pub(crate) fn ops_in_flight(&self) -> usize {
        self.budget.held_messages()
    }

    /// How much is under way, in the shape of Ceph's `throttle-osd_client_messages` and `throttle-osd_client_bytes`.
    pub(crate) fn dump_throttles(&self) -> [serde_json::Value; 2] {
        fn dump(held: usize, max: usize, waits: u64) -> serde_json::Value {
            serde_json::json!({ "val": held, "max": max, "wait": { "avgcount": waits } })
        }
        let (budget, limits) = (&self.budget, &self.limits);
        [
            dump(budget.held_messages(), limits.messages, self.waits.0),
            dump(budget.held_bytes() + budget.expected_bytes(), limits.bytes, self.waits.1),
        ]
    }

    /// Reads clients again whose messages have been answered, and do not wait for memory.
    pub(crate) fn unthrottle(&mut self, awaiting: &AwaitingMemory, messenger: &mut Messenger) {
        if self.paused.is_empty() {
            return;
        }
        // With some room again, or the sockets would be taken out of the poll and put back for each message.
        let under_way = self.budget.held_messages().saturating_sub(awaiting.count());
        let messages_max = self.limits.messages - self.limits.messages.div_ceil(4);
        let bytes = self.limits.bytes;
        let with_room = Limits { bytes: bytes - bytes.div_ceil(16), ..self.limits };
        let too_much = with_room.is_too_much(self.budget.held_bytes(), self.taken(messenger));
        if under_way > messages_max || too_much {
            return;
        }
        let busy = |session: &Session, budget: &Budget| {
            budget.held_messages() > CLIENT_OPS_MAX / 2 || awaiting.holds(session.id)
        };
        let behind = self.paused.range((Bound::Excluded(self.last), Bound::Unbounded));
        let in_turn: Vec<ConnId> = behind.chain(self.paused.range(..=self.last)).copied().collect();
        for conn in in_turn {
            let is_busy = match self.inbound_peers.get(&conn) {
                Some(InboundPeer::Client(session, budget)) => busy(session, budget),
                _ => false,
            };
            if !is_busy {
                self.paused.remove(&conn);
                messenger.set_paused(conn, false);
            }
        }
    }
}

/// Caps as they hold for a client at that address. An entity without rights here is let in and told so: turned away, it would dial for
/// ever.
fn caps_at(parsed: Result<OsdCaps, CapsError>, text: &str, name: &AuthName, seen_at: &EntityAddr) -> OsdCaps {
    let caps = parsed.unwrap_or_else(|error| {
        if !text.is_empty() {
            tracing::warn!(%name, %error, "caps do not parse; the session may do nothing");
        }
        OsdCaps::none()
    });
    caps.at(seen_at.socket.map(|socket| socket.ip().to_canonical()))
}

#[cfg(test)]
impl Sessions {
    /// A client is there, whoever it is.
    pub(crate) fn let_in(&mut self, conn: ConnId, number: u64) {
        let (id, addr) = (SessionId(number), EntityAddr::default());
        let (name, caps) = (EntityName::client(number), OsdCaps::none());
        let session = Session { id, name, addr, seen_at: addr, caps, backs_off: true };
        self.conns.insert(id, conn);
        self.inbound_peers.insert(conn, InboundPeer::Client(Arc::new(session), self.budget.part()));
    }

    /// Clients that are not read.
    pub(crate) fn paused(&self) -> Vec<ConnId> {
        self.paused.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_env::real::RealNet;

    fn messenger() -> Messenger {
        Messenger::new(Box::new(RealNet::new().expect("an epoll")), 1)
    }

    /// Two clients, on connections 1 and 2.
    fn sessions() -> Sessions {
        let mut sessions = Sessions::new(0, Vec::new(), TicketForm::Sealed);
        sessions.let_in(ConnId(1), 1);
        sessions.let_in(ConnId(2), 2);
        sessions
    }

    /// Messages of 100 bytes come.
    fn take(sessions: &mut Sessions, conn: ConnId, count: usize, messenger: &mut Messenger) -> Vec<Permit> {
        let Some(InboundPeer::Client(_, budget)) = sessions.inbound_peer(conn) else { panic!("a client") };
        let budget = budget.clone();
        let take = |_| {
            let permit = budget.take(100);
            sessions.throttle(conn, &permit, (false, 0), messenger);
            permit
        };
        (0..count).map(take).collect()
    }

    #[test]
    fn a_client_above_its_limit_is_not_read_until_half_of_it_is_answered() {
        let (mut sessions, mut messenger) = (sessions(), messenger());
        let mut held = take(&mut sessions, ConnId(1), CLIENT_OPS_MAX - 1, &mut messenger);
        assert!(sessions.paused.is_empty());
        held.extend(take(&mut sessions, ConnId(1), 1, &mut messenger));
        assert_eq!(Vec::from_iter(&sessions.paused), [&ConnId(1)], "the other client is read");
        assert_eq!(sessions.ops_in_flight(), CLIENT_OPS_MAX);
        held.truncate(CLIENT_OPS_MAX / 2 + 1);
        sessions.unthrottle(&AwaitingMemory::default(), &mut messenger);
        assert!(!sessions.paused.is_empty());
        held.truncate(CLIENT_OPS_MAX / 2);
        sessions.unthrottle(&AwaitingMemory::default(), &mut messenger);
        assert!(sessions.paused.is_empty());
    }

    #[test]
    fn all_clients_together_have_limits_as_well() {
        for limits in
            [Limits { messages: 8, ..Limits::default() }, Limits { bytes: 799, ..Limits::default() }]
        {
            let (mut sessions, mut messenger) = (sessions(), messenger());
            sessions.set_limits(limits, &mut messenger);
            let mut held = take(&mut sessions, ConnId(1), 7, &mut messenger);
            assert!(sessions.paused.is_empty(), "{limits:?}");
            held.extend(take(&mut sessions, ConnId(2), 1, &mut messenger));
            assert_eq!(sessions.paused.len(), 2, "{limits:?}");
            held.truncate(5);
            sessions.unthrottle(&AwaitingMemory::default(), &mut messenger);
            assert!(sessions.paused.is_empty(), "{limits:?}");
        }
    }

    #[test]
    fn a_client_whose_message_waits_for_memory_is_not_read_and_others_are() {
        let (mut sessions, mut messenger) = (sessions(), messenger());
        sessions.set_limits(Limits { messages: 4, ..Limits::default() }, &mut messenger);
        let held = take(&mut sessions, ConnId(1), 3, &mut messenger);
        sessions.throttle(ConnId(1), &held[2], (true, 3), &mut messenger);
        assert_eq!(Vec::from_iter(&sessions.paused), [&ConnId(1)]);
        let other = Permit::default();
        sessions.throttle(ConnId(2), &other, (false, 3), &mut messenger);
        assert_eq!(sessions.paused.len(), 1, "those that wait are not under way");
        drop(held);
        sessions.unthrottle(&AwaitingMemory::default(), &mut messenger);
        assert!(sessions.paused.is_empty());
    }

    /// Bytes of the limit in these tests; a share is a quarter.
    const MAX: usize = 4000;

    fn limits() -> Limits {
        Limits { bytes: MAX, ..Limits::default() }
    }

    #[test]
    fn one_client_that_asks_for_much_leaves_room_to_others() {
        let (mut sessions, mut messenger) = (sessions(), messenger());
        sessions.set_limits(limits(), &mut messenger);
        let room = |sessions: &Sessions, client, bytes| sessions.room(SessionId(client), bytes, &messenger);
        assert_eq!(room(&sessions, 1, 1 << 30), Room::There, "whatever it is, where there is nothing else");
        let mut held = take(&mut sessions, ConnId(1), 1, &mut self::messenger());
        held[0].expect(800);
        assert_eq!([room(&sessions, 1, 200), room(&sessions, 1, 201)], [Room::There, Room::NotForClient]);
        assert_eq!(room(&sessions, 1, 0), Room::There);
        held[0].expect(3000);
        assert_eq!(room(&sessions, 2, 1 << 30), Room::There, "none counts for more than a share");
        held[0].expect(3001);
        assert_eq!([room(&sessions, 2, 999), room(&sessions, 2, 1000)], [Room::There, Room::NotForAll]);
    }

    #[test]
    fn what_a_client_writes_does_not_count_against_what_it_reads() {
        let (mut sessions, mut messenger) = (sessions(), messenger());
        sessions.set_limits(limits(), &mut messenger);
        let held = take(&mut sessions, ConnId(1), 30, &mut self::messenger());
        assert_eq!(sessions.room(SessionId(1), 1000, &messenger), Room::There);
        drop(held);
    }

    /// A ping of a watch, or the acknowledgement of a notification, would come too late.
    #[test]
    fn what_asks_for_nothing_waits_for_nobody() {
        let (mut sessions, mut messenger) = (sessions(), messenger());
        sessions.set_limits(limits(), &mut messenger);
        let mut held = take(&mut sessions, ConnId(1), 100, &mut self::messenger());
        held[0].expect(MAX);
        assert_eq!(sessions.room(SessionId(2), 0, &messenger), Room::There);
        assert_eq!(sessions.room(SessionId(2), 1, &messenger), Room::NotForAll);
    }

    /// A notification's acknowledgement may wait behind a read, and the notification for its acknowledgement.
    #[test]
    fn what_a_client_has_under_way_for_long_does_not_hold_up_all_else_that_it_asks_for() {
        let (mut sessions, mut messenger) = (sessions(), messenger());
        sessions.set_limits(limits(), &mut messenger);
        let mut notify = take(&mut sessions, ConnId(1), 1, &mut messenger);
        notify[0].expect(100);
        assert_eq!(sessions.room(SessionId(1), 1 << 30, &messenger), Room::There);
    }

    #[test]
    fn a_read_to_the_end_of_an_object_that_waits_in_its_pg_stops_nobody() {
        let (mut sessions, mut messenger) = (sessions(), messenger());
        sessions.set_limits(limits(), &mut messenger);
        let mut held = take(&mut sessions, ConnId(1), 1, &mut messenger);
        held[0].expect(sessions.cost(128 << 20));
        held.extend(take(&mut sessions, ConnId(2), 29, &mut messenger));
        assert_eq!(sessions.room(SessionId(2), 1000, &messenger), Room::There);
        assert!(sessions.paused.is_empty());
    }

    #[test]
    fn messages_that_waited_for_memory_keep_to_their_number() {
        let (mut sessions, mut messenger) = (sessions(), messenger());
        sessions.set_limits(Limits { messages: 4, ..Limits::default() }, &mut messenger);
        let mut held = take(&mut sessions, ConnId(1), 6, &mut messenger);
        assert!(sessions.takes_more(3) && !sessions.takes_more(2));
        held.truncate(5);
        assert!(sessions.takes_more(2));
    }

    /// Other rights make another session: what came before must count all the same.
    #[test]
    fn messages_count_although_the_session_has_other_caps_meanwhile() {
        let (mut sessions, mut messenger) = (sessions(), messenger());
        let held = take(&mut sessions, ConnId(1), 3, &mut messenger);
        if let Some(InboundPeer::Client(session, _)) = sessions.inbound_peers.get_mut(&ConnId(1)) {
            *session = Arc::new(Session { caps: OsdCaps::allow_all(), ..Session::clone(session) });
        }
        assert_eq!(sessions.ops_in_flight(), 3);
        assert!(sessions.close(ConnId(1)).is_some());
        assert_eq!(sessions.ops_in_flight(), 3, "they are in the PGs until these hear of it");
        drop(held);
        assert_eq!(sessions.ops_in_flight(), 0);
    }
}
