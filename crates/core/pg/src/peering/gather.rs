//! From a new interval to the authoritative log: which OSDs to ask, what the answers mean.

use super::choose::{Known, choose, choose_coded, enough_to_keep};
use super::{Peering, PeeringOutcome};
use crate::interval::{Interval, is_lost, is_up, up_thru};
use crate::log::PgLog;
use crate::peer::Peer;
use crate::phase::Phase;
use crate::state::PgState;
use crate::tokens::{AfterFlush, OnDurable};
use crate::{Cx, Effect, Planted, merge_role, storage};
use nacre_maps::OsdMap;
use nacre_msg::peer::{LogReply, Notify, PastInterval, PastIntervals, PeerMessage, PgInfo, Query, QueryKind};
use nacre_txn::{Op, Transaction};
use nacre_types::{Epoch, Eversion, HObject, OsdId};
use std::collections::{BTreeMap, BTreeSet};

impl PgState {
    /// The monitor has trimmed the maps between `last` and ours, which it does only once the PG was clean in one of those
    /// that are left: all that was written before is on the members of then, and they are those of our map, or serve in an
    /// interval that we are yet to see. Since when the first of these serves nobody knows any more, and so not either
    /// whether it took writes: we must suppose so.
    fn forget_intervals(&mut self, last: Epoch, next: &Interval) {
        let unseen = PastInterval {
            first: last + 1,
            last: self.map.epoch - 1,
            up: next.up.clone(),
            acting: next.acting.clone(),
            primary: next.primary,
            maybe_went_rw: true,
        };
        self.past = PastIntervals { intervals: vec![unseen], ..PastIntervals::default() };
    }

    fn notify(&self, nonce: u64) -> Notify {
        Notify {
            header: self.header(),
            nonce,
            interval: self.interval.id(),
            info: self.info.clone(),
            past: self.past.clone(),
        }
    }

    /// True when nobody can know anything of this PG yet. A copy that a peer called for is never fresh,
    /// however empty: this OSD may have lost its disk.
    fn is_fresh(&self) -> bool {
        self.ordered
            && self.interval.since <= self.info.history.epoch_created
            && self.past.intervals.is_empty()
            && self.info.is_empty()
            && self.info.last_epoch_started == 0
    }

    /// Members other than this OSD.
    pub(crate) fn others(&self) -> impl Iterator<Item = OsdId> + use<> {
        let me = self.whoami;
        self.interval.members().into_iter().filter(move |osd| *osd != me)
    }

    /// Each OSD up that is a member, or served in an interval that may have accepted writes, or may have an object that
    /// others lack.
    fn whom_to_ask(&self) -> BTreeSet<OsdId> {
        let mut all = self.past.writers();
        all.extend(self.past.holders());
        all.extend(self.others());
        all.retain(|osd| *osd != self.whoami && is_up(&self.map, *osd));
        all
    }

    /// An OSD came up that was not asked. That it could answer is what keeps the PG from being down,
    /// so its answer must count.
    fn is_somebody_unasked(&self) -> bool {
        let Phase::GetInfo { waiting } = &self.phase else { return false };
        self.whom_to_ask().iter().any(|osd| !waiting.contains(osd) && !self.peers.contains_key(osd))
    }

    /// OSDs that may have objects that no other has, and have not told what they have: not up, or asked just now. Those that were marked
    /// lost since they were up last do not count. Ceph's `might_have_unfound`, but for those already queried.
    pub(crate) fn unprobed(&self) -> Vec<OsdId> {
        let lost =
            |osd: OsdId| !self.map.exists(osd) || self.map.info(osd).lost_at > self.map.info(osd).up_from;
        let told = |osd: OsdId| self.peers.contains_key(&osd) && is_up(&self.map, osd);
        let holders = self.past.holders().into_iter().filter(|osd| *osd >= 0 && *osd != self.whoami);
        holders.filter(|osd| !told(*osd) && (is_up(&self.map, *osd) || !lost(*osd))).collect()
    }

    fn learn(&mut self, from: OsdId, notify: Notify) {
        self.info.history.merge(&notify.info.history);
        self.past.trim_before(self.info.history.last_epoch_started);
        self.peers.insert(from, Peer::new(notify.info));
    }

    /// Whether what `osd` stored in an interval that began with `first` is lost, by its own word.
    fn has_lost(&self, osd: OsdId, first: Epoch) -> bool {
        self.lost_through(osd) >= first
    }

    /// The newest map under which `osd` stored anything that is damaged since; 0 for none, for all that is known.
    pub(crate) fn lost_through(&self, osd: OsdId) -> Epoch {
        self.info_of(osd).map_or(0, |info| info.lost_through)
    }

    /// What is known of the copy there.
    fn info_of(&self, osd: OsdId) -> Option<&PgInfo> {
        if osd == self.whoami { Some(&self.info) } else { self.peers.get(&osd).map(|peer| &peer.info) }
    }

    /// Another store has the number of a member of `interval`, which was given up since, or what came back shows nothing of it: it runs,
    /// and says nothing of what was written then. Ceph takes it for one that does (`PastIntervals::PriorSet`).
    fn is_replaced(&self, osd: OsdId, interval: &PastInterval) -> bool {
        let shows_nothing = |info: &PgInfo| info.last_update.epoch < interval.first;
        is_lost(&self.map, osd, interval.last) && self.info_of(osd).is_none_or(shows_nothing)
    }

    /// Members of past intervals without which acknowledged writes may be unknown.
    fn blocked_by(&self) -> Vec<OsdId> {
        let mut blocked = BTreeSet::new();
        for interval in self.past.intervals.iter().filter(|interval| interval.maybe_went_rw) {
            let here = |osd: OsdId| osd == self.whoami || is_up(&self.map, osd);
            let reachable = |osd: &&OsdId| {
                here(**osd) && !self.has_lost(**osd, interval.first) && !self.is_replaced(**osd, interval)
            };
            if interval.acting.iter().filter(reachable).count() < self.chunks_needed().unwrap_or(1) {
                let gone = interval.acting.iter().filter(|osd| !reachable(osd));
                let is_lost_here = |osd: &OsdId| is_lost(&self.map, *osd, interval.last);
                if self.planted == Planted::OneLostForAll && gone.clone().any(is_lost_here) {
                    continue;
                }
                blocked.extend(gone.filter(|osd| !is_lost_here(osd)));
            }
        }
        for (osd, last) in &self.past.each {
            let is_here = *osd == self.whoami || is_up(&self.map, *osd);
            let has_all = is_here && self.lost_through(*osd) == 0;
            if !has_all && !is_lost(&self.map, *osd, *last) {
                blocked.insert(*osd);
            }
        }
        blocked.into_iter().collect()
    }

    /// What a choice among copies that are not whole rests on.
    fn known<'a>(&self, infos: &'a BTreeMap<OsdId, &'a PgInfo>) -> Known<'a> {
        let past = self.past.intervals.iter().map(|past| (past.first, past.last, past.acting.clone()));
        let present = (self.interval.since, self.map.epoch, self.interval.acting.clone());
        let intervals = past.chain([present]).collect();
        let needed = self.chunks_needed().unwrap_or(1);
        let enough = enough_to_keep(needed, self.interval.min_size.into());
        Known { infos, me: self.whoami, intervals, needed, enough, planted: self.planted }
    }

    /// Nobody can have written that yet: behind it, no write of ours would ascend.
    pub(crate) fn is_of_the_future(&self, version: Eversion) -> bool {
        version.epoch > self.map.epoch
    }

    /// Merges the authoritative log into this copy's; false when they have nothing in common. Objects behind
    /// `last_backfill` do not count: they are compared in any case.
    pub(crate) fn take_over(
        &mut self,
        cx: &Cx<'_>,
        txn: &mut Transaction,
        authority: &PgInfo,
        since: Eversion,
        entries: &[nacre_msg::peer::LogEntry],
    ) -> bool {
        use crate::log::{Change, merge};
        use nacre_txn::Op;
        let Ok(plan) = merge(&self.log, since, entries) else { return false };
        let mut divergent = Vec::new();
        if plan.common < self.log.head() {
            divergent = self.log.rewind(plan.common);
            txn.push(Op::LogRewind { to: plan.common });
        }
        for (object, change) in plan.changes {
            let told = || plan.append.iter().any(|entry| entry.object == object);
            if self.planted == Planted::DivergentRollbackGenKept && !told() {
                continue;
            }
            if !self.info.covers(&object) {
                continue;
            }
            let copy = self.copy_version(cx.view, &object);
            self.forget_missing(txn, &object);
            match change {
                Change::Gone => {
                    self.missing.remove(&object);
                    if copy.is_some() {
                        txn.push(Op::Remove(object));
                    }
                }
                Change::Need(need) if copy == Some(need) => drop(self.missing.remove(&object)),
                change if self.rollback(cx.view, txn, &divergent, &object, change) => {
                    self.missing.remove(&object);
                }
                Change::Need(need) => self.missing.insert(object, need),
            }
        }
        self.drop_rollback_gens_above(txn, plan.common);
        txn.ops.extend(plan.append.iter().map(storage::log_append));
        plan.append.iter().for_each(|entry| self.log.append(entry));
        self.follow_authority(authority);
        self.note_completeness(txn);
        true
    }

    /// Keeps in mind what must be looked at after a crash: all objects whose newest entry is above
    /// `last_complete`, and on record what is older than the log (an old state that must be restored because
    /// a newer one turned out divergent).
    fn note_completeness(&mut self, txn: &mut Transaction) {
        let tail = self.log.tail();
        self.record_missing(txn, tail);
        self.info.last_complete = match self.missing.oldest_need_above(tail) {
            Some(oldest) => self.info.last_complete.min(self.log.before(oldest).unwrap_or(tail)),
            None => self.info.last_update,
        };
    }

    /// Replaces this copy's log; what its objects lack only a comparison can tell.
    pub(crate) fn rebuild_log(
        &mut self,
        txn: &mut Transaction,
        authority: &PgInfo,
        since: Eversion,
        entries: &[nacre_msg::peer::LogEntry],
    ) {
        use nacre_txn::Op;
        self.log = PgLog::default();
        self.log.replace(since, entries);
        txn.push(Op::LogRewind { to: Eversion::ZERO });
        txn.ops.extend(entries.iter().map(storage::log_append));
        self.missing = Default::default();
        self.forget_all_missing(txn);
        self.drop_all_rollback_gens(txn);
        self.info.log_tail = since;
        self.follow_authority(authority);
        self.info.last_complete = Eversion::ZERO;
        self.info.last_backfill = HObject::MIN;
    }

    fn follow_authority(&mut self, authority: &PgInfo) {
        self.info.set_head(self.log.head());
        self.info.last_user_version = authority.last_user_version.max(self.info.last_user_version);
        self.info.counters = authority.counters;
        self.info.purged_snaps = authority.purged_snaps.clone();
        self.info.history.merge(&authority.history);
        // An OSD that has the log of the last active interval took part in it, whether or not this one gets active.
        self.info.last_epoch_started = authority.last_epoch_started;
        self.info.last_interval_started = authority.last_interval_started;
    }

    /// Looks whether `self.map` begins a new interval; `before` is the last map of the current one, and `absorbed` are
    /// changes that go with the interval that begins.
    pub(crate) fn advance_interval(
        &mut self,
        cx: &mut Cx<'_>,
        before: &OsdMap,
        absorbed: &mut Vec<Op>,
    ) -> bool {
        let skipped = self.map.epoch > before.epoch.saturating_add(1);
        let anew =
            skipped || merge_role::role(before, self.spg.pg) != self.merge_role || !absorbed.is_empty();
        let (next, changed) = self.interval.advance(&self.map, self.spg.pg, anew);
        if !changed && self.begun {
            return false;
        }
        if changed {
            if skipped {
                self.forget_intervals(before.epoch, &next);
            } else {
                let past = self.interval.to_past(before.epoch, before, self.info.history.epoch_created);
                if self.planted != Planted::IntervalForgotten {
                    self.past.push(past, self.chunks_needed().unwrap_or(1));
                }
            }
            self.past.trim_before(self.info.history.last_epoch_started);
            self.interval = next;
            if skipped {
                self.interval.primary_since = self.map.epoch;
            }
            let mut txn = Transaction { collection: self.spg, ops: std::mem::take(absorbed) };
            self.save_state(&mut txn);
            self.submit(cx, txn, OnDurable::Nothing);
        }
        true
    }

    /// Tells the primary that this copy is there: it may need it, or want it gone.
    pub(crate) fn notify_primary(&mut self, cx: &mut Cx<'_>) {
        let primary = self.interval.primary;
        if self.is_primary() || primary < 0 || !is_up(&self.map, primary) {
            return;
        }
        let message = self.notify(0);
        self.send_flushed(cx, primary, message);
    }

    /// Sends what tells of this copy's log, once that log is durable.
    pub(super) fn send_flushed(&mut self, cx: &mut Cx<'_>, to: OsdId, message: impl Into<PeerMessage>) {
        let then = AfterFlush::Send { to, message: Box::new(message.into()) };
        if let Some(AfterFlush::Send { to, message }) = self.tokens.after_flush(then) {
            self.send(cx, to, *message);
        }
    }
}

impl Peering {
    /// All that this copy had submitted is durable.
    pub(crate) fn flushed(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        then: AfterFlush,
    ) -> Option<PeeringOutcome> {
        match then {
            AfterFlush::Send { to, message } => {
                state.send(cx, to, *message);
                None
            }
            AfterFlush::Peering(nonce) if nonce == self.query_nonce => {
                let Phase::GetInfo { waiting } = &mut state.phase else { return None };
                waiting.remove(&state.whoami);
                self.look_at_infos(state, cx)
            }
            AfterFlush::Peering(_) => None,
        }
    }

    /// Begins peering anew within the interval: a copy came, went, or changed. All that was under way has been taken back.
    pub(crate) fn restart(&mut self, state: &mut PgState, cx: &mut Cx<'_>) -> Option<PeeringOutcome> {
        self.set_phase(state, Phase::GetInfo { waiting: BTreeSet::new() });
        self.start(state, cx)
    }

    /// Asks all that may know something; in a PG that is made just now there is nothing to ask for.
    pub(crate) fn start(&mut self, state: &mut PgState, cx: &mut Cx<'_>) -> Option<PeeringOutcome> {
        if state.is_fresh() {
            let empty = PgInfo::empty(state.info.history);
            let others: Vec<OsdId> = state.others().collect();
            state.peers.extend(others.into_iter().map(|osd| (osd, Peer::new(empty.clone()))));
            return self.agree(state, cx);
        }
        if up_thru(&state.map, state.whoami) < state.interval.since {
            cx.effects.push(Effect::WantUpThru { epoch: state.interval.since });
        }
        let mut asked = state.whom_to_ask();
        // A stray spoke once, when the interval began: what it said stays good while it is down.
        state.peers.retain(|osd, _| !asked.contains(osd));
        self.query_nonce += 1;
        self.patience.begin();
        for osd in &asked {
            let (kind, nonce) = (QueryKind::Info, self.query_nonce);
            state.send(cx, *osd, Query { header: state.header(), kind, nonce });
        }
        if state.tokens.after_flush(AfterFlush::Peering(self.query_nonce)).is_none() {
            asked.insert(state.whoami); // our own log counts once it is durable
        }
        state.phase = Phase::GetInfo { waiting: asked };
        self.look_at_infos(state, cx)
    }

    /// A map came that did not change the interval: go on if somebody we wait for is gone, or if it brings
    /// what we waited for.
    pub(crate) fn reconsider(&mut self, state: &mut PgState, cx: &mut Cx<'_>) -> Option<PeeringOutcome> {
        let gone = |osd: &OsdId| *osd != state.whoami && !is_up(&state.map, *osd);
        match &state.phase {
            Phase::GetInfo { waiting } if waiting.iter().any(gone) || state.is_somebody_unasked() => {
                Some(PeeringOutcome::Restart)
            }
            Phase::GetLog { from } if gone(from) => Some(PeeringOutcome::Restart),
            Phase::Down { .. } | Phase::Incomplete => Some(PeeringOutcome::Restart),
            Phase::WaitActingChange { wanted } if wanted.iter().any(gone) => Some(PeeringOutcome::Restart),
            Phase::WaitUpThru => self.try_activate(state, cx),
            Phase::Active { .. } => {
                self.ask_late_comers(state, cx);
                Some(PeeringOutcome::SourcesMayBeGone)
            }
            _ => None,
        }
    }

    /// Asks those that have come up since the PG is active, and may have what others lack: one without a copy would not speak
    /// by itself, and could not be told from one that is away.
    fn ask_late_comers(&self, state: &PgState, cx: &mut Cx<'_>) {
        if state.is_recovered() {
            return;
        }
        let (kind, nonce) = (QueryKind::Info, self.query_nonce);
        for osd in state.whom_to_ask().into_iter().filter(|osd| !state.peers.contains_key(osd)) {
            state.send(cx, osd, Query { header: state.header(), kind, nonce });
        }
    }

    /// Answers the primary's question.
    pub(crate) fn answer_query(&mut self, state: &mut PgState, cx: &mut Cx<'_>, from: OsdId, query: Query) {
        self.patience.is_called();
        match query.kind {
            QueryKind::Info => {
                let message = state.notify(query.nonce);
                state.send_flushed(cx, from, message);
            }
            QueryKind::Log => {
                let (header, info) = (state.header(), state.info.clone());
                let (entries, missing) = (state.log.iter().collect(), state.missing.to_items());
                state.send_flushed(cx, from, LogReply { header, info, entries, missing });
            }
        }
    }

    /// A copy says what it has, asked or unasked.
    pub(crate) fn on_info(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        from: OsdId,
        notify: Notify,
    ) -> Option<PeeringOutcome> {
        if !state.is_primary() {
            return None;
        }
        let asked = notify.nonce == self.query_nonce && notify.nonce != 0;
        let member = state.interval.members().contains(&from);
        match &mut state.phase {
            Phase::GetInfo { waiting } if asked => {
                if !waiting.remove(&from) {
                    return None;
                }
                state.learn(from, notify);
                self.look_at_infos(state, cx)
            }
            // Its answer to our question follows on the same connection.
            Phase::GetInfo { waiting } if waiting.contains(&from) => None,
            // Answers a question of an earlier attempt: a member is asked again, a stray perhaps not.
            _ if notify.nonce != 0 && (member || state.peers.contains_key(&from)) => None,
            // A member that we had heard of speaks unasked: it has started anew and knows nothing of us.
            _ if member => Some(PeeringOutcome::Restart),
            phase => {
                let stuck =
                    matches!(phase, Phase::Down { .. } | Phase::Incomplete | Phase::WaitActingChange { .. });
                state.learn(from, notify);
                Some(if stuck { PeeringOutcome::Restart } else { PeeringOutcome::Stray(from) })
            }
        }
    }

    fn look_at_infos(&mut self, state: &mut PgState, cx: &mut Cx<'_>) -> Option<PeeringOutcome> {
        if !matches!(&state.phase, Phase::GetInfo { waiting } if waiting.is_empty()) {
            return None;
        }
        let blocked_by = state.blocked_by();
        if !blocked_by.is_empty() {
            self.set_phase(state, Phase::Down { blocked_by });
            return Some(PeeringOutcome::Stuck);
        }
        let agreed = state.agreed_mapping();
        let is_odd = |info: &PgInfo| {
            agreed.as_ref().is_some_and(|agreed| info.shard.is_some() && info.mapping != *agreed)
        };
        let up = state.peers.iter().filter(|(osd, _)| is_up(&state.map, **osd));
        let infos = up.map(|(osd, peer)| (*osd, &peer.info)).chain([(state.whoami, &state.info)]);
        let mut infos: BTreeMap<OsdId, &PgInfo> = infos.collect();
        // What an odd one knows of the past counts, its chunks do not.
        let incomplete = |info: &PgInfo| PgInfo { last_backfill: HObject::MIN, ..info.clone() };
        let odd = infos.iter().filter(|(_, info)| is_odd(info));
        let odd: Vec<(OsdId, PgInfo)> = odd.map(|(osd, info)| (*osd, incomplete(info))).collect();
        infos.extend(odd.iter().map(|(osd, info)| (*osd, info)));
        let best = match state.chunks_needed() {
            None => choose(&infos, state.whoami, self.ignores_history_les),
            Some(_) => choose_coded(&state.known(&infos)),
        };
        match best {
            None => {
                self.set_phase(state, Phase::Incomplete);
                Some(PeeringOutcome::Stuck)
            }
            Some(best) if best == state.whoami => self.agree(state, cx),
            Some(best) => {
                let tail = state.peers.get(&best).map_or(Eversion::ZERO, |peer| peer.info.log_tail);
                if !state.can_lead(tail) || is_odd(&state.info) {
                    return Some(self.leave_to_others(state, cx, tail, agreed.as_ref()));
                }
                self.set_phase(state, Phase::GetLog { from: best });
                let nonce = self.query_nonce;
                state.send(cx, best, Query { header: state.header(), kind: QueryKind::Log, nonce });
                None
            }
        }
    }

    /// The authoritative log came: make it ours.
    pub(crate) fn on_log(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        from: OsdId,
        reply: LogReply,
    ) -> Option<PeeringOutcome> {
        if !matches!(state.phase, Phase::GetLog { from: awaited } if awaited == from) {
            return None;
        }
        if state.is_of_the_future(reply.info.last_update) {
            return None;
        }
        let LogReply { info, entries, missing, .. } = reply;
        let chosen = state.peers.get(&from).map(|peer| (peer.info.last_update, peer.info.last_epoch_started));
        if chosen != Some((info.last_update, info.last_epoch_started)) {
            // Not what it was chosen for: perhaps it lost its disk since.
            state.peers.insert(from, Peer::new(info));
            return Some(PeeringOutcome::Restart);
        }
        let mut txn = Transaction::new(state.spg);
        let merged =
            state.can_lead(info.log_tail) && state.take_over(cx, &mut txn, &info, info.log_tail, &entries);
        if !merged {
            state.info.last_backfill = HObject::MIN; // others must serve, and compare this copy with theirs
        }
        state.save_state(&mut txn);
        state.submit(cx, txn, OnDurable::Nothing);
        if !merged {
            return Some(PeeringOutcome::Restart);
        }
        let peer = state.peers.entry(from).or_insert_with(|| Peer::new(info.clone()));
        (peer.info, peer.missing) = (info, missing.into_iter().collect());
        self.agree(state, cx)
    }
}
