//! An ordered key-value store: atomic batches, durable when the caller says so.
//!
//! Holds what is small and never on the path of a write: the monitor's state, a store's metadata. Three
//! implementations: [`RedbKv`] on a file or in a region of a device ([`RegionFile`]), [`MemoryKv`] for tests and the
//! simulation, which forgets unsynced batches at a crash, and [`JournaledKv`], a journal before either, as an OSD's
//! metadata have it. All pass [`conformance`]. Layer: io; uses files and the wake-up of nacre-env.
//!
//! A batch is committed in the call ([`KvStore::commit`]), or in the background ([`KvStore::submit`],
//! [`KvStore::drain`]), as requests to a disk are, where the caller must not wait for the device.

mod add_sums;
mod background;
pub mod conformance;
#[cfg(test)]
mod crash;
mod device_part;
mod journal;
mod memory;
mod paced;
mod pauses;
mod place;
mod plain_file;
mod progress;
mod reader;
mod real_file;
mod redb_error;
mod redb_kv;
mod region;
#[cfg(test)]
mod rot;
mod space;
mod sums;
mod turn;
mod warming;
mod write_back;

pub use device_part::DevicePart;
pub use journal::{
    JournalOptions, JournaledKv, has_journal, journal_file_bytes, journal_half_bytes, journal_used_bytes,
};
pub use memory::MemoryKv;
pub use plain_file::{create_file, open_file};
pub use reader::{KvReader, read_ahead};
pub use redb_kv::{KvOptions, RedbKv};
pub use region::{RegionFile, RegionPlace};

use bytes::Bytes;
use nacre_env::FileRoom;
use std::ops::Bound;
use std::os::fd::BorrowedFd;

/// All of the work on a batch: see [`KvStore::progress`].
pub const COMMITTED: u64 = 1000;

/// Most bytes of a key.
pub const KEY_BYTES_MAX: usize = 64 * 1024;

/// Why a store could not do what it was asked. After an error of a commit the store accepts no more batches:
/// what the device holds is unknown until it is opened anew.
#[derive(Debug, thiserror::Error)]
pub enum KvError {
    /// Somebody else has the file open.
    #[error("the store is in use by another process")]
    InUse,
    /// The file is not a store, or damaged.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The file system has no room left, not even what was reserved.
    #[error("the file system of the store is full: make room and start again")]
    Full,
    /// The file system or the device refused.
    #[error("the store's device failed: {0}")]
    Device(std::io::Error),
    /// An earlier commit failed.
    #[error("an earlier commit failed; the store must be opened anew")]
    Fenced,
    /// The caller broke a rule of the store.
    #[error("misuse of the store: {0}")]
    Misuse(String),
}

impl From<std::io::Error> for KvError {
    fn from(error: std::io::Error) -> Self {
        if space::is_full(&error) { Self::Full } else { Self::Device(error) }
    }
}

/// Changes that take effect together or not at all; later ones win.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KvBatch {
    prefixes: Vec<Bytes>,
    ops: Vec<(Bytes, Option<Bytes>)>,
}

impl KvBatch {
    /// Stores `value` under `key`.
    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.ops.push((key.into(), Some(value.into())));
    }

    /// Deletes `key`, whether it is there or not.
    pub fn delete(&mut self, key: impl Into<Bytes>) {
        self.ops.push((key.into(), None));
    }

    /// Deletes every key that begins with `prefix` and is there before the batch: whatever else the batch does comes
    /// after it.
    pub fn delete_prefix(&mut self, prefix: impl Into<Bytes>) {
        self.prefixes.push(prefix.into());
    }

    /// The prefixes whose keys are deleted first.
    #[must_use]
    pub fn prefixes(&self) -> &[Bytes] {
        &self.prefixes
    }

    /// The changes in order: key and new value, or `None` to delete.
    #[must_use]
    pub fn ops(&self) -> &[(Bytes, Option<Bytes>)] {
        &self.ops
    }

    /// True when nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.prefixes.is_empty()
    }
}

/// How firm a commit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Visible at once; a crash may take it back, together with every buffered commit after it.
    Buffered,
    /// On the device, with every commit before it, when the call returns.
    Durable,
}

/// Names a submitted batch to the caller that submitted it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct KvTag(pub u64);

/// A submitted batch is finished.
#[derive(Debug)]
pub struct KvCompletion<V = ()> {
    /// The tag it was submitted with.
    pub tag: KvTag,
    /// Without error: it is on the device, with every commit before it.
    pub result: Result<V, KvError>,
}

/// Keys have been read in the background: [`KvStore::warm`].
#[derive(Debug, PartialEq, Eq)]
pub struct Warmed {
    /// The tag they were asked for with.
    pub tag: KvTag,
    /// Those that are certain to be as [`KvStore::get`] would find them now, with what it would give.
    pub found: Vec<(Bytes, Option<Bytes>)>,
}

/// Names a key by the value of another.
pub type Follow = fn(&[u8]) -> Option<Bytes>;

/// One key and its value.
pub type Pair = (Bytes, Bytes);

/// An ordered map of byte strings.
pub trait KvStore {
    /// The value of `key`.
    ///
    /// # Errors
    /// [`KvError`] when the device fails.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError>;

    /// At most `count_max` pairs with keys from `start` up to `end`, in ascending order of keys.
    ///
    /// # Errors
    /// [`KvError`] when the device fails.
    fn scan(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, count_max: usize) -> Result<Vec<Pair>, KvError>;

    /// The pairs with keys from `start` up to `end` as they are now, whatever is committed while they are read. Meanwhile the file keeps
    /// what they need.
    ///
    /// # Errors
    /// [`KvError`] when the device fails.
    fn reader(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Result<Box<dyn KvReader + Send>, KvError> {
        Ok(Box::new(self.scan(start, end, usize::MAX)?.into_iter()))
    }

    /// Whether looks have waited for the device so often of late that it pays to have keys read before they are asked for:
    /// [`KvStore::warm`].
    fn waits_for_device(&self) -> bool {
        false
    }

    /// Reads `keys` in the background, and behind each the key that `follow` names by what is found, so that a look at them, a moment later,
    /// does not wait for the device. False when all `keys` are in memory, and nothing is done; else [`KvStore::drain_warm`] gives the tag, and
    /// what nobody has changed meanwhile, for which no look is needed.
    fn warm(&mut self, keys: Vec<Bytes>, follow: Option<Follow>, tag: KvTag) -> bool {
        let _all_in_memory = (keys, follow, tag);
        false
    }

    /// Moves what has been read since to the end of `out`, in no order. Never waits.
    fn drain_warm(&mut self, out: &mut Vec<Warmed>) {
        let _nothing_is_read = out;
    }

    /// Applies a batch as one.
    ///
    /// # Errors
    /// [`KvError`]; nothing of the batch is visible then, and no later batch is accepted.
    fn commit(&mut self, batch: &KvBatch, durability: Durability) -> Result<(), KvError>;

    /// Hands a batch over to be committed durably while the caller goes on. Batches are committed in the order of
    /// their submission, and before a later [`KvStore::commit`]. Until the completion is drained, reads see all of
    /// the batch or nothing of it, and so does the process that opens the store after a crash.
    fn submit(&mut self, batch: KvBatch, tag: KvTag);

    /// Moves what has finished to the end of `out`. Never waits.
    fn drain(&mut self, out: &mut Vec<KvCompletion>);

    /// Waits until [`KvStore::drain`] has something to give; returns at once when nothing is under way.
    fn wait(&mut self);

    /// What becomes readable when [`KvStore::drain`] or [`KvStore::drain_warm`] has something to give, or [`KvStore::wake_at`] is due: for `RealNet::watch`, all of
    /// them. None where nothing happens in the background.
    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// About how much of the work on the batch that is being committed in the background is done, of [`COMMITTED`]; nothing
    /// where that cannot be told.
    fn progress(&self) -> u64 {
        0
    }

    /// Asks to be woken once when [`KvStore::progress`] has come so far, as by a completion; [`KvStore::wait`] returns then,
    /// too. It need not be seen by a batch that ends first.
    fn wake_at(&self, progress: u64) {
        let _cannot_be_told = progress;
    }

    /// Whether somebody waits for what is being committed in the background. While nobody does, the device may be left to others most of
    /// the time. Somebody does as long as this was never called.
    fn set_hurried(&self, hurried: bool) {
        let _no_device_to_leave = hurried;
    }

    /// What the store has of its file system, and by how much it may grow before somebody should stop it; `None` where there
    /// is no such bound. Asked often.
    fn room(&self) -> Option<FileRoom> {
        None
    }

    /// Bytes of memory that hold parts of the store's file.
    fn cached_bytes(&self) -> usize {
        0
    }

    /// Lets threads of the store call `give_back`, which gives what the calling thread has freed back to the system, as soon as they have
    /// nothing else to do. Waits for none of them.
    fn give_back(&mut self, give_back: fn()) {
        let _has_no_threads = give_back;
    }

    /// Gives memory back that holds parts of the file, for times in which nobody asks for anything. May wait for the device, but for what
    /// takes long it does not: it begins with that, and is true while it is to be called again later.
    ///
    /// # Errors
    /// [`KvError`]; the store cannot be read or changed any more then.
    fn idle_trim(&mut self) -> Result<bool, KvError> {
        Ok(false)
    }

    /// All pairs whose key begins with `prefix`.
    ///
    /// # Errors
    /// [`KvError`] when the device fails.
    fn scan_prefix(&self, prefix: &[u8]) -> Result<Vec<Pair>, KvError> {
        let end = end_of_prefix(prefix);
        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.scan(Bound::Included(prefix), end, usize::MAX)
    }
}

/// The least key above all keys with this prefix; `None` when there is none.
#[must_use]
pub fn end_of_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix.get(..=last)?.to_vec();
    if let Some(byte) = end.last_mut() {
        *byte += 1;
    }
    Some(end)
}

fn check(batch: &KvBatch) -> Result<(), KvError> {
    match batch.ops.iter().find(|(key, _)| key.len() > KEY_BYTES_MAX) {
        Some((key, _)) => Err(KvError::Misuse(format!("key of {} bytes", key.len()))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_one() {
        assert_eq!(end_of_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(end_of_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(end_of_prefix(b"\xff"), None);
        assert_eq!(end_of_prefix(b""), None);
    }
}
