//! [`Front`]: what every monitor does for the peers that are connected to it, whoever leads.
//!
//! It runs handshakes, answers MAuth on sessions, and passes all else on to the leader's [`crate::Mon`]. Keys, secrets and options it has from
//! the tables of its own monitor ([`view`]), so nothing that it uses can be taken back.
//!
//! | file | |
//! | --- | --- |
//! | `event.rs` | what happens to it and what it orders |
//! | `handshake.rs` | authentication, up to a session's opening |
//! | `holds.rs` | what waits until the monitor serves |
//! | `resume.rs` | what the next leader has to be told of a session |
//! | `tell.rs` | what this monitor answers itself: `ceph tell mon.b` |
//! | `view.rs` | keys, secrets and options as the tables have them |

mod event;
mod handshake;
mod holds;
mod input;
mod resume;
mod tell;
mod view;

pub use event::{FrontEffect, FrontEvent};
pub use resume::RESUME_BYTES_MAX;
pub(crate) use resume::bytes_of;

use crate::batch::{Batch, Snapshot};
use crate::budget::{INPUT_BYTES_MAX, command_refused};
use crate::event::{Endpoint, Peer, Served, SessionId};
use handshake::Handshake;
use holds::Holds;
use input::Input;
use nacre_auth::{
    AuthMethod, CryptoKey, GLOBAL_IDS_PER_GRANT, GlobalIds, Keyring, MonAuthContext, MonSessionAuth,
    ServiceTickets,
};
use nacre_denc::DecodeError;
use nacre_msg::{Answer, Auth, AuthReply, Message};
use nacre_types::{AddrVec, AuthName, EntityKind, Entropy, Errno, Stamp, UTime};
use resume::{Resume, Room};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;
use view::AuthView;

/// Connections that may be in their handshake at a time; more are turned away.
pub const HANDSHAKES_COUNT_MAX: usize = 4096;
/// Connections at a time that have proved who they are.
pub const SESSIONS_COUNT_MAX: usize = 65_536;

/// Global ids that were asked for are asked for again after this.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// Sessions whose key has changed are ended by the leader, which shuts their clients out as well. Those that it cannot know of, since
/// they opened in that moment, end after this.
const REVOKED_GRACE: Duration = Duration::from_secs(3);

/// The time and the randomness that an event brings along.
pub(crate) struct FrontCx<'a> {
    pub(crate) now: Stamp,
    pub(crate) wall: UTime,
    pub(crate) entropy: &'a mut dyn Entropy,
}

/// A connection that has proved who it is.
#[derive(Debug)]
struct Session {
    peer: Peer,
    /// Answers MAuth; none at the manager's address.
    auth: Option<MonSessionAuth>,
    /// The handshake is complete, and the leader knows of the session.
    is_open: bool,
    /// It came while nobody led, and may ask this monitor how it is, no more: the leader does not know of it.
    for_tell: bool,
    /// When its key became another, or nobody's.
    revoked_at: Option<Stamp>,
    /// What another leader has to be told of it.
    resume: Resume,
}

impl Session {
    /// True when the leader knows of it, or is to.
    fn is_leaders(&self) -> bool {
        self.is_open && !self.for_tell
    }

    /// True when it can go on under another leader. Those of daemons end: daemons tell a monitor much that nobody answers, and say all of it
    /// again when they come anew.
    fn outlives_leader(&self) -> bool {
        let is_clients =
            self.peer.kind == EntityKind::CLIENT && self.peer.auth_name.kind == EntityKind::CLIENT;
        is_clients && self.peer.endpoint == Endpoint::Mon && self.resume.is_whole()
    }
}

/// Sessions and handshakes of one monitor.
///
/// It serves while its driver says so ([`Front::serve`]) and it has global ids to give. Meanwhile handshakes wait, up to 2.5 s, and then their
/// connections are closed: clients try the next monitor after three seconds at the earliest, and at once where they are refused. Tests
/// drive it together with `Mon` (`tests/front.rs`).
#[derive(Debug)]
pub struct Front {
    view: AuthView,
    /// Methods of authentication that are accepted.
    methods: Vec<AuthMethod>,
    handshakes: BTreeMap<SessionId, Handshake>,
    sessions: BTreeMap<SessionId, Session>,
    holds: Holds,
    /// Handshakes that go on for `tell` although nobody leads, by when they have to be complete.
    tells: BTreeSet<(Stamp, SessionId)>,
    ids: GlobalIds,
    /// When global ids were asked for that have not come.
    asked_for_ids: Option<Stamp>,
    leader_is_heard: bool,
    mgr_is_active: bool,
    /// Entities whose key has changed and whose sessions have not been looked at.
    revoked: BTreeSet<AuthName>,
    /// For what the next leader is to be told.
    room: Room,
    effects: Vec<FrontEffect>,
}

/// The answer to a command whose input is longer than any command takes.
fn input_refused(message: &Message) -> Option<Message> {
    let length = match message {
        Message::MonCommand(command) => command.data.len(),
        Message::MgrCommand(command) => command.data.len(),
        Message::Command(command) => command.data.len(),
        _ => 0,
    };
    if length <= INPUT_BYTES_MAX {
        return None;
    }
    let status = format!("the command's input has {length} bytes; at most {INPUT_BYTES_MAX} are taken");
    Some(command_refused(message, 0, Errno::E2BIG.negated(), status))
}

impl Front {
    /// The front of the monitor `name`, such as `a`, with these tables. It serves nobody until [`Front::serve`].
    ///
    /// # Errors
    /// [`DecodeError`] of stored values.
    pub fn open(snapshot: &dyn Snapshot, name: &str) -> Result<Self, DecodeError> {
        Ok(Self {
            view: AuthView::open(snapshot, name)?,
            methods: vec![AuthMethod::Cephx],
            handshakes: BTreeMap::new(),
            sessions: BTreeMap::new(),
            holds: Holds::default(),
            tells: BTreeSet::new(),
            ids: GlobalIds::default(),
            asked_for_ids: None,
            leader_is_heard: false,
            mgr_is_active: false,
            revoked: BTreeSet::new(),
            room: Room::default(),
            effects: Vec::new(),
        })
    }

    /// Accepts these methods of authentication instead of cephx alone. With [`AuthMethod::None`] every peer is the entity that it names,
    /// and may do everything.
    #[must_use]
    pub fn accepting(self, methods: Vec<AuthMethod>) -> Self {
        Self { methods, ..self }
    }

    /// The key of an entity, as the tables have it.
    #[must_use]
    pub fn key_of(&self, name: &AuthName) -> Option<&CryptoKey> {
        self.view.keys().entity(name).map(|entity| &entity.key)
    }

    /// The keyring of one entity; empty when there is no such.
    #[must_use]
    pub fn keyring_of(&self, name: &AuthName) -> Keyring {
        self.view.keys().keyring(Some(name))
    }

    /// Per cent of free room on the file system of its store with which this monitor does not start (`mon_data_avail_crit`).
    #[must_use]
    pub fn disk_avail_crit(&self) -> u8 {
        self.view.disk_avail_crit()
    }

    /// Takes in changes that the tables have taken in.
    ///
    /// # Errors
    /// [`DecodeError`]: the batch is a newer program's, and the monitor cannot go on.
    pub fn applied(&mut self, batch: &Batch) -> Result<(), DecodeError> {
        for op in batch.ops() {
            self.revoked.extend(self.view.apply(op)?);
        }
        Ok(())
    }

    /// All tables were replaced: takes them up anew. Sessions stay, but for those whose keys are others.
    ///
    /// # Errors
    /// [`DecodeError`] of stored values.
    pub fn reload(&mut self, snapshot: &dyn Snapshot, name: &str) -> Result<(), DecodeError> {
        let view = AuthView::open(snapshot, name)?;
        let names: BTreeSet<&AuthName> = self.sessions.values().map(|entry| &entry.peer.auth_name).collect();
        let revoked = names.into_iter().filter(|name| view.secret_of(name) != self.view.secret_of(name));
        self.revoked.extend(revoked.cloned());
        self.view = view;
        Ok(())
    }

    /// Says whether a leader is heard, so that clients can be served.
    pub fn serve(&mut self, leader_is_heard: bool) {
        if leader_is_heard && !self.leader_is_heard {
            // The leader before may have taken the wish with it.
            self.asked_for_ids = None;
            self.end_tells();
        }
        self.leader_is_heard = leader_is_heard;
    }

    /// Says whether the active manager is here: this monitor leads, and no stock manager is active. When that ceases to be, its sessions end.
    pub fn set_active_mgr(&mut self, is_active: bool) {
        if self.mgr_is_active && !is_active {
            self.end(|entry| entry.peer.endpoint == Endpoint::Mgr);
        }
        self.mgr_is_active = is_active;
    }

    /// These global ids may be handed out here, and nowhere else.
    pub fn granted(&mut self, ids: Range<u64>) {
        self.ids.grant(ids);
        self.asked_for_ids = None;
    }

    /// Ends all sessions: their clients are to look for a monitor that hears a leader.
    pub fn end_sessions(&mut self) {
        self.end(|_| true);
    }

    /// Tells a leader that does not know them of all open sessions: how far their subscriptions were served, and what they asked for and have
    /// had no answer to. Those that cannot go on like this end, and their peers come again.
    pub fn resume_sessions(&mut self) {
        self.end(|entry| entry.is_leaders() && !entry.outlives_leader());
        for (session, entry) in self.sessions.iter().filter(|(_, entry)| entry.is_leaders()) {
            let (session, peer) = (*session, Box::new(entry.peer.clone()));
            self.effects.push(FrontEffect::Open { session, peer });
            for (tid, message) in entry.resume.messages() {
                self.effects.push(FrontEffect::Message { session, tid, message: Box::new(message) });
            }
        }
    }

    /// A message of the leader, with this type and number, goes to the peer of a session, and may serve a subscription of it.
    pub fn sent(&mut self, session: SessionId, answer: Answer, served: Option<&Served>) {
        if let Some(entry) = self.sessions.get_mut(&session) {
            entry.resume.sent(answer, served, &mut self.room);
        }
    }

    /// When [`FrontEvent::Tick`] is due, besides once per second.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Stamp> {
        let tell = self.tells.first().map(|(until, _)| *until);
        self.holds.next_deadline().into_iter().chain(tell).min()
    }

    /// Takes in one event.
    pub fn handle(&mut self, now: Stamp, wall: UTime, entropy: &mut dyn Entropy, event: FrontEvent) {
        let mut cx = FrontCx { now, wall, entropy };
        match event {
            FrontEvent::AuthRequest { session, endpoint, kind, method, modes, payload } => {
                let input = Input::Request { method, modes, payload };
                self.auth_request(&mut cx, session, (endpoint, kind), input);
            }
            FrontEvent::AuthMore { session, payload } => {
                self.auth_input(&mut cx, session, Input::More { payload });
            }
            FrontEvent::Established { session, kind, addrs, seen_at } => {
                self.established(session, kind, addrs, seen_at);
            }
            FrontEvent::Message { session, tid, message } => self.message(&mut cx, session, tid, message),
            FrontEvent::Closed { session } => self.closed(session),
            FrontEvent::Tick => self.tick(&mut cx),
        }
    }

    /// Takes what is to be done, in its order. What had to wait goes on when it may.
    pub fn drain(&mut self, now: Stamp, wall: UTime, entropy: &mut dyn Entropy, out: &mut Vec<FrontEffect>) {
        let mut cx = FrontCx { now, wall, entropy };
        self.note_revoked(now);
        self.ask_for_ids(now);
        self.go_on(&mut cx);
        out.append(&mut self.effects);
    }

    /// True when clients can be served.
    fn is_serving(&self) -> bool {
        self.leader_is_heard && self.ids.left() > 0 && self.view.has_secrets()
    }

    fn ask_for_ids(&mut self, now: Stamp) {
        let is_due = self.asked_for_ids.is_none_or(|asked| now.since(asked) >= ASK_AGAIN);
        if self.leader_is_heard && is_due && self.ids.left() <= GLOBAL_IDS_PER_GRANT / 2 {
            self.asked_for_ids = Some(now);
            self.effects.push(FrontEffect::WantGlobalIds);
        }
    }

    fn tick(&mut self, cx: &mut FrontCx<'_>) {
        self.go_on_for_tell(cx);
        for session in self.holds.expired(cx.now) {
            self.close(session);
        }
        let is_over = |at: Stamp| cx.now.since(at) >= REVOKED_GRACE;
        self.end(|entry| entry.revoked_at.is_some_and(is_over));
    }

    /// Looks at the sessions of entities whose key has changed. One that the leader does not know of yet ends at once.
    fn note_revoked(&mut self, now: Stamp) {
        let revoked = std::mem::take(&mut self.revoked);
        if revoked.is_empty() {
            return;
        }
        for entry in self.sessions.values_mut().filter(|entry| revoked.contains(&entry.peer.auth_name)) {
            entry.revoked_at.get_or_insert(now);
        }
        self.end(|entry| !entry.is_open && entry.revoked_at.is_some());
    }

    fn established(&mut self, session: SessionId, kind: EntityKind, addrs: AddrVec, seen_at: Option<IpAddr>) {
        let Some(entry) = self.sessions.get_mut(&session).filter(|entry| !entry.is_open) else {
            self.close(session);
            return;
        };
        // The secret proves the kind; a peer that claims to be another daemon lies. Every entity may speak as a
        // client: daemons do to fetch the monitors' map and their options, before they are daemons.
        if kind != EntityKind::CLIENT && entry.peer.auth_name.kind != kind {
            self.close(session);
            return;
        }
        entry.is_open = true;
        (entry.peer.kind, entry.peer.addrs, entry.peer.seen_at) = (kind, addrs, seen_at);
        if entry.for_tell {
            return;
        }
        if entry.outlives_leader() {
            entry.resume.opened(&entry.peer, &mut self.room);
        }
        let peer = Box::new(entry.peer.clone());
        self.effects.push(FrontEffect::Open { session, peer });
    }

    fn message(&mut self, cx: &mut FrontCx<'_>, session: SessionId, tid: u64, message: Box<Message>) {
        let is_serving = self.is_serving();
        let Some(entry) = self.sessions.get_mut(&session).filter(|entry| entry.is_open) else {
            return self.close(session);
        };
        let (for_tell, endpoint) = (entry.for_tell, entry.peer.endpoint);
        if let Some(refusal) = input_refused(&message) {
            return self.effects.push(FrontEffect::Send { session, tid, message: Box::new(refusal) });
        }
        match *message {
            Message::Command(command) if endpoint == Endpoint::Mon => {
                self.effects.push(FrontEffect::Tell { session, tid, command: Box::new(command) });
            }
            // A stock client asks for the monitors' map on each new connection before it says what it wants, and does not wait for it.
            Message::MonGetMap(_) if for_tell => {}
            // It cannot be served before somebody leads, and is to look elsewhere.
            _ if for_tell => self.close(session),
            Message::Auth(auth) if is_serving => self.answer(cx, session, tid, auth),
            Message::Auth(auth) => self.holds.renewal(session, tid, auth),
            message => {
                if entry.outlives_leader() {
                    entry.resume.asked(tid, &message, &mut self.room);
                }
                let message = Box::new(message);
                self.effects.push(FrontEffect::Message { session, tid, message });
            }
        }
    }

    /// Answers a request for tickets (`MAuth`).
    fn answer(&mut self, cx: &mut FrontCx<'_>, session: SessionId, tid: u64, auth: Auth) {
        let Some(entry) = self.sessions.get(&session) else { return };
        let Some(server) = &entry.auth else { return };
        let mut cx = MonAuthContext {
            keys: self.view.keys(),
            ids: &mut self.ids,
            wall: cx.wall,
            entropy: cx.entropy,
            tickets: ServiceTickets::Usable,
        };
        let reply = server.handle(&mut cx, auth.payload);
        let message = AuthReply {
            protocol: auth.protocol,
            result: reply.result,
            global_id: entry.peer.global_id,
            payload: reply.payload,
            message: String::new(),
        };
        self.effects.push(FrontEffect::Send { session, tid, message: Box::new(message.into()) });
    }

    /// Ends the sessions for which `is_ended` holds.
    fn end(&mut self, is_ended: impl Fn(&Session) -> bool) {
        let ended = self.sessions.iter().filter(|(_, entry)| is_ended(entry));
        let ended: Vec<SessionId> = ended.map(|(session, _)| *session).collect();
        ended.into_iter().for_each(|session| self.close(session));
    }

    /// Ends a connection.
    fn close(&mut self, session: SessionId) {
        self.closed(session);
        self.effects.push(FrontEffect::Close { session });
    }

    fn closed(&mut self, session: SessionId) {
        self.holds.forget(session);
        self.handshakes.remove(&session);
        let Some(mut entry) = self.sessions.remove(&session) else { return };
        entry.resume.forget(&mut self.room);
        if entry.is_leaders() {
            self.effects.push(FrontEffect::Closed { session });
        }
    }
}
