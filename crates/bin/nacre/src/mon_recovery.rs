//! `nacre mon recover --from-osd` and `nacre mon recovery-key`: a cluster that has lost all its monitors begins anew from what its OSDs have
//! kept.

use crate::args::{Auth, StoreKind};
use crate::ask::Admin;
use crate::files::{Folder, Identity, check_mon_name};
use crate::mon_places::{addrs_of, print_monitors, write_files};
use crate::secret::{self, STANDARD_INPUT};
use anyhow::{Context, Result, bail};
use nacre_auth::RecoveryKey;
use nacre_env::outln;
use nacre_env::{Clock, RealClock};
use nacre_maps::{MonMap, OsdMap};
use nacre_monitor::{Found, Monitor, OpenedSnapshot, SealedSnapshot, SnapshotError};
use nacre_types::{AddrVec, EntityAddr, Uuid};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is printed with a new key, here and by `nacre up`.
pub(crate) fn print_key(text: &str) {
    outln!("recovery key: {text}");
    outln!(
        "Keep it, and not on these machines; it is not shown again. Should all monitors be lost, it opens what each OSD keeps of their data: see \
         `nacre mon recover --help`."
    );
}

/// Makes another key, or shows who keeps what.
pub(crate) fn key(folder: &Folder, rotate: bool) -> Result<()> {
    let mut admin = Admin::new(folder)?;
    if rotate {
        let answer = admin.ask(r#"{"prefix":"mon recovery-key rotate"}"#)?;
        print_key(String::from_utf8_lossy(&answer.data).trim());
        outln!(
            "Keep the one before until `nacre mon recovery-key` shows that each OSD has a snapshot again."
        );
    } else {
        let answer = admin.ask(r#"{"prefix":"mon recovery-status"}"#)?;
        outln!("{}{}", String::from_utf8_lossy(&answer.data), answer.status);
    }
    Ok(())
}

/// Makes the store of the only monitor of a cluster from what OSDs have kept; `key_files` open those that are encrypted.
pub(crate) fn recover(
    (osds, key_files): (&[PathBuf], &[PathBuf]),
    key: &str,
    dir: &Path,
    (name, addr): (&str, EntityAddr),
) -> Result<()> {
    check_mon_name(name)?;
    let key = read_key(key)?;
    let kept = Kept::read(osds, key_files)?;
    let snapshot = kept.open(&key)?;
    let folder = Folder::open(dir)?;
    let identity = folder.identity()?;
    check_folder(&folder, identity.as_ref(), snapshot.fsid)?;
    let _lock = folder.make_mon(name)?;
    let found = Found { snapshot: &snapshot, key: &key, newest_map: kept.newest_map.as_deref() };
    let place = (name, AddrVec::of(addr));
    let made = Monitor::recover_from_osds(&found, &folder.mon(name), place, RealClock::start().wall());
    let (map, keyring, epoch) = made.inspect_err(|_| folder.remove_empty_mon(name))?;
    match &identity {
        Some(identity) => {
            write_files(&folder, identity, &map, Some(keyring.as_str()).filter(|text| !text.is_empty()))?
        }
        None => write_missing_files(&folder, &map, &keyring)?,
    }
    outln!("mon.{name} is the only monitor of cluster {} from now on:", map.fsid);
    print_monitors(&map);
    outln!("it goes on from what it was at {}, with OSD map {epoch}:", snapshot.made);
    outln!("users, options and other settings that were changed later are as they were then");
    outln!("  nacre mon --dir {} --name {name}", folder.path().display());
    outln!("set `mon host` in each ceph.conf to its address; more monitors join with `nacre mon join`");
    Ok(())
}

fn read_key(text: &str) -> Result<RecoveryKey> {
    if text != STANDARD_INPUT {
        return Ok(RecoveryKey::parse(text)?);
    }
    let (line, shown) = secret::read(Path::new(STANDARD_INPUT))?;
    RecoveryKey::parse(&line).context(shown)
}

/// What OSDs have kept.
struct Kept {
    newest_map: Option<Arc<OsdMap>>,
    snapshots: Vec<(PathBuf, SealedSnapshot)>,
    /// Those whose snapshot is none.
    unreadable: Vec<(PathBuf, String)>,
}

impl Kept {
    fn read(osds: &[PathBuf], key_files: &[PathBuf]) -> Result<Self> {
        let mut kept = Self { newest_map: None, snapshots: Vec::new(), unreadable: Vec::new() };
        let mut first: Option<(Uuid, &Path)> = None;
        for folder in osds {
            let state = nacre_store_tool::control_state(folder, key_files)?;
            let snapshot = state.snapshot.map(SealedSnapshot::parse).transpose();
            let of_snapshot = snapshot.as_ref().ok().and_then(Option::as_ref).map(|snapshot| snapshot.fsid);
            let of_map = state.newest_map.as_ref().map(|map| map.fsid);
            for fsid in of_map.into_iter().chain(of_snapshot) {
                let (known, other) = *first.get_or_insert((fsid, folder));
                if known != fsid {
                    let (folder, other) = (folder.display(), other.display());
                    bail!(
                        "{folder} is an OSD of cluster {fsid}, and {other} of {known}; give OSDs of one cluster"
                    );
                }
            }
            match snapshot {
                Ok(snapshot) => kept.snapshots.extend(snapshot.map(|one| (folder.clone(), one))),
                Err(error) => kept.unreadable.push((folder.clone(), error.to_string())),
            }
            let newest = kept.newest_map.take().into_iter().chain(state.newest_map);
            kept.newest_map = newest.max_by_key(|map| map.epoch);
        }
        Ok(kept)
    }

    /// The newest snapshot that the key opens.
    fn open(&self, key: &RecoveryKey) -> Result<OpenedSnapshot> {
        let (mut newest, mut damaged): (Option<OpenedSnapshot>, _) = (None, self.unreadable.first().cloned());
        for (folder, snapshot) in &self.snapshots {
            match snapshot.open(key) {
                Ok(opened) => {
                    newest = newest.into_iter().chain([opened]).max_by_key(|one| (one.place, one.made))
                }
                Err(SnapshotError::OtherKey) => (),
                Err(error) => damaged = Some((folder.clone(), error.to_string())),
            }
        }
        match (newest, damaged) {
            (Some(newest), _) => Ok(newest),
            (None, Some((folder, error))) => {
                bail!(
                    "the recovery snapshot in {} cannot be used: {error}; give other OSDs",
                    folder.display()
                )
            }
            (None, None) if self.snapshots.is_empty() => bail!(
                "none of these OSDs has a recovery snapshot; give others. Without one, a backup of a monitor's folder is needed (--from)"
            ),
            (None, None) => bail!(
                "the recovery key is not that of the OSDs' snapshots: take the one that was shown last for this cluster, or give other OSDs"
            ),
        }
    }
}

/// Refuses a folder that is another cluster's.
fn check_folder(folder: &Folder, identity: Option<&Identity>, fsid: Uuid) -> Result<()> {
    let known = match identity {
        Some(identity) => Some(identity.fsid),
        None if folder.conf().exists() => Some(folder.address()?.fsid),
        None => None,
    };
    match known {
        Some(known) if known != fsid => bail!(
            "{} belongs to cluster {known}, and the OSDs are of {fsid}; choose another --dir",
            folder.path().display()
        ),
        _ => Ok(()),
    }
}

/// In a folder where no cluster was made, what is there is the operator's and stays.
fn write_missing_files(folder: &Folder, map: &MonMap, keyring: &str) -> Result<()> {
    if folder.conf().exists() {
        return Ok(());
    }
    let (monitors, store, auth) = (addrs_of(map), StoreKind::File, Auth::Cephx);
    let identity = Identity { fsid: map.fsid, monitors, osd_count: 0, store, auth };
    let keyring = Some(keyring).filter(|text| !text.is_empty() && !folder.keyring().exists());
    folder.write_client_files(&identity, keyring)
}
