//! Messages wait for metadata of their object by themselves, while the shard goes on (`docs/design/0003-metadata-reads.md`).

use crate::awaiting_metadata::{Held, HeldAck, Line};
use crate::pg_driver::PgDriver;
use crate::shard_net::ShardCx;
use nacre_msg::peer::PeerMessage;
use nacre_pg::{ClientOp, Event, SessionId, looks};
use nacre_store::WarmToken;
use nacre_types::{HObject, OsdId, SpgId};
use std::ops::Range;

impl PgDriver {
    /// A client's message that has just come. One that has waited for something else since was here before, and goes to
    /// [`PgDriver::admit_op`]: behind newer ones for its object it would be late.
    pub(crate) fn client_op(&mut self, cx: &mut ShardCx<'_>, spg: SpgId, op: ClientOp) {
        if !self.may_wait_for_metadata() {
            return self.admit_op(cx, spg, op);
        }
        let Some((object, bytes)) = looks(&op.op) else { return self.admit_op(cx, spg, op) };
        let line = Line::Object(spg, object.clone());
        if self.awaiting_metadata.has(&line) {
            return self.awaiting_metadata.push(line, Held::Op(op), &[]);
        }
        match self.warm_for_client(&spg, &op, &object, bytes) {
            tokens if tokens.is_empty() => self.admit_op(cx, spg, op),
            tokens => self.awaiting_metadata.push(line, Held::Op(op), &tokens),
        }
    }

    /// A message of another OSD that has just come; likewise.
    pub(crate) fn peer_message(&mut self, cx: &mut ShardCx<'_>, from: OsdId, message: PeerMessage) {
        if !self.may_wait_for_metadata() {
            return self.admit_peer_message(cx, from, message);
        }
        let line = Line::Peer(message.header().spg, from);
        let tokens = self.warm_for_peer(&message);
        if self.awaiting_metadata.has(&line) {
            // By when it is the first, what it looks at is in memory: it waits for those before it alone.
            self.awaiting_metadata.push(line, Held::Peer(from, message), &[]);
        } else if tokens.is_empty() {
            self.admit_peer_message(cx, from, message);
        } else {
            self.awaiting_metadata.push(line, Held::Peer(from, message), &tokens);
        }
    }

    /// A client holds its messages for a PG, as it was asked to.
    pub(crate) fn backoff_ack(&mut self, cx: &mut ShardCx<'_>, spg: SpgId, session: SessionId, id: u64) {
        if !self.awaiting_metadata.push_ack(HeldAck { spg, session, id }) {
            self.deliver(cx, spg, Event::BackoffAck { session, id });
        }
    }

    /// What a message waited for was read: it goes on, and those behind it as far as they need not wait themselves.
    pub(crate) fn metadata_read(&mut self, cx: &mut ShardCx<'_>, token: WarmToken) {
        let Some(line) = self.awaiting_metadata.read(token) else { return };
        let mut is_first = true;
        while let Some((number, held)) = self.awaiting_metadata.pop(&line) {
            // The first one goes on in any case: where memory is too small to keep what was read, it is slow.
            let tokens = if std::mem::take(&mut is_first) { Vec::new() } else { self.warm_for(&line, &held) };
            if !tokens.is_empty() {
                self.awaiting_metadata.push_front(line, (number, held), &tokens);
                break;
            }
            match held {
                Held::Op(op) => self.admit_op(cx, *line.spg(), op),
                Held::Peer(from, message) => self.admit_peer_message(cx, from, message),
            }
        }
        for HeldAck { spg, session, id } in self.awaiting_metadata.take_acks() {
            self.deliver(cx, spg, Event::BackoffAck { session, id });
        }
    }

    /// What an OSD sent before its connection ended comes before the news that it did: it has been acknowledged there.
    pub(crate) fn deliver_from(&mut self, cx: &mut ShardCx<'_>, osd: OsdId) {
        for held in self.awaiting_metadata.take_peer(osd) {
            if let Held::Peer(from, message) = held {
                self.admit_peer_message(cx, from, message);
            }
        }
    }

    fn may_wait_for_metadata(&self) -> bool {
        !self.was_broken() && (self.store.waits_for_metadata() || !self.awaiting_metadata.is_empty())
    }

    /// What a client's message looks at, as the store has it. Of an object that the client may not ask for nothing is read.
    fn warm_for_client(
        &mut self,
        spg: &SpgId,
        op: &ClientOp,
        object: &HObject,
        bytes: Range<u64>,
    ) -> Vec<WarmToken> {
        if self.pgs.get(spg).is_none_or(|pg| pg.turns_away(op)) {
            return Vec::new();
        }
        let pool = self.pgs.map().pools.get(&spg.pg.pool);
        // A chunk's places are not those of the object.
        let is_coded = pool.is_some_and(|pool| !pool.is_replicated());
        let bytes = if is_coded && !bytes.is_empty() { 0..u64::MAX } else { bytes };
        self.warm(spg, [(object, bytes)])
    }

    fn warm_for(&mut self, line: &Line, held: &Held) -> Vec<WarmToken> {
        match held {
            Held::Op(op) => looks(&op.op).map_or_else(Vec::new, |(object, bytes)| {
                self.warm_for_client(line.spg(), op, &object, bytes)
            }),
            Held::Peer(_, message) => self.warm_for_peer(message),
        }
    }

    /// Writes wait; what recovery and scrub ask for is read in the order of names, and pages of metadata serve several of them.
    fn warm_for_peer(&mut self, message: &PeerMessage) -> Vec<WarmToken> {
        match message {
            PeerMessage::RepOp(op) => self.warm(&op.txn.collection, nacre_store::looks(&op.txn)),
            _ => Vec::new(),
        }
    }

    /// Names what is being read of that; nothing where all is in memory.
    fn warm<'a>(
        &mut self,
        spg: &SpgId,
        looks: impl IntoIterator<Item = (&'a HObject, Range<u64>)>,
    ) -> Vec<WarmToken> {
        let mut tokens = Vec::new();
        for (object, bytes) in looks {
            let token = self.awaiting_metadata.new_token();
            if !self.store.warm(spg, object, bytes, token) {
                tokens.push(token);
            }
        }
        tokens
    }
}

#[cfg(test)]
mod tests;
