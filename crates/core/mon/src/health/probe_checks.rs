//! The checks by what a client sees of pools. Our own: Ceph asks nobody but its daemons.

use super::{Check, Severity};
use crate::probing::patience;
use crate::state::State;
use nacre_mgr::probes::{Level, PoolHealth, ProbeFault};
use nacre_types::PoolId;

/// PGs that a line names.
const NAMED_MAX: usize = 3;

fn milliseconds(us: u64) -> String {
    nacre_format::fixed(us as f64 / 1000.0, 1) + " ms"
}

/// Pools that do not answer, or wrongly, and those that take much longer than they did; and that nobody can tell.
pub(super) fn checks(state: &State) -> impl Iterator<Item = Check> {
    let map = state.osd.map();
    let pools = || {
        let named = state.stats.probes.pools();
        named.filter_map(|(id, health): (PoolId, &PoolHealth)| Some((map.pool_name(id)?, health)))
    };
    let failed: Vec<String> = pools()
        .filter(|(_, health)| health.failed_since.is_some())
        .map(|(name, health)| failed_line(state, name, health))
        .collect();
    let slow: Vec<String> = pools().filter_map(|(name, health)| slow_line(name, health)).collect();
    let check = |code, severity, lines: Vec<String>, what: &str| {
        let pools = if lines.len() == 1 { "pool" } else { "pools" };
        let summary = format!("{} {pools} {what}", lines.len());
        (!lines.is_empty()).then(|| Check::new(code, severity, summary, lines))
    };
    let failed =
        check("POOL_PROBE_FAILED", Severity::Error, failed, "with PGs that do not serve a client's probe");
    let slow = check(
        "POOL_PROBE_SLOW",
        Severity::Warn,
        slow,
        "much slower than before, as a client's probe sees it",
    );
    let none = state.probing.lasting_error().map(|error| {
        let line = format!("the monitor's own client could not begin: {error}");
        Check::new("PROBES_FAILED", Severity::Warn, "pools are not probed as a client sees them", vec![line])
    });
    failed.into_iter().chain(slow).chain(none)
}

fn failed_line(state: &State, name: &str, health: &PoolHealth) -> String {
    let within = patience(state).as_secs();
    let fault = |fault: &ProbeFault| {
        let what = match fault.errno {
            None => format!("no answer to a {} within {within} s", fault.work.name()),
            Some(errno) => format!("a {} was answered with {errno}", fault.work.name()),
        };
        match fault.primary {
            Some(osd) => format!("PG {}, led by osd.{osd}: {what}", fault.pg),
            None => format!("PG {}, led by no OSD: {what}", fault.pg),
        }
    };
    let faults = &health.last.faults;
    let named: Vec<String> = faults.iter().take(NAMED_MAX).map(fault).collect();
    let more = faults.len().saturating_sub(NAMED_MAX) + health.last.unasked;
    let more =
        if more > 0 { format!("; {more} PGs more that failed or were not asked") } else { String::new() };
    format!("pool '{name}': {}{more}", named.join("; "))
}

fn slow_line(name: &str, health: &PoolHealth) -> Option<String> {
    let (_, slowness) = health.slow?;
    let level = |level: Level| {
        format!("half within {}, 95 % within {}", milliseconds(level.half_us), milliseconds(level.most_us))
    };
    let (now, past) = (level(slowness.now), level(slowness.past));
    Some(format!("pool '{name}': {}s of 64 bytes are answered {now}; usual: {past}", slowness.work.name()))
}
