//! [`Probe`]: small writes and reads of one client, one after the other, of many PGs: whether a cluster serves, as its users see it.
//!
//! A probe of a PG is two messages on an object that falls there, in a namespace that is kept for it: one that writes 64 bytes and removes the
//! object again, which is answered when all members have it durably, and a read, which finds nothing. So nothing stays, no statistics change,
//! and a pool can be removed at any time. The first message to an OSD is not measured: it includes the connection.

use crate::client::{Client, Failure, Finished};
use nacre_buf::{BufList, ByteStr};
use nacre_env::Clock;
use nacre_maps::{OSD_NONE, OsdMap, flags};
use nacre_mgr::probes::{PoolProbe, ProbeFault, ProbeWork};
use nacre_msg::SubOp;
use nacre_msg::osd_op::code;
use nacre_objecter::Request;
use nacre_types::{Errno, ObjectLocator, OsdId, PgId, PoolId, Stamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// While a probe has no answer for so long, the next one begins beside it.
const PACE: Duration = Duration::from_millis(250);
/// So many PGs of a pool may be silent before its others are left alone.
const SILENT_MAX: usize = 4;
/// PGs of a pool in one round; those of a larger one take turns.
const POOL_PGS_MAX: u32 = 128;
/// PGs of all pools in one round.
const ROUND_PGS_MAX: u32 = 4096;
/// Names that are tried for each PG of a pool before some PGs are given up.
const NAMES_PER_PG_MAX: u32 = 32;
const DATA: [u8; 64] = [0x5a; 64];

/// A PG, and an object that falls there.
#[derive(Debug, Clone)]
struct Target {
    pg: PgId,
    name: String,
    primary: Option<OsdId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// So that the OSD is connected; not measured.
    Connect,
    Measure(ProbeWork),
}

impl Step {
    fn work(self) -> ProbeWork {
        match self {
            Self::Connect => ProbeWork::Read,
            Self::Measure(work) => work,
        }
    }
}

struct Waiting {
    target: Target,
    step: Step,
    since: Stamp,
}

/// One round of probes by a client, which is not used for anything else meanwhile.
pub struct Probe<'a> {
    client: &'a mut Client,
    clock: &'a dyn Clock,
    namespace: &'a str,
    /// What is not answered by then has failed.
    patience: Duration,
    stop: &'a AtomicBool,
    waiting: BTreeMap<u64, Waiting>,
    connected: BTreeSet<OsdId>,
    found: BTreeMap<PoolId, PoolProbe>,
}

impl std::fmt::Debug for Probe<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Probe({} waiting, {} pools)", self.waiting.len(), self.found.len())
    }
}

/// Why nothing could be probed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The client cannot go on.
    #[error(transparent)]
    Client(#[from] Failure),
    /// There is nobody who has a map.
    #[error("no monitor has given a map within {0:?}")]
    NoMap(Duration),
    /// The program ends.
    #[error("told to stop")]
    Stopped,
}

impl<'a> Probe<'a> {
    /// Probes with a client that has begun, in this namespace.
    #[must_use]
    pub fn new(
        client: &'a mut Client,
        clock: &'a dyn Clock,
        namespace: &'a str,
        patience: Duration,
        stop: &'a AtomicBool,
    ) -> Self {
        Self {
            client,
            clock,
            namespace,
            patience,
            stop,
            waiting: BTreeMap::new(),
            connected: BTreeSet::new(),
            found: BTreeMap::new(),
        }
    }

    fn turn(&mut self, wait: Duration) -> Result<(), ProbeError> {
        if self.stop.load(Ordering::Acquire) {
            return Err(ProbeError::Stopped);
        }
        Ok(self.client.turn(wait)?)
    }

    /// Waits for the cluster's map.
    ///
    /// # Errors
    /// [`ProbeError`].
    pub fn connect(&mut self) -> Result<(), ProbeError> {
        let until = self.clock.now() + self.patience;
        while self.client.objecter().map().epoch == 0 {
            if self.clock.now() > until {
                return Err(ProbeError::NoMap(self.patience));
            }
            self.turn(PACE)?;
        }
        Ok(())
    }

    /// One round over these pools, or all; of a pool with very many PGs, the `round`th part. Of pools that take no writes at the moment,
    /// and of those that stop to meanwhile, nothing is found out: neither answers nor faults.
    ///
    /// # Errors
    /// [`ProbeError`].
    pub fn round(
        mut self,
        only: Option<&BTreeSet<PoolId>>,
        round: u64,
    ) -> Result<BTreeMap<PoolId, PoolProbe>, ProbeError> {
        self.connect()?;
        let map = std::sync::Arc::clone(self.client.objecter().map());
        let wanted = map.pools.keys().copied().filter(|id| only.is_none_or(|only| only.contains(id)));
        self.found = wanted.map(|pool| (pool, PoolProbe::default())).collect();
        let pools: Vec<PoolId> = self.found.keys().copied().filter(|id| takes_writes(&map, *id)).collect();
        let share = ROUND_PGS_MAX / u32::try_from(pools.len()).unwrap_or(u32::MAX).max(1);
        let mut queue: VecDeque<Target> = VecDeque::new();
        for pool in pools {
            queue.extend(targets(&map, pool, self.namespace, (share.clamp(1, POOL_PGS_MAX), round)));
        }
        while !queue.is_empty() || !self.waiting.is_empty() {
            let now = self.clock.now();
            let is_busy = self.waiting.values().any(|waiting| now.since(waiting.since) < PACE);
            if !is_busy && let Some(target) = queue.pop_front() {
                self.begin(target);
                continue;
            }
            self.turn(PACE)?;
            self.take_answers();
            self.give_up();
        }
        Ok(self.found)
    }

    fn begin(&mut self, target: Target) {
        let silent = self.waiting.values().filter(|waiting| waiting.target.pg.pool == target.pg.pool).count();
        let Some(found) = self.found.get_mut(&target.pg.pool) else { return };
        if silent + found.faults.len() >= SILENT_MAX {
            found.unasked += 1;
            return;
        }
        let is_connected = target.primary.is_none_or(|osd| self.connected.contains(&osd));
        let step = if is_connected { Step::Measure(ProbeWork::Write) } else { Step::Connect };
        self.send(target, step);
    }

    fn send(&mut self, target: Target, step: Step) {
        let ops = match step.work() {
            ProbeWork::Write => probe_write(DATA.to_vec()),
            ProbeWork::Read => vec![SubOp::read(0, DATA.len() as u64)],
        };
        let request = Request {
            mtime: self.client.wall(),
            ..Request::new(probe_locator(target.pg.pool, self.namespace), target.name.as_bytes(), ops)
        };
        let since = self.clock.now();
        // A round has far fewer under way than a client may have.
        if let Ok(tid) = self.client.submit(request) {
            self.client.flush();
            self.waiting.insert(tid, Waiting { target, step, since });
        }
    }

    fn take_answers(&mut self) {
        let now = self.clock.now();
        for finished in self.client.take_finished() {
            let Finished::Op { tid, outcome } = finished else { continue };
            let Some(waiting) = self.waiting.remove(&tid) else { continue };
            let result = match outcome {
                Ok(reply) => reply.result,
                Err(errno) => errno.negated(),
            };
            self.answered(waiting, result, now);
        }
    }

    fn answered(&mut self, waiting: Waiting, result: i32, now: Stamp) {
        let Waiting { target, step, since } = waiting;
        let pool = target.pg.pool;
        if !self.client.objecter().map().pools.contains_key(&pool) {
            self.found.remove(&pool);
            return;
        }
        let is_absent = result == Errno::ENOENT.negated();
        let is_well = result >= 0 || (step.work() == ProbeWork::Read && is_absent);
        if !is_well {
            return self.fail(&target, step, Some(Errno(result.saturating_neg())));
        }
        self.connected.extend(target.primary);
        match step {
            Step::Connect => self.send(target, Step::Measure(ProbeWork::Write)),
            Step::Measure(work) => {
                let us = u64::try_from(now.since(since).as_micros()).unwrap_or(u64::MAX);
                if let Some(found) = self.found.get_mut(&pool)
                    && let Some(answered) = found.answered_us.get_mut(work as usize)
                {
                    answered.push(us);
                }
                if work == ProbeWork::Write {
                    self.send(target, Step::Measure(ProbeWork::Read));
                }
            }
        }
    }

    /// What has waited for too long has failed.
    fn give_up(&mut self) {
        let now = self.clock.now();
        let is_late = |waiting: &Waiting| now.since(waiting.since) >= self.patience;
        let late: Vec<u64> =
            self.waiting.iter().filter(|(_, waiting)| is_late(waiting)).map(|(tid, _)| *tid).collect();
        for tid in late {
            if let Some(waiting) = self.waiting.remove(&tid) {
                self.fail(&waiting.target, waiting.step, None);
            }
        }
    }

    fn fail(&mut self, target: &Target, step: Step, errno: Option<Errno>) {
        let map = self.client.objecter().map();
        if !takes_writes(map, target.pg.pool) {
            return;
        }
        // Whose turn it is by now.
        let primary = primary(map, target.pg);
        if let Some(found) = self.found.get_mut(&target.pg.pool) {
            found.faults.push(ProbeFault { pg: target.pg, primary, work: step.work(), errno });
        }
    }
}

/// Where an object of the probes of a pool is.
#[must_use]
pub fn probe_locator(pool: PoolId, namespace: &str) -> ObjectLocator {
    ObjectLocator { namespace: ByteStr::from(namespace.as_bytes()), ..ObjectLocator::in_pool(pool) }
}

/// What one message of a probe does: it writes an object and removes it, and is answered when all members of the PG have both durably.
#[must_use]
pub fn probe_write(data: Vec<u8>) -> Vec<SubOp> {
    vec![SubOp::write_full(BufList::from(data)), SubOp::new(code::DELETE)]
}

fn primary(map: &OsdMap, pg: PgId) -> Option<OsdId> {
    Some(map.pg_to_up_acting(pg).acting_primary).filter(|osd| *osd != OSD_NONE)
}

/// A pool, or cluster, that is full or paused answers no writes, and says so by itself.
fn takes_writes(map: &OsdMap, pool: PoolId) -> bool {
    let paused = flags::osdmap::FULL | flags::osdmap::PAUSE_WRITE | flags::osdmap::PAUSE_READ;
    let full = flags::pool::FULL | flags::pool::FULL_QUOTA;
    map.flags & paused == 0 && map.pool(pool).is_some_and(|pool| pool.flags & full == 0)
}

/// An object in each of a pool's PGs, or in the `round`th part of `count_max` of them.
fn targets(
    map: &OsdMap,
    pool: PoolId,
    namespace: &str,
    (count_max, round): (u32, u64),
) -> impl Iterator<Item = Target> {
    let pg_num = map.pool(pool).map_or(0, |pool| pool.pg_num);
    let parts = u64::from(pg_num.div_ceil(count_max.max(1)).max(1));
    let part = u32::try_from(round % parts).unwrap_or(0);
    let wanted = part * count_max..pg_num.min((part + 1) * count_max);
    let at = probe_locator(pool, namespace);
    let mut names: BTreeMap<PgId, String> = BTreeMap::new();
    for number in 0..pg_num.saturating_mul(NAMES_PER_PG_MAX) {
        let name = format!("probe.{number}");
        let pg = map.object_to_pg(name.as_bytes(), &at);
        if let Some(pg) = pg.filter(|pg| wanted.contains(&pg.seed)) {
            names.entry(pg).or_insert(name);
            if names.len() == wanted.len() {
                break;
            }
        }
    }
    let with_primary = |(pg, name)| Target { pg, name, primary: primary(map, pg) };
    names.into_iter().map(with_primary).collect::<Vec<_>>().into_iter()
}
