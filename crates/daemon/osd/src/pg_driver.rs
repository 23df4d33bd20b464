//! [`PgDriver`]: gives the PGs of a shard their events and carries out what they want, in the order in which they said it.
//!
//! ```text
//!   event -> Pg::handle -> effects -> messages, transactions, reads, ... -> Resume, while the PG wants it
//! ```

use crate::awaiting_memory::AwaitingMemory;
use crate::awaiting_metadata::AwaitingMetadata;
use crate::bill::Bill;
use crate::compression::PoolCompression;
use crate::counted_op::CountedOp;
use crate::dynamic_perf_stats::DynamicPerfStats;
use crate::idle_trim::IdleTrim;
use crate::memory::Memory;
use crate::pg_registry::{Completed, PgRegistry};
use crate::relocations::Relocations;
use crate::shard_msg::{MonRequest, ShardMsg, Way};
use crate::shard_net::{ShardCx, ShardNet};
use crate::tracker::{self, Counters, Tracker};
use nacre_heartbeat::Leases;
use nacre_maps::OsdMap;
use nacre_msg::peer::PeerMessage;
use nacre_msg::{Message, OsdOpReply};
use nacre_options::Values;
use nacre_osd_core::{AdmissionGate, GateDecision, PeerDecision, PgFacts, Room};
use nacre_pg::{
    ClientOp, Cx, Effect, Effects, Event, OpInFlight, OpStage, Pg, RecoveryThrottle, Reserver, SessionId,
    StoreRoom, TURN_WORK_MAX, Trace, Tuning,
};
use nacre_store::{Completion, DiscardPolicy, ObjectStore, StoreState, StoreUsage, SubmitHint};
use nacre_txn::{StoreToken, Transaction};
use nacre_types::{OsdId, SpgId, seconds};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Finished messages kept for `dump_historic_ops`, whatever `osd_op_history_size` says.
const HISTORY_MAX: usize = 10_000;

/// The PGs of a shard, its part of the store, and what goes between them.
pub(crate) struct PgDriver {
    pub(crate) osd: OsdId,
    pub(crate) pgs: PgRegistry,
    pub(crate) store: Box<dyn ObjectStore + Send>,
    gate: AdmissionGate,
    /// The store's room for what clients write, as of the last completion.
    room: StoreRoom,
    /// Clients' messages for PGs that we may not serve just now.
    pub(crate) ops_awaiting_lease: BTreeMap<SpgId, Vec<ClientOp>>,
    pub(crate) awaiting_metadata: AwaitingMetadata,
    /// PGs with messages that wait for a turn that may do more, each once.
    put_off: VecDeque<SpgId>,
    effects: Effects,
    completions: Vec<Completion>,
    pub(crate) reserver: Reserver,
    pub(crate) throttle: RecoveryThrottle,
    pub(crate) tracker: Tracker,
    pub(crate) counters: Counters,
    pub(crate) perf_stats: DynamicPerfStats,
    pub(crate) bill: Bill,
    pub(crate) idle_trim: IdleTrim,
    pub(crate) memory: Memory,
    pub(crate) awaiting_memory: AwaitingMemory,
    pub(crate) relocations: Relocations,
    pub(crate) compression: PoolCompression,
    /// The store cannot be trusted: see [`PgDriver::break_down`].
    pub(crate) broken: bool,
}

/// The room of a store, in the words of `core/osd`, which judges it; where it is of several parts, that of each, since all that is under way
/// may be towards one.
pub(crate) fn room(store: &dyn ObjectStore) -> Room {
    let (usage, parts) = (store.usage(), store.partitions().max(1));
    Room { total_bytes: usage.total_bytes / parts, available_bytes: usage.available_bytes / parts }
}

/// What a store has for clients: see [`Room::for_clients`].
pub(crate) fn usage_for_clients(store: &dyn ObjectStore) -> StoreUsage {
    let (parts, Room { total_bytes, available_bytes }) = (store.partitions(), room(store).for_clients());
    StoreUsage { total_bytes: total_bytes * parts, available_bytes: available_bytes * parts, ..store.usage() }
}

/// Where freed space is discarded.
fn discard_policy(options: &Values) -> DiscardPolicy {
    match (options.flag("bdev_enable_discard"), options.flag("nacre_discard_files")) {
        (false, _) => DiscardPolicy::Never,
        (true, false) => DiscardPolicy::Devices,
        (true, true) => DiscardPolicy::DevicesAndFiles,
    }
}

/// What the gate wants to know of a PG.
fn facts(pg: &Pg) -> PgFacts<'_> {
    PgFacts { is_primary: pg.is_primary(), acting: pg.acting() }
}

/// What a PG sees during one event.
fn pg_cx<'a>(
    map: &'a Arc<OsdMap>,
    cx: &'a mut ShardCx<'_>,
    (store, room): (&'a dyn ObjectStore, StoreRoom),
    (throttle, effects): (&'a mut RecoveryThrottle, &'a mut Effects),
) -> Cx<'a> {
    Cx { now: cx.now, wall: cx.wall, map, view: store, room, entropy: cx.entropy, throttle, effects }
}

impl PgDriver {
    pub(crate) fn new(
        osd: OsdId,
        store: Box<dyn ObjectStore + Send>,
        gate: AdmissionGate,
        tuning: Tuning,
        memory: Memory,
    ) -> Self {
        Self {
            osd,
            pgs: PgRegistry::new(tuning),
            gate,
            room: room(store.as_ref()).for_pgs(),
            store,
            ops_awaiting_lease: BTreeMap::new(),
            awaiting_metadata: AwaitingMetadata::default(),
            put_off: VecDeque::new(),
            effects: Effects::new(),
            completions: Vec::new(),
            reserver: Reserver::new(1),
            throttle: RecoveryThrottle::new(),
            tracker: Tracker::new(),
            counters: Counters::default(),
            perf_stats: DynamicPerfStats::default(),
            bill: Bill::default(),
            idle_trim: IdleTrim::default(),
            memory,
            awaiting_memory: AwaitingMemory::default(),
            relocations: Relocations::default(),
            compression: PoolCompression::default(),
            broken: false,
        }
    }

    /// Takes over what options say of PGs.
    pub(crate) fn follow_options(&mut self, options: &Values) {
        let slots = options.count("osd_max_backfills").max(1);
        let objects = match options.count("osd_recovery_max_active") {
            0 => options.count("osd_recovery_max_active_ssd"),
            objects => objects,
        };
        let target = options.number("nacre_recovery_client_latency_target_ms").max(0.0);
        // All PGs that hold a slot together keep to the number of objects.
        let multiple = options.number("nacre_recovery_client_latency_calm_multiple") * 1000.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "1000 to a million, by the option's bounds"
        )]
        let multiple = multiple as u32;
        self.throttle.configure(seconds(target / 1e3), multiple, objects.div_ceil(slots));
        self.reserver.set_slots(slots);
        let kept_for = options.seconds("osd_op_history_duration");
        self.tracker.configure(options.count("osd_op_history_size").min(HISTORY_MAX), kept_for);
        self.tracker.enable(options.flag("osd_enable_op_tracker"));
        let delay = seconds(options.number("nacre_debug_device_delay_ms") / 1e3);
        let outcome = match self.store.device() {
            Some(device) => device.delay(delay),
            None if delay.is_zero() => Ok(()),
            None => Err(std::io::ErrorKind::Unsupported.into()),
        };
        if let Err(error) = outcome {
            tracing::warn!(osd = self.osd, %error, "nacre_debug_device_delay_ms has no effect on this store");
        }
        if let Some(device) = self.store.device() {
            device.set_discards(discard_policy(options));
        }
        self.pgs.ignore_history_les(options.flag("osd_find_best_info_ignore_history_les"));
        self.follow_compression(options);
    }

    /// A turn begins: PGs that were put off go first, or new messages of others would keep them waiting.
    pub(crate) fn begin_work(&mut self, cx: &mut ShardCx<'_>) {
        self.throttle.turn.begin(TURN_WORK_MAX);
        // Where the turn's part is spent, the next turn begins with those that had none of it.
        for _ in 0..self.put_off.len() {
            if self.throttle.turn.is_spent() {
                return;
            }
            let Some(spg) = self.put_off.pop_front() else { return };
            self.deliver(cx, spg, Event::Resume);
        }
    }

    /// Whether a turn is due although nothing happens.
    pub(crate) fn has_work(&self) -> bool {
        self.store.state() == StoreState::HasWork || !self.put_off.is_empty() || self.relocations.has_work()
    }

    /// Notes how many events there are to handle before the next sending.
    pub(crate) fn note_load(&mut self, events: usize) {
        // One record takes as many requests to the device whether it begins now or in a moment.
        self.store.set_submit_hint(if events == 1 { SubmitHint::Now } else { SubmitHint::Batch });
    }

    /// Hands the PGs what the store has completed, and starts what was submitted. False when there was nothing. The time is read anew
    /// where there was something: what the PGs make of it is sent and stamped now. `without_pg` hears of transactions that are no PG's.
    pub(crate) fn drain_completions(
        &mut self,
        cx: &mut ShardCx<'_>,
        mut without_pg: impl FnMut(StoreToken),
    ) -> bool {
        let mut completions = std::mem::take(&mut self.completions);
        self.store.drain(&mut completions);
        let is_idle = completions.is_empty();
        if !is_idle {
            cx.now = cx.clock.now();
            self.room = room(self.store.as_ref()).for_pgs();
            self.note_load(completions.len());
            cx.net.note_load(completions.len());
        }
        for completion in completions.drain(..) {
            self.bill.completed(&completion);
            match self.pgs.completed(completion) {
                Completed::Metadata(token) => self.metadata_read(cx, token),
                Completed::OfToken(of, event) if of.is_of_pg() => self.deliver(cx, of.spg, event),
                Completed::OfToken(of, _) if self.relocations.is_own(of) => self.relocation_completed(cx, of),
                Completed::OfToken(of, _) => without_pg(of),
            }
        }
        self.completions = completions;
        if !is_idle {
            cx.net.flush_early(); // draining may take a step of a checkpoint
        }
        let decisions = self.reserver.take_decisions();
        let is_idle = is_idle && decisions.is_empty();
        for decision in decisions {
            self.deliver(cx, decision.spg, Event::Reservation(decision));
        }
        !is_idle
    }

    /// A client's message for a PG that lives here, if it exists, with nothing to wait for but leases and maps.
    pub(crate) fn admit_op(&mut self, cx: &mut ShardCx<'_>, spg: SpgId, mut op: ClientOp) {
        if self.broken {
            return;
        }
        match cx.net.router.way_of(&spg) {
            Way::Here => (),
            Way::Forward(shard) => return cx.net.router.send(shard, ShardMsg::Op(spg, op)),
            Way::Hold => return self.pgs.hold(spg, op),
        }
        let decision = match self.pgs.get(&spg) {
            Some(pg) => {
                let (store, is_held) = (&self.store, pg.is_held_by_client(&op));
                let room = || room(store.as_ref());
                self.gate.admit(&facts(pg), &op.op, is_held, room, cx.clock.now())
            }
            None => self.gate.admit_without_pg(self.pgs.map(), spg.pg, op.op.epoch),
        };
        match decision {
            GateDecision::Drop => (),
            GateDecision::Deliver { is_beyond_room } => {
                op.is_beyond_room = is_beyond_room;
                self.deliver(cx, spg, Event::ClientOp(op));
            }
            GateDecision::AwaitLease => self.ops_awaiting_lease.entry(spg).or_default().push(op),
            GateDecision::Hold => self.pgs.hold(spg, op),
            GateDecision::PushMaps { since } => cx.net.push_maps(op.session.id, since),
        }
    }

    /// What is to be done with a message of another OSD: nothing, once the store has failed.
    pub(crate) fn admit_peer(
        &mut self,
        cx: &ShardCx<'_>,
        from: OsdId,
        message: &PeerMessage,
    ) -> PeerDecision {
        if self.broken {
            return PeerDecision::Drop;
        }
        let (pgs, spg) = (&self.pgs, message.header().spg);
        let pg = pgs.get(&spg).map(facts);
        let is_to_come = || pgs.is_unread(&spg) || pgs.is_coming(&spg) || self.relocations.expects(&spg);
        self.gate.admit_peer(from, message, pg.as_ref(), pgs.map().epoch, is_to_come, || cx.clock.now())
    }

    /// A client is gone: what is kept of it is dropped, and all PGs hear of it.
    pub(crate) fn session_closed(&mut self, cx: &mut ShardCx<'_>, session: SessionId) {
        self.ops_awaiting_lease.values_mut().for_each(|ops| ops.retain(|op| op.session.id != session));
        self.awaiting_memory.forget(session);
        self.awaiting_metadata.forget_session(session);
        self.pgs.drop_held(session);
        for spg in self.pgs.all() {
            self.deliver(cx, spg, Event::SessionClosed(session));
        }
    }

    /// Messages from and to a peer may be lost, and all PGs must know.
    pub(crate) fn peer_reset(&mut self, cx: &mut ShardCx<'_>, osd: OsdId) {
        self.deliver_from(cx, osd);
        for spg in self.pgs.all() {
            self.deliver(cx, spg, Event::PeerReset(osd));
        }
    }

    /// What others promise has changed.
    pub(crate) fn set_leases(&mut self, cx: &mut ShardCx<'_>, leases: Arc<Leases>) {
        self.gate.set_leases(leases);
        self.retry_awaiting_lease(cx);
    }

    /// Messages that waited for leases go on.
    pub(crate) fn retry_awaiting_lease(&mut self, cx: &mut ShardCx<'_>) {
        let ends_wait =
            |spg: &&SpgId| self.gate.ends_wait(self.pgs.get(spg).map(facts).as_ref(), cx.clock.now());
        let ready: Vec<SpgId> = self.ops_awaiting_lease.keys().filter(ends_wait).copied().collect();
        for spg in ready {
            for op in self.ops_awaiting_lease.remove(&spg).into_iter().flatten() {
                self.admit_op(cx, spg, op);
            }
        }
    }

    /// Hands one event to a PG and carries out what it wants, until it wants nothing more at once.
    pub(crate) fn deliver(&mut self, cx: &mut ShardCx<'_>, spg: SpgId, event: Event) {
        if self.broken {
            return;
        }
        let mut next = Some(event);
        while let Some(event) = next {
            let Some((pg, map)) = self.pgs.get_mut(&spg) else { return };
            let out = (&mut self.throttle, &mut self.effects);
            pg.handle(&mut pg_cx(map, cx, (self.store.as_ref(), self.room), out), event);
            let (due, put_off) = (pg.next_deadline(), pg.is_put_off());
            self.pgs.note_deadline(spg, due);
            if put_off && !self.put_off.contains(&spg) {
                self.put_off.push_back(spg);
            }
            next = self.execute_effects(cx, spg).then_some(Event::Resume);
        }
    }

    /// Hands a PG an event under a map behind the present one: while it catches up.
    pub(crate) fn deliver_under(
        &mut self,
        cx: &mut ShardCx<'_>,
        map: &Arc<OsdMap>,
        spg: SpgId,
        event: Event,
    ) {
        if self.broken {
            return;
        }
        self.merge_into(cx, map, spg);
        if map.epoch == self.pgs.map().epoch {
            return self.deliver(cx, spg, event);
        }
        self.with_pgs(cx, map, spg, |pgs, pg_cx| pgs.handle_under(pg_cx, &spg, event));
    }

    /// Lets `work` change the PGs under `map`, and carries out what `spg` wants then.
    pub(crate) fn with_pgs(
        &mut self,
        cx: &mut ShardCx<'_>,
        map: &Arc<OsdMap>,
        spg: SpgId,
        work: impl FnOnce(&mut PgRegistry, &mut Cx<'_>),
    ) {
        let out = (&mut self.throttle, &mut self.effects);
        work(&mut self.pgs, &mut pg_cx(map, cx, (self.store.as_ref(), self.room), out));
        if self.execute_effects(cx, spg) {
            self.deliver(cx, spg, Event::Resume);
        }
    }

    /// Messages of clients that have no answer yet, wherever they wait on this shard.
    pub(crate) fn ops_in_flight(&self) -> impl Iterator<Item = OpInFlight<'_>> + '_ {
        let waiting = self.ops_awaiting_lease.values().flatten();
        let waiting = waiting.map(|op| OpInFlight::waiting(OpStage::Lease, op));
        let crowded = self.awaiting_memory.iter().map(|op| OpInFlight::waiting(OpStage::Memory, op));
        let unread = self.awaiting_metadata.ops().map(|op| OpInFlight::waiting(OpStage::Metadata, op));
        self.pgs.ops_in_flight().chain(waiting).chain(crowded).chain(unread)
    }

    /// A PG is there that was split off: what came for it meanwhile.
    pub(crate) fn deliver_held(&mut self, cx: &mut ShardCx<'_>, spg: SpgId) {
        for (from, message) in self.pgs.take_held_peer_for(&spg) {
            self.deliver(cx, spg, Event::Peer { from, message });
        }
        for op in self.pgs.take_held_for(&spg) {
            self.admit_op(cx, spg, op);
        }
    }

    /// Hands a PG the copies of those that end with `map` and are merged into it, before it sees that map.
    pub(crate) fn merge_into(&mut self, cx: &mut ShardCx<'_>, map: &Arc<OsdMap>, spg: SpgId) {
        if self.broken || self.pgs.get(&spg).is_none_or(|pg| pg.sources_in(map).is_empty()) {
            return;
        }
        self.finish_moving(cx, spg);
        let mut due = self.pgs.get(&spg).map(|pg| pg.sources_in(map)).unwrap_or_default();
        // One in another partition of the store is as one on another shard: not to be had. The copy without it is incomplete.
        let partition = self.store.partition_of(&spg);
        due.retain(|source| self.store.partition_of(source) == partition);
        due.iter().for_each(|source| self.finish_moving(cx, *source));
        // One that has seen the map was made since, by a split.
        let is_behind = |source: &&SpgId| self.pgs.get(source).is_some_and(|it| it.epoch() < map.epoch);
        let due: Vec<SpgId> = due.iter().filter(is_behind).copied().collect();
        let sources: Vec<Pg> = due.iter().filter_map(|source| self.pgs.take(source)).collect();
        sources.iter().for_each(|source| self.reserver.forget(&source.spg()));
        let out = (&mut self.throttle, &mut self.effects);
        let mut pg_cx = pg_cx(map, cx, (self.store.as_ref(), self.room), out);
        self.pgs.absorb(&mut pg_cx, &spg, sources);
        self.execute_effects(cx, spg);
    }

    /// Lets all objects of a PG move at once, that are on their way to others. Only where nobody waits for us yet, or where
    /// maps follow each other faster than the monitor lets them.
    pub(crate) fn finish_moving(&mut self, cx: &mut ShardCx<'_>, spg: SpgId) {
        while !self.is_broken(cx.net) && self.pgs.get(&spg).is_some_and(Pg::is_moving) {
            self.deliver(cx, spg, Event::Tick);
        }
    }

    /// Carries out what a PG wants; true when it is to be resumed.
    fn execute_effects(&mut self, cx: &mut ShardCx<'_>, spg: SpgId) -> bool {
        if self.is_broken(cx.net) {
            // What the PG has just read may be wrong: nothing that follows from it leaves.
            self.effects = Effects::new();
            return false;
        }
        let mut resume = false;
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain() {
            if self.broken {
                // By an effect before: a transaction that the store did not take, and this may be what rests on it.
                return false;
            }
            match effect {
                Effect::Resume => resume = true,
                effect => self.effect(cx, spg, effect),
            }
        }
        self.effects = effects;
        resume
    }

    fn effect(&mut self, cx: &mut ShardCx<'_>, spg: SpgId, effect: Effect) {
        let net = &mut *cx.net;
        match effect {
            Effect::Reply { session, tid, message, trace, namespace, snap } => {
                let (is_write, input_bytes) = (tracker::is_write(&trace), trace.input_bytes);
                self.count_reply(cx, session, tid, &message, trace);
                let (pg, name) = (message.pg, message.name.clone());
                let message = Message::OsdOpReply(*message).encode(tid);
                let output_bytes = message.data.len() as u64;
                let client = cx.net.sessions.client(session);
                let object = (pg.pool, namespace.as_ref(), name.as_ref());
                self.bill.answered((session, client), object, (input_bytes, output_bytes));
                if self.perf_stats.is_active() {
                    self.perf_stats.learn(pg, &namespace, &name, &message.data);
                    self.perf_stats.add(&CountedOp {
                        session: client,
                        osd: self.osd,
                        pg,
                        namespace: &namespace,
                        name: &name,
                        snap,
                        is_write,
                        input_bytes,
                        output_bytes,
                        latency_ns: cx.now.nanos_since(trace.received),
                    });
                }
                self.counters.op_out_bytes += output_bytes;
                match is_write {
                    true => self.counters.write_in_bytes += input_bytes,
                    false => self.counters.read_out_bytes += output_bytes,
                }
                cx.net.tell_session(session, message);
            }
            Effect::Watch { session, message } => {
                net.tell_session(session, Message::WatchNotify(*message).encode(0));
            }
            Effect::Backoff { session, message } => {
                net.tell_session(session, Message::OsdBackoff(*message).encode(0));
            }
            Effect::PushMaps { session, since } => net.push_maps(session, since),
            Effect::Peer { osd, message } => net.send_pg(self.osd, osd, message),
            Effect::Peers { osds, message } => {
                osds.into_iter().for_each(|osd| net.send_for_pg(&spg, osd, message.clone()));
            }
            Effect::Submit { txn, token } => {
                net.flush_early(); // the replicas begin while we are at our own part
                self.submit(cx, txn, StoreToken::new(spg, token));
            }
            Effect::Fetch { object, offset, length, from, token } => {
                self.idle_trim.used(cx.now);
                self.pgs.fetching();
                let token = StoreToken::new(spg, token);
                self.store.fetch(&spg, &object, offset, length, from, token);
            }
            Effect::WantUpThru { epoch } => {
                net.router.send(0, ShardMsg::MonRequest(MonRequest::UpThru(epoch)));
            }
            Effect::WantPgTemp { pg, acting } => {
                net.router.send(0, ShardMsg::MonRequest(MonRequest::PgTemp(pg, acting)));
            }
            Effect::Created(pg) => net.router.send(0, ShardMsg::MonRequest(MonRequest::Created(pg))),
            Effect::Reserve { side, number, priority } => self.reserver.ask(spg, side, number, priority),
            Effect::Unreserve { side } => self.reserver.give_back(&spg, side),
            Effect::Removed => {
                self.pgs.remove(&spg);
                self.reserver.forget(&spg);
            }
            Effect::Merge(state) => {
                let partition_of = |pg| net.router.partition_of(&SpgId::replicated(pg));
                let same_store = partition_of(state.source) == partition_of(state.target);
                net.router.send(0, ShardMsg::MonRequest(MonRequest::Merge { state, same_store }));
            }
            Effect::Split { child, before, maps } => self.open_child(cx, child, &before, &maps),
            // The monitor forgets snapshots by itself (see core/mon osd/snaps); the loop above resumes.
            Effect::Purged { .. } | Effect::Resume => (),
        }
    }

    fn count_reply(
        &mut self,
        cx: &ShardCx<'_>,
        session: SessionId,
        tid: u64,
        reply: &OsdOpReply,
        trace: Trace,
    ) {
        self.counters.replies += 1;
        self.counters.latency_ns += cx.now.nanos_since(trace.received);
        self.throttle.client_op(cx.now, trace.small_write());
        if self.tracker.answered(&trace) {
            let client = cx.net.sessions.client(session);
            self.tracker.keep(reply, tid, client, trace);
        }
    }

    /// Hands a transaction to the store; the PG hears of it under its token when it is durable.
    pub(crate) fn submit(&mut self, cx: &mut ShardCx<'_>, txn: Transaction, token: StoreToken) {
        self.idle_trim.used(cx.now);
        self.pgs.submitted(token);
        if self.broken {
            // It would be taken for the next of those that the store has refused.
            return;
        }
        if let Err(error) = self.store.submit(txn, token) {
            self.break_down(cx.net, &format!("the store does not take a transaction: {error}"));
        }
    }

    /// The end of an OSD whose store cannot be trusted any more: it alone ends, however many run in the process.
    ///
    /// Nothing that follows from what the store holds may leave this shard any more: what it holds is not what it said. No PG
    /// hears of anything from now on, so that nothing is acknowledged, sent or answered; OSD control asks the monitor to mark this
    /// OSD down, which spares others the time to find out, and all shards end when it has, or has not within
    /// `osd_mon_shutdown_timeout`.
    pub(crate) fn break_down(&mut self, net: &mut ShardNet, reason: &str) {
        // Whatever else a PG wanted in this moment rests on the same store, and what is copied of one.
        (self.effects, self.relocations) = (Effects::new(), Relocations::default());
        if std::mem::replace(&mut self.broken, true) {
            return;
        }
        tracing::error!(
            osd = self.osd,
            reason,
            "this OSD ends, and others of its process go on; replace its device if that is the cause, or see \
             `nacre store check`"
        );
        net.router.send(0, ShardMsg::Leave);
    }

    /// True when the store has failed by itself since the last look, or before: this shard serves nobody.
    pub(crate) fn is_broken(&mut self, net: &mut ShardNet) -> bool {
        if !self.broken && self.store.state() == StoreState::Failed {
            self.break_down(net, "the store has failed");
        }
        self.broken
    }

    /// True when it was found that the store has failed.
    pub(crate) fn was_broken(&self) -> bool {
        self.broken
    }
}

#[cfg(test)]
pub(crate) mod tests;
