//! The log or the metadata of a stopped OSD moved to another device and back: as `ceph-bluestore-tool bluefs-bdev-new-wal`,
//! `bluefs-bdev-new-db` and `bluefs-bdev-migrate` do with what BlueStore keeps.
//!
//! | module | does |
//! | --- | --- |
//! | `folder` | links and the note of a move in the OSD's folder |
//! | `steps` | the steps of a move, and what ends one that was interrupted |
//! | `files` | a move of a store in files, to other folders |
//! | `raw` | a move on real devices: held, refused, divided |

mod files;
pub(super) mod folder;
mod raw;
mod steps;
#[cfg(test)]
mod tests;

use super::devices::LinkedDevices;
use super::encryption::{StoreKeys, Unlocked, unlock};
use super::{LOG_FILE, META_DEVICE, Stopped, StorageError};
use files::InFiles;
use folder::{Folder, Links};
use nacre_crypt::{DataKey, WrappingKey};
use nacre_device::Role;
use raw::Raw;
use std::fmt;
use std::path::{Path, PathBuf};

/// What is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// The write-ahead log.
    Log,
    /// The metadata, with their journal.
    Metadata,
}

impl Moved {
    const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Metadata => "metadata",
        }
    }

    /// The link to its device, if it has one of its own.
    const fn link(self) -> &'static str {
        match self {
            Self::Log => LOG_FILE,
            Self::Metadata => META_DEVICE,
        }
    }

    const fn role(self) -> Role {
        match self {
            Self::Log => Role::Log,
            Self::Metadata => Role::Metadata,
        }
    }
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveTo {
    /// Another device, all of it; of a store in files, another folder.
    Elsewhere {
        /// A block device, or a file that is there already; or a folder.
        path: PathBuf,
        /// Bytes of it that metadata get, if not all.
        metadata_bytes: Option<u64>,
        /// Takes bytes of no known kind for refuse.
        force: bool,
    },
    /// The device with the data, to the place that was left there; of a store in files, the OSD's folder.
    Back,
}

/// How far a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that are copied.
    pub done_bytes: u64,
    /// Of so many, about.
    pub total_bytes: u64,
}

/// Who looks on while something is moved.
pub trait Onlooker {
    /// More is copied.
    fn progress(&mut self, progress: Progress);

    /// The store as it will be. What is wrong with it, in a sentence each: then it stays as it was.
    fn look(&mut self, copy: Stopped) -> Vec<String>;
}

/// What became of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveOutcome {
    /// It was there already.
    WasThere,
    /// It is there now.
    Moved,
}

/// How a move that had been interrupted ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledMove {
    /// What was moved.
    pub what: Moved,
    /// It is where it was to go, or else where it was.
    pub is_done: bool,
    /// The device that was given free; `None`: the place beside the data.
    pub freed: Option<PathBuf>,
    /// Why that device could not be given free, though the store does not use it.
    pub left: Option<String>,
}

/// Why nothing is moved, or a move ends early.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The store cannot be opened, or a device cannot be taken or fails.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The store is in files.
    #[error("{folder}: its store is in files, and --to a folder; --force and --meta-size are for devices")]
    DeviceOptions {
        /// The OSD's folder.
        folder: PathBuf,
    },
    /// A store in files goes to a folder, and this is none.
    #[error(
        "{path} is no folder: a store in files goes to another folder, `nacre osd --mkfs --device` makes one on devices"
    )]
    NoFolder {
        /// What was given.
        path: PathBuf,
    },
    /// There is no place to move back to.
    #[error(
        "{device} has no place for the {what}: the OSD was made with another device for it, and its data begin where it would be. Move it to \
         another device, or make the OSD anew"
    )]
    NoPlace {
        /// The device with the data.
        device: PathBuf,
        /// What has no place.
        what: Moved,
    },
    /// The metadata have a journal, which would have no place.
    #[error(
        "{device} has no place for the journal of the metadata, or too small a one: it was divided by an earlier version. Move them to another \
         device, or make the OSD anew"
    )]
    NoJournalPlace {
        /// Where they were to go.
        device: PathBuf,
    },
    /// The device is the one with the data.
    #[error("{device} is the device with the data; say --back to bring the {what} there")]
    DataDevice {
        /// What was given.
        device: PathBuf,
        /// What is to be moved.
        what: Moved,
    },
    /// A region does not change its size where it is.
    #[error(
        "the metadata are on {device} already, in {has_bytes} bytes, which do not change there: move them to another device, or back, and there again with another --meta-size"
    )]
    SizeInPlace {
        /// Where they are.
        device: PathBuf,
        /// Bytes of their region.
        has_bytes: u64,
    },
    /// It does not fit.
    #[error("{device} has room for {has_bytes} bytes of the {what}, and {needed_bytes} are needed")]
    TooSmall {
        /// Where it was to go.
        device: PathBuf,
        /// What is to be moved.
        what: Moved,
        /// Bytes that it would have.
        has_bytes: u64,
        /// Bytes that it needs.
        needed_bytes: u64,
    },
    /// What was copied is no sound store.
    #[error(
        "the store as it would be is not sound, so it stays as it is ({}); does `nacre store check` find it sound as it is?",
        problems.join("; ")
    )]
    Unsound {
        /// What is wrong, a sentence each.
        problems: Vec<String>,
    },
    /// A move was interrupted, and since then somebody has changed the link.
    #[error(
        "a move of the {what} from {from} to {to} was interrupted, and the link {link} leads to neither; let it lead to the one that it led to"
    )]
    Unclear {
        /// What was moved.
        what: Moved,
        /// Where it was.
        from: String,
        /// Where it was to go.
        to: String,
        /// The link in the OSD's folder.
        link: PathBuf,
    },
}

/// Ends a move of a stopped OSD that was interrupted: what the OSD's link does not lead to is given free. `None` when none was. An
/// encrypted store needs its key.
///
/// # Errors
/// [`MoveError`].
pub fn settle_move(folder: &Path, key: Option<&WrappingKey>) -> Result<Option<SettledMove>, MoveError> {
    let Some(note) = Folder(folder).note()? else { return Ok(None) };
    let settled = match LinkedDevices::open(folder)? {
        Some(linked) => raw::finish(Raw::new(folder, linked, key)?, &note),
        None => files::finish(InFiles::new(folder, key)?, &note),
    };
    settled.map(Some)
}

/// Moves the log or the metadata of a stopped OSD, whose earlier moves have ended ([`settle_move`]). An encrypted store needs its key, and
/// what is written is encrypted for its new place.
///
/// # Errors
/// [`MoveError`]; the store opens in any case.
pub fn move_part(
    folder: &Path,
    key: Option<&WrappingKey>,
    what: Moved,
    to: &MoveTo,
    onlooker: &mut dyn Onlooker,
) -> Result<MoveOutcome, MoveError> {
    match LinkedDevices::open(folder)? {
        Some(linked) => raw::move_part(Raw::new(folder, linked, key)?, what, to, onlooker),
        None => files::move_part(InFiles::new(folder, key)?, what, to, onlooker),
    }
}

/// What the store is encrypted with, if it is. Both copies of its wrapped key are whole.
fn data_key(
    folder: &Path,
    keys: Option<StoreKeys>,
    key: Option<&WrappingKey>,
) -> Result<Option<DataKey>, MoveError> {
    let Unlocked { keys, data } = unlock(folder, keys, key)?;
    match keys.and_then(|keys| keys.complaint()) {
        Some(problem) => Err(MoveError::Unsound { problems: vec![problem] }),
        None => Ok(data),
    }
}

fn look(copy: Stopped, onlooker: &mut dyn Onlooker) -> Result<(), MoveError> {
    match onlooker.look(copy) {
        problems if problems.is_empty() => Ok(()),
        problems => Err(MoveError::Unsound { problems }),
    }
}
