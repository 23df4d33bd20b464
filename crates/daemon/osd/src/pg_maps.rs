//! Maps reach the PGs of a shard, epoch by epoch.

use crate::own_collection::{save_map, stored_epochs, stored_map};
use crate::pg_driver::PgDriver;
use crate::shard_net::ShardCx;
use nacre_maps::OsdMap;
use nacre_options::Values;
use nacre_pg::object::compression_hint;
use nacre_pg::{Event, Pg};
use nacre_txn::StoreToken;
use nacre_types::{Epoch, SpgId};
use std::collections::BTreeSet;
use std::sync::Arc;

impl PgDriver {
    /// One map further: it is stored, all PGs see it, and what was kept until it is here goes on.
    pub(crate) fn advance(&mut self, cx: &mut ShardCx<'_>, map: &Arc<OsdMap>) {
        let has_new_pools = cx.net.router.learn_map(map);
        let needed = self.relocations.maps_needed_from();
        let pools = has_new_pools.then(|| cx.net.router.initial_pg_num());
        let txn = save_map(self.store.as_ref(), map, pools, needed);
        self.submit(cx, txn, StoreToken::without_pg(0));
        self.pgs.set_map(Arc::clone(map));
        self.follow_pools();
        self.relocate_in(cx, map);
        self.advance_pgs(cx, map, false);
        self.depart_misplaced(cx);
        self.begin_arrivals(cx);
        self.look_at_held(cx);
    }

    /// The epochs of all maps that this shard has, in memory or stored.
    pub(crate) fn map_epochs(&self) -> BTreeSet<Epoch> {
        let in_memory = self.pgs.maps_from(0).into_iter().map(|map| map.epoch);
        stored_epochs(self.store.as_ref()).into_iter().chain(in_memory).collect()
    }

    /// The map of an epoch, read where it is not in memory any more.
    pub(crate) fn map_of(&self, epoch: Epoch) -> Option<Arc<OsdMap>> {
        self.pgs.map_of(epoch).or_else(|| stored_map(self.store.as_ref(), epoch))
    }

    /// The first map of these `epochs` from that of `from` on; at least the present one.
    pub(crate) fn first_map_from(&self, epochs: &BTreeSet<Epoch>, from: Epoch) -> Arc<OsdMap> {
        let first = epochs.range(from..).find_map(|epoch| self.map_of(*epoch));
        first.unwrap_or_else(|| Arc::clone(self.pgs.map()))
    }

    /// What was kept for PGs that were not here, or for a map: it has its turn, or is kept on.
    pub(crate) fn look_at_held(&mut self, cx: &mut ShardCx<'_>) {
        for (spg, create_info) in self.pgs.take_held_creates() {
            self.create_pg(cx, spg, create_info);
        }
        for (from, message) in self.pgs.take_held_peer() {
            self.admit_peer_message(cx, from, message);
        }
        for (spg, op) in self.pgs.take_held() {
            self.admit_op(cx, spg, op);
        }
    }

    /// Hands a map to all PGs that have not come to it, those among them that are split off meanwhile. Where objects move to other
    /// PGs, they do so `at_once`, or some at a time.
    pub(crate) fn advance_pgs(&mut self, cx: &mut ShardCx<'_>, map: &Arc<OsdMap>, at_once: bool) {
        // The copies of PGs that end with this map go to those that they are merged into, before these see it.
        for spg in self.pgs.all() {
            self.merge_into(cx, map, spg);
        }
        let mut behind = self.pgs.behind(map.epoch);
        while !behind.is_empty() && !self.is_broken(cx.net) {
            for spg in behind {
                self.deliver_under(cx, map, spg, Event::Map);
                if at_once {
                    self.finish_moving(cx, spg);
                }
            }
            behind = self.pgs.behind(map.epoch);
        }
    }

    /// Takes up what was split off a PG of ours.
    pub(crate) fn open_child(
        &mut self,
        cx: &mut ShardCx<'_>,
        child: SpgId,
        before: &Arc<OsdMap>,
        maps: &[Arc<OsdMap>],
    ) {
        let Some(pg) = Pg::load(&*self.store, self.osd, child, before) else {
            return self.break_down(cx.net, &format!("what was split off as {child} cannot be read"));
        };
        self.pgs.insert_child(pg);
        for map in maps {
            self.deliver_under(cx, map, child, Event::Map);
        }
        self.deliver_held(cx, child);
    }

    /// What is written from now on is stored as the pools and these options say.
    pub(crate) fn follow_compression(&mut self, options: &Values) {
        self.compression.follow_options(options);
        self.follow_pools();
    }

    /// The same with the present map.
    pub(crate) fn follow_pools(&mut self) {
        let map = self.pgs.map();
        for (pool, compression) in self.compression.changes(map) {
            self.store.set_compression(pool, compression, compression_hint);
        }
    }
}
