//! Asks devices how they are: which, when and by whom is decided here, by what [`DeviceScrapes`] remembers.
//!
//! Ceph's manager asks all daemons one after the other, once a day. Here the monitor that leads asks one OSD of each device, which answers when
//! `smartctl` has: at most eight devices in a second and one of an OSD at a time, so that a thousand OSDs that start together are asked within
//! two minutes and never at once; first those that were not asked for the longest. A device is due when what it said last is older than
//! `mgr/devicehealth/scrape_frequency`, or than an hour where it said that something is wrong, whoever led then; when an OSD boots, which it
//! may do because of its device, after an hour; and when an operator wants it. After an error the next OSD of the device is asked. A device
//! that several hosts name is not asked: it would be several ([`Device::ambiguity`]).

use crate::device_faults::faults;
use crate::device_module::{
    ENABLE_MONITORING, RETENTION_PERIOD, RETENTION_PERIOD_S, SCRAPE_FREQUENCY, SCRAPE_FREQUENCY_S,
    SCRAPE_FREQUENCY_S_MIN, WARN_THRESHOLD, WARN_THRESHOLD_S,
};
use crate::device_samples::{DEVICES_COUNT_MAX, Sample};
use crate::device_scrapes::{DeviceScrapes, RETRY};
use crate::devices::{self, Device};
use crate::event::SessionId;
use crate::mon::{Cx, Mon};
use crate::session::Session;
use crate::state::State;
use nacre_buf::Bytes;
use nacre_msg::{DEVICE_ERROR_BYTES_MAX, DEVICE_JSON_BYTES_MAX, DeviceHealthReport, DeviceHealthWanted};
use nacre_types::{OsdId, Stamp};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Devices that are asked in one second.
pub(crate) const ASKED_PER_TICK_MAX: usize = 8;
/// What an OSD may take beside the time that `osd_smart_report_timeout` gives a device.
const PATIENCE: Duration = Duration::from_secs(30);
/// An OSD that boots is not asked again about devices that said something since.
const FRESH: Duration = Duration::from_secs(3600);
/// A device that said that something is wrong is asked again then, unless `scrape_frequency` is less: health is to say when it is over.
const FAULTY: Duration = Duration::from_secs(3600);

/// Whether devices are asked, and health speaks of what they say. A stock manager does both itself.
pub(crate) fn is_enabled(state: &State) -> bool {
    state.mgr.own_is_active() && state.option_of_managers(ENABLE_MONITORING) != Some("false")
}

fn span(state: &State, path: &str, default: u64) -> Duration {
    let stored = state.option_of_managers(path).and_then(|text| text.parse().ok());
    Duration::from_secs(stored.unwrap_or(default))
}

fn scrape_frequency(state: &State) -> Duration {
    span(state, SCRAPE_FREQUENCY, SCRAPE_FREQUENCY_S).max(Duration::from_secs(SCRAPE_FREQUENCY_S_MIN))
}

fn retention_period(state: &State) -> Duration {
    span(state, RETENTION_PERIOD, RETENTION_PERIOD_S)
}

/// Health speaks of devices whose life expectancy ends within this time.
pub(crate) fn warn_threshold(state: &State) -> Duration {
    span(state, WARN_THRESHOLD, WARN_THRESHOLD_S)
}

/// One line of bounded length.
fn shown(text: &str) -> String {
    let cut = &text[..text.floor_char_boundary(DEVICE_ERROR_BYTES_MAX)];
    let line: String = cut.chars().filter(|letter| !letter.is_control()).collect();
    if line.is_empty() { "its OSD does not say why".to_owned() } else { line }
}

/// What is too long, or no JSON object, is nothing that an OSD of ours says.
fn checked(json: Bytes) -> Bytes {
    let is_object = || serde_json::from_slice::<Map<String, Value>>(&json).is_ok();
    if json.len() <= DEVICE_JSON_BYTES_MAX && is_object() { json } else { Bytes::new() }
}

impl Mon {
    /// Asks the devices that are due, as many as may be asked in a second.
    pub(crate) fn tick_device_scrapes(&mut self, cx: &Cx<'_>) {
        if !self.state.mgr.own_is_active() {
            self.state.device_scrapes = DeviceScrapes::default();
            return;
        }
        let is_enabled = is_enabled(&self.state);
        if !is_enabled && self.state.device_scrapes.is_idle() {
            return;
        }
        let devices = devices::devices(&self.state);
        let patience = nacre_types::seconds(self.state.number_of_osds("osd_smart_report_timeout"));
        let patience = patience.saturating_add(PATIENCE);
        self.state.device_scrapes.expire(cx.now, patience, |device| devices.contains_key(device));
        self.state.prune_device_samples(cx.now, &devices);
        for (device, osd, session) in self.device_orders(cx.now, &devices, is_enabled) {
            self.state.device_scrapes.begin(&device, osd, cx.now);
            self.send(session, 0, DeviceHealthWanted { device });
        }
    }

    /// Who is to be asked about what now; first what an operator wants.
    fn device_orders(
        &self,
        now: Stamp,
        devices: &BTreeMap<String, Device>,
        is_enabled: bool,
    ) -> Vec<(String, OsdId, SessionId)> {
        let (state, scrapes) = (&self.state, &self.state.device_scrapes);
        let frequency = scrape_frequency(state);
        let is_due =
            |id: &&String| is_enabled && !scrapes.is_wanted(id) && state.is_device_due(id, frequency, now);
        let due = devices.keys().filter(is_due);
        let all = scrapes.wanted().chain(due).filter(|id| scrapes.may_ask(id, now));
        let with_devices = all.filter_map(|id| Some((id, devices.get(id)?)));
        let mut all: Vec<(&String, &Device)> =
            with_devices.filter(|(_, device)| device.ambiguity().is_none()).collect();
        all.sort_by_key(|(id, _)| (!scrapes.is_wanted(id), scrapes.asked_at(id)));
        let mut busy = scrapes.busy();
        let mut orders = Vec::new();
        for (id, device) in all {
            if let Some((osd, session)) = self.idle_osd(id, device, &busy) {
                busy.insert(osd);
                orders.push((id.clone(), osd, session));
            }
            if orders.len() >= ASKED_PER_TICK_MAX {
                break;
            }
        }
        orders
    }

    /// The first OSD of a device that can be asked and is not busy; after one that could not ask it the next comes first.
    fn idle_osd(&self, id: &str, device: &Device, busy: &BTreeSet<OsdId>) -> Option<(OsdId, SessionId)> {
        let (before, after): (Vec<OsdId>, Vec<OsdId>) = match self.state.device_scrapes.failed(id) {
            Some(failed) => device.osds.iter().partition(|osd| **osd <= failed),
            None => (Vec::new(), device.osds.iter().copied().collect()),
        };
        let mut idle = after.into_iter().chain(before);
        idle.find_map(|osd| {
            let may_ask = self.state.osd.map().is_up(osd) && !busy.contains(&osd);
            Some((osd, self.asker(osd).filter(|_| may_ask)?))
        })
    }

    /// The session of an OSD that can be asked: it has subscribed to being asked, which nothing else serves.
    fn asker(&self, osd: OsdId) -> Option<SessionId> {
        let session = *self.osd_sessions.get(&osd)?;
        let can_be_asked = |entry: &Session| entry.subscriptions.get(DeviceHealthWanted::TOPIC).is_some();
        self.sessions.get(&session).is_some_and(can_be_asked).then_some(session)
    }

    /// An OSD says how a device is, or why it cannot. It speaks only for devices that it has named and was asked about.
    pub(crate) fn device_health(&mut self, cx: &Cx<'_>, osd: OsdId, report: DeviceHealthReport) {
        let DeviceHealthReport { device, health, error, json } = report;
        let is_asked = self.state.device_scrapes.end(&device, osd);
        if !is_asked || !devices::names(&self.state, osd, &device) {
            return;
        }
        let Some(health) = health else {
            return self.state.device_scrapes.set_error(&device, Some(shown(&error)));
        };
        if !self.state.has_room_for_samples(&device) {
            let error =
                format!("the monitors keep what {DEVICES_COUNT_MAX} devices say, and there are more in use");
            return self.state.device_scrapes.set_error(&device, Some(error));
        }
        self.state.device_scrapes.set_error(&device, None);
        let retention = retention_period(&self.state);
        self.state.device_samples.note(&device, Sample { at: cx.wall, health }, checked(json), retention);
    }
}

impl State {
    fn is_device_due(&self, device: &str, frequency: Duration, now: Stamp) -> bool {
        let (newest, scrapes) = (self.device_samples.newest(device), &self.device_scrapes);
        let is_faulty = newest.is_some_and(|sample| !faults(&sample.health).is_empty());
        let frequency = if is_faulty { frequency.min(FAULTY) } else { frequency };
        // A sample of a time that is still to come is of a clock that was wrong.
        let is_recent = |sample: &Sample| sample.at <= self.wall && self.wall.since(sample.at) < frequency;
        let is_old = !newest.is_some_and(is_recent);
        let is_time = is_old && !scrapes.was_asked_within(frequency.min(RETRY), device, now);
        is_time || scrapes.is_stale(device)
    }

    /// Whether samples of a device can be kept, perhaps in the place of one that nobody uses any more.
    fn has_room_for_samples(&mut self, device: &str) -> bool {
        self.device_samples.has_room(device) || {
            let used = devices::devices(self);
            self.device_samples.make_room(|id| used.contains_key(id))
        }
    }

    /// An OSD has booted, perhaps because of a device: they are asked, unless they were not long ago.
    pub(crate) fn ask_devices_of(&mut self, osd: OsdId) {
        if !is_enabled(self) {
            return;
        }
        let Some(facts) = self.osd.shared_metadata(osd).cloned() else { return };
        for (_, device) in devices::named(&facts) {
            let newest = self.device_samples.newest(device);
            if newest.is_none_or(|sample| self.wall.since(sample.at) >= FRESH) {
                self.device_scrapes.make_stale(device);
            }
        }
    }

    fn prune_device_samples(&mut self, now: Stamp, devices: &BTreeMap<String, Device>) {
        if self.device_scrapes.prune_is_due(now) {
            let retention = retention_period(self);
            self.device_samples.prune(retention, self.wall, |device| devices.contains_key(device));
        }
    }
}
