//! [`MemoryPlan`]: what of an OSD's memory target is for what; [`MemoryTuner`]: what is done when the process has more than that.
//!
//! ```text
//!   osd_memory_target
//!     the store             dirty and clean data and metadata, pages, journal: its own options say
//!     clients               messages under way, with their answers until they are sent
//!     frames that came in part: of clients, of other OSDs
//!     logs of PGs           as many entries as there is room for, within bounds
//!     pooled buffers
//!     the rest              the program, connections, maps, and what the allocator cannot give back
//! ```
//!
//! What is clean can be read again: it is what the tuner takes and gives back, as Ceph's priority cache does. What is bounded by the plan
//! does not wait for it: between two looks a client could send more than a small target has.

use nacre_msg::size::{CLIENT_INPUT_BYTES_MAX, DATA_BYTES_MAX};
use nacre_types::Stamp;
use std::time::Duration;

/// Part of the target for messages of clients under way.
const CLIENT_DIVISOR: u64 = 8;
/// Part of it that the changes of one message may take.
const TRANSACTION_DIVISOR: u64 = 4;
/// Whatever the memory, a message may be as long as the longest of a metadata server, which writes a directory in pieces of 10 MiB
/// (`mds_dir_max_commit_size`).
const MESSAGE_BYTES_MIN: u64 = 12 << 20;
/// What an answer may take beside 1/8 of the target.
const ANSWER_BYTES_MORE: u64 = 8 << 20;
/// Copies that could be under way with what they have in memory, if clients asked for nothing else.
const COPIES: u64 = 16;
/// Pages of omap that fit what clients have.
const OMAP_PAGES: u64 = 16;
/// Part of it for frames of clients of which some has come.
const CLIENT_INTAKE_DIVISOR: u64 = 16;
const CLIENT_INTAKE_BYTES_MAX: u64 = 256 << 20;
/// The same of other daemons.
const PEER_INTAKE_DIVISOR: u64 = 8;
const PEER_INTAKE_BYTES_MAX: u64 = 512 << 20;
/// Part of it for buffers that wait to be used again.
const POOL_DIVISOR: u64 = 32;
const POOL_BYTES_MAX: u64 = 32 << 20;
/// Part of it for logs of PGs while all copies are there; twice as much while some are not.
const LOG_DIVISOR: u64 = 8;
/// What an entry of a log takes in memory, with its object's name and its request: 320 bytes, seen with names of 20.
const LOG_ENTRY_BYTES: u64 = 320;
/// A log has so many entries whatever the memory: a client's request that comes again is known by them, and is done twice otherwise. As many
/// as Ceph remembers (`osd_pg_log_dups_tracked`).
const LOG_ENTRIES_MIN: u64 = 3000;
/// A log's entries may be so long together whatever the memory: it is trimmed from half of that on, down to three eighths, which hold
/// [`LOG_ENTRIES_MIN`] with names of 1,100 bytes (a bucket's objects have 1,024 at most).
const LOG_BYTES_MIN: u64 = 12 << 20;
const _: () = assert!(LOG_BYTES_MIN / 8 * 3 >= LOG_ENTRIES_MIN * (LOG_ENTRY_BYTES + 1100));

/// Shares of a memory target, in bytes. What no plan is made for has no bounds but the program's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPlan {
    /// The target; `None` where everything is kept in memory, and nothing is planned.
    target: Option<u64>,
}

/// Bounds of the logs of PGs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogShare {
    /// Entries that one keeps when all copies have what it says.
    pub entries: u64,
    /// Entries that it never exceeds.
    pub entries_max: u64,
    /// Bytes of encoded entries that it never exceeds.
    pub bytes_max: u64,
}

impl MemoryPlan {
    /// The plan for one part of an OSD that is to keep to `target` bytes.
    #[must_use]
    pub const fn new(target: Option<u64>) -> Self {
        Self { target }
    }

    fn part(self, divisor: u64, max: u64) -> u64 {
        self.target.map_or(max, |target| (target / divisor).min(max))
    }

    /// Messages of clients that are under way, with their answers until they are sent. One is let in whatever its size where there is no
    /// other.
    #[must_use]
    pub fn client_bytes(self) -> u64 {
        self.part(CLIENT_DIVISOR, u64::MAX)
    }

    /// Longest data of a client's message: all of [`MemoryPlan::client_bytes`], where that is less than what any OSD takes, but as much as a
    /// metadata server needs.
    #[must_use]
    pub fn message_bytes_max(self) -> u64 {
        self.part(CLIENT_DIVISOR, CLIENT_INPUT_BYTES_MAX as u64).max(MESSAGE_BYTES_MIN)
    }

    /// Longest that an answer may be: several clients may have one as long at a time, whatever they count for. With 1 GiB it holds the longest
    /// object, and what comes with it.
    #[must_use]
    pub fn answer_bytes_max(self) -> u64 {
        self.client_bytes().saturating_add(ANSWER_BYTES_MORE)
    }

    /// Longest that a message's changes may be.
    #[must_use]
    pub fn transaction_bytes_max(self) -> u64 {
        self.part(TRANSACTION_DIVISOR, u64::MAX)
    }

    /// Bytes of omap in one page of an answer: there are 16 of them at a time where clients ask for nothing else.
    #[must_use]
    pub fn omap_bytes_max(self) -> u64 {
        self.client_bytes() / OMAP_PAGES
    }

    /// Bytes of the source of a copy that are in memory, beside the part that comes.
    #[must_use]
    pub fn copied_bytes(self) -> u64 {
        self.client_bytes() / COPIES
    }

    /// Frames of clients of which some has come.
    #[must_use]
    pub fn client_intake_bytes(self) -> u64 {
        self.part(CLIENT_INTAKE_DIVISOR, CLIENT_INTAKE_BYTES_MAX)
    }

    /// Frames of other daemons of which some has come.
    #[must_use]
    pub fn peer_intake_bytes(self) -> u64 {
        self.part(PEER_INTAKE_DIVISOR, PEER_INTAKE_BYTES_MAX)
    }

    /// Buffers of a thread that wait to be used again.
    #[must_use]
    pub fn pool_bytes(self) -> u64 {
        self.part(POOL_DIVISOR, POOL_BYTES_MAX)
    }

    /// What each log may have where there are so many PGs, of what one has without a plan.
    #[must_use]
    pub fn log_share(self, pgs: u64, usual: LogShare) -> LogShare {
        let Some(target) = self.target else { return usual };
        let bytes = target / LOG_DIVISOR / pgs.max(1);
        let entries = (bytes / LOG_ENTRY_BYTES).max(LOG_ENTRIES_MIN);
        LogShare {
            entries: entries.min(usual.entries),
            entries_max: (2 * entries).min(usual.entries_max),
            bytes_max: (2 * bytes).max(LOG_BYTES_MIN).min(usual.bytes_max),
        }
    }
}

// Longer data than a client may send is nothing that a frame carries.
const _: () = assert!(CLIENT_INPUT_BYTES_MAX < DATA_BYTES_MAX as usize);

/// Of the target, one part of so many is left free before more is kept.
const FREE_DIVISOR: u64 = 16;
/// Of what is free beyond that, one part of so many is used with each look.
const GROWTH_DIVISOR: u64 = 8;
/// Memory given back that was needed again within this time is memory that is in use.
const GIVEN_BACK_FOR: Duration = Duration::from_secs(10);

/// What is to be done about the memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryOrder {
    /// Bytes of what is clean to keep from now on.
    pub clean_bytes: u64,
    /// Free memory is to go back to the system now.
    pub give_back: bool,
}

/// Holds a process to its target by what of it can be read again.
///
/// A process has more than what its parts hold: what was freed stays with the allocator for a while, for it is mostly needed again. So the
/// first thing to do is to give that back, and if it is above the target soon afterwards again, to keep less.
#[derive(Debug)]
pub struct MemoryTuner {
    target: u64,
    /// Most that is kept of what is clean, and least (`osd_memory_cache_min`).
    clean_max: u64,
    clean_min: u64,
    clean_bytes: u64,
    /// When memory was given back the last time.
    given_back_at: Option<Stamp>,
    given_back_count: u64,
}

impl MemoryTuner {
    /// A tuner for a store that was opened to keep `clean_max` bytes of what is clean, of a target of `target` bytes.
    #[must_use]
    pub const fn new(target: u64, clean_max: u64) -> Self {
        Self {
            target,
            clean_max,
            clean_min: 0,
            clean_bytes: clean_max,
            given_back_at: None,
            given_back_count: 0,
        }
    }

    /// Sets the least that is kept of what is clean.
    pub fn set_clean_min(&mut self, bytes: u64) {
        self.clean_min = bytes.min(self.clean_max);
    }

    /// What is to be kept of what is clean.
    #[must_use]
    pub const fn clean_bytes(&self) -> u64 {
        self.clean_bytes
    }

    /// Bytes that the process is to keep to, this store's part of them.
    #[must_use]
    pub const fn target(&self) -> u64 {
        self.target
    }

    /// Times that memory was given back for the target's sake.
    #[must_use]
    pub const fn given_back_count(&self) -> u64 {
        self.given_back_count
    }

    /// Looks at what the process has in memory, this store's part of it: `held` bytes, of which `clean` could be read again.
    pub fn look(&mut self, now: Stamp, held: u64, clean: u64) -> MemoryOrder {
        let excess = held.saturating_sub(self.target);
        let free = (self.target - self.target / FREE_DIVISOR).saturating_sub(held);
        if excess > 0 {
            let again = self.given_back_at.is_some_and(|at| now < at + GIVEN_BACK_FOR);
            if again {
                // What is allowed and not there cannot be taken.
                let least = clean.min(self.clean_bytes).saturating_sub(excess);
                self.clean_bytes = least.max(self.clean_min);
            }
            self.given_back_at = Some(now);
            self.given_back_count += 1;
        } else if free > 0 {
            self.clean_bytes = (self.clean_bytes + free / GROWTH_DIVISOR).min(self.clean_max);
        }
        MemoryOrder { clean_bytes: self.clean_bytes, give_back: excess > 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn at(seconds: u64) -> Stamp {
        Stamp(seconds * 1_000_000_000)
    }

    #[test]
    fn a_plan_has_parts_of_the_target_and_no_more_than_is_of_use() {
        let plan = |mib: u64| MemoryPlan::new(Some(mib * MIB));
        let parts = |plan: MemoryPlan| {
            [plan.client_bytes(), plan.client_intake_bytes(), plan.peer_intake_bytes(), plan.pool_bytes()]
                .map(|bytes| bytes / MIB)
        };
        assert_eq!(parts(plan(256)), [32, 16, 32, 8]);
        assert_eq!(parts(plan(1024)), [128, 64, 128, 32]);
        assert_eq!(parts(plan(16 << 10)), [2048, 256, 512, 32]);
        assert_eq!(parts(MemoryPlan::new(None))[1..], [256, 512, 32]);
        assert_eq!([64, 256, 1024].map(|mib| plan(mib).message_bytes_max() / MIB), [12, 32, 90]);
        assert_eq!([256, 1024].map(|mib| plan(mib).copied_bytes() / MIB), [2, 8]);
        assert_eq!([64, 256, 1024].map(|mib| plan(mib).answer_bytes_max() / MIB), [16, 40, 136]);
    }

    #[test]
    fn logs_are_shorter_where_there_are_many_pgs_but_requests_are_remembered_as_in_ceph() {
        let usual = LogShare { entries: 3000, entries_max: 10_000, bytes_max: 32 * MIB };
        let share = |mib: u64, pgs| MemoryPlan::new(Some(mib * MIB)).log_share(pgs, usual);
        assert_eq!(share(1024, 0), usual);
        let many = share(1024, 200);
        assert_eq!((many.entries, many.entries_max, many.bytes_max), (3000, 6000, 12 * MIB));
        let some = share(1024, 100);
        assert_eq!((some.entries, some.entries_max), (3000, 8388));
        assert_eq!(share(256, 1000), many, "however little memory there is");
        assert_eq!(MemoryPlan::new(None).log_share(1000, usual), usual);
    }

    #[test]
    fn free_memory_goes_first_and_then_what_can_be_read_again() {
        let mut tuner = MemoryTuner::new(1000 * MIB, 300 * MIB);
        assert_eq!(
            tuner.look(at(1), 900 * MIB, 300 * MIB),
            MemoryOrder { clean_bytes: 300 * MIB, give_back: false }
        );
        assert_eq!(
            tuner.look(at(2), 1010 * MIB, 300 * MIB),
            MemoryOrder { clean_bytes: 300 * MIB, give_back: true }
        );
        // It was needed again at once.
        assert_eq!(
            tuner.look(at(3), 1010 * MIB, 300 * MIB),
            MemoryOrder { clean_bytes: 290 * MIB, give_back: true }
        );
        // Long afterwards it may be free memory again.
        assert_eq!(tuner.look(at(60), 1010 * MIB, 290 * MIB).clean_bytes, 290 * MIB);
        assert_eq!(tuner.given_back_count(), 3);
    }

    #[test]
    fn what_is_allowed_and_not_there_is_not_taken_for_room() {
        let mut tuner = MemoryTuner::new(1000 * MIB, 300 * MIB);
        tuner.set_clean_min(30 * MIB);
        tuner.look(at(1), 1100 * MIB, 50 * MIB);
        assert_eq!(tuner.look(at(2), 1010 * MIB, 50 * MIB).clean_bytes, 40 * MIB);
        assert_eq!(tuner.look(at(3), 1100 * MIB, 40 * MIB).clean_bytes, 30 * MIB, "and something stays");
    }

    #[test]
    fn what_was_taken_comes_back_when_there_is_room() {
        let mut tuner = MemoryTuner::new(1000 * MIB, 300 * MIB);
        for second in 1..=2 {
            tuner.look(at(second), 1300 * MIB, 300 * MIB);
        }
        assert_eq!(tuner.clean_bytes(), 0);
        assert_eq!(tuner.look(at(3), 980 * MIB, 0).clean_bytes, 0, "near the target nothing changes");
        let before = tuner.look(at(4), 500 * MIB, 0).clean_bytes;
        assert!((50 * MIB..60 * MIB).contains(&before), "{before}");
        for second in 5..20 {
            tuner.look(at(second), 500 * MIB, 0);
        }
        assert_eq!(tuner.clean_bytes(), 300 * MIB);
    }
}
