//! Failure reports: which OSDs report that another does not answer, and when that is enough to mark it down.

use super::{OsdMaps, view};
use crate::config::ConfigDb;
use nacre_maps::OsdMap;
use nacre_types::{AddrVec, Epoch, OsdId, Stamp, UTime, seconds};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// One report, as `MOSDFailure` carries it.
#[derive(Debug, Clone)]
pub struct FailureReport {
    /// The OSD that reports.
    pub reporter: OsdId,
    /// The OSD that does not answer.
    pub target: OsdId,
    /// The instance meant.
    pub target_addrs: AddrVec,
    /// False when it answers again.
    pub failed: bool,
    /// True when the connection was refused, so that the grace need not pass.
    pub immediate: bool,
    /// For how long it has not answered.
    pub failed_for: Duration,
    /// The reporter's map.
    pub epoch: Epoch,
}

/// An OSD marked down by reports, for the cluster log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) osd: OsdId,
    pub(crate) reporters: usize,
    pub(crate) after: Duration,
    pub(crate) grace: Duration,
    pub(crate) immediate: bool,
}

/// As Ceph's cluster log says it, near enough for a person who reads it.
impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { osd, reporters, after, grace, immediate } = self;
        if *immediate {
            return write!(f, "osd.{osd} reported immediately failed by {reporters} reporter(s)");
        }
        let (after, grace) = (after.as_secs_f64(), grace.as_secs_f64());
        write!(f, "osd.{osd} failed ({reporters} reporters after {after:.6} >= grace {grace:.6})")
    }
}

/// Standing reports: target to reporter to the moment since which it does not answer.
#[derive(Debug, Default)]
pub(super) struct Failures {
    reports: BTreeMap<OsdId, BTreeMap<OsdId, Stamp>>,
}

impl Failures {
    pub(super) fn forget_target(&mut self, target: OsdId) {
        self.reports.remove(&target);
    }

    fn forget_reporter(&mut self, reporter: OsdId) {
        self.reports.retain(|_, reporters| {
            reporters.remove(&reporter);
            !reporters.is_empty()
        });
    }
}

/// Name of the bucket of type `level` above `osd`, or the OSD itself where there is none.
fn failure_domain(map: &OsdMap, osd: OsdId, level: &str) -> String {
    view::location(&map.crush, osd).remove(level).unwrap_or_else(|| format!("osd.{osd}"))
}

/// How long the target may be silent before it counts as failed: longer when it, or those who report it, are
/// known to lag. As in Ceph's `OSDMonitor::check_failure`; but never more than twice the grace, or a cluster
/// whose machines once froze would leave its clients waiting for minutes when one dies.
fn adjusted_grace<'a>(
    map: &OsdMap,
    target: OsdId,
    reporters: impl ExactSizeIterator<Item = &'a OsdId>,
    silent_for: Duration,
    config: &ConfigDb,
) -> Duration {
    let grace = config.number_of_monitor("osd_heartbeat_grace", 7.0).max(0.0);
    if !config.flag_of_monitor("mon_osd_adjust_heartbeat_grace") {
        return seconds(grace);
    }
    let halflife = config.number_of_monitor("mon_osd_laggy_halflife", 3600.0).max(1.0);
    let decay = 0.5_f64.powf(silent_for.as_secs_f64() / halflife);
    let lag = |osd: OsdId| {
        let info = map.xinfo(osd);
        let probability = f64::from(info.laggy_probability) / f64::from(u32::MAX);
        decay * f64::from(info.laggy_interval) * probability
    };
    let count = reporters.len().max(1) as f64;
    let of_reporters = reporters.map(|osd| lag(*osd)).sum::<f64>() / count;
    seconds((grace + lag(target) + of_reporters).min(grace * 2.0))
}

impl OsdMaps {
    /// Takes in a report; marks the target down when there are enough of them for long enough.
    pub(crate) fn report_failure(
        &mut self,
        report: &FailureReport,
        now: Stamp,
        wall: UTime,
        config: &ConfigDb,
    ) -> Option<Failed> {
        let map = self.upcoming();
        let addrs = usize::try_from(report.target).ok().and_then(|at| map.client_addrs.get(at));
        let known = map.is_up(report.target) && addrs == Some(&report.target_addrs);
        if !known || !map.is_up(report.reporter) || report.reporter == report.target {
            return None;
        }
        if !report.failed {
            self.withdraw(report.target, report.reporter);
            return None;
        }
        let since =
            Stamp(now.0.saturating_sub(u64::try_from(report.failed_for.as_nanos()).unwrap_or(u64::MAX)));
        let reporters = self.failures.reports.entry(report.target).or_default();
        reporters.insert(report.reporter, since);
        if report.immediate && self.may_mark_down(report.target, config) {
            self.mark_down(report.target, wall);
            // Its process is gone, so it answers no client any more.
            self.mark_dead(report.target);
            let (after, grace) = (report.failed_for, Duration::ZERO);
            return Some(Failed { osd: report.target, reporters: 1, after, grace, immediate: true });
        }
        self.judge(report.target, now, wall, config)
    }

    fn withdraw(&mut self, target: OsdId, reporter: OsdId) {
        if let Some(reporters) = self.failures.reports.get_mut(&target) {
            reporters.remove(&reporter);
            if reporters.is_empty() {
                self.failures.forget_target(target);
            }
        }
    }

    /// Judges all standing reports again: time alone can make one long enough.
    pub(crate) fn judge_failures(&mut self, now: Stamp, wall: UTime, config: &ConfigDb) -> Vec<Failed> {
        let down: Vec<OsdId> = {
            let map = &self.latest;
            let reporters = self.failures.reports.values().flat_map(BTreeMap::keys);
            reporters.filter(|osd| !map.is_up(**osd)).copied().collect()
        };
        down.into_iter().for_each(|osd| self.failures.forget_reporter(osd));
        let targets: Vec<OsdId> = self.failures.reports.keys().copied().collect();
        targets.into_iter().filter_map(|target| self.judge(target, now, wall, config)).collect()
    }

    fn judge(&mut self, target: OsdId, now: Stamp, wall: UTime, config: &ConfigDb) -> Option<Failed> {
        let reporters = self.failures.reports.get(&target)?;
        let since = reporters.values().min().copied()?;
        let after = now.since(since);
        let grace = adjusted_grace(&self.latest, target, reporters.keys(), after, config);
        if after < grace || !self.has_enough_reporters(target, config) || !self.may_mark_down(target, config)
        {
            return None;
        }
        let reporters = self.failures.reports.get(&target).map_or(0, BTreeMap::len);
        self.mark_down(target, wall);
        Some(Failed { osd: target, reporters, after, grace, immediate: false })
    }

    /// Reporters count by failure domain, so that one cut-off host cannot mark the others down. Where there
    /// are fewer domains with running OSDs than reporters wanted, all of those that there are suffice, and on a
    /// single host the OSDs themselves count: else a small cluster would never notice a dead OSD.
    fn has_enough_reporters(&self, target: OsdId, config: &ConfigDb) -> bool {
        let Some(reporters) = self.failures.reports.get(&target) else { return false };
        let map = &self.latest;
        let level = config.of_monitor("mon_osd_reporter_subtree_level").unwrap_or("host");
        let wanted = config.number_of_monitor("mon_osd_min_down_reporters", 2.0) as usize;
        let others = || map.up_osds().filter(|osd| *osd != target);
        let domains: BTreeSet<String> = others().map(|osd| failure_domain(map, osd, level)).collect();
        let (found, possible) = if domains.len() > 1 {
            let found: BTreeSet<String> =
                reporters.keys().map(|osd| failure_domain(map, *osd, level)).collect();
            (found.len(), domains.len())
        } else {
            (reporters.len(), others().count())
        };
        found >= wanted.min(possible).max(1)
    }

    /// The running OSDs that others report, with the number of reporters.
    pub fn reported_failures(&self) -> impl Iterator<Item = (OsdId, usize)> + '_ {
        self.failures.reports.iter().map(|(target, reporters)| (*target, reporters.len()))
    }
}
