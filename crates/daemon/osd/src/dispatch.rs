//! What comes in on a shard, and which part of it that is for: the PGs, OSD control, or the shard itself.
//!
//! | from | here |
//! |---|---|
//! | sockets | [`Shard::incoming`]: connections, and messages of clients and other OSDs |
//! | other shards | [`Shard::shard_msg`] |
//! | OSD control | [`Shard::take_control_events`] |

use crate::admin::{CommandOutcome, CommandView, command};
use crate::bench::Bench;
use crate::command_reply::{Failure, reply};
use crate::control::OsdControl;
use crate::control_event::ControlEvent;
use crate::lost;

use crate::pg_query;
use crate::sessions::{AuthFrame, InboundPeer};
use crate::shard::Shard;
use crate::shard_msg::{Question, QuestionKind, ShardMsg, client_op};
use nacre_msg::peer::{PeerMessage, PeerVersions};
use nacre_msg::{Command, Message, OsdForceRecovery, RawMessage, backoff_op, force_option};
use nacre_msgr::{DATA_BYTES_MAX, Event as ConnEvent};
use nacre_options::Values;
use nacre_osd_core::MapSource;
use nacre_pg::{Event, Permit, PgCreateInfo, Planted, RecoveryKind, Session};
use nacre_service::{ConnId, Incoming};
use nacre_types::{OsdId, SpgId};
use serde_json::Value;
use std::sync::Arc;

/// Of clients' messages for other shards this part is dropped where that is planted.
const DROPPED_ONE_IN: u64 = 8;

impl Shard {
    /// Something happened on a socket.
    pub(crate) fn incoming(&mut self, item: Incoming) {
        match item {
            Incoming::Event { conn, event } => self.conn_event(conn, event),
            Incoming::Closed { conn, reason, refused, session } => {
                self.conn_closed(conn, &reason, refused, session);
            }
        }
        self.take_control_events();
    }

    fn conn_event(&mut self, conn: ConnId, event: ConnEvent) {
        match event {
            ConnEvent::AuthRequest { method, modes, payload } => {
                self.authenticate(conn, AuthFrame::Request { method, modes, payload });
            }
            ConnEvent::AuthMore { payload } => self.authenticate(conn, AuthFrame::More { payload }),
            ConnEvent::Message(raw) => self.message(conn, raw),
            ConnEvent::SessionReset { lost_count } => self.session_reset(conn, lost_count),
            ConnEvent::Established(peer) if self.net.sessions.inbound_peer(conn).is_some() => {
                self.established(conn, &peer);
            }
            event => {
                self.lend_control(|control, cx| control.conn_event(cx, conn, event));
            }
        }
    }

    fn message(&mut self, conn: ConnId, raw: RawMessage) {
        match self.net.sessions.inbound_peer(conn) {
            Some(InboundPeer::Client(session, budget)) => {
                let (session, permit) = (Arc::clone(session), budget.take(raw.front.len() + raw.data.len()));
                self.client_message(conn, session, permit, raw);
            }
            Some(InboundPeer::Peer(osd)) => {
                let osd = *osd;
                self.peer_message(conn, osd, raw);
            }
            None if let Some(osd) = self.net.peers.as_ref().and_then(|peers| peers.peer_of(conn)) => {
                self.peer_message(conn, osd, raw);
            }
            // Only zeros are left of it, and only a client's message is refused for its length.
            _ if raw.data.len() > DATA_BYTES_MAX as usize => {
                tracing::error!(osd = self.config.id, ?conn, bytes = raw.data.len(), "message too long");
                self.close_malformed(conn, "message too long");
            }
            Some(InboundPeer::HeartbeatPeer(osd)) => {
                let osd = *osd;
                self.lend_control(|control, cx| control.pinged(cx, conn, osd, raw));
            }
            Some(InboundPeer::Handshake(..)) => self.net.messenger.close(conn),
            None => {
                self.lend_control(|control, cx| control.conn_event(cx, conn, ConnEvent::Message(raw)));
            }
        }
    }

    /// A client's message, which holds `permit` until it is done.
    fn client_message(&mut self, conn: ConnId, session: Arc<Session>, permit: Permit, raw: RawMessage) {
        let tid = raw.tid;
        match Message::decode(raw) {
            Ok(Message::OsdOp(op)) => {
                let spg = SpgId::replicated(op.spg.pg); // clients name the primary's place; copies have none
                self.net.sessions.throttle(conn, &permit, &mut self.net.messenger);
                let op = client_op(session, tid, Box::new(op), self.now, permit);
                let counters = &mut self.pg_driver.counters;
                counters.ops += 1;
                counters.op_in_bytes += op.trace.input_bytes;
                match self.net.router.shard_of(&spg) {
                    shard if shard == self.net.router.me => {
                        let (pgs, mut cx) = self.pgs();
                        pgs.client_op(&mut cx, spg, op);
                    }
                    _ if self.planted == Planted::OtherShardsOpsDropped
                        && self.pg_driver.counters.ops.is_multiple_of(DROPPED_ONE_IN) => {}
                    shard => self.net.router.send(shard, ShardMsg::Op(spg, op)),
                }
            }
            Ok(Message::OsdBackoff(backoff)) if backoff.op == backoff_op::ACK_BLOCK => {
                let (spg, session, id) = (SpgId::replicated(backoff.spg.pg), session.id, backoff.id);
                match self.net.router.shard_of(&spg) {
                    // At once: what the client sends behind it must not come first, or would be dropped as held.
                    shard if shard == self.net.router.me => {
                        self.deliver(spg, Event::BackoffAck { session, id });
                    }
                    shard => self.net.router.send(shard, ShardMsg::BackoffAck { spg, session, id }),
                }
            }
            Ok(Message::Command(command)) => {
                self.net.router.send(0, ShardMsg::Command(session, tid, Box::new(command)));
            }
            // Objecter's sign of life on sessions with watches; a manager's configuration of us.
            Ok(Message::Ping(_) | Message::MgrConfigure(_)) => (),
            Ok(other) => {
                tracing::debug!(name = other.name(), client = %session.name, "message not for an OSD")
            }
            Err(error) => {
                tracing::warn!(client = %session.name, %error, "message does not decode; closing the session");
                self.close_malformed(conn, "malformed message");
            }
        }
    }

    fn peer_message(&mut self, conn: ConnId, from: OsdId, raw: RawMessage) {
        if raw.kind == PeerVersions::KIND {
            return self.peer_versions(conn, from, raw);
        }
        match PeerMessage::decode(raw) {
            Ok(message) => match self.net.router.shard_of(&message.header().spg) {
                shard if shard == self.net.router.me => {
                    let (pgs, mut cx) = self.pgs();
                    pgs.peer_message(&mut cx, from, message);
                }
                shard => self.net.router.send(shard, ShardMsg::Peer(from, Box::new(message))),
            },
            Err(error) => {
                self.cannot_talk(conn, from, format!("a message of osd.{from} does not decode: {error}"));
            }
        }
    }

    fn deliver(&mut self, spg: SpgId, event: Event) {
        let (pgs, mut cx) = self.pgs();
        pgs.deliver(&mut cx, spg, event);
    }

    /// Another shard says something, or this one to itself.
    pub(crate) fn shard_msg(&mut self, msg: ShardMsg) {
        let (pgs, mut cx) = self.pgs();
        match msg {
            ShardMsg::Op(spg, op) => pgs.client_op(&mut cx, spg, op),
            ShardMsg::Peer(from, message) => pgs.peer_message(&mut cx, from, *message),
            ShardMsg::SessionClosed(session) => pgs.session_closed(&mut cx, session),
            ShardMsg::PeerReset(osd) => pgs.peer_reset(&mut cx, osd),
            ShardMsg::Create(spg, create_info) => pgs.create_pg(&mut cx, spg, *create_info),
            ShardMsg::Leases(leases) => pgs.set_leases(&mut cx, leases),
            ShardMsg::BackoffAck { spg, session, id } => {
                pgs.deliver(&mut cx, spg, Event::BackoffAck { session, id });
            }
            ShardMsg::Force { spg, kind, forced } => {
                pgs.deliver(&mut cx, spg, Event::Force { kind, forced });
            }
            ShardMsg::Scrub { spg, deep, repair } => {
                pgs.deliver(&mut cx, spg, Event::Scrub { deep, repair });
            }
            ShardMsg::ToSession(session, message) => cx.net.tell_session(session, message),
            ShardMsg::ToPeer(osd, message) => cx.net.send_peer(osd, message),
            ShardMsg::Ask(question) => self.answer(&question),
            ShardMsg::Command(session, tid, command) => self.command(&session, tid, &command),
            ShardMsg::Maps(message) => self.learn_maps(&message, MapSource::OsdControl),
            ShardMsg::Keys(keys) => self.set_keys(keys),
            ShardMsg::Options(options) => {
                self.options = options;
                self.follow_options();
            }
            ShardMsg::Rebound(msgr_config) => self.net.messenger.serve(self.public, msgr_config),
            ShardMsg::MonRequest(request) => {
                self.lend_control(|control, cx| control.mon_request(cx, request));
            }
            ShardMsg::Past(spg, past) => self.walk.add(spg, past),
            ShardMsg::Stats(report) => {
                self.lend_control(|control, cx| control.heard_report(cx, report));
            }
            ShardMsg::Leave => {
                self.lend_control(OsdControl::leave);
            }
            ShardMsg::Stop => self.stopping = true,
        }
        self.take_control_events();
    }

    /// Carries out what OSD control has for the shard, until it has nothing more.
    pub(crate) fn take_control_events(&mut self) {
        while let Some(event) = self.events.pop_front() {
            self.control_event(event);
        }
    }

    fn control_event(&mut self, event: ControlEvent) {
        match event {
            ControlEvent::Maps(message, source) => {
                if source == MapSource::Monitor {
                    self.learn_past(&message);
                }
                self.learn_maps(&Arc::new(*message), source);
            }
            ControlEvent::Keys(keys) => self.learn_keys(keys),
            ControlEvent::Void(void) => self.learn_void(void),
            ControlEvent::Caps(caps) => self.learn_caps(caps),
            ControlEvent::Create(create) => {
                for (spg, (created, _)) in &create.pgs {
                    let create_info = PgCreateInfo::ordered(*created);
                    self.route(*spg, ShardMsg::Create(*spg, Box::new(create_info)));
                }
            }
            ControlEvent::Options(config) => {
                let mut options = Values::clone(&self.options);
                options.store(&config);
                self.set_options(options);
            }
            ControlEvent::Leases(leases) => {
                self.net.router.send_others(|| ShardMsg::Leases(Arc::clone(&leases)));
                let (pgs, mut cx) = self.pgs();
                pgs.set_leases(&mut cx, leases);
            }
            ControlEvent::Rebound(msgr_config) => {
                for conn in self.net.sessions.of_osds() {
                    self.net.messenger.close(conn);
                    self.net.sessions.close(conn);
                }
                self.net.router.send_others(|| ShardMsg::Rebound(Arc::clone(&msgr_config)));
            }
            ControlEvent::End => {
                self.stopping = true;
                self.net.router.send_others(|| ShardMsg::Stop);
            }
            ControlEvent::Force(order) => self.force_recovery(&order),
            ControlEvent::Scrub(scrub) => {
                let (deep, repair) = (scrub.deep, scrub.repair);
                for spg in scrub.pgs {
                    self.route(spg, ShardMsg::Scrub { spg, deep, repair });
                }
            }
        }
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
                self.route(spg, ShardMsg::Force { spg, kind, forced });
            }
        }
    }

    /// Sends a message to the shard of a PG.
    fn route(&mut self, spg: SpgId, msg: ShardMsg) {
        self.net.router.send(self.net.router.shard_of(&spg), msg);
    }

    /// A command of a client; answered at once, or from the shard of the PG that it is about.
    fn command(&mut self, session: &Session, tid: u64, given: &Command) {
        let view = CommandView {
            config: &self.config,
            options: &self.options,
            is_booted: self.is_booted(),
            pg_driver: &self.pg_driver,
            net: &self.net,
            times: (self.now, self.wall),
        };
        let answer: Result<Value, Failure> = match command(&view, session, given) {
            CommandOutcome::Reply(answer) => answer,
            CommandOutcome::SetOptions(changes, shown) => {
                for (info, value) in changes {
                    let mut options = Values::clone(&self.options);
                    options.tell(info, value);
                    self.set_options(options);
                }
                Ok(shown)
            }
            CommandOutcome::Ask(spg, kind) => {
                let question = Question { session: session.id, tid, spg, kind };
                return self.route(spg, ShardMsg::Ask(Box::new(question)));
            }
            CommandOutcome::StartBench { count, size } => {
                let (whose, is_busy) = ((session.id, tid), self.bench.is_some());
                match Bench::start(whose, (count, size), is_busy, self.pg_driver.store.as_ref(), self.now) {
                    Ok(bench) => return self.bench = Some(bench),
                    Err(failure) => Err(failure),
                }
            }
        };
        self.net.tell_session(session.id, Message::from(reply(answer)).encode(tid));
    }

    /// A question about a PG of this shard.
    fn answer(&mut self, question: &Question) {
        let (pgs, mut cx) = self.pgs();
        let reply = match &question.kind {
            QuestionKind::Query => pg_query::query(pgs, cx.wall, &question.spg),
            QuestionKind::Scrub { deep } => pg_query::scrub(pgs, &mut cx, &question.spg, *deep),
            QuestionKind::List { unfound, from } => lost::list(pgs, &question.spg, *unfound, from),
            QuestionKind::MarkLost(lost) => lost::mark(pgs, &mut cx, &question.spg, *lost),
        };
        cx.net.tell_session(question.session, Message::from(reply).encode(question.tid));
    }
}
