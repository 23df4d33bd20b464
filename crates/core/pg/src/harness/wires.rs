//! What is on the wires of a [`World`]: messages between OSDs, and between clients and them.

use super::client::{Client, object};
use super::world::{End, Packet, World, pg};
use crate::{ClientOp, Event, PgCreateInfo, SessionId};
use nacre_msg::peer::PeerMessage;
use nacre_msg::size::{FRONT_BYTES_MAX, PEER_BYTES_MAX};
use nacre_msg::{OsdBackoff, RawMessage, SubOp, backoff_op};
use nacre_types::{OsdId, SnapId};
use std::collections::VecDeque;

impl World {
    pub(super) fn put(&mut self, from: End, to: End, mut packet: Packet) {
        if let Packet::Peer(raw) = &mut packet
            && !self.may_lie(from, raw)
        {
            return;
        }
        if let Packet::Peer(raw) = &packet {
            if self.loses(raw) {
                return;
            }
            // No messenger would take it.
            assert!(raw.front.len() <= FRONT_BYTES_MAX as usize, "a front of {} bytes", raw.front.len());
            assert!(raw.data.len() <= PEER_BYTES_MAX as usize, "{} bytes of data", raw.data.len());
            self.longest_message = self.longest_message.max(raw.front.len() + raw.data.len());
            if let End::Osd(osd) = to {
                *self.sent.entry((osd, raw.kind)).or_default() += 1;
            }
            self.note(|| {
                format!(
                    "  {from:?} -> {to:?} {:?}",
                    PeerMessage::decode(raw.clone()).map(|m| (m.name(), m.header().epoch))
                )
            });
        }
        self.wires.entry((from, to)).or_default().push_back(packet);
    }

    /// False when what the liar says cannot be read: its session is reset.
    pub(super) fn may_lie(&mut self, from: End, raw: &mut RawMessage) -> bool {
        let Some((_, of)) = self.liar.filter(|(liar, _)| from == End::Osd(*liar)) else { return true };
        // What it writes in its own copies it may write in ours: that is no lie.
        let is_write = raw.kind == nacre_msg::peer::RepOp::KIND || raw.kind == nacre_msg::peer::Push::KIND;
        if is_write || !self.chance(of) {
            return true;
        }
        let mut front = raw.front.to_vec();
        for _ in 0..=self.pick(3) {
            let at = self.pick(front.len());
            front[at] = match self.pick(3) {
                0 => front[at] ^ 1 << self.pick(8),
                1 => front[at].wrapping_add(1),
                _ => u8::try_from(self.pick(256)).unwrap_or(0),
            };
        }
        raw.front = front.into();
        PeerMessage::decode(raw.clone()).is_ok()
    }

    pub(super) fn loses(&mut self, raw: &RawMessage) -> bool {
        const LOST: [&str; 15] = [
            "Query",
            "Notify",
            "LogReply",
            "Activate",
            "Activated",
            "Scan",
            "ScanReply",
            "RepOp",
            "RepOpReply",
            "Pull",
            "Push",
            "PushReply",
            "Release",
            "ScrubRequest",
            "ScrubReply",
        ];
        let named = |name: &str| PeerMessage::decode(raw.clone()).is_ok_and(|message| message.name() == name);
        self.losses > 0 && self.chance(self.losses) && LOST.into_iter().any(named)
    }

    pub(super) fn client_of(&self, session: SessionId) -> Option<usize> {
        let owns = |client: &Client| client.sessions.values().any(|open| open.id == session);
        self.clients.iter().position(owns)
    }

    pub(super) fn peer_message(&mut self, osd: OsdId, from: OsdId, message: PeerMessage) {
        if self.osds[&osd].pg.is_none() {
            if message.header().epoch > self.osds[&osd].epoch {
                return self.osds.get_mut(&osd).expect("an OSD").early.push((from, message));
            }
            match PgCreateInfo::called_for(&message) {
                None => return self.with(osd, |cx, _| crate::reply_without_pg(cx, from, &message)),
                Some(create_info) => self.create_info(osd, create_info),
            }
        }
        self.event(osd, Event::Peer { from, message });
    }

    pub(super) fn client_op(&mut self, osd: OsdId, op: ClientOp) {
        if self.osds[&osd].pg.is_none() {
            return self.osds.get_mut(&osd).expect("an OSD").held.push(op);
        }
        self.event(osd, Event::ClientOp(op));
    }

    /// Delivers the oldest packet of a wire.
    pub(super) fn deliver(&mut self, wire: (End, End)) {
        let Some(packet) = self.wires.get_mut(&wire).and_then(VecDeque::pop_front) else { return };
        match (wire.1, packet) {
            (End::Osd(osd), _) if !self.osds[&osd].running => {}
            (End::Osd(osd), Packet::Peer(raw)) => {
                let End::Osd(from) = wire.0 else { unreachable!("peers are OSDs") };
                let message = PeerMessage::decode(raw).expect("what a peer encoded");
                self.peer_message(osd, from, message);
            }
            (End::Osd(osd), Packet::Op(op)) => self.client_op(osd, op),
            (End::Osd(osd), Packet::Closed(session)) => {
                self.osds.get_mut(&osd).expect("an OSD").held.retain(|op| op.session.id != session);
                self.event(osd, Event::SessionClosed(session));
            }
            (End::Osd(osd), Packet::Ack(session, id)) => {
                self.event(osd, Event::BackoffAck { session, id });
            }
            (End::Client(at), Packet::Backoff(session, message)) => {
                let End::Osd(osd) = wire.0 else { unreachable!("OSDs send backoffs") };
                self.on_backoff(at, osd, session, *message);
            }
            (End::Client(at), Packet::Reply(session, tid, message)) => {
                let client = &mut self.clients[at];
                let open = client.sessions.values().any(|open| open.id == session);
                if open && client.sent.remove(&tid).is_some() {
                    client.replies.insert(tid, *message);
                }
            }
            (End::Client(at), Packet::Watch(session, message)) => {
                if self.clients[at].sessions.values().any(|open| open.id == session) {
                    self.watch_messages.push((at, *message));
                }
            }
            _ => unreachable!("a packet for the other kind of end"),
        }
    }

    pub(super) fn on_backoff(&mut self, at: usize, osd: OsdId, session: SessionId, message: OsdBackoff) {
        let client = &mut self.clients[at];
        if client.sessions.get(&osd).is_none_or(|open| open.id != session) {
            return;
        }
        if message.op == backoff_op::BLOCK {
            client.held.insert((osd, message.id), (message.begin, message.end));
            return self.put(End::Client(at), End::Osd(osd), Packet::Ack(session, message.id));
        }
        let (begin, end) = client.held.remove(&(osd, message.id)).expect("it was told to hold");
        let covers = |name: &str| {
            let object = object(name);
            object == begin || (begin < object && object < end)
        };
        self.resend(at, |sent| sent.target == Some(osd) && covers(&sent.object));
    }

    /// Sends a request, or one more time.
    pub(crate) fn send(&mut self, at: usize, tid: u64) {
        let epoch = self.clients[at].epoch;
        let primary = self.map_at(epoch).pg_to_up_acting(pg()).acting_primary;
        let client = &mut self.clients[at];
        let Some(sent) = client.sent.get_mut(&tid) else { return };
        sent.retries += i32::from(sent.target.is_some());
        sent.target = None;
        if primary < 0 || !self.osds[&primary].running {
            return; // goes out with the next map
        }
        sent.target = Some(primary);
        if client.holds(primary, &client.sent[&tid].object) {
            return;
        }
        let session = client.session(primary, &mut self.last_session);
        let message = client.message(tid, session);
        self.put(End::Client(at), End::Osd(primary), Packet::Op(message));
    }

    /// A client sends a new request.
    pub(crate) fn request(&mut self, at: usize, object: &str, ops: Vec<SubOp>) -> u64 {
        let tid = self.clients[at].request(object, ops);
        self.send(at, tid);
        tid
    }

    /// A client sends a request that was answered once more.
    pub(crate) fn repeat(&mut self, at: usize, tid: u64, object: &str, ops: Vec<SubOp>) {
        let (object, snaps) = (object.to_owned(), Vec::new());
        let sent = super::Sent { object, ops, snaps, flags: 0, target: None, retries: 1 };
        self.clients[at].replies.remove(&tid);
        self.clients[at].sent.insert(tid, sent);
        self.send(at, tid);
    }

    /// The same under a snapshot context, newest first.
    pub(crate) fn request_with_snaps(
        &mut self,
        at: usize,
        object: &str,
        ops: Vec<SubOp>,
        snaps: Vec<SnapId>,
    ) -> u64 {
        let tid = self.clients[at].request(object, ops);
        self.clients[at].sent.get_mut(&tid).expect("just made").snaps = snaps;
        self.send(at, tid);
        tid
    }

    /// The connection between two OSDs breaks, with all that is on it.
    pub(crate) fn cut(&mut self, one: OsdId, other: OsdId) {
        for (from, to) in [(one, other), (other, one)] {
            self.wires.remove(&(End::Osd(from), End::Osd(to)));
        }
        for (osd, peer) in [(one, other), (other, one)] {
            if self.osds[&osd].running {
                self.osds.get_mut(&osd).expect("an OSD").early.retain(|(from, _)| *from != peer);
                self.event(osd, Event::PeerReset(peer));
            }
        }
    }

    /// A client's connection breaks; it makes a new one and sends everything again.
    pub(crate) fn reset_session(&mut self, at: usize, osd: OsdId) {
        let Some(session) = self.clients[at].sessions.remove(&osd) else { return };
        self.clients[at].held.retain(|(of, _), _| *of != osd);
        self.wires.remove(&(End::Osd(osd), End::Client(at)));
        self.wires.remove(&(End::Client(at), End::Osd(osd)));
        if self.osds[&osd].running {
            self.put(End::Client(at), End::Osd(osd), Packet::Closed(session.id));
        }
        self.resend(at, |sent| sent.target == Some(osd));
    }

    pub(super) fn resend(&mut self, at: usize, which: impl Fn(&super::Sent) -> bool) {
        let again = self.clients[at].sent.iter().filter(|(_, sent)| which(sent)).map(|(tid, _)| *tid);
        let again: Vec<u64> = again.collect();
        again.into_iter().for_each(|tid| self.send(at, tid));
    }

    /// A client learns of the next map; what another primary serves now goes there.
    pub(super) fn inform(&mut self, at: usize) {
        self.clients[at].epoch += 1;
        let map = self.map_at(self.clients[at].epoch);
        let primary = map.pg_to_up_acting(pg()).acting_primary;
        self.resend(at, |sent| sent.target.is_none() || sent.target != Some(primary));
    }
}
