use super::*;
use nacre_pg::ScrubIntervals;
use nacre_types::PgId;
use std::time::Duration;

const ALWAYS: ScrubSchedule =
    ScrubSchedule { begin_hour: 0, end_hour: 0, begin_week_day: 0, end_week_day: 0, scrubs_max: 1 };
const DAY_S: u32 = 86_400;

fn pg(seed: u32, due: Option<(u32, bool, bool)>) -> ScrubFacts {
    let due = due.map(|(sec, is_deep, is_late)| ScrubDue { since: UTime { sec, nsec: 0 }, is_deep, is_late });
    ScrubFacts { spg: SpgId::replicated(PgId::new(1, seed)), is_scrubbing: false, due }
}

fn next(schedule: &ScrubSchedule, sec: u32, is_busy: bool, pgs: &[ScrubFacts]) -> Option<(SpgId, bool)> {
    schedule.next(UTime { sec, nsec: 0 }, || is_busy, pgs.iter().copied())
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
        let found = next(&schedule, hour * 3600 + 59 * 60, false, &[pg(0, Some((1, false, false)))]);
        assert_eq!(found.is_some(), may, "{hour} of {begin_hour} to {end_hour}");
    }
}

#[test]
fn scrubs_begin_on_their_days_only() {
    // The 25th of November 2026 is a Wednesday: the third day of the week.
    let wednesday = 1_795_564_800;
    assert_eq!(UTime { sec: wednesday, nsec: 0 }.to_string(), "2026-11-25T00:00:00.000000+0000");
    for (days_later, begin_week_day, end_week_day, may) in [
        (0, 3, 4, true),
        (1, 3, 4, false),
        (6, 3, 4, false),
        (7, 3, 4, true),
        (3, 6, 1, true),
        (4, 6, 1, true),
        (5, 6, 1, false),
        (5, 2, 2, true),
    ] {
        let schedule = ScrubSchedule { begin_week_day, end_week_day, ..ALWAYS };
        let at = wednesday + days_later * DAY_S + 3600;
        let found = next(&schedule, at, false, &[pg(0, Some((1, false, false)))]);
        assert_eq!(found.is_some(), may, "{days_later} days later of {begin_week_day} to {end_week_day}");
    }
}

#[test]
fn what_is_due_for_longest_is_next_unless_enough_are_under_way() {
    let pgs = [pg(0, Some((20, false, false))), pg(1, None), pg(2, Some((10, true, false)))];
    assert_eq!(next(&ALWAYS, 0, false, &pgs), Some((pgs[2].spg, true)));
    let busy = ScrubFacts { is_scrubbing: true, ..pg(3, None) };
    let with_one: Vec<ScrubFacts> = pgs.into_iter().chain([busy]).collect();
    assert_eq!(next(&ALWAYS, 0, false, &with_one), None, "one is under way");
    let two = ScrubSchedule { scrubs_max: 2, ..ALWAYS };
    assert_eq!(next(&two, 0, false, &with_one), Some((pgs[2].spg, true)));
    assert_eq!(next(&ALWAYS, 0, false, &[pg(1, None)]), None, "none is due");
}

#[test]
fn what_is_late_waits_for_no_hour_and_no_calm() {
    let (due, late) = (pg(0, Some((10, true, false))), pg(1, Some((20, false, true))));
    let at_night = ScrubSchedule { begin_hour: 22, end_hour: 6, ..ALWAYS };
    let noon = 12 * 3600;
    assert_eq!(next(&at_night, noon, false, &[due]), None);
    assert_eq!(next(&at_night, noon, false, &[due, late]), Some((late.spg, false)));
    assert_eq!(next(&ALWAYS, noon, true, &[due]), None);
    assert_eq!(next(&ALWAYS, noon, true, &[due, late]), Some((late.spg, false)));
    assert_eq!(next(&ALWAYS, noon, false, &[due, late]), Some((due.spg, true)), "the longest wait");
}

#[test]
fn a_machine_that_is_always_busy_scrubs_when_it_is_less_so() {
    let mut usual = UsualLoad::default();
    assert!(!usual.is_busy(0.4, 0.3, 0.5), "below the threshold");
    assert!(usual.is_busy(0.5, 0.9, 0.5), "nobody knows what is usual");
    (0..2 * DAY_S).for_each(|_| usual.look(4.0));
    assert!(usual.is_busy(4.0, 9.0, 0.5) && usual.is_busy(3.0, 2.0, 0.5), "as usual; growing");
    assert!(!usual.is_busy(3.0, 3.5, 0.5));
    (0..2 * DAY_S).for_each(|_| usual.look(2.0));
    assert!(usual.is_busy(3.0, 3.5, 0.5), "two days at half of it are another usual");
}

/// What 128 PGs of one pool, made at one moment on an OSD that leads them all, come to in 60 days.
struct Run {
    /// The longest time that any PG went without a scrub, and without a deep one, after the first interval, in days.
    longest_days: (f64, f64),
    /// Standard deviation of the hours' work that each week's days had, by the mean; of deep scrubs.
    variation: f64,
    most_at_a_time: usize,
}

/// A shallow scrub takes a minute here, a deep one 15: 32 hours of all are deep in a week. The OSD looks each minute.
fn run(schedule: &ScrubSchedule, is_busy: impl Fn(UTime) -> bool) -> Run {
    const PGS: u32 = 128;
    const DAYS: u32 = 60;
    const BEGIN_S: u32 = 1_795_564_800;
    let days = |count: u32| Duration::from_secs(u64::from(count * DAY_S));
    let intervals = ScrubIntervals { shallow: days(1), longest: days(7), deep: days(7) };
    let begin = UTime { sec: BEGIN_S, nsec: 0 };
    let mut stamps = vec![(begin, begin); PGS as usize];
    let mut ends: Vec<(UTime, u32, bool)> = Vec::new();
    let mut seen = Run { longest_days: (0.0, 0.0), variation: 0.0, most_at_a_time: 0 };
    let mut deep_by_day = vec![0_u32; DAYS as usize];
    for sec in (BEGIN_S..BEGIN_S + DAYS * DAY_S).step_by(60) {
        let wall = UTime { sec, nsec: 0 };
        for (_, seed, is_deep) in ends.extract_if(.., |(end, ..)| *end <= wall) {
            let stamp = &mut stamps[seed as usize];
            stamp.0 = wall;
            stamp.1 = if is_deep { wall } else { stamp.1 };
        }
        for (last, last_deep) in &stamps {
            let age = |stamp: UTime| wall.since(stamp).as_secs_f64() / f64::from(DAY_S);
            seen.longest_days.0 = seen.longest_days.0.max(age(*last));
            seen.longest_days.1 = seen.longest_days.1.max(age(*last_deep));
        }
        let facts = (0..PGS).map(|seed| {
            let is_scrubbing = ends.iter().any(|(_, busy, _)| *busy == seed);
            let due = intervals.due(PgId::new(1, seed), stamps[seed as usize], (false, false), wall);
            let due = due.filter(|_| !is_scrubbing);
            ScrubFacts { spg: SpgId::replicated(PgId::new(1, seed)), is_scrubbing, due }
        });
        if let Some((spg, is_deep)) = schedule.next(wall, || is_busy(wall), facts) {
            let lasts = Duration::from_secs(if is_deep { 900 } else { 60 });
            ends.push((wall.after(lasts), spg.pg.seed, is_deep));
            seen.most_at_a_time = seen.most_at_a_time.max(ends.len());
            deep_by_day[((sec - BEGIN_S) / DAY_S) as usize] += u32::from(is_deep);
        }
    }
    let counts: Vec<f64> = deep_by_day.iter().map(|count| f64::from(*count)).collect();
    let mean = counts.iter().sum::<f64>() / counts.len() as f64;
    let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
    seen.variation = variance.sqrt() / mean;
    seen
}

/// Health calls a PG late after 10.5 days without a scrub and 12.25 without a deep one, and what is over 7 goes before everything.
#[test]
fn scrubs_of_a_pool_come_in_time_and_spread() {
    let at_night = ScrubSchedule { begin_hour: 22, end_hour: 6, ..ALWAYS };
    let at_weekends = ScrubSchedule { begin_week_day: 6, end_week_day: 1, ..ALWAYS };
    let calm = |_: UTime| false;
    // Busy by day, and every other night.
    let is_busy = |wall: UTime| {
        let (day, hour) = (wall.sec / DAY_S, wall.sec / 3600 % 24);
        day.is_multiple_of(2) || (6..22).contains(&hour)
    };
    let runs = [
        ("always", run(&ALWAYS, calm), 1),
        ("at night", run(&at_night, calm), 1),
        ("at weekends, three at a time", run(&ScrubSchedule { scrubs_max: 3, ..at_weekends }, calm), 3),
        ("on a busy machine", run(&ALWAYS, is_busy), 1),
    ];
    for (name, seen, scrubs_max) in &runs {
        let (shallow, deep) = seen.longest_days;
        println!(
            "{name}: at most {shallow:.2} days without a scrub, {deep:.2} without a deep one; deep ones by day vary by {:.2} of their mean; at \
             most {} at a time",
            seen.variation, seen.most_at_a_time
        );
        assert!(shallow < 10.5 && deep < 12.25, "{name}: late");
        assert!(seen.most_at_a_time <= *scrubs_max, "{name}");
    }
    let [(_, always, _), (_, at_night, _), ..] = &runs;
    assert!(always.longest_days.0 < 2.0 && always.longest_days.1 < 7.1, "what is due begins soon");
    assert!(always.variation < 0.1 && at_night.variation < 0.35, "deep scrubs come evenly");
}
