//! [`Calm`]: how long clients' writes take while no recovery goes on: the measure for those beside it.

use nacre_types::Stamp;
use std::collections::VecDeque;
use std::time::Duration;

/// Fewer writes tell nothing.
const WRITES_LEAST: u64 = 100;
/// A block is so long, and longer until it has so many writes.
const BLOCK: Duration = Duration::from_millis(2500);
const BLOCK_WRITES_LEAST: u64 = 20;
/// Blocks that are kept: half a minute.
const BLOCKS_MAX: usize = 12;
/// Older ones go earlier, too, when there are writes enough without them.
const OLD: Duration = Duration::from_secs(30);
/// The newest tell nothing: what recovery follows, such as the loss of an OSD, is felt before it begins.
const BLOCKS_PENDING: usize = 2;

/// What clients' writes took while recovery rested, of late.
#[derive(Debug, Default)]
pub(super) struct Calm {
    /// The times that are kept, oldest first, at most `BLOCKS_MAX`.
    blocks: VecDeque<Block>,
    /// What [`Calm::p99`] said since the last write: while recovery moves, every write asks, and none is added.
    p99: Option<Duration>,
}

/// Writes of a time, by how long they took: four steps from a power of two of microseconds to the next.
#[derive(Debug)]
struct Block {
    began: Stamp,
    counts: [u32; Calm::STEPS],
    writes: u64,
}

impl Block {
    fn add(&mut self, step: usize) {
        self.counts.iter_mut().skip(step).take(1).for_each(|count| *count += 1);
        self.writes += 1;
    }
}

impl Calm {
    /// Up to half a minute; what takes longer counts as that.
    const STEPS: usize = 100;

    pub(super) fn add(&mut self, now: Stamp, spent: Duration) {
        let micros = u64::try_from(spent.as_micros()).unwrap_or(u64::MAX).max(4);
        let power = micros.ilog2();
        let step = u64::from(power) * 4 + (micros >> (power - 2)) % 4;
        let step = usize::try_from(step).unwrap_or(usize::MAX).min(Self::STEPS - 1);
        let is_full = |block: &Block| now.since(block.began) >= BLOCK && block.writes >= BLOCK_WRITES_LEAST;
        if self.blocks.back().is_none_or(is_full) {
            self.blocks.push_back(Block { began: now, counts: [0; Self::STEPS], writes: 0 });
            self.forget(now);
        }
        if let Some(block) = self.blocks.back_mut() {
            block.add(step);
        }
        self.p99 = None;
    }

    fn forget(&mut self, now: Stamp) {
        while let Some(oldest) = self.blocks.front() {
            let left = self.settled().map(|block| block.writes).sum::<u64>().saturating_sub(oldest.writes);
            let is_old = now.since(oldest.began) >= OLD && left >= WRITES_LEAST;
            if self.blocks.len() <= BLOCKS_MAX && !is_old {
                break;
            }
            self.blocks.pop_front();
        }
    }

    /// The blocks that tell something, newest first.
    fn settled(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().rev().skip(BLOCKS_PENDING)
    }

    /// What all but one in a hundred writes keep to, up to a fourth more; zero when there were too few to tell.
    pub(super) fn p99(&mut self) -> Duration {
        let p99 = self.p99.unwrap_or_else(|| self.find_p99());
        self.p99 = Some(p99);
        p99
    }

    fn find_p99(&self) -> Duration {
        let writes: u64 = self.settled().map(|block| block.writes).sum();
        if writes < WRITES_LEAST {
            return Duration::ZERO;
        }
        let at = |step: usize| -> u64 {
            self.settled().filter_map(|block| block.counts.get(step)).copied().map(u64::from).sum()
        };
        let mut above = 0;
        let slowest = (0..Self::STEPS).rev().find(|step| {
            above += at(*step);
            above * 100 > writes
        });
        let step = slowest.map_or(0, |step| step as u64 + 1);
        Duration::from_micros(((4 + step % 4) << (step / 4)) / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Stamp = Stamp(1_000_000_000);
    const USUAL: Duration = Duration::from_millis(5);

    /// `count` writes, one every 10 ms, that take `spent`.
    fn add(calm: &mut Calm, now: &mut Stamp, count: u64, spent: Duration) {
        for _ in 0..count {
            *now = *now + Duration::from_millis(10);
            calm.add(*now, spent);
        }
    }

    fn is_about(calm: &mut Calm, spent: Duration) -> bool {
        (spent..=spent / 4 * 5).contains(&calm.p99())
    }

    #[test]
    fn few_calm_writes_tell_nothing_and_old_ones_are_forgotten() {
        let (mut calm, mut now) = (Calm::default(), START);
        add(&mut calm, &mut now, 500, USUAL);
        assert_eq!(calm.p99(), Duration::ZERO, "none that settled");
        add(&mut calm, &mut now, 250, USUAL);
        assert!(is_about(&mut calm, USUAL), "{:?}", calm.p99());
        add(&mut calm, &mut now, 3000, Duration::from_micros(900));
        assert!(is_about(&mut calm, Duration::from_micros(900)), "{:?}", calm.p99());
        assert!(calm.blocks.len() <= BLOCKS_MAX);
        // Where few write, they are known for longer.
        for _ in 0..300 {
            now = now + Duration::from_secs(2);
            calm.add(now, USUAL);
        }
        assert!(is_about(&mut calm, USUAL), "{:?}", calm.p99());
        assert!(calm.blocks.len() <= BLOCKS_MAX);
        for spent in [Duration::ZERO, Duration::from_micros(1), Duration::from_secs(3600)] {
            add(&mut calm, &mut now, 1, spent);
        }
        add(&mut calm, &mut now, 1000, Duration::from_micros(900));
        assert!(calm.p99() < USUAL, "one in a hundred, not one");
    }

    /// Writes to an OSD that is lost wait until it is known to be, and end when recovery is about to begin.
    #[test]
    fn what_comes_right_before_recovery_is_not_usual() {
        let (mut calm, mut now) = (Calm::default(), START);
        add(&mut calm, &mut now, 1000, USUAL);
        for late in [1, 100, 249] {
            add(&mut calm, &mut now, late, USUAL * 20);
            assert!(is_about(&mut calm, USUAL), "{:?}", calm.p99());
            add(&mut calm, &mut now, 3000, USUAL);
        }
    }
}
