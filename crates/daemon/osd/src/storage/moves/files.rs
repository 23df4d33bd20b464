//! Moves of a store in files, to other folders: what `nacre osd --mkfs --wal-dir` and `--meta-dir` make from the beginning. The metadata are
//! two files, of which each goes by itself: at any moment the store has one of each, and no OSD has written to either meanwhile.

use super::folder::{Folder, Links, Note};
use super::steps::{copy_bytes, copy_file, to_be_freed};
use super::{MoveError, MoveOutcome, MoveTo, Moved, Onlooker, Progress, SettledMove, data_key, look};
use crate::storage::encryption::{StoreKeys, cipher, through};
use crate::storage::metadata::MetadataPlace;
use crate::storage::parts::PartDisk;
use crate::storage::{
    BLOCK_FILE, JOURNAL_FILE, LOG_FILE, META_FILE, META_RESERVE_BYTES, Stopped, StorageError, file_error,
    join, remove,
};
use nacre_blockstore::LogHome;
use nacre_crypt::{CryptDisk, DataKey, Part as CryptPart, WrappingKey};
use nacre_env::File;
use nacre_env::disk::Window;
use nacre_env::real::{DriverChoice, HeldDevice, RealDisk, private, room};
use nacre_kv::KvError;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files of a stopped OSD.
pub(super) struct InFiles<'a> {
    folder: &'a Path,
    /// What they are encrypted with, if they are.
    key: Option<DataKey>,
}

impl<'a> InFiles<'a> {
    /// With the key of an encrypted store.
    pub(super) fn new(folder: &'a Path, key: Option<&WrappingKey>) -> Result<Self, MoveError> {
        Ok(Self { folder, key: data_key(folder, StoreKeys::in_folder(folder)?, key)? })
    }

    /// What a file with data or log holds, decrypted. Who has it keeps the OSD away.
    fn content(
        &self,
        held: &HeldDevice,
        path: &Path,
        part: CryptPart,
    ) -> Result<Arc<dyn File>, StorageError> {
        let view = held.view().map_err(file_error(path))?;
        Ok(through(Arc::new(view), self.key.as_ref(), part))
    }

    fn disk(&self, held: HeldDevice, path: &Path, part: CryptPart) -> Result<PartDisk, StorageError> {
        let disk = held.into_disk(DriverChoice::Auto);
        let disk = disk.map_err(|source| StorageError::Disk { path: path.to_owned(), source })?;
        Ok(CryptDisk::new(Window::whole(disk), cipher(self.key.as_ref(), part)))
    }
}

/// A file of a store that goes elsewhere, or comes back to the OSD's folder.
struct Part<'a> {
    store: &'a InFiles<'a>,
    folder: &'a Path,
    what: Moved,
    /// Its name in the OSD's folder, or that of the link to it.
    name: &'static str,
    /// What the link leads to; `None`: it is in the OSD's folder.
    from: Option<PathBuf>,
    to: Option<PathBuf>,
}

fn hold(path: &Path) -> Result<HeldDevice, StorageError> {
    HeldDevice::open(path).map_err(|source| StorageError::Disk { path: path.to_owned(), source })
}

/// Where a file of the metadata that comes back is until it has its name.
fn draft_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.moved"))
}

fn home_of(data: &dyn File, folder: &Path) -> Result<LogHome, StorageError> {
    LogHome::read(data).map_err(|source| StorageError::Block { path: folder.to_owned(), source })
}

/// Ends the move that a note tells of.
pub(super) fn finish(store: InFiles<'_>, note: &Note) -> Result<SettledMove, MoveError> {
    let folder = store.folder;
    let (links, block) = (Folder(folder), folder.join(BLOCK_FILE));
    let held = hold(&block)?;
    let data = store.content(&held, &block, CryptPart::Data)?;
    let current = links.link(&note.link)?;
    let freed = to_be_freed(note, |place| place == current.as_deref());
    let freed = freed.ok_or_else(|| note.unclear(folder, "the OSD's folder"))?;
    give_up(folder, data.as_ref(), note, freed.as_deref())?;
    Ok(SettledMove { what: note.what, is_done: freed == note.from, freed, left: None })
}

/// As [`super::move_part`].
pub(super) fn move_part(
    store: InFiles<'_>,
    what: Moved,
    to: &MoveTo,
    onlooker: &mut dyn Onlooker,
) -> Result<MoveOutcome, MoveError> {
    let folder = store.folder;
    let elsewhere = match to {
        MoveTo::Back => None,
        MoveTo::Elsewhere { path, metadata_bytes: None, force: false } => Some(folder_of(path)?),
        MoveTo::Elsewhere { .. } => return Err(MoveError::DeviceOptions { folder: folder.to_owned() }),
    };
    let names: &[&'static str] = match what {
        Moved::Log => &[LOG_FILE],
        Moved::Metadata => &[META_FILE, JOURNAL_FILE],
    };
    let mut outcome = MoveOutcome::WasThere;
    for &name in names {
        // A store of an earlier program has no journal until an OSD opens it.
        if name == JOURNAL_FILE && folder.join(name).symlink_metadata().is_err() {
            continue;
        }
        let owner = folder.canonicalize().map_err(file_error(folder))?;
        let owner = owner.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let to = elsewhere.as_ref().map(|elsewhere| elsewhere.join(format!("{owner}.{name}")));
        let part = Part { store: &store, folder, what, name, from: Folder(folder).link(name)?, to };
        if part.from == part.to {
            continue;
        }
        part.run(onlooker)?;
        outcome = MoveOutcome::Moved;
    }
    Ok(outcome)
}

/// A folder for files of ours, by its own name.
fn folder_of(path: &Path) -> Result<PathBuf, MoveError> {
    if path.exists() && !path.is_dir() {
        return Err(MoveError::NoFolder { path: path.to_owned() });
    }
    private::make_folder(path).map_err(file_error(path))?;
    Ok(path.canonicalize().map_err(file_error(path))?)
}

impl Part<'_> {
    fn run(&self, onlooker: &mut dyn Onlooker) -> Result<(), MoveError> {
        if let Some(to) = self.to.as_ref().filter(|to| to.symlink_metadata().is_ok()) {
            let what = "the file belongs to another store, or is left of one";
            return Err(file_error(to)(io::Error::new(io::ErrorKind::AlreadyExists, what)).into());
        }
        let (links, block) = (Folder(self.folder), self.folder.join(BLOCK_FILE));
        let held = hold(&block)?;
        // Keeps the OSD away until the end.
        let data = self.store.content(&held, &block, CryptPart::Data)?;
        let data = data.as_ref();
        self.check_room(data)?;
        links.set_note(&self.note())?;
        let copied = match self.what {
            Moved::Log => self.copy_log(data, onlooker),
            Moved::Metadata => self.copy_metadata(onlooker),
        };
        let looked = copied.and_then(|()| look(self.copied(held)?, onlooker));
        if let Err(error) = looked {
            if let Err(error) = give_up(self.folder, data, &self.note(), self.to.as_deref()) {
                tracing::warn!(%error, "what was copied is still there: the next move clears it away");
            }
            return Err(error);
        }
        self.switch()?;
        give_up(self.folder, data, &self.note(), self.from.as_deref())
    }

    fn note(&self) -> Note {
        let (from, to) = (self.from.clone(), self.to.clone());
        Note { what: self.what, link: self.name.to_owned(), from, to }
    }

    /// Where the copy is before the link changes; `None`: in the file with the data.
    fn copy_path(&self) -> Option<PathBuf> {
        match (&self.to, self.what) {
            (Some(to), _) => Some(to.clone()),
            (None, Moved::Log) => None,
            (None, Moved::Metadata) => Some(draft_of(self.folder, self.name)),
        }
    }

    fn check_room(&self, data: &dyn File) -> Result<(), MoveError> {
        let needed_bytes = match self.what {
            Moved::Log => {
                let home = home_of(data, self.folder)?;
                if self.to.is_none() && !home.has_place() {
                    return Err(MoveError::NoPlace { device: self.folder.join(BLOCK_FILE), what: self.what });
                }
                home.device_bytes()
            }
            Moved::Metadata => {
                let path = self.folder.join(self.name);
                std::fs::metadata(&path).map_err(file_error(&path))?.len() + META_RESERVE_BYTES
            }
        };
        let Some(copy) = self.copy_path() else { return Ok(()) };
        let place = copy.parent().unwrap_or(self.folder).to_owned();
        let opened = std::fs::OpenOptions::new().read(true).open(&place).map_err(file_error(&place))?;
        let has_bytes = room(opened.as_fd()).map_err(file_error(&place))?.available_bytes;
        if has_bytes >= needed_bytes {
            return Ok(());
        }
        Err(MoveError::TooSmall { device: place, what: self.what, has_bytes, needed_bytes })
    }

    fn copy_log(&self, data: &dyn File, onlooker: &mut dyn Onlooker) -> Result<(), MoveError> {
        let home = home_of(data, self.folder)?;
        let log = |path: &Path| self.store.content(&hold(path)?, path, CryptPart::Log);
        let old = self.from.as_ref().map(|from| log(from)).transpose()?;
        let new = match &self.to {
            Some(to) => {
                let made = RealDisk::create(to, home.device_bytes(), DriverChoice::Auto);
                drop(made.map_err(|source| StorageError::Disk { path: to.clone(), source })?);
                Some(log(to)?)
            }
            None => None,
        };
        let (from, to) = (old.as_deref().unwrap_or(data), new.as_deref().unwrap_or(data));
        let path = self.to.clone().unwrap_or_else(|| self.folder.join(BLOCK_FILE));
        let total_bytes = home.log_bytes();
        let mut told = |done_bytes| onlooker.progress(Progress { done_bytes, total_bytes });
        home.copy(from, to, &mut told).and_then(|()| to.sync()).map_err(file_error(&path))?;
        let signed = if new.is_some() { home.sign_log(to) } else { home.sign_data(to, true) };
        signed.and_then(|()| sync_parent(&path)).map_err(file_error(&path))?;
        Ok(())
    }

    /// As they are: where they are encrypted, tweaks count from the first byte of a file, wherever that is.
    fn copy_metadata(&self, onlooker: &mut dyn Onlooker) -> Result<(), MoveError> {
        let path = self.folder.join(self.name);
        let Some(copy) = self.copy_path() else { return Ok(()) };
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source: KvError| StorageError::Meta { path, source }
        };
        let from = nacre_kv::open_file(&path).map_err(failed(&path))?;
        let to = nacre_kv::create_file(&copy).map_err(failed(&copy))?;
        let copied = match self.name {
            // All of its blocks are taken, so that no record has to wait for one.
            JOURNAL_FILE => from.length().and_then(|bytes| copy_bytes(from.as_ref(), to.as_ref(), bytes)),
            _ => copy_file(from.as_ref(), to.as_ref(), &mut |progress| onlooker.progress(progress)),
        };
        Ok(copied.and_then(|()| to.sync()).map_err(file_error(&copy))?)
    }

    /// The store as it will be.
    fn copied(&self, block: HeldDevice) -> Result<Stopped, MoveError> {
        let path = |name: &str| match self.copy_path() {
            Some(copy) if self.name == name => copy,
            _ => self.folder.join(name),
        };
        let log = match self.what {
            Moved::Log => self.to.clone(),
            Moved::Metadata => {
                let log = self.folder.join(LOG_FILE);
                log.symlink_metadata().is_ok().then_some(log)
            }
        };
        let log = log.map(|log| self.store.disk(hold(&log)?, &log, CryptPart::Log)).transpose()?;
        let data = self.store.disk(block, &self.folder.join(BLOCK_FILE), CryptPart::Data)?;
        let disk = join(data, log, self.folder)?;
        let (tree, journal, key) = (path(META_FILE), path(JOURNAL_FILE), self.store.key.clone());
        let metadata = MetadataPlace::Files { tree, journal, key };
        Ok(Stopped { disk, metadata, labels: Vec::new(), keys: None })
    }

    fn switch(&self) -> Result<(), MoveError> {
        let (links, path) = (Folder(self.folder), self.folder.join(self.name));
        if let Some(copy) = self.copy_path() {
            // Looking at the copy may have written to it.
            let file = std::fs::OpenOptions::new().read(true).open(&copy);
            file.and_then(|file| file.sync_all()).map_err(file_error(&copy))?;
        }
        match (&self.to, self.copy_path()) {
            (Some(to), _) => links.set_link(self.name, to)?,
            (None, None) => links.remove_link(self.name)?,
            (None, Some(draft)) => {
                std::fs::rename(&draft, &path).map_err(file_error(&path))?;
                private::sync_folder(self.folder).map_err(file_error(self.folder))?;
            }
        }
        Ok(())
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), private::sync_folder)
}

/// The place that the store does not use is given up, and the note goes.
fn give_up(folder: &Path, data: &dyn File, note: &Note, place: Option<&Path>) -> Result<(), MoveError> {
    match (place, note.what) {
        (Some(path), _) => remove(path)?,
        (None, Moved::Log) => {
            let block = folder.join(BLOCK_FILE);
            home_of(data, folder)?.sign_data(data, false).map_err(file_error(&block))?;
        }
        // A link took its place, or its draft did not become it.
        (None, Moved::Metadata) => remove(&draft_of(folder, &note.link))?,
    }
    Ok(Folder(folder).remove_note()?)
}
