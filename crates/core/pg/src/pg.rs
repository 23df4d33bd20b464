//! [`Pg`]: one PG on one OSD. Its parts, where events enter, and what always holds.
//!
//! What [`Pg::check`] asserts after every event in tests, beside what `PgState::check` does:
//! - writes in flight ascend in version, and each waits for some member;
//! - no write is in flight outside the active phase of the interval that it began in;
//! - only a serving primary holds operations between admission and reply.

use crate::backend::Replication;
use crate::backend::ec::Gathers;
use crate::digest::Digests;
use crate::early::EarlyMessages;
use crate::interval::Interval;
use crate::log::LogLimits;
use crate::moving::Moves;
use crate::peering::{Peering, PgCreateInfo};
use crate::pipeline::Pipeline;
use crate::recovery::{Recovery, Reservations};
use crate::scrub::Scrub;
use crate::snaptrim::SnapTrim;
use crate::state::PgState;
use crate::tokens::OnDurable;
use crate::watch::Watches;
use crate::{Cx, Effect, Event, Tuning, storage};
use nacre_maps::OsdMap;
use nacre_msg::peer::{PeerMessage, PgInfo};
use nacre_txn::{ObjectView, Op, Transaction};
use nacre_types::{Epoch, HObject, OsdId, SpgId};
use std::sync::Arc;

/// One PG on one OSD.
///
/// [`Pg::handle`] takes one event to its end: it changes the state, reads the objects through `cx.view`, and says in `cx.effects` what is
/// to be done: messages, transactions, reads of the device. What an event submits is not in the view before the shard has carried it out,
/// so work that needs to see it waits for [`Event::Resume`], which [`Effect::Resume`] asks for. A `Pg` owns everything about its copy but
/// the objects themselves, which are the store's, and the map, which is the shard's: what the copy is in `state`, what is under way in one
/// part each (`peering`, `recovery`, `scrub` and so on). A part's methods get the state and the event's [`Cx`]. No part changes another
/// one: what it wants of one it yields as a value, which `Pg` leads on (`client_ops.rs`, `commit.rs`, `maps.rs`, `activation.rs`,
/// `route.rs`). The price: nothing in here may wait, so whatever takes longer than an event is a state of its own (a parked message, a
/// token, a cursor), and each turn's work is bounded by `cx.throttle.turn`. Tests drive it in `harness`: several `Pg`s over simulated
/// disks, one event after another, from a seed, with [`Pg::check`] behind each.
pub struct Pg {
    pub(crate) state: PgState,
    checked: bool,
    pub(crate) pipeline: Pipeline,
    pub(crate) replication: Replication,
    /// Chunks of erasure-coded objects on their way.
    pub(crate) gathers: Gathers,
    pub(crate) peering: Peering,
    pub(crate) recovery: Recovery,
    pub(crate) reservations: Reservations,
    pub(crate) watches: Watches,
    pub(crate) snaptrim: SnapTrim,
    pub(crate) scrub: Scrub,
    early: EarlyMessages,
    pub(crate) moves: Moves,
    /// The copy is being removed; nothing is handled any more.
    removed: bool,
    /// Messages wait for a turn that may do more.
    put_off: bool,
}

impl Pg {
    /// A new, empty copy, as of `cx.map`, the map of [`PgCreateInfo::epoch`]; feed it those behind as [`Event::Map`]. Submits the
    /// transaction that makes its collection; in the place of a damaged copy only when the primary calls for a new one.
    #[must_use]
    pub fn create(cx: &mut Cx<'_>, whoami: OsdId, spg: SpgId, create_info: PgCreateInfo) -> Self {
        let mut interval = Interval::of(cx.map, spg.pg);
        match &create_info.interval {
            Some(known) => interval.recall(known),
            // Nobody served before: whatever a client sent since the PG exists is for us to answer.
            None => interval.primary_since = interval.primary_since.min(create_info.epoch),
        }
        let mut info = PgInfo::empty(create_info.history);
        let ordered = create_info.is_ordered;
        info.lost_through = create_info.lost_through;
        let in_rubble = create_info.lost_through > 0;
        if in_rubble {
            info.last_backfill = HObject::MIN; // whatever lies there is no copy that the log could tell of
        }
        if ordered {
            // There is nothing yet that could differ.
            let history = &mut info.history;
            (history.last_scrub_stamp, history.last_deep_scrub_stamp) = (cx.wall, cx.wall);
            history.last_clean_scrub_stamp = cx.wall;
        }
        let mut pg = Self::assemble(PgState::new(spg, whoami, cx.map, interval, create_info.past, info));
        (pg.state.ordered, pg.state.in_rubble) = (ordered, in_rubble);
        pg.state.tokens.begin_anywhere(cx.entropy);
        pg.peering.patience.wake(cx.now);
        if !in_rubble {
            let mut txn = Transaction::new(spg);
            storage::begin_anew(&mut txn);
            pg.state.save_state(&mut txn);
            pg.state.submit(cx, txn, OnDurable::Nothing);
        }
        pg.state.stamps.became(cx.wall);
        pg.begin_interval(cx);
        pg.run_pending(cx);
        pg
    }

    /// The map epoch that the copy in the store has come to at least; `None` when there is none, or its
    /// records are damaged.
    #[must_use]
    pub fn stored_epoch(view: &dyn ObjectView, spg: &SpgId) -> Option<Epoch> {
        storage::load_info(view, spg).map(|(_, epoch)| epoch)
    }

    /// The copy in the store cannot be read, by an OSD whose newest map is `newest`. Yields the epoch for
    /// [`crate::Lineage::into_lost`], the one of the first time that it could not; and what keeps that, if this is the first.
    #[must_use]
    pub fn note_damage(view: &dyn ObjectView, spg: SpgId, newest: Epoch) -> (Epoch, Option<Transaction>) {
        storage::note_damage(view, spg, newest)
    }

    /// The copy that the store holds; `None` when its records are damaged. `map` is that of
    /// [`Pg::stored_epoch`], or the oldest one behind it that the driver has; feed it those behind as
    /// [`Event::Map`], oldest first. It is silent until the first such event: send one even if there is no
    /// newer map.
    #[must_use]
    pub fn load(view: &dyn ObjectView, whoami: OsdId, spg: SpgId, map: &Arc<OsdMap>) -> Option<Self> {
        let saved = storage::load(view, &spg)?;
        let mut pg = Self::assemble(PgState::new(spg, whoami, map, saved.interval, saved.past, saved.info));
        pg.state.log = saved.log;
        (pg.state.missing, pg.state.recorded) = (saved.missing, saved.recorded);
        pg.moves = Moves::stored(saved.progress);
        pg.state.staged = storage::staged(view, &spg);
        pg.state.find_rollback_gens(view);
        let fits = pg.state.chunk_count().is_none_or(|count| pg.state.info.mapping.fits(count));
        fits.then_some(pg)
    }

    /// Numbers what this copy asks of the store behind `last`; before it asks for anything. A loaded copy begins at zero otherwise,
    /// as an earlier one of the same process did that was merged away and may have transactions under way.
    ///
    /// # Panics
    /// When something is under way already.
    pub fn number_tokens_from(&mut self, last: u64) {
        self.state.tokens.begin_behind(last);
    }

    fn assemble(state: PgState) -> Self {
        Self {
            state,
            checked: false,
            pipeline: Pipeline::default(),
            replication: Replication::default(),
            gathers: Gathers::default(),
            peering: Peering::default(),
            recovery: Recovery::default(),
            reservations: Reservations::default(),
            watches: Watches::default(),
            snaptrim: SnapTrim::default(),
            scrub: Scrub::default(),
            early: EarlyMessages::default(),
            moves: Moves::default(),
            removed: false,
            put_off: false,
        }
    }

    /// Handles one event; orders collect in `cx.effects`.
    pub fn handle(&mut self, cx: &mut Cx<'_>, event: Event) {
        if self.removed {
            return;
        }
        self.state.view_is_stale = false;
        self.peering.patience.wake(cx.now);
        if self.moves.is_moving() {
            self.handle_while_moving(cx, event);
        } else {
            self.react(cx, event);
        }
        if !self.moves.is_moving() {
            self.run_pending(cx);
        }
        if self.checked && !self.removed {
            self.check();
        }
    }

    pub(crate) fn react(&mut self, cx: &mut Cx<'_>, event: Event) {
        match event {
            Event::ClientOp(op) => self.pipeline.client_op(cx.now, op),
            Event::BackoffAck { session, id } => self.pipeline.backoffs.acknowledged(session, id),
            Event::SessionClosed(session) => self.session_closed(cx, session),
            Event::Peer { from, message } => self.receive(cx, from, message),
            Event::Durable(token) => self.durable(cx, token),
            Event::Fetched(token) => self.fetched(cx, token),
            Event::Brought(token, data) => self.brought(cx, token, data),
            Event::PeerReset(osd) => self.peer_reset(cx, osd),
            Event::Reservation(decision) => self.reservations.on_decision(&self.state, cx, decision),
            Event::Map => self.advance_map(cx),
            Event::Tick => self.tick(cx),
            Event::Resume => self.resume(cx),
            Event::Force { kind, forced } => self.reservations.force(&self.state, cx, kind, forced),
            Event::MarkLost(lost) => self.mark_lost(cx, lost),
            Event::GiveUp => self.remove(cx),
            Event::Scrub { deep, repair } => {
                let compared = self.scrub.start(&mut self.state, cx, deep, repair);
                self.repair_compared(cx, compared);
            }
        }
    }

    /// Carries on with what the event made possible.
    fn run_pending(&mut self, cx: &mut Cx<'_>) {
        self.run_ready(cx);
        self.start_recoveries(cx); // behind it: no other event may come for what a client waits for now
        let spent = cx.throttle.turn.is_spent();
        self.put_off = spent && self.pipeline.has_ready() || self.pipeline.has_paused();
        if self.has_more(spent) {
            cx.effects.push(Effect::Resume);
        }
    }

    /// True once the copy's removal has been submitted.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.removed
    }

    /// True when messages wait for a turn that may do more: then hand in [`Event::Resume`].
    #[must_use]
    pub fn is_put_off(&self) -> bool {
        self.put_off && !self.removed
    }

    /// True when something waits only for this event's transactions to show in the view.
    fn has_more(&self, spent: bool) -> bool {
        !self.removed
            && (self.pipeline.has_ready() && !spent
                || self.state.has_lists()
                || self.snaptrim.is_put_off()
                || self.watches.is_put_off()
                || self.early.has_due(&self.state))
    }

    /// Goes on with what had to wait for the view.
    fn resume(&mut self, cx: &mut Cx<'_>) {
        let outcome = self.recovery.compare_lists(&mut self.state, cx);
        self.follow_recovery(cx, outcome);
        self.handle_early(cx);
        if !self.state.view_is_stale {
            self.go_on_paused(cx);
        }
        if self.watches.is_put_off() {
            self.expire_watches(cx);
            self.drop_blocklisted(cx);
        }
        if self.snaptrim.is_put_off() {
            self.trim_snaps(cx);
        }
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.state.ask_monitor_again(cx);
        self.retry_copies(cx);
        self.pipeline.drop_unused_staged(&mut self.state, cx);
        self.expire_watches(cx);
        self.watches.expire_notifies(cx);
        self.trim_snaps(cx);
        let compared = self.scrub.begin_wanted(&mut self.state, cx);
        self.repair_compared(cx, compared);
        self.state.report_merge(cx);
        self.state.tell_safe(cx);
        if self.replication.is_idle() {
            self.state.release_rollback_gens(cx);
        }
        self.retry_peers(cx);
    }

    /// A peer's message came: it waits for its map, and for those that came before it.
    fn receive(&mut self, cx: &mut Cx<'_>, from: OsdId, message: PeerMessage) {
        if self.early.lets_pass(&self.state, &message) {
            return self.peer_message(cx, from, message);
        }
        if !self.early.push(from, message) {
            self.peering.note_lost(from);
        }
        self.handle_early(cx);
    }

    /// Something has come that belongs to an epoch behind our map.
    pub(crate) fn expects_map(&self) -> bool {
        !self.early.is_empty() || self.pipeline.has_future()
    }

    /// Handles messages whose map is there, in the order in which they came, until one changes the store:
    /// the next one must see that change.
    pub(crate) fn handle_early(&mut self, cx: &mut Cx<'_>) {
        while !self.state.view_is_stale && !self.removed {
            let Some((from, message)) = self.early.take_due(&self.state) else {
                return;
            };
            self.peer_message(cx, from, message);
        }
    }

    fn peer_message(&mut self, cx: &mut Cx<'_>, from: OsdId, message: PeerMessage) {
        let epoch = message.header().epoch;
        if epoch < self.state.interval.since || self.removed {
            return; // of an older interval: its sender has forgotten it as well
        }
        let from_primary = from == self.state.interval.primary;
        self.peering.patience.begin();
        if matches!(message, PeerMessage::Push(_) | PeerMessage::PushReply(_)) {
            self.recovery.moves(cx.now);
        }
        match message {
            PeerMessage::RepOp(op) if from_primary => self.on_rep_op(cx, op),
            PeerMessage::RepOpReply(reply) => self.rep_op_reply(cx, from, &reply),
            PeerMessage::Query(query) if from_primary => {
                self.peering.answer_query(&mut self.state, cx, from, *query);
            }
            PeerMessage::Notify(notify) => {
                let outcome = self.peering.on_info(&mut self.state, cx, from, *notify);
                self.follow_peering(cx, outcome);
            }
            PeerMessage::LogReply(reply) => {
                let outcome = self.peering.on_log(&mut self.state, cx, from, *reply);
                self.follow_peering(cx, outcome);
            }
            PeerMessage::Activate(activate) if from_primary => {
                self.peering.activate_replica(&mut self.state, cx, *activate);
            }
            PeerMessage::Activated(activated) => {
                let outcome = self.peering.on_activated(&mut self.state, cx, from, *activated);
                self.follow_peering(cx, outcome);
            }
            PeerMessage::Scan(scan) if from_primary => self.state.answer_scan(cx, from, *scan),
            PeerMessage::ScanReply(reply) => {
                let outcome = self.recovery.on_scan(&mut self.state, cx, from, *reply);
                self.follow_recovery(cx, outcome);
            }
            PeerMessage::Pull(pull) => self.state.answer_pull(cx, from, *pull),
            PeerMessage::Push(push) => {
                let outcome = self.recovery.receive_push(&mut self.state, cx, from, *push);
                self.follow_recovery(cx, outcome);
            }
            PeerMessage::PushReply(reply) => {
                let Self { state, recovery, pipeline, .. } = self;
                let outcome = recovery.push_reply(state, cx, pipeline.object_use(), from, &reply);
                self.follow_recovery(cx, outcome);
            }
            PeerMessage::Progress(progress) if from_primary => self.state.on_progress(cx, &progress),
            PeerMessage::Release(_) if from_primary => self.on_release(cx),
            PeerMessage::ScrubRequest(request) if from_primary => {
                let compared = self.scrub.answer(&mut self.state, cx, from, &request, Digests::default());
                self.repair_compared(cx, compared);
            }
            PeerMessage::ScrubReply(reply) => {
                let compared = self.scrub.on_reply(&mut self.state, cx, from, *reply);
                self.repair_compared(cx, compared);
            }
            PeerMessage::Reserve(message) => self.reservations.on_reserve(&self.state, cx, from, &message),
            PeerMessage::CopyGet(get) => self.answer_copy(cx, from, *get, Vec::new()),
            PeerMessage::ChunkRead(read) if from_primary => self.state.answer_chunk(cx, from, *read),
            PeerMessage::ChunkReply(reply) => {
                let outcome = self.gathers.on_chunk(&mut self.state, cx, from, *reply);
                self.follow_gather(cx, outcome);
            }
            PeerMessage::CopyReply(reply) => {
                let goes_on = self.pipeline.on_copy(&mut self.state, cx, &reply);
                self.follow_op(cx, goes_on);
            }
            _ => {} // only the primary gives orders
        }
    }

    /// Drops the copy with all that is in it.
    pub(crate) fn remove(&mut self, cx: &mut Cx<'_>) {
        self.pipeline.backoffs.release_all(&self.state, cx);
        let mut txn = Transaction::new(self.state.spg);
        txn.push(Op::RemoveCollection);
        self.state.submit(cx, txn, OnDurable::Nothing);
        self.moves.remove_unborn(&mut self.state, cx);
        self.removed = true;
        cx.effects.push(Effect::Removed);
    }

    /// What clients sent with maps up to that of `epoch` was dropped ([`Pg::leave`]), and they send it again: what comes of it still would
    /// overtake that.
    pub fn resent_through(&mut self, epoch: Epoch) {
        self.state.resent_through = epoch;
    }

    /// Whether the choice of the authoritative log may leave out what copies know of intervals that none of them took part
    /// in (`osd_find_best_info_ignore_history_les`): an operator's last resort where those that did are gone for good.
    /// With the next tick, an incomplete PG looks again.
    pub fn ignore_history_les(&mut self, ignore: bool) {
        if ignore && !self.peering.ignores_history_les {
            self.peering.patience.look_again();
        }
        self.peering.ignores_history_les = ignore;
    }

    /// Makes the log's limits other than they were: there are more PGs, or fewer, that share memory for them. A log that is longer is trimmed
    /// with the next write.
    pub fn set_log_limits(&mut self, limits: LogLimits) {
        self.state.limits = limits;
    }

    /// Makes the PG behave otherwise, for the simulation.
    pub fn tune(&mut self, tuning: &Tuning) {
        (self.state.limits, self.checked, self.state.planted) =
            (tuning.limits, tuning.checked, tuning.planted);
        self.state.message_limits = tuning.message_limits;
        self.state.scan_objects = tuning.scan_objects.max(1);
        self.early.count_max = tuning.queues.future_max;
    }

    /// Asserts what always holds.
    ///
    /// # Panics
    /// When it does not.
    pub fn check(&self) {
        self.state.check();
        self.replication.check();
        let serving = self.is_primary() && self.state.phase.is_serving();
        assert!(
            serving || self.replication.is_idle(),
            "{}: writes in flight in {}",
            self.state.spg,
            self.state.phase.name()
        );
        assert!(
            serving || self.pipeline.is_idle(),
            "{}: operations run in {}",
            self.state.spg,
            self.state.phase.name()
        );
    }
}
