//! What other OSDs say, and what is done where some of it is lost or cannot be read.

use super::Shard;
use crate::peer_links::PeerLinks;
use crate::shard_msg::ShardMsg;
use nacre_msg::RawMessage;
use nacre_msg::peer::{PeerMessage, PeerVersions};
use nacre_pg::Event;
use nacre_service::ConnId;
use nacre_types::OsdId;

impl Shard {
    pub(super) fn peer_message(&mut self, conn: ConnId, from: OsdId, raw: RawMessage) {
        if raw.kind == PeerVersions::KIND {
            return self.peer_versions(conn, from, raw);
        }
        match PeerMessage::decode(raw) {
            Ok(message) => {
                let shard = self.router.shard_of(&message.header().spg);
                if shard == self.router.me {
                    self.peer_event(from, message);
                } else {
                    self.router.send(shard, ShardMsg::Peer(from, Box::new(message)));
                }
            }
            Err(error) => {
                self.cannot_talk(conn, from, format!("a message of osd.{from} does not decode: {error}"));
            }
        }
    }

    /// A session with a peer begins. The monitor has compared versions when each of the two booted; here nobody depends on what it
    /// knew.
    fn peer_versions(&mut self, conn: ConnId, from: OsdId, raw: RawMessage) {
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
    fn cannot_talk(&mut self, conn: ConnId, from: OsdId, why: String) {
        tracing::error!(osd = self.config.id, from, why, "the session with a peer is reset");
        self.with_control(|control, cx| control.misunderstood(cx, conn, from, why));
        // Whoever waits for what it said begins anew, as behind any other reset.
        self.messenger.close(conn);
        self.conn_closed(conn, "malformed message", false, None);
        self.tell_reset(from);
    }

    /// A peer has forgotten the session, or begun another: what was in it is lost, and the PGs must know.
    pub(super) fn session_reset(&mut self, conn: ConnId, lost_count: usize) {
        let dialled = self.peers.as_ref().and_then(|peers| peers.peer_of(conn));
        let Some(osd) = dialled.or_else(|| self.sessions.peer_in_handshake(conn)) else { return };
        tracing::warn!(osd = self.config.id, peer = osd, lost_count, "the session with a peer is reset");
        if let Some(peers) = &mut self.peers {
            peers.greet_again(conn, &mut self.messenger);
        }
        self.tell_reset(osd);
    }

    /// Messages to a peer found no room in a queue. That is as if the session with it had been reset.
    pub(super) fn tell_losses(&mut self) {
        for osd in self.peers.as_mut().map(PeerLinks::take_lost).unwrap_or_default() {
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
        self.peer_reset(osd);
        self.router.send_others(|| ShardMsg::PeerReset(osd));
    }

    pub(super) fn peer_reset(&mut self, osd: OsdId) {
        for spg in self.pgs.all() {
            self.deliver(spg, Event::PeerReset(osd));
        }
    }
}
