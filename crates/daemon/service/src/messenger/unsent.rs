//! [`Unsent`]: what waits to be sent on one connection, and whether its peer takes enough of it.

use nacre_types::Stamp;
use std::time::Duration;

/// Within the time that the owner gives it, a client takes this part of what waits for it and counts for others.
const PROGRESS_PART: usize = 10;

/// What of one connection waits to be sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Unsent {
    /// Bytes, of a client's connection.
    pub(super) bytes: usize,
    /// What of them counts for others.
    pub(super) shared: usize,
    /// Since when `due` of them are to be taken.
    since: Stamp,
    pub(super) due: usize,
}

impl Unsent {
    /// So many bytes wait now, of which no more than `share` count for others.
    pub(super) fn note(&mut self, bytes: usize, share: usize, now: Stamp) {
        let begins = self.bytes == 0;
        self.due = self.due.saturating_sub(self.bytes.saturating_sub(bytes));
        (self.bytes, self.shared) = (bytes, bytes.min(share));
        if begins || self.due == 0 {
            self.begin(now);
        }
    }

    /// It has all the time again for what is to be taken next.
    pub(super) fn begin(&mut self, now: Stamp) {
        self.since = now;
        self.due = self.shared.div_ceil(PROGRESS_PART);
    }

    /// Whether the client has not taken for so long what it should have.
    pub(super) fn is_overdue(self, now: Stamp, long: Duration) -> bool {
        self.due > 0 && now.since(self.since) >= long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(6);
    const MIB: usize = 1 << 20;

    fn at(second: u64) -> Stamp {
        Stamp::default() + Duration::from_secs(second)
    }

    /// So many bytes wait from second 0 on, and the client takes `step` of them each second; when it is overdue.
    fn overdue_after(bytes: usize, step: usize, share: usize) -> Option<u64> {
        let mut unsent = Unsent::default();
        unsent.note(bytes, share, at(0));
        (1..600).find(|second| {
            let left = bytes.saturating_sub(step * usize::try_from(*second).expect("few"));
            unsent.note(left, share, at(*second));
            unsent.is_overdue(at(*second), LONG)
        })
    }

    #[test]
    fn one_that_takes_next_to_nothing_is_overdue_and_one_that_reads_slowly_is_not() {
        assert_eq!(overdue_after(100, 0, usize::MAX), Some(6));
        assert_eq!(overdue_after(8 * MIB, 1, usize::MAX), Some(6), "a byte a second is nothing");
        assert_eq!(overdue_after(60 * MIB, MIB - 4096, usize::MAX), Some(6));
        assert_eq!(overdue_after(60 * MIB, MIB + 4096, usize::MAX), None, "all of it in a minute");
        assert_eq!(overdue_after(100, 2, usize::MAX), None, "all that there is");
    }

    /// A whole large object takes its time.
    #[test]
    fn what_is_beyond_the_share_is_not_to_be_taken_faster() {
        assert_eq!(overdue_after(128 * MIB, MIB, 32 * MIB), None);
        assert_eq!(overdue_after(128 * MIB, MIB / 4, 32 * MIB), Some(6));
    }

    #[test]
    fn more_answers_do_not_give_more_time() {
        let mut unsent = Unsent::default();
        for second in 0..6 {
            unsent.note((second as usize + 1) * MIB, usize::MAX, at(second));
            assert!(!unsent.is_overdue(at(second), LONG), "{second}");
        }
        assert!(unsent.is_overdue(at(6), LONG));
        unsent.begin(at(6));
        assert!(!unsent.is_overdue(at(11), LONG) && unsent.is_overdue(at(12), LONG), "excused once");
    }
}
