//! [`PastIntervals`]: who served a PG in earlier intervals and may hold writes that nobody else has.

use super::coded::coded;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Epoch, OsdId};
use std::collections::BTreeSet;

/// Most intervals kept; a PG that never goes active for longer merges the oldest ones, which only asks more
/// OSDs than needed.
pub const INTERVALS_MAX: usize = 1000;

/// A span of epochs in which up and acting sets did not change. Ceph `PastIntervals::pg_interval_t`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastInterval {
    /// First epoch.
    pub first: Epoch,
    /// Last epoch.
    pub last: Epoch,
    /// Up set.
    pub up: Vec<OsdId>,
    /// Acting set.
    pub acting: Vec<OsdId>,
    /// Primary of the acting set, -1 for none.
    pub primary: OsdId,
    /// Writes may have been accepted.
    pub maybe_went_rw: bool,
}

coded!(PastInterval, "peer past interval", { first, last, up, acting, primary, maybe_went_rw });

/// Intervals since the PG was last known to be active, oldest first. Ceph `PastIntervals`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PastIntervals {
    /// Oldest first, disjoint.
    pub intervals: Vec<PastInterval>,
    /// Who served in those that are forgotten, since all members had all objects: of these somebody may have an object that
    /// nobody else has. Ascending. Since version 2, which is written where there are any. Ceph keeps all intervals until then.
    pub former: Vec<OsdId>,
}

impl Encode for PastIntervals {
    fn encode(&self, w: &mut Writer) {
        let version = if self.former.is_empty() { 1 } else { 2 };
        w.envelope(version, version, |w| {
            w.put(&self.intervals);
            if version >= 2 {
                w.put(&self.former);
            }
        });
    }
}

impl Decode for PastIntervals {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("peer past intervals", 2, |version, r| {
            Ok(Self { intervals: r.get()?, former: if version >= 2 { r.get()? } else { Vec::new() } })
        })
    }
}

impl PastIntervals {
    /// Adds the newest interval.
    pub fn push(&mut self, interval: PastInterval) {
        self.intervals.push(interval);
        if self.intervals.len() > INTERVALS_MAX {
            let oldest = self.intervals.remove(0);
            self.absorb(oldest);
        }
    }

    /// Folds `oldest` into the interval behind it: a superset of OSDs to ask, never fewer.
    fn absorb(&mut self, oldest: PastInterval) {
        let Some(next) = self.intervals.first_mut() else { return };
        next.first = oldest.first;
        next.maybe_went_rw |= oldest.maybe_went_rw;
        for osd in oldest.acting {
            if !next.acting.contains(&osd) {
                next.acting.push(osd);
            }
        }
    }

    /// Forgets intervals that ended before `epoch`, the newest known start of an active interval.
    pub fn trim_before(&mut self, epoch: Epoch) {
        let gone = self.intervals.extract_if(.., |interval| interval.last < epoch);
        let former: BTreeSet<OsdId> =
            gone.flat_map(|interval| interval.acting).chain(self.former.drain(..)).collect();
        self.former.extend(former);
    }

    /// Everybody who served since all members had all objects.
    #[must_use]
    pub fn holders(&self) -> BTreeSet<OsdId> {
        let acting = self.intervals.iter().flat_map(|interval| &interval.acting);
        acting.chain(&self.former).copied().collect()
    }

    /// All members have all objects.
    pub fn clear(&mut self) {
        self.intervals.clear();
        self.former.clear();
    }

    /// Everybody who served in an interval that may have accepted writes.
    #[must_use]
    pub fn writers(&self) -> BTreeSet<OsdId> {
        let went_rw = self.intervals.iter().filter(|interval| interval.maybe_went_rw);
        went_rw.flat_map(|interval| interval.acting.iter().copied()).filter(|osd| *osd >= 0).collect()
    }
}
