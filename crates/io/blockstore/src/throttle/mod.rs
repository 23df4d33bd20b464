//! [`CheckpointShares`]: how a checkpoint's time divides into its parts, by those before it. Writers are slowed down by how much of
//! the time is over, not of one part: with few large objects nearly all of it goes to blocks being written home, with a
//! million small ones most of it goes to the metadata's commit.

pub(crate) mod fill;

use fill::WHOLE;
use nacre_env::Clock;
use nacre_types::Stamp;

/// Of [`WHOLE`], the end of what comes before the commit but for the homes: they begin a little above the end of the part
/// before, so that a writer that keeps to the line need not wait for the whole of a part whose progress cannot be told.
const SETTLED: u64 = WHOLE * 2 / 100;
/// The end of the commit. What follows waits for no device, so it takes no time worth measuring where writers wait for it.
pub(crate) const COMMITTED: u64 = WHOLE * 95 / 100;
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
}

/// When the parts of one checkpoint began; `None` without a clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Begins {
    pub(crate) homes: Option<Stamp>,
    pub(crate) batch: Option<Stamp>,
    pub(crate) commit: Option<Stamp>,
}

/// See the module's documentation.
pub(crate) struct CheckpointShares {
    clock: Option<Box<dyn Clock>>,
    ends: Ends,
}

impl Default for CheckpointShares {
    /// By the time that the parts take with a log full of small writes to few objects.
    fn default() -> Self {
        Self { clock: None, ends: Ends { written: 720, settled: 740, encoded: 810 } }
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

    /// Takes in a checkpoint whose commit ends now.
    pub(crate) fn committed(&mut self, begins: Begins) {
        let (Some(homes), Some(batch), Some(commit)) = (begins.homes, begins.batch, begins.commit) else {
            return;
        };
        let Some(now) = self.now() else { return };
        let parts = [batch.nanos_since(homes), commit.nanos_since(batch), now.nanos_since(commit)];
        self.ends = self.ends.halfway_to(Ends::of(parts));
    }
}

impl Ends {
    /// Of a checkpoint whose homes, batch and commit took so long.
    fn of([homes, batch, commit]: [u64; 3]) -> Self {
        let all = homes.saturating_add(batch).saturating_add(commit).max(1);
        let share = |part: u64| (part.saturating_mul(COMMITTED) / all).max(SHARE_MIN);
        let (homes, batch, commit) = (share(homes), share(batch), share(commit));
        let all = homes + batch + commit;
        let settled = homes * COMMITTED / all;
        Self { written: settled.saturating_sub(SETTLED), settled, encoded: (homes + batch) * COMMITTED / all }
    }

    /// One checkpoint may be unlike the next: half of what is known is of it.
    const fn halfway_to(self, other: Self) -> Self {
        Self {
            written: self.written.midpoint(other.written),
            settled: self.settled.midpoint(other.settled),
            encoded: self.encoded.midpoint(other.encoded),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_by_their_time() {
        let ends = Ends::of([600, 100, 300]);
        assert_eq!(ends, Ends { written: 550, settled: 570, encoded: 665 });
        let ends = Ends::of([1 << 40, 0, 0]);
        assert!(ends.settled > 850 && ends.settled < ends.encoded && ends.encoded < COMMITTED, "{ends:?}");
        let ends = Ends::of([0, 0, 0]);
        assert!(
            ends.written < ends.settled && ends.settled < ends.encoded && ends.encoded < COMMITTED,
            "{ends:?}"
        );
    }

    #[test]
    fn the_last_checkpoint_counts_half() {
        let (old, new) = (Ends { written: 700, settled: 720, encoded: 800 }, Ends::of([180, 40, 780]));
        assert_eq!(old.halfway_to(new), Ends { written: 425, settled: 445, encoded: 504 });
    }
}
