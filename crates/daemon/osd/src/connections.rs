//! [`Connections`]: connections of a shard come, prove their identity, and go; and what follows for clients, peers and OSD control.

use crate::lent_parts::LentParts;
use crate::sessions::{AuthFrame, InboundPeer};
use crate::shard_msg::ShardMsg;
use crate::shard_net::{ShardCx, ShardNet};
use nacre_auth::{ChangedCaps, Offer, RotatingKeys, ServiceAuthContext, VoidTickets};
use nacre_msg::peer::{PeerGreeting, PeerVersions};
use nacre_msg::{EntityCaps, RawMessage};
use nacre_msgr::Peer;
use nacre_options::Values;
use nacre_service::ConnId;
use nacre_types::{EntityKind, OsdId};
use std::sync::Arc;

/// What the connections of a shard are let in by.
pub(crate) struct Connections {
    osd: OsdId,
    /// The service's secrets, which tickets are opened with; with them which tickets are void, and whose caps have changed.
    keys: Arc<RotatingKeys>,
    /// What this OSD speaks with others.
    versions: PeerVersions,
}

impl Connections {
    pub(crate) fn new(osd: OsdId, versions: PeerVersions) -> Self {
        Self { osd, keys: Arc::default(), versions }
    }

    /// A connection that came in sends a frame of its authentication.
    pub(crate) fn authenticate(&self, cx: &mut ShardCx<'_>, conn: ConnId, frame: AuthFrame) {
        // By what the peer says it is, which it must prove to be.
        let offer = accepted_modes(cx.options, cx.net.messenger.peer_kind(conn));
        let mut auth_cx = ServiceAuthContext { keys: &self.keys, wall: cx.wall, entropy: &mut *cx.entropy };
        cx.net.sessions.authenticate(conn, frame, offer, &mut auth_cx, &mut cx.net.messenger);
    }

    /// The handshake of a connection that came in is complete.
    pub(crate) fn established(&self, parts: &mut LentParts<'_>, conn: ConnId, peer: &Peer) {
        let net = &mut *parts.cx.net;
        let pings = parts.control.get().is_some_and(|control| control.hears_pings(&net.messenger, conn));
        if let Err(reason) = net.sessions.established(conn, peer, pings) {
            tracing::warn!(?conn, reason, "connection refused: the peer is not the entity of its ticket");
            net.messenger.close(conn);
            net.sessions.close(conn);
        }
        if let Some(InboundPeer::Peer(osd)) = net.sessions.inbound_peer(conn) {
            let osd = *osd;
            net.peers.connected(osd, peer, conn, &mut net.messenger);
        }
    }

    /// A connection is gone. `refused`: nobody listened where we dialled. `session` is what is kept of a lossless one.
    pub(crate) fn conn_closed(
        &self,
        parts: &mut LentParts<'_>,
        conn: ConnId,
        reason: &str,
        refused: bool,
        session: Option<Box<nacre_msgr::Session>>,
    ) {
        tracing::debug!(osd = self.osd, ?conn, reason, "connection closed");
        if let Some(InboundPeer::Client(session, _)) = parts.cx.net.sessions.close(conn) {
            let id = session.id;
            parts.pgs.session_closed(&mut parts.cx, id);
            parts.cx.net.router.send_others(|| ShardMsg::SessionClosed(id));
        } else {
            parts.daemon_conn_closed(conn, session, refused);
        }
    }

    /// Ends a connection over which came what does not decode.
    pub(crate) fn close_malformed(&self, parts: &mut LentParts<'_>, conn: ConnId, reason: &str) {
        parts.cx.net.messenger.close(conn);
        self.conn_closed(parts, conn, reason, false, None);
    }

    /// A session with a peer begins. The monitor has compared versions when each of the two booted; here nobody depends on what it
    /// knew. The other shards hear where their counterparts are.
    pub(crate) fn peer_greeting(
        &self,
        parts: &mut LentParts<'_>,
        conn: ConnId,
        from: OsdId,
        raw: RawMessage,
    ) {
        let ours = self.versions;
        match PeerGreeting::decode(raw) {
            Ok(greeting) if ours.agree(&greeting.versions).is_some() => {
                let net = &mut *parts.cx.net;
                for (shard, counterpart) in net.peers.counterparts(from, conn, greeting.shards.as_ref()) {
                    net.router.send(shard, ShardMsg::Counterpart(from, counterpart));
                }
            }
            Ok(PeerGreeting { versions: theirs, .. }) => {
                let text = format!(
                    "osd.{from} speaks versions {theirs} of the messages between OSDs, and osd.{} {ours}; upgrade the older one",
                    self.osd
                );
                self.cannot_talk(parts, conn, from, text);
            }
            Err(error) => {
                self.cannot_talk(
                    parts,
                    conn,
                    from,
                    format!("the versions of osd.{from} do not decode: {error}"),
                );
            }
        }
    }

    /// A peer says what we cannot read: the session with it is reset, and the operator hears why.
    pub(crate) fn cannot_talk(&self, parts: &mut LentParts<'_>, conn: ConnId, from: OsdId, why: String) {
        tracing::error!(osd = self.osd, from, why, "the session with a peer is reset");
        // The session must not be taken up again where it was.
        parts.cx.net.peers.pause(from, conn, parts.cx.now);
        parts.cx.net.router.send(0, ShardMsg::Misunderstood(from, why));
        // PGs that wait for what it said begin anew, as behind any other reset.
        self.close_malformed(parts, conn, "malformed message");
        tell_reset(parts, from);
    }

    /// A peer has forgotten the session, or begun another: what was in it is lost, and the PGs must know.
    pub(crate) fn session_reset(&self, parts: &mut LentParts<'_>, conn: ConnId, lost_count: usize) {
        let ShardNet { messenger, sessions, peers, .. } = &mut *parts.cx.net;
        let dialled = peers.peer_of(conn);
        let Some(osd) = dialled.or_else(|| sessions.peer_in_handshake(conn)) else { return };
        tracing::warn!(osd = self.osd, peer = osd, lost_count, "the session with a peer is reset");
        peers.greet_again(conn, messenger);
        tell_reset(parts, osd);
    }

    /// Messages to a peer found no room in a queue. That is as if the session with it had been reset.
    pub(crate) fn tell_losses(&self, parts: &mut LentParts<'_>) {
        for osd in parts.cx.net.peers.take_lost() {
            tracing::warn!(
                osd = self.osd,
                peer = osd,
                "messages to a peer were lost; PGs that it serves peer anew"
            );
            tell_reset(parts, osd);
        }
    }

    /// The monitor has made newer secrets.
    pub(crate) fn learn_keys(&mut self, net: &mut ShardNet, keys: RotatingKeys) {
        self.share_keys(net, keys.with_void(self.keys.void().clone()).with_caps(self.keys.caps().clone()));
    }

    /// The monitor says which tickets hold no more.
    pub(crate) fn learn_void(&mut self, net: &mut ShardNet, void: nacre_msg::VoidTickets) {
        let void = VoidTickets::told(void.of, void.all);
        self.share_keys(net, RotatingKeys::clone(&self.keys).with_void(void));
    }

    /// The monitor says what entities may do by now.
    pub(crate) fn learn_caps(&mut self, net: &mut ShardNet, caps: EntityCaps) {
        self.share_keys(net, RotatingKeys::clone(&self.keys).with_caps(ChangedCaps::told(caps.of)));
    }

    fn share_keys(&mut self, net: &mut ShardNet, keys: RotatingKeys) {
        let keys = Arc::new(keys);
        net.router.send_others(|| ShardMsg::Keys(Arc::clone(&keys)));
        self.set_keys(net, keys);
    }

    /// Takes over the secrets that tickets are opened with. Sessions whose tickets hold no more end; others go on with the caps that
    /// their entities have by now.
    pub(crate) fn set_keys(&mut self, net: &mut ShardNet, keys: Arc<RotatingKeys>) {
        self.keys = keys;
        for conn in net.sessions.with_void_tickets(self.keys.void()) {
            tracing::info!(osd = self.osd, ?conn, "the key of a peer has changed; its session ends");
            // A lossless session goes on when the peer comes again with a ticket that holds.
            net.messenger.end(conn, "its ticket is void".to_owned());
        }
        net.sessions.take_over_caps(self.keys.caps());
    }
}

/// The PGs of all shards hear that messages from and to a peer may be lost.
pub(crate) fn tell_reset(parts: &mut LentParts<'_>, osd: OsdId) {
    parts.pgs.peer_reset(&mut parts.cx, osd);
    parts.cx.net.router.send_others(|| ShardMsg::PeerReset(osd));
}

/// How connections that come in may be protected, by who the other is.
fn accepted_modes(options: &Values, kind: EntityKind) -> Offer {
    let option = match kind {
        EntityKind::OSD => "ms_cluster_mode",
        _ => "ms_service_mode",
    };
    Offer::crc_first().with_modes(options.text(option))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_auth::{AuthMethod, ConnectionMode};

    /// What one gets who asks for each of the modes alone.
    fn given(options: &[(&str, &str)], kind: EntityKind) -> [Option<ConnectionMode>; 2] {
        let offer = accepted_modes(&options.iter().copied().collect(), kind);
        [ConnectionMode::Crc, ConnectionMode::Secure]
            .map(|mode| offer.pick_mode(AuthMethod::Cephx, &[mode.code()]))
    }

    #[test]
    fn clients_and_osds_are_let_in_as_their_options_say() {
        const BOTH: [Option<ConnectionMode>; 2] = [Some(ConnectionMode::Crc), Some(ConnectionMode::Secure)];
        const SECURE: [Option<ConnectionMode>; 2] = [None, Some(ConnectionMode::Secure)];
        let (osd, client) = (EntityKind::OSD, EntityKind::CLIENT);
        assert_eq!([given(&[], osd), given(&[], client)], [BOTH, BOTH]);
        let service = [("ms_service_mode", "secure")];
        assert_eq!([given(&service, osd), given(&service, client)], [BOTH, SECURE]);
        let cluster = [("ms_cluster_mode", "secure")];
        assert_eq!([given(&cluster, osd), given(&cluster, client)], [SECURE, BOTH]);
    }
}
