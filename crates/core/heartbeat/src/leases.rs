//! [`Leases`]: for how long a primary may answer alone.
//!
//! A primary that is cut off or frozen does not know that others have taken over from it; what it reads then may
//! be old. So an OSD that answers a ping promises the pinger something: for the length of a lease it will act on no map in
//! which the pinger is down. And a primary serves clients only while every other member of its acting set has so
//! promised. An OSD that takes over needs at least one of them, and so comes after the primary's last answer.
//!
//! ```text
//!  primary   ping at t0 ...................... answers clients until t0 + length
//!                  \   ^
//!                   v /
//!  member         answer at t1 > t0 .......... keeps maps back until t1 + length
//! ```
//! Lengths, not times of day, cross the wire, so clocks need not agree; only their speeds. Ceph has the same in
//! `PeeringState::proc_lease` per PG; here it is per pair of OSDs and costs no message of its own.

use nacre_types::{OsdId, Stamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// A promise is kept for longer than it says by one in this many parts: clocks differ in speed, by far less.
const SLACK_ONE_IN: u32 = 64;

/// Promises given and received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leases {
    length: Duration,
    /// Until when an earlier life of this OSD may have promised, to anybody.
    before_us: Stamp,
    promised: BTreeMap<OsdId, Stamp>,
    granted: BTreeMap<OsdId, Stamp>,
    closed: bool,
}

impl Leases {
    /// Nothing promised or received, but by an earlier life.
    #[must_use]
    pub fn new(length: Duration, now: Stamp) -> Self {
        let before_us = now + length + length / SLACK_ONE_IN;
        Self { length, before_us, promised: BTreeMap::new(), granted: BTreeMap::new(), closed: false }
    }

    /// Another length for what is promised and asked for from now on.
    pub fn set_length(&mut self, length: Duration) {
        self.length = length;
    }

    /// Promises `osd` not to act for a while on a map that has it down; yields for how long.
    pub fn promise(&mut self, osd: OsdId, now: Stamp) -> Duration {
        let until = now + self.length + self.length / SLACK_ONE_IN;
        let promised = self.promised.entry(osd).or_insert(until);
        *promised = (*promised).max(until);
        self.length
    }

    /// `osd` has promised, for `length` from when it answered the ping that was sent at `sent`.
    pub fn grant(&mut self, osd: OsdId, sent: Stamp, length: Duration) {
        let until = sent + length.min(self.length);
        let granted = self.granted.entry(osd).or_insert(until);
        *granted = (*granted).max(until);
    }

    /// Until when a map that has `osd` down must be kept back.
    #[must_use]
    pub fn promised_until(&self, osd: OsdId) -> Stamp {
        self.promised.get(&osd).copied().unwrap_or_default()
    }

    /// Until when an earlier life of this OSD may have promised anything to anybody.
    #[must_use]
    pub fn promised_before(&self) -> Stamp {
        self.before_us
    }

    /// True while `osd` keeps its promise to us.
    #[must_use]
    pub fn is_granted(&self, osd: OsdId, now: Stamp) -> bool {
        !self.closed && self.granted.get(&osd).is_some_and(|until| now < *until)
    }

    /// Gives all leases up: others are to be told that we are dead. What they promise counts no more, until [`Leases::reopen`].
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// We are up again, as another instance: what others promise from now on counts.
    pub fn reopen(&mut self) {
        self.closed = false;
        self.granted.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(6);

    fn at(ms: u64) -> Stamp {
        Stamp::default() + Duration::from_millis(ms)
    }

    #[test]
    fn who_promised_waits_for_longer_than_who_relies_on_it() {
        // Each has its own clock: the member's runs 500 s ahead.
        let (mut primary, mut member) = (Leases::new(LENGTH, at(0)), Leases::new(LENGTH, at(500_000)));
        assert!(!primary.is_granted(2, at(100)));
        let length = member.promise(1, at(510_003));
        primary.grant(2, at(10_000), length);
        let last = at(15_999);
        assert!(primary.is_granted(2, last) && !primary.is_granted(2, at(16_000)));
        assert!(member.promised_until(1) > at(510_003) + (last - at(10_000)));
        assert_eq!(member.promised_until(7), Stamp::default());
    }

    #[test]
    fn the_shorter_of_two_lengths_counts_and_old_answers_change_nothing() {
        let mut primary = Leases::new(LENGTH, at(0));
        primary.grant(2, at(1000), Duration::from_secs(2));
        assert!(!primary.is_granted(2, at(3000)));
        primary.grant(2, at(4000), Duration::from_secs(60));
        primary.grant(2, at(2000), Duration::from_secs(60));
        assert!(primary.is_granted(2, at(9999)) && !primary.is_granted(2, at(10_000)));
    }

    #[test]
    fn a_start_counts_as_a_promise_and_a_goodbye_ends_all() {
        let mut leases = Leases::new(LENGTH, at(1000));
        assert!(leases.promised_before() > at(7000));
        leases.grant(2, at(2000), LENGTH);
        leases.close();
        assert!(!leases.is_granted(2, at(2001)));
        leases.grant(2, at(3000), LENGTH);
        assert!(!leases.is_granted(2, at(3001)));
        leases.reopen();
        assert!(!leases.is_granted(2, at(3001)), "it was promised to the instance before");
        leases.grant(2, at(3002), LENGTH);
        assert!(leases.is_granted(2, at(3003)));
    }

    #[test]
    fn a_shorter_length_does_not_shorten_what_was_promised() {
        let mut leases = Leases::new(LENGTH, at(0));
        leases.promise(1, at(1000));
        leases.set_length(Duration::from_secs(1));
        leases.promise(1, at(1100));
        assert!(leases.promised_until(1) > at(7000));
    }
}
