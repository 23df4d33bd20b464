//! Checks on what scrubs should have done, and on what is to be trimmed, by what OSDs reported of their PGs.
//!
//! Source: Ceph `src/mon/PGMap.cc: get_health_checks` at v16.2.15.

use super::{Check, Severity, plural};
use crate::state::State;
use nacre_maps::{OsdMap, Pool, PoolOption};
use nacre_msg::stats::PgStat;
use nacre_types::{PgId, UTime, seconds};
use std::time::Duration;

/// Keys of a pool's own intervals. Ceph `pool_opts_t::key_t`.
const POOL_SCRUB_MAX_INTERVAL: i32 = 1;
const POOL_DEEP_SCRUB_INTERVAL: i32 = 2;

/// A kind of scrub: how late it may be, in how many seconds it should be, and when a PG had it last.
struct Kind {
    code: &'static str,
    what: &'static str,
    key: i32,
    interval_s: f64,
    ratio: f64,
    stamp: fn(&PgStat) -> UTime,
}

pub(super) fn checks(state: &State, map: &OsdMap) -> Vec<Check> {
    let config = &state.config;
    let kinds = [
        Kind {
            code: "PG_NOT_SCRUBBED",
            what: "scrubbed",
            key: POOL_SCRUB_MAX_INTERVAL,
            interval_s: state.number_of_osds("osd_scrub_max_interval"),
            ratio: config.number_of_monitor("mon_warn_pg_not_scrubbed_ratio", 0.5),
            stamp: |stat| stat.last_scrub_stamp,
        },
        Kind {
            code: "PG_NOT_DEEP_SCRUBBED",
            what: "deep-scrubbed",
            key: POOL_DEEP_SCRUB_INTERVAL,
            interval_s: state.number_of_osds("osd_deep_scrub_interval"),
            ratio: config.number_of_monitor("mon_warn_pg_not_deep_scrubbed_ratio", 0.75),
            stamp: |stat| stat.last_deep_scrub_stamp,
        },
    ];
    let late = kinds.iter().filter(|kind| kind.ratio > 0.0).filter_map(|kind| late(state, map, kind));
    late.chain(slow_trimming(state, map)).collect()
}

/// How long after its last scrub a PG of the pool is late.
fn patience(kind: &Kind, pool: &Pool) -> Duration {
    let interval_s = match pool.options.get(&kind.key) {
        Some(PoolOption::Float(own)) if *own > 0.0 => *own,
        _ => kind.interval_s,
    };
    seconds(interval_s * (1.0 + kind.ratio))
}

fn late(state: &State, map: &OsdMap, kind: &Kind) -> Option<Check> {
    let is_late = |pg: PgId, stat: &PgStat| {
        let pool = map.pools.get(&pg.pool)?;
        let at = (kind.stamp)(stat);
        (state.wall.since(at) > patience(kind, pool)).then_some((pg, at))
    };
    let late = state.shown_pgs().pgs(map).filter_map(|(pg, stat)| is_late(pg, stat));
    let lines: Vec<String> = late.map(|(pg, at)| format!("pg {pg} not {} since {at}", kind.what)).collect();
    let summary = format!("{} pgs not {} in time", lines.len(), kind.what);
    (!lines.is_empty()).then(|| Check::new(kind.code, Severity::Warn, summary, lines))
}

fn slow_trimming(state: &State, map: &OsdMap) -> Option<Check> {
    let queued_max = state.config.number_of_monitor("mon_osd_snap_trim_queue_warn_on", 32_768.0);
    if queued_max <= 0.0 {
        return None;
    }
    let pgs = state.shown_pgs().pgs(map).map(|(pg, stat)| (pg, stat.snaptrimq_len));
    let long: Vec<(PgId, u32)> = pgs.filter(|(_, queued)| f64::from(*queued) > queued_max).collect();
    let lines = long.iter().map(|(pg, queued)| format!("snap trim queue for pg {pg} at {queued}")).collect();
    let summary = format!(
        "snap trim queue for {} >= {queued_max} (mon_osd_snap_trim_queue_warn_on)",
        plural(long.len(), "pg", "pgs")
    );
    (!long.is_empty()).then(|| Check::new("PG_SLOW_SNAP_TRIMMING", Severity::Warn, summary, lines))
}
