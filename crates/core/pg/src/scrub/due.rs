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
    /// All data: once in each `osd_deep_scrub_interval`, each PG at its own part of it.
    pub deep: Duration,
}

/// A scrub that it is time for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScrubDue {
    /// Since when: the earlier, the more urgent.
    pub since: UTime,
    /// All data is read.
    pub is_deep: bool,
    /// Longer than a scrub may wait: it was due for so long, or a deep one a quarter of its interval ago.
    pub is_late: bool,
}

/// A PG's place in an interval, in parts of 2^32: PGs of a pool are spread evenly, whichever power of two they are, and pools differ.
fn place(pg: PgId) -> u32 {
    pg.seed.reverse_bits().wrapping_add(nacre_types::hash::rjenkins(&pg.pool.to_le_bytes()))
}

fn share(interval: Duration, place: u32) -> Duration {
    let nanos = (interval.as_nanos() * u128::from(place)) >> 32;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The first time after `last` at which a PG's place in an interval comes, whenever intervals of that length began in 1970.
fn next_place(last: UTime, interval: Duration, place: u32) -> UTime {
    let (length, at) = (interval.as_nanos().max(1), share(interval, place).as_nanos());
    let passed = (last.to_unix().as_nanos() + length - at) % length;
    last.after(Duration::from_nanos(u64::try_from(length - passed).unwrap_or(u64::MAX)))
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
        let deep_at = next_place(last_deep, self.deep, place(pg));
        if deep_at <= wall && !held.1 {
            let is_late = is_late || last_deep.after(self.deep.saturating_add(self.deep / 4)) <= wall;
            return Some(ScrubDue { since: deep_at, is_deep: true, is_late });
        }
        let spread = share(self.shallow / 2, place(pg));
        let at = last.after(self.shallow.saturating_add(spread)).min(last.after(self.longest));
        (at <= wall && !held.0).then_some(ScrubDue { since: at, is_deep: false, is_late })
    }
}
