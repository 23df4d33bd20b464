//! [`Lineage`]: which OSDs served a PG, followed map by map by an OSD that has no record of it.

use super::PgCreateInfo;
use crate::interval::{Interval, copies_needed};
use crate::merge_role;
use nacre_maps::OsdMap;
use nacre_msg::peer::{PastIntervals, PgHistory};
use nacre_types::{Epoch, PgId, SpgId, hash};
use std::sync::Arc;

/// The intervals of a PG from one map on. Its copy can then begin as if it had seen all of these maps, and asks those
/// that may have taken writes.
#[derive(Debug, Clone)]
pub struct Lineage {
    pg: PgId,
    /// Epoch in which the PG was created; 0 where the first map has it already.
    created: Epoch,
    /// When the present interval began is not known, and so not either whether its primary was known to live in it.
    begins_before: bool,
    interval: Interval,
    past: PastIntervals,
    map: Arc<OsdMap>,
}

impl Lineage {
    /// Begins with `map`: the one that created the PG, or one in which it was there already.
    #[must_use]
    pub fn begin(spg: SpgId, map: &Arc<OsdMap>, is_creation: bool) -> Self {
        let pg = spg.pg;
        let begins_before = !is_creation && map.pools.contains_key(&pg.pool);
        Self {
            pg,
            created: if is_creation { map.epoch } else { 0 },
            begins_before,
            interval: Interval::of(map, ancestor(map, pg)),
            past: PastIntervals::default(),
            map: Arc::clone(map),
        }
    }

    /// The map behind the last one came.
    ///
    /// # Panics
    /// When it is another one: the OSDs that served in between would be forgotten.
    pub fn advance(&mut self, map: &Arc<OsdMap>) {
        let before = std::mem::replace(&mut self.map, Arc::clone(map));
        assert_eq!(map.epoch, before.epoch + 1, "{}: no map may be left out", self.pg);
        let anew = merge_role::role(&before, self.pg) != merge_role::role(map, self.pg);
        let (next, changed) = self.interval.advance(map, ancestor(map, self.pg), anew);
        if !changed {
            return;
        }
        if !before.pools.contains_key(&self.pg.pool) && map.pools.contains_key(&self.pg.pool) {
            self.created = map.epoch;
        } else {
            // What was served in the first interval needs no proof that its primary lived in it.
            let first = if std::mem::take(&mut self.begins_before) { before.epoch } else { self.created };
            let past = self.interval.to_past(before.epoch, &before, first);
            self.past.push(past, copies_needed(&before, self.pg));
        }
        self.interval = next;
    }

    /// The epoch that it has come to.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.map.epoch
    }

    /// How a copy begins that was ordered by the monitor and never was here.
    #[must_use]
    pub fn into_ordered(self) -> PgCreateInfo {
        PgCreateInfo { is_ordered: true, ..self.into_create_info(0) }
    }

    /// How a copy begins in the place of one whose records are damaged, and which the maps up to `through` may have brought
    /// something.
    #[must_use]
    pub fn into_lost(self, through: Epoch) -> PgCreateInfo {
        self.into_create_info(through)
    }

    fn into_create_info(mut self, lost_through: Epoch) -> PgCreateInfo {
        if self.begins_before {
            // Only the beginning of it is unknown. The OSDs that serve in it may have done so since long ago.
            let past = self.interval.to_past(self.map.epoch, &self.map, self.map.epoch);
            self.past.push(past, copies_needed(&self.map, self.pg));
        }
        PgCreateInfo {
            history: PgHistory { epoch_created: self.created, ..PgHistory::default() },
            past: self.past,
            epoch: self.map.epoch,
            interval: Some(self.interval.id()),
            is_ordered: false,
            lost_through,
        }
    }
}

/// The PG that held the objects of `pg` while the pool had fewer PGs.
fn ancestor(map: &OsdMap, pg: PgId) -> PgId {
    match map.pools.get(&pg.pool) {
        Some(pool) if pool.pg_num > 0 && pg.seed >= pool.pg_num => {
            PgId::new(pg.pool, hash::stable_mod(pg.seed, pool.pg_num))
        }
        _ => pg,
    }
}
