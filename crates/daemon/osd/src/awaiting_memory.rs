//! [`AwaitingMemory`]: clients' messages that wait until those before them, and their answers, take less memory.
//!
//! A message of a few bytes may ask for megabytes. So what it may come to take is counted before it goes on ([`expected_bytes`]), with what
//! all others take and with the answers that clients have not taken yet. Messages of one client keep their order; clients take turns, and
//! one that does not take its answers keeps only itself waiting. A message that is too long for the room there is, though its client has
//! taken no more than its share, is next whatever else would fit: or many short ones would never let it through.
//!
//! [`expected_bytes`]: nacre_pg::expected_bytes

use nacre_pg::{ClientOp, SessionId};
use nacre_types::SpgId;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// What waits.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// A message, where it goes, and what it may come to take beside its own bytes.
    Op {
        /// Its PG.
        spg: SpgId,
        /// The message.
        op: ClientOp,
        /// What it counts for once it goes on.
        bytes: usize,
    },
    /// The client's word that it holds its messages for this PG: what it sent before must come before. It goes on with the message before it.
    BackoffAck {
        /// The PG.
        spg: SpgId,
        /// The backoff.
        id: u64,
    },
}

/// Whether a message may come to take so much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// It may.
    There,
    /// Its client has too much under way, or has not taken its answers.
    NotForClient,
    /// All clients together have.
    NotForAll,
}

/// How many messages wait: they hold their permits, and are not under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Of all clients.
    pub(crate) all: usize,
    /// Of this client.
    pub(crate) own: usize,
    /// What this client's hold: their own bytes.
    pub(crate) own_bytes: usize,
}

/// What one client sent, in order; a message is first.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    ops: usize,
    bytes: usize,
}

/// The messages of one shard's clients.
#[derive(Debug, Default)]
pub(crate) struct AwaitingMemory {
    of_clients: BTreeMap<SessionId, Queue>,
    /// Messages, without acknowledgements.
    count: usize,
    /// The client whose message went on last: the one behind it is next.
    last: Option<SessionId>,
    /// The client whose message has the next room, before all others.
    reserved: Option<SessionId>,
    waits: u64,
}

impl AwaitingMemory {
    pub(crate) fn is_empty(&self) -> bool {
        self.of_clients.is_empty()
    }

    /// Messages that wait now.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Messages that had to wait, since the start.
    pub(crate) const fn waits(&self) -> u64 {
        self.waits
    }

    /// As if one more message of this client waited, which holds so many bytes.
    pub(crate) fn counts_with(&self, session: SessionId, bytes: usize) -> Counts {
        let own = self.of_clients.get(&session).map_or((0, 0), |queue| (queue.ops, queue.bytes));
        Counts { all: self.count + 1, own: own.0 + 1, own_bytes: own.1 + bytes }
    }

    /// What else this client sends has to wait behind what waits already.
    pub(crate) fn holds(&self, session: SessionId) -> bool {
        self.of_clients.contains_key(&session)
    }

    /// The next room is for a message that waits: nothing that comes goes before it.
    pub(crate) const fn is_reserved(&self) -> bool {
        self.reserved.is_some()
    }

    /// A message waits. `room` says why, where it is the first of its client.
    pub(crate) fn push(&mut self, spg: SpgId, op: ClientOp, bytes: usize, room: Room) {
        let session = op.session.id;
        if room == Room::NotForAll && !self.holds(session) && self.reserved.is_none() {
            self.reserved = Some(session);
        }
        let queue = self.of_clients.entry(session).or_default();
        (queue.ops, queue.bytes) = (queue.ops + 1, queue.bytes + op.permit.bytes());
        queue.waiting.push_back(Waiting::Op { spg, op, bytes });
        self.count += 1;
        self.waits += 1;
    }

    /// An acknowledgement waits behind the messages of its client; false where there are none, and it does not wait.
    pub(crate) fn push_ack(&mut self, session: SessionId, spg: SpgId, id: u64) -> bool {
        let queue = self.of_clients.get_mut(&session);
        queue.map(|queue| queue.waiting.push_back(Waiting::BackoffAck { spg, id })).is_some()
    }

    /// The client that is next. `room` gets a client, the bytes of its first message, and how many wait.
    fn next_client(&self, room: impl Fn(SessionId, usize, Counts) -> Room) -> Next {
        let first_of = |session: &SessionId| self.of_clients.get(session)?.waiting.front();
        if let Some(last) =
            self.last.filter(|last| matches!(first_of(last), Some(Waiting::BackoffAck { .. })))
        {
            return Next::Goes(last);
        }
        let behind = (self.last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let before = (Bound::Unbounded, self.last.map_or(Bound::Unbounded, Bound::Included));
        let reserved = self.reserved.and_then(|session| self.of_clients.get_key_value(&session));
        let in_turn = self.of_clients.range(behind).chain(self.of_clients.range(before));
        for (session, queue) in reserved.into_iter().chain(in_turn) {
            let Some(Waiting::Op { bytes, .. }) = queue.waiting.front() else { continue };
            let counts = Counts { all: self.count, own: queue.ops, own_bytes: queue.bytes };
            match room(*session, *bytes, counts) {
                Room::There => return Next::Goes(*session),
                Room::NotForAll => return Next::Reserves(*session),
                Room::NotForClient => (),
            }
        }
        Next::Nobody
    }

    /// Whether something may go on.
    pub(crate) fn has_next(&self, room: impl Fn(SessionId, usize, Counts) -> Room) -> bool {
        matches!(self.next_client(room), Next::Goes(_))
    }

    /// What goes on next, and whose it is.
    pub(crate) fn next(
        &mut self,
        room: impl Fn(SessionId, usize, Counts) -> Room,
    ) -> Option<(SessionId, Waiting)> {
        let next = self.next_client(room);
        self.reserved = if let Next::Reserves(session) = next { Some(session) } else { None };
        let Next::Goes(session) = next else { return None };
        let queue = self.of_clients.get_mut(&session)?;
        let first = queue.waiting.pop_front()?;
        if let Waiting::Op { op, .. } = &first {
            (queue.ops, queue.bytes) = (queue.ops - 1, queue.bytes - op.permit.bytes());
            self.count -= 1;
        }
        if queue.waiting.is_empty() {
            self.of_clients.remove(&session);
        }
        self.last = Some(session);
        Some((session, first))
    }

    /// A client is gone.
    pub(crate) fn forget(&mut self, session: SessionId) {
        self.count -= self.of_clients.remove(&session).map_or(0, |queue| queue.ops);
        self.reserved.take_if(|reserved| *reserved == session);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ClientOp> {
        self.of_clients.values().flat_map(|queue| &queue.waiting).filter_map(|waiting| match waiting {
            Waiting::Op { op, .. } => Some(op),
            Waiting::BackoffAck { .. } => None,
        })
    }
}

/// What comes next.
enum Next {
    /// What is first of this client goes on.
    Goes(SessionId),
    /// The first message of this client has the next room.
    Reserves(SessionId),
    /// All wait for their own answers.
    Nobody,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard_msg;
    use nacre_auth::OsdCaps;
    use nacre_msg::OsdOp;
    use nacre_pg::{Permit, Session};
    use nacre_types::{EntityAddr, EntityName, ObjectLocator, PgId, ReqId, SnapId, Stamp, UTime};
    use std::sync::Arc;

    fn client_op(session: u64, tid: u64) -> ClientOp {
        let op = OsdOp {
            spg: spg(),
            hash: 0,
            epoch: 1,
            flags: 0,
            reqid: ReqId::default(),
            client_inc: 0,
            mtime: UTime::ZERO,
            locator: ObjectLocator::in_pool(1),
            name: "object".into(),
            ops: Vec::new(),
            snap: SnapId::HEAD,
            snap_seq: SnapId::default(),
            snaps: Vec::new(),
            retry_attempt: 0,
            features: 0,
        };
        let (id, addr, name) = (SessionId(session), EntityAddr::default(), EntityName::client(session));
        let session = Session { id, name, addr, seen_at: addr, caps: OsdCaps::none(), backs_off: true };
        shard_msg::client_op(Arc::new(session), tid, Box::new(op), Stamp::default(), Permit::default())
    }

    fn spg() -> SpgId {
        SpgId::replicated(PgId::new(1, 0))
    }

    fn push(awaiting: &mut AwaitingMemory, session: u64, tid: u64, bytes: usize) {
        awaiting.push(spg(), client_op(session, tid), bytes, Room::NotForClient);
    }

    /// Lets go on what may, and says whose it was and its number; an acknowledgement has its own.
    fn drain(awaiting: &mut AwaitingMemory, room: impl Fn(SessionId, usize) -> Room) -> Vec<(u64, u64)> {
        let next = |awaiting: &mut AwaitingMemory| awaiting.next(|session, bytes, _| room(session, bytes));
        let goes = std::iter::from_fn(|| next(awaiting));
        goes.map(|(session, waiting)| match waiting {
            Waiting::Op { op, .. } => (session.0, op.tid),
            Waiting::BackoffAck { id, .. } => (session.0, id),
        })
        .collect()
    }

    fn not_of(client: u64) -> impl Fn(SessionId, usize) -> Room {
        move |session, _| if session.0 == client { Room::NotForClient } else { Room::There }
    }

    #[test]
    fn clients_take_turns_and_each_keeps_its_order() {
        let mut awaiting = AwaitingMemory::default();
        for (session, tid) in [(1, 1), (1, 2), (1, 3), (2, 1), (3, 1)] {
            push(&mut awaiting, session, tid, 100);
        }
        assert_eq!((awaiting.count(), awaiting.counts_with(SessionId(1), 0).own), (5, 4));
        // The second does not take its answers.
        assert_eq!(drain(&mut awaiting, not_of(2)), [(1, 1), (3, 1), (1, 2), (1, 3)]);
        assert!(!awaiting.has_next(|session, bytes, _| not_of(2)(session, bytes)));
        assert!(awaiting.has_next(|_, _, _| Room::There) && !awaiting.is_reserved());
        awaiting.forget(SessionId(2));
        assert!(awaiting.is_empty() && awaiting.iter().next().is_none());
        assert_eq!(awaiting.waits(), 5);
    }

    /// Before them it would let the PG drop what the client sent first, and take what it sent later.
    #[test]
    fn an_acknowledgement_stays_between_the_messages_of_its_client() {
        let mut awaiting = AwaitingMemory::default();
        assert!(!awaiting.push_ack(SessionId(1), spg(), 71), "nothing is before it");
        for tid in 1..=2 {
            push(&mut awaiting, 1, tid, 100);
        }
        assert!(awaiting.push_ack(SessionId(1), spg(), 72));
        assert!(awaiting.push_ack(SessionId(1), spg(), 73));
        push(&mut awaiting, 1, 3, 100);
        push(&mut awaiting, 2, 1, 100);
        assert_eq!(
            (awaiting.count(), awaiting.counts_with(SessionId(1), 0).own, awaiting.iter().count()),
            (4, 4, 4)
        );
        assert_eq!(drain(&mut awaiting, not_of(0)), [(1, 1), (2, 1), (1, 2), (1, 72), (1, 73), (1, 3)]);
        assert!(awaiting.is_empty() && awaiting.count() == 0);
        push(&mut awaiting, 1, 1, 100);
        assert!(awaiting.push_ack(SessionId(1), spg(), 74) && awaiting.holds(SessionId(1)));
        awaiting.forget(SessionId(1));
        assert!(awaiting.is_empty() && awaiting.count() == 0);
    }

    /// It needs no room, and goes with the message before it although nothing else may go.
    #[test]
    fn an_acknowledgement_follows_its_message_at_once() {
        let mut awaiting = AwaitingMemory::default();
        push(&mut awaiting, 1, 1, 100);
        awaiting.push_ack(SessionId(1), spg(), 71);
        push(&mut awaiting, 2, 1, 5000);
        let room = |_, bytes| if bytes > 100 { Room::NotForAll } else { Room::There };
        assert_eq!(drain(&mut awaiting, room), [(1, 1), (1, 71)]);
        assert!(awaiting.is_reserved() && !awaiting.holds(SessionId(1)));
    }

    #[test]
    fn a_long_message_has_the_next_room_before_short_ones() {
        let mut awaiting = AwaitingMemory::default();
        for (session, bytes) in [(1, 100), (2, 5000), (3, 100), (4, 100)] {
            push(&mut awaiting, session, 1, bytes);
        }
        let crowded = |_, bytes| if bytes > 100 { Room::NotForAll } else { Room::There };
        assert_eq!(drain(&mut awaiting, crowded), [(1, 1)], "nobody goes before it");
        assert!(awaiting.is_reserved() && !awaiting.has_next(|session, bytes, _| crowded(session, bytes)));
        // Nor does one that would be before it in turn.
        push(&mut awaiting, 1, 2, 100);
        assert_eq!(drain(&mut awaiting, crowded), []);
        assert_eq!(drain(&mut awaiting, not_of(0)), [(2, 1), (3, 1), (4, 1), (1, 2)]);
        assert!(!awaiting.is_reserved());
    }

    #[test]
    fn the_next_room_is_nobodys_when_who_waited_for_it_is_gone_or_takes_no_answers() {
        let mut awaiting = AwaitingMemory::default();
        awaiting.push(spg(), client_op(2, 1), 5000, Room::NotForAll);
        assert!(awaiting.is_reserved(), "from when it came");
        awaiting.push(spg(), client_op(1, 1), 100, Room::NotForAll);
        awaiting.forget(SessionId(2));
        assert!(!awaiting.is_reserved());
        push(&mut awaiting, 2, 2, 5000);
        let crowded = |_, bytes| if bytes > 100 { Room::NotForAll } else { Room::There };
        assert_eq!(drain(&mut awaiting, crowded), [(1, 1)]);
        assert!(awaiting.is_reserved());
        push(&mut awaiting, 3, 1, 100);
        assert_eq!(drain(&mut awaiting, not_of(2)), [(3, 1)]);
        assert!(!awaiting.is_reserved());
    }
}
