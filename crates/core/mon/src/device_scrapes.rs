//! [`DeviceScrapes`]: which devices were asked how they are, and are to be. Who asks them is `device_asking`.

use crate::device_samples::DEVICES_COUNT_MAX;
use nacre_types::{OsdId, Stamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A device that could not be asked is asked again then, unless `scrape_frequency` is less.
pub(crate) const RETRY: Duration = Duration::from_secs(3600);
/// No device is asked oftener, whoever wants it: some stand still while they answer.
const ASK_INTERVAL_MIN: Duration = Duration::from_secs(10);
/// While no OSD that could ask it is up, an order to ask a device holds this long.
const WANTED_FOR: Duration = Duration::from_secs(600);
/// Devices that nobody uses are looked for this often.
const PRUNE_INTERVAL: Duration = Duration::from_secs(3600);

/// What this leader knows of asking devices. Not durable: what they said is ([`crate::device_samples`]).
#[derive(Debug, Default)]
pub(crate) struct DeviceScrapes {
    /// Who was asked about a device and has not answered, and when.
    under_way: BTreeMap<String, (OsdId, Stamp)>,
    /// OSDs that nobody waits for any more, by the device that they were asked about: what one says yet is news all the same.
    late: BTreeMap<String, OsdId>,
    /// Which OSD was asked about a device last, and when.
    asked: BTreeMap<String, (OsdId, Stamp)>,
    /// Devices that are to be asked although they are not due, and since when.
    wanted: BTreeMap<String, Stamp>,
    /// Devices of OSDs that have booted since they said something: they are due.
    stale: BTreeSet<String>,
    /// Why devices could not be asked the last time.
    errors: BTreeMap<String, String>,
    /// When devices that nobody uses were looked for last.
    pruned: Stamp,
}

impl DeviceScrapes {
    /// A device is to be asked soon. False when too many are waiting.
    pub(crate) fn want(&mut self, device: &str, now: Stamp) -> bool {
        let has_room = self.wanted.len() < DEVICES_COUNT_MAX || self.wanted.contains_key(device);
        if has_room {
            self.wanted.insert(device.to_owned(), now);
        }
        has_room
    }

    /// Why a device could not be asked the last time.
    pub(crate) fn error(&self, device: &str) -> Option<&str> {
        self.errors.get(device).map(String::as_str)
    }

    /// A device could not be asked, for this reason; or could, where there is none.
    pub(crate) fn set_error(&mut self, device: &str, error: Option<String>) {
        match error {
            Some(error) => drop(self.errors.insert(device.to_owned(), error)),
            None => drop(self.errors.remove(device)),
        }
    }

    /// A device is due: an OSD that uses it has booted.
    pub(crate) fn make_stale(&mut self, device: &str) {
        self.stale.insert(device.to_owned());
    }

    pub(crate) fn is_stale(&self, device: &str) -> bool {
        self.stale.contains(device)
    }

    /// Devices that are to be asked although they are not due.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = &String> {
        self.wanted.keys()
    }

    pub(crate) fn is_wanted(&self, device: &str) -> bool {
        self.wanted.contains_key(device)
    }

    /// OSDs that have not answered yet.
    pub(crate) fn busy(&self) -> BTreeSet<OsdId> {
        self.under_way.values().map(|(osd, _)| *osd).collect()
    }

    /// Whether a device was asked within this time.
    pub(crate) fn was_asked_within(&self, span: Duration, device: &str, now: Stamp) -> bool {
        self.asked_at(device).is_some_and(|asked| now.since(asked) < span)
    }

    /// When a device was asked last.
    pub(crate) fn asked_at(&self, device: &str) -> Option<Stamp> {
        self.asked.get(device).map(|(_, at)| *at)
    }

    /// The OSD that could not ask the device the last time: the next one may.
    pub(crate) fn failed(&self, device: &str) -> Option<OsdId> {
        let (osd, _) = self.asked.get(device)?;
        self.errors.contains_key(device).then_some(*osd)
    }

    /// Whether a device may be asked at all now.
    pub(crate) fn may_ask(&self, device: &str, now: Stamp) -> bool {
        !self.under_way.contains_key(device) && !self.was_asked_within(ASK_INTERVAL_MIN, device, now)
    }

    /// Nobody is to be asked, and nobody was.
    pub(crate) fn is_idle(&self) -> bool {
        self.wanted.is_empty() && self.under_way.is_empty()
    }

    /// An OSD is asked about a device.
    pub(crate) fn begin(&mut self, device: &str, osd: OsdId, now: Stamp) {
        self.wanted.remove(device);
        self.stale.remove(device);
        self.late.remove(device);
        self.asked.insert(device.to_owned(), (osd, now));
        self.under_way.insert(device.to_owned(), (osd, now));
    }

    /// An OSD answers. True when it was this one that was asked about the device last, and has not answered yet. It may take longer than
    /// anybody waits for it: an option that is set for it alone is not known here.
    pub(crate) fn end(&mut self, device: &str, osd: OsdId) -> bool {
        let is_asked = self.under_way.get(device).is_some_and(|(asked, _)| *asked == osd);
        let is_late = self.late.get(device) == Some(&osd);
        is_asked && self.under_way.remove(device).is_some() || is_late && self.late.remove(device).is_some()
    }

    /// True once in a while: devices that nobody uses are to be looked for.
    pub(crate) fn prune_is_due(&mut self, now: Stamp) -> bool {
        let is_due = now.since(self.pruned) >= PRUNE_INTERVAL;
        if is_due {
            self.pruned = now;
        }
        is_due
    }

    /// What has waited for too long fails, and what is not there any more is forgotten.
    pub(crate) fn expire(&mut self, now: Stamp, patience: Duration, is_used: impl Fn(&str) -> bool) {
        let Self { under_way, late, asked, wanted, stale, errors, .. } = self;
        let mut fail = |device: &str, error: String| drop(errors.insert(device.to_owned(), error));
        under_way.retain(|device, (osd, since)| {
            let is_late = now.since(*since) > patience;
            if is_late {
                fail(device, format!("osd.{osd} has not answered within {} s", patience.as_secs()));
                late.insert(device.clone(), *osd);
            }
            !is_late
        });
        late.retain(|device, _| is_used(device));
        wanted.retain(|device, since| {
            let is_late = now.since(*since) > WANTED_FOR;
            if is_late {
                fail(device, "no OSD that could ask it was up".to_owned());
            }
            !is_late
        });
        asked.retain(|device, _| is_used(device));
        stale.retain(|device| is_used(device));
        errors.retain(|device, _| is_used(device));
    }
}
