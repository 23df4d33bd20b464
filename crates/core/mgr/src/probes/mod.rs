//! [`Probes`]: what small writes and reads of a real client tell of each pool: whether they are answered, and whether as fast as before.
//!
//! A pool is slow when half of its PGs, or one in twenty, take `RATIO` times as long as they did in the rounds before, and longer by
//! `MARGIN_US`, in two rounds one after the other. What it took while it was slow is not what later rounds are compared with. It fails when
//! a PG gives no answer in time, or a wrong one.

mod hosts;

pub use hosts::{HOSTS_MAX, HostLatency, HostProbe, LATENCY_BOUNDS_US};

use nacre_crush::Rule;
use nacre_types::{Errno, OsdId, PgId, PoolId, Stamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Rounds that a pool is compared with, and how many there must be.
const PAST_MAX: usize = 60;
const PAST_MIN: usize = 5;
/// So many times its past, and so many microseconds more, is slow.
const RATIO: u64 = 4;
const MARGIN_US: u64 = 5_000;
/// Rounds one after the other that must be slow.
const SLOW_ROUNDS: u32 = 2;
/// PGs of a pool that are named.
const FAULTS_MAX: usize = 32;

/// What a probe does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeWork {
    /// 64 bytes for an object that is removed by the same message: answered when all members have it durably.
    Write,
    /// A read of that object, which is not there.
    Read,
}

impl ProbeWork {
    /// Both, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Write, Self::Read];

    /// As in sentences and labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// A probe that was not answered as it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeFault {
    /// The PG that was asked.
    pub pg: PgId,
    /// OSD that was asked, if there is one to ask.
    pub primary: Option<OsdId>,
    /// What was asked.
    pub work: ProbeWork,
    /// The answer; `None` when there was none in time.
    pub errno: Option<Errno>,
}

/// What one round has found out about a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolProbe {
    /// Microseconds of each probe that was answered well, by [`ProbeWork`].
    pub answered_us: [Vec<u64>; 2],
    /// Those that were not.
    pub faults: Vec<ProbeFault>,
    /// PGs that were not asked any more, since too many before them had not answered.
    pub unasked: usize,
}

/// Half of the probes took no longer, and 19 of 20; in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Level {
    /// Half of them took no longer, in microseconds.
    pub half_us: u64,
    /// The 95th percentile.
    pub most_us: u64,
}

impl Level {
    fn of(values: &[u64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let at = |share: usize| sorted.get((sorted.len() * share).div_ceil(100).saturating_sub(1)).copied();
        Some(Self { half_us: at(50)?, most_us: at(95)? })
    }

    fn parts(self) -> [u64; 2] {
        [self.half_us, self.most_us]
    }

    fn is_slow_beside(self, past: Self) -> bool {
        let is_slow = |(now, past): (u64, u64)| now >= past * RATIO && now >= past + MARGIN_US;
        self.parts().into_iter().zip(past.parts()).any(is_slow)
    }
}

/// What was found slow: what it takes now, and took before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slowness {
    /// Writes or reads.
    pub work: ProbeWork,
    /// In the last round.
    pub now: Level,
    /// In the rounds before, which it is compared with.
    pub past: Level,
}

/// Where a pool's copies are, and how many a write waits for: with another one other latencies are usual.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolLayout {
    /// The CRUSH rule.
    pub rule: Option<Rule>,
    /// Copies, or chunks.
    pub size: u8,
}

/// What is known of a pool.
#[derive(Debug, Default)]
pub struct PoolHealth {
    /// The last round.
    pub last: PoolProbe,
    /// Of the last round in which all were answered, by [`ProbeWork`].
    pub levels: [Option<Level>; 2],
    /// Rounds so far.
    pub rounds: u64,
    /// It has failed since then.
    pub failed_since: Option<Stamp>,
    /// It is slow since then.
    pub slow: Option<(Stamp, Slowness)>,
    slow_rounds: u32,
    past: [VecDeque<Level>; 2],
    layout: Option<PoolLayout>,
}

impl PoolHealth {
    /// What it usually takes; `None` while there is too little to compare with.
    #[must_use]
    pub fn past(&self, work: ProbeWork) -> Option<Level> {
        let past = &self.past[work as usize];
        let middle = |part: fn(&Level) -> u64| {
            let mut values: Vec<u64> = past.iter().map(part).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied()
        };
        let usual =
            Level { half_us: middle(|level| level.half_us)?, most_us: middle(|level| level.most_us)? };
        (past.len() >= PAST_MIN).then_some(usual)
    }

    fn take_in(&mut self, mut probe: PoolProbe, now: Stamp) {
        self.rounds += 1;
        probe.faults.truncate(FAULTS_MAX);
        let has_failed = !probe.faults.is_empty();
        self.failed_since = if has_failed { self.failed_since.or(Some(now)) } else { None };
        let levels = probe.answered_us.each_ref().map(|values| Level::of(values));
        self.last = probe;
        if has_failed {
            // Of a pool that does not answer nobody says that it is slow.
            (self.slow, self.slow_rounds) = (None, 0);
            return;
        }
        self.levels = levels;
        let slowness = ProbeWork::ALL.into_iter().find_map(|work| {
            let (now, past) = (levels[work as usize]?, self.past(work)?);
            now.is_slow_beside(past).then_some(Slowness { work, now, past })
        });
        match slowness {
            Some(slowness) => {
                self.slow_rounds += 1;
                if self.slow_rounds >= SLOW_ROUNDS {
                    self.slow = Some((self.slow.map_or(now, |(since, _)| since), slowness));
                }
            }
            None => {
                (self.slow, self.slow_rounds) = (None, 0);
                for (past, level) in self.past.iter_mut().zip(levels) {
                    past.extend(level);
                    if past.len() > PAST_MAX {
                        past.pop_front();
                    }
                }
            }
        }
    }
}

/// What clients' probes have found out since this manager began.
#[derive(Debug, Default)]
pub struct Probes {
    pools: BTreeMap<PoolId, PoolHealth>,
    /// Latency as hosts of clients see it.
    pub hosts: HostLatency,
}

impl Probes {
    /// A round has ended. A pool without answers and faults, such as one that is full, is neither failed nor slow.
    pub fn round(&mut self, found: BTreeMap<PoolId, PoolProbe>, now: Stamp) {
        for (pool, probe) in found {
            self.pools.entry(pool).or_default().take_in(probe, now);
        }
    }

    /// Nobody could probe: it is not known any more how the pools are, but what is usual for them.
    pub fn round_failed(&mut self) {
        for health in self.pools.values_mut() {
            let (past, layout) = (std::mem::take(&mut health.past), health.layout.take());
            *health = PoolHealth { rounds: health.rounds, past, layout, ..PoolHealth::default() };
        }
    }

    /// The pool's layout is this now. Where it was another, what the pool took before says nothing of what it should take.
    pub fn follow_layout(&mut self, pool: PoolId, layout: PoolLayout) {
        let Some(health) = self.pools.get_mut(&pool) else { return };
        if health.layout.as_ref().is_some_and(|before| *before != layout) {
            (health.slow, health.slow_rounds, health.past) = (None, 0, Default::default());
        }
        health.layout = Some(layout);
    }

    /// Time passed: hosts that do not report any more are forgotten.
    pub fn tick(&mut self, now: Stamp) {
        self.hosts.forget_silent(now);
    }

    /// Forgets pools that are gone.
    pub fn retain(&mut self, is_there: impl Fn(PoolId) -> bool) {
        self.pools.retain(|pool, _| is_there(*pool));
        self.hosts.retain(is_there);
    }

    /// Nobody probes any more: nothing is known.
    pub fn clear(&mut self) {
        self.pools.clear();
    }

    /// Each pool that was probed.
    pub fn pools(&self) -> impl Iterator<Item = (PoolId, &PoolHealth)> {
        self.pools.iter().map(|(pool, health)| (*pool, health))
    }

    /// Pools that have failed in their last round.
    #[must_use]
    pub fn failing(&self) -> BTreeSet<PoolId> {
        self.pools().filter(|(_, health)| health.failed_since.is_some()).map(|(pool, _)| pool).collect()
    }
}

#[cfg(test)]
mod tests;
