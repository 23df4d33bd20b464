//! [`Dispatch`]: what comes in on a shard, and which part of it that is for: the PGs, OSD control, connections or maps.
//!
//! | from | here |
//! |---|---|
//! | sockets | [`Dispatch::incoming`]: connections, and messages of clients and other OSDs |
//! | other shards | [`Dispatch::shard_msg`] |
//! | OSD control | [`Dispatch::control_event`] |
//!
//! What is for the shard as a whole comes back as a [`ShardAction`].

use crate::awaiting_memory::{Room, Waiting};
use crate::bill::Work;
use crate::command_reply::Failure;
use crate::connections::{Connections, tell_reset};
use crate::control::OsdControl;
use crate::control_event::ControlEvent;
use crate::gather::Shown;
use crate::lent_parts::LentParts;
use crate::map_intake::MapIntake;
use crate::pg_query;
use crate::sessions::{AuthFrame, InboundPeer};
use crate::shard_msg::{ShardMsg, client_op};
use nacre_msg::peer::{PeerGreeting, PeerMessage};
use nacre_msg::{BillClass, Command, Message, OsdForceRecovery, RawMessage, backoff_op, force_option};
use nacre_msgr::{DATA_BYTES_MAX, Event as ConnEvent};
use nacre_options::Values;
use nacre_osd_core::MapSource;
use nacre_pg::{ClientOp, Event, Permit, PgCreateInfo, RecoveryKind, Session, SessionId, expected_bytes};
use nacre_service::{ConnId, Incoming};
use nacre_txn::StoreToken;
use nacre_types::{OsdId, SpgId};
use std::sync::Arc;

/// About what a client's message takes in memory beside what it brings, decoded and in a queue.
const MESSAGE_BYTES: usize = 1024;

/// What concerns all of a shard.
#[derive(Debug)]
pub(crate) enum ShardAction {
    /// These options hold from now on.
    FollowOptions(Arc<Values>),
    /// These options hold from now on, on all shards.
    ShareOptions(Values),
    /// The monitor wants to know how the device with this id is.
    AskDevice(String),
    /// A client gives a command, under this number.
    Command(Arc<Session>, u64, Box<Command>),
    /// The first shard wants to know this of the shard, for the command of that number.
    Show(u64, Shown),
    /// A shard shows its part of the answer to a command.
    TakePart(u64, usize, Box<Result<serde_json::Value, Failure>>),
    /// This is the shard's last turn.
    Stop,
}

/// The parts of a shard between which events are shared out.
pub(crate) struct Dispatch<'a> {
    pub(crate) parts: LentParts<'a>,
    pub(crate) connections: &'a mut Connections,
    pub(crate) maps: &'a mut MapIntake,
}

impl Dispatch<'_> {
    /// Something happened on a socket.
    pub(crate) fn incoming(&mut self, item: Incoming) {
        match item {
            Incoming::Event { conn, event } => self.conn_event(conn, event),
            Incoming::Closed { conn, reason, refused, session } => {
                self.connections.conn_closed(&mut self.parts, conn, &reason, refused, session);
            }
        }
    }

    fn conn_event(&mut self, conn: ConnId, event: ConnEvent) {
        let Self { parts, connections, .. } = self;
        if !matches!(event, ConnEvent::Message(_)) {
            parts.pgs.bill.class(BillClass::Housekeeping, Work::Control, 0);
        }
        match event {
            ConnEvent::AuthRequest { method, modes, payload } => {
                let frame = AuthFrame::Request { method, modes, payload };
                connections.authenticate(&mut parts.cx, conn, frame);
            }
            ConnEvent::AuthMore { payload } => {
                connections.authenticate(&mut parts.cx, conn, AuthFrame::More { payload });
            }
            ConnEvent::Message(raw) => self.message(conn, raw),
            ConnEvent::SessionReset { lost_count } => connections.session_reset(parts, conn, lost_count),
            ConnEvent::Established(peer) if parts.cx.net.sessions.inbound_peer(conn).is_some() => {
                connections.established(parts, conn, &peer);
            }
            event => parts.dialled_conn_event(conn, event),
        }
    }

    fn message(&mut self, conn: ConnId, raw: RawMessage) {
        let net = &mut *self.parts.cx.net;
        match net.sessions.inbound_peer(conn) {
            Some(InboundPeer::Client(session, budget)) => {
                let own = net.sessions.own_cost(MESSAGE_BYTES + raw.front.len() + raw.data.len());
                let (session, permit) = (Arc::clone(session), budget.take(own));
                self.client_message(conn, session, permit, raw);
            }
            Some(InboundPeer::Peer(osd)) => {
                let osd = *osd;
                self.peer_message(conn, osd, raw);
            }
            None if let Some(osd) = net.peers.peer_of(conn) => {
                self.peer_message(conn, osd, raw);
            }
            // Only zeros are left of it, and only a client's message is refused for its length.
            _ if raw.data.len() > DATA_BYTES_MAX as usize => {
                tracing::error!(
                    osd = self.parts.pgs.osd,
                    ?conn,
                    bytes = raw.data.len(),
                    "message longer than any daemon sends; closing the connection"
                );
                self.connections.close_malformed(&mut self.parts, conn, "message too long");
            }
            Some(InboundPeer::HeartbeatPeer(osd)) => {
                let osd = *osd;
                self.parts.pgs.bill.class(BillClass::Housekeeping, Work::Control, 0);
                self.parts.lend_control(|control, cx| control.pinged(cx, conn, osd, raw));
            }
            Some(InboundPeer::Handshake(..)) => net.messenger.close(conn),
            None => {
                let event = ConnEvent::Message(raw);
                self.parts.pgs.bill.class(BillClass::Housekeeping, Work::Control, 0);
                self.parts.lend_control(|control, cx| control.conn_event(cx, conn, event));
            }
        }
    }

    /// A client's message, which holds `permit` until it is done.
    fn client_message(&mut self, conn: ConnId, session: Arc<Session>, permit: Permit, raw: RawMessage) {
        let LentParts { pgs, cx, .. } = &mut self.parts;
        let tid = raw.tid;
        match Message::decode(raw) {
            Ok(Message::OsdOp(op)) => {
                let spg = SpgId::replicated(op.spg.pg); // clients name the primary's place; copies have none
                let bytes = expected_bytes(&op, pgs.pgs.message_limits());
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                let (awaiting, id) = (&pgs.awaiting_memory, session.id);
                let room = cx.net.sessions.room(id, bytes, &cx.net.messenger);
                let waits = room != Room::There || awaiting.has_before(id, bytes);
                let waiting = awaiting.count() + usize::from(waits);
                cx.net.sessions.throttle(conn, &permit, (waits, waiting), &mut cx.net.messenger);
                let op = client_op(session, tid, Box::new(op), cx.now, permit);
                pgs.counters.ops += 1;
                pgs.counters.op_in_bytes += op.trace.input_bytes;
                match waits {
                    true => pgs.awaiting_memory.push(spg, op, bytes, room),
                    false => self.client_op(spg, op, bytes),
                }
            }
            Ok(Message::OsdBackoff(backoff)) if backoff.op == backoff_op::ACK_BLOCK => {
                let (spg, session, id) = (SpgId::replicated(backoff.spg.pg), session.id, backoff.id);
                // What the client sent before it is held and would be taken if it came later.
                if !pgs.awaiting_memory.push_ack(session, spg, id) {
                    self.backoff_ack(session, spg, id);
                }
            }
            Ok(Message::Command(command)) => {
                cx.net.router.send(0, ShardMsg::Command(session, tid, Box::new(command)));
            }
            // Objecter's sign of life on sessions with watches; a manager's configuration of us.
            Ok(Message::Ping(_) | Message::MgrConfigure(_)) => (),
            Ok(other) => {
                tracing::debug!(name = other.name(), client = %session.name, "message not for an OSD")
            }
            Err(error) => {
                tracing::warn!(client = %session.name, %error, "message does not decode; closing the session");
                self.connections.close_malformed(&mut self.parts, conn, "malformed message");
            }
        }
    }

    /// A client's message may come to take so many bytes more, and goes to its PG's shard.
    fn client_op(&mut self, spg: SpgId, mut op: ClientOp, bytes: usize) {
        let LentParts { pgs, cx, .. } = &mut self.parts;
        op.permit.expect(cx.net.sessions.cost(bytes));
        pgs.bill.client_op(&op.session, &op.op, true);
        match cx.net.router.entry_of(&spg) {
            shard if shard == cx.net.router.me => pgs.client_op(cx, spg, op),
            shard => cx.net.forward_op(shard, spg, op, pgs.counters.ops),
        }
    }

    /// A client holds its messages, as it was asked to.
    fn backoff_ack(&mut self, session: SessionId, spg: SpgId, id: u64) {
        let LentParts { pgs, cx, .. } = &mut self.parts;
        match cx.net.router.shard_of(&spg) {
            // At once: what the client sends behind it must not come first, or would be dropped as held.
            shard if shard == cx.net.router.me => pgs.backoff_ack(cx, spg, session, id),
            shard => cx.net.router.send(shard, ShardMsg::BackoffAck { spg, session, id }),
        }
    }

    /// Messages that waited for memory go on, as far as there is some.
    pub(crate) fn admit_waiting(&mut self) {
        loop {
            let LentParts { pgs, cx, .. } = &mut self.parts;
            match cx.net.next_with_room(&mut pgs.awaiting_memory) {
                Some((_, Waiting::Op { spg, op, bytes })) => self.client_op(spg, op, bytes),
                Some((session, Waiting::BackoffAck { spg, id })) => self.backoff_ack(session, spg, id),
                None => return,
            }
        }
    }

    fn peer_message(&mut self, conn: ConnId, from: OsdId, raw: RawMessage) {
        let Self { parts, connections, .. } = self;
        if raw.kind == PeerGreeting::KIND {
            return connections.peer_greeting(parts, conn, from, raw);
        }
        match PeerMessage::decode(raw).inspect(|message| parts.pgs.bill.peer_message(message)) {
            Ok(message) => match parts.cx.net.router.entry_of(&message.header().spg) {
                shard if shard == parts.cx.net.router.me => {
                    parts.pgs.peer_message(&mut parts.cx, from, message);
                }
                shard => parts.cx.net.router.send(shard, ShardMsg::Peer(from, Box::new(message))),
            },
            Err(error) => {
                let why = format!("a message of osd.{from} does not decode: {error}");
                connections.cannot_talk(parts, conn, from, why);
            }
        }
    }

    /// Another shard says something, or this one to itself.
    pub(crate) fn shard_msg(&mut self, msg: ShardMsg) -> Option<ShardAction> {
        let LentParts { pgs, cx, .. } = &mut self.parts;
        match msg {
            ShardMsg::Op(spg, op) => {
                pgs.bill.client_op(&op.session, &op.op, false);
                pgs.client_op(cx, spg, op);
            }
            ShardMsg::Peer(from, message) => {
                pgs.bill.peer_message(&message);
                pgs.peer_message(cx, from, *message);
            }
            ShardMsg::SessionClosed(session) => pgs.session_closed(cx, session),
            ShardMsg::PeerReset(osd) => pgs.peer_reset(cx, osd),
            ShardMsg::Create(spg, create_info) => pgs.create_pg(cx, spg, *create_info),
            ShardMsg::Leases(leases) => pgs.set_leases(cx, leases),
            ShardMsg::BackoffAck { spg, session, id } => pgs.backoff_ack(cx, spg, session, id),
            ShardMsg::Force { spg, kind, forced } => pgs.deliver(cx, spg, Event::Force { kind, forced }),
            ShardMsg::Scrub { spg, deep, repair } => pgs.deliver(cx, spg, Event::Scrub { deep, repair }),
            ShardMsg::ToSession(session, message) => cx.net.tell_session(session, message),
            ShardMsg::ToPeer(osd, message) => {
                cx.net.peers.note_missed(osd);
                cx.net.send_peer(osd, message);
            }
            ShardMsg::Counterpart(osd, counterpart) => {
                let is_all_sent = cx.net.learn_counterpart(osd, counterpart);
                cx.dial_links();
                if !is_all_sent {
                    tell_reset(&mut self.parts, osd);
                }
            }
            ShardMsg::PeerAccess(access) => {
                cx.net.learn_access(access);
                cx.dial_links();
            }
            ShardMsg::PeerAccessRefused(access) => {
                self.parts.lend_control(|control, cx| control.peer_access_refused(cx, &access));
            }
            ShardMsg::FollowPeers(map) => {
                cx.net.follow_peers(map);
                cx.dial_links();
            }
            ShardMsg::Misunderstood(from, why) => {
                self.parts.lend_control(|control, cx| control.misunderstood(cx, from, why));
            }
            ShardMsg::Ask(question) => pg_query::answer(pgs, cx, &question),
            ShardMsg::Maps(message) => self.maps.learn(&mut self.parts, &message, MapSource::OsdControl),
            ShardMsg::Keys(keys) => self.connections.set_keys(cx.net, keys),
            ShardMsg::Rebound { public, cluster } => cx.net.rebind(public, cluster),
            ShardMsg::MonRequest(request) => {
                self.parts.lend_control(|control, cx| control.mon_request(cx, request));
            }
            ShardMsg::Past(spg, past) => self.maps.want_past(spg, past),
            ShardMsg::Stats(report) => {
                self.parts.lend_control(|control, cx| control.on_report(cx, *report));
            }
            ShardMsg::Leave => {
                self.parts.lend_control(OsdControl::leave);
            }
            ShardMsg::DeviceHealth(report) => {
                self.parts.lend_control(|control, _| control.device_health(*report));
            }
            ShardMsg::PerfQueries(queries) => pgs.perf_stats.set_queries(&queries),
            ShardMsg::Options(options) => return Some(ShardAction::FollowOptions(options)),
            ShardMsg::Command(session, tid, command) => {
                return Some(ShardAction::Command(session, tid, command));
            }
            ShardMsg::Admin(request) => {
                let (session, command) = cx.net.admin.open(request);
                return Some(ShardAction::Command(session, 0, command));
            }
            ShardMsg::Show(number, shown) => return Some(ShardAction::Show(number, shown)),
            ShardMsg::Part(number, shard, part) => return Some(ShardAction::TakePart(number, shard, part)),
            ShardMsg::Relocation(spg, msg) => pgs.relocation_msg(cx, spg, msg),
            ShardMsg::Stop => return Some(ShardAction::Stop),
        }
        None
    }

    /// Carries out what OSD control has for the shard.
    pub(crate) fn control_event(&mut self, event: ControlEvent) -> Option<ShardAction> {
        let Self { parts, connections, maps } = self;
        match event {
            ControlEvent::Maps(message, source) => {
                if source == MapSource::Monitor {
                    maps.learn_past(parts, &message);
                }
                maps.learn(parts, &Arc::new(*message), source);
            }
            ControlEvent::Keys(keys) => connections.learn_keys(parts.cx.net, keys),
            ControlEvent::Void(void) => connections.learn_void(parts.cx.net, void),
            ControlEvent::Keep(txn) => parts.pgs.submit(&mut parts.cx, txn, StoreToken::without_pg(0)),
            ControlEvent::Caps(caps) => connections.learn_caps(parts.cx.net, caps),
            ControlEvent::Create(create) => {
                for (spg, (created, _)) in &create.pgs {
                    let create_info = PgCreateInfo::ordered(*created);
                    parts.route(*spg, ShardMsg::Create(*spg, Box::new(create_info)));
                }
            }
            ControlEvent::Options(config) => {
                let mut options = parts.cx.options.clone();
                options.store(&config);
                return Some(ShardAction::ShareOptions(options));
            }
            ControlEvent::AskDevice(device) => return Some(ShardAction::AskDevice(device)),
            ControlEvent::PerfQueries(queries) => {
                let queries = Arc::new(queries);
                parts.cx.net.router.send_others(|| ShardMsg::PerfQueries(Arc::clone(&queries)));
                parts.pgs.perf_stats.set_queries(&queries);
            }
            ControlEvent::Leases(leases) => {
                parts.cx.net.router.send_others(|| ShardMsg::Leases(Arc::clone(&leases)));
                parts.pgs.set_leases(&mut parts.cx, leases);
            }
            ControlEvent::Rebound { public, cluster } => {
                parts.cx.net.hang_up_osds();
                parts.cx.net.router.send_others(|| ShardMsg::Rebound {
                    public: Arc::clone(&public),
                    cluster: Arc::clone(&cluster),
                });
            }
            ControlEvent::PeerAccess(access) => {
                parts.cx.net.router.send_others(|| ShardMsg::PeerAccess(Arc::clone(&access)));
            }
            ControlEvent::End => {
                parts.cx.net.router.send_others(|| ShardMsg::Stop);
                return Some(ShardAction::Stop);
            }
            ControlEvent::Force(order) => self.force_recovery(&order),
            ControlEvent::Scrub(scrub) => {
                let (deep, repair) = (scrub.deep, scrub.repair);
                for spg in scrub.pgs {
                    parts.route(spg, ShardMsg::Scrub { spg, deep, repair });
                }
            }
        }
        None
    }

    /// Hands the manager's order to the PGs that it names.
    fn force_recovery(&mut self, order: &OsdForceRecovery) {
        let forced = order.options & force_option::CANCEL == 0;
        let kinds = [
            (force_option::RECOVERY, RecoveryKind::Recovery),
            (force_option::BACKFILL, RecoveryKind::Backfill),
        ];
        for (_, kind) in kinds.into_iter().filter(|(bit, _)| order.options & bit != 0) {
            for spg in order.pgs.iter().copied() {
                self.parts.route(spg, ShardMsg::Force { spg, kind, forced });
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
