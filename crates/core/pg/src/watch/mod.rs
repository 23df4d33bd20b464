//! Watchers and notifies.
//!
//! Watchers are recorded with the object, so that a watch outlives its client's connection and this OSD;
//! which of them are connected, and when a watch ends, only the primary's memory knows. A client says it is there every
//! few seconds, per watch. After a change of interval it watches again; until then its watches are known
//! from the object's record as not connected, with a full timeout to come back in.

mod expire;
mod notify;

use crate::object::{ObjectInfo, WatchKey};
use crate::ops::{Outcome, WatchChange};
use crate::state::PgState;
use crate::{Cx, Effect, Planted, Session, SessionId};
use nacre_buf::{BufList, Bytes};
use nacre_msg::WatchNotify;
use nacre_msg::notify_op;
use nacre_types::{EntityAddr, Errno, HObject, Stamp};
use notify::Notifying;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// One watch, as this primary knows it.
#[derive(Debug)]
struct Watch {
    /// The client's session, while it is connected.
    session: Option<SessionId>,
    /// Where the client spoke from, for blocklists.
    addr: EntityAddr,
    /// Where its socket was, if it has spoken to us.
    seen_at: Option<EntityAddr>,
    /// How long it may be silent.
    timeout: Duration,
    /// When it ends; `None` for old clients that never ping, as long as they are connected.
    deadline: Option<Stamp>,
    /// It is being removed from the object's record.
    is_ending: bool,
}

/// All watches and notifies of one PG.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    watches: BTreeMap<(HObject, WatchKey), Watch>,
    notifies: BTreeMap<u64, Notifying>,
    /// No deadline is before this one.
    next: Option<Stamp>,
    /// More watches are to end as soon as the view shows the end of the last one.
    put_off: bool,
}

impl Watches {
    /// When something may time out.
    pub(crate) fn next_deadline(&self) -> Option<Stamp> {
        self.next
    }

    /// True when ending watches goes on with the next event.
    pub(crate) fn is_put_off(&self) -> bool {
        self.put_off
    }

    fn arm(&mut self, at: Stamp) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    fn rearm(&mut self) {
        let watches = self.watches.values().filter_map(|watch| watch.deadline);
        self.next = watches.chain(self.notifies.values().map(|notify| notify.deadline)).min();
    }

    fn of<'a>(&'a self, head: &HObject) -> impl Iterator<Item = (WatchKey, &'a Watch)> + use<'a> {
        let first = (head.clone(), (0, nacre_types::EntityName::default()));
        let head = head.clone();
        self.watches
            .range(first..)
            .take_while(move |((object, _), _)| *object == head)
            .map(|((_, key), watch)| (*key, watch))
    }
}

/// A message to a watcher or notifier, without data.
fn message(op: u8, cookie: u64, notify_id: u64) -> WatchNotify {
    WatchNotify {
        op,
        cookie,
        version: 0,
        notify_id,
        payload: Bytes::new(),
        return_code: 0,
        notifier_gid: 0,
        data: BufList::new(),
    }
}

fn tell(cx: &mut Cx<'_>, session: SessionId, message: WatchNotify) {
    cx.effects.push(Effect::Watch { session, message: Box::new(message) });
}

impl Watches {
    /// Takes in the watchers of an object according to its record: they may have watched at another primary.
    pub(crate) fn recall_watchers(&mut self, state: &PgState, now: Stamp, head: &HObject, info: &ObjectInfo) {
        if state.planted == Planted::WatchersForgotten {
            return;
        }
        for (key, watcher) in &info.watchers {
            let at = (head.clone(), *key);
            if self.watches.contains_key(&at) {
                continue;
            }
            let timeout = Duration::from_secs(watcher.timeout_s.into());
            let deadline = now + timeout;
            self.arm(deadline);
            let watch = Watch {
                session: None,
                addr: watcher.addr,
                seen_at: None,
                timeout,
                deadline: Some(deadline),
                is_ending: false,
            };
            self.watches.insert(at, watch);
        }
    }

    /// Forgets all of them: clients watch again, at the primary of then.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// What was under way is taken back, and peering begins anew in the same interval: watches that were being ended are there still, and those
    /// that were being made again have to be made again.
    pub(crate) fn resume(&mut self, now: Stamp) {
        for watch in self.watches.values_mut() {
            if watch.is_ending {
                (watch.is_ending, watch.deadline) = (false, Some(now));
            } else if watch.session.is_none() && watch.deadline.is_none() {
                watch.deadline = Some(now + watch.timeout);
            }
        }
        self.rearm();
    }

    /// Why a message that went well cannot be answered as it went: it pings a watch that is not connected (`ETIMEDOUT`), or notifies more
    /// than the PG may keep (`EBUSY`). Notes what it says of its client's watches.
    pub(crate) fn refusal(
        &mut self,
        now: Stamp,
        session: &Session,
        head: &HObject,
        outcome: &Outcome,
    ) -> Option<Errno> {
        if outcome.result < 0 {
            None
        } else if !self.note_alive(now, session, head, &outcome.watches) {
            Some(Errno::ETIMEDOUT)
        } else {
            (!self.takes_notifies(session, &outcome.notifies)).then_some(Errno::EBUSY)
        }
    }

    /// Notes what a message that was executed says of its client's watches; false when a ping is for a watch that is not connected, which
    /// the client must make again. One that is being made again has no deadline until that is durable: else the change that ends it would
    /// go behind the one that its client is told of.
    fn note_alive(&mut self, now: Stamp, session: &Session, head: &HObject, changes: &[WatchChange]) -> bool {
        changes.iter().all(|change| match change {
            WatchChange::Ping { cookie } => {
                let watch = self.watches.get_mut(&(head.clone(), (*cookie, session.name)));
                let Some(watch) = watch.filter(|watch| watch.session == Some(session.id)) else {
                    return false;
                };
                watch.deadline = Some(now + watch.timeout);
                true
            }
            WatchChange::Connect { cookie, .. } => {
                let watch = self.watches.get_mut(&(head.clone(), (*cookie, session.name)));
                watch.into_iter().for_each(|watch| watch.deadline = None);
                true
            }
            WatchChange::Disconnect { .. } => true,
        })
    }

    /// Carries out what a message did to watches, now that it is durable.
    pub(crate) fn change_watches(
        &mut self,
        cx: &mut Cx<'_>,
        session: &Arc<Session>,
        head: &HObject,
        changes: Vec<WatchChange>,
    ) {
        for change in changes {
            match change {
                WatchChange::Connect { cookie, watcher, will_ping } => {
                    let timeout = Duration::from_secs(watcher.timeout_s.into());
                    let deadline = will_ping.then_some(cx.now + timeout);
                    deadline.into_iter().for_each(|at| self.arm(at));
                    let watch = Watch {
                        session: Some(session.id),
                        addr: watcher.addr,
                        seen_at: Some(session.seen_at),
                        timeout,
                        deadline,
                        is_ending: false,
                    };
                    let key = (cookie, session.name);
                    self.watches.insert((head.clone(), key), watch);
                    self.notify_again(cx, session.id, head, key);
                }
                WatchChange::Ping { .. } => {}
                WatchChange::Disconnect { key, tell } => self.end_watch(cx, head, key, tell),
            }
        }
    }

    /// Ends a watch that the object's record does not have any more; notifies do not wait for it any longer.
    pub(crate) fn end_watch(&mut self, cx: &mut Cx<'_>, head: &HObject, key: WatchKey, say_so: bool) {
        let watch = self.watches.remove(&(head.clone(), key));
        if let Some(session) = watch.and_then(|watch| watch.session).filter(|_| say_so) {
            tell(cx, session, message(notify_op::DISCONNECT, key.0, 0));
        }
        self.notifies_lose(cx, head, key);
    }

    /// Notifies that wait for watchers.
    #[cfg(test)]
    pub(crate) fn notifies_count(&self) -> usize {
        self.notifies.len()
    }

    /// A session is gone: its watches have their timeout to come back in.
    pub(crate) fn disconnect_session(&mut self, now: Stamp, session: SessionId) {
        let mut earliest = None;
        for watch in self.watches.values_mut().filter(|watch| watch.session == Some(session)) {
            if watch.is_ending {
                watch.session = None;
                continue;
            }
            let deadline = now + watch.timeout;
            (watch.session, watch.deadline) = (None, Some(deadline));
            earliest = earliest.into_iter().chain([deadline]).min();
        }
        earliest.into_iter().for_each(|at| self.arm(at));
        // Nobody is left to tell: a client that comes back notifies anew.
        self.notifies.retain(|_, notify| !notify.is_of(session));
    }
}
