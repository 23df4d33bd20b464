//! [`Shard`]: one thread of an OSD. It owns PGs, their part of the store, and client
//! connections, and carries each request from socket to disk and back.
//!
//! A turn: wait; take what sockets, other shards and the store have; hand each to its PG; carry out what
//! the PGs want; write to the sockets; sleep until the nearest deadline.

mod asok;
mod bench;
mod broken;
mod effects;
mod keys;
mod leases;
mod peers;
mod room;
mod turn_latency;
mod unseen;
mod work;

use crate::admin;
use crate::background::IdleTrim;
use crate::config::OsdConfig;
use crate::control::{ControlCx, OsdControl};
use crate::control_event::ControlEvent;
use crate::links::NetCx;
use crate::load_pgs::{stored_initial_pg_num, stored_maps};
use crate::lost;
use crate::maps::{MapCache, Source};
use crate::peer_links::PeerLinks;
use crate::pg_registry::PgRegistry;
use crate::sessions::{AuthFrame, InboundPeer, Limits, Sessions};
use crate::shard_msg::{Question, QuestionKind, ShardMsg, ShardRouter, client_op, session_id};
use crate::storage::StoreConfig;
use crate::tracker::Tracker;
use crate::walk::Walk;
use nacre_auth::RotatingKeys;
use nacre_env::{Clock, ListenerId};
use nacre_heartbeat::Leases;
use nacre_maps::OsdMap;
use nacre_msg::peer::{PeerMessage, PeerVersions};
use nacre_msg::{Message, OsdPgCreate2, RawMessage, backoff_op};
use nacre_msgr::{DATA_BYTES_MAX, Event as ConnEvent};
use nacre_options::Values;
use nacre_osd_core::{AdmissionGate, GateDecision, MapRelease, PeerDecision, warns_clients};
use nacre_pg::{
    Cx, Effects, Event, Permit, Pg, PgCreateInfo, Planted, RecoveryThrottle, Reserver, Session, SessionId,
    StoreRoom,
};
use nacre_service::{ConnId, Incoming, Mailbox, Messenger};
use nacre_store::{Completion, ObjectStore};
use nacre_types::{Entropy, OsdId, SpgId, Stamp, UTime, seconds};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// PGs get a tick this often.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Changes of the PGs are reported to OSD control at most this often.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// Finished messages kept for `dump_historic_ops`, whatever `osd_op_history_size` says.
const HISTORY_MAX: usize = 10_000;

/// One thread's part of an OSD.
///
/// Its thread calls [`Shard::begin`] once and then [`Shard::turn`] until [`Shard::is_stopping`]. A turn takes what sockets, other shards, the
/// clock and the store have, hands each piece to the core that it concerns (a PG, OSD control), carries out the effects at once, and sends at
/// its end. A shard owns its sockets, its part of the store and its PGs; with other shards it shares messages only. The price: a turn that takes long
/// holds up everybody on this thread, heartbeats included, so work is bounded per turn and goes on in the next one. The simulation drives the
/// very same turns, with clock, randomness, sockets and disk of its own (`assemble`).
pub struct Shard {
    pub(crate) config: OsdConfig,
    clock: Box<dyn Clock>,
    entropy: Box<dyn Entropy + Send>,
    messenger: Messenger,
    mailbox: Mailbox<ShardMsg>,
    pub(crate) router: ShardRouter,
    control: Option<OsdControl>,
    /// Where OSD control is.
    peers: Option<PeerLinks>,
    /// When OSD control is due: as it last said, since only [`Shard::lend_control`] changes that.
    control_due: Option<Stamp>,
    /// Where clients come in.
    public: ListenerId,
    maps: MapCache,
    walk: Walk,
    /// Maps that the PGs must not see yet, with the messages that brought them.
    map_release: MapRelease<(Vec<Arc<OsdMap>>, Arc<nacre_msg::MOsdMap>)>,
    gate: AdmissionGate,
    /// The store's room for what clients write, as of the last completion.
    room: StoreRoom,
    planted: Planted,
    versions: PeerVersions,
    sent_to_peers: u64,
    /// Clients' messages for PGs that we may not serve just now.
    ops_awaiting_lease: BTreeMap<SpgId, Vec<nacre_pg::ClientOp>>,
    /// PGs with messages that wait for a turn that may do more, each once.
    put_off: VecDeque<SpgId>,
    keys: Arc<RotatingKeys>,
    sessions: Sessions,
    pub(crate) pgs: PgRegistry,
    pub(crate) store: Box<dyn ObjectStore + Send>,
    effects: Effects,
    incoming: Vec<Incoming>,
    completions: Vec<Completion>,
    events: Vec<ControlEvent>,
    pub(crate) now: Stamp,
    pub(crate) wall: UTime,
    tick_at: Stamp,
    report_at: Stamp,
    booted: Arc<AtomicBool>,
    pub(crate) stopping: bool,
    bench: Option<bench::Bench>,
    /// Blocks that benches have submitted so far, which number the tokens of the next.
    bench_blocks: u64,
    /// The store cannot be trusted: see [`Shard::break_down`].
    broken: bool,
    pub(crate) options: Arc<Values>,
    counters: Counters,
    tracker: Tracker,
    /// This turn has little to do: see [`Shard::is_lightly_loaded`].
    lightly_loaded: bool,
    slow_ops_warned_at: Stamp,
    reserver: Reserver,
    throttle: RecoveryThrottle,
    /// What [`Tracker::commits`] was at the last report.
    commits_told: (u64, u64),
    pub(crate) idle_trim: IdleTrim,
}

/// Sums since the start, for `perf dump`.
#[derive(Debug, Default)]
struct Counters {
    ops: u64,
    op_in_bytes: u64,
    replies: u64,
    op_out_bytes: u64,
    latency_ns: u64,
}

/// What a shard is made of.
pub(crate) struct Parts {
    pub(crate) config: OsdConfig,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) entropy: Box<dyn Entropy + Send>,
    pub(crate) messenger: Messenger,
    pub(crate) mailbox: Mailbox<ShardMsg>,
    pub(crate) router: ShardRouter,
    pub(crate) control: Option<OsdControl>,
    pub(crate) peers: Option<PeerLinks>,
    pub(crate) public: ListenerId,
    pub(crate) store: Box<dyn ObjectStore + Send>,
    pub(crate) booted: Arc<AtomicBool>,
    pub(crate) tuning: nacre_pg::Tuning,
}

impl Shard {
    pub(crate) fn new(parts: Parts) -> Self {
        let (now, wall) = (parts.clock.now(), parts.clock.wall());
        let (planted, versions) = (parts.tuning.planted, parts.tuning.versions);
        let mut pgs = PgRegistry::new(parts.tuning);
        let stored = stored_maps(parts.store.as_ref());
        let newest = stored.last().cloned();
        let mut router = parts.router;
        router.remember(stored_initial_pg_num(parts.store.as_ref()));
        stored.into_iter().for_each(|map| pgs.set_map(map));
        Self {
            maps: MapCache::new(parts.config.fsid, newest),
            walk: Walk::default(),
            sessions: Sessions::new(router.me, parts.config.methods.clone()),
            pgs,
            gate: AdmissionGate::new(
                parts.config.id,
                Leases::new(Duration::ZERO, now),
                planted == Planted::LeaseIgnored,
            ),
            config: parts.config,
            clock: parts.clock,
            entropy: parts.entropy,
            messenger: parts.messenger,
            mailbox: parts.mailbox,
            router,
            control: parts.control,
            peers: parts.peers,
            control_due: None,
            public: parts.public,
            map_release: MapRelease::default(),
            planted,
            versions,
            sent_to_peers: 0,
            ops_awaiting_lease: BTreeMap::new(),
            put_off: VecDeque::new(),
            keys: Arc::default(),
            room: room::room(&parts.store.usage()).for_pgs(),
            store: parts.store,
            effects: Effects::new(),
            incoming: Vec::new(),
            completions: Vec::new(),
            events: Vec::new(),
            now,
            wall,
            tick_at: now,
            report_at: now,
            booted: parts.booted,
            stopping: false,
            bench: None,
            bench_blocks: 0,
            broken: false,
            options: Arc::default(),
            counters: Counters::default(),
            tracker: Tracker::new(),
            lightly_loaded: false,
            slow_ops_warned_at: now,
            reserver: Reserver::new(1),
            throttle: RecoveryThrottle::new(),
            idle_trim: IdleTrim::default(),
            commits_told: (0, 0),
        }
        .configured()
    }

    fn configured(mut self) -> Self {
        if let (Some(option), StoreConfig::File { memory_bytes, .. }) =
            (nacre_options::find("osd_memory_target"), &self.config.store)
        {
            Arc::make_mut(&mut self.options).tell(option, memory_bytes.to_string()); // as it was started, for who asks
        }
        self.follow_options();
        if self.planted == Planted::MapGapAccepted {
            self.maps.take_gaps();
        }
        self
    }

    /// Takes over what options say about recovery.
    fn follow_options(&mut self) {
        let options = &self.options;
        let places = options.count("osd_max_backfills").max(1);
        let objects = match options.count("osd_recovery_max_active") {
            0 => options.count("osd_recovery_max_active_ssd"),
            objects => objects,
        };
        let target = options.number("nacre_recovery_client_latency_target_ms").max(0.0);
        // All PGs that hold a place together keep to the number of objects.
        self.throttle.configure(seconds(target / 1e3), objects.div_ceil(places));
        self.reserver.set_places(places);
        // 0 means no limit.
        let limit = |name| Some(options.count(name)).filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let (messages, bytes) = (limit("osd_client_message_cap"), limit("osd_client_message_size_cap"));
        self.sessions.set_limits(Limits { messages, bytes });
        let kept_for = options.seconds("osd_op_history_duration");
        self.tracker.configure(options.count("osd_op_history_size").min(HISTORY_MAX), kept_for);
        self.tracker.enable(options.flag("osd_enable_op_tracker"));
        self.pgs.ignore_history_les(options.flag("osd_find_best_info_ignore_history_les"));
    }

    /// Takes up what the store holds and looks for a monitor.
    pub fn begin(&mut self) {
        self.load_pgs();
        self.with_control(OsdControl::start);
    }

    /// Runs until told to stop.
    ///
    /// # Errors
    /// When sockets cannot be waited for any more.
    pub(crate) fn run(mut self) -> io::Result<()> {
        self.begin();
        while !self.stopping {
            self.turn()?;
        }
        Ok(())
    }

    /// True once it was told to stop, or cannot go on: no more turns then.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// When the next turn is due even if nothing happens.
    #[must_use]
    pub fn next_deadline(&self) -> Stamp {
        let now = self.clock.now();
        if self.has_work() {
            return now;
        }
        self.messenger.next_deadline(now).into_iter().chain([self.deadline()]).min().unwrap_or(now)
    }

    /// Takes what sockets, other shards and the store have, reacts to all of it, and sends.
    ///
    /// # Errors
    /// When sockets cannot be waited for any more.
    pub fn turn(&mut self) -> io::Result<()> {
        let began = self.clock.now();
        let control_due = self.control_due;
        let timeout = self.deadline().since(began);
        let timeout = if self.router.is_stuck() { timeout.min(Duration::from_millis(1)) } else { timeout };
        let timeout = if self.has_work() { Duration::ZERO } else { timeout };
        let mut incoming = std::mem::take(&mut self.incoming);
        let clock = &self.clock;
        let entropy = self.entropy.as_mut();
        self.now = self.messenger.turn(began, || clock.now(), Some(timeout), entropy, &mut incoming)?;
        self.wall = self.clock.wall();
        let msgs: Vec<ShardMsg> = self.mailbox.take().collect();
        self.note_load(incoming.len() + msgs.len());
        self.begin_work();
        for item in incoming.drain(..) {
            match item {
                Incoming::Event { conn, event } => self.conn_event(conn, event),
                Incoming::Closed { conn, reason, refused, session } => {
                    self.conn_closed(conn, &reason, refused, session);
                }
            }
        }
        self.incoming = incoming;
        msgs.into_iter().for_each(|msg| self.shard_msg(msg));
        self.run_deadlines(control_due);
        self.continue_bench();
        self.read_local();
        self.flush_early();
        self.drain_store();
        // Also one that nobody has used since.
        self.is_broken();
        self.store.set_wakeups(self.broken || !self.pgs.wait_for_peers());
        self.router.retry();
        self.sessions.unthrottle(&mut self.messenger);
        self.messenger.flush();
        Ok(())
    }

    /// Works until neither the store nor this shard's own messages bring anything more. Draining also starts
    /// what was submitted.
    pub(crate) fn drain_store(&mut self) {
        loop {
            self.read_local();
            let mut completions = std::mem::take(&mut self.completions);
            self.store.drain(&mut completions);
            let idle = completions.is_empty();
            if !idle {
                self.now = self.clock.now();
                self.room = room::room(&self.store.usage()).for_pgs();
                self.note_load(completions.len());
            }
            for completion in completions.drain(..) {
                let (of, event) = self.pgs.completed(completion);
                if of.is_of_pg() {
                    self.deliver(of.spg, event);
                } else {
                    self.bench_durable(of);
                }
            }
            self.completions = completions;
            if !idle {
                self.flush_early(); // draining may take a step of a checkpoint
            }
            let decisions = self.reserver.take_decisions();
            let idle = idle && decisions.is_empty();
            for decision in decisions {
                self.deliver(decision.spg, Event::Reservation(decision));
            }
            if idle && !self.router.has_local() {
                return;
            }
        }
    }

    /// Takes this shard's messages to itself, so that what they submit starts together.
    fn read_local(&mut self) {
        while let Some(msg) = self.router.next_local() {
            self.shard_msg(msg);
        }
    }

    fn deadline(&self) -> Stamp {
        let pgs = self.pgs.next_deadline();
        self.control_due
            .into_iter()
            .chain(pgs)
            .chain(self.map_release.next_deadline())
            .chain(self.bench_deadline())
            .chain([self.tick_at])
            .min()
            .unwrap_or(self.tick_at)
    }

    /// Does what is due. `control_due` is when OSD control was due at the turn's beginning: what has become due since is
    /// for the next turn.
    fn run_deadlines(&mut self, control_due: Option<Stamp>) {
        let all = self.now >= self.tick_at;
        if all {
            self.tick_at = self.now + TICK_INTERVAL;
        }
        if self.map_release.next_deadline().is_some_and(|until| self.now >= until) {
            self.release_maps();
        }
        for spg in self.pgs.due(self.now, all) {
            self.deliver(spg, Event::Tick);
        }
        if all {
            self.start_scrub();
            self.idle_trim();
            self.tracker.expire(self.now);
            self.warn_slow_ops();
        }
        if all || control_due.is_some_and(|at| at <= self.now) {
            self.with_control(OsdControl::tick);
            self.tell_losses();
            self.ask_for_past();
        }
        if !self.broken && self.now >= self.report_at && (all || self.pgs.have_changed()) {
            self.report_at = self.now + REPORT_INTERVAL;
            let usage = self.usage_for_clients();
            let mut report = self.pgs.report(self.router.me, usage, self.wall);
            let (count, spent_ns) = self.tracker.commits();
            report.commits = (count - self.commits_told.0, spent_ns - self.commits_told.1);
            self.commits_told = (count, spent_ns);
            report.throttled = self.messenger.intake().warnings;
            self.router.send(0, ShardMsg::Stats(report));
        }
    }

    /// Lets OSD control work, if this shard is it, and takes in what it learned.
    fn with_control<T>(&mut self, work: impl FnOnce(&mut OsdControl, &mut ControlCx<'_>) -> T) -> Option<T> {
        let (result, heard) = self.lend_control(work)?;
        heard.into_iter().for_each(|events| self.learn(events));
        Some(result)
    }

    /// Lets OSD control work, if this shard is it, and yields what it heard.
    fn lend_control<T>(
        &mut self,
        work: impl FnOnce(&mut OsdControl, &mut ControlCx<'_>) -> T,
    ) -> Option<(T, Vec<ControlEvent>)> {
        let (control, peers) = (self.control.as_mut()?, self.peers.as_mut()?);
        let mut cx = ControlCx {
            // Not the turn's: a promise given by a clock that was read before a pause would end before the lease does
            // that rests on it.
            net: NetCx {
                now: self.clock.now(),
                wall: self.wall,
                entropy: self.entropy.as_mut(),
                messenger: &mut self.messenger,
            },
            peers,
            maps: &self.maps,
            options: &self.options,
            events: &mut self.events,
        };
        let result = work(control, &mut cx);
        self.booted.store(control.is_booted(), Ordering::Release);
        self.control_due = control.next_deadline().into_iter().chain(cx.peers.next_deadline()).min();
        Some((result, std::mem::take(&mut self.events)))
    }

    fn learn(&mut self, events: ControlEvent) {
        match events {
            ControlEvent::Maps(message, source) => {
                if source == Source::Monitor {
                    self.learn_past(&message);
                }
                self.learn_maps(&Arc::new(*message), source);
            }
            ControlEvent::Keys(keys) => self.learn_keys(keys),
            ControlEvent::Void(void) => self.learn_void(void),
            ControlEvent::Caps(caps) => self.learn_caps(caps),
            ControlEvent::Create(create) => self.create_pgs(&create),
            ControlEvent::Options(config) => {
                let mut options = Values::clone(&self.options);
                options.store(&config);
                self.set_options(options);
            }
            ControlEvent::Leases(leases) => {
                self.router.send_others(|| ShardMsg::Leases(Arc::clone(&leases)));
                self.set_leases(leases);
            }
            ControlEvent::Rebound(msgr_config) => {
                for conn in self.sessions.of_osds() {
                    self.messenger.close(conn);
                    self.sessions.close(conn);
                }
                self.router.send_others(|| ShardMsg::Rebound(Arc::clone(&msgr_config)));
            }
            ControlEvent::End => self.end(),
            ControlEvent::Force(order) => self.force_recovery(&order),
            ControlEvent::Scrub(scrub) => {
                let msg = |spg| ShardMsg::Scrub { spg, deep: scrub.deep, repair: scrub.repair };
                for spg in &scrub.pgs {
                    self.router.send(self.router.shard_of(spg), msg(*spg));
                }
            }
        }
    }

    fn learn_maps(&mut self, message: &Arc<nacre_msg::MOsdMap>, source: Source) {
        let before = Arc::clone(self.maps.newest());
        let mut learned = Vec::new();
        let refused = self.maps.learn(message, source, &mut learned).err();
        // Links follow the newest map before PGs speak to whom it has up; what else OSD control hears comes
        // after, or PGs would see maps out of order.
        let follow = |control: &mut OsdControl, cx: &mut ControlCx<'_>| {
            if before.epoch < cx.maps.newest().epoch {
                control.maps_learned(cx);
            }
            if let Some(error) = &refused {
                control.maps_refused(cx, error);
            }
        };
        let heard = self.lend_control(follow).map_or_else(Vec::new, |((), events)| events);
        if !learned.is_empty() {
            self.map_release.learned((learned, Arc::clone(message)));
            self.release_maps();
        }
        self.warn_clients(&before);
        heard.into_iter().for_each(|events| self.learn(events));
    }

    /// Lets the PGs of all shards see the maps that were kept back, unless a promise still forbids it.
    fn release_maps(&mut self) {
        let until = self.control.as_ref().map(|control| control.keeps_maps_until(self.maps.newest()));
        let Some(released) = self.map_release.release(until, self.now) else { return };
        for (maps, message) in released {
            maps.iter().for_each(|map| self.advance(map));
            if self.control.is_some() {
                self.router.send_others(|| ShardMsg::Maps(Arc::clone(&message)));
            }
        }
        self.retry_awaiting_lease();
    }

    /// Hands maps to all clients where they are not to wait for an OSD that went down.
    fn warn_clients(&mut self, before: &OsdMap) {
        if !warns_clients(before, self.maps.newest()) {
            return;
        }
        for session in self.sessions.clients() {
            self.push_maps(session, before.epoch);
        }
    }

    /// One map further.
    fn advance(&mut self, map: &Arc<OsdMap>) {
        let new_pools = self.router.learn_map(map);
        self.save_map(map, new_pools);
        self.pgs.set_map(Arc::clone(map));
        self.advance_pgs(map, false);
        for (spg, create_info) in self.pgs.take_held_creates() {
            self.create_pg(spg, create_info);
        }
        for (from, message) in self.pgs.take_held_peer() {
            self.peer_event(from, message);
        }
        for (spg, op) in self.pgs.take_held() {
            self.client_op(spg, op);
        }
    }

    pub(crate) fn merge_into(&mut self, map: &Arc<OsdMap>, spg: SpgId) {
        if self.broken {
            return;
        }
        if self.pgs.get(&spg).is_none_or(|pg| pg.sources_in(map).is_empty()) {
            return;
        }
        self.finish_moving(spg);
        let due = self.pgs.get(&spg).map(|pg| pg.sources_in(map)).unwrap_or_default();
        due.iter().for_each(|source| self.finish_moving(*source));
        // One that has seen the map was made since, by a split.
        let is_behind = |source: &&SpgId| self.pgs.get(source).is_some_and(|it| it.epoch() < map.epoch);
        let due: Vec<SpgId> = due.iter().filter(is_behind).copied().collect();
        let sources: Vec<Pg> = due.iter().filter_map(|source| self.pgs.take(source)).collect();
        sources.iter().for_each(|source| self.reserver.forget(&source.spg()));
        let (store, entropy) = (self.store.as_ref(), self.entropy.as_mut());
        let mut cx = cx(
            map,
            (self.now, self.wall),
            store,
            self.room,
            entropy,
            (&mut self.throttle, &mut self.effects),
        );
        self.pgs.absorb(&mut cx, &spg, sources);
        self.execute_effects(spg);
    }

    fn create_pgs(&mut self, create: &OsdPgCreate2) {
        for (spg, (created, _)) in &create.pgs {
            self.router.send(
                self.router.shard_of(spg),
                ShardMsg::Create(*spg, Box::new(PgCreateInfo::ordered(*created))),
            );
        }
    }

    fn conn_event(&mut self, conn: ConnId, event: ConnEvent) {
        match event {
            ConnEvent::AuthRequest { method, modes, payload } => {
                self.authenticate(conn, AuthFrame::Request { method, modes, payload });
            }
            ConnEvent::AuthMore { payload } => self.authenticate(conn, AuthFrame::More { payload }),
            ConnEvent::Message(raw) => self.message(conn, raw),
            ConnEvent::SessionReset { lost_count } => self.session_reset(conn, lost_count),
            ConnEvent::Established(peer) if self.sessions.inbound_peer(conn).is_some() => {
                let pings =
                    self.control.as_ref().is_some_and(|control| control.hears_pings(&self.messenger, conn));
                if let Err(reason) = self.sessions.established(conn, &peer, pings) {
                    tracing::warn!(?conn, reason, "a connection is not what it says");
                    self.messenger.close(conn);
                    self.sessions.close(conn);
                }
                if let Some(InboundPeer::Peer(osd)) = self.sessions.inbound_peer(conn) {
                    let osd = *osd;
                    self.with_control(|_, cx| cx.peers.connected(osd, &peer, conn, cx.net.messenger));
                }
            }
            event => {
                self.with_control(|control, cx| control.conn_event(cx, conn, event));
            }
        }
    }

    fn conn_closed(
        &mut self,
        conn: ConnId,
        reason: &str,
        refused: bool,
        session: Option<Box<nacre_msgr::Session>>,
    ) {
        tracing::debug!(osd = self.config.id, ?conn, reason, "connection closed");
        match self.sessions.close(conn) {
            Some(InboundPeer::Client(session, _)) => {
                let id = session.id;
                self.session_closed(id);
                self.router.send_others(|| ShardMsg::SessionClosed(id));
            }
            _ => {
                self.with_control(|control, cx| control.conn_closed(cx, conn, session, refused));
            }
        }
    }

    fn session_closed(&mut self, session: SessionId) {
        self.ops_awaiting_lease.values_mut().for_each(|ops| ops.retain(|op| op.session.id != session));
        self.pgs.drop_held(session);
        for spg in self.pgs.all() {
            self.deliver(spg, Event::SessionClosed(session));
        }
    }

    fn message(&mut self, conn: ConnId, raw: RawMessage) {
        match self.sessions.inbound_peer(conn) {
            Some(InboundPeer::Client(session, budget)) => {
                let (session, permit) = (Arc::clone(session), budget.take(raw.front.len() + raw.data.len()));
                self.client_message(conn, session, permit, raw);
            }
            Some(InboundPeer::Peer(osd)) => {
                let osd = *osd;
                self.peer_message(conn, osd, raw);
            }
            None if let Some(osd) = self.peers.as_ref().and_then(|peers| peers.peer_of(conn)) => {
                self.peer_message(conn, osd, raw);
            }
            // Only zeros are left of it, and only a client's message is refused for its length.
            _ if raw.data.len() > DATA_BYTES_MAX as usize => {
                tracing::error!(osd = self.config.id, ?conn, bytes = raw.data.len(), "message too long");
                self.messenger.close(conn);
                self.conn_closed(conn, "message too long", false, None);
            }
            Some(InboundPeer::HeartbeatPeer(osd)) => {
                let osd = *osd;
                self.with_control(|control, cx| control.pinged(cx, conn, osd, raw));
            }
            Some(InboundPeer::Handshake(..)) => self.messenger.close(conn),
            None => {
                self.with_control(|control, cx| control.conn_event(cx, conn, ConnEvent::Message(raw)));
            }
        }
    }

    /// A client's message, which holds `permit` until it is done.
    fn client_message(&mut self, conn: ConnId, session: Arc<Session>, permit: Permit, raw: RawMessage) {
        let tid = raw.tid;
        match Message::decode(raw) {
            Ok(Message::OsdOp(op)) => {
                let spg = SpgId::replicated(op.spg.pg); // clients name the primary's place; copies have none
                self.counters.ops += 1;
                self.sessions.throttle(conn, &permit, &mut self.messenger);
                let op = client_op(session, tid, Box::new(op), self.now, permit);
                self.counters.op_in_bytes += op.trace.input_bytes;
                match self.router.shard_of(&spg) {
                    shard if shard == self.router.me => self.client_op(spg, op),
                    shard => self.router.send(shard, ShardMsg::Op(spg, op)),
                }
            }
            Ok(Message::OsdBackoff(backoff)) if backoff.op == backoff_op::ACK_BLOCK => {
                let (spg, session, id) = (SpgId::replicated(backoff.spg.pg), session.id, backoff.id);
                match self.router.shard_of(&spg) {
                    // At once: what the client sends behind it must not come first, or would be dropped as held.
                    shard if shard == self.router.me => self.deliver(spg, Event::BackoffAck { session, id }),
                    shard => self.router.send(shard, ShardMsg::BackoffAck { spg, session, id }),
                }
            }
            Ok(Message::Command(command)) => {
                self.router.send(0, ShardMsg::Command(session, tid, Box::new(command)));
            }
            // Objecter's sign of life on sessions with watches; a manager's configuration of us.
            Ok(Message::Ping(_) | Message::MgrConfigure(_)) => (),
            Ok(other) => {
                tracing::debug!(name = other.name(), client = %session.name, "message not for an OSD")
            }
            Err(error) => {
                tracing::warn!(client = %session.name, %error, "message does not decode; closing the session");
                self.messenger.close(conn);
                self.conn_closed(conn, "malformed message", false, None);
            }
        }
    }

    /// A client's message for a PG that lives here, if it exists.
    pub(crate) fn client_op(&mut self, spg: SpgId, mut op: nacre_pg::ClientOp) {
        if self.broken {
            return;
        }
        let decision = match self.pgs.get(&spg) {
            Some(pg) => {
                let (store, is_held) = (&self.store, pg.is_held_by_client(&op));
                let room = || room::room(&store.usage());
                self.gate.admit(&leases::facts(pg), &op.op, is_held, room, self.clock.now())
            }
            None => self.gate.admit_without_pg(self.pgs.map(), spg.pg, op.op.epoch),
        };
        match decision {
            GateDecision::Drop => (),
            GateDecision::Deliver { is_beyond_room } => {
                op.is_beyond_room = is_beyond_room;
                self.deliver(spg, Event::ClientOp(op));
            }
            GateDecision::AwaitLease => self.ops_awaiting_lease.entry(spg).or_default().push(op),
            GateDecision::Hold => self.pgs.hold(spg, op),
            GateDecision::PushMaps { since } => self.push_maps(op.session.id, since),
        }
    }

    fn push_maps(&mut self, session: SessionId, since: nacre_types::Epoch) {
        let message = Message::from(self.maps.message_since(since)).encode(0);
        self.tell_session(session, message);
    }

    pub(crate) fn tell_session(&mut self, session: SessionId, message: RawMessage) {
        let shard = session_id::shard(session);
        if shard != self.router.me {
            return self.router.send(shard, ShardMsg::ToSession(session, message));
        }
        if let Some(conn) = self.sessions.conn(session) {
            self.messenger.send(conn, message);
        }
    }

    /// Sends a question about a PG to its shard.
    pub(crate) fn ask(&mut self, question: Question) {
        self.router.send(self.router.shard_of(&question.spg), ShardMsg::Ask(Box::new(question)));
    }

    fn shard_msg(&mut self, msg: ShardMsg) {
        match msg {
            ShardMsg::Maps(message) => self.learn_maps(&message, Source::OsdControl),
            ShardMsg::Keys(keys) => self.set_keys(keys),
            ShardMsg::Op(spg, op) => self.client_op(spg, op),
            ShardMsg::ToSession(session, message) => self.tell_session(session, message),
            ShardMsg::SessionClosed(session) => self.session_closed(session),
            ShardMsg::BackoffAck { spg, session, id } => self.deliver(spg, Event::BackoffAck { session, id }),
            ShardMsg::Force { spg, kind, forced } => self.deliver(spg, Event::Force { kind, forced }),
            ShardMsg::Peer(from, message) => self.peer_event(from, *message),
            ShardMsg::PeerReset(osd) => self.peer_reset(osd),
            ShardMsg::ToPeer(osd, message) => {
                self.send_peer(osd, message);
            }
            ShardMsg::MonRequest(order) => {
                self.with_control(|control, cx| control.mon_request(cx, order));
            }
            ShardMsg::Create(spg, create_info) => self.create_pg(spg, *create_info),
            ShardMsg::Past(spg, past) => self.walk.add(spg, past),
            ShardMsg::Stats(report) => {
                self.with_control(|control, cx| control.heard_report(cx, report));
            }
            ShardMsg::Scrub { spg, deep, repair } => self.deliver(spg, Event::Scrub { deep, repair }),
            ShardMsg::Ask(question) => self.answer(&question),
            ShardMsg::Command(session, tid, command) => admin::command(self, &session, tid, &command),
            ShardMsg::Options(options) => {
                self.options = options;
                self.follow_options();
            }
            ShardMsg::Leases(leases) => self.set_leases(leases),
            ShardMsg::Rebound(msgr_config) => self.messenger.serve(self.public, msgr_config),
            ShardMsg::Leave => {
                self.with_control(OsdControl::leave);
            }
            ShardMsg::Stop => self.stopping = true,
        }
    }

    /// Ends all shards.
    fn end(&mut self) {
        self.stopping = true;
        self.router.send_others(|| ShardMsg::Stop);
    }

    fn answer(&mut self, question: &Question) {
        let reply = match &question.kind {
            QuestionKind::Query => admin::query(self, &question.spg),
            QuestionKind::Scrub { deep } => {
                if self.pgs.contains(&question.spg) {
                    self.deliver(question.spg, Event::Scrub { deep: *deep, repair: false });
                }
                admin::scrub_ordered(self, &question.spg, *deep)
            }
            QuestionKind::List { unfound, from } => lost::list(self, &question.spg, *unfound, from),
            QuestionKind::MarkLost(lost) => lost::mark(self, &question.spg, *lost),
        };
        self.tell_session(question.session, Message::from(reply).encode(question.tid));
    }

    /// Makes a copy, beginning with the map in which it was called for, and leads it to the present one.
    fn create_pg(&mut self, spg: SpgId, create_info: PgCreateInfo) {
        if self.is_broken() {
            return;
        }
        let maps = self.pgs.maps_from(create_info.epoch);
        let Some(first) = maps.first() else { return };
        if !self.is_to_create(spg, &create_info, first.epoch) {
            return;
        }
        let (store, entropy) = (self.store.as_ref(), self.entropy.as_mut());
        let mut cx = cx(
            first,
            (self.now, self.wall),
            store,
            self.room,
            entropy,
            (&mut self.throttle, &mut self.effects),
        );
        let pg = Pg::create(&mut cx, self.config.id, spg, create_info);
        self.pgs.insert(pg);
        if self.execute_effects(spg) {
            self.deliver(spg, Event::Resume);
        }
        for map in maps.iter().skip(1) {
            self.deliver_under(map, spg, Event::Map);
        }
        for (from, message) in self.pgs.take_held_peer() {
            self.peer_event(from, message);
        }
        for op in self.pgs.take_held_for(&spg) {
            self.client_op(spg, op);
        }
    }

    /// Takes up what was split off a PG of ours.
    fn open_child(&mut self, child: SpgId, before: &Arc<OsdMap>, maps: &[Arc<OsdMap>]) {
        let Some(pg) = Pg::load(&*self.store, self.config.id, child, before) else {
            return self.break_down(&format!("what was split off as {child} cannot be read"));
        };
        self.pgs.insert_child(pg);
        for map in maps {
            self.deliver_under(map, child, Event::Map);
        }
        self.deliver_held(child);
    }

    fn peer_event(&mut self, from: OsdId, message: PeerMessage) {
        if self.broken {
            return;
        }
        let spg = message.header().spg;
        let (pgs, clock) = (&self.pgs, &self.clock);
        let pg = pgs.get(&spg).map(leases::facts);
        let is_to_come = || pgs.is_unread(&spg) || pgs.is_coming(&spg);
        let epoch = pgs.map().epoch;
        match self.gate.admit_peer(from, &message, pg.as_ref(), epoch, is_to_come, || clock.now()) {
            PeerDecision::Drop => (),
            PeerDecision::Deliver => self.deliver(spg, Event::Peer { from, message }),
            PeerDecision::Hold => self.pgs.hold_peer(from, message),
            PeerDecision::Create(create_info) => {
                self.create_pg(spg, *create_info);
                self.deliver(spg, Event::Peer { from, message });
            }
            PeerDecision::AnswerWithoutPg => {
                let map = Arc::clone(self.pgs.map());
                let (store, entropy) = (self.store.as_ref(), self.entropy.as_mut());
                let io = (&mut self.throttle, &mut self.effects);
                let mut cx = cx(&map, (self.now, self.wall), store, self.room, entropy, io);
                Pg::reply_without_pg(&mut cx, from, &message);
                self.execute_effects(spg);
            }
        }
    }

    /// Hands one event to a PG and carries out what it wants, until it wants nothing more at once.
    pub(crate) fn deliver(&mut self, spg: SpgId, event: Event) {
        if self.broken {
            return;
        }
        let mut next = Some(event);
        while let Some(event) = next {
            let Some((pg, map)) = self.pgs.get_mut(&spg) else { return };
            let (store, entropy) = (self.store.as_ref(), self.entropy.as_mut());
            let mut cx = cx(
                map,
                (self.now, self.wall),
                store,
                self.room,
                entropy,
                (&mut self.throttle, &mut self.effects),
            );
            pg.handle(&mut cx, event);
            let (due, put_off) = (pg.next_deadline(), pg.is_put_off());
            self.pgs.note_deadline(spg, due);
            if put_off {
                self.put_off(spg);
            }
            next = self.execute_effects(spg).then_some(Event::Resume);
        }
    }

    /// Hands a PG an event under a map behind the present one: while it catches up.
    pub(crate) fn deliver_under(&mut self, map: &Arc<OsdMap>, spg: SpgId, event: Event) {
        if self.broken {
            return;
        }
        self.merge_into(map, spg);
        if map.epoch == self.pgs.map().epoch {
            return self.deliver(spg, event);
        }
        let (store, entropy) = (self.store.as_ref(), self.entropy.as_mut());
        let mut cx = cx(
            map,
            (self.now, self.wall),
            store,
            self.room,
            entropy,
            (&mut self.throttle, &mut self.effects),
        );
        self.pgs.handle_under(&mut cx, &spg, event);
        if self.execute_effects(spg) {
            self.deliver(spg, Event::Resume);
        }
    }

    fn send_peer(&mut self, osd: OsdId, message: RawMessage) {
        match &mut self.peers {
            Some(peers) => peers.send(osd, message, &mut self.messenger),
            None => self.router.send(0, ShardMsg::ToPeer(osd, message)),
        }
    }
}

/// What a PG sees during one event.
fn cx<'a>(
    map: &'a Arc<OsdMap>,
    (now, wall): (Stamp, UTime),
    store: &'a dyn ObjectStore,
    room: StoreRoom,
    entropy: &'a mut dyn Entropy,
    (throttle, effects): (&'a mut RecoveryThrottle, &'a mut Effects),
) -> Cx<'a> {
    Cx { now, wall, map, view: store, room, entropy, throttle, effects }
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shard({} of osd.{}, {} PGs)", self.router.me, self.config.id, self.pgs.all().len())
    }
}
