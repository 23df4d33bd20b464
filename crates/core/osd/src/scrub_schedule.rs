//! [`ScrubSchedule`]: which PG is scrubbed next without anybody's order (Ceph v16.2.15: `OsdScrub::select_pg_and_scrub`, `scrub_time_permit`,
//! `scrub_load_below_threshold` of `src/osd/OSD.cc`).

use nacre_pg::ScrubDue;
use nacre_types::{SpgId, UTime};
use std::cmp::Ordering;

/// When scrubs may begin by themselves, and how many at a time. Hours and days are those of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubSchedule {
    /// First hour of the day in which scrubs begin, Ceph's `osd_scrub_begin_hour`.
    pub begin_hour: u32,
    /// Hour from which on none begins, Ceph's `osd_scrub_end_hour`; the same as the first: at any time.
    pub end_hour: u32,
    /// First day of the week in which scrubs begin, 0 for Sunday, Ceph's `osd_scrub_begin_week_day`.
    pub begin_week_day: u32,
    /// Day from which on none begins, Ceph's `osd_scrub_end_week_day`; the same as the first: on any.
    pub end_week_day: u32,
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
    /// The scrub that it is time for: see [`nacre_pg::Pg::scrub_due`].
    pub due: Option<ScrubDue>,
}

impl ScrubSchedule {
    /// The PG whose scrub has been due for longest, and whether it is a deep one; `None` while enough are under way. Outside the hours and
    /// days in which scrubs begin, and while the machine is busy, only what is late counts. `is_busy` is not asked when it makes no difference.
    pub fn next(
        &self,
        wall: UTime,
        is_busy: impl FnOnce() -> bool,
        pgs: impl Iterator<Item = ScrubFacts>,
    ) -> Option<(SpgId, bool)> {
        let (mut scrubbing, mut first, mut first_late) = (0, None, None);
        for pg in pgs {
            scrubbing += usize::from(pg.is_scrubbing);
            let due = pg.due.map(|due| (due, pg.spg));
            first = first.into_iter().chain(due).min();
            first_late = first_late.into_iter().chain(due.filter(|(due, _)| due.is_late)).min();
        }
        let (first, has_room) = (first?, scrubbing < self.scrubs_max);
        let waits = has_room && first_late != Some(first) && (!self.is_scrub_time(wall) || is_busy());
        let (due, spg) = if waits { first_late? } else { first };
        has_room.then_some((spg, due.is_deep))
    }

    fn is_scrub_time(&self, wall: UTime) -> bool {
        // The first of January 1970 was a Thursday.
        let (hour, week_day) = (wall.sec / 3600 % 24, (wall.sec / 86_400 + 4) % 7);
        is_between(hour, self.begin_hour, self.end_hour)
            && is_between(week_day, self.begin_week_day, self.end_week_day)
    }
}

/// Until the end, which is left out, and over midnight, or the week's end, when that comes first.
fn is_between(at: u32, begin: u32, end: u32) -> bool {
    match begin.cmp(&end) {
        Ordering::Equal => true,
        Ordering::Less => (begin..end).contains(&at),
        Ordering::Greater => at >= begin || at < end,
    }
}

/// How busy a machine usually is: there are some on which the load is never below any threshold, and scrubs must come there, too.
#[derive(Debug, Clone, Copy, Default)]
pub struct UsualLoad {
    /// Average over about a day.
    day: Option<f64>,
}

/// Looks in a day, where there is one each second.
const LOOKS_IN_A_DAY: f64 = 86_400.0;

impl UsualLoad {
    /// Takes in the load of this second, per processor, over a minute.
    pub fn look(&mut self, minute: f64) {
        let day = self.day.unwrap_or(minute);
        self.day = Some(day + (minute - day) / LOOKS_IN_A_DAY);
    }

    /// Whether scrubs had better wait: the load is not below the threshold, Ceph's `osd_scrub_load_threshold`; nor is it less than usual and
    /// falling.
    #[must_use]
    pub fn is_busy(&self, minute: f64, quarter_hour: f64, threshold: f64) -> bool {
        let is_usual = self.day.is_none_or(|day| minute >= day);
        minute >= threshold && (is_usual || minute >= quarter_hour)
    }
}

#[cfg(test)]
mod tests;
