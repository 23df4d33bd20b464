//! [`ShardNet`]: the connections of a shard and the ways out of it: to clients, to other OSDs, to the other shards.

use crate::admin_sessions::AdminSessions;
use crate::awaiting_memory::{AwaitingMemory, Waiting};
use crate::client_limits::Limits;
use crate::links::NetCx;
use crate::peer_links::{Counterpart, PeerLinks};
use crate::sessions::Sessions;
use crate::shard_links::ShardLinks;
use crate::shard_msg::{ShardMsg, ShardRouter, session_id};
use nacre_auth::ServiceAccess;
use nacre_env::{Clock, ListenerId};
use nacre_maps::OsdMap;
use nacre_msg::peer::PeerMessage;
use nacre_msg::{Message, RawMessage};
use nacre_msgr::{Config as MsgrConfig, Event as ConnEvent, Session};
use nacre_options::Values;
use nacre_osd_core::MapCache;
use nacre_pg::{ClientOp, Planted, SessionId};
use nacre_service::{ConnId, Messenger};
use nacre_types::{Entropy, Epoch, OsdId, SpgId, Stamp, UTime};
use std::sync::Arc;

/// A turn that brought no more events than this sends before it lets the store work; a busier one sends once.
const EARLY_SEND_MAX: usize = 2;
/// Which of a shard's messages are garbled, where that is planted.
const GARBLED: [u64; 2] = [40, 200];
/// Of clients' messages for other shards this part is dropped where that is planted.
const DROPPED_ONE_IN: u64 = 8;

/// Which clients wait until others take their answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeptOut {
    /// No client waits for that.
    Nobody,
    /// The one on this connection: that it takes nothing itself is its own affair.
    One(Option<ConnId>),
    /// More than one.
    Several,
}

/// What a shard sends with. It decides nothing but where a message goes.
pub(crate) struct ShardNet {
    pub(crate) messenger: Messenger,
    /// Where clients come in.
    public: ListenerId,
    pub(crate) sessions: Sessions,
    pub(crate) router: ShardRouter,
    pub(crate) admin: AdminSessions,
    pub(crate) peers: PeerLinks,
    /// On other shards than the first.
    shard_links: Option<ShardLinks>,
    pub(crate) maps: MapCache,
    /// Other OSDs are not read for the store's sake.
    pub(crate) peers_held: bool,
    /// How many times that began.
    pub(crate) peer_holds: u64,
    /// This turn has little to do: latency counts, not the processor's time.
    lightly_loaded: bool,
    /// A mistake built in on purpose, now and then: [`Planted::MessagesGarbled`], [`Planted::OtherShardsOpsDropped`].
    planted: Planted,
    sent_to_peers: u64,
}

impl ShardNet {
    pub(crate) fn new(
        (messenger, public): (Messenger, ListenerId),
        (sessions, router): (Sessions, ShardRouter),
        (peers, shard_links): (PeerLinks, Option<ShardLinks>),
        maps: MapCache,
        planted: Planted,
    ) -> Self {
        Self {
            messenger,
            public,
            sessions,
            router,
            admin: AdminSessions::default(),
            peers,
            shard_links,
            maps,
            peers_held: false,
            peer_holds: 0,
            lightly_loaded: false,
            planted,
            sent_to_peers: 0,
        }
    }

    /// Sends a message to a client, through the shard that it is connected to.
    pub(crate) fn tell_session(&mut self, session: SessionId, message: RawMessage) {
        let shard = session_id::shard(session);
        if shard != self.router.me {
            return self.router.send(shard, ShardMsg::ToSession(session, message));
        }
        match self.sessions.conn(session) {
            Some(conn) => drop(self.messenger.send(conn, message)),
            None => self.admin.answer(session, message),
        }
    }

    /// What of clients' messages that wait for memory goes on next.
    pub(crate) fn next_with_room(&self, awaiting: &mut AwaitingMemory) -> Option<(SessionId, Waiting)> {
        if awaiting.is_empty() || !self.sessions.takes_more(awaiting.count()) {
            return None;
        }
        let room = |session, bytes| self.sessions.room(session, bytes, &self.messenger);
        awaiting.next(room, |session| self.sessions.owes(session, &self.messenger))
    }

    /// Whether there is something that [`ShardNet::next_with_room`] would yield.
    pub(crate) fn has_room_for_next(&self, awaiting: &AwaitingMemory) -> bool {
        let room = |session, bytes| self.sessions.room(session, bytes, &self.messenger);
        !awaiting.is_empty() && self.sessions.takes_more(awaiting.count()) && awaiting.has_next(room)
    }

    /// Who waits until others take their answers: for nothing else, or to be read at all.
    pub(crate) fn kept_out(&self, awaiting: &AwaitingMemory) -> KeptOut {
        if self.sessions.is_full_of_unsent(&self.messenger) {
            return KeptOut::Several;
        }
        let room = |session, bytes| self.sessions.room(session, bytes, &self.messenger);
        let mut kept_out = awaiting.kept_out(room);
        match (kept_out.next(), kept_out.next()) {
            (None, _) => KeptOut::Nobody,
            (Some(session), None) => KeptOut::One(self.sessions.conn(session)),
            (Some(_), Some(_)) => KeptOut::Several,
        }
    }

    /// Hands a client the maps behind `since`.
    pub(crate) fn push_maps(&mut self, session: SessionId, since: Epoch) {
        let message = Message::from(self.maps.message_since(since)).encode(0);
        self.tell_session(session, message);
    }

    /// Sends a message to another OSD by the link of this shard, or of the first one where this one has none.
    pub(crate) fn send_peer(&mut self, osd: OsdId, message: RawMessage) {
        if let Some(message) = self.peers.send(osd, message, &mut self.messenger) {
            self.router.send(0, ShardMsg::ToPeer(osd, message));
        }
    }

    /// Sends a PG's message to the same PG, or another, of `osd`, which may be this one.
    pub(crate) fn send_pg(&mut self, me: OsdId, osd: OsdId, message: PeerMessage) {
        if osd == me {
            let shard = self.router.shard_of(&message.header().spg);
            return self.router.send(shard, ShardMsg::Peer(osd, Box::new(message)));
        }
        let spg = message.header().spg;
        let message = self.garbled(message.encode(0));
        self.send_for_pg(&spg, osd, message);
    }

    /// Sends a message for a PG to another OSD: as what comes for it, by the shard that had the PG first, so that what was sent before the PG
    /// changed its shard is not overtaken.
    pub(crate) fn send_for_pg(&mut self, spg: &SpgId, osd: OsdId, message: RawMessage) {
        match self.router.entry_of(spg) {
            shard if shard == self.router.me => self.send_peer(osd, message),
            shard => self.router.send(shard, ShardMsg::ToPeer(osd, message)),
        }
    }

    /// Hands a client's message to the shard of its PG; `count` clients' messages have come here so far.
    pub(crate) fn forward_op(&mut self, shard: usize, spg: SpgId, op: ClientOp, count: u64) {
        if self.planted != Planted::OtherShardsOpsDropped || !count.is_multiple_of(DROPPED_ONE_IN) {
            self.router.send(shard, ShardMsg::Op(spg, op));
        }
    }

    /// Goes on under these addresses, as OSD control does.
    pub(crate) fn rebind(&mut self, public: Arc<MsgrConfig>, cluster: Arc<MsgrConfig>) {
        self.messenger.serve(self.public, public);
        self.hang_up_osds();
        let Self { messenger, peers, shard_links, .. } = self;
        if let Some(links) = shard_links {
            links.rebind(cluster, peers, messenger);
        }
    }

    /// The links of a shard beside the first one follow the newest map that the first one has.
    pub(crate) fn follow_peers(&mut self, map: Arc<OsdMap>) {
        let Self { messenger, peers, shard_links, .. } = self;
        if let Some(links) = shard_links {
            links.follow(map, peers, messenger);
        }
    }

    /// It is known how the same shard of `osd` is reached. False when messages to it were lost meanwhile.
    pub(crate) fn learn_counterpart(&mut self, osd: OsdId, counterpart: Counterpart) -> bool {
        let Some(links) = &self.shard_links else { return true };
        let waited = links.learn_counterpart(osd, counterpart, &mut self.peers);
        for message in waited.messages {
            self.router.send(0, ShardMsg::ToPeer(osd, message));
        }
        !waited.is_incomplete
    }

    /// OSD control has another ticket for other OSDs.
    pub(crate) fn learn_access(&mut self, access: Arc<ServiceAccess>) {
        if let Some(links) = &mut self.shard_links {
            links.learn_access(access);
        }
    }

    /// When a link of a shard beside the first one is to be dialled.
    pub(crate) fn links_due(&self) -> Option<Stamp> {
        self.shard_links.as_ref().and_then(|links| links.next_deadline(&self.peers))
    }

    /// A connection of a shard beside the first one with another OSD is gone.
    pub(crate) fn link_conn_closed(&mut self, conn: ConnId, session: Option<Box<Session>>, now: Stamp) {
        if let Some(osd) = self.peers.peer_of(conn) {
            self.peers.conn_closed(osd, session, now);
        }
    }

    /// Lets no message of other OSDs begin as long as the store is overrun ([`nacre_store::ObjectStore::is_overrun`]): most of what they send
    /// waits for acknowledgements, but the logs of all PGs of an OSD that was away come at once. Heartbeats have connections of their own.
    pub(crate) fn hold_peers(&mut self, is_overrun: bool) {
        if !is_overrun && !self.peers_held {
            return;
        }
        self.peer_holds += u64::from(is_overrun && !self.peers_held);
        self.peers_held = is_overrun;
        // Each time all of them: some may be new.
        for conn in self.peers.open_conns() {
            self.messenger.set_paused(conn, is_overrun);
        }
    }

    /// Ends the connections of other OSDs.
    pub(crate) fn hang_up_osds(&mut self) {
        for conn in self.sessions.of_osds() {
            self.messenger.close(conn);
            self.sessions.close(conn);
        }
    }

    /// Takes over what options say of sessions. `client_bytes_max` is what the memory target has for clients' messages.
    pub(crate) fn follow_options(&mut self, options: &Values, client_bytes_max: usize) {
        if let Some(links) = &mut self.shard_links {
            links.follow_options(options, (&mut self.peers, &mut self.messenger));
        }
        // 0 means no limit.
        let limit = |name| Some(options.count(name)).filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let (messages, bytes) = (limit("osd_client_message_cap"), limit("osd_client_message_size_cap"));
        let limits = Limits { messages, bytes: bytes.min(client_bytes_max) };
        self.sessions.set_limits(limits, &mut self.messenger);
    }

    fn garbled(&mut self, mut message: RawMessage) -> RawMessage {
        if self.planted == Planted::MessagesGarbled {
            self.sent_to_peers += 1;
            if GARBLED.contains(&self.sent_to_peers) {
                message.front = nacre_buf::Bytes::from_static(b"?");
            }
        }
        message
    }

    /// Notes how many events there are to handle before the next sending.
    pub(crate) fn note_load(&mut self, events: usize) {
        self.lightly_loaded = events <= EARLY_SEND_MAX;
    }

    /// Sends what is there, if there is little to do.
    pub(crate) fn flush_early(&mut self) {
        if self.lightly_loaded {
            self.messenger.flush();
        }
    }
}

/// What a shard lends to its parts: clocks, randomness, options and the ways out.
pub(crate) struct ShardCx<'a> {
    /// As the turn has it.
    pub(crate) now: Stamp,
    pub(crate) wall: UTime,
    /// For what must not rest on a time that was read before the sockets.
    pub(crate) clock: &'a dyn Clock,
    pub(crate) entropy: &'a mut dyn Entropy,
    pub(crate) options: &'a Values,
    pub(crate) net: &'a mut ShardNet,
}

impl ShardCx<'_> {
    /// Lets the links of a shard beside the first one work.
    fn lend_links(&mut self, work: impl FnOnce(&mut ShardLinks, &mut PeerLinks, &mut NetCx<'_>, &Values)) {
        let ShardNet { messenger, peers, shard_links, router, .. } = &mut *self.net;
        let Some(links) = shard_links else { return };
        let mut net = NetCx { now: self.now, wall: self.wall, entropy: &mut *self.entropy, messenger };
        work(links, peers, &mut net, self.options);
        if let Some(access) = links.take_refused() {
            router.send(0, ShardMsg::PeerAccessRefused(access));
        }
    }

    /// Dials what is due of them.
    pub(crate) fn dial_links(&mut self) {
        if self.net.links_due().is_some_and(|due| due <= self.now) {
            self.lend_links(|links, peers, net, options| links.dial(peers, net, options));
        }
    }

    /// An event of a connection that one of them has dialled.
    pub(crate) fn link_conn_event(&mut self, conn: ConnId, event: ConnEvent) {
        self.lend_links(|links, peers, net, options| links.conn_event((conn, event), peers, net, options));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::tests::two_shards;
    use nacre_maps::Pool;
    use nacre_msg::peer::{PeerGreeting, PeerVersions};
    use nacre_types::PgId;

    /// Pool 1 has two PGs, of which 1.1 is on the first shard, and goes to the second one when the pool is about to have one PG.
    fn map(epoch: Epoch, pending: u32) -> OsdMap {
        let pool = Pool { pg_num: 2, pg_num_pending: pending, ..Pool::default() };
        OsdMap { epoch, pools: [(1, pool)].into(), ..OsdMap::default() }
    }

    #[test]
    fn what_a_pg_sends_goes_by_its_first_shard_also_when_it_has_changed_its_shard() {
        let (mut first, mut second) = two_shards();
        let moved = SpgId::replicated(PgId::new(1, 1));
        let message = || PeerGreeting { versions: PeerVersions::OURS, shards: None }.encode();
        for shard in [&mut first, &mut second] {
            shard.net.router.learn_map(&map(1, 2));
        }
        let before = first.net.router.shard_of(&moved);
        for shard in [&mut first, &mut second] {
            shard.net.router.learn_map(&map(2, 1));
        }
        assert_ne!(first.net.router.shard_of(&moved), before, "it has changed its shard");
        let (here, there) = if before == 0 { (&mut second, &mut first) } else { (&mut first, &mut second) };
        here.net.send_for_pg(&moved, 3, message());
        let sent: Vec<ShardMsg> = there.mailbox.take().collect();
        assert!(matches!(&sent[..], [ShardMsg::ToPeer(3, _)]), "{sent:?}");
        there.net.send_for_pg(&moved, 3, message());
        assert_eq!(here.mailbox.take().count(), 0, "it has the link itself");
    }
}
