//! [`ScrubSchedule`]: which PG is scrubbed next without anybody's order (`OsdScrub::select_pg_and_scrub`, `scrub_time_permit`).

use nacre_types::{SpgId, UTime};
use std::cmp::Ordering;

/// When scrubs may begin by themselves, and how many at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubSchedule {
    /// First hour of the day in which scrubs begin, Ceph's `osd_scrub_begin_hour`.
    pub begin_hour: u32,
    /// Hour from which on none begins, Ceph's `osd_scrub_end_hour`; the same as the first: at any time.
    pub end_hour: u32,
    /// Scrubs under way at a time on one shard, Ceph's `osd_max_scrubs`.
    pub scrubs_max: usize,
}

/// What the schedule has to know of a PG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubFacts {
    /// The PG that it is about.
    pub spg: SpgId,
    /// It is scrubbed just now, or is to be by order.
    pub is_scrubbing: bool,
    /// Since when a scrub is due, and whether a deep one: see [`nacre_pg::Pg::scrub_due`].
    pub due: Option<(UTime, bool)>,
}

impl ScrubSchedule {
    /// The PG whose scrub has been due for longest, and whether it is a deep one; `None` while enough are under way, and in hours in
    /// which none begins. The PGs are not looked at then.
    pub fn next(&self, wall: UTime, pgs: impl Iterator<Item = ScrubFacts>) -> Option<(SpgId, bool)> {
        if !self.is_scrub_hour(wall.sec / 3600 % 24) {
            return None;
        }
        let (mut scrubbing, mut first) = (0, None);
        for pg in pgs {
            scrubbing += usize::from(pg.is_scrubbing);
            let due = pg.due.map(|due| (due, pg.spg));
            first = first.into_iter().chain(due).min();
        }
        first.filter(|_| scrubbing < self.scrubs_max).map(|((_, is_deep), spg)| (spg, is_deep))
    }

    /// Until the end, which is left out, and over midnight when that comes first.
    fn is_scrub_hour(&self, hour: u32) -> bool {
        match self.begin_hour.cmp(&self.end_hour) {
            Ordering::Equal => true,
            Ordering::Less => (self.begin_hour..self.end_hour).contains(&hour),
            Ordering::Greater => hour >= self.begin_hour || hour < self.end_hour,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::PgId;

    const ALWAYS: ScrubSchedule = ScrubSchedule { begin_hour: 0, end_hour: 0, scrubs_max: 1 };

    fn at(hour: u32) -> UTime {
        UTime { sec: hour * 3600 + 59 * 60, nsec: 0 }
    }

    fn pg(seed: u32, due: Option<(u32, bool)>) -> ScrubFacts {
        let due = due.map(|(sec, is_deep)| (UTime { sec, nsec: 0 }, is_deep));
        ScrubFacts { spg: SpgId::replicated(PgId::new(1, seed)), is_scrubbing: false, due }
    }

    #[test]
    fn scrubs_begin_in_their_hours_only() {
        for (hour, begin_hour, end_hour, may) in [
            (5, 0, 0, true),
            (23, 22, 6, true),
            (3, 22, 6, true),
            (6, 22, 6, false),
            (12, 22, 6, false),
            (9, 9, 17, true),
            (17, 9, 17, false),
            (8, 9, 17, false),
        ] {
            let schedule = ScrubSchedule { begin_hour, end_hour, ..ALWAYS };
            let next = schedule.next(at(hour), [pg(0, Some((1, false)))].into_iter());
            assert_eq!(next.is_some(), may, "{hour} of {begin_hour} to {end_hour}");
        }
    }

    #[test]
    fn what_is_due_for_longest_is_next_unless_enough_are_under_way() {
        let pgs = [pg(0, Some((20, false))), pg(1, None), pg(2, Some((10, true)))];
        assert_eq!(ALWAYS.next(at(0), pgs.into_iter()), Some((pgs[2].spg, true)));
        let busy = ScrubFacts { is_scrubbing: true, ..pg(3, None) };
        assert_eq!(ALWAYS.next(at(0), pgs.into_iter().chain([busy])), None, "one is under way");
        let two = ScrubSchedule { scrubs_max: 2, ..ALWAYS };
        assert_eq!(two.next(at(0), pgs.into_iter().chain([busy])), Some((pgs[2].spg, true)));
        assert_eq!(ALWAYS.next(at(0), [pg(1, None)].into_iter()), None, "none is due");
    }
}
