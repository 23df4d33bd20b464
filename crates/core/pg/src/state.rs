//! [`PgState`]: what one copy of a PG is, apart from what is under way in it.
//!
//! The parts of a [`crate::Pg`] (scrub, watches, recovery and so on) each own what they have under way, and read and change this.
//! What all of them do to a copy is here as well: submit a transaction, send to a peer, record what is kept.
//!
//! What [`PgState::check`] asserts after every event in tests:
//! - log entries strictly ascend; `log.tail <= log.head == info.last_update`;
//! - `last_complete <= last_update`; every `missing.need <= log.head`; what all members have does not go beyond it;
//! - tokens ascend.

use crate::coding::{Coding, Ec};
use crate::interval::Interval;
use crate::log::{LogLimits, Missing, PgLog};
use crate::ops::{MessageLimits, PoolFacts};
use crate::peer::Peer;
use crate::phase::Phase;
use crate::stamps::Stamps;
use crate::tokens::{OnDurable, Tokens};
use crate::tuning::SCAN_OBJECTS_MAX;
use crate::{Cx, Effect, MergeRole, Planted, merge_role, storage};
use nacre_maps::{OsdMap, flags};
use nacre_msg::peer::{PastIntervals, PeerHeader, PeerMessage, PgInfo};
use nacre_txn::{ObjectView, Op, Transaction};
use nacre_types::{Epoch, Eversion, HObject, OsdId, PoolId, SpgId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One copy of a PG: which it is, its interval, log and info, what it lacks, and what its primary knows of the others.
pub(crate) struct PgState {
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
    pub(crate) message_limits: MessageLimits,
    /// The newest epoch that marked the pool, or all of the cluster, full; 0 when none that this copy saw did. Writes
    /// of older epochs are dropped. Nobody has to keep it: a new primary drops all that is older than itself.
    pub(crate) marked_full: Epoch,
    /// Clients have sent again what they sent with maps up to this one: the copy was in another partition of the OSD's store then, where
    /// that was dropped.
    pub(crate) resent_through: Epoch,
    /// Objects that one comparison of a backfill looks at.
    pub(crate) scan_objects: usize,
    pub(crate) planted: Planted,
    /// What this copy lacks.
    pub(crate) missing: Missing,
    /// Those of them that the log does not reach back to, and that are therefore on record.
    pub(crate) recorded: BTreeSet<HObject>,
    /// Temporary objects in this copy, in which large copies are collected: hidden from all but those.
    pub(crate) staged: BTreeSet<HObject>,
    pub(crate) phase: Phase,
    /// Other copies, as far as the primary knows of them in this interval.
    pub(crate) peers: BTreeMap<OsdId, Peer>,
    /// In erasure-coded pools.
    pub(crate) ec: Option<Ec>,
    pub(crate) stamps: Stamps,
    pub(crate) tokens: Tokens,
    /// Something was submitted during this event, and does not show in the view before its end.
    pub(crate) view_is_stale: bool,
    /// This copy was ordered by the monitor, which does so only until the PG has been active once.
    pub(crate) ordered: bool,
    /// In the store lies a damaged copy. It stays, for people to look at, until the primary calls for a new one.
    pub(crate) in_rubble: bool,
    /// The interval has begun; false after a load until the first map.
    pub(crate) begun: bool,
    /// What the PG is in a merge that is prepared: then it serves nobody.
    pub(crate) merge_role: Option<MergeRole>,
    /// Everything up to here is durable on all members.
    pub(crate) committed_to: Eversion,
}

impl PgState {
    /// An empty copy, as of `map`.
    pub(crate) fn new(
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
            message_limits: MessageLimits::default(),
            // A client that knew of it already sends nothing; one that did not is dropped one time too often at worst.
            marked_full: if is_full(map, spg.pg.pool) { map.epoch } else { 0 },
            resent_through: 0,
            scan_objects: SCAN_OBJECTS_MAX,
            planted: Planted::Nothing,
            missing: Missing::default(),
            recorded: BTreeSet::new(),
            staged: BTreeSet::new(),
            phase: Phase::Stray,
            peers: BTreeMap::new(),
            ec: Coding::of(map, spg.pg.pool).map(Ec::new),
            stamps: Stamps::default(),
            tokens: Tokens::default(),
            view_is_stale: false,
            ordered: false,
            in_rubble: false,
            begun: false,
            merge_role: merge_role::role(map, spg.pg),
            committed_to: Eversion::ZERO,
        }
    }

    /// `self.map` has followed `before`: takes over what it says of the pool.
    pub(crate) fn follow_map(&mut self, before: &OsdMap, pool: PoolFacts) {
        self.pool = pool;
        if is_full(&self.map, self.spg.pg.pool) && !is_full(before, self.spg.pg.pool) {
            self.marked_full = self.map.epoch;
        }
        self.merge_role = merge_role::role(&self.map, self.spg.pg);
    }

    /// The log is another one now, for a part of it left or others joined: what all members hold is the newest of those versions
    /// that it still has.
    pub(crate) fn follow_log(&mut self) {
        self.committed_to = self.log.newest_up_to(self.committed_to);
    }

    /// Hands a transaction to the store and notes what to do once it is durable.
    pub(crate) fn submit(&mut self, cx: &mut Cx<'_>, mut txn: Transaction, then: OnDurable) {
        self.view_is_stale = true;
        if self.in_rubble {
            match txn.ops.first() {
                Some(Op::RemoveCollection) => self.in_rubble = false,
                // It has nothing to keep yet: found damaged again, it begins as it did now.
                _ => txn.ops.clear(),
            }
        }
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
            note_missing(&mut self.recorded, txn, object, need);
        }
    }

    /// Adds the record of a missing object to a transaction.
    pub(crate) fn note_missing(&mut self, txn: &mut Transaction, object: &HObject, need: Eversion) {
        note_missing(&mut self.recorded, txn, object, need);
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

    /// The version of this copy of `object`: `None` when it does not exist, zero when it is only partly
    /// there or its record is damaged.
    pub(crate) fn copy_version(&self, view: &dyn ObjectView, object: &HObject) -> Option<Eversion> {
        storage::copy_version(view, &self.spg, object)
    }

    /// True when this copy leads the PG in this interval.
    pub(crate) fn is_primary(&self) -> bool {
        self.interval.primary == self.whoami
    }

    /// The OSDs that serve this PG, or are to: its up and acting sets.
    pub(crate) fn members(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.interval.up.iter().chain(&self.interval.acting).copied()
    }

    /// True when clients are served, and anything may change.
    pub(crate) fn is_active(&self) -> bool {
        let codes = self.ec.is_some() || self.pool.stripe_bytes.is_none();
        self.phase.is_serving() && self.merge_role.is_none() && codes
    }

    /// True when the members have agreed on a log, whether or not there are enough of them to serve.
    pub(crate) fn is_activated(&self) -> bool {
        matches!(self.phase, Phase::Active { .. } | Phase::Activating { .. })
    }

    /// Asserts what always holds.
    ///
    /// # Panics
    /// When it does not.
    pub(crate) fn check(&self) {
        self.log.check();
        let (tail, head) = (self.log.tail(), self.log.head());
        assert!(tail <= head, "{}: log {tail}..{head}", self.spg);
        assert_eq!(head, self.info.last_update, "{}: log head and last_update", self.spg);
        assert_eq!(tail, self.info.log_tail, "{}: log tail", self.spg);
        assert!(self.info.last_complete <= head, "{}: last_complete", self.spg);
        assert!(self.missing.iter().all(|(_, need)| need <= head), "{}: missing from the future", self.spg);
        assert!(self.committed_to <= head, "{}: more is committed than the log has", self.spg);
        self.tokens.check();
    }
}

/// Clients write nothing to the pool for lack of room.
fn is_full(map: &OsdMap, pool: PoolId) -> bool {
    map.has_flag(flags::osdmap::FULL)
        || map.pools.get(&pool).is_some_and(|pool| pool.has_flag(flags::pool::FULL))
}

fn note_missing(recorded: &mut BTreeSet<HObject>, txn: &mut Transaction, object: &HObject, need: Eversion) {
    if recorded.insert(object.clone()) {
        txn.push(storage::record_missing(object, need));
    }
}
