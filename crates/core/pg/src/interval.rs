//! [`Interval`]: which OSDs serve a PG, and from which epoch on.

use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_maps::OsdMap;
use nacre_msg::peer::{IntervalId, PastInterval};
use nacre_types::{Epoch, OsdId, PgId};
use std::collections::BTreeSet;

/// A span of epochs with the same members. Kept durably, so that a restarted OSD can tell what happened
/// while it was away.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Interval {
    /// First epoch, Ceph's `same_interval_since`.
    pub(crate) since: Epoch,
    /// First epoch with this primary, `same_primary_since`.
    pub(crate) primary_since: Epoch,
    /// Where CRUSH puts the PG.
    pub(crate) up: Vec<OsdId>,
    /// Primary of `up`, or -1.
    pub(crate) up_primary: OsdId,
    /// The OSDs that serve it.
    pub(crate) acting: Vec<OsdId>,
    /// Primary of `acting`, or -1.
    pub(crate) primary: OsdId,
    /// The pool's size; 0 when the pool is gone.
    pub(crate) size: u8,
    /// Copies without which nothing is served.
    pub(crate) min_size: u8,
    /// The pool's number of PGs.
    pub(crate) pg_num: u32,
}

impl Interval {
    /// The interval that `map` would begin.
    pub(crate) fn of(map: &OsdMap, pg: PgId) -> Self {
        let Some(pool) = map.pools.get(&pg.pool) else {
            return Self {
                up_primary: -1,
                primary: -1,
                since: map.epoch,
                primary_since: map.epoch,
                ..Self::default()
            };
        };
        let placed = map.pg_to_up_acting(pg);
        let members = |set: Vec<OsdId>| set.into_iter().filter(|osd| *osd >= 0 && is_up(map, *osd)).collect();
        Self {
            since: map.epoch,
            primary_since: map.epoch,
            up: members(placed.up),
            up_primary: placed.up_primary,
            acting: members(placed.acting),
            primary: placed.acting_primary,
            size: pool.size,
            min_size: map.code_of(pool).map_or(pool.min_size, |code| pool.min_size.max(code.k())),
            pg_num: pool.pg_num,
        }
    }

    /// The interval after `self` once `map` came, and whether it is another one; `anew`: it is in any case.
    pub(crate) fn advance(&self, map: &OsdMap, pg: PgId, anew: bool) -> (Self, bool) {
        let mut next = Self::of(map, pg);
        if next.primary == self.primary {
            next.primary_since = self.primary_since;
        }
        let unchanged = Self { since: self.since, ..next.clone() } == *self;
        if unchanged && !anew { (self.clone(), false) } else { (next, true) }
    }

    /// As messages carry it.
    pub(crate) fn id(&self) -> IntervalId {
        IntervalId {
            since: self.since,
            primary_since: self.primary_since,
            up: self.up.clone(),
            acting: self.acting.clone(),
            primary: self.primary,
        }
    }

    /// Takes the epochs over from an OSD that knows the interval for longer, if it is the same one.
    pub(crate) fn recall(&mut self, known: &IntervalId) {
        if (&self.up, &self.acting, self.primary) == (&known.up, &known.acting, known.primary) {
            (self.since, self.primary_since) =
                (known.since.min(self.since), known.primary_since.min(self.since));
        }
    }

    /// Acting and up, without repetition: all that get writes and, in the end, all objects.
    pub(crate) fn members(&self) -> BTreeSet<OsdId> {
        self.acting.iter().chain(&self.up).copied().collect()
    }

    /// What is remembered of this interval when it ends with `last`, under the last map of it.
    pub(crate) fn to_past(&self, last: Epoch, map: &OsdMap, epoch_created: Epoch) -> PastInterval {
        PastInterval {
            first: self.since,
            last,
            up: self.up.clone(),
            acting: self.acting.clone(),
            primary: self.primary,
            maybe_went_rw: self.maybe_went_rw(map, epoch_created),
        }
    }

    /// Writes may have been accepted: enough copies, and the monitor knew that the primary lived in it. The
    /// first interval of a PG needs no such knowledge, since no OSD could have served before.
    fn maybe_went_rw(&self, map: &OsdMap, epoch_created: Epoch) -> bool {
        self.primary >= 0
            && self.acting.len() >= usize::from(self.min_size)
            && (self.since <= epoch_created || up_thru(map, self.primary) >= self.since)
    }
}

impl Encode for Interval {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u32(self.since);
            w.u32(self.primary_since);
            w.put(&self.up);
            w.i32(self.up_primary);
            w.put(&self.acting);
            w.i32(self.primary);
            w.u8(self.size);
            w.u8(self.min_size);
            w.u32(self.pg_num);
        });
    }
}

impl Decode for Interval {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("interval", 1, |_, r| {
            Ok(Self {
                since: r.u32()?,
                primary_since: r.u32()?,
                up: r.get()?,
                up_primary: r.i32()?,
                acting: r.get()?,
                primary: r.i32()?,
                size: r.u8()?,
                min_size: r.u8()?,
                pg_num: r.u32()?,
            })
        })
    }
}

/// How many members of an interval bear out what was written in it.
pub(crate) fn copies_needed(map: &OsdMap, pg: PgId) -> usize {
    map.pools.get(&pg.pool).and_then(|pool| map.code_of(pool)).map_or(1, |code| code.k().into())
}

/// True when `map` says that `osd` runs.
pub(crate) fn is_up(map: &OsdMap, osd: OsdId) -> bool {
    map.is_up(osd)
}

/// The last epoch in which the monitor knows `osd` to have been alive.
pub(crate) fn up_thru(map: &OsdMap, osd: OsdId) -> Epoch {
    map.info(osd).up_thru
}

/// True when an operator declared what `osd` held up to `epoch` lost for good, or the OSD is gone.
pub(crate) fn is_lost(map: &OsdMap, osd: OsdId, epoch: Epoch) -> bool {
    !map.exists(osd) || map.info(osd).lost_at > epoch
}
