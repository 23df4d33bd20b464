//! An open session: messages, acknowledgements, keepalives.

use super::state::State;
use super::{Connection, Event, Peer, decode};
use crate::frame::{MessageHeader, Sender, Tag};
use crate::{ANSWERS_BYTES_MAX, Fault, RawMessage, Session};
use bytes::Bytes;
use nacre_buf::BufList;
use nacre_denc::Encode;
use std::time::Duration;

/// A lossless peer hears of received messages at the latest after so many of them ...
const ACK_COUNT: u32 = 32;
/// ... or after this time. Most acknowledgements ride on messages of the other direction.
const ACK_DELAY: Duration = Duration::from_millis(50);

/// Queues `message` as number `seq` of its session.
pub(super) fn emit(sender: &mut Sender, session: &Session, seq: u64, message: &RawMessage) {
    let header = MessageHeader {
        seq,
        tid: message.tid,
        kind: message.kind,
        priority: message.priority,
        version: message.version,
        compat: message.compat,
        ack_seq: session.in_seq,
    };
    sender.message(&header, message);
}

impl Connection {
    /// The handshake is complete: tells the driver and sends what has waited.
    pub(super) fn open(&mut self, resumed: bool) {
        self.set_state(State::Open);
        let session = self.session.as_mut().expect("identified peers have a session");
        self.receiver.widen(session.lossy);
        session.kept().for_each(|(seq, message)| emit(&mut self.sender, session, seq, message));
        if session.lossy {
            session.forget();
        }
        self.events.push_back(Event::Established(Peer {
            kind: self.peer_kind,
            addrs: session.peer_addrs.clone(),
            seen_at: self.peer_addr,
            gid: session.peer_gid,
            global_id: self.global_id,
            features: session.peer_features & self.config.features,
            lossy: session.lossy,
            resumed,
        }));
    }

    pub(super) fn on_message(
        &mut self,
        header: &MessageHeader,
        front: Bytes,
        middle: Bytes,
        data: BufList,
    ) -> Result<(), Fault> {
        let session = self.session.as_mut().ok_or(Fault::NoSession)?;
        if !session.lossy {
            session.acked(header.ack_seq)?;
            self.acks_owed += 1;
            self.ack_at.get_or_insert(self.heard_at + ACK_DELAY);
        }
        if session.admit(header.seq)? {
            let &MessageHeader { tid, kind, version, compat, priority, .. } = header;
            let message = RawMessage { tid, kind, version, compat, priority, front, middle, data };
            self.events.push_back(Event::Message(message));
        }
        if self.acks_owed >= ACK_COUNT {
            self.acknowledge();
        }
        Ok(())
    }

    pub(super) fn acknowledge(&mut self) {
        (self.acks_owed, self.ack_at) = (0, None);
        if let Some(session) = &self.session {
            self.sender.control(Tag::Ack, &session.in_seq.to_bytes());
        }
    }

    pub(super) fn on_open(&mut self, tag: Tag, payload: Bytes) -> Result<(), Fault> {
        match tag {
            Tag::Keepalive2 => self.answer_keepalive(decode(tag, payload)?),
            Tag::Keepalive2Ack => {
                self.events.push_back(Event::KeepaliveAck(decode(tag, payload)?));
                Ok(())
            }
            Tag::Ack => match &mut self.session {
                Some(session) if !session.lossy => session.acked(decode(tag, payload)?),
                _ => Ok(()),
            },
            _ => Err(self.unexpected(tag)),
        }
    }

    fn answer_keepalive(&mut self, stamp: nacre_types::UTime) -> Result<(), Fault> {
        let before = self.sender.queued();
        self.sender.control(Tag::Keepalive2Ack, &stamp.to_bytes());
        let queued = self.answers_bytes + self.sender.queued() - before;
        self.answers_bytes = queued;
        if queued > ANSWERS_BYTES_MAX { Err(Fault::NotReading { queued }) } else { Ok(()) }
    }
}
