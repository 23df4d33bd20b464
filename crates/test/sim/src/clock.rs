//! Clocks of simulated processes: time passes when the world says so.

use nacre_env::Clock;
use nacre_types::{Stamp, UTime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The calendar at the beginning of every world.
const BEGINNING_S: u64 = 1_800_000_000;

/// The world's time. Copies are the same; each process sees the calendar a little off, and its own time go a little faster or
/// slower.
#[derive(Debug, Clone)]
pub struct SimClock {
    ns: Arc<AtomicU64>,
    /// Nanoseconds by which the calendar is ahead; of a process, its own.
    skew_ns: Arc<AtomicU64>,
    /// By how many millionths it is fast; negative when it is slow.
    drift_ppm: i64,
    stall: Arc<Stall>,
}

/// What a process reads that stopped just behind its clock.
#[derive(Debug, Default)]
struct Stall {
    reads: AtomicU64,
    at_ns: AtomicU64,
}

impl SimClock {
    /// A clock at the beginning of time.
    #[must_use]
    pub fn new() -> Self {
        Self { ns: Arc::new(AtomicU64::new(1)), skew_ns: Arc::default(), drift_ppm: 0, stall: Arc::default() }
    }

    /// The same clock for a process whose calendar is ahead by `skew`, and that is fast by so many millionths.
    #[must_use]
    pub fn skewed(&self, skew: Duration, drift_ppm: i64) -> Self {
        let clock =
            Self { ns: Arc::clone(&self.ns), skew_ns: Arc::default(), drift_ppm, stall: Arc::default() };
        clock.set_skew(skew);
        clock
    }

    /// From now on the calendar of this process is ahead by so much: somebody sets it, forward or back.
    pub fn set_skew(&self, skew: Duration) {
        self.skew_ns.store(u64::try_from(skew.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What this clock shows at a moment of the world.
    #[must_use]
    pub fn shown_at(&self, world: Stamp) -> Stamp {
        Stamp(stretch(world.0, self.drift_ppm))
    }

    /// The first moment of the world at which this clock shows `shown`, or a little later.
    #[must_use]
    pub fn moment_of(&self, shown: Stamp) -> Stamp {
        match i128::from(shown.0) * MILLION / (MILLION + i128::from(self.drift_ppm)) {
            at if self.drift_ppm == 0 => Stamp(u64::try_from(at).unwrap_or(u64::MAX)),
            at => Stamp(u64::try_from(at + 2).unwrap_or(u64::MAX)),
        }
    }

    /// The next so many reads yield `at`, as for a process that was stopped behind them.
    pub fn stall(&self, reads: u64, at: Stamp) {
        self.stall.at_ns.store(at.0, Ordering::Relaxed);
        self.stall.reads.store(reads, Ordering::Relaxed);
    }

    /// Moves time on.
    ///
    /// # Panics
    /// When it would go back.
    pub fn set(&self, now: Stamp) {
        let before = self.ns.swap(now.0, Ordering::Relaxed);
        assert!(before <= now.0, "time goes back from {before} to {}", now.0);
    }
}

const MILLION: i128 = 1_000_000;

fn stretch(ns: u64, drift_ppm: i64) -> u64 {
    let own = i128::from(ns) * (MILLION + i128::from(drift_ppm)) / MILLION;
    u64::try_from(own).unwrap_or(u64::MAX)
}

impl Default for SimClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SimClock {
    fn now(&self) -> Stamp {
        let stall = &self.stall;
        let take = |reads: u64| reads.checked_sub(1);
        match stall.reads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Stamp(stall.at_ns.load(Ordering::Relaxed)),
            Err(_) => self.shown_at(Stamp(self.ns.load(Ordering::Relaxed))),
        }
    }

    fn wall(&self) -> UTime {
        let passed = Duration::from_nanos(stretch(self.ns.load(Ordering::Relaxed), self.drift_ppm));
        let skew = Duration::from_nanos(self.skew_ns.load(Ordering::Relaxed));
        UTime::from_unix(Duration::from_secs(BEGINNING_S) + passed + skew)
    }
}
