//! What an OSD keeps for itself in its store, and how it takes up again after a restart.
//!
//! The collection [`OWN_COLLECTION`] belongs to no pool. Its key-value space holds the newest maps, each under
//! `osdmap/<epoch>`, written before the PGs see the map: whatever epoch a PG has stored, the map of it
//! is there. `initial_pg_num` holds how many PGs each pool had when this OSD first heard of it, by which it finds
//! the shard of PGs that were split since.

use crate::shard::Shard;
use nacre_buf::ByteStr;
use nacre_denc::{Decode, Encode};
use nacre_maps::OsdMap;
use nacre_pg::{Event, Pg};
use nacre_store::ObjectStore;
use nacre_txn::{Op, StoreToken, Transaction};
use nacre_types::{Epoch, PgId, PoolId, SpgId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The OSD's own collection.
pub const OWN_COLLECTION: SpgId = SpgId::replicated(PgId::new(-1, u32::MAX));
const MAP_PREFIX: &str = "osdmap/";
const INITIAL_PG_NUM_KEY: ByteStr = ByteStr::from_static("origins");
/// Maps kept; a PG that is further behind begins with the oldest.
const MAPS_KEPT_MAX: Epoch = 50;

fn map_key(epoch: Epoch) -> ByteStr {
    ByteStr::from(format!("{MAP_PREFIX}{epoch:010}"))
}

/// The newest maps that the store holds, oldest first and without a gap: those before one that does not decode are left out.
/// No PG needs them, since whatever they changed for a PG was stored by it before the maps behind them.
#[must_use]
pub fn stored_maps(store: &dyn ObjectStore) -> Vec<Arc<OsdMap>> {
    let stored = store.pg_meta(&OWN_COLLECTION, MAP_PREFIX.as_bytes());
    let decode = |(key, bytes): (ByteStr, nacre_buf::Bytes)| match OsdMap::from_bytes(bytes) {
        Ok(map) => Some(Arc::new(map)),
        Err(error) => {
            tracing::error!(%key, %error, "a stored map is damaged");
            None
        }
    };
    let mut maps: Vec<Arc<OsdMap>> = stored.into_iter().filter_map(decode).collect();
    let gap = maps.iter().zip(maps.iter().skip(1)).rposition(|(map, next)| map.epoch + 1 < next.epoch);
    maps.drain(..gap.map_or(0, |at| at + 1));
    maps
}

/// How many PGs each pool had at first, as the store has it.
pub(crate) fn stored_initial_pg_num(store: &dyn ObjectStore) -> BTreeMap<PoolId, u32> {
    let stored = store.pg_meta(&OWN_COLLECTION, &INITIAL_PG_NUM_KEY);
    let value = stored.into_iter().find(|(key, _)| *key == INITIAL_PG_NUM_KEY).map(|(_, value)| value);
    value.and_then(|value| BTreeMap::from_bytes(value).ok()).unwrap_or_default()
}

impl Shard {
    /// The records of a copy, or its log, are damaged.
    fn note_damage(&mut self, spg: SpgId) {
        let (through, note) = Pg::note_damage(&*self.store, spg, self.pgs.map().epoch);
        tracing::error!(
            osd = self.config.id,
            %spg,
            epoch = through,
            "a placement group's records are damaged: what this OSD stored of it is lost, if no other has it"
        );
        if let Some(txn) = note {
            self.submit(txn, StoreToken::without_pg(0));
        }
        self.begin_in_rubble(spg, through);
    }

    /// Stores a map, and forgets one that is old enough.
    pub(crate) fn save_map(&mut self, map: &OsdMap, has_new_pools: bool) {
        let mut txn = Transaction::new(OWN_COLLECTION);
        txn.push(Op::MetaSet { key: map_key(map.epoch), value: map.to_bytes() });
        if let Some(old) = map.epoch.checked_sub(MAPS_KEPT_MAX) {
            txn.push(Op::MetaRemove { key: map_key(old) });
        }
        if has_new_pools {
            txn.push(Op::MetaSet { key: INITIAL_PG_NUM_KEY, value: self.router.initial_pg_num().to_bytes() });
        }
        self.submit(txn, StoreToken::without_pg(0));
    }

    /// Loads the PGs that the store holds, and leads them together through the maps that it has: where one is
    /// merged into another, both have come to the map before. They stay silent until the monitor's next map, the one
    /// in which this OSD is up again. Of what cannot be read the others must hear that it is lost
    /// ([`Shard::begin_in_rubble`]).
    pub(crate) fn load_pgs(&mut self) {
        let (mut oldest, mut behind) = (None, Vec::new());
        for spg in self.store.collections().into_iter().filter(|spg| *spg != OWN_COLLECTION) {
            let epoch = Pg::stored_epoch(&*self.store, &spg);
            let maps = self.pgs.maps_from(epoch.unwrap_or(0));
            let Some(first) = maps.first() else { continue };
            if first.epoch == 0 {
                tracing::error!(
                    osd = self.config.id,
                    %spg,
                    "the store has placement groups and no map: without the maps since theirs nobody knows who served them; \
                     this OSD stops: repair or replace its store"
                );
                self.stopping = true;
                return;
            }
            let pg = epoch.and_then(|_| Pg::load(&*self.store, self.config.id, spg, first));
            let Some(pg) = pg else {
                // Its parent, which comes before it, goes on to split it off.
                if !self.pgs.is_coming(&spg) {
                    self.note_damage(spg);
                }
                continue;
            };
            if epoch.is_some_and(|epoch| first.epoch > epoch) {
                behind.push((Arc::clone(first), spg));
            }
            self.pgs.insert(pg);
            oldest = Some(oldest.map_or(first.epoch, |oldest: Epoch| oldest.min(first.epoch)));
        }
        let Some(oldest) = oldest else { return };
        // The first map left is the PG's first to see, too: it may be the one whose change it had no time to store.
        for (map, spg) in behind {
            self.deliver_under(&map, spg, Event::Map);
            self.finish_moving(spg);
        }
        for map in self.pgs.maps_from(oldest) {
            self.advance_pgs(&map, true);
        }
    }
}
