//! Maps come in: OSD control follows them, and the PGs see them when no promise forbids it. So do maps of the past, by which the history
//! of a PG is computed that this OSD does not know.

use crate::shard::Shard;
use crate::shard_msg::ShardMsg;
use nacre_maps::OsdMap;
use nacre_msg::MOsdMap;
use nacre_osd_core::{MapSource, warns_clients};
use std::sync::Arc;

impl Shard {
    /// Takes in what a message with maps has that follows ours.
    pub(crate) fn learn_maps(&mut self, message: &Arc<MOsdMap>, source: MapSource) {
        let before = Arc::clone(self.net.maps.newest());
        let mut learned = Vec::new();
        let refused = self.net.maps.learn(message, source, &mut learned).err();
        // Links follow the newest map before PGs speak to whom it has up; what else OSD control hears comes
        // after, or PGs would see maps out of order.
        self.lend_control(|control, cx| {
            if before.epoch < cx.maps.newest().epoch {
                control.maps_learned(cx);
            }
            if let Some(error) = &refused {
                control.maps_refused(cx, error);
            }
        });
        if !learned.is_empty() {
            self.map_release.learned((learned, Arc::clone(message)));
            self.release_maps();
        }
        self.warn_clients(&before);
    }

    /// Lets the PGs of all shards see the maps that were kept back, unless a promise still forbids it.
    pub(crate) fn release_maps(&mut self) {
        let newest = self.net.maps.newest();
        let until = self.control.as_ref().map(|control| control.keeps_maps_until(newest));
        let Some(released) = self.map_release.release(until, self.now) else { return };
        let is_control = self.control.is_some();
        let (pgs, mut cx) = self.pgs();
        for (maps, message) in released {
            // OSD control learns also those that only another shard has not seen.
            let seen = pgs.pgs.map().epoch;
            maps.iter().filter(|map| map.epoch > seen).for_each(|map| pgs.advance(&mut cx, map));
            if is_control {
                cx.net.router.send_others(|| ShardMsg::Maps(Arc::clone(&message)));
            }
        }
        pgs.retry_awaiting_lease(&mut cx);
    }

    /// Hands maps to all clients where they are not to wait for an OSD that went down.
    fn warn_clients(&mut self, before: &OsdMap) {
        if !warns_clients(before, self.net.maps.newest()) {
            return;
        }
        for session in self.net.sessions.clients() {
            self.net.push_maps(session, before.epoch);
        }
    }

    /// Asks the monitor for what is wanted of the past.
    pub(crate) fn ask_for_past(&mut self) {
        let now = self.now;
        if self.control.as_ref().is_some_and(|control| control.has_monitor())
            && let Some(ask) = self.walk.ask(now)
        {
            self.lend_control(|control, cx| control.ask_monitor(cx, ask.into()));
        }
    }

    /// Maps came from the monitor, perhaps those that were asked for.
    pub(crate) fn learn_past(&mut self, message: &MOsdMap) {
        if self.walk.is_idle() {
            return;
        }
        for (spg, create_info) in self.walk.take(message, self.pg_driver.pgs.map().epoch) {
            match create_info {
                Some(create_info) => {
                    let shard = self.net.router.shard_of(&spg);
                    self.net.router.send(shard, ShardMsg::Create(spg, Box::new(create_info)));
                }
                None => tracing::warn!(
                    osd = self.config.id,
                    pg = %spg,
                    "ordered as if new, but the monitor has no map of its creation any more: it was clean since, and whoever has \
                     it will call for a copy"
                ),
            }
        }
        self.ask_for_past();
    }
}
