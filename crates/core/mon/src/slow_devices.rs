//! OSDs whose devices fail slowly: named in the health and the cluster log, and relieved of their primaries while it lasts. Which are, is
//! for `nacre_mgr::slow_devices`, by what the OSDs report.
//!
//! An OSD is relieved by primary affinity 0, which all clients understand: reads, and the work of primaries, go to others. It stays in the
//! acting sets, so that writes of its PGs still wait for it; where that lasts, one OSD at a time is marked out (`slow_osd_out`). Never OSDs
//! of more than one host at a time; where all are on one host, one OSD. An operator who sets the affinity or the weight of a slow OSD
//! himself has the last word until it is well.

use crate::health::device_checks::place;
use crate::mon::{Cx, Mon};
use crate::osd::view;
use crate::slow_osds::{MarkedOut, Measure, describe, share};
use crate::state::State;
use nacre_maps::OsdMap;
use nacre_mgr::slow_devices::Change;
use nacre_msg::{DeviceReport, LogPriority};
use nacre_types::{OsdId, UTime};
use std::collections::{BTreeMap, BTreeSet};

/// How many times the time of its peers a device takes to be slow; 0 where nobody asks.
pub(crate) fn ratio(state: &State) -> f64 {
    let ratio = state.config.number_of_monitor("nacre_slow_device_ratio", 2.0);
    // Between devices of one model there is that much.
    if ratio > 0.0 { ratio.max(1.5) } else { 0.0 }
}

/// The device classes of the OSDs that are up; also of one that is out, whose PGs are copied while it serves them.
fn classes(map: &OsdMap) -> BTreeMap<OsdId, String> {
    let class = |osd| map.crush.item_class_name(osd).map(str::to_owned).unwrap_or_default();
    map.up_osds().map(|osd| (osd, class(osd))).collect()
}

/// The host of an OSD; the OSD itself where there is only one host.
fn domain(map: &OsdMap, osd: OsdId) -> String {
    let host = |osd| view::location(&map.crush, osd).remove("host").unwrap_or_default();
    let own = host(osd);
    let has_others = map.up_osds().any(|other| map.is_in(other) && host(other) != own);
    if has_others { format!("host {own}") } else { format!("osd.{osd}") }
}

impl Mon {
    pub(crate) fn device_report(&mut self, cx: &Cx<'_>, osd: OsdId, report: DeviceReport) {
        if !self.state.osd.map().is_up(osd) {
            return;
        }
        // One whose store has no device tells only of pings.
        if !report.latencies.is_empty() {
            self.state.slow_osds.found.report(osd, &report.latencies);
        }
        self.state.stats.least_pings.report(osd, report.pings, cx.now);
    }

    /// Judges the devices, and does what follows.
    pub(crate) fn tick_slow_devices(&mut self, cx: &Cx<'_>) {
        let map = std::sync::Arc::clone(self.state.osd.map());
        let ratio = ratio(&self.state);
        self.state.slow_osds.take_up(cx.now);
        self.state.slow_osds.found.retain(|osd| map.exists(osd));
        for change in self.state.slow_osds.found.judge(|| classes(&map), ratio, cx.now) {
            match change {
                Change::Slow(osd, finding) => {
                    let text =
                        format!("{} has a slow device: {}", place(&self.state, osd), describe(&finding));
                    self.state.clog(LogPriority::WARN, cx.wall, text);
                }
                Change::Well(osd) => self.end_slow(osd, "its device is as fast as others again", cx.wall),
                Change::Unjudged(osd) => {
                    let why = "nobody can say any more whether its device is slow: it counts as well";
                    self.end_slow(osd, why, cx.wall);
                }
            }
        }
        self.check_measures(&map, cx.wall);
        if ratio > 0.0 && self.state.config.flag_of_monitor("nacre_slow_device_relieve") {
            self.relieve_one(&map, cx.wall);
        }
        self.tick_slow_osds_out(&map, cx.wall);
    }

    /// A device is named no more, and why.
    fn end_slow(&mut self, osd: OsdId, why: &str, wall: UTime) {
        let text = format!("{}: {why}", place(&self.state, osd));
        self.state.clog(LogPriority::INFO, wall, text);
        self.end_measure(osd, wall);
    }

    /// Gives the OSD back what it had.
    fn end_measure(&mut self, osd: OsdId, wall: UTime) {
        let Some(measure) = self.state.slow_osds.drop_measure(osd) else { return };
        if let MarkedOut::ByUs(weight) = measure.out {
            self.mark_in_again(osd, weight, wall);
        }
        let Some(before) = measure.affinity_before else { return };
        if self.state.osd.upcoming().primary_affinity(osd) == 0 {
            self.state.osd.change().new_primary_affinity.insert(osd, before);
            let text = format!("osd.{osd} leads its PGs again: primary affinity {}", share(before));
            self.state.clog(LogPriority::INFO, wall, text);
        }
    }

    /// What was done ends with its OSD, and with the option; whatever has made the affinity another one meanwhile was an operator's doing.
    fn check_measures(&mut self, map: &OsdMap, wall: UTime) {
        let gone: Vec<OsdId> = self.state.slow_osds.concerned().filter(|osd| !map.exists(*osd)).collect();
        for osd in gone {
            self.state.slow_osds.drop_measure(osd);
        }
        let wanted = self.state.config.flag_of_monitor("nacre_slow_device_relieve");
        let relieved: Vec<OsdId> = self.state.slow_osds.relieved().map(|(osd, _)| osd).collect();
        for osd in relieved {
            if self.state.osd.upcoming().primary_affinity(osd) != 0 {
                self.state.slow_osds.operator_has_set(osd, wall);
            } else if !wanted {
                self.end_measure(osd, wall);
            }
        }
    }

    /// Relieves an OSD that has been slow for long enough, if it is of the failure domain of those that are, and the only one where that is
    /// an OSD.
    fn relieve_one(&mut self, map: &OsdMap, wall: UTime) {
        let slow = &self.state.slow_osds;
        // One that is down or out serves nobody, whatever its affinity.
        let serves = |osd: OsdId| map.is_up(osd) && map.is_in(osd);
        let relieved = slow.relieved().filter(|(osd, _)| serves(*osd));
        let relieved: BTreeSet<String> = relieved.map(|(osd, _)| domain(map, osd)).collect();
        let upcoming = self.state.osd.upcoming();
        let is_next = |osd: OsdId| {
            serves(osd)
                && upcoming.primary_affinity(osd) > 0
                && slow.measure(osd).is_none()
                && relieved.iter().all(|relieved| *relieved == domain(map, osd))
        };
        let lasting = slow.found.slow().filter(|(osd, slow)| slow.is_lasting && is_next(*osd));
        let worst = lasting.filter_map(|(osd, slow)| Some((osd, slow.finding?, slow.was_well)));
        let worst = worst.max_by(|(_, a, _), (_, b, _)| a.ratio.total_cmp(&b.ratio));
        let Some((osd, finding, was_well)) = worst else { return };
        let before = upcoming.primary_affinity(osd);
        let (work, text) = (finding.work as u8, describe(&finding));
        let out = MarkedOut::No;
        let measure = Measure { affinity_before: Some(before), work, since: wall, text, out, was_well };
        self.state.slow_osds.set(osd, measure);
        self.state.osd.change().new_primary_affinity.insert(osd, 0);
        let place = place(&self.state, osd);
        let text = format!(
            "{place} leads no PGs while its device is slow: primary affinity 0 instead of {}",
            share(before)
        );
        self.state.clog(LogPriority::WARN, wall, text);
    }
}
