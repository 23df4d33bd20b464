//! Acting sets and `up_thru` that OSDs ask for while they peer.

use super::OsdMaps;
use nacre_maps::{Incremental, OsdMap};
use nacre_types::{Epoch, OsdId, PgId};
use std::collections::BTreeMap;

impl OsdMaps {
    /// Raises `up_thru` of a running OSD to its map's epoch. True when the next epoch brings it, false when it
    /// is there already.
    pub(crate) fn alive(&mut self, osd: OsdId, want: Epoch, epoch: Epoch) -> bool {
        let map = self.upcoming();
        if !map.is_up(osd) || map.info(osd).up_thru >= want {
            return false;
        }
        let up_thru = epoch.max(want);
        self.change().new_up_thru.insert(osd, up_thru);
        true
    }

    /// Sets or, where the set is empty, removes acting sets, and with them the primaries that an operator gave their PGs:
    /// an OSD that asks cannot lead, or need not any more. True when the next epoch changes. As Ceph's
    /// `OSDMonitor::preprocess_pgtemp`.
    pub(crate) fn pg_temp(&mut self, from: OsdId, wanted: &BTreeMap<PgId, Vec<OsdId>>) -> bool {
        if !self.upcoming().is_up(from) {
            return false;
        }
        let mut changed = false;
        for (pg, osds) in wanted {
            let map = self.upcoming();
            let has_pg = map.pools.get(&pg.pool).is_some_and(|pool| pg.seed < pool.pg_num);
            let known = osds.iter().all(|osd| *osd == nacre_crush::ITEM_NONE || map.exists(*osd));
            let current = map.pg_temp.get(pg).map_or(&[][..], Vec::as_slice);
            let has_primary = map.primary_temp.contains_key(pg);
            if !has_pg || !known || osds.len() > SET_COUNT_MAX || (current == osds && !has_primary) {
                continue;
            }
            self.change().new_pg_temp.insert(*pg, osds.clone());
            if has_primary {
                self.change().new_primary_temp.insert(*pg, nacre_maps::OSD_NONE);
            }
            changed = true;
        }
        changed
    }
}

impl OsdMaps {
    /// Drops acting sets that the next map does not need: of PGs that are gone, sets of which no OSD runs, and
    /// those equal to the up set. `map` is the next map before it is encoded.
    pub(super) fn clean_temps(&self, map: &mut OsdMap, change: &mut Incremental) {
        let idle = |pg: &PgId, osds: &Vec<OsdId>| {
            let has_pg = map.pool(pg.pool).is_some_and(|pool| pg.seed < pool.pg_num);
            let runs = osds.iter().any(|osd| map.is_up(*osd));
            !has_pg || !runs || map.pg_to_up_acting(*pg).up == *osds
        };
        let idle: Vec<PgId> =
            map.pg_temp.iter().filter(|(pg, osds)| idle(pg, osds)).map(|(pg, _)| *pg).collect();
        for pg in idle {
            map.pg_temp.remove(&pg);
            if self.latest.pg_temp.contains_key(&pg) {
                change.new_pg_temp.insert(pg, Vec::new());
            } else {
                change.new_pg_temp.remove(&pg);
            }
        }
    }
}

/// Longest acting set: more than any pool's size can be.
const SET_COUNT_MAX: usize = nacre_maps::POOL_SIZE_MAX as usize;
