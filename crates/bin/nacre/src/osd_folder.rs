//! [`OsdFolder`]: what the binary keeps beside an OSD's store: identity, key, and the small files that Ceph's OSDs have, too.

use crate::locks::{LOCK_WAIT, Lock, lock_within};
use anyhow::{Context, Result, bail};
use nacre_auth::CryptoKey;
use nacre_env::real::private;
use nacre_types::{OsdId, Uuid};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The folder of one OSD, wherever it is.
#[derive(Debug, Clone)]
pub(crate) struct OsdFolder {
    path: PathBuf,
}

impl OsdFolder {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where its key is, unless it is elsewhere.
    pub(crate) fn keyring(&self) -> PathBuf {
        self.path.join("keyring")
    }

    /// Where the key is that fetches an encrypted store's key, by ceph-volume's name.
    pub(crate) fn lockbox_keyring(&self) -> PathBuf {
        self.path.join("lockbox.keyring")
    }

    /// Writes it; removes what an earlier attempt left where there is none.
    pub(crate) fn write_lockbox_keyring(&self, text: Option<&str>) -> Result<()> {
        let path = self.lockbox_keyring();
        match text {
            Some(text) => write_whole(&path, text.as_bytes(), private::FILE_MODE),
            None if path.exists() => fs::remove_file(&path).with_context(|| path.display().to_string()),
            None => Ok(()),
        }
    }

    /// True when an OSD was made in it.
    pub(crate) fn is_made(&self) -> bool {
        self.path.join("fsid").exists()
    }

    /// The right to run it.
    pub(crate) fn lock(&self) -> Result<Lock> {
        lock_within(&self.path, LOCK_WAIT)
    }

    /// Identity of its store.
    pub(crate) fn uuid(&self) -> Result<Uuid> {
        let path = self.path.join("fsid");
        let text = fs::read_to_string(&path)
            .with_context(|| format!("{}: is there an OSD? --mkfs makes one", path.display()))?;
        Uuid::parse(text.trim()).with_context(|| format!("{} holds no UUID", path.display()))
    }

    /// What one of its small files says, if it is there.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>> {
        let path = self.path.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    /// Whether one of its small files says `wanted`.
    ///
    /// # Errors
    /// When it says something else, or is not there.
    pub(crate) fn check(&self, name: &str, wanted: &str, otherwise: &str) -> Result<()> {
        let found = self.text(name)?.unwrap_or_default();
        if found != wanted {
            bail!("{}: '{found}', and not '{wanted}': {otherwise}", self.path.join(name).display());
        }
        Ok(())
    }

    /// Writes one of its small files.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        write_whole(&self.path.join(name), format!("{text}\n").as_bytes(), private::FILE_MODE)
    }

    /// Writes who it is, and its key if it is kept here.
    pub(crate) fn write_identity(&self, id: OsdId, uuid: Uuid, key: Option<&CryptoKey>) -> Result<()> {
        private::make_folder(&self.path).with_context(|| self.path.display().to_string())?;
        if let Some(key) = key {
            let text = format!("[osd.{id}]\n\tkey = {key}\n", key = key.to_text());
            write_whole(&self.keyring(), text.as_bytes(), private::FILE_MODE)?;
        }
        self.write("fsid", &uuid.to_string())
    }
}

/// Replaces a file so that a crash leaves the old or the new one.
pub(crate) fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let draft = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        // A draft that a crash left may have another mode, and it is the draft's that the file gets.
        let _none_is_left = fs::remove_file(&draft);
        let mut file = OpenOptions::new().create_new(true).write(true).mode(mode).open(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        File::open(path.parent().unwrap_or(path))?.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
