//! Checks on PGs, by what OSDs reported.

use super::{Check, DETAILS_COUNT_MAX, Severity, plural};
use crate::state::State;
use nacre_maps::OsdMap;
use nacre_mgr::pgmap::{Digest, PgMap};
use nacre_msg::stats::pg_state;
use nacre_types::PgId;

/// A group of states that are one check.
struct Group {
    code: &'static str,
    severity: Severity,
    title: &'static str,
    states: &'static [(u64, &'static str)],
}

const GROUPS: [Group; 3] = [
    Group {
        code: "PG_DAMAGED",
        severity: Severity::Error,
        title: "Possible data damage",
        states: &[
            (pg_state::INCONSISTENT, "inconsistent"),
            (pg_state::RECOVERY_UNFOUND, "recovery_unfound"),
            (pg_state::BACKFILL_UNFOUND, "backfill_unfound"),
            (pg_state::SNAPTRIM_ERROR, "snaptrim_error"),
        ],
    },
    Group {
        code: "PG_RECOVERY_FULL",
        severity: Severity::Error,
        title: "Full OSDs blocking recovery",
        states: &[(pg_state::RECOVERY_TOOFULL, "recovery_toofull")],
    },
    Group {
        code: "PG_BACKFILL_FULL",
        severity: Severity::Warn,
        title: "Backfill waits for room on its targets; more storage helps",
        states: &[(pg_state::BACKFILL_TOOFULL, "backfill_toofull")],
    },
];

/// States in which nothing can be read or written.
const UNAVAILABLE: [(u64, &str); 4] = [
    (pg_state::DOWN, "down"),
    (pg_state::INCOMPLETE, "incomplete"),
    (pg_state::PEERING, "peering"),
    (pg_state::STALE, "stale"),
];

const DEGRADED: [(u64, &str); 2] = [(pg_state::DEGRADED, "degraded"), (pg_state::UNDERSIZED, "undersized")];

pub(super) fn checks(state: &State, map: &OsdMap, digest: &Digest) -> Vec<Check> {
    let pgs = state.shown_pgs();
    let mut out: Vec<Check> =
        GROUPS.iter().filter_map(|group| group_check(group, pgs, map, digest)).collect();
    out.extend(availability(pgs, map, digest));
    out.extend(degraded(pgs, map, digest));
    out.extend(objects(state, map, digest));
    out
}

fn describe(pgs: &PgMap, map: &OsdMap, wanted: impl Fn(u64) -> bool) -> Vec<String> {
    let line = |pg: PgId, state: u64, acting: &[i32]| {
        format!("pg {pg} is {}, acting {}", pg_state::text(state), set_text(acting))
    };
    let states = pgs.pgs(map).map(|(pg, stat)| (pg, PgMap::state_of(stat, map), stat));
    let wanted = states.filter(|(_, state, _)| wanted(*state));
    wanted.map(|(pg, state, stat)| line(pg, state, &stat.acting)).take(DETAILS_COUNT_MAX).collect()
}

/// `[1,2,NONE]`.
fn set_text(osds: &[i32]) -> String {
    let one = |osd: &i32| if *osd == nacre_crush::ITEM_NONE { "NONE".to_owned() } else { osd.to_string() };
    format!("[{}]", osds.iter().map(one).collect::<Vec<_>>().join(","))
}

fn count_text(digest: &Digest, states: &[(u64, &str)]) -> Vec<String> {
    let counts = states.iter().map(|(bit, name)| (digest.count_with(*bit), name));
    counts
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| format!("{} {name}", plural(count, "pg", "pgs")))
        .collect()
}

fn group_check(group: &Group, pgs: &PgMap, map: &OsdMap, digest: &Digest) -> Option<Check> {
    let parts = count_text(digest, group.states);
    if parts.is_empty() {
        return None;
    }
    let bits = group.states.iter().fold(0, |bits, (bit, _)| bits | bit);
    let lines = describe(pgs, map, |state| state & bits != 0);
    Some(Check::new(group.code, group.severity, format!("{}: {}", group.title, parts.join(", ")), lines))
}

/// PGs that no OSD has reported yet count as inactive only when some OSD could have reported them.
fn availability(pgs: &PgMap, map: &OsdMap, digest: &Digest) -> Option<Check> {
    let inactive = digest.inactive_count();
    let mut parts = Vec::new();
    if inactive > 0 {
        parts.push(format!("{} inactive", plural(inactive, "pg", "pgs")));
    }
    parts.extend(count_text(digest, &UNAVAILABLE));
    if parts.is_empty() {
        return None;
    }
    let bits = UNAVAILABLE.iter().fold(0, |bits, (bit, _)| bits | bit);
    let lines = describe(pgs, map, |state| state & bits != 0 || state & pg_state::ACTIVE == 0);
    let summary = format!("Reduced data availability: {}", parts.join(", "));
    Some(Check::new("PG_AVAILABILITY", Severity::Warn, summary, lines).counting(inactive))
}

/// `part/whole objects what (percent)`.
fn share(part: i64, whole: i64, what: &str) -> String {
    let percent = if whole > 0 { part as f64 * 100.0 / whole as f64 } else { 0.0 };
    format!("{part}/{whole} objects {what} ({percent:.3}%)")
}

fn degraded(pgs: &PgMap, map: &OsdMap, digest: &Digest) -> Option<Check> {
    let stats = &digest.sum.stats;
    let mut parts = Vec::new();
    if stats.num_objects_degraded > 0 {
        parts.push(share(stats.num_objects_degraded, stats.num_object_copies, "degraded"));
    }
    parts.extend(count_text(digest, &DEGRADED));
    if parts.is_empty() {
        return None;
    }
    let bits = pg_state::DEGRADED | pg_state::UNDERSIZED;
    let lines = describe(pgs, map, |state| state & bits != 0);
    let summary = format!("Degraded data redundancy: {}", parts.join(", "));
    let count =
        digest.by_state.iter().filter(|(state, _)| *state & bits != 0).map(|(_, count)| count).sum::<usize>();
    Some(Check::new("PG_DEGRADED", Severity::Warn, summary, lines).counting(count))
}

fn objects(state: &State, map: &OsdMap, digest: &Digest) -> Vec<Check> {
    let (pgs, stats) = (state.shown_pgs(), &digest.sum.stats);
    let mut out = Vec::new();
    let mut add = |code, severity, count: i64, summary: String, lines: Vec<String>| {
        if count > 0 {
            out.push(Check::new(code, severity, summary, lines).counting(count));
        }
    };
    // Copies that are on their way to another place are as many as they should be.
    let is_asked = state.config.flag_of_monitor("mon_warn_on_misplaced");
    let misplaced = if is_asked { stats.num_objects_misplaced } else { 0 };
    add(
        "OBJECT_MISPLACED",
        Severity::Warn,
        misplaced,
        share(misplaced, stats.num_object_copies, "misplaced"),
        Vec::new(),
    );
    let unfound = stats.num_objects_unfound;
    let of_pgs = pgs.pgs(map).map(|(pg, stat)| (pg, stat.stats.sum.num_objects_unfound));
    let lines = of_pgs.filter(|(_, count)| *count > 0).take(DETAILS_COUNT_MAX);
    let lines = lines.map(|(pg, count)| format!("pg {pg} has {count} unfound objects")).collect();
    add("OBJECT_UNFOUND", Severity::Warn, unfound, share(unfound, stats.num_objects, "unfound"), lines);
    let errors = stats.num_scrub_errors;
    add("OSD_SCRUB_ERRORS", Severity::Error, errors, format!("{errors} scrub errors"), Vec::new());
    let omap = stats.num_large_omap_objects;
    add("LARGE_OMAP_OBJECTS", Severity::Warn, omap, format!("{omap} large omap objects"), Vec::new());
    out
}
