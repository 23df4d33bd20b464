//! [`Monitor`]: starting and stopping the thread.

use crate::audit_file::AuditFile;
use crate::driver::{Driver, DriverError};
use crate::replica::{self, Replica, ReplicaError};
use crate::store::StoreSnapshot;
use nacre_auth::AuthMethod;
use nacre_env::real::RealNet;
use nacre_env::real::private::{self, PrivateError};
use nacre_env::{Clock, Net, RealClock, SystemEntropy, Wake};
use nacre_kv::{KvError, KvStore, RedbKv};
use nacre_mon::{Front, MkfsError, MkfsOptions, Mon, OpenError};
use nacre_msgr::Config;
use nacre_service::{IntakeLimits, Messenger};
use nacre_types::{AddrVec, AuthName, EntityAddr, EntityKind, Entropy, UTime, Uuid};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The store's file within the monitor's folder.
const STORE_FILE: &str = "store.redb";
/// Bytes that may wait for one peer that does not read; more and it is dropped. Maps are the largest.
const QUEUED_BYTES_MAX: usize = 64 << 20;

/// What a monitor needs to start.
#[derive(Debug, Clone)]
pub struct MonitorConfig {
    /// Its folder, made by [`Monitor::mkfs`].
    pub store: PathBuf,
    /// Its name, such as `a`. The address is the one that the monitors' map has for it.
    pub name: String,
    /// Methods of authentication that it accepts.
    pub methods: Vec<AuthMethod>,
    /// The machine that it runs on, as people know it.
    pub host: String,
}

/// Why a monitor did not start, or could not be made.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The folder cannot be made.
    #[error("cannot make {path}: {source}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Others may read the folder, which holds the keys of the cluster.
    #[error(transparent)]
    Private(#[from] PrivateError),
    /// The store cannot be read or written.
    #[error("{path}: {source}")]
    Store {
        /// The store's file.
        path: PathBuf,
        /// What is wrong with it.
        source: KvError,
    },
    /// The log in the store is unusable.
    #[error("{path}: {source}")]
    Log {
        /// The store's file.
        path: PathBuf,
        /// What is wrong with it.
        source: ReplicaError,
    },
    /// There is a cluster in the folder already.
    #[error("{0} holds a cluster already")]
    Exists(PathBuf),
    /// The new cluster is not to be had so.
    #[error(transparent)]
    Mkfs(#[from] MkfsError),
    /// The stored state is unusable.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The monitors' map does not know this monitor.
    #[error("the monitors' map has no mon.{0} with an address")]
    Unknown(String),
    /// The address is in use or not of this machine.
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// No threads or descriptors left.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// What a monitor runs on.
pub struct Machine {
    /// Its clocks.
    pub clock: Box<dyn Clock>,
    /// Its randomness.
    pub entropy: Box<dyn Entropy + Send>,
    /// Its sockets.
    pub net: Box<dyn Net + Send>,
    /// Its store, which holds a cluster.
    pub store: Box<dyn KvStore + Send>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Machine")
    }
}

/// Makes an empty store that of a new cluster, for any of its monitors.
///
/// # Errors
/// [`StartError::Mkfs`], or [`StartError::Store`] without a path.
pub fn mkfs(store: &mut dyn KvStore, options: &MkfsOptions, wall: UTime) -> Result<(), StartError> {
    let batch = nacre_mon::mkfs(options, wall)?;
    replica::bootstrap(store, &batch, options)
        .map_err(|source| StartError::Store { path: PathBuf::new(), source })
}

/// Memory that messages may take which have begun and are not complete: of clients, and of daemons.
const INTAKE_BYTES_MAX: usize = 128 << 20;

/// Puts a monitor together; yields where it listens, too. It serves as soon as it turns.
///
/// # Errors
/// [`StartError`].
pub fn assemble(config: &MonitorConfig, machine: Machine) -> Result<(Driver, EntityAddr), StartError> {
    let Machine { clock, mut entropy, net, store } = machine;
    let at = |source| StartError::Log { path: config.store.join(STORE_FILE), source };
    let replica = Replica::open(store).map_err(at)?;
    let snapshot = StoreSnapshot::new(replica.tables());
    let opened = Mon::open(&snapshot, &config.name, clock.wall());
    let front = Front::open(&snapshot, &config.name);
    if let Some(source) = snapshot.into_failure() {
        return Err(StartError::Store { path: config.store.join(STORE_FILE), source });
    }
    let mut mon = opened?.on_host(config.host.clone());
    let mut front = front.map_err(OpenError::from)?.accepting(config.methods.clone());
    let mut messenger = Messenger::new(net, clock.wall().sec.into());
    messenger.limit_intake(IntakeLimits { client_bytes: INTAKE_BYTES_MAX, peer_bytes: INTAKE_BYTES_MAX });
    let addr = listen(&mut mon, &mut messenger, &config.name, clock.as_ref(), entropy.as_mut())?;
    front.serve(true);
    front.set_active_mgr(true);
    let stop = Arc::new(AtomicBool::new(false));
    let next_tick = clock.now() + nacre_mon::TICK;
    let audit = AuditFile::default();
    Ok((Driver { front, mon, replica, messenger, clock, entropy, stop, next_tick, audit }, addr))
}

/// A running monitor.
pub struct Monitor {
    stop: Arc<AtomicBool>,
    waker: Arc<dyn Wake>,
    thread: JoinHandle<Result<(), DriverError>>,
    fsid: Uuid,
    addr: EntityAddr,
    admin_keyring: String,
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Monitor({} at {})", self.fsid, self.addr)
    }
}

fn open_store(folder: &Path) -> Result<RedbKv, StartError> {
    let path = folder.join(STORE_FILE);
    RedbKv::open(&path).map_err(|source| StartError::Store { path, source })
}

impl Monitor {
    /// Makes `folder` the store of one monitor, any, of a new cluster.
    ///
    /// # Errors
    /// [`StartError`], among others when the folder holds a cluster already.
    pub fn mkfs(folder: &Path, options: &MkfsOptions, wall: UTime) -> Result<(), StartError> {
        let at = |source| StartError::Folder { path: folder.to_owned(), source };
        private::make_folder(folder).map_err(at)?;
        let mut kv = open_store(folder)?;
        let store_error = |source| StartError::Store { path: folder.join(STORE_FILE), source };
        if !kv.scan_prefix(b"").map_err(store_error)?.is_empty() {
            return Err(StartError::Exists(folder.to_owned()));
        }
        mkfs(&mut kv, options, wall).map_err(|error| match error {
            StartError::Store { source, .. } => store_error(source),
            error => error,
        })
    }

    /// Starts the monitor of a folder. It serves when this returns.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(config: MonitorConfig) -> Result<Self, StartError> {
        for path in private::tighten(&config.store)? {
            tracing::warn!(path = %path.display(), "others could use it; that right is taken away");
        }
        let kv = open_store(&config.store)?;
        if !kv.has_checksums() {
            let path = config.store.join(STORE_FILE);
            tracing::warn!(path = %path.display(), "an older program's, without checksums of its pages: make room for a copy and restart");
        }
        let net = RealNet::new()?;
        let waker = net.waker();
        let machine = Machine {
            clock: Box::new(RealClock::start()),
            entropy: Box::new(SystemEntropy::default()),
            net: Box::new(net),
            store: Box::new(kv),
        };
        let (mut driver, addr) = assemble(&config, machine)?;
        driver.audit = AuditFile::open(&config.store, &driver.mon)?;
        let (fsid, admin_keyring) = (driver.mon.fsid(), admin_keyring(&driver.mon));
        let stop = Arc::clone(&driver.stop);
        let thread =
            std::thread::Builder::new().name(format!("mon.{}", config.name)).spawn(|| run(driver))?;
        Ok(Self { stop, waker, thread, fsid, addr, admin_keyring })
    }

    /// The cluster.
    #[must_use]
    pub fn fsid(&self) -> Uuid {
        self.fsid
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> EntityAddr {
        self.addr
    }

    /// The keyring of `client.admin`, as a file's text; empty when there is no such entity.
    #[must_use]
    pub fn admin_keyring(&self) -> String {
        self.admin_keyring.clone()
    }

    /// True when its thread has ended, which it does only when it cannot go on.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.thread.is_finished()
    }

    /// Stops it and waits until it has.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        if self.thread.join().is_err() {
            tracing::error!("the monitor's thread panicked");
        }
    }
}

fn run(driver: Driver) -> Result<(), DriverError> {
    let outcome = driver.run();
    if let Err(error) = &outcome {
        tracing::error!(%error, "the monitor ended");
    }
    outcome
}

fn admin_keyring(mon: &Mon) -> String {
    let admin = AuthName::new(EntityKind::CLIENT, "admin");
    let keyring = mon.state().auth.keys().keyring(Some(&admin));
    if keyring.is_empty() { String::new() } else { keyring.to_string() }
}

/// Listens as the monitor, where the map says, and as the manager, on a port that the system chooses.
fn listen(
    mon: &mut Mon,
    messenger: &mut Messenger,
    name: &str,
    clock: &dyn Clock,
    entropy: &mut dyn Entropy,
) -> Result<EntityAddr, StartError> {
    let info = mon.state().mon.map().mons.get(name);
    let addr =
        info.and_then(|info| info.addrs.msgr2()).ok_or_else(|| StartError::Unknown(name.to_owned()))?;
    let socket = addr.socket.ok_or_else(|| StartError::Unknown(name.to_owned()))?;
    let rank = mon.state().mon.map().rank_of(name).and_then(|rank| i64::try_from(rank).ok()).unwrap_or(0);
    let mut bind = |socket: SocketAddr| {
        messenger.listen(socket, false).map_err(|source| StartError::Listen { addr: socket, source })
    };
    let (mon_ears, _) = bind(socket)?;
    let (mgr_ears, mgr_socket) = bind(SocketAddr::new(socket.ip(), 0))?;
    let nonce = u32::try_from(entropy.u64() >> 32).unwrap_or(0).max(1);
    let mgr_addrs = AddrVec::of(EntityAddr::msgr2(mgr_socket, nonce));
    let mon_addrs = AddrVec::of(addr);
    mon.lead(mon_addrs.clone(), mgr_addrs.clone(), clock.now(), clock.wall(), entropy);
    let gid = i64::try_from(mon.state().mgr.map().active_gid).unwrap_or(0);
    let limited = |config: Config| Arc::new(Config { queued_bytes_max: QUEUED_BYTES_MAX, ..config });
    messenger.serve(mon_ears, limited(Config::mon(mon_addrs, rank)));
    messenger.serve(mgr_ears, limited(Config::mgr(mgr_addrs, gid)));
    Ok(addr)
}
