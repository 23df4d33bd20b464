//! [`Limits`]: how much of clients' messages and answers may be there at a time, and what of that is one client's.
//!
//! What messages bring, what they ask for and what was not taken of their answers count apart: a message that asks for something waits
//! for those that do and for answers, and sockets are read for as long as what messages bring is less than a share.

use crate::awaiting_memory::Room;

/// With more than this under way, no client is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// `osd_client_message_cap`.
    pub(crate) messages: usize,
    /// `osd_client_message_size_cap`, or what the memory target has for it, with answers until they are sent.
    pub(crate) bytes: usize,
}

/// What one client asks for may take this part of [`Limits::bytes`], until it has taken its answers: one that does not read leaves the rest
/// to others. No message counts for more than such a share.
const CLIENT_SHARE: usize = 4;

impl Limits {
    /// Bytes of one client's share.
    pub(crate) const fn share(&self) -> usize {
        self.bytes / CLIENT_SHARE
    }

    /// What a message counts for that asks for so much.
    pub(crate) fn cost(&self, bytes: usize) -> usize {
        bytes.min(self.share())
    }

    /// What a message of so many bytes counts for by itself: however long it is, it leaves a share to others.
    pub(crate) fn own_cost(&self, bytes: usize) -> usize {
        bytes.min(self.bytes - self.share())
    }

    /// Whether a message may come to take so many `bytes`, where its client has `own` under way and not taken. It may beside
    /// others where half a share is left: or a client's notification would hold up its own long read.
    pub(crate) fn room(&self, bytes: usize, own: usize, of_all: Taken) -> Room {
        let (share, cost) = (self.share(), self.cost(bytes));
        if own > 0 && own.saturating_add(cost.min(share / 2)) > share {
            return Room::NotForClient;
        }
        // Of what one client leaves lying only its share counts, but for a message that takes more than such a share itself.
        let unsent = if bytes > share { of_all.unsent } else { of_all.shared };
        if unsent > self.bytes {
            return Room::NotWhileUnsent;
        }
        // There is a share for what is asked for: the longest has its turn although others, who take their answers, always have some to take.
        let taken = unsent.min(self.bytes - share).saturating_add(of_all.expected);
        if taken.saturating_add(cost) > self.bytes { Room::NotForAll } else { Room::There }
    }

    /// Whether nothing more is to be read while messages hold `own` bytes themselves, beside what they ask for and what was not taken.
    /// A share is for those that bring data, whatever others do not take.
    pub(crate) const fn is_too_much(&self, own: usize, of_all: Taken) -> bool {
        let all = own.saturating_add(of_all.expected).saturating_add(of_all.shared);
        all > self.bytes && own > self.share()
    }

    /// Whether nothing is read that would be if clients had taken their answers.
    pub(crate) const fn is_full_of_unsent(&self, own: usize, of_all: Taken) -> bool {
        let when_taken = Taken { shared: 0, unsent: 0, ..of_all };
        of_all.shared > self.share() / 2
            && self.is_too_much(own, of_all)
            && !self.is_too_much(own, when_taken)
    }
}

/// What clients take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Taken {
    /// What messages under way ask for.
    pub(crate) expected: usize,
    /// Answers that wait to be taken.
    pub(crate) unsent: usize,
    /// The same, with no more than a share of each client.
    pub(crate) shared: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { messages: usize::MAX, bytes: usize::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A share is a quarter.
    const MAX: usize = 4000;

    fn limits() -> Limits {
        Limits { bytes: MAX, ..Limits::default() }
    }

    /// Nothing that is under way would make room for it: the next room is for others.
    #[test]
    fn what_others_do_not_take_keeps_out_what_does_not_fit_beside_it() {
        let (limits, idle) = (limits(), Taken::default());
        let slow = |clients: usize| Taken { unsent: 1000 * clients, shared: 1000 * clients, expected: 0 };
        assert_eq!(limits.room(1 << 30, 0, slow(3)), Room::There);
        assert_eq!(limits.room(1 << 30, 0, slow(4)), Room::There);
        assert_eq!(limits.room(1, 0, slow(5)), Room::NotWhileUnsent);
        assert_eq!(limits.room(1000, 0, Taken { expected: 1, ..slow(4) }), Room::NotForAll, "and is next");
        assert_eq!(limits.room(500, 0, Taken { expected: 501, ..slow(3) }), Room::NotForAll);
        // Of one that takes a whole object slowly only the share counts, but for those that do the same.
        let whole = Taken { unsent: MAX + 1, shared: 1000, ..idle };
        assert_eq!(limits.room(1000, 0, whole), Room::There);
        assert_eq!(limits.room(1001, 0, whole), Room::NotWhileUnsent);
        assert_eq!(limits.room(1001, 1000, whole), Room::NotForClient, "its own answers come first");
    }

    #[test]
    fn sockets_are_read_whatever_others_ask_for_and_do_not_take_up_to_a_share() {
        let limits = limits();
        // Five that do not read.
        let slow = Taken { unsent: 5000, shared: 5000, expected: 0 };
        assert!(!limits.is_too_much(1000, Taken { expected: 2 * MAX, ..slow }));
        assert!(limits.is_too_much(1001, slow));
        assert!(!limits.is_too_much(MAX, Taken::default()) && limits.is_too_much(MAX + 1, Taken::default()));
    }

    #[test]
    fn who_takes_no_answers_is_to_blame_where_sockets_would_be_read_without_them() {
        let limits = limits();
        let slow = |shared| Taken { unsent: shared, shared, expected: 1000 };
        assert!(limits.is_full_of_unsent(3000, slow(1000)));
        assert!(!limits.is_full_of_unsent(1000, slow(MAX)), "sockets are read");
        assert!(!limits.is_full_of_unsent(3001, slow(1000)), "they would not be, either");
        assert!(!limits.is_full_of_unsent(3000, slow(500)), "for so little");
    }

    /// Or a long write to a PG that is not active would stop the OSD.
    #[test]
    fn one_message_however_long_does_not_stop_the_reading() {
        let limits = limits();
        let one = limits.own_cost(1 << 30);
        assert_eq!((one, limits.own_cost(100)), (3000, 100));
        assert!(!limits.is_too_much(one, Taken { expected: 1000, ..Taken::default() }));
        assert!(limits.is_too_much(2 * one, Taken::default()), "two do: it is memory that is taken");
        assert_eq!(Limits::default().own_cost(1 << 30), 1 << 30);
    }

    /// 1 GiB of target: four that take whole objects slowly, and others that read 4 MiB each.
    #[test]
    fn by_default_four_that_do_not_read_keep_nobody_out() {
        let mib = |count: usize| count << 20;
        let limits = Limits { bytes: mib(128), ..Limits::default() };
        let slow = Taken { unsent: mib(4 * 128), shared: mib(4 * 32), expected: mib(28) };
        assert_eq!(limits.room(mib(4), 0, slow), Room::There);
        assert_eq!(limits.cost(mib(128)), mib(32));
    }
}
