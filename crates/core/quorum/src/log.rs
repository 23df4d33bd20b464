//! [`Log`]: the log in memory, as the library reads it; [`Stored`]: what a driver found in its store.

use crate::wire::{HardState, LogEntry, LogPosition, Members};
use raft::eraftpb::{ConfState, Entry, Snapshot};
use raft::{GetEntriesContext, RaftState, StorageError};
use std::collections::VecDeque;

/// What the store holds of the log; nothing for a member that is to join.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// The term, the vote, and how far the log is known to be committed.
    pub hard_state: HardState,
    /// The members as of `applied`.
    pub members: Members,
    /// What the tables have come to.
    pub applied: LogPosition,
    /// The entry before the first that is kept.
    pub trimmed: LogPosition,
    /// The entries that are kept, and perhaps some up to `trimmed`, which do not count.
    pub entries: Vec<LogEntry>,
}

impl Stored {
    /// The first member, or members, of a new log, whose tables are all alike. What they hold is entry 1, which nobody has:
    /// a later member gets the tables, and with them the members.
    #[must_use]
    pub fn bootstrap(members: Members) -> Self {
        let first = LogPosition { index: 1, term: 1 };
        let hard_state = HardState { term: 1, vote: 0, commit: 1 };
        Self { hard_state, members, applied: first, trimmed: first, entries: Vec::new() }
    }
}

/// What is stored is no log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StoredError {
    /// An entry is missing.
    #[error("the log has a gap: entry {0} is missing")]
    Gap(u64),
    /// The tables are older than the log's beginning.
    #[error("the tables have come to entry {applied}, but the log begins behind entry {trimmed}")]
    TablesTooOld {
        /// Last entry in the tables.
        applied: u64,
        /// Last entry that is not kept.
        trimmed: u64,
    },
    /// The tables are newer than the log's end.
    #[error("the tables have come to entry {applied}, but the log ends with entry {last}")]
    LogTooShort {
        /// Last entry in the tables.
        applied: u64,
        /// Last entry of the log.
        last: u64,
    },
    /// The end of the log is lost.
    #[error("the log is committed to entry {commit}, but ends with entry {last}")]
    EndLost {
        /// Last entry that is known to be committed.
        commit: u64,
        /// Last entry of the log.
        last: u64,
    },
    /// Nobody votes, and yet there is a log.
    #[error("the log names no voting member")]
    NoVoters,
}

/// Entries in memory behind `trimmed`, some of which may not be stored yet.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) hard_state: HardState,
    pub(crate) members: Members,
    pub(crate) trimmed: LogPosition,
    pub(crate) applied: LogPosition,
    entries: VecDeque<Entry>,
    bytes: usize,
}

fn bytes_of(entry: &Entry) -> usize {
    entry.data.len() + entry.context.len() + size_of::<Entry>()
}

impl Log {
    pub(crate) fn open(stored: Stored) -> Result<Self, StoredError> {
        let Stored { hard_state, members, applied, trimmed, entries } = stored;
        if members.voters.is_empty() && applied.index > 0 {
            return Err(StoredError::NoVoters);
        }
        if applied.index < trimmed.index {
            return Err(StoredError::TablesTooOld { applied: applied.index, trimmed: trimmed.index });
        }
        let mut log = Self { hard_state, members, trimmed, applied, entries: VecDeque::new(), bytes: 0 };
        for entry in entries {
            let next = log.last() + 1;
            if entry.position.index > next {
                return Err(StoredError::Gap(next));
            }
            if entry.position.index == next {
                log.push(entry.into());
            }
        }
        if log.last() < applied.index {
            return Err(StoredError::LogTooShort { applied: applied.index, last: log.last() });
        }
        // The hard state is never stored before the entries that it speaks of; the library would end the process.
        if log.last() < log.hard_state.commit {
            return Err(StoredError::EndLost { commit: log.hard_state.commit, last: log.last() });
        }
        // A crash may have kept tables that are further than the hard state that says so.
        log.hard_state.commit = log.hard_state.commit.max(applied.index);
        Ok(log)
    }

    fn push(&mut self, entry: Entry) {
        self.bytes += bytes_of(&entry);
        self.entries.push_back(entry);
    }

    pub(crate) fn last(&self) -> u64 {
        self.entries.back().map_or(self.trimmed.index, |entry| entry.index)
    }

    /// Replaces what is there from the first of `entries` on.
    pub(crate) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        while self.entries.back().is_some_and(|last| last.index >= first.index) {
            self.bytes -= self.entries.pop_back().as_ref().map_or(0, bytes_of);
        }
        for entry in entries {
            self.push(entry.clone());
        }
    }

    /// Begins anew behind a snapshot.
    pub(crate) fn reset(&mut self, position: LogPosition, members: Members) {
        self.entries.clear();
        (self.bytes, self.trimmed, self.applied, self.members) = (0, position, position, members);
    }

    /// Drops applied entries, oldest first, until at most `entries` and `bytes` are left.
    pub(crate) fn trim(&mut self, entries: usize, bytes: usize) {
        while self.entries.len() > entries || self.bytes > bytes {
            let is_applied = |oldest: &mut Entry| oldest.index < self.applied.index;
            let Some(oldest) = self.entries.pop_front_if(is_applied) else { return };
            self.trimmed = LogPosition { index: oldest.index, term: oldest.term };
            self.bytes -= bytes_of(&oldest);
        }
    }

    fn term_of(&self, index: u64) -> raft::Result<u64> {
        if index == self.trimmed.index {
            return Ok(self.trimmed.term);
        }
        let Some(at) = index.checked_sub(self.trimmed.index + 1) else {
            return Err(StorageError::Compacted.into());
        };
        let entry = usize::try_from(at).ok().and_then(|at| self.entries.get(at));
        entry.map(|entry| entry.term).ok_or_else(|| StorageError::Unavailable.into())
    }
}

impl raft::Storage for Log {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new((&self.hard_state).into(), (&self.members).into()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.trimmed.index {
            return Err(StorageError::Compacted.into());
        }
        if high > self.last() + 1 {
            return Err(StorageError::Unavailable.into());
        }
        let max_size = max_size.into().unwrap_or(u64::MAX);
        let wanted =
            self.entries.iter().skip_while(|entry| entry.index < low).take_while(|entry| entry.index < high);
        let mut size = 0;
        let mut out = Vec::new();
        for entry in wanted {
            size += bytes_of(entry) as u64;
            if size > max_size && !out.is_empty() {
                break;
            }
            out.push(entry.clone());
        }
        Ok(out)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        self.term_of(index)
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.trimmed.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    /// Only says of what the tables are a snapshot: they travel beside the message, not in it.
    fn snapshot(&self, request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        if self.applied.index < request_index {
            return Err(StorageError::SnapshotTemporarilyUnavailable.into());
        }
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (self.applied.index, self.applied.term);
        *metadata.mut_conf_state() = ConfState::from(&self.members);
        Ok(snapshot)
    }
}
