//! [`Calm`]: how long clients' writes take while no recovery goes on: the measure for those beside it.

use std::ops::Range;
use std::time::Duration;

/// Writes without recovery that tell what they take then: fewer tell nothing, and of those before the last so many half count
/// at most.
const WRITES: Range<u64> = 100..1000;

/// What clients' writes take while recovery rests: their number by duration, four steps from a power of two of microseconds to
/// the next.
#[derive(Debug)]
pub(super) struct Calm {
    counts: [u64; Self::STEPS],
    writes: u64,
    /// What [`Calm::p99`] said since the last write: while recovery moves, every write asks, and none is added.
    p99: Option<Duration>,
}

impl Default for Calm {
    fn default() -> Self {
        Self { counts: [0; Self::STEPS], writes: 0, p99: None }
    }
}

impl Calm {
    /// Up to half a minute; what takes longer counts as that.
    const STEPS: usize = 100;

    pub(super) fn add(&mut self, spent: Duration) {
        let micros = u64::try_from(spent.as_micros()).unwrap_or(u64::MAX).max(4);
        let power = micros.ilog2();
        let step = u64::from(power) * 4 + (micros >> (power - 2)) % 4;
        let step = usize::try_from(step).unwrap_or(usize::MAX).min(Self::STEPS - 1);
        self.counts.iter_mut().skip(step).take(1).for_each(|count| *count += 1);
        self.writes += 1;
        self.p99 = None;
        if self.writes >= WRITES.end {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.writes = self.counts.iter().sum();
        }
    }

    /// What all but one in a hundred writes keep to, up to a fourth more; zero when there were too few to tell.
    pub(super) fn p99(&mut self) -> Duration {
        let p99 = self.p99.unwrap_or_else(|| self.find_p99());
        self.p99 = Some(p99);
        p99
    }

    fn find_p99(&self) -> Duration {
        if self.writes < WRITES.start {
            return Duration::ZERO;
        }
        let mut above = 0;
        let slowest = self.counts.iter().enumerate().rev().find(|(_, count)| {
            above += **count;
            above * 100 > self.writes
        });
        let step = slowest.map_or(0, |(step, _)| step as u64 + 1);
        Duration::from_micros(((4 + step % 4) << (step / 4)) / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_millis(5);

    #[test]
    fn few_calm_writes_tell_nothing_and_old_ones_are_forgotten() {
        let mut calm = Calm::default();
        (1..WRITES.start).for_each(|_| calm.add(TARGET));
        assert_eq!(calm.p99(), Duration::ZERO);
        calm.add(TARGET);
        assert!((TARGET..=TARGET / 4 * 5).contains(&calm.p99()), "{:?}", calm.p99());
        (0..WRITES.end * 8).for_each(|_| calm.add(TARGET * 4));
        (0..WRITES.end * 8).for_each(|_| calm.add(Duration::from_micros(900)));
        assert!((900..=1125).contains(&calm.p99().as_micros()), "{:?}", calm.p99());
        for spent in [Duration::ZERO, Duration::from_micros(1), Duration::from_secs(3600)] {
            calm.add(spent);
        }
        assert!(calm.p99() < TARGET, "one in a hundred, not one");
    }
}
