//! Connections of a shard come, prove who they are, and go; and what follows for clients, peers and OSD control.

use crate::peer_links::PeerLinks;
use crate::sessions::{AuthFrame, InboundPeer};
use crate::shard::Shard;
use crate::shard_msg::ShardMsg;
use nacre_auth::{ChangedCaps, Offer, RotatingKeys, ServiceAuthContext, VoidTickets};
use nacre_msg::peer::PeerVersions;
use nacre_msg::{EntityCaps, RawMessage};
use nacre_msgr::Peer;
use nacre_service::ConnId;
use nacre_types::{EntityKind, OsdId};
use std::sync::Arc;

impl Shard {
    /// A connection that came in sends a frame of its authentication.
    pub(crate) fn authenticate(&mut self, conn: ConnId, frame: AuthFrame) {
        // By what the peer says it is, which it must prove to be.
        let option = match self.net.messenger.peer_kind(conn) {
            EntityKind::OSD => "ms_cluster_mode",
            _ => "ms_service_mode",
        };
        let offer = Offer::crc_first().with_modes(self.options.text(option));
        let mut cx = ServiceAuthContext { keys: &self.keys, wall: self.wall, entropy: self.entropy.as_mut() };
        self.net.sessions.authenticate(conn, frame, offer, &mut cx, &mut self.net.messenger);
    }

    /// The handshake of a connection that came in is complete.
    pub(crate) fn established(&mut self, conn: ConnId, peer: &Peer) {
        let messenger = &self.net.messenger;
        let pings = self.control.as_ref().is_some_and(|control| control.hears_pings(messenger, conn));
        if let Err(reason) = self.net.sessions.established(conn, peer, pings) {
            tracing::warn!(?conn, reason, "a connection is not what it says");
            self.net.messenger.close(conn);
            self.net.sessions.close(conn);
        }
        if let Some(InboundPeer::Peer(osd)) = self.net.sessions.inbound_peer(conn) {
            let osd = *osd;
            self.lend_control(|_, cx| cx.peers.connected(osd, peer, conn, cx.net.messenger));
        }
    }

    /// A connection is gone. `refused`: nobody listened where we dialled. `session` is what is kept of a lossless one.
    pub(crate) fn conn_closed(
        &mut self,
        conn: ConnId,
        reason: &str,
        refused: bool,
        session: Option<Box<nacre_msgr::Session>>,
    ) {
        tracing::debug!(osd = self.config.id, ?conn, reason, "connection closed");
        if let Some(InboundPeer::Client(session, _)) = self.net.sessions.close(conn) {
            let id = session.id;
            let (pgs, mut cx) = self.pgs();
            pgs.session_closed(&mut cx, id);
            self.net.router.send_others(|| ShardMsg::SessionClosed(id));
        } else {
            self.lend_control(|control, cx| control.conn_closed(cx, conn, session, refused));
        }
    }

    /// Ends a connection over which came what does not decode.
    pub(crate) fn close_malformed(&mut self, conn: ConnId, reason: &str) {
        self.net.messenger.close(conn);
        self.conn_closed(conn, reason, false, None);
    }

    /// A session with a peer begins. The monitor has compared versions when each of the two booted; here nobody depends on what it
    /// knew.
    pub(crate) fn peer_versions(&mut self, conn: ConnId, from: OsdId, raw: RawMessage) {
        let ours = self.versions;
        match PeerVersions::decode(raw) {
            Ok(theirs) if ours.agree(&theirs).is_some() => (),
            Ok(theirs) => {
                let text = format!(
                    "osd.{from} speaks versions {theirs} of the messages between OSDs, and osd.{} {ours}; upgrade the older one",
                    self.config.id
                );
                self.cannot_talk(conn, from, text);
            }
            Err(error) => {
                self.cannot_talk(conn, from, format!("the versions of osd.{from} do not decode: {error}"));
            }
        }
    }

    /// A peer says what we cannot read: the session with it is reset, and the operator hears why.
    pub(crate) fn cannot_talk(&mut self, conn: ConnId, from: OsdId, why: String) {
        tracing::error!(osd = self.config.id, from, why, "the session with a peer is reset");
        self.lend_control(|control, cx| control.misunderstood(cx, conn, from, why));
        // Whoever waits for what it said begins anew, as behind any other reset.
        self.close_malformed(conn, "malformed message");
        self.tell_reset(from);
    }

    /// A peer has forgotten the session, or begun another: what was in it is lost, and the PGs must know.
    pub(crate) fn session_reset(&mut self, conn: ConnId, lost_count: usize) {
        let dialled = self.net.peers.as_ref().and_then(|peers| peers.peer_of(conn));
        let Some(osd) = dialled.or_else(|| self.net.sessions.peer_in_handshake(conn)) else { return };
        tracing::warn!(osd = self.config.id, peer = osd, lost_count, "the session with a peer is reset");
        if let Some(peers) = &mut self.net.peers {
            peers.greet_again(conn, &mut self.net.messenger);
        }
        self.tell_reset(osd);
    }

    /// Messages to a peer found no room in a queue. That is as if the session with it had been reset.
    pub(crate) fn tell_losses(&mut self) {
        for osd in self.net.peers.as_mut().map(PeerLinks::take_lost).unwrap_or_default() {
            tracing::warn!(
                osd = self.config.id,
                peer = osd,
                "messages to a peer were lost; PGs that it serves peer anew"
            );
            self.tell_reset(osd);
        }
    }

    /// The PGs of all shards hear that messages from and to a peer may be lost.
    fn tell_reset(&mut self, osd: OsdId) {
        let (pgs, mut cx) = self.pgs();
        pgs.peer_reset(&mut cx, osd);
        self.net.router.send_others(|| ShardMsg::PeerReset(osd));
    }

    /// The monitor has made newer secrets.
    pub(crate) fn learn_keys(&mut self, keys: RotatingKeys) {
        self.share_keys(keys.with_void(self.keys.void().clone()).with_caps(self.keys.caps().clone()));
    }

    /// The monitor says which tickets hold no more.
    pub(crate) fn learn_void(&mut self, void: nacre_msg::VoidTickets) {
        let void = VoidTickets::told(void.of, void.all);
        self.share_keys(RotatingKeys::clone(&self.keys).with_void(void));
    }

    /// The monitor says what entities may do by now.
    pub(crate) fn learn_caps(&mut self, caps: EntityCaps) {
        self.share_keys(RotatingKeys::clone(&self.keys).with_caps(ChangedCaps::told(caps.of)));
    }

    fn share_keys(&mut self, keys: RotatingKeys) {
        let keys = Arc::new(keys);
        self.net.router.send_others(|| ShardMsg::Keys(Arc::clone(&keys)));
        self.set_keys(keys);
    }

    /// Takes over the secrets that tickets are opened with. Sessions whose tickets hold no more end; others go on with the caps that
    /// their entities have by now.
    pub(crate) fn set_keys(&mut self, keys: Arc<RotatingKeys>) {
        self.keys = keys;
        for conn in self.net.sessions.with_void_tickets(self.keys.void()) {
            tracing::info!(osd = self.config.id, ?conn, "the key of a peer has changed; its session ends");
            // A lossless session goes on when the peer comes again with a ticket that holds.
            self.net.messenger.end(conn, "its ticket is void".to_owned());
        }
        self.net.sessions.take_over_caps(self.keys.caps());
    }
}
