//! [`Driver`]: the turn loop of a monitor's thread.
//!
//! What sockets bring goes to [`Front`], or, between monitors, to [`Links`]; what the front makes of it goes to the leader's [`Mon`], which is
//! here or at the other end of a link (`routing.rs`); what that decides goes to the log ([`Replica`]). One turn takes in all that there is,
//! sends what may leave before anything is written, writes once, and goes on until nothing is left to do.

use crate::audit_file::AuditFile;
use crate::clock_watch::ClockWatch;
use crate::driver_error::DriverError;
use crate::exporter::Exporter;
use crate::leadership::{Leadership, Presence};
use crate::link_msg::{LinkMsg, ToLeader, Vitals};
use crate::links::{LinkCx, LinkEvent, Links};
use crate::members::{Addresses, Monitors};
use crate::page::PageServer;
use crate::planted::Planted;
use crate::probing::Prober;
use crate::quorum_view::{is_heard, look};
use crate::replica::{Replica, ReplicaError, ReplicaEvent};
use crate::store;
use crate::transfer::Transfers;
use crate::uplink::{Follow, Leader, Uplink};
use crate::vitals::VitalsWatch;
use nacre_auth::MonLinkInput;
use nacre_env::Clock;
use nacre_mon::ScrapeTarget;
use nacre_mon::{Batch, Endpoint, Event, Front, FrontEvent, Mon, SessionId, TICK};
use nacre_msg::Message;
use nacre_quorum::{NodeId, PeerMessage};
use nacre_service::{AdminRequest, ConnId, Incoming, Mailbox, Messenger};
use nacre_types::{AuthName, EntityKind, Entropy, Stamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time between two ticks of the log.
const RAFT_TICK: Duration = Duration::from_millis(50);
/// When the leader's process has ended, monitors stand for election one after the other, so far apart.
const CANDIDATES_APART: Duration = Duration::from_millis(100);
/// How long a leader that is told to stop waits for another to take over.
const HAND_OVER_MAX: Duration = Duration::from_millis(500);

/// One monitor with its store, sockets and clocks. Its thread calls [`Driver::turn`]; so does the simulation.
pub struct Driver {
    pub(crate) front: Front,
    pub(crate) presence: Presence,
    /// Only while this monitor leads.
    pub(crate) lead: Option<Leadership>,
    pub(crate) replica: Replica,
    pub(crate) links: Links,
    pub(crate) uplink: Uplink,
    pub(crate) transfers: Transfers,
    pub(crate) monitors: Monitors,
    pub(crate) clocks: ClockWatch,
    pub(crate) vitals: VitalsWatch,
    pub(crate) messenger: Messenger,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) entropy: Box<dyn Entropy + Send>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) next_tick: Stamp,
    pub(crate) next_raft_tick: Stamp,
    /// When to stand for election, since the process of this leader has ended.
    pub(crate) depose_at: Option<(Stamp, Leader)>,
    /// The member that led last, as far as this one knows: also while another stands for election and nobody leads.
    pub(crate) last_leader: Option<NodeId>,
    /// Another monitor says that this one has left the log.
    pub(crate) is_gone: bool,
    /// Where the monitors are, for those that write it down.
    pub(crate) addresses: Addresses,
    pub(crate) audit: AuditFile,
    /// What is asked at the admin socket, where there is one.
    pub(crate) admin: Option<Mailbox<AdminRequest>>,
    /// Where it shows metrics while it is the active manager, if it may.
    pub(crate) exporter: Option<Exporter>,
    /// Who probes pools while it leads, where there may be another thread.
    pub(crate) prober: Option<Prober>,
    /// Where it shows its web page then.
    pub(crate) page: Option<PageServer>,
    pub(crate) planted: Planted,
}

pub(crate) fn session_of(conn: ConnId) -> SessionId {
    SessionId(conn.0)
}

pub(crate) fn conn_of(session: SessionId) -> ConnId {
    ConnId(session.0)
}

/// Whether a peer wants the manager or the monitor. A client of the manager shows a ticket, one of the monitor its name; the first byte of
/// its request tells which (`AUTH_MODE_AUTHORIZER` and `AUTH_MODE_MON` in Ceph's `src/auth/Auth.h`). Either is authenticated, so it does not
/// matter at which of our addresses the request comes in.
fn endpoint_of(payload: &[u8]) -> Endpoint {
    const AUTHORIZER: u8 = 1;
    if payload.first() == Some(&AUTHORIZER) { Endpoint::Mgr } else { Endpoint::Mon }
}

impl Driver {
    /// Turns until told to stop, or until something ends it.
    pub(crate) fn run(mut self) -> Result<(), DriverError> {
        let mut incoming = Vec::new();
        while !self.stop.load(Ordering::Acquire) {
            self.turn(&mut incoming)?;
        }
        self.wind_down(&mut incoming)
    }

    /// A leader that ends hands the lead over, so that nobody has to find out that it is gone.
    fn wind_down(&mut self, incoming: &mut Vec<Incoming>) -> Result<(), DriverError> {
        let until = self.clock.now() + HAND_OVER_MAX;
        // Another's lead is not ours to hand over.
        if let Some(to) = self.successor().filter(|_| self.lead.is_some()) {
            self.replica.hand_over(to);
            self.settle()?;
        }
        while self.lead.is_some() && self.successor().is_some() && self.clock.now() < until {
            self.turn(incoming)?;
        }
        Ok(())
    }

    /// The voter that would take over best: connected, heard, with the shortest way to the log's end.
    fn successor(&self) -> Option<NodeId> {
        let quorum = self.replica.quorum();
        let is_here = |id: &NodeId| *id != quorum.id() && self.links.is_up(*id) && is_heard(quorum, *id);
        let takes_over = |id: &NodeId| is_here(id) && self.monitors.may_lead(*id);
        let voters = quorum.members().voters.into_iter().filter(takes_over);
        voters.min_by_key(|id| (quorum.lag_of(*id).unwrap_or(u64::MAX), *id))
    }

    /// The cluster's state, where this monitor leads.
    #[must_use]
    pub fn mon(&self) -> Option<&Mon> {
        self.lead.as_ref().map(|lead| &lead.mon)
    }

    /// The term in which this monitor leads, if it does as far as it knows.
    #[must_use]
    pub fn led_term(&self) -> Option<u64> {
        self.lead.as_ref().map(|lead| lead.term)
    }

    /// The newest term of the log that this monitor has seen.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.replica.quorum().term()
    }

    /// Which member of the log leads in the present term, as far as this one believes, perhaps itself.
    #[must_use]
    pub fn believed_leader(&self) -> Option<(u64, u64)> {
        let quorum = self.replica.quorum();
        quorum.leader().map(|id| (quorum.term(), id.0))
    }

    /// When the next turn is due even if nothing happens.
    #[must_use]
    pub fn next_deadline(&self) -> Stamp {
        let log = self.links.has_any().then_some(self.next_raft_tick);
        let depose = self.depose_at.map(|(at, _)| at);
        let own = [
            self.messenger.next_deadline(self.clock.now()),
            self.front.next_deadline(),
            self.links.next_deadline(),
            log,
            depose,
        ];
        own.into_iter().flatten().fold(self.next_tick, Stamp::min)
    }

    /// Reads all that is there, reacts to all of it, writes, sends.
    ///
    /// # Errors
    /// [`DriverError`]: the monitor cannot go on.
    pub fn turn(&mut self, incoming: &mut Vec<Incoming>) -> Result<(), DriverError> {
        let now = self.clock.now();
        let timeout = self.next_deadline().since(now);
        let clock = &self.clock;
        self.messenger.turn(clock.now(), || clock.now(), Some(timeout), self.entropy.as_mut(), incoming)?;
        for what in incoming.drain(..) {
            self.incoming(what);
        }
        self.answer_admin();
        self.answer_metrics();
        self.answer_page();
        // What other monitors said before the clock says that they are silent.
        self.follow_links()?;
        self.on_time()?;
        self.settle()?;
        self.check_membership()
    }

    /// What is due by the clock.
    fn on_time(&mut self) -> Result<(), DriverError> {
        let now = self.clock.now();
        if now >= self.next_raft_tick {
            // One, however late: what has not been read yet may be newer.
            self.next_raft_tick = now + RAFT_TICK;
            self.replica.tick()?;
            self.step_members();
        }
        if self.depose_at.is_some_and(|(at, _)| now >= at) {
            self.depose();
        }
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.vitals.measured(self.replica.room());
            self.look_at_monitors();
            self.follow_metrics();
            self.follow_probes();
            self.follow_page();
            self.front_event(FrontEvent::Tick);
            self.mon_event(Event::Tick);
            self.ping();
            self.replica.flush().map_err(ReplicaError::from)?;
        } else if self.front.next_deadline().is_some_and(|at| now >= at) {
            self.front_event(FrontEvent::Tick);
        }
        self.with_links(Links::tick);
        self.note_phase();
        Ok(())
    }

    /// A leader tells its Mon how the monitors are.
    fn look_at_monitors(&mut self) {
        let Some(lead) = &mut self.lead else { return };
        lead.mon.set_throttled_senders(self.messenger.intake().warnings);
        let before = (&lead.mon.state().quorum, self.clock.wall());
        let known = (&self.clocks, &self.vitals);
        let view = look(self.replica.quorum(), &self.monitors, known, before);
        lead.mon.set_quorum(view);
        lead.mon.set_monitor_facts(self.monitors.facts(&self.vitals));
    }

    pub(crate) fn own_vitals(&self) -> Vitals {
        let own = self.vitals.of(self.replica.quorum().id()).cloned().unwrap_or_default();
        let Some(lead) = &self.lead else { return own };
        let members = lead.mon.state().quorum.members(&self.monitors.map);
        Vitals { quorum: members.filter_map(|(_, name)| self.monitors.id_of(name)).collect(), ..own }
    }

    /// Works on links with all that they need.
    pub(crate) fn with_links<T>(&mut self, work: impl FnOnce(&mut Links, &mut LinkCx<'_>) -> T) -> T {
        let key = self.front.key_of(&AuthName::new(EntityKind::MON, ""));
        let (now, wall) = (self.clock.now(), self.clock.wall());
        let (entropy, messenger) = (self.entropy.as_mut(), &mut self.messenger);
        work(&mut self.links, &mut LinkCx { now, wall, entropy, messenger, key })
    }

    pub(crate) fn front_event(&mut self, event: FrontEvent) {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        self.front.handle(now, wall, self.entropy.as_mut(), event);
    }

    /// Something for the leader, where that is this monitor.
    pub(crate) fn mon_event(&mut self, event: Event) {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        if let Some(lead) = &mut self.lead {
            lead.mon.handle(now, wall, self.entropy.as_mut(), event);
        }
    }

    fn incoming(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Event { conn, event } if self.links.has(conn) => {
                self.with_links(|links, cx| links.connection_event(conn, event, cx));
            }
            Incoming::Event { conn, event } => self.connection_event(conn, event),
            Incoming::Closed { conn, refused, .. } if self.links.has(conn) => {
                self.with_links(|links, cx| links.closed(conn, refused, cx));
            }
            Incoming::Closed { conn, reason, .. } => {
                tracing::debug!(conn = conn.0, reason, "connection closed");
                self.forget(conn);
            }
        }
    }

    fn forget(&mut self, conn: ConnId) {
        self.front_event(FrontEvent::Closed { session: session_of(conn) });
    }

    /// Ends a connection with a peer of the front.
    pub(crate) fn end_session(&mut self, conn: ConnId) {
        self.messenger.close(conn);
        self.forget(conn);
    }

    fn connection_event(&mut self, conn: ConnId, event: nacre_msgr::Event) {
        let session = session_of(conn);
        match event {
            nacre_msgr::Event::AuthRequest { method, modes, payload } => {
                let endpoint = endpoint_of(&payload);
                let kind = self.messenger.peer_kind(conn);
                if kind == EntityKind::MON && endpoint == Endpoint::Mgr {
                    // Monitors show each other tickets of their own making.
                    let input = MonLinkInput::Request(method, modes, payload);
                    self.with_links(|links, cx| links.accept(conn, input, cx));
                    return;
                }
                self.front_event(FrontEvent::AuthRequest { session, endpoint, kind, method, modes, payload });
            }
            nacre_msgr::Event::AuthMore { payload } => {
                self.front_event(FrontEvent::AuthMore { session, payload })
            }
            nacre_msgr::Event::Established(peer) => {
                let seen_at = peer.seen_at.socket.map(|socket| socket.ip().to_canonical());
                let (kind, addrs) = (peer.kind, peer.addrs);
                self.front_event(FrontEvent::Established { session, kind, addrs, seen_at });
            }
            nacre_msgr::Event::Message(raw) => {
                let (tid, kind) = (raw.tid, raw.kind);
                match Message::decode(raw) {
                    Ok(message) => {
                        self.front_event(FrontEvent::Message { session, tid, message: Box::new(message) })
                    }
                    Err(error) => {
                        tracing::warn!(conn = conn.0, kind, %error, "a message does not decode; its connection is closed");
                        self.end_session(conn);
                    }
                }
            }
            // The monitor accepts lossy sessions; the other events are for those that dial or resume.
            _ => (),
        }
    }

    /// Takes in what came over links. True when there was anything.
    fn follow_links(&mut self) -> Result<bool, DriverError> {
        let events = self.links.take_events();
        let is_busy = !events.is_empty();
        for event in events {
            match event {
                LinkEvent::Up(id) => self.announce_lead(id),
                LinkEvent::Said(from, message) => self.said(from, *message)?,
                LinkEvent::Lost(id) => self.lost(id),
                LinkEvent::Refused(id) => self.refused(id),
                LinkEvent::Outdated(theirs) => {
                    return Err(DriverError::Outdated { theirs, ours: self.monitors.incarnation() });
                }
            }
        }
        Ok(is_busy)
    }

    fn said(&mut self, from: NodeId, message: LinkMsg) -> Result<(), DriverError> {
        match message {
            LinkMsg::Hello(_, facts) => self.vitals.introduced(from, facts),
            LinkMsg::Gone => self.is_gone = true,
            LinkMsg::Raft(message) => {
                let outcome = self.replica.step(from, message);
                self.blame(from, outcome);
            }
            LinkMsg::Tables(part) => {
                if let Some((message, tables)) = self.transfers.received(from, part) {
                    let outcome = self.replica.step_with_tables(from, message, tables);
                    self.blame(from, outcome);
                }
            }
            LinkMsg::Leads { term, applied } => self.uplink.announced(Leader { term, id: from }, applied),
            LinkMsg::ToLeader { term, what } => self.handle_from_front(from, term, what)?,
            LinkMsg::ToFront { term, what } => self.handle_from_leader(Leader { term, id: from }, what),
            LinkMsg::Ping { sent, vitals } => {
                self.vitals.said(from, vitals);
                let answer = LinkMsg::Pong { sent, wall: self.clock.wall() };
                self.links.send(from, answer, &mut self.messenger);
            }
            LinkMsg::Pong { sent, wall } => {
                let times = (sent, self.clock.now());
                self.clocks.answered(from, times, wall, self.clock.wall());
            }
        }
        Ok(())
    }

    /// Ends the link with a monitor that broke the rules.
    fn blame(&mut self, from: NodeId, outcome: Result<(), nacre_quorum::StepError>) {
        if let Err(error) = outcome {
            tracing::error!(member = from.0, %error, "another monitor's message is refused");
            self.with_links(|links, cx| links.reset(from, cx));
        }
    }

    /// What was on its way between a monitor and us is lost.
    fn lost(&mut self, with: NodeId) {
        self.uplink.lost(with);
        self.clocks.lost(with);
        self.vitals.lost(with);
        if self.transfers.lost(with) {
            self.replica.tables_sent(with, false);
        }
        self.sessions_lost(with);
    }

    /// Nobody listens at a monitor's address. If it leads, it does not any more; and if it was the last to lead, another may stand already
    /// that cannot win.
    fn refused(&mut self, id: NodeId) {
        let quorum = self.replica.quorum();
        if self.last_leader != Some(id) || !self.links.is_cut(id) || self.depose_at.is_some() {
            return;
        }
        let turn_of = |id: NodeId| (self.monitors.turn_of(id), id);
        let before_us = |other: &NodeId| *other != id && turn_of(*other) < turn_of(quorum.id());
        let turn = quorum.members().voters.into_iter().filter(before_us).count();
        let wait = CANDIDATES_APART.saturating_mul(u32::try_from(turn).unwrap_or(u32::MAX));
        self.depose_at = Some((self.clock.now() + wait, Leader { term: quorum.term(), id }));
    }

    fn depose(&mut self) {
        let Some((_, leader)) = self.depose_at.take() else { return };
        // One that stood before us may have found that its log ends before ours: then nobody leads, in a later term, and it is our turn.
        let another_leads = self.replica.quorum().leader().is_some_and(|id| id != leader.id);
        if !another_leads && self.links.is_cut(leader.id) {
            if self.replica.quorum().leader() == Some(leader.id) {
                tracing::info!(leader = leader.id.0, "the leader's process has ended");
            }
            self.replica.leader_is_dead();
        }
    }

    /// Lets all parts work until none of them has anything to do. What may leave before something is written leaves before that.
    pub(crate) fn settle(&mut self) -> Result<(), DriverError> {
        let mut events = Vec::new();
        loop {
            self.replica.drain(&mut events)?;
            let mut is_busy = !events.is_empty() | self.follow_links()?;
            for event in events.drain(..) {
                self.replica_event(event)?;
            }
            self.follow_leader();
            is_busy |= self.route()?;
            self.pump_transfers()?;
            if is_busy {
                continue;
            }
            self.messenger.flush();
            if !self.replica.must_write() {
                return Ok(());
            }
            self.replica.write(&mut events)?;
        }
    }

    fn pump_transfers(&mut self) -> Result<(), DriverError> {
        if self.transfers.are_under_way() {
            let complete = self.transfers.pump(&mut self.links, &mut self.messenger);
            for to in complete.map_err(ReplicaError::from)? {
                self.replica.tables_sent(to, true);
            }
        }
        Ok(())
    }

    fn replica_event(&mut self, event: ReplicaEvent) -> Result<(), DriverError> {
        match event {
            ReplicaEvent::Send(to, message) => {
                self.links.send(to, LinkMsg::Raft(message), &mut self.messenger);
            }
            ReplicaEvent::SendTables(to, message) => self.send_tables(to, message)?,
            ReplicaEvent::Applied(batch) => self.applied(&batch)?,
            ReplicaEvent::TablesReplaced => {
                let (front, name) = (&mut self.front, &self.presence.name);
                store::read(self.replica.tables()?, |snapshot| front.reload(snapshot, name))
                    .map_err(ReplicaError::from)??;
                if let Some(exporter) = &mut self.exporter {
                    exporter.target =
                        store::read(self.replica.tables()?, |snapshot| ScrapeTarget::open(snapshot, name))
                            .map_err(ReplicaError::from)??;
                }
                self.follow_tables()?;
            }
            ReplicaEvent::Committed(token) => self.mon_event(Event::Committed(token)),
            ReplicaEvent::Confirmed(token) => self.mon_event(Event::Confirmed(token)),
            ReplicaEvent::BecameLeader(term) => self.begin_to_lead(term)?,
            ReplicaEvent::BecameFollower => self.cease_to_lead(),
        }
        Ok(())
    }

    fn applied(&mut self, batch: &Batch) -> Result<(), DriverError> {
        self.front.applied(batch)?;
        self.audit.applied(batch)?;
        if let Some(exporter) = &mut self.exporter {
            exporter.target.applied(batch)?;
        }
        if nacre_mon::monmap::changes_monitors(batch) {
            self.follow_tables()?;
        }
        Ok(())
    }

    fn send_tables(&mut self, to: NodeId, mut message: PeerMessage) -> Result<(), DriverError> {
        if !self.links.is_up(to) {
            // It may never come: nothing is kept for it meanwhile. When it is heard, the log asks again.
            self.replica.tables_sent(to, false);
            return Ok(());
        }
        let (tables, position, members) = self.replica.all_tables()?;
        tracing::info!(member = to.0, "a monitor is too far behind and gets all tables");
        message.set_snapshot(position, &members);
        self.transfers.begin(to, tables, message);
        Ok(())
    }

    fn begin_to_lead(&mut self, term: u64) -> Result<(), DriverError> {
        let times = (self.clock.now(), self.clock.wall());
        let tables = self.replica.tables()?;
        self.lead = Some(Leadership::open(term, tables, &self.presence, times, self.entropy.as_mut())?);
        tracing::info!(mon = self.presence.name, term, "this monitor leads");
        self.uplink.announced(Leader { term, id: self.replica.quorum().id() }, 0);
        self.links.members().into_iter().for_each(|id| self.announce_lead(id));
        self.follow_metrics();
        Ok(())
    }

    /// Tells another monitor that we lead, so that its front's sessions come to us.
    fn announce_lead(&mut self, to: NodeId) {
        if let Some(lead) = &self.lead {
            let message = LinkMsg::Leads { term: lead.term, applied: self.replica.applied().index };
            self.links.send(to, message, &mut self.messenger);
        }
    }

    fn cease_to_lead(&mut self) {
        self.transfers.stop();
        if let Some(lead) = self.lead.take() {
            tracing::info!(mon = self.presence.name, term = lead.term, "this monitor leads no more");
            self.front.set_active_mgr(false);
            self.uplink.lost(self.replica.quorum().id());
            self.follow_metrics();
        }
    }

    /// The front serves while a leader is heard that knows its sessions, and not before this monitor's tables have what the leader's had when it
    /// said that it leads: they may hold keys and caps that were revoked since.
    fn follow_leader(&mut self) {
        self.last_leader = self.replica.quorum().leader().or(self.last_leader);
        let leader = self.heard_leader();
        match self.uplink.follow(leader, self.clock.now()) {
            Follow::Stay => (),
            Follow::Resume => self.front.resume_sessions(),
            Follow::End => self.front.end_sessions(),
        }
        let is_current = self.replica.applied().index >= self.uplink.applied_by_leader();
        let is_served = leader.is_some() && self.uplink.leader() == leader && is_current;
        self.front.serve(is_served);
    }

    /// Tells the leader of a session, or that this front needs something.
    pub(crate) fn tell_leader(&mut self, what: ToLeader) -> Result<(), DriverError> {
        let Some(leader) = self.uplink.leader() else { return Ok(()) };
        if leader.id == self.replica.quorum().id() {
            return self.handle_from_front(leader.id, leader.term, what);
        }
        let message = LinkMsg::ToLeader { term: leader.term, what };
        if !self.links.send(leader.id, message, &mut self.messenger) {
            self.with_links(|links, cx| links.reset(leader.id, cx));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (quorum, leads) = (self.replica.quorum(), self.lead.is_some());
        write!(
            f,
            "Driver({quorum:?}, leads: {leads}, {:?}, {:?}, {:?})",
            self.uplink, self.front, self.messenger
        )
    }
}
