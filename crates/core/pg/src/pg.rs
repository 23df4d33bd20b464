//! [`Pg`]: one placement group on one OSD. Its state, where events enter, and what always holds.
//!
//! What [`Pg::check`] asserts after every event in tests:
//! - log entries strictly ascend; `log.tail <= log.head == info.last_update`;
//! - `last_complete <= last_update`; every `missing.need <= log.head`;
//! - writes in flight ascend in version and in token, and none waits for nobody;
//! - no write is in flight outside the active phase of the interval that it began in;
//! - nobody but a serving primary holds operations between admission and reply.

use crate::backend::{Coding, Ec, Replication};
use crate::log::{LogLimits, Missing, PgLog};
use crate::ops::PoolFacts;
use crate::peering::{Birth, Interval, Peer, Phase};
use crate::pipeline::{Backoffs, Pipeline, Stage};
use crate::recovery::{Claims, Recovery};
use crate::scrub::{Digests, Scrub};
use crate::snaptrim::SnapTrim;
use crate::stats::Stamps;
use crate::tokens::{OnDurable, Tokens};
use crate::watch::Watches;
use crate::{Cx, Effect, Event, MergeRole, Planted, Tuning, merge, storage};
use nacre_maps::OsdMap;
use nacre_msg::peer::{PastIntervals, PeerHeader, PeerMessage, PgInfo};
use nacre_txn::{ObjectView, Op, Transaction};
use nacre_types::{Epoch, Eversion, HObject, OsdId, SpgId, Stamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Peers' messages that may wait for a map; a peer that sends more than this in epochs ahead of us is
/// served again when we have caught up and the interval has changed.
pub const FUTURE_MESSAGES_MAX: usize = 10_000;

/// One placement group on one OSD.
pub struct Pg {
    pub(crate) spg: SpgId,
    pub(crate) whoami: OsdId,
    /// The last map that was handled; never newer than the driver's.
    pub(crate) map: Arc<OsdMap>,
    /// What execution needs of the pool, made once per map.
    pub(crate) pool: PoolFacts,
    pub(crate) interval: Interval,
    pub(crate) past: PastIntervals,
    pub(crate) info: PgInfo,
    pub(crate) log: PgLog,
    pub(crate) limits: LogLimits,
    checked: bool,
    pub(crate) planted: Planted,
    /// What this copy lacks.
    pub(crate) missing: Missing,
    /// Those of them that the log does not reach back to, and that are therefore on record.
    pub(crate) recorded: BTreeSet<HObject>,
    pub(crate) phase: Phase,
    /// Other copies, as far as the primary knows of them in this interval.
    pub(crate) peers: BTreeMap<OsdId, Peer>,
    pub(crate) pipeline: Pipeline,
    pub(crate) backoffs: Backoffs,
    pub(crate) replication: Replication,
    /// In erasure-coded pools.
    pub(crate) ec: Option<Ec>,
    pub(crate) recovery: Recovery,
    pub(crate) claims: Claims,
    pub(crate) watches: Watches,
    pub(crate) snaptrim: SnapTrim,
    pub(crate) scrub: Scrub,
    pub(crate) stamps: Stamps,
    pub(crate) tokens: Tokens,
    /// Peers' messages of epochs that we have no map of yet, or whose turn comes with the next event.
    future: VecDeque<(OsdId, PeerMessage)>,
    /// Something was submitted during this event, and does not show in the view before its end.
    pub(crate) view_is_stale: bool,
    /// Names this copy's questions.
    pub(crate) query_nonce: u64,
    /// This copy was ordered by the monitor, which does so only until the group has been active once.
    pub(crate) ordered: bool,
    /// The interval has begun; false after a load until the first map.
    pub(crate) begun: bool,
    /// What the group is in a merge that is prepared: then it serves nobody.
    pub(crate) merge_role: Option<MergeRole>,
    /// Changes that take in other groups' copies, to be submitted with the map that ends those.
    pub(crate) absorbed: Vec<Op>,
    /// The copy is being removed; nothing is handled any more.
    removed: bool,
}

impl Pg {
    /// A new, empty copy, as of `cx.map`: best the map of [`Birth::epoch`], with those behind it fed as
    /// [`Event::Map`]; a newer one does where the members have not changed since. Submits the transaction that makes its collection.
    #[must_use]
    pub fn create(cx: &mut Cx<'_>, whoami: OsdId, spg: SpgId, birth: Birth) -> Self {
        let mut interval = Interval::of(cx.map, spg.pg);
        match &birth.interval {
            Some(known) => interval.recall(known),
            // Nobody served before: whatever a client sent since the group exists is for us to answer.
            None => interval.primary_since = interval.primary_since.min(birth.epoch),
        }
        let mut info = PgInfo::empty(birth.history);
        let ordered = birth.interval.is_none();
        if ordered {
            // There is nothing yet that could differ.
            let history = &mut info.history;
            (history.last_scrub_stamp, history.last_deep_scrub_stamp) = (cx.wall, cx.wall);
            history.last_clean_scrub_stamp = cx.wall;
        }
        let mut pg = Self::assemble(spg, whoami, cx.map, interval, birth.past, info);
        pg.ordered = ordered;
        pg.tokens.begin_anywhere(cx.entropy);
        let mut txn = Transaction::new(spg);
        txn.push(Op::CreateCollection);
        pg.save_state(&mut txn);
        pg.submit(cx, txn, OnDurable::Nothing);
        pg.stamps.became(cx.wall);
        pg.begin_interval(cx);
        pg.settle(cx);
        pg
    }

    /// The map epoch that the copy in the store has come to at least; `None` when there is none, or its
    /// records are damaged.
    #[must_use]
    pub fn stored_epoch(view: &dyn ObjectView, spg: &SpgId) -> Option<Epoch> {
        storage::load_info(view, spg).map(|(_, epoch)| epoch)
    }

    /// The copy that the store holds; `None` when its records are damaged. `map` is that of
    /// [`Pg::stored_epoch`], or the oldest one behind it that the driver has; feed it those behind as
    /// [`Event::Map`], oldest first. It is silent until the first such event: send one even if there is no
    /// newer map.
    #[must_use]
    pub fn load(view: &dyn ObjectView, whoami: OsdId, spg: SpgId, map: &Arc<OsdMap>) -> Option<Self> {
        let saved = storage::load(view, &spg)?;
        let mut pg = Self::assemble(spg, whoami, map, saved.interval, saved.past, saved.info);
        pg.log = saved.log;
        (pg.missing, pg.recorded) = (saved.missing, saved.recorded);
        pg.find_kept(view);
        Some(pg)
    }

    fn assemble(
        spg: SpgId,
        whoami: OsdId,
        map: &Arc<OsdMap>,
        interval: Interval,
        past: PastIntervals,
        info: PgInfo,
    ) -> Self {
        Self {
            spg,
            whoami,
            map: Arc::clone(map),
            pool: PoolFacts::of(map, spg.pg.pool).unwrap_or_default(),
            interval,
            past,
            info,
            log: PgLog::default(),
            limits: LogLimits::default(),
            checked: false,
            planted: Planted::Nothing,
            missing: Missing::default(),
            recorded: BTreeSet::new(),
            phase: Phase::Stray,
            peers: BTreeMap::new(),
            pipeline: Pipeline::default(),
            backoffs: Backoffs::default(),
            replication: Replication::default(),
            ec: map.pools.get(&spg.pg.pool).and_then(Coding::of).map(Ec::new),
            recovery: Recovery::default(),
            claims: Claims::default(),
            watches: Watches::default(),
            snaptrim: SnapTrim::default(),
            scrub: Scrub::default(),
            stamps: Stamps::default(),
            tokens: Tokens::default(),
            future: VecDeque::new(),
            view_is_stale: false,
            query_nonce: 0,
            ordered: false,
            begun: false,
            merge_role: merge::role(map, spg.pg),
            absorbed: Vec::new(),
            removed: false,
        }
    }

    /// Handles one event; orders collect in `cx.effects`.
    pub fn handle(&mut self, cx: &mut Cx<'_>, event: Event) {
        if self.removed {
            return;
        }
        self.view_is_stale = false;
        match event {
            Event::ClientOp(op) => self.client_op(cx, op),
            Event::BackoffAck { session, id } => self.heard_backoff_ack(session, id),
            Event::SessionClosed(session) => self.session_closed(cx, session),
            Event::Peer { from, message } => self.receive(cx, from, message),
            Event::Durable(token) => self.durable(cx, token),
            Event::Fetched(token) => self.fetched(cx, token),
            Event::PeerReset(osd) => self.peer_reset(cx, osd),
            Event::Reservation(decision) => self.heard_decision(cx, decision),
            Event::Map => self.advance_map(cx),
            Event::Tick => self.tick(cx),
            Event::Resume => self.resume(cx),
            Event::Force { kind, forced } => self.force_recovery(cx, kind, forced),
            Event::Scrub { deep, repair } => self.start_scrub(cx, deep, repair),
        }
        self.settle(cx);
        if self.checked && !self.removed {
            self.check();
        }
    }

    /// Carries on with what the event made possible.
    fn settle(&mut self, cx: &mut Cx<'_>) {
        self.run_ready(cx);
        self.start_recoveries(cx); // behind it: no other event may come for what a client waits for now
        if self.has_more() {
            cx.effects.push(Effect::Resume);
        }
    }

    /// True when something waits only for this event's transactions to show in the view.
    fn has_more(&self) -> bool {
        !self.removed
            && (self.pipeline.has_ready()
                || self.has_scanned_all()
                || self.snaptrim.is_put_off()
                || self.watches.is_put_off()
                || self.has_early_message())
    }

    /// Goes on with what had to wait for the view.
    fn resume(&mut self, cx: &mut Cx<'_>) {
        self.finish_scan(cx);
        self.handle_early(cx);
        if self.watches.is_put_off() {
            self.expire_watches(cx);
            self.drop_blocklisted(cx);
        }
        if self.snaptrim.is_put_off() {
            self.trim_snaps(cx);
        }
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.ask_monitor_again(cx);
        self.retry_copies(cx);
        self.expire_watches(cx);
        self.expire_notifies(cx);
        self.trim_snaps(cx);
        self.scrub_on(cx);
        self.report_merge(cx);
        self.let_go_of_kept(cx);
    }

    fn advance_map(&mut self, cx: &mut Cx<'_>) {
        let before = std::mem::replace(&mut self.map, Arc::clone(cx.map));
        let Some(pool) = PoolFacts::of(cx.map, self.spg.pg.pool) else {
            return self.remove(cx);
        };
        if self.spg.pg.seed >= pool.pg_num {
            return self.remove(cx); // merged, and there was no copy here of what it was merged into
        }
        self.pool = pool;
        self.merge_role = merge::role(&self.map, self.spg.pg);
        self.split(cx, &before);
        self.advance_interval(cx, &before);
        self.drop_blocklisted(cx);
        self.queue_removed_snaps();
        self.pipeline.wake_for_epoch(self.map.epoch);
        self.handle_early(cx);
    }

    /// A peer's message came: it waits for its map, and for those that came before it.
    fn receive(&mut self, cx: &mut Cx<'_>, from: OsdId, message: PeerMessage) {
        if self.future.is_empty() && self.has_map_of(&message) {
            return self.peer_message(cx, from, message);
        }
        if self.future.len() < FUTURE_MESSAGES_MAX {
            self.future.push_back((from, message));
        }
        self.handle_early(cx);
    }

    /// Whether a message can be handled now.
    fn has_map_of(&self, message: &PeerMessage) -> bool {
        self.begun && message.header().epoch <= self.map.epoch
    }

    fn early_index(&self) -> Option<usize> {
        self.future.iter().position(|(_, message)| self.has_map_of(message))
    }

    fn has_early_message(&self) -> bool {
        self.early_index().is_some()
    }

    /// Something has come that belongs to an epoch behind our map.
    pub(crate) fn expects_map(&self) -> bool {
        !self.future.is_empty() || self.pipeline.has_future()
    }

    /// Handles messages whose map is there, in the order in which they came, until one changes the store:
    /// the next one must see that change.
    fn handle_early(&mut self, cx: &mut Cx<'_>) {
        while !self.view_is_stale && !self.removed {
            let Some((from, message)) = self.early_index().and_then(|at| self.future.remove(at)) else {
                return;
            };
            self.peer_message(cx, from, message);
        }
    }

    fn peer_message(&mut self, cx: &mut Cx<'_>, from: OsdId, message: PeerMessage) {
        let epoch = message.header().epoch;
        if epoch < self.interval.since || self.removed {
            return; // of an older interval: its sender has forgotten it as well
        }
        let from_primary = from == self.interval.primary;
        match message {
            PeerMessage::RepOp(op) if from_primary => self.apply_rep_op(cx, op),
            PeerMessage::RepOpReply(reply) => self.rep_op_reply(cx, from, &reply),
            PeerMessage::Query(query) if from_primary => self.answer_query(cx, from, *query),
            PeerMessage::Notify(notify) => self.heard_info(cx, from, *notify),
            PeerMessage::LogReply(reply) => self.heard_log(cx, from, *reply),
            PeerMessage::Activate(activate) if from_primary => self.activate_replica(cx, *activate),
            PeerMessage::Activated(activated) => self.heard_activated(cx, from, *activated),
            PeerMessage::Scan(scan) if from_primary => self.answer_scan(cx, from, *scan),
            PeerMessage::ScanReply(reply) => self.heard_scan(cx, from, *reply),
            PeerMessage::Pull(pull) => self.answer_pull(cx, from, *pull),
            PeerMessage::Push(push) => self.receive_push(cx, from, *push),
            PeerMessage::PushReply(reply) => self.push_reply(cx, from, &reply),
            PeerMessage::Progress(progress) if from_primary => self.heard_progress(cx, &progress),
            PeerMessage::Release(_) if from_primary => self.heard_release(cx),
            PeerMessage::ScrubRequest(request) if from_primary => {
                self.answer_scrub(cx, from, &request, Digests::default());
            }
            PeerMessage::ScrubReply(reply) => self.heard_scrub(cx, from, *reply),
            PeerMessage::Reserve(message) => self.heard_reserve(cx, from, &message),
            PeerMessage::CopyGet(get) => self.answer_copy(cx, from, *get, Vec::new()),
            PeerMessage::ChunkRead(read) if from_primary => self.answer_chunk(cx, from, *read),
            PeerMessage::ChunkReply(reply) => self.heard_chunk(cx, from, *reply),
            PeerMessage::CopyReply(reply) => self.heard_copy(cx, &reply),
            _ => {} // only the primary gives orders
        }
    }

    /// Drops the copy with all that is in it.
    pub(crate) fn remove(&mut self, cx: &mut Cx<'_>) {
        self.release_all(cx);
        let mut txn = Transaction::new(self.spg);
        txn.push(Op::RemoveCollection);
        self.submit(cx, txn, OnDurable::Nothing);
        self.removed = true;
        cx.effects.push(Effect::Removed);
    }

    /// Hands a transaction to the store and notes what to do once it is durable.
    pub(crate) fn submit(&mut self, cx: &mut Cx<'_>, txn: Transaction, then: OnDurable) {
        self.view_is_stale = true;
        let token = self.tokens.issue_durable(then);
        cx.effects.push(Effect::Submit { txn, token });
    }

    /// Sends to a peer.
    pub(crate) fn send(&self, cx: &mut Cx<'_>, osd: OsdId, message: impl Into<PeerMessage>) {
        debug_assert!(osd != self.whoami, "no message to oneself");
        cx.effects.push(Effect::Peer { osd, message: message.into() });
    }

    /// Begins every message of this copy.
    pub(crate) fn header(&self) -> PeerHeader {
        PeerHeader { spg: self.spg, epoch: self.map.epoch }
    }

    /// Adds all that is kept beside objects and log to a transaction.
    pub(crate) fn save_state(&self, txn: &mut Transaction) {
        storage::save_interval(txn, &self.interval, &self.past);
        self.save_info(txn);
    }

    /// Adds the info to a transaction.
    pub(crate) fn save_info(&self, txn: &mut Transaction) {
        storage::save_info(txn, &self.info, self.map.epoch);
    }

    /// Records what is missing and older than the log will be once it is trimmed to `tail`.
    pub(crate) fn record_missing(&mut self, txn: &mut Transaction, tail: Eversion) {
        for (object, need) in self.missing.iter().filter(|(_, need)| *need <= tail) {
            if self.recorded.insert(object.clone()) {
                txn.push(storage::record_missing(object, need));
            }
        }
    }

    /// Takes the record of an object back that is missing no more, or in another version.
    pub(crate) fn forget_missing(&mut self, txn: &mut Transaction, object: &HObject) {
        if self.recorded.remove(object) {
            txn.push(storage::forget_missing(object));
        }
    }

    /// Takes all records back.
    pub(crate) fn forget_all_missing(&mut self, txn: &mut Transaction) {
        txn.ops.extend(std::mem::take(&mut self.recorded).iter().map(storage::forget_missing));
    }

    /// True when this copy leads the group in this interval.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.interval.primary == self.whoami
    }

    /// The OSDs that serve this group, in order.
    #[must_use]
    pub fn acting(&self) -> &[OsdId] {
        &self.interval.acting
    }

    /// The OSDs that serve this group, or are to: its up and acting sets.
    pub fn members(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.interval.up.iter().chain(&self.interval.acting).copied()
    }

    /// True when clients are served, and anything may change.
    #[must_use]
    pub fn is_active(&self) -> bool {
        let codes = self.ec.is_some() || self.pool.stripe_bytes.is_none();
        self.phase.is_serving() && self.merge_role.is_none() && codes
    }

    /// True once the copy's removal has been submitted.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.removed
    }

    /// Which group this is.
    #[must_use]
    pub fn spg(&self) -> SpgId {
        self.spg
    }

    /// The map epoch that this copy has come to.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.map.epoch
    }

    /// What this copy says of itself.
    #[must_use]
    pub fn info(&self) -> &PgInfo {
        &self.info
    }

    /// Name of the peering state, as Ceph calls it.
    #[must_use]
    pub fn phase_name(&self) -> &'static str {
        self.phase.name()
    }

    /// When [`Event::Tick`] is due; `None` when a tick about once a second is enough.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Stamp> {
        self.watches.next_deadline().into_iter().chain(self.recovery.resume_at()).min()
    }

    /// How many clients' messages wait at which stage.
    pub fn waiting(&self) -> impl Iterator<Item = (Stage, usize)> + '_ {
        self.pipeline.waiting().chain([(Stage::Commit, self.replication.len())])
    }

    /// Makes the log's limits other than the default, for tests and the simulation.
    pub fn set_log_limits(&mut self, limits: LogLimits) {
        self.limits = limits;
    }

    /// Makes the group behave otherwise, for the simulation.
    pub fn tune(&mut self, tuning: &Tuning) {
        (self.limits, self.checked, self.planted) = (tuning.limits, tuning.checked, tuning.planted);
    }

    /// The version of this copy of `object`: `None` when it does not exist, zero when it is only partly
    /// there or its record is damaged.
    pub(crate) fn copy_version(&self, view: &dyn ObjectView, object: &HObject) -> Option<Eversion> {
        storage::copy_version(view, &self.spg, object)
    }

    /// Changes the phase.
    ///
    /// # Panics
    /// When the edge is not in the picture of `peering`: our own mistake.
    pub(crate) fn set_phase(&mut self, next: Phase) {
        assert!(
            self.phase.allows(&next),
            "{}: {} cannot follow {}",
            self.spg,
            next.name(),
            self.phase.name()
        );
        self.phase = next;
    }

    /// Asserts what always holds.
    ///
    /// # Panics
    /// When it does not.
    pub fn check(&self) {
        self.log.check();
        let (tail, head) = (self.log.tail(), self.log.head());
        assert!(tail <= head, "{}: log {tail}..{head}", self.spg);
        assert_eq!(head, self.info.last_update, "{}: log head and last_update", self.spg);
        assert_eq!(tail, self.info.log_tail, "{}: log tail", self.spg);
        assert!(self.info.last_complete <= head, "{}: last_complete", self.spg);
        assert!(self.missing.iter().all(|(_, need)| need <= head), "{}: missing from the future", self.spg);
        self.tokens.check();
        self.replication.check();
        let serving = self.is_primary() && self.phase.is_serving();
        assert!(
            serving || self.replication.is_idle(),
            "{}: writes in flight in {}",
            self.spg,
            self.phase.name()
        );
        assert!(serving || self.pipeline.is_idle(), "{}: operations run in {}", self.spg, self.phase.name());
    }
}
