//! The cluster log: what daemons and operators did, by channel and level.

use crate::batch::{Batch, Snapshot, numbered_key};
use nacre_denc::{Decode, DecodeError, Encode};
use nacre_msg::ClusterLogEntry;
use std::collections::VecDeque;

const PREFIX: &str = "log";

/// Entries that are kept at most.
pub const ENTRIES_COUNT_MAX: usize = 10_000;
/// Longest text of one entry; the rest is cut off.
pub const TEXT_BYTES_MAX: usize = 16 * 1024;
/// Longest name of a channel, cut off as well.
const CHANNEL_BYTES_MAX: usize = 256;
/// Addresses of a daemon that are kept with what it says.
const ADDRS_COUNT_MAX: usize = 8;

/// Version of the newest entry in the tables; 0 for none.
#[must_use]
pub fn newest_version(snapshot: &dyn Snapshot) -> u64 {
    snapshot.scan(PREFIX).last().and_then(|(key, _)| key.parse().ok()).unwrap_or(0)
}

/// The entries that a batch adds, with their versions, for those that follow the log of the monitors and not [`ClusterLog`].
///
/// # Errors
/// When one does not decode.
pub fn entries_in(batch: &Batch) -> Result<Vec<(u64, ClusterLogEntry)>, DecodeError> {
    let added = batch.ops().iter().filter(|op| op.prefix == PREFIX);
    let added = added.filter_map(|op| Some((op.key.parse().ok()?, op.value.clone()?)));
    added.map(|(version, value)| Ok((version, ClusterLogEntry::from_bytes(value)?))).collect()
}

/// The log, newest entry last. Versions count entries and never repeat.
#[derive(Debug)]
pub struct ClusterLog {
    entries: VecDeque<ClusterLogEntry>,
    /// Version of the newest entry.
    version: u64,
    changes: Batch,
}

impl ClusterLog {
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<Self, DecodeError> {
        let pairs = snapshot.scan(PREFIX);
        let version = pairs.last().and_then(|(key, _)| key.parse().ok()).unwrap_or(0);
        let entries = pairs.into_iter().map(|(_, value)| ClusterLogEntry::from_bytes(value));
        Ok(Self { entries: entries.collect::<Result<_, _>>()?, version, changes: Batch::default() })
    }

    /// Version of the newest entry, 0 for none.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The kept entries, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &ClusterLogEntry> {
        self.entries.iter()
    }

    /// Kept entries newer than `version`, with their versions.
    pub fn after(&self, version: u64) -> impl Iterator<Item = (u64, &ClusterLogEntry)> {
        let oldest = self.version + 1 - self.entries.len() as u64;
        (oldest..).zip(&self.entries).filter(move |(at, _)| *at > version)
    }

    /// Appends an entry and forgets the oldest beyond [`ENTRIES_COUNT_MAX`].
    pub fn append(&mut self, mut entry: ClusterLogEntry) {
        entry.message.truncate(entry.message.floor_char_boundary(TEXT_BYTES_MAX));
        entry.channel.truncate(entry.channel.floor_char_boundary(CHANNEL_BYTES_MAX));
        entry.addrs.0.truncate(ADDRS_COUNT_MAX);
        self.version += 1;
        self.changes.put(PREFIX, numbered_key(self.version), entry.to_bytes());
        self.entries.push_back(entry);
        if self.entries.len() > ENTRIES_COUNT_MAX {
            self.entries.pop_front();
            self.changes.delete(PREFIX, numbered_key(self.version - ENTRIES_COUNT_MAX as u64));
        }
    }

    /// Bytes that wait to be committed.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.changes.bytes()
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.changes.is_empty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        batch.append(&mut self.changes);
    }
}
