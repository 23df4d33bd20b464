//! [`Hunter`]: which monitor is tried next, and when.

use crate::Config;
use nacre_types::{EntityAddr, Entropy};
use std::time::Duration;

/// Dialling may take up to `hunt_interval` times two to this power.
const PATIENCE_DOUBLINGS_MAX: u32 = 3;

/// The part of that in which a monitor must introduce itself: one that lives does so at once, even if it cannot serve yet.
const HELLO_PATIENCE_PART: u32 = 3;

/// What to do after a failure.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Dial(EntityAddr),
    /// All have failed in this round.
    Pause(Duration),
}

/// Goes through the monitors in random order, round after round, with growing pauses between rounds.
#[derive(Debug)]
pub(crate) struct Hunter {
    addrs: Vec<EntityAddr>,
    /// The rest of this round, the next one last.
    round: Vec<EntityAddr>,
    rounds_failed: u32,
}

impl Hunter {
    pub(crate) fn new(addrs: Vec<EntityAddr>) -> Self {
        Self { addrs, round: Vec::new(), rounds_failed: 0 }
    }

    /// The monitors are these now; a round that has begun goes on with the old ones.
    pub(crate) fn set_addrs(&mut self, addrs: Vec<EntityAddr>) {
        if !addrs.is_empty() {
            self.addrs = addrs;
        }
    }

    /// A session is open: the next hunt begins without a pause.
    pub(crate) fn succeeded(&mut self) {
        self.round.clear();
        self.rounds_failed = 0;
    }

    /// Begins a round, with `ended_by` if that is one of them: a monitor that ends a session itself lives, and does so because another one
    /// leads now.
    pub(crate) fn first(&mut self, ended_by: Option<EntityAddr>, entropy: &mut dyn Entropy) -> Next {
        self.round.clone_from(&self.addrs);
        shuffle(&mut self.round, entropy);
        if let Some(at) = self.round.iter().position(|addr| Some(*addr) == ended_by) {
            let addr = self.round.remove(at);
            self.round.push(addr);
        }
        self.round.pop().map_or(Next::Pause(Duration::MAX), Next::Dial)
    }

    /// The monitor last tried has failed.
    pub(crate) fn failed(&mut self, config: &Config) -> Next {
        if let Some(addr) = self.round.pop() {
            return Next::Dial(addr);
        }
        let pause = config.retry_delay_min.saturating_mul(1 << self.rounds_failed.min(16));
        self.rounds_failed += 1;
        Next::Pause(pause.min(config.retry_delay_max))
    }

    /// How long a monitor may take to introduce itself in this round.
    pub(crate) fn hello_patience(&self, config: &Config) -> Duration {
        self.patience(config) / HELLO_PATIENCE_PART
    }

    /// How long authentication may take in this round.
    pub(crate) fn patience(&self, config: &Config) -> Duration {
        config.hunt_interval * (1 << self.rounds_failed.min(PATIENCE_DOUBLINGS_MAX))
    }
}

/// Fisher and Yates; the slight preference of the modulo does not matter among a handful.
fn shuffle(addrs: &mut [EntityAddr], entropy: &mut dyn Entropy) {
    for last in (1..addrs.len()).rev() {
        let other = usize::try_from(entropy.u64() % (last as u64 + 1)).unwrap_or(last);
        addrs.swap(last, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::entropy::SeededEntropy;

    #[test]
    fn every_monitor_is_tried_before_a_pause_that_grows() {
        let addrs: Vec<_> = (1..=3)
            .map(|n| EntityAddr::parse(&format!("v2:192.0.2.{n}:3300")).expect("a valid address"))
            .collect();
        let config = Config::new(addrs.clone());
        let mut hunter = Hunter::new(addrs.clone());
        for pause_ms in [100, 200, 400] {
            let mut tried = Vec::new();
            let mut next = hunter.first(None, &mut SeededEntropy(7));
            while let Next::Dial(addr) = next {
                tried.push(addr);
                next = hunter.failed(&config);
            }
            assert_eq!(next, Next::Pause(Duration::from_millis(pause_ms)));
            tried.sort();
            assert_eq!(tried, addrs);
        }
        assert_eq!(hunter.patience(&config), Duration::from_secs(24));
        hunter.succeeded();
        assert_eq!(hunter.patience(&config), Duration::from_secs(3));
        assert_eq!(hunter.hello_patience(&config), Duration::from_secs(1));
    }

    #[test]
    fn the_monitor_that_ended_the_session_is_tried_first() {
        let addrs: Vec<_> = (1..=5)
            .map(|n| EntityAddr::parse(&format!("v2:192.0.2.{n}:3300")).expect("a valid address"))
            .collect();
        for (addr, seed) in addrs.iter().zip(0..) {
            let mut hunter = Hunter::new(addrs.clone());
            assert_eq!(hunter.first(Some(*addr), &mut SeededEntropy(seed)), Next::Dial(*addr));
            assert_eq!(hunter.round.len(), 4);
        }
    }
}
