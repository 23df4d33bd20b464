//! Notifies: told to all watchers of an object, complete when each has answered, left or run out of time.

use super::{Watches, message, tell};
use crate::object::WatchKey;
use crate::ops::{Notify, NotifyAck};
use crate::{Cx, Session, SessionId};
use nacre_buf::{BufList, Bytes};
use nacre_denc::Encode;
use nacre_msg::notify_op;
use nacre_msg::{NotifyOutcome, WatchNotify};
use nacre_types::{Errno, HObject, Stamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Notifies of one session under way in one PG.
const NOTIFIES_MAX: usize = 1024;
/// Bytes of what all notifies under way in one PG say; and of what their watchers have answered: an answer beyond that counts, and is empty.
const NOTIFY_BYTES_MAX: usize = 128 << 20;
/// How long a notify waits for its watchers at most, whatever its client says.
const WAIT_MAX: Duration = Duration::from_secs(3600);
// A single one is never refused for its length.
const _: () = assert!(nacre_msg::size::CLIENT_INPUT_BYTES_MAX < NOTIFY_BYTES_MAX);

/// A notify under way.
#[derive(Debug)]
pub(super) struct Notifying {
    head: HObject,
    /// Session of the client that notifies.
    session: SessionId,
    notifier_gid: u64,
    /// The notifier's handle.
    cookie: u64,
    user_version: u64,
    payload: Bytes,
    pub(super) deadline: Stamp,
    waiting: BTreeSet<WatchKey>,
    replies: BTreeMap<WatchKey, Bytes>,
}

/// (global id, cookie), as outcomes name a watch.
fn wire(key: &WatchKey) -> (u64, u64) {
    (key.1.number.cast_unsigned(), key.0)
}

impl Notifying {
    /// True when it is told to this session how it ends.
    pub(super) fn is_of(&self, session: SessionId) -> bool {
        self.session == session
    }

    fn to_watcher(&self, id: u64, cookie: u64) -> WatchNotify {
        WatchNotify {
            version: self.user_version,
            payload: self.payload.clone(),
            notifier_gid: self.notifier_gid,
            ..message(notify_op::NOTIFY, cookie, id)
        }
    }

    fn outcome(&self, id: u64) -> WatchNotify {
        let outcome = NotifyOutcome {
            replies: self.replies.iter().map(|(key, reply)| (wire(key), reply.clone())).collect(),
            timeouts: self.waiting.iter().map(wire).collect(),
        };
        WatchNotify {
            version: self.user_version,
            return_code: if self.waiting.is_empty() { 0 } else { Errno::ETIMEDOUT.negated() },
            notifier_gid: self.notifier_gid,
            data: BufList::from(outcome.to_bytes()),
            ..message(notify_op::COMPLETE, self.cookie, id)
        }
    }
}

impl Watches {
    /// True when the PG may keep `more` of a session until their watchers have answered.
    pub(super) fn takes_notifies(&self, session: &Session, more: &[Notify]) -> bool {
        if more.is_empty() {
            return true;
        }
        let held = self.notifies.values();
        let bytes = held.clone().map(|notify| notify.payload.len()).sum::<usize>();
        let bytes = bytes + more.iter().map(|notify| notify.payload.len()).sum::<usize>();
        let count = held.filter(|notify| notify.is_of(session.id)).count() + more.len();
        count <= NOTIFIES_MAX && bytes <= NOTIFY_BYTES_MAX
    }

    /// Begins notifies whose message has just been answered.
    pub(crate) fn start_notifies(
        &mut self,
        cx: &mut Cx<'_>,
        session: &Session,
        head: &HObject,
        user_version: u64,
        notifies: Vec<Notify>,
    ) {
        for Notify { id, cookie, timeout_s, payload } in notifies {
            let watchers: Vec<(WatchKey, Option<SessionId>)> =
                self.of(head).map(|(key, watch)| (key, watch.session)).collect();
            let deadline = cx.now + Duration::from_secs(timeout_s.into()).min(WAIT_MAX);
            let notifying = Notifying {
                head: head.clone(),
                session: session.id,
                notifier_gid: session.name.number.cast_unsigned(),
                cookie,
                user_version,
                payload,
                deadline,
                waiting: watchers.iter().map(|(key, _)| *key).collect(),
                replies: BTreeMap::new(),
            };
            for (key, session) in watchers {
                if let Some(session) = session {
                    tell(cx, session, notifying.to_watcher(id, key.0));
                }
            }
            self.notifies.insert(id, notifying);
            self.arm(deadline);
            self.finish_notify(cx, id, false);
        }
    }

    /// A watcher is back: it hears again what it has not answered.
    pub(super) fn notify_again(&self, cx: &mut Cx<'_>, session: SessionId, head: &HObject, key: WatchKey) {
        for (id, notify) in &self.notifies {
            if notify.head == *head && notify.waiting.contains(&key) {
                tell(cx, session, notify.to_watcher(*id, key.0));
            }
        }
    }

    /// A watcher has answered a notify.
    pub(crate) fn acknowledge(
        &mut self,
        cx: &mut Cx<'_>,
        session: &Session,
        head: &HObject,
        acks: Vec<NotifyAck>,
    ) {
        let replies = self.notifies.values().flat_map(|notify| notify.replies.values());
        let mut room = NOTIFY_BYTES_MAX.saturating_sub(replies.map(Bytes::len).sum());
        for NotifyAck { id, cookie, reply } in acks {
            let Some(notify) = self.notifies.get_mut(&id).filter(|notify| notify.head == *head) else {
                continue;
            };
            let meant =
                |key: &&WatchKey| key.1 == session.name && cookie.is_none_or(|cookie| key.0 == cookie);
            let keys: Vec<WatchKey> = notify.waiting.iter().filter(meant).copied().collect();
            let reply = if reply.len() <= room { reply } else { Bytes::new() };
            room -= reply.len();
            for key in keys {
                notify.waiting.remove(&key);
                notify.replies.insert(key, reply.clone());
            }
            self.finish_notify(cx, id, false);
        }
    }

    /// A watch ended: nobody waits for its answer.
    pub(super) fn notifies_lose(&mut self, cx: &mut Cx<'_>, head: &HObject, key: WatchKey) {
        let concerned: Vec<u64> = self
            .notifies
            .iter_mut()
            .filter(|(_, notify)| notify.head == *head)
            .filter_map(|(id, notify)| notify.waiting.remove(&key).then_some(*id))
            .collect();
        concerned.into_iter().for_each(|id| self.finish_notify(cx, id, false));
    }

    /// Tells the notifier when nothing is waited for, or time is up.
    fn finish_notify(&mut self, cx: &mut Cx<'_>, id: u64, time_is_up: bool) {
        let done = self.notifies.get(&id).is_some_and(|notify| time_is_up || notify.waiting.is_empty());
        if let Some(notify) = done.then(|| self.notifies.remove(&id)).flatten() {
            tell(cx, notify.session, notify.outcome(id));
        }
    }

    /// Ends notifies whose time is up.
    pub(crate) fn expire_notifies(&mut self, cx: &mut Cx<'_>) {
        let late = |notify: &Notifying| notify.deadline <= cx.now;
        let expired: Vec<u64> =
            self.notifies.iter().filter(|(_, notify)| late(notify)).map(|(id, _)| *id).collect();
        expired.into_iter().for_each(|id| self.finish_notify(cx, id, true));
        self.rearm();
    }
}
