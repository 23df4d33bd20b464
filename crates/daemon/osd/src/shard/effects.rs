//! What PGs want: a shard carries it out, in the order in which it was said.

use super::Shard;
use crate::shard_msg::{MonRequest, ShardMsg};
use nacre_msg::{Message, OsdOpReply, RawMessage};
use nacre_pg::{Effect, Effects, Planted, SessionId, Trace};
use nacre_txn::{StoreToken, Transaction};
use nacre_types::SpgId;

/// Which of a shard's messages are garbled, where that is planted.
const GARBLED: [u64; 2] = [40, 200];

impl Shard {
    /// Carries out what a PG wants; true when it is to be resumed.
    pub(super) fn execute_effects(&mut self, spg: SpgId) -> bool {
        if self.is_broken() {
            // What the PG has just read may be wrong: nothing that follows from it leaves.
            self.effects = Effects::new();
            return false;
        }
        let mut resume = false;
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain() {
            if self.broken {
                // By an effect before: a transaction that the store did not take, and this may be what rests on it.
                return false;
            }
            match effect {
                Effect::Resume => resume = true,
                effect => self.effect(spg, effect),
            }
        }
        self.effects = effects;
        resume
    }

    /// Hands a transaction to the store; the PG hears of it under its token when it is durable.
    pub(crate) fn submit(&mut self, txn: Transaction, token: StoreToken) {
        self.idle_trim.used(self.now);
        self.pgs.submitted(token);
        if self.broken {
            // It would be taken for the next of those that the store has refused.
            return;
        }
        if let Err(error) = self.store.submit(txn, token) {
            self.break_down(&format!("the store does not take a transaction: {error}"));
        }
    }

    /// A fault built in on purpose, now and then: see [`Planted::MessagesGarbled`].
    fn garbled(&mut self, mut message: RawMessage) -> RawMessage {
        if self.planted == Planted::MessagesGarbled {
            self.sent_to_peers += 1;
            if GARBLED.contains(&self.sent_to_peers) {
                message.front = nacre_buf::Bytes::from_static(b"?");
            }
        }
        message
    }

    fn count_reply(&mut self, session: SessionId, tid: u64, reply: &OsdOpReply, trace: Trace) {
        self.counters.replies += 1;
        self.counters.latency_ns += self.now.nanos_since(trace.received);
        self.throttle.client_op(self.now, trace.small_write());
        if self.tracker.answered(&trace) {
            let client = self.sessions.client(session);
            self.tracker.keep(reply, tid, client, trace);
        }
    }

    fn effect(&mut self, spg: SpgId, effect: Effect) {
        match effect {
            Effect::Reply { session, tid, message, trace } => {
                self.count_reply(session, tid, &message, trace);
                let message = Message::OsdOpReply(*message).encode(tid);
                self.counters.op_out_bytes += message.data.len() as u64;
                self.tell_session(session, message);
            }
            Effect::Watch { session, message } => {
                self.tell_session(session, Message::WatchNotify(*message).encode(0));
            }
            Effect::Backoff { session, message } => {
                self.tell_session(session, Message::OsdBackoff(*message).encode(0));
            }
            Effect::PushMaps { session, since } => self.push_maps(session, since),
            Effect::Peer { osd, message } if osd == self.config.id => {
                let shard = self.router.shard_of(&message.header().spg);
                self.router.send(shard, ShardMsg::Peer(osd, Box::new(message)));
            }
            Effect::Peer { osd, message } => {
                let message = self.garbled(message.encode(0));
                self.send_peer(osd, message);
            }
            Effect::Peers { osds, message } => {
                osds.into_iter().for_each(|osd| self.send_peer(osd, message.clone()));
            }
            Effect::Submit { txn, token } => {
                self.flush_early(); // the replicas begin while we are at our own part
                self.submit(txn, StoreToken::new(spg, token));
            }
            Effect::Fetch { object, offset, length, from, token } => {
                self.idle_trim.used(self.now);
                self.pgs.fetching();
                let token = StoreToken::new(spg, token);
                self.store.fetch(&spg, &object, offset, length, from, token);
            }
            Effect::WantUpThru { epoch } => {
                self.router.send(0, ShardMsg::MonRequest(MonRequest::UpThru(epoch)))
            }
            Effect::WantPgTemp { pg, acting } => {
                self.router.send(0, ShardMsg::MonRequest(MonRequest::PgTemp(pg, acting)));
            }
            Effect::Created(pg) => self.router.send(0, ShardMsg::MonRequest(MonRequest::Created(pg))),
            Effect::Reserve { side, number, priority } => self.reserver.ask(spg, side, number, priority),
            Effect::Unreserve { side } => self.reserver.give_back(&spg, side),
            Effect::Removed => {
                self.pgs.remove(&spg);
                self.reserver.forget(&spg);
            }
            Effect::Merge(state) => {
                // Each shard has a store of its own.
                let shard_of = |pg| self.router.shard_of(&SpgId::replicated(pg));
                let same_store = shard_of(state.source) == shard_of(state.target);
                self.router.send(0, ShardMsg::MonRequest(MonRequest::Merge { state, same_store }));
            }
            Effect::Split { child, before, maps } => self.open_child(child, &before, &maps),
            // The monitor forgets snapshots by itself (see core/mon osd/snaps); the loop above resumes.
            Effect::Purged { .. } | Effect::Resume => (),
        }
    }
}
