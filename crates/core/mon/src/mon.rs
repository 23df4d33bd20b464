//! [`Mon`]: events in, effects out, and what may leave when.

use crate::batch::Snapshot;
use crate::budget::Delayed;
use crate::event::{Effect, Endpoint, Event, SessionId, Token};
use crate::handout::Handout;
use crate::monitor_facts::{self, MonitorFacts};
use crate::osd::BootRequest;
use crate::quorum_view::QuorumView;
use crate::recovery;
use crate::session::Session;
use crate::state::{OpenError, State};
use nacre_types::{AddrVec, Entropy, Epoch, OsdId, Stamp, UTime, Uuid};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Time between two [`Event::Tick`].
pub const TICK: Duration = Duration::from_secs(1);

/// What is asked of the log.
#[derive(Debug)]
enum Wait {
    /// That a batch becomes durable, and with it the OSDMap up to this epoch.
    Commit(Epoch),
    /// That nobody else leads.
    Confirm,
}

/// What is under way at the log.
#[derive(Debug)]
struct InFlight {
    token: Token,
    waits_for: Wait,
    /// What may leave then.
    held: Vec<Effect>,
}

/// What time and randomness an event brings along.
pub(crate) struct Cx<'a> {
    pub(crate) now: Stamp,
    pub(crate) wall: UTime,
    pub(crate) entropy: &'a mut dyn Entropy,
}

/// The monitor that leads.
///
/// It owns the cluster's state, all of it in memory, and knows the sessions of all monitors' fronts. It is opened from the store when its
/// monitor wins an election, and dropped when that loses the lead: what it has not told anybody has not happened. The price: one commit
/// at a time, and nothing leaves before the commit that covers it, so a slow disk slows every answer. Tests hand in events and look at effects
/// (`tests/`); the simulation runs it behind `monitor::Driver` with a store that forgets what was not committed.
///
/// ```text
/// handle(event) -> state changes at once, effects are held
/// drain()       -> nothing under way at the log: changed state makes a batch, else a confirmation; the held effects wait for it
/// Committed     -> the waiting effects leave, new maps are published
/// Confirmed     -> the waiting effects leave
/// ```
/// An answer computed while something is under way waits for what follows: nobody is told what a crash could take back, nor what is
/// no longer so because another monitor leads, not even by a read.
#[derive(Debug)]
pub struct Mon {
    pub(crate) state: State,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    /// Sessions of OSDs, to share new maps with.
    pub(crate) osd_sessions: BTreeMap<OsdId, SessionId>,
    /// Boots that wait until the predecessor is marked down.
    pub(crate) deferred_boots: BTreeMap<SessionId, BootRequest>,
    /// Versions that subscribers were served last.
    pub(crate) served: crate::session::Versions,
    /// Computed since what is under way was begun.
    held: Vec<Effect>,
    in_flight: Option<InFlight>,
    /// Free to leave.
    ready: Vec<Effect>,
    next_token: u64,
    wall: UTime,
    /// Changes that clients asked for faster than they may, in their order.
    pub(crate) delayed: VecDeque<Delayed>,
    /// Recovery snapshots on their way to OSDs.
    pub(crate) handout: Handout,
}

impl Mon {
    /// Takes up the state that the store holds. `name` is ours, such as `a`. [`Mon::lead`] comes next.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(snapshot: &dyn Snapshot, name: &str, wall: UTime) -> Result<Self, OpenError> {
        let state = State::open(snapshot, name, wall)?;
        Ok(Self {
            state,
            sessions: BTreeMap::new(),
            osd_sessions: BTreeMap::new(),
            deferred_boots: BTreeMap::new(),
            served: crate::session::Versions::default(),
            held: Vec::new(),
            in_flight: None,
            ready: Vec::new(),
            next_token: 1,
            wall,
            delayed: VecDeque::new(),
            handout: Handout::default(),
        })
    }

    /// Says which machine we run on, for commands that show it.
    #[must_use]
    pub fn on_host(mut self, host: String) -> Self {
        let facts = monitor_facts::of_program(&host);
        self.state.monitor_facts.insert(self.state.name.clone(), facts);
        self.state.host = Some(host).filter(|host| !host.is_empty());
        self
    }

    /// Everything that the monitor knows.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Tells which monitors follow this one, and how they are.
    pub fn set_quorum(&mut self, view: QuorumView) {
        self.state.quorum = view;
    }

    /// Tells what monitors say of themselves, by name; those that have never been connected with this one are not there.
    pub fn set_monitor_facts(&mut self, facts: BTreeMap<String, MonitorFacts>) {
        self.state.monitor_facts = facts;
    }

    /// Tells which clients have messages begun that take more memory than they may, a sentence each; for the health checks.
    pub fn set_throttled_senders(&mut self, clients: Vec<String>) {
        self.state.throttled_senders = clients;
    }

    /// Tells where this monitor shows its metrics as the active manager.
    pub fn set_metrics_listener(&mut self, listening: crate::metrics_module::Listening) {
        self.state.mgr.set_metrics(listening);
    }

    /// Tells where this monitor shows its web page as the active manager.
    pub fn set_page_listener(&mut self, listening: crate::metrics_module::Listening) {
        self.state.mgr.set_page(listening);
    }

    /// Id of the cluster.
    #[must_use]
    pub fn fsid(&self) -> Uuid {
        self.state.fsid
    }

    /// Begins to lead, listening at `own` as a monitor and at `mgr` as the manager, which it is unless a stock one is active. A monitor that is alone changes its address in the
    /// map to `own`. OSDs that are up count as silent from now on, whatever they said to the leader before; and until they have reported to
    /// this one nothing is concluded from what it has not heard ([`State::is_warm`]).
    pub fn lead(&mut self, own: AddrVec, mgr: AddrVec, now: Stamp, wall: UTime, entropy: &mut dyn Entropy) {
        let name = self.state.name.clone();
        let mons = &self.state.mon.map().mons;
        if mons.len() == 1 && mons.get(&name).is_some_and(|info| info.addrs != own) {
            self.state.mon.update(|map| {
                map.last_changed = wall;
                if let Some(info) = map.mons.get_mut(&name) {
                    info.addrs = own;
                }
            });
        }
        self.state.warmth.begin(now);
        self.handout.begin(wall);
        self.state.osd.begin(now);
        let gid = self.state.auth.grant_ids().start;
        self.state.mgr.begin(&name, gid, mgr, now, wall);
        self.state.fs.begin(now);
        self.handle(now, wall, entropy, Event::Tick);
    }

    /// Takes in one event.
    pub fn handle(&mut self, now: Stamp, wall: UTime, entropy: &mut dyn Entropy, event: Event) {
        (self.wall, self.state.wall) = (wall, wall);
        let mut cx = Cx { now, wall, entropy };
        match event {
            Event::Open { session, peer } => self.open_session(&cx, session, *peer),
            Event::Message { session, tid, message } => self.message(&mut cx, session, tid, *message),
            Event::Closed { session } => self.closed(session),
            Event::FrontLost => self.front_lost(&cx),
            Event::Committed(token) => return self.committed(&mut cx, token),
            Event::Confirmed(token) => drop(self.let_go(token)),
            Event::WantGlobalIds { front } => {
                let ids = self.state.auth.grant_ids();
                self.hold(Effect::GlobalIds { front, ids });
            }
            Event::SnapshotTaken(taken) => self.snapshot_taken(taken, wall),
            Event::Tick => self.tick(&mut cx),
        }
        self.state.crashes.refresh(&self.state.config_keys);
        self.state.life_expectancies.refresh(&self.state.config_keys);
        self.take_over_caps(&cx);
        self.give_up_unwanted(&cx);
        self.publish();
    }

    /// Takes the effects that may leave, in their order.
    pub fn drain(&mut self, out: &mut Vec<Effect>) {
        if self.in_flight.is_none() {
            if self.state.is_dirty() {
                self.commit();
            } else if !self.held.is_empty() {
                let token = self.wait_for(Wait::Confirm);
                self.ready.push(Effect::Confirm { token });
            }
        }
        out.append(&mut self.ready);
    }

    fn commit(&mut self) {
        let batch = self.state.flush(self.wall);
        if recovery::concerns(&batch) {
            self.handout.changed(self.wall);
        }
        let token = self.wait_for(Wait::Commit(self.state.osd.map().epoch));
        self.ready.push(Effect::Commit { batch, token });
    }

    /// What is held now waits for what the log is asked next.
    fn wait_for(&mut self, waits_for: Wait) -> Token {
        let token = Token(self.next_token);
        self.next_token += 1;
        let held = std::mem::take(&mut self.held);
        self.in_flight = Some(InFlight { token, waits_for, held });
        token
    }

    /// Lets leave what waited for this.
    fn let_go(&mut self, token: Token) -> Wait {
        let in_flight = self.in_flight.take().expect("something is under way when its end is reported");
        assert_eq!(in_flight.token, token, "one thing at a time is asked of the log");
        self.ready.extend(in_flight.held);
        in_flight.waits_for
    }

    fn committed(&mut self, cx: &mut Cx<'_>, token: Token) {
        if let Wait::Commit(epoch) = self.let_go(token)
            && epoch != self.state.osd.published().epoch
        {
            self.state.osd.committed(epoch);
            let map = std::sync::Arc::clone(self.state.osd.published());
            self.state.stats.osd_map(&map);
            self.retry_boots(cx);
        }
        if !self.delayed.is_empty() {
            self.run_delayed(cx);
        }
        let is_behind_others = !self.held.is_empty();
        self.take_over_caps(cx);
        self.publish();
        // Published is what is durable, and that stays true whoever leads.
        if !is_behind_others && !self.state.is_dirty() {
            self.ready.append(&mut self.held);
        }
    }

    /// Sends once the state that it was computed from is durable.
    pub(crate) fn send(&mut self, session: SessionId, tid: u64, message: impl Into<nacre_msg::Message>) {
        self.held.push(Effect::Send { session, tid, message: Box::new(message.into()), served: None });
    }

    pub(crate) fn hold(&mut self, effect: Effect) {
        self.held.push(effect);
    }

    /// Ends a session that broke the rules.
    pub(crate) fn close(&mut self, session: SessionId) {
        self.hold(Effect::Close { session });
        self.closed(session);
    }

    fn closed(&mut self, session: SessionId) {
        self.deferred_boots.remove(&session);
        self.handout.closed(session);
        self.state.stats.services.closed(session.0);
        self.state.stats.counters.closed(session.0);
        let Some(gone) = self.sessions.remove(&session) else { return };
        if gone.is_billed() {
            self.state.stats.bill.session_ended(&gone.identity.name);
        }
        match (gone.osd(), gone.endpoint) {
            (Some(osd), Endpoint::Mon) if self.osd_sessions.get(&osd) == Some(&session) => {
                self.osd_sessions.remove(&osd);
                self.state.osd.refused_boots.remove(&osd);
            }
            (Some(osd), Endpoint::Mgr) => self.state.stats.orders.disconnected(osd, session.0),
            _ => (),
        }
    }
}
