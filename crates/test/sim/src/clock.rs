//! Time that passes when the world says so.

use nacre_env::Clock;
use nacre_types::{Stamp, UTime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The calendar at the beginning of every world.
const BEGINNING_S: u64 = 1_800_000_000;

/// The world's time. Copies are the same; each process sees the calendar a little off.
#[derive(Debug, Clone)]
pub struct SimClock {
    ns: Arc<AtomicU64>,
    skew: Duration,
}

impl SimClock {
    /// A clock at the beginning of time.
    #[must_use]
    pub fn new() -> Self {
        Self { ns: Arc::new(AtomicU64::new(1)), skew: Duration::ZERO }
    }

    /// The same clock for a process whose calendar is ahead by `skew`.
    #[must_use]
    pub fn skewed(&self, skew: Duration) -> Self {
        Self { ns: Arc::clone(&self.ns), skew }
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

impl Default for SimClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SimClock {
    fn now(&self) -> Stamp {
        Stamp(self.ns.load(Ordering::Relaxed))
    }

    fn wall(&self) -> UTime {
        let passed = Duration::from_nanos(self.ns.load(Ordering::Relaxed));
        UTime::from_unix(Duration::from_secs(BEGINNING_S) + passed + self.skew)
    }
}
