//! [`Mon`]: events in, effects out, and what may leave when.

use crate::batch::Snapshot;
use crate::dispatch::Delayed;
use crate::event::{Effect, Endpoint, Event, SessionId, Token};
use crate::osd::{BootRequest, OsdMapsError};
use crate::session::{Handshake, Session};
use crate::state::State;
use nacre_auth::AuthMethod;
use nacre_denc::DecodeError;
use nacre_types::{AddrVec, Entropy, Epoch, OsdId, Stamp, UTime, Uuid};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Connections that may be in their handshake at a time; more are turned away.
pub const HANDSHAKES_COUNT_MAX: usize = 4096;
/// Established connections at a time.
pub const SESSIONS_COUNT_MAX: usize = 65_536;

/// Time between two [`Event::Tick`].
pub const TICK: Duration = Duration::from_secs(1);

/// Why the stored state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no cluster in this store.
    #[error("the store holds no cluster; it needs mkfs")]
    NotInitialised,
    /// The OSD maps are unusable.
    #[error(transparent)]
    OsdMaps(#[from] OsdMapsError),
    /// Some other value does not decode.
    #[error("stored state: {0}")]
    Decode(#[from] DecodeError),
}

/// A commit that is under way.
#[derive(Debug)]
struct InFlight {
    token: Token,
    /// Epoch of the newest OSDMap in or before the batch.
    epoch: Epoch,
    /// What may leave when it is durable.
    held: Vec<Effect>,
}

/// What time and randomness an event brings along.
pub(crate) struct Cx<'a> {
    pub(crate) now: Stamp,
    pub(crate) wall: UTime,
    pub(crate) entropy: &'a mut dyn Entropy,
}

/// The monitor.
///
/// It owns the cluster's state, all of it in memory, and the sessions. The price: one commit at a time, and nothing leaves before the commit
/// that covers it, so a slow disk slows every answer. Tests hand in events and look at effects (`tests/`); the simulation runs it behind
/// `monitor::Driver` with a store that forgets what was not committed.
///
/// ```text
/// handle(event) -> state changes at once, effects are held
/// drain()       -> changed state and no commit under way: one batch, the held effects wait for it
/// Committed     -> the waiting effects leave, new maps are published
/// ```
/// A reply computed while a commit is under way waits for that commit, too: no peer is told what a crash could
/// take back, not even by a read.
#[derive(Debug)]
pub struct Mon {
    pub(crate) state: State,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) handshakes: BTreeMap<SessionId, (Endpoint, Handshake)>,
    /// Established sessions of OSDs, to share new maps with.
    pub(crate) osd_sessions: BTreeMap<OsdId, SessionId>,
    /// Boots that wait until the predecessor is marked down.
    pub(crate) deferred_boots: BTreeMap<SessionId, BootRequest>,
    /// Versions that subscribers were served last.
    pub(crate) served: crate::publish::Served,
    /// Computed from state that may not be durable yet.
    held: Vec<Effect>,
    in_flight: Option<InFlight>,
    /// Free to leave.
    ready: Vec<Effect>,
    next_token: u64,
    wall: UTime,
    /// Methods of authentication that are accepted.
    pub(crate) methods: Vec<AuthMethod>,
    /// Changes that clients asked for faster than they may, in their order.
    pub(crate) delayed: VecDeque<Delayed>,
}

impl Mon {
    /// Takes up the state that the store holds. `name` is ours, such as `a`.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(snapshot: &dyn Snapshot, name: &str, wall: UTime) -> Result<Self, OpenError> {
        let state = State::open(snapshot, name, wall)?;
        Ok(Self {
            state,
            sessions: BTreeMap::new(),
            handshakes: BTreeMap::new(),
            osd_sessions: BTreeMap::new(),
            deferred_boots: BTreeMap::new(),
            served: crate::publish::Served::default(),
            held: Vec::new(),
            in_flight: None,
            ready: Vec::new(),
            next_token: 1,
            wall,
            methods: vec![AuthMethod::Cephx],
            delayed: VecDeque::new(),
        })
    }

    /// Accepts these methods of authentication instead of cephx alone. With [`AuthMethod::None`] every
    /// peer is the entity that it names, and may do everything.
    #[must_use]
    pub fn accepting(self, methods: Vec<AuthMethod>) -> Self {
        Self { methods, ..self }
    }

    /// Says which machine we run on, for commands that show it.
    #[must_use]
    pub fn on_host(mut self, host: String) -> Self {
        self.state.host = Some(host).filter(|host| !host.is_empty());
        self
    }

    /// Everything that the monitor knows.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Tells which clients have messages begun that take more memory than they may, a sentence each; for the health checks.
    pub fn set_throttled_senders(&mut self, clients: Vec<String>) {
        self.state.throttled_senders = clients;
    }

    /// The cluster.
    #[must_use]
    pub fn fsid(&self) -> Uuid {
        self.state.fsid
    }

    /// Says where we listen: as a monitor (when the map has another address, it changes) and as the active
    /// manager. Call it once, before the first connection.
    pub fn listening(
        &mut self,
        mon: AddrVec,
        mgr: AddrVec,
        now: Stamp,
        wall: UTime,
        entropy: &mut dyn Entropy,
    ) {
        let name = self.state.name.clone();
        let known = self.state.mon.map().mons.get(&name).map(|info| &info.addrs);
        if known != Some(&mon) {
            self.state.mon.update(|map| {
                map.last_changed = wall;
                if let Some(info) = map.mons.get_mut(&name) {
                    info.addrs = mon;
                }
            });
        }
        let gid = self.state.mgr.map().active_gid + 1;
        self.state.mgr.activate(&name, gid, mgr, wall);
        self.handle(now, wall, entropy, Event::Tick);
    }

    /// True when no handshake can succeed yet because no global ids are reserved durably.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        self.in_flight.is_some() && self.state.auth.is_reserving()
    }

    /// Takes in one event.
    pub fn handle(&mut self, now: Stamp, wall: UTime, entropy: &mut dyn Entropy, event: Event) {
        self.wall = wall;
        let mut cx = Cx { now, wall, entropy };
        match event {
            Event::AuthRequest { session, endpoint, kind, method, modes, payload } => {
                self.auth_request(&mut cx, session, (endpoint, kind), method, &modes, payload);
            }
            Event::AuthMore { session, payload } => self.auth_more(&mut cx, session, payload),
            Event::Established { session, kind, addrs, seen_at } => {
                self.established(&mut cx, session, kind, addrs, seen_at);
            }
            Event::Message { session, tid, message } => self.message(&mut cx, session, tid, *message),
            Event::Closed { session } => self.closed(session),
            Event::Committed(token) => self.committed(&mut cx, token),
            Event::Tick => self.tick(&mut cx),
        }
        self.take_over_caps(&cx);
        self.publish();
    }

    /// Takes the effects that may leave, in their order.
    pub fn drain(&mut self, out: &mut Vec<Effect>) {
        let dirty = self.state.is_dirty();
        match &mut self.in_flight {
            // What was computed from state of the commit under way leaves with it; with newer changes, later.
            Some(in_flight) if !dirty => in_flight.held.append(&mut self.held),
            Some(_) => (),
            None if !dirty => self.ready.append(&mut self.held),
            None => self.commit(),
        }
        out.append(&mut self.ready);
    }

    fn commit(&mut self) {
        let batch = self.state.flush(self.wall);
        let token = Token(self.next_token);
        self.next_token += 1;
        let held = std::mem::take(&mut self.held);
        self.in_flight = Some(InFlight { token, epoch: self.state.osd.map().epoch, held });
        self.ready.push(Effect::Commit { batch, token });
    }

    fn committed(&mut self, cx: &mut Cx<'_>, token: Token) {
        let in_flight = self.in_flight.take().expect("a commit is under way when one is reported");
        assert_eq!(in_flight.token, token, "commits complete in order");
        self.ready.extend(in_flight.held);
        self.state.auth.committed();
        if in_flight.epoch != self.state.osd.published().epoch {
            self.state.osd.committed(in_flight.epoch);
            let map = std::sync::Arc::clone(self.state.osd.published());
            self.state.stats.osd_map(&map);
            self.retry_boots(cx);
        }
    }

    /// Sends once the state that it was computed from is durable.
    pub(crate) fn send(&mut self, session: SessionId, tid: u64, message: impl Into<nacre_msg::Message>) {
        self.held.push(Effect::Send { session, tid, message: Box::new(message.into()) });
    }

    pub(crate) fn hold(&mut self, effect: Effect) {
        self.held.push(effect);
    }

    /// Ends a connection that broke the rules.
    pub(crate) fn close(&mut self, session: SessionId) {
        self.hold(Effect::Close { session });
        self.closed(session);
    }

    fn closed(&mut self, session: SessionId) {
        self.handshakes.remove(&session);
        self.deferred_boots.remove(&session);
        self.state.stats.services.closed(session.0);
        if let Some(gone) = self.sessions.remove(&session)
            && let Some(osd) = gone.osd()
            && self.osd_sessions.get(&osd) == Some(&session)
        {
            self.osd_sessions.remove(&osd);
            self.state.osd.refused_boots.remove(&osd);
        }
    }
}
