//! [`Subscriptions`]: which maps we want, and from which epoch on.

use nacre_msg::{MonSubscribe, Subscription};
use std::collections::{BTreeMap, BTreeSet};

/// How long an interest lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Wanted until it is unsubscribed.
    Lasting,
    /// Until the next map comes.
    Once,
}

/// Interests and which of them the present monitor does not know yet.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    wanted: BTreeMap<String, Subscription>,
    unsent: BTreeSet<String>,
}

impl Subscriptions {
    /// Adds or changes an interest. A lasting one is not shortened to a single map, and one that already
    /// waits for `start` or earlier stays as it is.
    pub(crate) fn want(&mut self, what: &str, start: u64, interest: Interest) {
        let flags = if interest == Interest::Once { Subscription::ONETIME } else { 0 };
        let had = self.wanted.get(what).copied();
        let mut next = Subscription { start, flags };
        if let Some(had) = had {
            if !had.is_onetime() {
                next.flags = 0;
            }
            if had == next {
                return;
            }
        }
        self.wanted.insert(what.to_owned(), next);
        self.unsent.insert(what.to_owned());
    }

    pub(crate) fn drop_interest(&mut self, what: &str) {
        self.wanted.remove(what);
        self.unsent.remove(what);
    }

    /// The map of this epoch is here: the next one is wanted, or none any more. The monitor counts along.
    pub(crate) fn got(&mut self, what: &str, epoch: u64) {
        let Some(subscription) = self.wanted.get_mut(what) else { return };
        if epoch < subscription.start {
            return;
        }
        if subscription.is_onetime() {
            self.drop_interest(what);
        } else {
            subscription.start = epoch + 1;
        }
    }

    /// Tells the monitor again from where on `what` is wanted: what it sent since did not arrive, or was of no use.
    pub(crate) fn renew(&mut self, what: &str) {
        if self.wanted.contains_key(what) {
            self.unsent.insert(what.to_owned());
        }
    }

    /// A new monitor knows nothing of us.
    pub(crate) fn forget_sent(&mut self) {
        self.unsent = self.wanted.keys().cloned().collect();
    }

    /// The message that tells the monitor what it does not know yet.
    pub(crate) fn take_unsent(&mut self, hostname: &str) -> Option<MonSubscribe> {
        let unsent = std::mem::take(&mut self.unsent);
        let what: BTreeMap<_, _> = unsent
            .into_iter()
            .filter_map(|what| self.wanted.get(&what).map(|found| (what, *found)))
            .collect();
        (!what.is_empty()).then(|| MonSubscribe { what, hostname: hostname.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(subscriptions: &mut Subscriptions) -> Vec<(String, u64, bool)> {
        let message = subscriptions.take_unsent("h").map(|message| message.what).unwrap_or_default();
        message.into_iter().map(|(what, found)| (what, found.start, found.is_onetime())).collect()
    }

    #[test]
    fn a_new_monitor_is_told_where_we_are() {
        let mut subscriptions = Subscriptions::default();
        subscriptions.want("osdmap", 0, Interest::Lasting);
        subscriptions.want("config", 0, Interest::Once);
        let first = [("config".to_owned(), 0, true), ("osdmap".to_owned(), 0, false)];
        assert_eq!(sent(&mut subscriptions), first);
        assert!(sent(&mut subscriptions).is_empty());
        subscriptions.got("osdmap", 17);
        subscriptions.got("config", 1);
        subscriptions.got("osdmap", 12);
        assert!(sent(&mut subscriptions).is_empty(), "the monitor has counted along");
        subscriptions.forget_sent();
        assert_eq!(sent(&mut subscriptions), [("osdmap".to_owned(), 18, false)]);
    }

    #[test]
    fn asking_once_does_not_end_a_lasting_interest() {
        let mut subscriptions = Subscriptions::default();
        subscriptions.want("osdmap", 5, Interest::Lasting);
        subscriptions.want("osdmap", 9, Interest::Once);
        assert_eq!(sent(&mut subscriptions), [("osdmap".to_owned(), 9, false)]);
    }
}
