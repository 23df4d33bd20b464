//! [`Objecter`]: operations under way, their targets, what is sent again and when.

use crate::request::Request;
use nacre_maps::{MapError, OSD_NONE, OsdMap, UpActing, flags, newer_maps};
use nacre_msg::{OsdBackoff, OsdOp, OsdOpReply, backoff_op};
use nacre_types::{AddrVec, Epoch, Errno, HObject, OsdId, PgId, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Operations under way at most.
pub const OPS_MAX: usize = 65_536;
/// An operation that has no answer for so long makes us ask for a newer map, Ceph's `objecter_timeout`.
const LAGGY: Duration = Duration::from_secs(10);
/// Time between looks for such operations, Ceph's `objecter_tick_interval`.
const TICK_INTERVAL: Duration = Duration::from_secs(5);
/// Backoffs that one OSD may ask for; more are acknowledged and not kept, and what they should hold is dropped
/// there.
const BACKOFFS_MAX: usize = 65_536;
/// Pause before a lost connection is dialled again, Ceph's `ms_initial_backoff`.
const REDIAL_DELAY: Duration = Duration::from_millis(200);

/// What is to be done.
#[derive(Debug)]
pub enum Effect {
    /// Dial this OSD; any earlier connection with it was closed.
    Open {
        /// Number of the OSD.
        osd: OsdId,
        /// Where the map has it.
        addrs: AddrVec,
    },
    /// Close the connection; nothing that comes on it matters.
    Close {
        /// Number of the OSD.
        osd: OsdId,
    },
    /// Send on the open connection.
    Send {
        /// Number of the OSD.
        osd: OsdId,
        /// Number of the operation.
        tid: u64,
        /// The message to send.
        message: Box<OsdOp>,
    },
    /// Send an acknowledgement on the open connection, under number 0.
    Acknowledge {
        /// Number of the OSD.
        osd: OsdId,
        /// The acknowledgement to send.
        message: Box<OsdBackoff>,
    },
    /// An operation is finished.
    Done {
        /// Number under which the operation was begun.
        tid: u64,
        /// The answer; of an operation that never reached an OSD, why.
        outcome: Result<Box<OsdOpReply>, Errno>,
    },
    /// The pool of an operation is not in our map: ask the monitor for the newest epoch and hand it to
    /// [`Objecter::newest`].
    AskNewest {
        /// Number under which the operation was begun.
        tid: u64,
    },
    /// Something waits for a newer map: ask the monitor, from the epoch behind ours on, or maps that lie between
    /// would be missing.
    WantMap {
        /// The epoch; 0 for the newest, when we have none.
        from: Epoch,
    },
}

/// [`OPS_MAX`] operations are under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many operations are under way")]
pub struct TooMany;

/// Where an operation goes, and whatever makes it go again when it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OpTarget {
    pg: PgId,
    set: UpActing,
    size: u8,
    min_size: u8,
    pg_num: u32,
    /// What was sent under an older map is not taken any more, although nothing else is different.
    resend_from: Epoch,
}

#[derive(Debug)]
struct Op {
    request: Request,
    /// Where the newest map has it; `None` while no OSD serves it, or it may not go out.
    target: Option<OpTarget>,
    /// The OSD that it was sent to last, on the present connection.
    sent_to: Option<OsdId>,
    /// How often it was sent.
    attempts: i32,
    /// When it was last sent or asked about.
    since: Stamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A connection is being made.
    Dialling,
    /// The session is open, and messages flow.
    Open,
    /// Lost; dialled again then, if something is to go there.
    Pausing(Stamp),
}

#[derive(Debug)]
struct Session {
    addrs: AddrVec,
    state: State,
    /// What its OSD wants held, by name. Ends with the connection.
    backoffs: BTreeMap<u64, OsdBackoff>,
}

impl Session {
    fn holds(&self, pg: PgId, object: &HObject) -> bool {
        self.backoffs.values().any(|backoff| is_covered(backoff, pg, object))
    }
}

/// Whether a backoff is about an object of a PG.
fn is_covered(backoff: &OsdBackoff, pg: PgId, object: &HObject) -> bool {
    backoff.spg.pg == pg && (*object == backoff.begin || (backoff.begin < *object && *object < backoff.end))
}

/// See the crate's documentation. Calls collect [`Effect`]s for [`Objecter::drain`].
pub struct Objecter {
    map: Arc<OsdMap>,
    /// Nothing is sent under an older map.
    barrier: Epoch,
    ops: BTreeMap<u64, Op>,
    sessions: BTreeMap<OsdId, Session>,
    last_tid: u64,
    tick_at: Stamp,
    effects: Vec<Effect>,
}

impl Default for Objecter {
    fn default() -> Self {
        Self {
            map: Arc::new(OsdMap::default()),
            barrier: 0,
            ops: BTreeMap::new(),
            sessions: BTreeMap::new(),
            last_tid: 0,
            tick_at: Stamp::default(),
            effects: Vec::new(),
        }
    }
}

impl Objecter {
    /// The newest map; of epoch 0 before the first.
    #[must_use]
    pub fn map(&self) -> &Arc<OsdMap> {
        &self.map
    }

    /// Operations under way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.ops.len()
    }

    /// When [`Objecter::tick`] is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Stamp> {
        let redial = self.sessions.values().filter_map(|session| match session.state {
            State::Pausing(until) => Some(until),
            State::Dialling | State::Open => None,
        });
        redial.chain((!self.ops.is_empty()).then_some(self.tick_at)).min()
    }

    /// Takes what is to be done, in order.
    pub fn drain(&mut self, out: &mut Vec<Effect>) {
        out.append(&mut self.effects);
    }

    /// Begins an operation; [`Effect::Done`] bears the number returned here.
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn submit(&mut self, now: Stamp, request: Request) -> Result<u64, TooMany> {
        if self.ops.len() >= OPS_MAX {
            return Err(TooMany);
        }
        if self.ops.is_empty() {
            self.tick_at = now + TICK_INTERVAL;
        }
        self.last_tid += 1;
        let tid = self.last_tid;
        self.ops.insert(tid, Op { request, target: None, sent_to: None, attempts: 0, since: now });
        self.aim(now, tid);
        Ok(tid)
    }

    /// Forgets an operation: its answer will be ignored. It may have taken effect, or still do so.
    pub fn cancel(&mut self, tid: u64) {
        self.ops.remove(&tid);
    }

    /// Sends nothing more before the map of `epoch` is here: what others have learned of by then must hold for
    /// our operations, too.
    pub fn set_barrier(&mut self, epoch: Epoch) {
        self.barrier = self.barrier.max(epoch);
        if self.map.epoch < self.barrier {
            self.want_map();
        }
    }

    /// Maps came, from a monitor or from an OSD. When an increment does not lead to the map that its sender has, the
    /// newest one is asked for whole.
    ///
    /// # Errors
    /// [`MapError`]; what came before the bad map is taken in.
    pub fn maps(&mut self, now: Stamp, message: &nacre_msg::MOsdMap) -> Result<(), MapError> {
        for next in newer_maps(&self.map, message) {
            let next = match next {
                Ok(next) => next,
                Err(MapError::Apply { .. }) => {
                    self.effects.push(Effect::WantMap { from: 0 });
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            self.map = next.map;
            self.follow_sessions();
            for tid in self.ops.keys().copied().collect::<Vec<_>>() {
                // In a skipped epoch its primary may have changed and changed back, and dropped it.
                if next.skipped
                    && let Some(op) = self.ops.get_mut(&tid)
                {
                    op.target = None;
                }
                self.aim(now, tid);
            }
        }
        Ok(())
    }

    /// Connections with OSDs that are down or elsewhere now end.
    fn follow_sessions(&mut self) {
        let map = &self.map;
        let stale = |osd: OsdId, session: &Session| {
            !map.is_up(osd) || map.client_addr(osd).is_some_and(|addrs| *addrs != session.addrs)
        };
        let gone: Vec<OsdId> = self
            .sessions
            .iter()
            .filter(|(osd, session)| stale(**osd, session))
            .map(|(osd, _)| *osd)
            .collect();
        for osd in gone {
            self.sessions.remove(&osd);
            self.effects.push(Effect::Close { osd });
            self.forget_sent(osd);
        }
    }

    fn forget_sent(&mut self, osd: OsdId) {
        for op in self.ops.values_mut().filter(|op| op.sent_to == Some(osd)) {
            op.sent_to = None;
            op.target = None;
        }
    }

    /// Where the newest map has an operation. `Err` when there is no such pool.
    fn target(&self, request: &Request) -> Result<Option<OpTarget>, Errno> {
        let pool = self.map.pool(request.locator.pool).ok_or(Errno::ENOENT)?;
        let paused = if request.is_write() { flags::osdmap::PAUSE_WRITE } else { flags::osdmap::PAUSE_READ };
        let full = pool.has_flag(flags::pool::FULL) || self.map.has_flag(flags::osdmap::FULL);
        let full = request.is_write() && full && !request.goes_out_when_full();
        let pg = self.map.object_to_pg(&request.name, &request.locator).ok_or(Errno::ENOENT)?;
        let set = self.map.pg_to_up_acting(pg);
        if self.map.epoch < self.barrier
            || self.map.has_flag(paused)
            || full
            || set.acting_primary == OSD_NONE
        {
            return Ok(None);
        }
        Ok(Some(OpTarget {
            pg,
            set,
            size: pool.size,
            min_size: pool.min_size,
            pg_num: pool.pg_num,
            resend_from: pool.last_force_op_resend,
        }))
    }

    /// Sends an operation if the map has a new target for it.
    fn aim(&mut self, now: Stamp, tid: u64) {
        let Some(op) = self.ops.get(&tid) else { return };
        if self.map.epoch == 0 {
            return self.want_map();
        }
        let Ok(target) = self.target(&op.request) else {
            self.forget_target(tid);
            return self.effects.push(Effect::AskNewest { tid });
        };
        let unchanged = target.is_some() && op.target == target;
        let Some(op) = self.ops.get_mut(&tid) else { return };
        op.target.clone_from(&target);
        if unchanged && op.sent_to.is_some() {
            return;
        }
        op.sent_to = None;
        match target {
            Some(target) => self.send(now, tid, target.set.acting_primary),
            None => self.want_map(),
        }
    }

    fn want_map(&mut self) {
        let from = if self.map.epoch == 0 { 0 } else { self.map.epoch + 1 };
        self.effects.push(Effect::WantMap { from });
    }

    fn forget_target(&mut self, tid: u64) {
        if let Some(op) = self.ops.get_mut(&tid) {
            (op.target, op.sent_to) = (None, None);
        }
    }

    /// The newest epoch that there was when [`Effect::AskNewest`] was answered. A pool that is not in our map
    /// of that epoch does not exist.
    pub fn newest(&mut self, now: Stamp, tid: u64, epoch: Epoch) {
        let Some(op) = self.ops.get(&tid) else { return };
        if self.map.epoch < epoch {
            return self.want_map();
        }
        match self.target(&op.request) {
            Ok(_) => self.aim(now, tid),
            Err(errno) => {
                self.ops.remove(&tid);
                self.effects.push(Effect::Done { tid, outcome: Err(errno) });
            }
        }
    }

    fn send(&mut self, now: Stamp, tid: u64, osd: OsdId) {
        let Some(session) = self.sessions.get(&osd) else {
            return self.open(osd);
        };
        if session.state != State::Open {
            return;
        }
        let epoch = self.map.epoch;
        let Some(op) = self.ops.get_mut(&tid) else { return };
        let Some(target) = &op.target else { return };
        if session.holds(target.pg, &op.request.target(target.pg)) {
            return;
        }
        let message = Box::new(op.request.message(target.pg, epoch, op.attempts));
        op.attempts += 1;
        op.sent_to = Some(osd);
        op.since = now;
        self.effects.push(Effect::Send { osd, tid, message });
    }

    fn open(&mut self, osd: OsdId) {
        let Some(addrs) = self.map.client_addr(osd).filter(|_| self.map.is_up(osd)) else { return };
        let addrs = addrs.clone();
        self.sessions
            .insert(osd, Session { addrs: addrs.clone(), state: State::Dialling, backoffs: BTreeMap::new() });
        self.effects.push(Effect::Open { osd, addrs });
    }

    /// The connection that [`Effect::Open`] asked for is there.
    pub fn opened(&mut self, now: Stamp, osd: OsdId) {
        let Some(session) = self.sessions.get_mut(&osd) else { return };
        session.state = State::Open;
        let for_it = |op: &Op| op.target.as_ref().is_some_and(|target| target.set.acting_primary == osd);
        let waiting: Vec<u64> = self
            .ops
            .iter()
            .filter(|(_, op)| op.sent_to.is_none() && for_it(op))
            .map(|(tid, _)| *tid)
            .collect();
        waiting.into_iter().for_each(|tid| self.send(now, tid, osd));
    }

    /// The connection could not be made, or is gone. Dialled anew after a pause if something is to go there.
    pub fn lost(&mut self, now: Stamp, osd: OsdId) {
        let Some(session) = self.sessions.get_mut(&osd) else { return };
        session.state = State::Pausing(now + REDIAL_DELAY);
        session.backoffs.clear();
        self.forget_sent(osd);
        self.want_map();
    }

    fn redial(&mut self, now: Stamp) {
        let due = |session: &Session| matches!(session.state, State::Pausing(until) if until <= now);
        let due: Vec<OsdId> =
            self.sessions.iter().filter(|(_, session)| due(session)).map(|(osd, _)| *osd).collect();
        for osd in due {
            self.sessions.remove(&osd);
        }
        for tid in self.ops.keys().copied().collect::<Vec<_>>() {
            if self.ops.get(&tid).is_some_and(|op| op.sent_to.is_none()) {
                self.aim(now, tid);
            }
        }
    }

    /// An answer came from `osd`. One to an earlier attempt, or of an OSD that no longer serves the object, is
    /// ignored: a later one is on its way.
    pub fn reply(&mut self, now: Stamp, osd: OsdId, tid: u64, reply: OsdOpReply) {
        let Some(op) = self.ops.get_mut(&tid) else { return };
        if op.sent_to != Some(osd) || (reply.retry_attempt >= 0 && reply.retry_attempt != op.attempts - 1) {
            return;
        }
        if reply.result == Errno::EAGAIN.negated() {
            op.target = None;
            return self.aim(now, tid);
        }
        self.ops.remove(&tid);
        self.effects.push(Effect::Done { tid, outcome: Ok(Box::new(reply)) });
    }

    /// `osd` wants operations held, or sent again.
    pub fn backoff(&mut self, now: Stamp, osd: OsdId, backoff: OsdBackoff) {
        let Some(session) = self.sessions.get_mut(&osd) else { return };
        match backoff.op {
            backoff_op::BLOCK => {
                if session.backoffs.len() < BACKOFFS_MAX {
                    session.backoffs.insert(backoff.id, backoff.clone());
                }
                let message = Box::new(OsdBackoff { op: backoff_op::ACK_BLOCK, ..backoff });
                self.effects.push(Effect::Acknowledge { osd, message });
            }
            backoff_op::UNBLOCK => {
                session.backoffs.remove(&backoff.id);
                let goes_on = |op: &Op| {
                    let target = op.target.as_ref().filter(|target| target.set.acting_primary == osd);
                    target
                        .is_some_and(|target| is_covered(&backoff, target.pg, &op.request.target(target.pg)))
                };
                let again: Vec<u64> =
                    self.ops.iter().filter(|(_, op)| goes_on(op)).map(|(tid, _)| *tid).collect();
                again.into_iter().for_each(|tid| self.send(now, tid, osd));
            }
            _ => (),
        }
    }

    /// Dials again what was lost, and looks for operations that wait too long.
    pub fn tick(&mut self, now: Stamp) {
        let paused = |session: &Session| matches!(session.state, State::Pausing(until) if until <= now);
        if self.sessions.values().any(paused) {
            self.redial(now);
        }
        if now < self.tick_at {
            return;
        }
        self.tick_at = now + TICK_INTERVAL;
        let mut laggy = false;
        for op in self.ops.values_mut().filter(|op| now >= op.since + LAGGY) {
            op.since = now;
            laggy = true;
        }
        if laggy {
            self.want_map();
        }
    }
}

/// Each operation with its PG, where the map has it, the OSD that it was sent to, and how often.
impl std::fmt::Debug for Objecter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Objecter(epoch {}, {:?}", self.map.epoch, self.sessions)?;
        for (tid, op) in &self.ops {
            let target = op.target.as_ref().map(|target| (target.pg, target.set.acting_primary));
            write!(f, ", {tid}: {target:?} {:?} {}", op.sent_to, op.attempts)?;
        }
        f.write_str(")")
    }
}
