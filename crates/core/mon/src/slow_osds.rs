//! [`SlowOsds`]: what was done about OSDs whose devices fail slowly, and what the leader has heard of devices. What follows from it is in
//! `slow_devices`.

use crate::batch::{Batch, Snapshot};
use crate::stored_map::StoredMap;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_maps::WEIGHT_ONE;
use nacre_mgr::slow_devices::{Finding, SlowDevices};
use nacre_types::{DeviceWork, OsdId, Stamp, UTime};
use std::collections::BTreeMap;

const TABLE: &str = "slow-devices";

/// Whether the OSD of a slow device is out by us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum MarkedOut {
    /// It was not marked out.
    #[default]
    No,
    /// It is out, and had this weight, which it gets again.
    ByUs(u32),
    /// It was, and an operator has marked it in, or given it another weight: he has the last word until the device is well.
    Overruled,
}

impl Encode for MarkedOut {
    fn encode(&self, w: &mut Writer) {
        let (kind, weight) = match self {
            Self::No => (0, 0),
            Self::ByUs(weight) => (1, *weight),
            Self::Overruled => (2, 0),
        };
        w.u8(kind);
        w.u32(weight);
    }
}

impl Decode for MarkedOut {
    const MIN_BYTES: usize = 5;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        match (r.u8()?, r.u32()?) {
            (0, _) => Ok(Self::No),
            (1, weight) => Ok(Self::ByUs(weight)),
            (2, _) => Ok(Self::Overruled),
            (kind, _) => {
                Err(DecodeError::Invalid { what: "whether an OSD was marked out", value: kind.into() })
            }
        }
    }
}

/// What was done about a slow device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Measure {
    /// The primary affinity that the OSD had, and gets again; `None` where an operator has set it since, and it is left alone.
    pub(crate) affinity_before: Option<u32>,
    /// By which of its requests the device was found slow: the number of a [`DeviceWork`].
    pub(crate) work: u8,
    /// When that was.
    pub(crate) since: UTime,
    /// What was found, in words.
    pub(crate) text: String,
    /// Since version 2.
    pub(crate) out: MarkedOut,
    /// The device was seen well before: it has become slow, and is not of a slower kind than its peers. Since version 3.
    pub(crate) was_well: bool,
}

impl Encode for Measure {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 1, |w| {
            w.put(&self.affinity_before);
            w.u8(self.work);
            w.put(&self.since);
            w.put(&self.text);
            w.put(&self.out);
            w.put(&self.was_well);
        });
    }
}

impl Decode for Measure {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("measure against a slow device", 3, |version, r| {
            let (affinity_before, work, since, text) = (r.get()?, r.u8()?, r.get()?, r.get()?);
            let out = if version >= 2 { r.get()? } else { MarkedOut::No };
            let was_well = if version >= 3 { r.get()? } else { false };
            Ok(Self { affinity_before, work, since, text, out, was_well })
        })
    }
}

/// What was done, in the tables; and what this leader has heard, which is its own.
#[derive(Debug)]
pub(crate) struct SlowOsds {
    pub(crate) found: SlowDevices,
    measures: StoredMap<BTreeMap<OsdId, Measure>>,
    /// Why an OSD that should be out by now is not: the reason changes with the cluster, and is this leader's.
    pub(crate) kept_in: Option<(OsdId, String)>,
    /// `found` knows what an earlier leader had found.
    is_told: bool,
}

impl SlowOsds {
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<Self, DecodeError> {
        let measures = StoredMap::open(snapshot, TABLE, BTreeMap::new())?;
        Ok(Self { found: SlowDevices::default(), measures, kept_in: None, is_told: false })
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.measures.is_dirty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        self.measures.flush(batch);
    }

    /// What was done about an OSD.
    pub(crate) fn measure(&self, osd: OsdId) -> Option<&Measure> {
        self.measures.map().get(&osd)
    }

    /// OSDs that have affinity 0 by us, with what they had before.
    pub(crate) fn relieved(&self) -> impl Iterator<Item = (OsdId, u32)> {
        self.measures.map().iter().filter_map(|(osd, measure)| Some((*osd, measure.affinity_before?)))
    }

    /// The OSDs that are out by us, with the weights that they had.
    pub(crate) fn out(&self) -> impl Iterator<Item = (OsdId, u32)> {
        self.measures.map().iter().filter_map(|(osd, measure)| match measure.out {
            MarkedOut::ByUs(weight) => Some((*osd, weight)),
            MarkedOut::No | MarkedOut::Overruled => None,
        })
    }

    /// Notes whether an OSD about which something was done is out.
    pub(crate) fn set_out(&mut self, osd: OsdId, out: MarkedOut) {
        if let Some(measure) = self.measure(osd).cloned() {
            self.set(osd, Measure { out, ..measure });
        }
    }

    /// An operator has marked the OSD out, or given it no weight: it is not marked in by itself.
    pub(crate) fn operator_put_out(&mut self, osd: OsdId) {
        if self.measure(osd).is_some_and(|measure| matches!(measure.out, MarkedOut::ByUs(_))) {
            self.set_out(osd, MarkedOut::Overruled);
        }
    }

    /// Notes what is done about an OSD.
    pub(crate) fn set(&mut self, osd: OsdId, measure: Measure) {
        self.measures.update(|measures| measures.insert(osd, measure));
    }

    /// Nothing is done about it any more; what was.
    pub(crate) fn drop_measure(&mut self, osd: OsdId) -> Option<Measure> {
        self.measure(osd)?;
        self.measures.update(|measures| measures.remove(&osd))
    }

    /// An operator has set the primary affinity of the OSD: it is his until the device is well.
    pub(crate) fn operator_has_set(&mut self, osd: OsdId, wall: UTime) {
        let known = self.measure(osd).cloned();
        let named = || {
            let slow = self.found.find(osd)?;
            let work = slow.finding?.work as u8;
            Some(Measure {
                affinity_before: None,
                work,
                since: wall,
                text: String::new(),
                out: MarkedOut::No,
                was_well: slow.was_well,
            })
        };
        if let Some(measure) = known.or_else(named) {
            self.set(osd, Measure { affinity_before: None, ..measure });
        }
    }

    /// The OSDs about which something was done, or an operator had his way.
    pub(crate) fn concerned(&self) -> impl Iterator<Item = OsdId> {
        self.measures.map().keys().copied()
    }

    /// What an earlier leader did is taken up, once.
    pub(crate) fn take_up(&mut self, now: Stamp) {
        if !std::mem::replace(&mut self.is_told, true) {
            for (osd, measure) in self.measures.map() {
                let work = DeviceWork::ALL.get(usize::from(measure.work)).copied();
                self.found.remember(*osd, work.unwrap_or(DeviceWork::DurableWrite), now);
            }
        }
    }
}

fn ms(us: f64) -> String {
    format!("{:.1} ms", us / 1000.0)
}

/// What was measured, in words.
pub(crate) fn describe(finding: &Finding) -> String {
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

/// A primary affinity as people write it.
pub(crate) fn share(affinity: u32) -> f64 {
    f64::from(affinity) / f64::from(WEIGHT_ONE)
}
