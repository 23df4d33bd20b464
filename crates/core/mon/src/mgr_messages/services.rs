//! The service map of our own manager: daemons of services that are connected to it.

use crate::event::SessionId;
use crate::mon::{Cx, Mon};
use nacre_msg::{ServiceDaemon, ServiceEntry};
use std::collections::BTreeMap;
use std::time::Duration;

/// So long after our own manager took over, daemons may not have found it yet: the map of before stays.
const TAKES_OVER_FOR: Duration = Duration::from_secs(10);

impl Mon {
    /// Brings the service map up to what is connected. A stock manager that is active says itself what is in the map.
    pub(crate) fn publish_services(&mut self, cx: &Cx<'_>) {
        let map = self.state.mgr.map();
        if !self.state.mgr.own_is_active() || cx.wall.since(map.active_change) < TAKES_OVER_FOR {
            return;
        }
        let held = self.state.services.map();
        let next_epoch = held.epoch + 1;
        let mut services: BTreeMap<String, ServiceEntry> = BTreeMap::new();
        for ((service, name), daemon) in self.state.stats.services.daemons() {
            let Some(identity) = self.identity_of(SessionId(daemon.session())) else { continue };
            let before = held.services.get(service).and_then(|entry| entry.daemons.get(name));
            let before = before.filter(|before| before.gid == identity.global_id);
            let shown = ServiceDaemon {
                gid: identity.global_id,
                addr: identity.addr,
                start_epoch: before.map_or(next_epoch, |before| before.start_epoch),
                start_stamp: before.map_or(cx.wall, |before| before.start_stamp),
                metadata: daemon.metadata.clone(),
                task_status: BTreeMap::new(),
            };
            services.entry(service.clone()).or_default().daemons.insert(name.clone(), shown);
        }
        if services != held.services {
            self.state.services.update(|map| {
                map.services = services;
                map.modified = cx.wall;
            });
        }
    }
}
