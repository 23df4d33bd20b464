//! [`ScrubIntervals`]: when copies of a PG are to be compared without an order.

use nacre_types::{PgId, UTime};
use std::time::Duration;

/// How often copies are compared without an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubIntervals {
    /// Sizes, attributes and versions: `osd_scrub_min_interval`, and up to half as long again.
    pub shallow: Duration,
    /// After so long a scrub is late, and waits neither for its hours nor for a machine that is less busy: `osd_scrub_max_interval`.
    pub longest: Duration,
    /// All data: `osd_deep_scrub_interval`, or up to a quarter less.
    pub deep: Duration,
}

/// A scrub that it is time for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScrubDue {
    /// Since when: the earlier, the more urgent.
    pub since: UTime,
    /// All data is read.
    pub is_deep: bool,
    /// Longer than a scrub may wait.
    pub is_late: bool,
}

/// A PG's share of what intervals are spread by, in 1024ths: PGs that were made together need not be compared together, now or ever.
fn spread(pg: PgId) -> u32 {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&pg.pool.to_le_bytes());
    bytes[8..].copy_from_slice(&pg.seed.to_le_bytes());
    nacre_types::hash::rjenkins(&bytes) % 1024
}

impl ScrubIntervals {
    /// What is due for a PG that was last scrubbed, and deeply, at these times. A kind of which `held` says so does not come by itself.
    #[must_use]
    pub fn due(
        &self,
        pg: PgId,
        (last, last_deep): (UTime, UTime),
        held: (bool, bool),
        wall: UTime,
    ) -> Option<ScrubDue> {
        let is_late = last.after(self.longest) <= wall;
        let deep_at = last_deep.after(self.deep - self.deep * spread(pg) / 4096);
        if deep_at <= wall && !held.1 {
            return Some(ScrubDue { since: deep_at, is_deep: true, is_late });
        }
        let at = last.after(self.shallow + self.shallow * spread(pg) / 2048).min(last.after(self.longest));
        (at <= wall && !held.0).then_some(ScrubDue { since: at, is_deep: false, is_late })
    }
}
