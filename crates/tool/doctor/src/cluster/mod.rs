//! What a cluster tells of itself, and the checks of it.

mod checks;
mod devices;
mod links;
pub(crate) mod session;
mod slow_device;
mod space;
pub(crate) mod watched;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod watched_tests;

pub(crate) use checks::pgs_in;

use crate::report::Report;
use anyhow::Result;
use nacre_types::OsdId;
use session::{Answer, Session};
use std::collections::BTreeMap;
use std::time::Duration;

/// Counters of OSDs at one moment.
#[derive(Debug, Default, Clone)]
pub(crate) struct Look {
    pub(crate) perf: BTreeMap<OsdId, Answer>,
    pub(crate) histograms: BTreeMap<OsdId, Answer>,
    pub(crate) links: BTreeMap<OsdId, Answer>,
}

impl Look {
    fn take(session: &mut Session, osds: &[OsdId]) -> Self {
        let [perf, histograms, links] =
            session.tell_all(osds, ["perf dump", "perf histogram dump", "dump_links"]);
        Self { perf, histograms, links }
    }
}

/// What monitors and OSDs answered.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) health: Answer,
    /// How the cluster is when the looking begins, and when it ends.
    pub(crate) status_before: Answer,
    pub(crate) status: Answer,
    pub(crate) osd_df: Answer,
    pub(crate) osd_perf: Answer,
    pub(crate) osd_metadata: Answer,
    pub(crate) time_sync: Answer,
    /// Two looks at the counters of each OSD that is up, and the seconds between them.
    pub(crate) before: Look,
    pub(crate) after: Look,
    pub(crate) window_s: f64,
    pub(crate) blocked: BTreeMap<OsdId, Answer>,
    pub(crate) pings: BTreeMap<OsdId, Answer>,
}

impl Facts {
    /// Asks for all of them, and watches for so long.
    ///
    /// # Errors
    /// When there are no sockets any more.
    pub(crate) fn ask(session: &mut Session, window: Duration) -> Result<Self> {
        let osds = session.osds();
        let status_before = session.ask("status", &[]);
        let before = Look::take(session, &osds);
        let began_s = session.now_s();
        session.wait(window)?;
        let window_s = session.now_s() - began_s;
        let after = Look::take(session, &osds);
        let [blocked, pings] = session.tell_all(&osds, ["dump_blocked_ops", "dump_osd_network"]);
        Ok(Self {
            health: session.ask("health", &[("detail", "detail")]),
            status_before,
            status: session.ask("status", &[]),
            osd_df: session.ask("osd df", &[]),
            osd_perf: session.ask("osd perf", &[]),
            osd_metadata: session.ask("osd metadata", &[]),
            time_sync: session.ask("time-sync-status", &[]),
            before,
            after,
            window_s,
            blocked,
            pings,
        })
    }
}

/// All checks of a cluster.
pub(crate) fn check(facts: &Facts, report: &mut Report) {
    checks::health(facts, report);
    checks::slow_ops(facts, report);
    checks::pings(facts, report);
    checks::clocks(facts, report);
    checks::fill(facts, report);
    checks::pg_counts(facts, report);
    devices::builds(facts, report);
    devices::drivers(facts, report);
    devices::latencies(facts, report);
    let watched = watched::watched(facts);
    slow_device::check(facts, &watched, report);
    links::check(facts, report);
    space::check(facts, report);
    // Last, for it explains what nothing else has.
    checks::background(facts, report);
}
