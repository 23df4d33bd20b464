//! [`PastIntervals`]: which OSDs served a PG in earlier intervals and may hold writes that no other has.

use super::coded::coded;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Epoch, OsdId};
use std::collections::{BTreeMap, BTreeSet};

/// Most intervals kept; a PG that never goes active for longer folds neighbours into one (see [`PastIntervals::push`]).
pub const INTERVALS_MAX: usize = 1000;

/// A span of epochs in which up and acting sets did not change. Ceph `PastIntervals::pg_interval_t`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastInterval {
    /// First epoch of the interval.
    pub first: Epoch,
    /// Last epoch of the interval.
    pub last: Epoch,
    /// OSDs that CRUSH and upmaps choose, the primary first.
    pub up: Vec<OsdId>,
    /// OSDs that serve: the up set, or its `pg_temp`.
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
    /// The OSDs that served in those that are forgotten, since all members had all objects: one of these may have an object that
    /// nobody else has. Ascending. Since version 2, which is written where there are any. Ceph keeps all intervals until then.
    pub former: Vec<OsdId>,
    /// Of these each one is needed, unless what it held through that epoch is lost: members of intervals that had to be folded
    /// although no neighbour shared enough members with them. Since version 3, which is written where there are any.
    pub each: BTreeMap<OsdId, Epoch>,
}

impl Encode for PastIntervals {
    fn encode(&self, w: &mut Writer) {
        let version = match (self.former.is_empty(), self.each.is_empty()) {
            (_, false) => 3,
            (false, true) => 2,
            (true, true) => 1,
        };
        w.envelope(version, version, |w| {
            w.put(&self.intervals);
            if version >= 2 {
                w.put(&self.former);
            }
            if version >= 3 {
                w.put(&self.each);
            }
        });
    }
}

impl Decode for PastIntervals {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("peer past intervals", 3, |version, r| {
            Ok(Self {
                intervals: r.get()?,
                former: if version >= 2 { r.get()? } else { Vec::new() },
                each: if version >= 3 { r.get()? } else { BTreeMap::new() },
            })
        })
    }
}

impl PastIntervals {
    /// Adds the newest interval. Members of an interval that took writes bear it out if `needed` of them are there: one of a
    /// replicated pool, as many as give the data back of an erasure-coded one.
    ///
    /// Beyond [`INTERVALS_MAX`] two neighbours become one. What is blocked by either of them is blocked by what is left:
    /// - Where at most one of them took writes, its members stay the ones that count.
    /// - Of two that took writes those OSDs count that served in both, if these are enough to bear either out.
    /// - If there are no such neighbours, each member of the oldest interval is needed from now on ([`PastIntervals::each`]).
    ///
    /// An OSD that counts no more may still have objects, and is asked: [`PastIntervals::former`].
    pub fn push(&mut self, interval: PastInterval, needed: usize) {
        self.intervals.push(interval);
        if self.intervals.len() > INTERVALS_MAX {
            self.fold(needed.max(1));
        }
    }

    fn fold(&mut self, needed: usize) {
        let pairs = self.intervals.iter().zip(self.intervals.iter().skip(1)).enumerate();
        let folded = pairs.filter_map(|(at, (older, newer))| Some((at, Folded::of(older, newer, needed)?)));
        // The one that loses least, and of these the oldest. Equals lose nothing: nobody need look further.
        let mut best: Option<(usize, Folded)> = None;
        for (at, folded) in folded {
            if best.as_ref().is_none_or(|(_, best)| folded.dropped.len() < best.dropped.len()) {
                let is_lossless = folded.dropped.is_empty();
                best = Some((at, folded));
                if is_lossless {
                    break;
                }
            }
        }
        if let Some((at, folded)) = best {
            self.intervals.splice(at..at + 2, [folded.interval]);
            self.add_former(folded.dropped);
        } else {
            // All of them took writes: any other could have been folded with its neighbour.
            let oldest = self.intervals.remove(0);
            for osd in oldest.acting.into_iter().filter(|osd| *osd >= 0) {
                let last = self.each.entry(osd).or_default();
                *last = oldest.last.max(*last);
            }
        }
    }

    fn add_former(&mut self, more: impl IntoIterator<Item = OsdId>) {
        let former: BTreeSet<OsdId> = more.into_iter().chain(self.former.drain(..)).collect();
        self.former.extend(former);
    }

    /// Forgets intervals that ended before `epoch`, the newest known start of an active interval.
    pub fn trim_before(&mut self, epoch: Epoch) {
        let gone = self.intervals.extract_if(.., |interval| interval.last < epoch);
        let mut former: Vec<OsdId> = gone.flat_map(|interval| interval.acting).collect();
        former.extend(self.each.extract_if(.., |_, last| *last < epoch).map(|(osd, _)| osd));
        self.add_former(former);
    }

    /// All OSDs that served since all members had all objects.
    #[must_use]
    pub fn holders(&self) -> BTreeSet<OsdId> {
        let acting = self.intervals.iter().flat_map(|interval| &interval.acting);
        acting.chain(&self.former).chain(self.each.keys()).copied().collect()
    }

    /// All members have all objects.
    pub fn clear(&mut self) {
        self.intervals.clear();
        self.former.clear();
        self.each.clear();
    }

    /// All OSDs that served in an interval that may have accepted writes.
    #[must_use]
    pub fn writers(&self) -> BTreeSet<OsdId> {
        let went_rw = self.intervals.iter().filter(|interval| interval.maybe_went_rw);
        let acting = went_rw.flat_map(|interval| &interval.acting);
        acting.chain(self.each.keys()).copied().filter(|osd| *osd >= 0).collect()
    }
}

/// Two neighbours as one that is at least as strict as either.
struct Folded {
    interval: PastInterval,
    /// OSDs that served in them and do not count any more.
    dropped: Vec<OsdId>,
}

impl Folded {
    /// `None` where that cannot be.
    fn of(older: &PastInterval, newer: &PastInterval, needed: usize) -> Option<Self> {
        let (first, last) = (older.first, newer.last);
        let acting: Vec<OsdId> = match (older.maybe_went_rw, newer.maybe_went_rw) {
            (true, false) => older.acting.clone(),
            (false, _) => newer.acting.clone(),
            (true, true) => newer.acting.iter().copied().filter(|osd| older.acting.contains(osd)).collect(),
        };
        let maybe_went_rw = older.maybe_went_rw || newer.maybe_went_rw;
        if maybe_went_rw && acting.iter().filter(|osd| **osd >= 0).count() < needed {
            return None;
        }
        let served = older.acting.iter().chain(&newer.acting).copied().collect::<BTreeSet<OsdId>>();
        let dropped = served.into_iter().filter(|osd| *osd >= 0 && !acting.contains(osd)).collect();
        Some(Self { interval: PastInterval { first, last, acting, maybe_went_rw, ..newer.clone() }, dropped })
    }
}
