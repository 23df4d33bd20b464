//! [`Resume`]: what the next leader has to be told of a client's session, which goes on there where it was.

use crate::event::{Peer, Served};
use crate::session::Subscriptions;
use nacre_denc::Encode;
use nacre_msg::{Answer, ClusterLogEntry, Message};
use std::collections::VecDeque;

/// Requests of one session that wait for their answers.
const REQUESTS_COUNT_MAX: usize = 64;
/// Bytes of what a front keeps of all its sessions, and at most what it tells a leader of them at once: less than a link may queue.
pub const RESUME_BYTES_MAX: usize = 32 << 20;
/// What a session takes besides its peer's names and addresses.
const SESSION_BYTES: usize = 128;
/// What a request takes besides its text and data.
const REQUEST_BYTES: usize = 256;
/// What an entry of the cluster log takes besides its text.
const ENTRY_BYTES: usize = 256;

/// Bytes that sessions may still take.
#[derive(Debug)]
pub(super) struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Self(RESUME_BYTES_MAX)
    }
}

impl Room {
    /// Takes so many bytes, where there are.
    fn take(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// A request without an answer.
#[derive(Debug)]
struct Request {
    tid: u64,
    answer: Answer,
    bytes: usize,
    message: Message,
}

/// What a session has subscribed to, as far as it was served, and what it has asked for and not been answered.
///
/// A leader does not answer before what it answers is durable, so what has no answer may or may not have happened; the next leader finds
/// changes that have, and answers them as they were (`answers.rs`), as it does where clients send again by themselves.
#[derive(Debug, Default)]
pub(super) struct Resume {
    subscriptions: Subscriptions,
    requests: VecDeque<Request>,
    /// What the session takes without subscriptions and requests.
    peer_bytes: usize,
    /// What it has taken of the room, but for requests.
    taken: usize,
    /// It cannot go on: there was something that is not kept.
    has_lost: bool,
}

impl Resume {
    /// The session is open.
    pub(super) fn opened(&mut self, peer: &Peer, room: &mut Room) {
        self.peer_bytes = SESSION_BYTES + peer.auth_name.id.len() + peer.addrs.to_bytes().len();
        self.account(room);
    }

    /// The peer says something to the leader. What cannot be said again for it ends the session with the leader.
    pub(super) fn asked(&mut self, tid: u64, message: &Message, room: &mut Room) {
        if let Message::MonSubscribe(wanted) = message {
            for (what, subscription) in &wanted.what {
                self.subscriptions.subscribe(what, *subscription);
            }
            return self.account(room);
        }
        let bytes = bytes_of(message);
        match message.answer(tid) {
            Some(answer) if self.requests.len() < REQUESTS_COUNT_MAX && room.take(bytes) => {
                self.requests.push_back(Request { tid, answer, bytes, message: message.clone() });
            }
            _ => self.lose(room),
        }
    }

    /// Takes what the session needs by now.
    fn account(&mut self, room: &mut Room) {
        let needed = self.peer_bytes + self.subscriptions.bytes();
        room.0 += std::mem::take(&mut self.taken);
        match room.take(needed) {
            true => self.taken = needed,
            false => self.lose(room),
        }
    }

    fn lose(&mut self, room: &mut Room) {
        self.has_lost = true;
        self.forget(room);
    }

    /// The leader's message of this type and number goes to the peer.
    pub(super) fn sent(&mut self, answer: Answer, served: Option<&Served>, room: &mut Room) {
        if self.has_lost {
            return;
        }
        if let Some(served) = served {
            self.subscriptions.served(&served.what, served.version);
            self.account(room);
        }
        if let Some(at) = self.requests.iter().position(|request| request.answer == answer) {
            room.0 += self.requests.remove(at).map_or(0, |request| request.bytes);
        }
    }

    /// True when [`Resume::messages`] is all that the next leader needs.
    pub(super) fn is_whole(&self) -> bool {
        !self.has_lost
    }

    /// What the session says to another leader, in its order, with transaction numbers.
    pub(super) fn messages(&self) -> impl Iterator<Item = (u64, Message)> {
        let subscribe = self.subscriptions.to_message();
        let subscribe = (!subscribe.what.is_empty()).then(|| (0, subscribe.into()));
        subscribe
            .into_iter()
            .chain(self.requests.iter().map(|request| (request.tid, request.message.clone())))
    }

    /// The session is over, or will not go on under another leader.
    pub(super) fn forget(&mut self, room: &mut Room) {
        room.0 += self.requests.drain(..).map(|request| request.bytes).sum::<usize>();
        room.0 += std::mem::take(&mut self.taken);
        self.subscriptions = Subscriptions::default();
    }
}

/// About what a request takes in memory, and at most what it takes on a link.
pub(crate) fn bytes_of(message: &Message) -> usize {
    let strings =
        |strings: &[String]| strings.iter().map(|text| size_of::<String>() + text.len()).sum::<usize>();
    let long = match message {
        Message::MonCommand(command) => strings(&command.cmd) + command.data.len(),
        Message::MgrCommand(command) => strings(&command.cmd) + command.data.len(),
        Message::Command(command) => strings(&command.cmd) + command.data.len(),
        Message::GetPoolStats(ask) => strings(&ask.pools),
        Message::MonGetVersion(ask) => ask.what.len(),
        Message::PoolOp(op) => op.name.len(),
        Message::Log(log) => {
            let of_entry = |entry: &ClusterLogEntry| ENTRY_BYTES + entry.message.len() + entry.channel.len();
            log.entries.iter().map(of_entry).sum()
        }
        _ => 0,
    };
    REQUEST_BYTES + long
}
