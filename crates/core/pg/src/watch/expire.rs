//! Ending watches whose clients are silent or shut out: a change of the object like any other.

use super::{Watch, Watches};
use crate::Cx;
use crate::backend::{Ends, OwnChange};
use crate::log::own_entry;
use crate::object::{ObjectContext, WatchKey};
use crate::state::PgState;
use nacre_msg::peer::LogKind;
use nacre_txn::{Op, Transaction};
use nacre_types::HObject;
use std::time::Duration;

/// How long a watch that cannot be ended yet (its object is being recovered, or its PG peers) waits for the next try.
const RETRY: Duration = Duration::from_secs(1);

impl Watches {
    /// Ends watches whose time is up; see [`Watches::end_due`].
    pub(crate) fn expire(
        &mut self,
        state: &PgState,
        cx: &mut Cx<'_>,
        is_in_use: impl Fn(&HObject) -> bool,
    ) -> Option<OwnChange> {
        let now = cx.now;
        self.put_off = false;
        self.end_due(state, cx, is_in_use, |watch| watch.deadline.is_some_and(|deadline| deadline <= now))
    }

    /// Ends watches of clients that the map shuts out; see [`Watches::end_due`].
    pub(crate) fn drop_blocklisted(
        &mut self,
        state: &PgState,
        cx: &mut Cx<'_>,
        is_in_use: impl Fn(&HObject) -> bool,
    ) -> Option<OwnChange> {
        let map = &state.map;
        if !map.has_blocklist() {
            return None;
        }
        let is_shut_out = |watch: &Watch| {
            map.is_blocklisted(&watch.addr) || watch.seen_at.is_some_and(|addr| map.is_blocklisted(&addr))
        };
        self.end_due(state, cx, is_in_use, is_shut_out)
    }

    /// Ends watches of which `ended` is true. Yields the change that ends the first one that is on record with its object; those behind it
    /// are put off until the view shows that change. Those of objects that are in use, or of a PG that nobody serves now, are tried again
    /// later.
    fn end_due(
        &mut self,
        state: &PgState,
        cx: &mut Cx<'_>,
        is_in_use: impl Fn(&HObject) -> bool,
        ended: impl Fn(&Watch) -> bool,
    ) -> Option<OwnChange> {
        let all = self.watches.iter().filter(|(_, watch)| !watch.is_ending && ended(watch));
        let keys: Vec<(HObject, WatchKey)> = all.map(|(key, _)| key.clone()).collect();
        let mut change = None;
        for (head, key) in keys {
            if !state.is_active() || is_in_use(&head) {
                self.postpone(cx, head, key);
                continue;
            }
            if state.view_is_stale || change.is_some() {
                self.put_off = true;
                break;
            }
            change = without(state, cx, &head, key);
            if change.is_none() {
                self.end_watch(cx, &head, key, true);
            } else if let Some(watch) = self.watches.get_mut(&(head, key)) {
                // It ends when that is durable everywhere: an interval may begin before, and the watch still be there.
                (watch.is_ending, watch.deadline) = (true, None);
            }
        }
        change
    }

    fn postpone(&mut self, cx: &Cx<'_>, head: HObject, key: WatchKey) {
        let retry = cx.now + RETRY;
        if let Some(watch) = self.watches.get_mut(&(head, key)) {
            watch.deadline = Some(retry);
        }
        self.arm(retry);
    }
}

/// The change that removes the watch from the object's record; `None` when it is not there.
fn without(state: &PgState, cx: &Cx<'_>, head: &HObject, key: WatchKey) -> Option<OwnChange> {
    let mut context = ObjectContext::load(cx.view, &state.spg, head).ok()?;
    context.info.watchers.remove(&key)?;
    let (prior_version, version) = (context.info.version, state.next_version());
    (context.info.prior_version, context.info.version) = (prior_version, version);
    let user_version = context.info.user_version;
    let entry = own_entry(LogKind::Modify, head.clone(), (version, prior_version), user_version, cx.wall);
    let mut txn = Transaction::new(state.spg);
    txn.push(Op::SetMeta { object: head.clone(), meta: context.to_record() });
    Some(OwnChange { head: head.clone(), txn, entries: vec![entry], ends: Ends::Watch(key) })
}
