//! [`Connection`]: the state machine over one socket. See the crate's head for a driver's turn.
//!
//! Invariants, verified by [`Connection::check`]: a state follows only its legal predecessors; a closed
//! connection has a fault; an open one has a session; handshakes are recorded until the keys are known and
//! never afterwards; a lossless session keeps exactly the unacknowledged messages; queued bytes add up.

mod auth;
mod ident;
mod open;
mod state;
#[cfg(test)]
mod tests;

use crate::frame::{Inbound, Receiver, Sender, Tag, Workspace};
use crate::{Config, Fault, ROUNDS_MAX, RawMessage, Session, SessionRequest};
use bytes::Bytes;
use nacre_denc::{Decode, Encode};
use nacre_types::{AddrVec, EntityAddr, EntityKind, Stamp, UTime};
use state::State;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;

/// What is fresh about each connection; the driver takes the numbers from its clock, counter and entropy.
#[derive(Debug, Clone, Copy)]
pub struct Opening {
    /// When the connection is opened.
    pub now: Stamp,
    /// One more than that of this messenger's last attempt: tells late attempts from new ones.
    pub global_seq: u64,
    /// Random, not 0: names a lossless session if one is opened.
    pub cookie: u64,
}

/// The peer to dial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Address with the nonce of the instance that is meant.
    pub addr: EntityAddr,
    /// What it must be.
    pub kind: EntityKind,
    /// The number that we give as ours, or -1 towards monitors while we have no global id.
    pub gid: i64,
}

/// What the other end has said of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// What it is, by its own word; compare with the authenticated identity.
    pub kind: EntityKind,
    /// Its addresses by its own word; of a client the first, `any:ip:0/nonce`, identifies the instance.
    pub addrs: AddrVec,
    /// Where its socket is, which it cannot choose.
    pub seen_at: EntityAddr,
    /// Its number by its own word, -1 when it does not know it yet.
    pub gid: i64,
    /// The authenticated global id (on the client side: ours).
    pub global_id: u64,
    /// Features that both sides have.
    pub features: u64,
    /// Nothing survives a lost connection.
    pub lossy: bool,
    /// An earlier session continues, in which we may have said something.
    pub resumed: bool,
}

/// What a connection has for its owner.
#[derive(Debug)]
pub enum Event {
    /// The peer has introduced itself. A client starts to authenticate now.
    Hello {
        /// What the peer is.
        kind: EntityKind,
        /// Our address as the peer sees it.
        my_addr: EntityAddr,
    },
    /// Server: answer with `auth_reply_more`, `auth_done` or `auth_bad`.
    AuthRequest {
        /// Method that the client chose.
        method: u32,
        /// Connection modes it accepts, most wanted first; see [`crate::mode`].
        modes: Vec<u32>,
        /// For the authenticator.
        payload: Bytes,
    },
    /// Server: the next part; answer likewise.
    AuthMore {
        /// For the authenticator.
        payload: Bytes,
    },
    /// Client: answer with `auth_request_more`.
    AuthReplyMore {
        /// For the authenticator.
        payload: Bytes,
    },
    /// Client: the server is content; answer with `auth_finish`.
    AuthDone {
        /// Our global id.
        global_id: u64,
        /// The mode that the server chose; the secret may depend on it.
        mode: u32,
        /// For the authenticator.
        payload: Bytes,
    },
    /// Client: refused; try `auth_start` with something else, or give up.
    AuthBad {
        /// The method that was tried.
        method: u32,
        /// Why, as a negative errno.
        result: i32,
        /// Methods that the server accepts.
        methods: Vec<u32>,
        /// Modes that the server accepts.
        modes: Vec<u32>,
    },
    /// Server: answer with `answer_session`. Only lossless peers cause it.
    SessionRequest(SessionRequest),
    /// The peer had forgotten or replaced the session: what was kept for it is lost, numbers start anew.
    SessionReset {
        /// Messages that were dropped.
        lost_count: usize,
    },
    /// Messages may flow.
    Established(Peer),
    /// A message, verified, in order, delivered once.
    Message(RawMessage),
    /// The peer has seen our keepalive that carried this time.
    KeepaliveAck(UTime),
}

enum Role {
    Server,
    Client(Target),
}

/// One side of one messenger v2 connection. Owns its buffers and, once there is one, its session.
pub struct Connection {
    config: Arc<Config>,
    role: Role,
    state: State,
    fault: Option<Fault>,
    opening: Opening,
    receiver: Receiver,
    sender: Sender,
    session: Option<Session>,
    events: VecDeque<Event>,
    peer_kind: EntityKind,
    /// The peer's address as we see it.
    peer_addr: EntityAddr,
    /// Our address as the peer sees it.
    seen_as: EntityAddr,
    global_id: u64,
    rounds: u32,
    /// Bytes of keepalive answers queued since the queue was last empty.
    answers_bytes: usize,
    heard_at: Stamp,
    /// Lossless: messages received and not yet acknowledged in any frame, and by when to do so.
    acks_owed: u32,
    ack_at: Option<Stamp>,
}

/// What both sides say first; behind it the length of the feature words, and those.
const BANNER: &[u8; 8] = b"ceph v2\n";
/// Two feature words.
const BANNER_PAYLOAD_BYTES: u16 = 16;
/// Room for words that later releases may add.
const BANNER_PAYLOAD_BYTES_MAX: u16 = 64;
/// Protocol feature: revision 1 of the frames.
const PROTOCOL_REVISION_1: u64 = 1;

impl Connection {
    /// The server side of a socket accepted from `peer`. Starts to speak at once.
    #[must_use]
    pub fn accept(config: Arc<Config>, peer: SocketAddr, opening: Opening) -> Self {
        Self::new(config, Role::Server, None, EntityAddr::msgr2(peer, 0), opening)
    }

    /// The client side of a socket connected to `target`, with a fresh session.
    #[must_use]
    pub fn connect(config: Arc<Config>, target: Target, opening: Opening) -> Self {
        let lossy = config.policy(target.kind).lossy;
        let session = Session::new(lossy, target.kind, AddrVec::of(target.addr));
        Self::resume(config, target, session, opening)
    }

    /// As [`Connection::connect`], going on with `session`: what it keeps is sent, or sent again.
    #[must_use]
    pub fn resume(config: Arc<Config>, target: Target, session: Session, opening: Opening) -> Self {
        let addr = target.addr;
        Self::new(config, Role::Client(target), Some(session), addr, opening)
    }

    /// What the peer says it is, once it has introduced itself; compare with the authenticated identity.
    #[must_use]
    pub fn peer_kind(&self) -> EntityKind {
        self.peer_kind
    }

    fn new(
        config: Arc<Config>,
        role: Role,
        session: Option<Session>,
        peer: EntityAddr,
        opening: Opening,
    ) -> Self {
        let receiver = Receiver::recording(config.blanks_long_data);
        let mut connection = Self {
            config,
            role,
            state: State::Banner,
            fault: None,
            opening,
            receiver,
            sender: Sender::recording(),
            session,
            events: VecDeque::new(),
            peer_kind: EntityKind::default(),
            peer_addr: peer,
            seen_as: EntityAddr::NONE,
            global_id: 0,
            rounds: 0,
            answers_bytes: 0,
            heard_at: opening.now,
            acks_owed: 0,
            ack_at: None,
        };
        connection.greet();
        connection
    }

    /// Where the driver reads next: the staging buffer, or a large payload's own. Empty when
    /// [`Connection::wants_read`] is false.
    #[must_use]
    pub fn recv_space(&mut self) -> &mut [u8] {
        self.receiver.space()
    }

    /// False when nothing may be read until the driver has answered an event.
    #[must_use]
    pub fn wants_read(&self) -> bool {
        self.receiver.has_space() && !matches!(self.state, State::Closed)
    }

    /// Notes that `count` bytes were read into [`Connection::recv_space`] and parses all that is there.
    ///
    /// # Errors
    /// The [`Fault`] that ended the connection. Events from before it can still be taken.
    ///
    /// # Panics
    /// When `count` exceeds the space that was handed out.
    pub fn received(&mut self, now: Stamp, count: usize) -> Result<(), Fault> {
        self.alive()?;
        self.heard_at = now;
        self.receiver.received(count);
        self.pump()
    }

    /// How much happened that was not taken yet.
    #[must_use]
    pub fn events_count(&self) -> usize {
        self.events.len()
    }

    /// The next thing that happened.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Numbers `message` and queues it. Before the session is open a client's messages wait for it.
    ///
    /// # Errors
    /// [`Fault::QueueFull`] when the peer takes too little, [`Fault::NoSession`] on a server before
    /// `Established`, [`Fault::SegmentLength`] for a message that no peer would take; the message is not
    /// queued, and the connection goes on.
    pub fn send(&mut self, message: RawMessage) -> Result<(), Fault> {
        self.alive()?;
        let session = self.session.as_mut().ok_or(Fault::NoSession)?;
        session.admit_to_queue(&self.config, self.sender.queued(), &message)?;
        let seq = session.next_seq();
        let open = matches!(self.state, State::Open);
        if open {
            open::emit(&mut self.sender, session, seq, &message);
            (self.acks_owed, self.ack_at) = (0, None);
        }
        if !open || !session.lossy {
            session.keep(seq, message);
        }
        Ok(())
    }

    /// Asks for a sign of life: [`Event::KeepaliveAck`] with the same time. Ignored before the session is open.
    pub fn send_keepalive(&mut self, wall: UTime) {
        if matches!(self.state, State::Open) {
            self.sender.control(Tag::Keepalive2, &wall.to_bytes());
        }
    }

    /// Fills `out` with the bytes to write next, across as many frames as fit; returns the entries used.
    #[must_use]
    pub fn out_slices<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        self.sender.out_slices(out)
    }

    /// Notes that the first `count` bytes of [`Connection::out_slices`] were written.
    ///
    /// # Panics
    /// When so many were not queued.
    pub fn sent(&mut self, count: usize) {
        self.sender.sent(count);
        if self.sender.queued() == 0 {
            self.answers_bytes = 0;
        }
    }

    /// True when there is something to write.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.sender.queued() > 0
    }

    /// Bytes that wait to be written, for back-pressure; messages that wait for the session included.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        let waiting = match self.state {
            State::Open => 0,
            _ => self.session.as_ref().map_or(0, Session::kept_bytes),
        };
        self.sender.queued() + waiting
    }

    /// Bytes of messages that a lossless peer has not acknowledged, written or not.
    #[must_use]
    pub fn unacked_bytes(&self) -> usize {
        self.session.as_ref().map_or(0, Session::kept_bytes)
    }

    /// Bytes of memory bound by the message that is being received.
    #[must_use]
    pub fn incoming_bytes(&self) -> usize {
        self.receiver.held_bytes()
    }

    /// Lets frames that take more memory than `bytes` wait for [`Connection::give_room`], nothing being read meanwhile. Without
    /// it none waits.
    pub fn ask_for_room_above(&mut self, bytes: usize) {
        self.receiver.ask_above(bytes);
    }

    /// Bytes of memory that the next frame takes, if it waits for them: [`Connection::incoming_bytes`] once it has begun.
    #[must_use]
    pub fn room_wanted(&self) -> Option<usize> {
        self.receiver.room_wanted()
    }

    /// Lets the frame begin that waits for room, and parses what of it is there.
    ///
    /// # Errors
    /// As [`Connection::received`].
    pub fn give_room(&mut self) -> Result<(), Fault> {
        self.alive()?;
        self.receiver.give_room();
        self.pump()
    }

    /// Bytes of memory that a connection holds which is not open yet.
    #[must_use]
    pub fn handshake_bytes(&self) -> usize {
        self.receiver.handshake_bytes() + self.sender.queued()
    }

    /// When to call [`Connection::tick`] at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Stamp> {
        let silence = self.silence_deadline().map(|(at, _)| at);
        silence.into_iter().chain(self.ack_at).min()
    }

    /// Does what is due.
    ///
    /// # Errors
    /// [`Fault::Timeout`] when the peer was silent for too long.
    pub fn tick(&mut self, now: Stamp) -> Result<(), Fault> {
        self.alive()?;
        if self.ack_at.is_some_and(|at| now >= at) {
            self.acknowledge();
        }
        match self.silence_deadline() {
            Some((at, phase)) if now >= at => Err(self.fail(Fault::Timeout { phase })),
            _ => Ok(()),
        }
    }

    fn silence_deadline(&self) -> Option<(Stamp, &'static str)> {
        let at = match self.state {
            State::Closed => None,
            State::Open => self.config.idle_timeout.map(|idle| self.heard_at + idle),
            _ => Some(self.opening.now + self.config.handshake_timeout),
        };
        at.map(|at| (at, self.state.phase()))
    }

    /// Lends it memory that it needs to read, and to answer what it reads. A driver with many connections does so before, and takes it back
    /// afterwards with [`Connection::give_back`].
    pub fn lend(&mut self, workspace: &mut Workspace) {
        self.receiver.lend(std::mem::take(&mut workspace.staging));
        self.lend_to_send(workspace);
    }

    /// Lends it what it needs to send and to write: [`Connection::give_back_sent`] takes it back. What has come in part of the next frame
    /// stays where it is.
    pub fn lend_to_send(&mut self, workspace: &mut Workspace) {
        self.sender.swap_spare(&mut workspace.chunks);
    }

    /// Gives back what was lent to send.
    pub fn give_back_sent(&mut self, workspace: &mut Workspace) {
        self.sender.swap_spare(&mut workspace.chunks);
    }

    /// Gives back what was lent: between two turns a connection holds only what has come or is to go.
    pub fn give_back(&mut self, workspace: &mut Workspace) {
        workspace.staging = self.receiver.give_back();
        self.give_back_sent(workspace);
    }

    /// True while messages may flow.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// What ended the connection.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// The number of our last attempt: the messenger's counter must not fall behind it.
    #[must_use]
    pub fn global_seq(&self) -> u64 {
        self.opening.global_seq
    }

    /// The lossless session, for another connection to resume; `None` when there is nothing to resume.
    #[must_use]
    pub fn into_session(self) -> Option<Session> {
        self.session.filter(|session| !session.lossy)
    }

    /// Verifies the invariants listed at the top of this file.
    ///
    /// # Panics
    /// When one is broken.
    pub fn check(&self) {
        self.receiver.check();
        self.sender.check();
        assert_eq!(self.fault.is_some(), matches!(self.state, State::Closed), "closed by a fault");
        assert!(!self.is_open() || self.session.is_some(), "open without a session");
        assert!(self.rounds <= ROUNDS_MAX + 1, "rounds");
        assert_eq!(self.ack_at.is_some(), self.acks_owed > 0, "acknowledgement owed");
        if let Some(session) = &self.session {
            session.check();
            assert!(!(self.is_open() && session.lossy) || session.kept_count() == 0, "lossy keeps nothing");
        }
    }

    fn alive(&self) -> Result<(), Fault> {
        if matches!(self.state, State::Closed) { Err(Fault::Closed) } else { Ok(()) }
    }

    fn set_state(&mut self, next: State) {
        assert!(self.state.allows(&next), "from {:?} to {:?}", self.state, next);
        self.state = next;
    }

    fn fail(&mut self, fault: Fault) -> Fault {
        self.set_state(State::Closed);
        (self.acks_owed, self.ack_at) = (0, None);
        self.fault = Some(fault.clone());
        fault
    }

    /// Parses until bytes or answers are missing.
    fn pump(&mut self) -> Result<(), Fault> {
        self.parse().map_err(|fault| self.fail(fault))
    }

    fn parse(&mut self) -> Result<(), Fault> {
        while !self.state.is_owed() {
            let progress = match self.state {
                State::Banner => self.read_banner()?,
                State::BannerRest { length } => self.read_banner_rest(length)?,
                _ => match self.receiver.next_frame(matches!(self.state, State::Open))? {
                    None => false,
                    Some(Inbound::Message { header, front, middle, data }) => {
                        self.on_message(&header, front, middle, data)?;
                        true
                    }
                    Some(Inbound::Control { tag, payload }) => {
                        self.on_control(tag, payload)?;
                        true
                    }
                },
            };
            if !progress {
                break;
            }
        }
        Ok(())
    }

    fn on_control(&mut self, tag: Tag, payload: Bytes) -> Result<(), Fault> {
        match &self.state {
            State::Hello => self.on_hello(tag, payload),
            State::AuthRequest | State::AuthMore => self.on_client_auth(tag, payload),
            State::AuthReply => self.on_server_auth(tag, payload),
            State::Signature { expected } => {
                let expected = *expected;
                self.on_signature(tag, &payload, &expected)
            }
            State::Ident => match self.role {
                Role::Server => self.on_client_ident(tag, payload),
                Role::Client(_) => self.on_server_ident(tag, payload),
            },
            State::Open => self.on_open(tag, payload),
            _ => Err(self.unexpected(tag)),
        }
    }

    fn unexpected(&self, tag: Tag) -> Fault {
        Fault::Unexpected { tag, phase: self.state.phase() }
    }

    /// Counts a request of the peer during the handshake.
    fn count_round(&mut self) -> Result<(), Fault> {
        self.rounds += 1;
        if self.rounds > ROUNDS_MAX { Err(Fault::Rounds { max: ROUNDS_MAX }) } else { Ok(()) }
    }
}

/// Decodes a control frame's payload.
fn decode<T: Decode>(tag: Tag, payload: Bytes) -> Result<T, Fault> {
    T::from_bytes(payload).map_err(|error| Fault::Payload { tag, error })
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let side = match &self.role {
            Role::Server => "server".to_owned(),
            Role::Client(target) => format!("client of {}", target.addr),
        };
        write!(f, "Connection({side}, {}, {} bytes queued)", self.state.phase(), self.queued_bytes())
    }
}
