//! [`SlowDevices`]: which OSDs' devices fail slowly: they answer, and take several times as long as others of their class.
//!
//! After Perseus (Lu et al., FAST '23): no fixed limit, which would fit one model under one load only, but a comparison with peers that do
//! alike work at the same time; by medians over windows, so that one stall says nothing; and only what lasts counts. Overload makes all
//! slow, and so names nobody; a device that has more to do than others is compared by requests that found as many others before them.
//!
//! ```text
//!             slow for 25 s                     slow for 40 s
//!   well  ------------------>  named  ------------------>  may be relieved
//!    ^                           |                               |
//!    +---------------------------+-------------------------------+
//!        well for 60 s; twice as long each time it comes back soon, an hour at most
//!        or nobody could say for an hour: there are not enough others left, or nobody asks the device for what it was slow at
//! ```
//!
//! What is done about it is for the monitor.

mod compare;
#[cfg(test)]
mod tests;

pub use compare::Finding;

use compare::{Peers, Verdict};
use nacre_types::{DeviceLatencies, DeviceWork, OsdId, Stamp};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Devices are judged this often; about as often as OSDs report.
pub const STEP: Duration = Duration::from_secs(5);
/// A device of which one step says too little is judged by so many together at most.
const STEPS_MAX: usize = 24;
/// A verdict counts for so long at most, however long it took to have one.
const LASTED_MAX: Duration = Duration::from_secs(20);
/// A device that was slow for so long is named.
const NAMED_AFTER: Duration = Duration::from_secs(25);
/// And then something is done about it.
const RELIEVED_AFTER: Duration = Duration::from_secs(40);
/// How long it must be well until it counts as well again, the first time.
const WELL_AFTER: Duration = Duration::from_secs(60);
const WELL_AFTER_MAX: Duration = Duration::from_secs(3600);
/// A device that serves and of which nobody could say anything for so long is named no more.
const UNJUDGED_MAX: Duration = Duration::from_secs(3600);
/// A device that was well for so long begins anew.
const FORGIVEN_AFTER: Duration = Duration::from_secs(6 * 3600);
/// A device that was well for so long in all before it was named has become slow; one that was not may be of a slower kind than its peers.
const SEEN_WELL: Duration = Duration::from_secs(60);
/// What is remembered of how long a device was slow.
const SLOW_FOR_MAX: Duration = Duration::from_secs(60);

/// A device that is named.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowDevice {
    /// When it was named.
    pub since: Stamp,
    /// What was measured when it was last found slow; `None` of one that an earlier leader named.
    pub finding: Option<Finding>,
    /// It has been slow for long enough to do something about it.
    pub is_lasting: bool,
    /// Slow by the last verdict, and not on its way to be well.
    pub is_slow_now: bool,
    /// It was seen well for a minute or more before, so that it has become slow, and was not made so.
    pub was_well: bool,
}

/// A device has become slow, or is well again.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// It is named from now on.
    Slow(OsdId, Finding),
    /// It is not any more.
    Well(OsdId),
    /// Nobody can say any more whether it is: devices are not judged, or this one could not be for too long.
    Unjudged(OsdId),
}

#[derive(Debug, Default)]
struct Device {
    /// Reported since the last step.
    reported: DeviceLatencies,
    /// What was reported in each of the last steps, the newest last.
    steps: VecDeque<DeviceLatencies>,
    /// Of those, the newest ones that no verdict has used.
    unjudged: usize,
    /// How long it has served without a verdict.
    unjudged_for: Duration,
    slow_for: Duration,
    well_for: Duration,
    /// How long it was seen well in all, up to [`SEEN_WELL`].
    seen_well: Duration,
    named: Option<SlowDevice>,
    /// By which requests it was slow, and whether by their tail: only these can tell that it is well.
    slow_at: Option<(DeviceWork, bool)>,
    /// How often it was well and came back.
    relapses: u32,
    well_since: Option<Stamp>,
}

impl Device {
    fn step(&mut self) {
        self.steps.push_back(std::mem::take(&mut self.reported));
        if self.steps.len() > STEPS_MAX {
            self.steps.pop_front();
        }
        self.unjudged = (self.unjudged + 1).min(STEPS_MAX);
    }

    fn well_after(&self) -> Duration {
        WELL_AFTER.saturating_mul(1 << self.relapses.min(6)).min(WELL_AFTER_MAX)
    }

    /// A step is over; without a verdict for too long it is named no more.
    fn note_unjudged(&mut self, osd: OsdId) -> Option<Change> {
        self.unjudged_for = if self.unjudged == 0 { Duration::ZERO } else { self.unjudged_for + STEP };
        let is_due = self.named.is_some() && self.unjudged_for >= UNJUDGED_MAX;
        is_due.then(|| {
            self.end_name();
            Change::Unjudged(osd)
        })
    }

    /// It is named no more.
    fn end_name(&mut self) {
        (self.named, self.slow_at, self.slow_for) = (None, None, Duration::ZERO);
    }

    /// Takes in what `lasted` says of it.
    fn learn(&mut self, osd: OsdId, verdict: Verdict, lasted: Duration, now: Stamp) -> Option<Change> {
        match verdict {
            Verdict::Slow(finding) => {
                self.slow_for = (self.slow_for + lasted).min(SLOW_FOR_MAX);
                self.well_for = Duration::ZERO;
                self.slow_at = Some((finding.work, finding.is_tail));
                let is_lasting = self.slow_for >= RELIEVED_AFTER;
                if let Some(named) = &mut self.named {
                    named.finding = Some(finding);
                    (named.is_lasting, named.is_slow_now) = (named.is_lasting || is_lasting, true);
                } else if self.slow_for >= NAMED_AFTER {
                    let is_forgiven = |since| now.since(since) >= FORGIVEN_AFTER;
                    self.relapses = match self.well_since {
                        Some(since) if !is_forgiven(since) => self.relapses + 1,
                        _ => 0,
                    };
                    self.named = Some(SlowDevice {
                        since: now,
                        finding: Some(finding),
                        is_lasting,
                        is_slow_now: true,
                        was_well: self.seen_well >= SEEN_WELL,
                    });
                    return Some(Change::Slow(osd, finding));
                }
            }
            // A device that is slow every other time is not slow enough.
            Verdict::Well => {
                self.slow_for = self.slow_for.saturating_sub(2 * lasted);
                self.well_for += lasted;
                self.seen_well = (self.seen_well + lasted).min(SEEN_WELL);
                self.named.iter_mut().for_each(|named| named.is_slow_now = false);
                if self.named.is_some() && self.well_for >= self.well_after() {
                    self.end_name();
                    self.well_since = Some(now);
                    return Some(Change::Well(osd));
                }
            }
            Verdict::Doubtful => self.slow_for = self.slow_for.saturating_sub(lasted),
        }
        None
    }
}

/// What OSDs have reported of their devices, and which of them are slow. Not durable: a leader that has just begun needs half a minute to
/// see what the one before saw, but for what it is told by [`SlowDevices::remember`].
#[derive(Debug, Default)]
pub struct SlowDevices {
    devices: BTreeMap<OsdId, Device>,
    next: Option<Stamp>,
}

impl SlowDevices {
    /// An OSD reports how long its device took since the report before.
    pub fn report(&mut self, osd: OsdId, latencies: &DeviceLatencies) {
        self.devices.entry(osd).or_default().reported.add(latencies);
    }

    /// An earlier leader had named the device, by its requests of that kind.
    pub fn remember(&mut self, osd: OsdId, slow_at: DeviceWork, now: Stamp) {
        let device = self.devices.entry(osd).or_default();
        if device.named.is_none() {
            device.named = Some(SlowDevice {
                since: now,
                finding: None,
                is_lasting: true,
                is_slow_now: false,
                was_well: false,
            });
            device.slow_at = Some((slow_at, false));
        }
    }

    /// Judges the devices when it is time: `classes` gives the device classes of the OSDs that serve. One takes `ratio` times as long as
    /// others of its class, or more, to be slow; 0: nobody is, and what was named is so no more.
    pub fn judge(
        &mut self,
        classes: impl FnOnce() -> BTreeMap<OsdId, String>,
        ratio: f64,
        now: Stamp,
    ) -> Vec<Change> {
        let due = *self.next.get_or_insert(now + STEP);
        if now < due {
            return Vec::new();
        }
        self.next = Some(now + STEP);
        if ratio <= 0.0 {
            let devices = std::mem::take(&mut self.devices);
            let named = devices.into_iter().filter(|(_, device)| device.named.is_some());
            return named.map(|(osd, _)| Change::Unjudged(osd)).collect();
        }
        let classes = classes();
        for (osd, device) in &mut self.devices {
            device.step();
            if !classes.contains_key(osd) {
                // What it did before it went down says nothing of what it is when it is back.
                (device.steps, device.unjudged) = (VecDeque::new(), 0);
                (device.slow_for, device.well_for) = (Duration::ZERO, Duration::ZERO);
            }
        }
        let mut of_class: BTreeMap<&str, Vec<OsdId>> = BTreeMap::new();
        for (osd, class) in classes.iter().filter(|(osd, _)| self.devices.contains_key(osd)) {
            of_class.entry(class).or_default().push(*osd);
        }
        let mut changes: Vec<Change> =
            of_class.into_values().flat_map(|osds| self.judge_class(&osds, ratio, now)).collect();
        let serving = self.devices.iter_mut().filter(|(osd, _)| classes.contains_key(*osd));
        changes.extend(serving.filter_map(|(osd, device)| device.note_unjudged(*osd)));
        changes
    }

    /// Judges devices of one class, each by as few of the last steps as say enough.
    fn judge_class(&mut self, osds: &[OsdId], ratio: f64, now: Stamp) -> Vec<Change> {
        let (mut changes, mut left) = (Vec::new(), osds.to_vec());
        let mut sums: BTreeMap<OsdId, DeviceLatencies> =
            osds.iter().map(|osd| (*osd, DeviceLatencies::default())).collect();
        for steps in 1..=STEPS_MAX {
            if left.is_empty() {
                break;
            }
            for (osd, sum) in &mut sums {
                let device = self.devices.get(osd);
                device
                    .and_then(|device| device.steps.iter().nth_back(steps - 1))
                    .into_iter()
                    .for_each(|step| sum.add(step));
            }
            let took = STEP * u32::try_from(steps).unwrap_or(1);
            let peers = Peers::new(sums.iter().map(|(osd, sum)| (*osd, sum)).collect(), took.as_secs());
            let lasted = took.min(LASTED_MAX);
            left.retain(|osd| {
                let Some(device) = self.devices.get_mut(osd).filter(|device| device.unjudged >= steps) else {
                    return false;
                };
                let needed = device.named.as_ref().and(device.slow_at);
                let Some(verdict) = peers.judge(*osd, ratio, needed) else { return true };
                device.unjudged = 0;
                changes.extend(device.learn(*osd, verdict, lasted, now));
                false
            });
        }
        changes
    }

    /// The devices that are named.
    pub fn slow(&self) -> impl Iterator<Item = (OsdId, &SlowDevice)> {
        self.devices.iter().filter_map(|(osd, device)| Some((*osd, device.named.as_ref()?)))
    }

    /// What the OSD's device did in the last `steps` of [`STEP`]; nothing where devices are not judged.
    #[must_use]
    pub fn latencies(&self, osd: OsdId, steps: usize) -> DeviceLatencies {
        let mut sum = DeviceLatencies::default();
        let recent =
            self.devices.get(&osd).into_iter().flat_map(|device| device.steps.iter().rev().take(steps));
        recent.for_each(|step| sum.add(step));
        sum
    }

    /// What is known of one that is named.
    #[must_use]
    pub fn find(&self, osd: OsdId) -> Option<&SlowDevice> {
        self.devices.get(&osd)?.named.as_ref()
    }

    /// Forgets OSDs that are no more.
    pub fn retain(&mut self, exists: impl Fn(OsdId) -> bool) {
        self.devices.retain(|osd, _| exists(*osd));
    }
}
