//! Ending watches whose clients are silent or shut out: a change of the object like any other.

use super::Watch;
use crate::backend::{Ends, RepGather};
use crate::log::own_entry;
use crate::object::{ObjectContext, WatchKey};
use crate::{Cx, Pg};
use nacre_msg::peer::LogKind;
use nacre_txn::{Op, Transaction};
use nacre_types::HObject;
use smallvec::SmallVec;
use std::time::Duration;

/// How long a watch that cannot be ended yet (its object is being recovered) waits for the next try.
const RETRY: Duration = Duration::from_secs(1);

impl Pg {
    /// Ends watches whose time is up.
    pub(crate) fn expire_watches(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        self.end_watches(cx, |watch| watch.deadline.is_some_and(|deadline| deadline <= now));
    }

    /// Ends watches of clients that the map shuts out.
    pub(crate) fn drop_blocklisted(&mut self, cx: &mut Cx<'_>) {
        if !self.state.map.has_blocklist() {
            return;
        }
        let map = std::sync::Arc::clone(&self.state.map);
        let is_shut_out = |watch: &Watch| {
            map.is_blocklisted(&watch.addr) || watch.seen_at.is_some_and(|addr| map.is_blocklisted(&addr))
        };
        self.end_watches(cx, is_shut_out);
    }

    fn end_watches(&mut self, cx: &mut Cx<'_>, ended: impl Fn(&Watch) -> bool) {
        self.watches.put_off = false;
        if !self.is_active() {
            return;
        }
        let all = self.watches.watches.iter().filter(|(_, watch)| !watch.is_ending && ended(watch));
        let keys: Vec<(HObject, WatchKey)> = all.map(|(key, _)| key.clone()).collect();
        for (head, key) in keys {
            if self.state.view_is_stale {
                self.watches.put_off = true;
                return;
            }
            if self.must_recover(&head, true) || !self.is_undisturbed(&head) {
                self.postpone(cx, head, key);
            } else if self.unwatch(cx, &head, key) {
                // It ends when that is durable everywhere: an interval may begin before, and the watch still be there.
                if let Some(watch) = self.watches.watches.get_mut(&(head, key)) {
                    (watch.is_ending, watch.deadline) = (true, None);
                }
            } else {
                self.end_watch(cx, &head, key, true);
            }
        }
    }

    fn postpone(&mut self, cx: &Cx<'_>, head: HObject, key: WatchKey) {
        let retry = cx.now + RETRY;
        if let Some(watch) = self.watches.watches.get_mut(&(head, key)) {
            watch.deadline = Some(retry);
        }
        self.watches.arm(retry);
    }

    /// Removes the watch from the object's record; false when it is not there.
    fn unwatch(&mut self, cx: &mut Cx<'_>, head: &HObject, key: WatchKey) -> bool {
        let Ok(mut context) = ObjectContext::load(cx.view, &self.state.spg, head) else { return false };
        if context.info.watchers.remove(&key).is_none() {
            return false;
        }
        let (prior_version, version) = (context.info.version, self.state.next_version());
        (context.info.prior_version, context.info.version) = (prior_version, version);
        let user_version = context.info.user_version;
        let entry = own_entry(LogKind::Modify, head.clone(), (version, prior_version), user_version, cx.wall);
        let mut txn = Transaction::new(self.state.spg);
        txn.push(Op::SetMeta { object: head.clone(), meta: context.to_record() });
        self.write_started(head);
        let repgather = RepGather { head: head.clone(), after: SmallVec::new(), ends: Ends::Watch(key) };
        self.submit_write(cx, txn, vec![entry], repgather);
        true
    }
}
