//! The folder of an embedded cluster: who it is, its keys, and the files that clients are given.
//!
//! ```text
//! lock                 held while the cluster runs
//! cluster              fsid, monitor address, number of OSDs and kind of store, a line each
//! mon/                 the monitor's state
//! osd.N/fsid, keyring  identity and key of an OSD
//! osd.N/block, meta.redb  its objects, with store `file`
//! ceph.conf, keyring   for clients, written anew at each start
//! ```

use crate::up::StoreKind;
use anyhow::{Context, Result, bail};
use nacre_auth::{CryptoKey, Keyring};
use nacre_types::{AuthName, EntityAddr, OsdId, Uuid};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Keys are for their owner only.
const SECRET_MODE: u32 = 0o600;
/// Kinds of stores, as the file `cluster` names them.
const FILE: &str = "file";
const MEMORY: &str = "memory";

/// The folder, locked.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
}

/// What makes a folder a cluster, written once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) fsid: Uuid,
    pub(crate) monitor: EntityAddr,
    pub(crate) osd_count: usize,
    pub(crate) store: StoreKind,
}

impl Folder {
    /// Makes the folder if needed and takes its lock.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).with_context(|| format!("cannot make the folder {}", path.display()))?;
        let path = path.canonicalize().with_context(|| path.display().to_string())?;
        let lock_path = path.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
        let lock = lock.with_context(|| lock_path.display().to_string())?;
        if lock.try_lock().is_err() {
            bail!(
                "{} is in use by another nacre process; stop that one or choose another --dir",
                path.display()
            );
        }
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn mon(&self) -> PathBuf {
        self.path.join("mon")
    }

    /// Removes the monitor's state of an attempt to make a cluster that did not come to its end: there is no
    /// file `cluster` yet, so nobody has relied on it.
    pub(crate) fn remove_unfinished_monitor(&self) -> Result<()> {
        match fs::remove_dir_all(self.mon()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| self.mon().display().to_string())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn conf(&self) -> PathBuf {
        self.path.join("ceph.conf")
    }

    pub(crate) fn keyring(&self) -> PathBuf {
        self.path.join("keyring")
    }

    pub(crate) fn osd(&self, id: OsdId) -> PathBuf {
        self.path.join(format!("osd.{id}"))
    }

    /// The cluster that the folder holds; `None` in a new one.
    pub(crate) fn identity(&self) -> Result<Option<Identity>> {
        let path = self.path.join("cluster");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        parse_identity(&text).map(Some).with_context(|| {
            format!("{} is damaged; restore it from a copy, or choose another --dir", path.display())
        })
    }

    /// Declares the folder a cluster: the last step of making one.
    pub(crate) fn write_identity(&self, identity: &Identity) -> Result<()> {
        let store = match identity.store {
            StoreKind::File => FILE,
            StoreKind::Memory => MEMORY,
        };
        let Identity { fsid, monitor, osd_count, .. } = identity;
        let text = format!("fsid {fsid}\nmonitor {monitor}\nosds {osd_count}\nstore {store}\n");
        write_whole(&self.path.join("cluster"), text.as_bytes(), 0o644)
    }

    /// Identity and key of an OSD.
    pub(crate) fn read_osd(&self, id: OsdId) -> Result<(Uuid, CryptoKey)> {
        let folder = self.osd(id);
        let fsid_path = folder.join("fsid");
        let fsid = fs::read_to_string(&fsid_path).with_context(|| fsid_path.display().to_string())?;
        let fsid =
            Uuid::parse(fsid.trim()).with_context(|| format!("{} holds no UUID", fsid_path.display()))?;
        let keyring_path = folder.join("keyring");
        let text = fs::read_to_string(&keyring_path).with_context(|| keyring_path.display().to_string())?;
        let keyring = Keyring::parse(&text).with_context(|| keyring_path.display().to_string())?;
        let name = AuthName::new(nacre_types::EntityKind::OSD, id.to_string());
        let key =
            keyring.get(&name).with_context(|| format!("{} has no key of {name}", keyring_path.display()))?;
        Ok((fsid, key.key.clone()))
    }

    pub(crate) fn write_osd(&self, id: OsdId, fsid: Uuid, key: &CryptoKey) -> Result<()> {
        let folder = self.osd(id);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        write_whole(&folder.join("fsid"), format!("{fsid}\n").as_bytes(), 0o644)?;
        let text = format!("[osd.{id}]\n\tkey = {key}\n", key = key.to_text());
        write_whole(&folder.join("keyring"), text.as_bytes(), SECRET_MODE)
    }

    /// The two files that any stock client works with.
    pub(crate) fn write_client_files(&self, identity: &Identity, admin_keyring: Option<&str>) -> Result<()> {
        if let Some(text) = admin_keyring {
            write_whole(&self.keyring(), text.as_bytes(), SECRET_MODE)?;
        }
        let conf = format!(
            "# Written by `nacre up` at each start.\n\
             [global]\n\
             fsid = {}\n\
             mon host = {}\n\
             keyring = {}\n\
             auth cluster required = cephx\n\
             auth service required = cephx\n\
             auth client required = cephx\n",
            identity.fsid,
            monitor_text(&identity.monitor),
            self.keyring().display()
        );
        write_whole(&self.conf(), conf.as_bytes(), 0o644)
    }
}

fn monitor_text(addr: &EntityAddr) -> String {
    addr.socket.map_or_else(String::new, |socket| format!("v2:{socket}"))
}

fn parse_identity(text: &str) -> Option<Identity> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Some(Identity {
        fsid: Uuid::parse(field("fsid")?)?,
        monitor: EntityAddr::parse(field("monitor")?)?,
        osd_count: field("osds")?.parse().ok()?,
        store: match field("store")? {
            FILE => StoreKind::File,
            MEMORY => StoreKind::Memory,
            _ => return None,
        },
    })
}

/// Replaces a file so that a crash leaves the old or the new one.
fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let draft = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(mode).open(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        File::open(path.parent().unwrap_or(path))?.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_and_a_second_process_is_kept_out() {
        let path = std::env::temp_dir().join(format!("nacre-files-{}", std::process::id()));
        let folder = Folder::open(&path).expect("a folder");
        assert_eq!(folder.identity().expect("readable"), None);
        let monitor = EntityAddr::parse("v2:127.0.0.1:7000/0").expect("an address");
        let identity =
            Identity { fsid: Uuid::from_random([7; 16]), monitor, osd_count: 3, store: StoreKind::File };
        folder.write_identity(&identity).expect("written");
        assert_eq!(folder.identity().expect("readable"), Some(identity));
        assert!(Folder::open(&path).is_err(), "locked");
        drop(folder);
        fs::remove_dir_all(&path).expect("removed");
    }
}
