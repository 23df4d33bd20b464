//! What a shard does beside clients' work: scrubs in time, and giving back memory when nothing happens.

use crate::pg_registry::PgRegistry;
use nacre_buf::AlignedBuf;
use nacre_options::Values;
use nacre_pg::ScrubIntervals;
use nacre_store::ObjectStore;
use nacre_types::{SpgId, Stamp, UTime};
use std::cmp::Ordering;
use std::time::Duration;

/// A store that nobody used for so long brings its changes home, and free memory goes back to the system.
const IDLE_TRIM_AFTER: Duration = Duration::from_secs(5);

/// Since when a shard's store rests.
#[derive(Debug, Default)]
pub(crate) struct IdleTrim {
    used_at: Stamp,
    /// Nothing is left to do until it is used again.
    is_done: bool,
}

impl IdleTrim {
    /// The store is used.
    pub(crate) fn used(&mut self, now: Stamp) {
        *self = Self { used_at: now, is_done: false };
    }

    /// Lets the store rest when nobody has used it for a while, and gives memory back once it does (`give_back_memory`).
    pub(crate) fn trim(&mut self, now: Stamp, store: &mut dyn ObjectStore, give_back_memory: fn()) {
        if self.is_done || now < self.used_at + IDLE_TRIM_AFTER || store.idle_trim() {
            return;
        }
        self.is_done = true;
        AlignedBuf::empty_pool();
        give_back_memory();
    }
}

/// May scrubs begin by themselves at `hour`? Until `end`, which is left out, and over midnight when that comes first.
fn is_scrub_hour(hour: u32, begin: u32, end: u32) -> bool {
    match begin.cmp(&end) {
        Ordering::Equal => true,
        Ordering::Less => (begin..end).contains(&hour),
        Ordering::Greater => hour >= begin || hour < end,
    }
}

/// The PG whose copies it is high time to compare, if there are not enough scrubs already, and whether deeply.
pub(crate) fn due_scrub(pgs: &PgRegistry, options: &Values, wall: UTime) -> Option<(SpgId, bool)> {
    let intervals = ScrubIntervals {
        shallow: options.seconds("osd_scrub_min_interval"),
        deep: options.seconds("osd_deep_scrub_interval"),
    };
    let hour = |count| u32::try_from(count).unwrap_or(0);
    let begin = hour(options.count("osd_scrub_begin_hour"));
    let end = hour(options.count("osd_scrub_end_hour"));
    if !is_scrub_hour(wall.sec / 3600 % 24, begin, end) {
        return None;
    }
    pgs.next_scrub(wall, &intervals, options.count("osd_max_scrubs"))
}

#[cfg(test)]
mod tests {
    use super::is_scrub_hour;

    #[test]
    fn scrubs_begin_in_their_hours_only() {
        for (hour, begin, end, may) in [
            (5, 0, 0, true),
            (23, 22, 6, true),
            (3, 22, 6, true),
            (6, 22, 6, false),
            (12, 22, 6, false),
            (9, 9, 17, true),
            (17, 9, 17, false),
            (8, 9, 17, false),
        ] {
            assert_eq!(is_scrub_hour(hour, begin, end), may, "{hour} of {begin} to {end}");
        }
    }
}
