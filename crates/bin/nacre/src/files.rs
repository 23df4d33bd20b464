//! The folder of an embedded cluster: its identity, its keys, and the files that clients are given. Only its owner may read what is
//! in it, `ceph.conf` apart; what was left more open is tightened when it is opened.
//!
//! ```text
//! lock                 held by `nacre up`
//! cluster              fsid, addresses of the monitors in order of rank, number of OSDs at first and kind of store, a line each
//! mon/                 the state of monitor `a`; `lock` in it is held while it runs
//! mon.b/, mon.c/       the same of further monitors; `removed` in it says that the monitor was removed from the cluster
//! osd.N/fsid, keyring  identity and key of an OSD
//! osd.N/block          its objects, with store `file`
//! osd.N/meta.redb, meta.journal  their metadata
//! osd.N/lock           held while it runs
//! ceph.conf, keyring   for clients and OSDs, written anew at each start of the monitor
//! run/ceph-mon.a.asok, ceph-osd.N.asok  where `ceph daemon` asks a daemon while it runs
//! run/mon.pid, mon.b.pid, osd.N.pid  of daemons that are processes of their own, while they run
//! log/mon.log, mon.b.log, osd.N.log  what such daemons say, when `nacre up --processes` started them
//! ```
//!
//! On a machine of a cluster that was made elsewhere there are `ceph.conf` and the folders of its OSDs, and of its monitor if one joined there
//! (`nacre mon join`, which needs `keyring`, too).

use crate::args::{Auth, StoreKind};
use crate::locks::{LOCK_WAIT, Lock, lock_within};
use crate::osd_folder::{OsdFolder, write_whole};
use anyhow::{Context, Result, bail};
use nacre_auth::{CryptoKey, Keyring};
use nacre_client::conf;
use nacre_env::real::private;
use nacre_types::{AuthName, EntityAddr, OsdId, Uuid};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Of `ceph.conf`, which every user that may reach the folder may read: it holds no secret. All else is private.
const PUBLIC_MODE: u32 = 0o644;
/// Kinds of stores, as the file `cluster` names them.
const FILE: &str = "file";
const MEMORY: &str = "memory";

/// Monitors of one folder: `a` to `i`.
pub(crate) const MONS_MAX: usize = 9;

/// In the folder of a monitor that was removed from the cluster.
pub(crate) const REMOVED_FILE: &str = "removed";

/// Where a cluster's daemons keep what is theirs.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    path: PathBuf,
}

/// What an OSD or client needs to find its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) fsid: Uuid,
    pub(crate) monitors: Vec<EntityAddr>,
    /// What its services ask of clients.
    pub(crate) auth: Auth,
}

/// What makes a folder a cluster, written once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) fsid: Uuid,
    /// Where each listens, by rank: `a`, `b`, and so on.
    pub(crate) monitors: Vec<EntityAddr>,
    pub(crate) osd_count: usize,
    pub(crate) store: StoreKind,
    pub(crate) auth: Auth,
}

impl Folder {
    /// Makes the folder if needed, and sees to it that no other user can read what of it is secret.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        private::make_folder(path).with_context(|| format!("cannot make the folder {}", path.display()))?;
        let path = path.canonicalize().with_context(|| path.display().to_string())?;
        let folder = Self { path };
        folder.make_private()?;
        Ok(folder)
    }

    /// Tightens what is ours alone. The folder itself may have been in use before (`--dir .`), and so may `run` and `log`.
    fn make_private(&self) -> Result<()> {
        private::check_parent(&self.path)?;
        let osds = self.osds()?;
        let mons = self.mons()?;
        let logs = mons.iter().map(|name| format!("{}.log", mon_daemon(name)));
        let logs = osds.iter().map(|id| format!("osd.{id}.log")).chain(logs);
        let files = logs.map(|name| self.path.join("log").join(name)).chain([self.keyring()]);
        let mut tightened = private::tighten_each(files)?;
        for folder in osds.iter().map(|id| self.osd(*id)).chain(mons.iter().map(|name| self.mon(name))) {
            tightened.extend(private::tighten(&folder)?);
        }
        for path in tightened {
            tracing::warn!(path = %path.display(), "other users could read or write this; its permissions are now the owner's only");
        }
        Ok(())
    }

    /// The right to run the folder's cluster as a whole.
    pub(crate) fn lock(&self) -> Result<Lock> {
        lock_within(&self.path, Duration::ZERO)
    }

    /// The right to run a monitor.
    pub(crate) fn lock_mon(&self, name: &str) -> Result<Lock> {
        lock_within(&self.mon(name), LOCK_WAIT)
    }

    /// The right to run an OSD.
    pub(crate) fn lock_osd(&self, id: OsdId) -> Result<Lock> {
        lock_within(&self.osd(id), LOCK_WAIT)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of a monitor.
    pub(crate) fn mon(&self, name: &str) -> PathBuf {
        self.path.join(mon_daemon(name))
    }

    /// Removes the monitors' state of an attempt to make a cluster that did not come to its end: there is no
    /// file `cluster` yet, so no client has relied on it.
    pub(crate) fn remove_unfinished_monitors(&self) -> Result<()> {
        for name in self.mons()? {
            let path = self.mon(&name);
            fs::remove_dir_all(&path).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    /// The monitors that have a folder here and are not removed from the cluster, in the order of their names.
    pub(crate) fn mons(&self) -> Result<Vec<String>> {
        let entries = fs::read_dir(&self.path).with_context(|| self.path.display().to_string())?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.with_context(|| self.path.display().to_string())?;
            let file_name = entry.file_name();
            let Some(name) = file_name.to_str().and_then(mon_of_daemon) else { continue };
            let has = |file: &str| entry.path().join(file).exists();
            names.extend((has("lock") || has(nacre_monitor::STORE_FILE)).then(|| name.to_owned()));
        }
        names.retain(|name| !self.is_removed(name));
        names.sort();
        Ok(names)
    }

    fn removed_mark(&self, name: &str) -> PathBuf {
        self.mon(name).join(REMOVED_FILE)
    }

    /// True of a monitor whose folder is of no use any more.
    pub(crate) fn is_removed(&self, name: &str) -> bool {
        self.removed_mark(name).exists()
    }

    /// Notes that a monitor is none of the cluster any more: nothing here starts it again.
    pub(crate) fn mark_removed(&self, name: &str) -> Result<()> {
        let text = format!("mon.{name} was removed from the cluster; this folder is of no use any more\n");
        write_whole(&self.removed_mark(name), text.as_bytes(), private::FILE_MODE)
    }

    /// Makes the folder of a monitor that is to join, without what a removed one has left there.
    ///
    /// # Errors
    /// When there is a monitor's store, and nothing says that it was removed.
    pub(crate) fn make_mon(&self, name: &str) -> Result<Lock> {
        let path = self.mon(name);
        if self.is_removed(name) {
            fs::remove_dir_all(&path).with_context(|| path.display().to_string())?;
        }
        if path.join(nacre_monitor::STORE_FILE).exists() {
            bail!(
                "{} holds the store of mon.{name}; run it with `nacre mon`, or remove the folder if it is damaged or of an earlier mon.{name}",
                path.display()
            );
        }
        private::make_folder(&path).with_context(|| path.display().to_string())?;
        self.lock_mon(name)
    }

    /// Removes a folder in which no monitor's store was made in the end.
    pub(crate) fn remove_empty_mon(&self, name: &str) {
        let path = self.mon(name);
        if !path.join(nacre_monitor::STORE_FILE).exists()
            && let Err(error) = fs::remove_dir_all(&path)
        {
            tracing::warn!(path = %path.display(), %error, "cannot remove");
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

    /// The OSDs that have a folder here, ascending.
    pub(crate) fn osds(&self) -> Result<Vec<OsdId>> {
        let entries = fs::read_dir(&self.path).with_context(|| self.path.display().to_string())?;
        let mut ids = Vec::new();
        for entry in entries {
            let entry = entry.with_context(|| self.path.display().to_string())?;
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.strip_prefix("osd.")?.parse::<OsdId>().ok());
            ids.extend(id.filter(|id| *id >= 0 && entry.path().join("fsid").exists()));
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// The pid file of a daemon, such as `mon` or `osd.3`.
    pub(crate) fn pid_file(&self, daemon: &str) -> PathBuf {
        self.path.join("run").join(format!("{daemon}.pid"))
    }

    /// Where pid files and sockets lie; made.
    pub(crate) fn run_folder(&self) -> Result<PathBuf> {
        let folder = self.path.join("run");
        private::make_folder(&folder).with_context(|| folder.display().to_string())?;
        Ok(folder)
    }

    /// Where a daemon answers `ceph daemon`, by Ceph's name for it, such as `mon.a`. The folder is made.
    pub(crate) fn admin_socket(&self, name: &str) -> Result<PathBuf> {
        Ok(self.run_folder()?.join(format!("ceph-{name}.asok")))
    }

    pub(crate) fn write_pid(&self, daemon: &str) -> Result<()> {
        self.write_pid_of(daemon, std::process::id())
    }

    /// The same of another process, which does not write it itself. Whoever reads it finds all of it, or what was there before.
    pub(crate) fn write_pid_of(&self, daemon: &str, pid: u32) -> Result<()> {
        self.run_folder()?;
        let path = self.pid_file(daemon);
        let draft = path.with_extension("new");
        private::write(&draft, format!("{pid}\n").as_bytes())
            .and_then(|()| fs::rename(&draft, &path))
            .with_context(|| path.display().to_string())
    }

    /// Removes a pid file; one that stays behind names a process that is gone.
    pub(crate) fn remove_pid(&self, daemon: &str) {
        let path = self.pid_file(daemon);
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "cannot remove");
        }
    }

    /// The process that a pid file names.
    pub(crate) fn pid(&self, daemon: &str) -> Option<u32> {
        fs::read_to_string(self.pid_file(daemon)).ok()?.trim().parse().ok()
    }

    /// Where a daemon's output goes when `nacre up --processes` starts it; the folder is made.
    pub(crate) fn log_file(&self, daemon: &str) -> Result<PathBuf> {
        let folder = self.path.join("log");
        private::make_folder(&folder).with_context(|| folder.display().to_string())?;
        Ok(folder.join(format!("{daemon}.log")))
    }

    /// How to find the cluster, by `ceph.conf`.
    pub(crate) fn address(&self) -> Result<Address> {
        let path = self.conf();
        let text = fs::read_to_string(&path)
            .with_context(|| format!("{}: copy it from the monitor's machine", path.display()))?;
        parse_conf(&text)
            .with_context(|| format!("{} has no `fsid` and `mon host` with v2 addresses", path.display()))
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
        let Identity { fsid, monitors, osd_count, auth, .. } = identity;
        let monitors: String = monitors.iter().map(|addr| format!("monitor {addr}\n")).collect();
        let auth = auth.name();
        let text = format!("fsid {fsid}\n{monitors}osds {osd_count}\nstore {store}\nauth {auth}\n");
        write_whole(&self.path.join("cluster"), text.as_bytes(), private::FILE_MODE)
    }

    /// Identity and key of an OSD.
    pub(crate) fn read_osd(&self, id: OsdId) -> Result<(Uuid, CryptoKey)> {
        let folder = OsdFolder::new(&self.osd(id));
        let (fsid, keyring_path) = (folder.uuid()?, folder.keyring());
        let text = fs::read_to_string(&keyring_path).with_context(|| keyring_path.display().to_string())?;
        let keyring = Keyring::parse(&text).with_context(|| keyring_path.display().to_string())?;
        let name = AuthName::new(nacre_types::EntityKind::OSD, id.to_string());
        let key =
            keyring.get(&name).with_context(|| format!("{} has no key of {name}", keyring_path.display()))?;
        Ok((fsid, key.key.clone()))
    }

    pub(crate) fn write_osd(&self, id: OsdId, fsid: Uuid, key: &CryptoKey) -> Result<()> {
        OsdFolder::new(&self.osd(id)).write_identity(id, fsid, Some(key))
    }

    /// The two files that any stock client works with; without a keyring the one that is there stays.
    pub(crate) fn write_client_files(&self, identity: &Identity, admin_keyring: Option<&str>) -> Result<()> {
        if let Some(text) = admin_keyring {
            write_whole(&self.keyring(), text.as_bytes(), private::FILE_MODE)?;
        }
        let (auth, run) = (identity.auth.name(), self.path.join("run").display().to_string());
        let conf = format!(
            "# Written at each start of the monitor.\n\
             [global]\n\
             fsid = {}\n\
             mon host = {}\n\
             keyring = {}\n\
             auth cluster required = {auth}\n\
             auth service required = {auth}\n\
             auth client required = {auth}\n\
             [mon]\n\
             admin socket = {run}/ceph-$name.asok\n\
             [osd]\n\
             admin socket = {run}/ceph-$name.asok\n",
            identity.fsid,
            identity.monitors.iter().map(monitor_text).collect::<Vec<_>>().join(","),
            self.keyring().display()
        );
        write_whole(&self.conf(), conf.as_bytes(), PUBLIC_MODE)
    }
}

/// The name of the monitor of a rank in a new cluster: `a`, `b`, and so on.
pub(crate) fn mon_name(rank: usize) -> String {
    char::from(b'a' + u8::try_from(rank).unwrap_or_default()).to_string()
}

/// What a monitor is called among the daemons of a folder: `mon`, for the first one, or `mon.b`.
pub(crate) fn mon_daemon(name: &str) -> String {
    if name == "a" { "mon".to_owned() } else { format!("mon.{name}") }
}

/// The monitor whose folder has this name.
fn mon_of_daemon(daemon: &str) -> Option<&str> {
    if daemon == "mon" { Some("a") } else { daemon.strip_prefix("mon.").filter(|name| *name != "a") }
}

/// Refuses what is no monitor's name: it is part of a folder's.
pub(crate) fn check_mon_name(name: &str) -> Result<()> {
    let is_plain = |ch: char| ch.is_ascii_alphanumeric() || "-_.".contains(ch);
    if !name.starts_with(|ch: char| ch.is_ascii_alphanumeric())
        || !name.chars().all(is_plain)
        || name.len() > 64
    {
        bail!("'{name}' is no name of a monitor: letters, digits, '-', '_' and '.', at most 64");
    }
    Ok(())
}

/// `fsid`, `mon host` and how services authenticate, of a `ceph.conf`.
fn parse_conf(text: &str) -> Option<Address> {
    let monitors = conf::monitors(text)?;
    let fsid = Uuid::parse(&conf::option(text, "fsid")?)?;
    let services = conf::option(text, "auth_service_required").unwrap_or_default();
    let auth = if services.split([',', ' ']).any(|word| word == "none") { Auth::None } else { Auth::Cephx };
    Some(Address { fsid, monitors, auth })
}

fn monitor_text(addr: &EntityAddr) -> String {
    addr.socket.map_or_else(String::new, |socket| format!("v2:{socket}"))
}

fn parse_identity(text: &str) -> Option<Identity> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Some(Identity {
        fsid: Uuid::parse(field("fsid")?)?,
        monitors: parse_monitors(text)?,
        osd_count: field("osds")?.parse().ok()?,
        store: match field("store")? {
            FILE => StoreKind::File,
            MEMORY => StoreKind::Memory,
            _ => return None,
        },
        auth: field("auth").map_or(Some(Auth::Cephx), parse_auth)?,
    })
}

fn parse_monitors(text: &str) -> Option<Vec<EntityAddr>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("monitor "));
    let addrs: Vec<EntityAddr> = lines.map(EntityAddr::parse).collect::<Option<_>>()?;
    Some(addrs).filter(|addrs| !addrs.is_empty())
}

fn parse_auth(text: &str) -> Option<Auth> {
    [Auth::Cephx, Auth::None].into_iter().find(|auth| auth.name() == text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::is_locked;

    #[test]
    fn an_identity_survives_and_a_second_process_is_kept_out() {
        let path = std::env::temp_dir().join(format!("nacre-files-{}", std::process::id()));
        let folder = Folder::open(&path).expect("a folder");
        assert_eq!(folder.identity().expect("readable"), None);
        let address = |text| EntityAddr::parse(text).expect("an address");
        let (monitor, other) = (address("v2:127.0.0.1:7000/0"), address("v2:127.0.0.1:7001/0"));
        let identity = Identity {
            fsid: Uuid::from_random([7; 16]),
            monitors: vec![monitor, other],
            osd_count: 3,
            store: StoreKind::File,
            auth: Auth::None,
        };
        folder.write_identity(&identity).expect("written");
        assert_eq!(folder.identity().expect("readable"), Some(identity));
        let lock = folder.lock().expect("free");
        assert!(folder.lock().is_err() && is_locked(folder.path()), "locked");
        drop(lock);
        assert!(!is_locked(folder.path()));
        fs::remove_dir_all(&path).expect("removed");
    }

    #[test]
    fn monitors_are_found_by_their_folders_and_removed_ones_are_not() {
        let path = std::env::temp_dir().join(format!("nacre-mons-{}", std::process::id()));
        let folder = Folder::open(&path).expect("a folder");
        for name in ["north-1", "a", "b"] {
            drop(folder.make_mon(name).expect("nothing is there"));
        }
        fs::create_dir_all(folder.mon("c")).expect("an empty folder is no monitor");
        assert_eq!(folder.mons().expect("readable"), ["a", "b", "north-1"]);
        private::write(&folder.mon("b").join(nacre_monitor::STORE_FILE), b"").expect("written");
        let error = folder.make_mon("b").expect_err("a store").to_string();
        assert!(error.contains("holds the store of mon.b"), "{error}");
        folder.mark_removed("b").expect("written");
        assert_eq!(folder.mons().expect("readable"), ["a", "north-1"]);
        drop(folder.make_mon("b").expect("what a removed one has left goes"));
        assert_eq!(folder.mons().expect("readable"), ["a", "b", "north-1"]);
        assert!(["", "../x", "-", "a/b", "a b"].iter().all(|name| check_mon_name(name).is_err()));
        check_mon_name("north-1").expect("a name");
        fs::remove_dir_all(&path).expect("removed");
    }

    #[test]
    fn a_ceph_conf_of_others_tells_the_monitors_too() {
        let text = "[global]\n fsid = 6d2d4f8e-6ac4-4f4c-8c7a-6f3d0c1f1a11 # ours\n\
                    mon_host = [v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0],10.0.0.2:3300,[::1]:3301\n";
        let address = parse_conf(text).expect("an address");
        let texts: Vec<String> = address.monitors.iter().map(monitor_text).collect();
        assert_eq!(texts, ["v2:10.0.0.1:3300", "v2:10.0.0.2:3300", "v2:[::1]:3301"]);
        assert_eq!(parse_conf("fsid = 6d2d4f8e-6ac4-4f4c-8c7a-6f3d0c1f1a11\n"), None);
        assert_eq!(parse_conf("mon host = 10.0.0.2:3300\n"), None);
        assert_eq!(address.auth, Auth::Cephx);
        let open = parse_conf(&[text, "auth service required = none\n"].concat());
        assert_eq!(open.map(|address| address.auth), Some(Auth::None));
    }

    #[test]
    fn what_an_older_program_left_readable_is_tightened_and_what_is_not_ours_stays() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("nacre-modes-{}", std::process::id()));
        let mode = |name: &str| {
            let metadata = fs::metadata(path.join(name)).expect("it exists");
            metadata.permissions().mode() & 0o777
        };
        let open_up = |name: &str, mode: u32| {
            fs::set_permissions(path.join(name), fs::Permissions::from_mode(mode)).expect("ours");
        };
        let folder = Folder::open(&path).expect("a folder");
        let key = CryptoKey::parse("AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==").expect("a key");
        folder.write_osd(1, Uuid::from_random([7; 16]), &key).expect("written");
        let monitor = EntityAddr::parse("v2:127.0.0.1:7000/0").expect("an address");
        let (fsid, auth, store) = (Uuid::from_random([7; 16]), Auth::Cephx, StoreKind::File);
        let identity = Identity { fsid, monitors: vec![monitor], osd_count: 1, store, auth };
        folder.write_identity(&identity).expect("written");
        folder.write_client_files(&identity, Some("[client.admin]\n")).expect("written");
        private::make_folder(&folder.mon("a")).expect("made");
        drop(folder.lock_mon("a").expect("free"));
        private::write(&folder.log_file("osd.1").expect("a folder"), b"").expect("written");
        private::write(&path.join("log/other"), b"").expect("written");
        folder.write_pid("osd.1").expect("written");
        let secret = ["mon/lock", "osd.1/fsid", "osd.1/keyring", "keyring", "log/osd.1.log"];
        let folders = ["mon", "osd.1"];
        for name in secret.iter().chain(&["run/osd.1.pid", "cluster", "log/other"]) {
            assert_eq!(mode(name), 0o600, "{name}");
        }
        for name in folders.iter().chain(&["", "run", "log"]) {
            assert_eq!(mode(name), 0o700, "{name}");
        }
        secret.iter().chain(&["log/other"]).for_each(|name| open_up(name, 0o644));
        folders.iter().chain(&["", "log"]).for_each(|name| open_up(name, 0o755));
        drop(Folder::open(&path).expect("the folder"));
        assert_eq!(secret.map(mode), [0o600; 5]);
        assert_eq!(folders.map(mode), [0o700; 2]);
        assert_eq!((mode("log/other"), mode("log"), mode("")), (0o644, 0o755, 0o755), "may be others'");
        open_up("", 0o777);
        let error = format!("{:#}", Folder::open(&path).expect_err("anybody may replace what is in it"));
        assert!(error.contains("chmod o-w"), "{error}");
        fs::remove_dir_all(&path).expect("removed");
    }

    #[test]
    fn osds_are_found_by_their_folders() {
        let path = std::env::temp_dir().join(format!("nacre-osds-{}", std::process::id()));
        let folder = Folder::open(&path).expect("a folder");
        let key = CryptoKey::parse("AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==").expect("a key");
        for id in [10, 2] {
            folder.write_osd(id, Uuid::from_random([7; 16]), &key).expect("written");
        }
        fs::create_dir_all(folder.osd(5)).expect("an empty folder is no OSD");
        assert_eq!(folder.osds().expect("readable"), [2, 10]);
        fs::remove_dir_all(&path).expect("removed");
    }
}
