//! [`Sessions`]: what the leader knows sessions by, and at which monitor's front each of them is.

use nacre_mon::SessionId;
use nacre_quorum::NodeId;
use std::collections::BTreeMap;

/// Sessions that the leader has opened, of all fronts. Numbers are the leader's own and never used twice.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    last: u64,
    by_id: BTreeMap<SessionId, (NodeId, u64)>,
    by_front: BTreeMap<(NodeId, u64), SessionId>,
}

impl Sessions {
    /// A session opens at the front of `at`, where its number is `number`. Yields the leader's, and that of a session with the same place
    /// that had not been closed.
    pub(crate) fn open(&mut self, at: NodeId, number: u64) -> (SessionId, Option<SessionId>) {
        self.last += 1;
        let session = SessionId(self.last);
        self.by_id.insert(session, (at, number));
        let before = self.by_front.insert((at, number), session);
        if let Some(before) = before {
            self.by_id.remove(&before);
        }
        (session, before)
    }

    /// The leader's number of a session; none when it is not open.
    pub(crate) fn find(&self, at: NodeId, number: u64) -> Option<SessionId> {
        self.by_front.get(&(at, number)).copied()
    }

    /// At which front a session is, and its number there.
    pub(crate) fn place_of(&self, session: SessionId) -> Option<(NodeId, u64)> {
        self.by_id.get(&session).copied()
    }

    /// How many sessions are at the front of `at`.
    pub(crate) fn count_at(&self, at: NodeId) -> usize {
        self.by_front.range((at, 0)..=(at, u64::MAX)).count()
    }

    /// A session is gone.
    pub(crate) fn close(&mut self, session: SessionId) {
        if let Some(place) = self.by_id.remove(&session) {
            self.by_front.remove(&place);
        }
    }

    /// All sessions at the front of `at` are gone; yields them.
    pub(crate) fn close_all(&mut self, at: NodeId) -> Vec<SessionId> {
        let gone: Vec<_> = self.by_front.extract_if((at, 0)..=(at, u64::MAX), |_, _| true).collect();
        let gone: Vec<SessionId> = gone.into_iter().map(|(_, session)| session).collect();
        self.by_id.retain(|session, _| !gone.contains(session));
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_several_fronts_do_not_mix() {
        let mut sessions = Sessions::default();
        let (a, b) = (NodeId(1), NodeId(2));
        let (first, second) = (sessions.open(a, 7).0, sessions.open(b, 7).0);
        assert_ne!(first, second);
        assert_eq!(sessions.place_of(second), Some((b, 7)));
        let (again, before) = sessions.open(b, 7);
        assert_eq!(before, Some(second));
        assert_eq!((sessions.place_of(second), sessions.find(b, 7)), (None, Some(again)));
        assert_eq!((sessions.count_at(a), sessions.count_at(b)), (1, 1));
        assert_eq!(sessions.close_all(b), [again]);
        assert_eq!((sessions.find(b, 7), sessions.find(a, 7)), (None, Some(first)));
        sessions.close(first);
        assert_eq!(sessions.find(a, 7), None);
    }
}
