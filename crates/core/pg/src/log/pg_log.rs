//! [`PgLog`]: the entries in memory, indexed by version and by request.

use super::LogLimits;
use super::compact::{Compact, Names};
use super::requests::Requests;
use super::segments::Segments;
use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError};
use nacre_msg::peer::LogEntry;
use nacre_types::{Eversion, HObject, ReqId};
use std::cell::OnceCell;

/// The log of one copy: entries above `tail` up to `head`, strictly ascending.
#[derive(Debug, Default)]
pub(crate) struct PgLog {
    entries: Segments<Compact>,
    names: Names,
    /// Not less than the entries' encodings are long together.
    encoded_bytes: usize,
    tail: Eversion,
    /// Version of the last entry, or the tail: kept here, for the entry has mostly left the processor's caches when it is asked for.
    head: Eversion,
    /// Newest entry of each request that is still in the log. Made when it is first asked for: replicas never do.
    by_reqid: OnceCell<Requests>,
}

impl PgLog {
    /// The log that a store holds.
    ///
    /// # Errors
    /// [`DecodeError`] when an entry is malformed or out of order: the store is damaged.
    pub(crate) fn load(tail: Eversion, encoded: Vec<Bytes>) -> Result<Self, DecodeError> {
        let mut log = Self { tail, head: tail, ..Self::default() };
        for bytes in encoded {
            let entry = LogEntry::from_bytes(bytes)?;
            if entry.version <= log.head() {
                return Err(DecodeError::Invalid {
                    what: "log entry out of order",
                    value: entry.version.version,
                });
            }
            log.append(&entry);
        }
        Ok(log)
    }

    /// Newest version, or the tail of an empty log.
    pub(crate) fn head(&self) -> Eversion {
        self.head
    }

    fn newest(&self) -> Eversion {
        self.entries.back().map_or(self.tail, |entry| entry.version)
    }

    /// Entries are kept above this version.
    pub(crate) fn tail(&self) -> Eversion {
        self.tail
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// All entries, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = LogEntry> + '_ {
        self.entries.iter().map(Compact::entry)
    }

    /// Entries above `version`, oldest first.
    pub(crate) fn above(&self, version: Eversion) -> impl DoubleEndedIterator<Item = LogEntry> + '_ {
        self.entries.from(self.index_above(version)).map(Compact::entry)
    }

    /// True when `version` is an entry, or where the log begins.
    pub(crate) fn reaches(&self, version: Eversion) -> bool {
        let at = self.index_above(version);
        let before = at.checked_sub(1).and_then(|at| self.entries.get(at));
        before.map_or(self.tail, |entry| entry.version) == version
    }

    /// The newest entry's version up to `version`; zero for none.
    pub(crate) fn newest_up_to(&self, version: Eversion) -> Eversion {
        let newest = self.index_above(version).checked_sub(1).and_then(|at| self.entries.get(at));
        newest.map_or(Eversion::ZERO, |entry| entry.version)
    }

    /// The version before `version`, where the log knows it.
    pub(crate) fn before(&self, version: Eversion) -> Option<Eversion> {
        let at = self.entries.partition_point(|entry| entry.version < version);
        let before =
            at.checked_sub(1).and_then(|at| self.entries.get(at)).map_or(self.tail, |entry| entry.version);
        (before < version).then_some(before)
    }

    /// The entry that a request made, if it is still in the log.
    pub(crate) fn by_reqid(&self, reqid: &ReqId) -> Option<LogEntry> {
        let version = self.by_reqid.get_or_init(|| self.requests()).get(reqid)?;
        self.entries.get(self.index_above(version).checked_sub(1)?).map(Compact::entry)
    }

    fn requests(&self) -> Requests {
        let mut requests = Requests::default();
        for entry in self.entries.iter().filter(|entry| entry.has_reqid()) {
            requests.insert(&entry.reqid, entry.version);
        }
        requests
    }

    /// The newest entry up to `version` that says what became of `object`.
    pub(crate) fn newest_of(&self, object: &HObject, version: Eversion) -> Option<LogEntry> {
        let upto = self.entries.until(self.index_above(version));
        upto.rev().find(|entry| entry.changes_object() && *entry.object == *object).map(Compact::entry)
    }

    /// True when something became of an object with this head, or of the head, behind `version`; also when the log does not reach back
    /// so far.
    pub(crate) fn has_changed(&self, head: &HObject, version: Eversion) -> bool {
        let mut behind = self.entries.from(self.index_above(version));
        version < self.tail() || behind.any(|entry| entry.changes_object() && entry.object.to_head() == *head)
    }

    /// Adds an entry at the head.
    ///
    /// # Panics
    /// When its version does not ascend: versions are given out by us alone.
    pub(crate) fn append(&mut self, entry: &LogEntry) {
        assert!(entry.version > self.head(), "{} behind {}", entry.version, self.head());
        if let Some(requests) = self.by_reqid.get_mut().filter(|_| entry.has_reqid()) {
            requests.insert(&entry.reqid, entry.version);
        }
        let entry = Compact::new(entry, &mut self.names);
        self.encoded_bytes += entry.encoded_bytes();
        self.head = entry.version;
        self.entries.push_back(entry);
    }

    /// Forgets entries up to and including `to`.
    pub(crate) fn trim(&mut self, to: Eversion) {
        while let Some(oldest) = self.entries.pop_front_if(|entry| entry.version <= to) {
            self.forget_request(&oldest);
        }
        self.tail = self.tail.max(to);
        self.head = self.newest();
    }

    /// Takes the entries above `to` out, oldest first.
    pub(crate) fn rewind(&mut self, to: Eversion) -> Vec<LogEntry> {
        let divergent = self.entries.split_off(self.index_above(to));
        self.head = self.newest();
        divergent.iter().for_each(|entry| self.forget_request(entry));
        divergent.iter().map(Compact::entry).collect()
    }

    fn forget_request(&mut self, entry: &Compact) {
        self.encoded_bytes -= entry.encoded_bytes();
        if let Some(requests) = self.by_reqid.get_mut() {
            requests.forget(&entry.reqid, entry.version);
        }
    }

    /// Replaces everything by `entries` above `tail`.
    pub(crate) fn replace(&mut self, tail: Eversion, entries: &[LogEntry]) {
        *self = Self { tail, head: tail, ..Self::default() };
        entries.iter().for_each(|entry| self.append(entry));
    }

    /// Up to where the log should be trimmed now. `needed` is the oldest version from which some copy still
    /// has to learn what it misses.
    pub(crate) fn trim_target(&self, needed: Eversion, limits: LogLimits) -> Option<Eversion> {
        let surplus =
            if self.len() < limits.target + limits.trim_min { 0 } else { self.len() - limits.target };
        let want = self.entries.get(surplus.max(self.surplus_by_bytes(limits)).checked_sub(1)?)?.version;
        let is_capped = self.len() >= limits.max || self.encoded_bytes >= limits.bytes_max;
        let to = if is_capped { want } else { want.min(needed) };
        (to > self.tail).then_some(to)
    }

    /// Number of entries, oldest first, without which the log is well within its length in bytes; 0 while it is.
    fn surplus_by_bytes(&self, limits: LogLimits) -> usize {
        if self.encoded_bytes <= limits.bytes_max / 2 {
            return 0;
        }
        let mut left = self.encoded_bytes;
        let is_surplus = |entry: &&Compact| {
            let surplus = left > limits.bytes_max / 8 * 3;
            left -= entry.encoded_bytes();
            surplus
        };
        self.entries.iter().take_while(is_surplus).count()
    }

    /// Index of the first entry above `version`. The newest entries are asked for by far the most.
    fn index_above(&self, version: Eversion) -> usize {
        if self.head() <= version {
            return self.entries.len();
        }
        self.entries.partition_point(|entry| entry.version <= version)
    }

    /// About the bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.bytes() + self.entries.iter().map(Compact::bytes_elsewhere).sum::<usize>()
    }

    /// Asserts what always holds.
    pub(crate) fn check(&self) {
        assert_eq!(self.head, self.newest());
        let bytes: usize = self.entries.iter().map(Compact::encoded_bytes).sum();
        assert_eq!(self.encoded_bytes, bytes);
        let mut before = self.tail;
        for entry in self.entries.iter() {
            assert!(before < entry.version, "log entries ascend: {before} then {}", entry.version);
            before = entry.version;
        }
        for (reqid, version) in self.by_reqid.get().into_iter().flat_map(Requests::iter) {
            let entry = self.by_reqid(&reqid).expect("an indexed request is in the log");
            assert!(entry.version == version && entry.reqid == reqid, "index of {reqid:?}");
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use nacre_msg::peer::{Counters, LogKind};
    use nacre_types::{EntityName, UTime};

    /// `object` became `version` from `prior`, by request `tid`.
    pub(crate) fn entry(object: &str, version: (u32, u64), prior: (u32, u64), tid: u64) -> LogEntry {
        LogEntry {
            kind: LogKind::Modify,
            object: HObject::head(1, "".into(), "".into(), object.into()),
            version: Eversion::new(version.0, version.1),
            prior_version: Eversion::new(prior.0, prior.1),
            user_version: version.1,
            reqid: ReqId { name: EntityName::client(7), tid, incarnation: 0 },
            mtime: UTime::ZERO,
            result: 0,
            outputs: Vec::new(),
            snaps: Vec::new(),
            delta: Counters::default(),
            committed_to: Eversion::ZERO,
            modified: None,
        }
    }

    #[test]
    fn finds_by_version_and_by_request_and_forgets_both_ways() {
        let mut log = PgLog::default();
        (1..=10).for_each(|n| log.append(&entry("a", (2, n), (2, n - 1), n)));
        log.check();
        assert!(log.reaches(Eversion::new(2, 10)) && log.reaches(Eversion::ZERO));
        assert!(!log.reaches(Eversion::new(1, 10)));
        assert_eq!(log.by_reqid(&entry("a", (2, 1), (0, 0), 4).reqid).map(|e| e.version.version), Some(4));
        assert_eq!(log.before(Eversion::new(2, 4)), Some(Eversion::new(2, 3)));
        log.trim(Eversion::new(2, 4));
        assert_eq!(log.before(Eversion::new(2, 5)), Some(Eversion::new(2, 4)));
        assert_eq!(log.before(Eversion::new(2, 4)), None);
        assert!(log.by_reqid(&entry("a", (2, 1), (0, 0), 4).reqid).is_none());
        log.append(&entry("b", (2, 11), (0, 0), 5));
        assert_eq!(log.by_reqid(&entry("a", (2, 1), (0, 0), 5).reqid).map(|e| e.version.version), Some(11));
        log.trim(Eversion::new(2, 5));
        assert!(log.by_reqid(&entry("a", (2, 1), (0, 0), 5).reqid).is_some(), "the newer of two");
        log.check();
        assert_eq!(log.rewind(Eversion::new(2, 8)).len(), 3);
        assert!(log.by_reqid(&entry("a", (2, 1), (0, 0), 5).reqid).is_none());
        assert_eq!((log.tail().version, log.head().version, log.len()), (5, 8, 3));
        log.check();
    }

    #[test]
    fn a_trim_spares_what_a_copy_needs_until_the_cap() {
        let limits = LogLimits { target: 4, trim_min: 2, max: 10, ..LogLimits::default() };
        let mut log = PgLog::default();
        let needed = Eversion::new(2, 1);
        for n in 1..=12 {
            log.append(&entry("a", (2, n), (2, n - 1), n));
            let target = log.trim_target(needed, limits).map(|to| to.version);
            let want = match n {
                0..6 => None,
                6..10 => Some(1),
                n => Some(n - 4),
            };
            assert_eq!(target, want, "at {n}");
        }
    }
    #[test]
    fn long_entries_are_trimmed_by_their_bytes() {
        let name = "n".repeat(4000);
        let limits = LogLimits { bytes_max: 64 << 10, ..LogLimits::default() };
        let mut log = PgLog::default();
        for n in 1..=200 {
            log.append(&entry(&name, (2, n), (2, n - 1), n));
            // While a copy needs the first, only up to the limit.
            let needed = if n < 100 { log.head() } else { Eversion::new(2, 1) };
            if let Some(to) = log.trim_target(needed, limits) {
                log.trim(to);
            }
            assert!(log.encoded_bytes <= limits.bytes_max, "{} bytes at {n}", log.encoded_bytes);
            assert!(log.len() >= 5.min(n as usize), "{} entries at {n}", log.len());
            log.check();
        }
    }
}
