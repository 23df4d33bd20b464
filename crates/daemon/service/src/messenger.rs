//! [`Messenger`]: drives messenger connections over sockets, for one thread.
//!
//! A turn reads all that is there, hands every event up, and after the owner has reacted writes each
//! connection's frames with as few system calls as possible. Lossless sessions of peers that dialled us are
//! kept here while they have no socket; those that we dialled go back to the owner, which dials again.

mod away;
mod conn;
mod half_open;
mod incoming;
mod intake;
mod outbox;
mod unsent;

use away::AwaySessions;
use conn::{Conn, Ending, read_some};
use half_open::HalfOpen;
pub use incoming::{ConnId, Incoming};
use intake::{FREE_FRAME_BYTES, Intake};
pub use intake::{IntakeLimits, IntakeReport};
use nacre_env::{ListenerId, Net, NetEvent, SocketId, TcpCounts};
use nacre_msgr::{
    Config, Connection, Event, Fault, Opening, RawMessage, Session, SessionAnswer, Target, Workspace,
};
use nacre_types::{AddrVec, AuthName, EntityKind, Entropy, Stamp, UTime};
use outbox::Outbox;
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use unsent::Unsent;

/// Events handed up in one turn, give or take what one socket gave at once: their owner must be able to say that it is
/// enough (see [`Messenger::set_paused`]) before all that a thousand clients have sent is in memory.
const EVENTS_MAX: usize = 256;
/// Connections at a time. Clients beyond it are turned away by closing.
const CONNECTIONS_MAX: usize = 60_000;

/// All connections of one thread.
pub struct Messenger {
    net: Box<dyn Net + Send>,
    conns: Slab<Conn>,
    by_socket: BTreeMap<SocketId, usize>,
    listeners: BTreeMap<ListenerId, Arc<Config>>,
    away: AwaySessions,
    events: Vec<NetEvent>,
    /// Slots with bytes left to read.
    ready: VecDeque<usize>,
    /// Slots with something to write.
    dirty: Vec<usize>,
    generation: u64,
    global_seq: u64,
    /// When connections are to be looked at: each is here once at most, at its deadline or earlier.
    deadlines: BTreeSet<(Stamp, ConnId)>,
    intake: Intake,
    half_open: HalfOpen,
    outbox: Outbox,
    /// Lent to the connection that is worked on.
    workspace: Workspace,
    now: Stamp,
    /// Closings found outside of a turn.
    closed: Vec<Incoming>,
}

impl Messenger {
    /// A messenger over `net`. `global_seq` must be larger than that of an earlier start under the same
    /// address; the calendar's seconds serve.
    #[must_use]
    pub fn new(net: Box<dyn Net + Send>, global_seq: u64) -> Self {
        Self {
            net,
            conns: Slab::new(),
            by_socket: BTreeMap::new(),
            listeners: BTreeMap::new(),
            away: AwaySessions::default(),
            events: Vec::new(),
            ready: VecDeque::new(),
            dirty: Vec::new(),
            generation: 0,
            global_seq,
            deadlines: BTreeSet::new(),
            intake: Intake::default(),
            half_open: HalfOpen::default(),
            outbox: Outbox::default(),
            workspace: Workspace::default(),
            now: Stamp::default(),
            closed: Vec::new(),
        }
    }

    /// Listens on `addr`. Peers are let in once [`Messenger::serve`] has said which daemon listens there.
    ///
    /// # Errors
    /// As the system says.
    pub fn listen(&mut self, addr: SocketAddr, shared: bool) -> io::Result<(ListenerId, SocketAddr)> {
        self.net.listen(addr, shared)
    }

    /// Sets as which daemon we answer peers that come in by `listener`.
    pub fn serve(&mut self, listener: ListenerId, config: Arc<Config>) {
        self.listeners.insert(listener, config);
    }

    /// Bounds what messages may hold that have begun and are not complete. Connections made before are not counted.
    pub fn limit_intake(&mut self, limits: IntakeLimits) {
        self.intake.limit(limits);
    }

    /// How it stands with messages that are not complete, and with peers that have not proved themselves.
    #[must_use]
    pub fn intake(&self) -> IntakeReport {
        let (half_open, half_open_bytes, half_open_refused) = self.half_open.sums();
        IntakeReport { half_open, half_open_bytes, half_open_refused, ..self.intake.report(self.now) }
    }

    /// Dials `target`, going on with `session` if there is one.
    ///
    /// # Errors
    /// When there is no socket to be had; failures to connect show as [`Incoming::Closed`].
    pub fn connect(
        &mut self,
        config: Arc<Config>,
        target: Target,
        session: Option<Session>,
        now: Stamp,
        entropy: &mut dyn Entropy,
    ) -> io::Result<ConnId> {
        let addr = target.addr.socket.ok_or(ErrorKind::AddrNotAvailable)?;
        let socket = self.net.connect(addr)?;
        let opening = self.opening(now, entropy);
        let peer_addrs = AddrVec::of(target.addr);
        let connection = match session {
            Some(session) => Connection::resume(config, target, session, opening),
            None => Connection::connect(config, target, opening),
        };
        Ok(self.add(socket, connection, None, (peer_addrs, None)))
    }

    fn opening(&mut self, now: Stamp, entropy: &mut dyn Entropy) -> Opening {
        self.global_seq += 1;
        Opening { now, global_seq: self.global_seq, cookie: entropy.u64().max(1) }
    }

    fn add(
        &mut self,
        socket: SocketId,
        mut connection: Connection,
        listener: Option<ListenerId>,
        (peer_addrs, half_open): (AddrVec, Option<IpAddr>),
    ) -> ConnId {
        self.generation += 1;
        if self.intake.is_limited() {
            connection.ask_for_room_above(FREE_FRAME_BYTES);
        }
        let entry = self.conns.vacant_entry();
        let slot = entry.key();
        let id = ConnId(self.generation << 32 | slot as u64);
        entry.insert(Conn {
            id,
            socket,
            connection,
            readable: false,
            ended: false,
            writable: false,
            paused: false,
            dirty: false,
            queued: false,
            peer_addrs,
            proved: None,
            listener,
            half_open,
            unsent: Unsent::default(),
            due: None,
        });
        self.by_socket.insert(socket, slot);
        self.account(slot);
        self.mark_dirty(slot);
        id
    }

    fn conn(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.conns.get_mut(id.slot()).filter(|conn| conn.id == id)
    }

    /// Whether a connection is still there. One that is gone takes no messages, also before its end is told.
    #[must_use]
    pub fn has(&self, id: ConnId) -> bool {
        self.conns.get(id.slot()).is_some_and(|conn| conn.id == id)
    }

    fn mark_dirty(&mut self, slot: usize) {
        if let Some(conn) = self.conns.get_mut(slot)
            && !conn.dirty
        {
            conn.dirty = true;
            self.dirty.push(slot);
        }
    }

    /// Queues `message`; false when the connection is gone or takes no more, and then it is closed.
    pub fn send(&mut self, id: ConnId, message: RawMessage) -> bool {
        let Some(conn) = self.conns.get_mut(id.slot()).filter(|conn| conn.id == id) else { return false };
        conn.connection.lend_to_send(&mut self.workspace);
        let sent = conn.connection.send(message);
        conn.connection.give_back_sent(&mut self.workspace);
        self.outbox.note(conn, self.now);
        match sent {
            Ok(()) => self.mark_dirty(id.slot()),
            Err(fault) => {
                self.drop_conn(id, fault.to_string());
                return false;
            }
        }
        true
    }

    /// Asks the peer for a sign of life.
    pub fn send_keepalive(&mut self, id: ConnId, wall: UTime) {
        self.drive(id, |connection| {
            connection.send_keepalive(wall);
            Ok(())
        });
    }

    /// Works on a connection, for instance to answer its authentication. A fault closes it. False when it is
    /// gone, before or after.
    pub fn drive(&mut self, id: ConnId, work: impl FnOnce(&mut Connection) -> Result<(), Fault>) -> bool {
        let Some(conn) = self.conn(id) else { return false };
        match work(&mut conn.connection) {
            Ok(()) => {
                // Answers may have let more of what was read be parsed.
                self.mark_dirty(id.slot());
                self.queue(id.slot());
                self.account(id.slot())
            }
            Err(fault) => {
                self.drop_conn(id, fault.to_string());
                false
            }
        }
    }

    /// Where the peer of a connection came in; `None` for one that we dialled, or that is gone.
    #[must_use]
    pub fn listener(&self, id: ConnId) -> Option<ListenerId> {
        self.conns.get(id.slot()).filter(|conn| conn.id == id)?.listener
    }

    /// Sets the entity that the peer that dialled us has proved to be. Only a peer that has proved itself goes on with a lossless session,
    /// and only with its own.
    pub fn set_proved(&mut self, id: ConnId, name: AuthName) {
        if let Some(conn) = self.conn(id) {
            conn.proved = Some(name);
        }
    }

    /// What the peer says it is, see [`Connection::peer_kind`].
    #[must_use]
    pub fn peer_kind(&self, id: ConnId) -> EntityKind {
        let conn = self.conns.get(id.slot()).filter(|conn| conn.id == id);
        conn.map_or_else(EntityKind::default, |conn| conn.connection.peer_kind())
    }

    /// What TCP tells of a connection, if it is still there.
    #[must_use]
    pub fn tcp_counts(&self, id: ConnId) -> Option<TcpCounts> {
        let conn = self.conns.get(id.slot()).filter(|conn| conn.id == id)?;
        self.net.tcp_counts(conn.socket)
    }

    /// Stops or goes on reading: how a full queue above pushes back on the peer.
    pub fn set_paused(&mut self, id: ConnId, paused: bool) {
        if let Some(conn) = self.conn(id) {
            conn.paused = paused;
            if !paused && (conn.readable || conn.connection.room_wanted().is_some()) {
                self.queue(id.slot());
            }
        }
    }

    /// Closes a connection without [`Incoming::Closed`].
    pub fn close(&mut self, id: ConnId) {
        self.take_conn(id);
    }

    /// Ends a connection as if the peer had: [`Incoming::Closed`] tells of it, and a lossless session is kept for when it comes again.
    pub fn end(&mut self, id: ConnId, reason: String) {
        self.drop_conn(id, reason);
    }

    /// Forgets the lossless sessions of all peers that are away: we go on under another name.
    pub fn forget_sessions(&mut self) {
        self.away.clear();
    }

    /// Closes a connection that we dialled, likewise, and yields the lossless session to go on with.
    pub fn hang_up(&mut self, id: ConnId) -> Option<Box<Session>> {
        self.take_conn(id)?.connection.into_session().map(Box::new)
    }

    /// Forgets the lossless session of a peer that will not come back under these addresses.
    pub fn forget_session(&mut self, peer: &AddrVec) {
        self.away.forget(peer);
    }

    fn take_conn(&mut self, id: ConnId) -> Option<Conn> {
        self.conn(id)?;
        let conn = self.conns.remove(id.slot());
        self.outbox.forget(&conn);
        self.by_socket.remove(&conn.socket);
        self.net.close(conn.socket);
        self.intake.forget(id);
        if let Some(from) = conn.half_open {
            self.half_open.forget(from, id);
        }
        if let Some(due) = conn.due {
            self.deadlines.remove(&(due, id));
        }
        Some(conn)
    }

    fn drop_conn(&mut self, id: ConnId, why: impl Into<Ending>) {
        let Ending { reason, refused } = why.into();
        let Some(conn) = self.take_conn(id) else { return };
        let (dialled, peer_addrs) = (conn.listener.is_none(), conn.peer_addrs);
        let session = conn.connection.into_session();
        let session = match session {
            Some(session) if !dialled => {
                if let Some(name) = conn.proved {
                    self.away.keep(name, peer_addrs, session);
                }
                None
            }
            session => session.map(Box::new),
        };
        self.closed.push(Incoming::Closed { conn: id, reason, refused, session });
    }

    /// One turn, beginning at `began`: waits until something happens or `deadline` (at most `timeout`), reads,
    /// and adds what came to `incoming`. Call [`Messenger::flush`] after reacting to it. Yields when the wait
    /// was over.
    ///
    /// # Errors
    /// When the system cannot wait for sockets any more; the daemon cannot go on then.
    pub fn turn(
        &mut self,
        began: Stamp,
        now: impl Fn() -> Stamp,
        timeout: Option<Duration>,
        entropy: &mut dyn Entropy,
        incoming: &mut Vec<Incoming>,
    ) -> io::Result<Stamp> {
        let timeout = self.timeout(began, timeout);
        let mut events = std::mem::take(&mut self.events);
        self.net.poll(timeout, &mut events)?;
        let now = now();
        self.now = now;
        for event in events.drain(..) {
            self.net_event(event, now, entropy);
        }
        self.events = events;
        self.read_ready(now, incoming);
        self.run_deadlines(now);
        self.give_room(now, incoming);
        incoming.append(&mut self.closed);
        Ok(now)
    }

    fn timeout(&self, now: Stamp, timeout: Option<Duration>) -> Option<Duration> {
        let own = self.next_deadline(now).map(|at| at.since(now));
        own.into_iter().chain(timeout).min()
    }

    /// When a turn is due even if nothing arrives: at once while bytes are left to read.
    #[must_use]
    pub fn next_deadline(&self, now: Stamp) -> Option<Stamp> {
        if !self.ready.is_empty() || !self.closed.is_empty() {
            return Some(now);
        }
        let first = self.deadlines.first().map(|(at, _)| *at);
        first.into_iter().chain(self.intake.next_deadline()).min()
    }

    fn net_event(&mut self, event: NetEvent, now: Stamp, entropy: &mut dyn Entropy) {
        match event {
            NetEvent::Accepted { listener, socket, peer } => {
                let Some(config) =
                    self.listeners.get(&listener).filter(|_| self.conns.len() < CONNECTIONS_MAX)
                else {
                    return self.net.close(socket);
                };
                let config = Arc::clone(config);
                let from = peer.ip().to_canonical();
                match self.half_open.admit(from) {
                    Ok(None) => (),
                    Ok(Some(oldest)) => {
                        self.drop_conn(oldest, "too many have not proved themselves".to_owned())
                    }
                    Err(half_open::TooMany) => return self.net.close(socket),
                }
                let opening = self.opening(now, entropy);
                let connection = Connection::accept(config, peer, opening);
                self.add(socket, connection, Some(listener), (AddrVec::default(), Some(from)));
            }
            NetEvent::Starved { .. } => {
                tracing::warn!(
                    connections = self.conns.len(),
                    "no file descriptors left: peers wait to be let in (raise the limit on open files)"
                );
            }
            NetEvent::Readable(socket) | NetEvent::Ended(socket) => {
                let Some(slot) = self.by_socket.get(&socket).copied() else { return };
                if let Some(conn) = self.conns.get_mut(slot) {
                    conn.readable = true;
                    conn.ended |= matches!(event, NetEvent::Ended(_));
                    self.queue(slot);
                }
            }
            NetEvent::Writable(socket) => {
                let Some(slot) = self.by_socket.get(&socket).copied() else { return };
                if let Some(conn) = self.conns.get_mut(slot) {
                    conn.writable = true;
                    // Each event says so, and most have nothing to write.
                    if conn.connection.wants_write() {
                        self.mark_dirty(slot);
                    }
                }
            }
        }
    }

    /// Lets a connection be read in its turn.
    fn queue(&mut self, slot: usize) {
        if let Some(conn) = self.conns.get_mut(slot).filter(|conn| !conn.queued) {
            conn.queued = true;
            self.ready.push_back(slot);
        }
    }

    fn read_ready(&mut self, now: Stamp, incoming: &mut Vec<Incoming>) {
        // A connection with more to read goes to the back; one that had no turn stays in front.
        for _ in 0..self.ready.len() {
            if incoming.len() >= EVENTS_MAX {
                return;
            }
            let Some(slot) = self.ready.pop_front() else { return };
            let Some(conn) = self.conns.get_mut(slot) else { continue };
            conn.queued = false;
            let id = conn.id;
            let ended = read_some(conn, self.net.as_mut(), (&mut self.intake, &mut self.workspace), now);
            let more = conn.may_read();
            let answers = conn.connection.wants_write();
            self.hand_up(id, incoming);
            if answers {
                self.mark_dirty(slot);
            }
            match ended {
                Err(reason) => self.drop_conn(id, reason),
                Ok(()) if more => self.queue(slot),
                Ok(()) => (),
            }
            self.account(slot);
        }
    }

    /// Keeps the books of a connection after something was done with it; false when it had to go.
    fn account(&mut self, slot: usize) -> bool {
        let Some(conn) = self.conns.get_mut(slot) else { return false };
        let id = conn.id;
        let due = conn.connection.next_deadline();
        if let Some(due) = due.filter(|due| conn.due.is_none_or(|listed| *due < listed)) {
            if let Some(listed) = conn.due.replace(due) {
                self.deadlines.remove(&(listed, id));
            }
            self.deadlines.insert((due, id));
        }
        let Some(from) = conn.half_open else { return true };
        if conn.connection.is_open() {
            conn.half_open = None;
            self.half_open.forget(from, id);
            return true;
        }
        let beyond = self.half_open.note(from, id, conn.connection.handshake_bytes());
        if beyond {
            self.drop_conn(id, "those that have not proved themselves hold too much".to_owned());
        }
        !beyond
    }

    /// Lets frames begin that have waited for room, now that there is some.
    fn give_room(&mut self, now: Stamp, incoming: &mut Vec<Incoming>) {
        for id in self.intake.check(now) {
            self.drop_conn(id, "a message is not completed while others wait for room".to_owned());
        }
        while let Some(id) = self.intake.next_admitted(now) {
            if self.drive(id, Connection::give_room) {
                self.hand_up(id, incoming);
            } else {
                self.intake.forget(id);
            }
        }
    }

    /// Moves a connection's events to `incoming` and answers requests for sessions.
    fn hand_up(&mut self, id: ConnId, incoming: &mut Vec<Incoming>) {
        while let Some(conn) = self.conn(id)
            && let Some(event) = conn.connection.next_event()
        {
            match event {
                Event::SessionRequest(request) => {
                    conn.peer_addrs = request.addrs.clone();
                    let answer = match self.take_session(id, request.kind, &request.addrs) {
                        Some(session) => SessionAnswer::Existing(Box::new(session)),
                        None => SessionAnswer::New,
                    };
                    if !self.drive(id, |connection| connection.answer_session(answer)) {
                        return;
                    }
                }
                event => incoming.push(Incoming::Event { conn: id, event }),
            }
        }
    }

    /// The session that a peer dialling anew goes on with: kept while it was away, or of a connection that
    /// has not noticed its end yet. Peers name their addresses themselves, and a peer that took a session away from another would reset
    /// it: so the session must be of the same entity, and of this kind.
    fn take_session(&mut self, newer: ConnId, kind: EntityKind, peer: &AddrVec) -> Option<Session> {
        let name = self.conn(newer)?.proved.clone().filter(|name| name.kind == kind)?;
        if let Some(session) = self.away.take(&name, peer) {
            return Some(session);
        }
        let older = self
            .conns
            .iter()
            .map(|(_, conn)| conn)
            .find(|conn| {
                conn.id != newer
                    && conn.listener.is_some()
                    && conn.peer_addrs == *peer
                    && conn.proved.as_ref() == Some(&name)
            })?
            .id;
        let conn = self.take_conn(older)?;
        let reason = "replaced by a newer connection of the same peer".to_owned();
        self.closed.push(Incoming::Closed { conn: older, reason, refused: false, session: None });
        conn.connection.into_session()
    }

    /// Looks at the connections that are due, and yields how many those were.
    fn run_deadlines(&mut self, now: Stamp) -> usize {
        let mut looked = 0;
        while let Some((at, id)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            self.deadlines.remove(&(at, id));
            looked += 1;
            let Some(conn) = self.conn(id) else { continue };
            conn.due = None;
            if let Err(fault) = conn.connection.tick(now) {
                self.drop_conn(id, fault.to_string());
                continue;
            }
            if conn.connection.wants_write() {
                self.mark_dirty(id.slot());
            }
            self.account(id.slot());
        }
        looked
    }
}

impl std::fmt::Debug for Messenger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Messenger({} connections, {} sessions away)", self.conns.len(), self.away.len())
    }
}

#[cfg(test)]
mod tests;
