//! [`AwaitingMemory`]: clients' messages that wait until those before them, and their answers, take less memory.
//!
//! A message of a few bytes may ask for megabytes. So what it may come to take is counted before it goes on ([`expected_bytes`]), with what
//! all others take and with the answers that clients have not taken yet. Messages of one client keep their order; clients take turns, and
//! one that does not take its answers keeps only itself waiting. A message that would fit once what is under way is done is next whatever else
//! would fit: or many short ones would never let it through. Messages that ask for nothing go on all the same.
//!
//! [`expected_bytes`]: nacre_pg::expected_bytes

use nacre_pg::{ClientOp, SessionId};
use nacre_types::SpgId;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// What of a client waits for memory, or behind what does.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// A message, where it goes, and what it may come to take beside its own bytes.
    Op {
        /// The PG that it is for, as the primary has it.
        spg: SpgId,
        /// The message, with the permit that counts its own bytes.
        op: ClientOp,
        /// What it counts for once it goes on.
        bytes: usize,
    },
    /// The client's word that it holds its messages for this PG: what it sent before must come before. It goes on with the message before it.
    BackoffAck {
        /// The PG that the backoff is of.
        spg: SpgId,
        /// Number of the backoff within the session.
        id: u64,
    },
}

/// Whether a message may come to take so much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// It goes on at once.
    There,
    /// Its client has too much under way, or has not taken its answers.
    NotForClient,
    /// All clients together have too much under way.
    NotForAll,
    /// Clients have not taken their answers: it would wait even if nothing were under way.
    NotWhileUnsent,
}

/// What one client sent, in order; a message is first.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    ops: usize,
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

    /// What else this client sends has to wait behind what waits already.
    pub(crate) fn holds(&self, session: SessionId) -> bool {
        self.of_clients.contains_key(&session)
    }

    /// Whether a message that comes has to wait although there is room: it is behind another of its client, or the next room is for
    /// another and this one would take of it.
    pub(crate) fn has_before(&self, session: SessionId, bytes: usize) -> bool {
        self.holds(session) || bytes > 0 && self.reserved.is_some()
    }

    /// A message waits. `room` says why, where it is the first of its client.
    pub(crate) fn push(&mut self, spg: SpgId, op: ClientOp, bytes: usize, room: Room) {
        let session = op.session.id;
        if room == Room::NotForAll && !self.holds(session) && self.reserved.is_none() {
            self.reserved = Some(session);
        }
        let queue = self.of_clients.entry(session).or_default();
        queue.ops += 1;
        queue.waiting.push_back(Waiting::Op { spg, op, bytes });
        self.count += 1;
        self.waits += 1;
    }

    /// An acknowledgement waits behind the messages of its client; false where there are none, and it does not wait.
    pub(crate) fn push_ack(&mut self, session: SessionId, spg: SpgId, id: u64) -> bool {
        let queue = self.of_clients.get_mut(&session);
        queue.map(|queue| queue.waiting.push_back(Waiting::BackoffAck { spg, id })).is_some()
    }

    /// Who is next. `room` gets a client, and the bytes of its first message. Clients that have answers to take (`owes`) come behind those that have
    /// none: many slow ones would have all the room that becomes free.
    fn next_client(&self, room: impl Fn(SessionId, usize) -> Room, owes: impl Fn(SessionId) -> bool) -> Next {
        let first_of = |session: &SessionId| self.of_clients.get(session)?.waiting.front();
        if let Some(last) =
            self.last.filter(|last| matches!(first_of(last), Some(Waiting::BackoffAck { .. })))
        {
            return Next { goes: Some(last), reserves: self.reserved };
        }
        let behind = (self.last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let before = (Bound::Unbounded, self.last.map_or(Bound::Unbounded, Bound::Included));
        let reserved = self.reserved.and_then(|session| self.of_clients.get_key_value(&session));
        let in_turn = self.of_clients.range(behind).chain(self.of_clients.range(before));
        let (owing, others): (Vec<_>, Vec<_>) = in_turn.partition(|(session, _)| owes(**session));
        let mut reserves = None;
        for (session, queue) in reserved.into_iter().chain(others).chain(owing) {
            let Some(Waiting::Op { bytes, .. }) = queue.waiting.front() else { continue };
            if *bytes > 0 && reserves.is_some() {
                continue;
            }
            match room(*session, *bytes) {
                Room::There => return Next { goes: Some(*session), reserves },
                Room::NotForAll => reserves = Some(*session),
                Room::NotForClient | Room::NotWhileUnsent => (),
            }
        }
        Next { goes: None, reserves }
    }

    /// Clients that wait for nothing but that others take their answers.
    pub(crate) fn kept_out(
        &self,
        room: impl Fn(SessionId, usize) -> Room,
    ) -> impl Iterator<Item = SessionId> {
        let waits = move |(session, queue): &(&SessionId, &Queue)| match queue.waiting.front() {
            Some(Waiting::Op { bytes, .. }) => room(**session, *bytes) == Room::NotWhileUnsent,
            _ => false,
        };
        self.of_clients.iter().filter(waits).map(|(session, _)| *session)
    }

    /// Whether something may go on.
    pub(crate) fn has_next(&self, room: impl Fn(SessionId, usize) -> Room) -> bool {
        self.next_client(room, |_| false).goes.is_some()
    }

    /// What goes on next, and whose it is.
    pub(crate) fn next(
        &mut self,
        room: impl Fn(SessionId, usize) -> Room,
        owes: impl Fn(SessionId) -> bool,
    ) -> Option<(SessionId, Waiting)> {
        let Next { goes, reserves } = self.next_client(room, owes);
        self.reserved = reserves;
        let session = goes?;
        let queue = self.of_clients.get_mut(&session)?;
        let first = queue.waiting.pop_front()?;
        if let Waiting::Op { .. } = &first {
            queue.ops -= 1;
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
struct Next {
    /// The client whose first goes on.
    goes: Option<SessionId>,
    /// The client whose first has the next room.
    reserves: Option<SessionId>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::shard_msg;
    use nacre_auth::OsdCaps;
    use nacre_msg::OsdOp;
    use nacre_pg::{Permit, Session};
    use nacre_types::{EntityAddr, EntityName, ObjectLocator, PgId, ReqId, SnapId, Stamp, UTime};
    use std::sync::Arc;

    fn client_op(session: u64, tid: u64) -> ClientOp {
        client_op_on("object", session, tid)
    }

    /// A client's message on an object of the PG, with no operation yet.
    pub(crate) fn osd_op(name: &'static str) -> OsdOp {
        OsdOp {
            spg: spg(),
            hash: 0,
            epoch: 1,
            flags: 0,
            reqid: ReqId::default(),
            client_inc: 0,
            mtime: UTime::ZERO,
            locator: ObjectLocator::in_pool(1),
            name: name.into(),
            ops: Vec::new(),
            snap: SnapId::HEAD,
            snap_seq: SnapId::default(),
            snaps: Vec::new(),
            retry_attempt: 0,
            features: 0,
        }
    }

    pub(crate) fn client_op_on(name: &'static str, session: u64, tid: u64) -> ClientOp {
        let op = osd_op(name);
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
        let next = |awaiting: &mut AwaitingMemory| awaiting.next(&room, |_| false);
        let goes = std::iter::from_fn(|| next(awaiting));
        goes.map(|(session, waiting)| match waiting {
            Waiting::Op { op, .. } => (session.0, op.tid),
            Waiting::BackoffAck { id, .. } => (session.0, id),
        })
        .collect()
    }

    #[test]
    fn clients_that_take_their_answers_go_before_those_that_do_not() {
        let mut awaiting = AwaitingMemory::default();
        (1..=4).for_each(|client| push(&mut awaiting, client, client * 10, 1));
        let mut next = |owing: [u64; 2]| {
            let owes = |session: SessionId| owing.contains(&session.0);
            awaiting.next(|_, _| Room::There, owes).map(|(session, _)| session.0)
        };
        assert_eq!([next([1, 2]), next([1, 2])], [Some(3), Some(4)]);
        assert_eq!([next([1, 3]), next([1, 3])], [Some(2), Some(1)], "and these when nobody else waits");
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
        assert_eq!((awaiting.count(), awaiting.of_clients[&SessionId(1)].ops), (5, 3));
        // The second does not take its answers.
        assert_eq!(drain(&mut awaiting, not_of(2)), [(1, 1), (3, 1), (1, 2), (1, 3)]);
        assert!(!awaiting.has_next(not_of(2)));
        assert!(awaiting.has_next(|_, _| Room::There) && awaiting.reserved.is_none());
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
        let own = awaiting.of_clients[&SessionId(1)].ops;
        assert_eq!((awaiting.count(), own, awaiting.iter().count()), (4, 3, 4));
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
        assert!(awaiting.reserved.is_some() && !awaiting.holds(SessionId(1)));
    }

    #[test]
    fn a_long_message_has_the_next_room_before_short_ones() {
        let mut awaiting = AwaitingMemory::default();
        for (session, bytes) in [(1, 100), (2, 5000), (3, 100), (4, 100)] {
            push(&mut awaiting, session, 1, bytes);
        }
        let crowded = |_, bytes| if bytes > 100 { Room::NotForAll } else { Room::There };
        assert_eq!(drain(&mut awaiting, crowded), [(1, 1)], "nobody goes before it");
        assert!(awaiting.reserved.is_some() && !awaiting.has_next(crowded));
        // Nor does one that would be before it in turn.
        push(&mut awaiting, 1, 2, 100);
        assert_eq!(drain(&mut awaiting, crowded), []);
        assert_eq!(drain(&mut awaiting, not_of(0)), [(2, 1), (3, 1), (4, 1), (1, 2)]);
        assert!(awaiting.reserved.is_none());
    }

    #[test]
    fn the_next_room_is_nobodys_when_who_waited_for_it_is_gone_or_takes_no_answers() {
        let mut awaiting = AwaitingMemory::default();
        awaiting.push(spg(), client_op(2, 1), 5000, Room::NotForAll);
        assert!(awaiting.reserved.is_some(), "from when it came");
        awaiting.push(spg(), client_op(1, 1), 100, Room::NotForAll);
        awaiting.forget(SessionId(2));
        assert!(awaiting.reserved.is_none());
        push(&mut awaiting, 2, 2, 5000);
        let crowded = |_, bytes| if bytes > 100 { Room::NotForAll } else { Room::There };
        assert_eq!(drain(&mut awaiting, crowded), [(1, 1)]);
        assert!(awaiting.reserved.is_some());
        push(&mut awaiting, 3, 1, 100);
        assert_eq!(drain(&mut awaiting, not_of(2)), [(3, 1)]);
        assert!(awaiting.reserved.is_none());
    }

    #[test]
    fn what_asks_for_nothing_goes_on_although_the_next_room_is_for_another() {
        let mut awaiting = AwaitingMemory::default();
        awaiting.push(spg(), client_op(2, 1), 5000, Room::NotForAll);
        for (session, tid, bytes) in [(1, 1, 100), (1, 2, 0), (3, 1, 0), (4, 1, 100)] {
            push(&mut awaiting, session, tid, bytes);
        }
        assert!(awaiting.has_before(SessionId(5), 1) && !awaiting.has_before(SessionId(5), 0));
        assert!(awaiting.has_before(SessionId(3), 0), "but what is before it of its own client");
        let crowded = |_, bytes| if bytes > 100 { Room::NotForAll } else { Room::There };
        assert_eq!(drain(&mut awaiting, crowded), [(3, 1)]);
        assert_eq!(awaiting.reserved, Some(SessionId(2)), "and it is for that one still");
        assert_eq!(drain(&mut awaiting, not_of(0)), [(2, 1), (4, 1), (1, 1), (1, 2)]);
    }

    #[test]
    fn what_is_kept_out_by_answers_that_others_do_not_take_keeps_nobody_else_waiting() {
        let mut awaiting = AwaitingMemory::default();
        let room = |_, bytes| if bytes > 100 { Room::NotWhileUnsent } else { Room::There };
        let kept_out = |awaiting: &AwaitingMemory| awaiting.kept_out(room).collect::<Vec<_>>();
        push(&mut awaiting, 1, 1, 100);
        assert_eq!(kept_out(&awaiting), []);
        push(&mut awaiting, 1, 2, 5000);
        push(&mut awaiting, 2, 1, 100);
        assert_eq!(kept_out(&awaiting), [], "nor what is behind others of its client");
        assert_eq!(drain(&mut awaiting, room), [(1, 1), (2, 1)]);
        assert_eq!(kept_out(&awaiting), [SessionId(1)]);
        assert_eq!(awaiting.kept_out(not_of(1)).count(), 0, "its own answers are in its way");
        assert!(!awaiting.has_before(SessionId(3), 100));
    }
}
