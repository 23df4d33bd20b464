//! Maps reach the PGs of a shard, epoch by epoch.

use crate::own_collection::save_map;
use crate::pg_driver::PgDriver;
use crate::shard_net::ShardCx;
use nacre_maps::OsdMap;
use nacre_options::Values;
use nacre_pg::Event;
use nacre_pg::object::compression_hint;
use nacre_txn::StoreToken;
use std::sync::Arc;

impl PgDriver {
    /// One map further: it is stored, all PGs see it, and what was kept until it is here goes on.
    pub(crate) fn advance(&mut self, cx: &mut ShardCx<'_>, map: &Arc<OsdMap>) {
        let has_new_pools = cx.net.router.learn_map(map);
        let txn = save_map(map, has_new_pools.then(|| cx.net.router.initial_pg_num()));
        self.submit(cx, txn, StoreToken::without_pg(0));
        self.pgs.set_map(Arc::clone(map));
        self.follow_pools();
        self.advance_pgs(cx, map, false);
        for (spg, create_info) in self.pgs.take_held_creates() {
            self.create_pg(cx, spg, create_info);
        }
        for (from, message) in self.pgs.take_held_peer() {
            self.peer_message(cx, from, message);
        }
        for (spg, op) in self.pgs.take_held() {
            self.client_op(cx, spg, op);
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
