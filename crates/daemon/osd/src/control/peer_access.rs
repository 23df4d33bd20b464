//! The ticket for other OSDs, which OSD control has from the monitor, and lends the shards that have links of their own.

use super::{ControlCx, OsdControl};
use crate::control_event::ControlEvent;
use nacre_auth::ServiceAccess;
use std::sync::Arc;

impl OsdControl {
    /// Other shards dial with the newest ticket.
    pub(super) fn share_peer_access(&mut self, cx: &mut ControlCx<'_>) {
        let Some(access) = self.mon.access() else { return };
        if self.peer_access.as_ref().is_none_or(|shared| !shared.is_same(&access)) {
            let access = Arc::new(access);
            self.peer_access = Some(Arc::clone(&access));
            cx.events.push(ControlEvent::PeerAccess(access));
        }
    }

    /// Another OSD has refused the ticket of a shard; several shards may say so of one.
    pub(crate) fn peer_access_refused(&mut self, cx: &mut ControlCx<'_>, refused: &ServiceAccess) {
        if self.peer_access.take_if(|access| access.is_same(refused)).is_some() {
            self.mon.ticket_refused();
            self.run_effects(cx);
        }
    }
}
