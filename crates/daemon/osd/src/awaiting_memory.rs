//! [`AwaitingMemory`]: clients' messages that wait until those before them, and their answers, take less memory.
//!
//! A message of a few bytes may ask for megabytes. So what it may come to take is counted before it goes on ([`expected_bytes`]), with what
//! all others take and with the answers that clients have not taken yet. Messages of one client keep their order; clients take turns, and
//! one that does not take its answers keeps only itself waiting.
//!
//! [`expected_bytes`]: nacre_pg::expected_bytes

use nacre_pg::{ClientOp, SessionId};
use nacre_types::SpgId;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// A message, where it goes, and what it may come to take beside its own bytes.
#[derive(Debug)]
struct Waiting {
    spg: SpgId,
    op: ClientOp,
    bytes: usize,
}

/// The messages of one shard's clients.
#[derive(Debug, Default)]
pub(crate) struct AwaitingMemory {
    of_clients: BTreeMap<SessionId, VecDeque<Waiting>>,
    count: usize,
    /// The client whose message went on last: the one behind it is next.
    last: Option<SessionId>,
    waits: u64,
}

impl AwaitingMemory {
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Messages that wait now.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Messages that had to wait, since the start.
    pub(crate) const fn waits(&self) -> u64 {
        self.waits
    }

    /// Messages of this client that wait now.
    pub(crate) fn count_of(&self, session: SessionId) -> usize {
        self.of_clients.get(&session).map_or(0, VecDeque::len)
    }

    pub(crate) fn push(&mut self, spg: SpgId, op: ClientOp, bytes: usize) {
        self.of_clients.entry(op.session.id).or_default().push_back(Waiting { spg, op, bytes });
        self.count += 1;
        self.waits += 1;
    }

    /// The client that is next, of those for whose first message `has_room`: it gets the client, the bytes, and how many messages of all and
    /// of the client wait.
    fn next_client(&self, has_room: impl Fn(SessionId, usize, (usize, usize)) -> bool) -> Option<SessionId> {
        let behind = (self.last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let before = (Bound::Unbounded, self.last.map_or(Bound::Unbounded, Bound::Included));
        let in_turn = self.of_clients.range(behind).chain(self.of_clients.range(before));
        let mut with_room = in_turn.filter(|(session, waiting)| {
            let counts = (self.count, waiting.len());
            waiting.front().is_some_and(|first| has_room(**session, first.bytes, counts))
        });
        with_room.next().map(|(session, _)| *session)
    }

    /// Whether a message may go on.
    pub(crate) fn has_next(&self, has_room: impl Fn(SessionId, usize, (usize, usize)) -> bool) -> bool {
        self.next_client(has_room).is_some()
    }

    /// The next message that may go on: where it goes, and what it counts for from now on.
    pub(crate) fn next(
        &mut self,
        has_room: impl Fn(SessionId, usize, (usize, usize)) -> bool,
    ) -> Option<(SpgId, ClientOp, usize)> {
        let session = self.next_client(has_room)?;
        let waiting = self.of_clients.get_mut(&session)?;
        let Waiting { spg, op, bytes } = waiting.pop_front()?;
        if waiting.is_empty() {
            self.of_clients.remove(&session);
        }
        self.count -= 1;
        self.last = Some(session);
        Some((spg, op, bytes))
    }

    /// A client is gone.
    pub(crate) fn forget(&mut self, session: SessionId) {
        self.count -= self.of_clients.remove(&session).map_or(0, |waiting| waiting.len());
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ClientOp> {
        self.of_clients.values().flatten().map(|waiting| &waiting.op)
    }
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

    #[test]
    fn clients_take_turns_and_each_keeps_its_order() {
        let mut awaiting = AwaitingMemory::default();
        for (session, tid) in [(1, 1), (1, 2), (1, 3), (2, 1), (3, 1)] {
            awaiting.push(spg(), client_op(session, tid), 100);
        }
        assert_eq!((awaiting.count(), awaiting.count_of(SessionId(1))), (5, 3));
        let mut order = Vec::new();
        // The second does not take its answers.
        while let Some((_, op, bytes)) = awaiting.next(|session, _, _| session != SessionId(2)) {
            order.push((op.session.id.0, op.tid, bytes));
        }
        assert_eq!(order, [(1, 1, 100), (3, 1, 100), (1, 2, 100), (1, 3, 100)]);
        assert!(!awaiting.has_next(|session, _, _| session != SessionId(2)));
        assert!(
            awaiting.has_next(|_, bytes, _| bytes <= 100) && !awaiting.has_next(|_, bytes, _| bytes < 100)
        );
        awaiting.forget(SessionId(2));
        assert!(awaiting.is_empty() && awaiting.iter().next().is_none());
        assert_eq!(awaiting.waits(), 5);
    }
}
