//! What a cluster tells of itself, and the checks of it.

mod checks;
mod devices;
pub(crate) mod session;

#[cfg(test)]
mod tests;

use crate::report::Report;
use nacre_types::OsdId;
use session::{Answer, Session};
use std::collections::BTreeMap;

/// What monitors and OSDs answered.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) health: Answer,
    pub(crate) status: Answer,
    pub(crate) osd_df: Answer,
    pub(crate) osd_perf: Answer,
    pub(crate) osd_metadata: Answer,
    pub(crate) time_sync: Answer,
    /// Of each OSD that is up.
    pub(crate) perf_dumps: BTreeMap<OsdId, Answer>,
    pub(crate) blocked: BTreeMap<OsdId, Answer>,
    pub(crate) pings: BTreeMap<OsdId, Answer>,
}

impl Facts {
    /// Asks for all of them.
    pub(crate) fn ask(session: &mut Session) -> Self {
        let osds = session.osds();
        let [perf_dumps, blocked, pings] =
            session.tell_all(&osds, ["perf dump", "dump_blocked_ops", "dump_osd_network"]);
        Self {
            health: session.ask("health", &[("detail", "detail")]),
            status: session.ask("status", &[]),
            osd_df: session.ask("osd df", &[]),
            osd_perf: session.ask("osd perf", &[]),
            osd_metadata: session.ask("osd metadata", &[]),
            time_sync: session.ask("time-sync-status", &[]),
            perf_dumps,
            blocked,
            pings,
        }
    }
}

/// All checks of a cluster.
pub(crate) fn check(facts: &Facts, report: &mut Report) {
    checks::health(facts, report);
    checks::slow_ops(facts, report);
    checks::pings(facts, report);
    checks::clocks(facts, report);
    checks::background(facts, report);
    checks::fill(facts, report);
    checks::pg_counts(facts, report);
    devices::builds(facts, report);
    devices::drivers(facts, report);
    devices::latencies(facts, report);
}
