//! The secrets that tickets are opened with, and sessions whose tickets hold no more, or say what was true once.

use super::Shard;
use crate::sessions::AuthFrame;
use crate::shard_msg::ShardMsg;
use nacre_auth::{ChangedCaps, Offer, RotatingKeys, ServiceAuthContext, VoidTickets};
use nacre_service::ConnId;
use nacre_types::EntityKind;
use std::sync::Arc;

impl Shard {
    pub(super) fn authenticate(&mut self, conn: ConnId, frame: AuthFrame) {
        // By what the peer says it is, which it must prove to be.
        let option = match self.messenger.peer_kind(conn) {
            EntityKind::OSD => "ms_cluster_mode",
            _ => "ms_service_mode",
        };
        let offer = Offer::crc_first().with_modes(self.options.text(option));
        let mut cx = ServiceAuthContext { keys: &self.keys, wall: self.wall, entropy: self.entropy.as_mut() };
        self.sessions.authenticate(conn, frame, offer, &mut cx, &mut self.messenger);
    }

    /// The monitor has made newer secrets.
    pub(super) fn learn_keys(&mut self, keys: RotatingKeys) {
        self.share_keys(keys.with_void(self.keys.void().clone()).with_caps(self.keys.caps().clone()));
    }

    /// The monitor says which tickets hold no more.
    pub(super) fn learn_void(&mut self, void: nacre_msg::VoidTickets) {
        let void = VoidTickets::told(void.of, void.all);
        self.share_keys(RotatingKeys::clone(&self.keys).with_void(void));
    }

    /// The monitor says what entities may do by now.
    pub(super) fn learn_caps(&mut self, caps: nacre_msg::EntityCaps) {
        self.share_keys(RotatingKeys::clone(&self.keys).with_caps(ChangedCaps::told(caps.of)));
    }

    /// For all shards.
    fn share_keys(&mut self, keys: RotatingKeys) {
        let keys = Arc::new(keys);
        self.router.send_others(|| ShardMsg::Keys(Arc::clone(&keys)));
        self.set_keys(keys);
    }

    pub(super) fn set_keys(&mut self, keys: Arc<RotatingKeys>) {
        self.keys = keys;
        for conn in self.sessions.with_void_tickets(self.keys.void()) {
            tracing::info!(osd = self.config.id, ?conn, "the key of a peer has changed; its session ends");
            // A lossless session goes on when the peer comes again with a ticket that holds.
            self.messenger.end(conn, "its ticket is void".to_owned());
        }
        self.sessions.take_over_caps(self.keys.caps());
    }
}
