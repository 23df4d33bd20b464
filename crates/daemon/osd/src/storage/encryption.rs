//! Encrypted stores: [`StoreKeys`], where the wrapped data key of one lies, and what the data key is used for.
//!
//! On a device it lies behind the first label; a store in files has a file for it. `docs/formats/encryption.md`.

use super::{META_FILE, StorageError, file_error, remove};
use nacre_crypt::{
    Copies, CryptFile, DataKey, FoundKeyBlock, KeyBlock, KeyBlockError, KeyPlaces, Part, WrappingKey, Xts,
};
use nacre_device::RegionKind;
use nacre_env::{File, SystemEntropy};
use nacre_types::Uuid;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The wrapped key of a store in files; none of one that is not encrypted.
const KEY_FILE: &str = "block.keys";

/// What fetches its wrapping key, in the folder of an encrypted OSD.
const LOCKBOX_KEYRING: &str = "lockbox.keyring";

/// The wrapped key of an encrypted store, and where it is.
#[derive(Debug)]
pub struct StoreKeys {
    /// Link to the device, or the file.
    path: PathBuf,
    file: Arc<dyn File>,
    places: KeyPlaces,
    block: KeyBlock,
    /// Which copies are whole and say this.
    copies: Copies,
    /// What the device said where it did not give one.
    unreadable: Option<std::io::Error>,
}

impl StoreKeys {
    fn read(
        path: PathBuf,
        file: Arc<dyn File>,
        places: KeyPlaces,
        store: Option<Uuid>,
    ) -> Result<Self, StorageError> {
        let failed = |source: KeyBlockError| StorageError::Keys { path: path.clone(), source };
        let FoundKeyBlock { block, copies, unreadable } =
            KeyBlock::read(file.as_ref(), places, store).map_err(failed)?;
        Ok(Self { path, file, places, block, copies, unreadable })
    }

    /// Of the store on a device.
    pub(super) fn on_device(link: &Path, device: Arc<dyn File>, store: Uuid) -> Result<Self, StorageError> {
        Self::read(link.to_owned(), device, KeyPlaces::ON_DEVICE, Some(store))
    }

    /// Of the store in files in `folder`; `None` when it is not encrypted.
    pub(super) fn in_folder(folder: &Path) -> Result<Option<Self>, StorageError> {
        let path = folder.join(KEY_FILE);
        if path.symlink_metadata().is_err() {
            let is_there = |name: &str| folder.join(name).symlink_metadata().is_ok();
            return match is_there(LOCKBOX_KEYRING) && is_there(META_FILE) {
                true => Err(StorageError::KeysMissing { path }),
                false => Ok(None),
            };
        }
        let failed = |source| StorageError::Meta { path: path.clone(), source };
        let file = nacre_kv::open_file(&path).map_err(failed)?;
        Self::read(path, file, KeyPlaces::IN_FILE, None).map(Some)
    }

    /// The data key.
    ///
    /// # Errors
    /// [`StorageError::NoKey`] without a key, [`StorageError::WrongKey`] with another one.
    pub(super) fn open(&self, key: Option<&WrappingKey>) -> Result<DataKey, StorageError> {
        let key = key.ok_or_else(|| StorageError::NoKey { path: self.path.clone() })?;
        self.block.open(key).ok_or_else(|| StorageError::WrongKey { path: self.path.clone() })
    }

    /// Whether this key opens the store.
    #[must_use]
    pub fn opens(&self, key: &WrappingKey) -> bool {
        self.block.open(key).is_some()
    }

    /// That one copy is not whole, in a sentence.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        let path = self.path.display();
        let text = || match &self.unreadable {
            Some(error) => {
                format!("{path}: one of the two copies of the wrapped key cannot be read ({error})")
            }
            None => format!("{path}: one of the two copies of the wrapped key is damaged"),
        };
        (self.copies != Copies::Both).then(text)
    }

    /// Writes the copy again that is not whole, if there is one. The other one stays as it is.
    ///
    /// # Errors
    /// When the device fails.
    pub fn repair(&mut self) -> Result<(), StorageError> {
        let repaired = self.block.repair(self.file.as_ref(), self.places, &mut self.copies);
        repaired.map_err(file_error(&self.path))
    }

    fn write(&mut self) -> Result<(), StorageError> {
        let written = self.block.write(self.file.as_ref(), self.places, &mut self.copies);
        written.map_err(file_error(&self.path))
    }

    /// Lets another key open the store, too, beside the one that does.
    ///
    /// # Errors
    /// [`StorageError::WrongKey`] when `current` does not open it; or the device fails.
    pub fn add(&mut self, current: &WrappingKey, another: &WrappingKey) -> Result<(), StorageError> {
        let data = self.open(Some(current))?;
        self.block.add(&data, another, current, &mut SystemEntropy::default());
        self.write()
    }

    /// Lets no other key than this one open the store.
    ///
    /// # Errors
    /// [`StorageError::WrongKey`] when it does not; or the device fails.
    pub fn keep_only(&mut self, key: &WrappingKey) -> Result<(), StorageError> {
        if !self.block.keep_only(key) {
            return Err(StorageError::WrongKey { path: self.path.clone() });
        }
        self.write()
    }

    /// How many keys open the store.
    #[must_use]
    pub const fn keys(&self) -> usize {
        self.block.slots()
    }
}

/// A store's keys, of which it has none when it is not encrypted.
#[derive(Debug)]
pub(super) struct Unlocked {
    pub(super) keys: Option<StoreKeys>,
    pub(super) data: Option<DataKey>,
}

/// Opens the wrapped key of the store in `folder`.
///
/// # Errors
/// As of [`StoreKeys::open`]; [`StorageError::NeedlessKey`] of a store that is not encrypted.
pub(super) fn unlock(
    folder: &Path,
    keys: Option<StoreKeys>,
    key: Option<&WrappingKey>,
) -> Result<Unlocked, StorageError> {
    if keys.is_none() && key.is_some() {
        return Err(StorageError::NeedlessKey { path: folder.to_owned() });
    }
    let data = keys.as_ref().map(|keys| keys.open(key)).transpose()?;
    Ok(Unlocked { keys, data })
}

/// The data key of a new store on a device, which lies there wrapped from now on.
pub(super) fn new_on_device(
    name: &Path,
    device: &dyn File,
    store: Uuid,
    key: Option<&WrappingKey>,
) -> Result<Option<DataKey>, StorageError> {
    let Some(key) = key else { return Ok(None) };
    new_key(device, KeyPlaces::ON_DEVICE, store, key).map(Some).map_err(file_error(name))
}

/// The same of a new store in files. What an earlier attempt left goes.
pub(super) fn new_in_folder(
    folder: &Path,
    store: Uuid,
    key: Option<&WrappingKey>,
) -> Result<Option<DataKey>, StorageError> {
    let path = folder.join(KEY_FILE);
    remove(&path)?;
    let Some(key) = key else { return Ok(None) };
    let file =
        nacre_kv::create_file(&path).map_err(|source| StorageError::Meta { path: path.clone(), source })?;
    file.set_length(KeyPlaces::IN_FILE.end()).map_err(file_error(&path))?;
    new_key(file.as_ref(), KeyPlaces::IN_FILE, store, key).map(Some).map_err(file_error(&path))
}

fn new_key(file: &dyn File, places: KeyPlaces, store: Uuid, key: &WrappingKey) -> std::io::Result<DataKey> {
    let mut entropy = SystemEntropy::default();
    let data = DataKey::generate(&mut entropy);
    KeyBlock::new(&data, key, store, &mut entropy).write(file, places, &mut Copies::Both)?;
    Ok(data)
}

/// What encrypts a region.
pub(super) const fn part_of(kind: RegionKind) -> Part {
    match kind {
        RegionKind::Store => Part::Data,
        RegionKind::Log => Part::Log,
        RegionKind::Metadata => Part::Metadata,
        RegionKind::Journal => Part::Journal,
    }
}

/// The cipher of a part of a store that is encrypted.
pub(super) fn cipher(key: Option<&DataKey>, part: Part) -> Option<Arc<Xts>> {
    key.map(|key| key.cipher(part))
}

/// A file of a part of a store.
pub(super) fn through(file: Arc<dyn File>, key: Option<&DataKey>, part: Part) -> Arc<dyn File> {
    match cipher(key, part) {
        Some(cipher) => Arc::new(CryptFile::new(file, cipher)),
        None => file,
    }
}
