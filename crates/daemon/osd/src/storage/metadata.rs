//! [`MetadataPlace`]: where a store's metadata are, a tree with a journal before it, and the one way in which they are opened.
//!
//! The tree is a redb database, the journal a `nacre_kv::JournaledKv`'s. A store of an earlier program has none until an OSD opens it, a
//! device that was divided by one never. Once there is a journal, the tree alone is not what the store has: it says so itself.

use super::encryption::through;
use super::{JOURNAL_FILE, META_FILE, META_RESERVE_BYTES, StorageError, file_error};
use nacre_crypt::{DataKey, Part};
use nacre_device::RegionKind;
use nacre_env::{File, FileRoom};
use nacre_kv::{
    DevicePart, JournalOptions, JournaledKv, KvError, KvOptions, KvStore, RedbKv, RegionFile, has_journal,
    journal_half_bytes,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A region keeps at most one part of so many as its reserve.
const REGION_RESERVE_DIVISOR: u64 = 8;
/// A journal in a region is at most one part of so many of the tree's region.
const REGION_DIVISOR: u64 = 32;
/// In a full file system, halves of less are of no use; a region was made as large as it is.
const HALF_BYTES_MIN: u64 = 512 << 10;
/// A new journal takes one part of so many of what its file system has free at most: the tree is to grow there.
const FREE_DIVISOR: u64 = 8;

/// Where the metadata of a store are.
#[derive(Debug, Clone)]
pub enum MetadataPlace {
    /// In two files, which belong together.
    Files {
        /// The tree's file, or a link to it.
        tree: PathBuf,
        /// The journal's file, or a link to it; not there before the store has one.
        journal: PathBuf,
        /// Of an encrypted store.
        key: Option<DataKey>,
    },
    /// In regions of a device.
    Regions {
        /// The device, by the link in the OSD's folder.
        device: PathBuf,
        /// What is in the tree's region.
        tree: Arc<RegionFile>,
        /// The journal's region, with its length; none on a device of an earlier program.
        journal: Option<(Arc<DevicePart>, u64)>,
    },
}

/// The names of a partition's tree and journal; the first one's are those of a store that is not divided.
pub(super) fn metadata_files(partition: u32) -> [String; 2] {
    [META_FILE, JOURNAL_FILE].map(|name| match partition {
        0 => name.to_owned(),
        number => name.replacen('.', &format!(".{number}."), 1),
    })
}

/// What decrypts the tree's file.
fn tree_cipher(key: &DataKey) -> impl Fn(Arc<dyn File>) -> Arc<dyn File> + Send + Sync + use<> {
    let key = key.clone();
    move |file| through(file, Some(&key), Part::Metadata)
}

/// Metadata that are open.
pub(super) struct Metadata {
    pub(super) kv: Box<dyn KvStore + Send>,
    /// Bytes of a half of the journal; 0: there is none.
    pub(super) half_bytes: u64,
    /// As of [`RedbKv::has_checksums`].
    pub(super) has_checksums: bool,
}

impl MetadataPlace {
    /// The files of a partition in an OSD's folder, or links to them. `key` is the store's.
    pub(super) fn in_folder(folder: &Path, partition: u32, key: Option<&DataKey>) -> Self {
        let [tree, journal] = metadata_files(partition).map(|name| folder.join(name));
        Self::Files { tree, journal, key: key.map(|key| key.of_partition(partition)) }
    }

    /// The tree's file, or the device.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Files { tree, .. } => tree,
            Self::Regions { device, .. } => device,
        }
    }

    fn journal_path(&self) -> &Path {
        match self {
            Self::Files { journal, .. } => journal,
            Self::Regions { device, .. } => device,
        }
    }

    fn failed(&self) -> impl FnOnce(KvError) -> StorageError + use<> {
        let path = self.path().to_owned();
        |source| StorageError::Meta { path, source }
    }

    fn journal_failed(&self) -> impl FnOnce(KvError) -> StorageError + use<> {
        let path = self.journal_path().to_owned();
        |source| StorageError::Meta { path, source }
    }

    /// Whether there are any: a database that is opened would be made.
    #[must_use]
    pub fn exists(&self) -> bool {
        match self {
            Self::Files { tree, .. } => tree.exists(),
            Self::Regions { tree, .. } => tree.length().is_ok_and(|length| length > 0),
        }
    }

    /// Opens the metadata as they are, with the memory that a tool has for them.
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn open(&self) -> Result<Box<dyn KvStore + Send>, StorageError> {
        Ok(self.open_with(KvOptions::default(), None)?.kv)
    }

    /// Opens the metadata. With a number of bytes the journal's halves get that size; where there is no journal, it is made, if there is
    /// room for one.
    pub(super) fn open_with(
        &self,
        options: KvOptions,
        half_bytes: Option<u64>,
    ) -> Result<Metadata, StorageError> {
        let tree = self.open_tree(options)?;
        let has_checksums = tree.has_checksums();
        if has_journal(&tree).map_err(self.failed())? {
            let kv = self.open_journal(tree, half_bytes)?;
            return Ok(Metadata { half_bytes: kv.half_bytes(), kv: Box::new(kv), has_checksums });
        }
        match half_bytes {
            Some(half_bytes) if half_bytes > 0 => {
                let (kv, half_bytes) = self.make_journal(tree, half_bytes)?;
                Ok(Metadata { kv, half_bytes, has_checksums })
            }
            _ => Ok(Metadata { kv: Box::new(tree), half_bytes: 0, has_checksums }),
        }
    }

    /// Opens the tree as if it were all: for a new store, whose journal comes later.
    pub(super) fn open_tree(&self, options: KvOptions) -> Result<RedbKv, StorageError> {
        let opened = match self {
            Self::Files { tree, key: Some(key), .. } => RedbKv::open_through(tree, tree_cipher(key), options),
            Self::Files { tree, .. } => RedbKv::open_with(tree, options),
            Self::Regions { tree, .. } => {
                let tree = Arc::clone(tree);
                RedbKv::open_on(move || Ok(Arc::clone(&tree) as Arc<dyn File>), options)
            }
        };
        opened.map_err(self.failed())
    }

    /// Puts the journal before a tree that has one.
    fn open_journal(
        &self,
        tree: RedbKv,
        half_bytes: Option<u64>,
    ) -> Result<JournaledKv<RedbKv>, StorageError> {
        let file = match self {
            Self::Files { tree, journal, .. } if !journal.exists() => {
                return Err(StorageError::NoJournal { path: journal.clone(), tree: tree.clone() });
            }
            Self::Files { journal, key, .. } => {
                let file = nacre_kv::open_file(journal).map_err(self.journal_failed())?;
                through(file, key.as_ref(), Part::Journal)
            }
            Self::Regions { journal: Some((part, _)), .. } => Arc::clone(part) as Arc<dyn File>,
            Self::Regions { device, journal: None, .. } => {
                return Err(StorageError::NoRegion { path: device.clone(), kind: RegionKind::Journal });
            }
        };
        let has = match self {
            Self::Files { journal, .. } => {
                std::fs::metadata(journal).map_or(0, |file| journal_half_bytes(file.len()))
            }
            Self::Regions { .. } => 0,
        };
        let half_bytes = half_bytes.map(|bytes| self.bounded(bytes, has, &tree));
        JournaledKv::open(tree, file, half_bytes).map_err(self.journal_failed())
    }

    /// What halves of so many bytes may have where they are to be, or where they `has` so many already. What they hold must have room in the
    /// tree as well, and the less that is of all its room, the less it matters how much it takes there.
    fn bounded(&self, half_bytes: u64, has: u64, tree: &RedbKv) -> u64 {
        let room = tree.room();
        match self {
            Self::Regions { journal, .. } => {
                let of_region = journal.as_ref().map_or(0, |(_, length)| journal_half_bytes(*length));
                let of_tree = room.map_or(0, |room| room.total_bytes) / REGION_DIVISOR / 2;
                half_bytes.min(of_region).min(of_tree)
            }
            Self::Files { .. } => {
                let free = room.map_or(0, |room| room.available_bytes);
                half_bytes.min(has.max(free / FREE_DIVISOR / 2))
            }
        }
    }

    /// Makes a journal for metadata without one. Gives them alone where there is no room for it.
    fn make_journal(
        &self,
        tree: RedbKv,
        half_bytes: u64,
    ) -> Result<(Box<dyn KvStore + Send>, u64), StorageError> {
        let block_error = |source| StorageError::Block { path: self.path().to_owned(), source };
        let mark = nacre_blockstore::journal_mark(&tree).map_err(block_error)?;
        let (Some((id, mark)), Some(file)) = (mark, self.new_journal_file()?) else {
            return Ok((Box::new(tree), 0));
        };
        let bounded = self.bounded(half_bytes, 0, &tree);
        let least = if matches!(self, Self::Files { .. }) { HALF_BYTES_MIN } else { 1 };
        if bounded < half_bytes.min(least) {
            self.without_journal(bounded);
            return Ok((Box::new(tree), 0));
        }
        let options = JournalOptions { id, half_bytes: bounded, mark };
        match JournaledKv::make(tree, file, options) {
            Ok(kv) => {
                let half_bytes = kv.half_bytes();
                tracing::info!(path = %self.journal_path().display(), half_bytes, "metadata have a journal now");
                Ok((Box::new(kv), half_bytes))
            }
            Err((Some(tree), KvError::Full)) => {
                self.without_journal(bounded);
                Ok((Box::new(tree), 0))
            }
            Err((_, error)) => Err(self.journal_failed()(error)),
        }
    }

    /// There is no room for a journal with halves of so many bytes.
    fn without_journal(&self, half_bytes: u64) {
        tracing::warn!(
            path = %self.journal_path().display(),
            half_bytes,
            "no room for a journal of the metadata, which are slower without it: make room and restart"
        );
        if let Self::Files { journal, .. } = self {
            // What is left of it is taken for nothing the next time, too.
            let _best_effort = std::fs::remove_file(journal.canonicalize().as_ref().unwrap_or(journal));
        }
    }

    /// Where a journal is to be made; `None` on a device that has no room for it.
    fn new_journal_file(&self) -> Result<Option<Arc<dyn File>>, StorageError> {
        match self {
            Self::Regions { journal, .. } => {
                Ok(journal.as_ref().map(|(part, _)| Arc::clone(part) as Arc<dyn File>))
            }
            Self::Files { tree, journal, key } => {
                let is_link = tree.symlink_metadata().is_ok_and(|found| found.is_symlink());
                if is_link && journal.symlink_metadata().is_err() {
                    // Beside what the tree's link leads to.
                    let target = tree.canonicalize().map_err(file_error(tree))?.with_extension("journal");
                    std::os::unix::fs::symlink(target, journal).map_err(file_error(journal))?;
                }
                match nacre_kv::create_file(journal) {
                    Err(KvError::Full) => Ok(None),
                    made => {
                        let made = made.map(|file| Some(through(file, key.as_ref(), Part::Journal)));
                        made.map_err(self.journal_failed())
                    }
                }
            }
        }
    }

    /// The options with which an OSD opens them, one of so many partitions of its store.
    pub(super) fn options(&self, cache_bytes: usize, partitions: usize) -> KvOptions {
        let reserve_bytes = match self {
            Self::Files { .. } => META_RESERVE_BYTES / partitions as u64,
            Self::Regions { tree, .. } => {
                let total = tree.room().map_or(0, |room: FileRoom| room.total_bytes);
                META_RESERVE_BYTES.min(total / REGION_RESERVE_DIVISOR)
            }
        };
        KvOptions { cache_bytes, reserve_bytes }
    }

    /// Brings what the journal holds into the tree, and gives back what that does not need any more.
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn compact(&self) -> Result<(), StorageError> {
        match self.merge_journal() {
            // Compacting makes room, and is right for a tree whose journal is not merged.
            Err(StorageError::Meta { source: KvError::Full, .. }) => {
                self.compact_tree()?;
                self.merge_journal()?;
            }
            merged => merged?,
        }
        self.compact_tree()
    }

    fn merge_journal(&self) -> Result<(), StorageError> {
        let tree = self.open_tree(KvOptions::default())?;
        if !has_journal(&tree).map_err(self.failed())? {
            return Ok(());
        }
        self.open_journal(tree, None)?.merge_all().map_err(self.journal_failed())
    }

    fn compact_tree(&self) -> Result<(), StorageError> {
        let done = match self {
            Self::Files { tree, key: Some(key), .. } => RedbKv::compact_through(tree, tree_cipher(key)),
            Self::Files { tree, .. } => RedbKv::compact(tree),
            Self::Regions { tree, .. } => {
                let tree = Arc::clone(tree);
                RedbKv::compact_on(move || Ok(Arc::clone(&tree) as Arc<dyn File>))
            }
        };
        done.map_err(self.failed())
    }

    /// Bytes of the tree's region; `None` where it is in a file.
    pub(super) fn region_bytes(&self) -> Option<u64> {
        match self {
            Self::Files { .. } => None,
            Self::Regions { tree, .. } => tree.room().ok().map(|room| room.total_bytes),
        }
    }

    /// Bytes of the journal's; `None` where there is none.
    pub(super) fn journal_region_bytes(&self) -> Option<u64> {
        match self {
            Self::Files { .. } => None,
            Self::Regions { journal, .. } => journal.as_ref().map(|(_, length)| *length),
        }
    }

    /// Bytes that they take: those of the tree, and of the journal.
    ///
    /// # Errors
    /// [`StorageError::File`].
    pub fn used_bytes(&self) -> Result<(u64, u64), StorageError> {
        let used = match self {
            Self::Files { tree, journal, .. } => std::fs::metadata(tree).map(|file| {
                let journal = std::fs::metadata(journal).map_or(0, |file| file.len());
                (file.len(), journal)
            }),
            Self::Regions { tree, journal, .. } => {
                let journal = journal.as_ref().map_or(0, |(_, length)| *length);
                tree.room().map(|room| (room.used_bytes, journal))
            }
        };
        used.map_err(|source| StorageError::File { path: self.path().to_owned(), source })
    }
}

#[cfg(test)]
mod tests;
