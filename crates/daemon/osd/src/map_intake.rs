//! [`MapIntake`]: maps come in. OSD control follows them, and the PGs see them when no promise forbids it. So do maps of the past, by which
//! the history of a PG is computed that this OSD does not know.

use crate::lent_parts::LentParts;
use crate::shard_msg::ShardMsg;
use crate::shard_net::ShardNet;
use crate::walk::Walk;
use nacre_maps::OsdMap;
use nacre_msg::MOsdMap;
use nacre_osd_core::{MapRelease, MapSource, Past, warns_clients};
use nacre_types::{OsdId, SpgId, Stamp};
use std::sync::Arc;

/// Maps on their way to the PGs of a shard.
pub(crate) struct MapIntake {
    osd: OsdId,
    /// Maps that the PGs must not see yet, with the messages that brought them.
    release: MapRelease<(Vec<Arc<OsdMap>>, Arc<MOsdMap>)>,
    walk: Walk,
}

impl MapIntake {
    pub(crate) fn new(osd: OsdId) -> Self {
        Self { osd, release: MapRelease::default(), walk: Walk::default() }
    }

    /// Takes in what a message with maps has that follows ours.
    pub(crate) fn learn(&mut self, parts: &mut LentParts<'_>, message: &Arc<MOsdMap>, source: MapSource) {
        let before = Arc::clone(parts.cx.net.maps.newest());
        let mut learned = Vec::new();
        let refused = parts.cx.net.maps.learn(message, source, &mut learned).err();
        // Links of all shards follow the newest map before any PG speaks to OSDs that it has up; what else OSD control hears
        // comes after, or PGs would see maps out of order.
        parts.lend_control(|control, cx| {
            if before.epoch < cx.maps.newest().epoch {
                control.maps_learned(cx);
            }
            if let Some(error) = &refused {
                control.maps_refused(cx, error);
            }
        });
        let net = &mut *parts.cx.net;
        if parts.control.get().is_some() && before.epoch < net.maps.newest().epoch {
            let newest = net.maps.newest();
            net.router.send_others(|| ShardMsg::FollowPeers(Arc::clone(newest)));
        }
        if !learned.is_empty() {
            self.release.learned((learned, Arc::clone(message)));
            self.release(parts);
        }
        warn_clients(parts.cx.net, &before);
    }

    /// When maps that were kept back are due.
    pub(crate) fn next_deadline(&self) -> Option<Stamp> {
        self.release.next_deadline()
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, parts: &mut LentParts<'_>) {
        if self.next_deadline().is_some_and(|until| parts.cx.now >= until) {
            self.release(parts);
        }
    }

    /// Lets the PGs of all shards see the maps that were kept back, unless a promise still forbids it.
    fn release(&mut self, parts: &mut LentParts<'_>) {
        let LentParts { pgs, control, cx } = parts;
        let newest = cx.net.maps.newest();
        let until = control.get().map(|control| control.keeps_maps_until(newest));
        let Some(released) = self.release.release(until, cx.now) else { return };
        for (maps, message) in released {
            // OSD control learns also those that only another shard has not seen.
            let seen = pgs.pgs.map().epoch;
            maps.iter().filter(|map| map.epoch > seen).for_each(|map| pgs.advance(cx, map));
            if control.get().is_some() {
                cx.net.router.send_others(|| ShardMsg::Maps(Arc::clone(&message)));
            }
        }
        pgs.retry_awaiting_lease(cx);
    }

    /// A PG of some shard must know which OSDs served it in maps that this OSD does not have.
    pub(crate) fn want_past(&mut self, spg: SpgId, past: Past) {
        self.walk.add(spg, past);
    }

    /// Asks the monitor for what is wanted of the past.
    pub(crate) fn ask_for_past(&mut self, parts: &mut LentParts<'_>) {
        if parts.control.get().is_some_and(|control| control.has_monitor())
            && let Some(ask) = self.walk.ask(parts.cx.now)
        {
            parts.lend_control(|control, cx| control.ask_monitor(cx, ask.into()));
        }
    }

    /// Maps came from the monitor, perhaps those that were asked for.
    pub(crate) fn learn_past(&mut self, parts: &mut LentParts<'_>, message: &MOsdMap) {
        if self.walk.is_idle() {
            return;
        }
        for (spg, create_info) in self.walk.take(message, parts.pgs.pgs.map().epoch) {
            match create_info {
                Some(create_info) => parts.route(spg, ShardMsg::Create(spg, Box::new(create_info))),
                None => tracing::warn!(
                    osd = self.osd,
                    pg = %spg,
                    "PG not created: the monitor keeps no map as old as its creation, so it was clean since; its primary will ask \
                     for a copy"
                ),
            }
        }
        self.ask_for_past(parts);
    }
}

/// Hands maps to all clients where they are not to wait for an OSD that went down.
fn warn_clients(net: &mut ShardNet, before: &OsdMap) {
    if !warns_clients(before, net.maps.newest()) {
        return;
    }
    for session in net.sessions.clients() {
        net.push_maps(session, before.epoch);
    }
}
