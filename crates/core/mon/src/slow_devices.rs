//! OSDs whose devices fail slowly: named in the health and the cluster log, and relieved of their primaries while it lasts. Which are, is
//! for `nacre_mgr::slow_devices`, by what the OSDs report.
//!
//! An OSD is relieved by primary affinity 0, which all clients understand: reads, and the work of primaries, go to others. It stays in the
//! acting sets, so that writes of its PGs still wait for it, and nothing is copied. Never OSDs of more than one host at a time; where all
//! are on one host, one OSD. An operator who sets the affinity of a slow OSD himself has the last word until it is well.

use crate::batch::{Batch, Snapshot};
use crate::health::{Check, Severity};
use crate::mon::{Cx, Mon};
use crate::osd::view;
use crate::state::State;
use crate::stored_map::StoredMap;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_maps::{OsdMap, WEIGHT_ONE};
use nacre_mgr::slow_devices::{Change, Finding, SlowDevices};
use nacre_msg::{DeviceReport, LogPriority};
use nacre_types::{DeviceWork, OsdId, Stamp, UTime};
use std::collections::{BTreeMap, BTreeSet};

const TABLE: &str = "slow-devices";
/// What is written of one.
const TEXT_BYTES_MAX: usize = 1024;

/// What was done about a slow device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Measure {
    /// The primary affinity that the OSD had, and gets again; `None` where an operator has set it since, and it is left alone.
    pub(crate) affinity_before: Option<u32>,
    /// By which of its requests the device was found slow: the number of a [`DeviceWork`].
    work: u8,
    /// When that was.
    since: UTime,
    /// What was found.
    text: String,
}

impl Encode for Measure {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.affinity_before);
            w.u8(self.work);
            w.put(&self.since);
            w.put(&self.text);
        });
    }
}

impl Decode for Measure {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("measure against a slow device", 1, |_, r| {
            Ok(Self { affinity_before: r.get()?, work: r.u8()?, since: r.get()?, text: r.get()? })
        })
    }
}

/// What was done, in the tables; and what this leader has heard, which is its own.
#[derive(Debug)]
pub(crate) struct SlowOsds {
    pub(crate) found: SlowDevices,
    measures: StoredMap<BTreeMap<OsdId, Measure>>,
    /// `found` knows what an earlier leader had found.
    is_told: bool,
}

impl SlowOsds {
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<Self, DecodeError> {
        let measures = StoredMap::open(snapshot, TABLE, BTreeMap::new())?;
        Ok(Self { found: SlowDevices::default(), measures, is_told: false })
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.measures.is_dirty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        self.measures.flush(batch);
    }

    fn measure(&self, osd: OsdId) -> Option<&Measure> {
        self.measures.map().get(&osd)
    }

    /// OSDs that have affinity 0 by us, with what they had before.
    fn relieved(&self) -> impl Iterator<Item = (OsdId, u32)> {
        self.measures.map().iter().filter_map(|(osd, measure)| Some((*osd, measure.affinity_before?)))
    }

    fn set(&mut self, osd: OsdId, measure: Measure) {
        self.measures.update(|measures| measures.insert(osd, measure));
    }

    fn drop_measure(&mut self, osd: OsdId) -> Option<Measure> {
        self.measure(osd)?;
        self.measures.update(|measures| measures.remove(&osd))
    }

    /// An operator has set the primary affinity of the OSD: it is his until the device is well.
    pub(crate) fn operator_has_set(&mut self, osd: OsdId, wall: UTime) {
        let known = self.measure(osd).cloned();
        let named = || {
            let work = self.found.find(osd)?.finding?.work as u8;
            Some(Measure { affinity_before: None, work, since: wall, text: String::new() })
        };
        if let Some(measure) = known.or_else(named) {
            self.set(osd, Measure { affinity_before: None, ..measure });
        }
    }

    /// What an earlier leader did is taken up, once.
    fn take_up(&mut self, now: Stamp) {
        if !std::mem::replace(&mut self.is_told, true) {
            for (osd, measure) in self.measures.map() {
                let work = DeviceWork::ALL.get(usize::from(measure.work)).copied();
                self.found.remember(*osd, work.unwrap_or(DeviceWork::DurableWrite), now);
            }
        }
    }
}

/// How many times the time of its peers a device takes to be slow; 0 where nobody asks.
fn ratio(state: &State) -> f64 {
    let ratio = state.config.number_of_monitor("nacre_slow_device_ratio", 2.5);
    // Between devices of one model there is that much.
    if ratio > 0.0 { ratio.max(1.5) } else { 0.0 }
}

/// The device classes of the OSDs that serve.
fn classes(map: &OsdMap) -> BTreeMap<OsdId, String> {
    let class = |osd| map.crush.item_class_name(osd).map(str::to_owned).unwrap_or_default();
    map.up_osds().filter(|osd| map.is_in(*osd)).map(|osd| (osd, class(osd))).collect()
}

/// The host of an OSD; the OSD itself where there is only one host.
fn domain(map: &OsdMap, osd: OsdId) -> String {
    let host = |osd| view::location(&map.crush, osd).remove("host").unwrap_or_default();
    let own = host(osd);
    let has_others = map.up_osds().any(|other| map.is_in(other) && host(other) != own);
    if has_others { format!("host {own}") } else { format!("osd.{osd}") }
}

fn ms(us: f64) -> String {
    format!("{:.1} ms", us / 1000.0)
}

/// What was measured, in words.
fn describe(finding: &Finding) -> String {
    let Finding { work, median_us, p99_us, peers_median_us, peers_p99_us, .. } = *finding;
    let tail = if finding.is_tail { ", the slowest twentieth of them" } else { "" };
    format!(
        "{} take {:.1} times as long as those of {} others of its class{tail}: median {}, p99 {}, beside {} and {}; {} requests in {} s",
        work.name(),
        finding.ratio,
        finding.peers,
        ms(median_us),
        ms(p99_us),
        ms(peers_median_us),
        ms(peers_p99_us),
        finding.requests,
        finding.window_s
    )
}

/// The OSD with its host and the devices below it, as far as it has said.
fn place(state: &State, osd: OsdId) -> String {
    let facts = state.osd.metadata(osd);
    let fact = |name: &str| facts.and_then(|facts| facts.get(name)).filter(|text| !text.is_empty());
    let host = fact("hostname").map(|host| format!("host {host}"));
    let devices = fact("devices").map(|devices| format!("device {devices}"));
    let known: Vec<String> = host.into_iter().chain(devices).collect();
    if known.is_empty() { format!("osd.{osd}") } else { format!("osd.{osd} ({})", known.join(", ")) }
}

/// OSDs whose devices are slow, and what was done about each. Our own check: Ceph compares no devices.
pub(crate) fn check(state: &State) -> Option<Check> {
    let map = state.osd.map();
    let slow = state.slow_osds.found.slow().filter(|(osd, _)| map.is_up(*osd));
    let line = |(osd, slow): (OsdId, &nacre_mgr::slow_devices::SlowDevice)| {
        let measure = state.slow_osds.measure(osd);
        let found = slow.finding.as_ref().map(describe);
        let found = found.or_else(|| Some(measure?.text.clone())).unwrap_or_default();
        let done = match measure.map(|measure| measure.affinity_before) {
            Some(Some(before)) => {
                let before = share(before);
                format!(
                    "it leads no PGs while that lasts: its primary affinity is 0 and will be {before} again"
                )
            }
            Some(None) => "its primary affinity was set by hand and is left alone".to_owned(),
            None => "it keeps its PGs for now".to_owned(),
        };
        format!("{}: {found}; {done}", place(state, osd))
    };
    let lines: Vec<String> = slow.map(line).collect();
    let what = if lines.len() == 1 { "OSD has a slow device" } else { "OSDs have slow devices" };
    let summary = format!("{} {what}", lines.len());
    (!lines.is_empty()).then(|| Check::new("OSD_SLOW_DEVICE", Severity::Warn, summary, lines))
}

impl Mon {
    pub(crate) fn device_report(&mut self, osd: OsdId, report: &DeviceReport) {
        if self.state.osd.map().is_up(osd) {
            self.state.slow_osds.found.report(osd, &report.latencies);
        }
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
                Change::Well(osd) => {
                    let text = format!("{}: its device is as fast as others again", place(&self.state, osd));
                    self.state.clog(LogPriority::INFO, cx.wall, text);
                    self.end_measure(osd, cx.wall);
                }
            }
        }
        self.check_measures(&map, cx.wall);
        if ratio > 0.0 && self.state.config.flag_of_monitor("nacre_slow_device_relieve") {
            self.relieve_one(&map, cx.wall);
        }
    }

    /// Gives the OSD back what it had.
    fn end_measure(&mut self, osd: OsdId, wall: UTime) {
        let measure = self.state.slow_osds.drop_measure(osd);
        let Some(before) = measure.and_then(|measure| measure.affinity_before) else { return };
        if self.state.osd.upcoming().primary_affinity(osd) == 0 {
            self.state.osd.change().new_primary_affinity.insert(osd, before);
            let text = format!("osd.{osd} leads its PGs again: primary affinity {}", share(before));
            self.state.clog(LogPriority::INFO, wall, text);
        }
    }

    /// What was done ends with its OSD, and with the option; whatever has made the affinity another one meanwhile was an operator's doing.
    fn check_measures(&mut self, map: &OsdMap, wall: UTime) {
        let gone: Vec<OsdId> =
            self.state.slow_osds.measures.map().keys().copied().filter(|osd| !map.exists(*osd)).collect();
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
        let relieved: BTreeSet<String> = slow.relieved().map(|(osd, _)| domain(map, osd)).collect();
        let is_next = |osd: OsdId| {
            map.is_up(osd)
                && slow.measure(osd).is_none()
                && relieved.iter().all(|relieved| *relieved == domain(map, osd))
        };
        let lasting = slow.found.slow().filter(|(osd, slow)| slow.is_lasting && is_next(*osd));
        let worst = lasting.filter_map(|(osd, slow)| Some((osd, slow.finding?)));
        let Some((osd, finding)) = worst.max_by(|(_, a), (_, b)| a.ratio.total_cmp(&b.ratio)) else { return };
        let before = self.state.osd.upcoming().primary_affinity(osd);
        if before == 0 {
            // Nothing is left to do.
            return;
        }
        let mut text = describe(&finding);
        text.truncate(TEXT_BYTES_MAX);
        let measure = Measure { affinity_before: Some(before), work: finding.work as u8, since: wall, text };
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

fn share(affinity: u32) -> f64 {
    f64::from(affinity) / f64::from(WEIGHT_ONE)
}
