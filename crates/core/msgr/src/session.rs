//! [`Session`]: what two peers have said to each other, independent of the socket that carries it.
//!
//! Source: Ceph `src/msg/async/ProtocolV2.cc` at v16.2.15 (`handle_reconnect`, `handle_existing_connection`).
//!
//! A lossy session dies with its connection. A lossless one is handed back by
//! [`crate::Connection::into_session`] and continues on another connection, opened by either side:
//!
//! ```text
//!   A: Connection::resume(session) ── SESSION_RECONNECT(cookies, last received) ──▶ B: Event::SessionRequest
//!                                                                                   answer_session(Existing)
//!   A: drops what B has,           ◀── SESSION_RECONNECT_OK(last received) ──       B: drops what A has,
//!      resends the rest                                                                resends the rest
//! ```
//!
//! When both sides dial at once, the attempt of the lower address wins: see [`incoming_wins`].

use crate::{Config, Fault, RawMessage, frame};
use nacre_types::{AddrVec, EntityKind};
use std::collections::VecDeque;

/// True when, of two simultaneous attempts between us (`ours`) and a peer, the peer's is the one to keep. Then
/// take the session out of our own attempt and answer with it; otherwise answer [`SessionAnswer::Wait`].
#[must_use]
pub fn incoming_wins(ours: &AddrVec, peers: &AddrVec) -> bool {
    peers.msgr2() < ours.msgr2()
}

/// A message that the peer has not acknowledged, or that could not be sent yet.
#[derive(Debug)]
struct Kept {
    seq: u64,
    message: RawMessage,
}

/// State that outlives a socket.
#[derive(Debug)]
pub struct Session {
    pub(crate) lossy: bool,
    pub(crate) peer_kind: EntityKind,
    pub(crate) peer_addrs: AddrVec,
    /// The peer's number and features, as it said when the session was opened.
    pub(crate) peer_gid: i64,
    pub(crate) peer_features: u64,
    /// Chosen by the side that dialled first; names the session.
    pub(crate) client_cookie: u64,
    /// Chosen by the other; 0 until it has answered once.
    pub(crate) server_cookie: u64,
    /// The number of the peer's attempt that led here.
    pub(crate) peer_global_seq: u64,
    /// How often the session was resumed.
    pub(crate) connect_seq: u64,
    /// Newest message numbered by us.
    pub(crate) out_seq: u64,
    /// Newest message received.
    pub(crate) in_seq: u64,
    kept: VecDeque<Kept>,
    kept_bytes: usize,
}

impl Session {
    pub(crate) fn new(lossy: bool, peer_kind: EntityKind, peer_addrs: AddrVec) -> Self {
        Self {
            lossy,
            peer_kind,
            peer_addrs,
            peer_gid: -1,
            peer_features: 0,
            client_cookie: 0,
            server_cookie: 0,
            peer_global_seq: 0,
            connect_seq: 0,
            out_seq: 0,
            in_seq: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
        }
    }

    /// The peer's kind.
    #[must_use]
    pub fn peer_kind(&self) -> EntityKind {
        self.peer_kind
    }

    /// The peer's addresses, as it names them (as dialled, before it has answered): the key under which to
    /// look a session up.
    #[must_use]
    pub fn peer_addrs(&self) -> &AddrVec {
        &self.peer_addrs
    }

    /// Messages that are not acknowledged (lossy: not sent).
    #[must_use]
    pub fn kept_count(&self) -> usize {
        self.kept.len()
    }

    /// Bytes of those messages.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// True when the peer may still hold the other half, so that resuming makes sense.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.server_cookie != 0
    }

    /// Queues a message while no connection carries the session; it goes out when one does.
    ///
    /// # Errors
    /// [`Fault::QueueFull`] or [`Fault::SegmentLength`]; the message is not queued.
    pub fn send(&mut self, config: &Config, message: RawMessage) -> Result<(), Fault> {
        self.admit_to_queue(config, 0, &message)?;
        let seq = self.next_seq();
        self.keep(seq, message);
        Ok(())
    }

    /// Verifies that `message` may join what is kept, and the `queued` bytes that wait to be written.
    pub(crate) fn admit_to_queue(
        &self,
        config: &Config,
        queued: usize,
        message: &RawMessage,
    ) -> Result<(), Fault> {
        frame::check_lengths(message, self.lossy)?;
        let bytes = self.kept_bytes.max(queued) + message_bytes(message);
        let count = self.kept.len() + 1;
        if bytes > config.queued_bytes_max || count > config.queued_count_max {
            return Err(Fault::QueueFull { bytes, count });
        }
        Ok(())
    }

    /// Number of the next message.
    pub(crate) fn next_seq(&mut self) -> u64 {
        self.out_seq += 1;
        self.out_seq
    }

    pub(crate) fn keep(&mut self, seq: u64, message: RawMessage) {
        self.kept_bytes += message_bytes(&message);
        self.kept.push_back(Kept { seq, message });
    }

    /// Messages to send, or to send again, on a fresh connection.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (u64, &RawMessage)> {
        self.kept.iter().map(|kept| (kept.seq, &kept.message))
    }

    /// Forgets what is kept: a lossy session once it is sent.
    pub(crate) fn forget(&mut self) {
        self.kept.clear();
        self.kept_bytes = 0;
    }

    /// The peer has all messages up to `seq`.
    pub(crate) fn acked(&mut self, seq: u64) -> Result<(), Fault> {
        if seq > self.out_seq {
            return Err(Fault::Ack { acked: seq, sent: self.out_seq });
        }
        while let Some(first) = self.kept.pop_front_if(|first| first.seq <= seq) {
            self.kept_bytes -= message_bytes(&first.message);
        }
        Ok(())
    }

    /// Notes the arrival of message `seq`; false when it was here before.
    ///
    /// The first message of a session may have any number: after a reset a peer goes on counting.
    pub(crate) fn admit(&mut self, seq: u64) -> Result<bool, Fault> {
        if seq <= self.in_seq {
            return Ok(false);
        }
        if self.in_seq != 0 && seq != self.in_seq + 1 {
            return Err(Fault::Gap { last: self.in_seq, found: seq });
        }
        self.in_seq = seq;
        Ok(true)
    }

    /// The peer has lost its half: start anew. Returns the number of messages lost with it.
    pub(crate) fn reset(&mut self) -> usize {
        let lost = self.kept.len();
        self.forget();
        self.restart();
        self.client_cookie = 0;
        self.out_seq = 0;
        lost
    }

    /// The peer never knew of this session: identify anew, keep what was not sent.
    pub(crate) fn restart(&mut self) {
        self.server_cookie = 0;
        self.connect_seq = 0;
        self.in_seq = 0;
    }

    /// Verifies: kept messages ascend without gaps up to `out_seq`; their bytes add up.
    pub(crate) fn check(&self) {
        let numbers = self.kept.iter().map(|kept| kept.seq);
        assert!(numbers.clone().zip(numbers.skip(1)).all(|(one, next)| one + 1 == next), "kept order");
        assert!(self.kept.back().is_none_or(|last| last.seq == self.out_seq), "newest kept message");
        let bytes: usize = self.kept.iter().map(|kept| message_bytes(&kept.message)).sum();
        assert_eq!(bytes, self.kept_bytes, "kept bytes");
    }
}

/// Payload bytes of a message.
fn message_bytes(message: &RawMessage) -> usize {
    message.front.len() + message.middle.len() + message.data.len()
}

/// A peer wants a lossless session. The owner of all sessions looks for one with these addresses and calls
/// [`crate::Connection::answer_session`]. Kind and addresses are the peer's own words: compare the kind with the
/// authenticated identity first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRequest {
    /// Kind of the peer.
    pub kind: EntityKind,
    /// Addresses of the peer that asks.
    pub addrs: AddrVec,
    /// True when it resumes a session, false when it opens one.
    pub resume: bool,
}

/// Answer to a [`SessionRequest`].
#[derive(Debug)]
pub enum SessionAnswer {
    /// There is none.
    New,
    /// There is this one. If another connection carried it, that one must be closed before.
    Existing(Box<Session>),
    /// Our own attempt to that peer is under way and wins: see [`incoming_wins`].
    Wait,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: usize) -> RawMessage {
        RawMessage {
            tid: 0,
            kind: 1,
            version: 1,
            compat: 1,
            priority: 127,
            front: vec![0; bytes].into(),
            middle: Default::default(),
            data: Default::default(),
        }
    }

    fn session_of(count: u64) -> Session {
        let mut session = Session::new(false, EntityKind::OSD, AddrVec::default());
        for _ in 0..count {
            let seq = session.next_seq();
            session.keep(seq, message(10));
        }
        session.check();
        session
    }

    #[test]
    fn acknowledged_messages_are_dropped() {
        let mut session = session_of(3);
        assert_eq!(session.acked(2), Ok(()));
        session.check();
        assert_eq!((session.kept_count(), session.kept_bytes()), (1, 10));
        assert_eq!(session.acked(1), Ok(()));
        assert_eq!(session.acked(4), Err(Fault::Ack { acked: 4, sent: 3 }));
    }

    #[test]
    fn duplicates_are_told_apart_and_gaps_refused() {
        let mut session = session_of(0);
        assert_eq!(session.admit(7), Ok(true));
        assert_eq!(session.admit(7), Ok(false));
        assert_eq!(session.admit(8), Ok(true));
        assert_eq!(session.admit(10), Err(Fault::Gap { last: 8, found: 10 }));
    }

    #[test]
    fn a_restart_keeps_messages_and_a_reset_does_not() {
        let mut session = session_of(2);
        session.restart();
        session.check();
        assert_eq!((session.kept_count(), session.out_seq), (2, 2));
        assert_eq!(session.reset(), 2);
        session.check();
        assert_eq!((session.kept_count(), session.out_seq), (0, 0));
    }
}
