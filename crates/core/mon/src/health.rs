//! Health: what is wrong with the cluster, computed from the maps and the OSDs' reports, and which of these
//! checks operators have muted.
//!
//! Codes, texts and severities are those of Ceph v16.2.15 (`src/osd/OSDMap.cc: check_health`, `src/mon/PGMap.cc:
//! get_health_checks`), because alerts and tools match on them.

mod autoscale_checks;
mod compression_checks;
mod crash_checks;
pub(crate) mod device_checks;
mod device_health_checks;
mod link_checks;
mod map_checks;
mod mds_checks;
mod mgr_checks;
mod mon_checks;
mod osd_checks;
mod pg_checks;
mod pg_num_checks;
pub(crate) mod ping_checks;
mod pool_checks;
mod probe_checks;
mod scrub_checks;
pub(crate) mod version_checks;
mod words;

pub use crate::mutes::{Check, DETAILS_COUNT_MAX, Health, MUTES_COUNT_MAX, Mute, Severity};
use crate::state::State;
use nacre_msg::stats::osd_alert;
pub(crate) use words::words;

/// Codes that a stock manager has as well and that we judge ourselves, by what OSDs report to us: the same cluster must not be degraded and
/// clean in one answer.
const OWN_CODES: &[&str] = &[
    "LARGE_OMAP_OBJECTS",
    "MANY_OBJECTS_PER_PG",
    "OBJECT_MISPLACED",
    "OBJECT_UNFOUND",
    "OSD_SCRUB_ERRORS",
    "OSD_SLOW_PING_TIME_BACK",
    "OSD_SLOW_PING_TIME_FRONT",
    "OSD_TOO_MANY_REPAIRS",
    "PG_AVAILABILITY",
    "PG_BACKFILL_FULL",
    "PG_DAMAGED",
    "PG_DEGRADED",
    "PG_NOT_DEEP_SCRUBBED",
    "PG_NOT_SCRUBBED",
    "PG_RECOVERY_FULL",
    "PG_SLOW_SNAP_TRIMMING",
    "POOL_APP_NOT_ENABLED",
    "POOL_FULL",
    "POOL_NEAR_FULL",
    "SLOW_OPS",
    "SMALLER_PGP_NUM",
    "TOO_FEW_PGS",
    "TOO_MANY_PGS",
    // A manager makes checks of what OSDs say to us.
    osd_alert::CLIENTS_THROTTLED,
    osd_alert::COPIES_LOST,
    osd_alert::PEER_MESSAGES,
    osd_alert::SLOW_OPS,
];

/// Everything that is wrong, in order of codes.
#[must_use]
pub fn checks(state: &State) -> Vec<Check> {
    let map = state.osd.map();
    let digest = state.shown_pgs().digest(map);
    let mut out = osd_checks::checks(state, map);
    out.extend(map_checks::checks(state, map));
    out.extend(pool_checks::checks(state, map, &digest));
    out.extend(pg_num_checks::checks(state, map, &digest));
    out.extend(scrub_checks::checks(state, map));
    out.extend(crash_checks::check(state));
    out.extend(version_checks::check(state));
    out.extend(compression_checks::check(state));
    out.extend(mon_checks::checks(state));
    out.extend(pg_checks::checks(state, map, &digest));
    out.extend(ping_checks::checks(state, map));
    out.extend(link_checks::check(state, map));
    out.extend(autoscale_checks::checks(state, map, &digest));
    out.extend(unusable_values(state));
    out.extend(throttled_clients(state));
    out.extend(device_checks::check(state));
    out.extend(device_health_checks::checks(state));
    out.extend(probe_checks::checks(state));
    out.extend(mds_checks::checks(state));
    out.extend(mgr_checks::checks(state, OWN_CODES));
    out.sort_by(|a, b| a.code.cmp(&b.code));
    for check in &mut out {
        check.muted = state.health.is_muted(check);
    }
    out
}

/// Our own check: Ceph's daemons have no word for it.
fn unusable_values(state: &State) -> Option<Check> {
    let detail = |(who, name, value, error): (_, _, _, _)| {
        format!(
            "{who}: {name} = '{value}' has no effect: {error}. Set it anew, or remove it with 'ceph config rm {who} {name}'"
        )
    };
    let detail: Vec<String> = state.config.unusable().map(detail).collect();
    let summary =
        format!("{} stored that cannot be used", plural(detail.len(), "option value", "option values"));
    (!detail.is_empty()).then(|| Check::new("CONFIG_VALUE_UNUSABLE", Severity::Warn, summary, detail))
}

/// Our own check, too.
fn throttled_clients(state: &State) -> Option<Check> {
    let detail =
        |(name, count)| format!("{name}: {count} changes had to wait or were refused in the last minute");
    let waiting = state.throttled_senders.iter().cloned();
    let detail: Vec<String> = state.budgets.throttled().map(detail).chain(waiting).collect();
    let summary = format!(
        "{} for more than the monitor takes",
        if detail.len() == 1 { "1 client asks".to_owned() } else { format!("{} clients ask", detail.len()) }
    );
    (!detail.is_empty()).then(|| Check::new("MON_CLIENTS_THROTTLED", Severity::Warn, summary, detail))
}

/// The worst of the checks that are not muted.
#[must_use]
pub fn overall(checks: &[Check]) -> Severity {
    let heard = checks.iter().filter(|check| !check.muted);
    heard.map(|check| check.severity).max().unwrap_or(Severity::Ok)
}

/// `1 osd`, `2 osds`.
fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
