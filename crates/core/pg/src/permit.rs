//! [`Permit`]: the one mechanism that keeps clients from having more under way than is good for an OSD.
//!
//! A message takes a permit of its session's [`Budget`] as it comes from the socket, and carries it wherever it goes: through
//! mailboxes, queues and the PG. Whatever becomes of the message, dropping it gives the permit back. Nobody counts by hand, so nothing
//! can be counted once too often or once too rarely. The reader of the sockets compares what is held with its limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Messages that were taken in and not let go of. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Budget(Arc<Held>);

#[derive(Debug, Default)]
struct Held {
    messages: AtomicUsize,
    /// Bytes of the messages themselves.
    bytes: AtomicUsize,
    /// What they may come to take beside these.
    expected: AtomicUsize,
    /// The budget that this one is a part of.
    whole: Option<Budget>,
}

impl Budget {
    /// A part of this budget, as one client has: what is taken from it counts in both.
    #[must_use]
    pub fn part(&self) -> Self {
        Self(Arc::new(Held { whole: Some(self.clone()), ..Held::default() }))
    }

    /// Messages under way now.
    #[must_use]
    pub fn held_messages(&self) -> usize {
        self.0.messages.load(Ordering::Relaxed)
    }

    /// Bytes of the messages themselves that hold a permit.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Bytes that these messages may come to take beside their own.
    #[must_use]
    pub fn expected_bytes(&self) -> usize {
        self.0.expected.load(Ordering::Relaxed)
    }

    /// Counts a message of this size until the permit is dropped. Whether there is room is for the owner to see to,
    /// before it reads more.
    #[must_use]
    pub fn take(&self, bytes: usize) -> Permit {
        for held in self.and_wholes() {
            held.messages.fetch_add(1, Ordering::Relaxed);
            held.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Permit { budget: Some(self.clone()), bytes, expected: 0 }
    }

    fn and_wholes(&self) -> impl Iterator<Item = &Held> {
        std::iter::successors(Some(&*self.0), |held| held.whole.as_ref().map(|Self(whole)| &**whole))
    }
}

/// A message's part of a [`Budget`]; given back as it is dropped, on whatever thread. The default one counts nowhere.
#[derive(Debug, Default)]
pub struct Permit {
    budget: Option<Budget>,
    bytes: usize,
    expected: usize,
}

impl Permit {
    /// Messages that are under way in the budget that it was taken from, itself included.
    #[must_use]
    pub fn held_messages(&self) -> usize {
        self.budget.as_ref().map_or(0, Budget::held_messages)
    }

    /// From now on, and until it is dropped, it counts for so many bytes beside the message's own: what the message may come to take.
    pub fn expect(&mut self, bytes: usize) {
        if let Some(budget) = &self.budget {
            for held in budget.and_wholes() {
                held.expected.fetch_add(bytes, Ordering::Relaxed);
                held.expected.fetch_sub(self.expected, Ordering::Relaxed);
            }
            self.expected = bytes;
        }
    }

    /// Less is known to be needed than was expected; more is not counted.
    pub fn expect_at_most(&mut self, bytes: usize) {
        if bytes < self.expected {
            self.expect(bytes);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        for held in self.budget.iter().flat_map(Budget::and_wholes) {
            held.messages.fetch_sub(1, Ordering::Relaxed);
            held.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
            held.expected.fetch_sub(self.expected, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_counts_until_it_is_dropped() {
        let budget = Budget::default();
        let (one, two) = (budget.clone().take(100), budget.take(11));
        assert_eq!((budget.held_messages(), budget.held_bytes()), (2, 111));
        drop(one);
        assert_eq!((budget.held_messages(), budget.held_bytes()), (1, 11));
        Permit::default().expect(7);
        drop((two, Permit::default()));
        assert_eq!(budget.held_bytes(), 0);
    }

    #[test]
    fn what_is_expected_counts_apart_in_the_part_and_the_whole() {
        let whole = Budget::default();
        let part = whole.part();
        let mut permit = part.take(100);
        let counts = |of: &Budget| (of.held_bytes(), of.expected_bytes());
        for (expected, counted) in [(1000, 1000), (300, 300)] {
            permit.expect(expected);
            assert_eq!([counts(&part), counts(&whole)], [(100, counted); 2]);
        }
        permit.expect_at_most(400);
        assert_eq!(whole.expected_bytes(), 300, "no more than before");
        permit.expect_at_most(20);
        assert_eq!(counts(&whole), (100, 20));
        drop(permit);
        assert_eq!([counts(&part), counts(&whole)], [(0, 0); 2]);
    }

    #[test]
    fn what_is_taken_from_a_part_counts_in_the_whole_even_when_the_part_is_gone() {
        let whole = Budget::default();
        let (one, other) = (whole.part(), whole.part());
        let permits = (one.take(100), other.take(11));
        assert_eq!((one.held_messages(), other.held_messages(), whole.held_messages()), (1, 1, 2));
        assert_eq!((one.held_bytes(), other.held_bytes(), whole.held_bytes()), (100, 11, 111));
        drop(one);
        assert_eq!(whole.held_messages(), 2);
        drop(permits);
        assert_eq!((other.held_messages(), whole.held_messages(), whole.held_bytes()), (0, 0, 0));
    }
}
