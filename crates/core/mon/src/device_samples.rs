//! [`DeviceSamples`]: what devices said of themselves, and when. A table of its own: a record by device, which outlives leaders.

use crate::batch::{Batch, Snapshot};
use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_msg::{DEVICE_JSON_BYTES_MAX, DeviceHealth};
use nacre_types::UTime;
use std::collections::BTreeMap;
use std::time::Duration;

const TABLE: &str = "device-health";
/// Devices that are remembered, of some 30 KiB at most. For one more a device that nobody uses is forgotten; none that is in use.
pub(crate) const DEVICES_COUNT_MAX: usize = 5000;
/// Samples of one device: half a year of one a day. One more, and of earlier days only the last stays; then the oldest is forgotten.
const SAMPLES_COUNT_MAX: usize = 200;

/// What a device said at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) at: UTime,
    pub(crate) health: DeviceHealth,
}

impl Encode for Sample {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.at);
        w.put(&self.health);
    }
}

impl Decode for Sample {
    const MIN_BYTES: usize = UTime::MIN_BYTES + DeviceHealth::MIN_BYTES;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { at: r.get()?, health: r.get()? })
    }
}

/// All that is kept of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct DeviceRecord {
    /// The oldest first, one at least.
    pub(crate) samples: Vec<Sample>,
    /// What `smartctl` said for the newest, as JSON; empty where that was too much. Of older ones it is not kept: half a year of it would be
    /// more than all else that monitors keep.
    pub(crate) json: Bytes,
}

impl DeviceRecord {
    pub(crate) fn newest(&self) -> Option<&Sample> {
        self.samples.last()
    }
}

impl Encode for DeviceRecord {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.samples);
            w.put(&self.json);
        });
    }
}

impl Decode for DeviceRecord {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("samples of a device", 1, |_, r| Ok(Self { samples: r.get()?, json: r.get()? }))
    }
}

/// Records by the devices' ids.
#[derive(Debug, Default)]
pub(crate) struct DeviceSamples {
    known: BTreeMap<String, DeviceRecord>,
    changes: Batch,
}

impl DeviceSamples {
    /// What is of another version is forgotten: devices are asked again.
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Self {
        let pairs = snapshot.scan(TABLE).into_iter();
        let known = pairs.filter_map(|(device, value)| Some((device, DeviceRecord::from_bytes(value).ok()?)));
        Self { known: known.collect(), changes: Batch::default() }
    }

    pub(crate) fn record(&self, device: &str) -> Option<&DeviceRecord> {
        self.known.get(device)
    }

    /// What a device said last.
    pub(crate) fn newest(&self, device: &str) -> Option<&Sample> {
        self.record(device)?.newest()
    }

    /// All devices with what they said last.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Sample)> {
        self.known.iter().filter_map(|(device, record)| Some((device.as_str(), record.newest()?)))
    }

    /// A device says something; samples that are older than `retention` go, and those of a time that is still to come. JSON beyond its limit
    /// is not kept. There is room for it: [`DeviceSamples::has_room`].
    pub(crate) fn note(&mut self, device: &str, sample: Sample, json: Bytes, retention: Duration) {
        assert!(self.has_room(device), "whoever notes has looked for room, or made it");
        let record = self.known.entry(device.to_owned()).or_default();
        record.samples.retain(|old| old.at < sample.at && sample.at.since(old.at) <= retention);
        record.samples.push(sample);
        if record.samples.len() > SAMPLES_COUNT_MAX {
            thin_out(&mut record.samples);
        }
        record.json = if json.len() <= DEVICE_JSON_BYTES_MAX { json } else { Bytes::new() };
        self.changes.put(TABLE, device, record.to_bytes());
    }

    /// Devices that nobody uses any more are forgotten when they said nothing for `retention`.
    pub(crate) fn prune(&mut self, retention: Duration, wall: UTime, is_used: impl Fn(&str) -> bool) {
        let is_old = |sample: &Sample| wall.since(sample.at) > retention;
        let old = self.iter().filter(|(device, newest)| is_old(newest) && !is_used(device));
        let old: Vec<String> = old.map(|(device, _)| device.to_owned()).collect();
        old.iter().for_each(|device| self.forget(device));
    }

    /// Whether something can be noted of this device.
    pub(crate) fn has_room(&self, device: &str) -> bool {
        self.known.contains_key(device) || self.known.len() < DEVICES_COUNT_MAX
    }

    /// Of the devices that nobody uses that which said nothing for the longest is forgotten. False where all are in use.
    pub(crate) fn make_room(&mut self, is_used: impl Fn(&str) -> bool) -> bool {
        let unused = self.iter().filter(|(device, _)| !is_used(device));
        let oldest = unused.min_by_key(|(_, newest)| newest.at).map(|(device, _)| device.to_owned());
        oldest.map(|device| self.forget(&device)).is_some()
    }

    fn forget(&mut self, device: &str) {
        self.known.remove(device);
        self.changes.delete(TABLE, device);
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Bytes that wait to be committed.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.changes.bytes()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        batch.append(&mut self.changes);
    }
}

/// Of earlier days than the newest sample's the last sample stays, so that one that is asked each hour keeps its history; and of what is
/// left the newest that there is room for.
fn thin_out(samples: &mut Vec<Sample>) {
    let days: Vec<u32> = samples.iter().map(|sample| sample.at.sec / 86_400).collect();
    let today = days.last().copied();
    let mut next = days.iter().skip(1);
    let mut is_last = days.iter().map(|day| Some(*day) == today || next.next() != Some(day));
    samples.retain(|_| is_last.next() == Some(true));
    let surplus = samples.len().saturating_sub(SAMPLES_COUNT_MAX);
    samples.drain(..surplus);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::MemorySnapshot;

    const DAY: Duration = Duration::from_secs(86_400);

    fn sample(day: u32) -> Sample {
        let health = DeviceHealth { power_on_hours: Some(u64::from(day) * 24), ..DeviceHealth::default() };
        Sample { at: UTime { sec: day * 86_400, nsec: 0 }, health }
    }

    #[test]
    fn samples_outlive_leaders_and_are_forgotten_when_old() {
        let (mut kv, mut samples) = (MemorySnapshot::default(), DeviceSamples::default());
        for day in 1..=5 {
            samples.note("a", sample(day), Bytes::from(format!("{{\"day\":{day}}}")), DAY * 2);
        }
        let mut batch = Batch::default();
        samples.flush(&mut batch);
        kv.apply(&batch);
        assert!(!samples.is_dirty());
        let mut again = DeviceSamples::open(&kv);
        let json = Bytes::from_static(b"{\"day\":5}");
        let expected = DeviceRecord { samples: (3..=5).map(sample).collect(), json };
        assert_eq!(again.record("a"), Some(&expected));
        again.prune(DAY * 2, sample(7).at, |_| false);
        assert!(again.record("a").is_some(), "not old yet");
        again.prune(DAY * 2, sample(8).at, |_| true);
        assert!(again.record("a").is_some(), "in use");
        again.prune(DAY * 2, sample(8).at, |_| false);
        assert!(again.record("a").is_none() && again.is_dirty());
    }

    #[test]
    fn a_clock_that_goes_back_leaves_the_newest_sample_the_last() {
        let mut samples = DeviceSamples::default();
        samples.note("a", sample(9), Bytes::new(), DAY * 100);
        samples.note("a", sample(3), Bytes::new(), DAY * 100);
        assert_eq!(samples.record("a").map(|record| record.samples.clone()), Some(vec![sample(3)]));
    }

    #[test]
    fn there_are_bounds() {
        let (mut samples, mut day) = (DeviceSamples::default(), 0);
        for _ in 0..SAMPLES_COUNT_MAX + 7 {
            day += 1;
            let long = Bytes::from(vec![b' '; DEVICE_JSON_BYTES_MAX + 1]);
            samples.note("a", sample(day), long, DAY * 10_000);
        }
        let record = samples.record("a").expect("known");
        assert_eq!(
            (record.samples.len(), record.samples[0], record.json.len()),
            (SAMPLES_COUNT_MAX, sample(8), 0)
        );
        for device in 1..DEVICES_COUNT_MAX {
            samples.note(&device.to_string(), sample(1000), Bytes::new(), DAY);
        }
        assert!(samples.has_room("a") && samples.has_room("7") && !samples.has_room("b"));
        assert!(!samples.make_room(|_| true) && !samples.has_room("b"), "none that is in use goes");
        assert!(samples.make_room(|device| device == "1") && samples.has_room("b"));
        samples.note("b", sample(1000), Bytes::new(), DAY);
        assert_eq!(samples.iter().count(), DEVICES_COUNT_MAX);
        assert!(samples.record("a").is_none() && samples.record("1").is_some(), "the oldest went");
    }

    #[test]
    fn a_device_that_is_asked_each_hour_keeps_its_history_of_days() {
        let mut samples = DeviceSamples::default();
        let at =
            |hour: u32| Sample { at: UTime { sec: hour * 3600, nsec: 0 }, health: DeviceHealth::default() };
        for hour in (24..24 * 150).step_by(24).chain(24 * 150..24 * 160 + 7) {
            samples.note("a", at(hour), Bytes::new(), DAY * 10_000);
        }
        let record = samples.record("a").expect("known");
        assert!(record.samples.len() <= SAMPLES_COUNT_MAX);
        assert_eq!((record.samples[0], record.samples[148]), (at(24), at(24 * 149)));
        assert_eq!(record.samples[149], at(24 * 150 + 23), "of a day that is over the last");
        assert_eq!(record.newest(), Some(&at(24 * 160 + 6)));
    }
}
