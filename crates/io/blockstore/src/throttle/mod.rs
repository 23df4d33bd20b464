//! [`CheckpointShares`]: how a checkpoint's time divides into its parts, by those before it. Writers are slowed down by how much of
//! the time is over, not of one part: with few large objects nearly all of it goes to blocks being written home, with a
//! million small ones a fifth goes to objects that become clean ones, in memory that no cache of the processor has, and more to the
//! metadata's commit where its device is slow.

pub(crate) mod fill;

use fill::WHOLE;
use nacre_env::Clock;
use nacre_types::Stamp;

/// Of [`WHOLE`], the end of what comes before the commit but for the homes: they begin a little above the end of the part
/// before, so that a writer that keeps to the line need not wait for the whole of a part whose progress cannot be told.
const SETTLED: u64 = WHOLE * 2 / 100;
/// No part is taken for shorter.
const SHARE_MIN: u64 = WHOLE * 3 / 100;

/// Where the parts of a checkpoint end, of [`WHOLE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// Blocks are written home.
    pub(crate) written: u64,
    /// They are durable.
    pub(crate) settled: u64,
    /// The batch for the KV store is made.
    pub(crate) encoded: u64,
    /// The KV store has it.
    pub(crate) committed: u64,
    /// Objects point home.
    pub(crate) adopted: u64,
}

/// When the parts of one checkpoint began; `None` without a clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Begins {
    pub(crate) homes: Option<Stamp>,
    pub(crate) batch: Option<Stamp>,
    pub(crate) commit: Option<Stamp>,
    pub(crate) adopt: Option<Stamp>,
    pub(crate) release: Option<Stamp>,
}

/// See the module's documentation.
pub(crate) struct CheckpointShares {
    clock: Option<Box<dyn Clock>>,
    ends: Ends,
}

impl Default for CheckpointShares {
    /// By the time that the parts take with a log full of small writes to few objects.
    fn default() -> Self {
        Self {
            clock: None,
            ends: Ends { written: 720, settled: 740, encoded: 810, committed: 950, adopted: 975 },
        }
    }
}

impl CheckpointShares {
    pub(crate) fn set_clock(&mut self, clock: Box<dyn Clock>) {
        self.clock = Some(clock);
    }

    pub(crate) fn now(&self) -> Option<Stamp> {
        self.clock.as_ref().map(|clock| clock.now())
    }

    pub(crate) const fn ends(&self) -> Ends {
        self.ends
    }

    /// Takes in a checkpoint that ends now.
    pub(crate) fn ended(&mut self, begins: Begins) {
        let Begins { homes, batch, commit, adopt, release } = begins;
        let [Some(homes), Some(batch), Some(commit), Some(adopt), Some(release), Some(end)] =
            [homes, batch, commit, adopt, release, self.now()]
        else {
            return;
        };
        let parts = [(homes, batch), (batch, commit), (commit, adopt), (adopt, release), (release, end)];
        self.ends = self.ends.halfway_to(Ends::of(parts.map(|(begin, end)| end.nanos_since(begin))));
    }
}

impl Ends {
    /// Of a checkpoint whose homes, batch, commit, adoption and what is behind it took so long.
    fn of(parts: [u64; 5]) -> Self {
        let all = parts.iter().fold(0, |all: u64, part| all.saturating_add(*part)).max(1);
        let shares = parts.map(|part| (part.saturating_mul(WHOLE) / all).max(SHARE_MIN));
        let (all, mut sum) = (shares.iter().sum::<u64>(), 0);
        let [settled, encoded, committed, adopted, _] = shares.map(|share| {
            sum += share;
            sum * WHOLE / all
        });
        Self { written: settled.saturating_sub(SETTLED), settled, encoded, committed, adopted }
    }

    /// One checkpoint may be unlike the next: half of what is known is of it.
    const fn halfway_to(self, other: Self) -> Self {
        Self {
            written: self.written.midpoint(other.written),
            settled: self.settled.midpoint(other.settled),
            encoded: self.encoded.midpoint(other.encoded),
            committed: self.committed.midpoint(other.committed),
            adopted: self.adopted.midpoint(other.adopted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_by_their_time() {
        let ends = Ends::of([500, 100, 200, 150, 50]);
        assert_eq!(ends, Ends { written: 480, settled: 500, encoded: 600, committed: 800, adopted: 950 });
        for parts in [[1 << 40, 0, 0, 0, 0], [0; 5], [0, 0, 0, 0, 1 << 40], [u64::MAX; 5]] {
            let Ends { written, settled, encoded, committed, adopted } = Ends::of(parts);
            let in_order = [written, settled, encoded, committed, adopted, WHOLE];
            assert!(in_order.is_sorted_by(|a, b| a < b), "{parts:?}: {in_order:?}");
        }
        assert!(Ends::of([1 << 40, 0, 0, 0, 0]).settled > 850);
    }

    #[test]
    fn the_last_checkpoint_counts_half() {
        let old = Ends { written: 700, settled: 720, encoded: 800, committed: 900, adopted: 950 };
        let new = Ends { written: 100, settled: 120, encoded: 300, committed: 500, adopted: 650 };
        let half = Ends { written: 400, settled: 420, encoded: 550, committed: 700, adopted: 800 };
        assert_eq!(old.halfway_to(new), half);
    }
}
